"""Inputs of a box: corners of random density, uniform points, data, and chords between them.

Everything here lives in unit coordinates: the box is ``[0, 1]^d``.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.networks import ReLUNetwork

__all__ = ["BoxInputs"]


@dataclasses.dataclass(frozen=True)
class BoxInputs:
    """Draws inputs of the unit cube.

    Uniform points hardly switch a unit whose row sums many coordinates: sums concentrate. A
    corner that takes each coordinate's upper end with a probability which is itself drawn
    uniformly reaches every density, and so every unit that the cube cuts evenly enough.

    Attributes
    ----------
    dimension
        Number of inputs, d.
    data
        Rows like those the target is meant for, ``(n, d)``, or None.
    """

    dimension: int
    data: FloatArray | None = None

    def uniform(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw uniform points, ``(n, d)``."""
        return rng.random((n, self.dimension))

    def corners(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw corners of random density, ``(n, d)``."""
        return (rng.random((n, self.dimension)) < rng.random((n, 1))).astype(np.float64)

    def likely(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw rows of the data; without data, corners."""
        if self.data is None or len(self.data) == 0:
            return self.corners(n, rng)
        return self.data[rng.integers(0, len(self.data), n)]

    def mixed(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw a quarter each of corners, data, uniform points, and points on chords."""
        corners, likely = self.corners(n, rng), self.likely(n, rng)
        uniform, part = self.uniform(n, rng), rng.random((n, 1))
        kind = rng.permutation(np.arange(n) % 4)[:, None]
        inside = part * corners + (1.0 - part) * likely
        return np.select([kind == 0, kind == 1, kind == 2], [corners, likely, uniform], inside)

    def balanced(
        self, network: ReLUNetwork, asked: FloatArray, sides: int, rng: np.random.Generator
    ) -> FloatArray:
        """Return points that, beside those asked, put ``sides`` on either side of every unit.

        A unit that hardly any point switches is determined by no fit. Where even many draws
        hold no such points there are none to be had.
        """
        pool = self.mixed(max(64, 8 * sides * len(network.weights[0])), rng)
        on, before = _gates(network, pool), _gates(network, asked)
        missing = sides - np.stack([before.sum(axis=0), (~before).sum(axis=0)])
        taken = np.zeros(len(pool), dtype=bool)
        for unit in range(on.shape[1]):
            for row, gate in enumerate((on[:, unit], ~on[:, unit])):
                wanted = missing[row, unit] - np.count_nonzero(taken & gate)
                if wanted > 0:
                    taken[np.flatnonzero(gate & ~taken)[:wanted]] = True
        return pool[taken]


def _gates(network: ReLUNetwork, points: FloatArray) -> BoolArray:
    return np.asarray(points @ network.weights[0].T + network.biases[0] > 0)
