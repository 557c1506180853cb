"""From a failing prediction to a unit: bisect the chord, then a one-sided star past the kink.

On the chord from a point that the model explains to one that it does not, the residual is zero
up to the first unknown hyperplane and ``u (w . v) (t - t0)`` behind it, until the next. Two
failing points that lie on such a ray, and a third one between, show it. Only the far side is
asked: the model gives the near side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray

__all__ = ["Kink", "Residual", "Star", "find_first_kink", "measure_star"]


@dataclasses.dataclass(frozen=True)
class Residual:
    """Answers minus predictions at points of the cube.

    Attributes
    ----------
    points
        Where it was asked, ``(n, d)``.
    values
        ``(n, m)``, NaN where an answer cannot be read.
    deviation
        Noise of an answer, ``(n,)``.
    """

    points: FloatArray
    values: FloatArray
    deviation: FloatArray


Ask = Callable[[FloatArray], Residual]


@dataclasses.dataclass(frozen=True)
class Kink:
    """The first place on a chord where the model misses a unit.

    Attributes
    ----------
    start, end
        The residual is a ray from here to there, in parts of the chord.
    direction
        Unit vector of the residual behind it, ``(m,)``.
    slope
        Its growth per part of the chord.
    doubt
        How far off ``start`` may be, at what counts as explained.
    """

    start: float
    end: float
    direction: FloatArray
    slope: float
    doubt: float


@dataclasses.dataclass(frozen=True)
class Star:
    """The gradient of one unit, measured on its far side.

    Attributes
    ----------
    center
        ``(d,)``.
    value
        Of the unit at the center, along ``direction``.
    gradient
        ``(d,)``.
    direction
        ``(m,)``.
    """

    center: FloatArray
    value: float
    gradient: FloatArray
    direction: FloatArray

    def unit(self) -> tuple[FloatArray, float, FloatArray]:
        """Return the unit's row of length one, its bias, and its outputs."""
        size = float(np.linalg.norm(self.gradient))
        row = self.gradient / size
        return row, self.value / size - float(row @ self.center), self.direction * size


_STAR_NOISE = 40.0
"""Deviations by which a star's answers may leave the unit's direction: the noise of two answers
and the slopes of known units, each measured with that noise."""
_STILL_ON = 0.1
"""A star's answers count while the unit keeps this part of its value at the center."""
_AGREE = 0.02
"""Part by which a star's slope along the chord may differ from the chord's; and what counts as
explained that a star's answers may leave the unit's direction by: the model's own error."""
_STAR_PLACES = (0.7, 0.3, 0.1)
"""Where on the ray stars are tried: far out steps are long, near the kink the next is far."""
_STAR_STEP = 0.4
"""First step of a star over the cube; a third each time that another unit is in the way."""
_STAR_TRIES = 14


def find_first_kink(
    ask: Ask, good: FloatArray, bad: FloatArray, slack: float
) -> tuple[Kink | None, str]:
    """Find where the model first fails on the chord from ``good`` to ``bad``.

    Parameters
    ----------
    slack
        Deviations up to which a residual counts as explained.

    Returns
    -------
    kink, reason
        None with ``"explained"``, ``"unread"``, ``"no kink"`` (bisection ends without a ray) or
        ``"drift"`` (the residual is a line through its zero: a slope of the model is wrong).
    """

    def at(t: float) -> tuple[FloatArray, float]:
        seen = ask((good + t * (bad - good))[None])
        return seen.values[0], slack * float(seen.deviation[0])

    near, far = 0.0, 1.0
    behind, limit = at(far)
    if not np.isfinite(behind).all():
        return None, "unread"
    if np.abs(behind).max() <= limit:
        return None, "explained"
    while far - near > 4.0 * np.finfo(np.float32).eps:
        middle = 0.5 * (near + far)
        here, limit = at(middle)
        if not np.isfinite(here).all() or np.abs(here).max() > limit:
            kink = _as_ray(at, near, (middle, here), (far, behind), limit)
            if kink is not None:
                return _kink_or_drift(at, kink, middle, here)
            far, behind = middle, here
        else:
            near = middle
    return None, "no kink"


def _as_ray(
    at: Callable[[float], tuple[FloatArray, float]],
    near: float,
    middle: tuple[float, FloatArray],
    far: tuple[float, FloatArray],
    limit: float,
) -> Kink | None:
    """Return the ray through two failing points, if a third one between lies on it."""
    (t1, r1), (t2, r2) = middle, far
    if not (np.isfinite(r1).all() and np.isfinite(r2).all()):
        return None
    growth = (r2 - r1) / (t2 - t1)
    slope = float(np.linalg.norm(growth))
    if slope == 0.0 or np.linalg.norm(r1) < 3.0 * limit:
        return None
    direction = growth / slope
    start = t1 - float(r1 @ direction) / slope
    room = limit / slope
    if (
        not near - room <= start <= t1
        or np.abs(r1 - slope * (t1 - start) * direction).max() > limit
    ):
        return None
    t3 = 0.5 * (max(start, 0.0) + t1)
    r3, _ = at(t3)
    if (
        not np.isfinite(r3).all()
        or np.abs(r3 - slope * (t3 - start) * direction).max() > 0.5 * limit
    ):
        return None
    return Kink(max(start, 0.0), t2, direction, slope, room)


def _kink_or_drift(
    at: Callable[[float], tuple[FloatArray, float]], kink: Kink, middle: float, here: FloatArray
) -> tuple[Kink | None, str]:
    """Tell a kink from a wrong slope of the model, which goes on through its zero."""
    mirrored = max(0.0, 2.0 * kink.start - middle)
    expected = float(here @ kink.direction) * (kink.start - mirrored) / (middle - kink.start)
    before, limit = at(mirrored)
    if expected > 3.0 * limit and float(before @ kink.direction) < -0.3 * expected:
        return None, "drift"
    return kink, "kink"


def measure_star(
    ask: Ask, good: FloatArray, bad: FloatArray, kink: Kink, slack: float
) -> Star | None:
    """Measure the gradient of the unit behind a kink; None where others are in the way."""
    chord = bad - good
    for part in _STAR_PLACES:
        length = part * (kink.end - kink.start)
        star = _star_at(ask, good + (kink.start + length) * chord, kink.direction, slack)
        # Along the chord the slope is known already: the star must agree.
        if star is not None and abs(star.gradient @ chord - kink.slope) <= _AGREE * kink.slope:
            return star
    return None


def _star_at(ask: Ask, center: FloatArray, direction: FloatArray, slack: float) -> Star | None:
    """Measure one-sided differences along every axis, with steps that no other unit cuts."""
    first = ask(center[None])
    center, base = first.points[0], first.values[0]
    value = float(base @ direction)
    if not np.isfinite(base).all() or value <= 0.0:
        return None
    limit = (_STAR_NOISE + _AGREE * slack) * float(first.deviation[0])
    d = len(center)
    sign = np.where(center < 0.5, 1.0, -1.0)
    step = np.full(d, _STAR_STEP)
    gradient, todo = np.zeros(d), np.arange(d)
    heights: list[FloatArray] = [base[None]]
    for attempt in range(_STAR_TRIES):
        room = np.where(sign > 0, 1.0 - center, center)
        length = np.minimum(step, room)
        points = np.repeat(center[None], len(todo), axis=0)
        points[np.arange(len(todo)), todo] += (sign * length)[todo]
        seen = ask(points)
        moved = (seen.points - center)[np.arange(len(todo)), todo]
        change = seen.values - base
        height = seen.values @ direction
        fine = _on_ray(ask, center, points, base, change, direction, limit) & (moved != 0)
        fine &= height > _STILL_ON * value
        gradient[todo[fine]] = (height[fine] - value) / moved[fine]
        heights.append(seen.values[fine])
        off = ~fine & (height <= _STILL_ON * value)  # the unit turns off: the other way
        todo, off = todo[~fine], off[~fine]
        if len(todo) == 0:
            rays = np.linalg.svd(np.concatenate(heights), full_matrices=False)[2][0]
            rays = rays if rays @ direction > 0 else -rays
            return Star(center, value, gradient, rays)
        flip = (
            off
            & (attempt % 3 == 0)
            & (np.where(sign > 0, center, 1.0 - center)[todo] > step[todo] / 3.0)
        )
        sign[todo[flip]] *= -1.0
        step[todo[~flip]] = length[todo[~flip]] / 3.0
    return None


def _on_ray(
    ask: Ask,
    center: FloatArray,
    points: FloatArray,
    base: FloatArray,
    change: FloatArray,
    direction: FloatArray,
    limit: float,
) -> BoolArray:
    """Whether changes of the residual ``(n, m)`` come from one unit alone.

    With several outputs they keep the unit's direction; with one, half a step must give half.
    """
    if len(direction) > 1:
        across = change - np.outer(change @ direction, direction)
    else:
        half = ask(center + 0.5 * (points - center))
        across = 2.0 * (half.values - base) - change
    return np.asarray(np.linalg.norm(across, axis=1) <= limit)
