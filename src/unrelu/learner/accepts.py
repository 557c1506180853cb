"""What the learner accepts: noisy or coarse values, and terms that hide or cancel."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from unrelu.core.explain import (
    NOISE_MULTIPLE,
    contradicted,
    contradictions_of,
    was_contradicted,
)
from unrelu.core.noise import AGREES, HALF_DIGITS
from unrelu.core.price import Price
from unrelu.core.record import Remembered
from unrelu.learner.algorithm import LearnerResult, learn_with_hints
from unrelu.learner.price import price_learner
from unrelu.learner.request import Request
from unrelu.lines.facts import Facts, Merit, Offer
from unrelu.progress import Progress
from unrelu.result import HELD_OUT, Certificate, RecoveryResult, Status

__all__ = ["learned_copy", "price_of_learning"]

LEARNER = "learn_from_queries"

EPSILON = (1e-3, 0.3)
"""Limits of the error asked for, over the spread of the answers: what agrees within the noise."""


def price_of_learning(facts: Facts) -> Price:
    """Return the price of learning to an error."""
    return price_learner(facts.diagnosis.input_dim, facts.hyperplanes, coarse=facts.rounded)


def learned_copy(facts: Facts) -> Offer | None:
    """Offer to learn one hidden layer to an error (Chen, Klivans & Meka)."""
    if not facts.everywhere or not facts.affine_pieces or facts.tried(LEARNER) is not None:
        return None
    if facts.diagnosis.kind != "values":
        return None
    flat = facts.tried("extract_two_layer")
    noise = facts.diagnosis.relative_noise
    if facts.coarse:
        seen = "differ from time to time" if facts.changing else "are coarse"
        reason = f"the answers {seen} (noise {noise:.1g} of their size)"
    elif flat is not None and flat.status is Status.ILL_CONDITIONED:
        reason = "the noise is too much for exactness"
    elif flat is not None and (
        flat.status is Status.ASSUMPTION_VIOLATED or was_contradicted(flat)
    ):
        reason = "terms hide or cancel between the points asked"
    else:
        return None
    spread = facts.diagnosis.scale or 1.0
    epsilon = float(np.clip(AGREES * facts.diagnosis.noise / spread, *EPSILON))
    return Offer(
        LEARNER, f"learning to an error of {epsilon:.1g} of the answers' spread", reason,
        Merit.COPY, price_of_learning(facts), functools.partial(_learn, facts, epsilon), epsilon,
    )  # fmt: skip


def _learn(
    facts: Facts, epsilon: float, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    learned = learn_with_hints(
        target,
        facts.contradicting(),
        request=Request(epsilon, relative=True, certificate_samples=2 * HELD_OUT),
        rng=rng,
        progress=progress,
    )
    told = learned.certificate
    if told is None or learned.status in {Status.BUDGET_EXHAUSTED, Status.ASSUMPTION_VIOLATED}:
        return learned
    # Nobody asked for this epsilon: what was measured counts, not what could still hide.
    close = float(told.details["square loss"]) <= learned.epsilon**2
    return _copy(target, learned, told) if close else learned


def _copy(target: Remembered, learned: LearnerResult, told: Certificate) -> RecoveryResult:
    """Call a learned copy approximated, unless every held-out answer says that it is exact.

    The learner's own certificate bounds the mean square, which what hides from all held-out
    inputs may exceed; that of extraction bounds the part of inputs which deviate at all.
    """
    judged = _judged(target, learned, told)
    if judged is not None and judged.exceeding == 0:
        message = f"{learned.width} hidden units, learned; {judged}"
        exact = dataclasses.replace(
            learned, status=Status.RECOVERED, message=message, certificate=judged
        )
        if not contradictions_of(target, exact, "values"):
            return exact
    copy = dataclasses.replace(
        learned,
        status=Status.APPROXIMATED,
        message=f"a copy that comes close, not the target itself: {learned.message}",
        certificate=dataclasses.replace(
            told, tolerance=max(told.tolerance, NOISE_MULTIPLE * learned.noise)
        ),
    )
    found = contradictions_of(target, copy, "values")
    if found:
        copy = contradicted(target, copy, found, "values", Status.APPROXIMATED)
    return dataclasses.replace(copy, certificate=told)


def _judged(target: Remembered, learned: LearnerResult, told: Certificate) -> Certificate | None:
    """Return the learner's certificate with the tolerance of an exact copy."""
    held_out = target.record.of_stage("certificate")
    if learned.network is None or held_out is None:
        return None
    x, y = (part[-told.samples :] for part in held_out)
    return Certificate.from_deviations(
        y - learned.network(x),
        scale=told.scale,
        tolerance=HALF_DIGITS * told.scale,
        confidence=told.confidence,
        distribution=told.distribution,
        details=told.details,
    )
