"""Algorithm 5's truncated regression, and Claim B.5's consolidation."""

from __future__ import annotations

import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.networks import ReLUNetwork

__all__ = ["consolidated_network", "truncated_regression"]


def truncated_regression(
    w: FloatArray,
    b: FloatArray,
    x: FloatArray,
    y: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Regress y on both orientations of every unit and on x (Lemma 5.8).

    Two features per unit suffice since the signs of w and b are coordinated
    (footnote 5). The paper leaves rows out whose features are longer than a tau that grows
    like sqrt(log N); its constant leaves nothing out at any N, so nothing is here. The
    minimiser comes from a ridge regression solved exactly, where the paper runs projected
    gradient descent on the same convex problem; the ridge plays the part of the ball.

    Returns
    -------
    ``alpha`` (m,), ``alpha'`` (m,) and the affine part ``(d + 1,)``: the
    function is ``sum alpha relu(z) + alpha' relu(-z) + affine.(x, 1)``.
    """
    m = len(w)
    z = x @ w.T + b
    features = np.concatenate(
        [np.maximum(z, 0.0), np.maximum(-z, 0.0), x, np.ones((len(x), 1))], axis=1
    )
    gram = features.T @ features
    # z = relu(z) - relu(-z) makes the features dependent: the ridge picks one
    # of the equal solutions.
    ridge = math.sqrt(np.finfo(np.float64).eps) * np.trace(gram) / len(gram)
    beta = np.linalg.solve(gram + ridge * np.eye(len(gram)), features.T @ y)
    return beta[:m], beta[m : 2 * m], beta[2 * m :]


def consolidated_network(
    w: FloatArray,
    b: FloatArray,
    alpha: FloatArray,
    alpha_prime: FloatArray,
    affine: FloatArray,
    *,
    negligible: float = 0.0,
) -> ReLUNetwork:
    """Write ``sum alpha relu(z) + alpha' relu(-z) + affine.(x, 1)`` in m + 2 units.

    Claim B.5: ``beta_i = alpha_i + alpha'_i``, and the affine remainder
    ``v = affine - sum alpha'_i (w_i, b_i)`` is a pair of opposite units. The
    pair is left out if the remainder's length is at most ``negligible``.
    """
    d = w.shape[1]
    rest = affine - alpha_prime @ np.concatenate([w, b[:, None]], axis=1)
    outer = alpha + alpha_prime
    length = float(np.linalg.norm(rest[:d]))
    bias = 0.0
    if float(np.linalg.norm(rest)) <= negligible:
        hidden, offsets = w, b
    elif length <= negligible or length < 1e-12 * abs(float(rest[d])):
        # A constant needs no unit: the output layer has a bias.
        hidden, offsets, bias = w, b, float(rest[d])
    else:
        direction, offset = rest[:d] / length, float(rest[d]) / length
        hidden = np.concatenate([w, direction[None], -direction[None]])
        offsets = np.concatenate([b, [offset, -offset]])
        outer = np.concatenate([outer, [length, -length]])
    if len(hidden) == 0:
        hidden, offsets, outer = np.zeros((1, d)), np.zeros(1), np.zeros(1)
    return ReLUNetwork([hidden, outer[None, :]], [offsets, np.array([bias])])
