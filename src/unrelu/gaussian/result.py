"""Options and result of learning from samples."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.decompose_options import PolishOptions
from unrelu.result import RecoveryResult

__all__ = ["SampleOptions", "SamplesResult"]


@dataclasses.dataclass(frozen=True)
class SampleOptions:
    """Sizes and tolerances; lengths are relative to the labels' spread.

    Attributes
    ----------
    held_rows
        Rows held out for the certificate (fewer if there are few samples).
    keep_rows
        Rows kept in memory for the polish, at most.
    keep_bytes
        Memory that these rows may take.
    rows_per_parameter
        Rows that the polish uses per parameter; 10 suffice without noise.
    batch_rows
        Rows per batch.
    gaussian_significance, gaussian_effect
        A cumulant fails the Gaussian test beyond both: standard deviations, and
        absolute size (uniform inputs have kurtosis -1.2).
    whitening_significance
        Standard deviations of mean or covariance from (0, I) that call for
        whitening.
    tolerance
        Held-out deviation that an exact recovery may show.
    restarts
        Random starts of the polish if the moments' start fails.
    polish
        Of the polish itself.
    """

    held_rows: int = 10_000
    keep_rows: int = 200_000
    keep_bytes: int = 256 << 20
    rows_per_parameter: int = 40
    batch_rows: int = 8192
    gaussian_significance: float = 6.0
    gaussian_effect: float = 0.2
    whitening_significance: float = 6.0
    tolerance: float = 1e-7
    restarts: int = 3
    polish: PolishOptions = dataclasses.field(default_factory=PolishOptions)


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
