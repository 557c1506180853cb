"""What the search for smooth activations accepts."""

from __future__ import annotations

import functools

import numpy as np

from unrelu.core.price import Price
from unrelu.core.record import Remembered
from unrelu.lines.facts import Facts, Merit, Offer
from unrelu.progress import Progress
from unrelu.result import RecoveryResult
from unrelu.smooth.algorithm import extract_smooth
from unrelu.smooth.config import SmoothConfig

__all__ = ["smooth_layer"]

SMOOTH = "extract_smooth"


def smooth_layer(facts: Facts) -> Offer | None:
    """Offer one hidden layer of a smooth activation, which is found."""
    seen = facts.diagnosis
    if not facts.everywhere or seen.piecewise_linear is not False or seen.locally_constant:
        return None
    if seen.kind not in {"values", "probabilities"} or facts.changing:
        return None
    if facts.tried(SMOOTH) is not None:
        return None
    reason = f"the answers bend smoothly everywhere ({facts.smooth_kind})"
    return Offer(
        SMOOTH, "one hidden layer of a smooth activation", reason, Merit.NETWORK, _price(facts),
        functools.partial(_smooth, facts),
    )  # fmt: skip


def _price(facts: Facts) -> Price:
    """Gradients, second derivatives, profiles, typical inputs and the certificate.

    At most second derivatives are taken again and again, and lines far out searched.
    """
    seen, config = facts.diagnosis, SmoothConfig()
    d, m = seen.input_dim, seen.output_dim
    places = max(2, -(-config.hessians // m))

    def cost(k: float, turns: int) -> int:
        gradients = 2.0 * d * (k / m + config.extra + config.hessians)
        second = turns * places * (k + 1.0) ** 2
        rest = k * config.profile + config.rows * (k * (d + 1.0 + m) / m + d)
        return round(gradients + second + rest) + 3 * config.samples

    low, high = facts.ranks
    lines = config.tries * config.samples * config.hessians
    return cost(low, 1), cost(high, config.tries) + lines


def _smooth(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    probabilities = facts.probabilities
    return extract_smooth(
        target, answers="probabilities" if probabilities else "auto", rng=rng, progress=progress
    )
