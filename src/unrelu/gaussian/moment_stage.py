"""The moment estimate: from samples to units, before any polish."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.decompose import decompose, signal_rank
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.hermite import dense_from_products, hermite_products
from unrelu.core.jennrich import jennrich, joint_diagonalise
from unrelu.core.moment_fit import fit_moments, units_from_scalars
from unrelu.core.moments import (
    CompensatedSums,
    HermiteMoments,
    evaluate_series,
    hermite_moments,
    series_coefficients,
    to_numpy,
)
from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import Thresholds, Units, fix_signs, robust_algorithm
from unrelu.gaussian.stream import (
    HoldOut,
    MomentPass,
    Plan,
    Whitening,
    estimate_moments,
    map_batches,
)
from unrelu.gaussian.survey import Survey
from unrelu.samples import SampleSource

__all__ = ["MomentEstimate", "diagonalise", "moment_estimate", "project_moments"]

# Above this many inputs the moments are taken in the subspace of T2's
# significant eigenvectors, with a margin: the work falls with the fourth power.
_REDUCE_ABOVE = 24
_MARGIN = 6
# Up to here T4 is kept on symmetric pairs: 33 MiB at 64 inputs.
_DENSE_LIMIT = 64
# The dense tensor of order 6 has d^6 entries: 24 MiB at d = 12.
_ORDER_TWO_LIMIT = 12


@dataclasses.dataclass(frozen=True)
class MomentEstimate:
    """Units read off the moments.

    Attributes
    ----------
    w, a, b
        ``(k, d)``, ``(k,)``, ``(k,)``; w and b up to a common sign.
    samples
        Samples read for the moments.
    message, details
        For the report.
    """

    w: FloatArray
    a: FloatArray
    b: FloatArray
    samples: int
    message: str
    details: Mapping[str, Any]


def project_moments(moments: HermiteMoments, q: FloatArray) -> HermiteMoments:
    """Orders 0 to 2 in the coordinates of orthonormal columns ``q``, ``(d, r)``."""
    return HermiteMoments(moments.t0, q.T @ moments.t1, q.T @ moments.t2 @ q)


def _subspace(
    low: HermiteMoments, second: FloatArray, spread: float, count: int, width: int | None
) -> FloatArray:
    """Eigenvectors of T2 that rise above its noise, and a few more; ``(d, r)``.

    ``second`` is the mean of ``z z^T`` over the samples, ``(d, d)``: what it lacks to I,
    times the labels' mean, is noise of T2 that is known.
    """
    d = low.input_dim
    if d <= _REDUCE_ABOVE:
        return np.eye(d)
    values, vectors = np.linalg.eigh(low.t2 - low.t0 * (second - np.eye(d)))
    # Edge of the noise's spectrum: entries have standard deviation spread/sqrt N.
    edge = 2.0 * spread * math.sqrt(d / count)
    signal = int(np.count_nonzero(np.abs(values) > 0.7 * edge))
    wanted = max(signal, min(width or 0, d)) + _MARGIN
    if wanted >= 0.8 * d:
        return np.eye(d)
    order = np.argsort(-np.abs(values))[: max(wanted, 12)]
    return np.asarray(vectors[:, order])


def moment_estimate(
    source: SampleSource,
    plan: Plan,
    survey: Survey,
    whitening: Whitening,
    held: HoldOut,
    rng: np.random.Generator,
    options: PolishOptions,
    *,
    width: int | None,
    order: int | None,
    method: str,
    max_width: int | None,
    progress: Callable[[int], None],
) -> MomentEstimate:
    """Estimate the moments in one pass and decompose them."""
    low = hermite_moments(whitening.raw(survey.raw, survey.train_count))
    centre = survey.input_mean - whitening.mean
    square = survey.input_covariance + np.outer(centre, centre)
    second = whitening.inverse @ square @ whitening.inverse.T
    q = _subspace(low, second, survey.label_scale, survey.train_count, width)
    inner = project_moments(low, q)
    series = series_coefficients(inner)
    basis = whitening.inverse.T @ q
    offset = whitening.mean @ basis
    probes = None
    if q.shape[1] > _DENSE_LIMIT and order is None:
        # T4 itself would be too large: as many random contractions as inputs,
        # twice over, span the same matrices w w^T.
        probes = rng.standard_normal((2 * q.shape[1], q.shape[1])) / math.sqrt(q.shape[1])
    taken = estimate_moments(
        source, plan, basis=basis, offset=offset, series=series, low=inner,
        held=held, order=4 if probes is None else 3, progress=progress, probes=probes,
    )  # fmt: skip
    rank, vectors, values, threshold = signal_rank(taken.flat, taken.flat_noise, options.signal)
    # Four samples per parameter at least, or no unit.
    limit = min(vectors.shape[1] - 1, taken.count // (4 * (low.input_dim + 1)))
    limit = limit if max_width is None else min(limit, max_width)
    count = min(rank if width is None else width, max(limit, 0))
    details: dict[str, Any] = {
        "rank": rank,
        "threshold": threshold,
        "last_signal": float(values[rank - 1]) if rank else 0.0,
        "first_noise": float(values[rank]) if rank < len(values) else 0.0,
        "residual_variance": taken.residual_variance,
        "dimension": q.shape[1],
    }
    if order is not None:
        units = _paper_route(
            source, plan, taken, basis, offset, series, held, rng, order=order, width=width
        )
        details["order"] = order
    elif count == 0:
        units = Units(np.empty((0, q.shape[1])), np.empty(0), np.empty(0))
    elif method == "power":
        units = Units(*decompose(taken.moments, vectors, count, rng, options))
    else:
        w = diagonalise(taken.moments, count, rng, joint=method == "joint")
        fitted = fit_moments(taken.moments, w, tied=False, iterations=40)
        fitted = fit_moments(taken.moments, fitted.w, tied=True, iterations=40)
        units = Units(fitted.w, *units_from_scalars(fitted.alpha))
    keep = np.isfinite(units.a) & np.isfinite(units.b) & np.isfinite(units.w).all(axis=1)
    route = f"the paper's route of order {order}" if order is not None else f"method {method}"
    return MomentEstimate(
        units.w[keep] @ q.T,
        units.a[keep],
        units.b[keep],
        taken.count,
        f"{rank} singular values above the noise; {np.count_nonzero(keep)} units by {route}",
        details,
    )


def diagonalise(
    moments: HermiteMoments, count: int, rng: np.random.Generator, *, joint: bool
) -> FloatArray:
    """Directions of at most d units by contractions of T2, T3 and T4.

    ``joint`` diagonalises T2, every slice of T3 and many contractions of T4 at
    once; otherwise two random combinations of them are (Jennrich).
    """
    d = moments.input_dim
    stack = [moments.t2[None] / math.sqrt(2.0)]
    if moments.t3 is not None:
        stack.append(np.moveaxis(moments.dense(3), -1, 0) / math.sqrt(6.0))
    if moments.t4 is not None:
        v = rng.standard_normal((2 * d, d)) / math.sqrt(d)
        slices = np.einsum("ijkl,qk,ql->qij", moments.dense(4), v, v, optimize=True)
        stack.append(slices / math.sqrt(24.0))
    matrices = np.concatenate(stack)
    u, _, _ = np.linalg.svd(np.concatenate(list(matrices), axis=1), full_matrices=False)
    frame = u[:, : min(count, d)]
    start = jennrich(np.moveaxis(matrices, 0, -1), frame, rng, pairs=50 if joint else 1)
    if not joint:
        return start
    core = np.einsum("kij,ia,jb->kab", matrices, frame, frame, optimize=True)
    return np.asarray(joint_diagonalise(core, start @ frame) @ frame.T)


# ----------------------------------------------------- Algorithms 4 and 6


@dataclasses.dataclass(frozen=True)
class _HighKernel:
    """Distinct entries of T5 and T6 of the residual, one batch."""

    basis: FloatArray
    offset: FloatArray
    series: tuple[FloatArray, ...]
    held: HoldOut

    def __call__(self, x: Any, y: Any, start: int) -> Any:
        train = ~self.held.mask(start, len(x))
        z = to_numpy(x)[train] @ self.basis - self.offset
        residual = to_numpy(y)[train] - evaluate_series(z, self.series)
        sums = [np.zeros(0), np.zeros(0)]
        for first in range(0, len(z), 1024):
            piece = slice(first, first + 1024)
            for i, k in enumerate((5, 6)):
                part = residual[piece] @ hermite_products(z[piece], k)
                sums[i] = part if first == 0 else sums[i] + part
        return tuple(sums), len(z)


def _paper_route(
    source: SampleSource,
    plan: Plan,
    taken: MomentPass,
    basis: FloatArray,
    offset: FloatArray,
    series: tuple[FloatArray, ...],
    held: HoldOut,
    rng: np.random.Generator,
    *,
    order: int,
    width: int | None,
) -> Units:
    """Algorithm 6 (order 1) or Algorithm 4 (order 2) on estimated tensors."""
    tensors = {k: taken.moments.dense(k) for k in range(5)}
    errors = {k: taken.noise.dense(k) for k in range(5)}
    d = taken.moments.input_dim
    if order == 2:
        if d > _ORDER_TWO_LIMIT:
            raise InvalidInput(
                f"order=2 forms the tensor of order 6 with {d}^6 entries; it is limited to "
                f"d <= {_ORDER_TWO_LIMIT}. The default route needs no such tensor"
            )
        if not source.restartable:
            raise InvalidInput("order=2 reads the samples again; this stream can be read once")
        halves = CompensatedSums(), CompensatedSums()
        kernel = _HighKernel(basis, offset, series, held)
        for index, (sums, rows) in enumerate(map_batches(source, kernel, plan)):
            halves[index % 2].add(sums, rows)
        n0, n1 = halves[0].count, halves[1].count
        for i, k in enumerate((5, 6)):
            first, second = (half.values()[i] for half in halves)
            tensors[k] = dense_from_products((first + second) / (n0 + n1), d, k)
            spread = (first / n0 - second / n1) * math.sqrt(n0 * n1) / (n0 + n1)
            errors[k] = dense_from_products(spread, d, k)
    eta1 = tuple(
        1.1 * float(np.linalg.norm(errors[k].reshape(d**order, -1), 2))
        for k in (2 * order + 1, 2 * order + 2)
    )
    # eta2: weaker terms are mostly noise; eta3: errors of 0.1 in a direction are
    # usual at these sample sizes, distinct units are further apart.
    thresholds = Thresholds(eta1=(eta1[0], eta1[1]), eta2=0.05, eta3=0.3)
    units = robust_algorithm(order, tensors, thresholds, rng, pairs=20, width=width)
    return fix_signs(tensors[1], units) if order == 1 and len(units.w) else units
