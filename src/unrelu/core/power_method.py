"""Rank-one terms inside a subspace of symmetric matrices.

The subspace power method looks for unit w whose ``w w^T`` lies in a given
subspace: it climbs ``F(w) = ||P vec(w w^T)||^2``, P the projection, which is at
most one, with equality exactly at the wanted directions. It needs no more than
that the ``w_i w_i^T`` are linearly independent, so it finds more directions
than inputs, up to about d(d-1)/2.

References
----------
Kileel & Pereira 2019, *Subspace power method for symmetric tensor
decomposition* (arXiv:1912.04007).
"""

from __future__ import annotations

import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.moments import pair_index, pair_products, unpack_pairs

__all__ = ["distinct_directions", "isometric_squares", "subspace_power_method"]


def isometric_squares(w: FloatArray) -> FloatArray:
    """Coordinates of ``w_i w_i^T`` in which the Frobenius norm is Euclidean.

    ``(m, d)`` to ``(m, D)``; off-diagonal pairs carry a factor sqrt 2.
    """
    rows, cols = pair_index(w.shape[1])
    return np.asarray(pair_products(w) * np.where(rows == cols, 1.0, math.sqrt(2.0)))


def subspace_power_method(
    basis: FloatArray, starts: FloatArray, *, steps: int
) -> tuple[FloatArray, FloatArray]:
    """Climb ``F(w) = ||basis^T vec(w w^T)||^2`` from every start at once.

    Parameters
    ----------
    basis
        Orthonormal columns ``(D, k)`` in :func:`isometric_squares` coordinates.
    starts
        Unit rows ``(L, d)``.
    steps
        At most this many ``w <- normalise(grad F(w)/4)``; a start whose step is shorter than
        the root of float64's resolution is at rest.

    Returns
    -------
    Unit rows ``(L, d)`` and their values of F, ``(L,)``.
    """
    w = starts.copy()
    rows, cols = pair_index(w.shape[1])
    unweight = np.where(rows == cols, 1.0, math.sqrt(0.5))
    moving = np.arange(len(w))
    value = np.zeros(len(w))
    rest = math.sqrt(float(np.finfo(np.float64).eps))
    for _ in range(steps):
        current = w[moving]
        projected = isometric_squares(current) @ basis @ basis.T
        matrices = unpack_pairs(projected * unweight, w.shape[1])
        gradient = np.einsum("lij,lj->li", matrices, current)
        value[moving] = np.einsum("li,li->l", gradient, current)
        updated = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
        w[moving] = updated
        moving = moving[np.linalg.norm(updated - current, axis=1) > rest]
        if len(moving) == 0:
            break
    return w, value


def distinct_directions(
    w: FloatArray, score: FloatArray, *, count: int, cosine: float
) -> FloatArray:
    """Best-scoring rows of which no two have ``|cos|`` above ``cosine``.

    Returns at most ``count`` indices into ``w``, best first.
    """
    chosen: list[int] = []
    for i in np.argsort(-score, kind="stable"):
        if len(chosen) == count:
            break
        if not chosen or np.max(np.abs(w[chosen] @ w[i])) < cosine:
            chosen.append(int(i))
    return np.asarray(chosen, dtype=np.intp)
