"""Answers with constant noise: look from far away, where the noise is small.

A network is almost homogeneous: ``F(s x) = s sum_j u_j relu(<w_j, x> + b_j / s)``
up to the affine part. Noise that does not grow with the input is thus s times
smaller against the function at inputs s times larger, and directions come out
as precise as wanted. What is lost is the biases; at points far from every
hyperplane the gates are certain and F is linear in all biases at once, so a few
such points and least squares give them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.learner.neurons import Neurons

__all__ = ["FarConfig", "choose_stretch", "measure_biases"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class FarConfig:
    """Choices of the far view."""

    coarse: float = 2e-8
    """Noise over the spread of answers below which the near view is precise enough."""
    grown: float = 4.0
    """Noise there may be this many times the noise near the origin."""
    magnifications: tuple[float, ...] = (1e7, 1e6, 1e5, 1e4, 1e3, 1e2)
    """Tried in this order; float64 has nine digits left at the first."""
    spacing: float = 1e-5
    cluster: int = 8
    """Points of the cluster whose scatter is looked at, and their relative distance."""
    reach: float = 1e4
    """Half-length of a far line over its scale."""
    levels: tuple[float, ...] = (1e3, 30.0)
    """Magnifications at which biases are measured, coarse first."""
    room: float = 0.01
    """Points stay this far from every hyperplane, relative to the magnification: the
    first level allows biases of 10 |w|, the second corrects errors of 0.3 |w|."""
    surplus: float = 3.0
    """Points per bias."""
    extra: int = 60


def choose_stretch(
    ask: AskPoints,
    noise: NoiseModel,
    spread: float,
    d: int,
    *,
    rng: np.random.Generator,
    config: FarConfig,
) -> tuple[float, NoiseModel]:
    """Find the largest magnification at which the noise has not grown; 1 where it always has.

    Returns
    -------
    stretch, noise
        With the noise for lines at that magnification.
    """
    constant = float(noise.absolute.max())
    if constant <= config.coarse * spread or spread == 0.0:
        return 1.0, noise
    for stretch in config.magnifications:
        scale = stretch * math.sqrt(d)
        x = stretch * rng.standard_normal(d)
        v = rng.standard_normal(d)
        v /= np.linalg.norm(v)
        t = config.spacing * scale * np.arange(config.cluster)
        y = ask(x + np.multiply.outer(t, v))
        design = np.column_stack([np.ones_like(t), t / t[-1]])
        rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        scatter = np.sqrt((rest**2).sum(axis=0) / (config.cluster - 2))
        if (scatter <= config.grown * np.maximum(noise.absolute, constant * 1e-3)).all():
            return stretch, NoiseModel(noise.absolute, noise.absolute / scale)
    return 1.0, noise


def measure_biases(
    ask: AskPoints, neurons: Neurons, *, rng: np.random.Generator, config: FarConfig
) -> Neurons:
    """Measure the biases of neurons whose directions are known.

    At a point x whose gates are certain, ``F(x) - A x - sum_on u_j <w_j, x>``
    equals ``c + sum_on u_j b_j``: linear in ``(b, c)``.
    """
    k, d = neurons.weights.shape
    m = len(neurons.outputs)
    norms = neurons.norms
    bias: FloatArray = np.zeros(k)
    constant: FloatArray = np.zeros(m)
    want = int(config.surplus * k / m) + config.extra
    for level in config.levels:
        points = np.empty((0, d))
        for _ in range(40):
            pool = level * rng.standard_normal((4 * want, d))
            distance = np.abs(pool @ neurons.weights.T + bias) / norms
            roomy = distance.min(axis=1, initial=np.inf) > config.room * level
            points = np.concatenate([points, pool[roomy]])[:want]
            if len(points) == want:
                break
        if len(points) < k + m + 1:  # too crowded at this level
            continue
        z = points @ neurons.weights.T
        on = (z + bias > 0).astype(np.float64)
        left = ask(points) - points @ neurons.linear.T - (on * z) @ neurons.outputs.T
        rows = on[:, None, :] * neurons.outputs[None, :, :]
        rows = np.concatenate(
            [rows, np.broadcast_to(np.eye(m), (len(points), m, m))], axis=2
        ).reshape(-1, k + m)
        solution = np.linalg.lstsq(rows, left.reshape(-1), rcond=1e-10)[0]
        bias = np.asarray(solution[:k], dtype=np.float64)
        constant = np.asarray(solution[k:], dtype=np.float64)
    return dataclasses.replace(neurons, biases=bias, constant=constant)
