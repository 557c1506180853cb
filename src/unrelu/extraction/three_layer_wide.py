"""Depth-3 extraction where the first layer has more units than there are inputs.

Beyond the paper, which sets the first layer's outputs at will and needs d1 <= d
for it. Here the surfaces of the second-layer units are put together from the
places where lines cross them: :mod:`unrelu.extraction.deep_surfaces`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.extraction.deep_answers import Saturated
from unrelu.extraction.deep_crossings import (
    first_layer_signs,
    missed_rows,
    second_layer,
    surface_crossings,
)
from unrelu.extraction.deep_layers import floored
from unrelu.extraction.deep_surfaces import Crossings, Surface, group_crossings
from unrelu.extraction.deep_top import attach
from unrelu.extraction.three_layer_config import Failed, ThreeLayerConfig
from unrelu.extraction.three_layer_first import FirstLayer
from unrelu.lines.survey import SurveyLine, calibrate, scan_line
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.result import Status

__all__ = ["MissedRow", "WideTop"]


class MissedRow(Exception):
    """Crossings of a first-layer hyperplane that was not known: its orientation is open."""


class WideTop(FirstLayer):
    """The layers above a first layer that has no right inverse."""

    def __init__(
        self,
        oracle: Oracle,
        rng: np.random.Generator,
        progress: Progress,
        config: ThreeLayerConfig,
    ) -> None:
        super().__init__(oracle, rng, progress, config)
        self.wide = False
        self.crossings: Crossings | None = None
        self.surfaces: list[Surface] = []
        self.looked_at = np.empty((0, oracle.input_dim)), np.empty((0, oracle.output_dim))

    def cross(
        self,
        base: FloatArray,
        direction: FloatArray,
        reach: float | None = None,
        expected: float | None = None,
    ) -> None:
        """Search one line, and keep where it crosses surfaces.

        Where a unit that is on for a short while only is ``expected`` near the base, at
        about this distance, the search looks there: it may miss two kinks that are close.
        """
        config, d = self.config, self.domain.dimension
        far = max(self.domain.scale, float(np.linalg.norm(base)))  # farther out all is larger
        reach = (config.wide.reach if reach is None else reach) * far
        direction = direction / np.linalg.norm(direction)
        line = SurveyLine(base, direction, -reach, reach, self.domain.scale)
        noise, seeds = calibrate(self.ask_line, line, near=10.0 * self.domain.scale)
        noise = floored(self.oracle, noise, d, self.rng)
        if expected is not None:
            t = min(expected, 0.3 * reach) * np.array([-3.0, -1.0, -0.3, 0.0, 0.3, 1.0, 3.0])
            seen = self.ask_line(line.points(t))
            seeds = seeds + [(t[i : i + 1], seen[i : i + 1]) for i in range(len(t))]
        scan, noise = scan_line(self.ask_line, line, noise, seeds, config=config.survey)
        found = surface_crossings(
            self.oracle,
            line,
            scan,
            noise,
            self.weights,
            self.biases,
            rng=self.rng,
            known=self.determined(),
            config=config.rows,
            gradient_config=config.gradients,
        )
        self.crossings = found if self.crossings is None else self.crossings.joined(found)

    def wander(self, lines: int, place: list[FloatArray]) -> Crossings:
        """Search lines, each a little away from the last: neighbours share most gates.

        Returns all crossings known.
        """
        step, d = self.config.wide.step, self.domain.dimension
        for _ in range(lines):
            self.cross(place[0], place[1])
            place[0] = place[0] + step * self.rng.standard_normal(d)
            place[0] *= min(1.0, 1.3 * self.domain.scale / float(np.linalg.norm(place[0])))
            place[1] = place[1] / np.linalg.norm(place[1])
            place[1] = place[1] + step * self.rng.standard_normal(d) / np.sqrt(d)
        assert self.crossings is not None
        return self.crossings

    def wide_top(self) -> None:
        """Lines until the surfaces tell the first layer's orientation, then the units."""
        self.crossings, self.wide = None, True
        self.with_all_rows(self.look_around)

    def with_all_rows(self, work: Callable[[], object]) -> None:
        """Do what needs the units; begin anew where that shows a row that was missed."""
        for _ in range(self.config.more_lines):
            try:
                if not self.signed:
                    self.orient_by_surfaces()
                    with self.stage("surfaces") as details:
                        self.group()
                        self.explore()
                        details["open"] = len(self.open_surfaces())
                    self.build()
                work()
                return
            except MissedRow:
                self.signed = False
        raise Failed(
            Status.PARTIAL,
            f"{len(self.weights)} first-layer hyperplanes were found with only "
            f"{self.domain.dimension} inputs, and ever more of them turn up",
        )

    def orient_by_surfaces(self) -> None:
        """Search lines until the surfaces that they cross tell the first layer's signs."""
        config, d = self.config.wide, self.domain.dimension
        rows = self.weights, self.biases
        place = [self.rng.standard_normal(d), self.rng.standard_normal(d)]
        surfaces: list[Surface] = []
        signs, off, alone, lines = np.ones(0), np.inf, 1.0, 0
        with self.stage("surfaces") as details:
            if self.crossings is not None:  # a row was missed: they may tell already
                surfaces = group_crossings(self.crossings, self.weights, self.biases)
                signs, off = first_layer_signs(surfaces, self.weights)
            while off > config.sure and lines < config.most_lines:
                self.progress.update("surfaces", lines, config.most_lines)
                more = config.more_lines if lines else config.first_lines
                self.crossings = self.wander(more, place)
                lines += more
                if self.take_missed():
                    surfaces = []
                surfaces = group_crossings(self.crossings, self.weights, self.biases, surfaces)
                signs, off = first_layer_signs(surfaces, self.weights)
                grouped = sum(len(s.members) for s in surfaces if len(s.members) > 2)
                alone = 1.0 - grouped / max(1, len(self.crossings))
                if lines >= config.enough and alone > config.alone:
                    break
            details |= {"lines": lines, "surfaces": len(surfaces), "signs off by": off}
        if off > config.sure:
            self.weights, self.biases = rows
            raise Failed(
                Status.PARTIAL,
                f"{len(self.weights)} first-layer hyperplanes were found with only {d} inputs, "
                f"and {lines} lines through the surfaces above do not tell their orientation "
                f"({alone:.0%} of the kinks on them are on no surface of a second layer); the "
                "hyperplanes are returned up to sign",
                structural=alone > config.alone,
            )
        self.weights, self.biases = self.weights * signs[:, None], self.biases * signs
        self.signed, self.surfaces = True, []
        self.condition = float(np.linalg.cond(self.weights))

    def take_missed(self) -> bool:
        """Take in rows that the search for the first layer missed; whether there were any."""
        assert self.crossings is not None
        weights, biases, members = missed_rows(self.crossings, self.weights, self.biases)
        if len(weights) == 0:
            return False
        self.weights = np.concatenate([self.weights, weights])
        self.biases = np.concatenate([self.biases, biases])
        self.crossings = self.crossings.kept(np.flatnonzero(~members))
        return True

    def group(self) -> None:
        """Group the crossings over the oriented first layer."""
        assert self.crossings is not None
        if self.take_missed():
            raise MissedRow
        self.surfaces = group_crossings(
            self.crossings, self.weights, self.biases, self.surfaces, oriented=True
        )

    def determined(self) -> FloatArray | None:
        """Return the units (v, c) of which everything is known."""
        known = len(self.weights) + 1
        if not self.signed:
            return None
        found = [s.solution()[0] for s in self.surfaces if s.rank == known]
        return np.array(found).reshape(-1, known)

    def open_surfaces(self) -> list[Surface]:
        """Return the surfaces of which something is not determined, the least known first."""
        known = len(self.weights) + 1
        return sorted((s for s in self.surfaces if s.rank < known), key=lambda s: s.rank)

    def aside(self, surface: Surface, toward: FloatArray | None = None) -> None:
        """Cross a surface again, beside where it was crossed before."""
        config, d = self.config.wide, self.domain.dimension
        assert self.crossings is not None
        places = self.crossings.points[surface.members]
        i = int(self.rng.integers(len(places)))
        along = self.domain.scale * self.rng.standard_normal(d) / np.sqrt(d)
        if toward is not None:
            i = int(np.argmin(np.linalg.norm(places - toward, axis=1)))
            along = toward - places[i]
        normal = self.crossings.normals[surface.members[i]]
        normal = normal / np.linalg.norm(normal)
        along = along - (along @ normal) * normal
        self.cross(places[i] + self.rng.uniform(*config.aside) * along, normal, config.short)

    def brink(self, surface: Surface) -> tuple[FloatArray, FloatArray, float] | None:
        """Find where a surface leaves what is known of it.

        Just beyond a hyperplane on whose on side it was never crossed, what is not
        determined is small, and the surface is still where it is expected.

        Returns
        -------
        The point, the surface's normal there, and how far what is not known may move it.
        """
        config = self.config.wide
        theta, null = surface.solution()[0], surface.null()
        v, c = theta[:-1], theta[-1]
        x = self.draw_far(config.pool)
        least = 1e-6 * max(float(np.linalg.norm(v)), float(np.finfo(np.float64).tiny))

        def piece() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
            z = x @ self.weights.T + self.biases
            slope = ((z > 0) * v) @ self.weights
            length = np.maximum(np.linalg.norm(slope, axis=1), least)  # none where all is off
            hidden = np.maximum(z, 0.0)
            return slope, length, hidden, (hidden @ v + c) / length

        for _ in range(config.descent):  # onto the surface, piece by piece
            slope, length, _, off = piece()
            x = x - (off / length)[:, None] * slope
        slope, length, hidden, off = piece()
        norms = np.linalg.norm(x, axis=1)
        # As distances: from the surface as known, and how far the rest may move it.
        off = np.abs(off)
        rest = np.concatenate([hidden, np.ones((len(x), 1))], axis=1) @ null.T
        moved = np.linalg.norm(rest, axis=1) * np.linalg.norm(theta) / length
        far = np.maximum(self.domain.scale, norms)
        fit = (off < 1e-6 * far) & (moved > config.beyond * far) & (moved < config.short * far)
        fit &= norms < config.far[1] * self.domain.scale
        if not fit.any():
            return None
        where = np.flatnonzero(fit)
        nearest = where[np.argsort(moved[where])[: config.nearest]]
        i = int(self.rng.choice(nearest))
        return x[i], slope[i], float(moved[i])

    def beyond(self, surface: Surface) -> bool:
        """Cross a surface at a brink; whether there is any."""
        place = self.brink(surface)
        if place is None:
            return False
        point, normal, moved = place
        self.cross(point, normal, self.config.wide.short, expected=moved)
        return True

    def explore(self) -> None:
        """Cross surfaces that are not determined, while that tells more about them."""
        config = self.config.wide
        idle: dict[int, int] = {}
        for done in range(config.explore):
            targets = [s for s in self.open_surfaces() if idle.get(id(s), 0) < config.idle]
            self.progress.update("surfaces", done, None, f"{len(targets)} not determined")
            if not targets:
                return
            before = {id(s): s.rank for s in targets}
            pool = self.draw_far(config.pool)
            for surface in targets:
                if self.beyond(surface):
                    continue
                there = pool[self.undetermined(surface, pool)]
                toward = there[int(self.rng.integers(len(there)))] if len(there) else None
                self.aside(surface, toward)
            self.group()
            for s in self.surfaces:
                idle[id(s)] = idle.get(id(s), 0) + 1 if s.rank == before.get(id(s)) else 0

    def draw_far(self, count: int) -> FloatArray:
        """Draw inputs, a third of them typical and the others farther out."""
        points = self.rng.standard_normal((count, self.domain.dimension))
        points[count // 3 :] *= self.rng.uniform(*self.config.wide.far, (count - count // 3, 1))
        return self.rng.permutation(points)

    def undetermined(self, surface: Surface, points: FloatArray) -> BoolArray:
        """Tell at which inputs a unit is not determined, ``(n,)``."""
        hidden = np.maximum(points @ self.weights.T + self.biases, 0.0)
        hidden = np.concatenate([hidden, np.ones((len(points), 1))], axis=1)
        hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
        return np.asarray(np.abs(hidden @ surface.null().T).max(axis=1, initial=0.0) > 1e-6)

    def open_at(self, point: FloatArray) -> list[Surface]:
        """Return the surfaces whose units are not determined at an input."""
        return [s for s in self.open_surfaces() if self.undetermined(s, point[None])[0]]

    def wide_checks(self) -> FloatArray:
        """Draw inputs to look at: any, and some where each open surface is not determined."""
        config = self.config.wide
        blocks = [self.draw_far(config.checks)]
        targets = self.open_surfaces()
        pool = self.draw_far(config.pool)
        for surface in targets:
            blocks.append(pool[self.undetermined(surface, pool)][: config.checks_open])
        return np.concatenate(blocks)

    def build(self) -> None:
        """Put what the crossings say so far together as a network."""
        assert self.crossings is not None
        assert self.noise is not None
        # A single crossing may be a wrong one; two that agree are not.
        sure = [s for s in self.surfaces if len(s.members) > 1]
        x, y = self.oracle.stored(self.config.around * self.domain.scale)
        units = second_layer(sure, self.weights, self.biases, x, y, self.noise.at(x))
        self.second_width = len(units.weights)
        self.network, self.free = attach(self.weights, self.biases, units)

    def look_around(self) -> None:
        """Look at fresh inputs, and learn more, until a round shows nothing new."""
        for _ in range(self.config.wide.rounds):
            points = self.wide_checks()
            with self.stage("check") as details:
                answers = self.oracle(points)
                usable = np.isfinite(answers).all(axis=1)
                points, answers = points[usable], answers[usable]
            if len(points) == 0:
                raise Saturated
            self.looked_at = points, answers
            details["unexplained"], left = self.explain(points, answers)
            if details["unexplained"] == 0 or left:
                return

    def explain(self, points: FloatArray, answers: FloatArray) -> tuple[int, int]:
        """Learn more where the network does not explain answers.

        Returns
        -------
        How many it did not explain, before and after.
        """
        config, before = self.config.wide, None
        growth = 1.0 + np.linalg.norm(points, axis=1) / self.domain.scale
        unit = np.multiply.outer(growth, self.spreads(answers))
        for done in range(config.repairs + 1):
            assert self.network is not None
            off = (np.abs(answers - self.network(points)) / unit).max(axis=1)
            lacking = off > self.config.lacking
            left = int(lacking.sum())
            before = left if before is None else before
            # With most of them unexplained it is no network of this depth.
            if left == 0 or left > config.hopeless * len(points) or done == config.repairs:
                break
            worst = int(np.argmax(off))
            self.progress.update("surfaces", done, None, f"{off[worst]:.1g} unexplained")
            fine = points[~lacking]
            self.learn_at(points[worst], fine[int(self.rng.integers(len(fine)))])
        return before or 0, left

    def learn_at(self, point: FloatArray, other: FloatArray) -> None:
        """Learn more about what an input shows that the network does not explain.

        Something lies between it and one that the network explains.
        """
        assert self.crossings is not None
        before = len(self.crossings)
        with self.stage("surfaces") as details:
            targets = self.open_at(point)
            for surface in targets:
                if not self.beyond(surface):
                    self.aside(surface, toward=point)
            if not targets or self.rng.uniform() < 0.5:  # a unit that no line has met
                self.cross(point, other - point, expected=0.1 * self.domain.scale)
            self.group()
            details["crossings"] = len(self.crossings) - before
        self.build()
