"""The units that a depth-2 extraction knows so far: asked, judged, sharpened, tidied."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel, noise_by_norm
from unrelu.core.run import reported_stage
from unrelu.core.units import Units, merge_units, parallel_groups
from unrelu.extraction.refine import Refiner, predicted_error
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.unit_fit import fit_size, fit_units
from unrelu.lines.domains import Domain
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.result import StageReport

__all__ = ["KnownUnits", "Meaningless", "Saturated"]

_KEPT = 2**22  # numbers of a batch of inputs above which it is not kept for the fit


class Saturated(Exception):
    """A probability underflowed where a log-odds was needed."""


class Meaningless(Exception):
    """Noise was taken for structure, until numbers overflowed."""


class KnownUnits:
    """What a run knows so far, and how that is sharpened, joined and judged."""

    def __init__(
        self,
        oracle: Oracle,
        domain: Domain,
        rng: np.random.Generator,
        progress: Progress,
        config: TwoLayerConfig,
    ) -> None:
        self.oracle, self.domain, self.rng = oracle, domain, rng
        self.progress, self.config = progress, config
        self.reach = config.survey.reach
        self.log_odds = False
        self.reference = 0
        self.inner_outputs = oracle.output_dim
        self.levels = np.ones(oracle.output_dim)  # what the outputs are divided by
        self.deepest = config.deepest
        self.stages: list[StageReport] = []
        self.noise: NoiseModel | None = None  # what the search goes by
        self.measured: NoiseModel | None = None  # what the answers' scatter showed
        self.units: Units | None = None
        self.covariance = np.zeros((0, 0))
        self.checked = np.empty((0, oracle.input_dim)), np.empty((0, oracle.output_dim))
        self.coarse = self.lifted = self.nested = False
        self.spread = 0.0
        self.seen: list[tuple[FloatArray, FloatArray]] = []  # coarse answers, for the fit
        self.drawn = 0  # inputs asked for the fit alone
        self.fitted = self.misfit = self.final = False
        self.expect: Callable[[int, bool], None] = lambda kinks, coarse: None

    def stage(self, name: str, message: str = "") -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        return reported_stage(self.oracle, self.stages, name, message)

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs, ``(n, d)``."""
        return self.domain.draw(n, self.rng)

    def ask(self, points: FloatArray) -> FloatArray:
        """Ask the oracle, never outside the domain by a rounding error."""
        if not np.isfinite(points).all():
            raise Meaningless
        if self.domain.bounds is not None:
            points = np.clip(points, self.domain.low, self.domain.high)
        answers = self.oracle(points)
        if self.log_odds and np.isnan(answers).any():
            raise Saturated
        self.remember(points, answers)
        return answers

    def remember(self, points: FloatArray, answers: FloatArray) -> None:
        """Keep coarse answers: each says a little about all units."""
        if self.coarse and not self.nested and len(points) * points.shape[1] <= _KEPT:
            self.seen.append((points, answers))

    def forget_nonsense(self) -> None:
        """Drop units that are not finite."""
        units = self.units
        if units is not None and not all(
            np.isfinite(a).all()
            for a in (units.weights, units.anchors, units.outputs, units.linear, units.value)
        ):
            self.units = None

    def residual(self, points: FloatArray) -> FloatArray:
        """Ask what the units known so far leave of the answers, ``(n, m)``."""
        answers = self.ask(points)
        return answers if self.units is None else answers - self.units(points)

    def residual_noise(self, closest: float) -> NoiseModel:
        """Noise of the residual: of the answers, and of the units found so far.

        ``closest`` is the least norm of the inputs that will be asked.
        """
        assert self.noise is not None
        if self.units is None or self.units.count == 0:
            return self.noise
        points = self.draw(64)
        error = predicted_error(self.units, self.covariance, points)
        distance = np.linalg.norm(points - self.units.base, axis=1)
        growth = float(np.max(error / distance))
        # It acts over the distance from the base: at the origin, where the errors of all biases
        # show, it is no less than at other inputs as long as the base.
        short = max(0.0, float(np.linalg.norm(self.units.base)) - closest)
        return self.noise.widened(growth * short, growth)

    def ill_conditioned(self) -> bool:
        """Whether the predicted error leaves little of the function."""
        error = float(np.sqrt(np.mean(self.errors(self.draw(256)) ** 2)))
        return error > self.config.useful * self.spread > 0 or self.entangled()

    def entangled(self) -> bool:
        """Whether exact answers leave a unit's direction inexact.

        Two kinks that nearly coincide on a line leave their units' directions open, but not
        the sum: the error shows between their hyperplanes only, where few inputs lie.
        """
        assert self.units is not None
        if self.coarse or self.units.count == 0:
            return False
        size = np.linalg.norm(self.units.outputs, axis=0) * self.deviations()
        size *= math.sqrt(self.domain.dimension)
        return float(size.max()) > self.config.useful_exact * self.spread > 0

    def refine(self) -> None:
        """Sharpen the units where the predicted error is above the goal."""
        if not self.coarse:
            self.tidy()
        assert self.units is not None
        assert self.noise is not None
        config = self.config
        k, d, m = self.units.count, self.domain.dimension, len(self.units.outputs)
        if self.coarse:
            limit = int(np.ceil(config.coarse_effort * (m + k) / m))
            most = config.lifted_passes if self.lifted else config.coarse_passes
            passes, most = config.fit_passes if self.fits() else most, 2 * most
        else:
            effort = config.effort + config.effort_thin * d**-0.65
            effort += config.effort_wide * max(0.0, math.log10(max(1, k) / d))
            if self.domain.bounds is not None:
                effort = config.effort_bounded
            limit, passes, most = max(config.least_points, int(effort * k)), 1, 1
        points = self.draw(256)
        goal = config.precision * self.spread
        if self.domain.bounds is not None:
            goal *= 0.1  # units that typical inputs hardly see weigh little in the mean
        refiner = Refiner(
            self.ask,
            self.units,
            self.covariance,
            self.noise,
            self.draw,
            rng=self.rng,
            bounds=self.domain.bounds,
            config=dataclasses.replace(
                config.refine,
                outward=config.log_odds_outward if self.log_odds else config.refine.outward,
            ),
            gradient_config=config.gradients,
        )
        factor = config.coarse_goal if self.coarse else 1.0
        goal = max(goal, factor * float(self.level(points).max()))
        with self.stage("refinement") as details:
            for done in range(most):
                self.progress.update("refinement", done, passes)
                refiner.measure(limit, goal)
                self.units, self.covariance = refiner.units, refiner.covariance
                if done + 1 >= passes and not self.ill_conditioned():
                    break
            self.sharpen_worst(refiner, limit, goal)
            values = config.values_per_unit * (k + 1)
            if not self.coarse and self.domain.bounds is None:
                values = min(values, 0.25 * config.effort * k * d)
            # A fit settles the biases with everything else.
            refiner.settle(0 if self.fits() else int(values), self.checked)
            details["points"] = refiner.measured
        self.units, self.covariance = refiner.units, refiner.covariance
        self.tidy()
        if self.fits():
            self.fit()

    def fits(self) -> bool:
        """Whether a least squares over all answers is worth its time."""
        assert self.units is not None
        return (
            self.coarse
            and not (self.nested or self.log_odds or self.misfit)
            and self.units.count > 0
            and fit_size(self.units) <= self.config.fit_parameters
        )

    def fit(self, *, skip: bool = True) -> None:
        """Fit all units to all answers, and to more of them at inputs near and far.

        Far out an answer of fixed absolute error tells directions best. ``skip=False`` fits
        a network without a skip term.
        """
        assert self.units is not None
        assert self.noise is not None
        config, m = self.config, len(self.units.outputs)
        with self.stage("fit") as details:
            wanted = math.ceil(config.fit_rows * fit_size(self.units) / m) - self.drawn
            if wanted > 0:
                points = self.domain.draw_wide(wanted, self.rng)
                if self.domain.kind != "box":
                    points[::2] = self.draw(len(points[::2])) * config.fit_outward
                self.ask(points)
                self.drawn += wanted
            points = np.concatenate([x for x, _ in self.seen])
            answers = np.concatenate([y for _, y in self.seen])
            norms = np.linalg.norm(points, axis=1)
            deviations = self.noise.std(norms)
            if self.fitted:  # a first fit has shown how the noise grows with the input
                # Rounded answers may all be met exactly: that does not make them precise.
                shown = noise_by_norm(norms, answers - self.units(points))
                deviations = np.maximum(shown, config.fit_least * deviations)
            found = fit_units(
                self.units, self.covariance, points, answers, deviations, skip=skip,
                config=config.fit,
            )  # fmt: skip
            if found is not None:
                # What the noise does not explain is a unit that the line did not show; fitted
                # without it, the others would hide it.
                rest = np.abs(answers - found[0](points)) / self.noise.std(norms)
                excess = float(np.median(rest)) / 0.6745
                details["over the noise"] = excess
                self.misfit = excess > config.fit_excess and not self.final
                self.fitted = not self.misfit
                if self.fitted:
                    # It must not widen what the checks let pass, either.
                    self.units = found[0]
                    self.covariance = found[1] / max(1.0, excess / config.fit_excess) ** 2
            details |= {"answers": len(answers)}
        self.tidy()

    def sharpen_worst(self, refiner: Refiner, limit: int, goal: float) -> None:
        """Measure more where a few inputs see a unit that is still poorly known."""
        config = self.config
        for _ in range(0 if self.coarse else config.worst_passes):
            points = self.domain.draw_wide(config.worst_draws, self.rng)
            error = self.errors(points)
            usual = config.worst_excess * float(np.sqrt(np.mean(error**2)))
            if self.domain.bounds is not None:
                usual = 0.0
            if error.max() <= max(config.worst * self.spread, usual):
                return
            worst = points[np.argsort(error)[-refiner.config.tests // 8 :]]
            if not refiner.measure(limit, goal, worst):
                return
            self.units, self.covariance = refiner.units, refiner.covariance

    def tidy(self) -> None:
        """Join units that share a hyperplane, and drop those that are nothing but noise."""
        assert self.units is not None
        root = math.sqrt(self.domain.dimension)
        std = root * self.deviations()
        self.keep(np.linalg.norm(self.units.weights, axis=1) > self.config.noise_unit * std)
        std = root * self.deviations()
        norms = np.linalg.norm(self.units.weights, axis=1)
        angle = np.minimum(self.config.same * std / norms + 1e-12, 0.1)
        for group in parallel_groups(self.units, angle):
            # On one line exact answers tell kinks apart; two lines may meet one unit twice.
            axes = self.units.axes[group]
            if self.coarse or np.abs(axes @ axes[0]).min() < 1.0 - 1e-9:
                self.units, change = merge_units(self.units, group)
                self.covariance = change @ self.covariance @ change.T
        size = np.linalg.norm(self.units.outputs, axis=0)
        size *= np.linalg.norm(self.units.weights, axis=1)
        self.keep(size > self.config.noise_unit * root * self.deviations())

    def deviations(self) -> FloatArray:
        """Return the standard deviation of an entry of each unit's weights, ``(k,)``."""
        assert self.units is not None
        m = len(self.units.outputs)
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance)[m:], 0.0)))

    def keep(self, which: BoolArray) -> None:
        """Drop all other units."""
        assert self.units is not None
        m = len(self.units.outputs)
        self.units = self.units.kept(which)
        index = np.concatenate([np.arange(m), m + np.flatnonzero(which)])
        self.covariance = self.covariance[np.ix_(index, index)]

    def errors(self, points: FloatArray) -> FloatArray:
        """Predicted error of the units at points, ``(n,)``."""
        assert self.units is not None
        return predicted_error(self.units, self.covariance, points)

    def level(self, points: FloatArray) -> FloatArray:
        """Noise at points, ``(n, m)``."""
        assert self.noise is not None
        return self.noise.at(points)
