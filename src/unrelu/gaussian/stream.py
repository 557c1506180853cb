"""Passes over a sample source: moments, residuals, normal equations.

Each pass is one function of a batch, applied in order: by the calling thread,
by joblib's threads, or by a dask cluster. The partial results are added in the
order of the samples, so that every way of running gives the same sums to
rounding. Memory holds one batch per worker and the sums, whatever N is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import joblib
import numpy as np
from array_api_compat import array_namespace

from unrelu._types import FloatArray
from unrelu.core.contractions import contraction_slices, contraction_sums
from unrelu.core.moments import (
    CompensatedSums,
    HermiteMoments,
    evaluate_series,
    hermite_moments,
    pair_index,
    raw_sums,
    to_numpy,
)
from unrelu.core.piecewise import Kinks, NormalEquations, normal_equations, residuals
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.samples import SampleSource

__all__ = [
    "HoldOut",
    "InputWhitening",
    "MomentPass",
    "ReadingPlan",
    "collect_outliers",
    "estimate_moments",
    "map_batches",
    "stream_normal_equations",
]

Array = Any


class Kernel(Protocol):
    """One batch's share of a pass."""

    def __call__(self, x: Array, y: Array, start: int) -> Any:
        """Return partial sums of rows ``start`` and following."""
        ...


@dataclasses.dataclass(frozen=True)
class ReadingPlan:
    """How the samples are read.

    Attributes
    ----------
    rows
        Rows per batch.
    jobs
        Threads; 1 runs in the caller's.
    scheduler
        A ``distributed.Client``, or None for this machine.
    """

    rows: int
    jobs: int = 1
    scheduler: Any = None


@dataclasses.dataclass(frozen=True)
class HoldOut:
    """Rows that no estimate may see: index = stride/2 modulo ``stride``."""

    stride: int

    @classmethod
    def among(cls, count: int, most: int) -> HoldOut:
        """Hold one row in twenty out, ``most`` of many samples, more of a handful."""
        return cls(max(count // most, min(20, max(count // 2, 2))))

    def mask(self, start: int, n: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Mark the held-out rows among ``n`` rows from ``start`` on."""
        return np.asarray((start + np.arange(n)) % self.stride == self.stride // 2)


def map_batches(source: SampleSource, kernel: Kernel, plan: ReadingPlan) -> Iterator[Any]:
    """Yield the kernel's result for every batch, in the order of the samples."""
    if plan.scheduler is not None:
        yield from _map_dask(source, kernel, plan)
        return

    def tasks() -> Iterator[tuple[Array, Array, int]]:
        start = 0
        for x, y in source.batches(plan.rows):
            yield x, y, start
            start += len(x)

    if plan.jobs == 1:
        for x, y, start in tasks():
            yield kernel(x, y, start)
        return
    parallel = joblib.Parallel(
        n_jobs=plan.jobs, backend="threading", return_as="generator", pre_dispatch="2*n_jobs"
    )
    yield from parallel(joblib.delayed(kernel)(x, y, start) for x, y, start in tasks())


def _run_part(open_part: Callable[[], SampleSource], kernel: Kernel, rows: int, first: int) -> Any:
    """Apply a kernel to all batches of one part; runs on a worker."""
    out, start = [], first
    for x, y in open_part().batches(rows):
        out.append(kernel(x, y, start))
        start += len(x)
    return out


def _run_chunk(x: Array, y: Array, kernel: Kernel, rows: int, first: int) -> Any:
    from unrelu.samples import as_source

    source = as_source(np.asarray(x), np.asarray(y))
    return _run_part(lambda: source, kernel, rows, first)


def _map_dask(source: SampleSource, kernel: Kernel, plan: ReadingPlan) -> Iterator[Any]:
    """Send chunks, files or batches to the cluster; a lost worker's are run again."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtra("distributed", "dask", "running on a dask cluster") from None
    client = plan.scheduler
    if not isinstance(client, Client):
        raise InvalidInput("scheduler must be a distributed.Client")
    futures = []
    first = 0
    chunks = getattr(source, "chunks", None)
    if chunks is not None:
        from dask import delayed

        for x, y in chunks:
            task = delayed(_run_chunk, pure=False)(x, y, kernel, plan.rows, first)
            futures.append(client.compute(task, retries=3))
            first += source.chunk_rows[len(futures) - 1]  # type: ignore[attr-defined]
    elif len(source.parts()) > 1:
        for part in source.parts():
            futures.append(
                client.submit(_run_part, part, kernel, plan.rows, first, pure=False, retries=3)
            )
            first += part().count or 0
    else:
        for x, y in source.batches(plan.rows):
            futures.append(
                client.submit(_run_chunk, x, y, kernel, plan.rows, first, pure=False, retries=3)
            )
            first += len(x)
    for future in futures:
        yield from future.result()


@dataclasses.dataclass(frozen=True)
class InputWhitening:
    """``x = mean + z @ factor.T`` with z ~ N(0, I); identity if ``plain``.

    ``factor`` is ``(d, r)``, r below d where x has directions without variance.
    """

    mean: FloatArray
    factor: FloatArray
    plain: bool

    @classmethod
    def identity(cls, d: int) -> InputWhitening:
        """No change."""
        return cls(np.zeros(d), np.eye(d), True)

    def forward(self, x: FloatArray) -> FloatArray:
        """Map points to z, ``(n, d)``."""
        if self.plain:
            return x
        return np.asarray((x - self.mean) @ self.inverse.T)

    @property
    def inverse(self) -> FloatArray:
        """Pseudo-inverse of ``factor``, ``(r, d)``."""
        return self.factor if self.plain else np.asarray(np.linalg.pinv(self.factor))

    def raw(self, sums: tuple[FloatArray, ...], count: int) -> tuple[FloatArray, ...]:
        """Map raw means of orders 0 to 2 from x to z."""
        r0, r1, r2 = (np.asarray(total) / count for total in sums)
        if self.plain:
            return r0, r1, r2
        centred1 = r1 - r0 * self.mean
        cross = np.outer(centred1, self.mean)
        centred2 = r2 - cross - cross.T - r0 * np.outer(self.mean, self.mean)
        return r0, self.inverse @ centred1, self.inverse @ centred2 @ self.inverse.T


# ------------------------------------------------------------------ moments


@dataclasses.dataclass(frozen=True)
class MomentPass:
    """Hermite moments of the labels, and the noise that they carry.

    Attributes
    ----------
    moments
        Orders 0 to 4, in the coordinates of ``basis``.
    noise
        Half the difference of two halves of the samples, scaled so that its
        entries are distributed like the error of ``moments``.
    flat, flat_noise
        Both flattened; with probes, contractions of T4 stand in for T4 itself.
    residual_variance
        Mean square of what the control variate left.
    count
        Samples used.
    """

    moments: HermiteMoments
    noise: HermiteMoments
    flat: FloatArray
    flat_noise: FloatArray
    residual_variance: float
    count: int


@dataclasses.dataclass(frozen=True)
class _MomentKernel:
    basis: FloatArray  # (d, r): z = x @ basis - offset
    offset: FloatArray
    series: tuple[FloatArray, ...]
    held: HoldOut
    order: int
    probes: FloatArray | None

    def __call__(self, x: Array, y: Array, start: int) -> Any:
        xp = array_namespace(x)

        def like(array: FloatArray) -> Array:
            return xp.asarray(array, dtype=x.dtype, device=x.device)

        train = xp.asarray(np.flatnonzero(~self.held.mask(start, len(x))), device=x.device)
        z = x[train] @ like(self.basis) - like(self.offset)
        residual = y[train] - evaluate_series(z, tuple(like(part) for part in self.series))
        sums = raw_sums(z, residual, self.order)
        extra = () if self.probes is None else contraction_sums(z, residual, like(self.probes))
        return (*sums, *extra, xp.sum(residual * residual)), len(train)


def estimate_moments(
    source: SampleSource,
    plan: ReadingPlan,
    *,
    basis: FloatArray,
    offset: FloatArray,
    series: tuple[FloatArray, ...],
    low: HermiteMoments,
    held: HoldOut,
    order: int,
    progress: Callable[[int], None],
    probes: FloatArray | None = None,
) -> MomentPass:
    """Estimate ``E[y He_k(z)]`` for ``z = x @ basis - offset``, k <= order.

    The labels' fit of lower order, ``series`` with moments ``low``, is removed
    first: it is orthogonal to what is estimated, so the estimate stays unbiased
    and its variance falls from that of y to that of the residual. With ``probes``
    v of shape ``(q, r)`` and order 3, ``T4(v, v, ., .)`` is estimated beside.
    """
    halves = CompensatedSums(), CompensatedSums()
    kernel = _MomentKernel(basis, offset, series, held, order, probes)
    seen = 0
    for index, (sums, count) in enumerate(map_batches(source, kernel, plan)):
        halves[index % 2].add(sums, count)
        seen += count
        progress(seen)
    if halves[1].count == 0:
        raise InvalidInput("the moments need at least two batches of samples")
    parts, flats = [], []
    square = 0.0
    for half in halves:
        values = half.values()
        square += float(values[-1])
        means = [value / half.count for value in values[:-1]]
        part = hermite_moments(tuple(means[: order + 1]))
        parts.append(part)
        flats.append(_with_slices(part, means[order + 1 :], probes))
    n0, n1 = halves[0].count, halves[1].count
    total = n0 + n1
    first, second = n0 / total, n1 / total
    spread = float(np.sqrt(first * second))
    base = low.flattening()
    flat = first * flats[0] + second * flats[1]
    flat[:, : base.shape[1]] += base
    return MomentPass(
        moments=low + parts[0].scaled(first) + parts[1].scaled(second),
        noise=(parts[0] - parts[1]).scaled(spread),
        flat=flat,
        flat_noise=spread * (flats[0] - flats[1]),
        residual_variance=square / total,
        count=total,
    )


def _with_slices(
    moments: HermiteMoments, slices: list[FloatArray], probes: FloatArray | None
) -> FloatArray:
    """Flatten moments, contractions of T4 appended as columns."""
    flat = moments.flattening()
    if probes is None:
        return flat
    _, fourth = contraction_slices(slices[0], slices[1], probes, moments)
    rows, cols = pair_index(moments.input_dim)
    weight = np.where(rows == cols, 1.0, np.sqrt(2.0))
    return np.concatenate([flat, (weight * fourth[:, rows, cols]).T / np.sqrt(24.0)], axis=1)


# ---------------------------------------------------------------- residuals


@dataclasses.dataclass(frozen=True)
class _NormalKernel:
    model: Kinks
    whitening: InputWhitening
    held: HoldOut

    def __call__(self, x: Array, y: Array, start: int) -> Any:
        train = ~self.held.mask(start, len(x))
        points, labels = to_numpy(x)[train], to_numpy(y)[train]
        return normal_equations(self.model, self.whitening.forward(points), labels)


def stream_normal_equations(
    source: SampleSource, plan: ReadingPlan, model: Kinks, whitening: InputWhitening, held: HoldOut
) -> NormalEquations:
    """Sum the normal equations of a polish step over all training samples."""
    total: NormalEquations | None = None
    for part in map_batches(source, _NormalKernel(model, whitening, held), plan):
        if total is None:
            total = part
        else:
            total += part
    assert total is not None
    return total


@dataclasses.dataclass(frozen=True)
class _OutlierKernel:
    model: Kinks
    whitening: InputWhitening
    held: HoldOut
    threshold: float

    def __call__(self, x: Array, y: Array, start: int) -> Any:
        train = ~self.held.mask(start, len(x))
        points, labels = self.whitening.forward(to_numpy(x)[train]), to_numpy(y)[train]
        left = residuals(self.model, points, labels)
        far = np.abs(left) > self.threshold
        return points[far], labels[far], len(points)


def collect_outliers(
    source: SampleSource,
    plan: ReadingPlan,
    model: Kinks,
    whitening: InputWhitening,
    held: HoldOut,
    *,
    threshold: float,
    limit: int,
) -> tuple[FloatArray, FloatArray, int, int]:
    """Gather the samples that a model misses by more than ``threshold``.

    Returns whitened points, labels, how many there were (of which at most
    ``limit`` are kept) and how many samples were read.
    """
    xs: list[FloatArray] = []
    ys: list[FloatArray] = []
    kept = found = seen = 0
    for x, y, count in map_batches(
        source, _OutlierKernel(model, whitening, held, threshold), plan
    ):
        found += len(x)
        seen += count
        room = limit - kept
        if room > 0 and len(x):
            xs.append(x[:room])
            ys.append(y[:room])
            kept += min(len(x), room)
    d = model.u.shape[1] - 1
    points = np.concatenate(xs) if xs else np.empty((0, d))
    labels = np.concatenate(ys) if ys else np.empty(0)
    return points, labels, found, seen
