"""Levenberg-Marquardt over all neurons of a scalar function, on Gaussian samples.

Where answers are noisy, the line search leaves errors that more samples average
out. In ``|z|`` form with a free affine part (``u relu(z) = u |z| / 2 + u z / 2``)
the model is linear in every parameter while no sample changes sides, so a step
solves the whole problem at once near the solution.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.piecewise import Kinks, damped_step, normal_equations, residuals
from unrelu.learner.neurons import Neurons
from unrelu.lines.survey import SurveyLine

__all__ = [
    "PolishConfig",
    "band_points",
    "in_band",
    "kinks_from",
    "neurons_from",
    "polish_neurons",
]


@dataclasses.dataclass(frozen=True)
class PolishConfig:
    """Choices of the polish."""

    steps: int = 25
    """Accepted steps at most; from a good start a handful suffice."""
    work: float = 1e11
    """Multiplications after which no further step is begun: a minute, at worst."""
    attempts: int = 14
    """Dampings tried per step, each four times the last: 4^14 reaches any trust region."""
    damping: float = 1e-6
    """First damping, relative to the diagonal."""
    stall: float = 1e-4
    """Relative decrease of the squares below which it ends."""
    trim: float = 9.0
    """Samples whose residual exceeds this many medians are left out: a bump not yet found
    must not bend everything else. Gaussian noise exceeds 6 deviations one time in 1e9."""
    parameters: int = 2500
    """Above this many parameters a step costs too much memory and time; nothing is done."""


def kinks_from(neurons: Neurons) -> Kinks:
    """Write scalar neurons in ``|z|`` form."""
    out = neurons.outputs[0]
    half = 0.5 * out[:, None] * np.column_stack([neurons.weights, neurons.biases])
    affine = np.append(neurons.linear[0], neurons.constant[0]) + half.sum(axis=0)
    sign = np.where(out < 0, -1.0, 1.0)
    return Kinks(sign[:, None] * half, sign, affine, "abs")


def neurons_from(model: Kinks) -> Neurons:
    """Write ``|z|`` form as neurons: ``s |z| = 2 s relu(z) - s z``."""
    assert model.affine is not None
    affine = model.affine - model.sign @ model.u
    return Neurons(
        2.0 * model.u[:, :-1],
        2.0 * model.u[:, -1],
        model.sign[None, :],
        affine[None, :-1],
        affine[-1:],
    )


def polish_neurons(
    neurons: Neurons,
    x: FloatArray,
    y: FloatArray,
    *,
    keep: BoolArray | None = None,
    config: PolishConfig | None = None,
) -> Neurons:
    """Fit all neurons to samples ``(n, d)``, ``(n, 1)``; outliers are trimmed.

    Parameters
    ----------
    keep
        Samples that are never trimmed, ``(n,)``.

    Returns
    -------
    Neurons
        Those with the least trimmed squares seen; the same object where no
        step helped, or the problem is too large.
    """
    config = PolishConfig() if config is None else config
    size = (neurons.count + 1) * (x.shape[1] + 1)
    if neurons.outputs.shape[0] != 1 or size > config.parameters or len(x) < size:
        return neurons
    model = kinks_from(neurons)
    answers = y[:, 0]
    damping = config.damping
    improved = False
    steps = min(config.steps, max(2, int(config.work / (len(x) * size**2))))
    for _ in range(steps):
        error = np.abs(residuals(model, x, answers))
        inside = error <= config.trim * float(np.median(error))
        if keep is not None:
            inside |= keep
        if np.count_nonzero(inside) < size:
            inside[:] = True
        xs, ys = x[inside], answers[inside]
        equations = normal_equations(model, xs, ys)
        before = equations.square
        moved = None
        for _ in range(config.attempts):
            trial = model.moved(damped_step(equations, damping))
            square = float(np.sum(residuals(trial, xs, ys) ** 2))
            if square < before:
                moved = trial
                damping = max(0.1 * damping, 1e-12)
                break
            damping *= 4.0
        if moved is None:
            break
        model, improved = moved, True
        if before - square <= config.stall * before:
            break
    return neurons_from(model).tidy() if improved else neurons


def _bands(neurons: Neurons, line: SurveyLine) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return unit normals, offsets and half-widths of the bands around neurons of a line."""
    norms = neurons.norms
    normals, offsets = neurons.weights / norms[:, None], neurons.biases / norms
    speed = normals @ line.direction
    speed = np.where(speed == 0, np.finfo(np.float64).tiny, speed)
    t = -(normals @ line.base + offsets) / speed
    half = np.ones(neurons.count)
    if neurons.count > 1:
        ordered = np.sort(t)
        gaps = np.diff(ordered)
        nearest = np.minimum(np.append(gaps, np.inf), np.append(np.inf, gaps))
        half = np.minimum(1.0, nearest[np.searchsorted(ordered, t)] * np.abs(speed))
    return normals, offsets, half


def band_points(
    neurons: Neurons, line: SurveyLine, each: int, rng: np.random.Generator
) -> FloatArray:
    """Draw Gaussian points close to the hyperplanes of neurons found on a line.

    Samples that tell a thin feature's shape: plain Gaussian ones seldom meet it.
    """
    blocks = []
    for n, b, h in zip(*_bands(neurons, line), strict=True):
        x = rng.standard_normal((each, len(n)))
        z = h * rng.uniform(-2.0, 2.0, size=each)
        blocks.append(x + np.outer(z - x @ n - b, n))
    return np.concatenate(blocks)


def in_band(neurons: Neurons, line: SurveyLine, points: FloatArray) -> BoolArray:
    """Tell which points lie close to one of the hyperplanes, ``(n,)``."""
    normals, offsets, half = _bands(neurons, line)
    return np.asarray((np.abs(points @ normals.T + offsets) <= 3.0 * half).any(axis=1))
