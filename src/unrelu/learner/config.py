"""Every choice of the learner from queries that is a number, with its reason."""

from __future__ import annotations

import dataclasses
import math

from unrelu.core.memory import BLOCK
from unrelu.core.run import AGAIN
from unrelu.result import HELD_OUT

__all__ = ["AFFORDABLE", "DELTA", "FaithfulConstants", "LearnerConfig"]

DELTA = 0.05
"""Odds that a certificate's bound fails, where the caller does not say."""


@dataclasses.dataclass(frozen=True)
class FaithfulConstants:
    """Constants that the paper leaves inside O, Theta and polynomials, and its powers.

    The defaults are the paper's powers, and one for every constant: about 5e13 queries for
    two neurons in two inputs. :data:`AFFORDABLE` keeps the formulas for less.

    Attributes
    ----------
    exponent
        9/2, of ``Delta = (epsilon / P)^(9/2)`` (Theorem 4.8). Smaller makes small networks
        affordable.
    interval
        In ``r = O(Delta delta^2 / (k^4 (sqrt d + ...)))``, equation (12).
    interval_power
        The 4 of k^4 there.
    range
        In Theta of tau, equation (13).
    smallest
        Least ``|w_i|`` that tau must reach, over R, where it is known to be larger than
        ``epsilon / k``, below which a neuron may be replaced by a constant.
    """

    exponent: float = 4.5
    interval: float = 1.0
    interval_power: float = 4.0
    range: float = 1.0
    smallest: float = 0.0


AFFORDABLE = FaithfulConstants(
    exponent=1.0, interval=500.0, interval_power=1.0, range=2.0, smallest=0.3
)
"""Constants at which two or three neurons take 3e5 to 3e6 queries at delta = 0.1. tau reaches
neurons from 0.3 R on, but for one in 500; r comes to 0.005 to 0.02, so that two kinks share
an interval on one line in 100."""


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """Every choice of the learner that is a number."""

    share: float = 1.0 / 3.0
    """Part of epsilon that samples may show before a search goes on, and that merging neurons
    may cost; of epsilon squared, what bumps may lose that none meets; and of the queries spent
    anyway, what is spent again on samples where nothing tells how thin bumps are."""
    miss: float = 1e-3
    """Odds of missing a bump of the narrowest width within one deviation of the origin."""
    probes: int = 30_000
    """Samples spent at most to find what causes unexplained rounding noise."""
    lines: int = AGAIN
    """First lines tried, if one leaves doubt; and, for each of them, lines through samples
    that are not explained."""
    futile: int = AGAIN // 2
    """Lines in a row, through one point or through several, that may find nothing."""
    foreign: float = 0.1
    """Residual over the spread of F above which the target is no such network."""
    pilot: int = math.ceil(foreign**-2)
    """Gaussian samples at least: they tell the spread of F as well as that, to 10 %."""
    samples_per_parameter: float = 3.0
    """Answers for each parameter that coarse ones are fitted with; below 2 a fit overfits."""
    parameters: int = math.isqrt(BLOCK)
    """Parameters up to which neurons are fitted: beyond, their square is more than one block,
    and a step takes more than seconds."""
    held_out: int = HELD_OUT // 2
    """Gaussian inputs of the certificate; half as many wide ones at least, as what was assumed
    may be wrong, and they are cheap."""
    most: int = 1_000_000
    """Samples at most; where a thinner bump would need more, the certificate's bound says so."""
    constants: FaithfulConstants = dataclasses.field(default_factory=FaithfulConstants)
