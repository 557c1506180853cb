"""The numbers of Chen, Klivans & Meka: interval lengths, ranges, bounds, bumps.

The paper states them up to constants and polynomial factors that are meant for
a proof. Here those that matter are fields of
:class:`~unrelu.learner.config.FaithfulConstants`; the others are one.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from unrelu._types import FloatArray
from unrelu.learner.config import FaithfulConstants

__all__ = [
    "WIDE",
    "bump_slope",
    "bump_square_loss",
    "bump_width",
    "coefficient_bound",
    "gradient_step",
    "hits_bound",
    "interval_length",
    "lattice_noise",
    "neuron_bounds",
    "samples_to_see",
    "search_range",
    "separation",
    "wide_samples",
    "wide_width",
    "width_seen",
]

GAUSSIAN_PEAK = 1.0 / math.sqrt(2.0 * math.pi)
"""Density of N(0, 1) at 0: no slab of width w has more mass than this times w."""
GAUSSIAN_AT_ONE = GAUSSIAN_PEAK * math.exp(-0.5)
"""Density at 1: a slab of width w within one standard deviation of 0 has at least this."""
WIDE = 2.0
"""Size of wide samples over that of Gaussian ones. From the root of 3 on, the worst slab to
miss lies at the origin (:func:`wide_width`); at 2 the slabs that reach to infinity do, too."""


def separation(epsilon: float, k: int, norm: float, constants: FaithfulConstants) -> float:
    """Return ``Delta = (epsilon / P)^(9/2)``, line 3 of GETNEURONS, with ``P = k R``.

    P is "polynomially large in k, R, B, log(1/delta)" and no more is said of it. It must be at
    least of degree one in R: Delta is the sine of an angle, and epsilon is in answer units.
    """
    return float((epsilon / (k * norm)) ** constants.exponent)


def interval_length(
    delta_sep: float, delta: float, k: int, d: int, constants: FaithfulConstants
) -> float:
    """Return ``r`` of equation (12)."""
    spread = math.sqrt(d) + math.sqrt(math.log(max(k / delta, math.e)))
    power = math.pow(k, constants.interval_power)
    return constants.interval * delta_sep * delta**2 / (power * spread)


def search_range(
    r: float, delta: float, k: int, d: int, smallest: float, bias: float,
    constants: FaithfulConstants,
) -> float:  # fmt: skip
    """Return ``tau`` of equation (13); ``smallest`` is the least ``|w_i|`` that matters.

    As the proof of Lemma 4.3 has it: ``k (sqrt d + ...) / (delta |w_i|) * (B + |w_i| sqrt log)``.
    Its last line, and (13) with it, lose the B, which (in units of ``|w_i|``) says how far out
    a kink lies, and the 1 / delta of the second term, which odds of delta need.
    """
    spread = math.sqrt(d) + math.sqrt(math.log(1.0 / delta))
    reach = bias / smallest + math.sqrt(math.log(max(k / delta, math.e)))
    return k * r + constants.range * k * spread / delta * reach


def gradient_step(r: float, delta: float, k: int, d: int) -> float:
    """Return ``alpha`` of Lemma 4.10, line 4 of GETNEURONS."""
    log = math.sqrt(math.log(max(k / delta, math.e)))
    return delta * r / (4.0 * k * math.sqrt(d) + k * log)


def neuron_bounds(
    delta_sep: float, delta: float, k: int, norm: float, bias: float
) -> tuple[float, float]:
    """Return the bounds of equation (14) on ``|w|`` and ``|b|`` of a collected neuron."""
    log = math.sqrt(math.log(max(k / delta, math.e)))
    return k * norm, delta_sep * k**2 * norm * log + k * bias


def coefficient_bound(count: int, k: int, norm: float, bias: float) -> float:
    """Return ``W`` of equation (21): ``sqrt(count) + k (R + B)``."""
    return math.sqrt(count) + k * (norm + bias)


def bump_slope(total: float) -> float:
    """Return the steepest slope of a bump of neurons whose norms add up to ``total``.

    A bump is zero on both sides, so its slopes rise and fall: of all bumps on a
    slab whose jumps of slope add up to ``total``, the highest is the triangle of
    jumps ``s, -2 s, s``, hence ``s = total / 4``. The square loss is convex in the
    jumps, so no mixture of bumps, in however many directions, loses more than
    one triangle that has them all. For k neurons of norm at most R the total is
    at most k R: copies of one neuron add up.
    """
    return 0.25 * total


def bump_square_loss(width: float, slope: float) -> float:
    """Return the largest square loss of missing a bump of a width.

    A triangle of base w between slopes s has height ``s w / 2`` and mean square
    ``(s w / 2)^2 / 3`` on a slab of mass at most ``w phi(0)``.
    """
    if slope <= 0:
        return 0.0
    return GAUSSIAN_PEAK * width * (slope * width) * (slope * width) / 12.0


def bump_width(square_loss: float, slope: float) -> float:
    """Return the width at which :func:`bump_square_loss` reaches a loss."""
    if slope <= 0:
        return math.inf
    return float(np.cbrt(12.0 * square_loss / GAUSSIAN_PEAK / slope / slope))


def hits_bound(hits: int, miss: float) -> float:
    """Return the largest expected number of hits that so few are seen of, with odds ``miss``.

    The upper limit for a Poisson mean; a sum of rare independent events is rarer still.
    """
    return float(scipy.special.gammaincinv(hits + 1.0, 1.0 - miss))


def wide_width(samples: int, expected: float) -> float:
    """Return the widest slab that wide samples hit ``expected`` times on average.

    Wide samples are Gaussian, :data:`WIDE` times as large, and a function of
    one direction z sees only their z, of density ``phi(z / 2) / 2``. A slab at z
    that holds mass p of it has width ``2 p / phi(z / 2)`` and loses, missed,
    ``phi(z) width(z)^3`` times a constant: that falls with the distance of z, as
    ``exp(-z^2 / 8)``. So the worst slab lies at the origin, and has this width.
    Samples of N(0, I) itself bound nothing of the kind: out where they seldom
    come, a bump is as wide and high as it likes.
    """
    if samples < 1:
        return math.inf
    return WIDE * expected / (samples * GAUSSIAN_PEAK)


def wide_samples(width: float, expected: float) -> float:
    """Return the number of samples that :func:`wide_width` turns into a width.

    Doubles of size one tell no slab apart that is narrower than their spacing.
    """
    if math.isinf(width):
        return 0.0
    return WIDE * expected / (max(width, np.finfo(np.float64).eps) * GAUSSIAN_PEAK)


def samples_to_see(width: float, miss: float) -> int:
    """Gaussian samples that hit a slab of a width within |z| <= 1, but for odds of ``miss``.

    Remark 1.3: nobody can do with fewer than about 1 / width.
    """
    if not math.isfinite(width):
        return 0
    mass = min(0.5, width * GAUSSIAN_AT_ONE)
    return math.ceil(math.log(miss) / math.log1p(-max(mass, np.finfo(np.float64).eps)))


def width_seen(samples: int, miss: float) -> float:
    """Return the width that :func:`samples_to_see` turns into this many samples."""
    if samples < 1:
        return math.inf
    return -math.expm1(math.log(miss) / samples) / GAUSSIAN_AT_ONE


def lattice_noise(answers: FloatArray) -> float:
    """Return the step of the lattice on which answers, ``(n,)``, lie; 0 where they do not.

    Neighbouring points may share such an error, which hides it from differences.
    But a function that bends has a value of its own at every random point, up to
    one or two flat pieces: where most values return, they are the lattice of rounding.
    """
    values, counts = np.unique(answers, return_counts=True)
    common = values[np.argmax(counts)]
    others = values != common
    again = others & (counts > 1)
    if np.count_nonzero(again) < 2 or counts[again].sum() < 0.5 * counts[others].sum():
        return 0.0
    return float(np.diff(np.sort(np.append(values[again], common))).min())
