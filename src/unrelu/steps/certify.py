"""The certificate: held-out points at which the recovered units must be right.

Two kinds of points are asked: typical inputs, and points on a few lines,
densely, to see features that are too thin for the former. Nothing later
depends on the answers.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.kernels.units import Units
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate
from unrelu.steps.domains import Domain
from unrelu.steps.noise import NoiseModel
from unrelu.steps.refine import predicted_error

__all__ = ["CertifyConfig", "certify_units"]


@dataclasses.dataclass(frozen=True)
class CertifyConfig:
    """Sizes and tolerances of the certificate."""

    samples: int = 1000
    """Typical inputs asked."""
    lines: int = 4
    line_samples: int = 512
    """Lines, and points on each, spread evenly over the range of typical inputs."""
    accept: float = 15.0
    """A deviation may have this many predicted standard deviations."""
    floor: float = 1e-8
    """Deviations below this part of the answers' spread are always accepted."""


def certify_units(
    oracle: Oracle,
    units: Units,
    covariance: FloatArray,
    noise: NoiseModel,
    domain: Domain,
    *,
    rng: np.random.Generator,
    config: CertifyConfig | None = None,
) -> tuple[Certificate, str]:
    """Compare units and target at fresh points.

    Returns
    -------
    certificate, verdict
        The verdict is empty where every deviation is within its tolerance, and
        a sentence otherwise.
    """
    config = CertifyConfig() if config is None else config
    typical = domain.draw(config.samples, rng)
    blocks = [typical]
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
    points = np.concatenate(blocks)
    answers = oracle(points)
    deviation = np.abs(answers - units(points)).max(axis=1)
    scale = float(answers[: config.samples].std(axis=0).max())
    spread = noise.at(points).max(axis=1) + predicted_error(units, covariance, points)
    limit = np.maximum(config.accept * spread, config.floor * scale)
    over = deviation > limit
    certificate = Certificate.from_deviations(
        deviation[: config.samples],
        scale=scale,
        tolerance=float(limit[: config.samples].max()),
        distribution=domain.distribution,
        details={
            "line points": len(points) - config.samples,
            "line points exceeding": int(over[config.samples :].sum()),
            "largest line deviation": float(deviation[config.samples :].max(initial=0.0)),
            "largest deviation over its prediction": float((deviation / spread).max()),
        },
    )
    if not over.any():
        return certificate, ""
    return certificate, (
        f"{int(over.sum())} of {len(points)} held-out points deviate by up to "
        f"{float(deviation.max()):.2g}, where {float(limit[over].min()):.2g} was expected: the "
        "target has a feature that no search line met; try another seed, or "
        "learn_from_queries for thin features"
    )
