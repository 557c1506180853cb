"""Subspaces from noisy rows: spectrum, rank, complement, tilt, principal angle.

Rows of a basis are its vectors. Pure array to array.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg

from unrelu._types import BoolArray, FloatArray, IntArray

__all__ = [
    "SpanEstimate",
    "Spectrum",
    "choose_rows",
    "complement",
    "largest_principal_angle",
    "misfit_of_rows",
    "orthonormal",
    "seen_again",
    "solve_tilt",
    "spectrum_of_rows",
]


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """The span of noisy rows, with the rank that the noise floor allows.

    Attributes
    ----------
    basis
        Orthonormal rows, ``(rank, n)``.
    singular_values
        Of the rows, each divided by its noise per entry: ``(min(P, n),)``.
    floor
        What noise alone would give as the largest singular value, √P + √n.
    rank
        How many singular values exceed ``margin`` times the floor.
    gap
        The smallest accepted singular value over the largest rejected one (or
        over the floor, where none was rejected or it is smaller).
    angle
        First-order estimate of the sine of the largest angle between ``basis``
        and the span of the noiseless rows.
    """

    basis: FloatArray
    singular_values: FloatArray
    floor: float
    rank: int
    gap: float
    angle: float


@dataclasses.dataclass(kw_only=True)
class SpanEstimate:
    """What any search knows of a span so far, and how it went.

    ``basis`` is the best basis so far, ``angle`` the estimated sine of its largest angle,
    ``ranks`` the rank after each row.
    """

    spectrum: Spectrum
    basis: FloatArray
    angle: float = 1.0
    quiet: int = 0
    passes: int = 0
    inconsistent: float = 0.0
    finished: bool = False
    ranks: list[int] = dataclasses.field(default_factory=list)

    def estimate_from(self, rows: FloatArray, noise: FloatArray, margin: float) -> None:
        """Take spectrum, basis and angle from rows ``(k, n)`` with ``noise`` per entry."""
        self.spectrum = spectrum_of_rows(rows, noise, margin=margin)
        self.basis, self.angle = self.spectrum.basis, self.spectrum.angle


def spectrum_of_rows(rows: FloatArray, noise: FloatArray, *, margin: float) -> Spectrum:
    """Decide the span of ``rows``, ``(P, n)``, whose entries carry ``noise``, ``(P,)``.

    Rows are weighted so that every entry has unit noise. The largest singular
    value of a P by n matrix of independent unit noise stays below √P + √n
    (Vershynin 2010, Theorem 5.32), which makes the floor. The angle is the
    first-order perturbation √(n - r)/s_r of the weakest accepted direction.
    """
    count, n = rows.shape
    floor = float(np.sqrt(count) + np.sqrt(n))
    if count == 0:
        return Spectrum(np.empty((0, n)), np.empty(0), floor, 0, 0.0, 0.0)
    _, values, right = scipy.linalg.svd(
        rows / noise[:, None], full_matrices=False, lapack_driver="gesdd", check_finite=False
    )
    rank = int(np.count_nonzero(values > margin * floor))  # Algorithm 1, line 6
    rest = max(float(values[rank]) if rank < len(values) else 0.0, floor)
    weakest = float(values[rank - 1]) if rank else 0.0
    angle = float(np.sqrt(n - rank) / weakest) if rank else 0.0
    return Spectrum(right[:rank].copy(), values, floor, rank, weakest / rest, min(angle, 1.0))


def orthonormal(rows: FloatArray) -> FloatArray:
    """Return orthonormal rows that span linearly independent ``rows``, ``(r, n)``."""
    if len(rows) == 0:
        return rows.copy()
    q, _ = np.linalg.qr(rows.T)
    return np.ascontiguousarray(q.T)


def complement(basis: FloatArray) -> FloatArray:
    """Return an orthonormal basis ``(n - r, n)`` of what ``basis`` ``(r, n)`` leaves out."""
    rank, n = basis.shape
    if rank == 0:
        return np.eye(n)
    q, _ = np.linalg.qr(basis.T, mode="complete")
    return np.ascontiguousarray(q[:, rank:].T)


def solve_tilt(inside: FloatArray, outside: FloatArray) -> tuple[FloatArray, float]:
    """Find how a basis must turn so that every gradient lies in it.

    With gradients g_j whose coordinates in a basis V are the rows of ``inside``
    ``(P, r)`` and whose coordinates in its complement N were measured as
    ``outside`` ``(P, n - r)``, both in units of the noise of ``outside``, solve
    ``inside @ C = outside`` by least squares. The span sought is that of
    ``V + C N``. Returns C and the root mean square misfit per degree of freedom
    (0 when P = r leaves none).
    """
    tilt: FloatArray = np.asarray(
        np.linalg.lstsq(inside, outside, rcond=None)[0], dtype=np.float64
    )
    spare = (len(inside) - inside.shape[1]) * outside.shape[1]
    if spare <= 0:
        return tilt, 0.0
    return tilt, float(np.sqrt(np.sum((inside @ tilt - outside) ** 2) / spare))


def misfit_of_rows(rows: FloatArray, noise: FloatArray, basis: FloatArray) -> float:
    """Return how far ``rows`` leave the span of ``basis``, root mean square, in noise units."""
    count, n = rows.shape
    if count == 0 or len(basis) >= n:
        return 0.0
    outside = (rows - (rows @ basis.T) @ basis) / noise[:, None]
    return float(np.sqrt(np.sum(outside**2) / (count * (n - len(basis)))))


def choose_rows(rows: FloatArray, count: int) -> IntArray:
    """Return the indices of ``count`` rows that span best, by pivoted QR, sorted."""
    count = min(count, len(rows))
    _, order = scipy.linalg.qr(rows.T, mode="r", pivoting=True)
    chosen = np.asarray(order[: min(count, rows.shape[1])], dtype=np.intp)
    if len(chosen) < count:  # more rows than columns: fill up in order
        rest = np.setdiff1d(np.arange(len(rows)), chosen)
        chosen = np.concatenate([chosen, rest[: count - len(chosen)]])
    return np.sort(chosen)


def seen_again(seen: FloatArray, expected: FloatArray) -> BoolArray:
    """Whether a second measurement is nearer to the first than either is to nothing."""
    return np.asarray(np.abs(seen - expected) <= np.minimum(np.abs(seen), np.abs(expected)))


def largest_principal_angle(a: FloatArray, b: FloatArray) -> float:
    """Return the sine of the largest angle between two row spans of equal rank.

    Computed from the part of the orthonormal ``a`` that leaves ``b``, which
    keeps small angles that a cosine would lose (Björck & Golub 1973).
    """
    qa, qb = orthonormal(a), orthonormal(b)
    if len(qa) != len(qb):
        return 1.0
    if len(qa) == 0:
        return 0.0
    return min(1.0, float(np.linalg.norm(qa - (qa @ qb.T) @ qb, ord=2)))
