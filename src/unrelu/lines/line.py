"""A line through the inputs, or the part of it inside a box."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import FloatArray

__all__ = ["SurveyLine"]


@dataclasses.dataclass(frozen=True)
class SurveyLine:
    """A line, or the part of it inside a box.

    Attributes
    ----------
    base, direction
        Points are ``base + t direction``; the direction has unit length, ``(d,)``.
    low, high
        Range of t.
    scale
        Below it gaps are halved, beyond it orders of magnitude; infinite on a
        bounded line.
    """

    base: FloatArray
    direction: FloatArray
    low: float
    high: float
    scale: float

    def points(self, t: FloatArray) -> FloatArray:
        """Return the points at t, ``(n, d)``."""
        return np.asarray(self.base + np.multiply.outer(t, self.direction))

    def norms(self, t: FloatArray) -> FloatArray:
        """Return the norms of the points at t."""
        along = float(self.base @ self.direction)
        rest = max(0.0, float(self.base @ self.base) - along**2)
        return np.asarray(np.sqrt((t + along) ** 2 + rest))

    def seeds(self) -> tuple[FloatArray, FloatArray]:
        """Places for the first clusters of points, and the local scale there."""
        if not math.isfinite(self.scale):
            length = self.high - self.low
            # Clusters reach a few spacings to both sides: stay inside the ends.
            fractions = np.array([0.0, 0.15, 0.35, 0.65, 0.85, 1.0]) * (1.0 - 1e-4) + 5e-5
            return self.low + length * fractions, np.full(6, 0.5 * length)
        low, high = math.asinh(self.low / self.scale), math.asinh(self.high / self.scale)
        places = (-1.5, -0.5, 0.5, 1.5) if low < 0 else (0.15, 0.5, 1.5)
        inner = [u for u in places if low + 0.1 < u < high - 0.1]
        outer = [u for u in (low, low / 2, high / 2, high) if abs(u) > 3.0 or u in (low, high)]
        u = np.unique(np.array(inner + outer))
        u[0] += 1e-4 if abs(low) < 1.0 else 0.0
        return self.scale * np.sinh(u), self.scale * np.cosh(u)
