"""Find units without linear terms or monotonicity, by searching over directions.

Reference
---------
Goel & Panigrahy 2018, Section 3 (Theorem 7, Lemma 8, Corollary 1) and Appendix C.1.

Setting
-------
f(x) = P(u(w_1 . x - t), ..., u(w_k . x - t)), u the sign function or ReLU, any polynomial
P, low thresholds allowed; query access, t known. From samples alone, as the theorem states it:
``unrelu.thresholds.detect_samples``.

Guarantee
---------
RECOVERED: each direction is one where the detector does not fall as its epsilon falls,
and a polynomial of the recovered units, fitted on Gaussian inputs, predicts fresh ones.
The search costs a number of queries exponential in n, ``lines * (c / spacing)^(n - 1)``;
it is computed first, and nothing is asked where it exceeds ``bound``. While a unit is
seen to be missing it is repeated with more lines, within the bound.

Paper to code
-------------
=====================  ==============================================================
C2, Lemma 8; C3, C.1   ``unrelu.thresholds.detect_samples.slab_correlations`` from samples,
                       ``unrelu.thresholds.detect.detect`` by queries; tests
                       test_lemma_8_at_a_unit_and_away_from_all,
                       test_detector_stays_at_a_unit_and_falls_elsewhere
Theorem 7, Corollary 1 ``unrelu.thresholds.detect_samples.detect_in_samples`` as stated; in
                       practice, by queries, :func:`detect_directions`; tests
                       test_units_without_a_linear_term, test_products_alone_show_their_units
=====================  ==============================================================

Deviations
----------
- The correlations with delta(z . x - s +- eps) are taken at the same points along the two
  planes: their difference then has the variance of the break alone.
- The detector only has to come near a unit: from there a regression on the breaks seen
  along lines converges to it.
- The threshold is refined with the direction.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState
from unrelu._types import FloatArray
from unrelu.core.noise import RARE
from unrelu.core.run import Run
from unrelu.core.units import SAME_DIRECTION
from unrelu.errors import InvalidInput
from unrelu.lines.boundary import GROWTH
from unrelu.progress import Progress
from unrelu.result import Certificate, RecoveryResult, Status
from unrelu.samples import BATCH_ROWS
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.detect import Detection, detect, move_by_lines
from unrelu.thresholds.halfspaces import check_scalar

__all__ = ["DetectedLayerResult", "detect_directions"]


@dataclasses.dataclass(frozen=True, repr=False)
class DetectedLayerResult(RecoveryResult):
    """Units found by the detector.

    Attributes
    ----------
    directions, thresholds
        ``(k, n)`` and ``(k,)``.
    strengths
        The detector over phi(t), an estimate of E[dP/dX_i] at the unit, ``(k,)``.
    """

    directions: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    thresholds: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    strengths: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))


def directions_to_try(n: int, config: ThresholdConfig) -> int:
    """Return how many directions a search tries.

    Random directions meet each of N balls almost surely once there are N log N of them.
    """
    balls = (2.0 / config.spacing) ** (n - 1)
    return math.ceil(balls * max(1.0, math.log(balls)))


class DetectorRun:
    """A run of the search: units found so far survive the end of the budget."""

    def __init__(
        self, run: Run, config: ThresholdConfig, *, threshold: float, kink: bool, bound: int
    ) -> None:
        self.run, self.config, self.rng = run, config, run.rng
        self.threshold, self.kink, self.bound = threshold, kink, bound
        self.directions: list[FloatArray] = []
        self.thresholds: list[float] = []
        self.strengths: list[float] = []
        self.certificate: Certificate | None = None

    def values(self, x: FloatArray) -> FloatArray:
        """Ask f at points ``(m, n)``, ``(m,)``."""
        return self.run.target(x)[:, 0]

    def steps(self) -> DetectedLayerResult:
        """Search all directions, with more lines while a unit is seen to be missing."""
        run, cfg, n = self.run, self.config, self.run.target.input_dim
        count, lines = directions_to_try(n, cfg), cfg.lines
        per_line = count * (3 if self.kink else 2)
        if per_line * lines > self.bound:
            return self.result(
                Status.PARTIAL,
                f"nothing was asked: {count:,} directions in {n} dimensions cost "
                f"{per_line * lines:,} queries, above the bound of {self.bound:,}. The search is "
                "exponential in n: raise bound, or reduce n first with recover_span.",
            )
        spent, missed = 0, 1.0
        while missed > cfg.doubt and spent + per_line * lines <= self.bound:
            spent += per_line * lines
            with run.stage("search") as details:
                starts = self.candidates(count, lines)
                details |= {"directions per search": count, "candidates": len(starts)}
            with run.stage("refine"):
                for i, start in enumerate(starts):
                    note = f"{len(self.directions)} units"
                    run.progress.update("refine", i, len(starts), note)
                    self.refine(start, int(GROWTH * lines))
            lines = int(GROWTH * lines)
            if self.directions:
                with run.stage("check"):
                    missed = _misses(self).exceeding / cfg.certificate
        if self.directions:
            with run.stage("certificate"):
                self.certificate = _misses(self)
            missed = self.certificate.exceeding / cfg.certificate
        return self.result(*_verdict(len(self.directions), missed, cfg))

    def candidates(self, count: int, lines: int) -> FloatArray:
        """Try ``count`` random directions; return the locally strongest, best first."""
        cfg, n = self.config, self.run.target.input_dim
        tried = self.rng.standard_normal((count, n))
        tried /= np.linalg.norm(tried, axis=1, keepdims=True)
        strength = np.zeros(count)
        together = max(1, BATCH_ROWS // lines)
        for start in range(0, count, together):
            part = slice(start, start + together)
            found = self._detect(tried[part], self.threshold, cfg.epsilon, lines)
            strength[part] = [
                abs(one.strength) if abs(one.strength) > cfg.reach * one.error else 0.0
                for one in found
            ]
            self.run.progress.update("search", min(start + together, count), count)
        chosen: list[int] = []
        for i in np.argsort(-strength)[: np.count_nonzero(strength)]:
            if not (tried[chosen] @ tried[i] > np.cos(2.0 * cfg.spacing)).any():
                chosen.append(int(i))
        return tried[chosen]

    def _detect(
        self, directions: FloatArray, threshold: float, epsilon: float, lines: int
    ) -> list[Detection]:
        return detect(
            self.values, directions, threshold, epsilon, lines, kink=self.kink, rng=self.rng
        )

    def refine(self, start: FloatArray, lines: int) -> None:
        """Follow one candidate to a unit, and keep it if it is one."""
        cfg = self.config
        direction, threshold, epsilon = start, self.threshold, cfg.epsilon
        near = 2.0 * cfg.spacing  # beyond this it belongs to another candidate
        for _ in range(cfg.rounds):
            step = move_by_lines(
                self.values, direction, threshold, epsilon, lines, kink=self.kink, rng=self.rng
            )
            if step is None:
                return
            direction, threshold = step.direction, step.threshold
            if (
                float(direction @ start) < np.cos(2.0 * near)
                or abs(threshold - self.threshold) > near
                or self.is_known(direction, threshold)
            ):
                return
            if epsilon <= cfg.finest:
                break
            size = step.angle + abs(step.shift)
            epsilon = min(epsilon, max(cfg.reach * size, epsilon / cfg.reach))
        confirm = math.sqrt(cfg.finest)
        if epsilon > confirm:
            return
        at, twice = (
            self._detect(direction[None], threshold, e, cfg.certificate)[0]
            for e in (confirm, 2.0 * confirm)
        )
        # At a unit the detector stays, elsewhere it halves with epsilon.
        stays = abs(at.strength) - abs(twice.strength) / 2 > abs(twice.strength) - abs(at.strength)
        if abs(at.strength) < RARE * at.error or not stays:
            return
        self.directions.append(direction)
        self.thresholds.append(threshold)
        self.strengths.append(at.strength)

    def is_known(self, direction: FloatArray, threshold: float) -> bool:
        """Whether a unit with this hyperplane was found.

        Seen from behind, a sign unit at the threshold 0 is 1 minus itself: the same unit.
        """
        for known, cut in zip(self.directions, self.thresholds, strict=True):
            cosine = float(direction @ known)
            behind = not self.kink and abs(threshold + cut) < math.sqrt(self.config.finest)
            if cosine > SAME_DIRECTION or (behind and cosine < -SAME_DIRECTION):
                return True
        return False

    def result(self, status: Status, message: str) -> DetectedLayerResult:
        """Return what was found so far."""
        none = np.empty((0, self.run.target.input_dim))
        return DetectedLayerResult(
            status=status,
            message=message,
            queries=self.run.target.queries,
            provenance=self.run.provenance,
            certificate=self.certificate,
            stages=tuple(self.run.stages),
            directions=np.array(self.directions) if self.directions else none,
            thresholds=np.array(self.thresholds),
            strengths=np.array(self.strengths),
        )


def detect_directions(
    source: Any,
    *,
    activation: Literal["sign", "relu"],
    threshold: float,
    bound: int = 20_000_000,
    rng: RandomState = None,
    config: ThresholdConfig | None = None,
    progress: Progress | None = None,
) -> DetectedLayerResult:
    """Find the units of a network by a search over all directions.

    Parameters
    ----------
    source
        An oracle, or anything :func:`unrelu.connect` makes one of; one output.
    threshold
        t.
    bound
        Queries that the searches over directions may cost together. One grows as
        ``(2 / spacing)^(n - 1)``: from 0.15 million at n = 3, 1.9 at n = 4. The
        refinement of candidates comes on top, about as much again.
    """
    if activation not in ("sign", "relu"):
        raise InvalidInput(f"activation must be 'sign' or 'relu', got {activation!r}")
    if not np.isfinite(threshold):
        raise InvalidInput(f"threshold must be a finite number, got {threshold}")
    run = Run(
        source,
        algorithm="goel-panigrahy/detector",
        rng=rng,
        options={"activation": activation, "threshold": threshold, "bound": bound},
        progress=progress,
    )
    check_scalar(run.target)
    if run.target.input_dim < 2:
        raise InvalidInput("with one input there is no direction to search for")
    search = DetectorRun(
        run,
        ThresholdConfig() if config is None else config,
        threshold=threshold,
        kink=activation == "relu",
        bound=bound,
    )
    return run.ended(search.steps, search.result, lambda result: result)


def _misses(search: DetectorRun) -> Certificate:
    """Fit a polynomial of the units to Gaussian inputs; test it on as many others."""
    cfg, n = search.config, search.run.target.input_dim
    rows, cuts = np.array(search.directions), np.array(search.thresholds)
    k = len(rows)

    def features(x: FloatArray) -> FloatArray:
        heights = x @ rows.T - cuts
        units = np.maximum(heights, 0.0) if search.kink else (heights > 0).astype(np.float64)
        pick = itertools.combinations_with_replacement if search.kink else itertools.combinations
        columns = [np.ones(len(x))]
        for degree in range(1, cfg.degree + 1):
            columns += [units[:, list(c)].prod(axis=1) for c in pick(range(k), degree)]
        return np.column_stack(columns)

    x = search.rng.standard_normal((2 * cfg.certificate, n))
    y = search.values(x)
    fit, test = slice(0, cfg.certificate), slice(cfg.certificate, None)
    weights = np.linalg.lstsq(features(x[fit]), y[fit], rcond=None)[0]
    scale = float(y.std())
    return Certificate.from_deviations(
        features(x[test]) @ weights - y[test], scale=scale, tolerance=math.sqrt(cfg.doubt) * scale
    )


def _verdict(k: int, missed: float, cfg: ThresholdConfig) -> tuple[Status, str]:
    if k == 0:
        return (
            Status.ASSUMPTION_VIOLATED,
            "no direction breaks f at this threshold within the bound: check the threshold and "
            "the activation, or raise bound.",
        )
    if missed > cfg.doubt:
        return (
            Status.PARTIAL,
            f"{k} units found, but a polynomial of degree {cfg.degree} in them misses "
            f"{missed:.1%} of fresh inputs: a unit is missing (raise bound, or a smaller "
            "spacing), or P has a higher degree.",
        )
    return Status.RECOVERED, f"{k} units; a polynomial in them predicts fresh inputs."
