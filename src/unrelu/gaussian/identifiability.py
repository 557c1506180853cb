"""What samples can tell about a depth-2 network, in closed form.

Reference: Awasthi, Tang & Vijayaraghavan 2021, Theorem 3.4 and Claim 4.8 (which
orientations give the same function), Proposition 3.6 (the risk as a sum of
tensor errors).

Turning unit i round changes f by ``a_i (w_i.x + b_i)``, so condition (5) reads:
the turned units' ``a_i (w_i, b_i)`` sum to zero. (In print the second half of (5)
lacks a factor xi_i; Lemma 3.5's f_0 has it.)
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.hermite import relu_coefficient, relu_inner_products
from unrelu.core.signs import sign_patterns
from unrelu.errors import InvalidInput
from unrelu.networks import ReLUNetwork

__all__ = ["HermiteRisk", "Identifiability", "hermite_risk", "identifiability", "unit_form"]


@dataclasses.dataclass(frozen=True)
class _Form:
    """``f(x) = sum_i a_i relu(w_i.x + b_i) + slope.x + constant``, unit rows w."""

    w: FloatArray
    a: FloatArray
    b: FloatArray
    slope: FloatArray
    constant: float


def unit_form(network: ReLUNetwork) -> _Form:
    """Read a depth-2 network with one output as units with unit rows."""
    if network.depth != 2 or network.output_dim != 1:
        raise InvalidInput(f"need one hidden layer and one output, got {network.architecture}")
    w, b, a = network.weights[0], network.biases[0], network.weights[1][0]
    length = np.linalg.norm(w, axis=1)
    flat = length == 0.0
    constant = float(network.biases[1][0] + a[flat] @ np.maximum(b[flat], 0.0))
    slope = np.zeros(network.input_dim) if network.skip is None else network.skip[0]
    w, b, a, length = w[~flat], b[~flat], a[~flat], length[~flat]
    return _Form(w / length[:, None], a * length, b / length, slope, constant)


@dataclasses.dataclass(frozen=True)
class Identifiability:
    """Which parameters give the same function as a network's.

    Attributes
    ----------
    determined
        Whether the given orientations are the only ones; None if there were
        too many to look at all.
    patterns
        ``(q, m)`` of +1 and -1: turning the units with -1 round leaves the
        function unchanged. The first row is all +1.
    parallel
        Pairs of units with parallel weights, for which Theorem 3.4 promises
        nothing.
    silent
        Units with outer weight zero.
    message
        A sentence.
    """

    determined: bool | None
    patterns: FloatArray
    parallel: tuple[tuple[int, int], ...]
    silent: tuple[int, ...]
    message: str


def identifiability(network: ReLUNetwork, *, tolerance: float | None = None) -> Identifiability:
    """Find the orientations of the units that give the same function.

    Parameters
    ----------
    network
        Depth 2, one output.
    tolerance
        Relative size of a sum that counts as zero, by default the root of float64's
        resolution: parameters written with fewer digits need a larger one.

    Returns
    -------
    Identifiability
        Complete if at most 20 units depend linearly on the others.

    Examples
    --------
    >>> import unrelu
    >>> unrelu.identifiability(unrelu.planted.random_network(6, 3, 1, rng=0)).determined
    True
    """
    if tolerance is None:
        tolerance = math.sqrt(float(np.finfo(np.float64).eps))
    w, a, b = network.weights[0], network.weights[1][0], network.biases[0]
    if network.depth != 2 or network.output_dim != 1:
        raise InvalidInput(f"need one hidden layer and one output, got {network.architecture}")
    columns = (a[:, None] * np.concatenate([w, b[:, None]], axis=1)).T
    size = float(np.abs(columns).sum()) or 1.0
    found = sign_patterns(columns, columns.sum(axis=1), keep=4096)
    fits = found.remainders <= tolerance * size
    patterns = found.patterns[fits]
    ones = np.ones((1, len(a)))
    others = patterns[~(patterns > 0).all(axis=1)]
    patterns = np.concatenate([ones, others])
    norms = np.linalg.norm(w, axis=1)
    unit = w / np.where(norms > 0, norms, 1.0)[:, None]
    cosine = np.abs(np.triu(unit @ unit.T, 1))
    parallel = tuple((int(i), int(j)) for i, j in np.argwhere(cosine > 1.0 - 1e-12))
    silent = tuple(int(i) for i in np.flatnonzero(a == 0.0))
    if len(patterns) > 1:
        determined: bool | None = False
        message = (
            f"{len(patterns)}{'' if found.complete else ' or more'} orientations give the same "
            "function: no samples can tell them apart"
        )
    elif found.complete:
        determined = True
        message = "the function determines every unit's orientation"
    else:
        determined = None
        message = "too many dependent units to look at every orientation; no other was found"
    if parallel:
        message += f"; {len(parallel)} pairs of units are parallel, and may be merged or split"
    if silent:
        message += f"; {len(silent)} units have outer weight zero and are not determined"
    return Identifiability(determined, patterns, parallel, silent, message)


@dataclasses.dataclass(frozen=True)
class HermiteRisk:
    """``E[(f(x) - g(x))^2]`` under N(0, I), whole and by order.

    Attributes
    ----------
    total
        In closed form.
    terms
        ``||T_k - f_k||^2 / k!`` for k = 0, 1, ... (Proposition 3.6).
    tail
        ``total`` minus the terms: the orders beyond.
    """

    total: float
    terms: FloatArray
    tail: float

    def __float__(self) -> float:
        return self.total


def hermite_risk(network: ReLUNetwork, other: ReLUNetwork, *, orders: int = 40) -> HermiteRisk:
    """Square L2 distance of two depth-2 networks under N(0, I).

    Parameters
    ----------
    network, other
        One hidden layer, one output, the same inputs; output biases and skip
        terms are allowed.
    orders
        Orders 0 to ``orders`` are listed one by one; they fall like k^(-5/2).
    """
    f, g = unit_form(network), unit_form(other)
    if f.w.shape[1] != g.w.shape[1]:
        raise InvalidInput(f"the networks have {f.w.shape[1]} and {g.w.shape[1]} inputs")
    w, b = np.concatenate([f.w, g.w]), np.concatenate([f.b, g.b])
    c = np.concatenate([f.a, -g.a])
    slope, constant = f.slope - g.slope, f.constant - g.constant
    rho = np.clip(w @ w.T, -1.0, 1.0)
    terms = np.empty(orders + 1)
    for k in range(orders + 1):
        factor = c * relu_coefficient(k, b)
        if k == 0:
            terms[k] = (factor.sum() + constant) ** 2
        elif k == 1:
            terms[k] = float(np.sum((factor @ w + slope) ** 2))
        else:
            terms[k] = max(float(factor @ rho**k @ factor), 0.0) / math.factorial(k)
    mean = float(c @ relu_coefficient(0, b))
    first = (c * relu_coefficient(1, b)) @ w
    total = float(c @ relu_inner_products(w, b, w, b) @ c)
    total += 2.0 * (constant * mean + float(slope @ first)) + float(slope @ slope) + constant**2
    # The closed form cancels to rounding where the networks agree.
    total = max(total, float(terms.sum()) if total < 1e-13 * float(c @ c + 1e-300) else 0.0, 0.0)
    return HermiteRisk(total, terms, total - float(terms.sum()))
