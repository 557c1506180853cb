"""Which orientations of the units give the same function.

``a relu(z) = a relu(-z) + a z``: turning units round changes a network by an
affine function, ``sum over turned units of a_i (w_i.x + b_i)``. So orientations
are the solutions xi in {-1, 1}^m of one linear system of d + 1 equations,
``sum_i xi_i c_i = t`` with ``c_i = a_i (w_i, b_i) / 2``.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray
from unrelu.core.memory import BLOCK

__all__ = ["SignPatterns", "sign_patterns"]


@dataclasses.dataclass(frozen=True)
class SignPatterns:
    """Orientations, best first.

    Attributes
    ----------
    patterns
        ``(q, m)`` of +1 and -1.
    remainders
        ``|C xi - t|`` of each, ``(q,)``.
    complete
        Whether every orientation was looked at; if not, ``patterns`` holds one
        that rounds the least-squares solution.
    """

    patterns: FloatArray
    remainders: FloatArray
    complete: bool


def sign_patterns(columns: FloatArray, target: FloatArray, *, keep: int) -> SignPatterns:
    """Find the xi in {-1, 1}^m that bring ``columns @ xi`` nearest to ``target``.

    Parameters
    ----------
    columns
        ``(k, m)``, one column per unit.
    target
        ``(k,)``.
    keep
        Return at most this many.

    Notes
    -----
    With r the rank, r units follow from the other m - r, whose 2^(m-r) patterns
    are enumerated, where they are fewer than a block of memory has numbers: that takes a few
    seconds. An exact solution is never missed; inexact ones are rounded.
    """
    m = columns.shape[1]
    if columns.size == 0:  # nothing to choose, or nothing to choose by
        return SignPatterns(np.ones((1, m)), np.array([float(np.linalg.norm(target))]), True)
    _, triangle, order = scipy.linalg.qr(columns, mode="economic", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int(np.count_nonzero(diagonal > 1e-10 * max(diagonal[0], 1e-300)))
    bound, free = np.sort(order[:rank]), np.sort(order[rank:])
    complete = len(free) < math.log2(BLOCK)
    inverse = np.linalg.pinv(columns[:, bound])
    if not complete:
        rounded = np.where(np.linalg.pinv(columns) @ target < 0.0, -1.0, 1.0)
        left = float(np.linalg.norm(columns @ rounded - target))
        return SignPatterns(rounded[None, :], np.array([left]), False)
    best = np.empty((0, m))
    scores = np.empty(0)
    total = 1 << len(free)
    rows = max(1, BLOCK // (m * len(target)))
    for start in range(0, total, rows):
        codes = np.arange(start, min(start + rows, total))
        bits = (codes[:, None] >> np.arange(len(free))) & 1
        xi = np.empty((len(codes), m))
        xi[:, free] = 1.0 - 2.0 * bits
        solved = (target - xi[:, free] @ columns[:, free].T) @ inverse.T
        xi[:, bound] = np.where(solved < 0.0, -1.0, 1.0)
        score = np.linalg.norm(xi @ columns.T - target, axis=1)
        best = np.concatenate([best, xi])
        scores = np.concatenate([scores, score])
        top = np.argsort(scores, kind="stable")[:keep]
        best, scores = best[top], scores[top]
    return SignPatterns(best, scores, True)
