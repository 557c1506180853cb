"""Which boundary points to ask for: a model predicts them, and tells what they are worth."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.boundary import Crossings, locate
from unrelu.labels.charts import Chart
from unrelu.labels.model import Model

__all__ = ["ask_predicted", "choose", "predicted_crossings", "predicted_pool", "stays"]

POOL = 8
"""Points predicted for every parameter, of which a model chooses where to ask: the ranking takes
the parameters' square for each."""


def predicted_crossings(
    model: Model, chart: Chart, count: int, rng: np.random.Generator, *, room: float,
    wide: bool = True,
) -> Crossings:  # fmt: skip
    """Return points on the model's boundary, between typical points; directions are normals.

    ``room`` is the distance on either side at which the labels are still those two.
    """
    start = chart.draw_wide(count, rng) if wide else chart.draw(count, rng)
    end = chart.draw(count, rng)
    inside, outside = model.labels(start), model.labels(end)
    unequal = inside != outside
    start, end, inside, outside = start[unequal], end[unequal], inside[unequal], outside[unequal]
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(np.finfo(np.float64).nmant):  # to all digits
        middle = 0.5 * (low + high)
        label = model.labels(start + middle[:, None] * (end - start))
        same = label == inside
        low, high = np.where(same, middle, low), np.where(same, high, middle)
        outside = np.where(same, outside, label)
    points = start + (0.5 * (low + high))[:, None] * (end - start)
    value, gradient = model.differences(points, inside, outside)
    length = np.linalg.norm(gradient, axis=1)
    good = length > 0
    gradient = gradient[good] / length[good][:, None]
    points = points[good] - (value[good] / length[good])[:, None] * gradient
    found = Crossings(points, gradient, inside[good], outside[good], np.zeros(len(points)))
    return found.take(_roomy(model, chart, found, room))


def predicted_pool(model: Model, chart: Chart, rng: np.random.Generator, room: float) -> Crossings:
    """Return points on a chart's predicted boundary, in proportion to the model's unknowns."""
    found = predicted_crossings(model, chart, 2 * POOL * model.unknowns, rng, room=room)
    return found.take(np.arange(min(len(found), POOL * model.unknowns)))


def _roomy(model: Model, chart: Chart, at: Crossings, room: float) -> BoolArray:
    """Tell beside which points the model sees two labels only, inside of the domain."""
    behind, ahead = at.points - room * at.directions, at.points + room * at.directions
    fine = (model.labels(behind) == at.inside) & (model.labels(ahead) == at.outside)
    for y in (behind, ahead):
        fine &= chart.target.may_ask(chart.inputs(y))
    return np.asarray(fine)


def choose(model: Model, pool: Crossings, count: int) -> IntArray:
    """Choose points that tell most about the model's parameters, by pivoted QR.

    Only so many as there are parameters are ranked; the rest follow in the pool's own order.
    """
    rows = model.jacobian(pool.points, pool.inside, pool.outside)
    _, gradient = model.differences(pool.points, pool.inside, pool.outside)
    rows = rows / np.linalg.norm(gradient, axis=1)[:, None]
    size = np.linalg.norm(rows, axis=0)
    rows = rows / np.where(size > 0, size, 1.0)
    _, _, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    ranked = order[: min(rows.shape)][:count]
    rest = np.setdiff1d(np.arange(len(pool)), ranked)
    return np.concatenate([ranked, rest[: max(0, count - len(ranked))]]).astype(np.intp)


def ask_predicted(
    chart: Chart, at: Crossings, *, half: float | FloatArray, finest: float, reach: float
) -> Crossings:
    """Find the boundary beside predicted points; ``error`` is NaN where it was not found."""
    n = len(at)
    offset, error = locate(
        chart, at.points, at.directions, at.inside, at.outside, guess=np.zeros(n),
        half=np.broadcast_to(np.asarray(half, float), (n,)).copy(), finest=finest,
        reach=np.full(n, reach),
    )  # fmt: skip
    moved = at.points + np.where(np.isfinite(offset), offset, 0.0)[:, None] * at.directions
    return Crossings(moved, at.directions, at.inside, at.outside, error)


def stays(chart: Chart, at: Crossings, within: float | FloatArray) -> BoolArray:
    """Tell by two labels each whether the boundary lies ``within`` predicted points."""
    aside = np.broadcast_to(np.asarray(within, float), (len(at),))[:, None] * at.directions
    behind, ahead = chart.ask(at.points - aside), chart.ask(at.points + aside)
    asked = (behind >= 0) & (ahead >= 0)
    return np.asarray(~asked | ((behind == at.inside) & (ahead == at.outside)))
