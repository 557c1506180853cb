"""What span recovery accepts: networks of any depth and activation, by values or labels."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu.core.price import Price
from unrelu.core.record import Remembered
from unrelu.lines.facts import Facts, Merit, Offer
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Labels
from unrelu.progress import Progress
from unrelu.result import RecoveryResult, Status
from unrelu.span.algorithm import recover_span
from unrelu.span.price import price_span, price_span_from_labels

__all__ = ["price_of_span", "price_of_span_from_labels", "span_of_labels", "span_of_values"]

SPAN, LABELS = "recover_span", "recover_span from labels"


def price_of_span(facts: Facts) -> Price:
    """Return the price of a span from values."""
    seen = facts.diagnosis
    return price_span(seen.input_dim, seen.output_dim, facts.ranks)


def price_of_span_from_labels(facts: Facts) -> Price:
    """Return the price of a span from labels."""
    return price_span_from_labels(facts.diagnosis.input_dim, facts.ranks)


def span_of_values(facts: Facts) -> Offer | None:
    """Offer the span of the first layer where no network can be had, or none was."""
    seen, peeled = facts.diagnosis, facts.tried("extract_any_depth")
    if peeled is not None and len(peeled.findings().widths) > 1:
        return None  # the rows of the first layer were found, and explain all gradients
    if not facts.everywhere or seen.kind in {"labels", "constant"} or seen.locally_constant:
        return None
    if facts.tried(SPAN) is not None or any(
        result.network is not None and result.copied for _, result in facts.attempts
    ):
        return None
    smooth = facts.tried("extract_smooth")
    if smooth is not None:
        reason = smooth.message  # what it saw that no layer explains: another layer, a norm
    elif seen.piecewise_linear is False:
        reason = f"the answers bend smoothly everywhere ({facts.smooth_kind})"
    elif facts.attempts and facts.tried("learn_from_queries") is None:
        reason = "no network explains the answers"
    else:
        return None
    return Offer(
        SPAN, "the span of the first layer", reason, Merit.PART, price_of_span(facts), _span
    )


def span_of_labels(facts: Facts) -> Offer | None:
    """Offer the span of the first layer from labels."""
    if facts.diagnosis.kind != "labels" or facts.tried(LABELS) is not None:
        return None
    if not facts.everywhere:
        return None
    return Offer(
        LABELS, "the span of the first layer, from labels", "only labels come back", Merit.PART,
        price_of_span_from_labels(facts), _span_of_labels,
    )  # fmt: skip


def _span(target: Remembered, rng: np.random.Generator, progress: Progress) -> RecoveryResult:
    return _partial(recover_span(target, answers="values", rng=rng, progress=progress))


def _span_of_labels(
    target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    asked: Oracle = Labels(target) if target.output_dim > 1 else target
    return _partial(recover_span(asked, answers="labels", rng=rng, progress=progress))


def _partial(result: RecoveryResult) -> RecoveryResult:
    """Return a span as a part of what was asked for."""
    if not result.success:
        return result
    return dataclasses.replace(
        result,
        status=Status.PARTIAL,
        message=f"The span of the first layer was recovered, no network: {result.message}",
    )
