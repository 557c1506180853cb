r"""A Kronecker-factored metric on the parameters of a layered network.

The Gauss-Newton matrix of a block that multiplies inputs a and receives signals :math:`\delta`
is :math:`\sum E[\delta\delta^\top \otimes a a^\top]`; with the two taken for independent it is
:math:`G \otimes A`, which is inverted by two small eigendecompositions [1]_. Blocks are taken
for independent of each other.

Both factors are scaled to unit diagonal before small eigenvalues are lifted: a unit that is
nearly dead (its outputs are tiny, or it is rarely on) has tiny entries, which are its right
scale and no sign of ill conditioning. With a floor on the unscaled factor conjugate gradients
never move such a unit.

.. [1] J. Martens, R. Grosse, "Optimizing neural networks with Kronecker-factored approximate
   curvature", ICML 2015.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from unrelu.core.layered import Array, Blocks, Layered

__all__ = ["Kronecker", "kronecker_metric"]


@dataclasses.dataclass(frozen=True)
class _Factor:
    """``S V diag(e) V^T S`` of a symmetric matrix: scales (k,), vectors (k, k), values (k,)."""

    scales: Array
    vectors: Array
    values: Array


@dataclasses.dataclass(frozen=True)
class _Pair:
    """The product of two factors, signals and inputs; scales and values as ``(r, c)``."""

    signals: _Factor
    inputs: _Factor
    scales: Array
    values: Array

    @classmethod
    def of(cls, signals: _Factor, inputs: _Factor) -> _Pair:
        return cls(
            signals,
            inputs,
            signals.scales[:, None] * inputs.scales[None, :],
            signals.values[:, None] * inputs.values[None, :],
        )

    def solve(self, block: Array) -> Array:
        left, right = self.signals.vectors, self.inputs.vectors
        inner = (left.T @ (block / self.scales) @ right) / self.values
        return (left @ inner @ right.T) / self.scales


@dataclasses.dataclass(frozen=True)
class Kronecker:
    """One pair of factors per block."""

    factors: tuple[_Pair, ...]

    def solve(self, step: Blocks) -> Blocks:
        """Multiply a direction with the inverse of the metric."""
        return [pair.solve(block) for block, pair in zip(step, self.factors, strict=True)]

    def dense(self) -> Array:
        """Return the metric as a matrix ``(P, P)``, for few parameters."""
        sizes = [math.prod(pair.scales.shape) for pair in self.factors]
        out = np.zeros((sum(sizes), sum(sizes)))
        start = 0
        for pair, size in zip(self.factors, sizes, strict=True):
            out[start : start + size, start : start + size] = np.kron(
                _matrix(pair.signals), _matrix(pair.inputs)
            )
            start += size
        return out


def _matrix(factor: _Factor) -> Any:
    half = factor.scales[:, None] * factor.vectors
    return np.asarray((half * factor.values) @ half.T)


def _factor(matrix: Array, floor: float) -> _Factor:
    xp = array_namespace(matrix)
    k = matrix.shape[0]
    if k == 0:
        return _Factor(matrix[:, 0] if matrix.shape[1] else xp.sum(matrix, axis=1), matrix, matrix)
    diagonal = xp.linalg.diagonal(matrix)
    largest = float(xp.max(diagonal))
    least = float(xp.finfo(matrix.dtype).eps) ** 2 * largest or 1.0
    scales = xp.sqrt(xp.where(diagonal > least, diagonal, xp.ones_like(diagonal) * least))
    values, vectors = xp.linalg.eigh(matrix / (scales[:, None] * scales[None, :]))
    low = floor * float(xp.max(values)) or 1.0
    return _Factor(scales, vectors, xp.where(values > low, values, xp.ones_like(values) * low))


def kronecker_metric(
    net: Layered, x: Array, gain: Array, coupling: Array | None, *, floor: float, rows: int
) -> Kronecker:
    """Estimate the metric from some of the points.

    Parameters
    ----------
    net, x
        A network and points ``(n, d)``.
    gain, coupling
        Derivative of the weighted answers after the outputs, ``(n, m)`` each, as
        :class:`unrelu.core.links.Linked` has it, times the weights.
    floor
        Least eigenvalue of a factor scaled to unit diagonal, over the largest one.
    rows
        How many points to take, evenly spread.
    """
    xp = array_namespace(x)
    n = gain.shape[0]
    stride = max(1, n // max(1, rows))
    x, gain = x[::stride], gain[::stride]
    coupling = None if coupling is None else coupling[::stride]
    signals: list[Any] = [0.0] * len(net.weights)
    _, trace = net.trace(x)
    for received in net.signals_by_output(trace, gain, coupling):
        for layer, delta in enumerate(received):
            signals[layer] = signals[layer] + delta.T @ delta
    share = xp.sum(gain**2, axis=1)
    share = share / (float(xp.sum(share)) or 1.0)
    factors = []
    for layer, below in enumerate(net.block_inputs(trace)):
        moments = (below * share[:, None]).T @ below
        above = _factor(signals[layer] * (n / x.shape[0]), floor)
        factors.append(_Pair.of(above, _factor(moments, floor)))
    return Kronecker(tuple(factors))
