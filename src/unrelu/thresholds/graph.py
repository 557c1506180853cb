"""Correlation graphs over the inputs, and their cliques (Goel & Panigrahy, Theorem 8)."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from unrelu._types import BoolArray, FloatArray, IntArray

__all__ = ["cliques", "normalised_correlations", "otsu_cut"]


def otsu_cut(values: FloatArray) -> tuple[float, float]:
    """Split numbers into two groups; return the cut and the gap around it.

    Otsu 1979: the cut maximises the variance between the groups. It lies in the
    middle of the gap between the two numbers next to it.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    m = len(ordered)
    if m < 2:
        raise ValueError("two numbers at least are needed to split them")
    sums = np.cumsum(ordered)
    low = np.arange(1, m)
    mean_low = sums[:-1] / low
    mean_high = (sums[-1] - sums[:-1]) / (m - low)
    between = low * (m - low) * (mean_high - mean_low) ** 2
    i = int(np.argmax(between))
    return float(0.5 * (ordered[i] + ordered[i + 1])), float(ordered[i + 1] - ordered[i])


def normalised_correlations(alpha: FloatArray, active: BoolArray) -> FloatArray:
    """``alpha_ij / sqrt(alpha_ii alpha_jj)`` over the active inputs, ``(a, a)``.

    With ``alpha_ij = E[f (x_i x_j - delta_ij)]`` two inputs of one unit have
    alpha_ij = alpha_ii = alpha_jj, whatever the unit's coefficient: their entry
    is 1, and those of inputs of different units are smaller.
    """
    part = alpha[np.ix_(active, active)]
    scale = np.sqrt(np.diag(part))
    return np.asarray(part / np.outer(scale, scale))


def cliques(edges: BoolArray) -> tuple[list[IntArray], int]:
    """Split a graph into connected components; count edges missing inside them.

    Where the supports are disjoint every component is a clique and the count is 0.
    """
    count, owner = scipy.sparse.csgraph.connected_components(
        scipy.sparse.csr_matrix(edges.astype(np.int8)), directed=False
    )
    groups = [np.flatnonzero(owner == c) for c in range(count)]
    missing = 0
    for group in groups:
        inside = edges[np.ix_(group, group)]
        size = len(group)
        missing += (size * (size - 1) - int(inside.sum() - np.trace(inside))) // 2
    return groups, missing
