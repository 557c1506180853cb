"""What extraction from labels accepts."""

from __future__ import annotations

import functools

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.record import Remembered
from unrelu.labels.algorithm import extract_from_labels
from unrelu.labels.price import price_labels
from unrelu.lines.facts import Facts, Merit, Offer
from unrelu.oracles.base import Oracle, Wrapper
from unrelu.oracles.wrappers import Labels
from unrelu.progress import Progress
from unrelu.result import RecoveryResult

__all__ = ["network_of_labels"]

LABELS = "extract_from_labels"


class _Column(Wrapper):
    """Shows one column of the answers."""

    def __init__(self, inner: Oracle, column: int) -> None:
        super().__init__(inner)
        self.column, self.output_dim = column, 1

    def _identity_suffix(self) -> str:
        return f"|column:{self.column}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return self.inner._answer(points, repeat)[:, self.column : self.column + 1]


def network_of_labels(facts: Facts) -> Offer | None:
    """Offer a network that predicts the labels, all that labels determine of it."""
    scored = _label_column(facts)
    labels = facts.diagnosis.kind == "labels" or scored is not None
    if not labels or facts.tried(LABELS) is not None:
        return None
    seen = facts.diagnosis
    reason = "only labels come back" if scored is None else "labels come back, with their scores"
    return Offer(
        LABELS, "a network from labels alone", reason, Merit.NETWORK,
        price_labels(seen.input_dim, max(2, seen.output_dim), max(facts.ranks)),
        functools.partial(_network, facts),
    )  # fmt: skip


def _network(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    scored = _label_column(facts)
    asked: Oracle = Labels(target) if target.output_dim > 1 else target
    if scored is not None:
        asked = _Column(target, scored)
    return extract_from_labels(asked, domain=facts.domain, rng=rng, progress=progress)


def _label_column(facts: Facts) -> int | None:
    """Return the column that holds labels where the other holds their scores, if so."""
    if facts.record is None or facts.diagnosis.output_dim != 2:
        return None
    answers = facts.record.first_rows(facts.diagnosis.queries)[1]
    whole = (answers == np.round(answers)).all(axis=0)
    if len(answers) == 0 or whole.sum() != 1:
        return None
    column = int(np.argmax(whole))
    score = answers[:, 1 - column]
    kinds = len(np.unique(answers[:, column]))
    scores = bool(((score >= 0.0) & (score <= 1.0)).all())
    return column if scores and 1 < kinds <= len(answers) // 2 else None
