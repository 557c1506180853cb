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

__all__ = ["smooth_layer"]

SMOOTH = "extract_smooth"

PER_PARAMETER = (2.0, 30.0)
"""Queries for each parameter, of the benchmarks' tables: most go to second derivatives."""
CERTIFICATE = 4_000
"""And for the look and the certificate."""


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
    seen = facts.diagnosis
    low, high = (rank * (seen.input_dim + 1.0 + seen.output_dim) for rank in facts.ranks)
    least, most = PER_PARAMETER
    return round(least * low) + CERTIFICATE, round(most * high) + 2 * CERTIFICATE


def _smooth(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    probabilities = facts.probabilities
    return extract_smooth(
        target, answers="probabilities" if probabilities else "auto", rng=rng, progress=progress
    )
