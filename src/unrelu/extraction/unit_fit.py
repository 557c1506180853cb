"""Weighted least squares over everything that values say about units.

While no point changes sides, ``A x + c + sum_j u_j max(0, <w_j, x> + b_j)`` is
linear in A, c, all w_j and all b_j, and bilinear in u_j and w_j: from units that
are nearly right a few Gauss-Newton steps reach the least squares of all answers.
Of each ``u_j`` the largest entry is kept, as a unit's scale is free.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from unrelu._types import BoolArray, FloatArray
from unrelu.core.units import Units

__all__ = ["UnitFitConfig", "fit_size", "fit_units"]

_ROWS = 2048  # points whose Jacobian is in memory at a time


@dataclasses.dataclass(frozen=True)
class UnitFitConfig:
    """Choices of the fit."""

    steps: int = 24
    """Gauss-Newton steps at most."""
    again: float = 0.3
    """A step that lowers the squares by less than this part is near the end: the next one
    uses the same matrix, whose making is nearly all of the work."""
    halvings: int = 4
    """Times a step that does not help is halved."""
    stall: float = 1e-3
    """Relative decrease of the squares at which it ends."""
    trim: float = 9.0
    """Answers that are off by more than this many medians count for less, the more so the
    farther off: those on the wrong side of a hyperplane, and a feature that is not yet found.
    Left out altogether they might never agree: what lies far out has the longest lever."""
    doubt: float = 30.0
    """Deviations by which units may be off at first: holds what no answer determines."""


def fit_size(units: Units) -> int:
    """Return the number of free parameters."""
    m, d = units.linear.shape
    return int(units.count * (d + m) + m * (d + 1))


def _residuals(units: Units, points: FloatArray, answers: FloatArray) -> FloatArray:
    return np.asarray(
        np.concatenate(
            [
                answers[i : i + _ROWS] - units(points[i : i + _ROWS])
                for i in range(0, len(points), _ROWS)
            ]
        )
    )


def _rounding(units: Units, points: FloatArray) -> FloatArray:
    """Return the rounding of each value: of the sizes of all terms that it is summed from.

    A batch's product and a row's differ by as much.
    """
    sizes = np.abs(points)
    largest = sizes @ np.abs(units.weights).T + np.abs(units.biases)
    terms = sizes @ np.abs(units.linear).T + np.abs(units.constant)
    terms += largest @ np.abs(units.outputs).T
    return np.asarray(np.finfo(np.float64).eps * terms)


_Entries = tuple[NDArray[np.intp], NDArray[np.intp]]


def _free_outputs(units: Units) -> _Entries:
    """Return (output, unit) of every entry of u that is fitted."""
    free = np.ones(units.outputs.shape, dtype=bool)
    free[np.abs(units.outputs).argmax(axis=0), np.arange(units.count)] = False
    rows, columns = np.nonzero(free)
    return rows, columns


def _jacobian(units: Units, free: _Entries, points: FloatArray) -> FloatArray:
    """Differentiate the values, ``(n, m, size)``: by (A, c), then (w, b) by unit, then u."""
    n, (m, d), k = len(points), units.linear.shape, units.count
    extended = np.concatenate([points, np.ones((n, 1))], axis=1)
    z = units.preactivations(points)
    out = np.zeros((n, m, m + k, d + 1))
    for i in range(m):
        out[:, i, i] = extended
        gate = np.where(z > 0, units.outputs[i], 0.0)
        np.multiply(gate[:, :, None], extended[:, None, :], out=out[:, i, m:])
    flat = out.reshape(n, m, -1)
    rows, columns = free
    if len(rows) == 0:
        return flat
    tail = np.zeros((n, m, len(rows)))
    tail[:, rows, np.arange(len(rows))] = np.maximum(z[:, columns], 0.0)
    return np.concatenate([flat, tail], axis=2)


def _rows(
    units: Units, free: _Entries, points: FloatArray, scale: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the weighted Jacobian, ``(rows, size)``, a part of the points at a time."""
    step = max(1, _ROWS // len(units.outputs))
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        rows = _jacobian(units, free, points[part])
        rows *= scale[part][:, :, None]
        yield part, rows.reshape(-1, rows.shape[2])


def _matrix(units: Units, free: _Entries, points: FloatArray, scale: FloatArray) -> FloatArray:
    """Return ``J^T J``; ``scale`` is one over each answer's deviation."""
    size = fit_size(units)
    matrix = np.zeros((size, size))
    for _, rows in _rows(units, free, points, scale):
        matrix += scipy.linalg.blas.dsyrk(1.0, rows.T)
    return np.asarray(matrix + np.triu(matrix, 1).T)


def _right(
    units: Units, free: _Entries, points: FloatArray, rest: FloatArray, scale: FloatArray
) -> FloatArray:
    """Return ``J^T r``."""
    right = np.zeros(fit_size(units))
    for part, rows in _rows(units, free, points, scale):
        right += rows.T @ (rest[part] * scale[part]).ravel()
    return right


def _prior(
    units: Units, free: _Entries, covariance: FloatArray, config: UnitFitConfig
) -> FloatArray:
    """Return one over the variance that each parameter may have at first, ``(size,)``."""
    m, d = units.linear.shape
    variance = config.doubt**2 * np.maximum(np.diagonal(covariance), 0.0)
    centres = np.concatenate([np.tile(units.base, (m, 1)), units.anchors])
    reach = np.sqrt(d + (centres**2).sum(axis=1))
    first = np.repeat(variance[:, None], d + 1, axis=1)
    first[:, -1] *= reach**2
    length = np.maximum(np.linalg.norm(units.weights, axis=1), np.finfo(np.float64).tiny)
    loud = np.abs(units.outputs).max(axis=0)
    outputs = d * variance[m:] * (loud / length) ** 2
    all_of_it = np.concatenate([first.ravel(), outputs[free[1]]])
    return np.asarray(1.0 / np.maximum(all_of_it, np.finfo(np.float64).tiny))


def _moved(units: Units, free: _Entries, step: FloatArray) -> Units:
    """Return the units after a step of all parameters."""
    (m, d), k = units.linear.shape, units.count
    head = step[: (m + k) * (d + 1)].reshape(m + k, d + 1)
    constant = units.constant + head[:m, -1]
    biases = units.biases + head[m:, -1]
    weights = units.weights + head[m:, :-1]
    outputs = units.outputs.copy()
    outputs[free] += step[(m + k) * (d + 1) :]
    square = np.maximum((weights**2).sum(axis=1), np.finfo(np.float64).tiny)
    off = np.einsum("kd,kd->k", weights, units.anchors) + biases
    linear = units.linear + head[:m, :-1]
    active = np.maximum(weights @ units.base + biases, 0.0)
    return dataclasses.replace(
        units,
        weights=weights,
        anchors=units.anchors - (off / square)[:, None] * weights,
        outputs=outputs,
        linear=linear,
        value=constant + linear @ units.base + outputs @ active,
    )


def _per_entry(units: Units, inverse: FloatArray) -> FloatArray:
    """Return the covariance of an entry of (A, w_1, ..., w_k), ``(m + k, m + k)``.

    The mean over the inputs' coordinates; an error of a bias counts as if it were spread
    over them.
    """
    (m, d), k = units.linear.shape, units.count
    size = (m + k) * (d + 1)
    blocks = inverse[:size, :size].reshape(m + k, d + 1, m + k, d + 1)
    return np.asarray(np.einsum("sltl->st", blocks) / d)


def _without_skip(units: Units) -> Units:
    """Set A to zero; c stays."""
    constant = units.constant
    active = np.maximum(units.weights @ units.base + units.biases, 0.0)
    linear = np.zeros_like(units.linear)
    return dataclasses.replace(units, linear=linear, value=constant + units.outputs @ active)


def _fitted(units: Units, skip: bool) -> BoolArray:
    """Return which parameters are fitted, ``(size,)``."""
    m, d = units.linear.shape
    fitted = np.ones(fit_size(units), dtype=bool)
    if not skip:
        fitted[: m * (d + 1)].reshape(m, d + 1)[:, :d] = False
    return fitted


class _Solver:
    """Solves for a step, zero where nothing is fitted."""

    def __init__(
        self, matrix: FloatArray, noise: float, prior: FloatArray, fitted: NDArray[np.intp]
    ) -> None:
        self.noise = noise  # variance of an answer, in its supposed deviations
        self._fitted, self._prior = fitted, prior
        chosen = matrix[np.ix_(fitted, fitted)] / noise
        chosen[np.diag_indices(len(fitted))] += prior[fitted]
        # Columns of a common length: inputs and outputs may differ by orders of magnitude.
        self._length = np.sqrt(np.diagonal(chosen))
        chosen /= np.outer(self._length, self._length)
        self._factor = scipy.linalg.cho_factor(chosen, lower=True, check_finite=False)

    def __call__(self, right: FloatArray, moved: FloatArray) -> FloatArray:
        """Return the step for ``J^T r``, where the parameters have moved already."""
        step, chosen = np.zeros(len(self._prior)), self._fitted
        pull = (right / self.noise - self._prior * moved)[chosen]
        step[chosen] = scipy.linalg.cho_solve(self._factor, pull / self._length) / self._length
        return step

    def covariance(self) -> FloatArray:
        """Return the covariance of all parameters, ``(size, size)``."""
        inverse = np.zeros((len(self._prior), len(self._prior)))
        part = scipy.linalg.cho_solve(self._factor, np.eye(len(self._fitted)))
        part /= np.outer(self._length, self._length)
        inverse[np.ix_(self._fitted, self._fitted)] = part
        return inverse


def fit_units(
    units: Units,
    covariance: FloatArray,
    points: FloatArray,
    answers: FloatArray,
    deviations: FloatArray,
    *,
    skip: bool = True,
    config: UnitFitConfig | None = None,
) -> tuple[Units, FloatArray] | None:
    """Fit units to answers ``(n, m)`` of known relative precision.

    Parameters
    ----------
    skip
        False: A is zero, and stays so.
    covariance
        Of (A, w_1, ..., w_k) as known before, ``(m + k, m + k)``.
    deviations
        Standard deviation of each answer up to a common factor, ``(n, m)``.

    Returns
    -------
    units, covariance
        The covariance is scaled by what the answers are off by in the end. None
        where the answers are too few, or no step helped.
    """
    config = UnitFitConfig() if config is None else config
    size = fit_size(units)
    if answers.size < 1.5 * size:
        return None
    precision = 1.0 / deviations
    free = _free_outputs(units)
    prior = _prior(units, free, covariance, config)
    if not skip:
        units = _without_skip(units)
    fitted = np.flatnonzero(_fitted(units, skip))
    moved = np.zeros(size)  # what was added to the parameters until now
    solver: _Solver | None = None
    again = True
    variance = 1.0
    rounding = _rounding(units, points)
    for _ in range(config.steps):
        rest = _residuals(units, points, answers)
        # Where most answers are exact (those of a network that is off there), what is left
        # tells their rounding and no deviation: nothing to fit, or to scale by.
        if np.median(np.abs(rest) - rounding) <= 0.0:
            break
        off = np.abs(rest * precision)
        usual = config.trim * float(np.median(off))
        scale = precision * (usual / np.maximum(off, usual))
        square = float(np.sum((rest * scale) ** 2))
        variance = float(np.median(off) / 0.6745) ** 2 * answers.size / (answers.size - size)
        if solver is None or again:
            matrix = _matrix(units, free, points, scale)
            try:
                solver = _Solver(matrix, variance, prior, fitted)
            except np.linalg.LinAlgError:
                break
        step = solver(_right(units, free, points, rest, scale), moved)
        for _ in range(config.halvings + 1):
            trial = _moved(units, free, step)
            after = float(np.sum((_residuals(trial, points, answers) * scale) ** 2))
            if after < square:
                break
            step = 0.5 * step
        else:
            break
        units, moved = trial, moved + step
        again = square - after > config.again * square
        if square - after <= config.stall * square:
            break
    if solver is None or not moved.any():
        return None
    entries = _per_entry(units, solver.covariance() * (variance / solver.noise))
    # What the answers hardly see is as well known as before.
    found = np.maximum(np.diagonal(entries), np.finfo(np.float64).tiny)
    ratio = np.diagonal(covariance) / found
    known = np.sqrt(np.clip(ratio, 0.0, 1.0))
    return units, entries * np.outer(known, known)
