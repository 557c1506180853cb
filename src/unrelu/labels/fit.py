"""Outputs from the boundary's equations, and Gauss-Newton on distances to the boundary."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.linalg
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, eye_array, hstack
from scipy.sparse.csgraph import connected_components

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.fit import FitConfig
from unrelu.labels.boundary import GROWTH, Crossings
from unrelu.labels.config import EPS, TINY
from unrelu.labels.hyperplanes import BLURRED
from unrelu.labels.model import Model

__all__ = [
    "Fit",
    "class_blocks",
    "fit_model",
    "free_scales",
    "misfits",
    "prune",
    "solve_outputs",
    "superfluous",
]


def free_scales(inside: IntArray, outside: IntArray) -> int:
    """Count the scales that boundaries leave free: the blocks of the graph of neighbours."""
    return int(class_blocks(inside, outside)[1].max(initial=-1)) + 1


def class_blocks(inside: IntArray, outside: IntArray) -> tuple[IntArray, IntArray]:
    """Return the pairs of neighbouring classes ``(e, 2)``, and which block each belongs to.

    A boundary gives the difference of two outputs up to a scale; around a cycle of classes the
    differences add up to zero, which ties their scales. Edges on a common cycle form a block.
    """
    edges = np.unique(np.sort(np.stack([inside, outside], axis=1), axis=1), axis=0)
    if len(edges) == 0:
        return edges, np.empty(0, np.intp)
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
    return edges, np.asarray(connected_components(joined, directed=False)[1], np.intp)


def solve_outputs(
    rows: FloatArray, offsets: FloatArray, at: Crossings, classes: int,
    labelled: tuple[FloatArray, IntArray], blur: float,
) -> Model | None:  # fmt: skip
    """Solve ``F_outside = F_inside`` at all crossings for the outputs, given the hyperplanes.

    Those are known up to angles of about ``blur``: singular values that small are zeros.

    The equations are linear and homogeneous: null vectors solve them, one for each free scale,
    of which ``labelled`` points choose a combination that obeys them.
    """
    k, s = rows.shape
    q = k + s + 1
    flat, size, seen = _equations(rows, offsets, at)
    if len(flat) < flat.shape[1]:
        return None
    _, values, right = np.linalg.svd(flat, full_matrices=False)
    least = free_scales(at.inside, at.outside)
    # More null vectors than scales: weights of units that do not switch beside a class.
    most = max(least, int(np.count_nonzero(values < np.sqrt(q) * blur * values[0])))
    best, agreement = None, -1.0
    for count in _doubling(least, most):
        heads = np.zeros((count, classes, q))
        heads[:, seen[1:]] = right[::-1][:count].reshape(count, -1, q) / size
        head = _obeying(heads, rows, offsets, labelled, at)
        model = _referred(Model(rows, offsets, head[:, :k], head[:, k : k + s], head[:, -1]))
        model = _below(model, np.setdiff1d(np.arange(classes), seen), labelled[0]).normalised()
        share = float((model.labels(labelled[0]) == labelled[1]).mean())
        share += float((np.abs(model.distances(at)) < BLURRED).mean())
        if share > agreement:
            best, agreement = model, share
        if agreement == 2.0:
            break
    return best


def _equations(
    rows: FloatArray, offsets: FloatArray, at: Crossings
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return ``F_outside - F_inside`` at crossings as a matrix on the outputs' unknowns.

    Columns are those of all classes seen but the first, ``(n, (m - 1) q)``, each feature over
    its size ``(q,)``; also those classes.
    """
    features = np.concatenate(
        [np.maximum(at.points @ rows.T + offsets, 0.0), at.points, np.ones((len(at), 1))], axis=1
    )
    size = np.sqrt((features**2).mean(axis=0))
    size = np.where(size > 0, size, 1.0)
    seen, number = np.unique(np.concatenate([at.inside, at.outside]), return_inverse=True)
    inside, outside = number.reshape(2, -1)
    index = np.arange(len(at))
    matrix = np.zeros((len(at), len(seen), features.shape[1]))
    matrix[index, outside] = features / size
    matrix[index, inside] -= features / size
    return matrix[:, 1:].reshape(len(at), -1), size, seen


def superfluous(rows: FloatArray, offsets: FloatArray, at: Crossings) -> BoolArray:
    """Tell which hyperplane the boundary's equations do without, if any, ``(k,)``.

    One that is false, or found twice: without it the equations have null vectors as before.
    Their residual grows manifold without a true one, but for units that are hardly ever on:
    those are found again where the model fails.
    """
    flat, _, _ = _equations(rows, offsets, at)
    dropped = np.zeros(len(rows), dtype=bool)
    if len(flat) < flat.shape[1] or len(rows) == 0:
        return dropped
    gram, count = flat.T @ flat, free_scales(at.inside, at.outside)
    unit = np.arange(flat.shape[1]) % (flat.shape[1] // max(1, len(np.unique(
        np.concatenate([at.inside, at.outside]))) - 1))  # fmt: skip

    def residual(keep: BoolArray) -> float:
        last = [0, min(count, int(keep.sum())) - 1]
        part = gram[np.ix_(keep, keep)]
        return float(scipy.linalg.eigh(part, eigvals_only=True, subset_by_index=last).sum())

    without = np.array([residual(unit != j) for j in range(len(rows))])
    least = residual(np.ones(len(unit), dtype=bool))
    dropped[np.argmin(without)] = without.min() < GROWTH**2 * least
    return dropped


def _doubling(least: int, most: int) -> list[int]:
    """Return numbers from ``least`` to ``most``, each about twice the one before."""
    found = [least]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


def _below(model: Model, unseen: IntArray, y: FloatArray) -> Model:
    """Put classes without a boundary here below the others."""
    shift = model.shift.copy()
    shift[unseen] = -np.abs(model(y)).max(initial=0.0) / EPS**0.25
    return dataclasses.replace(model, shift=shift)


def _referred(model: Model) -> Model:
    """Subtract output 0 from all."""
    return Model(
        model.rows, model.offsets, model.out - model.out[0], model.skip - model.skip[0],
        model.shift - model.shift[0],
    )  # fmt: skip


def _obeying(
    heads: FloatArray, rows: FloatArray, offsets: FloatArray,
    labelled: tuple[FloatArray, IntArray], at: Crossings,
) -> FloatArray:  # fmt: skip
    """Combine null vectors such that labels are obeyed, by hinge losses (a linear program).

    A crossing of two classes is a label as well: all others lie below.
    """
    few = np.linspace(0, len(at) - 1, min(len(at), 2 * len(labelled[0]))).astype(int)
    y = np.concatenate([labelled[0], at.points[few]])
    labels = np.concatenate([labelled[1], at.inside[few]])
    second = np.concatenate([labelled[1], at.outside[few]])
    features = np.concatenate(
        [np.maximum(y @ rows.T + offsets, 0.0), y, np.ones((len(y), 1))], axis=1
    )
    values = np.einsum("nq,jcq->ncj", features, heads)
    margins = values[np.arange(len(y)), labels][:, None, :] - values  # (n, m, j), positive
    classes = np.arange(values.shape[1])
    others = (labels[:, None] != classes) & (second[:, None] != classes)
    lines = margins[others]
    if len(heads) == 1:
        sign = 1.0 if np.median(np.sign(lines[:, 0])) >= 0 else -1.0
        return np.asarray(sign * heads[0])
    lines = lines / np.maximum(np.linalg.norm(lines, axis=1, keepdims=True), TINY)
    n, j = lines.shape
    below: Any = hstack([csr_array(-lines), -eye_array(n)])
    solution = linprog(
        np.concatenate([np.zeros(j), np.ones(n)]),
        A_ub=below, b_ub=np.full(n, -1.0 / len(labelled[0])),
        bounds=[(-1.0, 1.0)] * j + [(0.0, None)] * n,
    )  # fmt: skip
    weights = solution.x[:j] if solution.x is not None else np.ones(j)
    return np.asarray(np.einsum("j,jcq->cq", weights, heads))


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted model; ``misfit`` is the distance of each crossing over its own error."""

    model: Model
    misfit: FloatArray


def fit_model(model: Model, at: Crossings, *, noise: float, within: float) -> Fit:
    """Minimise the crossings' distances to the boundary over all parameters.

    With weights that forget outliers (Cauchy), as a model that lacks a unit is right where that
    does not count. Crossings may be off for want of a better fit only: where many are more than
    ``within`` errors off they have more say for a while, then a full one, if that helps.
    """
    error = _errors(model, at, noise)
    best = Fit(model, misfits(model, at, noise))
    for caps in ((0.5 * within,), (2.0 * within, 0.5 * within), (np.inf,)):
        fit = best
        for outlying in caps:
            fit = _descend(fit.model, at, error, outlying)
        if (fit.misfit > within).sum() <= (best.misfit > within).sum():
            best = fit
        if float((best.misfit > within).mean()) <= BLURRED:
            break
    return best


def misfits(model: Model, at: Crossings, noise: float) -> FloatArray:
    """Return the crossings' distances from a model's boundary over their errors, ``(n,)``."""
    return np.asarray(np.abs(model.distances(at)) / _errors(model, at, noise))


def _errors(model: Model, at: Crossings, noise: float) -> FloatArray:
    """Return the crossings' errors: brackets, or the labels' resolution there.

    Rounding grows with the input, and moves a boundary farther where outputs differ less.
    """
    _, gradient = model.differences(at.points, at.inside, at.outside)
    slope = np.linalg.norm(gradient, axis=1)
    norm = np.linalg.norm(at.points, axis=1)
    farther = np.maximum(1.0, norm / max(float(np.median(norm)), TINY))
    flatter = np.maximum(1.0, np.median(slope) / np.maximum(slope, TINY))
    return np.asarray(np.maximum(at.error, noise * farther * flatter))


def _descend(model: Model, at: Crossings, error: FloatArray, outlying: float) -> Fit:
    """Levenberg-Marquardt; ends where a step gains hardly anything.

    Outputs of zero solve every equation, so that the step along their scale is held at zero.
    """
    damping = EPS**0.25
    for _ in range(FitConfig().steps):
        value, gradient = model.differences(at.points, at.inside, at.outside)
        length = np.linalg.norm(gradient, axis=1)
        if not (length > 0).all():
            break
        misfit = np.abs(value) / (length * error)
        scale = max(1.0, float(np.median(misfit)))
        cap = outlying * scale
        weight = 1.0 / (length * error * np.sqrt(1.0 + (misfit / cap) ** 2))
        system = _System(
            model.jacobian(at.points, at.inside, at.outside) * weight[:, None], -value * weight,
            model.output_vector(),
        )  # fmt: skip
        old, new = _loss(model, at, error, cap), np.inf
        while damping <= len(system.size):  # more than all equations together moves nothing
            trial = model.moved(system.step(damping))
            new = _loss(trial, at, error, cap)
            if new < old:
                break
            damping *= GROWTH
        if not new < old:
            break
        damping, model = max(damping / GROWTH**3, EPS**2), trial
        if old - new < np.cbrt(EPS) * old:
            break
    return Fit(model, np.abs(model.distances(at)) / error)


def _loss(model: Model, at: Crossings, error: FloatArray, cap: float) -> float:
    """Return the sum of squared misfits, less for those beyond ``cap``; infinite if it broke."""
    misfit = model.distances(at) / error
    with np.errstate(over="ignore"):
        loss = misfit**2 if np.isinf(cap) else cap**2 * np.log1p((misfit / cap) ** 2)
    total = float(loss.sum())
    return total if np.isfinite(total) else np.inf


def prune(fit: Fit, at: Crossings, *, noise: float, within: float) -> Fit:
    """Drop units without which all crossings are explained as before.

    Those that stand twice on one hyperplane, then weak ones, weakest first.
    """

    def as_before(trial: Model) -> Fit | None:
        new = fit_model(trial, at, noise=noise, within=within)
        worse = (new.misfit > max(within, float(fit.misfit.max()))).any()
        return None if worse else new

    folded = fit.model.folded(at.points)
    if folded is not fit.model:
        fit = fit_model(folded, at, noise=noise, within=within)
    while fit.model.width > 1:
        first, second, away = fit.model.nearest_pair()
        less = as_before(fit.model.merged(first, second)) if away < BLURRED else None
        if less is None:
            break
        fit = less
    while fit.model.width:
        strength = np.abs(fit.model.out).max(axis=0)
        weakest = np.arange(fit.model.width) == int(np.argmin(strength))
        weak = float(strength.min()) <= BLURRED * float(strength.max())
        less = as_before(fit.model.without(weakest)) if weak else None
        if less is None:
            break
        fit = less
    return fit


class _System:
    """A damped least-squares problem: scaled columns, one direction held."""

    def __init__(self, matrix: FloatArray, target: FloatArray, held: FloatArray) -> None:
        size = np.linalg.norm(matrix, axis=0)
        self.size = np.where(size > 0, size, 1.0)
        scaled = matrix / self.size
        held = held * self.size
        held = held / max(float(np.linalg.norm(held)), TINY)
        # As stiff as all equations together.
        scaled = np.concatenate([scaled, np.sqrt(len(self.size)) * held[None]])
        self.gram = scaled.T @ scaled
        self.right = scaled[:-1].T @ target

    def step(self, damping: float) -> FloatArray:
        """Return the step for a damping, in units of the scaled columns."""
        # Rounding makes a singular matrix slightly indefinite.
        damped = self.gram + max(damping, len(self.size) * EPS) * np.eye(len(self.size))
        solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(damped), self.right)
        return np.asarray(solved / self.size)
