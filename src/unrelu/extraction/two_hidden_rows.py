"""First-layer rows from coarse answers: normals at two places, then many crossings; signs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse

from unrelu._types import BoolArray, FloatArray
from unrelu.extraction.two_hidden_lines import NEAR, Trace

__all__ = [
    "SHOWN",
    "Rows",
    "measure_normal",
    "missing_change",
    "sharpen_rows",
    "turn_rows",
]

Read = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
"""Inputs ``(n, d)`` to those asked, values ``(n, m)`` and deviations ``(n,)``."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Hyperplanes ``w . x + b = 0`` with unit rows ``(k, d)`` and biases ``(k,)``."""

    weights: FloatArray
    biases: FloatArray

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.biases)

    def heights(self, x: FloatArray) -> FloatArray:
        """Return signed distances ``(n, k)``."""
        return np.asarray(x @ self.weights.T + self.biases)

    def with_row(self, weights: FloatArray, bias: float) -> Rows:
        """Return these and one more."""
        return Rows(np.vstack([self.weights, weights]), np.append(self.biases, bias))

    def with_turned(self, j: int, weights: FloatArray, bias: float) -> Rows:
        """Return these with row j replaced."""
        own = np.arange(self.count) == j
        return Rows(
            np.where(own[:, None], weights, self.weights), np.where(own, bias, self.biases)
        )

    def apart(self, others: Rows, j: int) -> float:
        """Return how far row j of others is from the nearest of these, either way round."""
        if self.count == 0:
            return float(np.inf)
        mine = np.column_stack([self.weights, self.biases])
        row = np.append(others.weights[j], others.biases[j])
        return float(min(np.linalg.norm(mine - s * row, axis=1).min() for s in (1.0, -1.0)))

    def kept(self, which: BoolArray) -> Rows:
        """Return some of them."""
        return Rows(self.weights[which], self.biases[which])


_AGREE = 0.02
"""Angle within which normals measured at two places are one: ten times their usual error."""
_SHORT = 0.4
_AXES = 0.2
"""Distance from a trace at which gradients beside it are measured, over the line's step, and
their own steps over that: the plane shows a small part of a normal, so that other directions
lead across the hyperplane sooner."""
_SPARE = 4
"""Crossings that must agree with a row beside as many as it has parameters; twice as many are
measured."""
_PASSES = 4
"""Times that they are measured at most, each time with shorter steps: fewer are spoilt then."""
SHOWN = 0.6
"""Part of the places on a hyperplane where a first-layer unit shows; elsewhere all that it feeds
is off, or another kink is near. A second-layer unit's hyperplane goes on in its region only."""
CLOSE, WIDE = 0.005, 0.03
"""Least and longest steps of a crossing, over the deviation of an input's coordinate. Positions
are as exact with short steps, and fewer other kinks are in the way: no longer than needed."""


def measure_normal(
    read: Read, trace: Trace, plane: FloatArray, places: FloatArray, step: float
) -> tuple[FloatArray, float, float] | None:
    """Measure the normal of a trace at places on it; None where no two agree.

    A first-layer unit has one normal everywhere. A second-layer unit's depends on the place.
    Returns the row, its bias, and by how much the two normals differ.

    Parameters
    ----------
    plane
        Orthonormal directions of the plane in inputs, ``(2, d)``.
    places
        Inputs on the trace, ``(p, d)``.
    step
        How far the function is known to be straight beside them.
    """
    across = trace.normal @ plane
    step = _SHORT * step  # across the plane the function is straight for less
    found: list[FloatArray] = []
    for place in places:
        normal = _jump(read, place, across, step)
        if normal is None:
            continue
        flat = plane @ normal
        if np.linalg.norm(flat / np.linalg.norm(flat) - trace.normal) > _AGREE:
            continue  # another unit was in the way, or this is none
        for other in found:
            apart = float(np.linalg.norm(normal - other))
            if apart <= _AGREE:
                mean = normal + other
                mean /= np.linalg.norm(mean)
                return mean, -float(mean @ places.mean(axis=0)), apart
        found.append(normal)
    return None


def _jump(read: Read, place: FloatArray, across: FloatArray, step: float) -> FloatArray | None:
    """Return the direction in which the gradient changes across a kink at ``place``."""
    d = len(place)
    sides = np.stack([place - step * across, place + step * across])
    points = np.concatenate([sides, *(side + _AXES * step * np.eye(d) for side in sides)])
    x, y, deviation = read(points)
    if not np.isfinite(deviation).all():
        return None
    gradients = []
    for side in range(2):
        rows = slice(2 + side * d, 2 + (side + 1) * d)
        moved = x[rows] - x[side]
        gradients.append(scipy.linalg.lstsq(moved, y[rows] - y[side])[0])
    left, size, _ = np.linalg.svd(gradients[1] - gradients[0], full_matrices=False)
    noise = 2.0 * float(deviation.max()) / (_AXES * step) * np.sqrt(d)
    if size[0] <= noise or (len(size) > 1 and size[1] > 0.1 * size[0] + noise):
        return None
    return np.asarray(left[:, 0] * np.sign(left[:, 0] @ across))


def sharpen_rows(
    read: Read, rows: Rows, rng: np.random.Generator, *, only: int, off: float = 0.0
) -> tuple[Rows, float]:
    """Fit one hyperplane to many places where the function bends across it.

    ``off`` is a rough deviation of typical inputs' distances from it as it is known.

    Returns
    -------
    rows, seen
        And the part of places tried where it showed: few for one that is none.
    """
    reach = float(np.clip(8.0 * off, CLOSE, WIDE))
    points, doubts, tried = np.empty((0, rows.weights.shape[1])), np.empty(0), 0
    for _ in range(_PASSES):
        places, steps = _roomy_places(rows, only, reach, rng)
        found = _crossings(read, places, rows.weights[only], steps)
        tried += len(places)
        points = np.concatenate([points, found.points[found.fine]])
        doubts = np.append(doubts, found.doubts[found.fine])
        if len(points) < SHOWN * tried:
            break
        weights, bias, sharp = _regress(rows.weights[only], points, doubts)
        if sharp:
            return rows.with_turned(only, weights, bias), len(points) / tried
        reach /= 2.0
    return rows, 0.0


def _roomy_places(
    rows: Rows, j: int, reach: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw points of hyperplane j away from the others, and steps that do not reach them."""
    d = rows.weights.shape[1]
    count = d + 2 * _SPARE
    x = rng.standard_normal((8 * count, d))
    row = rows.weights[j]
    x -= np.outer(rows.heights(x)[:, j], row)
    speed = np.maximum(np.abs(rows.weights @ row), 0.05)
    room = np.abs(rows.heights(x)) / speed
    room[:, j] = np.inf
    least = room.min(axis=1) if rows.count > 1 else np.full(len(x), np.inf)
    best = np.argsort(-least)[:count]
    best = best[rng.permutation(count)]
    return x[best], np.minimum(least[best] / 3.0, reach)


@dataclasses.dataclass(frozen=True)
class _Crossings:
    """Where pieces on both sides of places meet.

    Attributes
    ----------
    points, doubts
        On the hyperplane, ``(n, d)``, and how far off they may be, ``(n,)``.
    fine
        Whether a kink was read, ``(n,)``.
    """

    points: FloatArray
    doubts: FloatArray
    fine: BoolArray


def _crossings(read: Read, places: FloatArray, row: FloatArray, steps: FloatArray) -> _Crossings:
    """Measure where pieces on both sides of places meet, from two answers a side."""
    n = len(places)
    t = np.array([-2.0, -1.0, 1.0, 2.0])
    points = places[:, None] + (steps[:, None] * t)[:, :, None] * row
    x, y, deviation = read(points.reshape(n * 4, -1))
    t_real = ((x.reshape(n, 4, -1) - places[:, None]) @ row) / steps[:, None]
    y, noise = y.reshape(n, 4, -1), deviation.reshape(n, 4).max(axis=1)
    left = (y[:, 1] - y[:, 0]) / (t_real[:, 1] - t_real[:, 0])[:, None]
    right = (y[:, 3] - y[:, 2]) / (t_real[:, 3] - t_real[:, 2])[:, None]
    gap = (y[:, 2] - t_real[:, 2, None] * right) - (y[:, 1] - t_real[:, 1, None] * left)
    bend = right - left
    square = (bend**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = -(gap * bend).sum(axis=1) / square
        miss = np.abs(gap + at[:, None] * bend).max(axis=1)
        doubts = 4.0 * noise / np.sqrt(square) * steps
        fine = (np.abs(at) < 1.0) & (np.sqrt(square) > 40.0 * noise) & (miss <= 20.0 * noise)
    fine = np.asarray(fine & np.isfinite(noise))
    return _Crossings(places + np.outer(at * steps, row), doubts, fine)


def _regress(
    row: FloatArray, points: FloatArray, doubts: FloatArray
) -> tuple[FloatArray, float, bool]:
    """Turn a hyperplane so that it passes through points ``(n, d)``, robustly.

    Returns the row, its bias, and whether enough points agree with them: as many as there are
    parameters always do.
    """
    basis = scipy.linalg.null_space(row[None])  # (d, d - 1): the length of the row stays
    design = np.column_stack([points @ basis, np.ones(len(points))]) / doubts[:, None]
    target = -(points @ row) / doubts
    # Crossings that another kink spoilt are off by thousands of deviations: least absolute
    # values leave them out, where least squares would share them out among all.
    change = _least_absolute(design, target)
    fine = np.abs(design @ change - target) <= NEAR
    beside, (n, p) = int(np.count_nonzero(fine)) - design.shape[1], design.shape
    if beside > 0:
        change = scipy.linalg.lstsq(design[fine], target[fine])[0]
    turned = row + basis @ change[:-1]
    size = float(np.linalg.norm(turned))
    return turned / size, float(change[-1]) / size, beside >= max(_SPARE, (n - p) / 2.0)


def _least_absolute(design: FloatArray, target: FloatArray) -> FloatArray:
    """Return c that minimises the sum of ``|design c - target|``."""
    n, p = design.shape
    size = np.linalg.norm(design, axis=0)
    columns = scipy.sparse.csr_array(np.column_stack([design / size, np.zeros((n, n))]))
    slack = scipy.sparse.hstack([scipy.sparse.csr_array((n, p)), scipy.sparse.eye_array(n)])
    found = scipy.optimize.linprog(
        np.append(np.zeros(p), np.ones(n)),
        A_ub=scipy.sparse.vstack([columns - slack, -columns - slack]),
        b_ub=np.append(target, -target),
        bounds=[(None, None)] * p + [(0.0, None)] * n,
        method="highs",
    )
    if found.x is None:
        return np.asarray(scipy.linalg.lstsq(design, target)[0])
    return np.asarray(found.x[:p] / size)


_STEP_ALONG = 0.25
"""Step along one unit's own direction, over the deviation of an input's coordinate."""


def _changes(
    read: Read, rows: Rows, j: int, places: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the usual change of values along ``W^+ e_j``, beyond and before the hyperplane."""
    x = rng.standard_normal((places, rows.weights.shape[1]))
    along = np.linalg.pinv(rows.weights)[:, j]
    on = x + np.outer(_STEP_ALONG - rows.heights(x)[:, j], along)
    off = x + np.outer(-_STEP_ALONG - rows.heights(x)[:, j], along)
    step = _STEP_ALONG * along
    _, y, _ = read(np.concatenate([on, on + step, off, off - step]))
    y = y.reshape(4, places, -1)
    change = [np.abs(y[i + 1] - y[i]).max(axis=1) for i in (0, 2)]
    beyond, before = (
        float(np.mean(c[np.isfinite(c)])) if np.isfinite(c).any() else 0.0 for c in change
    )
    return beyond, before


def missing_change(read: Read, rows: Rows, rng: np.random.Generator) -> float:
    """Return the change on the off sides of a few units over that on their on sides.

    It vanishes where all rows are known: ``W^+ e_j`` then moves no other unit.
    """
    chosen = rng.permutation(rows.count)[:4]
    pairs = np.sort([_changes(read, rows, int(j), 4, rng) for j in chosen], axis=1)
    return float(pairs[:, 0].sum() / max(pairs[:, 1].sum(), np.finfo(np.float64).tiny))


def turn_rows(
    read: Read, rows: Rows, rng: np.random.Generator, places: int = 6
) -> tuple[Rows, float, float]:
    """Turn rows so that their units are on where the row is positive.

    Returns
    -------
    rows, error, left
        And the usual change where there should be none: what errors of rows do to values; and
        the largest over the usual one where there should be some.
    """
    changes = np.array([_changes(read, rows, j, places, rng) for j in range(rows.count)])
    sign = np.where(changes[:, 0] >= changes[:, 1], 1.0, -1.0)
    off, on = np.sort(changes, axis=1).T
    left = float(off.max() / max(float(np.median(on)), np.finfo(np.float64).tiny))
    turned = Rows(rows.weights * sign[:, None], rows.biases * sign)
    return turned, float(np.median(off)), left
