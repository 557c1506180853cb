r"""Least squares for the gradients of units whose gates are known.

At a point x where the gates ``on_j(x)`` are known, the derivative of a depth-2
network along any direction q is linear in the derivatives of its parts:

.. math:: \partial_q f(x) = A q + \sum_j on_j(x) \, u_j \, \langle w_j, q \rangle

With the ``u_j`` known, the unknowns ``theta = (A q, <w_1, q>, ..., <w_k, q>)``
are the same numbers in every measured gradient, and their covariance is the
same for every direction q. So one small matrix of size m + k tells how well
everything is known, where to measure next, and what a new gradient changes.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.linalg

from unrelu._types import BoolArray, FloatArray, IntArray

__all__ = [
    "DENSE",
    "choose_points",
    "combine",
    "design_rows",
    "refit_outputs",
    "select_pieces",
    "solve_pieces",
    "split_gaps",
    "update",
]


DENSE = 700
"""Unknowns up to which matrices of their size are factored at will: a covariance is updated in
the form that cannot lose positivity, pieces are chosen one by one."""


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


def split_gaps(chosen: IntArray, outputs: FloatArray, std: FloatArray) -> IntArray:
    """Add pieces until the units between neighbouring ones have independent outputs.

    Gradients differ by ``sum u_j w_j`` over the units between them, which tells all ``w_j`` if
    the ``u_j`` are independent: not those of more units than outputs, nor of the two kinks of
    one clipped unit, which are opposite. Such a gap is split at its most precise piece. Errors
    grow by the outputs' condition: it may cost a quarter of the digits.

    Parameters
    ----------
    chosen
        Pieces whose gradients are measured, in the order of the line.
    outputs
        ``u_j`` of unit length in columns, ``(m, k)``.
    std
        Deviation that a gradient would have, ``(k + 1, m)``.
    """
    least = np.finfo(np.float64).eps ** 0.25
    open_, done = [(int(a), int(b)) for a, b in itertools.pairwise(chosen)], set(chosen)
    while open_:
        first, last = open_.pop()
        if last - first < 2:
            continue
        values = np.linalg.svd(outputs[:, first:last], compute_uv=False)
        if last - first > len(values) or values[-1] < least * values[0]:
            middle = first + 1 + int(np.argmin(std[first + 1 : last].max(axis=1)))
            done.add(middle)
            open_ += [(first, middle), (middle, last)]
    return np.array(sorted(done))


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


def refit_outputs(
    on: BoolArray,
    gradients: FloatArray,
    std: FloatArray,
    weights: FloatArray,
    jumps: FloatArray,
    jump_var: FloatArray,
    speed: FloatArray,
) -> FloatArray:
    """Least squares for the output vectors, with the hidden directions known.

    The jumps of slope on the line, ``u_j <w_j, v>``, say what ``u_j`` is; the
    changes of gradient between measured pieces, ``sum u_j w_j`` over the units
    between them, say it d times over.

    Parameters
    ----------
    on, gradients, std
        Gates ``(p, k)``, gradients ``(p, m, n)`` and deviations ``(p, m)`` of
        the measured pieces, in the order of the line.
    weights
        ``w_j`` in the measured directions, ``(k, n)``.
    jumps, jump_var, speed
        On the line, ``(k, m)``, ``(k, m)``, ``(k,)``.

    Returns
    -------
    ``u_j`` in columns, ``(m, k)``.
    """
    p, m, n = gradients.shape
    k = len(weights)
    between = on[1:] & ~on[:-1]
    change = np.diff(gradients, axis=0)
    outputs = np.empty((m, k))
    blocks = (between[:, None, :] * weights.T).reshape((p - 1) * n, k)
    for o in range(m):
        spread = np.sqrt(std[1:, o] ** 2 + std[:-1, o] ** 2).repeat(n)
        rows = np.concatenate([blocks / spread[:, None], np.diag(speed / np.sqrt(jump_var[:, o]))])
        right = np.concatenate(
            [change[:, o].ravel() / spread, jumps[:, o] / np.sqrt(jump_var[:, o])]
        )
        level = np.sqrt((rows**2).sum(axis=0))
        u = np.linalg.lstsq(rows / level, right, rcond=None)[0] / level
        outputs[o] = u
    return outputs


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
    moved = 1e8 * scaled  # rows times their covariance
    chosen: list[int] = []
    open_ = np.ones(p, dtype=bool)
    for _ in range(wanted):
        blocks = np.eye(m) + moved @ scaled.transpose(0, 2, 1)
        gain = np.linalg.slogdet(blocks)[1]
        best = int(np.argmax(np.where(open_, gain, -np.inf)))
        chosen.append(best)
        open_[best] = False
        factor = np.linalg.solve(blocks[best], moved[best])
        moved = moved - (moved @ scaled[best].T) @ factor
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
        Design rows, ``(c, m, s)``.
    variances
        Variance that a gradient measured there would have, ``(c, m)``.
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
    c, m, size = candidates.shape
    rows = candidates.reshape(c * m, size)
    extra = variances.reshape(c * m)
    moved = rows @ covariance
    between = moved @ rows.T
    mixed = tests @ moved.T
    own = np.einsum("ns,ns->n", tests @ covariance, tests)
    course = [float(own.mean())]
    chosen: list[int] = []
    while len(chosen) < limit and course[-1] > goal:
        spread = np.maximum(np.diagonal(between), 0.0) + extra
        gain = ((mixed**2).mean(axis=0) / spread).reshape(c, m).sum(axis=1)
        best = int(np.argmax(gain))
        for row in range(best * m, best * m + m):
            scale = max(float(between[row, row]), 0.0) + float(extra[row])
            pivot = between[row] / scale
            own = own - mixed[:, row] ** 2 / scale
            mixed = mixed - np.multiply.outer(mixed[:, row], pivot)
            between = between - np.multiply.outer(between[:, row], pivot)
        chosen.append(best)
        course.append(float(max(own.mean(), 0.0)))
    return np.array(chosen, dtype=np.intp), np.array(course)


def update(
    covariance: FloatArray, rows: FloatArray, deviations: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Take new gradients in (the step of a Kalman filter).

    Parameters
    ----------
    covariance
        Of theta, ``(s, s)``.
    rows, deviations, variances
        Design rows ``(r, s)``, measured less predicted gradients ``(r, n)``,
        and the variances of the measured ones ``(r,)``.

    Returns
    -------
    change, covariance
        What to add to theta, ``(s, n)``, and its new covariance.
    """
    scale = 1.0 / np.sqrt(variances)
    rows, deviations = rows * scale[:, None], deviations * scale[:, None]
    if len(covariance) <= DENSE:
        # With P = L L', the new covariance is L (I + L' R' R L)^-1 L': nothing cancels.
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        known = rows @ root
        # By eigenvalues: next to a hardly known unit the others are lost in rounding, and a
        # plain inverse would find the matrix singular.
        values, vectors = np.linalg.eigh(known.T @ known)
        half = root @ (vectors / np.sqrt(1.0 + np.maximum(values, 0.0)))
        covariance = half @ half.T
        return covariance @ (rows.T @ deviations), 0.5 * (covariance + covariance.T)
    moved = rows @ covariance
    gram = moved @ rows.T
    values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
    inverse = (vectors / (1.0 + np.maximum(values, 0.0))) @ vectors.T
    change = moved.T @ (inverse @ deviations)
    covariance = covariance - moved.T @ inverse @ moved
    return change, 0.5 * (covariance + covariance.T)
