"""The stages of depth-3 extraction after the first layer is known.

:mod:`unrelu.extraction.three_layer` runs them; its docstring maps them to the paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.explain import BEYOND_HELD_OUT, EXACT
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import Saturated
from unrelu.extraction.deep_certify import Verdict, certify_network
from unrelu.extraction.deep_orthant import OrthantSearch
from unrelu.extraction.deep_polish import PolishConfig, polish
from unrelu.extraction.deep_regions import cover_gates, hold_unseen
from unrelu.extraction.deep_rows import row_rank
from unrelu.extraction.deep_sharpen import TwoLayers, sharpen
from unrelu.extraction.deep_top import TopOracle, attach
from unrelu.extraction.deep_turn import turn_units
from unrelu.extraction.three_layer_config import Failed
from unrelu.extraction.three_layer_wide import WideTop
from unrelu.networks import ReLUNetwork
from unrelu.result import Certificate, Status

__all__ = ["Extraction"]


@contextmanager
def _limited(black_box: TopOracle) -> Iterator[None]:
    """Turn the end of a stage's own limit into the failure of a start."""
    try:
        yield
    except BudgetExhausted as error:
        if black_box.exhausted:
            raise Failed(Status.PARTIAL, str(error), structural=True) from error
        raise


class Extraction(WideTop):
    """One run."""

    black_box: TopOracle
    search: OrthantSearch
    small: bool = False
    """Whether all parameters can be fitted at once."""
    doubtful: tuple[ReLUNetwork | None, int, Verdict] | None = None
    """The last network that its certificate did not confirm."""

    # ------------------------------------------------------------------ the top

    def top(self) -> None:
        """3.5.4: the layers above as a depth-2 network on the orthant."""
        config = self.config
        k = len(self.weights)
        if k == 0:
            raise Failed(
                Status.PARTIAL,
                "no first-layer hyperplane was found: the target looks affine or constant "
                "where it was asked; try extract_two_layer",
                final=True,
            )
        d, m = self.domain.dimension, self.oracle.output_dim
        expected = k * (d + 1) + max(self.kinks - k, 0) * (k + 1 + m)
        self.small = expected <= config.few
        limit = int(config.top.per_unit * (k + 1) * (self.kinks + 10))
        assert self.rows is not None
        black_box = TopOracle(
            self.oracle,
            self.weights,
            self.biases,
            limit=limit,
            std=self.rows.std,
            config=config.top,
        )
        assert self.noise is not None
        self.progress.update("top layers", 0, None)
        with self.stage("top layers") as details, _limited(black_box):
            search = OrthantSearch(
                black_box,
                k,
                black_box.noise(self.noise),
                rng=self.rng,
                max_units=int(config.many * (self.kinks + 10)),
                config=dataclasses.replace(config.orthant, settle=not self.small),
                gradient_config=config.gradients,
            )
            search.axes()
            found = search.units
            details |= {"units": len(found.weights), "open axes": found.open_axes}
        if found.open_axes == k:
            raise Failed(
                Status.PARTIAL,
                f"the layers above the first show ever more hyperplanes ({len(found.weights)} "
                "so far): more than one hidden layer is there, or the first layer is incomplete",
                structural=True,
            )
        self.black_box, self.search = black_box, search
        self.assemble()
        self.progress.update("top layers", 1, 1, f"{self.second_width} second-layer units")

    def assemble(self) -> None:
        """Put the units found above the first layer."""
        units = self.search.units
        self.second_width = len(units.weights)
        above = self.black_box.cone.on_outputs(units)
        self.network, self.free = attach(self.weights, self.biases, above)

    def repair(self, points: FloatArray) -> bool:
        """Search for units that inputs ``(n, d)`` show; whether there were any."""
        with self.stage("repair") as details, _limited(self.black_box):
            found = False
            for s in self.black_box.coordinates(points):
                if self.search.toward(s):
                    found = True
                    break
            details["units"] = len(self.search.units.weights)
        if found:
            self.assemble()
        return found

    # ------------------------------------------------------------------ the end

    def look_at_typical(self) -> tuple[FloatArray, FloatArray]:
        """Ask some Gaussian inputs; returns those that have an answer."""
        assert self.network is not None
        config = self.config
        count = config.checks + int(config.checks_more * self.network.parameters)
        count = min(count, config.checks_most)
        points = self.rng.standard_normal((count, self.domain.dimension))
        with self.stage("check"):
            answers = self.oracle(points)
        usable = np.isfinite(answers).all(axis=1)
        if usable.sum() < config.checks_least * count:
            raise Saturated
        return points[usable], answers[usable]

    def check(self, points: FloatArray, answers: FloatArray) -> None:
        """Compare with answers; search towards what is not explained, polish where it helps."""
        assert self.network is not None
        assert self.noise is not None
        config = self.config
        # Far out both the function and its errors grow with the input.
        growth = np.maximum(1.0, np.linalg.norm(points, axis=1) / self.domain.scale)
        unit = np.multiply.outer(growth, self.spreads(answers))

        def misses() -> FloatArray:
            assert self.network is not None
            return np.asarray((np.abs(answers - self.network(points)) / unit).max(axis=1))

        with self.stage("check") as details:
            details["before polish"] = float(misses().max())
        for _ in range(0 if self.wide else config.repairs):
            worst = np.argsort(-misses())[: config.repair_points]
            worst = worst[misses()[worst] > config.lacking]
            if len(worst) == 0 or not self.repair(points[worst]):
                break
        self.check_error = float(misses().max())
        if self.check_error <= config.good:
            return
        if self.check_error < config.hopeless:
            if self.small or self.wide:
                self.fit_all(misses)
            else:
                self.correct(points, answers, misses)
        self.prune()
        self.check_error = float(misses().max())
        if self.check_error > config.fair:
            if self.check_error > config.close:
                self.network = None  # not even the structure is right
            noise = self.noise.std(np.array([self.domain.scale]))[0]
            level = float((noise / self.spreads(answers)).max())
            coarse = f" (the answers carry noise of {level:.1g} of it)" if level > 1e-11 else ""
            raise Failed(
                Status.PARTIAL,
                f"the network found deviates by {self.check_error:.2g} of the answers' spread at "
                f"typical inputs{coarse}: a unit is missing, or the target has more hidden layers "
                "than two",
                structural=self.check_error > config.close,
            )

    def sharpen(self, points: FloatArray, answers: FloatArray) -> None:
        """Correct both layers from gradients at inputs with room."""
        assert self.noise is not None
        search, cone = self.search, self.black_box.cone
        found = sharpen(
            self.oracle,
            TwoLayers(self.weights, self.biases, cone.on_outputs(search.units)),
            self.noise,
            (points, answers),
            affine_error=search.affine_error,
            rng=self.rng,
            gradient_config=self.config.gradients,
        )
        self.weights, self.biases = found.weights, found.biases
        search.units = cone.from_outputs(found.top)
        self.black_box.place(self.weights, self.biases)
        self.assemble()

    def correct(
        self, points: FloatArray, answers: FloatArray, misses: Callable[[], FloatArray]
    ) -> None:
        """Correct the network from gradients with room, until that gains nothing."""
        for _ in range(self.config.rounds):
            if self.check_error <= self.config.sharp:
                return
            before = self.check_error
            kept = self.weights, self.biases, self.search.units
            with self.stage("sharpening") as details:
                self.sharpen(points, answers)
                self.check_error = float(misses().max())
                details |= {"before": before, "after": self.check_error}
            if self.check_error > before:
                self.weights, self.biases, self.search.units = kept
                self.black_box.place(self.weights, self.biases)
                self.assemble()
                self.check_error = before
                return
            # A correction leaves errors of second order.
            if before**2 <= self.config.sharp:
                return

    def fit_all(self, misses: Callable[[], FloatArray]) -> None:
        """Fit a small network to all answers, and to more of them where these say too little."""
        assert self.network is not None
        config = self.config
        for attempt in range(config.rounds):
            if attempt and not config.unsharp < self.check_error < config.close:
                break
            if config.sharp < self.check_error < config.close or attempt:
                with self.stage("refinement"):
                    self.refine()
            self.progress.update("polish", attempt, None)
            with self.stage("polish") as details:
                old, kept = self.network, self.check_error
                for setting in (config.polish, config.polish_gently):
                    details |= self.polish(setting)
                    self.check_error = float(misses().max())
                    details["check"] = self.check_error
                    if self.check_error <= kept:
                        break
                    # A unit that few answers see ran away: take it back.
                    self.network, self.check_error = old, kept

    def prune(self) -> None:
        """Drop second-layer units that the polish has reduced to nothing."""
        assert self.network is not None
        w, v, u = self.network.weights
        b, c, a = self.network.biases
        n = self.second_width
        size = np.linalg.norm(v[:n], axis=1) * np.linalg.norm(u[:, :n], axis=0)
        keep = np.ones(len(v), dtype=bool)
        keep[:n] = size > self.config.orthant.spurious * size.max(initial=0.0)
        if not keep.all():
            self.network = ReLUNetwork([w, v[keep], u[:, keep]], [b, c[keep], a])
            self.second_width = int(keep[:n].sum())

    def refine(self) -> None:
        """Ask typical inputs, and some for every unit that is rarely on or rarely off."""
        assert self.network is not None
        config = self.config
        count = int(config.extra * self.network.parameters)
        pool = self.rng.standard_normal((config.pool, self.domain.dimension))
        pool *= self.rng.uniform(1.0, config.extra_reach, (config.pool, 1))
        need = len(self.weights) + 2  # a unit has that many parameters, a bias and an output
        rare = cover_gates(self.network, pool, config.rare, need)
        x = pool[np.union1d(rare, np.arange(min(count, len(pool))))]
        self.oracle(x)

    def polish(self, config: PolishConfig) -> dict[str, Any]:
        """Fit both layers together to all answers gathered."""
        assert self.network is not None
        assert self.noise is not None
        x, y = self.oracle.stored(self.config.far * self.domain.scale)
        free = hold_unseen(self.network, x, self.free)
        done = polish(self.network, x, y, self.noise.at(x), free=free, config=config)
        self.network = done.network
        return {"before": done.before, "after": done.after, "steps": done.steps}

    def start(self) -> None:
        """One start: all stages up to the check."""
        self.starts += 1
        self.network, self.signed, self.deeper, self.parallel = None, False, 0, 0
        self.weights, self.biases = self.weights[:0], self.biases[:0]
        self.first_layer()
        # Without a right inverse the layers above need another way.
        assert self.rows is not None
        dependent = self.all_rows and row_rank(self.rows) < self.rows.count
        self.wide = dependent or len(self.weights) > self.domain.dimension
        if self.wide:
            self.wide_top()
        else:
            self.orient()
            self.top()
        self.check(*(self.looked_at if self.wide else self.look_at_typical()))

    def turn(self) -> None:
        """Do without the carriers of the affine term where turning units round explains it."""
        assert self.network is not None
        turned = turn_units(self.network, self.second_width)
        if turned is None:
            return
        before = after = size = 0.0
        for x, y in self.oracle.batches(self.config.around * self.domain.scale):
            before = max(before, float(np.abs(y - self.network(x)).max(initial=0.0)))
            after = max(after, float(np.abs(y - turned(x)).max(initial=0.0)))
            size = max(size, float(np.abs(y).max(initial=0.0)))
        if after <= self.config.turned * before + 1e-13 * size:
            self.network = turned

    def conclude(self) -> tuple[Status, str, Certificate | None]:
        """Certify; what fails becomes data for another round, and a fresh certificate."""
        for left in range(self.config.certificates - 1, -1, -1):
            carried, width = self.network, self.second_width
            self.turn()
            verdict = self.certify()
            if not verdict.message and left > 0:
                verdict = self.against_all_answers(verdict)
            if not verdict.message:
                widths = f"hidden widths {len(self.weights)} and {self.second_width}"
                return Status.RECOVERED, f"{widths}; {verdict.certificate}", verdict.certificate
            self.doubtful = self.network, self.second_width, verdict
            if left == 0 or not verdict.teaches:
                break
            self.network, self.second_width = carried, width
            self.learn(verdict)
        return Status.PARTIAL, verdict.message, verdict.certificate

    def against_all_answers(self, verdict: Verdict) -> Verdict:
        """Return the verdict with all answers of the run where one contradicts the network.

        A unit that only inputs far out switch passes every typical one.
        """
        assert self.network is not None
        assert verdict.certificate is not None
        stated = verdict.certificate.details.get(
            "tolerance per output", [verdict.certificate.tolerance]
        )
        allowed = np.maximum(
            BEYOND_HELD_OUT * np.asarray(stated) / self.oracle.units,
            EXACT * self.spreads(verdict.answers),
        )
        points, answers, excess = [verdict.points], [verdict.answers], [verdict.over]
        count = 0
        for x, y in self.oracle.batches():
            growth = np.maximum(1.0, np.linalg.norm(x, axis=1) / self.domain.scale)
            off = np.abs(y - self.network(x)) / np.multiply.outer(growth, allowed)
            over = off.max(axis=1, initial=0.0)
            points.append(x[over > 1.0])
            answers.append(y[over > 1.0])
            excess.append(over[over > 1.0])
            count += int(np.count_nonzero(over > 1.0))
        if count == 0:
            return verdict
        total = len(self.oracle.record)
        message = f"{count:,} of {total:,} answers of the run disagree with the network"
        against = np.concatenate(points), np.concatenate(answers), np.concatenate(excess)
        return Verdict(verdict.certificate, message, *against)

    def certify(self) -> Verdict:
        """Compare with the target at fresh points."""
        assert self.network is not None
        assert self.noise is not None
        with self.stage("certificate"):
            return certify_network(
                self.oracle,
                self.network,
                self.noise,
                rng=self.rng,
                units=self.oracle.units,
                config=self.config.certify,
            )

    def learn(self, verdict: Verdict) -> None:
        """Go on from a certificate that failed: its rows are the search's now."""
        self.oracle.meter.rebook("certificate", "repair", self.stages[-1].queries)
        if self.wide:
            self.with_all_rows(lambda: self.explain(verdict.points, verdict.answers))
        self.check(verdict.points, verdict.answers)
