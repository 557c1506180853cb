"""Every choice of the extraction from noisy answers that is a number."""

from __future__ import annotations

import dataclasses

__all__ = ["NoisyConfig"]


@dataclasses.dataclass(frozen=True)
class NoisyConfig:
    """Sizes of the extraction from noisy answers."""

    dimension: int = 8
    """Of the subspace that is searched: few, so that gradients are cheap; not so few that
    hyperplanes crowd."""
    direct: int = 24
    """Up to so many inputs all of space is searched: the lift would cost more than it saves."""
    lines: int = 12
    """Lines surveyed before units are looked for by fits alone: of 200 units in single precision
    a line gives a third of the normals, and two must give the same."""
    effort: float = 2.0
    """Scalar answers per parameter of a fit: its error is the noise times
    ``sqrt(1 / (effort - 1))``."""
    sides: float = 2.0
    """Answers per input on either side of every hyperplane: its normal is determined there."""
    additions: int = 12
    """Units that are looked for in the residual, at most."""
    patience: int = 3
    """Of these that must halve the residual between them."""
    fits: float = 3.0
    """Deviations that a typical residual may have where a fit explains its answers: the
    noise is measured within a factor of two."""
    student: int = 48
    starts: int = 3
    """Width of a network that is fitted from a random start, and how often that is tried, the
    width doubled every other time."""
    useful: float = 0.03
    """Error over the spread of the answers up to which a network that the noise does not explain
    is a copy of use."""
