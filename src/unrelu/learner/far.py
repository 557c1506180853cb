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
from unrelu.core.noise import AGREES, NoiseModel, cluster_of, scatter_of
from unrelu.learner.neurons import Neurons

__all__ = ["choose_stretch", "measure_biases"]

AskPoints = Callable[[FloatArray], FloatArray]

_ROOM = 0.01
"""Distance that points keep from every hyperplane, over their size. At size ``1 / room^2``
that allows biases of ``|w| / room``; at size ``1 / room`` it corrects errors of ``|w|``."""


def choose_stretch(
    ask: AskPoints, noise: NoiseModel, d: int, *, rng: np.random.Generator
) -> tuple[float, NoiseModel]:
    """Find the largest magnification at which the noise has not grown; 1 where it always has.

    Half of the digits of float64 are kept for the answers, and more from step to step.

    Returns
    -------
    stretch, noise
        With the noise for lines at that magnification.
    """
    digits = math.floor(-0.5 * math.log10(np.finfo(np.float64).eps))
    for decade in range(digits, 1, -1):
        stretch = 10.0**decade
        scale = stretch * math.sqrt(d)
        base, direction = stretch * rng.standard_normal(d), rng.standard_normal(d)
        direction /= np.linalg.norm(direction)
        t = cluster_of(np.zeros(1), np.full(1, scale))[0]
        scatter = scatter_of(t, ask(base + np.multiply.outer(t, direction)))
        # An output without noise is held to what the others' is: rounding comes last.
        least = np.sqrt(np.finfo(np.float64).eps) * noise.absolute.max()
        if (scatter <= AGREES * np.maximum(noise.absolute, least)).all():
            return stretch, NoiseModel(noise.absolute, noise.absolute / scale)
    return 1.0, noise


def measure_biases(
    ask: AskPoints, neurons: Neurons, *, answers: float, rng: np.random.Generator
) -> Neurons:
    """Measure the biases of neurons whose directions are known.

    At a point x whose gates are certain, ``F(x) - A x - sum_on u_j <w_j, x>``
    equals ``c + sum_on u_j b_j``: linear in ``(b, c)``.

    Parameters
    ----------
    answers
        How many for each bias.
    """
    k, d = neurons.weights.shape
    m = len(neurons.outputs)
    bias: FloatArray = np.zeros(k)
    constant: FloatArray = np.zeros(m)
    want = math.ceil(answers * (k + m) / m) + d
    for level in (_ROOM**-2, _ROOM**-1):
        points = _roomy(neurons, bias, level, want, rng)
        if len(points) < k + m + 1:  # too crowded at this level
            continue
        z = points @ neurons.weights.T
        on = (z + bias > 0).astype(np.float64)
        left = ask(points) - points @ neurons.linear.T - (on * z) @ neurons.outputs.T
        rows = on[:, None, :] * neurons.outputs[None, :, :]
        rows = np.concatenate(
            [rows, np.broadcast_to(np.eye(m), (len(points), m, m))], axis=2
        ).reshape(-1, k + m)
        rcond = float(np.sqrt(np.finfo(np.float64).eps))
        solution = np.linalg.lstsq(rows, left.reshape(-1), rcond=rcond)[0]
        bias = np.asarray(solution[:k], dtype=np.float64)
        constant = np.asarray(solution[k:], dtype=np.float64)
    return dataclasses.replace(neurons, biases=bias, constant=constant)


def _roomy(
    neurons: Neurons, bias: FloatArray, level: float, want: int, rng: np.random.Generator
) -> FloatArray:
    """Draw points of a size that keep away from every hyperplane, ``(n, d)``."""
    found: list[FloatArray] = []
    while sum(map(len, found)) < want:
        pool = level * rng.standard_normal((want, neurons.weights.shape[1]))
        distance = np.abs(pool @ neurons.weights.T + bias) / neurons.norms
        found.append(pool[distance.min(axis=1, initial=np.inf) > _ROOM * level])
        if len(found[-1]) == 0:
            break  # too crowded
    return np.concatenate(found)[:want]
