"""What a target's answers are: probabilities, whose log-odds are piecewise affine, or values.

Numbers between 0 and 1 prove little: ``0.5 + 1e-7 g(x)`` stays there for any input that one
would think of. Two things do tell. A piecewise affine function that changes is unbounded, in
nearly every direction, so it leaves [0, 1] far out. And the middle of three points on a short
line lies half way between its neighbours in values, or half way in log-odds: where the two
predictions differ by more than the precision of the answers, each place casts a vote.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np
import scipy.special

from unrelu._types import FloatArray
from unrelu.core.noise import AGREES, decimal_step, is_single
from unrelu.oracles.wrappers import NotProbabilities, to_bfloat16

__all__ = [
    "AnswerVotes",
    "LookConfig",
    "between_zero_and_one",
    "complementary",
    "look_for_probabilities",
    "values_where_refuted",
    "vote",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class LookConfig:
    """Sizes of the look at a target's answers."""

    looks: int = 3
    """Typical inputs looked at first: most functions leave [0, 1] there."""
    far: float = 1.0 / float(np.finfo(np.float64).eps)
    """How far out the next ones lie, over typical inputs: what moves a typical answer by its
    last digit leaves [0, 1] there."""
    places: int = 12
    spacings: tuple[float, ...] = (0.02, 0.2, 1.0)
    """Places where a single column is asked at three points, and their distances over that of
    two typical inputs, in turn: short ones meet no kink, long ones bend coarse answers."""
    near: float = 0.25
    """A place votes where the two predictions differ by more than answers that agree: its
    middle answer must be this near to one of them, over their difference."""


@dataclasses.dataclass(frozen=True)
class AnswerVotes:
    """How many places read as straight in values, and how many in log-odds."""

    values: int
    log_odds: int


def values_where_refuted(
    method: Callable[Arguments, Result],
) -> Callable[Arguments, Result]:
    """Let a method that takes answers for probabilities begin again where one refutes that.

    Only where it was to find out what they are (``answers="auto"``).
    """

    @functools.wraps(method)
    def begun_again(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            return method(*args, **options)
        except NotProbabilities:
            if options.get("answers", "auto") != "auto":
                raise
            options["answers"] = "values"
            return method(*args, **options)

    return begun_again


def between_zero_and_one(seen: FloatArray) -> bool:
    """Whether answers ``(n, m)`` may be probabilities: rows of several sum to one.

    Each may be off as much as float32 answers that agree; rounded to decimals, by half a step.
    """
    inside = bool(((seen >= 0) & (seen <= 1)).all())
    if seen.shape[1] == 1:
        return inside
    if not inside:
        return False
    total = AGREES * float(np.finfo(np.float32).eps) * seen.shape[1]
    step = _grid_step(seen)
    if step < 1.0:  # whole numbers are labels
        total = total + 0.5 * seen.shape[1] * step
    return bool((np.abs(seen.sum(axis=1) - 1.0) <= total).all())


def _grid_step(seen: FloatArray) -> float:
    """Return the distance of neighbouring answers near one, by how they are written.

    In decimals, bfloat16, float32 or float64.
    """
    step = decimal_step(seen)
    if step > 0.0:
        return step
    if bool((to_bfloat16(seen) == seen).all()):
        return float(np.finfo(np.float32).eps) * 2.0**16  # the lower half of its bits is nought
    return float(np.finfo(np.float32 if is_single(seen) else np.float64).eps)


def vote(
    back: FloatArray, middle: FloatArray, ahead: FloatArray, config: LookConfig | None = None
) -> AnswerVotes:
    """Compare a single column at equidistant points of n lines with both ways to be straight.

    Parameters
    ----------
    back, middle, ahead
        Answers in [0, 1], ``(n,)`` each.
    """
    config = LookConfig() if config is None else config
    open_ = np.ones(len(middle), dtype=bool)
    for p in (back, middle, ahead):
        open_ &= (p > 0) & (p < 1)
    back, middle, ahead = back[open_], middle[open_], ahead[open_]
    if len(middle) == 0:
        return AnswerVotes(0, 0)
    straight = 0.5 * (back + ahead)
    logistic = scipy.special.expit(0.5 * (scipy.special.logit(back) + scipy.special.logit(ahead)))
    apart = np.abs(straight - logistic)
    telling = apart > AGREES * _grid_step(np.concatenate([back, middle, ahead]))
    by_value = telling & (np.abs(middle - straight) <= config.near * apart)
    by_odds = telling & (np.abs(middle - logistic) <= config.near * apart)
    return AnswerVotes(int(np.count_nonzero(by_value)), int(np.count_nonzero(by_odds)))


def look_for_probabilities(
    ask: Callable[[FloatArray], FloatArray],
    draw: Callable[[int], FloatArray],
    *,
    ways_out: tuple[float, ...] | None = None,
    config: LookConfig | None = None,
) -> tuple[bool, FloatArray]:
    """Find out whether a target answers with probabilities.

    Parameters
    ----------
    ask
        The target, ``(n, d) -> (n, m)``.
    draw
        Draws typical inputs.
    ways_out
        Signs with which an input may be taken far out: none in a box, 1 in the orthant; None:
        both. A unit that is off in one direction is on in the other.

    Returns
    -------
    found, answers
        The answers at the first few typical inputs, ``(looks, m)``.
    """
    config = LookConfig() if config is None else config
    typical = draw(config.looks)
    seen = ask(typical)
    if not between_zero_and_one(seen):
        return False, seen
    far = seen[:0]
    ways_out = (1.0, -1.0) if ways_out is None else ways_out
    if ways_out:
        far = ask(config.far * np.multiply.outer(np.array(ways_out), typical[0]))
        if not between_zero_and_one(far):
            return False, seen
    if seen.shape[1] > 1:
        return True, seen
    if float(np.ptp(np.concatenate([seen, far]))) == 0.0:
        return False, seen  # nothing changes: log-odds would say no more
    places = draw(config.places)
    spacing = np.resize(np.array(config.spacings), config.places)[:, None]
    step = spacing * (draw(config.places) - places)  # towards another input: stays inside
    p = ask(np.concatenate([places, places + 0.5 * step, places + step]))
    if not between_zero_and_one(p):
        return False, seen
    back, middle, ahead = p.reshape(3, -1)
    votes = vote(back, middle, ahead, config)
    if votes.log_odds == votes.values == 0:
        # Too coarse to tell, or all saturated. A logistic function ends at 0 or 1 far out; one
        # that is there at some typical inputs, and well inside at the rest, is clipped.
        near = np.isin(np.concatenate([seen, p]), (0.0, 1.0))
        ends = bool(np.isin(far, (0.0, 1.0)).any()) and bool(near.all() or not near.any())
        return ends, seen
    return votes.log_odds > votes.values, seen


def complementary(answers: FloatArray) -> bool:
    """Whether answers ``(n, 2)`` are a single probability beside its difference from one.

    That has lost the digits which the smaller of two outputs of a softmax keeps.
    """
    if answers.shape[1] != 2:
        return False
    first, second = answers.T
    return bool(((first == 1.0 - second) | (second == 1.0 - first)).all())
