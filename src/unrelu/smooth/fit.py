r"""One hidden layer fitted to answers: the inner layer by Levenberg-Marquardt, the rest exactly.

.. math:: f(x) = U \varphi(W x + b) + c + S x

is linear in U, c and S. They are eliminated (variable projection, Golub & Pereyra 1973, with
Kaufman's approximation), which leaves the rows of W and b. With m outputs the residual's
derivative by unit j is :math:`-P^\perp \varphi'_j x\, u_j^\top`, so that the normal matrix of
all outputs is one product of n rows, whatever m:

.. math:: N_{(j,a),(l,b)} = (U^\top U)_{jl}\,(A^\top P^\perp A)_{(j,a),(l,b)},
          \quad A_{n,(j,a)} = \varphi'(z_{nj})\, x_{na}.

Answers of the same row are weighted alike.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray
from unrelu.core.activations import Activation
from unrelu.core.fit import FitConfig
from unrelu.smooth.config import EPS

__all__ = ["Layer", "LayerFit", "fit_layer", "solve_outputs"]

DENSE = 3500
"""Parameters of the inner layer up to which the normal matrix is factored: 100 MB, a second."""
PATIENCE = 6
"""A fit also ends when so many steps in turn do not halve the sum of squares: near the solution
each lowers it a hundredfold, on the way there are slow ones."""
RISE = 8.0
"""What damping is multiplied by after a step that lowers nothing, and divided by the square of
after one that does."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """A hidden layer and what is built on it.

    Attributes
    ----------
    weights, biases
        ``(k, d)`` and ``(k,)``.
    outputs, constant
        ``(m, k)`` and ``(m,)``.
    linear
        S, ``(m, d)``, or None where there is no affine term beside the units.
    """

    weights: FloatArray
    biases: FloatArray
    outputs: FloatArray
    constant: FloatArray
    linear: FloatArray | None

    def __call__(self, points: FloatArray, phi: Activation) -> FloatArray:
        """Evaluate at ``(n, d)``; returns ``(n, m)``."""
        value = phi(points @ self.weights.T + self.biases) @ self.outputs.T + self.constant
        return np.asarray(value if self.linear is None else value + points @ self.linear.T)

    def kept(self, which: FloatArray) -> Layer:
        """Return the layer with some of its units, by index or mask."""
        return dataclasses.replace(
            self,
            weights=self.weights[which],
            biases=self.biases[which],
            outputs=self.outputs[:, which],
        )


@dataclasses.dataclass(frozen=True)
class LayerFit:
    """What a fit reached.

    Attributes
    ----------
    layer
        The layer.
    rms
        Root mean square residual over the deviations of the answers, corrected for the number
        of parameters: 1 where nothing but noise is left.
    steps
        Steps tried.
    """

    layer: Layer
    rms: float
    steps: int


@dataclasses.dataclass(frozen=True)
class _Data:
    x1: FloatArray  # inputs with a one, (n, d + 1)
    y: FloatArray  # answers over their deviations
    weights: FloatArray  # one over the deviations, (n, 1)
    skip: bool


@dataclasses.dataclass(frozen=True)
class _State:
    rows: FloatArray  # (k, d + 1): weights and bias
    z: FloatArray
    basis: FloatArray  # orthonormal, of all that is linear, (n, q)
    coefficients: FloatArray  # (k + 1 + d, m)
    residual: FloatArray
    loss: float


def _project(data: _Data, rows: FloatArray, phi: Activation) -> _State:
    """Solve for all that is linear."""
    z = data.x1 @ rows.T
    parts = [phi(z), data.x1[:, -1:]] + ([data.x1[:, :-1]] if data.skip else [])
    design = data.weights * np.concatenate(parts, axis=1)
    scale = np.maximum(np.linalg.norm(design, axis=0), np.finfo(np.float64).tiny)
    left, values, right = np.linalg.svd(design / scale, full_matrices=False)
    # Units that are one and the same, or linear where they were asked, share their outputs.
    good = values > EPS * len(design) * values[0]
    left, values, right = left[:, good], values[good], right[good]
    image = left.T @ data.y
    coefficients = (right.T @ (image / values[:, None])) / scale[:, None]
    residual = data.y - left @ image
    return _State(rows, z, left, coefficients, residual, float(np.sum(residual**2)))


def _gradient(data: _Data, state: _State, phi: Activation) -> tuple[FloatArray, FloatArray]:
    """Return the weighted slopes ``(n, k)`` and the gradient ``(P,)`` of the inner layer."""
    slope = data.weights * phi.slope(state.z)
    u = state.coefficients[: len(state.rows)]
    return slope, ((slope * (state.residual @ u.T)).T @ data.x1).ravel()


class _Dense:
    """The normal matrix as it is, for as many parameters as can be factored."""

    def __init__(self, data: _Data, state: _State, slope: FloatArray) -> None:
        k, width = state.rows.shape
        a = (slope[:, :, None] * data.x1[:, None, :]).reshape(len(slope), k * width)
        shared = state.basis.T @ a
        normal = a.T @ a - shared.T @ shared
        u = state.coefficients[:k]
        self.normal = normal * np.repeat(np.repeat(u @ u.T, width, axis=0), width, axis=1)

    def solve(self, gradient: FloatArray, damping: float) -> FloatArray | None:
        """Return the damped step."""
        root = _root(np.diagonal(self.normal))
        if root is None:
            return None
        matrix = self.normal / root[:, None] / root[None, :]
        matrix[np.diag_indices_from(matrix)] += damping
        try:
            factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        step = scipy.linalg.cho_solve(factor, gradient / root, check_finite=False) / root
        return np.asarray(step)


class _Single:
    """The equations of one output as they are: their squares would lose half of the digits."""

    def __init__(self, data: _Data, state: _State, slope: FloatArray) -> None:
        k, width = state.rows.shape
        a = slope * state.coefficients[:k, 0]
        a = (a[:, :, None] * data.x1[:, None, :]).reshape(len(slope), k * width)
        a -= state.basis @ (state.basis.T @ a)
        self.root = _root(np.einsum("np,np->p", a, a))
        self.right = state.residual[:, 0]
        self.equations = a

    def solve(self, gradient: FloatArray, damping: float) -> FloatArray | None:
        """Return the damped step."""
        if self.root is None:
            return None
        count = len(gradient)
        table = np.concatenate([self.equations / self.root, np.sqrt(damping) * np.eye(count)])
        right = np.concatenate([self.right, np.zeros(count)])
        factor, triangle = scipy.linalg.qr_multiply(table, right, mode="right", overwrite_a=True)
        step = scipy.linalg.solve_triangular(triangle, factor, check_finite=False)
        return np.asarray(step / self.root)


class _Products:
    """The normal matrix by its products, for conjugate gradients with a block for each unit."""

    def __init__(self, data: _Data, state: _State, slope: FloatArray) -> None:
        self.x1, self.slope, self.basis = data.x1, slope, state.basis
        self.u = state.coefficients[: len(state.rows)]
        blocks = []
        for j, size in enumerate(np.sum(self.u**2, axis=1)):
            a = slope[:, j : j + 1] * data.x1
            shared = state.basis.T @ a
            blocks.append(size * (a.T @ a - shared.T @ shared))
        self.blocks = np.stack(blocks)

    def __matmul__(self, rows: FloatArray) -> FloatArray:
        moved = (self.slope * (self.x1 @ rows.T)) @ self.u
        moved = moved - self.basis @ (self.basis.T @ moved)
        return np.asarray((self.slope * (moved @ self.u.T)).T @ self.x1)

    def solve(self, gradient: FloatArray, damping: float) -> FloatArray | None:
        """Return the damped step, to a part of its length."""
        k, width = self.blocks.shape[:2]
        root = _root(np.einsum("jaa->ja", self.blocks).ravel())
        if root is None:
            return None
        scale = root.reshape(k, width)
        blocks = self.blocks / scale[:, :, None] / scale[:, None, :] + damping * np.eye(width)
        inverses = np.linalg.pinv(blocks, rcond=EPS * width, hermitian=True)
        step = np.zeros((k, width))
        rest = gradient.reshape(k, width) / scale
        ahead = np.einsum("jab,jb->ja", inverses, rest)
        direction, product = ahead, float(np.vdot(rest, ahead))
        goal = np.sqrt(EPS) * product  # 1e-4 of the first residual
        for _ in range(4 * FitConfig().inner):
            image = (self @ (direction / scale)) / scale + damping * direction
            along = float(np.vdot(direction, image))
            if not along > 0.0 or not product > goal:
                break
            step = step + product / along * direction
            rest = rest - product / along * image
            ahead = np.einsum("jab,jb->ja", inverses, rest)
            product, before = float(np.vdot(rest, ahead)), product
            direction = ahead + product / before * direction
        return np.asarray((step / scale).ravel())


def _root(diagonal: FloatArray) -> FloatArray | None:
    """Return the roots of a diagonal, none of them tiny; None where all are zero."""
    largest = float(diagonal.max())
    if not 0.0 < largest < np.inf:
        return None
    return np.asarray(np.sqrt(np.maximum(diagonal, EPS * largest)))


def fit_layer(
    points: FloatArray,
    answers: FloatArray,
    deviations: FloatArray,
    weights: FloatArray,
    biases: FloatArray,
    phi: Activation,
    *,
    skip: bool,
    steps: int | None = None,
    enough: float = 1.0,
    good: float = 1.0,
) -> LayerFit:
    """Fit a hidden layer to answers, from a start.

    Parameters
    ----------
    points, answers
        ``(n, d)`` and ``(n, m)``.
    deviations
        Standard deviation of the answers at each point, ``(n,)``.
    weights, biases
        The start, ``(k, d)`` and ``(k,)``.
    skip
        Whether there is an affine term beside the units.
    steps
        Most steps; by default those of every fit.
    enough
        Residual, as :attr:`LayerFit.rms`, at which the fit ends.
    good
        Residual from which on it ends at the first step that lowers nothing: rounding.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _fitted(
            points, answers, deviations, np.column_stack([weights, biases]), phi, skip,
            FitConfig().steps if steps is None else steps, enough, good,
        )  # fmt: skip


def _fitted(
    points: FloatArray,
    answers: FloatArray,
    deviations: FloatArray,
    rows: FloatArray,
    phi: Activation,
    skip: bool,
    steps: int,
    enough: float,
    good: float,
) -> LayerFit:
    """Do what :func:`fit_layer` says; a step to where numbers overflow lowers nothing."""
    inverse = 1.0 / deviations[:, None]
    data = _Data(np.column_stack([points, np.ones(len(points))]), answers * inverse, inverse, skip)
    state = _project(data, rows, phi)
    damping, taken, slow = EPS**0.25, 0, 0
    while taken < steps and slow < PATIENCE and not _rms(data, state) <= enough:
        slope, gradient = _gradient(data, state, phi)
        kind: type[_Dense | _Products | _Single]
        kind = _Dense if len(gradient) <= DENSE else _Products
        if len(gradient) <= min(DENSE, len(data.x1)) and data.y.shape[1] == 1:
            kind = _Single
        normal = kind(data, state, slope)
        before, promised = state.loss, np.inf
        while taken < steps and damping < 1.0 / EPS:
            taken += 1
            step = normal.solve(gradient, damping)
            if step is not None:
                promised = float(gradient @ step)
                trial = _project(data, state.rows + step.reshape(state.rows.shape), phi)
                if trial.loss < state.loss:
                    state = trial
                    break
                if promised < _least(state, gradient) or _rms(data, state) <= good:
                    break
            damping *= RISE
        if promised < _least(state, gradient) or state.loss == before:
            break
        damping /= RISE**2
        slow = slow + 1 if before < 2.0 * state.loss else 0
    return LayerFit(_layer(data, state), _rms(data, state), taken)


def _least(state: _State, gradient: FloatArray) -> float:
    """Return how much a step must promise to be worth it.

    Less moves no parameter by a tenth of its own error, nor lowers the loss by a part that shows.
    """
    return FitConfig().settled ** 2 * max(len(gradient), state.loss)


def solve_outputs(
    points: FloatArray,
    answers: FloatArray,
    deviations: FloatArray,
    weights: FloatArray,
    biases: FloatArray,
    phi: Activation,
    *,
    skip: bool,
) -> LayerFit:
    """Fit all that is linear to answers, the hidden layer as it is."""
    return fit_layer(points, answers, deviations, weights, biases, phi, skip=skip, steps=0)


def _layer(data: _Data, state: _State) -> Layer:
    k = len(state.rows)
    c = state.coefficients
    return Layer(
        weights=state.rows[:, :-1].copy(),
        biases=state.rows[:, -1].copy(),
        outputs=c[:k].T.copy(),
        constant=c[k].copy(),
        linear=c[k + 1 :].T.copy() if data.skip else None,
    )


def _rms(data: _Data, state: _State) -> float:
    n, m = data.y.shape
    free = n * m - state.rows.size - state.basis.shape[1] * m
    return float(np.sqrt(state.loss / max(free, 1)))
