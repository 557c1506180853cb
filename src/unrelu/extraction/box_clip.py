"""Targets that clip their inputs in silence: the range per feature, found by asking.

Where inputs are clipped, answers stop changing beyond the range of a feature, on both sides and
for every feature; a piecewise affine function that depends on a feature does not. Just inside
the end of the range the answer is affine in the feature, outside it is constant: a line through
two inner answers meets the constant at the end of the range, so a few secants find it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import BoolArray, FloatArray
from unrelu.core.record import remembered
from unrelu.oracles.base import Oracle

__all__ = ["Clipping", "notice_clipping"]

_FAR = 1e6
"""How far out answers must have stopped changing, over the inputs' scale."""
_SECANTS = 40
"""Halvings or secants a bound, at most: a halving each would give all digits of a float32."""
_SAME = 16.0
"""Answers equal within this many units in their last place: a batch may differ from a row."""


@dataclasses.dataclass(frozen=True)
class Clipping:
    """Where a target clips its inputs.

    Attributes
    ----------
    low, high
        Range per feature, ``(d,)``; infinite where none was seen.
    found
        Features whose range was seen on both sides, ``(d,)``. Others may not matter at all.
    """

    low: FloatArray
    high: FloatArray
    found: BoolArray

    @property
    def noticed(self) -> bool:
        """Whether the target clips: some feature has a range, and none goes on."""
        return bool(self.found.any())


def notice_clipping(
    oracle: Any, *, center: FloatArray | None = None, scale: float = 1.0, rng: RandomState = None
) -> Clipping:
    """Find out whether a target clips its inputs, and where.

    Parameters
    ----------
    oracle
        Anything that :func:`~unrelu.oracles.as_oracle` takes.
    center
        An input inside the range, ``(d,)``, such as the data's mean; None: near the origin.
    scale
        Size of usual inputs.
    rng
        Seed or generator.

    Notes
    -----
    Costs two queries where nothing is clipped, and about ``16 d`` where it is.
    """
    target = remembered(oracle)
    generator = as_generator(rng)
    d = target.input_dim
    start = np.full(d, 0.25 * scale) if center is None else np.asarray(center, np.float64)
    with target.stage("clipping"):
        way = generator.standard_normal(d)
        far = _FAR * scale * way / np.abs(way).min()
        ends = target(np.stack([start + far, start + 2.0 * far]))
        none = Clipping(np.full(d, -np.inf), np.full(d, np.inf), np.zeros(d, dtype=bool))
        if not _same(ends[:1], ends[1:])[0]:
            return none
        high, up = _bounds(target, start, scale)
        low, down = _bounds(target, start, -scale)
    found = up & down
    return Clipping(np.where(found, low, -np.inf), np.where(found, high, np.inf), found)


def _same(a: FloatArray, b: FloatArray) -> BoolArray:
    """Whether rows of answers ``(n, m)`` are equal up to rounding."""
    single = bool((a == a.astype(np.float32)).all() and (b == b.astype(np.float32)).all())
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    size = np.maximum(np.abs(a), np.abs(b)).max(axis=1)
    return np.asarray(np.abs(a - b).max(axis=1) <= _SAME * eps * size)


def _bounds(target: Oracle, start: FloatArray, scale: float) -> tuple[FloatArray, BoolArray]:
    """Return where each feature stops to matter in the direction of ``scale``'s sign.

    Returns
    -------
    bounds, seen
        ``(d,)`` each; False where the feature changes nothing, or does not stop.
    """
    d = len(start)
    axes = np.arange(d)

    def ask(t: FloatArray, which: BoolArray) -> FloatArray:
        points = np.repeat(start[None], d, axis=0)
        points[axes, axes] += t
        out = np.full((d, target.output_dim), np.nan)
        if which.any():
            out[which] = target(points[which])
        return out

    every = np.ones(d, dtype=bool)
    outside = np.full(d, _FAR * scale)
    constant = ask(outside, every)
    seen = _same(constant, ask(2.0 * outside, every))
    inside, inner = np.zeros(d), ask(np.zeros(d), every)
    # A feature that starts outside, or does nothing up to there, tells nothing.
    seen &= ~_same(inner, constant)
    # Walk out in doublings to the first answer that has stopped, then close in.
    step = np.full(d, 0.25 * scale)
    settled = ~seen
    for _ in range(_SECANTS):
        if settled.all():
            break
        t = np.where(
            np.abs(outside) > 4.0 * np.abs(step + inside), inside + step, 0.5 * (inside + outside)
        )
        y = ask(t, ~settled)
        t_line, y_line = _secant(inside, inner, t, y, constant)
        stopped = _same(np.nan_to_num(y), constant) & ~settled
        moving = ~stopped & ~settled
        # Two inner answers on one piece point to the end; one answer there proves it.
        line = (
            moving
            & np.isfinite(t_line)
            & (np.abs(t_line) > np.abs(t))
            & (np.abs(t_line) <= np.abs(outside))
        )
        checked = ask(np.where(line, t_line * (1.0 - _HAIR), 0.0), line)
        beyond = ask(np.where(line, t_line * (1.0 + _HAIR), 0.0), line)
        exact = (
            line
            & _same(np.nan_to_num(beyond), constant)
            & ~_same(np.nan_to_num(checked), constant)
        )
        outside = np.where(stopped, t, outside)
        inside, inner = np.where(moving, t, inside), np.where(moving[:, None], y, inner)
        step = np.where(moving, 2.0 * step, step)
        outside = np.where(exact, t_line, outside)
        settled |= exact | (np.abs(outside - inside) <= _HAIR * np.abs(outside))
        del y_line
    return start + outside, seen & settled


_HAIR = 1e-5
"""Relative distance from a bound at which it is proved from both sides."""


def _secant(
    t0: FloatArray, y0: FloatArray, t1: FloatArray, y1: FloatArray, level: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return where lines through two answers come nearest to a constant, and what is left."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (y1 - y0) / (t1 - t0)[:, None]
        square = (slope**2).sum(axis=1)
        further = ((level - y1) * slope).sum(axis=1) / square
    return t1 + further, y1 + further[:, None] * slope
