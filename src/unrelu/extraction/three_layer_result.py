"""What the extraction of two hidden layers returns."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.result import RecoveryResult

__all__ = ["ThreeLayerResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class ThreeLayerResult(RecoveryResult):
    """A recovered depth-3 network and what is known about it.

    Attributes
    ----------
    first_width, second_width
        Units found in the two hidden layers, the carriers of the affine term
        not counted.
    first_weights, first_biases
        First-layer hyperplanes found, ``(k, d)`` and ``(k,)``, of unit length;
        given also where the rest failed.
    first_signed
        Whether their orientation is known.
    condition
        Of W.
    starts
        Lines on which the whole was begun.
    check_error
        Largest deviation at the checks over the spread of the answers.
    noise
        Standard deviation of an answer's error, at typical inputs.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    first_width: int = 0
    second_width: int = 0
    first_weights: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    first_biases: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    first_signed: bool = False
    condition: float = 0.0
    starts: int = 0
    check_error: float = 0.0
    noise: float = 0.0
    answers: str = "values"
