"""Products whose bits depend neither on the batch nor on the machine.

A library's matrix product adds the terms of a row in an order that depends on the
number of rows, so that a row in a batch and alone differ in their last bits. Tests that
compare answers bit by bit need a target that adds one term after the other.
"""

from __future__ import annotations

import numpy as np

from unrelu import ReLUNetwork


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return ``x @ w``, one term after the other."""
    total = x[:, :1] * w[0]
    for j in range(1, len(w)):
        total = total + x[:, j : j + 1] * w[j]
    return total


def evaluate(network: ReLUNetwork, x: np.ndarray) -> np.ndarray:
    """Return the network's answers, the same bits however rows are batched."""
    assert network.skip is None
    *hidden, last = zip(network.weights, network.biases, strict=True)
    for w, b in hidden:
        x = np.maximum(product(x, w.T) + b, 0.0)
    return product(x, last[0].T) + last[1]
