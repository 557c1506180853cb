"""Numbers that a caller gives: what is no number of the right kind is refused by name."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from unrelu.errors import InvalidInput

__all__ = ["real_number", "whole_number"]


def whole_number(value: Any, name: str, *, least: int = 0) -> int:
    """Return ``value`` as an integer of at least ``least``, or raise.

    A float counts where it is whole (``1e6``); NaN, infinity, a fraction, a
    text or a bool do not.
    """
    number: int | None = None
    if isinstance(value, (float, np.floating)):
        number = int(value) if math.isfinite(value) and value == int(value) else None
    elif not isinstance(value, (bool, np.bool_)):
        try:
            number = operator.index(value)
        except TypeError:
            number = None
    if number is None or number < least:
        what = "zero or more" if least == 0 else f"at least {least}"
        raise InvalidInput(f"{name} must be a whole number, {what}, got {value!r}")
    return number


def real_number(
    value: Any, name: str, *, least: float = -math.inf, above: float = -math.inf
) -> float:
    """Return ``value`` as a finite float, at least ``least`` and more than ``above``, or raise."""
    number = math.nan
    if not isinstance(value, (bool, np.bool_, str, bytes)):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not (math.isfinite(number) and number >= least and number > above):
        limits = [f"at least {least:g}"] if least > -math.inf else []
        limits += [f"more than {above:g}"] if above > -math.inf else []
        raise InvalidInput(
            f"{name} must be {' and '.join(['a finite number', *limits])}, got {value!r}"
        )
    return number
