"""Numbers of the decomposition of moments and of the polish on samples."""

from __future__ import annotations

import dataclasses

from unrelu.core.explain import NOISE_MULTIPLE
from unrelu.core.units import SAME_DIRECTION

__all__ = ["PolishOptions"]


@dataclasses.dataclass(frozen=True)
class PolishOptions:
    """Numbers of the polish; lengths are relative to the labels' spread.

    Attributes
    ----------
    exact
        Root mean square residual below which a fit counts as exact: rounding in
        float64 leaves 1e-15 to 1e-13. Labels in single precision need 1e-6.
    tails
        Deviation of one sample that an exact fit counts as met, over ``exact``.
    steps
        Levenberg-Marquardt steps, of the power method and of the fits, at most; 7 of the latter
        suffice from a cosine of 0.98.
    starts
        Power-method starts per wanted direction; each direction's basin holds
        about 1/m of the sphere, so 20 per direction miss one with odds e^-20.
    same
        Cosine above which two directions are one.
    """

    exact: float = 1e-11
    tails: float = NOISE_MULTIPLE
    steps: int = 100
    starts: int = 20
    same: float = SAME_DIRECTION

    @property
    def met(self) -> float:
        """Deviation of one sample that an exact fit counts as met."""
        return self.tails * self.exact
