"""Formulas of Goel & Panigrahy as printed: Lemma 1, Algorithm 3, the objective of Theorem 9.

Lemma 1's bound is met with equality by orthogonal units and exceeded by those at acute angles
(16 times by two at 60 degrees and t = 4): its proof splits off one unit's Gaussian factor whole,
where only that of the largest singular value is left to each. :func:`together_bound` has the bound
that the proof gives; sums over products stay small beside single units all the same.

Section 4 in practice is :mod:`unrelu.thresholds.structured_layers`, whose head says why: Algorithm
3 compares E[f x_i x_j] with rho, the activation's own number, which separates supports only
where the coefficients of f happen to have that scale; Theorem 9's objective has no maximum.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray

__all__ = [
    "construct_correlation_graph",
    "correlations_of",
    "exponential_objective",
    "lemma_one",
    "together_bound",
]


def lemma_one(directions: FloatArray, t: float) -> float:
    """``rho(t, 1) (kappa rho(t, |W|))^(|S| - 1)``: Lemma 1 of sign units, as printed.

    Parameters
    ----------
    directions
        Unit rows ``(|S|, n)``; rho(t, s) is the chance that N(0, s^2) exceeds t (Lemma 11).
    """
    values = np.linalg.svd(directions, compute_uv=False)
    each = float(values[0] / values[-1]) * _tail(t, float(values[0]))
    return float(_tail(t, 1.0) * each ** (len(directions) - 1))


def together_bound(directions: FloatArray, t: float) -> float:
    """``(|W| rho(t, |W|))^|S| / det(W W')^(1/2)``: sign units are on together at most so often."""
    values = np.linalg.svd(directions, compute_uv=False)
    each = float(values[0]) * _tail(t, float(values[0]))
    return float(each ** len(directions) / np.prod(values))


def _tail(t: float, spread: float) -> float:
    return float(scipy.special.ndtr(-t / spread))


def construct_correlation_graph(x: FloatArray, y: FloatArray, rho: float) -> BoolArray:
    """Algorithm 3, ConstructCorrelationGraph: edges between inputs, ``(n, n)``.

    Parameters
    ----------
    x, y
        Samples ``(m, n)`` and ``(m,)``.
    rho
        Of the activation ``exp(rho (a - t))``, and the least correlation of an edge.
    """
    n = x.shape[1]
    edges = np.zeros((n, n), dtype=bool)  # line 1
    alpha = (x * y[:, None]).T @ x / len(x)  # line 3
    for i in range(n):  # line 2
        for j in range(i + 1, n):
            if alpha[i, j] >= rho:  # line 4
                edges[i, j] = edges[j, i] = True  # lines 5 to 7
    return edges


def correlations_of(
    supports: FloatArray, coefficients: Mapping[tuple[int, ...], float], rho: float, t: float
) -> FloatArray:
    """``E[f x_i x_j]``, i and j different, in closed form (D.1); ``(n, n)``, its diagonal 0.

    Parameters
    ----------
    supports
        Rows of zeros and ones, disjoint or not, ``(k, n)``.
    coefficients
        c_S of f = sum_S c_S prod_{p in S} exp(rho (w_p . x - t)), by the units of S.
    """
    n = supports.shape[1]
    total = np.zeros((n, n))
    for chosen, c in coefficients.items():
        union = supports[list(chosen)].any(axis=0)
        size = np.exp(-rho * t * len(chosen) + rho**2 * np.count_nonzero(union) / 2.0)
        total += c * rho**2 * size * np.outer(union, union)
    return np.asarray(total - np.diag(np.diag(total)))


def exponential_objective(
    x: FloatArray, y: FloatArray, z: FloatArray, *, penalty: float, gamma: float
) -> float:
    """``h(z) = exp(-|z|^2 / 2) E[f exp(z . x)] - lambda |z|_1 - gamma |z|^2`` of D.2.

    For f = sum_S c_S prod exp(w_i . x) the first term is ``sum_S c_S prod exp(1/2 + z_p)`` over
    the inputs p of S: it outgrows both penalties, so what D.2 calls maxima are saddles.

    Parameters
    ----------
    x, y, z
        Samples ``(m, n)`` and ``(m,)``; a point ``(n,)``.
    penalty, gamma
        The paper's lambda and gamma.
    """
    first = float(np.exp(-0.5 * z @ z) * np.mean(y * np.exp(x @ z)))
    return first - penalty * float(np.abs(z).sum()) - gamma * float(z @ z)
