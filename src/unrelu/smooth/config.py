"""Every choice of the extraction of smooth networks that is a number."""

from __future__ import annotations

import dataclasses

__all__ = ["SmoothConfig"]


@dataclasses.dataclass(frozen=True)
class SmoothConfig:
    """Sizes and tolerances."""

    rank_margin: float = 10.0
    """Singular values of measured gradients this many times above those of their errors are the
    target's: errors of differences have long tails, and the smallest true ones of a random
    network stand three and more decades higher."""
    extra: int = 2
    """Points more at which gradients must not raise the rank."""
    hessians: int = 4
    """Points at which second derivatives are taken, over the number of outputs, and two at
    least: two matrices determine the rows, more average the luck of the draw ..."""
    most: int = 6
    """... and so many times that where a unit bends at none of them, or two in proportion."""
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
    activations: int = 3
    """So many likely activations are fitted before a target is given up."""
    unsure: float = 10.0
    """An activation is sure where the second best leaves so many times the residual."""
    samples: int = 1000
    """Held-out typical inputs of the certificate, and as many farther out and on lines."""
    accept: float = 45.0
    """Deviations of an answer by which a held-out answer may differ: those of a computation in
    float32 depend on the input and have longer tails than noise."""
    exact: float = 1e-6
    """Deviation over the spread of answers up to which a network is exact where answers are so
    but for the rounding of float64; elsewhere ..."""
    exact_noise: float = 100.0
    """... it is so up to so many deviations of an answer."""
    useful: float = 3e-2
    """Held-out error over the spread up to which a copy is worth giving."""
