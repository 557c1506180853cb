"""A neuron that lines through coarse answers missed, from the moments of the residual."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.decompose import propose_units
from unrelu.core.decompose_options import PolishOptions
from unrelu.learner.neurons import Neurons

__all__ = ["GrowConfig", "propose_neuron"]


@dataclasses.dataclass(frozen=True)
class GrowConfig:
    """Choices of the growth."""

    error: float = 0.02
    """Residual over the spread of F below which neurons are grown: a few weak ones are
    missing, and another line would miss as many."""
    samples: float = 5.0
    per_input: int = 200
    """Gaussian samples per parameter, and per input at least: the residual's moments need
    more than a fit does."""
    rounds: int = 6
    gain: float = 0.9
    """Each neuron must bring the square error down by this factor."""
    directions: int = 4
    biases: int = 13
    reach: float = 1.5
    """Directions tried, and biases of each, between plus and minus ``reach`` deviations."""


def propose_neuron(
    x: FloatArray, left: FloatArray, rng: np.random.Generator, config: GrowConfig
) -> Neurons | None:
    """Return the neuron whose kink explains most of a residual; None where none is seen.

    Parameters
    ----------
    x, left
        Gaussian inputs ``(n, d)`` and what is left of the answers there, ``(n,)``.
    """
    basis, _ = np.linalg.qr(np.column_stack([x, np.ones(len(x))]))
    target = left - basis @ (basis.T @ left)  # an affine part would drown the moments
    count = config.directions
    directions, _, _ = propose_units(
        x, target, rng, PolishOptions(), at_least=count, at_most=count
    )
    biases = np.linspace(-config.reach, config.reach, config.biases)
    best, found = 0.0, None
    for w in directions:
        if not np.isfinite(w).all():
            continue
        kinks = np.abs((x @ w)[:, None] + biases)
        kinks -= basis @ (basis.T @ kinks)
        gains = (target @ kinks) ** 2 / np.maximum((kinks**2).sum(axis=0), 1e-300)
        at = int(np.argmax(gains))
        if gains[at] > best:
            best = float(gains[at])
            slope = float(target @ kinks[:, at] / (kinks[:, at] @ kinks[:, at]))
            found = w, float(biases[at]), 2.0 * slope
    if found is None:
        return None
    w, bias, slope = found
    d = x.shape[1]
    return Neurons(
        w[None, :], np.array([bias]), np.array([[slope]]), np.zeros((1, d)), np.zeros(1)
    )
