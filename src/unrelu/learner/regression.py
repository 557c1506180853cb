"""Least squares over ReLU features with bounded coefficients, equation (19)."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray

__all__ = ["bounded_least_squares", "distinct_rows", "relu_features"]


def relu_features(weights: FloatArray, biases: FloatArray, x: FloatArray) -> FloatArray:
    """Return ``(relu(<w_j, x> + b_j), x, 1)`` of Definition 4.12, ``(n, s + d + 1)``."""
    active = np.maximum(x @ weights.T + biases, 0.0)
    return np.concatenate([active, x, np.ones((len(x), 1))], axis=1)


def bounded_least_squares(
    z: FloatArray, y: FloatArray, bound: float, *, rcond: float = 1e-10
) -> FloatArray:
    """Minimise ``|z v - y|`` over ``|v| <= bound``.

    Parameters
    ----------
    z
        Features, ``(n, p)``.
    y
        Answers, ``(n, m)``; the bound holds for each column of v.
    rcond
        Singular values below this part of the largest one are left out: the
        features of near-duplicate neurons are nearly dependent.

    Returns
    -------
    ndarray
        ``(p, m)``. Where the unconstrained solution is too long, the ridge
        whose solution has length ``bound``, found by halving in its logarithm.
    """
    left, values, right = np.linalg.svd(z, full_matrices=False)
    keep = values > rcond * values[0]
    left, values, right = left[:, keep], values[keep], right[keep]
    beta = left.T @ y
    out = np.empty((z.shape[1], y.shape[1]))
    for column in range(y.shape[1]):
        b = beta[:, column]
        coefficients = b / values
        if np.linalg.norm(coefficients) > bound:
            low, high = 2.0 * np.log(values[-1]) - 40.0, 2.0 * np.log(values[0]) + 40.0
            for _ in range(80):
                middle = 0.5 * (low + high)
                coefficients = b * values / (values**2 + np.exp(middle))
                if np.linalg.norm(coefficients) > bound:
                    low = middle
                else:
                    high = middle
            coefficients = b * values / (values**2 + np.exp(high))
        out[:, column] = right.T @ coefficients
    return out


def distinct_rows(rows: FloatArray, tolerance: float) -> FloatArray:
    """Keep one of each set of rows that agree within a tolerance, ``(s, p)``.

    GETNEURONS lists the same difference once for every pair of intervals in
    the same two pieces.
    """
    if len(rows) == 0:
        return rows
    order = np.lexsort(np.round(rows / tolerance).T[::-1])
    ordered = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (np.abs(np.diff(ordered, axis=0)) > tolerance).any(axis=1)
    kept = ordered[new]
    # Rounding may have split neighbours: compare what is left, one against the others.
    out: list[FloatArray] = []
    for row in kept:
        if not out or np.abs(np.array(out) - row).max(axis=1).min() > tolerance:
            out.append(row)
    return np.array(out)
