"""Least squares for the gradients of units whose gates are known.

At a point x where the gates ``on_j(x)`` are known, the derivative of a depth-2
network along any direction q is linear in the derivatives of its parts:

.. math:: \\partial_q f(x) = A q + \\sum_j on_j(x) \\, u_j \\, \\langle w_j, q \\rangle

With the ``u_j`` known, the unknowns ``theta = (A q, <w_1, q>, ..., <w_k, q>)``
are the same numbers in every measured gradient, and their covariance is the
same for every direction q. So one small matrix of size m + k tells how well
everything is known, where to measure next, and what a new gradient changes.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from unrelu._types import BoolArray, FloatArray, IntArray

__all__ = ["choose_points", "combine", "design_rows", "select_pieces", "solve_pieces", "update"]


def design_rows(on: BoolArray, outputs: FloatArray) -> FloatArray:
    """Return the rows that map theta to gradients, ``(n, m, m + k)``.

    Parameters
    ----------
    on
        Gates at n points, ``(n, k)``.
    outputs
        ``u_j`` in columns, ``(m, k)``.
    """
    n, k = on.shape
    m = len(outputs)
    rows = np.zeros((n, m, m + k))
    rows[:, np.arange(m), np.arange(m)] = 1.0
    rows[:, :, m:] = on[:, None, :] * outputs
    return rows


def solve_pieces(
    gradients: FloatArray, std: FloatArray, outputs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Differences between successive pieces of a line, for a scalar function.

    Parameters
    ----------
    gradients
        On the k + 1 pieces, ``(k + 1, n)``; unit j turns on between j and j + 1.
    std
        One standard deviation per piece, ``(k + 1,)``.
    outputs
        Signs, ``(1, k)``.

    Returns
    -------
    theta, covariance
        Shapes ``(1 + k, n)`` and ``(1 + k, 1 + k)``; the covariance is
        tridiagonal, as neighbouring units share a gradient.
    """
    k = outputs.shape[1]
    theta = np.concatenate([gradients[:1], outputs.T * np.diff(gradients, axis=0)])
    variance = std**2
    covariance = np.zeros((1 + k, 1 + k))
    index = np.arange(1, 1 + k)
    covariance[0, 0] = variance[0]
    covariance[index, index] = variance[:-1] + variance[1:]
    if k:
        covariance[0, 1] = covariance[1, 0] = -outputs[0, 0] * variance[0]
        cross = -outputs[0, :-1] * outputs[0, 1:] * variance[1:-1]
        covariance[index[:-1], index[1:]] = covariance[index[1:], index[:-1]] = cross
    return theta, covariance


def combine(
    rows: FloatArray, gradients: FloatArray, std: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weighted least squares over measured gradients.

    Parameters
    ----------
    rows
        ``(p, m, m + k)``, of :func:`design_rows`.
    gradients
        ``(p, m, n)``.
    std
        ``(p, m)``.

    Returns
    -------
    theta, covariance
        Shapes ``(m + k, n)`` and ``(m + k, m + k)``.
    """
    size = rows.shape[2]
    scaled = (rows / std[:, :, None]).reshape(-1, size)
    right = (gradients / std[:, :, None]).reshape(len(scaled), -1)
    # Columns of very different size (loud and quiet units) are levelled first.
    level = np.sqrt((scaled**2).sum(axis=0))
    level[level == 0] = 1.0
    q, r = np.linalg.qr(scaled / level)
    theta = scipy.linalg.solve_triangular(r, q.T @ right) / level[:, None]
    inverse = scipy.linalg.solve_triangular(r, np.eye(size)) / level[:, None]
    return theta, inverse @ inverse.T


def select_pieces(rows: FloatArray, std: FloatArray, surplus: float) -> IntArray:
    """Choose few gradients that determine all unknowns well.

    Greedy D-optimal design: each gradient added is the one that raises the
    determinant of the information matrix most; it stops with ``surplus`` times
    as many equations as unknowns, or with all pieces.

    Parameters
    ----------
    rows, std
        As in :func:`combine`, for all candidates.
    """
    p, m, size = rows.shape
    wanted = min(p, int(np.ceil(surplus * size / m)) + 1)
    scaled = rows / std[:, :, None]
    # A weak prior makes the first steps well defined.
    level = np.sqrt((scaled**2).sum(axis=(0, 1)) / p)
    level[level == 0] = 1.0
    scaled = scaled / level
    covariance = 1e8 * np.eye(size)
    chosen: list[int] = []
    open_ = np.ones(p, dtype=bool)
    for _ in range(wanted):
        moved = scaled @ covariance
        blocks = np.eye(m) + moved @ scaled.transpose(0, 2, 1)
        gain = np.linalg.slogdet(blocks)[1]
        best = int(np.argmax(np.where(open_, gain, -np.inf)))
        chosen.append(best)
        open_[best] = False
        factor = np.linalg.solve(blocks[best], moved[best])
        covariance -= moved[best].T @ factor
        covariance = 0.5 * (covariance + covariance.T)
    return np.sort(np.array(chosen))


def choose_points(
    candidates: FloatArray,
    variances: FloatArray,
    tests: FloatArray,
    covariance: FloatArray,
    limit: int,
    goal: float,
) -> tuple[IntArray, FloatArray]:
    """Choose where to measure gradients so that predictions improve most.

    Greedy: each choice lowers the mean variance over the tests most.

    Parameters
    ----------
    candidates
        Design rows of one output each, ``(c, s)``.
    variances
        Variance that a gradient measured there would have, ``(c,)``.
    tests
        Design rows where predictions matter, ``(n, s)``.
    covariance
        Of theta, ``(s, s)``.
    limit, goal
        Stop at so many points, or at this mean variance.

    Returns
    -------
    chosen, course
        Candidates in order of choice (repeats possible), and the mean variance
        before each choice and after the last, ``(len(chosen) + 1,)``.
    """
    moved = candidates @ covariance
    between = moved @ candidates.T
    mixed = tests @ moved.T
    own = np.einsum("ns,ns->n", tests @ covariance, tests)
    course = [float(own.mean())]
    chosen: list[int] = []
    while len(chosen) < limit and course[-1] > goal:
        spread = np.diagonal(between) + variances
        gain = (mixed**2).mean(axis=0) / spread
        best = int(np.argmax(gain))
        own = own - mixed[:, best] ** 2 / spread[best]
        mixed = mixed - np.multiply.outer(mixed[:, best], between[best] / spread[best])
        between = between - np.multiply.outer(between[:, best], between[best] / spread[best])
        chosen.append(best)
        course.append(float(max(own.mean(), 0.0)))
    return np.array(chosen, dtype=np.intp), np.array(course)


def update(
    theta: FloatArray,
    covariance: FloatArray,
    rows: FloatArray,
    gradients: FloatArray,
    variances: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Take new gradients in (the step of a Kalman filter).

    Parameters
    ----------
    theta, covariance
        Shapes ``(s, n)`` and ``(s, s)``.
    rows, gradients, variances
        Shapes ``(r, s)``, ``(r, n)`` and ``(r,)``.
    """
    moved = rows @ covariance
    inner = moved @ rows.T
    inner[np.diag_indices(len(inner))] += variances
    factor = scipy.linalg.cho_factor(inner, lower=True)
    correction = scipy.linalg.cho_solve(factor, gradients - rows @ theta)
    theta = theta + moved.T @ correction
    covariance = covariance - moved.T @ scipy.linalg.cho_solve(factor, moved)
    return theta, 0.5 * (covariance + covariance.T)
