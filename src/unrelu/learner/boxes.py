"""Algorithms 1 to 4 of Chen, Klivans & Meka as printed, for small networks.

The names follow the boxes: GETBIAS, GETGRADIENT, GETNEURONS, LEARNFROMQUERIES.

Where the letter is open, inconsistent or does not work, and what is done here
-------------------------------------------------------------------------------
- x0 (line 12 of GETNEURONS): ``b_L(I)`` of Definition 4.5 is the intercept at t = 0, that is
  at x0, and the proof of Theorem 4.8 reads it as the bias. That holds for x0 = 0 alone; in
  space the piece is ``g.x + (b_L - g.x0)``, so ``g.x0`` is taken off.
- tau (13): printed without B and with the second term free of 1 / delta, although the first
  line of the proof of Lemma 4.3 has ``(B + |w_i| sqrt(log(k/delta))) / (delta |w_i|)``. The
  proof's is used. (13) depends on an ``|w_i|``: the least that matters, epsilon / k (proof of
  Theorem 4.8), or what the caller knows.
- Delta (line 3): P is any polynomial of k, R, B and log(1/delta). Here k R, the least that
  makes Delta a number without units.
- W (19): printed ``sqrt(tau / r) + k (R + B)``, where (21) has ``|S|^(1/2) + k (R + B)`` and S
  has m (m - 1) members, not tau / r. (21) is used, with S as it is after doubles are removed.
- Doubles (line 14): all pairs of m intervals in k + 1 pieces repeat the same differences some
  (m / k)^2 times. One of each is kept: as many columns of least squares that agree would
  share one coefficient.
- z_j (line 2 of GETGRADIENT): drawn once, and shared by all points. Lemma 4.9 asks for no
  more than linear independence, and one factorisation serves all.
- d + 1 queries a gradient and 3 a bias, where Lemma 4.9 counts d: F(x) is one of them, and
  GETBIAS asks for it again.
- Bounds (14) are widened by the rounding of a difference, so that no exact neuron is lost.
- Signs: ``relu(<w, x> + b)``, as everywhere here, for the paper's ``relu(<w, x> - b)``.
- n (line 2 of LEARNFROMQUERIES, a polynomial in the paper): ``each`` samples a coefficient.
  Least squares leaves out singular values below half of float64's digits.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.learner.config import FaithfulConstants
from unrelu.learner.formulas import (
    coefficient_bound,
    gradient_step,
    interval_length,
    neuron_bounds,
    search_range,
    separation,
)
from unrelu.learner.regression import bounded_least_squares, distinct_rows, relu_features
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle

__all__ = [
    "FaithfulBounds",
    "FaithfulPlan",
    "get_bias",
    "get_gradient",
    "get_neurons",
    "learn_from_queries_as_printed",
    "plan_faithful",
]


@dataclasses.dataclass(frozen=True)
class FaithfulBounds:
    """k, R and B of Theorem 1.1, and the least ``|w_i|`` that tau must reach."""

    width: int
    norm: float
    bias: float
    smallest: float


@dataclasses.dataclass(frozen=True)
class FaithfulPlan:
    """What the formulas give: Delta, r, tau, alpha, the intervals and the queries."""

    separation: float
    interval: float
    range: float
    step: float
    intervals: int
    queries: int


def plan_faithful(
    epsilon: float, delta: float, d: int, bounds: FaithfulBounds, constants: FaithfulConstants
) -> FaithfulPlan:
    """Lines 3 to 6 of GETNEURONS; the queries are those of its loop."""
    gap = separation(epsilon, bounds.width, bounds.norm, constants)
    r = interval_length(gap, delta, bounds.width, d, constants)
    tau = search_range(r, delta, bounds.width, d, bounds.smallest, bounds.bias, constants)
    alpha = gradient_step(r, delta, bounds.width, d)
    count = 2.0 * tau / r
    if not math.isfinite(count) or count * np.finfo(np.float64).eps > 1.0:
        raise InvalidInput(
            f"the paper's formulas ask for {count:.2g} intervals; relax `constants`, raise "
            "epsilon, or leave `faithful` off"
        )
    intervals = max(2, math.ceil(count))
    return FaithfulPlan(gap, r, tau, alpha, intervals, intervals * (d + 4))


def get_bias(
    oracle: Oracle, base: FloatArray, direction: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """GETBIAS(L, I), Algorithm 1, for many intervals ``[low_i, high_i]`` at once.

    Returns
    -------
    ndarray
        The y-intercepts ``b_L(I)``, ``(n, m)``.
    """
    middle = 0.5 * (low + high)  # line 1
    t = np.concatenate([middle, low, high])
    y0, at_low, at_high = np.split(oracle(base + np.outer(t, direction)), 3)  # line 2
    s = (at_high - at_low) / (high - low)[:, None]  # line 3
    return np.asarray(y0 - s * middle[:, None])  # line 4


def get_gradient(
    oracle: Oracle, x: FloatArray, alpha: float, rng: np.random.Generator
) -> FloatArray:
    """GETGRADIENT(x, alpha), Algorithm 2, for many points ``(n, d)`` at once.

    Returns
    -------
    ndarray
        ``(n, m, d)``.
    """
    n, d = x.shape
    z = rng.standard_normal((d, d))  # lines 1 and 2: unit vectors, here the same for every x
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    points = np.concatenate([x[:, None, :], x[:, None, :] + alpha * z], axis=1)
    y = oracle(points.reshape(-1, d)).reshape(n, d + 1, -1)
    v = (y[:, 1:] - y[:, :1]) / alpha  # line 3
    w = np.linalg.solve(z, v.transpose(1, 0, 2).reshape(d, -1))  # line 4
    return np.asarray(w.reshape(d, n, -1).transpose(1, 2, 0))  # line 5


def get_neurons(
    oracle: Oracle,
    epsilon: float,
    delta: float,
    *,
    bounds: FaithfulBounds,
    constants: FaithfulConstants,
    rng: np.random.Generator,
    most: int,
) -> tuple[FloatArray, FloatArray, FaithfulPlan]:
    """GETNEURONS(epsilon, delta), Algorithm 3, for a scalar function.

    Parameters
    ----------
    most
        More queries than this are refused, with the count that the formulas ask for.

    Returns
    -------
    weights, biases, plan
        The list S, as ``relu(<w, x> + b)``: ``(s, d)`` and ``(s,)``.
    """
    d = oracle.input_dim
    plan = plan_faithful(epsilon, delta, d, bounds, constants)  # lines 3-5
    if plan.queries > most:
        raise InvalidInput(
            f"the paper's formulas ask for {plan.intervals:,} intervals and "
            f"{plan.queries:,} queries, over the limit of {most:,}; relax "
            "`constants`, raise epsilon, or leave `faithful` off"
        )
    x0 = rng.standard_normal(d)  # line 2, Definition 4.1
    v = rng.standard_normal(d)
    v /= np.linalg.norm(v)
    edges = np.linspace(-plan.range, plan.range, plan.intervals + 1)  # line 6
    low, high = edges[:-1], edges[1:]
    centers = x0 + np.outer(0.5 * (low + high), v)  # lines 7 and 8, all j at once
    gradients = get_gradient(oracle, centers, plan.step, rng)[:, 0]  # line 9
    intercepts = get_bias(oracle, x0, v, low, high)[:, 0]  # line 10
    # The paper writes neurons relative to x0 = 0 on the line; in space the affine piece
    # with gradient g and intercept b at t = 0 is g.x + (b - g.x0).
    pieces = np.column_stack([gradients, intercepts - gradients @ x0])
    # Rounding of answers as large as the range, over a step; half of the digits left are taken.
    rounding = np.finfo(np.float64).eps * plan.range / plan.step
    same = math.sqrt(rounding) * max(float(np.abs(pieces).max()), np.finfo(np.float64).tiny)
    pieces = distinct_rows(pieces, same)
    i, j = np.nonzero(~np.eye(len(pieces), dtype=bool))  # line 11: ordered pairs
    neurons = pieces[i] - pieces[j]  # line 12
    norm, bias = neuron_bounds(plan.separation, delta, bounds.width, bounds.norm, bounds.bias)
    inside = (np.linalg.norm(neurons[:, :-1], axis=1) <= norm + same) & (
        np.abs(neurons[:, -1]) <= bias + same
    )  # line 13, equation (14)
    neurons = distinct_rows(neurons[inside], same)  # lines 1 and 14: the list S
    return neurons[:, :-1], neurons[:, -1], plan  # line 15


def learn_from_queries_as_printed(
    oracle: Oracle,
    epsilon: float,
    delta: float,
    *,
    bounds: FaithfulBounds,
    constants: FaithfulConstants,
    rng: np.random.Generator,
    most: int,
    each: float,
) -> tuple[ReLUNetwork, FaithfulPlan]:
    """LEARNFROMQUERIES(epsilon, delta), Algorithm 4, with ``each`` samples a coefficient."""
    d = oracle.input_dim
    with oracle.stage("get neurons"):
        weights, biases, plan = get_neurons(  # line 1
            oracle,
            epsilon,
            delta,
            bounds=bounds,
            constants=constants,
            rng=rng,
            most=most,
        )
    count = len(weights)
    n = math.ceil(each * (count + d + 1))
    radius = math.sqrt(d) + math.sqrt(2.0 * math.log(1.0 / delta)) + 1.0
    x = rng.standard_normal((2 * n, d))
    x = x[np.linalg.norm(x, axis=1) <= radius][:n]  # line 2, Definition 4.12
    with oracle.stage("samples"):
        y = oracle(x)
    bound = coefficient_bound(count, bounds.width, bounds.norm, bounds.bias)
    v = bounded_least_squares(relu_features(weights, biases, x), y, bound)  # line 3
    network = ReLUNetwork(  # line 4
        [weights, v[:count].T], [biases, v[-1]], v[count : count + d].T
    )
    return network, plan  # line 5
