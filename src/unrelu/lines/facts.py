"""What is known of a target when a method is chosen, and what a method offers to do about it.

:mod:`unrelu.choose` looks at a target once and shows the facts to every method. A method that
can serve it answers with an :class:`Offer`: what it saw, at which price, with which promise.
An attempt that failed is a fact too, so that a method may offer to go on from there.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import AnswerKind, ArrayLike, FloatArray
from unrelu.core.explain import (
    EXACT,
    NOISE_MULTIPLE,
    Tolerance,
    find_contradictions,
    predicted_answers,
)
from unrelu.core.noise import HALF_DIGITS
from unrelu.core.price import UNSURE, Price
from unrelu.core.record import Record, Remembered
from unrelu.diagnostics import Diagnosis
from unrelu.lines.first_look import FirstLook, FirstLookConfig, take_first_look
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress
from unrelu.result import RecoveryResult

__all__ = ["Area", "Facts", "Merit", "Offer", "Run", "follow_hyperplanes"]

Area = str | tuple[ArrayLike, ArrayLike]
Run = Callable[[Remembered, np.random.Generator, Progress], RecoveryResult]

COARSE = 1e-3
"""Noise over the size of answers above which exact recovery is not tried; error over their
spread above which a result is called ill conditioned."""


class Merit(enum.IntEnum):
    """What a method promises, the least first."""

    NOTHING = 0
    """To say why nothing can be recovered."""
    PART = 1
    """A part of the network."""
    COPY = 2
    """A network that comes close."""
    RETRY = 3
    """The network, though the facts speak for another depth."""
    NETWORK = 4
    """The network."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a target.

    Attributes
    ----------
    diagnosis
        Kind of answers, noise, precision, smoothness.
    look
        Which of a few hyperplanes bend; None where none were followed.
    look_saved
        Whether none were since an attempt at one hidden layer tells the same for less.
    area
        ``"all"``, ``"nonnegative"`` or ``"box"``: where the target may be asked.
    domain
        The same as the caller gave it.
    attempts
        Names of the methods that have been tried, and their results.
    record
        All answers seen.
    told
        How answers are to be read, where the caller said so.
    limits
        What limits inputs to the domain, in words, where that was found by asking.
    """

    diagnosis: Diagnosis
    look: FirstLook | None = None
    area: str = "all"
    domain: Area = "all"
    attempts: tuple[tuple[str, RecoveryResult], ...] = ()
    record: Record | None = None
    told: AnswerKind = "auto"
    limits: str = ""
    look_saved: bool = False

    @property
    def everywhere(self) -> bool:
        """Whether the target answers anywhere."""
        return self.area == "all"

    @property
    def affine_pieces(self) -> bool:
        """Whether answers, or their log-odds, may be piecewise affine and no mere steps."""
        facts = self.diagnosis
        if facts.kind == "labels" or facts.locally_constant:
            return False
        return facts.piecewise_linear is not False or self.area == "box"

    @property
    def changing(self) -> bool:
        """Whether a question is answered differently from time to time."""
        return not self.diagnosis.deterministic and self.diagnosis.relative_noise > EXACT

    @property
    def coarse(self) -> bool:
        """Whether values are too noisy, or have too few digits, for exact recovery."""
        values = self.diagnosis.kind == "values"
        return values and (self.changing or self.diagnosis.relative_noise > COARSE)

    @property
    def rounded(self) -> bool:
        """Whether answers have less than half of float64's digits."""
        return self.diagnosis.relative_noise > HALF_DIGITS

    @property
    def few_digits(self) -> bool:
        """Whether answers are float32 numbers, or values with a few decimals."""
        seen = self.diagnosis
        decimals = seen.kind == "values" and seen.precision.endswith("decimals")
        return self.rounded and (decimals or seen.precision == "float32")

    @property
    def rounded_odds(self) -> bool:
        """Whether answers are probabilities of several classes, with a few decimals.

        The steps of their logarithms are of all sizes: no line of them can be read.
        """
        decimals = self.diagnosis.precision.endswith("decimals")
        return self.probabilities and decimals and self.diagnosis.output_dim > 1

    @property
    def probabilities(self) -> bool:
        """Whether answers are probabilities."""
        return self.diagnosis.kind == "probabilities"

    @property
    def smooth_kind(self) -> str:
        """What a smooth target may be, by how it grows far out."""
        exponent = round(self.diagnosis.growth)
        if exponent <= 0:
            return "answers saturate: tanh or sigmoid units, or a squashed output"
        if exponent == 1:
            return "answers grow linearly: GELU, SiLU or softplus units, or attention"
        return "answers grow faster than linearly: products of inputs, as in attention"

    @property
    def deeper(self) -> int:
        """Hyperplanes that were seen to bend: those of a second hidden layer, or a later one."""
        return 0 if self.look is None else self.look.deeper

    @property
    def hyperplanes(self) -> float:
        """Rough number of hyperplanes, as far as they were seen."""
        seen = self.diagnosis.hyperplanes
        if self.look is None or self.look.kinks == 0:
            return seen or 1.0
        return math.sqrt(max(1.0, seen or self.look.hyperplanes) * self.look.hyperplanes)

    @property
    def ranks(self) -> tuple[float, float]:
        """Two guesses of the rank of the first layer."""
        d = self.diagnosis.input_dim
        if self.diagnosis.hyperplanes is None:
            return max(1.0, d / 10.0), max(1.0, d / 2.0)  # nothing tells the rank
        k = self.hyperplanes
        return min(d, k * self.first_share / UNSURE), min(float(d), k * UNSURE)

    @property
    def first_share(self) -> float:
        """Part of the hyperplanes followed that belongs to the first layer."""
        look = self.look
        if look is None or look.first + look.deeper == 0:
            return 0.5
        return (look.first + 0.5) / (look.first + look.deeper + 1.0)

    def tried(self, method: str) -> RecoveryResult | None:
        """Return the result of an attempt, or None."""
        return next((result for name, result in self.attempts if name == method), None)

    def after(self, method: str, result: RecoveryResult) -> Facts:
        """Return the facts with one more attempt."""
        return dataclasses.replace(self, attempts=(*self.attempts, (method, result)))

    def contradicting(self) -> tuple[FloatArray, FloatArray]:
        """Return inputs and answers that networks of earlier attempts do not explain."""
        facts, record = self.diagnosis, self.record
        points = [np.empty((0, facts.input_dim))]
        answers = [np.empty((0, facts.output_dim))]
        if record is not None:
            allowed = max(NOISE_MULTIPLE * facts.noise, HALF_DIGITS * facts.scale)
            tolerance = Tolerance(allowed, record, "values")
            for _, result in self.attempts:
                if result.network is None:
                    continue
                predict = predicted_answers(result.network, "values", facts.output_dim)
                found = find_contradictions(record, predict, tolerance)
                if found:
                    points.append(found.points)
                    answers.append(found.answers)
        return np.concatenate(points), np.concatenate(answers)


@dataclasses.dataclass(frozen=True)
class Offer:
    """What a method offers for a target.

    Attributes
    ----------
    method
        Name of the public function.
    words
        What it does, in words.
    reason
        What was seen that speaks for it, in words.
    merit
        What it promises; the offer of most merit is taken, the cheaper of two.
    price
        Queries that it will roughly take, certificate included.
    run
        Does it.
    epsilon
        Error asked of a learner, over the spread of the answers.
    """

    method: str
    words: str
    reason: str
    merit: Merit
    price: Price
    run: Run
    epsilon: float = 0.0


def follow_hyperplanes(
    target: Oracle,
    seen: Diagnosis,
    generator: np.random.Generator,
    config: FirstLookConfig | None = None,
) -> FirstLook | None:
    """Follow a few hyperplanes, those of log-odds where answers are probabilities."""
    asked, noise = target, seen.noise
    if seen.kind == "probabilities":
        if seen.output_dim == 1 or not seen.precision.startswith("float"):
            return None  # log(1 - p) loses its digits before anything can be followed
        near = target(generator.standard_normal((4, target.input_dim)))
        asked = LogOdds(target, reference=int(np.argmax(near.mean(axis=0))))
        eps = np.finfo(np.float32 if seen.precision == "float32" else np.float64).eps
        noise = 4.0 * float(eps)
    noise = max(noise, 4.0 * float(np.finfo(np.float64).eps) * seen.scale, 1e-300)
    with np.errstate(invalid="ignore"):
        return take_first_look(
            asked,
            target.input_dim,
            noise=noise,
            grows="float" in seen.precision,
            hyperplanes=seen.hyperplanes,
            rng=generator,
            config=config,
        )
