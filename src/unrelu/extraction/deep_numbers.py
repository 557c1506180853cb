"""Numbers that several steps share: what is zero, how precise things are, how often to try.

Deviations are those of the measured noise; accuracies are relative. Each is used wherever the
same thing is meant, so that one change changes all.
"""

from __future__ import annotations

__all__ = [
    "ALIKE",
    "CROSSINGS",
    "EXPECTED",
    "FAINT",
    "FINE",
    "LARGE",
    "PLAIN",
    "PRECISE",
    "READ",
    "SURE",
    "TRIES",
    "ZERO",
]

ZERO = 20.0
"""Standard deviations within which a difference of few answers is zero."""
LARGE = 30.0
"""The same where the deviation is claimed by a measurement that may lie in a narrow piece: such
claims are up to tens of times too small."""
SURE = 3.0
"""Standard deviations that an error of what is known may well have."""
PRECISE = 1e-9
"""Of a row or unit that was measured with room; worse ones are measured again."""
FINE = 1e-7
"""Of places and spans that rows measured so tell; parts of a network below it count for
nothing, and a network that is off by more is not the target."""
FAINT = 1e-6
"""Of anything put together from several measurements: smaller parts are zero."""
READ = 1e-5
"""Of a row that was read from one jump; a network off by more lacks a unit."""
ALIKE = 1e-4
"""Of two hyperplanes, or two measurements of one unit, that are taken for one."""
PLAIN = 1e-3
"""What is off by more is another thing. Also the part of a distance that is a short step."""
EXPECTED = 0.25
"""Part of some answers or differences that is enough to speak for all."""
CROSSINGS = 0.4
"""Hyperplanes that the steps of one gradient may be expected to cross."""
TRIES = 3
"""Times that anything is tried again."""
