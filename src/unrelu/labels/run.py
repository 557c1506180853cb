"""One run of the extraction from labels: its stages, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.run import Run
from unrelu.labels.boundary import GROWTH, Crossings, find_near
from unrelu.labels.charts import Chart, Target
from unrelu.labels.config import DISTANCES, EPS, LEVER, LabelsConfig
from unrelu.labels.design import ask_predicted, predicted_crossings, stays
from unrelu.labels.fit import Fit, fit_model, misfits, prune, solve_outputs
from unrelu.labels.hyperplanes import Hyperplanes
from unrelu.labels.lift import lift_model
from unrelu.labels.missing import missing_hyperplanes
from unrelu.labels.model import Model
from unrelu.labels.price import price_labels
from unrelu.labels.record import contradictions, resolvable
from unrelu.labels.walks import Precision
from unrelu.lines.domains import Domain

__all__ = ["LabelsRun", "OneLabel"]

JOINT = 3200
"""Parameters up to which all are fitted at once: the normal equations take their cube."""


class OneLabel(Exception):
    """All that typical inputs show is one label."""


class LabelsRun:
    """What a run knows: labels, the noise, a chart and its hyperplanes, a model."""

    def __init__(self, base: Run, domain: Domain, config: LabelsConfig) -> None:
        self.base, self.rng, self.config = base, base.rng, config
        self.target = target = Target(base.target, domain)
        self.model: Model | None = None
        self.noise = 0.0
        self.asked = Crossings.none(target.domain.dimension)
        self.chart: Chart | None = None
        self.hyperplanes: Hyperplanes | None = None
        self.first = Hyperplanes.none(target.domain.dimension)
        self.whole = Chart.whole(target)
        self.trusted, self.worst = False, 0
        self.labelled = np.empty((0, self.whole.dimension)), np.empty(0, np.intp)

    def expect(self, units: int) -> None:
        """Plan for as many units."""
        oracle = self.base.target
        oracle.allowance.plan(price_labels(oracle.input_dim, len(self.target.names), units))

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Count labels and time of one stage; details may be added to the dict."""
        self.base.progress.update(name, 0, None)
        try:
            with self.base.stage(name) as details:
                yield details
        finally:
            spent = self.base.stages[-1].queries
            self.base.progress.update(name, 1, 1, f"{spent:,} labels {details}")

    @property
    def settled(self) -> bool:
        """Whether the model knows all classes, and has too many parameters to be fitted again."""
        if self.model is None or self.model.unknowns <= JOINT:
            return False
        known = int(self.model.skip.any(axis=1).sum())  # output 0 is zero, as unknown ones are
        return known == len(self.target.names) - 1

    # ------------------------------------------------------------------ look

    def look(self) -> None:
        """Ask typical inputs until every label that is not rare has been seen."""
        with self.stage("look") as details:
            for _ in range(self.config.rounds):
                before = len(self.target.names)
                x = self.target.domain.draw(self.config.draws, self.rng)
                labels = self.target.ask(x)
                self.labelled = (
                    np.concatenate([self.labelled[0], x]),
                    np.concatenate([self.labelled[1], labels]),
                )
                if len(self.target.names) == before > 1:
                    break
            details["labels"] = len(self.target.names)
        if len(self.target.names) < 2:
            raise OneLabel

    def dimension(self) -> int:
        """Return how many dimensions a subspace has: room for an input of every class."""
        classes = len(self.target.names)
        return min(self.whole.dimension, self.config.dimension + classes - 2)

    def remember(self, chart: Chart, at: Crossings) -> None:
        """Keep precise crossings for the joint fit, as points of the inputs."""
        self.asked = self.asked.joined(
            Crossings(
                chart.inputs(at.points), at.directions @ chart.rows / chart.scale, at.inside,
                at.outside, at.error * chart.scale,
            )
        )  # fmt: skip

    def lift(self, model: Model, chart: Chart) -> Model:
        """Take a chart's model to all inputs."""
        if chart.dimension == self.whole.dimension:
            return model.on_inputs(chart.rows, chart.origin)
        with self.stage("lift") as details:
            lifted, asked = lift_model(
                model,
                chart,
                self.rng,
                finest=self.noise / chart.scale / 2.0,
                pool=2 * self.config.rounds * self.config.checks,
                turns=self.config.rounds,
                room=self.config.margin,
            )
            self.asked = self.asked.joined(asked)
            off = np.abs(lifted.distances(asked))
            details |= {"points": len(asked), "worst": float(off.max(initial=0.0))}
        return lifted

    def polish(self, model: Model) -> Model:
        """Fit all parameters to all precise crossings, where that can be afforded."""
        if model.unknowns > JOINT:
            return model
        margin = self.config.margin
        if (misfits(model, self.asked, self.noise) <= margin**2).all():
            return model
        with self.stage("fit") as details:
            fit = fit_model(model, self.asked, noise=self.noise, within=margin)
            bad = fit.misfit > margin
            if bad.any():  # outputs may be far off where no chart has shown them
                solved = solve_outputs(
                    model.rows,
                    model.offsets,
                    self.asked,
                    len(self.target.names),
                    self.labelled,
                    margin * 2.0**-self.config.bits,
                )
                if solved is not None:
                    other = fit_model(solved, self.asked, noise=self.noise, within=margin)
                    fit = other if (other.misfit > margin).sum() < bad.sum() else fit
            details |= {"points": len(self.asked), "misfit": float(np.median(fit.misfit)),
                        "bad": int((fit.misfit > margin).sum())}  # fmt: skip
        return fit.model

    def complete(self, model: Model) -> Crossings:
        """Fit, predict, follow where that fails, and fit again; return where it still fails.

        The better of this model and the last one is kept.
        """
        within, checks = max(DISTANCES[-1], LEVER * self.noise), self.config.checks
        bad = 0
        for turn in range(self.config.rounds + 1):
            model = self.polish(model.padded(len(self.target.names)))
            failed = self.failing(model, checks, within)
            against = self._elsewhere(self.contradicting(model)[1])[: checks // 4]
            last, bad = bad, int(self._unexplained(model).sum())
            if (
                len(failed) + len(against) + bad == 0
                or turn == self.config.rounds
                or model.unknowns > JOINT
                or bad >= last > 0
            ):
                break
            self.follow(failed, against, checks // 4)
            model = self.extended(model)
        if model.unknowns > JOINT:  # what is off by little no fit mends: the certificate judges
            failed = failed.take(~stays(self.whole, failed, GROWTH**3 * within))
        wrong = len(failed) + len(against) + bad
        if wrong == 0 and model.unknowns <= JOINT:  # units that a fit did not need after all
            fit = Fit(model, misfits(model, self.asked, self.noise))
            model = prune(fit, self.asked, noise=self.noise, within=self.config.margin).model
        if self.model is None or wrong <= self.worst:
            self.model, self.worst = model, wrong
            self.trusted = len(failed) < checks // 2
        if model.unknowns <= JOINT:
            failed = failed.joined(self.asked.take(self._unexplained(model)))
        return failed

    def _unexplained(self, model: Model) -> BoolArray:
        """Tell which of the precise crossings a model contradicts, as answers do, ``(n,)``."""
        held = resolvable(self.noise) * (1.0 + np.abs(self.asked.points).max(axis=1, initial=0.0))
        return np.asarray(np.abs(model.distances(self.asked)) > held)

    def _elsewhere(self, x: FloatArray) -> FloatArray:
        """Return those of some inputs that no bisection asked on its way to a crossing.

        The crossing says what all of them do.
        """
        at, keep = self.asked, np.ones(len(x), dtype=bool)
        for i, point in enumerate(x):
            away = point - at.points
            away -= (away * at.directions).sum(axis=1)[:, None] * at.directions
            keep[i] = np.abs(away).max(axis=1, initial=0.0).min(initial=np.inf) > np.sqrt(EPS)
        return x[keep]

    def extended(self, model: Model) -> Model:
        """Return a model with the units that it lacks where crossings contradict it."""
        config, noise = self.config, self.noise
        bad = np.flatnonzero(misfits(model, self.asked, noise) > config.margin**2)
        with self.stage("check") as details:
            some = self.asked.take(self.rng.permutation(bad)[: 2 * config.starts])
            precision = Precision(max(config.step, noise * 2.0**config.bits), noise, noise)
            more = missing_hyperplanes(
                self.whole, model, some, self.rng, precision=precision, margin=config.margin
            )
            details |= {"missing": len(more)}
        return model.with_units(more.rows, more.offsets)

    def failing(self, model: Model, count: int, within: float) -> Crossings:
        """Return predicted boundary points beside which labels disagree."""
        with self.stage("check") as details:
            pool = predicted_crossings(model, self.whole, 6 * count, self.rng, room=within)
            at = pool.take(np.arange(min(count, len(pool))))
            wrong = ~stays(self.whole, at, within)
            details |= {"points": len(at), "wrong": int(wrong.sum())}
        return at.take(wrong)

    def contradicting(self, model: Model) -> tuple[int, FloatArray]:
        """Count the answers of the run that contradict a model, and return some of the inputs."""
        code = {name: i for i, name in enumerate(self.target.names)}
        return contradictions(self.target.oracle.record, model, code, resolvable(self.noise))

    def follow(self, failed: Crossings, against: FloatArray, most: int) -> None:
        """Find the boundary where a model failed, for the next fit."""
        with self.stage("check") as details:
            at = failed.take(self.rng.permutation(len(failed))[:most])
            found = ask_predicted(
                self.whole, at, half=self.config.step, finest=self.noise / 2.0, reach=8.0
            )
            lost = np.isnan(found.error)
            places = np.concatenate([at.points[lost], against])
            near = find_near(self.whole, places, self.rng, self.noise / 2.0)
            self.asked = self.asked.joined(found.take(~lost)).joined(near)
            details |= {"followed": len(at), "near": len(near)}
