"""Sums whose bits depend on nothing but the row, or on the batch on purpose.

A library's matrix product adds the terms of a row in an order that depends on the CPU and
on the number of rows, so that a row in a batch and alone differ in their last bits. Tests
that compare answers bit by bit need a target that adds in one order, and every algorithm
must work on one that adds in another order in every batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unrelu import ReLUNetwork


def product(
    x: np.ndarray, w: np.ndarray, shuffle: np.random.Generator | None = None
) -> np.ndarray:
    """Return ``x @ w``, one term after the other, in a random order if asked to."""
    order = np.arange(len(w)) if shuffle is None else shuffle.permutation(len(w))
    total = np.zeros((len(x), w.shape[1]))
    for j in order:
        total += x[:, j : j + 1] * w[j]
    return total


def evaluate(
    network: ReLUNetwork, x: np.ndarray, shuffle: np.random.Generator | None = None
) -> np.ndarray:
    """Return the network's answers, without ``shuffle`` the same bits in every batch."""
    assert network.skip is None
    *hidden, last = zip(network.weights, network.biases, strict=True)
    for w, b in hidden:
        x = np.maximum(product(x, w.T, shuffle) + b, 0.0)
    return product(x, last[0].T, shuffle) + last[1]


def other_bits_in_every_batch(network: ReLUNetwork) -> Callable[[np.ndarray], np.ndarray]:
    """Return a target that adds in an order that depends on the number of rows."""
    return lambda x: evaluate(network, x, np.random.default_rng(len(x)))
