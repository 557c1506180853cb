"""Least squares for sums of kinks: ``f(x) = sum_i s_i k(u_i.(x, 1)) + v.(x, 1)``.

``k`` is the absolute value or the ReLU, ``s_i`` a sign, and the length of
``u_i`` carries the outer weight. For a fixed side of every kink f is linear in
all its parameters, so a Gauss-Newton step solves a linear least-squares problem
exactly, and the iteration ends in finitely many steps once every sample lies on
its right side. In ``|z|`` with a free affine part v there is no orientation to
get wrong: ``a relu(z) = a |z| / 2 + a z / 2``.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray
from unrelu.core.memory import BLOCK

__all__ = ["Kinks", "NormalEquations", "damped_step", "normal_equations", "residuals"]


@dataclasses.dataclass(frozen=True)
class Kinks:
    """A sum of kinks and an affine part.

    Attributes
    ----------
    u
        ``(m, d + 1)``: outer weight times (direction, bias).
    sign
        ``(m,)`` of +1 and -1: the sign of the outer weight.
    affine
        ``(d + 1,)``, or None where the model has no free affine part.
    kind
        "abs" or "relu".
    """

    u: FloatArray
    sign: FloatArray
    affine: FloatArray | None
    kind: Literal["abs", "relu"]

    @property
    def parameters(self) -> FloatArray:
        """All free numbers: the rows of u, then the affine part."""
        tail = () if self.affine is None else (self.affine,)
        return np.concatenate([self.u.ravel(), *tail])

    def moved(self, step: FloatArray) -> Kinks:
        """Return the kinks after adding ``step`` to :attr:`parameters`."""
        size = self.u.size
        return dataclasses.replace(
            self,
            u=self.u + step[:size].reshape(self.u.shape),
            affine=None if self.affine is None else self.affine + step[size:],
        )

    def __call__(self, x: FloatArray) -> FloatArray:
        """Evaluate at ``x`` of shape ``(n, d)``; returns ``(n,)``."""
        z = x @ self.u[:, :-1].T
        z += self.u[:, -1]
        if self.kind == "abs":
            np.abs(z, out=z)
        else:
            np.maximum(z, 0.0, out=z)
        value = z @ self.sign
        if self.affine is not None:
            value += x @ self.affine[:-1] + self.affine[-1]
        return np.asarray(value)


@dataclasses.dataclass
class NormalEquations:
    """``J^T J``, ``J^T r``, ``r^T r`` and the number of rows; they add up."""

    matrix: FloatArray
    right: FloatArray
    square: float
    count: int

    def __iadd__(self, other: NormalEquations) -> NormalEquations:
        self.matrix += other.matrix
        self.right += other.right
        self.square += other.square
        self.count += other.count
        return self


def normal_equations(model: Kinks, x: FloatArray, y: FloatArray) -> NormalEquations:
    """Sum the normal equations of ``y - f(x)`` over ``(n, d)`` points."""
    m, width = model.u.shape
    free = 0 if model.affine is None else 1
    size = (m + free) * width
    matrix = np.zeros((size, size))
    right = np.zeros(size)
    square = 0.0
    rows = max(1, BLOCK // size)
    jacobian = np.empty((min(rows, max(len(x), 1)), m + free, width))
    for start in range(0, len(x), rows):
        points = x[start : start + rows]
        n = len(points)
        extended = np.concatenate([points, np.ones((n, 1))], axis=1)
        z = extended @ model.u.T
        if model.kind == "abs":
            slope = np.where(z < 0.0, -1.0, 1.0)
        else:
            slope = (z > 0.0).astype(np.float64)
        slope *= model.sign
        residual = y[start : start + rows] - np.einsum("nm,nm->n", slope, z)
        block = jacobian[:n]
        np.multiply(slope[:, :, None], extended[:, None, :], out=block[:, :m])
        if model.affine is not None:
            block[:, m] = extended
            residual -= extended @ model.affine
        flat = block.reshape(n, size)
        matrix += flat.T @ flat
        right += flat.T @ residual
        square += float(residual @ residual)
    return NormalEquations(matrix, right, square, len(x))


def residuals(model: Kinks, x: FloatArray, y: FloatArray) -> FloatArray:
    """``y - f(x)``, batch by batch; ``(n,)``."""
    out = np.empty(len(x))
    rows = max(1, BLOCK // (len(model.u) + x.shape[1]))
    for start in range(0, len(x), rows):
        piece = slice(start, start + rows)
        out[piece] = y[piece] - model(x[piece])
    return out


def damped_step(equations: NormalEquations, damping: float) -> FloatArray:
    """Solve ``(J^T J + damping diag(J^T J)) step = J^T r``.

    ``damping`` 0 gives the Gauss-Newton step; a ridge at rounding level keeps a
    unit that no sample reaches from stopping the factorisation.
    """
    diagonal = np.diagonal(equations.matrix)
    ridge = damping * diagonal + 4.0 * np.finfo(np.float64).eps * max(diagonal.max(), 1e-300)
    damped = equations.matrix + np.diag(ridge)
    try:
        factor = scipy.linalg.cho_factor(damped, lower=True, check_finite=False)
        step = scipy.linalg.cho_solve(factor, equations.right, check_finite=False)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(damped, equations.right, rcond=1e-13)[0])
    return np.asarray(step)
