"""Units that a model lacks, from where it fails.

Where a unit that a model does not know is on, the boundary lies elsewhere and has another normal.
Both planes, the model's and the true one, meet on that unit's hyperplane, and its row is in the
span of the two normals: a dual point, though no walk has met it.
"""

from __future__ import annotations

import numpy as np

from unrelu.labels.boundary import Crossings, measure_normals
from unrelu.labels.charts import Chart
from unrelu.labels.design import ask_predicted
from unrelu.labels.hyperplanes import Duals, Hyperplanes, pair_up
from unrelu.labels.model import Model
from unrelu.labels.walks import Precision

__all__ = ["missing_hyperplanes"]


def missing_hyperplanes(
    chart: Chart, model: Model, failed: Crossings, rng: np.random.Generator, *,
    precision: Precision, margin: float,
) -> Hyperplanes:  # fmt: skip
    """Find the hyperplanes of units that a model lacks, from crossings that it does not explain.

    Two crossings are needed for each; where two such units are on no pair agrees.
    """
    return pair_up(_duals(chart, model, failed, rng, precision, margin), margin)


def _duals(
    chart: Chart, model: Model, failed: Crossings, rng: np.random.Generator,
    precision: Precision, margin: float,
) -> Duals:  # fmt: skip
    """Return where the model's plane and the true one meet, nearest to each crossing."""
    s = chart.dimension
    # Small differences of normals count here: twice the bits of a search.
    step = np.full(len(failed), precision.step)
    fine = max(precision.finest**2 / precision.step, 2.0 * precision.noise)
    failed = ask_predicted(
        chart, failed, half=2.0 * precision.finest, finest=fine, reach=precision.step
    )
    failed = failed.take(np.isfinite(failed.error))
    step = step[: len(failed)]
    normals, good = measure_normals(
        chart, failed, rng, step=step, finest=np.full(len(failed), fine)
    )
    # The model's normals are as good as the crossings it was fitted to.
    angle = float(precision.angle(s, step[:1], np.array([fine]))[0]) if len(failed) else 0.0
    angle += np.sqrt(s) * precision.finest
    values, gradients = model.differences(failed.points, failed.inside, failed.outside)
    found = Duals.none(s)
    for i in np.flatnonzero(good):
        length = float(np.linalg.norm(gradients[i]))
        if length == 0.0:
            continue
        before, distance = gradients[i] / length, float(values[i]) / length
        across = before - (before @ normals[i]) * normals[i]
        sine = float(np.linalg.norm(across))
        if sine > margin * angle:
            point = failed.points[i] - distance / sine**2 * across
            found = found.with_one(point, before, normals[i], angle / sine)
    return found
