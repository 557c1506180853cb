"""The search of one subspace: hyperplanes, outputs, and a model as sharp as labels allow."""

from __future__ import annotations

from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.boundary import (
    GROWTH,
    Crossings,
    between,
    find_crossings,
    find_near,
    measure_noise,
)
from unrelu.labels.charts import Chart
from unrelu.labels.design import ask_predicted, choose, predicted_pool, stays
from unrelu.labels.fit import Fit, fit_model, misfits, prune, solve_outputs, superfluous
from unrelu.labels.hyperplanes import BLURRED, Hyperplanes, pair_up
from unrelu.labels.missing import missing_hyperplanes
from unrelu.labels.model import Model
from unrelu.labels.run import LabelsRun
from unrelu.labels.walks import Explorer, Precision

__all__ = ["ChartSearch"]


class ChartSearch:
    """Searches a chart: walks, outputs, predictions, precision, in turn until all fit.

    Attributes
    ----------
    draws, labels
        Typical points of the chart and their labels.
    trial
        The last model that was fitted, right or wrong.
    explained
        Part of the crossings that it explained.
    """

    def __init__(self, run: LabelsRun, chart: Chart, known: Hyperplanes) -> None:
        self.run, self.chart, self.known = run, chart, known
        self.config, self.rng = run.config, run.rng
        self.draws: FloatArray = np.empty((0, chart.dimension))
        self.labels: IntArray = np.empty(0, np.intp)
        self.trial: Model | None = None
        self.turns, self.explained = 0, 0.0
        run.chart = chart

    def find(self, *, patient: bool) -> Model | None:
        """Return the model that explains the chart's boundary, None if there is none.

        A turn that finds no hyperplane and whose fit explains no more than the last one ends the
        search: another chart shows more. Only a ``patient`` one goes on, and gives its last trial.
        """
        run, chart = self.run, self.chart
        seeds = Crossings.none(chart.dimension)
        explorer = self._begin()
        shown = (-1, -np.inf)
        for _ in range(self.config.rounds):
            found = self._walked(explorer, seeds)
            run.expect(len(found))
            with run.stage("outputs") as details:
                model, seeds = self._outputs(explorer, found, details)
            if model is not None:
                with run.stage("predictions") as details:
                    model, seeds = self._predicted(explorer, model, details)
            if model is not None:
                with run.stage("sharpen") as details:
                    model, seeds = self._sharpen(explorer, model, details)
            if model is not None:
                return model
            before, shown = shown, (len(found), self.explained)
            if not patient and shown[0] <= before[0] and 0.0 < shown[1] <= before[1]:
                return None
        return self.trial if patient else None

    def hyperplanes(self) -> Hyperplanes:
        """Return what walks alone show: hyperplanes of any layer."""
        return self._walked(self._begin(), Crossings.none(self.chart.dimension))

    def _begin(self) -> Explorer:
        """Ask typical points, among them one of every class, and measure the noise."""
        with self.run.stage("search"):
            examples = self.run.target.examples[: self.chart.dimension]
            self._draw(self.chart.coordinates(examples))
            self._draw(self.chart.draw(self.config.draws // 2, self.rng))
            return self._explorer()

    def _walked(self, explorer: Explorer, seeds: Crossings) -> Hyperplanes:
        """Take walks, and keep the hyperplanes that they show."""
        with self.run.stage("search") as details:
            found = self._explore(explorer, seeds)
            details |= {"hyperplanes": len(found), "dual points": len(explorer.duals)}
        self.run.hyperplanes = found
        return found

    def _draw(self, y: FloatArray) -> None:
        """Ask for the labels of points, and keep them."""
        self.labels = np.concatenate([self.labels, self.chart.ask(y)])
        self.draws = np.concatenate([self.draws, y])

    def _explorer(self) -> Explorer:
        """Measure the noise, and fit the lengths of the search to it."""
        config, chart, step = self.config, self.chart, self.config.step
        if not self.run.noise:
            at = find_crossings(chart, self.draws, self.labels, config.starts, self.rng, step)
            self.run.noise = measure_noise(chart, at, self.rng, step=step) * chart.scale
        noise = self.run.noise / chart.scale
        step = max(step, noise * 2.0**config.bits)
        return Explorer(
            chart, self.rng, Precision(step, step * 2.0**-config.bits, noise),
            margin=config.margin, candidates=config.draws // 2, tangents=config.dimension,
        )  # fmt: skip

    def _explore(self, explorer: Explorer, seeds: Crossings) -> Hyperplanes:
        """Walk from places until none meets a wall that is not known."""
        config = self.config
        before = len(explorer.places)
        explorer.add(seeds)
        if len(explorer.places) == before:  # nowhere to go on from
            self._draw(self.chart.draw(self.config.draws // 2, self.rng))
            seeds = find_crossings(
                self.chart, self.draws, self.labels, config.starts, self.rng,
                explorer.precision.finest,
            )  # fmt: skip
            explorer.crossings = explorer.crossings.joined(seeds)
            explorer.add(seeds)
        found = self.known.joined(pair_up(explorer.duals, config.margin))
        seen = len(explorer.duals)
        while explorer.sweep(found, config.starts):
            if len(explorer.duals) == seen:
                continue
            seen = len(explorer.duals)
            found = self.known.joined(pair_up(explorer.duals, config.margin))
            self.run.base.progress.update(
                "search", len(explorer.duals), None, f"{len(found)} hyperplanes"
            )
        return found

    def _outputs(
        self, explorer: Explorer, found: Hyperplanes, details: dict[str, Any]
    ) -> tuple[Model | None, Crossings]:
        """Solve for the outputs, fit all, and compare; returns a model or where it fails."""
        config, chart = self.config, explorer.chart
        finest = explorer.precision.finest
        none = Crossings.none(chart.dimension)
        self.turns += 1
        self._top_up(explorer, len(found))
        rough, off = self._last(explorer)
        if rough is None:
            rough, off = self._rough(explorer, found)
            if rough is not None and not off < BLURRED:  # a fit of all may mend that
                self._top_up(explorer, len(found), int(config.surplus * rough.unknowns))
                rough, off = self._rough(explorer, found)
        details["off"] = off
        if rough is None or not off < BLURRED:
            return None, none
        half = max(off, 16.0 * finest)
        pool = predicted_pool(rough, chart, self.rng, half)
        # With few crossings over unknowns a fit hides what a weak unit does in all the others.
        wanted = int(config.surplus * self.turns * rough.unknowns)
        count = max(0, wanted - len(explorer.crossings))
        design = pool.take(choose(rough, pool, count))
        at = ask_predicted(chart, design, half=half, finest=finest, reach=1.0)
        lost = np.isnan(at.error)
        explorer.crossings = explorer.crossings.joined(at.take(~lost))
        # Where predictions are lost data are missing first, and units perhaps.
        solved, _ = self._rough(explorer, found)
        fit = self._explained(explorer, rough if solved is None else solved)
        self.trial, bad = fit.model, fit.misfit > config.margin
        self.explained = 1.0 - float(bad.mean())
        details |= {"units": fit.model.width, "asked": count, "lost": int(lost.sum()),
                    "bad": int(bad.sum()), "misfit": float(np.median(fit.misfit))}  # fmt: skip
        if self._tolerated(bad):
            return fit.model, none
        return None, self._seeds(explorer, explorer.crossings.take(bad), at.take(lost))

    def _last(self, explorer: Explorer) -> tuple[Model | None, float]:
        """Return the last trial, if it predicts most of the boundary, and how far it is off."""
        if self.trial is None or self.trial.classes != len(self.run.target.names):
            return None, np.inf
        away = np.abs(self.trial.distances(explorer.crossings))
        off = float(np.quantile(away, self.config.useful))
        return (self.trial, off) if off < BLURRED else (None, off)

    def _rough(self, explorer: Explorer, found: Hyperplanes) -> tuple[Model | None, float]:
        """Return a model of the hyperplanes found, and how far its boundary is off.

        What was fitted before competes with it, as that may know more than the hyperplanes; and
        its own hyperplanes, as those that were one and the same have met.
        """
        at = explorer.crossings
        trials = [self._solved(explorer, found)]
        if self.trial is not None and self.trial.classes == len(self.run.target.names):
            met = Hyperplanes.none(self.chart.dimension).joined(Hyperplanes.of(self.trial))
            trials.append(self.trial if len(met) == self.trial.width
                          else self._solved(explorer, met))  # fmt: skip
        best, off, most = None, np.inf, -1.0
        for trial in trials:
            if trial is None:
                continue
            if len(at) >= self.config.surplus * trial.unknowns:
                trial = self._fit(explorer, trial).model
            away = float(np.quantile(np.abs(trial.distances(at)), self.config.useful))
            misfit = misfits(trial, at, explorer.precision.finest)
            right = float((misfit <= self.config.margin).mean())
            if right > most or best is None:
                best, off, most = trial, away, right
        return best, off

    def _solved(self, explorer: Explorer, found: Hyperplanes) -> Model | None:
        """Return the outputs that the crossings allow on hyperplanes."""
        at, asked = explorer.crossings, self.labels >= 0
        split = found.splitting(at.points)
        while (extra := superfluous(split.rows, split.offsets, at)).any():
            split = split.take(~extra)
        return solve_outputs(
            split.rows, split.offsets, at, len(self.run.target.names),
            (self.draws[asked], self.labels[asked]), self.config.margin * 2.0**-self.config.bits,
        )  # fmt: skip

    def _fit(self, explorer: Explorer, model: Model) -> Fit:
        return fit_model(
            model, explorer.crossings, noise=explorer.precision.finest,
            within=self.config.margin,
        )  # fmt: skip

    def _explained(self, explorer: Explorer, rough: Model) -> Fit:
        """Fit a model to all crossings of a chart, with further units where they ask for it."""
        margin, at, noise = self.config.margin, explorer.crossings, explorer.precision.finest
        fit = self._fit(explorer, rough)
        while (fit.misfit > margin).any():
            bad = np.flatnonzero(fit.misfit > margin)
            failed = at.take(self.rng.permutation(bad)[: 2 * self.config.starts])
            more = missing_hyperplanes(
                explorer.chart, fit.model, failed, self.rng, precision=explorer.precision,
                margin=margin,
            )  # fmt: skip
            trial = self._fit(explorer, fit.model.with_units(more.rows, more.offsets))
            if not (trial.misfit > margin).sum() < len(bad):
                return fit
            fit = trial
        return prune(fit, at, noise=noise, within=margin)

    def _top_up(self, explorer: Explorer, units: int, least: int = 0) -> None:
        """Find crossings of every class, as many as its output has unknowns and some more.

        Or ``least`` crossings of all classes together.
        """
        chart, finest = explorer.chart, explorer.precision.finest
        classes = len(self.run.target.names)  # a crossing serves two of them
        each = 2.0 * (classes - 1) / classes * (units + chart.dimension + 1)
        more = (self.turns - 1) / self.config.rounds  # what did not suffice is not asked in vain
        need = max(2 * least // classes, int(each * (self.config.surplus + more)) + 1)
        for c in range(classes):
            at = explorer.crossings
            missing = need - int(((at.inside == c) | (at.outside == c)).sum())
            if missing <= 0:
                continue
            # Points of the class: beside its own crossings, and all draws.
            aside = GROWTH * at.error[:, None] * at.directions
            y = np.concatenate([self.draws, at.points - aside, at.points + aside])
            label = np.concatenate([self.labels, at.inside, at.outside])
            own, others = np.flatnonzero(label == c), np.flatnonzero((label != c) & (label >= 0))
            if len(own) == 0 or len(others) == 0:
                continue
            a, b = self.rng.choice(own, missing), self.rng.choice(others, missing)
            apart = np.linalg.norm(y[a] - y[b], axis=1) > explorer.precision.step
            a, b = a[apart], b[apart]
            explorer.crossings = at.joined(between(chart, y[a], y[b], label[a], label[b], finest))

    def _tolerated(self, wrong: BoolArray) -> bool:
        """Whether to go on although some points are wrong: never at first.

        Where turns of the search did not help the whole of the inputs may; the certificate has
        the last word.
        """
        few = BLURRED if self.turns > self.config.rounds // 4 else 0.0
        return float(wrong.mean() if len(wrong) else 0.0) <= few

    def _seeds(self, explorer: Explorer, bad: Crossings, lost: Crossings) -> Crossings:
        """Return places from which to search on: where a model fails."""
        most = self.config.starts
        # Crossings near all that was lost are data for the next fit; a few are explored from.
        fresh = find_near(explorer.chart, lost.points, self.rng, explorer.precision.finest)
        explorer.crossings = explorer.crossings.joined(fresh)
        seeds = bad.take(self.rng.permutation(len(bad))[:most]).joined(fresh)
        return seeds.take(np.arange(min(most, len(seeds))))

    def _predicted(
        self, explorer: Explorer, model: Model, details: dict[str, Any]
    ) -> tuple[Model | None, Crossings]:
        """Compare a chart's model with the target where it says most, by two labels a point.

        Where it is off the boundary is found and fitted as well, until all is as predicted.
        """
        config, chart, finest = self.config, explorer.chart, explorer.precision.finest
        within = GROWTH**3 * finest
        for turn in range(config.rounds):
            pool = predicted_pool(model, chart, self.rng, within)
            at = pool.take(choose(model, pool, int(config.surplus * model.unknowns)))
            wrong = ~stays(chart, at, within)
            at = at.take(wrong)
            details |= {"predictions": turn + 1, "wrong": len(at)}
            if self._tolerated(wrong):
                return model, at
            near = ask_predicted(chart, at, half=GROWTH * within, finest=finest, reach=1.0)
            lost = np.isnan(near.error)
            explorer.crossings = explorer.crossings.joined(near.take(~lost))
            seeds = self._seeds(explorer, Crossings.none(chart.dimension), at.take(lost))
            fit = self._explained(explorer, model)
            bad = fit.misfit > config.margin
            self.trial = model = fit.model
            if not self._tolerated(bad):
                return None, explorer.crossings.take(bad).joined(seeds).take(
                    np.arange(min(config.starts, int(bad.sum()) + len(seeds)))
                )
        return None, Crossings.none(chart.dimension)

    def _sharpen(
        self, explorer: Explorer, model: Model, details: dict[str, Any]
    ) -> tuple[Model | None, Crossings]:
        """Fit a chart's model to boundary points as precise as labels allow."""
        config, chart = self.config, explorer.chart
        noise, finest = explorer.precision.noise, explorer.precision.finest
        room = GROWTH**3 * finest
        pool = predicted_pool(model, chart, self.rng, room)
        at = pool.take(choose(model, pool, int(config.surplus * model.unknowns)))
        at = ask_predicted(chart, at, half=finest, finest=noise / 2.0, reach=1.0)
        lost = np.isnan(at.error)
        kept = at.take(~lost)
        fit = fit_model(model, kept, noise=noise, within=config.margin)
        fit = prune(fit, kept, noise=noise, within=config.margin)
        bad = fit.misfit > config.margin**2
        details |= {"units": fit.model.width, "points": len(at), "bad": int(bad.sum()),
                    "lost": int(lost.sum()), "misfit": float(np.median(fit.misfit))}  # fmt: skip
        if not (self._tolerated(bad) and self._tolerated(lost)):
            explorer.crossings = explorer.crossings.joined(kept)
            return None, self._seeds(explorer, kept.take(bad), at.take(lost))
        self.run.remember(chart, kept)
        return fit.model, Crossings.none(chart.dimension)
