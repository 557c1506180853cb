"""Look at a target, ask each method what it offers, and run the best offer.

A diagnosis (:mod:`unrelu.diagnostics`) tells what kind of answers come back
and how noisy they are. A first look (:mod:`unrelu.lines.first_look`) follows a
few hyperplanes: those of the first layer never bend, those of later layers do
(Daniely & Granot, section 3.5.2). Together they take about 700 queries in six
round trips. These facts are shown to every method; one that can serve such a
target offers to do so (``accepts.py`` in its folder), with its reason, its
price and what it promises. The best offer is run. Where its own checks fail,
that is one more fact, and the methods are asked again, until one explains the
answers or none has anything left to offer.

Inputs that do not live at size one around the origin get a frame of their own
(:mod:`unrelu.core.frame`): by the rows that the caller gave, or by asking.

Guarantee
---------
RECOVERED promises what the algorithm that gave the result promises; the
message begins with what was seen and which algorithm was chosen. A span alone
is PARTIAL here, however sure it is: no network was recovered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import (
    EXACT,
    NOISE_MULTIPLE,
    predicted_answers,
    target_changed,
    told_if_changed,
)
from unrelu.core.frame import Frame, Framed, find_frame, frame_of_rows
from unrelu.core.price import Price
from unrelu.core.record import Record, Remembered, remembered
from unrelu.diagnostics import Diagnosis, diagnose
from unrelu.errors import BudgetExhausted, InvalidInput, OracleError
from unrelu.extraction import accepts as extraction
from unrelu.extraction.three_layer import ThreeLayerResult
from unrelu.labels import accepts as labels
from unrelu.learner import accepts as learner
from unrelu.lines.domains import as_domain
from unrelu.lines.facts import Area, Facts, Offer, follow_hyperplanes
from unrelu.lines.first_look import FirstLook
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle, Wrapper
from unrelu.oracles.wrappers import NotProbabilities
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, RecoveryResult, StageReport, Status
from unrelu.smooth import accepts as smooth
from unrelu.smooth.piecewise import in_own_form
from unrelu.span import accepts as span
from unrelu.span.algorithm import SpanResult

__all__ = ["DeepSpanResult", "ExtractionPlan", "extract", "plan_extraction"]

METHODS: tuple[Callable[[Facts], Offer | None], ...] = (
    extraction.two_layers,
    extraction.three_layers,
    extraction.noisy_answers,
    extraction.two_hidden_noisy,
    extraction.in_a_box,
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
UNIT_SIZE = 3000
"""Inputs of size one that a network found in other units must explain as well."""


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


@dataclasses.dataclass(frozen=True, repr=False)
class DeepSpanResult(SpanResult):
    """The span of a network too deep to be recovered, and the first layer as far as found.

    Attributes
    ----------
    first_width
        First-layer hyperplanes found.
    first_weights, first_biases
        The hyperplanes, ``(k, d)`` and ``(k,)``, of unit length.
    """

    first_width: int = 0
    first_weights: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    first_biases: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))


class _Boxed(Wrapper):
    """Tells an oracle's box to those who ask."""

    def __init__(self, inner: Oracle, low: FloatArray, high: FloatArray) -> None:
        super().__init__(inner)
        self.box = (low, high)


# ------------------------------------------------------------------------ plan


def plan_extraction(
    oracle: Any, *, domain: Area = "all", rng: RandomState = None
) -> ExtractionPlan:
    """Ask about 700 queries, and say which algorithm fits and what it costs.

    Parameters
    ----------
    oracle
        An oracle, or anything that :func:`unrelu.connect` takes.
    domain
        Where it may be asked: ``"all"``, ``"nonnegative"`` or a box ``(low, high)``.
    rng
        Seed or generator. :func:`extract` with the same seed makes the same
        plan; pass it on as ``plan`` so that nothing is asked twice.

    Raises
    ------
    BudgetExhausted
        The budget does not even allow this.
    """
    return _plan(as_oracle(oracle), domain, as_generator(rng).spawn(2)[0])[0]


def _plan(
    oracle: Oracle, domain: Area, generator: np.random.Generator, frame: Frame | None = None
) -> tuple[ExtractionPlan, Remembered]:
    """Return the plan, and the target in its frame: the one given, or that of rows given."""
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
        seen = diagnose(asked, rng=generator)
    facts = Facts(seen, None, area.kind, _domain(target, domain), record=target.record)
    if facts.everywhere and facts.affine_pieces and not facts.coarse and seen.kind != "constant":
        with target.stage("depth"):
            try:
                look = follow_hyperplanes(target, seen, generator)
            except NotProbabilities:
                facts = _of_values(facts)
                look = follow_hyperplanes(target, facts.diagnosis, generator)
            facts = dataclasses.replace(facts, look=look)
    offer = best_offer(facts)
    spent = target.queries.total - before
    if offer is None:
        plan = ExtractionPlan("", _why_nothing(facts), (0, 0), spent, facts)
    else:
        plan = ExtractionPlan(
            offer.method, offer.reason, offer.price, spent, facts, offer.epsilon, offer.words
        )
    return dataclasses.replace(plan, frame=frame, record=target.record), target


def _of_values(facts: Facts) -> Facts:
    """Return the facts where an answer lies outside [0, 1] after all."""
    seen = dataclasses.replace(facts.diagnosis, kind="values")
    return dataclasses.replace(facts, diagnosis=seen)


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


# --------------------------------------------------------------------- extract


def extract(
    oracle: Any,
    *,
    domain: Area = "all",
    plan: ExtractionPlan | None = None,
    rng: RandomState = None,
    progress: Progress | None = None,
) -> RecoveryResult:
    """Recover what can be recovered of a target, by the algorithm that fits it.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    domain
        Where it may be asked: ``"all"``, ``"nonnegative"`` or a box ``(low, high)``.
    plan
        What :func:`plan_extraction` returned for the same oracle and seed; made
        here otherwise.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.

    Returns
    -------
    RecoveryResult
        The result of the algorithm that was chosen; a :class:`SpanResult`,
        PARTIAL at most, where no network could be had. The message begins with
        the reason for the choice.
    """
    if plan is not None and not isinstance(plan, ExtractionPlan):
        raise InvalidInput(f"plan must be what plan_extraction returned, got {plan!r}")
    source = as_oracle(oracle)
    meter = as_progress(progress)
    provenance = Provenance(
        algorithm="extract", seed=rng if isinstance(rng, int) else None, target=source.identity
    )
    planner, stream = as_generator(rng).spawn(2)
    if plan is None:
        try:
            with as_breakdown():
                plan, target = _plan(source, domain, planner)
        except BudgetExhausted as error:
            return RecoveryResult(
                Status.BUDGET_EXHAUSTED, f"{error}; not even the depth was found",
                source.queries, provenance,
            )  # fmt: skip
        except Breakdown as error:
            return RecoveryResult(Status.NUMERICAL_FAILURE, str(error), source.queries, provenance)
    else:
        framed = source if plan.frame is None else Framed(source, plan.frame)
        target = remembered(framed, plan.record)
    result = _follow(target, plan, stream, meter, provenance)
    if not _may_have_units(source, plan, result):
        return result
    try:
        with as_breakdown():
            return _in_units_of_its_own(
                source, domain, result, (planner, stream), meter, provenance
            )
    except (BudgetExhausted, Breakdown, OracleError):
        return dataclasses.replace(result, queries=source.queries)


def _follow(
    target: Remembered,
    plan: ExtractionPlan,
    rng: np.random.Generator,
    meter: Progress,
    provenance: Provenance,
) -> RecoveryResult:
    """Do what was planned, and what comes next where that fails."""
    meter.update("plan", 1, 1, plan.reason)
    low, high = plan.queries
    spent = target.allowance.spent
    target.allowance.plan(
        (spent + low, spent + high), settled=plan.diagnosis.hyperplanes is not None
    )
    chosen, result = _attempts(target, plan, rng, meter, provenance)
    result = _in_own_form(result)
    if not result.success and result.status is not Status.BUDGET_EXHAUSTED:
        result = told_if_changed(target, result, plan.diagnosis.noise)
    stage = StageReport(
        "plan",
        plan.spent,
        message=plan.reason,
        details={
            "hyperplanes": plan.diagnosis.hyperplanes,
            "expected queries": list(target.allowance.planned or plan.queries),
            **({} if plan.look is None else dataclasses.asdict(plan.look)),
        },
    )
    result = dataclasses.replace(
        result,
        queries=target.queries,
        provenance=dataclasses.replace(provenance, options={"chosen": chosen}),
        stages=(stage, *result.stages),
    )
    return result if plan.frame is None else _in_own_units(result, plan.frame)


def _may_have_units(source: Oracle, plan: ExtractionPlan, result: RecoveryResult) -> bool:
    """Whether inputs in other units may be why nothing was recovered.

    Probabilities that are nought and one everywhere look like labels in several columns.
    """
    if result.copied or result.status is Status.BUDGET_EXHAUSTED or target_changed(result):
        return False
    if not plan.facts.everywhere or plan.frame is not None or source.data is not None:
        return False
    seen = plan.diagnosis
    if not seen.deterministic or not seen.precision.startswith("float"):
        return False  # steepness drowns in rounding
    if seen.kind == "values":
        return plan.facts.affine_pieces and not plan.facts.coarse
    return not seen.locally_constant and (seen.kind != "labels" or seen.output_dim > 1)


def _in_units_of_its_own(
    source: Oracle,
    domain: Area,
    result: RecoveryResult,
    generators: tuple[np.random.Generator, np.random.Generator],
    meter: Progress,
    provenance: Provenance,
) -> RecoveryResult:
    """Ask in which units inputs live, and try again there; the old result where that fails."""
    planner, stream = generators
    with source.stage("units"):
        frame = find_frame(source, source.input_dim, planner)
    if frame is None:
        return dataclasses.replace(result, queries=source.queries)
    plan, target = _plan(source, domain, planner, frame)
    again = _follow(target, plan, stream, meter, provenance)
    again = _at_unit_size(source, plan, again, stream)
    best = again if again.copied else dataclasses.replace(result, queries=source.queries)
    return dataclasses.replace(best, stages=(*result.stages, *again.stages))


def _at_unit_size(
    source: Oracle, plan: ExtractionPlan, result: RecoveryResult, rng: np.random.Generator
) -> RecoveryResult:
    """Compare with inputs of size one, too: where inputs live was found by asking, not told."""
    network, certificate = result.network, result.certificate
    if not result.copied or network is None or certificate is None:
        return result
    x = rng.standard_normal((UNIT_SIZE, source.input_dim))
    with source.stage("certificate"):
        y = source(x)
    answers = "log-odds" if result.findings().log_odds else "values"
    off = np.abs(predicted_answers(network, answers, source.output_dim)(x) - y).max(axis=0)
    allowed = np.maximum(EXACT * y.std(axis=0), NOISE_MULTIPLE * plan.diagnosis.noise)
    if (off <= allowed).all():
        return dataclasses.replace(result, queries=source.queries)
    message = f"at inputs of size one it is off by {off.max():.2g}. Elsewhere: {result.message}"
    return dataclasses.replace(
        result, status=Status.PARTIAL, message=message, queries=source.queries
    )


def _attempts(
    target: Remembered,
    plan: ExtractionPlan,
    rng: np.random.Generator,
    meter: Progress,
    provenance: Provenance,
) -> tuple[str, RecoveryResult]:
    """Run offers until one explains the answers; return its method and result."""
    facts = dataclasses.replace(plan.facts, record=target.record)
    reasons: list[str] = []
    stages: list[StageReport] = []
    best: tuple[str, RecoveryResult] | None = None
    while (offer := best_offer(facts)) is not None:
        meter.update(offer.method, 0, None, offer.reason)
        if facts.attempts:
            target.allowance.begin_again(offer.price)
        try:
            with as_breakdown():
                result = offer.run(target, rng, meter)
        except NotProbabilities:  # methods that find out for themselves do not raise it
            facts = _of_values(facts)
            reasons.append("the answers seemed to be probabilities")
            continue
        except (BudgetExhausted, Breakdown) as error:  # between the runs of an offer
            spent = isinstance(error, BudgetExhausted)
            status = Status.BUDGET_EXHAUSTED if spent else Status.NUMERICAL_FAILURE
            result = RecoveryResult(status, str(error), target.queries, provenance)
        reasons.append(offer.reason)
        told = dataclasses.replace(
            result,
            message=f"{_joined(reasons)}. {result.message}",
            stages=(*stages, *result.stages),
        )
        if best is None or _says_something(result):
            best = offer.method, told
        if result.copied or result.status is Status.BUDGET_EXHAUSTED or target_changed(result):
            break
        stages.extend(result.stages)
        facts = facts.after(offer.method, result)
    if best is None:
        return "nothing", _nothing(target, plan, provenance)
    return best[0], _with_first_layer(_no_network(best[1], facts), facts)


def _joined(reasons: list[str]) -> str:
    return ", but ".join(reasons)


def _says_something(result: RecoveryResult) -> bool:
    """Whether a later attempt found anything at all: a network, or a span."""
    return not isinstance(result, SpanResult) or result.rank > 0


def _nothing(target: Remembered, plan: ExtractionPlan, provenance: Provenance) -> RecoveryResult:
    seen = plan.diagnosis
    message = (
        "This is no ReLU network, and none is returned. What was still learned: "
        f"{seen.input_dim} inputs, {seen.output_dim} outputs, {seen.precision} answers"
    )
    if seen.kind == "labels":
        message = "Nothing was recovered; give no range if the target takes any input"
    message = f"{plan.reason}. {message}"
    return RecoveryResult(Status.ASSUMPTION_VIOLATED, message, target.queries, provenance)


def _no_network(result: RecoveryResult, facts: Facts) -> RecoveryResult:
    """Say of a smooth target's span that the target is no ReLU network."""
    if facts.diagnosis.piecewise_linear is not False or not isinstance(result, SpanResult):
        return result
    status = result.status
    if status is not Status.BUDGET_EXHAUSTED:
        status = Status.ASSUMPTION_VIOLATED
    return dataclasses.replace(
        result,
        status=status,
        message="This is no ReLU network that could be recovered, and none is returned. What was "
        f"seen and still learned: {result.message}",
    )


def _with_first_layer(result: RecoveryResult, facts: Facts) -> RecoveryResult:
    """Join a span with the hyperplanes of the first layer that an attempt has found."""
    deep = facts.tried("extract_three_layer")
    if not isinstance(result, SpanResult) or not isinstance(deep, ThreeLayerResult):
        return result
    fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(SpanResult)}
    if deep.first_width:
        fields["message"] = (
            f"{result.message}. {deep.first_width} hyperplanes of the first layer were found"
        )
    return DeepSpanResult(
        **fields,
        first_width=deep.first_width,
        first_weights=deep.first_weights,
        first_biases=deep.first_biases,
    )


def _in_own_form(result: RecoveryResult) -> RecoveryResult:
    """Return ReLUs that are another piecewise linear activation in disguise as that."""
    network, certificate = result.network, result.certificate
    if not result.success or certificate is None or not isinstance(network, ReLUNetwork):
        return result
    if network.depth != 2 or network.skip is None:
        return result
    form = in_own_form(network)
    if form.recognised == "relu" or form.difference * certificate.scale > certificate.tolerance:
        return result
    return dataclasses.replace(
        result, network=form.network, message=f"{result.message}. In its own form: {form.message}"
    )


def _in_own_units(result: RecoveryResult, frame: Frame) -> RecoveryResult:
    """Return a result of a frame's coordinates in the target's own."""
    changes: dict[str, Any] = {}
    if result.network is not None:
        changes["network"] = frame.network(result.network)
    if isinstance(result, SpanResult):
        changes["basis"] = frame.basis(result.basis)
    rows = getattr(result, "first_weights", None)
    if rows is not None and len(rows):
        length = np.linalg.norm(rows / frame.scale, axis=1)
        biases = getattr(result, "first_biases") - rows @ (frame.center / frame.scale)  # noqa: B009
        changes["first_weights"] = rows / frame.scale / length[:, None]
        changes["first_biases"] = biases / length
    if result.certificate is not None:
        told = result.certificate.distribution.replace("standard Gaussian", "Gaussian")
        told = f"{told} (centre and scale: {frame.source})"
        certificate = dataclasses.replace(result.certificate, distribution=told)
        changes["certificate"] = certificate
        changes["message"] = result.message.replace(str(result.certificate), str(certificate))
    return dataclasses.replace(result, **changes)
