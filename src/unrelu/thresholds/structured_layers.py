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
Algorithm 3                  :func:`recover_binary_layer`, ``unrelu.thresholds.graph``
Theorem 9                    the same graph on log f
Theorem 10                   :func:`recover_even_layer`
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
import math
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.optimize

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.hermite import hermite
from unrelu.core.moments import (
    CompensatedSums,
    HermiteMoments,
    evaluate_series,
    mean_moments,
    raw_sums,
    series_coefficients,
    to_numpy,
)
from unrelu.errors import InvalidInput
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, QueryStats, RecoveryResult, StageReport, Status
from unrelu.samples import SampleSource, as_source
from unrelu.thresholds.graph import cliques, normalised_correlations, otsu_cut
from unrelu.thresholds.landscape import apply_tensor, minimise_joint, whiten_tensor

__all__ = [
    "BinaryLayerResult",
    "EvenLayerResult",
    "StructuredConfig",
    "recover_binary_layer",
    "recover_even_layer",
]


@dataclasses.dataclass(frozen=True)
class StructuredConfig:
    """Constants; ratios unless said otherwise.

    Attributes
    ----------
    active
        An input belongs to some unit where its diagonal entry exceeds its standard
        error by this factor: one in 300,000 does by chance.
    doubtful
        Above this factor and below ``active`` the graph does not say.
    gap
        The least gap between edges and non-edges, over the sampling error of an
        entry.
    restarts
        Random orthonormal starts for even units.
    residual
        Largest energy of the entries that should vanish, over that of their
        sampling error.
    agreement
        Largest standard error of a direction, in radians, that counts as
        recovered.
    """

    active: float = 4.5
    doubtful: float = 3.3
    gap: float = 2.0
    restarts: int = 8
    residual: float = 2.0
    agreement: float = 0.15


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


Label = Callable[[FloatArray, FloatArray], FloatArray]


def _half_moments(
    source: SampleSource, order: int, label: Label, watch: Progress, stage: str
) -> tuple[HermiteMoments, HermiteMoments, int, float]:
    """Hermite moments of ``label(x, y)`` from the even and the odd rows.

    The last number is the standard error of an entry of T2 if labels and inputs were
    unrelated: halves of repeated rows, or of a handful, may agree by chance.
    """
    halves = (CompensatedSums(), CompensatedSums())
    seen, square = 0, 0.0
    for x_raw, y_raw in source.batches():
        x, y = to_numpy(x_raw), to_numpy(y_raw)
        values = label(x, y)
        for half, start in zip(halves, (0, 1), strict=True):
            part = slice(start, None, 2)
            half.add(raw_sums(np.ascontiguousarray(x[part]), values[part], order), len(x[part]))
        seen += len(x)
        square += float(values @ values)
        watch.update(stage, seen, source.count)
    if halves[1].count == 0:
        raise InvalidInput("too few samples: at least two are needed")
    return mean_moments(halves[0]), mean_moments(halves[1]), seen, float(np.sqrt(square)) / seen


def _mean(first: HermiteMoments, second: HermiteMoments) -> HermiteMoments:
    return (first + second).scaled(0.5)


def _residual_label(transform: Label, moments: HermiteMoments) -> Label:
    """Labels minus the polynomial that ``moments`` describe."""
    series = series_coefficients(moments)

    def label(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(transform(x, y) - evaluate_series(x, series))

    return label


def _odd_inputs(source: SampleSource) -> str:
    """Say how inputs differ from standard Gaussian ones; empty where they hardly do.

    Only what is both significant (8 standard errors) and large (0.3) counts.
    """
    n, count = source.input_dim, 0
    total, square = np.zeros(n), np.zeros((n, n))
    for x_raw, _ in source.batches():
        x = to_numpy(x_raw)
        total += x.sum(axis=0)
        square += x.T @ x
        count += len(x)
    if count == 0:
        raise InvalidInput("there are no samples")
    slack = 0.3 + 8.0 / np.sqrt(count)
    mean = total / count
    off = np.abs(square / count - np.eye(n))
    worst = int(np.argmax(np.abs(mean)))
    if abs(mean[worst]) > slack:
        return f"input {worst + 1} has the mean {mean[worst]:.2g}"
    i, j = np.unravel_index(int(np.argmax(off)), off.shape)
    if off[i, j] > 1.5 * slack:
        return f"inputs {i + 1} and {j + 1} have the mean product {square[i, j] / count:.2g}"
    return ""


def _not_gaussian(what: str) -> str:
    return f"the inputs are not standard Gaussian: {what}. Shift and scale them first."


def _restartable(source: SampleSource) -> None:
    if not source.restartable:
        raise InvalidInput(
            "the samples are read twice: pass arrays, a path, or a function that opens the stream"
        )


def recover_binary_layer(
    source: Any,
    y: Any = None,
    *,
    transform: Literal["auto", "none", "log"] = "auto",
    rng: RandomState = None,
    config: StructuredConfig | None = None,
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
    cfg = StructuredConfig() if config is None else config
    watch = as_progress(progress)
    samples = as_source(source, y)
    _restartable(samples)
    n = samples.input_dim
    if n < 2:
        raise InvalidInput("a graph needs two inputs at least")
    begin = time.perf_counter()
    if transform == "auto":
        positive = all((to_numpy(labels) > 0).all() for _, labels in samples.batches())
        transform = "log" if positive else "none"

    def plain(x: FloatArray, labels: FloatArray) -> FloatArray:
        if transform == "none":
            return labels
        if not (labels > 0).all():
            raise InvalidInput("transform='log' needs a function that is positive")
        return np.asarray(np.log(labels))

    first, second, _, _ = _half_moments(samples, 2, plain, watch, "linear part")
    low = _mean(first, second)
    linear = HermiteMoments(low.t0, low.t1, np.zeros((n, n)))
    first, second, seen, least = _half_moments(
        samples, 2, _residual_label(plain, linear), watch, "correlations"
    )
    alpha = _mean(first, second).t2
    error = 0.5 * np.abs(first.t2 - second.t2)
    off = ~np.eye(n, dtype=bool)
    spread = max(float(np.sqrt(np.mean(error[off] ** 2))), least, 1e-300)
    # E[(x_i^2 - 1)^2] = 2: a diagonal entry has twice the variance.
    diagonal = np.diag(alpha)
    standard = diagonal / (np.sqrt(2.0) * spread)
    active = standard > cfg.active
    joined = (alpha[:, active] > (cfg.active + 0.5) * spread).any(axis=1)
    doubtful = int(np.count_nonzero(~active & ((standard > cfg.doubtful) | joined)))
    supports = np.empty((0, n))
    correlations = np.full((n, n), np.nan)
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
    status, message = _judge_graph(len(supports), missing, doubtful, gap, spread / scale, cfg)
    if odd_inputs := _odd_inputs(samples):
        status, message = Status.ASSUMPTION_VIOLATED, _not_gaussian(odd_inputs)
    report = StageReport(
        "correlation graph",
        message=f"transform: {transform}",
        seconds=time.perf_counter() - begin,
        details={
            "inputs in units": int(active.sum()),
            "cut": cut,
            "gap": gap,
            "sampling error of an entry": spread / scale,
            "edges missing in cliques": missing,
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
        supports=supports,
        correlations=correlations,
        cut=cut,
    )


def _judge_graph(
    count: int, missing: int, doubtful: int, gap: float, error: float, cfg: StructuredConfig
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
    if gap < cfg.gap * error:
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
    config: StructuredConfig | None = None,
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
    cfg = StructuredConfig() if config is None else config
    rng_ = as_generator(rng)
    watch = as_progress(progress)
    samples = as_source(source, y)
    _restartable(samples)
    n = samples.input_dim
    if units is not None and not 1 <= units <= n:
        raise InvalidInput(f"units must be 1 to {n}, got {units}")
    begin = time.perf_counter()
    # Any constant is orthogonal to the moments; one near the mean costs least variance.
    head = next(samples.batches(), None)
    if head is None:
        raise InvalidInput("there are no samples")
    centre = float(to_numpy(head[1]).mean())

    def plain(x: FloatArray, labels: FloatArray) -> FloatArray:
        return labels - centre

    first, second, _, least = _half_moments(samples, 2, plain, watch, "quadratic part")
    low = _mean(first, second)
    quadratic = first.t2, second.t2
    values, vectors = np.linalg.eigh(low.t2)
    noise = max(float(np.linalg.norm(0.5 * (first.t2 - second.t2), 2)), least)
    order = np.argsort(-np.abs(values))
    rank = units or int(np.count_nonzero(np.abs(values) > 2.0 * noise))
    provenance = Provenance(
        "goel-panigrahy/even", rng if isinstance(rng, int) else None, {"units": units}
    )
    if rank == 0:
        return EvenLayerResult(
            status=Status.ASSUMPTION_VIOLATED,
            message="the second moments show no direction: f has no even unit of weight.",
            queries=QueryStats(samples=samples.count or 0),
            provenance=provenance,
            directions=np.empty((0, n)),
        )
    basis = vectors[:, order[:rank]]
    first, second, seen, _ = _half_moments(
        samples, 4, _residual_label(plain, low), watch, "fourth moments"
    )
    whole = [half.dense(4) for half in (first, second)]
    tensors = [whiten_tensor(half, basis) for half in whole]
    tensor = 0.5 * (tensors[0] + tensors[1])
    found = [_best_rows(sign * tensor, rank, rng_, cfg) for sign in (-1.0, 1.0)]
    chosen, doubt = _chosen_sign(samples, plain, whole, [rows @ basis.T for rows in found], cfg)
    rows, sign = found[chosen], (-1.0, 1.0)[chosen]
    errors = _angles_between(rows, [_polish(sign * half, rows) for half in tensors])
    directions = rows @ basis.T
    errors = np.hypot(errors, _angles_to_spans(directions, quadratic))
    uneven = _odd_significance(samples, plain)
    odd = _odd_energy(0.5 * (whole[0] + whole[1]), directions)
    floor = max(_odd_energy(0.5 * (whole[0] - whole[1]), directions), 1e-300)
    margin = _condition_margin(sign * tensor, rows)
    status = Status.RECOVERED
    message = f"{rank} directions to a standard error of at most {errors.max():.1e} rad."
    if odd_inputs := _odd_inputs(samples):
        status, message = Status.ASSUMPTION_VIOLATED, _not_gaussian(odd_inputs)
    elif margin <= 0:
        status = Status.ASSUMPTION_VIOLATED
        message = (
            "a direction found is no strict extremum of the fourth moment: the products of units "
            "outweigh the units (Theorem 10's condition)."
        )
    elif uneven > cfg.active:
        status = Status.ASSUMPTION_VIOLATED
        message = (
            f"E[f x] is {uneven:.0f} standard errors away from 0 along an input: f is not even."
        )
    elif errors.max() > cfg.agreement:
        status = Status.PARTIAL
        message = (
            f"two halves of the samples disagree on a direction by {errors.max():.2f} rad: give "
            "more samples, or f is quadratic and has no directions of its own."
        )
    elif doubt < cfg.active:
        status = Status.PARTIAL
        message = (
            "the fourth moments fit two sets of directions alike, and neither explains the labels "
            "better: they are not determined; give more samples."
        )
    elif odd > cfg.residual * floor:
        status = Status.PARTIAL
        message = (
            f"the fourth moments fit {rank} orthonormal even units only to {odd / floor:.1f} "
            "times their sampling error: the units are not orthonormal, or not even."
        )
    report = StageReport(
        "fourth moments",
        seconds=time.perf_counter() - begin,
        details={"sign": sign, "odd energy": odd, "sampling energy": floor, "margin": margin},
    )
    return EvenLayerResult(
        status=status,
        message=message,
        queries=QueryStats(samples=seen),
        provenance=provenance,
        stages=(report,),
        directions=directions,
        angle_errors=errors,
    )


def _angles_to_spans(directions: FloatArray, halves: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Root mean square angle of each direction to the span that each half's T2 shows."""
    squares = np.zeros(len(directions))
    for second in halves:
        values, vectors = np.linalg.eigh(second)
        span = vectors[:, np.argsort(-np.abs(values))[: len(directions)]]
        inside = np.linalg.norm(directions @ span, axis=1)
        squares += np.arccos(np.clip(inside, 0.0, 1.0)) ** 2
    return np.asarray(np.sqrt(squares / len(halves)))


def _odd_significance(source: SampleSource, label: Label) -> float:
    """Largest of ``E[f x_j]`` over its standard error; noise where f is even."""
    count, total, square = 0, np.zeros(source.input_dim), np.zeros(source.input_dim)
    for x_raw, y_raw in source.batches():
        x = to_numpy(x_raw)
        product = label(x, to_numpy(y_raw))[:, None] * x
        total += product.sum(axis=0)
        square += (product**2).sum(axis=0)
        count += len(x)
    spread = np.sqrt(np.maximum(square - total**2 / count, 0.0))
    return float(np.max(np.abs(total) / np.where(spread > 0.0, spread, np.inf)))


def _polish(tensor: FloatArray, start: FloatArray) -> FloatArray:
    scale = float(np.abs(tensor).max()) + 1e-300
    rows = minimise_joint(tensor / scale, start, penalty=20.0)
    # The nearest orthonormal rows: the penalty leaves them slightly off.
    left, _, right = np.linalg.svd(rows)
    return np.asarray(left @ right)


def _best_rows(
    tensor: FloatArray, rank: int, rng: np.random.Generator, cfg: StructuredConfig
) -> FloatArray:
    """Orthonormal rows at peaks of the tensor, with the least odd energy."""
    best, best_energy = np.eye(rank), np.inf
    for _ in range(cfg.restarts):
        start, _ = np.linalg.qr(rng.standard_normal((rank, rank)))
        rows = _polish(tensor, start)
        energy = _odd_energy(tensor, rows)
        if energy < best_energy:
            best, best_energy = rows, energy
    return best


def _chosen_sign(
    source: SampleSource,
    label: Label,
    halves: list[FloatArray],
    candidates: list[FloatArray],
    cfg: StructuredConfig,
) -> tuple[int, float]:
    """Choose between the peaks and the valleys of the fourth moments.

    Two units have both at orthonormal directions, 45 degrees apart, that explain the fourth
    moments alike. Which of them are the units, higher even moments of the labels tell.

    Returns
    -------
    index, significance
        Of the choice, in standard errors; infinite where the fourth moments tell.
    """
    mean, noise = 0.5 * (halves[0] + halves[1]), 0.5 * (halves[0] - halves[1])
    energies = [_odd_energy(mean, rows) for rows in candidates]
    floors = [max(_odd_energy(noise, rows), 1e-300) for rows in candidates]
    if any(e > cfg.residual * f for e, f in zip(energies, floors, strict=True)):
        return int(np.argmin(energies)), np.inf
    if len(candidates[0]) == 1:
        return int(np.argmin(energies)), np.inf
    residuals = _additive_residuals(source, label, candidates)
    gain = residuals[0] ** 2 - residuals[1] ** 2
    error = float(gain.std()) / np.sqrt(len(gain))
    significance = float(gain.mean()) / error if error > 0.0 else 0.0
    return int(significance > 0.0), abs(significance)


def _additive_residuals(
    source: SampleSource, label: Label, candidates: list[FloatArray]
) -> list[FloatArray]:
    """Return what sums of even polynomials along each set of directions leave of the labels."""
    features: list[list[FloatArray]] = [[] for _ in candidates]
    labels: list[FloatArray] = []
    for x_raw, y_raw in source.batches():
        x = to_numpy(x_raw)
        labels.append(label(x, to_numpy(y_raw)))
        for columns, rows in zip(features, candidates, strict=True):
            z = x @ rows.T
            powers = [hermite(k, z) / math.sqrt(math.factorial(k)) for k in (2, 4, 6, 8)]
            columns.append(np.concatenate([np.ones((len(x), 1)), *powers], axis=1))
    y = np.concatenate(labels)
    left = []
    for columns in features:
        a = np.concatenate(columns)
        left.append(y - a @ np.linalg.lstsq(a, y)[0])
    return left


def _odd_energy(tensor: FloatArray, rows: FloatArray) -> float:
    """Sum the squares of what orthonormal even units would leave at zero.

    In an orthonormal basis that begins with ``rows`` ``(k, n)`` these are the entries with
    an index outside the rows, or with one that occurs an odd number of times.
    """
    rotated = whiten_tensor(tensor, rows.T)
    total = float((tensor**2).sum())
    diagonal = np.einsum("iiii->i", rotated)
    pairs = np.einsum("iijj->ij", rotated)
    even = 3.0 * float((pairs**2).sum()) - 2.0 * float((diagonal**2).sum())
    return total - even


def _condition_margin(tensor: FloatArray, rows: FloatArray) -> float:
    """Least ``T_iiii + T_jjjj - 6 T_iijj`` over pairs: positive at a strict maximum."""
    if len(rows) == 1:
        return abs(apply_tensor(tensor, rows[0]))
    rotated = whiten_tensor(tensor, rows.T)
    diagonal = np.einsum("iiii->i", rotated)
    pairs = np.einsum("iijj->ij", rotated)
    margin = diagonal[:, None] + diagonal[None, :] - 6.0 * pairs
    return float(margin[np.triu_indices(len(rows), 1)].min())


def _angles_between(rows: FloatArray, others: list[FloatArray]) -> FloatArray:
    """Root mean square angle of each row to its match in each of ``others``."""
    squares = np.zeros(len(rows))
    for other in others:
        cosines = np.abs(rows @ other.T)
        i, j = scipy.optimize.linear_sum_assignment(-cosines)
        squares[i] += np.arccos(np.clip(cosines[i, j], -1.0, 1.0)) ** 2
    return np.asarray(np.sqrt(squares / len(others)))
