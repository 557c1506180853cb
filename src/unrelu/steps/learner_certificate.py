"""The certificate: an upper confidence bound on ``E[(F - F')^2]`` under N(0, I).

Two parts are added. What the samples show: the mean of the squares and its
sampling error. What they cannot show: a bump so thin that none of them hit it;
given a bound R on the neurons' norms it is at most so high, so its square loss
is bounded too (Remark 1.3 of Chen, Klivans & Meka says that without R there is
no bound at all).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import scipy.special

from unrelu._types import FloatArray
from unrelu.kernels.learner_formulas import (
    bump_square_loss,
    bump_width,
    samples_to_see,
    width_seen,
)
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate

__all__ = ["LearnerCertificateConfig", "certify_square_loss"]


@dataclasses.dataclass(frozen=True)
class LearnerCertificateConfig:
    """Sizes of the certificate."""

    least: int = 5000
    """Samples at least."""
    most: int = 1_000_000
    """Samples at most; where a thinner bump would need more, the bound says so."""
    hidden: float = 0.25
    """Part of epsilon^2 that unseen bumps may take, when the number of samples is chosen."""
    coarse: float = 2e-8
    """Noise over the spread above which every point is asked twice: the product of two
    residuals with independent noise has mean (F - F')^2, without the noise's variance."""
    batch: int = 50_000


def certify_square_loss(
    oracle: Oracle,
    network: Callable[[FloatArray], FloatArray],
    *,
    epsilon: float,
    delta: float,
    norm_bound: float,
    noise: float,
    facts: dict[str, float | str],
    rng: np.random.Generator,
    config: LearnerCertificateConfig,
) -> tuple[Certificate, float]:
    """Compare at fresh Gaussian inputs.

    Parameters
    ----------
    epsilon
        Root mean square error asked for, in answer units.
    norm_bound
        R in force.
    noise
        Standard deviation of an answer's error.
    facts
        What else was assumed, for the certificate's details.

    Returns
    -------
    certificate, bound
        The bound holds for ``E[(F - F')^2]`` with confidence ``1 - delta``.
    """
    width = bump_width(config.hidden * epsilon**2, norm_bound)
    n = min(max(samples_to_see(width, 0.5 * delta), config.least), config.most)
    budget = oracle.meter.budget
    twice = False
    if budget is not None:
        n = max(1, min(n, budget - oracle.queries.total))
    deviations, products, values = [], [], []
    for start in range(0, n, config.batch):
        x = rng.standard_normal((min(config.batch, n - start), oracle.input_dim))
        first = oracle(x)
        residual = first - network(x)
        other = residual
        if start == 0:
            room = budget is None or budget - oracle.queries.total >= n
            twice = noise > config.coarse * float(first.std()) and room
        if twice:
            other = oracle(x, repeat=1) - network(x)
        deviations.append(np.linalg.norm(residual, axis=1))
        products.append((residual * other).sum(axis=1))
        values.append(first)
    square = np.concatenate(products)
    answers = np.concatenate(values)
    mean, spread = float(square.mean()), float(square.std(ddof=1)) if n > 1 else math.inf
    # Half of delta for the sampling error, half for a bump that no sample hit.
    quantile = float(scipy.special.ndtri(1.0 - 0.5 * delta))
    seen = max(mean, 0.0) + quantile * spread / math.sqrt(n)
    narrowest = width_seen(n, 0.5 * delta)
    unseen = bump_square_loss(narrowest, norm_bound)
    bound = seen + unseen
    certificate = Certificate.from_deviations(
        np.concatenate(deviations),
        scale=float(np.sqrt(answers.var(axis=0).sum())),
        tolerance=epsilon,
        confidence=1.0 - delta,
        details={
            "square loss": max(mean, 0.0),
            "square loss bound": bound,
            "root mean square bound": math.sqrt(bound),
            "part of unseen bumps": unseen,
            "narrowest bump that could be seen": narrowest,
            "answers per point": 2 if twice else 1,
            **facts,
        },
    )
    return certificate, bound
