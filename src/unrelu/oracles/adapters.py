"""Adapters for targets inside this process: callables and networks."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidAnswer, InvalidInput
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Adapter, Meter, quick_sum

__all__ = ["CallableOracle", "NetworkOracle", "callable_identity"]


def callable_identity(function: Callable[..., Any]) -> str:
    """Return a name for a callable that survives a restart of the process.

    It holds the qualified name, a digest of the code, and the fingerprints of
    the arrays and networks that a closure or a bound object carries, so that
    two different models behind one function name do not share a ledger entry.
    Counters and other state are left out: they change while it runs.
    """
    digest = hashlib.blake2b(digest_size=8)
    _feed(digest, function, depth=0)
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"callable:{kind.__module__}.{kind.__qualname__}#{digest.hexdigest()}"


def _feed(digest: Any, value: Any, depth: int) -> None:
    """Mix a value's stable content into the digest."""
    if depth > 4 or isinstance(value, types.ModuleType):
        return
    if hasattr(value, "__array__") and not isinstance(value, (type, np.ndarray)):
        value = np.asarray(value)  # a JAX array, say
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, ReLUNetwork):
        digest.update(value.fingerprint().encode())
    elif hasattr(value, "__code__"):
        _feed_code(digest, value.__code__)
        for cell in value.__closure__ or ():
            try:
                _feed(digest, cell.cell_contents, depth + 1)
            except ValueError:  # a cell that is still empty
                continue
        for default in value.__defaults__ or ():
            _feed(digest, default, depth + 1)
    elif hasattr(value, "__self__") and hasattr(value, "__func__"):
        _feed(digest, value.__func__, depth + 1)
        _feed(digest, value.__self__, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, (np.ndarray, ReLUNetwork, list, tuple)) or callable(item):
                _feed(digest, item, depth + 1)
    elif hasattr(value, "__wrapped__"):  # a compiled or decorated function
        _feed(digest, value.__wrapped__, depth + 1)
    elif isinstance(value, functools.partial):
        for item in (value.func, *value.args, *value.keywords.values()):
            _feed(digest, item, depth + 1)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name in sorted(vars(value)):
            _feed(digest, vars(value)[name], depth + 1)


def _feed_code(digest: Any, code: Any) -> None:
    digest.update(code.co_code)
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            _feed_code(digest, constant)
        elif isinstance(constant, (int, float, complex, str, bytes, bool, type(None))):
            digest.update(repr(constant).encode())


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
            self.output_dim = int(output_dim)

    def _ask(self, points: FloatArray) -> ArrayLike:
        before = quick_sum(points)
        shaped = points if self.row_shape is None else points.reshape(-1, *self.row_shape)
        answers = self._function(shaped)
        if quick_sum(points) != before:
            # A later batch, and the ledger's key, would rest on the wrong point.
            raise InvalidAnswer(
                "the target changed its input in place; let it work on a copy, such as "
                "lambda x: f(x.copy())"
            )
        return answers


class NetworkOracle(Adapter):
    """A :class:`ReLUNetwork`, answered through the same door as any target.

    With ``dtype="float32"`` all arithmetic is done in single precision, as a
    deployed float32 model would, the last bits of a batch included.
    """

    def __init__(
        self, network: ReLUNetwork, *, dtype: str = "float64", meter: Meter | None = None
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
        for w, b in zip(self._weights[:-1], self._biases[:-1], strict=True):
            value = np.maximum(value @ w.T + b, np.float32(0))
        out = value @ self._weights[-1].T + self._biases[-1]
        return out if self._skip is None else out + x @ self._skip.T
