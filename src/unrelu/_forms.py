"""A network's layers in other forms that compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unrelu._types import FloatArray
from unrelu.activations import Activation, Disguise, activation

if TYPE_CHECKING:
    from unrelu.networks import Network

__all__ = ["canonical_layers", "usual_layers"]

Layers = tuple[list[FloatArray], list[FloatArray], list[Activation]]
"""Weights, biases and activations."""


def canonical_layers(network: Network) -> Layers:
    """Return layers with unit rows where scale is free, turned one way and sorted."""
    weights = [w.copy() for w in network.weights]
    biases = [b.copy() for b in network.biases]
    activations = list(network.activations)
    for layer, phi in enumerate(network.activations):
        if phi.homogeneous:
            scale = np.linalg.norm(weights[layer], axis=1)
            scale = np.where(scale > 0, scale, np.abs(biases[layer]))
            scale = np.where(scale > 0, scale, 1.0)
            weights[layer] /= scale[:, None]
            biases[layer] /= scale
            weights[layer + 1] *= scale
        mirror = phi.mirror
        if mirror is not None and mirror.slope == 0.0:
            first = weights[layer][np.arange(len(weights[layer])), _first(weights[layer])]
            turn = first < 0
            # phi(z) = sign (phi(2 center - z) - offset), as the mirror is its own inverse.
            lost = mirror.sign * mirror.offset * weights[layer + 1][:, turn].sum(axis=1)
            biases[layer + 1] -= lost
            weights[layer][turn] *= -1.0
            biases[layer][turn] = 2.0 * mirror.center - biases[layer][turn]
            weights[layer + 1][:, turn] *= mirror.sign
        keys = np.column_stack([weights[layer], biases[layer]])
        order = np.lexsort(keys.T[::-1])
        weights[layer] = weights[layer][order]
        biases[layer] = biases[layer][order]
        weights[layer + 1] = weights[layer + 1][:, order]
        activations[layer] = phi.taken(order)
    return weights, biases, activations


def usual_layers(network: Network) -> Layers:
    """Return layers with activations in their usual form, scales and shifts moved outwards."""
    weights = [w.copy() for w in network.weights]
    biases = [b.copy() for b in network.biases]
    activations = list(network.activations)
    for layer, phi in enumerate(network.activations):
        disguise, beta = phi.kind.disguise, np.ones(1)
        if phi.name == "softplus":
            disguise, beta = Disguise("softplus", 1.0, 1.0), phi.parameters[..., 0]
        if disguise is None:
            continue
        factor = np.broadcast_to(beta * disguise.inner, biases[layer].shape)
        weights[layer] *= factor[:, None]
        biases[layer] = factor * biases[layer] + disguise.shift
        biases[layer + 1] += disguise.offset * weights[layer + 1].sum(axis=1)
        weights[layer + 1] *= disguise.scale / beta
        activations[layer] = activation(disguise.usual)
    return weights, biases, activations


def _first(rows: FloatArray) -> FloatArray:
    """Return the index of the first entry of each row that is not zero."""
    return np.asarray(np.argmax(rows != 0, axis=1))
