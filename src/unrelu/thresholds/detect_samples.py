"""Theorem 7 as stated: units without linear terms from samples alone, by trying directions.

The query version (:mod:`unrelu.thresholds.detector`) places its points; here they are given.
For a direction z the correlation

    C2(f, z, t) = E[f (delta(z.x - t - eps) - delta(z.x - t + eps))]

is the difference of two slab means, ``delta(z.x - s)`` being ``1[s - w < z.x <= s] / w`` with
a smaller w (Section 3). It is about ``phi(t) E[Q_i | w_i.x = t] >= phi(t) eps_3`` at a unit and
falls with eps at directions that are eps_2 away from every unit (Lemma 8); for ReLU units C3
(Appendix C.1) is the second difference over eps. All directions of a net are tried: polynomially
many samples, exponentially many directions in n.

Choices that the theorem leaves open: eps = eps_2 and w = eps / 2; the net has the spacing
eps_2 / 2; a direction is one of a unit where C2 / phi(t) is at least half of eps_3, beyond
chance on either half of the samples, stays rather than halves when eps does, beyond chance too,
and is the largest among directions within 2 eps_2 of it.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import scipy.special

from unrelu._numbers import real_number
from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.memory import BLOCK
from unrelu.core.noise import RARE
from unrelu.errors import InvalidInput
from unrelu.result import CONFIDENCE, Provenance, QueryStats, Status
from unrelu.thresholds.detect import Detection
from unrelu.thresholds.detector import DetectedLayerResult

__all__ = ["detect_in_samples", "slab_correlations"]


def slab_correlations(
    x: FloatArray,
    y: FloatArray,
    directions: FloatArray,
    threshold: float,
    epsilon: float,
    *,
    kink: bool,
) -> list[Detection]:
    """C2 / phi(t), or C3 / (eps phi(t)), of given samples in given directions.

    Parameters
    ----------
    x, y
        ``(m, n)`` and ``(m,)``.
    directions
        Unit rows ``(j, n)``.
    """
    width = 0.5 * epsilon
    offsets = (epsilon, 0.0, -epsilon) if kink else (epsilon, -epsilon)
    weights = (1.0 / epsilon, -2.0 / epsilon, 1.0 / epsilon) if kink else (1.0, -1.0)
    found = []
    for z in directions:
        height = x @ z
        mean = variance = 0.0
        for offset, weight in zip(offsets, weights, strict=True):
            top = threshold + offset
            inside = y[(height > top - width) & (height <= top)]
            # Claim 3: the correlation over the density at s is the mean on the plane z.x = s.
            mean += weight * (float(inside.mean()) if len(inside) else 0.0)
            variance += weight**2 * (float(inside.var()) / len(inside) if len(inside) else np.inf)
        found.append(Detection(mean, math.sqrt(variance)))
    return found


def detect_in_samples(
    x: FloatArray,
    y: FloatArray,
    *,
    activation: Literal["sign", "relu"],
    threshold: float,
    precision: float,
    least: float,
    rng: RandomState = None,
) -> DetectedLayerResult:
    """Find units within ``precision`` by correlations of given samples (Theorem 7).

    Parameters
    ----------
    x, y
        Samples ``(m, n)`` from N(0, I), and ``(m,)``.
    threshold
        t.
    precision
        The paper's eps_2, in radians. The cost grows as ``(4 / precision)^(n - 1)`` times the
        samples.
    least
        The paper's eps_3: a lower bound on ``|E[Q_i | w_i.x = t]|``.

    Returns
    -------
    DetectedLayerResult
        APPROXIMATED with directions that are good to about ``precision``, or
        ASSUMPTION_VIOLATED where none is found. Whether all were found samples do not tell.
    """
    points, labels, count = _checked(x, y, activation, precision, least)
    generator, n, kink = as_generator(rng), points.shape[1], activation == "relu"
    net = generator.standard_normal((count, n))
    net /= np.linalg.norm(net, axis=1, keepdims=True)
    halves = [
        slab_correlations(points[i::2], labels[i::2], net, threshold, precision, kink=kink)
        for i in range(2)
    ]
    strength = np.array([[one.strength for one in half] for half in halves])
    error = np.array([[one.error for one in half] for half in halves])
    mean = np.abs(strength.mean(axis=0))
    sure = (np.abs(strength) > RARE * error).all(axis=0) & (mean >= 0.5 * least)
    sure &= strength[0] * strength[1] > 0.0
    closer = slab_correlations(points, labels, net[sure], threshold, 0.5 * precision, kink=kink)
    # At a unit the detector stays, elsewhere it halves with epsilon: nearer to the one than to
    # the other, and more than half by no chance.
    stays = np.array([abs(one.strength) for one in closer])
    chance = np.hypot([one.error for one in closer], 0.25 * np.hypot(*error[:, sure]))
    beyond = stays - mean[sure] / 2.0
    stds_by_chance = scipy.special.ndtri(1.0 - (1.0 - CONFIDENCE) / count)
    sure[sure] = (beyond > mean[sure] - stays) & (beyond > stds_by_chance * chance)
    chosen: list[int] = []
    for i in np.argsort(-mean):
        if sure[i] and not (net[chosen] @ net[i] > math.cos(2.0 * precision)).any():
            chosen.append(int(i))
    status = Status.APPROXIMATED if chosen else Status.ASSUMPTION_VIOLATED
    return DetectedLayerResult(
        status=status,
        message=f"{len(chosen)} of {count:,} directions break f at {threshold:g}, each good to "
        f"about {precision:g} rad"
        + ("" if chosen else ": check the threshold and the activation, or give more samples"),
        queries=QueryStats(samples=len(points)),
        provenance=Provenance(
            "goel-panigrahy/theorem 7",
            rng if isinstance(rng, int) else None,
            {"activation": activation, "threshold": threshold, "precision": precision,
             "least": least},
        ),
        directions=net[chosen].reshape(-1, n),
        thresholds=np.full(len(chosen), threshold),
        strengths=strength.mean(axis=0)[chosen],
    )  # fmt: skip


def _checked(
    x: FloatArray, y: FloatArray, activation: str, precision: float, least: float
) -> tuple[FloatArray, FloatArray, int]:
    """Return the samples, and how many directions the net has."""
    if activation not in ("sign", "relu"):
        raise InvalidInput(f"activation must be 'sign' or 'relu', got {activation!r}")
    real_number(precision, "precision", above=0.0)
    real_number(least, "least", above=0.0)
    points, labels = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if points.ndim != 2 or labels.shape != points.shape[:1] or points.shape[1] < 2:
        raise InvalidInput(
            f"need x (m, n) with n > 1 and y (m,), got {np.shape(x)}, {np.shape(y)}"
        )
    balls = (4.0 / precision) ** (points.shape[1] - 1)
    count = math.ceil(balls * max(1.0, math.log(balls)))
    if count > BLOCK:
        raise InvalidInput(
            f"{count:,} directions at precision {precision:g} in {points.shape[1]} dimensions are "
            "too many: the search is exponential in n; see detect_directions with queries, or a "
            "lower precision"
        )
    return points, labels, count
