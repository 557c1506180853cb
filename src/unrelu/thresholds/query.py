"""Query access: slabs sampled directly, and the sampler biased towards large f."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.errors import InvalidInput
from unrelu.samples import BATCH_ROWS
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.slab import fit_tan_alpha, slab_step, tangent_basis

__all__ = [
    "BiasedSamples",
    "QueryRefinement",
    "queried_tan_alpha",
    "refine_by_queries",
    "sample_biased",
    "sample_slab",
]


@dataclasses.dataclass
class QueryRefinement:
    """Hyperplanes under refinement; kept when the budget ends it early."""

    directions: FloatArray
    thresholds: FloatArray
    errors: FloatArray
    jumps: FloatArray
    history: list[float] = dataclasses.field(default_factory=list)


def sample_slab(
    direction: FloatArray,
    threshold: float,
    width: float,
    count: int,
    *,
    rng: np.random.Generator,
    clear: Callable[[FloatArray], BoolArray],
    redraws: int,
) -> FloatArray:
    """Draw points with uniform height in the slab, Gaussian along it.

    ``clear(x)`` says which points may stay; fewer than ``count`` come back
    where it refuses too many.
    """
    basis = tangent_basis(direction)
    kept: list[FloatArray] = []
    have = 0
    for _ in range(redraws):
        if have >= count:
            break
        along = rng.standard_normal((count, len(direction) - 1))
        height = rng.uniform(-width, width, count)
        x = along @ basis.T + np.outer(threshold + height, direction)
        x = x[clear(x)]
        kept.append(x)
        have += len(x)
    return np.concatenate(kept)[:count] if kept else np.empty((0, len(direction)))


def refine_by_queries(
    is_on: Callable[[FloatArray], BoolArray],
    state: QueryRefinement,
    *,
    tolerance: float,
    move_thresholds: bool,
    rng: np.random.Generator,
    config: ThresholdConfig,
) -> None:
    """Refine ``state`` in place until each standard error is below ``tolerance``.

    One batch of queries per round serves all units.
    """
    n = state.directions.shape[1]
    widths = config.reach * state.errors
    active = np.ones(len(widths), dtype=bool)
    for _ in range(config.rounds):
        if not active.any():
            return
        batches = [
            (i, _own_slab(state, i, widths, rng, config)) for i in map(int, np.flatnonzero(active))
        ]
        on = is_on(np.concatenate([x for _, x in batches]))
        ends = np.cumsum([len(x) for _, x in batches])
        largest = 0.0
        for (i, x), labels in zip(batches, np.split(on, ends[:-1]), strict=True):
            step = slab_step(
                x,
                labels,
                state.directions[i],
                float(state.thresholds[i]),
                float(widths[i]),
                weights=np.ones(len(x)),
                move_threshold=move_thresholds,
            )
            if step is None or step.jump <= 0.0:
                active[i] = False
                state.jumps[i] = 0.0 if step is None else step.jump
                continue
            state.directions[i], state.thresholds[i] = step.direction, step.threshold
            error = max(step.error, 2.0 * float(widths[i]) * n / step.count)
            state.errors[i], state.jumps[i] = error, step.jump
            largest = max(largest, step.angle)
            target = config.reach * error + step.angle + abs(step.shift)
            widths[i] = min(max(target, widths[i] / config.reach**2), 2.0 * widths[i])
            active[i] = error > tolerance
        state.history.append(largest)


def _own_slab(
    state: QueryRefinement,
    unit: int,
    widths: FloatArray,
    rng: np.random.Generator,
    config: ThresholdConfig,
) -> FloatArray:
    """Draw points of a unit's slab at which every other unit is off for certain."""
    others = np.arange(len(widths)) != unit
    directions, limits = state.directions[others], (state.thresholds - widths)[others]
    return sample_slab(
        state.directions[unit],
        float(state.thresholds[unit]),
        float(widths[unit]),
        config.points_per_unknown * len(state.directions[unit]),
        rng=rng,
        clear=lambda x: np.asarray((x @ directions.T < limits).all(axis=1)),
        redraws=config.rounds,
    )


def queried_tan_alpha(
    is_on: Callable[[FloatArray], BoolArray],
    input_dim: int,
    threshold: float,
    *,
    count: int,
    rng: np.random.Generator,
    start: float,
) -> Callable[[FloatArray], float | None]:
    """EstimateTanAlpha by queries: the slabs around the threshold are sampled directly.

    Each call asks ``count`` queries, at the same points up to the rotation to z: the noise
    of two directions' estimates is then common, and their order is right where it is not
    larger than their difference. ``start`` is the angle expected first; the range of
    heights halves, and the points are drawn anew, each time an estimate falls below half
    of it, and every 50 calls: no direction can settle on one draw's noise.
    """
    scale = start
    calls = 0
    along = rng.standard_normal((count, input_dim))
    offsets = (np.arange(count) + rng.random(count)) * (2.0 / count) - 1.0

    def tan_alpha(z: FloatArray) -> float | None:
        nonlocal scale, along, calls
        calls += 1
        if calls % 50 == 0:
            along = rng.standard_normal((count, input_dim))
        heights = threshold + 4.0 * scale * offsets
        on = is_on(along + np.outer(heights - along @ z, z))
        found = fit_tan_alpha(heights, on, start=scale)
        if found is None:
            return None
        if found[0] < 0.5 * scale:
            scale *= 0.5
            along = rng.standard_normal((count, input_dim))
        return found[0]

    return tan_alpha


@dataclasses.dataclass(frozen=True)
class BiasedSamples:
    """Points kept with probability proportional to f.

    Attributes
    ----------
    x
        ``(m, n)``.
    bound
        The value of f that is kept for certain.
    clipped
        Draws with f above the bound: each was kept once, where it should have
        been kept more often than that.
    drawn
        Points asked.
    """

    x: FloatArray
    bound: float
    clipped: int
    drawn: int


def sample_biased(
    values: Callable[[FloatArray], FloatArray],
    input_dim: int,
    count: int,
    *,
    rng: np.random.Generator,
    bound: float | None = None,
    limit: int | None = None,
) -> BiasedSamples:
    """Draw x ~ N(0, I) and keep each with probability f(x) / bound (B.6).

    Parameters
    ----------
    values
        f, ``(m, n)`` to ``(m,)``; must not be negative.
    count
        Points to keep.
    bound
        An upper bound on f; by default twice the largest value of a first batch
        of draws, which are not kept.
    limit
        Draws at most; fewer than ``count`` points come back where it is reached.
    """
    drawn = 0
    if bound is None:
        y = values(rng.standard_normal((BATCH_ROWS, input_dim)))
        drawn += BATCH_ROWS
        bound = 2.0 * float(y.max())
    if not bound > 0:
        raise InvalidInput("f is zero wherever it was asked: there is nothing to keep")
    kept: list[FloatArray] = []
    have = clipped = 0
    while have < count and (limit is None or drawn < limit):
        rows = BATCH_ROWS if limit is None else min(BATCH_ROWS, limit - drawn)
        x = rng.standard_normal((rows, input_dim))
        y = values(x)
        if (y < 0).any():
            raise InvalidInput("the biased sampler needs a function that is never negative")
        drawn += len(x)
        clipped += int(np.count_nonzero(y > bound))
        kept.append(x[rng.random(len(x)) * bound < y])
        have += len(kept[-1])
    points = np.concatenate(kept)[:count] if kept else np.empty((0, input_dim))
    return BiasedSamples(points, bound, clipped, drawn)
