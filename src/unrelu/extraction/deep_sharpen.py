r"""Correct the first layer's rows, all of them from few gradients with room.

The layers above were measured through the right inverse of the rows found, ``W'``
and ``b'``. Where ``W = W' + E`` and ``b = b' + e`` are the true ones, the function of
``y' = W' x + b'`` that was found is the true one of ``y = M y' + s`` with
``M = W W'^+`` and ``s = b - M b'``: an error of the rows is no error of the layers above,
as long as all first-layer units are on. Elsewhere the two differ. At an input x with
gates ``on`` and ``alpha = U diag(on_2) V`` (both known), to first order

.. math::

    \nabla r = \sum_i \alpha_i \Big( on_i E_i - \sum_l on_l (E W'^+)_{il} W'_l \Big),

so that the part of the residual's gradient across the rows' span is
``sum_i alpha_i on_i E_i``, and its coefficient at ``W'_l`` is
``sum_i alpha_i (on_i - on_l) (E W'^+)_{il}``. In every direction these are k unknowns,
the same for all inputs: about k / m gradients, at inputs with room for long steps,
give all rows to rounding, by systems of k unknowns. The biases follow from the residual's
values: those of units that are off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_room import safe_steps
from unrelu.lines.gradients import GradientConfig, measure_gradients
from unrelu.networks import ReLUNetwork

__all__ = ["SharpenConfig", "sharpen_rows"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class SharpenConfig:
    """Choices of the correction."""

    surplus: float = 1.2
    """Equations per unknown."""
    pool: int = 12
    """Inputs compared, over those asked."""
    reach: float = 3.0
    """They lie at up to so many times typical inputs: farther out there is more room."""
    keep_off: float = 0.4
    """Part of the way to the next known surface that a step may go."""
    trust: float = 1e-6
    """Standard deviation of a row's error before: with larger ones the layers above would
    not have been found (the cone's margin)."""


@dataclasses.dataclass(frozen=True)
class _View:
    """A network at some inputs: gates, slopes of what lies above, heights of all units."""

    points: FloatArray
    on: FloatArray
    hidden: FloatArray
    alpha: FloatArray
    heights: FloatArray
    steps: FloatArray

    def at(self, which: IntArray) -> _View:
        return _View(*(getattr(self, f.name)[which] for f in dataclasses.fields(self)))


def _view(network: ReLUNetwork, x: FloatArray, config: SharpenConfig) -> _View:
    """Return what the network is at inputs ``(n, d)``; ``alpha`` is ``(n, m, k)``."""
    (w, v, u), (b, c, _) = network.weights, network.biases
    z = x @ w.T + b
    on = z > 0
    hidden = np.maximum(z, 0.0)
    upper = hidden @ v.T + c
    alpha = (u * (upper > 0)[:, None, :]) @ v
    steps = np.empty_like(x)
    longest = 1.0 + np.linalg.norm(x, axis=1)
    for i in range(len(x)):
        slopes = np.concatenate([w, (v * on[i]) @ w])
        heights = np.concatenate([z[i], upper[i]])[None]
        steps[i] = safe_steps(heights, slopes, config.keep_off, longest[i : i + 1])[0]
    return _View(x, on.astype(np.float64), hidden, alpha, np.concatenate([z, upper], 1), steps)


def _choose(view: _View, std: FloatArray, count: int) -> IntArray:
    """Choose inputs whose gradients, as precise as their steps are long, tell most."""
    n, m, k = view.alpha.shape
    typical = np.median(view.steps, axis=1)
    rows = view.alpha * view.on[:, None, :] * (typical[:, None] / std)[:, :, None]
    # Off units show as well, in the rows' span: both halves decide.
    away = view.alpha * (1.0 - view.on)[:, None, :] * (typical[:, None] / std)[:, :, None]
    order: list[int] = []
    for design in (rows, away):
        _, pivots = scipy.linalg.qr(design.reshape(n * m, k).T, mode="r", pivoting=True)
        order.append(0)
        order[-1:] = (pivots[: n * m] // m).tolist()
    half = len(order) // 2
    mixed = [i for pair in zip(order[:half], order[half:], strict=True) for i in pair]
    return np.array(list(dict.fromkeys(mixed))[:count], dtype=np.intp)


def sharpen_rows(
    ask: AskPoints,
    network: ReLUNetwork,
    noise: NoiseModel,
    seen: tuple[FloatArray, FloatArray],
    *,
    rng: np.random.Generator,
    config: SharpenConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return better rows and biases of a network's first layer, ``(k, d)`` and ``(k,)``.

    Parameters
    ----------
    network
        With two hidden layers, the first of at most d units.
    seen
        Typical inputs ``(n, d)`` and the answers there; they help to find the biases.
    """
    config = SharpenConfig() if config is None else config
    w, b = network.weights[0], network.biases[0]
    (k, d), m = w.shape, network.output_dim
    count = int(np.ceil(config.surplus * k / m)) + 2
    pool = rng.standard_normal((config.pool * count, d))
    pool *= rng.uniform(1.0, config.reach, (len(pool), 1))
    view = _view(network, pool, config)
    view = view.at(_choose(view, noise.at(pool), count))

    def residual(x: FloatArray) -> FloatArray:
        return np.asarray(ask(x) - network(x))

    values = residual(view.points)
    found = measure_gradients(
        residual, view.points, values, view.steps, np.eye(d), noise,
        rng=rng, config=gradient_config,
    )  # fmt: skip
    gradients = found.derivatives.transpose(0, 2, 1)  # (p, m, d)
    good = found.ok & np.isfinite(gradients).all(axis=(1, 2))
    std = np.median(found.std, axis=1)
    view, gradients, values, std = view.at(np.flatnonzero(good)), gradients[good], values[good], std[good]
    inverse = np.linalg.pinv(w)
    weight = 1.0 / std[:, :, None]
    inside = _inside(view, gradients @ inverse * weight, weight, config.trust)
    across = gradients - (gradients @ inverse) @ w
    design = (view.alpha * view.on[:, None, :] * weight).reshape(-1, k)
    error = _solve(design, (across * weight).reshape(len(design), d), config.trust)
    error += inside @ w
    x, y = np.concatenate([view.points, seen[0]]), np.concatenate([values, seen[1] - network(seen[0])])
    shift = _shift(_view_only(network, x), y, noise.at(x), b, error, inside, config.trust)
    return w + error, b + shift


def _view_only(network: ReLUNetwork, x: FloatArray) -> _View:
    (w, v, u), (b, c, _) = network.weights, network.biases
    z = x @ w.T + b
    hidden = np.maximum(z, 0.0)
    alpha = (u * (hidden @ v.T + c > 0)[:, None, :]) @ v
    return _View(x, (z > 0).astype(np.float64), hidden, alpha, z, x)


def _inside(view: _View, coefficients: FloatArray, weight: FloatArray, trust: float) -> FloatArray:
    """Solve for ``E W'^+``, column by column, ``(k, k)``."""
    k = view.on.shape[1]
    error = np.zeros((k, k))
    for l in range(k):
        design = view.alpha * (view.on - view.on[:, l : l + 1])[:, None, :] * weight
        design = np.delete(design.reshape(-1, k), l, axis=1)  # a row's own scale is free
        right = coefficients[:, :, l].reshape(-1, 1)
        error[np.arange(k) != l, l] = _solve(design, right, trust)[:, 0]
    return error


def _shift(
    view: _View,
    values: FloatArray,
    std: FloatArray,
    biases: FloatArray,
    error: FloatArray,
    inside: FloatArray,
    trust: float,
) -> FloatArray:
    """Solve for the biases' errors, ``(k,)``, from the residual's values."""
    moved = view.on * (view.points @ error.T) - (view.hidden - biases) @ inside.T
    left = values - np.einsum("pmk,pk->pm", view.alpha, moved)
    design = view.alpha * (view.on - 1.0)[:, None, :] / std[:, :, None]
    k = len(biases)
    return _solve(design.reshape(-1, k), (left / std).reshape(-1, 1), trust)[:, 0]


def _solve(design: FloatArray, right: FloatArray, trust: float) -> FloatArray:
    """Least squares, with unknowns of a given standard deviation before; by QR."""
    k = design.shape[1]
    if k == 0:
        return np.zeros((0, right.shape[1]))
    rows = np.concatenate([design, np.eye(k) / trust])
    q, r = np.linalg.qr(rows)
    return np.asarray(scipy.linalg.solve_triangular(r, q[: len(design)].T @ right))
