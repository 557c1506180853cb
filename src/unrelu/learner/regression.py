"""Least squares over ReLU features with bounded coefficients, equation (19)."""

from __future__ import annotations

import dataclasses
from functools import reduce

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import RARE
from unrelu.learner.neurons import Neurons, join_neurons

__all__ = ["bounded_least_squares", "distinct_rows", "fit_candidates", "relu_features"]


def relu_features(weights: FloatArray, biases: FloatArray, x: FloatArray) -> FloatArray:
    """Return ``(relu(<w_j, x> + b_j), x, 1)`` of Definition 4.12, ``(n, s + d + 1)``."""
    active = np.maximum(x @ weights.T + biases, 0.0)
    return np.concatenate([active, x, np.ones((len(x), 1))], axis=1)


def bounded_least_squares(z: FloatArray, y: FloatArray, bound: float) -> FloatArray:
    """Minimise ``|z v - y|`` over ``|v| <= bound``.

    Singular values below half of the digits of the largest one are left out: the
    features of near-duplicate neurons are nearly dependent.

    Parameters
    ----------
    z
        Features, ``(n, p)``.
    y
        Answers, ``(n, m)``; the bound holds for each column of v.

    Returns
    -------
    ndarray
        ``(p, m)``. Where the unconstrained solution is too long, the ridge
        whose solution has length ``bound``, found by halving in its logarithm.
    """
    left, values, right = np.linalg.svd(z, full_matrices=False)
    keep = values > np.sqrt(np.finfo(np.float64).eps) * values[0]
    left, values, right = left[:, keep], values[keep], right[keep]
    beta = left.T @ y
    out = np.empty((z.shape[1], y.shape[1]))
    for column in range(y.shape[1]):
        b = beta[:, column]
        coefficients = b / values
        if np.linalg.norm(coefficients) > bound:
            # Where the ridge is next to nothing, and where it leaves next to nothing.
            digits = np.log(np.finfo(np.float64).eps)
            low, high = 2.0 * np.log(values[-1]) + digits, 2.0 * np.log(values[0]) - digits
            while high - low > np.finfo(np.float64).eps * max(abs(low), abs(high), 1.0):
                middle = 0.5 * (low + high)
                if middle in (low, high):
                    break
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


def fit_candidates(
    candidates: list[Neurons], most: int, x: FloatArray, y: FloatArray, bound: float
) -> list[Neurons]:
    """Fit the neurons of several tries side by side, and an affine function.

    Parameters
    ----------
    most
        Neurons at most: the strongest that bend where samples lie.
    x, y
        Samples ``(n, d)`` and their answers ``(n, m)``.
    bound
        On the coefficients of neurons of unit norm, which are those neurons' strengths: R as
        seen on a line that misled is too large a bound.
    """
    everyone = reduce(join_neurons, candidates)
    norms = everyone.norms
    near = np.abs(everyone.biases) <= RARE * norms
    order = np.argsort(-np.where(near, everyone.strengths, -1.0), kind="stable")[:most]
    chosen = np.zeros(everyone.count, dtype=bool)
    chosen[order] = near[order]
    everyone = dataclasses.replace(
        everyone, weights=everyone.weights / norms[:, None], biases=everyone.biases / norms
    )
    fits = []
    for some in (everyone.kept(chosen), everyone.kept(np.zeros_like(chosen))):
        z = relu_features(some.weights, some.biases, x)
        v = bounded_least_squares(z, y, bound)
        k = some.count
        fits.append(dataclasses.replace(some, outputs=v[:k].T, linear=v[k:-1].T, constant=v[-1]))
    return [fit.without_broken() for fit in fits]
