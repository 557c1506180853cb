r"""Layered networks with an optional affine skip term, and products with their Jacobian.

.. math:: f(x) = W_L\,a(\dots a(W_1 x + b_1) \dots) + b_L + A x

for an elementwise activation a. The parameters are kept as a list of *blocks*, matrices that
multiply an input extended by a constant one:

* block 0 is ``[W_1 | b_1]``; a skip term adds the rows ``[A | b_L]``, since it has the same
  input;
* block l is ``[W_{l+1} | b_{l+1}]``; the last one is ``W_L`` alone where block 0 has ``b_L``.

A direction in parameter space is such a list too. Products with the Jacobian (forward) and its
transpose (backward) cost about as much as an evaluation. Arrays may be numpy's, torch's or
cupy's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from unrelu.core.activations import RELU, Activation
from unrelu.core.memory import BLOCK, BLOCK_ON_DEVICE

__all__ = ["Blocks", "Layered", "Trace"]

Array = Any
Blocks = list[Array]
"""Parameters, or a direction, as matrices; see the module."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """What products with the Jacobian at n points need.

    Attributes
    ----------
    inputs
        Input of each layer, ``(n, k_l)``; the first is x.
    slopes
        Derivative of each hidden layer's activation, ``(n, k_l)``.
    """

    inputs: tuple[Array, ...]
    slopes: tuple[Array, ...]

    def astype(self, dtype: Any) -> Trace:
        """Return it with another dtype."""
        xp = array_namespace(*self.inputs)
        inputs, slopes = (
            tuple(xp.astype(a, dtype) for a in part) for part in (self.inputs, self.slopes)
        )
        return Trace(inputs, slopes)


@dataclasses.dataclass(frozen=True)
class Layered:
    """A layered network.

    Attributes
    ----------
    weights
        Per layer ``(k_l, k_{l-1})``; rows are units.
    biases
        Per layer ``(k_l,)``.
    skip
        ``A``, ``(m, d)``, or None.
    activation
        Of every hidden layer.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    skip: Array | None = None
    activation: Activation = RELU

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        object.__setattr__(self, "biases", tuple(self.biases))
        if len(self.weights) != len(self.biases) or len(self.weights) < 2:
            raise ValueError("a layered network has two layers or more, each with biases")
        for below, above in zip(self.weights, self.weights[1:], strict=False):
            if above.shape[1] != below.shape[0]:
                raise ValueError(f"a layer of {below.shape[0]} units feeds {above.shape[1]}")

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(int(np.prod(block.shape)) for block in self.blocks())

    @property
    def widths(self) -> tuple[int, ...]:
        """``(d, k_1, ..., m)``."""
        return (self.weights[0].shape[1], *(w.shape[0] for w in self.weights))

    def __call__(self, x: Array) -> Array:
        """Evaluate at ``(n, d)``; returns ``(n, m)``."""
        xp = array_namespace(x)
        parts = [self.trace(x[piece])[0] for piece in self.chunks(x.shape[0])]
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    def chunks(self, rows: int) -> list[slice]:
        """Cut n rows so that an evaluation of a piece needs little memory."""
        block = BLOCK if isinstance(self.weights[0], np.ndarray) else BLOCK_ON_DEVICE
        size = max(1, block // sum(self.widths))
        return [slice(i, min(i + size, rows)) for i in range(0, max(rows, 1), size)]

    def trace(self, x: Array) -> tuple[Array, Trace]:
        """Evaluate at ``(n, d)`` and keep what derivatives need."""
        inputs, slopes, h = [x], [], x
        last = len(self.weights) - 1
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = h @ w.T + b
            if layer < last:
                h = self.activation.value(z)
                slopes.append(self.activation.slope(z))
                inputs.append(h)
        if self.skip is not None:
            z = z + x @ self.skip.T
        return z, Trace(tuple(inputs), tuple(slopes))

    def blocks(self) -> Blocks:
        """Return the parameters as matrices; see the module."""
        xp = array_namespace(*self.weights)

        def joined(w: Array, b: Array) -> Array:
            return xp.concat([w, b[:, None]], axis=1)

        found = [joined(w, b) for w, b in zip(self.weights, self.biases, strict=True)]
        if self.skip is not None:
            found[0] = xp.concat([found[0], joined(self.skip, self.biases[-1])], axis=0)
            found[-1] = self.weights[-1]
        return found

    def moved(self, step: Blocks) -> Layered:
        """Return the network with parameters ``blocks() + step``."""
        weights, biases, skip = list(self.weights), list(self.biases), self.skip
        k = self.weights[0].shape[0]
        for layer in range(len(weights)):
            part = step[layer][:k] if layer == 0 else step[layer]
            width = weights[layer].shape[1]
            weights[layer] = weights[layer] + part[:, :width]
            if part.shape[1] > width:
                biases[layer] = biases[layer] + part[:, width]
        if skip is not None:
            skip = skip + step[0][k:, :-1]
            biases[-1] = biases[-1] + step[0][k:, -1]
        return dataclasses.replace(self, weights=tuple(weights), biases=tuple(biases), skip=skip)

    def forward(self, trace: Trace, step: Blocks) -> Array:
        """Multiply the Jacobian at the traced points with a direction: ``(n, m)``."""
        k = self.weights[0].shape[0]
        first = trace.inputs[0] @ step[0][:, :-1].T + step[0][:, -1]
        z = first[:, :k]
        for layer in range(1, len(self.weights)):
            h = z * trace.slopes[layer - 1]
            width = self.weights[layer].shape[1]
            z = h @ self.weights[layer].T + trace.inputs[layer] @ step[layer][:, :width].T
            if step[layer].shape[1] > width:
                z = z + step[layer][:, width]
        return z if self.skip is None else z + first[:, k:]

    def signals(self, trace: Trace, outer: Array) -> list[Array]:
        """Send ``(n, m)`` back through the network: for each block what its rows receive."""
        xp = array_namespace(outer)
        found, delta = [outer], outer
        for layer in range(len(self.weights) - 1, 0, -1):
            delta = (delta @ self.weights[layer]) * trace.slopes[layer - 1]
            found.insert(0, delta)
        if self.skip is not None:
            found[0] = xp.concat([found[0], outer], axis=1)
        return found

    def signals_by_output(
        self, trace: Trace, gain: Array, coupling: Array | None
    ) -> Iterator[list[Array]]:
        """Yield :meth:`signals` of the derivative of each weighted answer.

        That derivative is ``gain[:, o] (1[o = p] - coupling[:, p])`` by output p, as
        :class:`unrelu.core.links.Linked` has it times the weights; both ``(n, m)``.
        """
        xp = array_namespace(gain)
        outputs = gain.shape[1]
        each = xp.eye(outputs, dtype=gain.dtype, device=device(gain))
        for output in range(outputs):
            column = gain[:, output : output + 1]
            mine = each[output : output + 1, :]
            outer = column * mine if coupling is None else column * (mine - coupling)
            yield self.signals(trace, outer)

    def block_inputs(self, trace: Trace) -> list[Array]:
        """Return what each block multiplies at the traced points, ``(n, c)``: a one for biases."""
        xp, last = array_namespace(trace.inputs[0]), len(self.weights) - 1
        one = xp.ones_like(trace.inputs[0][:, :1])
        return [
            xp.concat([below, one], axis=1) if layer < last or self.skip is None else below
            for layer, below in enumerate(trace.inputs)
        ]

    def backward(self, trace: Trace, outer: Array) -> Blocks:
        """Multiply the transposed Jacobian with ``(n, m)``: a direction."""
        xp = array_namespace(outer)
        found = []
        last = len(self.weights) - 1
        for layer, delta in enumerate(self.signals(trace, outer)):
            block = delta.T @ trace.inputs[layer]
            if layer < last or self.skip is None:
                block = xp.concat([block, xp.sum(delta, axis=0)[:, None]], axis=1)
            found.append(block)
        return found

    def jacobian(self, trace: Trace, outer: Array) -> Array:
        """Return the gradients of ``sum_o outer[n, o] f_o(x_n)``, one row a point: ``(n, P)``.

        With ``outer`` one in column o and zero elsewhere these are the Jacobian's rows of
        output o.
        """
        xp = array_namespace(outer)
        n = outer.shape[0]
        found = [
            xp.reshape(delta[:, :, None] * below[:, None, :], (n, -1))
            for delta, below in zip(
                self.signals(trace, outer), self.block_inputs(trace), strict=True
            )
        ]
        return xp.concat(found, axis=1)

    def normalised(self) -> Layered:
        """Scale hidden rows to unit length, where the activation lets the scale move up."""
        if not self.activation.homogeneous:
            return self
        xp = array_namespace(*self.weights)
        weights, biases = list(self.weights), list(self.biases)
        for layer in range(len(weights) - 1):
            norm = xp.sqrt(xp.sum(weights[layer] ** 2, axis=1))
            norm = xp.where(norm > 0, norm, xp.ones_like(norm))
            weights[layer] = weights[layer] / norm[:, None]
            biases[layer] = biases[layer] / norm
            weights[layer + 1] = weights[layer + 1] * norm
        return dataclasses.replace(self, weights=tuple(weights), biases=tuple(biases))

    def astype(self, dtype: Any) -> Layered:
        """Return the network with another dtype."""
        xp = array_namespace(*self.weights)

        def cast(arrays: Sequence[Array]) -> tuple[Array, ...]:
            return tuple(xp.astype(a, dtype) for a in arrays)

        skip = None if self.skip is None else xp.astype(self.skip, dtype)
        return dataclasses.replace(
            self, weights=cast(self.weights), biases=cast(self.biases), skip=skip
        )
