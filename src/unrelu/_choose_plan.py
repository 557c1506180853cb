"""The plan of an extraction: what was seen, who offers to recover it, and what that costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._choose_range import clipped_range, refused_range
from unrelu._random import RandomState, as_generator
from unrelu._types import AnswerKind, FloatArray
from unrelu.core.frame import Frame, Framed, frame_of_rows
from unrelu.core.price import Price
from unrelu.core.record import Record, Remembered, remembered
from unrelu.diagnostics import Diagnosis, check_reading, diagnose
from unrelu.errors import BudgetExhausted, OracleError
from unrelu.extraction import accepts as extraction
from unrelu.labels import accepts as labels
from unrelu.learner import accepts as learner
from unrelu.lines.domains import as_domain
from unrelu.lines.facts import Area, Facts, Offer, follow_hyperplanes
from unrelu.lines.first_look import FirstLook, FirstLookConfig
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle, Wrapper
from unrelu.oracles.wrappers import NotProbabilities
from unrelu.smooth import accepts as smooth
from unrelu.span import accepts as span

__all__ = [
    "METHODS",
    "ExtractionPlan",
    "best_offer",
    "looked_at",
    "make_plan",
    "of_values",
    "plan_extraction",
]

METHODS: tuple[Callable[[Facts], Offer | None], ...] = (
    extraction.two_layers,
    extraction.three_layers,
    extraction.noisy_answers,
    extraction.two_hidden_noisy,
    extraction.in_a_box,
    extraction.leaky_layers,
    extraction.any_depth,
    labels.network_of_labels,
    smooth.smooth_layer,
    learner.learned_copy,
    span.span_of_values,
    span.span_of_labels,
)
"""All methods that recover something from queries; each says itself what it accepts."""

PRICES: dict[str, Callable[[Facts], Price]] = {
    "extract_two_layer": extraction.price_of_two_layers,
    "extract_three_layer": extraction.price_of_three_layers,
    "learn_from_queries": learner.price_of_learning,
    "recover_span": span.price_of_span,
}
"""Prices of the methods that a caller may choose for himself."""


@dataclasses.dataclass(frozen=True)
class ExtractionPlan:
    """What was seen, what will be done, and what that costs.

    Attributes
    ----------
    method
        Name of the algorithm.
    reason
        What was seen, in words.
    queries
        Queries that it will roughly take beyond ``spent``, certificate
        included: a low and a high guess.
    spent
        Queries asked for the plan itself.
    facts
        All that is known of the target.
    epsilon
        Error asked of the learner, over the spread of the answers.
    words
        What the algorithm does.
    frame
        Centre and scale of the inputs, where they are not 0 and 1.
    record
        The answers seen for the plan; what is recovered must explain them too.
    """

    method: str
    reason: str
    queries: tuple[int, int]
    spent: int
    facts: Facts
    epsilon: float = 0.0
    words: str = ""
    frame: Frame | None = None
    record: Record | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def diagnosis(self) -> Diagnosis:
        """What the first queries said."""
        return self.facts.diagnosis

    @property
    def look(self) -> FirstLook | None:
        """Which of a few hyperplanes bend."""
        return self.facts.look

    @property
    def hyperplanes(self) -> float:
        """Rough number of hyperplanes, as far as they were seen."""
        return self.facts.hyperplanes

    def for_method(self, method: str, reason: str, epsilon: float = 0.0) -> ExtractionPlan:
        """Return the plan and price for a method that the caller chose."""
        return dataclasses.replace(
            self, method=method, reason=reason, queries=PRICES[method](self.facts),
            epsilon=epsilon, words=reason,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        frame = self.frame
        return {
            "method": self.method,
            "reason": self.reason,
            "queries": {"low": self.queries[0], "high": self.queries[1]},
            "spent": self.spent,
            "hyperplanes": self.hyperplanes,
            "epsilon": self.epsilon or None,
            "look": None if self.look is None else dataclasses.asdict(self.look),
            "diagnosis": self.diagnosis.to_dict(),
            "frame": None
            if frame is None
            else {"source": frame.source, "center": frame.center.tolist(),
                  "scale": frame.scale.tolist()},
        }  # fmt: skip

    def sentence(self) -> str:
        """Say it to a person."""
        seen = f"{self.reason[:1].upper()}{self.reason[1:]}"
        if not self.method:
            return f"{seen}. Nothing can be recovered exactly."
        low, high = self.queries
        return (
            f"{seen}. Chosen: {self.words} ({self.method.split()[0]}), about "
            f"{_two_digits(low):,} to {_two_digits(high):,} queries, the certificate's included."
        )


class _Boxed(Wrapper):
    """Tells an oracle's box to those who ask."""

    def __init__(self, inner: Oracle, low: FloatArray, high: FloatArray) -> None:
        super().__init__(inner)
        self.box = (low, high)


def plan_extraction(
    oracle: Any,
    *,
    domain: Area = "all",
    answers: AnswerKind = "auto",
    rng: RandomState = None,
) -> ExtractionPlan:
    """Ask about 700 queries, and say which algorithm fits and what it costs.

    Parameters
    ----------
    oracle
        An oracle, or anything that :func:`unrelu.connect` takes.
    domain
        Where it may be asked: ``"all"``, ``"nonnegative"`` or a box ``(low, high)``.
    answers
        ``"values"`` or ``"probabilities"``, where the look at them should not decide.
    rng
        Seed or generator. :func:`extract` with the same seed makes the same
        plan; pass it on as ``plan`` so that nothing is asked twice.

    Raises
    ------
    BudgetExhausted
        The budget does not even allow this.

    Examples
    --------
    >>> import unrelu
    >>> oracle = unrelu.connect(unrelu.planted.random_network(6, 3, 1, rng=0))
    >>> plan = unrelu.plan_extraction(oracle, rng=0)
    >>> plan.method
    'extract_two_layer'
    >>> result = unrelu.extract(oracle, plan=plan, rng=0)  # nothing is asked twice
    """
    return make_plan(as_oracle(oracle), domain, as_generator(rng).spawn(2)[0], answers=answers)[0]


def make_plan(
    oracle: Oracle,
    domain: Area,
    generator: np.random.Generator,
    frame: Frame | None = None,
    answers: AnswerKind = "auto",
    *,
    frugal: bool = False,
) -> tuple[ExtractionPlan, Remembered]:
    """Return the plan, and the target in its frame: the one given, or that of rows given.

    A ``frugal`` plan leaves the depth to an attempt, where that tells it for less.
    """
    check_reading(answers)
    before = oracle.queries.total
    area = as_domain(domain if oracle.box is None else oracle.box, oracle.input_dim)
    if oracle.data is not None and area.kind == "all":
        frame = frame_of_rows(oracle.data)
    target = remembered(oracle if frame is None else Framed(oracle, frame))
    asked: Oracle = target
    if area.kind == "box" and target.box is None:
        asked = _Boxed(target, area.low, area.high)
    if area.kind == "nonnegative":  # no diagnosis that stays there
        seen = Diagnosis("values", "float64", 0.0, 0.0, True, True, 1.0, None, None,
                         target.input_dim, target.output_dim, 0)  # fmt: skip
    else:
        try:
            seen = diagnose(asked, answers=answers, rng=generator)
        except BudgetExhausted:
            raise
        except OracleError as error:
            if area.kind != "all":
                raise
            box = refused_range(oracle, error, generator.spawn(1)[0])
            return _inside(oracle, box, generator, answers, "the target refuses other inputs than")
        if area.kind == "all":
            clips = clipped_range(oracle, seen, generator.spawn(1)[0])
            if clips is not None:
                return _inside(oracle, clips, generator, answers, "the target clips inputs to")
    facts = Facts(
        seen, None, area.kind, _domain(target, domain), record=target.record, told=answers
    )
    if facts.everywhere and facts.affine_pieces and not facts.coarse and seen.kind != "constant":
        if frugal and extraction.attempt_tells_depth(facts):
            facts = dataclasses.replace(facts, look_saved=True)
        else:
            facts = looked_at(target, facts, generator)
    offer = best_offer(facts)
    spent = target.queries.total - before
    if offer is None:
        plan = ExtractionPlan("", _why_nothing(facts), (0, 0), spent, facts)
    else:
        plan = ExtractionPlan(
            offer.method, offer.reason, offer.price, spent, facts, offer.epsilon, offer.words
        )
    return dataclasses.replace(plan, frame=frame, record=target.record), target


def _inside(
    oracle: Oracle,
    box: tuple[FloatArray, FloatArray],
    generator: np.random.Generator,
    answers: AnswerKind,
    limits: str,
) -> tuple[ExtractionPlan, Remembered]:
    """Return a plan for a range that was found by asking; answers beyond it count for nothing."""
    plan, target = make_plan(oracle, box, generator, answers=answers)
    low, high = box
    limits += f" about {np.median(low):.4g} to {np.median(high):.4g} (found by asking)"
    facts = dataclasses.replace(plan.facts, limits=limits)
    return dataclasses.replace(plan, facts=facts), target


def looked_at(target: Remembered, facts: Facts, generator: np.random.Generator) -> Facts:
    """Return the facts with a look at a few hyperplanes: which of them bend.

    Where an attempt at one hidden layer has failed and none of a few bends, more are followed.
    """
    with target.stage("depth"):
        try:
            look = follow_hyperplanes(target, facts.diagnosis, generator)
        except NotProbabilities:
            facts = of_values(facts)
            look = follow_hyperplanes(target, facts.diagnosis, generator)
        if facts.look_saved and look is not None and not look.deeper:
            longer = FirstLookConfig(fewest=FirstLookConfig().most)
            look = follow_hyperplanes(target, facts.diagnosis, generator, longer)
    return dataclasses.replace(facts, look=look, look_saved=False)


def of_values(facts: Facts) -> Facts:
    """Return the facts where an answer lies outside [0, 1] after all."""
    seen = dataclasses.replace(facts.diagnosis, kind="values")
    return dataclasses.replace(facts, diagnosis=seen, told="auto")


def _domain(target: Oracle, domain: Area) -> Area:
    return domain if target.box is None else target.box


def best_offer(facts: Facts) -> Offer | None:
    """Return the offer of most merit, the cheapest of those; None where nobody offers."""
    offers = [offer for method in METHODS if (offer := method(facts)) is not None]
    return max(offers, key=lambda offer: (offer.merit, -offer.price[1]), default=None)


def _why_nothing(facts: Facts) -> str:
    if facts.diagnosis.kind == "labels":
        return (
            "only labels come back, and inputs are limited to a range: the span needs inputs "
            "from all of space"
        )
    return "the answers are constant but for jumps, as of decision trees or nearest neighbours"


def _two_digits(value: int) -> int:
    return int(float(f"{value:.1e}"))
