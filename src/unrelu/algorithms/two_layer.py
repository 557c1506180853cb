"""Exact extraction of depth-2 ReLU networks (Daniely & Granot, Theorems 1 and 2).

Reference
---------
A. Daniely and E. Granot, *An Exact Poly-Time Membership-Queries Algorithm for
Extracting a Three-Layer ReLU Network*, 2021.

Setting
-------
Black-box access to ``f(x) = sum_j u_j relu(<w_j, x> + b_j) + c`` with any
number of hidden units and m >= 1 outputs, on all of R^d, on the non-negative
orthant or in a box; the answers may be probabilities (softmax, logistic).

Assumptions
-----------
The paper assumes general position. Here: no feature of f hides between the
points asked (see the certificate), and hyperplanes are far enough apart to be
told apart at the noise of the answers. Hyperplanes parallel to an axis, dead
units, units sharing a hyperplane and affine functions are fine.

Guarantee
---------
RECOVERED: the returned network agreed with the target at every held-out point
of the certificate, within the stated tolerance: rounding of the answers and
the predicted error of the recovery. Units that share one hyperplane are
returned as one; units without a kink in the domain are part of the affine term.

Map to the paper
----------------
==========================================  =====================================
FIND_CP, Algorithm 1                        :func:`unrelu.steps.lines.find_kinks`
AFFINE, Algorithm 2                         :func:`unrelu.steps.gradients.measure_gradients`
FIND_HP, Algorithm 3                        :func:`unrelu.steps.survey.survey`
IS_CONVEX, Algorithm 4                      the sign of the jump of slope, in ``survey``
IS_GENERAL, Algorithm 5                     the checks of ``measure_gradients``
Algorithm 6, lines 1-5 and 6-7              ``survey`` and :class:`unrelu.kernels.units.Units`
Theorem 2: all half-axes                    :meth:`_Extraction.cover`
==========================================  =====================================

Deviations
----------
- A random line instead of the first axis: rows may have exact zeros.
- Kinks are found by intersecting neighbouring pieces and testing both sides,
  not by halving down to delta^2: about 5 answers each instead of log(1/delta).
- The gradient after one kink is the gradient before the next, and the slope
  along the line is known: d - 1 answers per piece instead of 2d per kink.
- With several outputs about k / m pieces are measured instead of k + 1.
- A few gradients at roomy points sharpen the result at the end, as float64
  answers are not exact.
- Coarse answers (float32, rounded) are searched on a random subspace of the
  inputs first, where everything can be measured often, and the units are then
  lifted by derivatives at roomy points (:mod:`unrelu.steps.lift`).
- The residual is searched until random checks pass, since one line may miss a
  unit; the paper's general position excludes that.
- Signs of the units are resolved where they are determined, so that there is
  no affine term where the target has none.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike, BoolArray, FloatArray
from unrelu.errors import BudgetExhausted
from unrelu.kernels.units import (
    Units,
    join_units,
    merge_units,
    parallel_groups,
    resolve_signs,
)
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status
from unrelu.steps.certify import CertifyConfig, certify_units
from unrelu.steps.domains import Domain, as_domain
from unrelu.steps.gradients import GradientConfig
from unrelu.steps.lift import LiftConfig, Restricted, Subspace, lift_units
from unrelu.steps.lines import LineConfig
from unrelu.steps.noise import NoiseModel, Samples
from unrelu.steps.refine import RefineConfig, Refiner, predicted_error
from unrelu.steps.survey import SurveyConfig, SurveyLine, calibrate, scan_line, survey

__all__ = ["TwoLayerConfig", "TwoLayerResult", "extract_two_layer"]


@dataclasses.dataclass(frozen=True)
class TwoLayerConfig:
    """Every choice of the extraction that is a number."""

    line: LineConfig = dataclasses.field(default_factory=LineConfig)
    gradients: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    survey: SurveyConfig = dataclasses.field(default_factory=SurveyConfig)
    refine: RefineConfig = dataclasses.field(default_factory=RefineConfig)
    certify: CertifyConfig = dataclasses.field(default_factory=CertifyConfig)
    lift: LiftConfig = dataclasses.field(default_factory=LiftConfig)
    looks: int = 3
    """Points looked at to tell probabilities from values."""
    deepest: float = 600.0
    """Log-odds up to which probabilities are used: exp(-700) underflows."""
    deepest_single: float = 6.0
    """The same for a single probability p: the error of log(1 - p) grows as 1 / (1 - p)."""
    log_odds_outward: float = 1.5
    """Refinement goes out to this multiple of typical inputs for log-odds."""
    checks: int = 12
    """Random points checked before the certificate; more for wider networks."""
    checks_bounded: int = 150
    """So many more in a bounded domain, where a line meets fewer hyperplanes."""
    negligible: float = 1e-9
    """Deviations below this part of std(f) are not searched for."""
    check_accept: float = 12.0
    """Deviations, in predicted standard deviations, that a check lets pass."""
    repairs: int = 12
    """Lines searched for what a check found missing."""
    late_repairs: int = 4
    """The same for coarse answers, after a refinement."""
    restarts: int = 2
    """Times that all is done again on another line, if the checks fail to the end."""
    useful: float = 1e-3
    """Error over std(f), predicted or met by the certificate, above which the result is
    called ill conditioned."""
    useful_exact: float = 1e-6
    """The same for what the certificate met, where answers are exact to rounding."""
    precision: float = 5e-12
    """Root mean square error over std(f) below which nothing is refined."""
    coarse: float = 1e-10
    """Noise over the spread of answers above which answers count as coarse (float32,
    rounded): everything is then measured anew at roomy points, in two passes."""
    coarse_doubt: float = 4.0
    """Factor on the predicted errors of a first survey of coarse answers: small crossings
    hide in the noise of its checks."""
    coarse_effort: float = 0.3
    coarse_passes: int = 13
    lifted_passes: int = 3
    """Points per unknown and pass of that, and passes: each makes more units sure enough
    for the next to measure them farther out."""
    coarse_goal: float = 6.0
    """Root mean square error, in deviations of an answer, at which this ends."""
    values_per_unit: float = 3.0
    """Values at typical inputs that settle the biases in the end, or as many as cost a
    quarter of ``effort``: kinks far out on the line leave their units' biases inexact."""
    worst: float = 5e-10
    worst_excess: float = 10.0
    """Predicted error at any input, over std(f) and (where typical inputs see all units) over
    the root mean square error, above which more is measured there ..."""
    worst_draws: int = 2000
    worst_passes: int = 4
    """... judged at so many inputs, in up to so many passes."""
    same: float = 6.0
    """Units whose hyperplanes agree within this many deviations are one."""
    noise_unit: float = 3.0
    """Units whose weights are below this many deviations are noise."""
    least_points: int = 3
    effort: float = 0.058
    effort_thin: float = 0.9
    effort_wide: float = 0.025
    effort_bounded: float = 1.0
    """Refinement spends up to ``effort + effort_thin d^-0.65`` queries per parameter (and
    measures three points, if that is less): a thin network has few parameters for the same
    number of kinks, and its share of line search and checks is larger anyway. Where units
    outnumber inputs there is less room between them: ``effort_wide log10(k / d)`` more. In a
    bounded domain, where units were found on short lines, up to ``effort_bounded``."""


@dataclasses.dataclass(frozen=True, repr=False)
class TwoLayerResult(RecoveryResult):
    """A recovered depth-2 network and what is known about it.

    Attributes
    ----------
    width
        Number of hidden units found.
    signs_determined
        True: the network has no skip term and its units point the right way.
        False: it is the affine-skip form of equation (2).
    noise
        Standard deviation of an answer's error, at typical inputs.
    predicted_error
        Root mean square error of the network at typical inputs, as predicted
        from the noise, in answer units.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    width: int = 0
    signs_determined: bool = False
    noise: float = 0.0
    predicted_error: float = 0.0
    answers: str = "values"


class _Saturated(Exception):
    """A probability underflowed where a log-odds was needed."""


class _Extraction:
    """One run: the state that the stages share."""

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
        self.deepest = config.deepest
        self.stages: list[StageReport] = []
        self.noise: NoiseModel | None = None
        self.units: Units | None = None
        self.covariance = np.zeros((0, 0))
        self.checked = np.empty((0, oracle.input_dim)), np.empty((0, oracle.output_dim))
        self.coarse = self.lifted = self.nested = False
        self.spread = 0.0

    # ---------------------------------------------------------------- helpers

    @contextmanager
    def stage(self, name: str, message: str = "") -> Iterator[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        details: dict[str, Any] = {}
        before = self.oracle.queries.total
        start = time.perf_counter()
        try:
            with self.oracle.stage(name):
                yield details
        finally:
            self.stages.append(
                StageReport(
                    name,
                    queries=self.oracle.queries.total - before,
                    seconds=time.perf_counter() - start,
                    message=message,
                    details=details,
                )
            )

    def draw(self, n: int) -> FloatArray:
        return self.domain.draw(n, self.rng)

    def ask(self, points: FloatArray) -> FloatArray:
        """Ask the oracle, never outside the domain by a rounding error."""
        if self.domain.bounds is not None:
            points = np.clip(points, self.domain.low, self.domain.high)
        answers = self.oracle(points)
        if self.log_odds and np.isnan(answers).any():
            raise _Saturated
        return answers

    def residual(self, points: FloatArray) -> FloatArray:
        answers = self.ask(points)
        return answers if self.units is None else answers - self.units(points)

    def residual_noise(self) -> NoiseModel:
        """Noise of the residual: of the answers, and of the units found so far."""
        assert self.noise is not None
        if self.units is None or self.units.count == 0:
            return self.noise
        points = self.draw(64)
        error = predicted_error(self.units, self.covariance, points)
        distance = np.linalg.norm(points - self.units.base, axis=1)
        growth = float(np.max(error / distance))
        return self.noise.widened(0.0, growth)

    # ----------------------------------------------------------------- stages

    def look(self, answers: str) -> None:
        """Find out whether the answers are probabilities, and turn to log-odds if so.

        Rows that sum to one, and single columns that stay within [0, 1] far
        out, are probabilities; a piecewise affine function is unbounded.
        """
        if answers == "values":
            return
        with self.stage("calibration"):
            typical = self.draw(self.config.looks)
            if self.oracle.output_dim == 1 and self.domain.kind != "box":
                # Far out in both directions: a unit that is off in one is on in the other.
                typical[1] *= 1e6
                typical[2:] = -typical[1] if self.domain.kind == "all" else 1e6 * typical[2:]
            seen = self.oracle(typical)
        inside = bool(((seen >= 0) & (seen <= 1)).all())
        if self.oracle.output_dim > 1:
            found = inside and bool((np.abs(seen.sum(axis=1) - 1.0) <= 1e-5).all())
        else:
            found = inside and self.domain.kind != "box" and float(np.ptp(seen)) > 0
        if found or answers == "probabilities":
            # The likeliest class is the reference: its probability underflows last.
            reference = int(np.argmax(seen.mean(axis=0)))
            self.oracle, self.log_odds = LogOdds(self.oracle, reference=reference), True
            self.checked = self.checked[0], np.empty((0, self.oracle.output_dim))
            self.reference = reference
            if self.oracle.output_dim == 1 == self.inner_outputs:
                self.deepest = self.config.deepest_single

    def shorten(self, line: SurveyLine) -> SurveyLine:
        """Limit a line to where no probability underflows."""
        if not self.log_odds:
            return line
        with self.stage("calibration"):
            ends = line.scale if math.isfinite(line.scale) else 0.5 * (line.high - line.low)
            grid = ends * 2.0 ** np.arange(-4.0, 9.0)
            t = np.concatenate([-grid[::-1], [0.0], grid])
            t = t[(t >= line.low) & (t <= line.high)]
            seen = self.oracle(line.points(t))
            fine = np.abs(seen).max(axis=1) < self.deepest  # False for NaN as well
        middle = int(np.argmin(np.abs(t)))
        if not fine[middle]:
            raise _Saturated
        first = last = middle
        while first > 0 and fine[first - 1]:
            first -= 1
        while last + 1 < len(t) and fine[last + 1]:
            last += 1
        return dataclasses.replace(line, low=float(t[first]), high=float(t[last]))

    def calibrate(self) -> tuple[SurveyLine, list[Samples]]:
        """Draw a line, and measure the noise of the answers on it."""
        self.units, self.lifted = None, False
        self.checked = self.checked[0][:0], self.checked[1][:0]
        line = self.shorten(self.domain.line(self.rng, self.reach))
        near = 10.0 * self.domain.scale if self.domain.kind != "box" else math.inf
        with self.stage("calibration"):
            self.noise, seeds = calibrate(self.ask, line, near=near)
        middle = min(seeds, key=lambda seed: float(np.abs(seed[0]).min()))
        size = float(np.abs(middle[1]).max())
        noise = float(self.noise.at(line.points(middle[0])).max())
        self.coarse = noise > self.config.coarse * size
        return line, seeds

    def first_line(self, line: SurveyLine, seeds: list[Samples]) -> None:
        """Algorithm 6, lines 1-6, on a random line."""
        config = self.config
        assert self.noise is not None
        self.progress.update("line search", 0, None)
        with self.stage("line search") as details:
            scan, self.noise = scan_line(
                self.ask,
                line,
                self.noise,
                seeds,
                config=config.survey,
                line_config=config.line,
            )
            details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
        self.progress.update("line search", 1, 1, f"{len(scan.kinks)} kinks")
        with self.stage("gradients") as details:
            found = survey(
                self.ask,
                line,
                self.noise,
                scan,
                rng=self.rng,
                bounds=self.domain.bounds,
                config=config.survey,
                gradient_config=config.gradients,
            )
            details |= {"pieces": len(scan.kinks) + 1}
        self.units, self.covariance = found.units, found.covariance
        points = self.draw(256)
        values = self.units(points)
        # A nearly constant function is judged by its size instead.
        self.spread = float(np.maximum(values.std(axis=0), 1e-3 * np.abs(values).max(0)).max())
        self.coarse = float(self.level(points).max()) > config.coarse * self.spread
        if self.coarse:
            self.covariance = self.covariance * config.coarse_doubt**2
        self.progress.update("gradients", 1, 1, f"{self.units.count} units")

    def failures(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Deviation at points in units of its predicted deviation, and the residuals.

        The answers are kept: they settle biases later.
        """
        assert self.noise is not None
        assert self.units is not None
        answers = self.oracle(points)
        residual = answers - self.units(points)
        deepest = self.deepest if self.log_odds else math.inf
        deep = ~(np.abs(answers) < deepest).all(axis=1)  # True for NaN
        if self.log_odds:  # underflowed probabilities say nothing
            residual[deep] = 0.0
        self.checked = points[~deep], answers[~deep]
        spread = np.sqrt(
            self.noise.at(points) ** 2
            + predicted_error(self.units, self.covariance, points)[:, None] ** 2
        )
        spread = spread + self.config.negligible * self.spread / self.config.check_accept
        spread = np.maximum(spread, np.finfo(np.float64).tiny)  # an exact constant has none
        return np.abs(residual / spread).max(axis=1), residual

    def check(self) -> tuple[FloatArray, FloatArray] | None:
        """Return a typical input at which the units are wrong, and one where they are right.

        None where they are right at all inputs drawn.
        """
        assert self.units is not None
        counts = [self.config.checks + min(52, self.units.count // 8)]
        if self.domain.bounds is not None:
            counts.append(self.config.checks_bounded)
        points = miss = np.empty(0)
        with self.stage("check") as details:
            for count in counts:  # the many only when the few agree
                points = self.domain.draw_wide(count, self.rng)
                miss, _ = self.failures(points)
                if miss.max() > self.config.check_accept:
                    break
        details["worst"] = float(miss.max())
        worst, best = int(np.argmax(miss)), int(np.argmin(miss))
        if miss[worst] <= self.config.check_accept:
            return None
        right = points[best] if miss[best] <= self.config.check_accept else self.units.base
        return points[worst], right

    def search_residual(self, line: SurveyLine) -> int:
        """Look for units on a line that the residual still shows; returns how many."""
        config = self.config
        assert self.noise is not None
        noise = self.residual_noise()
        with self.stage("residual search") as details:
            positions, scales = line.seeds()
            positions = np.concatenate([positions, positions + 1e-4 * scales])
            positions = positions[(positions >= line.low) & (positions <= line.high)]
            positions = np.unique(np.append(positions, np.clip(0.0, line.low, line.high)))
            answers = self.residual(line.points(positions))
            level = noise.std(line.norms(positions))
            if (np.abs(answers) <= config.check_accept * level).all():
                return 0
            seeds = [(positions[i : i + 1], answers[i : i + 1]) for i in range(len(positions))]
            scan, noise = scan_line(
                self.residual, line, noise, seeds, config=config.survey, line_config=config.line
            )
            found = survey(
                self.residual,
                line,
                self.noise,
                scan,
                rng=self.rng,
                bounds=self.domain.bounds,
                slack=float(np.sqrt(np.max(np.diagonal(self.covariance), initial=0.0))),
                config=config.survey,
                gradient_config=config.gradients,
            )
            details |= {"kinks": len(scan.kinks)}
        self.join(found.units, found.covariance)
        return len(scan.kinks)

    def join(self, new: Units, covariance: FloatArray) -> None:
        """Add units found in the residual."""
        assert self.units is not None
        m, old = len(new.outputs), self.units.count
        size = m + old + new.count
        joint = np.zeros((size, size))
        joint[: m + old, : m + old] = self.covariance
        index = np.concatenate([np.arange(m), np.arange(m + old, size)])
        joint[np.ix_(index, index)] += covariance
        self.units, self.covariance = join_units(self.units, new), joint

    def attempt(self) -> bool:
        """Do everything once; whether random checks pass in the end."""
        line, seeds = self.calibrate()
        if not (self.coarse and not self.nested and self.through_subspace()):
            self.first_line(line, seeds)
        if not self.repair():
            return False
        self.cover()
        self.refine()
        for _ in range(self.config.late_repairs if self.coarse else 0):
            # Coarse answers hide a unit in the predicted errors until the others are sharp.
            if self.nested and self.ill_conditioned():
                return False  # on a subspace another line costs less than a repair
            bad = self.check()
            if bad is None:
                return not self.ill_conditioned()
            if self.search_residual(self.shorten(self.domain.through(*bad, self.reach))):
                self.refine()
        return self.check() is None and not self.ill_conditioned()

    def through_subspace(self) -> bool:
        """Recover the units on a random subspace, and lift them; False if that fails.

        Coarse answers make a long line's small kinks and gaps unreadable. On a
        subspace everything can be measured several times at little cost, and
        the derivatives across it are then taken at roomy points only.
        """
        config, d = self.config, self.domain.dimension
        size = config.lift.dimension
        while self.domain.kind == "all" and size <= config.lift.part * d:
            subspace = Subspace(size, d, self.rng)
            inner = _Extraction(
                Restricted(self.oracle, subspace),
                as_domain("all", size),
                self.rng,
                self.progress,
                config,
            )
            inner.nested, inner.log_odds, inner.deepest = True, self.log_odds, self.deepest
            try:
                passed = any(inner.attempt() for _ in range(config.lift.attempts))
            finally:
                self.stages += inner.stages
            found = inner.units
            if passed and found is not None and found.count <= config.lift.crowd * size:
                return self.lift(inner, subspace)
            size *= 2
        return False

    def lift(self, inner: _Extraction, subspace: Subspace) -> bool:
        """Take over what a subspace showed; False if it has no roomy points."""
        assert inner.units is not None
        assert inner.noise is not None
        scale = subspace.scale
        self.noise = NoiseModel(inner.noise.absolute, inner.noise.growth / scale)
        with self.stage("gradients") as details:
            lifted = lift_units(
                self.ask,
                inner.units,
                inner.covariance,
                self.noise,
                subspace,
                inner.draw,
                rng=self.rng,
                config=self.config.lift,
                refine=self.config.refine,
                gradient_config=self.config.gradients,
            )
            details |= {"subspace": len(subspace.rows), "units": inner.units.count}
        if lifted is None:
            return False
        self.units, self.covariance = lifted
        self.spread, self.lifted = inner.spread, True
        return True

    def ill_conditioned(self) -> bool:
        """Whether the predicted error leaves little of the function."""
        error = float(np.sqrt(np.mean(self.errors(self.draw(256)) ** 2)))
        return error > self.config.useful * self.spread > 0

    def repair(self) -> bool:
        """Check, and search the residual where a check fails, until one passes."""
        for attempt in range(self.config.repairs + 1):
            bad = self.check()
            if bad is None:
                return True
            if attempt < self.config.repairs:
                # Between a wrong and a right point lies a kink that is still unknown.
                line = self.shorten(self.domain.through(*bad, self.reach))
                self.search_residual(line)
        return False

    def cover(self) -> None:
        """Theorem 2: search the residual on lines that meet every hyperplane."""
        for line in self.domain.axes(self.reach):
            self.search_residual(self.shorten(line))

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
            passes = config.lifted_passes if self.lifted else config.coarse_passes
        else:
            effort = config.effort + config.effort_thin * d**-0.65
            effort += config.effort_wide * max(0.0, math.log10(max(1, k) / d))
            if self.domain.bounds is not None:
                effort = config.effort_bounded
            limit, passes = max(config.least_points, int(effort * k)), 1
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
            for done in range(2 * passes if self.coarse else passes):
                self.progress.update("refinement", done, passes)
                refiner.measure(limit, goal)
                self.units, self.covariance = refiner.units, refiner.covariance
                if done + 1 >= passes and not self.ill_conditioned():
                    break
            self.sharpen_worst(refiner, limit, goal)
            values = config.values_per_unit * (k + 1)
            if not self.coarse and self.domain.bounds is None:
                values = min(values, 0.25 * config.effort * k * d)
            refiner.settle(int(values), self.checked)
            details["points"] = refiner.measured
        self.units, self.covariance = refiner.units, refiner.covariance
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

    def finish_signs(self) -> bool:
        """Turn units over so that the affine term vanishes, where that is determined."""
        assert self.units is not None
        m = len(self.units.outputs)
        std = math.sqrt(max(float(np.max(np.diagonal(self.covariance)[:m], initial=0.0)), 0.0))
        turn = resolve_signs(self.units, max(std, 1e-14 * float(np.abs(self.units.linear).max())))
        if turn is None:
            return False
        self.units = self.units.turned(turn)
        return True


def extract_two_layer(
    oracle: Any,
    *,
    domain: str | tuple[ArrayLike, ArrayLike] = "all",
    answers: Literal["auto", "values", "probabilities"] = "auto",
    rng: RandomState = None,
    progress: Progress | None = None,
    config: TwoLayerConfig | None = None,
) -> TwoLayerResult:
    """Recover a network with one hidden layer from queries.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    domain
        Where the target may be asked: ``"all"``, ``"nonnegative"``, or a box
        ``(low, high)`` of numbers or arrays of length d.
    answers
        ``"probabilities"`` (of a softmax or logistic output) are worked on as
        log-odds; ``"auto"`` looks at a few answers. A single probability in a
        box cannot be told from a value: say so.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    config
        Tolerances and sizes.

    Returns
    -------
    TwoLayerResult
        RECOVERED promises that the network agreed with the target at every
        held-out point of the certificate within its tolerance. For
        probabilities the network gives logits, of which one is always zero.
    """
    target = as_oracle(oracle)
    config = TwoLayerConfig() if config is None else config
    area = as_domain(domain, target.input_dim)
    generator = as_generator(rng)
    provenance = Provenance(
        algorithm="extract_two_layer",
        seed=rng if isinstance(rng, int) else None,
        options={"domain": area.kind, "answers": answers},
        target=target.identity,
    )
    run = _Extraction(target, area, generator, as_progress(progress), config)
    certificate: Certificate | None = None
    signs = False
    try:
        run.look(answers)
        passed = False
        for _ in range(config.restarts + 1):
            with suppress(_Saturated):
                passed = run.attempt()
            if passed:
                break
        if run.units is None:
            status = Status.NUMERICAL_FAILURE
            message = (
                "the probabilities underflow to 0 or 1 at typical inputs, where log-odds cannot "
                "be read; give a domain of smaller inputs, or ask the target for logits"
            )
        else:
            signs = run.finish_signs()
            status, message, certificate = _conclude(run, passed)
    except BudgetExhausted as error:
        status = Status.BUDGET_EXHAUSTED
        message = f"{error}; what was found until then is returned"
    return _result(run, status, message, provenance, certificate, signs)


def _conclude(run: _Extraction, passed: bool) -> tuple[Status, str, Certificate | None]:
    assert run.units is not None
    assert run.noise is not None
    if not passed and not run.ill_conditioned():
        return (
            Status.PARTIAL,
            f"random checks still fail after {run.config.restarts} restarts with "
            f"{run.config.repairs} more lines each; the target may have more than one hidden "
            "layer, or answers that are not piecewise affine",
            None,
        )
    if run.ill_conditioned():
        error, scale = float(np.median(run.errors(run.draw(256)))), run.spread
        return (
            Status.ILL_CONDITIONED,
            f"the answers' noise leaves a predicted error of {error / scale:.1g} of their "
            "spread; ask for more digits, or repeat and average",
            None,
        )
    with run.stage("certificate"):
        certificate, verdict = certify_units(
            run.oracle,
            run.units,
            run.covariance,
            run.noise,
            run.domain,
            rng=run.rng,
            deepest=run.deepest if run.log_odds else math.inf,
            config=run.config.certify,
        )
    if verdict:
        return Status.ASSUMPTION_VIOLATED, verdict, certificate
    useful = run.config.useful if run.coarse else run.config.useful_exact
    if certificate.max_deviation > useful * run.spread > 0:
        return (
            Status.ILL_CONDITIONED,
            "every held-out point agrees within its predicted error, but that error is large: "
            f"{certificate}; ask for more digits, or repeat and average",
            certificate,
        )
    return Status.RECOVERED, f"{run.units.count} hidden units; {certificate}", certificate


def _result(
    run: _Extraction,
    status: Status,
    message: str,
    provenance: Provenance,
    certificate: Certificate | None,
    signs: bool,
) -> TwoLayerResult:
    units = run.units
    noise = error = 0.0
    if units is not None and run.noise is not None:
        points = run.domain.draw(64, np.random.default_rng(0))
        noise = float(run.noise.at(points).max(axis=1).mean())
        error = float(np.sqrt(np.mean(predicted_error(units, run.covariance, points) ** 2)))
    return TwoLayerResult(
        status=status,
        message=message,
        queries=run.oracle.queries,
        provenance=provenance,
        network=None if units is None else _network(run, units, signs),
        certificate=certificate,
        stages=tuple(run.stages),
        width=0 if units is None else units.count,
        signs_determined=signs,
        noise=noise,
        predicted_error=error,
        answers="log-odds" if run.log_odds else "values",
    )


def _network(run: _Extraction, units: Units, signs: bool) -> ReLUNetwork:
    """Return the units as a network; log-odds get their reference back, as a zero logit."""
    network = units.network(skip=not signs)
    if not run.log_odds or run.oracle.output_dim == run.inner_outputs:
        return network
    at = run.reference
    return ReLUNetwork(
        [network.weights[0], np.insert(network.weights[1], at, 0.0, axis=0)],
        [network.biases[0], np.insert(network.biases[1], at, 0.0)],
        None if network.skip is None else np.insert(network.skip, at, 0.0, axis=0),
    )
