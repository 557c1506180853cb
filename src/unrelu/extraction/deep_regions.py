"""Activation regions of a ReLU network of any depth.

While every gate stays as it is, a network is affine: a region is the polytope
where one pattern of gates holds, together with the affine map there.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import scipy.optimize

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.extraction.deep_numbers import ALIKE
from unrelu.networks import ReLUNetwork

__all__ = [
    "Region",
    "beside_surfaces",
    "cover_gates",
    "gate_patterns",
    "hold_unseen",
    "region_at",
    "unseen_pairs",
]


def gate_patterns(network: ReLUNetwork, x: FloatArray) -> list[BoolArray]:
    """Return which units are on, one ``(n, width)`` array per hidden layer."""
    gates: list[BoolArray] = []
    value = x
    for w, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        value = value @ w.T + b
        gates.append(value > 0)
        value = np.maximum(value, 0.0)
    return gates


@dataclasses.dataclass(frozen=True)
class Region:
    """Where one pattern of gates holds.

    Attributes
    ----------
    pattern
        Which units are on, one ``(width,)`` array per hidden layer.
    matrix, offset
        The network there, ``matrix @ x + offset``; ``(m, d)`` and ``(m,)``.
    normals, bounds
        The polytope ``normals @ x + bounds >= 0``; one row per hidden unit,
        first layer first, of unit length (zero where a unit is constant).
    """

    pattern: tuple[BoolArray, ...]
    matrix: FloatArray
    offset: FloatArray
    normals: FloatArray
    bounds: FloatArray

    def room(self, x: FloatArray) -> FloatArray:
        """Distance from ``(n, d)`` points to the nearest wall, negative outside, ``(n,)``."""
        moving = np.linalg.norm(self.normals, axis=1) > 0
        return np.asarray((x @ self.normals[moving].T + self.bounds[moving]).min(axis=1))

    def contains(self, x: FloatArray) -> BoolArray:
        """Whether ``(n, d)`` points lie inside, ``(n,)``."""
        return np.asarray((x @ self.normals.T + self.bounds >= 0).all(axis=1))

    def center(self, reach: float) -> tuple[FloatArray, float]:
        """Return the centre of the largest ball inside, and its radius.

        Coordinates stay within ``reach``, as a region may be unbounded; the
        radius is negative where nothing lies inside.
        """
        d = self.normals.shape[1]
        moving = np.linalg.norm(self.normals, axis=1) > 0
        walls = np.concatenate([-self.normals[moving], np.ones((int(moving.sum()), 1))], axis=1)
        goal = np.zeros(d + 1)
        goal[-1] = -1.0
        solved = scipy.optimize.linprog(
            goal,
            A_ub=walls,
            b_ub=self.bounds[moving],
            bounds=[(-reach, reach)] * d + [(None, reach)],
            method="highs",
        )
        if solved.x is None:
            return np.zeros(d), -np.inf
        return np.asarray(solved.x[:-1]), float(solved.x[-1])


def region_at(network: ReLUNetwork, x: FloatArray) -> Region:
    """Return the region of a network that holds a point ``(d,)``."""
    matrix, offset = np.eye(network.input_dim), np.zeros(network.input_dim)
    pattern: list[BoolArray] = []
    normals: list[FloatArray] = []
    bounds: list[FloatArray] = []
    for w, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        matrix, offset = w @ matrix, w @ offset + b
        on = matrix @ x + offset > 0
        sign = np.where(on, 1.0, -1.0)
        length = np.linalg.norm(matrix, axis=1)
        length = np.where(length > 0, length, 1.0)
        normals.append(sign[:, None] * matrix / length[:, None])
        bounds.append(sign * offset / length)
        pattern.append(on)
        matrix, offset = matrix * on[:, None], offset * on
    matrix = network.weights[-1] @ matrix
    offset = network.weights[-1] @ offset + network.biases[-1]
    if network.skip is not None:
        matrix = matrix + network.skip
    return Region(tuple(pattern), matrix, offset, np.concatenate(normals), np.concatenate(bounds))


def cover_gates(network: ReLUNetwork, pool: FloatArray, rare: float, need: int) -> IntArray:
    """Choose points of a pool such that rare states of units are seen often enough.

    Parameters
    ----------
    pool
        ``(n, d)``.
    rare
        A state (on or off) held by less than this part of the pool is rare.
    need
        Points wanted in each rare state, as far as the pool has them.

    Returns
    -------
    Indices into the pool, sorted; states that the pool never shows need none.
    """
    on = np.concatenate(gate_patterns(network, pool), axis=1)
    states = np.concatenate([on, ~on], axis=1)
    counts = states.sum(axis=0)
    chosen: set[int] = set()
    for j in np.argsort(counts, kind="stable"):
        if counts[j] == 0 or counts[j] >= rare * len(pool):
            continue
        where = np.flatnonzero(states[:, j])
        have = sum(int(i) in chosen for i in where)
        chosen.update(int(i) for i in where[: max(0, need - have)])
    return np.array(sorted(chosen), dtype=np.intp)


def _states(gates: BoolArray) -> FloatArray:
    """Return on and off as 0 and 1, ``(n, 2 width)``."""
    return np.concatenate([gates, ~gates], axis=1).astype(np.float32)


def unseen_pairs(
    network: ReLUNetwork,
    seen: FloatArray,
    pool: FloatArray,
    least: int,
    most: int,
    batch: int = 32,
) -> IntArray:
    """Choose points of a pool that show what others do not: two units' states at once.

    A weight between two layers acts where the unit below and that above are both on.

    Parameters
    ----------
    seen
        Points of which ``least`` or more show nearly every pair of states of units of
        neighbouring layers, ``(n, d)``.
    pool
        Where other pairs are looked for, ``(N, d)``.
    most
        Points chosen at most, those that show most first.
    batch
        So many are chosen at a time.

    Returns
    -------
    Indices into the pool.
    """
    known, found = (
        [_states(g) for g in gate_patterns(network, points)] for points in (seen, pool)
    )
    counts = [below.T @ above for below, above in itertools.pairwise(known)]
    left: IntArray = np.arange(len(pool))
    chosen: list[int] = []
    while len(chosen) < most:
        shows = np.zeros(len(left), dtype=np.float32)
        for count, below, above in zip(counts, found, found[1:], strict=False):
            shows += ((below @ (count < least).astype(np.float32)) * above).sum(axis=1)
        order = np.argsort(-shows, kind="stable")
        order = order[shows[order] > 0]
        best, rest = np.split(order, [min(batch, most - len(chosen))])
        if len(best) == 0:
            break
        chosen += left[best].tolist()
        for i, (below, above) in enumerate(itertools.pairwise(found)):
            counts[i] = counts[i] + below[best].T @ above[best]
        left, found = left[rest], [states[rest] for states in found]
    return np.array(sorted(chosen), dtype=np.intp)


def beside_surfaces(network: ReLUNetwork, pool: FloatArray, count: int) -> IntArray:
    """Choose the points of a pool nearest to every unit's surface, on each side of it."""
    chosen: list[int] = []
    value = pool
    for w, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        value = value @ w.T + b
        for z in value.T:
            for side in (z > 0, z <= 0):
                where = np.flatnonzero(side)
                if len(where) > count:
                    where = where[np.argpartition(np.abs(z[where]), count)[:count]]
                chosen += where.tolist()
        value = np.maximum(value, 0.0)
    return np.unique(np.array(chosen, dtype=np.intp))


def hold_unseen(
    network: ReLUNetwork, points: FloatArray, free: Sequence[BoolArray], part: float = ALIKE
) -> list[BoolArray]:
    """Hold the second-layer units that the points do not determine.

    A fit would move them wherever rounding likes; what found them knew better.

    Parameters
    ----------
    free
        Which entries of ``[W | b]`` may move, one array per layer.
    part
        Least singular value, over the largest, of a unit's inputs where it is on.
    """
    held = [mask.copy() for mask in free]
    hidden = np.maximum(points @ network.weights[0].T + network.biases[0], 0.0)
    hidden = np.concatenate([hidden, np.ones((len(points), 1))], axis=1)
    hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
    for unit, on in enumerate(gate_patterns(network, points)[1].T):
        inputs = hidden[on]
        size = np.linalg.norm(inputs, axis=0)
        values = np.zeros(1)
        if len(inputs) >= inputs.shape[1] and size.min() > 0:
            values = np.linalg.svd(inputs / size, compute_uv=False)
        if not values[-1] > part * values[0]:
            held[1][unit] = False
            held[2][:, unit] = False
    return held
