"""Kinks on lines of a plane, and the straight traces that first-layer units leave there.

In a plane of inputs the hyperplane of a first-layer unit is one straight line; the surface of a
second-layer unit bends wherever it meets a first-layer one. So crossings of several lines that
lie on one straight line belong to the first layer. Positions alone tell: no gradient is needed.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray

__all__ = ["NEAR", "Segments", "Trace", "find_traces", "line_kinks"]

_STRAIGHT = 12.0
"""Deviations of a second difference (which has 2.4 times an answer's) that are still noise."""
_CLEAR = 20.0
"""Deviations by which two pieces must differ one step off their kink for it to be one."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """A straight line in the plane that many kinks lie on.

    Attributes
    ----------
    normal
        Unit vector in plane coordinates, ``(2,)``.
    offset
        ``normal . p + offset = 0`` on the line.
    hits, chances
        Lines of the search that show a kink on it, and that could.
    """

    normal: FloatArray
    offset: float
    hits: int
    chances: int


def line_kinks(values: FloatArray, deviation: FloatArray, step: float) -> FloatArray:
    """Return positions of kinks that stand alone between two straight pieces, ``(k, 2)``.

    Parameters
    ----------
    values, deviation
        At equidistant points of a line, ``(n, m)`` and ``(n,)``, ``step`` apart.

    Returns
    -------
    Each kink's position along the line and its deviation. Three points on either side are
    straight; the pieces meet between them.
    """
    second = np.abs(values[2:] - 2.0 * values[1:-1] + values[:-2]).max(axis=1)
    noise = np.maximum(np.maximum(deviation[2:], deviation[1:-1]), deviation[:-2])
    straight = second <= _STRAIGHT * noise  # straight[i]: about point i + 1
    found = []
    for i in range(2, len(values) - 3):
        # straight about i - 1 and i + 2, pieces end at i and begin at i + 1
        if not (straight[i - 2] and straight[i + 1]) or (straight[i - 1] and straight[i]):
            continue
        left, right = (values[i] - values[i - 2]) / 2.0, (values[i + 3] - values[i + 1]) / 2.0
        bend = right - left
        size = float(np.linalg.norm(bend))
        if size <= _CLEAR * noise[i - 1]:
            continue
        # values[i] + t left = values[i + 1] + (t - 1) right, in least squares
        gap = values[i + 1] - right - values[i]
        t = -float(gap @ bend) / size**2
        miss = float(np.abs(gap + t * bend).max())
        if -0.2 <= t <= 1.2 and miss <= _STRAIGHT * noise[i - 1]:
            found.append(((i + t) * step, 3.0 * float(noise[i - 1]) / size * step))
    if not found:
        return np.empty((0, 2))
    kinks = np.array(sorted(found))
    alone = np.append(True, np.diff(kinks[:, 0]) > 0.5 * step)  # an end seen twice is one kink
    return np.asarray(kinks[alone])


_LEAST_HITS = 3
"""Kinks on one straight line: two give the line, a third proves it. With ten kinks a line and
positions good to 1e-5 of it about one false line is met a plane; its normals tell."""
_SHARE = 0.4
"""Part of the lines that cross a trace which must show it: where all that a unit feeds is off,
or another kink is near, it is not seen."""
NEAR = 6.0
"""Deviations of a position by which a kink may lie off a trace or a hyperplane."""
_GRAZING = 0.1
"""Sine of the angle below which a segment crosses a trace too flatly to tell."""


@dataclasses.dataclass(frozen=True)
class Segments:
    """Segments ``starts + t directions``, ``0 <= t <= lengths``, of the plane, and their kinks.

    Attributes
    ----------
    starts, directions, lengths
        ``(l, 2)``, ``(l, 2)`` of length one, ``(l,)``.
    kinks
        Positions in order and their deviations on each, ``(k, 2)``.
    """

    starts: FloatArray
    directions: FloatArray
    lengths: FloatArray
    kinks: list[FloatArray]

    def crossings(self, line: int) -> FloatArray:
        """Return the kinks of one segment as points of the plane."""
        return np.asarray(
            self.starts[line] + np.outer(self.kinks[line][:, 0], self.directions[line])
        )

    def hits(
        self, normals: FloatArray, offsets: FloatArray, doubts: FloatArray
    ) -> tuple[IntArray, BoolArray]:
        """Say on which segments candidate lines ``(c, 2)``, ``(c,)`` meet a kink.

        Returns
        -------
        member, chance
            Index of the kink, -1 for none, and whether the segment crosses the line, ``(c, l)``.
        """
        count = len(self.starts)
        member = np.full((len(offsets), count), -1, dtype=np.intp)
        chance = np.zeros((len(offsets), count), dtype=bool)
        for line in range(count):
            along = normals @ self.directions[line]
            with np.errstate(divide="ignore", invalid="ignore"):
                t = -(normals @ self.starts[line] + offsets) / along
            steep = np.abs(along) >= _GRAZING
            chance[:, line] = steep & (t > 0.0) & (t < self.lengths[line])
            at, doubt = self.kinks[line].T
            if len(at) == 0:
                continue
            right = np.clip(np.searchsorted(at, t), 0, len(at) - 1)
            left = np.maximum(right - 1, 0)
            near = np.where(np.abs(at[left] - t) < np.abs(at[right] - t), left, right)
            with np.errstate(divide="ignore", invalid="ignore"):
                allowed = NEAR * (doubt[near] + doubts / np.abs(along))
            hit = chance[:, line] & (np.abs(at[near] - t) <= allowed)
            member[hit, line] = near[hit]
        return member, chance


def _candidates(segments: Segments) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the lines through every two kinks of different segments, and their doubts."""
    points = [segments.crossings(line) for line in range(len(segments.starts))]
    far = 2.0 * float(segments.lengths.max())
    normals, offsets, doubts = [], [], []
    for a in range(len(points)):
        for b in range(a + 1, len(points)):
            p = np.repeat(points[a], len(points[b]), axis=0)
            q = np.tile(points[b], (len(points[a]), 1))
            length = np.linalg.norm(q - p, axis=1)
            fine = length > 0.1 * segments.lengths.max()  # too close to point anywhere
            p, q, length = p[fine], q[fine], length[fine]
            normal = np.stack([p[:, 1] - q[:, 1], q[:, 0] - p[:, 0]], axis=1) / length[:, None]
            doubt = np.add.outer(segments.kinks[a][:, 1], segments.kinks[b][:, 1]).ravel()[fine]
            normals.append(normal)
            offsets.append(-(normal * p).sum(axis=1))
            doubts.append(doubt * (1.0 + far / length))
    return np.concatenate(normals), np.concatenate(offsets), np.concatenate(doubts)


def find_traces(segments: Segments) -> list[Trace]:
    """Find straight lines through kinks of several segments of the plane."""
    normals, offsets, doubts = _candidates(segments)
    member, chance = segments.hits(normals, offsets, doubts)
    hits, chances = (member >= 0).sum(axis=1), chance.sum(axis=1)
    likely = np.flatnonzero((hits >= _LEAST_HITS) & (hits >= _SHARE * chances))
    used = [np.zeros(len(k), dtype=bool) for k in segments.kinks]
    found: list[Trace] = []
    for c in likely[np.lexsort((doubts[likely], -hits[likely]))]:
        fresh = [
            (line, int(k)) for line, k in enumerate(member[c]) if k >= 0 and not used[line][k]
        ]
        if len(fresh) < _LEAST_HITS:
            continue
        points = np.array([segments.crossings(line)[k] for line, k in fresh])
        weights = 1.0 / np.array([segments.kinks[line][k, 1] for line, k in fresh])
        middle = (points * weights[:, None]).sum(axis=0) / weights.sum()
        normal = np.linalg.svd((points - middle) * weights[:, None])[2][-1]
        for line, k in fresh:
            used[line][k] = True
        found.append(Trace(normal, -float(normal @ middle), len(fresh), int(chances[c])))
    return found
