"""Whether two rational networks are the same, exactly; for those who hold the truth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from unrelu.errors import InvalidInput
from unrelu.rational import ExactArray, RationalNetwork

__all__ = ["normal_form", "same_function", "same_network"]


def normal_form(network: RationalNetwork) -> RationalNetwork:
    """Return the network with rows scaled to a largest weight of one, and units in order.

    Networks that differ by the order of units, and by positive scaling, have the same one.
    """
    weights, biases = list(network.weights), list(network.biases)
    for layer in range(len(weights) - 1):
        w, b = weights[layer], biases[layer]
        sizes = abs(w).max(axis=1)
        sizes = np.array([size if size else Fraction(1) for size in sizes], dtype=object)
        w, b, following = w / sizes[:, None], b / sizes, weights[layer + 1] * sizes
        order = sorted(range(len(w)), key=lambda j: (*w[j], b[j], *following[:, j]))
        weights[layer], biases[layer], weights[layer + 1] = w[order], b[order], following[:, order]
    return RationalNetwork(weights, biases, network.skip)


def same_network(one: RationalNetwork, other: RationalNetwork) -> bool:
    """Whether all units are equal, bit for bit, up to their order and positive scaling."""
    if (one.skip is None) != (other.skip is None):
        return False
    return one.architecture == other.architecture and normal_form(one) == normal_form(other)


def same_function(one: RationalNetwork, other: RationalNetwork, *, orthant: bool = False) -> bool:
    """Whether two networks of depth two or three are equal as the paper's equations mean it.

    Units are compared bit for bit up to order, scaling and sign, and what affine part that
    leaves as well; so they are the same function. In depth three the first layers are equal up
    to order and positive scaling, and the top layers the same function on the orthant.

    Parameters
    ----------
    orthant
        Of depth two: only inputs without a negative coordinate count.
    """
    depths = {len(one.hidden_widths), len(other.hidden_widths)}
    if depths == {2}:
        first, second = normal_form(one), normal_form(other)
        rows = [(n.weights[0].tolist(), n.biases[0].tolist()) for n in (first, second)]
        tops = [RationalNetwork(n.weights[1:], n.biases[1:]) for n in (first, second)]
        return rows[0] == rows[1] and same_function(*tops, orthant=True)
    if depths != {1}:
        raise InvalidInput("networks with one or two hidden layers are compared, both alike")
    return _absolute_form(one, orthant) == _absolute_form(other, orthant)


def _absolute_form(
    network: RationalNetwork, orthant: bool
) -> tuple[dict[tuple[Fraction, ...], list[Fraction]], list[Fraction]]:
    """Return f as ``sum_j c_j |Lambda_j(x)|`` by hyperplane, plus an affine part: unique."""
    (w, u), (b, constant) = network.weights, network.biases
    linear = network.skip if network.skip is not None else 0 * (u @ w)
    affine = np.column_stack([linear, constant])
    bends: dict[tuple[Fraction, ...], ExactArray] = {}
    for row, bias, out in zip(w, b, u.T, strict=True):
        unit = np.array([*row, bias], dtype=object)
        if not _switches(row, bias, orthant):  # on everywhere, or off everywhere
            on = bias > 0 or (bias == 0 and any(v > 0 for v in row))
            affine = affine + np.outer(out, unit if on else 0 * unit)
            continue
        # relu(z) = (z + |z|) / 2
        affine = affine + np.outer(out, unit) / 2
        pivot = next(v for v in row if v != 0)
        key = tuple(unit / pivot)
        bends[key] = bends.get(key, 0 * out) + out * abs(pivot) / 2
    seen = {key: list(value) for key, value in bends.items() if any(value)}
    return seen, affine.ravel().tolist()


def _switches(row: ExactArray, bias: Fraction, orthant: bool) -> bool:
    """Whether a unit is on at some inputs and off at others."""
    if not orthant:
        return any(row)
    if bias == 0:
        return bool(min(row) < 0 < max(row))
    return any(v * bias < 0 for v in row)
