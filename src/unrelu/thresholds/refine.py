"""Step 2: refine hyperplanes of a union from labels near them.

All units move together, each by :func:`~unrelu.thresholds.slab.slab_step`
on the points of its slab at which no other unit is on or near. The slab shrinks
with the step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.slab import estimate_tan_alpha, slab_step

__all__ = [
    "CLEAR",
    "RISE",
    "Refinement",
    "estimate_thresholds",
    "refine_estimate",
    "refine_hyperplanes",
    "sampled_tan_alpha",
]


RISE = 0.5
"""Least rise of the label's rate across a unit's hyperplane: 1 for exact labels, 1 - 2 eta with a
share eta flipped; below one half there is no unit."""
CLEAR = 0.5 * (1.0 + RISE)
"""Rise that is nearer to that of an exact hyperplane than to the least."""
LEMMA_7 = 0.004
"""RefineEstimate accepts ``alpha' <= (1 - c / d) alpha`` with Lemma 7's c."""


@dataclasses.dataclass(frozen=True)
class Refinement:
    """Refined hyperplanes.

    Attributes
    ----------
    directions, thresholds
        ``(k, n)`` and ``(k,)``.
    errors
        Standard error of each direction, in radians, ``(k,)``.
    jumps
        Rise of the label's rate across each hyperplane, ``(k,)``.
    widths
        Final half-widths of the slabs, ``(k,)``.
    history
        Largest step of each round, in radians.
    """

    directions: FloatArray
    thresholds: FloatArray
    errors: FloatArray
    jumps: FloatArray
    widths: FloatArray
    history: tuple[float, ...]


def estimate_thresholds(
    x: FloatArray, labels: BoolArray, directions: FloatArray, *, config: ThresholdConfig
) -> tuple[FloatArray, FloatArray]:
    """Estimate each unit's threshold and tan(angle) by EstimateTanAlpha.

    Returns ``(k,)`` thresholds, NaN where no rise of the rate was seen, and
    ``(k,)`` tangents.
    """
    thresholds = np.full(len(directions), np.nan)
    tangents = np.full(len(directions), np.nan)
    for i, direction in enumerate(directions):
        found = estimate_tan_alpha(x @ direction, labels, width=config.settled)
        if found is not None:
            tangents[i], height = found
            thresholds[i] = height * np.cos(np.arctan(tangents[i]))
    return thresholds, tangents


@dataclasses.dataclass
class _Unit:
    direction: FloatArray
    threshold: float
    width: float
    error: float = np.inf
    jump: float = 0.0
    top_jump: float = 0.0
    blurred: bool = False
    best_wrong: float = np.inf
    best: tuple[FloatArray, float] | None = None
    idle: int = 0


def refine_hyperplanes(
    x: FloatArray,
    labels: BoolArray,
    directions: FloatArray,
    thresholds: FloatArray,
    *,
    widths: FloatArray | None = None,
    move_thresholds: bool = True,
    blurred: bool = False,
    config: ThresholdConfig,
) -> Refinement:
    """Refine a union's hyperplanes on samples held in memory.

    Parameters
    ----------
    x, labels
        ``(m, n)`` and ``(m,)``; the label is True where any unit is on. Only
        points near the hyperplanes matter.
    directions, thresholds
        Start, ``(k, n)`` and ``(k,)``.
    widths
        Half-widths of the first slabs, ``(k,)``.
    blurred
        Noise in f blurs the boundaries: slabs must not become thinner than that.
    """
    k, n = directions.shape
    first = np.full(k, 2.0 * config.spacing) if widths is None else widths
    units = [_Unit(directions[i], float(thresholds[i]), float(first[i])) for i in range(k)]
    history: list[float] = []
    for _ in range(config.rounds):
        reach = np.array([config.reach**2 * unit.width for unit in units])
        largest = _round(x, labels, units, n, move_thresholds, blurred, config)
        history.append(largest)
        # Slabs only shrink (or grow back once): points far from all are not needed again.
        if reach.max(initial=0.0) < config.reach**2 * config.spacing:
            heights = x @ np.array([unit.direction for unit in units]).T
            heights -= np.array([unit.threshold for unit in units])
            near = (np.abs(heights) < reach).any(axis=1)
            if np.count_nonzero(near) < 0.5 * len(near):
                x, labels = x[near], labels[near]
        if all(unit.idle >= config.tries for unit in units):
            break
    chosen = [unit.best or (unit.direction, unit.threshold) for unit in units]
    return Refinement(
        directions=np.array([direction for direction, _ in chosen]).reshape(k, n),
        thresholds=np.array([threshold for _, threshold in chosen]),
        errors=np.array([unit.error for unit in units]),
        jumps=np.array([unit.jump for unit in units]),
        widths=np.array([unit.width for unit in units]),
        history=tuple(history),
    )


def _round(
    x: FloatArray,
    labels: BoolArray,
    units: list[_Unit],
    n: int,
    move_thresholds: bool,
    blurred: bool,
    cfg: ThresholdConfig,
) -> float:
    """Move every unit once; return the largest step in radians."""
    heights = x @ np.array([unit.direction for unit in units]).T
    heights -= np.array([unit.threshold for unit in units])
    near_or_on = heights > -np.array([unit.width for unit in units])
    crowded = near_or_on.sum(axis=1, dtype=np.int32)
    largest = 0.0
    for i, unit in enumerate(units):
        if unit.idle >= cfg.tries:
            continue
        # The unit's own slab, at points where no other unit is on or near.
        inside = near_or_on[:, i] & (heights[:, i] < unit.width) & (crowded == 1)
        points = np.flatnonzero(inside)
        step = slab_step(
            x[points],
            labels[points],
            unit.direction,
            unit.threshold,
            unit.width,
            move_threshold=move_thresholds,
        )
        if step is None:
            unit.idle = cfg.tries
            continue
        # Per unit of height, so that slabs of different widths compare.
        wrong = np.count_nonzero((heights[points, i] > 0) != labels[points]) / unit.width
        floor = cfg.points_per_unknown * n
        unit.jump = step.jump
        unit.top_jump = max(unit.top_jump, step.jump)
        if blurred and step.jump < CLEAR * unit.top_jump and not unit.blurred:
            unit.blurred = True
            unit.width *= cfg.reach
            continue
        # Where no label is wrong the sandwich is 0: the true error is still
        # that of one point per unknown.
        unit.error = max(step.error, 2.0 * unit.width * n / step.count)
        settled = step.count < 2 * floor or unit.blurred
        if settled and wrong < unit.best_wrong:
            unit.best, unit.best_wrong = (unit.direction, unit.threshold), wrong
            unit.idle = 0
        elif settled:
            unit.idle += 1
        unit.direction, unit.threshold = step.direction, step.threshold
        largest = max(largest, step.angle)
        target = cfg.reach * (step.angle + abs(step.shift) + unit.error)
        smallest = max(unit.width / cfg.reach, unit.width * floor / step.count)
        if not unit.blurred:
            unit.width = min(unit.width, max(target, smallest))
    return largest


def sampled_tan_alpha(
    x: FloatArray, labels: BoolArray, *, width: float
) -> Callable[[FloatArray], float | None]:
    """EstimateTanAlpha of a direction on given samples, as a function of z."""

    def tan_alpha(z: FloatArray) -> float | None:
        found = estimate_tan_alpha(x @ z, labels, width=width)
        return None if found is None else found[0]

    return tan_alpha


def refine_estimate(
    tan_alpha: Callable[[FloatArray], float | None],
    direction: FloatArray,
    *,
    rng: np.random.Generator,
    tolerance: float,
    iterations: int,
) -> tuple[FloatArray, list[float]]:
    """RefineEstimate (Algorithm 1): a random perturbation is kept if the angle falls.

    Parameters
    ----------
    tan_alpha
        EstimateTanAlpha; None where the direction is lost.
    tolerance
        The paper's epsilon_2: stop at an estimated angle below it.

    Returns
    -------
    The direction, and the estimated angle after each accepted step.
    """
    n = len(direction)
    z = direction / np.linalg.norm(direction)
    tangent = tan_alpha(z)  # line 1
    if tangent is None:
        return z, []
    alpha = float(np.arctan(tangent))  # line 2
    accepted = [alpha]
    rejected = 0
    for _ in range(iterations):
        if alpha <= tolerance:  # line 9
            break
        push = rng.standard_normal(n)
        push -= (push @ z) * z
        candidate = z + 0.1 * np.sin(alpha / n) * push  # line 3
        candidate /= np.linalg.norm(candidate)
        tangent = tan_alpha(candidate)  # lines 4 and 5
        # line 6, as Lemma 7 has it
        if tangent is not None and np.arctan(tangent) <= (1.0 - LEMMA_7 / n) * alpha:
            z, alpha = candidate, float(np.arctan(tangent))  # lines 7 and 8
            accepted.append(alpha)
            rejected = 0
            continue
        rejected += 1
        if rejected % 20 == 0:
            # An estimate that came out low by chance would never be beaten.
            again = tan_alpha(z)
            alpha = alpha if again is None else float(np.arctan(again))
    return z, accepted
