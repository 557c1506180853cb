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
from collections.abc import Callable

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel
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

__all__ = ["LearnerCertificateConfig", "SquareLoss", "certify_square_loss"]


@dataclasses.dataclass(frozen=True)
class LearnerCertificateConfig:
    """Sizes of the certificate."""

    least: int = 5000
    """Gaussian samples."""
    least_wide: int = 2500
    """Wide samples at least: what was assumed may be wrong, and they are cheap."""
    most: int = 1_000_000
    """Samples at most, of both kinds; where a thinner bump would need more, the bound says so."""
    hidden: float = 0.25
    """Part of epsilon^2 that unseen bumps may take, when the number of samples is chosen."""
    stands_out: float = 5.0
    """Deviation over epsilon from which a point is a hit, beside the noise. Neurons that samples
    agree with miss by a third of epsilon, root mean square, and twice that at wide inputs."""
    noise: float = 6.0
    """Deviations of the noise added to that: one answer in 1e9 exceeds them."""
    coarse: float = 2e-8
    """Noise over the spread above which Gaussian points are asked twice: the product of two
    residuals with independent noise has mean (F - F')^2, without the noise's variance."""
    glance: int = 500
    """Wide inputs asked first, twice as many then, and so on up to ``batch``."""
    batch: int = 50_000


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
    network: Callable[[FloatArray], FloatArray],
    *,
    found: Callable[[FloatArray], FloatArray],
    epsilon: float,
    delta: float,
    total: float,
    noise: NoiseModel,
    facts: dict[str, float | str],
    expect: Callable[[int], None],
    rng: np.random.Generator,
    config: LearnerCertificateConfig,
    patient: bool = True,
) -> SquareLoss:
    """Compare at fresh inputs, Gaussian and wide.

    Parameters
    ----------
    network
        F'.
    found
        The same before neurons were merged or left out for being flat. What that costs is
        arithmetic, in which nothing hides; far out it would stand out for no reason.
    epsilon
        Root mean square error asked for, in answer units.
    total
        V: what the norms of the neurons of F and ``found`` that differ add up to, at most.
    noise
        Of the answers.
    facts
        What else was assumed, for the certificate's details.
    expect
        Told how many inputs will be asked, before they are.
    patient
        If not, the first inputs that stand out end it: they are for a search, and the
        certificate that follows is another one.
    """
    half = 0.5 * delta  # for the sampling error of what is seen, and for what is not
    slope = bump_slope(total)
    few = hits_bound(0, half)
    need = wide_samples(bump_width(config.hidden * epsilon**2, slope), few)
    n, wide = _sizes(oracle, need, config)
    expect(2 * n + wide)

    def stand_out(x: FloatArray, y: FloatArray) -> BoolArray:
        limit = config.noise * np.linalg.norm(noise.at(x), axis=1)
        away = np.linalg.norm(y - found(x), axis=1)
        return np.asarray(away > config.stands_out * epsilon + limit)

    def in_vain(hits: int) -> bool:
        if not patient:
            return hits > 0
        return bump_square_loss(wide_width(wide, hits_bound(hits, half)), slope) > epsilon**2

    far = _ask_wide(oracle, wide, stand_out, in_vain, rng, config)
    cut = not patient and len(far.hit_x) > 0
    x = rng.standard_normal((min(n, config.glance) if cut else n, oracle.input_dim))
    answers = oracle(x)
    residual = answers - network(x)
    square = (residual**2).sum(axis=1)
    again = None if cut else _asked_twice(oracle, x, answers, noise, config)
    if again is not None:
        square = (residual * (again - network(x))).sum(axis=1)
    hit = stand_out(x, answers)
    hit_inputs = np.concatenate([x[hit], far.hit_x])
    hit_answers = np.concatenate([answers[hit], far.hit_y])
    mean = max(float(square.mean()), 0.0)
    spread = float(square.std(ddof=1)) if len(x) > 1 else math.inf
    # Below the limit of a hit, a rare deviation loses little even where it is unseen.
    seen = mean + float(scipy.special.ndtri(1.0 - half)) * spread / math.sqrt(len(x))
    seen += few / len(x) * (config.stands_out * epsilon) ** 2
    narrowest = wide_width(far.asked, hits_bound(len(hit_inputs), half))
    unseen = bump_square_loss(narrowest, slope)
    bound = seen + unseen
    certificate = Certificate.from_deviations(
        np.linalg.norm(residual, axis=1),
        scale=float(np.sqrt(answers.var(axis=0).sum())),
        tolerance=epsilon,
        confidence=1.0 - delta,
        details={
            "square loss": mean,
            "square loss bound": bound,
            "root mean square bound": math.sqrt(bound),
            "part of unseen bumps": unseen,
            "narrowest bump that could be seen": narrowest,
            "wide inputs": far.asked,
            "inputs that stand out": len(hit_inputs),
            "answers per point": 1 if again is None else 2,
            **facts,
        },
    )
    return SquareLoss(
        certificate, bound, x, answers, far.x, far.y, hit_inputs, hit_answers, cut_short=cut
    )


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
    stand_out: Callable[[FloatArray, FloatArray], BoolArray],
    in_vain: Callable[[int], bool],
    rng: np.random.Generator,
    config: LearnerCertificateConfig,
) -> _Wide:
    """Ask wide inputs, ever more at a time, until the rest would be asked in vain."""
    none = np.empty((0, oracle.input_dim)), np.empty((0, oracle.output_dim))
    first, hits = [none], [none]
    asked, size = 0, config.glance
    while asked < count:
        x = WIDE * rng.standard_normal((min(size, count - asked), oracle.input_dim))
        y = oracle(x)
        out = stand_out(x, y)
        hits.append((x[out], y[out]))
        if asked < config.least_wide:
            first.append((x, y))
        asked += len(x)
        size = min(2 * size, config.batch)
        if in_vain(sum(len(some) for some, _ in hits)):
            break
    x, y = (np.concatenate(arrays) for arrays in zip(*first, strict=True))
    hit_x, hit_y = (np.concatenate(arrays) for arrays in zip(*hits, strict=True))
    return _Wide(x, y, hit_x, hit_y, asked)


def _sizes(oracle: Oracle, need: float, config: LearnerCertificateConfig) -> tuple[int, int]:
    """Return how many Gaussian and wide samples are asked, within the budget."""
    most = config.most
    budget = oracle.meter.budget
    if budget is not None:
        most = max(1, min(most, budget - oracle.queries.total))
    n = min(config.least, max(1, 2 * most // 3))
    return n, min(max(math.ceil(min(need, most)), config.least_wide), most - n)


def _asked_twice(
    oracle: Oracle,
    x: FloatArray,
    answers: FloatArray,
    noise: NoiseModel,
    config: LearnerCertificateConfig,
) -> FloatArray | None:
    """Ask a second time where answers are noisy and the budget allows it."""
    budget = oracle.meter.budget
    room = budget is None or budget - oracle.queries.total >= len(x)
    if not room or float(noise.absolute.max()) <= config.coarse * float(answers.std()):
        return None
    return oracle(x, repeat=1)
