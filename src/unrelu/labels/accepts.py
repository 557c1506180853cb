"""What extraction from labels accepts."""

from __future__ import annotations

import functools

import numpy as np

from unrelu.core.record import Remembered
from unrelu.labels.algorithm import extract_from_labels
from unrelu.labels.price import price_labels
from unrelu.lines.facts import Facts, Merit, Offer
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Labels
from unrelu.progress import Progress
from unrelu.result import RecoveryResult

__all__ = ["network_of_labels"]

LABELS = "extract_from_labels"


def network_of_labels(facts: Facts) -> Offer | None:
    """Offer a network that predicts the labels, all that labels determine of it."""
    if facts.diagnosis.kind != "labels" or facts.tried(LABELS) is not None:
        return None
    seen = facts.diagnosis
    return Offer(
        LABELS, "a network from labels alone", "only labels come back", Merit.NETWORK,
        price_labels(seen.input_dim, max(2, seen.output_dim), max(facts.ranks)),
        functools.partial(_network, facts),
    )  # fmt: skip


def _network(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    asked: Oracle = Labels(target) if target.output_dim > 1 else target
    return extract_from_labels(asked, domain=facts.domain, rng=rng, progress=progress)
