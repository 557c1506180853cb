r"""Rows of the next layer, from places where its units switch.

Where a line crosses the surface of a unit ``(a, b)`` of the layer above the
known ones, the jump of the gradient has the direction ``n = J^T a`` and
``<a, h> + b = 0``. If the rows of J that are not zero are independent this tells
``a`` at the units that are on there, and b, up to a common factor. Crossings of one
unit agree where they overlap, and complete each other where they do not.

A unit of a layer farther up looks the same, as long as the units between keep their
state. But its surface bends where one of them switches, and a row's does not: so a
row is believed where it predicts kinks at places far from where it was seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import ALIKE, LARGE, PLAIN, READ, TRIES
from unrelu.extraction.peel_lines import Crossings
from unrelu.extraction.prefix import Prefix

__all__ = [
    "Row",
    "SurfaceTest",
    "group_rows",
    "onto_surface",
    "read_rows",
    "test_surface",
]

AskPoints = Callable[[FloatArray], FloatArray]

WELL = ALIKE
"""Least singular value of the Jacobian over its largest, where a row is read from a jump."""
AGREE = READ
"""Largest disagreement of two readings of one row of unit length, beside their errors."""
NEWTON = 12
"""Steps that take a point onto a surface, piece by piece."""
KNOWN_TO = 1e-8
"""What entries of a row may be off as read, whatever the jump claims, until places tell."""
SHARED = TRIES
"""Numbers that two readings must share to be compared: one is lost to their scale, and two
that agree by chance to :data:`AGREE` are not met."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a layer, up to its sign.

    Attributes
    ----------
    theta
        Weights and bias ``(w + 1,)``; the known weights have unit length.
    known
        Which entries are known; the bias always is.
    error
        Of each entry, ``(w + 1,)``: of weights measured one by one more than of those read.
    members
        How many crossings it was read from.
    places
        Points where its surface was found, ``(p, d)``, the first reading's first.
    """

    theta: FloatArray
    known: BoolArray
    error: FloatArray
    members: int
    places: FloatArray

    @property
    def anchor(self) -> FloatArray:
        """Where it was seen first, ``(d,)``; by this it is known again."""
        return np.asarray(self.places[0])

    def seen_at(self, points: FloatArray) -> Row:
        """Return the row with more places ``(p, d)``."""
        return dataclasses.replace(self, places=np.concatenate([self.places, points]))

    def value(self, heights: FloatArray) -> FloatArray:
        """Return preactivations for ``(n, w)``."""
        return np.asarray(heights @ self.theta[:-1] + self.theta[-1])


def read_rows(crossings: Crossings, prefix: Prefix) -> list[Row]:
    """Read a row from every crossing that determines one, the most precise first."""
    usable = np.flatnonzero(np.isfinite(crossings.errors) & (crossings.errors < AGREE))
    if len(usable) == 0:
        return []
    seen = prefix.view(crossings.points[usable])
    rows: list[Row] = []
    precise: list[float] = []
    for i, c in enumerate(usable):
        on = seen.on[i]
        jacobian = seen.jacobian[i][on]
        if not seen.sure[i] or not 0 < len(jacobian) <= prefix.dimension:
            continue
        left, s, right = np.linalg.svd(jacobian, full_matrices=False)
        if s[-1] < WELL * s[0]:
            continue
        normal = crossings.normals[c]
        along = right @ normal
        error = float(crossings.errors[c])
        if np.linalg.norm(normal - right.T @ along) > AGREE + 30.0 * error:
            continue  # not a function of the known layers' outputs
        theta = np.zeros(prefix.width + 1)
        theta[:-1][on] = left @ (along / s)
        size = float(np.linalg.norm(theta))
        theta /= size
        theta[-1] = -theta[:-1] @ seen.heights[i]
        known = np.append(on, True)
        precise.append(error / float(s[-1]) / size)
        each = np.where(known, max(KNOWN_TO, precise[-1]), 0.0)
        rows.append(Row(theta, known, each, 1, crossings.points[[c]]))
    return [rows[i] for i in np.argsort(precise, kind="stable")]


def _agreeing(rows: Sequence[Row], two: Row) -> tuple[int, float] | None:
    """Return the first row that a reading agrees with, and the factor that takes it there."""
    if not rows:
        return None
    theta, error = np.stack([r.theta for r in rows]), np.stack([r.error for r in rows])
    both = np.stack([r.known for r in rows]) & two.known
    a, b = np.where(both, theta, 0.0), np.where(both, two.theta, 0.0)
    # A bias is as precise as the heights that told it are large.
    size = 1.0 + np.maximum(np.abs(theta[:, -1]), abs(two.theta[-1]))
    lengths = np.linalg.norm(a[:, :-1], axis=1), np.linalg.norm(b[:, :-1], axis=1)
    told = (both.sum(axis=1) >= SHARED) & (np.minimum(*lengths) >= PLAIN)
    along = np.einsum("nw,nw->n", a[:, :-1], b[:, :-1])
    factor = np.where(told, along / np.where(told, lengths[1], 1.0) ** 2, 0.0)
    apart = np.abs(a - factor[:, None] * b)
    allowed = AGREE + LARGE * (error + np.abs(factor)[:, None] * two.error)
    allowed[:, -1] *= size
    told &= (apart <= allowed).all(axis=1)
    first = int(told.argmax())
    return (first, float(factor[first])) if told[first] else None


def _merged(one: Row, two: Row, factor: float) -> Row:
    """Return one row of two readings; the more precise one counts where both tell."""
    error = abs(factor) * two.error
    new = two.known & (~one.known | (error < one.error))
    theta, error = np.where(new, factor * two.theta, one.theta), np.where(new, error, one.error)
    members = one.members + two.members
    places = np.unique(np.concatenate([one.places[1:], two.places]), axis=0)
    places = np.concatenate([one.places[:1], places])
    if not new.any() and len(np.unique(places, axis=0)) == len(np.unique(one.places, axis=0)):
        return one  # read before
    return Row(theta, one.known | two.known, error, members, places)


def group_rows(readings: list[Row], known: list[Row]) -> list[Row]:
    """Put readings of one unit together.

    Parameters
    ----------
    known
        Rows from before, which take readings in first.
    """
    rows = list(known)
    for reading in readings:
        home = _agreeing(rows, reading)
        if home is None:
            rows.append(reading)
        else:
            rows[home[0]] = _merged(rows[home[0]], reading, home[1])
    last = len(rows) - 1
    while last > 0:  # what was too little to compare may have grown
        home = _agreeing(rows[:last], rows[last])
        if home is None:
            last -= 1
        else:
            rows[home[0]] = _merged(rows[home[0]], rows[last], home[1])
            del rows[last]
            last = len(rows) - 1
    return rows


def onto_surface(
    row: Row, prefix: Prefix, starts: FloatArray, *, steps: int = NEWTON
) -> tuple[FloatArray, FloatArray]:
    """Move points onto a row's surface by Newton steps; returns those that arrived.

    Returns
    -------
    points, normals
        ``(n, d)`` each; the normals are of unit length. Only places where every unit that is
        on has a known weight.
    """
    x = starts.copy()
    for turn in range(steps + 1):
        z, on = prefix.states(x)
        value = row.value(np.where(on[-1], z, 0.0))
        slope = prefix.pulled(on, on[-1] * row.theta[:-1])
        if turn == steps:
            break
        square = (slope**2).sum(axis=1)
        move = np.where(square > 0.0, value / np.maximum(square, 1e-300), 0.0)
        x = x - move[:, None] * slope
    size = np.linalg.norm(slope, axis=1)
    reach = 1.0 + np.linalg.norm(x, axis=1)
    fine = prefix.sure(x) & ~(on[-1] & ~row.known[:-1]).any(axis=1)
    fine &= (size > 0.0) & np.isfinite(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        fine &= np.abs(value) / size <= 1e-12 * reach
    return x[fine], slope[fine] / size[fine, None]


@dataclasses.dataclass(frozen=True)
class SurfaceTest:
    """What asking at predicted places of a surface showed.

    Attributes
    ----------
    points
        Where it was asked, ``(n, d)``.
    there
        A kink just where the row predicts it, ``(n,)``.
    flat
        No kink at all, ``(n,)``: the unit may be hidden by units above it.
    offsets
        How far beyond the place predicted a kink is, along the normal, ``(n,)``.
    """

    points: FloatArray
    there: BoolArray
    flat: BoolArray
    offsets: FloatArray

    @property
    def share(self) -> float:
        """Part of the places where there was a kink."""
        return float(self.there.mean()) if len(self.there) else 0.0


STEP = PLAIN
"""Distance of the points beside a predicted kink, over the norm of the input: so near that
other kinks seldom lie between, so far that slopes are precise."""
PLACED = 2e-3
"""A kink is where it was predicted within this part of that distance: a unit farther up that has
bent a little, and other kinks, are near a place, too."""


def test_surface(
    ask: AskPoints, points: FloatArray, normals: FloatArray, prefix: Prefix, noise: NoiseModel
) -> SurfaceTest:
    """Ask two points on each side of a surface at every place, and intersect the two lines."""
    if len(points) == 0:
        none = np.zeros(0, dtype=bool)
        return SurfaceTest(points, none, none, np.zeros(0))
    room = prefix.switches(points, normals)
    step = np.minimum(STEP * (1.0 + np.linalg.norm(points, axis=1)), room / 3.0)
    grid = np.array([-2.0, -1.0, 1.0, 2.0])
    asked = points[:, None] + step[:, None, None] * grid[:, None] * normals[:, None]
    y = ask(asked.reshape(-1, points.shape[1])).reshape(len(points), 4, -1)
    std = noise.at(points)
    left, right = y[:, 1] - y[:, 0], y[:, 3] - y[:, 2]
    bend = right - left
    pick = np.nan_to_num(np.abs(bend) / std).argmax(axis=1)
    at = np.arange(len(points))
    bend, sigma = bend[at, pick], std[at, pick]
    # Left line at 0: 2 y1 - y0; right line: 2 y2 - y3; they meet where both are equal.
    gap = ((2 * y[:, 1] - y[:, 0]) - (2 * y[:, 2] - y[:, 3]))[at, pick]
    with np.errstate(divide="ignore", invalid="ignore"):
        place = gap / bend * step
    seen = np.abs(bend) > 1e3 * sigma
    there = seen & (np.abs(place) < PLACED * step)
    flat = np.abs(bend) <= 1e2 * sigma
    return SurfaceTest(points, there, flat, np.where(there, place, 0.0))
