"""Walks on the decision boundary: from a place on a facet to the walls around it.

Within one piece of the network the boundary between two classes is flat. Where it crosses a
unit's hyperplane it bends: there lies a *dual point*, and the unit's row is in the span of the
two normals. Walls that are known already are not looked for again.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.boundary import GROWTH, Crossings, between, locate, measure_normals
from unrelu.labels.charts import Chart
from unrelu.labels.hyperplanes import BLURRED, Duals, Hyperplanes

__all__ = ["Explorer", "Place", "Precision"]


@dataclasses.dataclass
class Place:
    """A point on a facet: where to explore from.

    ``walls`` are hyperplanes ``(normal, offset)`` that end the facet and are known here only:
    planes of the facets beyond. ``angle`` is the normal's error in radians, ``misses`` counts
    walks that met nothing new.
    """

    point: FloatArray
    normal: FloatArray
    inside: int
    outside: int
    angle: float
    walls: list[tuple[FloatArray, float]]
    misses: int = 0


@dataclasses.dataclass(frozen=True)
class Precision:
    """Lengths of a search: of a step, its finest part, and the labels' own resolution."""

    step: float
    finest: float
    noise: float

    def angle(self, s: int, step: FloatArray, finest: FloatArray) -> FloatArray:
        """Return the errors of normals in s dimensions, in radians."""
        return np.asarray(np.sqrt(s) * (finest + self.noise) / step)


class Explorer:
    """Explores the boundary in a chart; keeps places, dual points and all crossings."""

    def __init__(
        self, chart: Chart, rng: np.random.Generator, precision: Precision, *,
        margin: float, candidates: int, tangents: int,
    ) -> None:  # fmt: skip
        self.chart, self.rng, self.precision = chart, rng, precision
        self.margin, self.candidates, self.tangents = margin, candidates, tangents
        # Error of a row (radians) from which on it is not measured again: pairs of such rows
        # are far from being blurred.
        self.sharp = BLURRED / margin**2
        self.places: list[Place] = []
        self.crossings = Crossings.none(chart.dimension)
        self.duals = Duals.none(chart.dimension)

    @property
    def reach(self) -> float:
        """Norm of coordinates beyond which inputs are not typical."""
        return float(1.5 * np.sqrt(self.chart.dimension) + 1.0)

    def add(self, found: Crossings) -> None:
        """Measure the normals at crossings, and make places of those that are flat."""
        step = np.full(len(found), self.precision.step)
        finest = np.full(len(found), self.precision.finest)
        normals, good = measure_normals(self.chart, found, self.rng, step=step, finest=finest)
        self._settle(
            found, normals, good, self.precision.angle(self.chart.dimension, step, finest)
        )

    def _settle(
        self, at: Crossings, normals: FloatArray, good: BoolArray, angle: FloatArray
    ) -> dict[int, Place]:
        """Make places of crossings whose normals are good."""
        made = {
            int(i): Place(
                at.points[i], normals[i], int(at.inside[i]), int(at.outside[i]),
                float(angle[i]), [],
            )
            for i in np.flatnonzero(good)
        }  # fmt: skip
        self.places += made.values()
        return made

    def sweep(self, known: Hyperplanes, most: int) -> bool:
        """Take a walk from places that are not explored, at most so many; False without any."""
        active = [p for p in self.places if p.misses < self.tangents]
        if not active:
            return False
        active = [active[i] for i in self.rng.permutation(len(active))[:most]]
        tangents, ends = self._tangents(active, known)
        t, bends = self._walk(active, tangents, ends)
        for place, met in zip(active, bends, strict=True):
            place.misses += not met
        met = np.flatnonzero(bends)
        if len(met):
            self._cross([active[i] for i in met], tangents[met], t[met])
        return True

    def _tangents(self, active: list[Place], known: Hyperplanes) -> tuple[FloatArray, FloatArray]:
        """Choose a direction for each place, and how far to walk: up to the first known wall."""
        s, tangents, ends = self.chart.dimension, [], []
        for place in active:
            tau = self.rng.standard_normal((self.candidates, s))
            tau -= np.outer(tau @ place.normal, place.normal)
            tau /= np.linalg.norm(tau, axis=1, keepdims=True)
            rows = np.concatenate([known.rows, *(w[None] for w, _ in place.walls)])
            beside = [float(w @ place.point + b) for w, b in place.walls]
            heights = np.concatenate([known.rows @ place.point + known.offsets, beside])
            speed = tau @ rows.T
            # Stop where a wall's distance is that of a few steps.
            room = np.maximum(np.abs(heights) - GROWTH * self.precision.step, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                until = np.where(speed * np.sign(heights) < 0.0, room / np.abs(speed), np.inf)
            end = np.minimum(until.min(axis=1, initial=np.inf), self._leaving(place.point, tau))
            best = int(np.argmax(end))
            tangents.append(tau[best])
            ends.append(end[best])
        return np.array(tangents), np.array(ends)

    def _leaving(self, point: FloatArray, tau: FloatArray) -> FloatArray:
        """Return how far directions ``(n, s)`` stay among typical inputs."""
        along = tau @ point
        inner = along**2 + max(self.reach**2 - float(point @ point), 0.0)
        return np.asarray(-along + np.sqrt(inner))

    def _allowed(self, angle: FloatArray, t: FloatArray) -> FloatArray:
        """Return how far a facet's plane may be off, ``t`` away from where it was measured."""
        return np.asarray(self.margin * angle * (t + self.precision.step))

    def _walk(
        self, active: list[Place], tangents: FloatArray, ends: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Tell where the boundary leaves each facet's plane, and whether it bends there.

        Two labels at the end tell whether it leaves at all; the one that was wrong finds where.
        Where a third class takes over the boundary ends instead.
        """
        y, normal, inside, outside, angle = _arrays(active)

        def beside(t: FloatArray, side: FloatArray, i: IntArray) -> IntArray:
            aside = (side * self._allowed(angle[i], t))[:, None] * normal[i]
            return self.chart.ask(y[i] + t[:, None] * tangents[i] + aside)

        every = np.arange(len(active))
        behind = beside(ends, -np.ones(len(active)), every)
        ahead = beside(ends, np.ones(len(active)), every)
        left = (behind != inside) | (ahead != outside)
        side = np.where(behind != inside, -1.0, 1.0)
        expected = np.where(side < 0, inside, outside)
        other = np.where(side < 0, outside, inside)
        seen = np.where(side < 0, behind, ahead)
        low, high = np.zeros(len(active)), ends.copy()
        index = np.flatnonzero(left)
        while len(index):
            middle = 0.5 * (low[index] + high[index])
            label = beside(middle, side[index], index)
            on = label == expected[index]
            low[index[on]] = middle[on]
            high[index[~on]] = middle[~on]
            seen[index[~on]] = label[~on]
            index = index[high[index] - low[index] > self.precision.step]
        return high, left & (seen == other)

    def _cross(self, places: list[Place], tangents: FloatArray, t: FloatArray) -> None:
        """Find the facets beyond the walls that were met, and with them dual points."""
        step = self.precision.step
        found, at = self._beyond(places, tangents, t)
        self.crossings = self.crossings.joined(at)
        size = np.full(len(found), step)
        finest = np.full(len(found), self.precision.finest)
        other, good = measure_normals(self.chart, at, self.rng, step=size, finest=finest)
        new_angle = self.precision.angle(self.chart.dimension, size, finest)
        self._sharpen([places[i] for i in found], tangents[found], at, other, good, new_angle)
        made = self._settle(at, other, good, new_angle)
        for i, new in made.items():
            self._dual(places[found[i]], new, tangents[found[i]], float(t[found[i]]))
        for i in np.setdiff1d(np.arange(len(places)), found[list(made)]):
            places[i].misses += 1

    def _beyond(
        self, places: list[Place], tangents: FloatArray, t: FloatArray
    ) -> tuple[IntArray, Crossings]:
        """Find the boundary behind walls; return at which, and the crossings.

        Along the facet's own normal, or around the wall where the boundary folds back.
        """
        y, normal, inside, outside, angle = _arrays(places)
        beyond = t + GROWTH * self.precision.step
        base = y + beyond[:, None] * tangents
        half = self._allowed(angle, beyond) + GROWTH * self.precision.step
        offset, error = locate(
            self.chart, base, normal, inside, outside, guess=np.zeros(len(y)), half=half,
            finest=self.precision.finest, reach=GROWTH**3 * half,
        )  # fmt: skip
        found, lost = np.flatnonzero(np.isfinite(offset)), np.flatnonzero(np.isnan(offset))
        at = Crossings(base + offset[:, None] * normal, normal, inside, outside, error).take(found)
        folded, more = self._around([places[i] for i in lost], tangents[lost], t[lost])
        return np.concatenate([found, lost[folded]]), at.joined(more)

    def _around(
        self, places: list[Place], tangents: FloatArray, t: FloatArray
    ) -> tuple[IntArray, Crossings]:
        """Find the facets that fold back at walls, at an acute angle to those before.

        One label rules behind such a wall. The other one's wedge lies between both facets, so
        that a point beside the first facet and one behind the wall are on either side of the
        second.
        """
        none = np.empty(0, np.intp), Crossings.none(self.chart.dimension)
        if not places:
            return none
        y, normal, inside, outside, angle = _arrays(places)
        far = GROWTH**2 * self.precision.step
        behind = y + (t + far)[:, None] * tangents
        label = self.chart.ask(behind)
        above = label == inside
        aside = (self._allowed(angle, t) + GROWTH * self.precision.step)[:, None] * normal
        beside = y + (t - far)[:, None] * tangents + np.where(above[:, None], aside, -aside)
        wedge = np.where(above, outside, inside)
        folded = np.flatnonzero((above | (label == outside)) & (self.chart.ask(beside) == wedge))
        if len(folded) == 0:
            return none
        up = above[folded][:, None]
        at = between(
            self.chart, np.where(up, behind[folded], beside[folded]),
            np.where(up, beside[folded], behind[folded]), inside[folded], outside[folded],
            self.precision.finest,
        )  # fmt: skip
        same = at.outside == outside[folded]
        return folded[same], at.take(same)

    def _sharpen(
        self, places: list[Place], tangents: FloatArray, at: Crossings, other: FloatArray,
        good: BoolArray, new_angle: FloatArray,
    ) -> None:  # fmt: skip
        """Measure normals again where the boundary bends too little to be used.

        First more finely; where the labels' resolution ends that, by longer steps, farther from
        the wall. Changes ``at``, ``other`` and ``new_angle`` in place, and the places.
        """
        s, precision = self.chart.dimension, self.precision
        normal = np.array([p.normal for p in places]).reshape(other.shape)
        angle = np.array([p.angle for p in places])
        sine = np.sqrt(np.maximum(1.0 - (normal * other).sum(axis=1) ** 2, 0.0))
        weak = np.flatnonzero(good & (angle > 2.0 * self.sharp * sine) & (sine > angle))
        if len(weak) == 0:
            return
        ratio = self.sharp * sine[weak] / np.sqrt(s)
        fine = np.maximum(ratio * precision.step, 2.0 * precision.noise)
        step = np.clip(fine / ratio, precision.step, 1.0 / s)  # where hyperplanes are
        tangent = (
            tangents[weak] - (tangents[weak] * other[weak]).sum(axis=1)[:, None] * other[weak]
        )
        farther = at.points[weak] + (2.0 * (step - precision.step))[:, None] * tangent
        both = Crossings(
            np.concatenate([np.array([places[i].point for i in weak]), farther]),
            np.concatenate([normal[weak], other[weak]]), np.tile(at.inside[weak], 2),
            np.tile(at.outside[weak], 2), np.full(2 * len(weak), precision.finest),
        )  # fmt: skip
        fine, step = np.tile(fine, 2), np.tile(step, 2)
        half = 4.0 * precision.finest + self._allowed(np.tile(angle[weak], 2), 2.0 * step)
        offset, error = locate(
            self.chart, both.points, both.directions, both.inside, both.outside,
            guess=np.zeros(len(both)), half=half, finest=fine, reach=GROWTH**3 * half,
        )  # fmt: skip
        held = np.isfinite(offset)
        points = both.points + np.where(held, offset, 0.0)[:, None] * both.directions
        both = Crossings(
            points, both.directions, both.inside, both.outside, np.where(held, error, 0.0)
        )
        normals, fitting = measure_normals(self.chart, both, self.rng, step=step, finest=fine)
        fitting &= held
        sharper, half_way = precision.angle(s, step, fine), len(weak)
        for j, i in enumerate(weak):
            new = half_way + j
            if not (fitting[j] and fitting[new]):
                continue
            place = places[i]
            place.point, place.normal, place.angle = points[j], normals[j], float(sharper[j])
            other[i], at.points[i], at.error[i] = normals[new], points[new], both.error[new]
            new_angle[i] = sharper[new]

    def _dual(self, place: Place, new: Place, tangent: FloatArray, t: float) -> None:
        """Keep the dual point between two places, if it lies between them."""
        n1, n2 = place.normal, new.normal
        angle = max(place.angle, new.angle)
        place.walls.append((n2, -float(n2 @ new.point)))
        new.walls.append((n1, -float(n1 @ place.point)))
        tangent = tangent - (tangent @ n1) * n1
        slope = float(n2 @ tangent)
        sine = float(np.linalg.norm(n2 - (n1 @ n2) * n1))
        if sine <= self.margin * angle or abs(slope) <= angle:
            place.misses += 1
            return
        where = float(n2 @ (new.point - place.point)) / slope
        tolerance = float(self._allowed(np.array(angle), np.array(t))) / abs(slope)
        if not -tolerance <= where <= t + tolerance:
            place.misses += 1
            return
        self.duals = self.duals.with_one(place.point + where * tangent, n1, n2, angle / sine)


def _arrays(
    places: list[Place],
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]:
    """Return points, normals, both labels and angles of places."""
    return (
        np.array([p.point for p in places]),
        np.array([p.normal for p in places]),
        np.array([p.inside for p in places]),
        np.array([p.outside for p in places]),
        np.array([p.angle for p in places]),
    )
