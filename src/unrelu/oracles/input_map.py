"""The wrapper between a target's own input units and the algorithms' R^d.

A model of images may take pixels in 0..255, or refuse values outside a range; one of raw
features takes each in a unit of its own. The algorithms see coordinates divided by
``scale``, and a box.
"""

from __future__ import annotations

import numpy as np

from unrelu._numbers import real_number
from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput
from unrelu.oracles.base import Oracle, Wrapper

__all__ = ["Mapped", "checked_range", "checked_scale"]

Range = tuple[ArrayLike, ArrayLike]

# Rounding of x -> scale * x at the faces of the box, relative to its size.
_SLACK = float(np.sqrt(np.finfo(np.float64).eps))


def _per_feature(value: ArrayLike, what: str, d: int) -> FloatArray:
    """Return one number, or one a feature, as ``(d,)``."""
    if np.ndim(value) == 0:
        return np.full(d, real_number(value, what))
    try:
        numbers = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} is not a number a feature: {error}") from error
    if numbers.shape != (d,) or not np.isfinite(numbers).all():
        raise InvalidInput(
            f"{what} must be one finite number or {d} of them, one a feature; "
            f"got shape {numbers.shape}"
        )
    return numbers


def checked_scale(scale: ArrayLike, d: int) -> FloatArray:
    """Return positive scales, ``(d,)``, or raise."""
    if np.ndim(scale) == 0:
        return np.full(d, real_number(scale, "scale", above=0.0))
    scales = _per_feature(scale, "scale", d)
    if not (scales > 0).all():
        raise InvalidInput("every scale must be above 0")
    return scales


def checked_range(input_range: Range, d: int) -> tuple[FloatArray, FloatArray]:
    """Return ``(low, high)`` as finite arrays ``(d,)`` in this order, or raise."""
    try:
        low, high = input_range
    except (TypeError, ValueError):
        raise InvalidInput(
            f"a range is a pair LOW,HIGH with LOW below HIGH, got {input_range!r}"
        ) from None
    lows, highs = (_per_feature(end, "an end of a range", d) for end in (low, high))
    if not (lows < highs).all():
        raise InvalidInput(f"a range is LOW,HIGH with LOW below HIGH, got {input_range!r}")
    return lows, highs


class Mapped(Wrapper):
    """Multiplies inputs by ``scale`` and keeps them inside ``input_range``.

    Parameters
    ----------
    scale
        The target is asked at ``scale * x``: 255 for a model of pixels; or one
        number a feature, ``(d,)``.
    input_range
        ``(low, high)`` in the target's units, numbers or ``(d,)`` each. A point
        outside is refused and not sent; :attr:`box` tells the algorithms where
        they may go.
    """

    def __init__(
        self,
        inner: Oracle,
        *,
        scale: ArrayLike = 1.0,
        input_range: Range | None = None,
    ) -> None:
        super().__init__(inner)
        self.scale = checked_scale(scale, self.input_dim)
        self._limits: tuple[FloatArray, FloatArray] | None = inner.box
        if input_range is not None:
            self._limits = checked_range(input_range, self.input_dim)
        if self._limits is not None:
            self.box = (self._limits[0] / self.scale, self._limits[1] / self.scale)
        if self.data is not None:
            self.data = self.data / self.scale

    def _identity_suffix(self) -> str:
        suffix = "" if (self.scale == 1.0).all() else f"|scale:{_short(self.scale)}"
        if self._limits is not None:
            suffix += f"|range:{_short(self._limits[0])}:{_short(self._limits[1])}"
        return suffix

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        inputs = points * self.scale
        if self._limits is not None:
            low, high = self._limits
            slack = _SLACK * (high - low)
            outside = ((inputs < low - slack) | (inputs > high + slack)).any(axis=1)
            if outside.any():
                raise InvalidInput(
                    f"{np.count_nonzero(outside)} of {len(points)} points lie outside the range "
                    "that the target takes; nothing was sent. Pass the oracle's box as the domain"
                )
            inputs = np.clip(inputs, low, high)
        return self.inner._answer(inputs, repeat)


def _short(numbers: FloatArray) -> str:
    """Return one number where all are equal, else all of them."""
    if (numbers == numbers[0]).all():
        return repr(float(numbers[0]))
    return ",".join(repr(float(number)) for number in numbers)
