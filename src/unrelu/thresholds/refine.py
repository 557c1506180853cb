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
from unrelu.thresholds.slab import estimate_tan_alpha, slab_step

__all__ = [
    "RefineConfig",
    "Refinement",
    "estimate_thresholds",
    "refine_estimate",
    "refine_hyperplanes",
    "sampled_tan_alpha",
]


@dataclasses.dataclass(frozen=True)
class RefineConfig:
    """Constants of the refinement; heights in units of the inputs.

    Attributes
    ----------
    start_width
        Largest half-width of a slab, the paper's epsilon: the first estimates
        are off by up to 0.2 rad, and the wedge between two hyperplanes at angle
        alpha is about 3 tan(alpha) high.
    reach
        A slab's half-width over the last step: what a step leaves is smaller.
    error_reach
        The same over the step's standard error.
    fastest
        A slab shrinks at most by this factor per round.
    points_per_unknown
        A slab holds at least this many points per input: below it the Gram
        matrix is noise, and the error n / (points per height) is reached anyway.
    rounds
        Upper limit; 12 to 18 are usual.
    blur
        Where noise in f blurs the boundaries the rise of the rate falls as the slab
        becomes thinner than the blur: below this share of its highest the slab
        grows back by ``fastest`` and stays.
    still
        Rounds without a better count of wrong labels before a unit is settled.
    jump
        Least rise of the label's rate across a unit's hyperplane. 1 for exact
        labels, 1 - 2 eta with a share eta flipped; below one half there is no
        unit.
    bin
        Height of the slabs that EstimateTanAlpha reads rates from.
    """

    start_width: float = 0.5
    reach: float = 2.0
    error_reach: float = 6.0
    fastest: float = 4.0
    points_per_unknown: int = 40
    rounds: int = 30
    blur: float = 0.7
    still: int = 4
    jump: float = 0.5
    bin: float = 0.05


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
    x: FloatArray, labels: BoolArray, directions: FloatArray, *, config: RefineConfig | None = None
) -> tuple[FloatArray, FloatArray]:
    """Estimate each unit's threshold and tan(angle) by EstimateTanAlpha.

    Returns ``(k,)`` thresholds, NaN where no rise of the rate was seen, and
    ``(k,)`` tangents.
    """
    cfg = RefineConfig() if config is None else config
    thresholds = np.full(len(directions), np.nan)
    tangents = np.full(len(directions), np.nan)
    for i, direction in enumerate(directions):
        found = estimate_tan_alpha(x @ direction, labels, width=cfg.bin)
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
    config: RefineConfig | None = None,
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
    cfg = RefineConfig() if config is None else config
    k, n = directions.shape
    first = np.full(k, cfg.start_width) if widths is None else widths
    units = [_Unit(directions[i], float(thresholds[i]), float(first[i])) for i in range(k)]
    history: list[float] = []
    for _ in range(cfg.rounds):
        reach = np.array([3.0 * cfg.fastest * unit.width for unit in units])
        largest = _round(x, labels, units, n, move_thresholds, blurred, cfg)
        history.append(largest)
        # Slabs only shrink (or grow back once): points far from all are not needed again.
        if reach.max(initial=0.0) < 4.0 * cfg.start_width:
            heights = x @ np.array([unit.direction for unit in units]).T
            heights -= np.array([unit.threshold for unit in units])
            near = (np.abs(heights) < reach).any(axis=1)
            if np.count_nonzero(near) < 0.5 * len(near):
                x, labels = x[near], labels[near]
        if all(unit.idle >= cfg.still for unit in units):
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
    cfg: RefineConfig,
) -> float:
    """Move every unit once; return the largest step in radians."""
    heights = x @ np.array([unit.direction for unit in units]).T
    heights -= np.array([unit.threshold for unit in units])
    near_or_on = heights > -np.array([unit.width for unit in units])
    crowded = near_or_on.sum(axis=1, dtype=np.int32)
    largest = 0.0
    for i, unit in enumerate(units):
        if unit.idle >= cfg.still:
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
            unit.idle = cfg.still
            continue
        # Per unit of height, so that slabs of different widths compare.
        wrong = np.count_nonzero((heights[points, i] > 0) != labels[points]) / unit.width
        floor = cfg.points_per_unknown * n
        unit.jump = step.jump
        unit.top_jump = max(unit.top_jump, step.jump)
        if blurred and step.jump < cfg.blur * unit.top_jump and not unit.blurred:
            unit.blurred = True
            unit.width *= cfg.fastest
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
        target = cfg.reach * (step.angle + abs(step.shift)) + cfg.error_reach * unit.error
        smallest = max(unit.width / cfg.fastest, unit.width * floor / step.count)
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
    decrease: float = 0.004,
) -> tuple[FloatArray, list[float]]:
    """RefineEstimate (Algorithm 1): a random perturbation is kept if the angle falls.

    Parameters
    ----------
    tan_alpha
        EstimateTanAlpha; None where the direction is lost.
    tolerance
        The paper's epsilon_2: stop at an estimated angle below it.
    decrease
        Accepted where ``alpha' <= (1 - decrease / d) alpha``: Lemma 7's constant.

    Returns
    -------
    The direction, and the estimated angle after each accepted step.
    """
    n = len(direction)
    z = direction / np.linalg.norm(direction)
    tangent = tan_alpha(z)
    if tangent is None:
        return z, []
    alpha = float(np.arctan(tangent))
    accepted = [alpha]
    rejected = 0
    for _ in range(iterations):
        if alpha <= tolerance:
            break
        push = rng.standard_normal(n)
        push -= (push @ z) * z
        candidate = z + 0.1 * np.sin(alpha / n) * push
        candidate /= np.linalg.norm(candidate)
        tangent = tan_alpha(candidate)
        if tangent is not None and np.arctan(tangent) <= (1.0 - decrease / n) * alpha:
            z, alpha = candidate, float(np.arctan(tangent))
            accepted.append(alpha)
            rejected = 0
            continue
        rejected += 1
        if rejected % 20 == 0:
            # An estimate that came out low by chance would never be beaten.
            again = tan_alpha(z)
            alpha = alpha if again is None else float(np.arctan(again))
    return z, accepted
