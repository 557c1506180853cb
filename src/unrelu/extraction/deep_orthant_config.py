"""Choices of the search on the orthant that are numbers."""

from __future__ import annotations

import dataclasses

from unrelu.extraction.deep_numbers import (
    ALIKE,
    CROSSINGS,
    FINE,
    LARGE,
    PRECISE,
    READ,
    TRIES,
    ZERO,
)
from unrelu.extraction.deep_room import RoomConfig

__all__ = ["OrthantConfig"]


@dataclasses.dataclass(frozen=True)
class OrthantConfig:
    """Choices of the path along the axes."""

    reaches: tuple[float, ...] = (6.0, 100.0, 1e4, 1e7)
    """Distances up to which all axes are searched, in turn. A typical first-layer output is
    about one; a kink beyond 1e7 changes nothing at typical inputs."""
    probes: tuple[float, ...] = (0.13, 0.37, 0.71, 1.0)
    """Where the residual is looked at before an axis is searched, over the reach."""
    halvings: int = 12
    between: tuple[float, ...] = (1.25, 1.5, 1.75)
    """Where the end of the answers on an axis is looked for: so many halvings of the distance,
    then at these multiples of the last one that was answered."""
    corner: float = 0.05
    """First step of the gradient at the corner."""
    accept: float = ZERO
    """Standard deviations within which the residual is zero."""
    crossings: float = CROSSINGS
    """Expected hyperplanes crossed by one chunk of gradient steps."""
    spread: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    """Places within a piece that are compared for room."""
    bent: int = 10
    """Units refused, beyond those confirmed, after which there are more layers. With one hidden
    layer hardly any is refused, with two most are."""
    passes: int = TRIES
    """Searches of one axis to one distance, while its residual does not vanish."""
    echo: float = READ
    """Part of the way to a known unit's kink within which a new one is its trace, if it is also
    smaller than ``same`` times the unit: an error of the unit shows there."""
    same: float = ALIKE
    """Angle between hyperplanes below which they are taken for one."""
    spurious: float = FINE
    """Units smaller than this part of the largest one are traces of errors of others."""
    room: RoomConfig = dataclasses.field(default_factory=RoomConfig)
    tight: float = PRECISE
    """Error of the units, over their size, above which new ones are measured again at once: it
    is the tolerance of what follows."""
    trace: float = LARGE
    """Kinks whose unit is smaller than this many errors of what is subtracted are traces."""
