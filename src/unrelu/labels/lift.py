"""From a subspace to all inputs: derivatives of the boundary across it.

At a boundary point of the subspace a step along a direction outside of it moves the boundary by
what the units that are on there see of that direction. As many points as there are units and
outputs determine all of it, one direction at a time.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray, IntArray
from unrelu.core.units import SPARE
from unrelu.labels.boundary import GROWTH, Crossings, locate
from unrelu.labels.charts import Chart
from unrelu.labels.config import EPS
from unrelu.labels.design import predicted_crossings
from unrelu.labels.model import Model

__all__ = ["lift_model"]

AT_ONCE = 1 << 20
"""Numbers asked at once: larger arrays leave the processor's caches, and of more bisections than
that only the ends are kept."""


def _signs(classes: int, at: Crossings) -> FloatArray:
    """Return +1 and -1 for the outputs ahead and behind, output 0 left out, ``(n, m - 1)``."""
    number = np.arange(1, classes)
    return np.asarray(
        (at.outside[:, None] == number).astype(float) - (at.inside[:, None] == number)
    )


def choose_bases(model: Model, pool: Crossings, count: int) -> Crossings:
    """Choose roomy points at which all units and outputs can be told apart."""
    heights = model.heights(pool.points)
    room = np.abs(heights).min(axis=1) if model.width else np.ones(len(pool))
    on = (model.out[pool.outside] - model.out[pool.inside]) * (heights > 0.0)
    rows = np.concatenate([on, _signs(model.classes, pool)], axis=1)
    _, gradient = model.differences(pool.points, pool.inside, pool.outside)
    rows = rows / np.linalg.norm(gradient, axis=1)[:, None]
    size = np.linalg.norm(rows, axis=0)
    rows = rows / np.where(size > 0, size, 1.0) * np.minimum(room, np.median(room))[:, None]
    _, _, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    ranked = order[: rows.shape[1]]
    rest = np.setdiff1d(np.argsort(-room), ranked, assume_unique=True)
    return pool.take(np.concatenate([ranked, rest[: max(0, count - len(ranked))]]))


def lift_model(
    model: Model,
    chart: Chart,
    rng: np.random.Generator,
    *,
    finest: float,
    pool: int,
    turns: int,
    room: float,
) -> tuple[Model, Crossings]:
    """Return the model on all inputs, and the crossings that were asked for it.

    ``finest`` is in coordinates of the chart, ``pool`` the number of points to choose from.
    A step is one part in ``room`` of the way to the nearest hyperplane, by what units see of a
    usual direction; ``turns`` Newton steps solve for each direction.
    """
    s = chart.dimension
    across = np.linalg.qr(chart.rows.T, mode="complete")[0][:, s:].T
    count = model.width + model.classes - 1 + SPARE
    candidates = predicted_crossings(model, chart, pool, rng, room=finest, wide=False)
    if len(candidates) < count:  # hardly any boundary of its own: nothing to be moved across
        return model.on_inputs(chart.rows, chart.origin), Crossings.none(across.shape[1])
    at = choose_bases(model, candidates, count)
    nearest = np.abs(model.heights(at.points)).min(axis=1, initial=1.0)
    step = chart.scale * np.minimum(nearest, 1.0) * np.sqrt(s) / room
    unknowns = model.width + model.classes - 1
    steps = np.repeat(step[:, None], len(across), axis=1)
    asking, offset = np.ones(steps.shape, dtype=bool), np.full(steps.shape, np.nan)
    crossings = Crossings.none(across.shape[1])
    for _ in range(turns):
        asked = _ask_across(chart, at, across, np.where(asking, steps, 0.0), finest)
        for i, (directions, along, found) in enumerate(asked):
            offset[i, asking[i]] = np.nan
            offset[i, directions] = along
            crossings = crossings.joined(found)
        seen, off = _solve_directions(model, at, steps, offset, turns)
        # What no solution explains to half of all digits has crossed something, and so have
        # points that were not found: a shorter step, where too few are left to be checked.
        wrong = off > room * np.sqrt(finest * chart.scale / step.min())
        few = np.isfinite(offset).sum(axis=0) <= unknowns
        asking = wrong | (few & np.isnan(offset))
        steps = np.where(asking, steps / GROWTH, steps)
        if not asking.any():
            break
    k, scale2 = model.width, chart.scale**2
    rows = model.rows @ chart.rows / scale2 + seen[:, :k].T @ across
    skip = model.skip @ chart.rows / scale2
    skip[1:] += seen[:, k:].T @ across
    lifted = Model(
        rows, model.offsets - rows @ chart.origin, model.out, skip,
        model.shift - skip @ chart.origin,
    )  # fmt: skip
    return lifted.normalised(), crossings


def _ask_across(
    chart: Chart, at: Crossings, across: FloatArray, steps: FloatArray, finest: float
) -> list[tuple[IntArray, FloatArray, Crossings]]:
    """Find the boundary a step ``(n, q)`` along every direction from every point, if not zero.

    Returns for each point the directions that succeeded, how far along the point's own direction
    the boundary was, in coordinates, and the crossings on the inputs. What a bisection asks on
    its way is kept only where that is small.
    """
    d = across.shape[1]
    large = np.count_nonzero(steps) * d > AT_ONCE
    size = max(1, AT_ONCE // d)
    found = []
    for i in range(len(at)):
        every = np.flatnonzero(steps[i])
        good, along, crossings = [], [np.empty(0)], Crossings.none(d)
        for first in range(0, len(every), size):
            block = every[first : first + size]
            moves = steps[i, block, None] * across[block]
            here, off, more = _ask_block(
                chart, at.take(np.array([i])), moves, finest, keep=not large
            )
            good.append(block[here])
            along.append(off / chart.scale)
            crossings = crossings.joined(more)
        found.append((np.concatenate([*good, every[:0]]), np.concatenate(along), crossings))
    return found


def _ask_block(
    chart: Chart, at: Crossings, steps: FloatArray, finest: float, *, keep: bool
) -> tuple[IntArray, FloatArray, Crossings]:
    """Find the boundary beside one point moved by each of ``steps`` ``(q, d)``."""
    q = len(steps)
    direction = at.directions[0] @ chart.rows / chart.scale
    base = chart.inputs(at.points) + steps
    half = 2.0 * np.linalg.norm(steps, axis=1) / np.sqrt(chart.dimension)
    inside, outside = np.repeat(at.inside, q), np.repeat(at.outside, q)
    directions = np.broadcast_to(direction, base.shape)
    with nullcontext() if keep else chart.target.unrecorded():
        offset, error = locate(
            Chart.whole(chart.target), base, directions, inside, outside, guess=np.zeros(q),
            half=half, finest=finest * chart.scale, reach=GROWTH**3 * half,
        )  # fmt: skip
    good = np.flatnonzero(np.isfinite(offset))
    points = base[good] + offset[good, None] * direction
    crossings = Crossings(points, directions[good], inside[good], outside[good], error[good])
    if not keep:
        aside = error[good, None] * direction
        chart.target.keep(points - aside, crossings.inside)
        chart.target.keep(points + aside, crossings.outside)
    return good, offset[good], crossings


def _solve_directions(
    model: Model, at: Crossings, step: FloatArray, offset: FloatArray, turns: int
) -> tuple[FloatArray, FloatArray]:
    """Solve for what units and outputs see of each direction, ``(q, k + m - 1)``.

    Also returns what is left of the equations, over the step, ``(q,)``.

    ``offset`` ``(n, q)`` is how far along the normal the boundary was, NaN where not found, a
    step ``(n, q)`` along the direction.
    The equations F_outside = F_inside are linear but for the units' kinks: Newton.
    """
    n, q = offset.shape
    k = model.width
    found = np.isfinite(offset)
    y = at.points[:, None, :] + np.nan_to_num(offset)[:, :, None] * at.directions[:, None, :]
    heights = y @ model.rows.T + model.offsets  # (n, q, k), without what is sought
    weights = model.out[at.outside] - model.out[at.inside]
    affine = np.einsum("nqs,ns->nq", y, model.skip[at.outside] - model.skip[at.inside])
    affine += (model.shift[at.outside] - model.shift[at.inside])[:, None]
    signs = _signs(model.classes, at)
    _, gradient = model.differences(at.points, at.inside, at.outside)
    size = np.linalg.norm(gradient, axis=1)[:, None] * step
    seen = np.zeros((q, k + model.classes - 1))
    best, least = seen, np.full(q, np.inf)
    for _ in range(turns):  # more than one only where a step crossed a hyperplane
        z = heights + step[:, :, None] * seen[None, :, :k]
        on = z > 0.0
        value = np.einsum("nqk,nk->nq", z * on, weights) + affine + step * (signs @ seen[:, k:].T)
        value = np.where(found, value / size, 0.0)
        loss = np.abs(value).sum(axis=0)
        best = np.where((loss < least)[:, None], seen, best)
        least = np.minimum(loss, least)
        slopes = (
            np.concatenate(
                [
                    on * weights[:, None, :],
                    np.broadcast_to(signs[:, None, :], (n, q, signs.shape[1])),
                ],
                axis=2,
            )
            * step[:, :, None]
        )
        slopes = np.where(found[:, :, None], slopes / size[:, :, None], 0.0).transpose(1, 0, 2)
        change = np.einsum("qxn,nq->qx", np.linalg.pinv(slopes, rcond=n * EPS), value)
        seen = seen - change
    return best, least
