"""Targets of two hidden layers at the edge of the assumptions, or beyond it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Cast, Noisy, Rounded, Softmax
from unrelu.planted import random_network

__all__ = ["KINDS", "target"]

Layers = list[FloatArray]
Edit = Callable[[Layers, Layers], None]


def _dead_first(w: Layers, b: Layers) -> None:
    b[0][0] = -50.0


def _always_on(w: Layers, b: Layers) -> None:
    b[0][0] = 50.0


def _dead_second(w: Layers, b: Layers) -> None:
    b[1][:2] = -200.0


def _equal_rows(w: Layers, b: Layers) -> None:
    w[0][1], b[0][1] = w[0][0], b[0][0]


def _nearly_equal_rows(w: Layers, b: Layers) -> None:
    w[0][1] = w[0][0] + 1e-5 * w[0][1]
    b[0][1] = b[0][0]


def _opposite_rows(w: Layers, b: Layers) -> None:
    w[0][1], b[0][1] = -w[0][0], -b[0][0]


def _parallel_rows(w: Layers, b: Layers) -> None:
    w[0][1], b[0][1] = w[0][0], b[0][0] + 0.3


def _equal_units(w: Layers, b: Layers) -> None:
    w[1][1], b[1][1] = w[1][0], b[1][0]


def _unused_unit(w: Layers, b: Layers) -> None:
    w[2][:, 0] = 0.0


def _sparse(w: Layers, b: Layers) -> None:
    w[0][:, 0] = 0.0
    w[1][np.abs(w[1]) < 0.2] = 0.0


def _no_biases(w: Layers, b: Layers) -> None:
    b[0][:] = b[1][:] = 0.0


def _large(w: Layers, b: Layers) -> None:
    w[2] *= 1e6


def _small(w: Layers, b: Layers) -> None:
    w[2] *= 1e-6


def _uneven_rows(w: Layers, b: Layers) -> None:
    scale = 10.0 ** np.linspace(-2.0, 2.0, len(b[0]))
    w[0] *= scale[:, None]
    b[0] *= scale


def _offset(w: Layers, b: Layers) -> None:
    b[2][:] = 1e3


EDITS: tuple[Edit, ...] = (
    _dead_first, _always_on, _dead_second, _equal_rows, _nearly_equal_rows, _opposite_rows,
    _parallel_rows, _equal_units, _unused_unit, _sparse, _no_biases, _large, _small,
    _uneven_rows, _offset,
)  # fmt: skip
SHAPES = (
    (8, 8, 12, 1), (12, 12, 6, 1), (10, 8, 3, 1), (8, 5, 1, 1), (6, 1, 5, 1), (4, 1, 1, 1),
    (10, 6, 10, 3), (1, 1, 4, 1), (2, 2, 6, 1), (3, 2, 40, 1), (12, 6, 8, 20), (5, 8, 8, 2),
    (10, 6, 6, 6, 6, 1),
)  # fmt: skip
ANSWERS: dict[str, Callable[[Oracle], Oracle]] = {
    "float32": lambda oracle: Cast(oracle, "float32"),
    "nine decimals": lambda oracle: Rounded(oracle, 9),
    "six decimals": lambda oracle: Rounded(oracle, 6),
    "noise 1e-9": lambda oracle: Noisy(oracle, 1e-9),
    "float32 probabilities": lambda oracle: Cast(Softmax(oracle), "float32"),
}
KINDS: tuple[str, ...] = (
    *("-".join(map(str, shape)) for shape in SHAPES),
    *(edit.__name__.strip("_").replace("_", " ") for edit in EDITS),
    *ANSWERS,
)


def target(kind: str, seed: int) -> tuple[ReLUNetwork, Oracle]:
    """Return a network of a kind, and what is asked of it."""
    place = KINDS.index(kind)
    if place < len(SHAPES):
        truth = random_network(*SHAPES[place], rng=seed)
        return truth, connect(truth)
    base = random_network(10, 6, 12, 1, rng=seed)
    place -= len(SHAPES)
    if place < len(EDITS):
        weights, biases = [w.copy() for w in base.weights], [b.copy() for b in base.biases]
        EDITS[place](weights, biases)
        truth = ReLUNetwork(weights, biases)
        return truth, connect(truth)
    return base, ANSWERS[kind](connect(base))
