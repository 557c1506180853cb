"""Where a label changes along lines: batched bisection.

All searches run in lock-step: one batch of queries halves every bracket. A point is "inside"
if it bears the label of its own side; the boundary may be that of a threshold, of any pair of
classes, or of a convex region.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.oracles.base import Oracle

__all__ = ["GROWTH", "Boundary", "find_boundary", "find_offsets", "halve_brackets"]

GROWTH = 4.0
"""Factor by which a bracket grows or moves on until it holds the boundary."""

Inside = Callable[[FloatArray, IntArray], BoolArray]
"""Whether points ``(k, n)`` of the lines numbered ``(k,)`` lie inside."""


@dataclasses.dataclass(frozen=True)
class Boundary:
    """Points on decision boundaries.

    Attributes
    ----------
    points
        ``(P, n)``.
    directions
        Unit vectors that cross from inside to outside, ``(P, n)``.
    labels
        The label inside, ``(P,)``.
    """

    points: FloatArray
    directions: FloatArray
    labels: FloatArray

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def none(cls, n: int) -> Boundary:
        """Return no point in n dimensions."""
        return cls(np.empty((0, n)), np.empty((0, n)), np.empty(0))

    def take(self, index: IntArray | BoolArray) -> Boundary:
        """Return some of the points."""
        return Boundary(self.points[index], self.directions[index], self.labels[index])

    def with_more(self, other: Boundary) -> Boundary:
        """Return both together."""
        return Boundary(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.directions, other.directions]),
            np.concatenate([self.labels, other.labels]),
        )


def halve_brackets(
    inside: Inside,
    start: FloatArray,
    direction: FloatArray,
    low: FloatArray,
    high: FloatArray,
    finest: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Halve brackets, inside at ``low`` and outside at ``high``, down to ``finest``.

    Line i is ``start[i] + t direction[i]``. Returns the narrowed brackets; those between whose
    ends there is no number are closed.
    """
    low, high = low.copy(), high.copy()
    finest = np.broadcast_to(np.asarray(finest, dtype=np.float64), low.shape)
    while True:
        open_ = np.flatnonzero(np.abs(high - low) > finest)
        if len(open_) == 0:
            return low, high
        middle = 0.5 * (low[open_] + high[open_])
        stuck = (middle == low[open_]) | (middle == high[open_])
        high[open_[stuck]] = low[open_[stuck]]
        open_, middle = open_[~stuck], middle[~stuck]
        if len(open_) == 0:
            continue
        within = inside(start[open_] + middle[:, None] * direction[open_], open_)
        low[open_] = np.where(within, middle, low[open_])
        high[open_] = np.where(within, high[open_], middle)


def _bears(oracle: Oracle, label: FloatArray) -> Inside:
    """Return what tells whether points bear the labels of their lines."""
    return lambda points, lines: np.asarray(oracle(points)[:, 0] == label[lines])


def find_boundary(
    oracle: Oracle,
    count: int,
    rng: np.random.Generator,
    *,
    scale: float,
    finest: float,
    draws: int,
) -> Boundary | None:
    """Find ``count`` boundary points on segments between Gaussian points.

    Each segment joins two points of different labels; bisection keeps the end
    with the first point's label inside. Returns None if one label is all that
    ``draws`` points showed.
    """
    n = oracle.input_dim
    starts: list[FloatArray] = []
    ends: list[FloatArray] = []
    labels: list[FloatArray] = []
    missing, dry = count, 0
    while missing > 0:
        x = scale * rng.standard_normal((max(4 * missing, dry), n))
        seen = oracle(x)[:, 0]
        # Pair points of unequal labels, each used once.
        order = np.argsort(seen, kind="stable")
        half = len(x) // 2
        first, second = order[:half], order[half : 2 * half]
        unequal = np.flatnonzero(seen[first] != seen[second])
        rng.shuffle(unequal)
        if len(unequal) == 0:
            dry += len(x)
            if dry >= draws:
                return None
        # Either end may be the inside, so that both sides of a class are used.
        flip = rng.random(len(unequal)) < 0.5
        a = np.where(flip, first[unequal], second[unequal])[:missing]
        b = np.where(flip, second[unequal], first[unequal])[:missing]
        starts.append(x[a])
        ends.append(x[b])
        labels.append(seen[a])
        missing -= len(a)
    start, end, label = np.concatenate(starts), np.concatenate(ends), np.concatenate(labels)
    length = np.linalg.norm(end - start, axis=1)
    direction = (end - start) / length[:, None]
    low, high = halve_brackets(
        _bears(oracle, label), start, direction, np.zeros(count), length, finest
    )
    return Boundary(start + (0.5 * (low + high))[:, None] * direction, direction, label)


def find_offsets(
    oracle: Oracle,
    start: FloatArray,
    direction: FloatArray,
    label: FloatArray,
    *,
    expected: float | FloatArray,
    finest: float,
    farthest: float | None = None,
) -> FloatArray:
    """Find how far along ``direction`` the boundary lies from each ``start``.

    Rows are independent; all three arrays have as many. The first query tells
    the side, brackets grow from ``expected`` until they hold the boundary, then
    halve down to ``finest``. ``farthest`` is how far they may grow, over what is expected; by
    default one over the root of float64's resolution, where a direction is tangential for all
    purposes. Returns ``(N,)`` with NaN where none was found.
    """
    if farthest is None:
        farthest = 1.0 / math.sqrt(float(np.finfo(np.float64).eps))
    count = len(start)
    bears = _bears(oracle, label)
    inside = bears(start, np.arange(count))
    side = np.where(inside, 1.0, -1.0)
    near = np.zeros(count)
    far = np.broadcast_to(np.asarray(expected, dtype=np.float64), (count,)).copy()
    open_: BoolArray = np.ones(count, dtype=bool)
    grown = 1.0
    while grown <= farthest and open_.any():
        index = np.flatnonzero(open_)
        x = start[index] + (side * far)[index, None] * direction[index]
        crossed = bears(x, index) != inside[index]
        open_[index[crossed]] = False
        on = index[~crossed]
        near[on] = far[on]
        far[on] *= GROWTH
        grown *= GROWTH
    found = np.flatnonzero(~open_)
    low = np.where(inside, near, -far)[found]
    high = np.where(inside, far, -near)[found]
    low, high = halve_brackets(
        _bears(oracle, label[found]), start[found], direction[found], low, high, finest
    )
    offsets = np.full(count, np.nan)
    offsets[found] = 0.5 * (low + high)
    return offsets
