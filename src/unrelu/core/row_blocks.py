r"""A metric on the parameters of a layered network with one exact block per unit.

The part of the Gauss-Newton matrix that belongs to the row of one unit is
:math:`\sum_n s_n a_n a_n^\top`, with the inputs a of its layer and the squared signals s that
it receives. Unlike a Kronecker product (:mod:`unrelu.core.kronecker`) it knows which inputs a
unit is on at: where answers lie in stars around each unit, or rare units are on at few of
them, conjugate gradients need several times fewer iterations. It costs as much as some tens of
them where layers are narrow.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from array_api_compat import array_namespace

from unrelu.core.layered import Array, Blocks, Layered

__all__ = ["RowBlocks", "row_block_metric"]


@dataclasses.dataclass(frozen=True)
class RowBlocks:
    """Per block of parameters ``(r, w)``: matrices ``(r, w, w)`` and their inverses."""

    matrices: tuple[Array, ...]
    inverses: tuple[Array, ...]

    def solve(self, step: Blocks) -> Blocks:
        """Multiply a direction with the inverse of the metric."""
        return [_each(a, block) for a, block in zip(self.inverses, step, strict=True)]

    def dense(self) -> Array:
        """Return the metric as a matrix ``(P, P)``, for few parameters."""
        sizes = [a.shape[0] * a.shape[1] for a in self.matrices]
        out, start = np.zeros((sum(sizes), sum(sizes))), 0
        for stack in self.matrices:
            for matrix in stack:
                end = start + len(matrix)
                out[start:end, start:end] = matrix
                start = end
        return out


def _each(matrices: Array, block: Array) -> Array:
    return (matrices @ block[:, :, None])[:, :, 0]


def row_block_metric(
    net: Layered, x: Array, gain: Array, coupling: Array | None, *, floor: float
) -> RowBlocks:
    """Compute the metric from all points.

    Parameters
    ----------
    net, x
        A network and points ``(n, d)``.
    gain, coupling
        Derivative of the weighted answers after the outputs, as for
        :func:`unrelu.core.kronecker.kronecker_metric`.
    floor
        Least eigenvalue of a block scaled to unit diagonal, over the largest one.
    """
    xp = array_namespace(x)
    layers = len(net.weights)
    matrices: list[Array] = [None] * layers
    for piece in net.chunks(x.shape[0]):
        _, trace = net.trace(x[piece])
        squares: list[Array] = [0.0] * layers
        shared = None if coupling is None else coupling[piece]
        for received in net.signals_by_output(trace, gain[piece], shared):
            for layer, delta in enumerate(received):
                squares[layer] = squares[layer] + delta**2
        for layer, below in enumerate(net.block_inputs(trace)):
            rows = range(squares[layer].shape[1])
            part = xp.stack([(below * squares[layer][:, j : j + 1]).T @ below for j in rows])
            matrices[layer] = part if matrices[layer] is None else matrices[layer] + part
    lifted = [_lifted(stack, floor) for stack in matrices]
    return RowBlocks(tuple(a for a, _ in lifted), tuple(b for _, b in lifted))


def _lifted(stack: Array, floor: float) -> tuple[Array, Array]:
    """Scale matrices ``(r, w, w)`` to unit diagonal, lift small eigenvalues; with inverses."""
    xp = array_namespace(stack)
    if stack.shape[0] * stack.shape[1] == 0:
        return stack, stack
    diagonal = xp.linalg.diagonal(stack)
    least = float(xp.finfo(stack.dtype).eps) ** 2 * float(xp.max(diagonal)) or 1.0
    scales = xp.sqrt(xp.where(diagonal > least, diagonal, xp.ones_like(diagonal) * least))
    values, vectors = xp.linalg.eigh(stack / (scales[:, :, None] * scales[:, None, :]))
    low = floor * xp.max(values, axis=1, keepdims=True)
    low = xp.where(low > 0, low, xp.ones_like(low))
    values = xp.where(values > low, values, low + xp.zeros_like(values))
    turned = xp.matrix_transpose(vectors)
    there = (scales[:, :, None] * vectors * values[:, None, :]) @ (turned * scales[:, None, :])
    back = (vectors / values[:, None, :] / scales[:, :, None]) @ (turned / scales[:, None, :])
    return there, back
