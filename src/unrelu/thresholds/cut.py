"""High-threshold units whose inputs are not Gaussian: a cut in the middle of a network.

Appendix E of Goel & Panigrahy, Remark 1, asks for a robust algorithm that learns X_i from
``sum_i c_i X_i``; P's products are then its noise. Two of its parts do not need Gaussian inputs:

- Starts. A sign unit that is on alone gives f a level of its own, P(e_i): the points of one
  level other than c_0 are those of one unit, or of units with the same coefficient. A
  hyperplane between them and the points at c_0 is a start.
- Refinement. Next to a unit's hyperplane, where no other unit is on, the labels f = c_0 and
  f != c_0 are those of one halfspace; a linear program finds it.

Starts that the levels do not give come from the landscape of the whitened inputs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.progress import Progress
from unrelu.result import Status
from unrelu.thresholds.config import TINY, ThresholdConfig
from unrelu.thresholds.flat import separating_shift
from unrelu.thresholds.model import UnitsFit, predicted_on
from unrelu.thresholds.passes import Passes
from unrelu.thresholds.slab import tangent_basis
from unrelu.thresholds.union import fit_union

__all__ = ["fit_cut", "level_directions", "settled_units"]


def fit_cut(
    passes: Passes, *, rng: np.random.Generator, config: ThresholdConfig, watch: Progress
) -> UnitsFit:
    """Find the units of a cut layer in its own inputs, whitened but not Gaussian.

    RECOVERED where the units explain every training label, but for about one point next to
    each for every number that is fitted to them, and where the points next to each determine
    its hyperplane.
    """
    starts = level_directions(passes, rng=rng, config=config)
    found = fit_union(
        passes, method="joint", units=None, threshold=None, rng=rng, config=config, watch=watch,
        starts=starts if len(starts) else None,
    )  # fmt: skip
    k, n = len(found.directions), passes.n
    if k == 0 or not passes.base.exact:
        return found
    directions, thresholds, errors = settled_units(passes, found, config)
    needed = _needed(passes, directions, thresholds)
    directions, thresholds, errors = (part[needed] for part in (directions, thresholds, errors))
    found, k = found.moved(directions, thresholds, errors), len(directions)
    if k == 0:
        return dataclasses.replace(found, status=Status.PARTIAL)
    wrong = rows = 0
    for x, y in passes.training():
        seen = predicted_on(x, directions, thresholds)
        wrong += int(np.count_nonzero(seen != passes.base.is_on(y)))
        rows += len(x)
    if wrong > config.reach * k * (n + 1):
        status, message = (
            Status.PARTIAL,
            (
                f"{k} units, but {wrong} of {rows} samples contradict them: a unit is missing, or "
                "f is not c_0 exactly where all are off. Give more samples."
            ),
        )
    elif errors.max() > config.settled:
        status, message = (
            Status.PARTIAL,
            (
                f"{k} units explain {rows - wrong} of {rows} samples, but those next to one of "
                f"them determine its direction only to {errors.max():.2g} rad. Give more samples."
            ),
        )
    else:
        status, message = (
            Status.RECOVERED,
            (
                f"{k} units explain {rows - wrong} of {rows} samples, each direction to about "
                f"{errors.max():.1e} rad in the cut's whitened inputs."
            ),
        )
    return dataclasses.replace(found, status=status, message=message)


def _needed(passes: Passes, directions: FloatArray, thresholds: FloatArray) -> BoolArray:
    """Mark units that explain more points that no other does than they have numbers."""
    x, on = passes.pilot_x, passes.base.is_on(passes.pilot_y)
    above = x[on] @ directions.T > thresholds
    kept = np.ones(len(directions), dtype=bool)
    for i in np.argsort(above.sum(axis=0)):
        others = kept.copy()
        others[i] = False
        alone = above[:, i] & ~above[:, others].any(axis=1)
        kept[i] = np.count_nonzero(alone) > passes.n + 1
    return kept


def settled_units(
    passes: Passes, found: UnitsFit, config: ThresholdConfig
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Move each hyperplane to where the labels next to it separate.

    Returns
    -------
    Directions ``(k, n)``, thresholds ``(k,)``, and for each unit the angle within which its
    nearest points hold it, ``(k,)``.
    """
    x, on = passes.pilot_x, passes.base.is_on(passes.pilot_y)
    directions, thresholds = found.directions.copy(), found.thresholds.copy()
    errors = np.full(len(directions), np.inf)
    most = 2 * config.points_per_unknown * passes.n
    for _ in range(config.tries):
        for i in range(len(directions)):
            heights = x @ directions.T - thresholds
            alone = np.flatnonzero((np.delete(heights, i, axis=1) < 0.0).all(axis=1))
            near = alone[np.argsort(np.abs(heights[alone, i]))[:most]]
            if not heights[near, i].any():
                continue  # points that coincide hold no plane
            basis = tangent_basis(directions[i])
            along = x[near] @ basis
            _, move = separating_shift(heights[near, i], along, on[near], move_threshold=True)
            normal = directions[i] - basis @ move[1:]
            length = float(np.linalg.norm(normal))
            directions[i] = normal / length
            thresholds[i] = (thresholds[i] + move[0]) / length
            # A plane among m points of heights up to h is held to h / m for each number, along
            # the direction in which they spread least.
            spread = np.linalg.svd(along - along.mean(axis=0), compute_uv=False)[-1]
            reach = float(np.abs(heights[near, i]).max()) / max(len(near), 1)
            errors[i] = passes.n * reach * np.sqrt(len(near)) / max(float(spread), TINY)
    return directions, thresholds, errors


def level_directions(
    passes: Passes, *, rng: np.random.Generator, config: ThresholdConfig
) -> FloatArray:
    """Directions from c_0's points to those of each other level, ``(j, n)``.

    Levels with fewer points than a slab needs are left out: several units on together. There
    are none where noise blurs the labels.
    """
    x, y, base = passes.pilot_x, passes.pilot_y, passes.base
    least = config.points_per_unknown * passes.n
    on = base.is_on(y)
    if not base.exact or not on.any():
        return np.empty((0, passes.n))
    steps = np.rint((y[on] - base.level) / max(base.tolerance, TINY))
    levels, which, counts = np.unique(steps, return_inverse=True, return_counts=True)
    off = np.flatnonzero(~on)
    rest = x[rng.choice(off, min(least, len(off)), replace=False)]
    found = []
    for level in np.argsort(-counts)[: len(levels)]:
        if counts[level] < least:
            break
        points = x[on][which == level]
        found.append(_separating(points[:least], rest, x.mean(axis=0)))
    return np.array(found).reshape(-1, passes.n)


def _separating(above: FloatArray, below: FloatArray, middle: FloatArray) -> FloatArray:
    """Return the unit normal of a hyperplane between two sets of points."""
    side = above.mean(axis=0) - middle
    side = side / max(float(np.linalg.norm(side)), TINY)
    points = np.concatenate([above, below])
    on = np.arange(len(points)) < len(above)
    basis, heights = tangent_basis(side), points @ side
    heights = heights - np.median(heights[on])
    _, move = separating_shift(heights, points @ basis, on, move_threshold=True)
    normal = side - basis @ move[1:]
    return np.asarray(normal / max(float(np.linalg.norm(normal)), TINY))
