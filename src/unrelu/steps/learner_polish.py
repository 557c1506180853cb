"""Levenberg-Marquardt over all units of a scalar function, on Gaussian samples.

Where answers are noisy, the line search leaves errors that more samples average
out. In ``|z|`` form with a free affine part (``u relu(z) = u |z| / 2 + u z / 2``)
the model is linear in every parameter while no sample changes sides, so a step
solves the whole problem at once near the solution.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.kernels.piecewise import Kinks, damped_step, normal_equations, residuals
from unrelu.kernels.units import Units

__all__ = ["PolishConfig", "band_points", "in_band", "kinks_from", "polish_units", "units_from"]


@dataclasses.dataclass(frozen=True)
class PolishConfig:
    """Choices of the polish."""

    steps: int = 25
    """Accepted steps at most; from a good start a handful suffice."""
    attempts: int = 14
    """Dampings tried per step, each four times the last: 4^14 reaches any trust region."""
    damping: float = 1e-6
    """First damping, relative to the diagonal."""
    stall: float = 1e-4
    """Relative decrease of the squares below which it ends."""
    trim: float = 9.0
    """Samples whose residual exceeds this many medians are left out: a bump not yet found
    must not bend everything else. Gaussian noise exceeds 6 deviations one time in 1e9."""
    parameters: int = 4500
    """Above this many parameters a step costs too much memory and time; nothing is done."""


def kinks_from(units: Units) -> Kinks:
    """Write scalar units in ``|z|`` form."""
    out = units.outputs[0]
    rows = np.column_stack([units.weights, units.biases])
    half = 0.5 * out[:, None] * rows
    affine = np.append(units.linear[0], units.constant[0]) + half.sum(axis=0)
    sign = np.where(out < 0, -1.0, 1.0)
    return Kinks(sign[:, None] * half, sign, affine, "abs")


def units_from(model: Kinks) -> Units:
    """Write ``|z|`` form as units: ``s |z| = 2 s relu(z) - s z``."""
    assert model.affine is not None
    rows = model.u
    square = np.einsum("kd,kd->k", rows[:, :-1], rows[:, :-1])
    some = square > 0
    # A row without weights is a constant.
    flat = float((model.sign * np.abs(rows[:, -1]))[~some].sum())
    rows, sign = rows[some], model.sign[some]
    affine = model.affine - sign @ rows
    weights, biases = 2.0 * rows[:, :-1], 2.0 * rows[:, -1]
    anchors = -(rows[:, -1] / square[some])[:, None] * rows[:, :-1]
    base = np.zeros(weights.shape[1])
    value = affine[-1] + flat + sign @ np.maximum(biases, 0.0)
    return Units(weights, anchors, sign[None, :], affine[None, :-1], base, np.array([value]))


def polish_units(
    units: Units,
    x: FloatArray,
    y: FloatArray,
    *,
    keep: BoolArray | None = None,
    config: PolishConfig | None = None,
) -> Units:
    """Fit all units to samples ``(n, d)``, ``(n, 1)``; outliers are trimmed.

    Parameters
    ----------
    keep
        Samples that are never trimmed, ``(n,)``.

    Returns
    -------
    Units
        Those with the least trimmed squares seen; the same object where no
        step helped, or the problem is too large.
    """
    config = PolishConfig() if config is None else config
    size = (units.count + 1) * (x.shape[1] + 1)
    if units.outputs.shape[0] != 1 or size > config.parameters or len(x) < size:
        return units
    model = kinks_from(units)
    answers = y[:, 0]
    damping = config.damping
    improved = False
    for _ in range(config.steps):
        error = np.abs(residuals(model, x, answers))
        inside = error <= config.trim * float(np.median(error))
        if keep is not None:
            inside |= keep
        if np.count_nonzero(inside) < size:
            inside[:] = True
        xs, ys = x[inside], answers[inside]
        equations = normal_equations(model, xs, ys)
        before = equations.square
        moved = None
        for _ in range(config.attempts):
            trial = model.moved(damped_step(equations, damping))
            square = float(np.sum(residuals(trial, xs, ys) ** 2))
            if square < before:
                moved = trial
                damping = max(0.1 * damping, 1e-12)
                break
            damping *= 4.0
        if moved is None:
            break
        model, improved = moved, True
        if before - square <= config.stall * before:
            break
    return units_from(model) if improved else units


def _bands(units: Units, direction: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return unit normals, offsets and half-widths of the bands around units found on a line."""
    norms = np.maximum(np.linalg.norm(units.weights, axis=1), np.finfo(np.float64).tiny)
    normals = units.weights / norms[:, None]
    offsets = units.biases / norms
    along = np.sort((units.anchors - units.anchors[0]) @ direction)
    place = (units.anchors - units.anchors[0]) @ direction
    half = np.ones(units.count)
    if units.count > 1:
        gaps = np.diff(along)
        nearest = np.minimum(np.append(gaps, np.inf), np.append(np.inf, gaps))
        gap = nearest[np.searchsorted(along, place)]
        half = np.minimum(1.0, gap * np.abs(normals @ direction))
    return normals, offsets, half


def band_points(
    units: Units, direction: FloatArray, each: int, rng: np.random.Generator
) -> FloatArray:
    """Draw Gaussian points close to the hyperplanes of units found on a line.

    Samples that tell a thin feature's shape: plain Gaussian ones seldom meet it.
    """
    normals, offsets, half = _bands(units, direction)
    blocks = []
    for n, b, h in zip(normals, offsets, half, strict=True):
        x = rng.standard_normal((each, len(n)))
        z = h * rng.uniform(-2.0, 2.0, size=each)
        blocks.append(x + np.outer(z - x @ n - b, n))
    return np.concatenate(blocks)


def in_band(units: Units, direction: FloatArray, points: FloatArray) -> BoolArray:
    """Which points lie close to one of the hyperplanes, ``(n,)``."""
    normals, offsets, half = _bands(units, direction)
    return np.asarray((np.abs(points @ normals.T + offsets) <= 3.0 * half).any(axis=1))
