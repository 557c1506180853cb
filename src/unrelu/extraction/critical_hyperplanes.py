"""Critical hyperplanes of a known network, and where they cross the axes, in rationals."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from unrelu._types import FloatArray
from unrelu.rational import ExactArray, RationalNetwork

__all__ = ["Axes", "HyperplaneCrossing", "Planes", "depth_three", "depth_two"]


class Planes(NamedTuple):
    """Critical hyperplanes: exact ``(p, d)`` and ``(p,)``, and their names."""

    weights: ExactArray
    biases: ExactArray
    names: list[str]

    def unit(self) -> tuple[FloatArray, FloatArray]:
        """Return unit normals and offsets in float64."""
        size = abs(self.weights).max(axis=1)
        normals = (self.weights / size[:, None]).astype(np.float64)
        norms = np.linalg.norm(normals, axis=1)
        return normals / norms[:, None], (self.biases / size).astype(np.float64) / norms


class HyperplaneCrossing(NamedTuple):
    """A critical point on an axis, and the hyperplane it lies on."""

    t: Fraction
    plane: int


Axes = list[list[HyperplaneCrossing]]
"""The crossings of each axis, from left to right."""


def _rows(weights: ExactArray, biases: ExactArray, outputs: ExactArray, layer: int) -> Planes:
    """Return the hyperplanes of units that the next layer sees, and that have any weight."""
    seen = [j for j in range(len(weights)) if any(weights[j]) and any(outputs[:, j])]
    names = [f"unit {j} of layer {layer}" for j in seen]
    return Planes(weights[seen], biases[seen], names)


def depth_two(network: RationalNetwork, layer: int) -> tuple[Planes, Axes]:
    """Return the hyperplanes of ``U relu(W x + b)``, whose units are of this layer."""
    (w, u), (b, _) = network.weights, network.biases
    planes = _rows(w, b, u, layer)
    axes = [
        sorted(
            HyperplaneCrossing(-planes.biases[j] / row[i], j)
            for j, row in enumerate(planes.weights)
            if row[i] != 0
        )
        for i in range(network.input_dim)
    ]
    return planes, axes


def depth_three(network: RationalNetwork) -> tuple[Planes, Axes]:
    """Return the hyperplanes of both layers, one for each state of the first they meet."""
    (w, v, u), (b, c, _) = network.weights, network.biases
    first = _rows(w, b, v, 1)
    weights, biases, names = list(first.weights), list(first.biases), list(first.names)
    where: dict[tuple[int, tuple[int, ...]], int] = {}
    rows = range(len(w))
    for size in range(1, len(w) + 1):
        for on in itertools.combinations(rows, size):
            some = list(on)
            for j in range(len(v)):
                # It switches there if the input of some row on takes it through zero.
                if any(u[:, j]) and any(v[j, i] * c[j] < 0 for i in on):
                    where[j, on] = len(weights)
                    weights.append(v[j, some] @ w[some])
                    biases.append(v[j, some] @ b[some] + c[j])
                    names.append(f"unit {j} of layer 2 where {some} of layer 1 are on")
    planes = Planes(np.array(weights), np.array(biases), names)
    return planes, [_crossings(network, i, where) for i in range(network.input_dim)]


def _crossings(
    network: RationalNetwork, axis: int, where: dict[tuple[int, tuple[int, ...]], int]
) -> list[HyperplaneCrossing]:
    """Return the critical points of a depth-3 network on an axis."""
    (w, v, _), (b, c, _) = network.weights, network.biases
    kinks = sorted(
        HyperplaneCrossing(-b[j] / w[j, axis], j) for j in range(len(w)) if w[j, axis] != 0
    )
    found = list(kinks)
    ends = [kink.t for kink in kinks]
    reach = (abs(ends[0]) + abs(ends[-1]) + 1) if ends else Fraction(1)
    for low, high in itertools.pairwise([None, *ends, None]):
        inside = (
            (low + high) / 2 if low is not None and high is not None
            else low + reach if low is not None
            else (high - reach if high is not None else Fraction(0))
        )  # fmt: skip
        on = tuple(j for j in range(len(w)) if w[j, axis] * inside + b[j] > 0)
        some = list(on)
        for j in range(len(v)):
            slope = v[j, some] @ w[some, axis] if some else 0
            if slope == 0 or (j, on) not in where:
                continue
            t = -(v[j, some] @ b[some] + c[j]) / slope
            if (low is None or t > low) and (high is None or t < high):
                found.append(HyperplaneCrossing(t, where[j, on]))
    return sorted(found)
