"""Units of a network in the unit cube: added, folded where they never switch, merged."""

from __future__ import annotations

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.units import Units, resolve_signs
from unrelu.networks import ReLUNetwork

__all__ = [
    "affine",
    "audible",
    "bend",
    "folded",
    "joined",
    "merged",
    "network_in",
    "normalised",
    "term_size",
    "with_unit",
    "without_skip",
    "without_unit",
]


def affine(linear: FloatArray, constant: FloatArray) -> ReLUNetwork:
    """Return ``A x + c`` as a network without units."""
    m, d = linear.shape
    return ReLUNetwork([np.empty((0, d)), np.empty((m, 0))], [np.empty(0), constant], linear)


def with_unit(
    network: ReLUNetwork, weights: FloatArray, bias: float, outputs: FloatArray
) -> ReLUNetwork:
    """Return the network plus ``u relu(w x + b)``."""
    return ReLUNetwork(
        [
            np.vstack([network.weights[0], weights]),
            np.column_stack([network.weights[1], outputs]),
        ],
        [np.append(network.biases[0], bias), network.biases[1]],
        network.skip,
    )


def _kept(network: ReLUNetwork, keep: BoolArray) -> ReLUNetwork:
    return ReLUNetwork(
        [network.weights[0][keep], network.weights[1][:, keep]],
        [network.biases[0][keep], network.biases[1]],
        network.skip,
    )


def normalised(network: ReLUNetwork) -> ReLUNetwork:
    """Return the same function with unit rows."""
    size = np.linalg.norm(network.weights[0], axis=1)
    size = np.where(size > 0, size, 1.0)
    return ReLUNetwork(
        [network.weights[0] / size[:, None], network.weights[1] * size],
        [network.biases[0] / size, network.biases[1]],
        network.skip,
    )


def term_size(network: ReLUNetwork, points: FloatArray) -> FloatArray:
    """Return the size of the products that enter the values at points ``(n, d)``, ``(n,)``.

    Each is rounded on its own, so their squares add up; of the outputs the largest counts.
    """
    rows, outputs = network.weights
    assert network.skip is not None
    inside = points**2 @ (rows**2).T + network.biases[0] ** 2
    terms = inside @ (outputs**2).T + points**2 @ (network.skip**2).T + network.biases[1] ** 2
    return np.asarray(np.sqrt(terms.max(axis=1)))


def reach(weights: FloatArray, biases: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the least and largest preactivation of each unit in the unit cube, ``(k,)``."""
    low = biases + np.minimum(weights, 0.0).sum(axis=1)
    return low, biases + np.maximum(weights, 0.0).sum(axis=1)


def bend(network: ReLUNetwork) -> FloatArray:
    """Return by how much the kink of each unit moves values in the cube at most, ``(k,)``.

    The smaller side of a unit is what is not affine.
    """
    low, high = reach(network.weights[0], network.biases[0])
    size = np.abs(network.weights[1]).max(axis=0)
    return np.asarray(size * np.maximum(np.minimum(-low, high), 0.0))


def audible(network: ReLUNetwork, noise: float) -> ReLUNetwork:
    """Drop units whose bend nowhere in the cube exceeds the noise of an answer."""
    return _kept(network, bend(network) > noise)


def without_unit(network: ReLUNetwork, unit: int) -> ReLUNetwork:
    """Leave out a unit; one that is mostly on leaves its affine part behind."""
    rows, outputs = network.weights
    middle = network.biases[0][unit] + 0.5 * rows[unit].sum()
    kept = _kept(network, np.arange(len(rows)) != unit)
    if middle <= 0:
        return kept
    assert kept.skip is not None
    return ReLUNetwork(
        kept.weights,
        [kept.biases[0], kept.biases[1] + outputs[:, unit] * network.biases[0][unit]],
        kept.skip + np.outer(outputs[:, unit], rows[unit]),
    )


def folded(network: ReLUNetwork, least: float) -> ReLUNetwork:
    """Move units that are on in the whole cube to the affine part; drop those that are off.

    ``least`` is how far a preactivation must reach beyond zero to count (unit rows).
    """
    network = normalised(network)
    low, high = reach(network.weights[0], network.biases[0])
    on = (low >= -least) & (high > least)
    assert network.skip is not None
    outputs = network.weights[1][:, on]
    moved = ReLUNetwork(
        network.weights,
        [network.biases[0], network.biases[1] + outputs @ network.biases[0][on]],
        network.skip + outputs @ network.weights[0][on],
    )
    return _kept(moved, ~on & (high > least))


def joined(network: ReLUNetwork, i: int, j: int) -> ReLUNetwork:
    """Join unit i to unit j, whose hyperplane is the same (unit rows).

    ``u relu(-z) = u relu(z) - u z``: two units that face each other differ by a linear part.
    """
    (rows, outputs), (biases, constant) = network.weights, network.biases
    outputs, linear = outputs.copy(), network.skip
    assert linear is not None
    if rows[i] @ rows[j] < 0:
        linear = linear - np.outer(outputs[:, i], rows[j])
        constant = constant - outputs[:, i] * biases[j]
    outputs[:, j] += outputs[:, i]
    whole = ReLUNetwork([rows, outputs], [biases, constant], linear)
    return _kept(whole, np.arange(len(rows)) != i)


def merged(network: ReLUNetwork, apart: float) -> ReLUNetwork:
    """Join units whose hyperplanes lie closer than ``apart`` (unit rows, biases included)."""
    network = normalised(network)
    for i in reversed(range(len(network.biases[0]))):
        rows = np.column_stack([network.weights[0], network.biases[0]])
        sides = np.sign(network.weights[0][:i] @ network.weights[0][i])
        near = np.linalg.norm(rows[i] - sides[:, None] * rows[:i], axis=1) <= apart
        if near.any():
            network = joined(network, i, int(np.argmax(near)))
    return network


def network_in(network: ReLUNetwork, low: FloatArray, high: FloatArray) -> ReLUNetwork:
    """Return a network over the unit cube as one over the box ``low <= x <= high``."""
    scale = 1.0 / (high - low)
    rows = network.weights[0] * scale
    assert network.skip is not None
    linear = network.skip * scale
    return normalised(
        ReLUNetwork(
            [rows, network.weights[1]],
            [network.biases[0] - rows @ low, network.biases[1] - linear @ low],
            linear,
        )
    )


def without_skip(network: ReLUNetwork, error: float) -> tuple[ReLUNetwork, bool]:
    """Turn units over so that the skip term vanishes, where that is determined.

    Parameters
    ----------
    error
        Of the skip term, over its largest entry.
    """
    rows, skip = network.weights[0], network.skip
    assert skip is not None
    zero = np.zeros(network.input_dim)
    anchors = -network.biases[0][:, None] * rows / (rows**2).sum(axis=1, keepdims=True)
    units = Units(rows, anchors, network.weights[1], skip, zero, network(zero[None])[0], rows)
    turn = resolve_signs(units, error * max(float(np.abs(skip).max(initial=0.0)), 1e-300))
    if turn is None:
        return network, False
    return units.turned(turn).network(skip=False), True
