"""The certificate: an upper confidence bound on ``E[(F - F')^2]`` under N(0, I).

Two parts are added. What the samples show: the mean of the squares and its
sampling error. What they cannot show: bumps so thin, or so far out, that none
of them was hit.

For the second part inputs are asked that are twice as large as Gaussian ones,
``x = 2 g``. Say the norms of the neurons of F - F' add up to at most V, and
what hides is a sum of functions of one direction each, zero but on a slab or
beyond a hyperplane. Had the slabs more than a mass of ``c / n`` of the wide
inputs, one of n would have hit them, but for odds of ``exp(-c)``; with m hits c
is the Poisson mean's upper limit. Slabs of less mass lose at most as much as one
triangle at the origin, of width ``2 c / (n phi(0))`` and slopes ``V / 4``
(:func:`~unrelu.learner.formulas.wide_width`,
:func:`~unrelu.learner.formulas.bump_slope`). Without V there is no bound
at all (Remark 1.3 of Chen, Klivans & Meka); k neurons of norm R have V = k R.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.learner.config import LearnerConfig
from unrelu.learner.formulas import (
    WIDE,
    bump_slope,
    bump_square_loss,
    bump_width,
    hits_bound,
    wide_samples,
    wide_width,
)
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate

__all__ = ["Claim", "SquareLoss", "certify_square_loss"]

Function = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a certificate is to vouch for.

    Attributes
    ----------
    network
        F'.
    found
        The same before neurons were merged or left out for being flat. What that costs is
        arithmetic, in which nothing hides; far out it would stand out for no reason.
    epsilon, delta
        Root mean square error asked for, in answer units, and the odds of being wrong.
    total
        V: what the norms of the neurons of F and ``found`` that differ add up to, at most.
    allowed
        How far an answer may lie from ``found``, ``(n, d) -> (n,)``; beyond it stands out.
    missed
        The same without the noise of the answers.
    noisy
        Whether answers carry more noise than float64's digits.
    facts
        What else was assumed, for the certificate's details.
    """

    network: Function
    found: Function
    epsilon: float
    delta: float
    total: float
    allowed: Function
    missed: Function
    noisy: bool
    facts: Mapping[str, float | str]

    @property
    def half(self) -> float:
        """Odds for the sampling error of what is seen, and for what is not."""
        return 0.5 * self.delta

    def stands_out(self, x: FloatArray, y: FloatArray) -> BoolArray:
        """Tell which answers contradict what was found, ``(n,)``."""
        return np.asarray(np.linalg.norm(y - self.found(x), axis=1) > self.allowed(x))

    def unseen(self, asked: int, hits: int) -> float:
        """Return the largest square loss of what so many wide inputs met so seldom."""
        return bump_square_loss(
            wide_width(asked, hits_bound(hits, self.half)), bump_slope(self.total)
        )


@dataclasses.dataclass(frozen=True)
class SquareLoss:
    """What a certificate saw.

    Attributes
    ----------
    certificate
        Of the Gaussian inputs.
    bound
        Upper bound on ``E[(F - F')^2]``, with confidence ``1 - delta``.
    inputs, answers
        The Gaussian inputs, ``(n, d)`` and ``(n, m)``.
    wide_inputs, wide_answers
        The first of the wide inputs.
    hit_inputs, hit_answers
        Inputs of either kind that stand out: where a search should go on.
    cut_short
        Whether they ended it before all that vouches for a network was asked.
    """

    certificate: Certificate
    bound: float
    inputs: FloatArray
    answers: FloatArray
    wide_inputs: FloatArray
    wide_answers: FloatArray
    hit_inputs: FloatArray
    hit_answers: FloatArray
    cut_short: bool = False


def certify_square_loss(
    oracle: Oracle,
    claim: Claim,
    *,
    expect: Callable[[int], None],
    rng: np.random.Generator,
    config: LearnerConfig,
    patient: bool = True,
) -> SquareLoss:
    """Compare at fresh inputs, Gaussian and wide.

    Parameters
    ----------
    expect
        Told how many inputs will be asked, before they are.
    patient
        If not, the first inputs that stand out end it: they are for a search, and the
        certificate that follows is another one.
    """
    few = hits_bound(0, claim.half)
    narrow = bump_width(config.share * claim.epsilon**2, bump_slope(claim.total))
    n, wide = _sizes(oracle, wide_samples(narrow, few), config)
    expect(2 * n + wide)

    def in_vain(hits: int) -> bool:
        if not patient:
            return hits > 0
        return claim.unseen(wide, hits) > claim.epsilon**2

    far = _ask_wide(oracle, wide, claim.stands_out, in_vain, rng, config)
    cut = not patient and len(far.hit_x) > 0
    x = rng.standard_normal((max(1, n // 10) if cut else n, oracle.input_dim))
    answers = oracle(x)
    residual = answers - claim.network(x)
    # The product of two residuals with independent noise has mean (F - F')^2, without the
    # noise's variance.
    again = None if cut or not claim.noisy else _asked_twice(oracle, x)
    other = residual if again is None else again - claim.network(x)
    square = (residual * other).sum(axis=1)
    hit = claim.stands_out(x, answers)
    hits = np.concatenate([x[hit], far.hit_x]), np.concatenate([answers[hit], far.hit_y])
    mean = max(float(square.mean()), 0.0)
    spread = float(square.std(ddof=1)) if len(x) > 1 else math.inf
    seen = mean + float(scipy.special.ndtri(1.0 - claim.half)) * spread / math.sqrt(len(x))
    # Below the limit of a hit, a rare deviation loses little even where it is unseen.
    seen += few / len(x) * float(np.mean(claim.missed(x) ** 2))
    unseen = claim.unseen(far.asked, len(hits[0]))
    certificate = Certificate.from_deviations(
        np.linalg.norm(residual, axis=1),
        scale=float(np.sqrt(answers.var(axis=0).sum())),
        tolerance=claim.epsilon,
        confidence=1.0 - claim.delta,
        details={
            "square loss": mean,
            "square loss bound": seen + unseen,
            "root mean square bound": math.sqrt(seen + unseen),
            "part of unseen bumps": unseen,
            "narrowest bump that could be seen": wide_width(
                far.asked, hits_bound(len(hits[0]), claim.half)
            ),
            "wide inputs": far.asked,
            "inputs that stand out": len(hits[0]),
            "answers per point": 1 if again is None else 2,
            **claim.facts,
        },
    )
    return SquareLoss(certificate, seen + unseen, x, answers, far.x, far.y, *hits, cut_short=cut)


@dataclasses.dataclass(frozen=True)
class _Wide:
    """Wide inputs: the first of them, those that stand out, and how many were asked."""

    x: FloatArray
    y: FloatArray
    hit_x: FloatArray
    hit_y: FloatArray
    asked: int


def _ask_wide(
    oracle: Oracle,
    count: int,
    stands_out: Callable[[FloatArray, FloatArray], BoolArray],
    in_vain: Callable[[int], bool],
    rng: np.random.Generator,
    config: LearnerConfig,
) -> _Wide:
    """Ask wide inputs, ever more at a time, until the rest would be asked in vain."""
    none = np.empty((0, oracle.input_dim)), np.empty((0, oracle.output_dim))
    first, hits = [none], [none]
    asked, size = 0, max(1, config.held_out // 10)
    while asked < count:
        x = WIDE * rng.standard_normal((min(size, count - asked), oracle.input_dim))
        y = oracle(x)
        out = stands_out(x, y)
        hits.append((x[out], y[out]))
        if asked < config.held_out // 2:
            first.append((x, y))
        asked += len(x)
        size = min(2 * size, 10 * config.held_out)
        if in_vain(sum(len(some) for some, _ in hits)):
            break
    x, y = (np.concatenate(arrays) for arrays in zip(*first, strict=True))
    hit_x, hit_y = (np.concatenate(arrays) for arrays in zip(*hits, strict=True))
    return _Wide(x, y, hit_x, hit_y, asked)


def _sizes(oracle: Oracle, need: float, config: LearnerConfig) -> tuple[int, int]:
    """Return how many Gaussian and wide samples are asked, within the budget."""
    most = config.most
    budget = oracle.meter.budget
    if budget is not None:
        most = max(1, min(most, budget - oracle.queries.total))
    n = min(config.held_out, max(1, 2 * most // 3))
    return n, min(max(math.ceil(min(need, most)), config.held_out // 2), most - n)


def _asked_twice(oracle: Oracle, x: FloatArray) -> FloatArray | None:
    """Ask a second time where the budget allows it."""
    budget = oracle.meter.budget
    if budget is not None and budget - oracle.queries.total < len(x):
        return None
    return oracle(x, repeat=1)
