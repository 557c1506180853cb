"""One run of the extraction from labels: its stages, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.labels.boundary import GROWTH, Chart, Crossings, Target, between, find_crossings, find_near, measure_noise
from unrelu.labels.config import LabelsConfig
from unrelu.labels.design import ask_predicted, choose, predicted_crossings, stays
from unrelu.labels.fit import Fit, extend, fit_model, prune, solve_outputs
from unrelu.labels.hyperplanes import BLURRED, Hyperplanes, pair_up, unmatched
from unrelu.labels.lift import lift_model
from unrelu.labels.model import Model
from unrelu.labels.walks import Explorer, Precision
from unrelu.progress import Progress
from unrelu.result import StageReport

__all__ = ["LabelsRun", "OneLabel"]

DRAWS = 64
"""Typical inputs asked at a time in search of two labels."""
OVER = 1.2
"""Crossings of a class over the unknowns of its output, before these are solved for."""
CHECKS = 256
"""Boundary points at which a model is compared with the target, by two labels each."""
FOLLOWS = 6
"""How often a model is fitted again to points where it failed."""
DISTINCT = 1e-7
"""Least distance within which predicted boundary points are expected, in units of the inputs."""
LEVER = 1e3
"""The same, over the labels' resolution: units that few crossings switch are known less well."""
JOINT = 2600
"""Parameters up to which all are fitted at once: the normal equations take their cube."""


class OneLabel(Exception):
    """All that typical inputs show is one label."""


class LabelsRun:
    """What a run knows: labels, the noise, a chart and its hyperplanes, a model."""

    def __init__(
        self, target: Target, rng: np.random.Generator, progress: Progress, config: LabelsConfig
    ) -> None:
        self.target, self.rng, self.progress, self.config = target, rng, progress, config
        self.stages: list[StageReport] = []
        self.model: Model | None = None
        self.noise = 0.0
        self.asked = Crossings.none(target.domain.dimension)
        self.chart: Chart | None = None
        self.trial: Model | None = None
        self.hyperplanes: Hyperplanes | None = None
        self.whole = Chart.whole(target)
        self.trusted, self.worst = False, 0
        self.labelled = np.empty((0, self.whole.dimension)), np.empty(0, np.intp)
        self.expect: Callable[[int], None] = lambda units: None

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Count labels and time of one stage; details may be added to the dict."""
        oracle, details = self.target.oracle, dict[str, Any]()
        before, start = oracle.queries.total, time.perf_counter()
        self.progress.update(name, 0, None)
        try:
            with oracle.stage(name):
                yield details
        finally:
            spent = oracle.queries.total - before
            seconds = time.perf_counter() - start
            self.stages.append(StageReport(name, spent, seconds, details=details))
            self.progress.update(name, 1, 1, f"{spent:,} labels {details}")

    # ------------------------------------------------------------------ look

    def look(self) -> None:
        """Ask typical inputs until every label that is not rare has been seen."""
        with self.stage("look") as details:
            for _ in range(self.config.rounds):
                before = len(self.target.names)
                x = self.target.domain.draw(DRAWS, self.rng)
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

    # ---------------------------------------------------------------- search

    def search(self, chart: Chart, known: Hyperplanes, seeds: Crossings) -> Model | None:
        """Find the hyperplanes in a chart, and the model that explains its boundary."""
        config = self.config
        self.chart, self.trial = chart, None
        step = config.step
        draws = chart.coordinates(self.target.examples[: chart.dimension])
        labels = chart.ask(draws)
        explorer: Explorer | None = None
        for _ in range(config.rounds):
            with self.stage("search") as details:
                y = chart.draw(max(DRAWS // 2, 2 * config.starts), self.rng)
                draws = np.concatenate([draws, y])
                labels = np.concatenate([labels, chart.ask(y)])
                if explorer is None:
                    explorer = self._explorer(chart, draws, labels, step)
                if len(seeds) == 0:
                    seeds = find_crossings(
                        chart, draws, labels, config.starts, self.rng, explorer.precision.finest
                    )
                    explorer.crossings = explorer.crossings.joined(seeds)
                explorer.add(seeds)
                found = self._explore(explorer, known)
                details |= {"hyperplanes": len(found), "dual points": len(explorer.duals)}
            self.hyperplanes = found
            self.expect(len(found))
            with self.stage("outputs") as details:
                model, seeds = self._outputs(explorer, found, draws, labels, details)
            if model is not None:
                with self.stage("predictions") as details:
                    model, seeds = self._predicted(explorer, model, details)
            if model is not None:
                with self.stage("sharpen") as details:
                    model, seeds = self._sharpen(explorer, model, details)
            if model is not None:
                return model
        return None

    def _explorer(
        self, chart: Chart, draws: FloatArray, labels: IntArray, step: float
    ) -> Explorer:
        """Measure the noise, and fit the lengths of the search to it."""
        config = self.config
        if not self.noise:
            at = find_crossings(chart, draws, labels, config.starts, self.rng, step)
            self.noise = measure_noise(chart, at, self.rng, step=step) * chart.scale
        noise = self.noise / chart.scale
        step = max(step, noise * 2.0**config.bits)
        return Explorer(
            chart, self.rng, Precision(step, step * 2.0**-config.bits, noise),
            margin=config.margin, tangents=config.tangents,
        )  # fmt: skip

    def _explore(self, explorer: Explorer, known: Hyperplanes) -> Hyperplanes:
        """Walk from all places until none meets a wall that is not known."""
        found = known.joined(pair_up(explorer.duals, self.config.margin))
        while explorer.sweep(found, self.config.starts):
            found = known.joined(pair_up(explorer.duals, self.config.margin))
            self.progress.update(
                "search", len(explorer.duals), None, f"{len(found)} hyperplanes"
            )
        return found

    def _outputs(
        self, explorer: Explorer, found: Hyperplanes, draws: FloatArray, labels: IntArray,
        details: dict[str, Any],
    ) -> tuple[Model | None, Crossings]:  # fmt: skip
        """Solve for the outputs, fit all, and compare; returns a model or where it fails."""
        config, classes, chart = self.config, len(self.target.names), explorer.chart
        finest = explorer.precision.finest
        none = Crossings.none(chart.dimension)
        self._top_up(explorer, len(found), draws, labels)
        rough, off = self._rough(explorer, found, draws, labels)
        details["off"] = off
        if rough is None or not off < BLURRED:
            return None, none
        half = max(off, 16.0 * finest)
        pool = predicted_crossings(rough, chart, 20 * rough.unknowns, self.rng, room=half)
        count = max(0, int(config.surplus * rough.unknowns) - len(explorer.crossings))
        design = pool.take(choose(rough, pool, count))
        at = ask_predicted(chart, design, half=half, finest=finest, reach=1.0)
        lost = np.isnan(at.error)
        explorer.crossings = explorer.crossings.joined(at.take(~lost))
        fit = self._explained(explorer, rough)
        self.trial, bad = fit.model, fit.misfit > config.margin
        details |= {"units": fit.model.width, "asked": count, "lost": int(lost.sum()),
                    "bad": int(bad.sum()), "misfit": float(np.median(fit.misfit))}  # fmt: skip
        if not bad.any() and not lost.any():
            return fit.model, none
        return None, self._seeds(explorer, explorer.crossings.take(bad), at.take(lost))

    def _rough(
        self, explorer: Explorer, found: Hyperplanes, draws: FloatArray, labels: IntArray
    ) -> tuple[Model | None, float]:
        """Return a model of the hyperplanes found, and how far its boundary is off.

        What was fitted before competes with it, as that may know more than the hyperplanes.
        """
        at, asked = explorer.crossings, labels >= 0
        split = found.splitting(at.points)
        classes = len(self.target.names)
        model = solve_outputs(
            split.rows, split.offsets, at, classes, (draws[asked], labels[asked])
        )
        trials = [model, self.trial]
        best, off, most = None, np.inf, -1.0
        for trial in trials:
            if trial is None or trial.classes != classes:
                continue
            away = float(np.quantile(np.abs(trial.distances(at)), 0.9))
            fit = self._fit(explorer, trial)
            right = float((fit.misfit <= self.config.margin).mean())
            if right > most or best is None:
                best, off, most = trial, away, right
        return best, off

    def _fit(self, explorer: Explorer, model: Model) -> Fit:
        return fit_model(
            model, explorer.crossings, steps=30, noise=explorer.precision.finest,
            within=self.config.margin,
        )  # fmt: skip

    def _explained(self, explorer: Explorer, rough: Model) -> Fit:
        """Fit a model to all crossings of a chart, with further units where they ask for it."""
        margin, at = self.config.margin, explorer.crossings
        noise = explorer.precision.finest
        fit = self._fit(explorer, rough)
        while (fit.misfit > margin).any():
            known = Hyperplanes(
                fit.model.rows, fit.model.offsets, np.zeros(fit.model.width, np.intp)
            )
            free = unmatched(explorer.duals, known, margin)
            if len(free) == 0:
                return fit
            more = extend(fit, at, free, steps=30, noise=noise, within=margin)
            if more is fit:
                return fit
            fit = more
        return prune(fit, at, steps=30, noise=noise, within=margin)

    def _top_up(
        self, explorer: Explorer, units: int, draws: FloatArray, labels: IntArray
    ) -> None:
        """Find crossings of every class, as many as its output has unknowns and some more."""
        chart, finest = explorer.chart, explorer.precision.finest
        need = int(OVER * (units + chart.dimension + 1)) + 1
        for c in range(len(self.target.names)):
            at = explorer.crossings
            missing = need - int(((at.inside == c) | (at.outside == c)).sum())
            if missing <= 0:
                continue
            # Points of the class: beside its own crossings, and all draws.
            aside = GROWTH * at.error[:, None] * at.directions
            y = np.concatenate([draws, at.points - aside, at.points + aside])
            label = np.concatenate([labels, at.inside, at.outside])
            own, others = np.flatnonzero(label == c), np.flatnonzero((label != c) & (label >= 0))
            if len(own) == 0 or len(others) == 0:
                continue
            a, b = self.rng.choice(own, missing), self.rng.choice(others, missing)
            apart = np.linalg.norm(y[a] - y[b], axis=1) > explorer.precision.step
            a, b = a[apart], b[apart]
            explorer.crossings = at.joined(between(chart, y[a], y[b], label[a], label[b], finest))

    def _seeds(self, explorer: Explorer, bad: Crossings, lost: Crossings) -> Crossings:
        """Return places from which to search on: where a model fails."""
        most = self.config.starts
        chart, finest = explorer.chart, explorer.precision.finest
        seeds = bad.take(self.rng.permutation(len(bad))[:most])
        if len(lost) == 0 or len(seeds) == most:
            return seeds
        lost = lost.take(self.rng.permutation(len(lost))[: most - len(seeds)])
        fresh = find_near(chart, lost.points, self.rng, finest)
        explorer.crossings = explorer.crossings.joined(fresh)
        return seeds.joined(fresh)

    # ------------------------------------------------------------- precision

    def _predicted(
        self, explorer: Explorer, model: Model, details: dict[str, Any]
    ) -> tuple[Model | None, Crossings]:
        """Compare a chart's model with the target where it says most, by two labels a point.

        Where it is off the boundary is found and fitted as well, until all is as predicted.
        """
        config, chart, finest = self.config, explorer.chart, explorer.precision.finest
        within = GROWTH**3 * finest
        for turn in range(config.rounds):
            pool = predicted_crossings(model, chart, 40 * model.unknowns, self.rng, room=within)
            at = pool.take(choose(model, pool, int(config.surplus * model.unknowns)))
            at = at.take(~stays(chart, at, within))
            details |= {"predictions": turn + 1, "wrong": len(at)}
            if len(at) == 0:
                return model, at
            near = ask_predicted(chart, at, half=GROWTH * within, finest=finest, reach=1.0)
            lost = np.isnan(near.error)
            explorer.crossings = explorer.crossings.joined(near.take(~lost))
            fit = self._explained(explorer, model)
            bad = fit.misfit > config.margin
            self.trial = model = fit.model
            if bad.any() or lost.any():
                return None, self._seeds(explorer, explorer.crossings.take(bad), at.take(lost))
        return None, Crossings.none(chart.dimension)

    def _sharpen(
        self, explorer: Explorer, model: Model, details: dict[str, Any]
    ) -> tuple[Model | None, Crossings]:
        """Fit a chart's model to boundary points as precise as labels allow."""
        config, chart = self.config, explorer.chart
        noise, finest = explorer.precision.noise, explorer.precision.finest
        room = GROWTH**3 * finest
        pool = predicted_crossings(model, chart, 40 * model.unknowns, self.rng, room=room)
        at = pool.take(choose(model, pool, int(config.surplus * model.unknowns)))
        at = ask_predicted(chart, at, half=finest, finest=noise / 2.0, reach=1.0)
        lost = np.isnan(at.error)
        kept = at.take(~lost)
        fit = fit_model(model, kept, steps=20, noise=noise, within=config.margin)
        fit = prune(fit, kept, steps=20, noise=noise, within=config.margin)
        bad = fit.misfit > config.margin**2
        details |= {"units": fit.model.width, "points": len(at), "bad": int(bad.sum()),
                    "lost": int(lost.sum()), "misfit": float(np.median(fit.misfit))}  # fmt: skip
        if bad.any() or lost.any():
            explorer.crossings = explorer.crossings.joined(kept)
            return None, self._seeds(explorer, kept.take(bad), at.take(lost))
        self.remember(chart, kept)
        return fit.model, Crossings.none(chart.dimension)

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
                model, chart, self.rng, finest=self.noise / chart.scale / 2.0,
                pool=40 * model.unknowns,
            )
            self.asked = self.asked.joined(asked)
            off = np.abs(lifted.distances(asked))
            details |= {"points": len(asked), "off": float(np.median(off)),
                        "worst": float(off.max())}  # fmt: skip
        return lifted

    def polish(self, model: Model) -> Model:
        """Fit all parameters to all precise crossings, where that can be afforded."""
        if model.unknowns > JOINT:
            return model
        margin = self.config.margin
        with self.stage("fit") as details:
            fit = fit_model(model, self.asked, steps=20, noise=self.noise, within=margin)
            bad = fit.misfit > margin
            if bad.any():  # outputs may be far off where no chart has shown them
                solved = solve_outputs(
                    model.rows, model.offsets, self.asked, len(self.target.names), self.labelled
                )
                if solved is not None:
                    other = fit_model(solved, self.asked, steps=20, noise=self.noise, within=margin)
                    fit = other if (other.misfit > margin).sum() < bad.sum() else fit
            details |= {"points": len(self.asked), "misfit": float(np.median(fit.misfit)),
                        "bad": int((fit.misfit > margin).sum())}  # fmt: skip
        return fit.model

    def complete(self, model: Model) -> Crossings:
        """Fit, predict, follow where that fails, and fit again; return where it still fails.

        The better of this model and the last one is kept.
        """
        within = max(DISTINCT, LEVER * self.noise)
        for turn in range(FOLLOWS + 1):
            model = self.polish(model)
            failed = self.failing(model, CHECKS, within)
            if len(failed) == 0 or turn == FOLLOWS or model.unknowns > JOINT:
                break
            self.follow(failed, CHECKS // 4)
        if self.model is None or len(failed) < self.worst:
            self.model, self.worst = model, len(failed)
            self.trusted = len(failed) < CHECKS // 2
        return failed

    def failing(self, model: Model, count: int, within: float) -> Crossings:
        """Return predicted boundary points beside which labels disagree."""
        with self.stage("check") as details:
            pool = predicted_crossings(model, self.whole, 6 * count, self.rng, room=within)
            at = pool.take(np.arange(min(count, len(pool))))
            wrong = ~stays(self.whole, at, within)
            details |= {"points": len(at), "wrong": int(wrong.sum())}
        return at.take(wrong)

    def follow(self, failed: Crossings, most: int) -> None:
        """Find the boundary where a model failed, for the next fit."""
        with self.stage("check") as details:
            at = failed.take(self.rng.permutation(len(failed))[:most])
            found = ask_predicted(
                self.whole, at, half=self.config.step, finest=self.noise / 2.0, reach=8.0
            )
            lost = np.isnan(found.error)
            near = find_near(self.whole, at.points[lost], self.rng, self.noise / 2.0)
            self.asked = self.asked.joined(found.take(~lost)).joined(near)
            details |= {"followed": len(at), "near": len(near)}
