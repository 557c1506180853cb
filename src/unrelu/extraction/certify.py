"""The certificate: held-out points at which the recovered units must be right.

Three kinds of points are asked. Typical inputs, for a statement about them.
Points on a few lines, densely, to see features too thin for the former. And
tight clusters that tell the local noise: a thin, tall feature is a difference
of large terms, and its rounding errors are seen on all of one side of it, even
where it is zero. Every output is judged by its own noise and spread. Where all agree nothing
later depends on the answers; where some do not they are data for another round, which ends with
another certificate.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.explain import BEYOND_HELD_OUT, EXACT, EXACT_NOISE, NOISE_MULTIPLE
from unrelu.core.legible import Legible
from unrelu.core.noise import HALF_DIGITS, SPACING, NoiseModel
from unrelu.core.units import SPARE, Units
from unrelu.extraction.refine import predicted_errors
from unrelu.lines.domains import Domain
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate

__all__ = ["CertifyConfig", "FailedPoints", "UnitsVerdict", "certify_units"]


@dataclasses.dataclass(frozen=True)
class CertifyConfig:
    """Sizes and tolerances of the certificate."""

    samples: int = 1000
    """Typical inputs asked."""
    lines: int = 4
    line_samples: int = samples // 2
    """Lines, and points on each, spread evenly over the range of typical inputs."""
    clusters: int = 64
    """Places at which the local noise is measured, by four points each. Noise ``EXACT_NOISE``
    times above what is usual for the recovered terms is suspicious, but ``1 / EXACT`` times
    is a kink in the cluster; up to ``SPARE`` such places are chance."""
    room: float = 3.0
    """The stated tolerance is this many times the largest deviation met, and
    ``BEYOND_HELD_OUT`` deviations of an answer at least."""
    accept: float = NOISE_MULTIPLE / room
    """A deviation may have this many predicted standard deviations; those below
    ``HALF_DIGITS`` of the answers' spread are always accepted."""


@dataclasses.dataclass(frozen=True)
class FailedPoints:
    """Held-out points that the units do not explain.

    Attributes
    ----------
    points, answers
        Where they disagree, ``(n, d)`` and ``(n, m)``.
    agreeing
        Where they agree, ``(q, d)``.
    """

    points: FloatArray
    answers: FloatArray
    agreeing: FloatArray


@dataclasses.dataclass(frozen=True)
class UnitsVerdict:
    """What a certificate says.

    Attributes
    ----------
    certificate
        In the answers' own units.
    objection
        Empty where every deviation is within its tolerance, a sentence otherwise.
    tolerances, scales, noise, sizes
        Stated tolerance, spread, measured noise and largest size of each output at typical
        inputs, ``(m,)``. An output that is constant within its noise has its size for spread.
    failed
        Points to search on at, if any disagree and any agree.
    """

    certificate: Certificate
    objection: str
    tolerances: FloatArray
    scales: FloatArray
    noise: FloatArray
    sizes: FloatArray
    failed: FailedPoints | None = None


def certify_units(
    oracle: Oracle,
    units: Units,
    covariance: FloatArray,
    noise: NoiseModel,
    domain: Domain,
    *,
    measured: NoiseModel,
    levels: FloatArray,
    rng: np.random.Generator,
    legible: Legible | None = None,
    config: CertifyConfig | None = None,
) -> UnitsVerdict:
    """Compare units and target at fresh points.

    Points where an answer is NaN or not ``legible`` are left out: log-odds
    of probabilities that underflowed, or are about to.

    Parameters
    ----------
    noise, measured
        What the search went by, and what the answers' own scatter showed.
    levels
        What the outputs were divided by, ``(m,)``.

    Notes
    -----
    A deviation is accepted up to ``accept`` times what was predicted for it. What is stated
    is what was met: the largest of n deviations is exceeded by more than a part b of fresh
    inputs with probability ``(1 - b)^n`` (Wilks 1941), the same as for a tolerance that was
    fixed before and met by all; ``room`` times as much is stated.
    """
    config = CertifyConfig() if config is None else config
    legible = Legible() if legible is None else legible
    points = _held_out(domain, rng, config)
    clusters = _cluster_points(domain.draw(config.clusters, rng), domain, rng, config)
    answers = oracle(np.concatenate([points, clusters]))
    noisy = _excess_noise(units, clusters, answers[len(points) :], legible, config)
    answers = answers[: len(points)]
    usable = legible(answers)
    if not usable[: config.samples].any():
        usable[:] = np.isfinite(answers).all(axis=1)
    samples = int(np.count_nonzero(usable[: config.samples]))
    if samples == 0:
        return _nothing_readable(config, domain, levels)
    points, answers = points[usable], answers[usable]
    deviation = np.abs(answers - units(points))
    level = measured.at(points[:samples]).mean(axis=0)
    size = np.abs(answers[:samples]).max(axis=0)
    varies = (answers[:samples] - answers[0]).std(axis=0)  # a constant varies by nothing
    scale = np.where(varies > EXACT_NOISE * level, varies, size)
    spread = noise.at(points) + predicted_errors(units, covariance, points)
    # The units are computed in float64 themselves: no answer is met beyond their own rounding.
    spread = spread + legible.rounding(answers) + np.finfo(np.float64).eps * _terms(units, points)
    limit = np.maximum(config.accept * spread, HALF_DIGITS * varies)
    over = np.asarray((deviation > limit).any(axis=1))
    stated = np.maximum(config.room * deviation[:samples].max(axis=0), BEYOND_HELD_OUT * level)
    tolerances = np.minimum(np.maximum(stated, HALF_DIGITS * varies), limit[:samples].max(axis=0))
    certificate = Certificate.from_deviations(
        deviation[:samples] * levels,
        scale=float((scale * levels).max()),
        tolerance=float((tolerances * levels).max()),
        distribution=domain.distribution,
        details={
            "line points": len(points) - samples,
            "line points exceeding": int(over[samples:].sum()),
            "largest line deviation": float((deviation[samples:] * levels).max(initial=0.0)),
            "largest deviation over its prediction": float((deviation / spread).max()),
            "places of excess noise": noisy,
            "tolerance per output": [float(t) for t in tolerances * levels],
        },
    )
    failed = None
    if over.any() and not over.all():
        failed = FailedPoints(points[over], answers[over], points[~over])
    objection = _objection(over, deviation * levels, limit * levels, noisy, config)
    return UnitsVerdict(certificate, objection, tolerances, scale, level, size, failed)


def _objection(
    over: BoolArray, deviation: FloatArray, limit: FloatArray, noisy: int, config: CertifyConfig
) -> str:
    """Say what speaks against the units; empty where nothing does."""
    if over.any():
        return (
            f"{int(over.sum())} of {len(over)} held-out points deviate by up to "
            f"{float(deviation[over].max()):.2g}, where "
            f"{float(limit[over].min()):.2g} was expected: the target has a feature "
            "that no search line met; try another seed, or learn_from_queries for thin features"
        )
    if noisy > SPARE:
        return (
            f"every held-out point agrees, but at {noisy} of {config.clusters} places the answers "
            f"are more than {EXACT_NOISE:.0f} times noisier than elsewhere: terms much larger "
            "than those found cancel there, and may differ in a thin region that was not met; "
            "try learn_from_queries"
        )
    return ""


def _nothing_readable(config: CertifyConfig, domain: Domain, levels: FloatArray) -> UnitsVerdict:
    """Return the verdict where no held-out probability can be read."""
    certificate = Certificate.from_deviations(
        np.full((config.samples, 1), np.inf),
        scale=0.0,
        tolerance=0.0,
        distribution=domain.distribution,
    )
    none = np.zeros(len(levels))
    return UnitsVerdict(
        certificate,
        f"the probabilities at all of {config.samples} held-out points underflow to 0 or 1, where "
        "log-odds cannot be read; give a domain of smaller inputs, or ask the target for logits",
        none,
        none,
        none,
        none,
    )


def _held_out(domain: Domain, rng: np.random.Generator, config: CertifyConfig) -> FloatArray:
    """Draw typical inputs, in a bounded domain others at its faces, then points on lines."""
    blocks = [domain.draw(config.samples, rng)]
    if domain.kind != "all":
        blocks.append(domain.draw_wide(config.samples, rng))
    for _ in range(config.lines):
        a, b = domain.draw(2, rng)
        direction = (b - a) / np.linalg.norm(b - a)
        line = domain.chord(a, direction, 1.0) if domain.kind != "all" else None
        reach = 4.0 * domain.scale
        low, high = (-reach, reach) if line is None else (line.low, line.high)
        base, direction = (a, direction) if line is None else (line.base, line.direction)
        edges = np.linspace(low, min(high, low + 2.0 * reach), config.line_samples + 1)
        t = edges[:-1] + np.diff(edges) * rng.uniform(size=config.line_samples)
        blocks.append(base + np.multiply.outer(t, direction))
    return np.concatenate(blocks)


def _cluster_points(
    places: FloatArray, domain: Domain, rng: np.random.Generator, config: CertifyConfig
) -> FloatArray:
    """Return four collinear points at each place, ``(4 c, d)``."""
    direction = rng.standard_normal(places.shape)
    direction *= SPACING * domain.scale / np.linalg.norm(direction, axis=1, keepdims=True)
    if domain.bounds is not None:  # towards the middle of the other places: stays inside
        direction = np.roll(places, 1, axis=0) - places
        direction *= SPACING
    offsets = np.arange(4.0)
    points = places[:, None, :] + offsets[None, :, None] * direction[:, None, :]
    return np.asarray(points.reshape(-1, places.shape[1]))


def _excess_noise(
    units: Units,
    clusters: FloatArray,
    answers: FloatArray,
    legible: Legible,
    config: CertifyConfig,
) -> int:
    """Count places where the answers scatter more than the recovered terms explain.

    Clusters that a known hyperplane crosses say nothing: with thousands of units many do.
    """
    gates = units.gates(clusters).reshape(len(clusters) // 4, 4, units.count)
    values = answers.reshape(len(gates), 4, -1)
    useful = legible(values.reshape(len(gates), -1)) & (gates == gates[:, :1]).all(axis=(1, 2))
    values, places = values[useful], clusters[::4][useful]
    if len(places) == 0:
        return 0
    # Third differences of four equidistant points: a line drops out.
    third = values[:, 3] - 3.0 * values[:, 2] + 3.0 * values[:, 1] - values[:, 0]
    scatter = np.abs(third).max(axis=1)
    level = _terms(units, places).max(axis=1)
    ratio = scatter / np.maximum(level, np.finfo(np.float64).tiny)
    usual = max(float(np.quantile(ratio, 1.0 / 3.0)), float(np.finfo(np.float64).eps))
    # Digits that reading loses scatter as well: a third difference has twenty times the variance.
    lost = math.sqrt(20.0) * legible.rounding(values[:, 0]).max(axis=1)
    odd = (ratio > EXACT_NOISE * usual) & (ratio < usual / EXACT)
    odd &= scatter > config.accept * lost
    return int(np.count_nonzero(odd))


def _terms(units: Units, points: FloatArray) -> FloatArray:
    """Return the size of what the units add up, which rounding goes with, ``(n, m)``."""
    inputs = np.abs(points)
    size = inputs @ np.abs(units.weights).T + np.abs(units.biases)
    terms = (size * units.gates(points)) @ np.abs(units.outputs).T
    return np.asarray(terms + inputs @ np.abs(units.linear).T + np.abs(units.constant))
