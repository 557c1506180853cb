"""The one fit of the house over all neurons, on samples of coarse answers.

Where answers are noisy, the line search leaves errors that more samples average out. Answers
that are far off count for less: a bump that is not yet found must not bend everything else.
"""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.fit import FitConfig, Layered, fit_network
from unrelu.learner.neurons import Neurons
from unrelu.lines.survey import SurveyLine

__all__ = ["band_points", "fit_neurons", "parameters_of"]


def parameters_of(neurons: Neurons) -> int:
    """Return the number of free parameters."""
    m, d = neurons.linear.shape
    return int(neurons.count * (d + m) + m * (d + 1))


def fit_neurons(
    neurons: Neurons, x: FloatArray, y: FloatArray, deviation: FloatArray, *, most: int
) -> Neurons:
    """Fit all neurons to answers.

    Parameters
    ----------
    x, y
        Points ``(n, d)`` and answers ``(n, m)``.
    deviation
        Of each answer beside the others', ``(n, m)``, positive.
    most
        Parameters beyond which nothing is done.

    Returns
    -------
    Neurons
        The same object where the problem is too large, or answers are too few.
    """
    size = parameters_of(neurons)
    if neurons.count == 0 or size > most or y.size < size:
        return neurons
    start = Layered(
        (neurons.weights, neurons.outputs), (neurons.biases, neurons.constant), neurons.linear
    )
    # The start is close: no damping but what rounding asks for. Deviations from a few clusters
    # are upper ones; told as far smaller than they are, the residuals tell their size.
    small = float(np.sqrt(np.finfo(np.float64).eps))
    config = FitConfig(damping=small)
    found = fit_network(start, x, y, deviation=small * deviation, config=config).network
    assert found.skip is not None
    return Neurons(
        found.weights[0], found.biases[0], found.weights[1], found.skip, found.biases[1]
    ).without_broken()


def band_points(
    neurons: Neurons, line: SurveyLine, each: int, rng: np.random.Generator
) -> FloatArray:
    """Draw Gaussian points close to the hyperplanes of neurons found on a line.

    Samples that tell a thin feature's shape: plain Gaussian ones seldom meet it. They lie
    within the distance to the next hyperplane on the line, on either side, and at most within
    a standard deviation of an input.
    """
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
    blocks = []
    for n, b, h in zip(normals, offsets, half, strict=True):
        x = rng.standard_normal((each, len(n)))
        z = 2.0 * h * rng.uniform(-1.0, 1.0, size=each)
        blocks.append(x + np.outer(z - x @ n - b, n))
    return np.concatenate(blocks)
