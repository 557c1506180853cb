"""The polish as a whole: subsample, rare units, orientation, all samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.decompose import residual_signal
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.piecewise import Kinks, damped_step, residuals
from unrelu.gaussian.config import FEW, SampleOptions
from unrelu.gaussian.moment_stage import MomentEstimate
from unrelu.gaussian.polish import (
    KinkFit,
    drop_needless_units,
    fit_kinks,
    grow_and_prune,
    kinks_from_units,
    linear_fit,
    orient,
    random_kinks,
    without_undetermined,
)
from unrelu.gaussian.rare_units import find_rare_units
from unrelu.gaussian.residual import (
    few_carry_most,
    find_jump,
    find_structure,
    rough_structure,
    visible_misfit,
)
from unrelu.gaussian.stream import (
    HoldOut,
    InputWhitening,
    ReadingPlan,
    collect_outliers,
    stream_normal_equations,
)
from unrelu.gaussian.survey import SampleSurvey
from unrelu.samples import SampleSource

__all__ = ["SampleFit", "SamplePolish"]


@dataclasses.dataclass(frozen=True)
class SampleFit:
    """The polished model.

    Attributes
    ----------
    model
        Kinks, in "abs" form with an affine part or in "relu" form without.
    xi
        Orientation of each unit, ``(m,)``.
    noise
        Root mean square residual with degrees of freedom taken off; 0 if exact.
    exact
        Whether the residual is at rounding level.
    oriented
        Whether the orientations absorb the affine part.
    orientations
        How many do; 0 if there were too many to look at.
    unexplained
        Samples that an exact model does not meet.
    structure
        What the residual of an inexact one still shows; empty if nothing.
    missing
        Whether that may be units that were not found (a bound on the width was reached,
        few samples reach them, or there are few), not labels of another kind.
    visible
        Share of the noise that a misfit needs to be seen in these samples.
    polished
        Whether the polish ran.
    message, details
        For the report.
    """

    model: Kinks
    xi: FloatArray
    noise: float
    exact: bool
    oriented: bool
    orientations: int
    unexplained: int
    structure: str
    missing: bool
    visible: float
    polished: bool
    message: str
    details: Mapping[str, Any]


@dataclasses.dataclass
class SamplePolish:
    """Carries what every stage of the polish needs.

    ``source`` is None where the samples cannot be read again; ``gaussian`` says whether
    the inputs are, so that the moments' start has about the right number of units.
    """

    source: SampleSource | None
    plan: ReadingPlan
    survey: SampleSurvey
    whitening: InputWhitening
    held: HoldOut
    rng: np.random.Generator
    sizes: SampleOptions
    width: int | None
    max_width: int | None
    gaussian: bool
    report: Callable[[str], None]
    notes: list[str] = dataclasses.field(default_factory=list)

    def run(self, estimate: MomentEstimate, *, polish: bool) -> SampleFit:
        """Refine a moment estimate on the samples."""
        d = self.whitening.factor.shape[1]
        units = max(len(estimate.w), self.width or 0, 1)
        rows = max(self.sizes.rows_per_parameter * (units + 1) * (d + 1), self.sizes.held_rows)
        x = self.whitening.forward(self.survey.train_x[:rows])
        y = self.survey.train_y[:rows]
        start = kinks_from_units(
            estimate.w, estimate.a, np.clip(estimate.b, -3.0, 3.0), np.zeros(d + 1)
        )
        # As many rows as parameters, four times over, or no unit at all.
        limit = max(len(x) // (4 * (d + 1)) - 1, 0)
        limit = min(limit, max(d * (d + 1) // 2, 16))
        if self.max_width is not None:
            limit = min(limit, self.max_width)
        if self.width is not None:
            limit = min(limit, self.width)
        start = dataclasses.replace(start, u=start.u[:limit], sign=start.sign[:limit])
        start = linear_fit(start, x, y)
        if not polish:
            return self._unpolished(start, x, y)
        fit, inliers, notes = grow_and_prune(
            start, x, y, self.rng, self.options, width=self.width, limit=limit
        )
        self.notes += notes
        fit, inliers = self._restarted(fit, inliers, x, y, limit)
        if not self.gaussian and self.width is None and not self._is_exact(fit):
            fit = self._with_fewer_units(fit, x, y)
        if self._is_exact(fit):
            return self._finish_exact(fit, x[inliers], y[inliers])
        return self._finish_noisy(fit, x, y)

    # ------------------------------------------------------------- helpers

    @property
    def options(self) -> PolishOptions:
        """Numbers of the fits."""
        return self.sizes.polish

    @property
    def _scale(self) -> float:
        return self.survey.label_scale

    def _is_exact(self, fit: KinkFit) -> bool:
        return fit.rms <= self.options.exact * self._scale

    def _unpolished(self, model: Kinks, x: FloatArray, y: FloatArray) -> SampleFit:
        xi = orient(model).patterns[0]
        rms = float(np.sqrt(np.mean(residuals(model, x, y) ** 2)))
        return SampleFit(
            model, xi, rms, False, False, 0, 0, "", False, 0.0, False,
            f"moment estimate of {len(model.u)} units leaves {rms / self._scale:.2g} of the "
            "labels' spread", {},
        )  # fmt: skip

    def _restarted(
        self,
        fit: KinkFit,
        inliers: np.ndarray[Any, np.dtype[np.bool_]],
        x: FloatArray,
        y: FloatArray,
        limit: int,
    ) -> tuple[KinkFit, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Random starts, wider than needed and pruned, if structure is left."""
        tries = 0
        # Random starts win on small networks, where they also cost little.
        small = (len(fit.model.u) + 1) * (x.shape[1] + 1) <= 200
        restarts = self.sizes.restarts if small else min(self.sizes.restarts, 1)
        while tries < restarts and not self._is_exact(fit) and limit > 0:
            if not self._structure(fit.model, x, y):
                break
            tries += 1
            self.report(f"random start {tries}")
            count = min(max(int(1.5 * len(fit.model.u)) + 2, 4), limit)
            start = random_kinks(count, x.shape[1], self._scale, self.rng)
            other, kept, _ = grow_and_prune(
                linear_fit(start, x, y), x, y, self.rng, self.options,
                width=self.width, limit=limit,
            )  # fmt: skip
            if other.rms < 0.99 * fit.rms:
                fit, inliers = other, kept
                self.notes.append(f"random start {tries} did better, rms {fit.rms:.1e}")
        return fit, inliers

    def _with_fewer_units(self, fit: KinkFit, x: FloatArray, y: FloatArray) -> KinkFit:
        """Look for a model of fewer units that the samples do not tell from this one.

        Units dropped one by one end where each is needed by the others; random starts
        with fewer end elsewhere. Each unit saved is worth Schwarz's ``(d + 1) log n``
        residual variances.
        """
        for attempt in range(2 * self.sizes.restarts):
            units = len(fit.model.u)
            fewer = max(units // 2 + attempt % 2, 1)
            if units < 2 or fewer >= units:
                break
            self.report(f"{fewer} units instead of {units}")
            start = random_kinks(fewer, x.shape[1], self._scale, self.rng)
            other, _, _ = grow_and_prune(
                linear_fit(start, x, y), x, y, self.rng, self.options,
                width=None, limit=units - 1,
            )  # fmt: skip
            saved = units - len(other.model.u)
            free = max(len(y) - fit.equations.matrix.shape[0], 1)
            worth = saved * (x.shape[1] + 1) * np.log(len(y)) * fit.equations.square / free
            if saved > 0 and other.equations.square <= fit.equations.square + worth:
                fit = other
                self.notes.append(f"{len(fit.model.u)} units serve as well as {units}")
        return fit

    def _structure(self, model: Kinks, x: FloatArray, y: FloatArray) -> str:
        """Say what a residual still shows that noise would not."""
        return rough_structure(x, residuals(model, x, y))

    def what_is_left(self, model: Kinks) -> tuple[str, bool]:
        """Hold the model against all rows in memory, the held-out ones included.

        Returns
        -------
        What they show that noise would not, and whether units may be missing.
        """
        rows = np.concatenate([self.survey.train_x, self.survey.held_x])
        y = np.concatenate([self.survey.train_y, self.survey.held_y])
        x = self.whitening.forward(rows)
        left = residuals(model, x, y)
        bounds = [bound for bound in (self.width, self.max_width) if bound is not None]
        full = bool(bounds) and len(model.u) >= min(bounds)
        weak = self._weakness(x, left)
        missing = full or bool(weak) or few_carry_most(left)
        structure = self._structure(model, x, y) or find_structure(
            x, left, model.u[:, :-1], self.whitening.factor, self.rng, self.sizes
        )
        return structure or find_jump(model, x) or weak, missing

    def _weakness(self, x: FloatArray, left: FloatArray) -> str:
        """Say so if these are too few samples to see a unit in the residual.

        A unit adds about 0.17 a to the singular values (``a phi(b) / sqrt 2`` at
        b = 1) and 0.3 a to the residual. It must show before it makes up more than
        about an eighth of the residual's variance.
        """
        _, _, _, threshold = residual_signal(x, left)
        limit = 0.2 * float(left.std())
        return "too few samples to tell noise from missing units" if threshold > limit else ""

    def _finish_exact(self, fit: KinkFit, x: FloatArray, y: FloatArray) -> SampleFit:
        """Look for samples that are not met, read rare units off them, orient."""
        unexplained = 0
        bar = self.options.met * self._scale
        sure, ordinary = without_undetermined(fit.model, x)
        if len(sure.u) < len(fit.model.u) and self.source is not None:
            again = fit_kinks(sure, x[ordinary], y[ordinary], self.options)
            if self._is_exact(again):
                self.notes.append(f"{np.count_nonzero(~ordinary)} rows too few for a unit")
                fit, x, y = again, x[ordinary], y[ordinary]
        for _ in range(4):
            if self.source is None:
                break
            self.report("checking all samples")
            far_x, far_y, unexplained, _ = collect_outliers(
                self.source, self.plan, fit.model, self.whitening, self.held,
                threshold=bar, limit=FEW,
            )  # fmt: skip
            if unexplained == 0:
                break
            left = residuals(fit.model, far_x, far_y)
            rows, signs = find_rare_units(far_x, left, self.rng, tolerance=0.1 * bar)
            if len(rows) == 0 or (self.width is not None and len(fit.model.u) >= self.width):
                break
            self.notes.append(f"{len(rows)} rare units from {len(far_x)} samples")
            assert fit.model.affine is not None
            # a relu(z) = a |z| / 2 + a z / 2
            half = 0.5 * rows
            grown = dataclasses.replace(
                fit.model,
                u=np.concatenate([fit.model.u, half]),
                sign=np.concatenate([fit.model.sign, signs]),
                affine=fit.model.affine + signs @ half,
            )
            met = np.abs(residuals(grown, far_x, far_y)) <= bar
            x, y = np.concatenate([x, far_x[met]]), np.concatenate([y, far_y[met]])
            refit = fit_kinks(grown, x, y, self.options)
            if not self._is_exact(refit):
                break
            fit = refit
        fit = drop_needless_units(fit, x, y, self.options)
        patterns = orient(fit.model)
        assert fit.model.affine is not None
        # The affine part and the units are known to about a tenth of ``exact``.
        bar = max(1e-8, 10.0 * self.options.exact) * self._scale
        oriented = bool(patterns.remainders[0] <= bar)
        count = int(np.count_nonzero(patterns.remainders <= bar)) if patterns.complete else 0
        model, xi = fit.model, patterns.patterns[0]
        if oriented:
            model, xi = self._refit_relu(fit, xi, x, y)
        noise = 0.0 if fit.rms <= 1e-11 * self._scale else fit.rms
        structure = find_jump(model, x)
        return SampleFit(
            model, xi, noise, True, oriented, count, unexplained,
            structure, False, 0.0, True,
            f"exact fit of {len(model.u)} units in {fit.steps} last steps",
            {"notes": "; ".join(self.notes), "rms": fit.rms, "rows": len(x)},
        )  # fmt: skip

    def _refit_relu(
        self, fit: KinkFit, xi: FloatArray, x: FloatArray, y: FloatArray
    ) -> tuple[Kinks, FloatArray]:
        """Fit oriented units without a free affine part."""
        relu = Kinks(2.0 * xi[:, None] * fit.model.u, fit.model.sign, None, "relu")
        if len(relu.u) == 0:
            return fit.model, xi
        refit = fit_kinks(relu, x, y, self.options)
        if refit.rms <= max(2.0 * fit.rms, self.options.exact * self._scale):
            return refit.model, np.ones(len(xi))
        return fit.model, xi

    def _finish_noisy(self, fit: KinkFit, x: FloatArray, y: FloatArray) -> SampleFit:
        """Orient by the best of the fitting patterns; last steps on all samples."""
        n, d = x.shape
        patterns = orient(fit.model)
        free = max(n - fit.equations.matrix.shape[0], 1)
        variance = fit.equations.square / free
        bar = (d + 1) * np.log(n) * variance
        chosen: KinkFit | None = None
        count = 0
        if len(fit.model.u):
            for xi in patterns.patterns[: self.sizes.restarts]:
                relu = Kinks(2.0 * xi[:, None] * fit.model.u, fit.model.sign, None, "relu")
                trial = fit_kinks(relu, x, y, self.options)
                if trial.equations.square - fit.equations.square <= bar:
                    count += 1
                    if chosen is None or trial.equations.square < chosen.equations.square:
                        chosen = trial
        oriented = chosen is not None
        model = fit.model if chosen is None else chosen.model
        xi = patterns.patterns[0] if chosen is None else np.ones(len(model.u))
        model, square, rows = self._all_samples(model, x, y)
        noise = float(np.sqrt(square / max(rows - len(model.parameters), 1)))
        structure, missing = self.what_is_left(model)
        return SampleFit(
            model, xi, noise, False, oriented, count, 0, structure, missing,
            visible_misfit(len(self.survey.train_y)), True,
            f"fit of {len(model.u)} units leaves {noise / self._scale:.2g} of the labels' "
            f"spread on {rows:,} samples",
            {"notes": "; ".join(self.notes), "rows": rows},
        )  # fmt: skip

    def _all_samples(self, model: Kinks, x: FloatArray, y: FloatArray) -> tuple[Kinks, float, int]:
        """Gauss-Newton steps on all samples, while they help; at most three.

        The start is within a few standard errors, where one step reaches the
        least-squares estimate up to terms of second order.
        """
        left = residuals(model, x, y)
        square, rows = float(left @ left), len(y)
        if self.source is None or self.survey.train_count <= len(x):
            return model, square, rows
        best = model
        for step in range(3):
            self.report(f"all samples, step {step + 1}")
            equations = stream_normal_equations(
                self.source, self.plan, model, self.whitening, self.held
            )
            if step and equations.square >= square * (1.0 - 1e-12):
                break
            best, square, rows = model, equations.square, equations.count
            move = damped_step(equations, 0.0)
            # The decrease this step promises, in noise variances; below 1e-3 of
            # one per parameter it changes nothing that matters.
            gain = float(move @ equations.right)
            model = model.moved(move)
            if gain <= 1e-3 * len(move) * square / rows:
                return model, max(square - gain, 0.0), rows
        return best, square, rows
