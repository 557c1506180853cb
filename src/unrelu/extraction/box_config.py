"""Every choice of the search of a box that is a number."""

from __future__ import annotations

import dataclasses

__all__ = ["BoxConfig"]


@dataclasses.dataclass(frozen=True)
class BoxConfig:
    """Sizes of the extraction in a box."""

    probes: int = 1000
    """Probes that must be explained before a certificate is asked: a unit that one probe in 200
    switches is missed once in 150 runs."""
    rounds: int = 4
    """Rounds of fitting and exploring, and certificates, at most."""
    accept: float = 30.0
    """Deviations of an answer by which a prediction may be off: rounding inside a network has
    longer tails than a Gaussian, and its size depends on the input."""
    held_out: int = 1000
    """Held-out inputs of each kind; of corners, which switch most, twice as many."""
