"""Targets whose answers are exact: rationals in, rationals out, counted like any other."""

from __future__ import annotations

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput
from unrelu.oracles.base import Adapter, Meter
from unrelu.rational import ExactArray, RationalNetwork, rationals

__all__ = ["ExactOracle"]


class ExactOracle(Adapter):
    """A rational network behind the same door as any target.

    :meth:`exact` takes and gives rationals. Called as other oracles are it takes float64
    points as the rationals they are, and rounds its answers to float64.
    """

    def __init__(self, network: RationalNetwork, *, meter: Meter | None = None) -> None:
        if not isinstance(network, RationalNetwork):
            raise InvalidInput(
                f"an exact oracle needs a RationalNetwork, got {type(network).__name__}; "
                "RationalNetwork.from_network takes a float64 network as the rational one it is"
            )
        super().__init__(
            input_dim=network.input_dim, identity=f"exact:{network.fingerprint()}", meter=meter
        )
        self.output_dim = network.output_dim
        self._network = network

    def exact(self, points: ExactArray) -> ExactArray:
        """Answer ``(n, d)`` Fractions with ``(n, m)`` Fractions; every row is a query."""
        x = rationals(points)
        if x.ndim != 2 or x.shape[1] != self.input_dim:
            raise InvalidInput(f"x must have shape (n, {self.input_dim}), got {x.shape}")
        if len(x) == 0:
            return np.empty((0, self.output_dim), dtype=object)
        self.meter.charge(len(x))
        return self._network(x)

    def _ask(self, points: FloatArray) -> ArrayLike:
        return np.asarray(self._network(points), dtype=np.float64)
