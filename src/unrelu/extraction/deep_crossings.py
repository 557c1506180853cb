"""Where lines cross the surfaces of second-layer units, and what that says.

Used where the first layer has more units than there are inputs, so that its
outputs cannot be chosen at will (:mod:`unrelu.extraction.deep_surfaces`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_rows import RowConfig, measure_rows
from unrelu.extraction.deep_surfaces import Crossings, Surface
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.lines.gradients import GradientConfig
from unrelu.lines.kinks import LineScan
from unrelu.lines.survey import SurveyLine

__all__ = ["first_layer_signs", "missed_rows", "second_layer", "surface_crossings"]

AskPoints = Callable[[FloatArray], FloatArray]


def surface_crossings(
    ask: AskPoints,
    line: SurveyLine,
    scan: LineScan,
    noise: NoiseModel,
    weights: FloatArray,
    biases: FloatArray,
    *,
    rng: np.random.Generator,
    known: FloatArray | None = None,
    worst: float = 1e-6,
    config: RowConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> Crossings:
    """Measure the jump of the gradient at all kinks that are not of the first layer.

    Parameters
    ----------
    known
        Second-layer units (v, c) over an oriented first layer, ``(n, k + 1)``, whose kinks
        need not be measured.
    worst
        Relative error of a normal above which a crossing is left out.
    """
    d, m = weights.shape[1], scan.jumps.shape[1]
    points = line.points(scan.kinks)
    distance = np.abs(points @ weights.T + biases) / np.linalg.norm(weights, axis=1)
    limit = 1e-8 * (1.0 + np.linalg.norm(points, axis=1)) + 30.0 * scan.kink_std
    deeper = (distance > limit[:, None]).all(axis=1)
    if known is not None and len(known):
        deeper &= ~_on_surface(points, weights, biases, known, limit)
    deeper = np.flatnonzero(deeper)
    none = Crossings(np.empty((0, d)), np.empty((0, d)), np.empty((0, m)), np.empty(0))
    if len(deeper) == 0:
        return none
    rows, _ = measure_rows(
        ask, line, scan, noise, deeper, np.eye(d), rng=rng, config=config,
        gradient_config=gradient_config,
    )  # fmt: skip
    if rows.count == 0:
        return none
    t = (rows.anchors - line.base) @ line.direction
    found = np.abs(t[:, None] - scan.kinks).argmin(axis=1)
    jump = scan.jumps[found]
    size = np.linalg.norm(jump, axis=1)
    along = rows.weights @ line.direction
    good = (rows.std <= worst) & (np.abs(along) > 1e-6) & (size > 0.0)
    size, along, jump = size[good], along[good], jump[good]
    normals = rows.weights[good] * (size / along)[:, None]
    return Crossings(rows.anchors[good], normals, jump / size[:, None], rows.std[good])


def _on_surface(
    points: FloatArray,
    weights: FloatArray,
    biases: FloatArray,
    units: FloatArray,
    limit: FloatArray,
) -> BoolArray:
    """Tell which points lie on the surface of a unit, ``(n,)``."""
    z = points @ weights.T + biases
    value = np.maximum(z, 0.0) @ units[:, :-1].T + units[:, -1]
    slope = np.einsum("nk,jk,kd->njd", (z > 0).astype(np.float64), units[:, :-1], weights)
    size = np.maximum(np.linalg.norm(slope, axis=2), np.finfo(np.float64).tiny)
    return np.asarray((np.abs(value) <= 100.0 * limit[:, None] * size).any(axis=1))


def missed_rows(
    crossings: Crossings,
    weights: FloatArray,
    biases: FloatArray,
    *,
    tolerance: float = 1e-6,
    least: int = 3,
    change: float = 1e-4,
    differ: int = 2,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Find crossings of hyperplanes that nothing bends: rows not yet known.

    The gradient's jump at a first-layer hyperplane has the same direction everywhere, and a
    size that depends on which second-layer units are on. Nothing else is like that: a
    surface turns wherever a first-layer hyperplane crosses it.

    Parameters
    ----------
    least
        Crossings of one hyperplane.
    change
        Relative change of the jump's size among them.
    differ
        Rows known on both sides of which they lie.

    Returns
    -------
    weights, biases, members
        Unit normals ``(n, d)``, offsets ``(n,)``, and which crossings they explain.
    """
    size = np.linalg.norm(crossings.normals, axis=1)
    normals = crossings.normals / np.maximum(size, np.finfo(np.float64).tiny)[:, None]
    offsets = -np.einsum("nd,nd->n", normals, crossings.points)
    reach = 1.0 + np.linalg.norm(crossings.points, axis=1)
    sides = np.sign(crossings.points @ weights.T + biases)
    taken = np.zeros(len(crossings), dtype=bool)
    rows, shifts = [np.zeros((0, weights.shape[1]))], [np.zeros(0)]
    for i in range(len(crossings)):
        if taken[i]:
            continue
        sign = np.where(normals @ normals[i] < 0, -1.0, 1.0)
        apart = np.linalg.norm(normals - sign[:, None] * normals[i], axis=1)
        shift = np.abs(offsets - sign * offsets[i])
        same = ~taken & (apart <= tolerance) & (shift <= tolerance * reach)
        if np.count_nonzero(same) < least or np.ptp(size[same]) <= change * size[same].max():
            continue
        if np.count_nonzero(np.ptp(sides[same], axis=0)) < differ:
            continue  # seen on one side of all rows known: it might bend beyond them
        taken |= same
        rows.append((sign[same, None] * normals[same]).mean(axis=0, keepdims=True))
        shifts.append(np.array([(sign[same] * offsets[same]).mean()]))
    return np.concatenate(rows), np.concatenate(shifts), taken


def first_layer_signs(
    surfaces: Sequence[Surface], weights: FloatArray
) -> tuple[FloatArray, float]:
    """Return the orientation of the first layer, and how far from +-1 its solution is.

    With units ``relu(s_i z_i)`` every second-layer unit has ``p = sum_i v_i s_i w_i / 2``.
    Where a surface was seen on one side of a hyperplane only, its v_i cannot be told from
    p; across such rows, and what else is open, the equation holds all the same.
    """
    k, d = weights.shape
    rows, right = [np.zeros((0, k))], [np.zeros(0)]
    for surface in surfaces:
        theta, _ = surface.solution()
        null = surface.null()
        unseen = _open(null, k)
        hidden = np.concatenate([weights[unseen], null[:, k : k + d]])
        size = float(np.linalg.norm(theta[:k][~unseen]))
        across = _complement(hidden, d)
        if len(across) == 0 or not size > 0:
            continue
        v = np.where(unseen, 0.0, theta[:k]) / size
        rows.append(0.5 * (across @ weights.T) * v)
        right.append(across @ theta[k : k + d] / size)
    matrix = np.concatenate(rows)
    if len(matrix) < k or np.linalg.matrix_rank(matrix, tol=1e-6) < k:
        return np.ones(k), np.inf
    solution, *_ = np.linalg.lstsq(matrix, np.concatenate(right), rcond=1e-9)
    signs = np.where(solution < 0, -1.0, 1.0)
    return signs, float(np.abs(solution - signs).max())


def _open(null: FloatArray, k: int) -> BoolArray:
    """Tell which of the first k unknowns a null space reaches."""
    return np.asarray(np.linalg.norm(null[:, :k], axis=0) > 1e-6)


def _complement(rows: FloatArray, d: int, cutoff: float = 1e-6) -> FloatArray:
    """Return orthonormal rows orthogonal to those given, ``(n, d)``."""
    if len(rows) == 0:
        return np.eye(d)
    _, values, right = np.linalg.svd(rows, full_matrices=True)
    return np.asarray(right[int(np.count_nonzero(values > cutoff * values[0])) :])


def second_layer(
    surfaces: Sequence[Surface],
    weights: FloatArray,
    biases: FloatArray,
    x: FloatArray,
    y: FloatArray,
    deviations: FloatArray,
) -> OrthantUnits:
    """Return the units over an oriented first layer, and the affine term that answers show.

    Parameters
    ----------
    surfaces
        Grouped over the oriented layer.
    x, y, deviations
        Answers ``(n, m)`` and their standard deviations.
    """
    k = len(weights)
    solved = np.array([surface.solution()[0] for surface in surfaces]).reshape(-1, k + 1)
    v, c = solved[:, :k], solved[:, k]
    outputs = np.array([surface.output for surface in surfaces]).reshape(-1, y.shape[1])
    hidden = np.maximum(x @ weights.T + biases, 0.0)
    left = y - np.maximum(hidden @ v.T + c, 0.0) @ outputs
    design = np.concatenate([hidden, np.ones((len(x), 1))], axis=1)
    affine = robust_affine(design, left, deviations.max(axis=1))
    none = np.zeros(len(v))
    return OrthantUnits(affine[:k].T.copy(), affine[k].copy(), v, c, outputs.T.copy(), none, none)


def robust_affine(
    design: FloatArray, values: FloatArray, deviations: FloatArray, rounds: int = 20
) -> FloatArray:
    """Fit values by a linear map; those that a missing unit spoils count for little."""
    scale = 1.0 / deviations[:, None]
    weight = scale
    for _ in range(rounds):
        solution, *_ = np.linalg.lstsq(design * weight, values * weight, rcond=1e-12)
        off = np.abs((values - design @ solution) * scale).max(axis=1, keepdims=True)
        usual = max(float(np.median(off)), 1.0)
        weight = scale / np.sqrt(np.maximum(off / usual, 1.0))
    return np.asarray(solution)
