r"""One damped Gauss-Newton for layered networks: any depth, any number of outputs, any size.

.. math:: \min_\theta \sum_{n,o} \rho\left(\frac{y_{no} - g_o(f_\theta(x_n))}{\sigma_{no}}\right)

over all parameters of a :class:`Layered` network f, where g is a link
(:mod:`unrelu.core.links`), :math:`\sigma` the deviation of each answer and :math:`\rho` grows
like a square up to a few deviations and like a logarithm beyond: an answer beside a kink, or a
unit that is not there yet, must not spoil the rest.

A step solves :math:`(J^\top J + \lambda M) v = J^\top r`, M the Kronecker-factored metric of
:mod:`unrelu.core.kronecker`. Few parameters: by a Cholesky factorisation. Else by conjugate
gradients preconditioned by M, with products in single precision (residuals and gradients stay
in the precision of the data, so that rounding costs steps and no digits). Memory is linear in
the number of answers.

It ends when a step would lower the sum of squares by a small part of what fitting noise alone
lowers it by (one deviation squared a parameter): it then moves every parameter by a small part
of its own statistical error. The error reached is noise times ``sqrt(P / (n m - P))``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace

from unrelu.core.activations import RELU, Activation
from unrelu.core.gram import gauss_newton_matrix
from unrelu.core.kronecker import Kronecker, kronecker_metric
from unrelu.core.layered import Array, Blocks, Layered, Trace
from unrelu.core.links import Link, Linked, apply_link
from unrelu.core.noise import NORMAL_MEDIAN, PER_UNKNOWN, RARE
from unrelu.core.row_blocks import RowBlocks, row_block_metric

__all__ = ["RELU", "Activation", "FitConfig", "Fitted", "Layered", "Link", "fit_network",
           "gain_by_chance"]  # fmt: skip

_SEARCHED = 3.0
"""Squared deviations by which a parameter that is fitted to noise lowers their sum where the
best of many places was taken; one where it was not."""


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """Sizes of the fit."""

    steps: int = 40
    """Most steps that are taken; one that is refused is tried again with more damping."""
    outlier: float = RARE
    """Deviations beyond which a residual counts less."""
    settled: float = 0.03
    """Ends with a step that promises less than this many squared deviations per parameter: what
    is left after it is smaller still. Conjugate gradients stop at this part of the first
    residual, in the metric: what they leave is of the same size."""
    inner: int = 120
    """Most iterations of conjugate gradients in a step."""
    metric_rows: int = PER_UNKNOWN * inner
    """Points that the metric is estimated from, whose factors have more than ``inner`` rows."""
    damping: float = 1e-3
    """First damping, in units of the metric, and the least eigenvalue of a scaled factor of it:
    what the first step leaves undamped need not be told apart; see :func:`kronecker_metric`."""


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What a fit reached.

    Attributes
    ----------
    network
        In the namespace and precision of the points, hidden rows of unit length for a ReLU.
    residual
        Answers minus predictions, ``(n, m)``; zero where an answer is missing.
    rms
        Root mean square of residuals over deviations, among answers that are there.
    scale
        The same, robustly: median size over 0.6745.
    converged
        Whether the last step was small against the statistical error.
    steps
        Steps tried.
    """

    network: Layered
    residual: Array
    rms: float
    scale: float
    converged: bool
    steps: int


@dataclasses.dataclass(frozen=True)
class _Problem:
    x: Array
    y: Array
    weights: Array  # one over the deviation, zero where missing
    link: Link
    config: FitConfig

    def predict(self, net: Layered) -> Linked:
        xp = array_namespace(self.x)
        parts = [apply_link(self.link, net.trace(self.x[s])[0]) for s in self.chunks(net)]
        if len(parts) == 1:
            return parts[0]
        coupling = None
        if parts[0].coupling is not None:
            coupling = xp.concat([part.coupling for part in parts], axis=0)
        return Linked(
            xp.concat([part.prediction for part in parts], axis=0),
            xp.concat([part.gain for part in parts], axis=0),
            coupling,
        )

    def chunks(self, net: Layered) -> list[slice]:
        return net.chunks(self.x.shape[0])

    def scaled(self, linked: Linked) -> Array:
        """Residuals over deviations, ``(n, m)``."""
        return (self.y - linked.prediction) * self.weights

    def loss(self, scaled: Array, cap: float) -> float:
        xp = array_namespace(scaled)
        return float(xp.sum(xp.log1p((scaled / cap) ** 2))) * cap**2


def fit_network(
    net: Layered,
    x: Array,
    y: Array,
    *,
    deviation: Array | float = 1.0,
    link: Link = "values",
    config: FitConfig | None = None,
    check: Callable[[], None] | None = None,
) -> Fitted:
    """Fit all parameters of a network to answers.

    Parameters
    ----------
    net
        Where to start; not far off, or few units.
    x, y
        Points ``(n, d)`` and answers ``(n, m)``; NaN marks a missing answer.
    deviation
        Standard deviation of each answer, a number or ``(n, 1)`` or ``(n, m)``; infinite
        where an answer says nothing.
    link
        How answers come from outputs.
    check
        Called before every step; may raise, to end a run whose time is up.
    """
    config = FitConfig() if config is None else config
    problem = _problem(x, y, deviation, link, config)
    net = net.normalised()
    damping, converged, step, tried = config.damping, False, 0, 0
    linked = problem.predict(net)
    while step < config.steps and not converged:
        if check is not None:
            check()
        tried += 1
        scaled = problem.scaled(linked)
        scale = _spread(scaled, problem.weights)
        cap = config.outlier * max(scale, 1.0)
        direction, promise = _step(problem, net, linked, scaled, cap, damping)
        converged = promise < config.settled * net.parameters * max(scale, 1.0) ** 2
        trial = net.moved(direction).normalised()
        trial_linked = problem.predict(trial)
        before, after = problem.loss(scaled, cap), problem.loss(problem.scaled(trial_linked), cap)
        gain = (before - after) / promise if promise > 0 else 0.0
        if gain > 0:
            net, linked, step = trial, trial_linked, step + 1
        damping = _next_damping(damping, gain)
    scaled = problem.scaled(linked)
    xp = array_namespace(scaled)
    count = max(1, int(xp.count_nonzero(problem.weights)))
    residual = xp.where(problem.weights > 0, problem.y - linked.prediction, xp.zeros_like(scaled))
    rms = float(xp.sqrt(xp.sum(scaled**2) / count))
    return Fitted(net, residual, rms, _spread(scaled, problem.weights), converged, tried)


def gain_by_chance(parameters: int) -> float:
    """Return by how much more parameters lower the sum of squares of noise, at most.

    In squared deviations: up to ``_SEARCHED`` a parameter where a place was searched for them,
    and ``FitConfig.outlier`` deviations of that.
    """
    return _SEARCHED * parameters + FitConfig.outlier * float(np.sqrt(2.0 * parameters))


def _problem(x: Array, y: Array, deviation: Any, link: Link, config: FitConfig) -> _Problem:
    """Check shapes; answers that are missing get weight zero."""
    xp = array_namespace(x, y)
    if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
        raise ValueError(f"points {x.shape} and answers {y.shape} must be (n, d) and (n, m)")
    deviation = xp.zeros_like(y) + deviation
    if bool(xp.any(deviation <= 0)):
        raise ValueError("deviations must be positive")
    here = xp.isfinite(y) & xp.isfinite(deviation)
    weights = xp.where(here, 1.0 / deviation, xp.zeros_like(y))
    return _Problem(x, xp.where(here, y, xp.zeros_like(y)), weights, link, config)


def _spread(scaled: Array, weights: Array) -> float:
    """Robust deviation of weighted residuals; missing answers left out."""
    xp = array_namespace(scaled)
    sizes = xp.sort(xp.abs(scaled)[weights > 0])
    count = sizes.shape[0]
    middle = sizes[max(count - 1, 0) // 2 : count // 2 + 1]
    return float(xp.mean(middle)) / NORMAL_MEDIAN if count else 0.0


def _next_damping(damping: float, gain: float) -> float:
    """Marquardt's rule: less after a step as good as promised, more after one that was not."""
    if gain > 0.75:
        return max(damping * 0.1, float(np.finfo(np.float64).eps))
    return damping if gain > 0.25 else damping * 10.0


def _step(
    problem: _Problem, net: Layered, linked: Linked, scaled: Array, cap: float, damping: float
) -> tuple[Blocks, float]:
    """Return a step and by how much it should lower the loss (twice its half square)."""
    xp = array_namespace(scaled)
    robust = xp.sqrt(1.0 / (1.0 + (scaled / cap) ** 2))
    gain = linked.gain * problem.weights * robust
    target = scaled * robust
    metric = _metric(problem, net, gain, linked.coupling)
    outputs = gain.shape[1]
    products = 100 * problem.config.inner
    if isinstance(problem.x, np.ndarray) and net.parameters * outputs <= products:
        direction, slope, curve = _dense(
            problem, net, gain, linked.coupling, target, metric, damping
        )
    else:
        direction, slope, curve = _conjugate_gradients(
            problem, net, gain, linked.coupling, target, metric, damping
        )
    return direction, 2.0 * slope - curve


def _metric(
    problem: _Problem, net: Layered, gain: Array, coupling: Array | None
) -> Kronecker | RowBlocks:
    """Return exact blocks per unit where that costs no more than a step, else a product."""
    config = problem.config
    if max(block.shape[1] for block in net.blocks()) <= config.inner:
        return row_block_metric(net, problem.x, gain, coupling, floor=config.damping)
    return kronecker_metric(
        net, problem.x, gain, coupling, floor=config.damping, rows=config.metric_rows
    )


def _dense(
    problem: _Problem,
    net: Layered,
    gain: Array,
    coupling: Array | None,
    target: Array,
    metric: Kronecker | RowBlocks,
    damping: float,
) -> tuple[Blocks, float, float]:
    """Solve the normal equations by Cholesky."""
    size = net.parameters
    matrix = gauss_newton_matrix(net, problem.x, gain, coupling)
    everything = slice(None)
    pull = _Normal(net, [], [everything], gain, coupling).pull
    blocks = pull(net.trace(problem.x)[1], target, everything)
    gradient = np.concatenate([block.ravel() for block in blocks])
    damped = matrix + damping * metric.dense()
    scale = 1.0 / np.sqrt(np.diag(damped))
    damped *= scale[:, None] * scale
    # Rounding makes a singular matrix slightly indefinite.
    damped[np.diag_indices(size)] += size * np.finfo(np.float64).eps
    factor = scipy.linalg.cho_factor(damped, check_finite=False)
    vector = scipy.linalg.cho_solve(factor, gradient * scale, check_finite=False) * scale
    return _unflatten(vector, net), float(gradient @ vector), float(vector @ matrix @ vector)


def _unflatten(vector: Array, net: Layered) -> Blocks:
    found, start = [], 0
    for block in net.blocks():
        size = block.shape[0] * block.shape[1]
        found.append(vector[start : start + size].reshape(block.shape))
        start += size
    return found


@dataclasses.dataclass(frozen=True)
class _Normal:
    """Products with ``J^T J`` of the weighted answers, in single precision, in chunks."""

    net: Layered
    traces: list[Trace]
    chunks: list[slice]
    gain: Array
    coupling: Array | None

    def __call__(self, step: Blocks) -> Blocks:
        total: Blocks | None = None
        for piece, trace in zip(self.chunks, self.traces, strict=True):
            rows = self.gain[piece] * self._centred(self.net.forward(trace, step), piece)
            part = self.pull(trace, rows, piece)
            total = part if total is None else _add(total, 1.0, part)
        assert total is not None
        return total

    def pull(self, trace: Trace, rows: Array, piece: slice) -> Blocks:
        """Multiply the transposed weighted Jacobian with ``(n, m)``."""
        xp = array_namespace(rows)
        outer = rows * self.gain[piece]
        if self.coupling is not None:
            outer = outer - self.coupling[piece] * xp.sum(outer, axis=1, keepdims=True)
        return self.net.backward(trace, outer)

    def _centred(self, z: Array, piece: slice) -> Array:
        if self.coupling is None:
            return z
        xp = array_namespace(z)
        return z - xp.sum(z * self.coupling[piece], axis=1, keepdims=True)


def _conjugate_gradients(
    problem: _Problem,
    net: Layered,
    gain: Array,
    coupling: Array | None,
    target: Array,
    metric: Kronecker | RowBlocks,
    damping: float,
) -> tuple[Blocks, float, float]:
    """Solve ``(J^T J + damping M) v = J^T target``, preconditioned by M."""
    xp = array_namespace(gain)
    config = problem.config
    chunks = problem.chunks(net)
    exact = _Normal(net, [], chunks, gain, coupling)
    gradient: Blocks | None = None
    unit = float(xp.max(gain)) or 1.0  # keeps squares of weights inside single precision
    single = net.astype(xp.float32)
    traces = []
    for piece in chunks:
        trace = net.trace(problem.x[piece])[1]
        part = exact.pull(trace, target[piece], piece)
        gradient = part if gradient is None else _add(gradient, 1.0, part)
        traces.append(trace.astype(xp.float32))
    assert gradient is not None
    coarse = _Normal(
        single,
        traces,
        chunks,
        xp.astype(gain / unit, xp.float32),
        None if coupling is None else xp.astype(coupling, xp.float32),
    )

    def product(step: Blocks) -> Blocks:
        narrow = [xp.astype(block, xp.float32) for block in step]
        return [
            xp.astype(block, block_.dtype) * unit**2
            for block, block_ in zip(coarse(narrow), step, strict=True)
        ]

    left, v = gradient, [xp.zeros_like(block) for block in gradient]
    z = metric.solve(left)
    # M is never multiplied with: that of a direction solved for is what it was solved from.
    search, measured, measured_v, size = z, left, v, _dot(left, z)
    end = config.settled**2 * size
    for _ in range(config.inner):
        if not size > end:
            break
        image = _add(product(search), damping, measured)
        length = size / _dot(search, image)
        v, measured_v = _add(v, length, search), _add(measured_v, length, measured)
        left = _add(left, -length, image)
        z = metric.solve(left)
        size, last = _dot(left, z), size
        search, measured = _add(z, size / last, search), _add(left, size / last, measured)
    # gradient - left is the damped product with v
    slope = _dot(gradient, v)
    return v, slope, slope - _dot(left, v) - damping * _dot(v, measured_v)


def _dot(first: Blocks, second: Blocks) -> float:
    xp = array_namespace(first[0])
    return float(sum(float(xp.sum(a * b)) for a, b in zip(first, second, strict=True)))


def _add(first: Blocks, factor: float, second: Blocks) -> Blocks:
    """Return ``first + factor second``."""
    return [a + factor * b for a, b in zip(first, second, strict=True)]
