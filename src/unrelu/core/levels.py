"""Outputs of very different size, seen at one size.

One network may give probabilities per mille beside sums in dollars. Predicted errors, spreads
and tolerances are compared across outputs; at the size of the largest a wrong small output
would pass, and its units would be rounding errors. So such outputs are divided by powers of
two, which changes no digit, and multiplied again in the end.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.units import Units
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle, Wrapper

__all__ = ["Levelled", "output_levels", "unlevelled", "unlevelled_network"]

_APART = 2.0**10
"""Outputs whose spreads differ by less stay as they are."""
_SQUARED = float(np.finfo(np.float64).max) ** 0.25
"""Nor is anything done to numbers within this factor of one: beyond it squares of squares
overflow."""
_CONSTANT = _APART * float(np.finfo(np.float64).eps)
"""An output that varies by less than this part of its size is a constant, up to rounding."""


class Levelled(Wrapper):
    """Shows each output divided by its level, a power of two."""

    def __init__(self, inner: Oracle, levels: FloatArray) -> None:
        super().__init__(inner)
        self.levels = levels

    def _identity_suffix(self) -> str:
        return "|levelled"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return np.asarray(self.inner._answer(points, repeat) / self.levels)


def output_levels(seen: FloatArray) -> FloatArray:
    """Return one power of two per output, ``(m,)``, from a few answers ``(n, m)``.

    All are one where no output is much larger than another, and none is extreme.
    """
    none = np.ones(seen.shape[1])
    if len(seen) == 0 or not np.isfinite(seen).all():
        return none
    size = np.abs(seen).max(axis=0)
    unit = np.where(size > 0, size, 1.0)  # squares of the answers may overflow
    spread = (seen / unit).std(axis=0) * size
    spread = np.where(spread > _CONSTANT * size, spread, size)
    known = spread > 0
    if not known.any():
        return none
    least, most = spread[known].min(), spread[known].max()
    if most <= _APART * least and least > 1.0 / _SQUARED and most < _SQUARED:
        return none
    return np.asarray(np.where(known, 2.0 ** np.round(np.log2(np.where(known, spread, 1.0))), 1.0))


def unlevelled(units: Units, levels: FloatArray) -> Units:
    """Return units of levelled outputs at the outputs' own size."""
    return dataclasses.replace(
        units,
        outputs=units.outputs * levels[:, None],
        linear=units.linear * levels[:, None],
        value=units.value * levels,
    )


def unlevelled_network(network: ReLUNetwork, levels: FloatArray) -> ReLUNetwork:
    """Return a network of levelled outputs at the outputs' own size."""
    skip = None if network.skip is None else network.skip * levels[:, None]
    *below, last = network.weights
    return ReLUNetwork(
        [*below, last * levels[:, None]], [*network.biases[:-1], network.biases[-1] * levels], skip
    )
