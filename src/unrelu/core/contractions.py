"""Contractions of third and fourth moments with given vectors, where T4 itself is too large."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from unrelu._types import FloatArray
from unrelu.core.moments import HermiteMoments, pair_products, unpack_pairs

__all__ = ["contraction_slices", "contraction_sums"]

Array = Any  # an array of any namespace that array_api_compat knows


def contraction_sums(x: Array, y: Array, v: Array) -> tuple[Array, Array]:
    """Slices ``sum y (v.x) s`` and ``sum y (v.x)^2 s`` over one batch.

    Parameters
    ----------
    x, y
        Points ``(n, d)`` and labels ``(n,)``.
    v
        Directions, ``(q, d)``.

    Returns
    -------
    Two arrays ``(q, D)``: unpack with :func:`unpack_pairs`. One matrix product
    of shape (2q, n) by (n, D) serves both; the symmetry of ``x x^T`` halves the
    work of forming each slice on its own.
    """
    xp = array_namespace(x)
    along = v @ x.T
    weighted = along * y
    both = xp.concat([weighted, weighted * along], axis=0) @ pair_products(x)
    q = v.shape[0]
    return both[:q, :], both[q:, :]


def contraction_slices(
    slice3: FloatArray, slice4: FloatArray, v: FloatArray, low: HermiteMoments
) -> tuple[FloatArray, FloatArray]:
    """Hermite slices ``T3(v, ., .)`` and ``T4(v, v, ., .)`` from raw mean slices.

    Parameters
    ----------
    slice3, slice4
        Means of :func:`contraction_sums`, ``(q, D)``.
    v
        Directions, ``(q, d)``.
    low
        Hermite moments of order up to 2 of the same labels.

    Returns
    -------
    Two arrays ``(q, d, d)``.
    """
    d = low.input_dim
    eye = np.eye(d)
    r2 = low.t2 + low.t0 * eye
    raw3, raw4 = unpack_pairs(slice3, d), unpack_pairs(slice4, d)
    mixed = v[:, :, None] * low.t1
    t3 = raw3 - mixed - np.swapaxes(mixed, 1, 2) - (v @ low.t1)[:, None, None] * eye
    square = np.sum(v * v, axis=1)[:, None, None]
    along = v @ r2
    cross = v[:, :, None] * along[:, None, :]
    t4 = (
        raw4
        - square * r2
        - np.sum(along * v, axis=1)[:, None, None] * eye
        - 2.0 * (cross + np.swapaxes(cross, 1, 2))
        + low.t0 * (square * eye + 2.0 * v[:, :, None] * v[:, None, :])
    )
    return t3, t4
