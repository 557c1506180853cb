"""Every choice of the extraction of smooth networks that is a number."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["EPS", "SmoothConfig"]

EPS = float(np.finfo(np.float64).eps)
"""Rounding of float64."""


@dataclasses.dataclass(frozen=True)
class SmoothConfig:
    """Sizes and tolerances."""

    margin: float = 10.0
    """What stands so many times above another thing is not the same: singular values above
    those of errors (which have long tails; the smallest true ones of a random network stand three
    and more decades higher), the second best activation's residual above the best one's."""
    extra: int = 2
    """Points more at which gradients must not raise the rank."""
    hessians: int = 4
    """Points at which second derivatives are taken, over the number of outputs, and two at
    least: two matrices determine the rows, more average the luck of the draw."""
    tries: int = 6
    """So many times that where a unit bends at none of them, or two in proportion; lines far out
    that are searched; half as many likely activations are fitted before a target is given up."""
    wide: float = 2.5
    """Every other point of these lies so much farther out than typical inputs."""
    profile: int = 17
    """Points on a unit's line: three times as many as a profile has parameters."""
    reach: float = 4.0
    """Half its length, in deviations of a typical input: one input in 16,000 lies beyond."""
    rows: float = 1.25
    """Answers at typical inputs per parameter, for the fit of all parameters."""
    fits: float = 4.0
    """A root mean square residual of a fit below this many deviations of an answer is noise:
    rounding inside a target is no Gaussian, and its size varies from input to input."""
    negligible: float = 1e-10
    """Nor does a residual below this part of the spread matter."""
    samples: int = 1000
    """Held-out typical inputs of the certificate, and as many farther out and on lines."""
    useful: float = 3e-2
    """Held-out error over the spread up to which a copy is worth giving."""

    @property
    def knots(self) -> int:
        """Points on a line that is looked at closely: four where a profile has one."""
        return 4 * (self.profile - 1) + 1

    @property
    def trace(self) -> float:
        """Part that counts as none: three margins down."""
        return self.margin**-3
