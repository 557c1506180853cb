"""High-threshold units whose inputs are not Gaussian: a cut in the middle of a network.

Appendix E of Goel & Panigrahy, Remark 1, asks for a robust algorithm that learns X_i from
``sum_i c_i X_i``; P's products are then its noise. Two of its parts do not need Gaussian inputs:

- Levels. A sign unit that is on alone gives f a level of its own, P(e_i): the points of one
  level other than c_0 are those of one unit, or of units with the same coefficient. Of one
  unit, they lie above its hyperplane and all points at c_0 below it, whatever the law of the
  inputs: linear programs over ever more of the points find a hyperplane between the two.
- Refinement. Next to a unit's hyperplane, where no other unit is on, the labels f = c_0 and
  f != c_0 are those of one halfspace; a linear program finds it.

Units that the levels do not give are sought from the levels' normals, or in the landscape of the
whitened inputs where no level has points enough.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.progress import Progress
from unrelu.result import StageReport, Status
from unrelu.thresholds.config import EPS, TINY, ThresholdConfig
from unrelu.thresholds.flat import separating_shift
from unrelu.thresholds.model import UnitsFit, predicted_on
from unrelu.thresholds.passes import Passes
from unrelu.thresholds.slab import tangent_basis
from unrelu.thresholds.union import fit_union

__all__ = ["fit_cut", "level_planes", "settled_units"]


def fit_cut(
    passes: Passes, *, rng: np.random.Generator, config: ThresholdConfig, watch: Progress
) -> UnitsFit:
    """Find the units of a cut layer in its own inputs, whitened but not Gaussian.

    RECOVERED where the units explain every training label, but for about one point next to
    each for every number that is fitted to them, and where the points next to each determine
    its hyperplane.
    """
    normals, cuts = level_planes(passes, rng=rng, config=config)
    found, on = _of_levels(normals, cuts), passes.base.is_on(passes.pilot_y)
    if len(normals) == 0 or _wrong(passes.pilot_x, on, found) > _allowed(found, config):
        found = fit_union(
            passes, method="joint", units=None, threshold=None, rng=rng, config=config,
            watch=watch, starts=normals if len(normals) else None,
        )  # fmt: skip
    if len(found.directions) == 0 or not passes.base.exact:
        return found
    found = _needed(passes, found)
    found = _needed(passes, found.moved(*settled_units(passes, found, config)))
    k, errors = len(found.directions), found.errors
    if k == 0:
        return dataclasses.replace(found, status=Status.PARTIAL)
    wrong = rows = 0
    for x, y in passes.training():
        wrong += _wrong(x, passes.base.is_on(y), found)
        rows += len(x)
    if wrong > _allowed(found, config):
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


def _of_levels(normals: FloatArray, cuts: FloatArray) -> UnitsFit:
    """Return the units of the levels' hyperplanes, not yet judged."""
    normals, cuts = normals[np.isfinite(cuts)], cuts[np.isfinite(cuts)]
    report = StageReport("levels", message=f"{len(normals)} hyperplanes above c_0")
    unsure = np.full(len(normals), np.inf)
    return UnitsFit(Status.PARTIAL, "", normals, cuts, unsure, normals, [report])


def _wrong(x: FloatArray, on: BoolArray, found: UnitsFit) -> int:
    """Count the points whose label the units contradict."""
    return int(np.count_nonzero(predicted_on(x, found.directions, found.thresholds) != on))


def _allowed(found: UnitsFit, config: ThresholdConfig) -> float:
    """About one wrong point next to each unit for every number that is fitted to them."""
    k, n = found.directions.shape
    return config.reach * k * (n + 1)


def _needed(passes: Passes, found: UnitsFit) -> UnitsFit:
    """Keep units that explain more points that no other does than they have numbers."""
    x, on = passes.pilot_x, passes.base.is_on(passes.pilot_y)
    above = x[on] @ found.directions.T > found.thresholds
    kept = np.ones(len(found.directions), dtype=bool)
    for i in np.argsort(above.sum(axis=0)):
        others = kept.copy()
        others[i] = False
        alone = above[:, i] & ~above[:, others].any(axis=1)
        kept[i] = np.count_nonzero(alone) > passes.n + 1
    return found.moved(found.directions[kept], found.thresholds[kept], found.errors[kept])


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
            # Along what does not vary next to it (a ReLU that is off, say) a hyperplane stays.
            basis = tangent_basis(directions[i])
            along = x[near] @ basis
            _, spreads, axes = np.linalg.svd(along - along.mean(axis=0), full_matrices=False)
            varies = spreads > len(near) * EPS * spreads[0]
            basis = basis @ axes[varies].T
            _, move = separating_shift(
                heights[near, i], x[near] @ basis, on[near], move_threshold=True
            )
            normal = directions[i] - basis @ move[1:]
            length = float(np.linalg.norm(normal))
            directions[i] = normal / length
            thresholds[i] = (thresholds[i] + move[0]) / length
            # A plane among m points of heights up to h is held to h / m for each number, along
            # the direction in which they spread least.
            reach = float(np.abs(heights[near, i]).max()) / max(len(near), 1)
            errors[i] = passes.n * reach * np.sqrt(len(near)) / max(float(spreads[-1]), TINY)
    return directions, thresholds, errors


def level_planes(
    passes: Passes, *, rng: np.random.Generator, config: ThresholdConfig
) -> tuple[FloatArray, FloatArray]:
    """Hyperplanes between c_0's points and those of each other level, ``(j, n)`` and ``(j,)``.

    A level that no hyperplane separates has a normal and no threshold (infinite). Levels with
    fewer points than a slab needs are left out: several units on together. There are none
    where noise blurs the labels.
    """
    x, y, base = passes.pilot_x, passes.pilot_y, passes.base
    least = config.points_per_unknown * passes.n
    on = base.is_on(y)
    if not base.exact or not on.any():
        return np.empty((0, passes.n)), np.empty(0)
    steps = np.rint((y[on] - base.level) / max(base.tolerance, TINY))
    levels, which, counts = np.unique(steps, return_inverse=True, return_counts=True)
    normals, cuts = [], []
    for level in np.argsort(-counts)[: len(levels)]:
        if counts[level] < least:
            break
        normal, cut = _separating(x[on][which == level], x[~on], least, rng, config)
        normals.append(normal)
        cuts.append(cut)
    return np.array(normals).reshape(-1, passes.n), np.array(cuts)


def _separating(
    above: FloatArray,
    below: FloatArray,
    size: int,
    rng: np.random.Generator,
    config: ThresholdConfig,
) -> tuple[FloatArray, float]:
    """Return a hyperplane between two sets of points: unit normal, and its threshold.

    Of each set ``size`` points begin; those that the hyperplane leaves on the wrong side join
    them, the farthest first, until there are none. Infinite: no hyperplane separates them.
    """
    points = np.concatenate([above, below])
    on = np.arange(len(points)) < len(above)
    held = np.concatenate([
        rng.choice(len(above), min(size, len(above)), replace=False),
        len(above) + rng.choice(len(below), min(size, len(below)), replace=False),
    ])  # fmt: skip
    normal = above.mean(axis=0) - points.mean(axis=0)
    normal = normal / max(float(np.linalg.norm(normal)), TINY)
    cut = float(np.median(above @ normal))
    touched = points.shape[1] + 1  # points that may lie on a hyperplane between the two
    for _ in range(config.rounds):
        basis, heights = tangent_basis(normal), points[held] @ normal - cut
        _, move = separating_shift(heights, points[held] @ basis, on[held], move_threshold=True)
        moved = normal - basis @ move[1:]
        length = max(float(np.linalg.norm(moved)), TINY)
        normal, cut = moved / length, (cut + float(move[0])) / length
        side = (points @ normal - cut) * np.where(on, 1.0, -1.0)
        wrong = np.flatnonzero(side < 0.0)
        old = np.isin(wrong, held)
        if np.count_nonzero(old) > touched:
            break  # nothing separates even these
        if old.all():
            return normal, cut
        fresh = wrong[~old]
        held = np.union1d(held, fresh[np.argsort(side[fresh])[:size]])
    return normal, np.inf
