"""The result of learning from samples."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.result import RecoveryResult

__all__ = ["SamplesResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class SamplesResult(RecoveryResult):
    """What was learned from samples.

    Attributes
    ----------
    width
        Units with a kink among the samples; ``network`` may have two more for
        an affine term (Claim B.5).
    noise
        Estimated standard deviation of the label noise; 0 if there is none.
    signs_determined
        Whether the samples leave only one orientation of all units.
    orientations
        How many orientations were found to fit (0: too many to look at).
    moment_weights, moment_outer, moment_biases
        The moment estimate before the polish: ``(k, d)``, ``(k,)``, ``(k,)``,
        weights up to sign, in the coordinates of the whitened inputs.
    improper_error
        Root mean square error of Algorithm 5's regression on held-out samples,
        over the labels' spread.
    gaussian_statistic
        Largest standardised deviation of the inputs' cumulants.
    """

    width: int = 0
    noise: float = 0.0
    signs_determined: bool = False
    orientations: int = 0
    moment_weights: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    moment_outer: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    moment_biases: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    improper_error: float = float("nan")
    gaussian_statistic: float = float("nan")
