"""Units on the orthant, measured again where their hyperplanes have room.

An axis meets its kinks in narrow pieces, and a gradient is as precise as its
steps are long. Once a unit is known roughly, so is its whole hyperplane, and
where on it the other known units are far away: there the jump of the residual's
gradient from one side to the other corrects the unit to rounding, from 2 (k + 1)
answers and without a linear system. That the jump is there at all, far from where
the unit was found, is the proof that it is one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import ALIKE, PLAIN, ZERO
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.lines.gradients import GradientConfig, measure_gradients

__all__ = ["RoomConfig", "confirm", "measure_again", "safe_steps"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class RoomConfig:
    """Choices of the measurement with room."""

    candidates: int = 300
    """Places of a hyperplane that are compared for room."""
    keep_off: float = 0.5
    """Part of the way to the next known hyperplane that a step may go: combinations of steps
    must stay on this side of it too."""
    parts: tuple[float, ...] = (0.5, 0.06, 0.008)
    """Parts of the room that are used, in turn, until a unit is confirmed: others that are not
    known yet may lie in it."""
    places: int = 5
    aside: float = PLAIN
    """Places at which a new unit is looked for, and how far to both sides of the hyperplane, over
    the distance from the corner."""
    differ: float = 0.1
    """Part of its bend that may be missing there."""
    accept: float = ZERO
    """Standard deviations within which a second difference is zero."""
    agree: float = ALIKE
    """Part of a unit that two measurements may differ by; a unit that was mistaken for
    another, or two for one, differs by about itself."""


@dataclasses.dataclass(frozen=True)
class _Places:
    """A point on each of some hyperplanes, ``(n, k)``, and how far to go to both sides."""

    points: FloatArray
    aside: FloatArray


def safe_steps(
    heights: FloatArray, slopes: FloatArray, part: float, longest: FloatArray
) -> FloatArray:
    """Return per direction how far a point may move before a known unit switches.

    Parameters
    ----------
    heights
        Values of the units at the points, ``(p, n)``.
    slopes
        How they change along each of k directions, ``(n, k)`` or ``(p, n, k)``.
    part
        Of that distance.
    longest
        Longest step, ``(p,)``.

    Returns
    -------
    Shape ``(p, k)``.
    """
    slopes = np.abs(np.broadcast_to(slopes, (len(heights), *slopes.shape[-2:])))
    steps = np.empty((len(heights), slopes.shape[2]))
    for i, (height, slope) in enumerate(zip(np.abs(heights), slopes, strict=True)):
        with np.errstate(divide="ignore"):
            nearest = 1.0 / (slope / np.maximum(height, np.finfo(float).tiny)[:, None]).max(axis=0)
        steps[i] = np.minimum(part * nearest, longest[i])
    return steps


def _directions(v: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Draw rays from the corner that meet the hyperplane of a unit, ``(n, k)``."""
    q = rng.uniform(0.2, 1.8, (count, len(v)))
    # Coordinates that turn the unit off are shrunk, by little or by much.
    q *= np.where(v > 0, 1.0, 10.0 ** rng.uniform(-3.0, 0.0, (count, 1)))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    slope = q @ v
    steep = slope > 0.02 * np.linalg.norm(v)
    if not steep.any():
        steep = slope >= slope.max()
    return np.asarray(q[steep & (slope > 0)])


def _places(
    units: OrthantUnits,
    which: IntArray,
    noise: NoiseModel,
    rng: np.random.Generator,
    config: RoomConfig,
) -> tuple[IntArray, _Places]:
    """Choose the roomiest place of each hyperplane; returns the units that have one."""
    v, c = units.weights, units.biases
    length = np.linalg.norm(v, axis=1)
    index, points, aside = [], [], []
    for j in which:
        q = _directions(v[j], config.candidates, rng)
        if len(q) == 0 or not c[j] < 0:
            continue
        p = (-c[j] / (q @ v[j]))[:, None] * q
        gap = np.abs(p @ v.T + c) / length
        gap[:, j] = np.inf
        with np.errstate(divide="ignore"):
            wall = (p / np.abs(v[j] / length[j])).min(axis=1)
        room = np.minimum(gap.min(axis=1), wall)
        best = int(np.argmax(room / noise.at(p).max(axis=1)))
        if room[best] > 0:
            index.append(int(j))
            points.append(p[best])
            aside.append(float(room[best]))
    k = v.shape[1]
    return np.array(index, dtype=np.intp), _Places(
        np.array(points).reshape(-1, k), np.array(aside)
    )


def confirm(
    residual: AskPoints,
    units: OrthantUnits,
    which: IntArray,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    config: RoomConfig,
) -> BoolArray:
    """Look whether units bend elsewhere on their hyperplanes as they should, ``(n,)``.

    Four answers a place: the second difference across the hyperplane, and the slope beside it.
    A unit that was put together from steps across others, or from two units, has its
    hyperplane elsewhere.

    Where it is right, what the first difference has beyond that slope is the error of the
    unit's offset, which is corrected: a kink in a narrow piece tells it badly, and all that
    follows would carry it along.
    """
    sure = np.zeros(len(which), dtype=bool)
    for _ in range(config.places):
        todo = np.flatnonzero(~sure)
        if len(todo) == 0:
            break
        rays = [_directions(units.weights[j], config.candidates, rng)[:1] for j in which[todo]]
        todo = todo[np.array([len(q) for q in rays]) > 0]
        if len(todo) == 0:
            break
        q = np.concatenate(rays)
        j = which[todo]
        slope = np.einsum("nk,nk->n", units.weights[j], q)
        t = -units.biases[j] / slope
        h = config.aside * t
        s = np.concatenate([(t + step * h)[:, None] * q for step in (0.0, 1.0, -1.0, 2.0)])
        middle, up, down, beyond = np.split(residual(s), 4)
        # The unit is subtracted: what bends is what is wrong about it.
        left = np.linalg.norm(up + down - 2.0 * middle, axis=1)
        raw = noise.at(s[: len(j)]).max(axis=1)
        fine = ~(left > config.differ * slope * h + np.sqrt(6.0) * config.accept * raw)
        sure[todo] = fine
        bent = np.einsum("nm,mn->n", up + down - 2.0 * middle, units.outputs[:, j])
        moved = np.einsum("nm,mn->n", 3.0 * up - down - 2.0 * beyond, units.outputs[:, j])
        error = np.sqrt(14.0) * raw + units.errors[j] * h
        # An offset off by delta bends the residual by minus its size, and nothing else does.
        whole = np.abs(bent + np.abs(moved)) <= config.accept * error
        better = fine & whole & (error < units.shifts[j])
        units.biases[j[better]] += moved[better]
        units.shifts[j[better]] = error[better]
    return sure


def measure_again(
    residual: AskPoints,
    units: OrthantUnits,
    which: IntArray,
    noise: NoiseModel,
    part: float,
    *,
    rng: np.random.Generator,
    config: RoomConfig,
    gradient_config: GradientConfig,
) -> tuple[IntArray, BoolArray]:
    """Measure units at the roomiest places of their hyperplanes, and correct them.

    Parameters
    ----------
    residual
        Answers less ``units``, on the orthant; NaN where there is none.
    which
        Units to measure; corrected in place.
    part
        Of the room around a place that is used: units not known yet may be in it.

    Returns
    -------
    measured, agreed
        The units for which that was possible (it is not where answers have ended), and
        whether they were what they had been taken for.
    """
    k = units.weights.shape[1]
    which, places = _places(units, which, noise, rng, config)
    n = len(which)
    if n == 0:
        return which, np.empty(0, dtype=bool)
    v, c, u = units.weights, units.biases, units.outputs
    length = np.linalg.norm(v[which], axis=1)
    move = part * places.aside[:, None] * v[which] / length[:, None]
    sides = np.maximum(np.concatenate([places.points + move, places.points - move]), 0.0)
    values = residual(sides)
    norms = np.linalg.norm(sides, axis=1)
    steps = safe_steps(sides @ v.T + c, v, config.keep_off, 1.0 + norms)
    found = measure_gradients(
        residual, sides, values, steps, np.eye(k), noise, rng=rng,
        bounds=(np.zeros(k), np.full(k, np.inf)), config=gradient_config,
    )  # fmt: skip
    gradients = found.derivatives.transpose(0, 2, 1)  # (2n, m, k)
    at = values - np.einsum("pmk,pk->pm", gradients, sides - np.tile(places.points, (2, 1)))
    answered = np.isfinite(at).all(axis=1)
    answered = answered[:n] & answered[n:]
    fine = answered & found.ok[:n] & found.ok[n:]
    std = noise.at(sides).max(axis=1)[:, None] * np.sqrt(2.0) / np.abs(found.steps)
    slope_error = np.sqrt((std[:n] ** 2 + std[n:] ** 2).sum(axis=1))
    agreed = np.zeros(n, dtype=bool)
    for i, j in enumerate(which):
        if not fine[i]:
            continue
        jump = np.multiply.outer(u[:, j], v[j]) + gradients[i] - gradients[n + i]
        left, size, right = np.linalg.svd(jump, full_matrices=False)
        sign = 1.0 if left[:, 0] @ u[:, j] > 0 else -1.0
        row, output = sign * size[0] * right[0], sign * left[:, 0]
        off = np.linalg.norm(row - v[j] * np.linalg.norm(u[:, j]))
        agreed[i] = off <= config.agree * size[0]
        second = size[1] if len(size) > 1 else 0.0
        agreed[i] &= second <= config.agree * size[0]
        if not agreed[i]:
            continue  # another unit lies in the way
        height = output @ (at[i] - at[n + i]) + float(v[j] @ places.points[i] + c[j])
        units.weights[j], units.outputs[:, j] = row, output
        units.biases[j] = height - row @ places.points[i]
        units.errors[j], units.settled[j] = slope_error[i], part == config.parts[0]
        level = 2.0 * noise.at(places.points[i : i + 1]).max()
        units.shifts[j] = level + slope_error[i] * np.linalg.norm(places.points[i])
    return which[answered], agreed[answered]
