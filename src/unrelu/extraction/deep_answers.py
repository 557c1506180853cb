"""What an extraction far from the origin must know about the answers.

Probabilities are read as log-odds, which are piecewise affine. Far out a
probability underflows, and its log-odds say nothing any more: such answers come
back as NaN, are not kept, and whoever asked tries a point less far out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.answers import LookConfig, look_for_probabilities
from unrelu.core.record import Record
from unrelu.lines.survey import SurveyLine
from unrelu.oracles.base import Meter, Oracle, all_finite
from unrelu.oracles.wrappers import LogOdds

__all__ = [
    "AnswerConfig",
    "NotFinite",
    "Recorder",
    "Saturated",
    "as_log_odds",
    "usable_line",
]


@dataclasses.dataclass(frozen=True)
class AnswerConfig:
    """Limits of what is read from probabilities."""

    look: LookConfig = dataclasses.field(default_factory=lambda: LookConfig(places=24))
    """How answers are told to be probabilities; deeper networks are flat at more places."""
    balance: int = 16
    """Points looked at to tell how large each of several outputs is."""
    deepest: float = 600.0
    """Log-odds up to which probabilities are used: exp(-700) underflows."""
    highest_single: float = 6.0
    """The same, upwards, for a single probability p: the error of log(1 - p) grows as
    1 / (1 - p). Downwards p itself is small, and precise."""
    inside: float = 0.9
    """A line ends where this part of them is reached."""
    doublings: tuple[float, float] = (-4.0, 9.0)
    """Places where a line is looked at: powers of two times its scale."""


HELD_BYTES = 1 << 28
"""Answers beyond this size wait on disk: the run's record holds them as well."""


class NotFinite(Exception):
    """An answer that is no number although the answers are values."""


class Saturated(Exception):
    """Probabilities that underflow where they were needed."""


class Recorder(Oracle):
    """Passes queries on and keeps the answers as they are worked on.

    Parameters
    ----------
    inner
        The target, or a :class:`~unrelu.oracles.wrappers.LogOdds` view of it.
    low, high
        Log-odds outside this range make all answers of their row NaN; without
        a range an answer that is not finite raises :class:`NotFinite`.
    units
        Answers are given in these, ``(m,)``: several outputs of which one is
        much larger than another would else be judged by the largest.
    """

    def __init__(
        self,
        inner: Oracle,
        *,
        low: float = -np.inf,
        high: float = np.inf,
        units: FloatArray | None = None,
    ) -> None:
        self.inner = inner
        self.input_dim, self.output_dim = inner.input_dim, inner.output_dim
        self.low, self.high = low, high
        self.log_odds = bool(np.isfinite(high))
        self.record = Record(HELD_BYTES)
        self.units = np.ones(inner.output_dim) if units is None else units

    @property
    def meter(self) -> Meter:  # type: ignore[override]
        """The meter of the whole stack."""
        return self.inner.meter

    @property
    def identity(self) -> str:  # type: ignore[override]
        """The target's."""
        return self.inner.identity

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        answers = self.inner._answer(points, repeat)
        if not self.log_odds and not all_finite(answers):
            raise NotFinite
        answers = answers / self.units
        if not self.log_odds:
            self.record.add(points, answers, "")
            return answers
        usable = np.asarray(((answers > self.low) & (answers < self.high)).all(axis=1))
        answers = np.where(usable[:, None], answers, np.nan)
        self.record.add(points[usable], answers[usable], "")
        return answers

    def batches(self, within: float = np.inf) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield points up to a norm and their usable answers, ``(n, d)`` and ``(n, m)``."""
        for batch in self.record.batches():
            near = np.linalg.norm(batch.points, axis=1) <= within
            yield batch.points[near], batch.answers[near]

    def stored(self, within: float = np.inf) -> tuple[FloatArray, FloatArray]:
        """Return all of them at once."""
        kept = list(self.batches(within))
        if not kept:
            return np.empty((0, self.input_dim)), np.empty((0, self.output_dim))
        return np.concatenate([x for x, _ in kept]), np.concatenate([y for _, y in kept])


def as_log_odds(
    oracle: Oracle, answers: str, rng: np.random.Generator, config: AnswerConfig
) -> LogOdds | None:
    """Return the log-odds of a target whose answers are probabilities, else None.

    :func:`~unrelu.core.answers.look_for_probabilities` decides.

    Parameters
    ----------
    answers
        ``"values"``, ``"probabilities"``, or ``"auto"`` to look at a few.
    """
    if answers == "values":
        return None
    found, seen = look_for_probabilities(
        oracle, lambda n: rng.standard_normal((n, oracle.input_dim)), config=config.look
    )
    if not found and answers == "auto":
        return None
    # The likeliest class is the reference: its probability underflows last.
    return LogOdds(oracle, reference=int(np.argmax(seen.mean(axis=0))))


def usable_line(oracle: Recorder, line: SurveyLine, config: AnswerConfig) -> SurveyLine:
    """Return the part of a line, around its base, on which no probability underflows."""
    if not oracle.log_odds:
        return line
    grid = line.scale * 2.0 ** np.arange(*config.doublings)
    t = np.concatenate([-grid[::-1], [0.0], grid])
    t = t[(t >= line.low) & (t <= line.high)]
    seen = oracle(line.points(t))
    low, high = config.inside * oracle.low, config.inside * oracle.high
    fine = np.asarray(((seen > low) & (seen < high)).all(axis=1))
    middle = int(np.argmin(np.abs(t)))
    first = last = middle
    if not fine[middle]:
        raise Saturated
    while first > 0 and fine[first - 1]:
        first -= 1
    while last + 1 < len(t) and fine[last + 1]:
        last += 1
    return dataclasses.replace(line, low=float(t[first]), high=float(t[last]))
