"""Which log-odds can be read, and how well: near one a probability has lost digits.

A single probability ``p``, alone or beside ``1 - p``, is rounded relative to itself: its
log-odds have all digits as it goes to zero, and lose them as ``1 / (1 - p)`` as it goes to one.
Several outputs of a softmax each keep their own.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.answers import complementary
from unrelu.core.noise import is_single
from unrelu.core.record import Record

__all__ = ["Legible", "legible_log_odds"]

DEEPEST = float(np.log(np.finfo(np.float64).eps / np.finfo(np.float64).tiny))
"""Log-odds up to which probabilities are used: beyond they lose digits, then underflow."""


@dataclasses.dataclass(frozen=True)
class Legible:
    """Limits of readable answers, and the rounding of those between them.

    Attributes
    ----------
    low, high
        Answers outside are not used.
    lost
        Signs of log-odds as which digits are lost: -1, 1, both or none.
    """

    low: float = -np.inf
    high: float = np.inf
    lost: tuple[int, ...] = ()

    def __call__(self, answers: FloatArray) -> BoolArray:
        """Return which rows ``(n, m)`` can be read; never one with NaN."""
        return np.asarray(((answers > self.low) & (answers < self.high)).all(axis=1))

    def rounding(self, answers: FloatArray) -> FloatArray:
        """Return the deviations that the loss of digits alone brings, ``(n, m)``."""
        eps = float(np.finfo(np.float64).eps)
        return np.asarray(sum((eps * np.exp(s * answers) for s in self.lost), 0.0 * answers))


def legible_log_odds(record: Record, reference: int, limit: float) -> Legible:
    """Return which log-odds of probabilities can be read.

    Parameters
    ----------
    record
        Answers that have been seen.
    reference
        The column whose logarithm is subtracted.
    limit
        Log-odds of a single probability, alone or beside its difference from one, up to which
        the loss of digits is borne. A softmax loses none.
    """
    answers = record.first_rows(len(record))[1]
    single = answers.shape[1] == 1 or complementary(answers)
    lost = _digits_lost(answers, reference) if single else ()
    low, high = (limit if sign in lost else DEEPEST for sign in (-1, 1))
    return Legible(-low, high, lost)


def _digits_lost(answers: FloatArray, reference: int) -> tuple[int, ...]:
    """Return as which sign of log-odds a single probability loses digits.

    Parameters
    ----------
    answers
        ``(n, 1)`` or ``(n, 2)``.
    reference
        The column whose logarithm is subtracted, of two.
    """
    column = answers[:, 0] if answers.shape[1] == 1 else answers[:, 1 - reference]
    grid = float(np.finfo(np.float32 if is_single(answers) else np.float64).epsneg)
    sides = []
    for sign, p in ((1, column), (-1, answers[:, reference] if answers.shape[1] > 1 else None)):
        # The difference of one and a rounded number is a multiple of the grid beside one.
        if p is not None and (np.modf(p[p < 0.5] / grid)[0] != 0.0).any():
            sides.append(sign)
    return (sides[0],) if len(sides) == 1 else (-1, 1)
