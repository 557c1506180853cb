r"""The Gauss-Newton matrix of a layered network, without its Jacobian.

The derivative of output o by the parameter (r, i) of a block is the signal :math:`\delta_{or}`
that its row receives times the input :math:`a_i` of its layer. So of two blocks

.. math:: (J^\top J)_{(r,i),(s,j)}
   = \sum_n \Big(\sum_o \delta_{nor} \delta'_{nos}\Big) a_{ni} a'_{nj}

is one product of two matrices with a row a point: as many times cheaper than products of the
Jacobian's rows as there are outputs.
"""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.layered import Layered
from unrelu.core.memory import BLOCK

__all__ = ["gauss_newton_matrix"]


def gauss_newton_matrix(
    net: Layered, x: FloatArray, gain: FloatArray, coupling: FloatArray | None
) -> FloatArray:
    """Return ``J^T J`` of the weighted answers, ``(P, P)``.

    Parameters
    ----------
    net, x
        A network and points ``(n, d)``.
    gain, coupling
        Derivative of the weighted answers after the outputs, as for
        :func:`unrelu.core.kronecker.kronecker_metric`.
    """
    shapes = [block.shape for block in net.blocks()]
    pairs = [(a, b) for b in range(len(shapes)) for a in range(b + 1)]
    sums = {
        (a, b): np.zeros((shapes[a][0] * shapes[b][0], shapes[a][1] * shapes[b][1]))
        for a, b in pairs
    }
    widest = sum(rows * rows + columns * columns for rows, columns in shapes)
    size = max(1, BLOCK // widest)
    for start in range(0, len(x), size):
        piece = slice(start, start + size)
        signals, inputs = _factors(
            net, x[piece], gain[piece], None if coupling is None else coupling[piece]
        )
        for a, b in pairs:
            received = np.swapaxes(signals[a], 1, 2) @ signals[b]
            below = inputs[a][:, :, None] * inputs[b][:, None, :]
            n = len(received)
            sums[a, b] += received.reshape(n, -1).T @ below.reshape(n, -1)
    ends = np.cumsum([0] + [rows * columns for rows, columns in shapes])
    matrix = np.empty((ends[-1], ends[-1]))
    for (a, b), total in sums.items():
        (rows, columns), (others, across) = shapes[a], shapes[b]
        sorted_ = total.reshape(rows, others, columns, across).transpose(0, 2, 1, 3)
        block = sorted_.reshape(rows * columns, others * across)
        matrix[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = block
        matrix[ends[b] : ends[b + 1], ends[a] : ends[a + 1]] = block.T
    return matrix


def _factors(
    net: Layered, x: FloatArray, gain: FloatArray, coupling: FloatArray | None
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return signals ``(n, m, r)`` and inputs ``(n, c)`` of every block."""
    _, trace = net.trace(x)
    received = net.signals_by_output(trace, gain, coupling)
    signals = [np.stack(part, axis=1) for part in zip(*received, strict=True)]
    return signals, net.block_inputs(trace)
