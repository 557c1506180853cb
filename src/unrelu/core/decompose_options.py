"""Tolerances of the polish."""

from __future__ import annotations

import dataclasses

__all__ = ["PolishOptions"]


@dataclasses.dataclass(frozen=True)
class PolishOptions:
    """Tolerances of the polish; lengths are relative to the labels' spread.

    Attributes
    ----------
    exact
        Root mean square residual below which a fit counts as exact: rounding in
        float64 leaves 1e-15 to 1e-13. Labels in single precision need 1e-6.
    met
        Deviation of one sample that an exact fit counts as met: a hundred times
        ``exact``.
    iterations
        Levenberg-Marquardt steps at most; 7 suffice from a cosine of 0.98.
    stall
        Relative decrease of the sum of squares below which it stops: a good fit
        falls tenfold a step, and a noisy one is finished on all samples.
    starts
        Power-method starts per wanted direction; each direction's basin holds
        about 1/m of the sphere, so 20 per direction miss one with odds e^-20.
    power_iterations, power_shift, power_tolerance
        Of the subspace power method.
    same
        Cosine above which two directions are one.
    signal
        Factor on the noise's largest singular value above which a singular
        value of the moments counts as signal (eta_1 of Algorithm 4). Below one:
        a unit too many is dropped by the polish, a unit too few costs a round.
    evidence
        Standard deviations of the noise's largest singular value by which a
        residual's must exceed its mean to count as signal.
    rounds
        How often units may be added.
    trim
        A residual above this many times the median magnitude is an outlier
        (Gaussian noise exceeds 10 medians with odds 1e-11).
    """

    exact: float = 1e-11
    met: float = 1e-9
    iterations: int = 60
    stall: float = 1e-6
    starts: int = 20
    power_iterations: int = 400
    power_shift: float = 0.3
    power_tolerance: float = 1e-7
    same: float = 0.97
    signal: float = 0.9
    evidence: float = 6.0
    rounds: int = 6
    trim: float = 10.0
