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
from unrelu.core.hermite import hermite_products
from unrelu.core.jennrich import jennrich, joint_diagonalise
from unrelu.core.memory import BLOCK
from unrelu.core.moment_fit import fit_moments, units_from_scalars
from unrelu.core.moments import (
    DENSE_LIMIT,
    CompensatedSums,
    HermiteMoments,
    evaluate_series,
    hermite_moments,
    series_coefficients,
    to_numpy,
)
from unrelu.core.symmetric import SymmetricTensor
from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import (
    RankOneUnits,
    Thresholds,
    check_order,
    fix_signs,
    robust_algorithm,
)
from unrelu.gaussian.config import PAIRS
from unrelu.gaussian.stream import (
    HoldOut,
    InputWhitening,
    MomentPass,
    ReadingPlan,
    estimate_moments,
    map_batches,
)
from unrelu.gaussian.survey import SampleSurvey
from unrelu.samples import SampleSource

__all__ = [
    "EstimatedTensors",
    "MomentEstimate",
    "MomentInputs",
    "diagonalise",
    "moment_estimate",
    "project_moments",
]

MARGIN = 10
"""Eigenvectors of T2 that are kept beyond those above its noise: weak units hide among them."""


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
    values, vectors = np.linalg.eigh(low.t2 - low.t0 * (second - np.eye(d)))
    # Edge of the noise's spectrum: entries have standard deviation spread/sqrt N.
    edge = 2.0 * spread * math.sqrt(d / count)
    signal = int(np.count_nonzero(np.abs(values) > edge))
    wanted = MARGIN + max(signal, min(width or 0, d))
    if wanted >= d:
        return np.eye(d)
    return np.asarray(vectors[:, np.argsort(-np.abs(values))[:wanted]])


@dataclasses.dataclass(frozen=True)
class MomentInputs:
    """Coordinates that moments are taken in: ``z = x @ basis - offset``.

    Attributes
    ----------
    q
        Orthonormal columns of the subspace, in whitened coordinates, ``(d, r)``.
    basis, offset
        ``(d, r)`` and ``(r,)``.
    low, series
        The labels' moments of orders 0 to 2 there, and the polynomial that they describe.
    """

    q: FloatArray
    basis: FloatArray
    offset: FloatArray
    low: HermiteMoments
    series: tuple[FloatArray, ...]

    @classmethod
    def of(
        cls, survey: SampleSurvey, whitening: InputWhitening, width: int | None
    ) -> MomentInputs:
        """Choose the subspace by the second moments of the survey."""
        low = hermite_moments(whitening.raw(survey.raw, survey.train_count))
        centre = survey.input_mean - whitening.mean
        square = survey.input_covariance + np.outer(centre, centre)
        second = whitening.inverse @ square @ whitening.inverse.T
        q = _subspace(low, second, survey.label_scale, survey.train_count, width)
        inner = project_moments(low, q)
        basis = whitening.inverse.T @ q
        return cls(q, basis, whitening.mean @ basis, inner, series_coefficients(inner))


def moment_estimate(
    source: SampleSource,
    plan: ReadingPlan,
    inputs: MomentInputs,
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
    r = inputs.q.shape[1]
    probes = None
    if r > DENSE_LIMIT and order is None:
        # T4 itself would be too large: as many random contractions as inputs,
        # twice over, span the same matrices w w^T.
        probes = rng.standard_normal((2 * r, r)) / math.sqrt(r)
    taken = estimate_moments(
        source, plan, basis=inputs.basis, offset=inputs.offset, series=inputs.series,
        low=inputs.low, held=held, order=4 if probes is None else 3, progress=progress,
        probes=probes,
    )  # fmt: skip
    rank, vectors, values, threshold = signal_rank(taken.flat, taken.flat_noise)
    # Four samples per parameter at least, or no unit.
    limit = min(vectors.shape[1] - 1, taken.count // (4 * (len(inputs.q) + 1)))
    limit = limit if max_width is None else min(limit, max_width)
    count = min(rank if width is None else width, max(limit, 0))
    route = f"method {method}" if order is None else f"the paper's route of order {order}"
    if order is not None:
        tensors = EstimatedTensors.of(source, plan, taken, inputs, held, order)
        units = tensors.units(order, rng, options, width=width, pairs=PAIRS)
    else:
        units = _units(taken.moments, vectors, count, rng, options, method)
    keep = np.isfinite(units.a) & np.isfinite(units.b) & np.isfinite(units.w).all(axis=1)
    return MomentEstimate(
        units.w[keep] @ inputs.q.T,
        units.a[keep],
        units.b[keep],
        taken.count,
        f"{rank} singular values above the noise; {np.count_nonzero(keep)} units by {route}",
        {
            "rank": rank,
            "threshold": threshold,
            "last_signal": float(values[rank - 1]) if rank else 0.0,
            "first_noise": float(values[rank]) if rank < len(values) else 0.0,
            "residual_variance": taken.residual_variance,
            "dimension": r,
        },
    )


def _units(
    moments: HermiteMoments,
    vectors: FloatArray,
    count: int,
    rng: np.random.Generator,
    options: PolishOptions,
    method: str,
) -> RankOneUnits:
    """Decompose the stacked moments into ``count`` units."""
    if count == 0:
        return RankOneUnits(np.empty((0, moments.input_dim)), np.empty(0), np.empty(0))
    if method == "power":
        return RankOneUnits(*decompose(moments, vectors, count, rng, options))
    w = diagonalise(moments, count, rng, joint=method == "joint")
    fitted = fit_moments(moments, w, tied=False)
    fitted = fit_moments(moments, fitted.w, tied=True)
    return RankOneUnits(fitted.w, *units_from_scalars(fitted.alpha))


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
    start = jennrich(np.moveaxis(matrices, 0, -1), frame, rng, pairs=PAIRS if joint else 1)
    if not joint:
        return start
    core = np.einsum("kij,ia,jb->kab", matrices, frame, frame, optimize=True)
    return np.asarray(joint_diagonalise(core, start @ frame) @ frame.T)


# ----------------------------------------------------- Algorithms 4 and 6


@dataclasses.dataclass(frozen=True)
class _HighKernel:
    """Distinct entries of the residual's tensors of orders above 4, one batch."""

    basis: FloatArray
    offset: FloatArray
    series: tuple[FloatArray, ...]
    held: HoldOut
    orders: tuple[int, ...]

    def __call__(self, x: Any, y: Any, start: int) -> Any:
        train = ~self.held.mask(start, len(x))
        z = to_numpy(x)[train] @ self.basis - self.offset
        residual = to_numpy(y)[train] - evaluate_series(z, self.series)
        top, d = max(self.orders), z.shape[1]
        sums = [np.zeros(math.comb(d + k - 1, k)) for k in self.orders]
        rows = max(BLOCK // len(sums[-1]), 1)
        for first in range(0, len(z), rows):
            piece = slice(first, first + rows)
            levels = hermite_products(z[piece], top)
            for i, k in enumerate(self.orders):
                sums[i] += residual[piece] @ levels[k]
        return tuple(sums), len(z)


@dataclasses.dataclass(frozen=True)
class EstimatedTensors:
    """Tensors of all orders that Algorithm 4 takes, and a sample of their errors."""

    tensors: dict[int, SymmetricTensor]
    errors: dict[int, SymmetricTensor]

    @classmethod
    def of(
        cls,
        source: SampleSource,
        plan: ReadingPlan,
        taken: MomentPass,
        inputs: MomentInputs,
        held: HoldOut,
        order: int,
    ) -> EstimatedTensors:
        """Take orders up to 4 from the moments, and read the samples again for higher ones."""
        d = taken.moments.input_dim
        check_order(order, d)
        tensors, errors = (
            {k: SymmetricTensor.of_dense(part.dense(k), d) for k in range(5)}
            for part in (taken.moments, taken.noise)
        )
        high = tuple(k for k in range(order, 2 * order + 3) if k > 4)
        if high and not source.restartable:
            raise InvalidInput(
                f"order={order} reads the samples again; this stream can be read once"
            )
        halves = CompensatedSums(), CompensatedSums()
        kernel = _HighKernel(inputs.basis, inputs.offset, inputs.series, held, high)
        for index, (sums, rows) in enumerate(map_batches(source, kernel, plan) if high else ()):
            halves[index % 2].add(sums, rows)
        n0, n1 = halves[0].count, halves[1].count
        for i, k in enumerate(high):
            first, second = (half.values()[i] for half in halves)
            spread = (first / n0 - second / n1) * math.sqrt(n0 * n1) / (n0 + n1)
            tensors[k] = SymmetricTensor(((first + second) / (n0 + n1))[None], d, k)
            errors[k] = SymmetricTensor(spread[None], d, k)
        return cls(tensors, errors)

    @classmethod
    def joined(cls, parts: list[EstimatedTensors]) -> EstimatedTensors:
        """Those of several outputs, side by side."""
        return cls(*(
            {k: SymmetricTensor.joined([getattr(part, name)[k] for part in parts])
             for k in getattr(parts[0], name)}
            for name in ("tensors", "errors")
        ))  # fmt: skip

    def units(
        self,
        order: int,
        rng: np.random.Generator,
        options: PolishOptions,
        *,
        width: int | None,
        pairs: int,
    ) -> RankOneUnits:
        """Algorithm 6 (order 1) or Algorithm 4 (a higher one)."""
        thresholds = self.thresholds(order, options)
        units = robust_algorithm(order, self.tensors, thresholds, rng, pairs=pairs, width=width)
        return fix_signs(self.tensors[1], units) if order == 1 and len(units.w) else units

    def thresholds(self, order: int, options: PolishOptions) -> Thresholds:
        """Choose Algorithm 4's parameters by the errors.

        eta1: what the errors' own flattening reaches. eta2: what is left above it is no
        noise. eta3: the chord of two directions that are one.
        """
        first, second = (
            float(np.linalg.norm(self.errors[2 * order + k].matrix(order, order + k), 2))
            for k in (1, 2)
        )
        return Thresholds((first, second), 0.0, math.sqrt(2.0 - 2.0 * options.same))
