"""Rows of the first layer that a line measured badly, measured again where they have room.

A line meets a hyperplane in whatever piece it happens to. The hyperplane of a
first-layer unit never ends, and once all of them are roughly known, so are places on it
that are far from the others. The layers above are not known yet: steps stay well inside
the room, and each chunk of them is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import PLAIN, PRECISE
from unrelu.extraction.deep_room import RoomConfig, safe_steps
from unrelu.extraction.deep_rows import Rows
from unrelu.lines.gradients import GradientConfig, measure_gradients

__all__ = ["AgainConfig", "measure_rows_again"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class AgainConfig:
    """Choices of the second measurement."""

    worst: float = PRECISE
    """Error of a row, of unit length, above which it is measured again. The layers above are
    asked about a hair inside the orthant (1e-6), and errors that narrow pieces claim are up
    to a hundred times too small."""
    places: int = RoomConfig().candidates
    """Places of its hyperplane that are compared for room."""
    parts: tuple[float, ...] = (0.1, 0.02)
    """Parts of the room that are used, in turn: surfaces of later layers may be in it."""
    agree: float = PLAIN
    """How far a row may turn; with a surface between the two sides it turns by about one."""


def measure_rows_again(
    ask: AskPoints,
    rows: Rows,
    noise: NoiseModel,
    *,
    scale: float,
    rng: np.random.Generator,
    worst: float = np.inf,
    config: AgainConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> Rows:
    """Return the rows with the badly known ones measured again.

    Parameters
    ----------
    scale
        Length of a typical input.
    worst
        Error above which a row is measured again, if that is less than the usual one.
    """
    config = AgainConfig() if config is None else config
    todo = np.flatnonzero(rows.std > min(worst, config.worst))
    for part in config.parts:
        if len(todo) == 0 or rows.weights.shape[1] < 2:
            break
        rows, done = _measure(ask, rows, todo, noise, part, scale, rng, config, gradient_config)
        todo = np.setdiff1d(todo, done)
    return rows


def _places(
    rows: Rows, which: IntArray, scale: float, rng: np.random.Generator, count: int
) -> tuple[FloatArray, FloatArray]:
    """Return the roomiest place of each hyperplane and its room, ``(n, d)`` and ``(n,)``.

    Places lie in the translate of the basis' span that holds the anchors.
    """
    n = rows.weights.shape[1]
    origin = rows.anchors[0] - (rows.anchors[0] @ rows.basis.T) @ rows.basis
    heights = rows.biases
    points, rooms = [], []
    for i in which:
        t = scale / np.sqrt(n) * rng.standard_normal((count, n))
        t -= np.multiply.outer(t @ rows.weights[i] + heights[i], rows.weights[i])
        gap = np.abs(t @ rows.weights.T + heights)
        gap[:, i] = np.inf
        room = gap.min(axis=1) if rows.count > 1 else np.full(count, scale)
        best = int(np.argmax(room))
        points.append(origin + t[best] @ rows.basis)
        rooms.append(min(float(room[best]), scale))
    return np.array(points), np.array(rooms)


def _measure(
    ask: AskPoints,
    rows: Rows,
    which: IntArray,
    noise: NoiseModel,
    part: float,
    scale: float,
    rng: np.random.Generator,
    config: AgainConfig,
    gradient_config: GradientConfig | None,
) -> tuple[Rows, IntArray]:
    """Measure some rows at one place each; returns all rows and those that were confirmed."""
    points, room = _places(rows, which, scale, rng, config.places)
    normals = rows.weights[which] @ rows.basis
    move = (part * room)[:, None] * normals
    sides = np.concatenate([points + move, points - move])
    values = ask(sides)
    heights = sides @ rows.basis.T @ rows.weights.T + rows.biases
    steps = safe_steps(heights, rows.weights, part, np.full(len(sides), scale))
    # The own hyperplane is as near as the sides are: half of the way to it at most.
    found = measure_gradients(
        ask, sides, values, steps, rows.basis, noise, rng=rng, config=gradient_config
    )
    n = len(which)
    gradients = found.derivatives.transpose(0, 2, 1)  # (2n, m, n)
    weights, std, anchors = rows.weights.copy(), rows.std.copy(), rows.anchors.copy()
    done = []
    level = noise.at(sides).max(axis=1)
    for i, j in enumerate(which):
        jump = gradients[i] - gradients[n + i]
        if not (np.isfinite(jump).all() and found.ok[i] and found.ok[n + i]):
            continue
        left, size, right = np.linalg.svd(jump, full_matrices=False)
        row = right[0] * np.sign(right[0] @ weights[j])
        second = size[1] if len(size) > 1 else 0.0
        error = level[i] / np.abs(found.steps[[i, n + i]]).min(axis=0)
        error = 2.0 * float(np.linalg.norm(error)) / max(float(size[0]), np.finfo(float).tiny)
        turned = float(np.linalg.norm(row - weights[j]))
        if turned > config.agree or second > config.agree * size[0] or error > std[j]:
            continue
        # Where the affine pieces of both sides meet, on the way from one to the other.
        up, down = (
            left[:, 0] @ (values[s] - gradients[s] @ (rows.basis @ (sides[s] - points[i])))
            for s in (i, n + i)
        )
        sign = np.sign(right[0] @ row)
        height = sign * float(up - down) / float(size[0])
        weights[j], std[j] = row, error
        anchors[j] = points[i] - height * (row @ rows.basis)
        done.append(int(j))
    return Rows(rows.basis, weights, std, anchors), np.array(done, dtype=np.intp)
