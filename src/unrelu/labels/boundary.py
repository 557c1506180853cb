"""Where labels change: batched bisection, normals.

All searches run in lock-step: one round trip halves every bracket. A point on the boundary
has a label behind it (``inside``) and one ahead (``outside``), along a unit direction.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.charts import Chart
from unrelu.lines.boundary import GROWTH, halve_brackets

__all__ = [
    "GROWTH",
    "Crossings",
    "between",
    "find_crossings",
    "find_near",
    "locate",
    "measure_noise",
    "measure_normals",
]


@dataclasses.dataclass(frozen=True)
class Crossings:
    """Points on the decision boundary, in the coordinates of a chart.

    Attributes
    ----------
    points
        ``(n, s)``.
    directions
        Unit vectors from inside to outside, ``(n, s)``.
    inside, outside
        Labels behind and ahead, ``(n,)``.
    error
        How far along the direction the boundary may lie, ``(n,)``.
    """

    points: FloatArray
    directions: FloatArray
    inside: IntArray
    outside: IntArray
    error: FloatArray

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def none(cls, s: int) -> Crossings:
        """Return no crossing of s coordinates."""
        empty, label = np.empty((0, s)), np.empty(0, np.intp)
        return cls(empty, empty, label, label, np.empty(0))

    def take(self, index: IntArray | BoolArray) -> Crossings:
        """Return some of them."""
        return Crossings(
            self.points[index], self.directions[index], self.inside[index], self.outside[index],
            self.error[index],
        )  # fmt: skip

    def joined(self, other: Crossings) -> Crossings:
        """Return both sets."""
        return Crossings(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.directions, other.directions]),
            np.concatenate([self.inside, other.inside]),
            np.concatenate([self.outside, other.outside]),
            np.concatenate([self.error, other.error]),
        )


def bisect(
    chart: Chart, base: FloatArray, direction: FloatArray, low: FloatArray, high: FloatArray,
    inside: IntArray, outside: IntArray, finest: float | FloatArray,
) -> tuple[FloatArray, FloatArray, IntArray]:  # fmt: skip
    """Halve brackets, ``inside`` at ``low`` and another label at ``high``, down to ``finest``.

    Returns the middles, the half-widths and the labels ahead.
    """
    outside = outside.copy()

    def behind(points: FloatArray, lines: IntArray) -> BoolArray:
        label = chart.ask(points)
        same = np.asarray(label == inside[lines])
        outside[lines[~same]] = label[~same]
        return same

    low, high = halve_brackets(behind, base, direction, low, high, finest)
    return 0.5 * (low + high), 0.5 * (high - low), outside


def locate(
    chart: Chart, base: FloatArray, direction: FloatArray, inside: IntArray, outside: IntArray,
    *, guess: FloatArray, half: FloatArray, finest: float | FloatArray, reach: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Find how far along ``direction`` the boundary lies, expected at ``guess ± half``.

    Two labels tell whether it is there; if not the bracket moves on, up to ``reach`` away.
    Returns offsets and half-widths ``(n,)``, NaN where this boundary was not found.
    """
    count = len(base)
    finest = np.broadcast_to(np.asarray(finest, float), (count,))
    low, high = guess - half, guess + half
    behind = chart.ask(base + low[:, None] * direction)
    ahead = chart.ask(base + high[:, None] * direction)
    while True:
        below, above = behind == outside, (behind == inside) & (ahead == inside)
        width = GROWTH * (high - low)
        below &= guess - (low - width) <= reach
        above &= high + width - guess <= reach
        index = np.flatnonzero(below | above)
        if len(index) == 0:
            break
        down = below[index]
        end = np.where(down, low[index] - width[index], high[index] + width[index])
        seen = chart.ask(base[index] + end[:, None] * direction[index])
        under, over = index[down], index[~down]
        high[under], ahead[under] = low[under], behind[under]
        low[under], behind[under] = end[down], seen[down]
        low[over], behind[over] = high[over], ahead[over]
        high[over], ahead[over] = end[~down], seen[~down]
    offset, error = np.full(count, np.nan), np.full(count, np.nan)
    held = np.flatnonzero((behind == inside) & (ahead == outside))
    if len(held):
        middle, width, label = bisect(
            chart, base[held], direction[held], low[held], high[held], inside[held],
            outside[held], finest[held],
        )  # fmt: skip
        same = label == outside[held]
        offset[held[same]], error[held[same]] = middle[same], width[same]
    return offset, error


def find_crossings(
    chart: Chart, draws: FloatArray, labels: IntArray, count: int, rng: np.random.Generator,
    finest: float,
) -> Crossings:  # fmt: skip
    """Bisect segments between points of unequal labels; every pair of classes has its turn."""
    order = rng.permutation(len(draws))
    seen = labels[order]
    # Neighbours after a sort by label, at a distance of about half, are of different classes.
    ranked = order[np.argsort(seen, kind="stable")]
    shift = rng.integers(1, max(2, len(ranked)), size=3)
    first = np.concatenate([ranked] * len(shift))
    second = np.concatenate([np.roll(ranked, int(k)) for k in shift])
    unequal = (labels[first] != labels[second]) & (labels[first] >= 0) & (labels[second] >= 0)
    pairs = rng.permutation(np.flatnonzero(unequal))[:count]
    if len(pairs) == 0:
        return Crossings.none(chart.dimension)
    a, b = first[pairs], second[pairs]
    return between(chart, draws[a], draws[b], labels[a], labels[b], finest)


def between(
    chart: Chart, start: FloatArray, end: FloatArray, inside: IntArray, outside: IntArray,
    finest: float,
) -> Crossings:  # fmt: skip
    """Bisect segments whose ends ``(n, s)`` have unequal labels."""
    length = np.linalg.norm(end - start, axis=1)
    direction = (end - start) / length[:, None]
    at, error, outside = bisect(
        chart, start, direction, np.zeros(len(start)), length, inside, outside, finest
    )
    found = Crossings(start + at[:, None] * direction, direction, inside, outside, error)
    return found.take(outside >= 0)


def find_near(
    chart: Chart, points: FloatArray, rng: np.random.Generator, finest: float
) -> Crossings:
    """Find crossings between points ``(n, s)`` and the nearest of a few typical ones that differ.

    For points near which a boundary lies that no model has foreseen.
    """
    n = len(points)
    if n == 0:
        return Crossings.none(chart.dimension)
    y = np.concatenate([points, chart.draw(4 * n + 8, rng)])
    labels = chart.ask(y)
    pairs = []
    for i in range(n):
        unequal = n + np.flatnonzero((labels[n:] != labels[i]) & (labels[n:] >= 0))
        if len(unequal) and labels[i] >= 0:
            nearest = np.argmin(np.linalg.norm(y[unequal] - y[i], axis=1))
            pairs.append((i, int(unequal[nearest])))
    if not pairs:
        return Crossings.none(chart.dimension)
    near, far = np.array(pairs).T
    return between(chart, y[near], y[far], labels[near], labels[far], finest)


def complements(vectors: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return, for unit vectors ``(n, s)``, orthonormal bases ``(n, s - 1, s)`` beside them."""
    n, s = vectors.shape
    start = np.concatenate([vectors[:, :, None], rng.standard_normal((n, s, s - 1))], axis=2)
    return np.asarray(np.swapaxes(np.linalg.qr(start)[0][:, :, 1:], 1, 2))


def measure_normals(
    chart: Chart, at: Crossings, rng: np.random.Generator, *, step: FloatArray, finest: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Measure the boundary's unit normals, from inside to outside.

    Each of s - 1 directions across the search direction is stepped along once, and two labels
    on the other side check that the boundary is flat there. Returns ``(n, s)``, and which
    passed.
    """
    n, s = at.points.shape
    if n == 0:
        return np.empty((0, s)), np.empty(0, dtype=bool)
    across = complements(at.directions, rng)
    repeated = np.repeat(np.arange(n), s - 1)
    size = step[repeated]
    offset, _ = locate(
        chart, at.points[repeated] + size[:, None] * across.reshape(-1, s),
        at.directions[repeated],
        at.inside[repeated], at.outside[repeated], guess=np.zeros(len(repeated)), half=size,
        finest=finest[repeated], reach=2.0 * GROWTH**2 * size,
    )  # fmt: skip
    slope = -offset.reshape(n, s - 1) / step[:, None]
    good: BoolArray = np.asarray(np.isfinite(slope).all(axis=1))
    slope[~good] = 0.0
    # On the other side of the point, where every direction has a part.
    mixed = rng.uniform(0.5, 1.0, size=(n, s - 1)) / np.sqrt(s - 1)
    opposite = at.points - step[:, None] * np.einsum("nq,nqs->ns", mixed, across)
    expected = step * np.einsum("nq,nq->n", mixed, slope)
    within = GROWTH * finest * np.sqrt(s)
    good[good] = _beside(chart, opposite[good], at.take(good), expected[good], within[good])
    normal = at.directions + np.einsum("nq,nqs->ns", slope, across)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True), good


def _beside(
    chart: Chart, base: FloatArray, at: Crossings, expected: FloatArray, within: FloatArray
) -> BoolArray:
    """Tell where the boundary lies at ``expected`` along the directions, by two labels."""
    if len(base) == 0:
        return np.empty(0, dtype=bool)
    behind = chart.ask(base + (expected - within)[:, None] * at.directions)
    ahead = chart.ask(base + (expected + within)[:, None] * at.directions)
    return np.asarray((behind == at.inside) & (ahead == at.outside))


def measure_noise(chart: Chart, at: Crossings, rng: np.random.Generator, *, step: float) -> float:
    """Measure how sharp the boundary is: the typical error of a crossing's place.

    On a flat piece three crossings over equidistant points lie on a line; their second
    difference, over the root of six, is the error of one.
    """
    n = len(at)
    aside = step * complements(at.directions, rng)[:, 0]
    base = np.concatenate([at.points, at.points - aside, at.points + aside])
    finest = np.finfo(np.float64).eps * chart.size / 2.0
    half = np.concatenate([2.0 * at.error, np.full(2 * n, step)])
    offset, _ = locate(
        chart, base, np.tile(at.directions, (3, 1)), np.tile(at.inside, 3),
        np.tile(at.outside, 3), guess=np.zeros(3 * n), half=half, finest=finest,
        reach=np.full(3 * n, 2.0 * GROWTH**2 * step),
    )  # fmt: skip
    middle, before, after = offset.reshape(3, n)
    bend = np.abs(before + after - 2.0 * middle)
    bend = bend[np.isfinite(bend)]
    typical = float(np.median(bend)) / np.sqrt(6.0) if len(bend) else 0.0
    return max(typical, finest)
