"""Every answer is explained: a result against all answers of its run.

A certificate vouches for fresh inputs; but a run has seen thousands of answers
before, and none of them may contradict what is called recovered. The comparison
asks nothing. Only where something disagrees a few of the first points are asked
again, to tell a target that has changed from a network that is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import scipy.special

from unrelu._types import FloatArray, IntArray
from unrelu.core.memory import BLOCK
from unrelu.core.noise import decimal_step
from unrelu.core.price import FIRST_AGAIN
from unrelu.core.record import Record, Remembered
from unrelu.errors import OracleError
from unrelu.networks import Network
from unrelu.result import RecoveryResult, StageReport, Status

__all__ = [
    "BEYOND_HELD_OUT",
    "EXACT",
    "Allowed",
    "AnswerComparison",
    "Contradictions",
    "Tolerance",
    "Within",
    "contradicted",
    "contradictions_of",
    "explained",
    "find_contradictions",
    "has_changed",
    "predicted_answers",
    "target_changed",
    "told_if_changed",
    "was_contradicted",
    "withdrawn",
]

Result = TypeVar("Result", bound=RecoveryResult)
Predict = Callable[[FloatArray], FloatArray]

EXPLANATION = "explanation"
"""Stage of the points that are asked again."""
CHANGED = (
    "asked again, the first points of the run are answered differently: the target has changed "
    "since, or falls back to something else after a number of queries"
)
BEYOND_HELD_OUT = 5.0
"""A certificate states what its held-out inputs met; the answers of a whole run are many more,
and lie beside kinks, where rounding has longer tails."""
EXACT = 1e-6
"""Deviation over an output's spread up to which a network that answers without noise is exact:
between hyperplanes that nearly coincide it is worse than at the inputs of a certificate."""
EXACT_NOISE = 100.0
"""The same where answers are coarse or noisy, in deviations of an answer."""
WORST_KEPT = 64
"""Contradicting points that are kept, the worst first: where a search may go on."""
NOISE_MULTIPLE = 45.0
"""Standard deviations of noise by which an answer that is repeated may differ: rounding inside
a target has longer tails than a Gaussian (the certificate of coarse answers allows as many)."""
CHUNK = BLOCK >> 10
"""Answers compared at a time, each with up to a thousand units."""


@dataclasses.dataclass(frozen=True)
class Contradictions:
    """Answers that a network does not explain.

    Attributes
    ----------
    compared
        Answers looked at.
    count
        How many of them disagree.
    points, answers
        The worst of them, ``(n, d)`` and ``(n, m)``, worst first.
    excess
        Largest deviation over its tolerance, among all answers.
    rows
        Numbers of the first and the last of them in the run.
    norms
        Least and largest norm of their inputs.
    nearest
        Points and answers of least norm, the nearest first: as many as the worst.
    """

    compared: int
    count: int
    points: FloatArray
    answers: FloatArray
    excess: float
    rows: tuple[int, int]
    norms: tuple[float, float]
    nearest: tuple[FloatArray, FloatArray]

    def __bool__(self) -> bool:
        return self.count > 0

    def sentence(self, what: str = "the network") -> str:
        """Say how many disagree with ``what``, and where they lie."""
        first, last = self.rows
        return (
            f"{self.count:,} of {self.compared:,} answers of the run disagree with {what}, "
            f"by up to {self.excess:.2g} times what the noise allows: queries {first + 1:,} to "
            f"{last + 1:,}, at inputs of norm {self.norms[0]:.2g} to {self.norms[1]:.2g}"
        )


def predicted_answers(network: Network, answers: str, outputs: int) -> Predict:
    """Return what the target would answer if the network were it.

    ``answers`` is ``"values"`` or ``"log-odds"``: then the network gives logits,
    and the target their softmax or, with one output, their logistic function.
    """
    if answers == "values":
        return network

    def probabilities(points: FloatArray) -> FloatArray:
        logits = network(points)
        if outputs == 1:
            return np.asarray(scipy.special.expit(logits))
        return np.asarray(scipy.special.softmax(logits, axis=1))

    return probabilities


class Allowed(Protocol):
    """How far answers may lie from predictions."""

    def at(self, points: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return the tolerances ``(n, m)`` for predictions ``(n, m)`` at ``(n, d)``."""
        ...


@dataclasses.dataclass(frozen=True)
class Within:
    """One tolerance everywhere: for labels, half the distance of two."""

    tolerance: float = 0.5

    def at(self, points: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return it for every prediction."""
        return np.full(predicted.shape, self.tolerance)


class Tolerance:
    """How far an answer may lie from its prediction.

    A certificate states a tolerance for inputs of its own distribution.
    Errors of weights, and rounding inside a network, grow in proportion to the
    input; so does the tolerance beyond the typical norm. A logit's tolerance is
    carried over to its probability by the derivative of the softmax.
    """

    def __init__(self, tolerance: float | FloatArray, record: Record, answers: str) -> None:
        self.tolerance = tolerance
        self.log_odds = answers != "values"
        typical = record.of_stage("certificate") or record.first_rows(FIRST_AGAIN)
        norms = np.linalg.norm(typical[0], axis=1)
        self.radius = max(float(np.median(norms)), float(np.finfo(np.float64).tiny))
        self.grid = _grid(record)

    def at(self, points: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return the tolerances ``(n, m)`` for predictions ``(n, m)`` at ``(n, d)``."""
        growth = np.maximum(1.0, np.linalg.norm(points, axis=1) / self.radius)[:, None]
        allowed = self.tolerance * growth
        size = np.abs(predicted)
        eps = float(np.finfo(np.float64).eps)
        if self.log_odds:
            # A difference of two logits moves a probability by no more than this.
            most = np.log(np.finfo(np.float64).max) - 1.0
            allowed = size * np.expm1(np.minimum(2.0 * allowed, most))
            allowed = np.minimum(allowed, 1.0)
        # A probability may be what is left of one: it is rounded as one is.
        least = 8.0 * eps * (np.maximum(size, 1.0) if self.log_odds else size)
        return np.asarray(allowed + least + self.grid)


def _grid(record: Record) -> float:
    """Return the step of the decimal grid on which all answers lie, or 0 where there is none."""
    finest = np.inf
    for batch in record.batches():
        finest = min(finest, decimal_step(batch.answers))
        if finest == 0.0:
            return 0.0
    return float(finest) if np.isfinite(finest) else 0.0


class AnswerComparison:
    """Collects answers that were compared, and keeps those that disagree."""

    def __init__(self) -> None:
        self.compared = 0
        self.excess = 0.0
        self._wrong: list[tuple[FloatArray, FloatArray, FloatArray, IntArray]] = []

    def add(self, x: FloatArray, y: FloatArray, over: FloatArray, rows: IntArray) -> None:
        """Add points ``(n, d)``, answers, deviations over their tolerances, rows of the run."""
        if len(x) == 0:
            return
        self.compared += len(x)
        self.excess = max(self.excess, float(over.max()))
        wrong = ~(over <= 1.0)
        if wrong.any():
            self._wrong.append((x[wrong], y[wrong], over[wrong], rows[wrong]))

    def contradictions(self) -> Contradictions:
        """Return what disagrees."""
        if not self._wrong:
            none = np.empty((0, 0))
            return Contradictions(
                self.compared, 0, none, none, self.excess, (0, 0), (0.0, 0.0), (none, none)
            )
        x, y, over, rows = (np.concatenate(part) for part in zip(*self._wrong, strict=True))
        norms = np.linalg.norm(x, axis=1)
        worst = np.argsort(-np.nan_to_num(over, nan=np.inf))[:WORST_KEPT]
        near = np.argsort(norms, kind="stable")[:WORST_KEPT]
        return Contradictions(
            compared=self.compared,
            count=len(x),
            points=x[worst],
            answers=y[worst],
            excess=self.excess,
            rows=(int(rows.min()), int(rows.max())),
            norms=(float(norms.min()), float(norms.max())),
            nearest=(x[near], y[near]),
        )


def find_contradictions(
    record: Record, predict: Predict, tolerance: Allowed, read: Predict = np.asarray
) -> Contradictions:
    """Compare all answers of a record with their predictions.

    ``read`` turns answers ``(n, m)`` into what is predicted, where that is not the answers.
    """
    comparison = AnswerComparison()
    for batch in record.batches():
        for start in range(0, len(batch.points), CHUNK):
            x, seen = batch.points[start : start + CHUNK], batch.answers[start : start + CHUNK]
            predicted, y = predict(x), read(seen)
            if predicted.shape != y.shape:
                continue  # asked through another view of the target
            allowed = np.maximum(tolerance.at(x, predicted), np.finfo(np.float64).tiny)
            with np.errstate(over="ignore"):
                over = (np.abs(y - predicted) / allowed).max(axis=1)
            comparison.add(x, seen, over, batch.first + start + np.arange(len(x)))
    return comparison.contradictions()


def has_changed(oracle: Remembered, tolerance: Allowed) -> bool | None:
    """Ask the first points of the run again: whether the target answers them differently now.

    None where they cannot be asked.
    """
    points, before = oracle.record.first_rows(FIRST_AGAIN)
    if len(points) == 0:
        return None
    try:
        with oracle.stage(EXPLANATION):
            now = oracle.inner(points, repeat=1)
    except OracleError:
        return None
    return bool((np.abs(now - before) > tolerance.at(points, before)).any())


def tolerance_of(result: RecoveryResult, record: Record, answers: str) -> Tolerance:
    """Return how far answers may lie from a result's network, by its certificate.

    Values that are exact but for rounding may deviate by what exactness allows anywhere.
    """
    certificate = result.certificate
    assert certificate is not None
    stated: float | FloatArray = certificate.tolerance
    each = certificate.details.get("tolerance per output")
    held_out = record.of_stage("certificate")
    if answers != "values" or each is None or held_out is None:
        return Tolerance(BEYOND_HELD_OUT * stated, record, answers)
    stated = np.asarray(each, dtype=np.float64)
    typical = held_out[1][: certificate.samples]  # they are asked first, wide ones behind them
    size = np.maximum(np.abs(typical).max(axis=0), np.finfo(np.float64).tiny)
    spread = size * (typical / size).std(axis=0)  # squares of large answers overflow
    exact = stated <= EXACT * spread
    allowed = np.where(exact, EXACT * spread, BEYOND_HELD_OUT * stated)
    return Tolerance(allowed, record, answers)


def contradictions_of(oracle: Remembered, result: RecoveryResult, answers: str) -> Contradictions:
    """Return the answers of the run that a result's network does not explain."""
    assert result.network is not None
    predict = predicted_answers(result.network, answers, oracle.output_dim)
    tolerance = tolerance_of(result, oracle.record, answers)
    return find_contradictions(oracle.record, predict, tolerance)


def explained(oracle: Remembered, result: Result, answers: str) -> Result:
    """Return a result that claims to be recovered only if every answer of the run agrees."""
    if not result.success or result.network is None or result.certificate is None:
        return result
    tolerance = tolerance_of(result, oracle.record, answers)
    predict = predicted_answers(result.network, answers, oracle.output_dim)
    found = find_contradictions(oracle.record, predict, tolerance)
    if found:
        return contradicted(oracle, result, found, answers)
    certificate = result.certificate
    met = found.excess * float(np.max(tolerance.tolerance))
    if answers != "values" or met <= certificate.tolerance:
        return result
    # What all answers of the run met is what can be stated.
    wider = dataclasses.replace(certificate, tolerance=met)
    message = result.message.replace(str(certificate), str(wider))
    return dataclasses.replace(result, certificate=wider, message=message)


def contradicted(
    oracle: Remembered,
    result: Result,
    found: Contradictions,
    answers: str,
    status: Status = Status.PARTIAL,
) -> Result:
    """Return a result whose network answers of the run contradict (:func:`withdrawn`)."""
    tolerance = tolerance_of(result, oracle.record, answers)
    return withdrawn(oracle, result, found, tolerance, status)


def withdrawn(
    oracle: Remembered,
    result: Result,
    found: Contradictions,
    tolerance: Allowed,
    status: Status = Status.PARTIAL,
    what: str = "the network",
) -> Result:
    """Return the result with what contradicts it, and whether the target has changed.

    ``status`` is what remains where it has not; ``tolerance`` is that of answers given twice.
    """
    changed = has_changed(oracle, tolerance)
    why = "asked again, the first answers of the run are what they were"
    if changed:
        status, why = Status.ASSUMPTION_VIOLATED, CHANGED
    elif changed is None:
        why = "the first points of the run could not be asked again"
    sentence = found.sentence(what)
    report = StageReport(
        EXPLANATION, message=sentence, details={"contradicting": found.count, "changed": changed}
    )
    return dataclasses.replace(
        result,
        status=status,
        message=f"{sentence}; {why}. Apart from them: {result.message}",
        queries=oracle.queries,
        stages=(*result.stages, report),
    )


def told_if_changed(oracle: Remembered, result: Result, noise: float) -> Result:
    """Say of a run that recovered nothing whether its target has changed meanwhile."""
    tolerance = Tolerance(NOISE_MULTIPLE * noise, oracle.record, "values")
    if target_changed(result) or not has_changed(oracle, tolerance):
        return result
    return dataclasses.replace(
        result,
        status=Status.ASSUMPTION_VIOLATED,
        message=f"{CHANGED[0].upper()}{CHANGED[1:]}. {result.message}",
        queries=oracle.queries,
        stages=(
            *result.stages,
            StageReport(EXPLANATION, message=CHANGED, details={"changed": True}),
        ),
    )


def was_contradicted(result: RecoveryResult) -> bool:
    """Whether a result was withdrawn because answers of its run disagree with it."""
    return any(
        stage.name == EXPLANATION and stage.details.get("contradicting") for stage in result.stages
    )


def target_changed(result: RecoveryResult) -> bool:
    """Whether a result was contradicted by a target that answers differently now."""
    return any(
        stage.name == EXPLANATION and stage.details.get("changed") for stage in result.stages
    )
