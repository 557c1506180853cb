"""Simultaneous diagonalisation: two contractions (Jennrich), or many.

A tensor ``T = sum_i alpha_i u_i (x) u_i (x) v_i`` with independent u contracts
along its last mode to matrices ``U diag(.) U^T`` that share their factors.

References
----------
Harshman 1970 (Jennrich's algorithm); Ziehe, Laskov, Nolte & Mueller 2004, *A
fast algorithm for joint diagonalization with non-orthogonal transformations*.
"""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray

__all__ = ["jennrich", "joint_diagonalise", "leading_subspace"]

_MOST_ROUNDS = 3 * np.finfo(np.float64).bits
"""Of the joint diagonalisation, which converges linearly where matrices are noisy."""
_STILL = float(np.finfo(np.float64).eps) ** 0.75
"""Length of its step that ends it: between the half of the digits after which an exact one
squares what is left, and all of them, which rounding never lets it reach."""


def leading_subspace(matrix: FloatArray, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Left singular vectors with singular value above ``threshold``, and all values."""
    u, s, _ = np.linalg.svd(matrix, full_matrices=False)
    return u[:, : int(np.count_nonzero(s > threshold))], s


def jennrich(
    tensor: FloatArray, basis: FloatArray, rng: np.random.Generator, *, pairs: int = 1
) -> FloatArray:
    """Jennrich's algorithm on a tensor that is symmetric in its first two modes.

    Parameters
    ----------
    tensor
        ``(p, p, r)``.
    basis
        Orthonormal columns ``(p, k)`` that span the wanted vectors.
    rng
        Draws the two contraction vectors.
    pairs
        Draw so many pairs and keep the one whose eigenvalues are most real and
        furthest apart; 1 is the algorithm as published.

    Returns
    -------
    Unit rows ``(k, p)``: the vectors u_i, in no order, up to sign.
    """
    k = basis.shape[1]
    if k == 0:
        return np.empty((0, tensor.shape[0]))
    core = np.einsum("pqr,pa,qb->abr", tensor, basis, basis, optimize=True)
    best, score = np.eye(k), -np.inf
    for _ in range(pairs):
        first, second = (core @ v for v in rng.standard_normal((2, core.shape[2])))
        try:
            values, vectors = np.linalg.eig(first @ np.linalg.pinv(second))
        except np.linalg.LinAlgError:
            continue
        gaps = np.abs(values[:, None] - values[None, :]) + np.diag(np.full(k, np.inf))
        spread = np.abs(values).max() + 1e-300
        quality = float(gaps.min() / spread - np.abs(values.imag).max() / spread)
        if quality > score:
            best, score = _real_basis(vectors), quality
    rows = (basis @ best).T
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _real_basis(vectors: np.ndarray[tuple[int, ...], np.dtype[np.complexfloating]]) -> FloatArray:
    """Real parts; a complex pair gives the real and the imaginary part."""
    real = np.real(vectors).astype(np.float64).copy()
    imaginary = np.imag(vectors).astype(np.float64)
    twin = np.flatnonzero(np.linalg.norm(imaginary, axis=0) > 1e-12)
    for j in twin[1::2]:
        real[:, j] = imaginary[:, j]
    return real


def joint_diagonalise(matrices: FloatArray, start: FloatArray) -> FloatArray:
    """Rows ``A^T`` such that every matrix is nearly ``A diag(.) A^T``.

    Newton-like steps ``V <- (I + W) V`` that bring all off-diagonal entries of
    ``V M_k V^T`` down together (FFDIAG); unlike two contractions, many average
    the noise and do not depend on the luck of one pair.

    Parameters
    ----------
    matrices
        Symmetric, ``(K, r, r)``.
    start
        First guess of the rows of ``A^T``, ``(r, r)``, invertible.

    Returns
    -------
    Unit rows ``(r, r)``.
    """
    v = np.linalg.pinv(start.T)
    current = v @ matrices @ v.T
    r = matrices.shape[1]
    off = ~np.eye(r, dtype=bool)
    for _ in range(_MOST_ROUNDS):
        diagonal = np.diagonal(current, axis1=1, axis2=2)
        z = diagonal.T @ diagonal
        y = np.einsum("kj,kij->ij", diagonal, current)
        zii, zjj = np.diagonal(z)[:, None], np.diagonal(z)[None, :]
        determinant = zii * zjj - z**2
        determinant[~off] = 1.0
        floor = 1e-12 * float(np.abs(zii * zjj).max()) + 1e-300
        step = (z * y.T - zii * y) / np.maximum(determinant, floor)
        step[~off] = 0.0
        length = float(np.linalg.norm(step))
        if length > 0.9:
            step *= 0.9 / length
        update = np.eye(r) + step
        v = update @ v
        norms = np.linalg.norm(v, axis=1, keepdims=True)
        v /= norms
        current = (v @ matrices) @ v.T
        if length < _STILL:
            break
    rows = np.linalg.pinv(v).T
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
