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
) -> tuple[Certificate, str]:
    """Compare network and target at fresh points.

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
    deviation = np.abs(answers - network(points)).max(axis=1)
    scale = float(answers[: config.samples].std(axis=0).max())
    # Far out on the lines both the function and its errors grow with the input.
    growth = np.maximum(1.0, np.linalg.norm(points, axis=1) / np.sqrt(d))
    limit = np.maximum(config.accept * noise.at(points).max(axis=1), config.floor * scale * growth)
    over = deviation > limit
    certificate = Certificate.from_deviations(
        deviation[: config.samples],
        scale=scale,
        tolerance=float(limit[: config.samples].max()),
        details={
            "line points": len(points) - config.samples,
            "line points exceeding": int(over[config.samples :].sum()),
            "largest line deviation": float(deviation[config.samples :].max(initial=0.0)),
        },
    )
    if not over.any():
        return certificate, ""
    return certificate, (
        f"{int(over.sum())} of {len(points)} held-out points deviate by up to "
        f"{float(deviation.max()):.2g}, where {float(limit[over].min()):.2g} was expected"
    )
