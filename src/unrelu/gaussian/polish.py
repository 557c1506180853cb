"""From a moment estimate to the samples' own limit.

Levenberg-Marquardt on a subsample in ``|z|`` form, units added where the
residual still has structure, units dropped that the samples do not need, rare
units read off the few samples that only they explain, orientations last.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Literal

import numpy as np
import scipy.stats

from unrelu._types import BoolArray, FloatArray
from unrelu.core.decompose import propose_units
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.explain import EXACT
from unrelu.core.noise import RARE
from unrelu.core.piecewise import (
    Kinks,
    NormalEquations,
    damped_step,
    normal_equations,
    residuals,
)
from unrelu.core.signs import SignPatterns, sign_patterns

__all__ = [
    "KinkFit",
    "drop_needless_units",
    "fit_kinks",
    "grow_and_prune",
    "kinks_from_units",
    "linear_fit",
    "merge_coincident",
    "orient",
    "random_kinks",
    "without_undetermined",
]


TRIM = RARE / float(scipy.stats.norm.ppf(0.75))
"""Median magnitudes beyond which a residual is an outlier."""
STALL = EXACT
"""Relative decrease of the sum of squares below which a fit stops: a good one falls tenfold a
step, and a noisy one is finished on all samples."""


@dataclasses.dataclass(frozen=True)
class KinkFit:
    """A model, its residual's root mean square, and what it took.

    Attributes
    ----------
    model
        The kinks.
    rms
        Over the rows it was fitted to.
    steps
        Accepted Levenberg-Marquardt steps.
    equations
        Normal equations at ``model``.
    """

    model: Kinks
    rms: float
    steps: int
    equations: NormalEquations


def kinks_from_units(
    w: FloatArray,
    a: FloatArray,
    b: FloatArray,
    affine: FloatArray | None,
    kind: Literal["abs", "relu"] = "abs",
) -> Kinks:
    """Write units ``a relu(w.x + b)`` as kinks; "abs" halves the weights."""
    scale = np.abs(a) * (0.5 if kind == "abs" else 1.0)
    u = scale[:, None] * np.concatenate([w, b[:, None]], axis=1)
    return Kinks(u, np.where(a < 0.0, -1.0, 1.0), affine, kind)


# --------------------------------------------------------------------- fits


def linear_fit(model: Kinks, x: FloatArray, y: FloatArray) -> Kinks:
    """Refit every outer weight and the affine part, directions and biases fixed.

    A linear least-squares problem; it also corrects a weight's sign.
    """
    m, d = len(model.u), x.shape[1]
    length = np.linalg.norm(model.u[:, :-1], axis=1)
    u = model.u / np.where(length > 0.0, length, 1.0)[:, None]
    gram = np.zeros((m + d + 1, m + d + 1))
    right = np.zeros(m + d + 1)
    for start in range(0, len(x), 8192):
        points = x[start : start + 8192]
        kinks = np.abs(points @ u[:, :-1].T + u[:, -1])
        features = np.concatenate([kinks, points, np.ones((len(points), 1))], axis=1)
        gram += features.T @ features
        right += features.T @ y[start : start + 8192]
    # The ridge, at rounding level, decides between units that are the same.
    gram[np.diag_indices_from(gram)] += 1e-12 * max(float(np.trace(gram)), 1e-300) / len(gram)
    solution = np.linalg.solve(gram, right)
    # A weight of exactly zero would leave its unit without a direction.
    weight = np.where(np.abs(solution[:m]) > 1e-8, solution[:m], 1e-8)
    sign = np.where(weight < 0.0, -1.0, 1.0)
    return Kinks(np.abs(weight)[:, None] * u, sign, solution[m:], "abs")


def fit_kinks(model: Kinks, x: FloatArray, y: FloatArray, options: PolishOptions) -> KinkFit:
    """Levenberg-Marquardt from ``model`` on in-memory samples."""
    scale = float(np.var(y)) * len(y)
    if scale == 0.0:
        scale = 1.0
    equations = normal_equations(model, x, y)
    damping, steps = 1e-2, 0
    for _ in range(options.steps):
        if equations.square <= 1e-28 * scale:
            break
        improved = False
        for _ in range(8):
            trial = model.moved(damped_step(equations, damping))
            left = residuals(trial, x, y)
            square = float(left @ left)
            if square < equations.square:
                improved = True
                break
            damping *= 5.0
        if not improved:
            break
        decrease = equations.square - square
        model, steps = trial, steps + 1
        damping = max(damping * 0.1, 1e-14)
        previous = equations.square
        equations = normal_equations(model, x, y)
        if decrease <= STALL * previous:
            break
    return KinkFit(model, float(np.sqrt(equations.square / max(len(y), 1))), steps, equations)


def unit_importance(fit: KinkFit) -> FloatArray:
    """Increase of the sum of squares if a unit were dropped, to second order.

    Dropping unit i is the move ``-u_i``; the other parameters adjust, so the
    increase is ``u_i^T ((J^T J)^{-1}_ii)^{-1} u_i``. Shape ``(m,)``.
    """
    m, width = fit.model.u.shape
    matrix = fit.equations.matrix
    values, vectors = np.linalg.eigh(matrix)
    floor = 1e-13 * max(float(values[-1]), 1e-300)
    half = vectors / np.sqrt(np.maximum(values, floor))
    out = np.empty(m)
    for i in range(m):
        block = half[i * width : (i + 1) * width]
        covariance = block @ block.T
        u = fit.model.u[i]
        out[i] = float(u @ np.linalg.lstsq(covariance, u, rcond=1e-14)[0])
    return out


def merge_coincident(model: Kinks) -> Kinks:
    """Add up units with the same kink; drop those whose weights cancel.

    Those are equal whose (direction, bias), up to sign, differ by no more than the square
    root of rounding, as far as a fit can tell two kinks apart.
    """
    length = np.linalg.norm(model.u[:, :-1], axis=1)
    length = np.where(length > 0.0, length, 1.0)
    plane = model.u / length[:, None]
    weight = model.sign * length
    same = float(np.sqrt(np.finfo(np.float64).eps))
    kept: list[int] = []
    for i in range(len(plane)):
        for j in kept:
            gap = min(np.linalg.norm(plane[i] - plane[j]), np.linalg.norm(plane[i] + plane[j]))
            if gap <= same * (1.0 + abs(plane[i, -1])):
                weight[j] += weight[i]
                break
        else:
            kept.append(i)
    chosen = [j for j in kept if abs(weight[j]) > 1e-6 * length[j]]
    u = np.abs(weight[chosen])[:, None] * plane[chosen]
    sign = np.where(weight[chosen] < 0.0, -1.0, 1.0)
    return dataclasses.replace(model, u=u.reshape(-1, model.u.shape[1]), sign=sign)


def drop_needless_units(
    fit: KinkFit, x: FloatArray, y: FloatArray, options: PolishOptions, *, at_least: int = 0
) -> KinkFit:
    """Drop units one by one while the samples do not miss them.

    A unit goes if its share of the sum of squares is below rounding in an exact
    fit, or below ``(d + 1) log n`` residual variances (Schwarz's criterion) in
    a noisy one, and the fit without it confirms this.
    """
    scale = float(np.std(y)) or 1.0
    merged = merge_coincident(fit.model) if fit.model.kind == "abs" else fit.model
    if at_least <= len(merged.u) < len(fit.model.u):
        trial = fit_kinks(linear_fit(merged, x, y), x, y, options)
        if trial.rms <= max(1.001 * fit.rms, options.exact * scale):
            fit = trial
    while len(fit.model.u) > at_least:
        importance = unit_importance(fit)
        n, width = len(y), fit.model.u.shape[1]
        free = max(n - fit.equations.matrix.shape[0], 1)
        variance = fit.rms**2 * n / free
        exact = fit.rms <= options.exact * scale
        bar = n * (10.0 * options.exact * scale) ** 2 if exact else width * np.log(n) * variance
        weakest = int(np.argmin(importance))
        # The importance itself is only known to 1e-9 of the squares involved.
        size = max(scale, float(np.linalg.norm(fit.model.u[weakest])))
        if importance[weakest] > max(2.0 * bar, 1e-9 * n * size**2):
            return fit
        keep = np.arange(len(importance)) != weakest
        smaller = dataclasses.replace(fit.model, u=fit.model.u[keep], sign=fit.model.sign[keep])
        trial = fit_kinks(smaller, x, y, options)
        increase = trial.equations.square - fit.equations.square
        if increase > bar:
            return fit
        fit = trial
    return fit


def without_undetermined(model: Kinks, x: FloatArray) -> tuple[Kinks, BoolArray]:
    """Drop units beyond whose kink there are too few samples to determine them.

    Fewer than d + 3 samples may be met by a wrong unit: d + 1 numbers are free, and
    nothing confirms them. What such a unit adds elsewhere is affine, and is kept.

    Returns
    -------
    The model (in "abs" form), and which rows lie on no dropped unit's rare side.
    """
    z = x @ model.u[:, :-1].T + model.u[:, -1]
    positive = np.count_nonzero(z > 0.0, axis=0)
    rare = np.minimum(positive, len(x) - positive) < x.shape[1] + 3
    if not rare.any() or model.affine is None:
        return model, np.ones(len(x), dtype=np.bool_)
    side = np.where(2 * positive[rare] > len(x), 1.0, -1.0)
    ordinary = ((z[:, rare] > 0.0) == (side > 0.0)).all(axis=1)
    return (
        dataclasses.replace(
            model,
            u=model.u[~rare],
            sign=model.sign[~rare],
            affine=model.affine + (side * model.sign[rare]) @ model.u[rare],
        ),
        ordinary,
    )


def grow_and_prune(
    model: Kinks,
    x: FloatArray,
    y: FloatArray,
    rng: np.random.Generator,
    options: PolishOptions,
    *,
    width: int | None,
    limit: int,
) -> tuple[KinkFit, BoolArray, list[str]]:
    """Polish; add what the residual shows, drop what is not needed.

    Parameters
    ----------
    model
        Start.
    x, y
        Training rows in memory.
    width
        The number of units if the caller knows it.
    limit
        Never more units than this.

    Returns
    -------
    The best fit, the rows it fits (rows that no unit found so far explains are
    left out if the rest is then fitted exactly), and notes for the report.
    """
    scale = float(np.std(y)) or 1.0
    notes: list[str] = []
    fit = fit_kinks(model, x, y, options)
    inliers = np.ones(len(x), dtype=np.bool_)
    best = fit
    for turn in itertools.count():
        if fit.rms <= options.exact * scale:
            break
        trimmed = _trimmed_fit(fit, x, y, options)
        if trimmed is not None:
            fit, inliers = trimmed
            notes.append(f"{np.count_nonzero(~inliers)} rows set aside as unexplained")
            best = fit
            break
        have = len(fit.model.u)
        room = limit - have
        missing = 0 if width is None else max(width - have, 0)
        left = residuals(fit.model, x, y)
        w, a, b = propose_units(
            x, left, rng, options, at_least=missing, at_most=min(max(room, 0), max(8, limit // 4))
        )
        if len(w) == 0:
            break
        extra = kinks_from_units(w, a, b, None)
        grown = dataclasses.replace(
            fit.model,
            u=np.concatenate([fit.model.u, extra.u]),
            sign=np.concatenate([fit.model.sign, extra.sign]),
        )
        fit = fit_kinks(linear_fit(grown, x, y), x, y, options)
        notes.append(f"round {turn + 1}: {len(w)} units added, rms {fit.rms / scale:.1e}")
        fit = drop_needless_units(fit, x, y, options, at_least=width or 0)
        if fit.rms < 0.97 * best.rms or (
            fit.rms <= best.rms * (1 + 1e-3) and len(fit.model.u) < len(best.model.u)
        ):
            best = fit
        else:
            break
    best = drop_needless_units(best, x[inliers], y[inliers], options)
    return best, inliers, notes


def _trimmed_fit(
    fit: KinkFit, x: FloatArray, y: FloatArray, options: PolishOptions
) -> tuple[KinkFit, BoolArray] | None:
    """Refit without the outliers; None unless the rest is then fitted exactly."""
    scale = float(np.std(y)) or 1.0
    for _ in range(12):
        left = np.abs(residuals(fit.model, x, y))
        bar = max(TRIM * float(np.median(left)), options.exact * scale)
        kept = left <= bar
        # More than one row in a hundred is the business of an ordinary unit.
        if np.count_nonzero(kept) < 0.99 * len(x) or np.count_nonzero(~kept) == 0:
            return None
        before = fit.rms
        fit = fit_kinks(fit.model, x[kept], y[kept], options)
        if fit.rms <= options.exact * scale:
            left = np.abs(residuals(fit.model, x, y))
            return fit, left <= options.met * scale
        if fit.rms > 0.9 * before:
            return None
    return None


# ------------------------------------------------------------- orientations

_ORIENTATIONS = 64
"""Sign patterns that are tried on the samples, the best first."""


def orient(model: Kinks) -> SignPatterns:
    """Orientations that absorb the affine part (Algorithm 3, all units at once).

    ``s |u.x| = 2 s relu(xi u.x) - s xi u.x``: the affine part left over is
    ``v - sum_i xi_i s_i u_i``.
    """
    assert model.affine is not None
    return sign_patterns((model.sign[:, None] * model.u).T, model.affine, keep=_ORIENTATIONS)


def random_kinks(count: int, d: int, scale: float, rng: np.random.Generator) -> Kinks:
    """Random units, for multistart: directions uniform, biases in [-1, 1]."""
    w = rng.standard_normal((count, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    a = rng.choice([-1.0, 1.0], count) * scale / np.sqrt(count)
    return kinks_from_units(w, a, rng.uniform(-1.0, 1.0, count), np.zeros(d + 1))
