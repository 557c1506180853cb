"""A neuron that lines through coarse answers missed, from the moments of the residual."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.decompose import propose_units
from unrelu.core.decompose_options import PolishOptions
from unrelu.learner.neurons import Neurons

__all__ = ["propose_neuron"]


_DIRECTIONS = 4
"""Directions tried: the residual's moments name the right one among the first."""
_BIASES = np.linspace(-1.5, 1.5, 13)
"""Biases of each, in deviations: beyond, a kink is rarely met by samples."""


def propose_neuron(x: FloatArray, left: FloatArray, rng: np.random.Generator) -> Neurons | None:
    """Return the neuron whose kink explains most of a residual; None where none is seen.

    Parameters
    ----------
    x, left
        Gaussian inputs ``(n, d)`` and what is left of the answers there, ``(n,)``.
    """
    basis, _ = np.linalg.qr(np.column_stack([x, np.ones(len(x))]))
    target = left - basis @ (basis.T @ left)  # an affine part would drown the moments
    directions, _, _ = propose_units(
        x, target, rng, PolishOptions(), at_least=_DIRECTIONS, at_most=_DIRECTIONS
    )
    best, found = 0.0, None
    for w in directions:
        if not np.isfinite(w).all():
            continue
        kinks = np.abs((x @ w)[:, None] + _BIASES)
        kinks -= basis @ (basis.T @ kinks)
        gains = (target @ kinks) ** 2 / np.maximum(
            (kinks**2).sum(axis=0), np.finfo(np.float64).tiny
        )
        at = int(np.argmax(gains))
        if gains[at] > best:
            best = float(gains[at])
            slope = float(target @ kinks[:, at] / (kinks[:, at] @ kinks[:, at]))
            found = w, float(_BIASES[at]), 2.0 * slope
    if found is None:
        return None
    w, bias, slope = found
    d = x.shape[1]
    return Neurons(
        w[None, :], np.array([bias]), np.array([[slope]]), np.zeros((1, d)), np.zeros(1)
    )
