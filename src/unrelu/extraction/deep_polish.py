r"""Gauss-Newton polish of a ReLU network of any depth on given answers.

With every gate fixed a network is a product of its layers, smooth in all of
them; a step solves the weighted linear least-squares problem

.. math:: \min_s \sum_n \|(J_n s - r_n) / \sigma_n\|^2

where ``r_n`` is the residual at point n and ``J_n`` the Jacobian. The normal
matrix, factored, only preconditions: the step itself comes from conjugate
gradients on J, which never squares its condition.

Scaling a hidden unit up and its outgoing weights down changes nothing; one
weight per unit is held to remove that freedom.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.linalg

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.fit import FitConfig
from unrelu.core.memory import BLOCK
from unrelu.extraction.deep_numbers import LARGE, PLAIN, TRIES
from unrelu.networks import ReLUNetwork

__all__ = ["PolishConfig", "Polished", "gauge_mask", "polish"]

Layers = list[FloatArray]
"""One ``(out, in + 1)`` matrix per layer: weights, and the bias last."""


@dataclasses.dataclass(frozen=True)
class PolishConfig:
    """Sizes and tolerances of the polish."""

    steps: int = 8
    """Gauss-Newton steps at most; the last ones halve an error that is rounding already."""
    batch_values: int = BLOCK
    """Numbers of the Jacobian in memory at a time."""
    ridge: float = 1e-13
    """Added to the levelled normal matrix: what no answer determines stays as it is."""
    inner: int = FitConfig().inner
    """Conjugate-gradient steps per Gauss-Newton step."""
    factorisations: int = 2
    """Times the normal matrix is formed at most: it is what a polish costs."""
    inner_accuracy: float = 1e-8
    """Relative gradient at which they stop."""
    inner_enough: float = PLAIN
    """Relative gradient that must be reached, or the normal matrix is formed anew."""
    robust: float = LARGE
    """Residuals above so many times the median one count as that many: a few points that a
    missing unit spoils must not bend the rest."""
    gain: float = 0.95
    """A step that leaves more than this part of the residual is the last."""
    halvings: int = TRIES
    """Times a step that raises the residual is shortened by four."""


@dataclasses.dataclass(frozen=True)
class Polished:
    """The network after the polish.

    Attributes
    ----------
    network
        Of the same shape.
    before, after
        Root mean square of the weighted (robust) residuals: about 1 at the noise.
    steps
        Gauss-Newton steps taken.
    std
        Standard deviations of ``[W | b]``, one array per layer, where asked
        for: zero for what was held, infinite for what no answer determines.
    """

    network: ReLUNetwork
    before: float
    after: float
    steps: int
    std: tuple[FloatArray, ...] = ()


def _layers(network: ReLUNetwork) -> Layers:
    return [
        np.concatenate([w, b[:, None]], axis=1)
        for w, b in zip(network.weights, network.biases, strict=True)
    ]


def _network(layers: Layers) -> ReLUNetwork:
    return ReLUNetwork([a[:, :-1] for a in layers], [a[:, -1] for a in layers])


def _extended(a: FloatArray) -> FloatArray:
    return np.concatenate([a, np.ones((len(a), 1))], axis=1)


def _forward(
    layers: Layers, x: FloatArray
) -> tuple[list[FloatArray], list[BoolArray], FloatArray]:
    """Return every layer's extended input, the hidden gates, and the output."""
    inputs, gates = [_extended(x)], []
    for a in layers[:-1]:
        z = inputs[-1] @ a.T
        gates.append(z > 0)
        inputs.append(_extended(np.maximum(z, 0.0)))
    return inputs, gates, inputs[-1] @ layers[-1].T


def _push(
    layers: Layers, inputs: list[FloatArray], gates: list[BoolArray], move: Layers
) -> FloatArray:
    """Return J s for a change ``move`` of the layers."""
    change = inputs[0] @ move[0].T
    for i, gate in enumerate(gates):
        change = inputs[i + 1] @ move[i + 1].T + (change * gate) @ layers[i + 1][:, :-1].T
    return np.asarray(change)


def _pull(
    layers: Layers, inputs: list[FloatArray], gates: list[BoolArray], r: FloatArray
) -> Layers:
    """Return J^T r, shaped as the layers."""
    out: Layers = []
    for i in range(len(layers) - 1, -1, -1):
        out.append(r.T @ inputs[i])
        if i:
            r = (r @ layers[i][:, :-1]) * gates[i - 1]
    return out[::-1]


def _flat(layers: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([a.ravel() for a in layers])


def _shaped(vector: FloatArray, like: Layers) -> Layers:
    ends = np.cumsum([a.size for a in like])[:-1]
    return [p.reshape(a.shape) for p, a in zip(np.split(vector, ends), like, strict=True)]


def gauge_mask(network: ReLUNetwork) -> list[BoolArray]:
    """Return which entries of ``[W | b]`` may move, one array per layer.

    The largest incoming weight of each hidden unit is held.
    """
    masks = [np.ones((w.shape[0], w.shape[1] + 1), dtype=bool) for w in network.weights]
    for mask, w in zip(masks[:-1], network.weights[:-1], strict=True):
        mask[np.arange(len(w)), np.abs(w).argmax(axis=1)] = False
    return masks


def _normal_matrix(
    layers: Layers,
    inputs: list[FloatArray],
    gates: list[BoolArray],
    weight: FloatArray,
    free: BoolArray,
    batch_values: int,
) -> FloatArray:
    """Return ``J^T diag(weight^2) J`` over the free parameters.

    With several outputs one signed sum of them stands for all at each point;
    the matrix is a preconditioner only.
    """
    n, m = weight.shape
    signs = np.where((np.arange(n)[:, None] * 2654435761 >> np.arange(m)) & 1, 1.0, -1.0)
    picked = weight if m == 1 else weight * signs
    index = np.flatnonzero(free)
    matrix = np.zeros((len(index), len(index)), order="F")
    rows = max(1, batch_values // max(1, len(free)))
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        delta = picked[part]
        blocks: list[FloatArray] = []
        for i in range(len(layers) - 1, -1, -1):
            blocks.append(
                (delta[:, :, None] * inputs[i][part][:, None, :]).reshape(len(delta), -1)
            )
            if i:
                delta = (delta @ layers[i][:, :-1]) * gates[i - 1][part]
        jacobian = np.concatenate(blocks[::-1], axis=1)[:, index]
        matrix = scipy.linalg.blas.dsyrk(1.0, jacobian.T, beta=1.0, c=matrix, overwrite_c=1)
    return np.asarray(np.triu(matrix) + np.triu(matrix, 1).T)  # one half was filled


@dataclasses.dataclass(frozen=True)
class _Preconditioner:
    """Lower Cholesky factor of the levelled normal matrix."""

    factor: FloatArray
    level: FloatArray
    index: IntArray


def _precondition(
    layers: Layers,
    inputs: list[FloatArray],
    gates: list[BoolArray],
    weight: FloatArray,
    free: BoolArray,
    config: PolishConfig,
) -> _Preconditioner:
    matrix = _normal_matrix(layers, inputs, gates, weight, free, config.batch_values)
    level = np.sqrt(np.maximum(np.diagonal(matrix), np.finfo(np.float64).tiny))
    seen = level > 1e-14 * level.max()
    level = np.where(seen, level, np.inf)  # what nothing depends on is held
    matrix /= level
    matrix /= level[:, None]
    ridge = config.ridge
    while True:
        matrix[np.diag_indices(len(matrix))] = np.where(seen, 1.0 + ridge, 1.0)
        try:
            factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
            return _Preconditioner(factor, level, np.flatnonzero(free))
        except np.linalg.LinAlgError:
            ridge *= 10.0


def _step(
    layers: Layers,
    inputs: list[FloatArray],
    gates: list[BoolArray],
    residual: FloatArray,
    weight: FloatArray,
    size: int,
    preconditioner: _Preconditioner,
    config: PolishConfig,
) -> tuple[FloatArray, bool]:
    """Solve the weighted least-squares problem.

    Returns the flat change of all parameters, and whether the preconditioner
    was good enough to get there.
    """
    factor, level, index = (
        preconditioner.factor,
        preconditioner.level,
        preconditioner.index,
    )

    def out(s: FloatArray) -> FloatArray:
        vector = np.zeros(size)
        vector[index] = s / level
        return vector

    def forward(s: FloatArray) -> FloatArray:
        u = scipy.linalg.solve_triangular(factor, s, lower=True, trans=1, check_finite=False)
        return weight * _push(layers, inputs, gates, _shaped(out(u), layers))

    def backward(r: FloatArray) -> FloatArray:
        g = _flat(_pull(layers, inputs, gates, weight * r))[index] / level
        return np.asarray(scipy.linalg.solve_triangular(factor, g, lower=True, check_finite=False))

    # Conjugate gradients on the normal equations of the preconditioned Jacobian (CGLS).
    solution = np.zeros(len(index))
    r = weight * residual
    gradient = backward(r)
    direction = gradient.copy()
    power = first = float(gradient @ gradient)
    for _ in range(config.inner):
        if not power > config.inner_accuracy**2 * first:
            break
        image = forward(direction)
        length = float((image * image).sum())
        if not length > 0:
            break
        along = power / length
        solution += along * direction
        r = r - along * image
        gradient = backward(r)
        power, old = float(gradient @ gradient), power
        direction = gradient + (power / old) * direction
    u = scipy.linalg.solve_triangular(factor, solution, lower=True, trans=1, check_finite=False)
    return out(u), power <= config.inner_enough**2 * first


def polish(
    network: ReLUNetwork,
    x: FloatArray,
    y: FloatArray,
    std: FloatArray,
    *,
    free: Sequence[BoolArray] | None = None,
    deviations: bool = False,
    config: PolishConfig | None = None,
) -> Polished:
    """Fit all parameters of a nearly right network to answers.

    Parameters
    ----------
    network
        Without a skip term.
    x, y, std
        Points ``(n, d)``, answers ``(n, m)`` and their deviations ``(n, m)``.
    free
        Which entries of ``[W | b]`` may move, one array per layer; by default
        all but :func:`gauge_mask`'s.
    deviations
        Whether to return standard deviations (the inverse of the normal matrix).
    """
    config = PolishConfig() if config is None else config
    mask = _flat([np.asarray(f, dtype=np.float64) for f in (free or gauge_mask(network))]) > 0
    layers = _layers(network)
    weight = 1.0 / std

    def robust(r: FloatArray) -> tuple[FloatArray, float]:
        """Weights with outliers pulled in, and the cost."""
        size = np.abs(r * weight).max(axis=1)
        limit = config.robust * max(float(np.median(size)), 1.0)
        pulled = weight * np.minimum(1.0, limit / np.maximum(size, limit))[:, None]
        return pulled, float(np.sqrt(np.mean((r * pulled) ** 2)))

    inputs, gates, value = _forward(layers, x)
    residual = y - value
    pulled, cost = robust(residual)
    before, taken = cost, 0
    fresh: _Preconditioner | None = None
    formed = 0
    for _ in range(config.steps):
        if fresh is None:
            fresh = _precondition(layers, inputs, gates, pulled, mask, config)
            formed += 1
        move, enough = _step(layers, inputs, gates, residual, pulled, len(mask), fresh, config)
        if not enough and formed < config.factorisations:
            fresh = None
        if not np.isfinite(move).all():
            break
        best = None
        for shorter in range(config.halvings):
            trial = [
                a + b for a, b in zip(layers, _shaped(move * 0.25**shorter, layers), strict=True)
            ]
            t_inputs, t_gates, t_value = _forward(trial, x)
            t_pulled, t_cost = robust(y - t_value)
            if t_cost < cost:
                best = (trial, t_inputs, t_gates, y - t_value, t_pulled, t_cost)
                break
        if best is None:
            break
        taken += 1
        done = best[5] > config.gain * cost
        layers, inputs, gates, residual, pulled, cost = best
        if done:
            break
    spread: tuple[FloatArray, ...] = ()
    if deviations:
        if fresh is None:
            fresh = _precondition(layers, inputs, gates, pulled, mask, config)
        spread = tuple(_shaped(_deviations(fresh, len(mask)) * max(cost, 1.0), layers))
    return Polished(_network(layers), before, cost, taken, spread)


def _deviations(preconditioner: _Preconditioner, size: int) -> FloatArray:
    """Root diagonal of the inverse normal matrix; zero where nothing was free."""
    inverse, _ = scipy.linalg.lapack.dtrtri(preconditioner.factor, lower=1)
    own = np.sqrt((inverse**2).sum(axis=0))
    own = np.where(np.isfinite(preconditioner.level), own / preconditioner.level, np.inf)
    out = np.zeros(size)
    out[preconditioner.index] = own
    return out
