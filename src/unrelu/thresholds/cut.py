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
from unrelu.thresholds.config import TINY, ThresholdConfig
from unrelu.thresholds.flat import plane_freedom, roomiest_plane, separating_shift
from unrelu.thresholds.model import UnitsFit, predicted_on
from unrelu.thresholds.passes import Passes
from unrelu.thresholds.slab import tangent_basis
from unrelu.thresholds.union import fit_union

__all__ = ["fit_cut", "held_angles", "level_planes", "settled_units"]


def fit_cut(
    passes: Passes,
    *,
    rng: np.random.Generator,
    config: ThresholdConfig,
    watch: Progress,
    inputs: FloatArray | None = None,
) -> UnitsFit:
    """Find the units of a cut layer in its own inputs, whitened but not Gaussian.

    ``inputs`` ``(n, p)`` undoes the whitening of a direction: angles are those of ``d @ inputs``.

    RECOVERED where the units explain every training label, but for about one point next to
    each for every number that is fitted to them, and where the points next to each determine
    its hyperplane.
    """
    normals, cuts = level_planes(passes, rng=rng, config=config)
    found, on = _needed(passes, _of_levels(normals, cuts)), passes.base.is_on(passes.pilot_y)
    if len(normals) == 0 or _wrong(passes.pilot_x, on, found) > _allowed(found, config):
        found = fit_union(
            passes, method="joint", units=None, threshold=None, rng=rng, config=config,
            watch=watch, starts=normals if len(normals) else None,
        )  # fmt: skip
        if len(found.directions) == 0 or not passes.base.exact:
            return found
        moved = settled_units(passes, found, config)
        found = _needed(passes, found.moved(*moved, found.errors))
    errors = held_angles(passes, found, np.eye(passes.n) if inputs is None else inputs, config)
    found, k = found.moved(found.directions, found.thresholds, errors), len(errors)
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
        open_ = int(np.count_nonzero(~np.isfinite(errors)))
        held = (
            f"an input of the cut does not vary next to {open_} of them: its weight stays open"
            if open_
            else f"those next to one of them let its direction turn by {errors.max():.2g} rad"
        )
        status = Status.PARTIAL
        message = f"{k} units explain {rows - wrong} of {rows} samples, but {held}."
    else:
        status, message = (
            Status.RECOVERED,
            (
                f"{k} units explain {rows - wrong} of {rows} samples, which let no direction turn "
                f"by more than {errors.max():.1e} rad."
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
    return float(config.reach * k * (n + 1))


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
) -> tuple[FloatArray, FloatArray]:
    """Move each hyperplane to where the labels next to it separate; ``(k, n)`` and ``(k,)``."""
    on = passes.base.is_on(passes.pilot_y)
    directions, thresholds = found.directions.copy(), found.thresholds.copy()
    for _ in range(config.tries):
        for i in range(len(directions)):
            x, heights, labels = _next_to(passes, on, directions, thresholds, i, config)
            if not heights.any():
                continue  # points that coincide hold no plane
            basis = tangent_basis(directions[i])
            _, move = separating_shift(heights, x @ basis, labels, move_threshold=True)
            normal = directions[i] - basis @ move[1:]
            length = float(np.linalg.norm(normal))
            directions[i] = normal / length
            thresholds[i] = (thresholds[i] + move[0]) / length
    return directions, thresholds


def held_angles(
    passes: Passes, found: UnitsFit, inputs: FloatArray, config: ThresholdConfig
) -> FloatArray:
    """Bound the angle by which each hyperplane can turn and explain the points next to it.

    In the cut's own ``inputs`` ``(n, p)``; ``(k,)``. Infinite where one of them does not vary
    next to the hyperplane, a ReLU that is off, say.
    """
    on = passes.base.is_on(passes.pilot_y)
    errors = []
    for i, direction in enumerate(found.directions):
        x, heights, labels = _next_to(passes, on, found.directions, found.thresholds, i, config)
        right = (heights > 0.0) == labels
        errors.append(plane_freedom(direction, heights[right], x[right], inputs))
    return np.array(errors)


def _next_to(
    passes: Passes,
    on: BoolArray,
    directions: FloatArray,
    thresholds: FloatArray,
    i: int,
    config: ThresholdConfig,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the points nearest to unit i where no other is on: they, their heights, labels."""
    heights = passes.pilot_x @ directions.T - thresholds
    alone = np.flatnonzero((np.delete(heights, i, axis=1) < 0.0).all(axis=1))
    most = 2 * config.points_per_unknown * passes.n
    near = alone[np.argsort(np.abs(heights[alone, i]))[:most]]
    return passes.pilot_x[near], heights[near, i], on[near]


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
    """Return the hyperplane with the most room between two sets: unit normal, and threshold.

    Of each set ``size`` points begin; those that the hyperplane leaves on the wrong side join
    them, the farthest first, until there are none. Infinite: no hyperplane separates them.
    """
    points = np.concatenate([above, below])
    on = np.arange(len(points)) < len(above)
    held = np.concatenate([
        rng.choice(len(above), min(size, len(above)), replace=False),
        len(above) + rng.choice(len(below), min(size, len(below)), replace=False),
    ])  # fmt: skip
    side = above.mean(axis=0) - points.mean(axis=0)
    normal = side / max(float(np.linalg.norm(side)), TINY)
    for _ in range(config.rounds):
        found, cut, room = roomiest_plane(points[held], on[held])
        if not room > 0.0:
            break
        normal = found
        heights = (points @ normal - cut) * np.where(on, 1.0, -1.0)
        wrong = np.flatnonzero(heights < 0.0)
        if len(wrong) == 0:
            return normal, cut
        held = np.union1d(held, wrong[np.argsort(heights[wrong])[:size]])
    return normal, np.inf
