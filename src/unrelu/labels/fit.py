"""Outputs from the boundary's equations, and Gauss-Newton on distances to the boundary."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.boundary import Crossings
from unrelu.labels.hyperplanes import Hyperplanes
from unrelu.labels.model import Model

__all__ = ["Fit", "fit_model", "free_scales", "solve_outputs"]


def free_scales(inside: IntArray, outside: IntArray) -> int:
    """Count the scales that boundaries leave free: the blocks of the graph of neighbours.

    A boundary gives the difference of two outputs up to a scale; around a cycle of classes the
    differences add up to zero, which ties their scales. Edges on a common cycle form a block.
    """
    edges = np.unique(np.sort(np.stack([inside, outside], axis=1), axis=1), axis=0)
    if len(edges) == 0:
        return 0
    size = int(edges.max()) + 1
    pairs: list[tuple[int, int]] = []
    for v in range(size):
        rest = edges[(edges != v).all(axis=1)]
        graph = coo_array((np.ones(len(rest)), (rest[:, 0], rest[:, 1])), shape=(size, size))
        part = connected_components(graph, directed=False)[1]
        touching = np.flatnonzero((edges == v).any(axis=1))
        ends = part[edges[touching].sum(axis=1) - v]
        for c in np.unique(ends):
            same = touching[ends == c]
            pairs += [(int(same[0]), int(e)) for e in same]
    first, second = np.array(pairs).T
    joined = coo_array((np.ones(len(pairs)), (first, second)), shape=(len(edges), len(edges)))
    return int(connected_components(joined, directed=False)[0])


def solve_outputs(
    rows: FloatArray, offsets: FloatArray, at: Crossings, classes: int,
    labelled: tuple[FloatArray, IntArray],
) -> Model | None:  # fmt: skip
    """Solve ``F_outside = F_inside`` at all crossings for the outputs, given the hyperplanes.

    The equations are linear and homogeneous: null vectors solve them, one for each free scale,
    of which ``labelled`` points choose a combination that obeys them.
    """
    k, s = rows.shape
    features = np.concatenate(
        [np.maximum(at.points @ rows.T + offsets, 0.0), at.points, np.ones((len(at), 1))], axis=1
    )
    size = np.sqrt((features**2).mean(axis=0))
    size = np.where(size > 0, size, 1.0)
    q = k + s + 1
    seen = np.unique(np.concatenate([at.inside, at.outside]))
    number = np.full(classes, -1)
    number[seen] = np.arange(len(seen))
    index = np.arange(len(at))
    matrix = np.zeros((len(at), len(seen), q))
    matrix[index, number[at.outside]] = features / size
    matrix[index, number[at.inside]] -= features / size
    flat = matrix[:, 1:].reshape(len(at), -1)
    if len(flat) < flat.shape[1]:
        return None
    _, values, right = np.linalg.svd(flat, full_matrices=False)
    count = free_scales(number[at.inside], number[at.outside])
    heads = np.zeros((count, classes, q))
    for j in range(count):
        heads[j, seen[1:]] = right[-1 - j].reshape(-1, q) / size
    head = _obeying(heads, rows, offsets, labelled)
    unseen = np.setdiff1d(np.arange(classes), seen)
    model = Model(rows, offsets, head[:, :k], head[:, k : k + s], head[:, -1])
    if len(unseen):  # a class without a boundary here lies below the others
        shift = model.shift.copy()
        shift[unseen] = -1e3 * np.abs(model(labelled[0])).max()
        model = dataclasses.replace(model, shift=shift)
    return _referred(model).normalised()


def _referred(model: Model) -> Model:
    """Subtract output 0 from all."""
    return Model(
        model.rows, model.offsets, model.out - model.out[0], model.skip - model.skip[0],
        model.shift - model.shift[0],
    )  # fmt: skip


def _obeying(
    heads: FloatArray, rows: FloatArray, offsets: FloatArray, labelled: tuple[FloatArray, IntArray]
) -> FloatArray:
    """Combine null vectors such that labels are obeyed, by the widest margin (an LP)."""
    y, labels = labelled
    features = np.concatenate(
        [np.maximum(y @ rows.T + offsets, 0.0), y, np.ones((len(y), 1))], axis=1
    )
    values = np.einsum("nq,jcq->ncj", features, heads)
    index = np.arange(len(y))
    margins = values[index, labels][:, None, :] - values  # (n, m, j), to be positive
    others = labels[:, None] != np.arange(values.shape[1])
    if len(heads) == 1:
        return heads[0] * (1.0 if np.median(np.sign(margins[others][:, 0])) >= 0 else -1.0)
    lines = margins[others]
    lines = lines / np.maximum(np.linalg.norm(lines, axis=1, keepdims=True), 1e-300)
    # Hinge losses: a few labels beside the boundary may contradict a rough model.
    n, j = lines.shape
    cost = np.concatenate([np.zeros(j), np.ones(n)])
    bounds = [(-1.0, 1.0)] * j + [(0.0, None)] * n
    solution = linprog(
        cost, A_ub=np.concatenate([-lines, -np.eye(n)], axis=1), b_ub=np.full(n, -0.1 / j),
        bounds=bounds,
    )  # fmt: skip
    weights = solution.x[:j] if solution.x is not None else np.ones(j)
    return np.asarray(np.einsum("j,jcq->cq", weights, heads))


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted model; ``misfit`` is the distance of each crossing over its own error."""

    model: Model
    distances: FloatArray
    misfit: FloatArray


def fit_model(model: Model, at: Crossings, *, steps: int, noise: float) -> Fit:
    """Minimise the crossings' distances to the boundary over all parameters.

    Gauss-Newton with weights that forget outliers (Cauchy), damped by halving. Scales of units
    and outputs are free: least squares takes the shortest step.
    """
    error = np.maximum(at.error, noise)
    best = model
    spread, score = _spread(best, at, error)
    for _ in range(steps):
        value, gradient = best.differences(at.points, at.inside, at.outside)
        length = np.linalg.norm(gradient, axis=1)
        if not (length > 0).all():
            break
        distance = value / length
        scale = max(1.0, float(np.median(np.abs(distance) / error)))
        weight = 1.0 / (length * error * np.sqrt(1.0 + (distance / (3.0 * scale * error)) ** 2))
        step = _least_squares(
            best.jacobian(at.points, at.inside, at.outside) * weight[:, None], -value * weight
        )
        for halving in range(6):
            trial = best.moved(step * 0.5**halving)
            new_spread, new_score = _spread(trial, at, error, scale)
            _, old_score = _spread(best, at, error, scale)
            if np.isfinite(new_score) and new_score < old_score:
                break
        else:
            break
        gained = old_score - new_score > 1e-3 * old_score
        best, spread, score = trial, new_spread, new_score
        if not gained:
            break
    distance = best.distances(at)
    return Fit(best, distance, np.abs(distance) / error)


def _spread(
    model: Model, at: Crossings, error: FloatArray, scale: float = 1.0
) -> tuple[float, float]:
    """Return the median misfit, and the sum of the logarithmic losses."""
    misfit = np.abs(model.distances(at)) / error
    if not np.isfinite(misfit).all():
        return np.inf, np.inf
    return float(np.median(misfit)), float(np.log1p((misfit / (3.0 * scale)) ** 2).sum())


def _least_squares(matrix: FloatArray, target: FloatArray) -> FloatArray:
    """Return the shortest least-squares solution, columns scaled."""
    size = np.linalg.norm(matrix, axis=0)
    size = np.where(size > 0, size, 1.0)
    scaled = matrix / size
    if scaled.shape[1] <= 600:
        solution = np.linalg.lstsq(scaled, target, rcond=1e-13)[0]
    else:
        gram = scaled.T @ scaled
        gram[np.diag_indices(len(gram))] += 1e-12
        solution = scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram), scaled.T @ target)
    return np.asarray(solution / size)


__all__ += ["Hyperplanes", "BoolArray"]
