"""The certificate of a network of any depth: held-out points, typical and on lines."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate
from unrelu.steps.noise import NoiseModel

__all__ = ["DeepCertifyConfig", "certify_network"]


@dataclasses.dataclass(frozen=True)
class DeepCertifyConfig:
    """Sizes and tolerances of the certificate."""

    samples: int = 1000
    """Standard Gaussian inputs asked."""
    lines: int = 4
    line_samples: int = 512
    """Lines through them, and points on each, over four times their range."""
    least: float = 0.25
    """Part of the Gaussian inputs that must have an answer: log-odds may underflow."""
    accept: float = 100.0
    """A deviation may have this many standard deviations of an answer's noise: the polish
    fits about as many answers as parameters, which leaves a few of them ..."""
    floor: float = 1e-7
    """... or this part of the answers' spread, whichever is more."""


def certify_network(
    oracle: Oracle,
    network: ReLUNetwork,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    config: DeepCertifyConfig | None = None,
) -> tuple[Certificate | None, str]:
    """Compare network and target at fresh points.

    Points with an answer that is NaN are left out: log-odds of probabilities
    that underflowed.

    Returns
    -------
    certificate, verdict
        The verdict is empty where every deviation is within its tolerance, and
        a sentence otherwise.
    """
    config = DeepCertifyConfig() if config is None else config
    d = oracle.input_dim
    typical = rng.standard_normal((config.samples, d))
    blocks = [typical]
    reach = 4.0 * np.sqrt(d)
    for _ in range(config.lines):
        a, direction = rng.standard_normal((2, d))
        direction /= np.linalg.norm(direction)
        edges = np.linspace(-reach, reach, config.line_samples + 1)
        t = edges[:-1] + np.diff(edges) * rng.uniform(size=config.line_samples)
        blocks.append(a + np.multiply.outer(t, direction))
    points = np.concatenate(blocks)
    answers = oracle(points)
    usable = np.asarray(np.isfinite(answers).all(axis=1))
    samples = int(usable[: config.samples].sum())
    if samples < config.least * config.samples:
        return None, (
            f"only {samples} of {config.samples} held-out points have probabilities that do not "
            "underflow: too few for a certificate"
        )
    points, answers = points[usable], answers[usable]
    deviation = np.abs(answers - network(points)).max(axis=1)
    scale = float(answers[:samples].std(axis=0).max())
    # Far out on the lines both the function and its errors grow with the input.
    growth = np.maximum(1.0, np.linalg.norm(points, axis=1) / np.sqrt(d))
    limit = np.maximum(config.accept * noise.at(points).max(axis=1), config.floor * scale * growth)
    over = deviation > limit
    certificate = Certificate.from_deviations(
        deviation[:samples],
        scale=scale,
        tolerance=float(limit[:samples].max()),
        details={
            "line points": len(points) - samples,
            "line points exceeding": int(over[samples:].sum()),
            "largest line deviation": float(deviation[samples:].max(initial=0.0)),
            "points without log-odds": int(len(usable) - usable.sum()),
        },
    )
    if not over.any():
        return certificate, ""
    return certificate, (
        f"{int(over.sum())} of {len(points)} held-out points deviate by up to "
        f"{float(deviation.max()):.2g}, where {float(limit[over].min()):.2g} was expected"
    )
