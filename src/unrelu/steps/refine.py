"""Sharpen units by gradients at roomy points, far from every hyperplane.

The gradients of a line's pieces are as precise as its narrowest gaps allow.
Once the hyperplanes are known roughly, points can be chosen anywhere in space
where all of them are far away, and steps can be as long as they are far. The
covariance of the units tells which few of such points help most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.kernels.gates import choose_points, design_rows, update
from unrelu.kernels.units import Units
from unrelu.steps.gradients import GradientConfig, measure_gradients
from unrelu.steps.noise import NoiseModel

__all__ = ["RefineConfig", "Refined", "predicted_error", "refine_units"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class RefineConfig:
    """Choices of the refinement."""

    candidates: int = 300
    """Points that are compared."""
    draws: int = 12
    """Each is the roomiest of so many."""
    tests: int = 300
    """Typical inputs over which the predicted error is averaged."""
    safety: float = 0.35
    """Part of the way to the nearest known hyperplane that a step may take."""
    closest: float = 0.01
    inward: float = 1.0
    outward: float = 12.0
    """Points are drawn at these multiples of typical inputs (the closest ones: beside the
    anchors): farther out there is more room for long steps, until the noise grows as fast."""


@dataclasses.dataclass(frozen=True)
class Refined:
    """Sharpened units, their covariance, and how many points were measured."""

    units: Units
    covariance: FloatArray
    points: int
    ok: bool


def predicted_error(units: Units, covariance: FloatArray, points: FloatArray) -> FloatArray:
    """Standard deviation of the units' values at ``(n, d)``, largest over outputs, ``(n,)``.

    An error of direction acts over the distance from the anchors; their mean
    square stands for all of them.
    """
    rows = design_rows(units.gates(points), units.outputs)
    variance = np.einsum("nms,st,nmt->nm", rows, covariance, rows, optimize=True).max(axis=1)
    distance = np.linalg.norm(points - units.base, axis=1)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)) * distance)


def _clearance(units: Units, covariance: FloatArray, points: FloatArray) -> FloatArray:
    """Preactivations' sizes less three times their uncertainty, ``(n, k)``."""
    m = len(units.outputs)
    std = np.sqrt(np.maximum(np.diagonal(covariance)[m:], 0.0))
    # |x - anchor| across the line where the unit was found, by squares: no (n, k, d) array.
    square = (points**2).sum(axis=1)[:, None] + (units.anchors**2).sum(axis=1)
    square -= 2.0 * points @ units.anchors.T
    along = points @ units.axes.T - np.einsum("kd,kd->k", units.anchors, units.axes)
    distance = np.sqrt(np.maximum(square - along**2, 0.0))
    return np.asarray(np.abs(units.preactivations(points)) - 3.0 * std * distance)


def _rooms(units: Units, clearance: FloatArray) -> FloatArray:
    """Distance to the nearest hyperplane, ``(n,)``; negative where its side is unsure."""
    norms = np.maximum(np.linalg.norm(units.weights, axis=1), np.finfo(np.float64).tiny)
    return np.asarray((clearance / norms).min(axis=1))


def _pool(
    units: Units,
    draw: Callable[[int], FloatArray],
    groups: int,
    rng: np.random.Generator,
    config: RefineConfig,
    *,
    bounded: bool,
) -> FloatArray:
    """Draw groups of points of which the roomiest of each group is a candidate.

    Half of the groups are typical inputs and points farther out; each of the
    others lies about one stretch between neighbouring anchors, where even
    poorly known units are sure and neighbours can be told apart.
    """
    pool = draw(groups * config.draws)
    if bounded:
        return pool
    half = groups // 2 * config.draws
    factor = np.exp(rng.uniform(np.log(config.inward), np.log(config.outward), size=len(pool)))
    factor[:half] = np.exp(rng.uniform(np.log(config.closest), 0.0, size=half))
    pool *= factor[:, None]
    order = np.argsort(units.anchors @ units.axes[0])
    left = rng.integers(units.count, size=groups // 2).repeat(config.draws)
    right = np.minimum(left + 1, units.count - 1)
    mix = rng.uniform(size=(half, 1))
    pool[:half] += mix * units.anchors[order[left]] + (1.0 - mix) * units.anchors[order[right]]
    return pool


def refine_units(
    ask: AskPoints,
    units: Units,
    covariance: FloatArray,
    noise: NoiseModel,
    draw: Callable[[int], FloatArray],
    *,
    limit: int,
    goal: float,
    rng: np.random.Generator,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    config: RefineConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> Refined:
    """Measure up to ``limit`` gradients where they help most, and update.

    Parameters
    ----------
    draw
        Draws typical inputs, ``n -> (n, d)``.
    goal
        Root mean square error of the values over typical inputs, in answer
        units, at which no more is measured.
    """
    config = RefineConfig() if config is None else config
    k, m = units.count, len(units.outputs)
    d = units.weights.shape[1]
    if k == 0 or limit < 1:
        return Refined(units, covariance, 0, True)
    tests = draw(config.tests)
    groups = max(config.candidates // m, min(config.candidates, 4 * limit))
    pool = _pool(units, draw, groups, rng, config, bounded=bounds is not None)
    room = _rooms(units, _clearance(units, covariance, pool))
    quality = (room / noise.at(pool).max(axis=1)).reshape(groups, config.draws)
    best = np.argmax(quality, axis=1) + np.arange(groups) * config.draws
    best = best[room[best] > 0]
    if len(best) == 0:
        return Refined(units, covariance, 0, False)
    pool, room = pool[best], room[best]
    # A direction of the basis has about 1 / sqrt(d) of its length along a given normal.
    rough = config.safety * room * np.sqrt(d) / 3.0
    std = np.sqrt(2.0) * noise.at(pool) / rough[:, None]
    distance = float(np.sqrt(np.mean(np.sum((tests - units.base) ** 2, axis=1))))
    test_rows = design_rows(units.gates(tests), units.outputs)
    chosen, _ = choose_points(
        design_rows(units.gates(pool), units.outputs),
        std**2,
        test_rows[np.arange(len(tests)), np.arange(len(tests)) % m],
        covariance,
        limit,
        (goal / distance) ** 2,
    )
    chosen = np.unique(chosen)
    if len(chosen) == 0:
        return Refined(units, covariance, 0, True)
    points = pool[chosen]
    directions = np.eye(d)
    reach = np.maximum(_clearance(units, covariance, points), 0.0)
    steps = np.empty((len(points), d))
    for i, z in enumerate(reach):
        with np.errstate(divide="ignore"):
            steps[i] = (z[:, None] / np.abs(units.weights)).min(axis=0)
    limit_step = np.linalg.norm(points, axis=1, keepdims=True)
    steps = np.minimum(config.safety * steps, limit_step)
    values = ask(points)
    found = measure_gradients(
        ask,
        points,
        values,
        steps,
        directions,
        noise,
        rng=rng,
        bounds=bounds,
        config=gradient_config,
    )
    rows = design_rows(units.gates(points), units.outputs)
    predicted = units.gradients(points)
    measured = found.derivatives.transpose(0, 2, 1)
    variances = np.mean(found.std**2, axis=1)
    good = found.ok
    if not good.any():
        return Refined(units, covariance, len(points), False)
    change, covariance = update(
        covariance,
        rows[good].reshape(-1, m + k),
        (measured - predicted)[good].reshape(-1, d),
        variances[good].reshape(-1),
    )
    units = dataclasses.replace(
        units, weights=units.weights + change[m:], linear=units.linear + change[:m]
    )
    return Refined(units, covariance, len(points), bool(good.all()))
