"""Query access: slabs sampled directly, and the sampler biased towards large f."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.errors import InvalidInput
from unrelu.thresholds.slab import fit_tan_alpha, slab_step, tangent_basis

__all__ = [
    "BiasedSamples",
    "QueryRefineConfig",
    "QueryRefinement",
    "queried_tan_alpha",
    "refine_by_queries",
    "sample_biased",
    "sample_slab",
]


@dataclasses.dataclass(frozen=True)
class QueryRefineConfig:
    """Constants of the refinement by queries.

    Attributes
    ----------
    points_per_unknown
        Queries per input, unit and round. A round divides the error by about
        ``sqrt(points_per_unknown / (reach * 0.8))``: a share of about
        ``1 / reach`` of the points lies between the hyperplanes.
    reach
        Half-width of the slab over the error expected in it.
    fastest
        A slab shrinks at most by this factor per round.
    clearance
        Points are drawn where every other unit is below its threshold by this
        many of its own widths.
    redraws
        Attempts to draw such points.
    rounds
        Upper limit; about one round per factor of 5 in the error.
    """

    points_per_unknown: int = 60
    reach: float = 4.0
    fastest: float = 12.0
    clearance: float = 2.0
    redraws: int = 200
    rounds: int = 40


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
    config: QueryRefineConfig | None = None,
) -> None:
    """Refine ``state`` in place until each standard error is below ``tolerance``.

    One batch of queries per round serves all units.
    """
    cfg = QueryRefineConfig() if config is None else config
    k, n = state.directions.shape
    widths = cfg.reach * state.errors
    active = np.ones(k, dtype=bool)
    for _ in range(cfg.rounds):
        if not active.any():
            return
        margins = cfg.clearance * widths
        batches: list[tuple[int, FloatArray]] = []
        for i in map(int, np.flatnonzero(active)):
            others = np.arange(k) != i
            directions, limits = state.directions[others], (state.thresholds - margins)[others]

            def clear(
                x: FloatArray, directions: FloatArray = directions, limits: FloatArray = limits
            ) -> BoolArray:
                return np.asarray((x @ directions.T < limits).all(axis=1))

            x = sample_slab(
                state.directions[i],
                float(state.thresholds[i]),
                float(widths[i]),
                cfg.points_per_unknown * n,
                rng=rng,
                clear=clear,
                redraws=cfg.redraws,
            )
            batches.append((i, x))
        on = is_on(np.concatenate([x for _, x in batches]))
        start = 0
        largest = 0.0
        for i, x in batches:
            labels = on[start : start + len(x)]
            start += len(x)
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
            target = cfg.reach * (error + 0.2 * (step.angle + abs(step.shift)))
            widths[i] = min(max(target, widths[i] / cfg.fastest), 2.0 * widths[i])
            active[i] = error > tolerance
        state.history.append(largest)


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
    pilot: int = 10_000,
    limit: int = 100_000_000,
    rows: int = 100_000,
) -> BiasedSamples:
    """Draw x ~ N(0, I) and keep each with probability f(x) / bound (B.6).

    Parameters
    ----------
    values
        f, ``(m, n)`` to ``(m,)``; must not be negative.
    count
        Points to keep.
    bound
        An upper bound on f; by default twice the largest value of ``pilot``
        draws, which are not kept.
    limit
        Draws at most; fewer than ``count`` points come back where it is reached.
    """
    drawn = 0
    if bound is None:
        y = values(rng.standard_normal((pilot, input_dim)))
        drawn += pilot
        bound = 2.0 * float(y.max())
    if not bound > 0:
        raise InvalidInput("f is zero wherever it was asked: there is nothing to keep")
    kept: list[FloatArray] = []
    have = clipped = 0
    while have < count and drawn < limit:
        x = rng.standard_normal((min(rows, limit - drawn), input_dim))
        y = values(x)
        if (y < 0).any():
            raise InvalidInput("the biased sampler needs a function that is never negative")
        drawn += len(x)
        clipped += int(np.count_nonzero(y > bound))
        kept.append(x[rng.random(len(x)) * bound < y])
        have += len(kept[-1])
    points = np.concatenate(kept)[:count] if kept else np.empty((0, input_dim))
    return BiasedSamples(points, bound, clipped, drawn)
