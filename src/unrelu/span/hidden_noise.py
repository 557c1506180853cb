"""Noise that a network cannot see: projections onto a null space and a box."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray

__all__ = ["correlations", "project_to_box", "remove_span"]


def remove_span(z: FloatArray, basis: FloatArray) -> FloatArray:
    """Project rows of ``z`` ``(N, n)`` off the orthonormal rows of ``basis`` ``(r, n)``."""
    out = z - (z @ basis.T) @ basis
    return np.asarray(out - (out @ basis.T) @ basis)  # twice is enough


def project_to_box(
    x: FloatArray,
    target: FloatArray,
    basis: FloatArray,
    low: float,
    high: float,
    *,
    iterations: int,
    tolerance: float,
) -> tuple[FloatArray, int]:
    """Find the point nearest to ``target`` that the box and the network admit.

    For each row, alternate projections between the box [low, high]^n and the
    affine space x + null(basis). The first ``iterations`` carry Dykstra's
    correction for the box (Boyle & Dykstra 1986; an affine set needs none), so
    that they head for the nearest point of the intersection; as many
    plain ones at most (von Neumann) follow and close the gap between the two sets.
    Stops early when that gap is below ``tolerance`` in every row. Returns
    points inside the box, ``(N, n)``, and the number of iterations.
    """
    z = np.clip(target, low, high)
    correction = np.zeros_like(z)
    for _ in range(iterations):
        y = z - ((z - x) @ basis.T) @ basis + correction
        z = np.clip(y, low, high)
        correction = y - z
    left = np.arange(len(z))  # rows whose gap is still open
    for count in range(iterations):
        gap = ((z[left] - x[left]) @ basis.T) @ basis  # how far z lies off the affine space
        wide = np.abs(gap).max(axis=1, initial=0.0) > tolerance
        left, gap = left[wide], gap[wide]
        if len(left) == 0:
            return z, iterations + count
        z[left] = np.clip(z[left] - gap, low, high)
    return z, 2 * iterations


def correlations(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return Pearson's correlation of each row of ``a`` with that of ``b``, ``(N,)``."""
    u = a - a.mean(axis=1, keepdims=True)
    v = b - b.mean(axis=1, keepdims=True)
    scale = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return np.asarray(np.where(scale > 0, (u * v).sum(axis=1) / np.where(scale > 0, scale, 1), 0))
