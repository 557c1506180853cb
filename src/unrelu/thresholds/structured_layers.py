"""Layers whose structure shows them: binary weights, even activations.

Reference
---------
Goel & Panigrahy 2018, Section 4 and Appendix D: Theorem 8 with Algorithm 3
(ConstructCorrelationGraph), Theorem 9, Theorem 10.

Setting
-------
x ~ N(0, I), f a polynomial of units that may lack linear terms.

- :func:`recover_binary_layer`: w_i in {0, 1}^n with disjoint supports, units
  exp(rho (w . x - t)) (Theorem 8) or exp(w . x) with positive coefficients
  (Theorem 9, ``transform="log"``).
- :func:`recover_even_layer`: orthonormal w_i, u(a) = u(-a), no threshold (Theorem 10).

Guarantee
---------
RECOVERED, binary: the graph is a disjoint union of cliques, and the gap between edges
and non-edges exceeds the sampling error measured on halves of the samples.
RECOVERED, even: in the recovered basis every entry of E[f He_4(x)] with an odd index
vanishes up to sampling error, and Theorem 10's condition holds there. Orthonormality is
assumed: two equal units at an angle have the fourth moments of their two bisectors under
a product, and no more is looked at.

Paper to code
-------------
===========================  ========================================================
Algorithm 3                  ``unrelu.thresholds.printed.construct_correlation_graph``; in
                             practice :func:`recover_binary_layer`; deviates: correlations are
                             normalised, the cut is Otsu's; tests test_theorem_8,
                             test_algorithm_3_cuts_at_rho_and_so_depends_on_the_scale_of_f
Theorem 8, D.1               ``unrelu.thresholds.printed.correlations_of``; in practice the
                             same function; test
                             test_correlations_have_the_closed_form_of_d_1
Theorem 9, D.2               ``unrelu.thresholds.printed.exponential_objective``; in practice
                             the same graph on log f; deviates: the objective has no maximum;
                             tests test_theorem_9,
                             test_the_objective_of_theorem_9_has_no_maximum
Theorem 10, D.3              :func:`recover_even_layer`; test test_theorem_10
===========================  ========================================================

Deviations
----------
- Theorem 8's supports are disjoint: its proof uses it, its statement leaves it out.
- Algorithm 3 joins i and j where E[f x_i x_j] is at least rho, a cut that no scale of f
  justifies. Here E[f (x_i x_j - delta_ij)] is divided by the roots of its diagonal
  entries, which makes it 1 within a support whatever the coefficients, and the cut is
  Otsu's.
- Theorem 9's objective g(z) - lambda |z|_1 - gamma |z|^2 grows without bound, since g is
  exponential. By Stein's identity E[log f (x_i x_j - delta_ij)] is the covariance of
  "i is in the term drawn" and "j is", the term drawn with probability proportional to its
  value: the same for all i, j of one support, smaller across. Theorem 8's graph serves.
- Theorem 10's condition divides by u_4, which is 0 for u(a) = a^2; its constant 6 is
  sqrt 6 with normalised Hermite polynomials. The condition checked is the proof's own,
  that each unit is a strict local extremum of E[f H4(z . x)] among orthonormal rows;
  products alone can satisfy it.
- What a polynomial of degree 2 (1 for log f) explains is subtracted from the labels
  first: it is orthogonal to the moment sought, and most of the variance.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import BoolArray, FloatArray
from unrelu.core.moments import HermiteMoments, to_numpy
from unrelu.core.noise import RARE
from unrelu.errors import InvalidInput
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, QueryStats, RecoveryResult, StageReport, Status
from unrelu.samples import as_source
from unrelu.thresholds.config import TINY, ThresholdConfig
from unrelu.thresholds.even import EvenUnits
from unrelu.thresholds.graph import cliques, normalised_correlations, otsu_cut
from unrelu.thresholds.half_moments import (
    Label,
    check_restartable,
    half_moments,
    mean_of,
    not_gaussian,
    odd_inputs,
    residual_label,
)

__all__ = ["BinaryLayerResult", "EvenLayerResult", "recover_binary_layer", "recover_even_layer"]


def _matrix() -> FloatArray:
    return np.empty((0, 0))


@dataclasses.dataclass(frozen=True, repr=False)
class BinaryLayerResult(RecoveryResult):
    """Binary weights with disjoint supports.

    Attributes
    ----------
    supports
        Rows of zeros and ones, ``(k, n)``.
    correlations
        The normalised correlations that the graph was cut from, ``(n, n)``; NaN
        for inputs that belong to no unit.
    cut
        Above it two inputs belong to one unit.
    """

    supports: FloatArray = dataclasses.field(default_factory=_matrix)
    correlations: FloatArray = dataclasses.field(default_factory=_matrix)
    cut: float = float("nan")


@dataclasses.dataclass(frozen=True, repr=False)
class EvenLayerResult(RecoveryResult):
    """Orthonormal directions of even units; each row's sign is arbitrary.

    Attributes
    ----------
    directions
        ``(k, n)``.
    angle_errors
        Standard error of each direction in radians, ``(k,)``.
    """

    directions: FloatArray = dataclasses.field(default_factory=_matrix)
    angle_errors: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))


def recover_binary_layer(
    source: Any,
    y: Any = None,
    *,
    transform: Literal["auto", "none", "log"] = "auto",
    rng: RandomState = None,
    config: ThresholdConfig | None = None,
    progress: Progress | None = None,
) -> BinaryLayerResult:
    """Recover binary weights with disjoint supports from a correlation graph.

    Parameters
    ----------
    source, y
        Samples, as for :func:`unrelu.samples.as_source`.
    transform
        "none": units exp(rho (w . x - t)), Theorem 8. "log": units exp(w . x)
        and positive coefficients, Theorem 9; f must be positive. "auto": "log"
        where every label is positive, since its moments have no heavy tails.
    """
    if transform not in ("auto", "none", "log"):
        raise InvalidInput(f"transform must be 'auto', 'none' or 'log', got {transform!r}")
    cfg = ThresholdConfig() if config is None else config
    watch = as_progress(progress)
    samples = as_source(source, y)
    check_restartable(samples)
    n = samples.input_dim
    if n < 2:
        raise InvalidInput("a graph needs two inputs at least")
    begin = time.perf_counter()
    if transform == "auto":
        positive = all((to_numpy(labels) > 0).all() for _, labels in samples.batches())
        transform = "log" if positive else "none"
    plain = _transformed(transform)
    first, second, _, _ = half_moments(samples, 2, plain, watch, "linear part")
    low = mean_of(first, second)
    linear = HermiteMoments(low.t0, low.t1, np.zeros((n, n)))
    first, second, seen, least = half_moments(
        samples, 2, residual_label(plain, linear), watch, "correlations"
    )
    graph = _Graph.of(mean_of(first, second).t2, 0.5 * np.abs(first.t2 - second.t2), least, cfg)
    status, message = graph.verdict(cfg)
    if odd := odd_inputs(samples, cfg.overlap):
        status, message = Status.ASSUMPTION_VIOLATED, not_gaussian(odd)
    report = StageReport(
        "correlation graph",
        message=f"transform: {transform}",
        seconds=time.perf_counter() - begin,
        details={
            "inputs in units": int(graph.active.sum()),
            "cut": graph.cut,
            "gap": graph.gap,
            "sampling error of an entry": graph.error,
            "edges missing in cliques": graph.missing,
        },
    )
    return BinaryLayerResult(
        status=status,
        message=message,
        queries=QueryStats(samples=seen),
        provenance=Provenance(
            "goel-panigrahy/binary",
            rng if isinstance(rng, int) else None,
            {"transform": transform},
        ),
        stages=(report,),
        supports=graph.supports,
        correlations=graph.correlations,
        cut=graph.cut,
    )


def _transformed(transform: str) -> Label:
    """Return what the graph is built on: the labels or their logarithms."""

    def plain(x: FloatArray, labels: FloatArray) -> FloatArray:
        if transform == "none":
            return labels
        if not (labels > 0).all():
            raise InvalidInput("transform='log' needs a function that is positive")
        return np.asarray(np.log(labels))

    return plain


@dataclasses.dataclass(frozen=True)
class _Graph:
    """The correlation graph, cut into cliques.

    Attributes
    ----------
    active
        Inputs that belong to some unit, ``(n,)``.
    doubtful
        How many others may.
    supports, correlations, cut
        As in the result.
    gap, error
        Between edges and others, and the sampling error of an entry.
    missing
        Edges that cliques lack.
    """

    active: BoolArray
    doubtful: int
    supports: FloatArray
    correlations: FloatArray
    cut: float
    gap: float
    error: float
    missing: int

    @classmethod
    def of(
        cls, alpha: FloatArray, error: FloatArray, least: float, cfg: ThresholdConfig
    ) -> _Graph:
        """Cut the moments ``alpha`` ``(n, n)``, known to ``error``, where Otsu's method does."""
        n = len(alpha)
        off = ~np.eye(n, dtype=bool)
        spread = max(float(np.sqrt(np.mean(error[off] ** 2))), least, TINY)
        # E[(x_i^2 - 1)^2] = 2: a diagonal entry has twice the variance.
        diagonal = np.diag(alpha)
        standard = diagonal / (np.sqrt(2.0) * spread)
        active = standard > RARE
        joined = (alpha[:, active] > RARE * spread).any(axis=1)
        # Half of the evidence is neither: the graph does not say.
        doubtful = int(np.count_nonzero(~active & ((standard > 0.5 * RARE) | joined)))
        supports, correlations = np.empty((0, n)), np.full((n, n), np.nan)
        cut = gap = float("nan")
        missing = 0
        if active.sum() >= 2:
            normal = normalised_correlations(alpha, active)
            correlations[np.ix_(active, active)] = normal
            pairs = normal[np.triu_indices(len(normal), 1)]
            # 0 and 1 stand for the two kinds of pairs where only one is present.
            cut, gap = otsu_cut(np.concatenate([pairs, [0.0, 1.0]]))
            groups, missing = cliques((normal > cut) & ~np.eye(len(normal), dtype=bool))
            inputs = np.flatnonzero(active)
            supports = np.zeros((len(groups), n))
            for row, group in enumerate(groups):
                supports[row, inputs[group]] = 1.0
        scale = float(diagonal[active].min()) if active.any() else 1.0
        return cls(active, doubtful, supports, correlations, cut, gap, spread / scale, missing)

    def verdict(self, cfg: ThresholdConfig) -> tuple[Status, str]:
        """Say whether the graph is a union of cliques beyond its sampling error."""
        return _judge_graph(
            len(self.supports), self.missing, self.doubtful, self.gap, self.error, cfg
        )


def _judge_graph(
    count: int, missing: int, doubtful: int, gap: float, error: float, cfg: ThresholdConfig
) -> tuple[Status, str]:
    if count == 0:
        return (
            Status.ASSUMPTION_VIOLATED,
            "no input has a second moment above the sampling error: give more samples, or "
            "transform='log' where f is positive.",
        )
    if missing:
        return (
            Status.PARTIAL,
            f"the correlation graph is not a union of cliques ({missing} edges are missing): "
            "give more samples, or the supports overlap.",
        )
    if doubtful:
        return (
            Status.PARTIAL,
            f"{count} supports, but {doubtful} more inputs may belong to a unit: their moments "
            "are within the sampling error. Give more samples, or transform='log' where f is "
            "positive.",
        )
    if gap < cfg.signal * error:
        return (
            Status.PARTIAL,
            f"{count} supports, but edges and non-edges are only {gap:.2g} apart, with a "
            f"sampling error of {error:.2g} per entry: give more samples.",
        )
    return Status.RECOVERED, f"{count} disjoint supports; edges and non-edges {gap:.2g} apart."


def recover_even_layer(
    source: Any,
    y: Any = None,
    *,
    units: int | None = None,
    rng: RandomState = None,
    config: ThresholdConfig | None = None,
    progress: Progress | None = None,
) -> EvenLayerResult:
    """Recover orthonormal directions of even units, without thresholds.

    Parameters
    ----------
    source, y
        Samples, as for :func:`unrelu.samples.as_source`.
    units
        k, where known; otherwise counted in the second moments.
    """
    cfg = ThresholdConfig() if config is None else config
    samples = as_source(source, y)
    check_restartable(samples)
    n = samples.input_dim
    if units is not None and not 1 <= units <= n:
        raise InvalidInput(f"units must be 1 to {n}, got {units}")
    begin = time.perf_counter()
    # Any constant is orthogonal to the moments; one near the mean costs least variance.
    head = next(samples.batches(), None)
    if head is None:
        raise InvalidInput("there are no samples")
    centre = float(to_numpy(head[1]).mean())
    provenance = Provenance(
        "goel-panigrahy/even", rng if isinstance(rng, int) else None, {"units": units}
    )
    found = EvenUnits.of(
        samples, lambda x, labels: labels - centre, units, as_generator(rng), cfg,
        as_progress(progress),
    )  # fmt: skip
    if found is None:
        return EvenLayerResult(
            status=Status.ASSUMPTION_VIOLATED,
            message="the second moments show no direction: f has no even unit of weight.",
            queries=QueryStats(samples=samples.count or 0),
            provenance=provenance,
            directions=np.empty((0, n)),
        )
    status, message = found.verdict(cfg)
    if odd := odd_inputs(samples, cfg.overlap):
        status, message = Status.ASSUMPTION_VIOLATED, not_gaussian(odd)
    report = StageReport(
        "fourth moments",
        seconds=time.perf_counter() - begin,
        details={
            "sign": found.sign, "odd energy": found.odd, "sampling energy": found.floor,
            "margin": found.margin,
        },
    )  # fmt: skip
    return EvenLayerResult(
        status=status,
        message=message,
        queries=QueryStats(samples=found.seen),
        provenance=provenance,
        stages=(report,),
        directions=found.directions,
        angle_errors=found.errors,
    )
