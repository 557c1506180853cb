"""Affine pieces of functions on a line, with the uncertainty of their fits.

A function ``f: R -> R^m`` is seen at points ``t_i`` with answers
``y_i = f(t_i) + e_i``, where the errors have known standard deviations. On one
affine piece, weighted least squares gives

.. math:: y(t) = v + s (t - c)

where ``c`` is the weighted centre of the points. With that centre the errors
of the value ``v`` and of the slope ``s`` are uncorrelated, so a prediction has
the variance ``var(v) + (t - c)^2 var(s)``.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray

__all__ = ["AffinePiece", "Crossing", "cross", "fit_piece"]


# A point of higher leverage is not judged by its own residual: what little remains of it
# is the rounding of the fit itself.
_MIN_ROOM = 0.2


@dataclasses.dataclass(frozen=True)
class AffinePiece:
    """One affine piece ``y(t) = value + slope (t - center)``.

    Attributes
    ----------
    center
        Weighted centre of the fitted points.
    value, slope
        Shape ``(m,)``.
    value_var, slope_var
        Their variances, shape ``(m,)``; uncorrelated.
    misfit
        Largest studentised residual of the fit.
    """

    center: float
    value: FloatArray
    slope: FloatArray
    value_var: FloatArray
    slope_var: FloatArray
    misfit: float

    def predict(self, t: float) -> FloatArray:
        """Return the piece's value at ``t``, shape ``(m,)``."""
        return np.asarray(self.value + self.slope * (t - self.center))

    def variance(self, t: float) -> FloatArray:
        """Return the variance of :meth:`predict`, shape ``(m,)``."""
        return np.asarray(self.value_var + self.slope_var * (t - self.center) ** 2)


def fit_piece(t: FloatArray, y: FloatArray, std: FloatArray) -> AffinePiece:
    """Fit one affine piece to two or more points.

    Parameters
    ----------
    t
        Distinct points, shape ``(n,)``.
    y
        Answers, shape ``(n, m)``.
    std
        Standard deviations of the answers, shape ``(n, m)``, positive.
    """
    # One weight per point keeps one centre for all outputs; the ratio between
    # outputs' noise levels hardly varies along a piece.
    level = std.mean(axis=0)
    shape = (std / level).mean(axis=1)
    precision = shape**-2.0
    total = float(precision.sum())
    weight = precision / total
    center = float(weight @ t)
    offset = t - center
    value = weight @ y
    spread = float(weight @ offset**2)
    slope = (weight * offset) @ (y - value) / spread
    unit = level**2 / total
    misfit = 0.0
    if len(t) > 2:
        residual = y - value - offset[:, None] * slope
        # A residual's own deviation is std * sqrt(1 - leverage); a point whose leverage is
        # almost one bends the line to itself, and its neighbours show the misfit instead.
        leverage = weight * (1.0 + offset**2 / spread)
        room = np.sqrt(np.maximum(1.0 - leverage, _MIN_ROOM))
        misfit = float((np.abs(residual) / (std * room[:, None])).max())
    return AffinePiece(center, value, slope, unit, unit / spread, misfit)


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Where two pieces meet.

    Attributes
    ----------
    t
        The meeting point, nan where the pieces have equal slopes.
    std
        Its standard deviation.
    jump
        Slope of the right piece minus slope of the left one, shape ``(m,)``.
    misfit
        How far, in standard deviations, some output is from meeting there:
        outputs of one kink all meet at the same point.
    """

    t: float
    std: float
    jump: FloatArray
    misfit: float


def cross(left: AffinePiece, right: AffinePiece) -> Crossing:
    """Intersect two pieces, by weighted least squares over the outputs."""
    jump = right.slope - left.slope
    # Work relative to the midpoint of the centres, where both are well known.
    t0 = 0.5 * (left.center + right.center)
    gap = right.predict(t0) - left.predict(t0)
    t = t0
    variance = left.variance(t0) + right.variance(t0)
    for _ in range(2):  # weights at the crossing itself: two passes are enough
        strength = float(np.sum(jump**2 / variance))
        if not strength > 0:
            return Crossing(float("nan"), float("inf"), jump, float("inf"))
        t = t0 - float(np.sum(jump * gap / variance)) / strength
        variance = left.variance(t) + right.variance(t)
    strength = float(np.sum(jump**2 / variance))
    miss = np.abs(gap + jump * (t - t0)) / np.sqrt(variance)
    return Crossing(t, strength**-0.5, jump, float(miss.max()))
