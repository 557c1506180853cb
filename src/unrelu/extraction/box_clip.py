"""Targets that clip their inputs in silence: the range per feature, found by asking.

Where inputs are clipped, answers stop changing beyond the range of a feature, on both sides and
for every feature; a piecewise affine function that depends on a feature does not. Just inside
the end of the range the answer is affine in the feature, outside it is constant: a line through
two inner answers meets the constant at the end of the range, so a few secants find it.

Hidden units that saturate let answers stop as well. But where half of the features are far out
the others still count if each is clipped by itself, and count no more if hidden units saturate:
a few pairs of answers tell. And these stop elsewhere from every start, smooth ones slowly: so
inputs all around must be answered as their clipped copies are, and most features must stop at
once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike, BoolArray, FloatArray
from unrelu.core.noise import is_single
from unrelu.core.record import remembered
from unrelu.extraction.box_target import read_probabilities
from unrelu.extraction.deep_numbers import TRIES

__all__ = ["HAIR", "HALVINGS", "PROOFS", "Clipping", "notice_clipping"]

_FAR = 1e6
"""How far out answers must have stopped changing, over the inputs' scale."""
HALVINGS = 40
"""Halvings or secants a bound, at most: a halving each would give all digits of a float32."""
_SAME = 16.0
"""Answers equal within this many units in their last place: a batch may differ from a row."""
HAIR = 1e-5
"""Relative distance from a bound at which it is proved from both sides."""
PROOFS = 64
"""Inputs around a range that are compared with their clipped copies, and corners of it that must
be answered, before it is believed."""


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Values ``(n, m)`` at inputs ``(n, d)``, NaN where unread, and their relative rounding."""

    ask: Callable[[FloatArray], FloatArray]
    rounding: float

    def __call__(self, x: FloatArray) -> FloatArray:
        return self.ask(x)

    def same(self, a: FloatArray, b: FloatArray) -> BoolArray:
        """Whether rows of values are equal up to rounding; never where one is unread."""
        size = np.maximum(np.abs(a), np.abs(b)).max(axis=1)
        return np.asarray(np.abs(a - b).max(axis=1) <= self.rounding * size)


@dataclasses.dataclass(frozen=True)
class Clipping:
    """Where a target clips its inputs.

    Attributes
    ----------
    low, high
        Range per feature, ``(d,)``; infinite where none was seen.
    found
        Features whose range was seen on both sides, ``(d,)``. Others may not matter at all.
    margin
        How well the ends are known, over the width of the range.
    """

    low: FloatArray
    high: FloatArray
    found: BoolArray
    margin: float = HAIR

    @property
    def noticed(self) -> bool:
        """Whether the target clips: some feature has a range, and none goes on."""
        return bool(self.found.any())

    def box(self) -> tuple[FloatArray, FloatArray]:
        """Return corners of a box inside the range; features without one get the usual one."""
        low = np.where(self.found, self.low, np.median(self.low[self.found]))
        high = np.where(self.found, self.high, np.median(self.high[self.found]))
        hair = self.margin * (high - low)
        return low + hair, high - hair


def notice_clipping(
    oracle: Any,
    *,
    center: FloatArray | None = None,
    scale: ArrayLike = 1.0,
    probabilities: bool = False,
    rng: RandomState = None,
) -> Clipping:
    """Find out whether a target clips its inputs, and where.

    Parameters
    ----------
    oracle
        Anything that :func:`~unrelu.oracles.as_oracle` takes.
    center
        An input inside the range, ``(d,)``, such as the data's mean; None: near the origin.
    scale
        Size of usual inputs: one number, or one a feature.
    probabilities
        Whether the answers are probabilities, to be read as logits.
    rng
        Seed or generator.

    Notes
    -----
    Costs two queries where answers go on, ten where hidden units saturate, and about ``16 d``
    where inputs are clipped.
    """
    target = remembered(oracle)
    generator = as_generator(rng)
    d = target.input_dim
    sizes = np.broadcast_to(np.asarray(scale, np.float64), (d,))
    start = 0.25 * sizes if center is None else np.asarray(center, np.float64)

    def ask(x: FloatArray) -> FloatArray:
        return read_probabilities(target(x))[0] if probabilities else target(x)

    low, high, found = np.full(d, -np.inf), np.full(d, np.inf), np.zeros(d, dtype=bool)
    with target.stage("clipping"):
        far = _FAR * sizes * generator.choice([-1.0, 1.0], d)
        x = np.stack([start + far, start + 2.0 * far])
        answers = target(x)
        eps = float(np.finfo(np.float32 if is_single(answers) else np.float64).eps)
        read = _Reader(ask, _SAME * eps)
        margin = max(HAIR, math.sqrt(eps))  # a weak feature stops before its end, by rounding
        ends = read_probabilities(answers)[0] if probabilities else answers
        if not read.same(ends[:1], ends[1:])[0] or _saturates(read, start, sizes, generator):
            return Clipping(low, high, found)
        for _ in range(TRIES):
            above, up = _bounds(read, start, sizes)
            below, down = _bounds(read, start, -sizes)
            new = up & down
            # Where all units that see a feature go off, answers stop before the range ends.
            low[new] = np.minimum(below, np.where(found, low, np.inf))[new]
            high[new] = np.maximum(above, np.where(found, high, -np.inf))[new]
            found |= new
            if not found.any():
                break
            seen = Clipping(low, high, found, margin)
            if _is_clipping(read, seen, generator):
                return seen
            start = generator.uniform(*seen.box())
    return Clipping(np.full(d, -np.inf), np.full(d, np.inf), np.zeros(d, dtype=bool))


def _saturates(
    read: _Reader, start: FloatArray, sizes: FloatArray, rng: np.random.Generator
) -> bool:
    """Whether half of the features, far out, leave nothing for the others to change.

    A feature that is clipped counts wherever the others are; one alone has no others.
    """
    d = len(start)
    if d < 2:
        return False
    halves = rng.permuted(np.tile(np.arange(d) < d // 2, (TRIES, 1)), axis=1)
    far = start + np.where(halves, _FAR * sizes * rng.choice([-1.0, 1.0], (TRIES, d)), 0.0)
    step = math.sqrt(HAIR) * sizes * rng.standard_normal((TRIES, d))
    answers = read(np.concatenate([far, far + np.where(halves, 0.0, step)]))
    # Where terms cancel, what is left of them keeps their rounding: the largest answer counts.
    change = np.abs(answers[TRIES:] - answers[:TRIES])
    return bool(change.max() <= read.rounding * np.abs(answers).max())


def _is_clipping(read: _Reader, seen: Clipping, rng: np.random.Generator) -> bool:
    """Whether answers around a range are those of clipped inputs, and stop at its ends at once.

    At once: one and two steps inside an end they differ from it in proportion.
    """
    low, high = seen.box()
    middle, width = (low + high) / 2.0, high - low
    x = middle + width * rng.standard_normal((PROOFS, len(low)))
    edge = np.clip(x, np.where(seen.found, seen.low, low), np.where(seen.found, seen.high, high))
    outside = np.where(seen.found, x, edge)
    here, there = read(outside), read(edge)
    # Ends are known to a hair, or to where a feature changes answers by less than rounding.
    size = np.abs(here).max(axis=1)
    allowed = len(low) * (HAIR + read.rounding) * size
    if not (np.abs(here - there).max(axis=1) <= allowed).all():
        return False
    # One step and two steps inside an end, for all features found: a kink between is rare.
    step = np.sqrt(HAIR) * width
    which = np.flatnonzero(seen.found)
    base = np.repeat(rng.uniform(low, high, (1, len(low))), len(which), axis=0)
    rows = []
    for steps in (0.0, 1.0, 2.0):
        points = base.copy()
        points[np.arange(len(which)), which] = (seen.high - steps * step)[which]
        rows.append(read(points))
    once, twice = rows[1] - rows[0], rows[2] - rows[0]
    straight = np.abs(twice - 2.0 * once).max(axis=1) <= np.abs(once).max(axis=1) / 4.0
    return bool(straight.mean() > 0.5)


def _bounds(read: _Reader, start: FloatArray, scale: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return where each feature stops to matter in the direction of ``scale``'s sign.

    Returns
    -------
    bounds, seen
        ``(d,)`` each; False where the feature changes nothing, or does not stop.
    """
    d = len(start)
    axes, here = np.arange(d), read(start[None])

    def ask(t: FloatArray, which: BoolArray) -> FloatArray:
        points = np.repeat(start[None], d, axis=0)
        points[axes, axes] += t
        out = np.full((d, here.shape[1]), np.nan)
        if which.any():
            out[which] = read(points[which])
        return out

    every = np.ones(d, dtype=bool)
    outside = _FAR * scale
    constant = ask(outside, every)
    seen = read.same(constant, ask(2.0 * outside, every))
    inside, inner = np.zeros(d), np.repeat(here, d, axis=0)
    # A feature that starts outside, or does nothing up to there, tells nothing.
    seen &= ~read.same(inner, constant)
    # Walk out in doublings to the first answer that has stopped, then close in.
    step = 0.25 * scale
    settled = ~seen
    for _ in range(HALVINGS):
        if settled.all():
            break
        t = np.where(
            np.abs(outside) > 4.0 * np.abs(step + inside), inside + step, 0.5 * (inside + outside)
        )
        y = ask(t, ~settled)
        t_line = _secant(inside, inner, t, y, constant)
        stopped = read.same(y, constant) & ~settled
        moving = ~stopped & ~settled
        # Two inner answers on one piece point to the end; one answer there proves it.
        line = (
            moving
            & np.isfinite(t_line)
            & (np.abs(t_line) > np.abs(t))
            & (np.abs(t_line) <= np.abs(outside))
        )
        checked = ask(np.where(line, t_line * (1.0 - HAIR), 0.0), line)
        beyond = ask(np.where(line, t_line * (1.0 + HAIR), 0.0), line)
        exact = line & read.same(beyond, constant) & ~read.same(checked, constant)
        outside = np.where(stopped, t, outside)
        inside, inner = np.where(moving, t, inside), np.where(moving[:, None], y, inner)
        step = np.where(moving, 2.0 * step, step)
        outside = np.where(exact, t_line, outside)
        settled |= exact | (np.abs(outside - inside) <= HAIR * np.abs(outside))
    return start + outside, seen & settled


def _secant(
    t0: FloatArray, y0: FloatArray, t1: FloatArray, y1: FloatArray, level: FloatArray
) -> FloatArray:
    """Return where lines through two answers come nearest to a constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (y1 - y0) / (t1 - t0)[:, None]
        square = (slope**2).sum(axis=1)
        return np.asarray(t1 + ((level - y1) * slope).sum(axis=1) / square)
