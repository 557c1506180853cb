"""Streamed moments ``sum_n y_n x_n^{(x)k}``, k <= 4, and their Hermite form.

The sums over a batch are matrix products, on numpy, torch or cupy arrays alike
(array API); the sums over batches are compensated. The dense tensor of order 3
or 4 is never formed: with ``s(x)`` the ``D = d(d+1)/2`` products ``x_i x_j``,
i <= j, order 3 is kept as ``sum y s x^T`` of shape ``(D, d)`` and order 4 as
``sum y s s^T`` of shape ``(D, D)``. Where even that is too large, contractions
with given vectors v are: ``sum y (v.x) x x^T`` and ``sum y (v.x)^2 x x^T``.

Nothing here knows what y is: any label or residual will do.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from unrelu._types import FloatArray, IntArray
from unrelu.core.memory import BLOCK

__all__ = [
    "DENSE_LIMIT",
    "MAX_ORDER",
    "CompensatedSums",
    "HermiteMoments",
    "evaluate_series",
    "hermite_moments",
    "mean_moments",
    "pair_index",
    "pair_products",
    "raw_sums",
    "second_sums",
    "series_coefficients",
    "to_numpy",
    "unpack_pairs",
]

Array = Any  # an array of any namespace that array_api_compat knows

MAX_ORDER = 4
DENSE_LIMIT = math.isqrt(2 * math.isqrt(BLOCK))
"""Inputs up to which T4 is kept on symmetric pairs, of which there are half the square: 64, with
one block of numbers."""


def to_numpy(array: Array) -> FloatArray:
    """Copy an array of any namespace to a float64 numpy array."""
    if hasattr(array, "detach"):  # torch
        array = array.detach().cpu().numpy()
    elif hasattr(array, "get") and not isinstance(array, np.ndarray):  # cupy
        array = array.get()
    return np.asarray(array, dtype=np.float64)


@functools.lru_cache(maxsize=32)
def pair_index(d: int) -> tuple[IntArray, IntArray]:
    """Row and column of each pair i <= j, in the order of :func:`pair_products`."""
    rows, cols = (index.astype(np.intp) for index in np.triu_indices(d))
    rows.setflags(write=False)
    cols.setflags(write=False)
    return rows, cols


def pair_products(x: Array) -> Array:
    """Products ``x_i x_j``, i <= j; ``(n, d)`` to ``(n, d(d+1)/2)``.

    On a device the result is a transposed view: with all n values of a pair side
    by side, each block of products is one contiguous write.
    """
    n, d = x.shape
    if isinstance(x, np.ndarray):
        out = np.empty((n, d * (d + 1) // 2), dtype=x.dtype)
        start = 0
        for i in range(d):
            stop = start + d - i
            np.multiply(x[:, i : i + 1], x[:, i:], out=out[:, start:stop])
            start = stop
        return out
    xp = array_namespace(x)
    columns = xp.empty((d, n), dtype=x.dtype, device=x.device)
    columns[...] = x.T
    products = xp.empty((d * (d + 1) // 2, n), dtype=x.dtype, device=x.device)
    library = type(x).__module__.partition(".")[0]
    into = sys.modules[library].multiply if library in {"torch", "cupy"} else None
    start = 0
    for i in range(d):
        stop = start + d - i
        if into is None:
            products[start:stop, :] = columns[i : i + 1, :] * columns[i:, :]
        else:  # without a copy in between
            into(columns[i : i + 1, :], columns[i:, :], out=products[start:stop, :])
        start = stop
    return products.T


def unpack_pairs(packed: FloatArray, d: int) -> FloatArray:
    """Symmetric matrices from their pairs i <= j: ``(..., D)`` to ``(..., d, d)``."""
    rows, cols = pair_index(d)
    out = np.empty((*packed.shape[:-1], d, d))
    out[..., rows, cols] = packed
    out[..., cols, rows] = packed
    return out


def raw_sums(x: Array, y: Array, order: int = MAX_ORDER) -> tuple[Array, ...]:
    """Sum over one batch ``y``, ``y x``, ``y s``, ``y s x^T``, ``y s s^T``.

    Parameters
    ----------
    x
        Points, ``(n, d)``.
    y
        Labels, ``(n,)``, of the same namespace and dtype.
    order
        Highest order, 0 to 4.

    Returns
    -------
    ``order + 1`` arrays of shapes ``()``, ``(d,)``, ``(d, d)``, ``(D, d)``,
    ``(D, D)``.
    """
    xp = array_namespace(x)
    sums: list[Array] = [xp.sum(y)]
    if order >= 1:
        sums.append(y @ x)
    if order >= 2:
        weighted = x * y[:, None]
        sums.append(weighted.T @ x)
    if order >= 3:
        pairs = pair_products(x)
        sums.append(pairs.T @ weighted)
    if order >= 4:
        sums.append(pairs.T @ (pairs * y[:, None]))
    return tuple(sums)


def second_sums(x: Array, y: Array) -> tuple[Array, Array]:
    """Sum over one batch ``y`` and ``y x x^T``: all that ``T_2`` takes."""
    xp = array_namespace(x)
    return xp.sum(y), (x * y[:, None]).T @ x


class CompensatedSums:
    """Running sums of a tuple of arrays, with the rounding errors kept.

    Each addition is Knuth's TwoSum: the error of the sum is exact and is summed
    beside it, so that the result does not depend on how many batches there were
    (to one rounding). Sums are kept in float64 whatever the batches' dtype.
    """

    def __init__(self) -> None:
        self.count = 0
        self._high: list[Array] = []
        self._low: list[Array] = []

    def add(self, terms: tuple[Array, ...], count: int) -> None:
        """Add one batch's sums over ``count`` samples."""
        self.count += count
        wide = [_widen(term) for term in terms]
        if not self._high:
            self._high = wide
            self._low = [term * 0.0 for term in wide]
            return
        for i, term in enumerate(wide):
            high = self._high[i]
            total = high + term
            part = total - high
            self._low[i] = self._low[i] + ((high - (total - part)) + (term - part))
            self._high[i] = total

    def merge(self, other: CompensatedSums) -> None:
        """Add another accumulator's sums, its compensation included."""
        if not other._high:
            return
        self.add(tuple(other._high), other.count)
        for i, low in enumerate(other._low):
            self._low[i] = self._low[i] + low

    def values(self) -> tuple[FloatArray, ...]:
        """Return the sums as float64 numpy arrays."""
        pairs = zip(self._high, self._low, strict=True)
        return tuple(to_numpy(high + low) for high, low in pairs)


def _widen(term: Array) -> Array:
    xp = array_namespace(term)
    return term if term.dtype == xp.float64 else xp.astype(term, xp.float64)


@dataclasses.dataclass(frozen=True)
class HermiteMoments:
    """Estimates ``T_k`` of ``E[y He_k(x)]``, k = 0..4 (equation (14)).

    Attributes
    ----------
    t0
        Number.
    t1
        ``(d,)``.
    t2
        ``(d, d)``.
    t3
        ``(D, d)``: entry ((i, j), k) of the tensor, i <= j; None if absent.
    t4
        ``(D, D)``: entry ((i, j), (k, l)); None if absent.
    """

    t0: float
    t1: FloatArray
    t2: FloatArray
    t3: FloatArray | None = None
    t4: FloatArray | None = None

    @property
    def input_dim(self) -> int:
        """Number of inputs, d."""
        return len(self.t1)

    @property
    def order(self) -> int:
        """Highest order present."""
        return 4 if self.t4 is not None else 3 if self.t3 is not None else 2

    def __add__(self, other: HermiteMoments) -> HermiteMoments:
        return self._combine(other, 1.0)

    def __sub__(self, other: HermiteMoments) -> HermiteMoments:
        return self._combine(other, -1.0)

    def _combine(self, other: HermiteMoments, sign: float) -> HermiteMoments:
        def join(mine: FloatArray | None, theirs: FloatArray | None) -> FloatArray | None:
            if mine is None or theirs is None:
                return mine if theirs is None else sign * theirs
            return mine + sign * theirs

        return HermiteMoments(
            self.t0 + sign * other.t0,
            self.t1 + sign * other.t1,
            self.t2 + sign * other.t2,
            join(self.t3, other.t3),
            join(self.t4, other.t4),
        )

    def scaled(self, factor: float) -> HermiteMoments:
        """All moments times a number."""
        return HermiteMoments(
            factor * self.t0,
            factor * self.t1,
            factor * self.t2,
            None if self.t3 is None else factor * self.t3,
            None if self.t4 is None else factor * self.t4,
        )

    def truncated(self, order: int) -> HermiteMoments:
        """Keep the moments up to ``order`` (2, 3 or 4)."""
        return HermiteMoments(
            self.t0,
            self.t1,
            self.t2,
            self.t3 if order >= 3 else None,
            self.t4 if order >= 4 else None,
        )

    def flattening(self) -> FloatArray:
        """``[T2/sqrt 2! | T3/sqrt 3! | T4/sqrt 4!]`` on symmetric matrices.

        Rows (and the columns of T4) are coordinates in which the Frobenius norm
        is the Euclidean one: off-diagonal pairs carry a factor sqrt 2. With this
        scaling each block has the same noise per entry. Its columns span the
        matrices ``w_i w_i^T``. Shape ``(D, 1 + d + D)`` where all are present.
        """
        d = self.input_dim
        rows, cols = pair_index(d)
        weight = np.where(rows == cols, 1.0, math.sqrt(2.0))
        blocks = [(weight * self.t2[rows, cols])[:, None] / math.sqrt(2.0)]
        if self.t3 is not None:
            blocks.append(weight[:, None] * self.t3 / math.sqrt(6.0))
        if self.t4 is not None:
            blocks.append(weight[:, None] * self.t4 * weight / math.sqrt(24.0))
        return np.concatenate(blocks, axis=1)

    def dense(self, k: int) -> FloatArray:
        """``T_k`` as a dense array ``(d,) * k``; for small d."""
        d = self.input_dim
        if k == 0:
            return np.asarray(self.t0)
        if k == 1:
            return self.t1
        if k == 2:
            return self.t2
        if k == 3 and self.t3 is not None:
            return np.moveaxis(unpack_pairs(self.t3.T, d), 0, -1)
        if k == 4 and self.t4 is not None:
            half = unpack_pairs(self.t4, d)  # (D, d, d)
            return unpack_pairs(np.moveaxis(half, 0, -1), d)
        raise ValueError(f"there is no moment of order {k} here")


def hermite_moments(means: tuple[FloatArray, ...]) -> HermiteMoments:
    """Hermite moments from the raw ones of :func:`raw_sums`, divided by N.

    ``He_2 = x x - I``, ``He_3 = x x x - 3 sym(I x)``,
    ``He_4 = x x x x - 6 sym(I x x) + 3 sym(I I)``.
    """
    r0, r1, r2 = float(means[0]), np.asarray(means[1]), np.asarray(means[2])
    d = len(r1)
    r2 = 0.5 * (r2 + r2.T)
    t2 = r2 - r0 * np.eye(d)
    if len(means) == 3:
        return HermiteMoments(r0, r1, t2)
    rows, cols = pair_index(d)
    same = (rows == cols).astype(np.float64)
    eye = np.eye(d)
    t3 = np.asarray(means[3]) - (
        same[:, None] * r1 + eye[rows] * r1[cols][:, None] + eye[cols] * r1[rows][:, None]
    )
    if len(means) == 4:
        return HermiteMoments(r0, r1, t2, t3)
    p, q = np.asarray(means[4]), r2[rows, cols]
    ik, il = eye[np.ix_(rows, rows)], eye[np.ix_(rows, cols)]
    jk, jl = eye[np.ix_(cols, rows)], eye[np.ix_(cols, cols)]
    r_jl, r_jk = r2[np.ix_(cols, cols)], r2[np.ix_(cols, rows)]
    r_il, r_ik = r2[np.ix_(rows, cols)], r2[np.ix_(rows, rows)]
    twos = same[:, None] * q + q[:, None] * same + ik * r_jl + il * r_jk + jk * r_il + jl * r_ik
    ones = same[:, None] * same + ik * jl + il * jk
    t4 = 0.5 * (p + p.T) - twos + r0 * ones
    return HermiteMoments(r0, r1, t2, t3, t4)


def mean_moments(sums: CompensatedSums) -> HermiteMoments:
    """Hermite moments of what an accumulator of :func:`raw_sums` has seen."""
    return hermite_moments(tuple(total / sums.count for total in sums.values()))


def series_coefficients(moments: HermiteMoments) -> tuple[FloatArray, ...]:
    """Coefficients of ``sum_k <T_k, He_k(x)> / k!`` in 1, x, s, s x^T, s s^T.

    This is the L2 projection of the labels onto polynomials of that degree; to
    subtract it from the labels is the control variate.
    """
    d = moments.input_dim
    rows, cols = pair_index(d)
    times = np.where(rows == cols, 1.0, 2.0)
    same = rows == cols
    constant = moments.t0 - 0.5 * np.trace(moments.t2)
    linear = moments.t1.copy()
    square = 0.5 * moments.t2
    out: list[FloatArray] = []
    if moments.t3 is not None:
        linear = linear - 0.5 * moments.t3[same].sum(axis=0)
        out.append(times[:, None] * moments.t3 / 6.0)
    if moments.t4 is not None:
        trace = unpack_pairs(moments.t4[same].sum(axis=0), d)
        square = square - 0.25 * trace
        constant += 0.125 * np.trace(trace)
        out.append(times[:, None] * moments.t4 * times / 24.0)
    return (np.asarray(constant), linear, square, *out)


def evaluate_series(x: Array, coefficients: tuple[Array, ...]) -> Array:
    """Evaluate :func:`series_coefficients` at ``x``; ``(n, d)`` to ``(n,)``.

    The coefficients must be arrays of x's namespace and dtype.
    """
    xp = array_namespace(x)
    constant, linear, square, *higher = coefficients
    value = x @ linear + constant + xp.sum((x @ square) * x, axis=1)
    if higher:
        pairs = pair_products(x)
        weight = x @ higher[0].T
        if len(higher) > 1:
            weight = weight + pairs @ higher[1]
        value = value + xp.sum(weight * pairs, axis=1)
    return value
