"""The wrapper between a target's own input units and the algorithms' R^d.

A model of images may take pixels in 0..255, or refuse values outside a range.
The algorithms see coordinates divided by ``scale``, and a box.
"""

from __future__ import annotations

import numpy as np

from unrelu._numbers import real_number
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.oracles.base import Oracle, Wrapper

__all__ = ["Mapped", "checked_range"]

# Rounding of x -> scale * x at the faces of the box, relative to its size.
_SLACK = 1e-9


def checked_range(input_range: tuple[float, float]) -> tuple[float, float]:
    """Return ``(low, high)`` as finite numbers in this order, or raise."""
    try:
        low, high = (real_number(value, "an end of a range") for value in input_range)
    except (TypeError, ValueError):  # not two, or not numbers
        low = high = 0.0
    if not low < high:
        raise InvalidInput(f"a range is LOW,HIGH with LOW below HIGH, got {input_range}")
    return low, high


class Mapped(Wrapper):
    """Multiplies inputs by ``scale`` and keeps them inside ``input_range``.

    Parameters
    ----------
    scale
        The target is asked at ``scale * x``: 255 for a model of pixels.
    input_range
        ``(low, high)`` in the target's units. A point outside is refused and
        not sent; :attr:`box` tells the algorithms where they may go.
    """

    def __init__(
        self,
        inner: Oracle,
        *,
        scale: float = 1.0,
        input_range: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(inner)
        self.scale = real_number(scale, "scale", above=0.0)
        self._limits: tuple[FloatArray, FloatArray] | None = inner.box
        if input_range is not None:
            low, high = checked_range(input_range)
            self._limits = (np.full(self.input_dim, low), np.full(self.input_dim, high))
        if self._limits is not None:
            self.box = (self._limits[0] / self.scale, self._limits[1] / self.scale)

    def _identity_suffix(self) -> str:
        suffix = "" if self.scale == 1.0 else f"|scale:{self.scale!r}"
        if self._limits is not None:
            suffix += f"|range:{self._limits[0].min()!r}:{self._limits[1].max()!r}"
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
