"""Normals of a decision boundary from labels alone, by bisection.

All searches run in lock-step: one batch of queries halves every bracket. A
point "inside" is one that bears the label of its own side; the boundary may be
that of a threshold or of any pair of classes.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.oracles.base import Oracle
from unrelu.span.values import random_directions

__all__ = [
    "Boundary",
    "LabelScales",
    "Resolution",
    "find_boundary",
    "find_offsets",
    "measure_normals",
    "measure_null_offsets",
    "measure_resolution",
]


@dataclasses.dataclass(frozen=True)
class LabelScales:
    """Numbers that boundary searches need.

    Attributes
    ----------
    draws
        Gaussian points asked at a time in search of two labels.
    widenings
        Factors on the inputs' scale tried, in turn, when all draws bear one label.
    finest
        Brackets are not halved below this distance, in units of the inputs: half
        a unit in the last place of float64 at 1.
    growth
        Factor by which a bracket grows until it holds the boundary.
    growths
        How often it may grow: 16 times a factor of 4 reaches 4e9 times the
        expected distance, where a direction is tangential for all purposes.
    ladder
        Perturbations at which resolution and curvature are told apart, in units
        of the inputs' scale: a factor of 64 between rungs, so that curvature
        falls by 4096 from one to the next and resolution does not.
    calibrations
        Boundary points used for that, one direction each; medians are taken.
    flattest
        Curvature assumed at least, per unit of the inputs' scale: a flat piece
        must not stretch the first steps over its edge.
    checks
        Random moves that check each normal.
    rows
        Largest batch built at a time, in numbers (rows times inputs).
    """

    draws: int = 64
    widenings: tuple[float, ...] = (1.0, 4.0, 0.25, 16.0, 64.0, 256.0)
    finest: float = 2.0**-54
    growth: float = 4.0
    growths: int = 16
    ladder: tuple[float, ...] = tuple(2.0**-e for e in (2, 8, 14, 20, 26, 32, 38, 44))
    calibrations: int = 9
    flattest: float = 1e-2
    checks: int = 4
    rows: int = 1 << 22


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

    def take(self, index: IntArray | BoolArray) -> Boundary:
        """Return some of the points."""
        return Boundary(self.points[index], self.directions[index], self.labels[index])


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What limits a boundary's position.

    Attributes
    ----------
    noise
        Error of a boundary's offset along a search direction, in units of the
        inputs.
    curvature
        Bend of the boundary over a perturbation h: the offset deviates from
        linear by ``curvature · h²``.
    """

    noise: float
    curvature: float


def _label(oracle: Oracle, x: FloatArray) -> FloatArray:
    return oracle(x)[:, 0]


def find_boundary(
    oracle: Oracle,
    count: int,
    rng: np.random.Generator,
    *,
    scale: float,
    finest: float,
    scales: LabelScales,
) -> Boundary | None:
    """Find ``count`` boundary points on segments between Gaussian points.

    Each segment joins two points of different labels; bisection keeps the end
    with the first point's label inside. Returns None if one label is all that
    was seen.
    """
    n = oracle.input_dim
    starts: list[FloatArray] = []
    ends: list[FloatArray] = []
    labels: list[FloatArray] = []
    missing, dry = count, 0
    while missing > 0:
        x = scale * rng.standard_normal((max(scales.draws, 4 * missing), n))
        seen = _label(oracle, x)
        # Pair points of unequal labels, each used once.
        order = np.argsort(seen, kind="stable")
        half = len(x) // 2
        first, second = order[:half], order[half : 2 * half]
        unequal = np.flatnonzero(seen[first] != seen[second])
        rng.shuffle(unequal)
        if len(unequal) == 0:
            dry += 1
            if dry >= 4:
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
    low, high = np.zeros(count), length
    low, high = _bisect(oracle, start, direction, label, low, high, finest, scales)
    points = start + (0.5 * (low + high))[:, None] * direction
    return Boundary(points, direction, label)


def _bisect(
    oracle: Oracle,
    start: FloatArray,
    direction: FloatArray,
    label: FloatArray,
    low: FloatArray,
    high: FloatArray,
    finest: float,
    scales: LabelScales,
) -> tuple[FloatArray, FloatArray]:
    """Halve brackets, inside at ``low`` and outside at ``high``, down to ``finest``."""
    low, high = low.copy(), high.copy()
    while True:
        open_ = np.flatnonzero(np.abs(high - low) > finest)
        if len(open_) == 0:
            return low, high
        middle = 0.5 * (low[open_] + high[open_])
        stuck = (middle == low[open_]) | (middle == high[open_])
        inside = _label(oracle, start[open_] + middle[:, None] * direction[open_]) == label[open_]
        low[open_] = np.where(inside, middle, low[open_])
        high[open_] = np.where(inside, high[open_], middle)
        high[open_[stuck]] = low[open_[stuck]]


def find_offsets(
    oracle: Oracle,
    start: FloatArray,
    direction: FloatArray,
    label: FloatArray,
    *,
    expected: float | FloatArray,
    finest: float,
    scales: LabelScales,
) -> FloatArray:
    """Find how far along ``direction`` the boundary lies from each ``start``.

    Rows are independent; all three arrays have as many. The first query tells
    the side, brackets grow from ``expected`` until they hold the boundary, then
    halve down to ``finest``. Returns ``(N,)`` with NaN where none was found.
    """
    count = len(start)
    inside = _label(oracle, start) == label
    side = np.where(inside, 1.0, -1.0)
    near = np.zeros(count)
    far = np.broadcast_to(np.asarray(expected, dtype=np.float64), (count,)).copy()
    open_: BoolArray = np.ones(count, dtype=bool)
    for _ in range(scales.growths):
        index = np.flatnonzero(open_)
        if len(index) == 0:
            break
        x = start[index] + (side * far)[index, None] * direction[index]
        crossed = (_label(oracle, x) == label[index]) != inside[index]
        open_[index[crossed]] = False
        on = index[~crossed]
        near[on] = far[on]
        far[on] *= scales.growth
    found = np.flatnonzero(~open_)
    low = np.where(inside, near, -far)[found]
    high = np.where(inside, far, -near)[found]
    low, high = _bisect(
        oracle, start[found], direction[found], label[found], low, high, finest, scales
    )
    offsets = np.full(count, np.nan)
    offsets[found] = 0.5 * (low + high)
    return offsets


def measure_resolution(
    oracle: Oracle, rng: np.random.Generator, boundary: Boundary, *, scale: float,
    scales: LabelScales,
) -> Resolution:  # fmt: skip
    """Tell the noise of boundary offsets and the boundary's curvature apart.

    Offsets c(h) are taken along a ladder of perturbations h. The deviation of
    c(h_i) from (h_i / h_{i-1}) c(h_{i-1}) is curvature · h_i · h_{i-1} on the
    upper rungs and noise on the lower ones.
    """
    n, count = oracle.input_dim, len(boundary)
    ladder = scale * np.asarray(scales.ladder)
    u = random_directions(rng, (count, n))
    start = boundary.points[None] + ladder[:, None, None] * u[None]
    rungs = len(ladder)
    offsets = find_offsets(
        oracle,
        start.reshape(-1, n),
        np.tile(boundary.directions, (rungs, 1)),
        np.tile(boundary.labels, rungs),
        expected=np.repeat(ladder, count),
        finest=scale * scales.finest,
        scales=scales,
    ).reshape(rungs, count)
    ratio = ladder[1:] / ladder[:-1]
    deviation = np.abs(offsets[1:] - ratio[:, None] * offsets[:-1])
    product = ladder[1:] * ladder[:-1]
    usable = np.isfinite(deviation).all(axis=0)
    if not usable.any():
        return Resolution(scale * scales.finest, scales.flattest / scale)
    typical = np.median(deviation[:, usable], axis=1)
    curvature = float(typical[0] / product[0])
    # A rung shows noise where curvature would give less than a tenth of it.
    noisy = typical[curvature * product < 0.1 * typical]
    noise = max(float(noisy.max()) if len(noisy) else 0.0, scale * scales.finest)
    if typical[0] <= 10.0 * noise:  # nothing but noise on the top rung either
        curvature = 0.0
    return Resolution(noise, max(curvature, scales.flattest / scale))


def _offsets_around(
    oracle: Oracle,
    boundary: Boundary,
    moves: FloatArray,
    steps: FloatArray,
    *,
    expected: FloatArray,
    finest: float,
    scales: LabelScales,
) -> FloatArray:
    """Return offsets after moving each point by its step along each row of ``moves``.

    Result ``(P, q)``. Batches hold several points while they fit in memory.
    """
    count, (q, n) = len(boundary), moves.shape
    together = max(1, scales.rows // (q * n))
    parts = []
    for first in range(0, count, together):
        some = slice(first, min(first + together, count))
        size = some.stop - some.start
        start = boundary.points[some][:, None] + steps[some][:, None, None] * moves
        parts.append(
            find_offsets(
                oracle,
                start.reshape(-1, n),
                np.repeat(boundary.directions[some], q, axis=0),
                np.repeat(boundary.labels[some], q),
                expected=np.repeat(expected[some], q),
                finest=finest,
                scales=scales,
            ).reshape(size, q)
        )
    return np.concatenate(parts)


def measure_normals(
    oracle: Oracle,
    boundary: Boundary,
    rng: np.random.Generator,
    *,
    step: float,
    finest: float,
    scales: LabelScales,
) -> tuple[FloatArray, FloatArray]:
    """Return the boundary's normals, ``(P, n)``, outward, and their errors, ``(P,)``.

    Moving by h along e_i shifts the boundary along the search direction d by
    c_i = -h g_i / (g · d): one bisection per coordinate. A normal comes scaled
    to g · d = 1, so its length tells how tangential d was. Moves in a few
    random directions are compared with what the normal predicts; their root
    mean square deviation is the error of an entry. Rows with an offset that was
    not found are NaN.
    """
    n = oracle.input_dim
    checks = random_directions(rng, (scales.checks, n))
    steps = np.full(len(boundary), step)
    offsets = _offsets_around(
        oracle,
        boundary,
        np.concatenate([np.eye(n), checks]),
        steps,
        expected=steps,
        finest=finest,
        scales=scales,
    )
    normals, seen = -offsets[:, :n] / step, -offsets[:, n:] / step
    # Both the prediction and what was seen err: hence the factor of 2.
    error = np.sqrt(np.mean((normals @ checks.T - seen) ** 2, axis=1) / 2.0)
    return normals, error


def measure_null_offsets(
    oracle: Oracle,
    boundary: Boundary,
    null: FloatArray,
    *,
    steps: FloatArray,
    expected: FloatArray,
    finest: float,
    scales: LabelScales,
) -> FloatArray:
    """Return slopes of the boundary along the rows of ``null``, ``(P, q)``.

    The slope is (g · q) / (g · d) for the normal g and the search direction d,
    from steps along the null space that may be long. The offset of the
    unmoved point is measured as well and taken off.
    """
    moves = np.concatenate([np.zeros((1, null.shape[1])), null])
    offsets = _offsets_around(
        oracle, boundary, moves, steps, expected=expected, finest=finest, scales=scales
    )
    return -(offsets[:, 1:] - offsets[:, :1]) / steps[:, None]
