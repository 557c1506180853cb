r"""The assumptions of Jayaram, Woodruff & Zhang, measured on a network that is at hand.

They are about weights and about all subspaces, so no query can tell them: these functions are
for networks that one has, planted ones say, and tell whether the paper promises anything for
them. Section 3 (ReLU networks seen by values): :func:`orthant_gamma_log2` for Assumption 1,
:func:`least_product` and :func:`silent_share` for Assumption 2, :func:`lemma_width` and
:func:`gradients_needed` for what Lemma 3.1 and Theorem 3.4 make of them. Section 4 (smooth
networks seen through a threshold): :func:`threshold_assumptions`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.special

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.networks import ReLUNetwork
from unrelu.span.config import SpanConfig

__all__ = [
    "ThresholdAssumptions",
    "gradients_needed",
    "least_product",
    "lemma_width",
    "orthant_gamma_log2",
    "silent_share",
    "threshold_assumptions",
]

# ------------------------------------------------------------------ Section 3, values


def orthant_gamma_log2(weights: FloatArray, *, rng: RandomState = 0, draws: int) -> float:
    """Estimate log2 of gamma in Assumption 1: 2^k times the least orthant probability of A g.

    The worst sign pattern makes the signed sum of the rows shortest: flips
    descend from the weakest eigenvector of the correlations. Its probability
    is simulated coordinate by coordinate (Genz 1992). A worse pattern may
    exist, so this estimates gamma from above. Rows that are dependent leave orthants
    empty: minus infinity.

    Parameters
    ----------
    weights
        A, ``(k, n)``.
    draws
        Simulated points: 2,000 tell an orthant's probability to a few per cent.
    """
    generator = as_generator(rng)
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    correlation = unit @ unit.T
    values, vectors = np.linalg.eigh(correlation)
    if values[0] <= len(values) * np.finfo(np.float64).eps * values[-1]:
        return -math.inf
    signs = np.where(vectors[:, 0] >= 0, 1.0, -1.0)
    for _ in range(10 * len(signs)):
        gain = signs * (correlation @ signs) - np.diag(correlation)
        worst = int(np.argmax(gain))
        if gain[worst] <= 0:
            break
        signs[worst] *= -1.0
    factor = scipy.linalg.cholesky(correlation * np.outer(signs, signs), lower=True)
    k = len(signs)
    normal = np.zeros((draws, k))
    log_probability = np.zeros(draws)
    for i in range(k):
        bound = -(normal[:, :i] @ factor[i, :i]) / factor[i, i]
        tail = np.maximum(scipy.special.ndtr(-bound), np.finfo(np.float64).tiny)
        log_probability += scipy.special.log_ndtr(-bound) / math.log(2.0)
        normal[:, i] = -scipy.special.ndtri(generator.random(draws) * tail)
    top = log_probability.max()
    return float(k + top + np.log2(np.mean(2.0 ** (log_probability - top))))


def least_product(network: ReLUNetwork, *, rng: RandomState = 0, patterns: int) -> float:
    """Return the least entry of ``w^T prod (W_i)_{S_i}`` over its largest, Assumption 2.

    Zero where some choice of units that are on, none of the layers empty, hides a row of A.
    All choices where there are at most ``patterns``, and as many random ones otherwise.
    """
    generator = as_generator(rng)
    upper = network.weights[1:]
    widths = [w.shape[0] for w in upper[:-1]]  # of the layers above the first
    total = math.prod(2.0**width - 1.0 for width in widths)
    least = math.inf
    for number in range(int(min(total, patterns))):
        product, rest = upper[-1][:1], number
        for matrix, width in zip(upper[-2::-1], widths[::-1], strict=True):
            if total <= patterns:
                rest, choice = divmod(rest, 2**width - 1)
                on = np.array([(choice + 1) >> j & 1 for j in range(width)], dtype=bool)
            else:
                on = generator.random(width) < 0.5
                on[generator.integers(width)] = True
            product = (product * on) @ matrix
        size = np.abs(product)
        least = min(least, float(size.min() / size.max()) if size.max() > 0 else 0.0)
    return least


def silent_share(network: ReLUNetwork, *, rng: RandomState = 0, draws: int) -> float:
    """Return the share of Gaussian inputs at which all units of some layer are off.

    Assumption 2 allows gamma / 8. A share of p is told from ``draws`` inputs to within
    ``sqrt(p / draws)``.
    """
    x = as_generator(rng).standard_normal((draws, network.input_dim))
    dead = np.zeros(draws, dtype=bool)
    for weights, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weights.T + bias, 0.0)
        dead |= ~x.any(axis=1)
    return float(dead.mean())


def lemma_width(depth: int, delta: float, gamma: float) -> int:
    """Return the width from which random layers meet Assumption 2, Lemma 3.1.

    ``log(16 d / (delta gamma))``, to the base of 2 as its proof uses it: d layers of that
    width are silent at a share of gamma / 8 of the inputs, but for odds of delta.
    """
    return math.ceil(math.log2(16.0 * depth / (delta * gamma)))


def gradients_needed(rank: int, delta: float, gamma: float) -> int:
    """Return r of Algorithm 1: gradients that reach rank k/2 but for odds of delta.

    Theorem 3.4: while the rank is below k/2 a gradient raises it with probability gamma / 8,
    so ``8 log(k / delta) / gamma`` of them raise it but for odds of delta / k. Half of k
    times that.
    """
    # Algorithm 1, line 1
    return math.ceil(0.5 * rank * 8.0 * math.log(rank / delta) / gamma)


# -------------------------------------------------------------- Section 4, thresholds


@dataclasses.dataclass(frozen=True)
class ThresholdAssumptions:
    """Assumptions 3 and 4 of Section 4, measured for subspaces of one dimension each.

    Attributes
    ----------
    gamma
        Least share of Gaussian inputs that reach the threshold outside of a subspace of each
        dimension 0, ..., k - 1, ``(k,)``: Assumption 3 asks for more than 0 in all.
    eta
        Slope along the input at its crossing that half of those inputs have at least, least
        over the subspaces, ``(k,)``: Assumption 4 with a gamma half as large. 0 where none
        reaches the threshold.
    """

    gamma: FloatArray
    eta: FloatArray

    @property
    def hold(self) -> bool:
        """Whether nothing speaks against them."""
        return bool((self.gamma > 0).all() and (self.eta > 0).all())


def threshold_assumptions(
    function: Callable[[FloatArray], FloatArray],
    weights: FloatArray,
    *,
    rng: RandomState = 0,
    config: SpanConfig | None = None,
) -> ThresholdAssumptions:
    """Measure gamma and eta of Section 4 outside of random subspaces of the span.

    Parameters
    ----------
    function
        sigma, ``(p, n) -> (p,)``, in units of the threshold: it counts from 1 on.
    weights
        A, ``(k, n)``.

    Returns
    -------
    ThresholdAssumptions
        From above: the paper asks it of every subspace, and ``places`` of each dimension
        are tried, with ``held_out`` inputs each.
    """
    config = SpanConfig() if config is None else config
    generator = as_generator(rng)
    k, n = weights.shape
    gamma, eta = np.ones(k), np.full(k, math.inf)
    for dimension in range(k):
        for _ in range(config.places):
            basis = np.linalg.qr((generator.standard_normal((dimension, k)) @ weights).T)[0].T
            g = generator.standard_normal((config.held_out, n))
            g -= (g @ basis.T) @ basis
            g = g[function(g) >= 1.0]
            gamma[dimension] = min(gamma[dimension], len(g) / config.held_out)
            slope = float(np.median(_crossing_slopes(function, g))) if len(g) else 0.0
            eta[dimension] = min(eta[dimension], slope)
    return ThresholdAssumptions(gamma, eta)


def _crossing_slopes(function: Callable[[FloatArray], FloatArray], g: FloatArray) -> FloatArray:
    """Return the slopes along inputs ``(p, n)`` where they cross 1 on the way from the origin."""
    low, high = np.zeros(len(g)), np.ones(len(g))
    # Half of the digits: a central difference over as much is then right to as many.
    small = math.sqrt(np.finfo(np.float64).eps)
    while (high - low).max() > small:
        middle = 0.5 * (low + high)
        beyond = function(middle[:, None] * g) >= 1.0
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    length = np.linalg.norm(g, axis=1)
    step = math.sqrt(small)  # over which curvature counts as little as rounding does
    ahead, behind = (function((high + side * step)[:, None] * g) for side in (1.0, -1.0))
    return np.asarray(np.abs(ahead - behind) / (2.0 * step * length))
