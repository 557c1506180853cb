"""A network of two hidden layers that is nearly right: looked at, repaired, fitted, certified.

:mod:`unrelu.extraction.three_layer` finds it; its docstring maps the steps to the paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.explain import BEYOND_HELD_OUT, EXACT
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import Saturated
from unrelu.extraction.deep_certify import Verdict, certify_network
from unrelu.extraction.deep_first import FirstLayer
from unrelu.extraction.deep_orthant import OrthantSearch
from unrelu.extraction.deep_polish import PolishConfig, polish
from unrelu.extraction.deep_regions import cover_gates, hold_unseen
from unrelu.extraction.deep_session import AROUND, Session
from unrelu.extraction.deep_sharpen import TwoLayers, sharpen
from unrelu.extraction.deep_top import TopOracle, attach
from unrelu.extraction.deep_turn import turn_units
from unrelu.extraction.three_layer_config import Failed, ThreeLayerConfig
from unrelu.networks import ReLUNetwork
from unrelu.result import Status

__all__ = ["Candidate", "recover_top"]


@contextmanager
def _limited(black_box: TopOracle) -> Iterator[None]:
    """Turn the end of a stage's own limit into the failure of a start."""
    try:
        yield
    except BudgetExhausted as error:
        if black_box.exhausted:
            raise Failed(Status.PARTIAL, str(error), structural=True) from error
        raise


def recover_top(session: Session, first: FirstLayer, config: ThreeLayerConfig) -> Candidate:
    """3.5.4: the layers above the first, as a depth-2 network on the orthant."""
    k = len(first.weights)
    if k == 0:
        raise Failed(
            Status.PARTIAL,
            "no first-layer hyperplane was found: the target looks affine or constant "
            "where it was asked; try extract_two_layer",
            final=True,
        )
    d, m = session.domain.dimension, session.oracle.output_dim
    parameters = k * (d + 1) + max(session.kinks - k, 0) * (k + 1 + m)
    small = parameters <= config.few
    black_box = TopOracle(
        session.oracle,
        first.weights,
        first.biases,
        limit=int(config.top.per_unit * (k + 1) * (session.kinks + 10)),
        std=first.rows.std,
        config=config.top,
    )
    session.progress.update("top layers", 0, None)
    with session.stage("top layers") as details, _limited(black_box):
        search = OrthantSearch(
            black_box,
            k,
            black_box.noise(session.noise),
            rng=session.rng,
            max_units=int(config.many * (session.kinks + 10)),
            settle=not small,
            config=config.orthant,
            gradient_config=config.gradients,
        )
        search.axes()
        found = search.units
        details |= {"units": len(found.weights), "open axes": found.open_axes}
    if found.open_axes == k:
        raise Failed(
            Status.PARTIAL,
            f"the layers above the first show ever more hyperplanes ({len(found.weights)} "
            f"so far{', most of them bend' if search.bends else ''}): more than one hidden layer "
            "is there, or the first layer is incomplete",
            structural=True,
            deeper=search.bends,
        )
    session.progress.update("top layers", 1, 1, f"{len(found.weights)} second-layer units")
    return Candidate(session, first, black_box, search, small, config)


class Candidate:
    """A network found, and the search that it came from.

    Attributes
    ----------
    network
        Its second layer ends with the carriers of the affine term, if any.
    second_width
        Its second-layer units without them.
    error
        Largest deviation at the last checks, over the spread.
    """

    def __init__(
        self,
        session: Session,
        first: FirstLayer,
        black_box: TopOracle,
        search: OrthantSearch,
        small: bool,
        config: ThreeLayerConfig,
    ) -> None:
        self.session, self.first, self.config = session, first, config
        self.black_box, self.search, self.small = black_box, search, small
        self.second_width, self.error = 0, np.inf
        self.network, self.free = self.assembled()

    def assembled(self) -> tuple[ReLUNetwork, list[BoolArray]]:
        """Put the units found above the first layer."""
        units = self.search.units
        self.second_width = len(units.weights)
        above = self.black_box.cone.on_outputs(units)
        return attach(self.first.weights, self.first.biases, above)

    # ------------------------------------------------------------------ checks

    def look_at_typical(self) -> tuple[FloatArray, FloatArray]:
        """Ask some Gaussian inputs; returns those that have an answer."""
        config, session = self.config, self.session
        count = min(config.checks, int(config.typical * self.network.parameters))
        points = session.domain.draw(count, session.rng)
        with session.stage("check"):
            answers = session.oracle(points)
        usable = np.isfinite(answers).all(axis=1)
        if usable.sum() < config.certify.least * count:
            raise Saturated
        return points[usable], answers[usable]

    def misses(self, points: FloatArray, answers: FloatArray) -> FloatArray:
        """Return deviations over the spread, the largest of all outputs, ``(n,)``."""
        # Far out both the function and its errors grow with the input.
        growth = np.maximum(1.0, np.linalg.norm(points, axis=1) / self.session.domain.scale)
        unit = np.multiply.outer(growth, self.session.spreads(answers))
        return np.asarray((np.abs(answers - self.network(points)) / unit).max(axis=1))

    def check(self, points: FloatArray, answers: FloatArray) -> None:
        """Compare with answers; search towards what is not explained, fit where it helps."""
        config = self.config
        with self.session.stage("check") as details:
            details["before"] = float(self.misses(points, answers).max())
        for _ in range(config.tries):
            off = self.misses(points, answers)
            worst = np.argsort(-off)[: config.rounds]
            worst = worst[off[worst] > config.lacking]
            if len(worst) == 0 or not self.repair(points[worst]):
                break
        self.error = float(self.misses(points, answers).max())
        if config.sharp < self.error < config.close or (self.small and self.error < config.close):
            (self.fit if self.small else self.correct)(points, answers)
            self.prune()
            self.error = float(self.misses(points, answers).max())
        if self.error > config.fair:
            raise Failed(
                Status.PARTIAL,
                f"the network found deviates by {self.error:.2g} of the answers' spread at "
                f"typical inputs{self._coarse(answers)}: a unit is missing, or the target has "
                "more hidden layers than two",
                structural=self.error > config.close,
            )

    def _coarse(self, answers: FloatArray) -> str:
        session = self.session
        noise = session.noise.std(np.array([session.domain.scale]))[0]
        level = float((noise / session.spreads(answers)).max())
        exact = level <= self.config.certify.exact
        return "" if exact else f" (the answers carry noise of {level:.1g} of it)"

    def repair(self, points: FloatArray) -> bool:
        """Search for units that inputs ``(n, d)`` show; whether there were any."""
        with self.session.stage("repair") as details, _limited(self.black_box):
            found = any(self.search.toward(s) for s in self.black_box.coordinates(points))
            details["units"] = len(self.search.units.weights)
        if found:
            self.network, self.free = self.assembled()
        return found

    # ------------------------------------------------------------------ precision

    def correct(self, points: FloatArray, answers: FloatArray) -> None:
        """Correct both layers from gradients at inputs with room, until that gains nothing."""
        session, cone = self.session, self.black_box.cone
        for _ in range(self.config.rounds):
            before, kept = self.error, (self.first, self.search.units)
            with session.stage("sharpening") as details:
                found = sharpen(
                    session.oracle,
                    TwoLayers(
                        self.first.weights, self.first.biases, cone.on_outputs(self.search.units)
                    ),
                    session.noise,
                    (points, answers),
                    affine_error=self.search.affine_error,
                    rng=session.rng,
                    gradient_config=self.config.gradients,
                )
                self._stand_on(found.weights, found.biases)
                self.search.units = cone.from_outputs(found.top)
                self.network, self.free = self.assembled()
                self.error = float(self.misses(points, answers).max())
                details |= {"before": before, "after": self.error}
            if self.error > before:
                self.first, self.search.units = kept
                self.black_box.place(self.first.weights, self.first.biases)
                self.network, self.free = self.assembled()
                self.error = before
                return
            # A correction leaves errors of second order.
            if min(before**2, self.error) <= self.config.sharp:
                return

    def _stand_on(self, weights: FloatArray, biases: FloatArray) -> None:
        """Take corrected rows, anchored where their hyperplanes are nearest to the origin."""
        rows = self.first.rows
        anchors = -(biases / (weights**2).sum(axis=1))[:, None] * weights
        moved = dataclasses.replace(rows, weights=weights, anchors=anchors)
        self.first = dataclasses.replace(self.first, rows=moved)
        self.black_box.place(weights, biases)

    def fit(self, points: FloatArray, answers: FloatArray) -> None:
        """Fit all parameters to all answers, more and more of them where that fails."""
        config, session = self.config, self.session
        for number in range(config.rounds):
            if number and not config.sharp < self.error < config.close:
                break
            with session.stage("refinement"):
                self.refine()
            session.progress.update("polish", number, None)
            with session.stage("polish") as details:
                old, kept = self.network, self.error
                for setting in (config.polish, config.polish_gently):
                    details |= self.polish(setting)
                    self.error = float(self.misses(points, answers).max())
                    details["check"] = self.error
                    if self.error <= kept:
                        break
                    # A unit that few answers see ran away: take it back.
                    self.network, self.error = old, kept

    def refine(self) -> None:
        """Ask typical inputs, and some for every unit that is rarely on or rarely off."""
        config, session = self.config, self.session
        size = self.network.parameters
        outputs = session.oracle.output_dim  # an input tells as many numbers
        lacking = config.each * size / outputs - len(session.oracle.record)
        more = max(config.typical * size, lacking)
        count = max(0, int(more) - config.checks)  # the checks are such inputs too
        pool = session.domain.draw(config.certify.samples, session.rng)
        pool *= session.rng.uniform(1.0, AROUND, (len(pool), 1))
        need = len(self.first.weights) + 2  # a unit has that many parameters, and its output
        rare = cover_gates(self.network, pool, config.rare, need)
        session.oracle(pool[np.union1d(rare, np.arange(min(count, len(pool))))])

    def polish(self, config: PolishConfig) -> dict[str, Any]:
        """Fit both layers together to all answers gathered."""
        session = self.session
        x, y = session.oracle.stored(self.config.far * session.domain.scale)
        free = hold_unseen(self.network, x, self.free)
        done = polish(self.network, x, y, session.noise.at(x), free=free, config=config)
        self.network = done.network
        return {"before": done.before, "after": done.after, "steps": done.steps}

    def prune(self) -> None:
        """Drop second-layer units that the fit has reduced to nothing."""
        w, v, u = self.network.weights
        b, c, a = self.network.biases
        n = self.second_width
        size = np.linalg.norm(v[:n], axis=1) * np.linalg.norm(u[:, :n], axis=0)
        keep = np.ones(len(v), dtype=bool)
        keep[:n] = size > self.config.orthant.spurious * size.max(initial=0.0)
        if not keep.all():
            self.network = ReLUNetwork([w, v[keep], u[:, keep]], [b, c[keep], a])
            self.free = [self.free[0], self.free[1][keep], self.free[2][:, np.append(keep, True)]]
            self.second_width = int(keep[:n].sum())

    # ------------------------------------------------------------------ the end

    def turned(self) -> ReLUNetwork:
        """Do without the carriers of the affine term where turning units round explains it."""
        turned = turn_units(self.network, self.second_width)
        if turned is None:
            return self.network
        before = after = size = 0.0
        for x, y in self.session.oracle.batches(AROUND * self.session.domain.scale):
            before = max(before, float(np.abs(y - self.network(x)).max(initial=0.0)))
            after = max(after, float(np.abs(y - turned(x)).max(initial=0.0)))
            size = max(size, float(np.abs(y).max(initial=0.0)))
        rounding = np.finfo(np.float64).eps * self.network.parameters * size
        return turned if after <= AROUND * before + rounding else self.network

    def certify(self, network: ReLUNetwork) -> Verdict:
        """Compare with the target at fresh points, and with all answers of the run."""
        session = self.session
        with session.stage("certificate"):
            verdict = certify_network(
                session.oracle, network, session.noise, rng=session.rng,
                units=session.oracle.units, config=self.config.certify,
            )  # fmt: skip
        return verdict if verdict.message else self._against_all_answers(network, verdict)

    def _against_all_answers(self, network: ReLUNetwork, verdict: Verdict) -> Verdict:
        """Return the verdict with all answers of the run where one contradicts the network.

        A unit that only inputs far out switch passes every typical one.
        """
        assert verdict.certificate is not None
        session = self.session
        stated = verdict.certificate.details.get(
            "tolerance per output", [verdict.certificate.tolerance]
        )
        allowed = np.maximum(
            BEYOND_HELD_OUT * np.asarray(stated) / session.oracle.units,
            EXACT * session.spreads(verdict.answers),
        )
        points, answers, excess = [verdict.points], [verdict.answers], [verdict.over]
        for x, y in session.oracle.batches():
            growth = np.maximum(1.0, np.linalg.norm(x, axis=1) / session.domain.scale)
            off = np.abs(y - network(x)) / np.multiply.outer(growth, allowed)
            over = off.max(axis=1, initial=0.0)
            points.append(x[over > 1.0])
            answers.append(y[over > 1.0])
            excess.append(over[over > 1.0])
        count = sum(map(len, points[1:]))
        if count == 0:
            return verdict
        total = len(session.oracle.record)
        message = f"{count:,} of {total:,} answers of the run disagree with the network"
        against = np.concatenate(points), np.concatenate(answers), np.concatenate(excess)
        return Verdict(verdict.certificate, message, *against)
