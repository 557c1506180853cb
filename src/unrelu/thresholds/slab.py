"""Statistics of the labels in a thin slab around an estimated hyperplane.

The label is 1 where ``w* . x > t*``. In the slab ``|z . x - t| < eps`` around an
estimate (z, t) the true boundary is the graph ``s = delta + a . v`` over the
coordinates v along the hyperplane, s being the height ``z . x - t``. All that
the labels tell about ``delta`` and ``a`` is in how they differ from the
estimate's own labels.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray

__all__ = [
    "SlabStep",
    "estimate_tan_alpha",
    "fit_tan_alpha",
    "slab_step",
    "slab_weights",
    "tangent_basis",
]


LEVELS = (0.4, 0.6)
"""Rates of EstimateTanAlpha, as in the paper."""


@dataclasses.dataclass(frozen=True)
class SlabStep:
    """One Newton step on a hyperplane.

    Attributes
    ----------
    direction, threshold
        The moved hyperplane; ``direction`` is a unit vector ``(n,)``.
    angle, shift
        How far it moved, in radians and in threshold.
    error
        Standard error of the move, in radians (root mean square over seeds).
    jump
        P(label 1 | above) - P(label 1 | below), before the move: 1 for exact
        labels and an exact hyperplane.
    count
        Points in the slab.
    """

    direction: FloatArray
    threshold: float
    angle: float
    shift: float
    error: float
    jump: float
    count: int


def tangent_basis(direction: FloatArray) -> FloatArray:
    """Return an orthonormal basis ``(n, n - 1)`` of a unit vector's complement.

    Columns of the Householder reflection that maps the vector to an axis.
    """
    n = len(direction)
    pivot = int(np.argmax(np.abs(direction)))
    axis = np.zeros(n)
    axis[pivot] = -1.0 if direction[pivot] > 0 else 1.0
    v = direction - axis
    reflection = np.eye(n) - 2.0 * np.outer(v, v) / (v @ v)
    return np.ascontiguousarray(np.delete(reflection, pivot, axis=1))


def slab_weights(height: FloatArray, threshold: float) -> FloatArray:
    """Return ``phi(t) / phi(t + s)``: under these weights the height is uniform."""
    return np.asarray(np.exp(height * (threshold + 0.5 * height)))


def slab_step(
    x: FloatArray,
    labels: BoolArray,
    direction: FloatArray,
    threshold: float,
    width: float,
    *,
    weights: FloatArray | None = None,
    move_threshold: bool = True,
) -> SlabStep | None:
    """Move a hyperplane towards the labels' boundary.

    With r = label - 1[s > 0] and the regressors A = (1, v)::

        E[r A] = -(1 / 2 eps) E[A A'] (delta, a)

    exactly to first order, whatever the distribution of v, so one least-squares
    solve gives the move. r vanishes except between the two hyperplanes: the
    variance falls with the error itself, and the estimate reaches an error of
    order n / (samples per unit height) instead of its square root.

    Parameters
    ----------
    x
        Points of the slab ``|direction . x - threshold| < width``, ``(m, n)``.
    labels
        ``(m,)``.
    weights
        Weights under which the height is uniform; by default those of a
        Gaussian input.
    move_threshold
        False where the threshold is known.

    Returns
    -------
    The step, or None where fewer points than unknowns are in the slab.
    """
    m, n = x.shape
    if m < 2 * (n + 1):
        return None
    height = x @ direction - threshold
    basis = tangent_basis(direction)
    along = x @ basis
    omega = slab_weights(height, threshold) if weights is None else weights
    total = float(omega.sum())
    above = height > 0
    residual = labels.astype(np.float64) - above
    regressors = np.column_stack([np.ones(m), along]) if move_threshold else along
    weighted = regressors * omega[:, None]
    gram = weighted.T @ regressors / total
    moment = weighted.T @ residual / total
    # The sandwich: covariance of `moment` is that of the wedge's points alone.
    active = np.flatnonzero(residual)
    scores = weighted[active] * residual[active, None]
    covariance = scores.T @ scores / total**2
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:
        return None
    move = -2.0 * width * (inverse @ moment)
    spread = 4.0 * width**2 * (inverse @ covariance @ inverse)
    delta = float(move[0]) if move_threshold else 0.0
    slopes = move[1:] if move_threshold else move
    variances = np.diag(spread)[1:] if move_threshold else np.diag(spread)
    normal = direction - basis @ slopes
    length = float(np.linalg.norm(normal))
    up, down = omega[above].sum(), omega[~above].sum()
    rate_up = float(omega[above] @ labels[above]) / up if up > 0 else 0.0
    rate_down = float(omega[~above] @ labels[~above]) / down if down > 0 else 0.0
    return SlabStep(
        direction=np.asarray(normal / length),
        threshold=(threshold + delta) / length if move_threshold else threshold,
        angle=float(np.arctan(np.linalg.norm(slopes))),
        shift=delta,
        error=float(np.sqrt(max(variances.sum(), 0.0))),
        jump=rate_up - rate_down,
        count=m,
    )


def estimate_tan_alpha(
    projection: FloatArray,
    labels: BoolArray,
    *,
    width: float,
) -> tuple[float, float] | None:
    """EstimateTanAlpha (Lemmas 3-6): tan of the angle to the true direction.

    Finds t1 and t2, where the rate of label 1 on the slab ``z . x in [s - width, s]``
    reaches two levels, and returns::

        tan(alpha) ~ (t2 - t1) / (Phi^-1(0.6) - Phi^-1(0.4)),   (t1 + t2) / 2

    The second is the height at which the rate is one half, ``t / cos(alpha)``.
    None where the rate never passes the upper one: no unit points this way.

    Parameters
    ----------
    projection
        ``z . x``, ``(m,)``.
    width
        Height of a slab; the result is blind below it.
    """
    if len(projection) == 0:
        return None
    base = float(projection.min())
    # Only bins that hold a point: an input far out would ask for any number of them.
    bins, index, counts = np.unique(
        np.floor((projection - base) / width), return_inverse=True, return_counts=True
    )
    hits = np.bincount(index, weights=labels)
    usable = counts >= 20  # a rate from fewer has a standard error above 0.11
    centres = base + (bins[usable] + 0.5) * width
    rates = hits[usable] / counts[usable]
    if len(rates) < 2:
        return None
    # Rates rise up to noise: the last bin below a level, then interpolation.
    positions = []
    for level in LEVELS:
        below = np.flatnonzero(rates < level)
        if len(below) == 0 or below[-1] + 1 >= len(rates):
            return None
        i = below[-1]
        rise = rates[i + 1] - rates[i]
        positions.append(centres[i] + width * (level - rates[i]) / rise)
    scale = float(np.diff(scipy.special.ndtri(LEVELS))[0])
    tangent = max(positions[1] - positions[0], 0.0) / scale
    return float(tangent), float(0.5 * (positions[0] + positions[1]))


def fit_tan_alpha(
    heights: FloatArray, labels: BoolArray, *, start: float
) -> tuple[float, float] | None:
    """EstimateTanAlpha from all labels at once: the likelihood's maximum.

    By Lemma 4 the rate at height s is ``Phi((s - c) / tan(alpha))``, c = t / cos(alpha), so
    (t2 - t1) / (Phi^-1(0.6) - Phi^-1(0.4)) is tan(alpha) wherever t1 and t2 are read. A fit
    of c and tan(alpha) by Fisher scoring uses every point instead of those near 0.4 and 0.6:
    a tenth of the noise. For labels that one unit alone decides.

    Parameters
    ----------
    heights
        ``z . x``, ``(m,)``, spread evenly over the rise of the rate.
    start
        tan(alpha) expected, a scale.

    Returns
    -------
    tan(alpha) and c, or None where the labels show no rise.
    """
    if labels.all() or not labels.any():
        return None
    y = labels.astype(np.float64)
    slope, offset = 1.0 / start, -float(heights.mean()) / start
    for _ in range(50):
        eta = np.clip(slope * heights + offset, -6.0, 6.0)
        rate = scipy.special.ndtr(eta)
        density = np.exp(-0.5 * eta**2) / np.sqrt(2.0 * np.pi)
        score = density * (y - rate) / (rate * (1.0 - rate))
        weight = density**2 / (rate * (1.0 - rate))
        w0, w1, w2 = weight.sum(), weight @ heights, weight @ heights**2
        g0, g1 = score.sum(), score @ heights
        determinant = w0 * w2 - w1**2
        if not determinant > 0:
            return None
        d_slope = (w0 * g1 - w1 * g0) / determinant
        d_offset = (w2 * g0 - w1 * g1) / determinant
        # At most a doubling of the slope: the likelihood is concave, far steps are not.
        limit = min(1.0, slope / max(abs(d_slope), np.finfo(np.float64).tiny))
        slope, offset = slope + limit * d_slope, offset + limit * d_offset
        if slope <= 0:
            return None
        if abs(d_slope) < np.sqrt(np.finfo(np.float64).eps) * slope:
            break
    return float(1.0 / slope), float(-offset / slope)
