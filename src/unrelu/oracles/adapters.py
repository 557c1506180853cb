"""Adapters for targets inside this process: callables and networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput
from unrelu.networks import Network
from unrelu.oracles.base import Adapter, Meter
from unrelu.oracles.fingerprint import callable_identity

__all__ = ["CallableOracle", "NetworkOracle"]


class CallableOracle(Adapter):
    """Any Python function from ``(n, d)`` to ``(n, m)`` or ``(n,)``.

    With ``row_shape`` the function gets ``(n, *row_shape)``.
    """

    def __init__(
        self,
        function: Callable[[FloatArray], ArrayLike],
        *,
        input_dim: int,
        output_dim: int | None = None,
        row_shape: tuple[int, ...] | None = None,
        identity: str | None = None,
        meter: Meter | None = None,
    ) -> None:
        if not callable(function):
            raise InvalidInput(f"{type(function).__name__} is not callable")
        super().__init__(
            input_dim=input_dim,
            identity=callable_identity(function) if identity is None else identity,
            meter=meter,
        )
        self._function = function
        self.row_shape = row_shape
        if output_dim is not None:
            self.output_dim = output_dim

    def _ask(self, points: FloatArray) -> ArrayLike:
        shaped = points if self.row_shape is None else points.reshape(-1, *self.row_shape)
        return self._function(shaped)


class NetworkOracle(Adapter):
    """A :class:`Network`, answered through the same door as any target.

    With ``dtype="float32"`` all arithmetic is done in single precision, as a
    deployed float32 model would, the last bits of a batch included.
    """

    def __init__(
        self, network: Network, *, dtype: str = "float64", meter: Meter | None = None
    ) -> None:
        if dtype not in {"float64", "float32"}:
            raise InvalidInput(f"dtype must be 'float64' or 'float32', got {dtype!r}")
        super().__init__(
            input_dim=network.input_dim,
            identity=f"network:{network.fingerprint()}:{dtype}",
            meter=meter,
        )
        self.output_dim = network.output_dim
        self._network = network
        self._single = dtype == "float32"
        if self._single:
            self._weights = [w.astype(np.float32) for w in network.weights]
            self._biases = [b.astype(np.float32) for b in network.biases]
            self._skip = None if network.skip is None else network.skip.astype(np.float32)

    def _ask(self, points: FloatArray) -> ArrayLike:
        if not self._single:
            return self._network(points)
        x = value = points.astype(np.float32)
        layers = zip(self._weights[:-1], self._biases[:-1], self._network.activations, strict=True)
        for w, b, phi in layers:
            value = np.asarray(phi.value(value @ w.T + b), dtype=np.float32)
        out = value @ self._weights[-1].T + self._biases[-1]
        return out if self._skip is None else out + x @ self._skip.T
