"""The layers above a known first layer, as a function over a cube.

With full row rank every ``h = relu(W x + b) >= 0`` is reached by ``x = W^+ (z - b)``, with
``z = h`` where a unit is on and a little below zero where it is off. So the layers above are
asked like any network in a box.
"""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.extraction.two_hidden_rows import Read, Rows
from unrelu.networks import ReLUNetwork

__all__ = ["TopTarget", "balanced_rows", "parted", "stacked"]

_OFF = 0.25
"""Where units that are off are held, over the deviation of an input's coordinate: beyond what
errors of a row could switch on again."""


class TopTarget:
    """Values over ``h = high * y``, y in the unit cube; a :class:`CubeTarget`.

    Parameters
    ----------
    high
        Largest heights that typical inputs reach, ``(k,)``.
    """

    def __init__(self, read: Read, rows: Rows, high: FloatArray, outputs: int) -> None:
        self.read, self.rows, self.high = read, rows, high
        self.dimension, self.outputs = rows.count, outputs
        self.inverse = np.linalg.pinv(rows.weights)

    def cube(self, x: FloatArray) -> FloatArray:
        """Return the cube point that inputs ``(n, d)`` reach."""
        return np.clip(self.rows.heights(x) / self.high, 0.0, None)

    def ask(self, cube: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask at heights ``high * cube``."""
        z = np.where(cube > 0.0, cube * self.high, -_OFF)
        x, values, deviation = self.read((z - self.rows.biases) @ self.inverse.T)
        return self.cube(x), values, np.where(np.isfinite(deviation), 0.0, np.nan)


def stacked(rows: Rows, top: ReLUNetwork, inputs: FloatArray) -> ReLUNetwork:
    """Put a network of heights on top of the first layer.

    A skip term that is left is carried by one more unit an output that is always on at
    typical inputs ``(n, d)``.
    """
    weights, biases = [rows.weights, *top.weights], [rows.biases, *top.biases]
    if top.skip is not None:
        carried = np.maximum(rows.heights(inputs), 0.0) @ top.skip.T
        shift = 2.0 * np.abs(carried).max(axis=0) + 1.0
        m = len(shift)
        weights[1] = np.vstack([weights[1], top.skip])
        biases[1] = np.append(biases[1], shift)
        weights[2] = np.column_stack([weights[2], np.eye(m)])
        biases[2] = biases[2] - shift
    return ReLUNetwork(weights, biases)


def parted(network: ReLUNetwork) -> tuple[Rows, ReLUNetwork]:
    """Part a network with two hidden layers into its unit rows and a network of heights."""
    size = np.linalg.norm(network.weights[0], axis=1)
    rows = Rows(network.weights[0] / size[:, None], network.biases[0] / size)
    return rows, ReLUNetwork([network.weights[1] * size, network.weights[2]], network.biases[1:])


def balanced_rows(network: ReLUNetwork, pool: FloatArray, count: int) -> IntArray:
    """Choose rows of a pool ``(n, d)``: the first, and such as switch units that those do not.

    Half of ``count`` are the first. The others put twice as many on either side of every unit of
    the second layer as its row has parameters, as far as the pool holds them.
    """
    heights = np.maximum(pool @ network.weights[0].T + network.biases[0], 0.0)
    on = heights @ network.weights[1].T + network.biases[1] > 0.0
    sides = np.column_stack([on, ~on])
    chosen = np.arange(len(pool)) < count // 2
    for side in sides[:, np.argsort(sides.sum(axis=0))].T:  # the rarest first
        missing = 2 * (heights.shape[1] + 1) - np.count_nonzero(side & chosen)
        chosen[np.flatnonzero(side & ~chosen)[: max(missing, 0)]] = True
    left = count - np.count_nonzero(chosen)
    chosen[np.flatnonzero(~chosen)[: max(left, 0)]] = True
    return np.flatnonzero(chosen)
