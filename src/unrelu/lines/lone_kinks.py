"""Kinks that stand alone between straight pieces, read off answers along a line."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import AGREES

__all__ = ["LoneKinks", "read_lone_kinks"]


@dataclasses.dataclass(frozen=True)
class LoneKinks:
    """Kinks that stand alone between two straight pieces of a line."""

    t: FloatArray
    jump: FloatArray  # of slope, (k, m)
    jump_std: FloatArray  # (k,)
    std: FloatArray  # of t
    centers: FloatArray  # of the pieces to both sides, (k, 2)
    values: FloatArray  # there, (k, 2, m)
    room: FloatArray  # half-lengths of the pieces, (k, 2)
    seen: int  # kinks in all, lone or not


@dataclasses.dataclass(frozen=True)
class _Side:
    """A straight piece beside a kink: its line around its center, and half its length."""

    center: float
    value: FloatArray
    slope: FloatArray
    slope_std: float
    half: float


@dataclasses.dataclass(frozen=True)
class _Kink:
    """Where two straight pieces meet."""

    t: float
    jump: FloatArray
    jump_std: float
    std: float
    sides: tuple[_Side, _Side]


def read_lone_kinks(t: FloatArray, y: FloatArray, level: FloatArray) -> LoneKinks:
    """Read kinks off the answers at points of a line."""
    pieces = _straight_pieces(t, y, level)
    m = y.shape[1]
    found: list[_Kink] = []
    lost = 0
    for (a0, a1), (b0, b1) in itertools.pairwise(pieces):
        if b0 != a1 + 1:
            lost += max(2, (b0 - a1) // 2)  # several kinks between neighbouring points
            continue
        left, right = (
            _fit(t[lo : hi + 1], y[lo : hi + 1], level[lo : hi + 1])
            for lo, hi in ((a0, a1), (b0, b1))
        )
        kink = _meeting(left, right, std=2.0 * float(level[a1]))
        if kink is None:
            continue
        slack = AGREES * kink.std
        if not t[a1] - slack <= kink.t <= t[b0] + slack:
            lost += 2  # two kinks between neighbouring points
            continue
        found.append(kink)
    count = len(found)
    covered = sum(hi - lo for lo, hi in pieces)
    if not pieces:
        lost = len(t) // 2
    elif covered < 0.5 * len(t):
        lost = max(lost, (len(t) - covered) // 3)
    sides_of = [kink.sides for kink in found]
    return LoneKinks(
        t=np.array([kink.t for kink in found]),
        jump=np.array([kink.jump for kink in found]).reshape(count, m),
        jump_std=np.array([kink.jump_std for kink in found]),
        std=np.array([kink.std for kink in found]),
        centers=np.array([[s.center for s in both] for both in sides_of]).reshape(count, 2),
        values=np.array([[s.value for s in both] for both in sides_of]).reshape(count, 2, m),
        room=np.array(
            [[min(s.half, abs(s.center - k.t)) for s in k.sides] for k in found]
        ).reshape(count, 2),
        seen=count + lost,
    )


def _straight_pieces(t: FloatArray, y: FloatArray, level: FloatArray) -> list[tuple[int, int]]:
    """Return the first and last point of each straight piece."""
    part = (t[1:-1] - t[:-2]) / (t[2:] - t[:-2])
    middle = y[:-2] + part[:, None] * (y[2:] - y[:-2])
    # A point less the mean of two has variance 3 / 2.
    unit = math.sqrt(1.5) * AGREES * level[1:-1]
    flat = np.abs(y[1:-1] - middle).max(axis=1) <= unit
    # Log-odds that underflowed are NaN, and on no straight piece.
    straight = np.concatenate([[False], flat, [False]])  # by point; the ends don't tell
    edges = np.flatnonzero(np.diff(straight.astype(int)))
    return [(int(a), int(b) + 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _meeting(left: _Side, right: _Side, std: float) -> _Kink | None:
    """Return the kink where two lines meet, by least squares over the outputs.

    ``std`` is the deviation of what the two lines differ by.
    """
    jump = right.slope - left.slope
    jump_std = math.hypot(left.slope_std, right.slope_std)
    strength = float((jump**2).sum())
    if not strength > (AGREES * jump_std) ** 2:
        return None
    apart = (left.value - left.slope * left.center) - (right.value - right.slope * right.center)
    t = float(apart @ jump / strength)
    return _Kink(t, jump, jump_std, std / math.sqrt(strength), (left, right))


def _fit(t: FloatArray, y: FloatArray, level: FloatArray) -> _Side:
    """Fit a line to points of a straight piece."""
    center = float(t.mean())
    spread = t - center
    square = float(spread @ spread)
    slope_std = float(level.max()) / math.sqrt(square)
    half = 0.5 * float(t[-1] - t[0])
    return _Side(center, y.mean(axis=0), np.asarray(spread @ y / square), slope_std, half)
