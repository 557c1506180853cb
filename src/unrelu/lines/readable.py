"""The part of a line on which answers can be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.lines.survey import SurveyLine

__all__ = ["line_where_readable", "readable_part"]


def readable_part(
    line: SurveyLine, unit: float, readable: Callable[[FloatArray], BoolArray]
) -> SurveyLine | None:
    """Limit a line to where answers can be read; None where they cannot at its base.

    Parameters
    ----------
    unit
        Length over which answers change; the line is looked at from a sixteenth of it to
        some hundred times as far.
    readable
        Tells it of points ``(n, d)``, ``(n,)``.
    """
    grid = unit * 2.0 ** np.arange(-4.0, 9.0)
    t = np.concatenate([-grid[::-1], [0.0], grid])
    t = t[(t >= line.low) & (t <= line.high)]
    fine = readable(line.points(t))
    middle = int(np.argmin(np.abs(t)))
    if not fine[middle]:
        return None
    first = last = middle
    while first > 0 and fine[first - 1]:
        first -= 1
    while last + 1 < len(t) and fine[last + 1]:
        last += 1
    return dataclasses.replace(line, low=float(t[first]), high=float(t[last]))


def line_where_readable(
    line: SurveyLine, others: FloatArray, readable: Callable[[FloatArray], BoolArray]
) -> SurveyLine:
    """Return the line, through another point ``(n, d)`` where its base cannot be read."""
    bases = np.concatenate([line.base[None], others])
    fine = np.flatnonzero(readable(bases))
    return dataclasses.replace(line, base=bases[fine[0]]) if len(fine) else line
