"""Whether the target behind a ledger still is the one that gave the answers in it.

A name is no proof: a model behind an address is retrained, a script loads other
weights. So the first time that a section with answers of an earlier run is used,
three of its first points are asked again, in a stage of their own, before anything
is answered from the ledger or added to it. Answers that differ by more than the
noise mean another model.

What counts as noise is taken from what is known: the precision that the held
answers show, and how far repetitions of the same point differ in the ledger. Where
that does not explain a difference, the points are asked several times more, in
batches of other sizes, and the scatter of these answers decides.
"""

from __future__ import annotations

import logging
import threading

import numpy as np
import scipy.stats

from unrelu._types import FloatArray
from unrelu.errors import BudgetExhausted, InvalidAnswer, LedgerMismatch, OracleError
from unrelu.ledger import FIRST_POINTS, FirstPoint, LedgerBinding
from unrelu.oracles.base import Oracle

__all__ = ["ASKED_AGAIN", "STAGE", "IdentityCheck"]

STAGE = "identity"
ASKED_AGAIN = 3  # points
COPIES = FIRST_POINTS  # of each point in one batch, where the noise must be measured
_ERROR = 1e-6
"""Probability that noise alone is taken for another model."""
_UNITS = 8.0
"""Roundings, per root of the number of inputs, by which a sum in another order may differ."""
_PRECISIONS = (8, *(np.finfo(kind).nmant + 1 for kind in (np.float16, np.float32)))
"""Binary digits of bfloat16, float16 and float32."""
_NEAT = 5
"""Numbers of this many binary digits, such as 1.25, are exact rather than rounded to so few."""
_LABELS = 2.0**20
"""Whole numbers below this are labels; large numbers of any precision are whole, too."""
_DECIMALS = range(4, 10)
"""Printed decimals whose last one may flip with the rounding inside the target: fewer hide it,
more are no rounding."""

_log = logging.getLogger("unrelu")


class IdentityCheck:
    """Asks some first points of a reopened section again, once, when it is first used."""

    def __init__(self, target: Oracle, binding: LedgerBinding) -> None:
        self._target = target
        self._binding = binding
        self._lock = threading.Lock()
        self._due = binding.reopened
        self._unreached = False
        self._mismatch = ""

    def run(self, *, sending: bool) -> None:
        """Check if that is due; ``sending`` says that new rows will be sent next.

        Raises
        ------
        LedgerMismatch
            The target answers otherwise than it did.
        OracleError
            The target cannot be asked, and new rows were to be sent.
        """
        with self._lock:
            if self._mismatch:
                raise LedgerMismatch(self._mismatch)
            if self._due and (sending or not self._unreached):
                self._check(sending)

    def _check(self, sending: bool) -> None:
        first = self._binding.first_points(self._target.output_dim)
        if not first:
            self._skip("it was begun by an older version, which kept no points")
            return
        try:
            problem = self._compare(first)
        except BudgetExhausted:
            self._skip("the budget leaves no queries for it")
        except InvalidAnswer as error:
            self._refuse(f"asked again, {error}")
        except OracleError as error:
            error.answers = None  # they are no answers to what the caller asked
            if sending:
                raise
            # Held answers need no target; before new ones join them, this is tried again.
            self._unreached = True
            self._say(f"the target cannot be asked ({error})")
        else:
            self._due = False
            if problem:
                self._refuse(problem)

    def _skip(self, reason: str) -> None:
        self._due = False
        self._say(reason)

    def _say(self, reason: str) -> None:
        _log.warning(
            "it was not checked that %s still gives the answers in %s: %s",
            self._binding.identity, self._binding.ledger.path, reason,
        )  # fmt: skip

    def _refuse(self, problem: str) -> None:
        name, path = self._binding.identity, self._binding.ledger.path
        self._mismatch = (
            f"{path} holds answers of another model under the name {name!r}: {problem}. Use "
            "another ledger file, or give this model another name (name=, --name); or, if the "
            f"old answers may go, delete them: unrelu ledger prune {path} --oracle '{name}'"
        )
        raise LedgerMismatch(self._mismatch)

    # ------------------------------------------------------------------ compare

    def _compare(self, first: list[FirstPoint]) -> str:
        """Ask again; return what contradicts the ledger, or an empty text."""
        chosen = [first[i] for i in farthest_apart(first, ASKED_AGAIN)]
        held = np.stack([one.answers[0] for one in chosen])
        new = self._ask(chosen)
        rounding = rounding_of(np.stack([one.answers[0] for one in first]), len(first[0].point))
        scatter, freedom = pooled_scatter([one.answers for one in first])
        allowed = rounding + _quantile(held.size, freedom) * np.sqrt(2.0) * scatter
        if (np.abs(new - held) <= allowed).all():
            return ""
        try:
            several = self._ask_several_times(chosen, new)
        except BudgetExhausted:  # then what is known must do
            several = new[:, None]
        scatter, freedom = pooled_scatter(list(several))
        count = several.shape[1]
        spread = np.sqrt(1.0 + 1.0 / count) * scatter
        allowed = np.maximum(allowed, rounding + _quantile(held.size, freedom) * spread)
        gap = np.abs(several.mean(axis=1) - held)
        wrong = (gap > allowed).any(axis=1)
        if not wrong.any():
            return ""
        return (
            f"asked again, {np.count_nonzero(wrong)} of {len(held)} points get other answers, by "
            f"up to {gap.max():.2g} where the largest held is {np.abs(held).max():.2g} and noise "
            f"explains {np.max(allowed):.1g}"
        )

    def _ask(self, chosen: list[FirstPoint]) -> FloatArray:
        """Ask points once, each with the repeat index that it had."""
        answers = np.empty((len(chosen), self._target.output_dim))
        repeats = np.array([one.repeat for one in chosen])
        points = np.stack([one.point for one in chosen])
        with self._target.meter.stage(STAGE):
            for repeat in np.unique(repeats):
                rows = repeats == repeat
                answers[rows] = self._target._answer(points[rows], int(repeat))
        return answers

    def _ask_several_times(self, chosen: list[FirstPoint], new: FloatArray) -> FloatArray:
        """Ask each point alone and as part of a larger batch; return ``(k, n, m)``."""
        alone = np.concatenate([self._ask([one]) for one in chosen])
        batch = self._ask(chosen * COPIES).reshape(COPIES, *new.shape)
        return np.stack([new, alone, *batch], axis=1)


def farthest_apart(first: list[FirstPoint], count: int) -> list[int]:
    """Return which points to ask: the largest, then always the one farthest from all chosen.

    Inputs far apart switch different neurons, and answers far apart show that they do: where
    a network is flat, every network that is flat there answers the same. The origin alone
    would tell the biases, and nothing about a network without them.
    """
    inputs = np.stack([one.point for one in first])
    answers = np.stack([one.answers[0] for one in first])
    answers = answers - np.median(answers, axis=0)
    places = np.concatenate(
        [part / (np.linalg.norm(part, axis=1).max() or 1.0) for part in (inputs, answers)], axis=1
    )
    chosen = [int(np.argmax(np.linalg.norm(places, axis=1)))]
    while len(chosen) < min(count, len(places)):
        gaps = np.linalg.norm(places[:, None] - places[chosen], axis=2).min(axis=1)
        gaps[chosen] = -1.0
        chosen.append(int(np.argmax(gaps)))
    return chosen


def rounding_of(answers: FloatArray, inputs: int) -> float:
    """Return by how much rounding alone may change answers such as these ``(n, m)``.

    Labels (whole numbers) do not round. Otherwise the precision that all answers
    show is taken for that of the target's arithmetic, which sums as many terms as
    there are inputs, in an order that depends on the size of a batch.
    """
    largest = np.abs(answers).max()
    if (answers == np.round(answers)).all() and largest < _LABELS:
        return 0.0
    fitting = (bits for bits in (_NEAT, *_PRECISIONS) if (_cut(answers, bits) == answers).all())
    digits = next(fitting, 53)
    unit = 2.0 ** -(53 if digits == _NEAT else digits)
    printed = (n for n in range(_DECIMALS.stop) if (np.round(answers, n) == answers).all())
    decimals = next(printed, 0)
    if decimals in _DECIMALS:
        return 1.5 * 10.0**-decimals  # one step of the last decimal, and half for comparing
    return float(_UNITS * np.sqrt(inputs) * unit * largest)


def _cut(values: FloatArray, bits: int) -> FloatArray:
    """Round to a number of significant binary digits."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits))


def pooled_scatter(groups: list[FloatArray]) -> tuple[FloatArray, int]:
    """Return the standard deviation ``(m,)`` within groups ``(r, m)``, and its freedom."""
    squares = sum(((group - group.mean(axis=0)) ** 2).sum(axis=0) for group in groups)
    freedom = sum(len(group) - 1 for group in groups)
    return np.sqrt(np.asarray(squares) / max(1, freedom)), freedom


def _quantile(values: int, freedom: int) -> float:
    """Return how many deviations the largest of ``values`` differences may reach."""
    if freedom == 0:
        return 0.0  # no scatter was seen, and the factor before it does not matter
    return float(scipy.stats.t.isf(_ERROR / (2 * values), freedom))
