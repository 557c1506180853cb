"""Look at a target, choose the algorithm for it, and run it.

A diagnosis (:mod:`unrelu.diagnostics`) tells what kind of answers come back
and how noisy they are. A first look (:mod:`unrelu.lines.first_look`) follows a
few hyperplanes: those of the first layer never bend, those of later layers do
(Daniely & Granot, section 3.5.2). Together they take about 700 queries in six
round trips, and decide:

===========================================  =========================================
What is seen                                 What is done
===========================================  =========================================
only labels                                  :func:`recover_span` from labels
answers constant but for jumps (trees)       nothing more; ASSUMPTION_VIOLATED
bends everywhere (GELU, tanh, attention)     :func:`recover_span`; ASSUMPTION_VIOLATED
repeated questions answered differently,     :func:`learn_from_queries`, to ten times
or coarsely (two or three digits)            the noise
probabilities whose log-odds bend once       :func:`extract_two_layer` on log-odds
a hyperplane bends                           :func:`extract_three_layer`
none bends                                   :func:`extract_two_layer`
===========================================  =========================================

Where the algorithm's own checks fail, the next one is tried: the learner where
terms hide or cancel, or noise was too much for exactness; depth 3 where one
hidden layer does not explain the answers; and at last the span of the first
layer, which a network of any depth gives away.

Guarantee
---------
RECOVERED promises what the algorithm that gave the result promises; the
message begins with what was seen and which algorithm was chosen. A span alone
is PARTIAL here, however sure it is: no network was recovered.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike, FloatArray
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import (
    NOISE_MULTIPLE,
    Tolerance,
    contradicted,
    contradictions_of,
    find_contradictions,
    target_changed,
    told_if_changed,
)
from unrelu.core.price import (
    UNSURE,
    Price,
    price_learner,
    price_span,
    price_span_from_labels,
    price_three_layer,
    price_two_layer,
)
from unrelu.core.record import Record, Remembered, remembered
from unrelu.diagnostics import Diagnosis, DiagnosisConfig, diagnose
from unrelu.errors import BudgetExhausted, InvalidInput
from unrelu.extraction.three_layer import (
    ThreeLayerConfig,
    ThreeLayerResult,
    extract_three_layer,
)
from unrelu.extraction.two_layer import TwoLayerConfig, extract_two_layer
from unrelu.learner.algorithm import LearnerConfig, LearnerResult, learn_with_hints
from unrelu.lines.domains import as_domain
from unrelu.lines.first_look import FirstLook, FirstLookConfig, take_first_look
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle, Wrapper
from unrelu.oracles.wrappers import Labels, LogOdds
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status
from unrelu.span.algorithm import SpanConfig, SpanResult, recover_span

__all__ = ["DeepSpanResult", "ExtractConfig", "ExtractionPlan", "extract", "plan_extraction"]

Area = str | tuple[ArrayLike, ArrayLike]

TWO, THREE, LEARNER = "extract_two_layer", "extract_three_layer", "learn_from_queries"
SPAN, LABELS, NOTHING = "recover_span", "recover_span from labels", "nothing"


@dataclasses.dataclass(frozen=True)
class ExtractConfig:
    """Choices of the choice, and the configurations of what may be chosen."""

    noisy: float = 1e-6
    """Noise over the size of answers above which answers that differ from time to time are
    taken for noisy; below it, sums are merely taken in another order."""
    coarse: float = 1e-3
    """Noise over the size of answers above which exact recovery is not tried."""
    least_epsilon: float = 1e-3
    most_epsilon: float = 0.3
    noise_to_epsilon: float = 10.0
    """Error asked of the learner, over the spread of the answers: ten times the noise within
    these limits."""
    held_out: int = 20_000
    """Inputs of the learner's certificate at most; what may hide from more has its price."""
    mostly: float = 0.7
    parallel: float = 0.99
    """Hyperplanes of a tight cluster part when they are followed, and seem to bend. Where the
    first layer holds this part of all hyperplanes, some of them this parallel (cosine), it is
    taken for the only one."""
    exact: float = 1e-8
    """A learned copy is exact where no answer deviates by more than this part of the answers'
    spread."""
    diagnosis: DiagnosisConfig = dataclasses.field(default_factory=DiagnosisConfig)
    look: FirstLookConfig = dataclasses.field(default_factory=FirstLookConfig)
    two_layer: TwoLayerConfig = dataclasses.field(default_factory=TwoLayerConfig)
    three_layer: ThreeLayerConfig = dataclasses.field(default_factory=ThreeLayerConfig)
    learner: LearnerConfig = dataclasses.field(default_factory=LearnerConfig)
    span: SpanConfig = dataclasses.field(default_factory=SpanConfig)


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
    epsilon
        Error asked of the learner, over the spread of the answers.
    record
        The answers seen for the plan; what is recovered must explain them too.
    """

    method: str
    reason: str
    queries: tuple[int, int]
    spent: int
    diagnosis: Diagnosis
    look: FirstLook | None = None
    epsilon: float = 0.0
    record: Record | None = dataclasses.field(default=None, repr=False, compare=False)

    def for_method(self, method: str, reason: str, epsilon: float = 0.0) -> ExtractionPlan:
        """Return the plan and price for a method that the caller chose."""
        made = _made(method, reason, self.diagnosis, self.spent, self.look, epsilon)
        return dataclasses.replace(made, record=self.record)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return {
            "method": self.method,
            "reason": self.reason,
            "queries": {"low": self.queries[0], "high": self.queries[1]},
            "spent": self.spent,
            "hyperplanes": self.hyperplanes,
            "epsilon": self.epsilon or None,
            "look": None if self.look is None else dataclasses.asdict(self.look),
            "diagnosis": self.diagnosis.to_dict(),
        }

    @property
    def hyperplanes(self) -> float:
        """Rough number of hyperplanes, as far as they were seen."""
        seen = self.diagnosis.hyperplanes
        if self.look is None or self.look.kinks == 0:
            return seen or 1.0
        return math.sqrt(max(1.0, seen or self.look.hyperplanes) * self.look.hyperplanes)

    def sentence(self) -> str:
        """Say it to a person."""
        if self.method == NOTHING:
            return f"{self.reason[:1].upper()}{self.reason[1:]}. Nothing can be recovered exactly."
        words = {
            TWO: "exact extraction of one hidden layer",
            THREE: "exact extraction of two hidden layers",
            LEARNER: f"learning to an error of {self.epsilon:.1g} of the answers' spread",
            SPAN: "the span of the first layer",
            LABELS: "the span of the first layer, from labels",
        }[self.method]
        low, high = self.queries
        return (
            f"{self.reason[:1].upper()}{self.reason[1:]}. Chosen: {words} "
            f"({self.method.split()[0]}), about {_two_digits(low):,} to {_two_digits(high):,} "
            "queries, the certificate's included."
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
    oracle: Any,
    *,
    domain: Area = "all",
    rng: RandomState = None,
    config: ExtractConfig | None = None,
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
    target = remembered(oracle)
    options = ExtractConfig() if config is None else config
    plan = _plan(target, domain, as_generator(rng).spawn(2)[0], options)
    return dataclasses.replace(plan, record=target.record)


def _plan(
    target: Oracle, domain: Area, generator: np.random.Generator, options: ExtractConfig
) -> ExtractionPlan:
    before = target.queries.total
    area = as_domain(domain if target.box is None else target.box, target.input_dim)
    asked = target
    if area.kind == "box" and target.box is None:
        asked = _Boxed(target, area.low, area.high)
    if area.kind == "nonnegative":  # no diagnosis that stays there
        facts = Diagnosis("values", "float64", 0.0, 0.0, True, True, 1.0, None, None,
                          target.input_dim, target.output_dim, 0)  # fmt: skip
        reason = "inputs are non-negative: one hidden layer is assumed"
        return _made(TWO, reason, facts, 0, orthant=True)
    facts = diagnose(asked, rng=generator, config=options.diagnosis)
    look: FirstLook | None = None
    method, reason = _by_answers(facts, options, bounded=area.kind == "box")
    if not method:
        with target.stage("depth"):
            look = _look(target, facts, generator, options)
        method, reason = _by_depth(facts, look)
    epsilon = 0.0
    if method == LEARNER:
        noise = facts.noise / facts.scale if facts.scale > 0 else 0.0
        epsilon = options.noise_to_epsilon * noise
        epsilon = min(max(epsilon, options.least_epsilon), options.most_epsilon)
    return _made(method, reason, facts, target.queries.total - before, look, epsilon)


def _by_answers(facts: Diagnosis, options: ExtractConfig, *, bounded: bool) -> tuple[str, str]:
    """Choose by the kind of answers alone; an empty method where depth must decide."""
    if facts.kind == "labels":
        if bounded:
            return NOTHING, (
                "only labels come back, and inputs are limited to a range: the span needs inputs "
                "from all of space"
            )
        return LABELS, "only labels come back"
    if facts.kind == "constant":
        return TWO, "the answers never changed"
    if facts.locally_constant:
        return NOTHING, (
            "the answers are constant but for jumps, as of decision trees or nearest neighbours"
        )
    if bounded:
        return TWO, "inputs are limited to a range: one hidden layer is assumed"
    if facts.piecewise_linear is False:
        return SPAN, f"the answers bend smoothly everywhere ({smooth_kind(facts)})"
    changing = not facts.deterministic and facts.relative_noise > options.noisy
    if facts.kind == "probabilities":
        return "", ""
    if changing or facts.relative_noise > options.coarse:
        seen = "differ from time to time" if changing else "are coarse"
        return LEARNER, f"the answers {seen} (noise {facts.relative_noise:.1g} of their size)"
    return "", ""


def smooth_kind(facts: Diagnosis) -> str:
    """Name what a smooth target may be, by how it grows far out."""
    if facts.growth < 0.5:
        return "answers saturate: tanh or sigmoid units, or a squashed output"
    if facts.growth < 1.5:
        return "answers grow linearly: GELU, SiLU or softplus units, or attention"
    return "answers grow faster than linearly: products of inputs, as in attention"


def _look(
    target: Oracle, facts: Diagnosis, generator: np.random.Generator, options: ExtractConfig
) -> FirstLook | None:
    """Follow a few hyperplanes, those of log-odds where answers are probabilities."""
    asked, noise = target, facts.noise
    if facts.kind == "probabilities":
        if facts.output_dim == 1 or not facts.precision.startswith("float"):
            return None  # log(1 - p) loses its digits before anything can be followed
        seen = target(generator.standard_normal((4, target.input_dim)))
        asked = LogOdds(target, reference=int(np.argmax(seen.mean(axis=0))))
        eps = np.finfo(np.float32 if facts.precision == "float32" else np.float64).eps
        noise = 4.0 * float(eps)
    noise = max(noise, 4.0 * float(np.finfo(np.float64).eps) * facts.scale, 1e-300)
    with np.errstate(invalid="ignore"):
        return take_first_look(
            asked,
            target.input_dim,
            noise=noise,
            grows="float" in facts.precision,
            hyperplanes=facts.hyperplanes,
            rng=generator,
            config=options.look,
        )


def _by_depth(facts: Diagnosis, look: FirstLook | None) -> tuple[str, str]:
    if facts.kind == "probabilities":
        if look is not None and look.deeper:
            return SPAN, (
                f"the answers are probabilities, and of their log-odds' hyperplanes {look.deeper} "
                "bend: more than one hidden layer, which exact recovery needs logits for"
            )
        return TWO, "the answers are probabilities: one hidden layer is assumed of their log-odds"
    assert look is not None
    if look.deeper:
        return THREE, f"{look}: more than one hidden layer"
    return TWO, f"{look}: taken for one hidden layer"


def _made(
    method: str,
    reason: str,
    facts: Diagnosis,
    spent: int,
    look: FirstLook | None = None,
    epsilon: float = 0.0,
    *,
    orthant: bool = False,
) -> ExtractionPlan:
    plan = ExtractionPlan(method, reason, (0, 0), spent, facts, look, epsilon)
    k, d, m = plan.hyperplanes, facts.input_dim, facts.output_dim
    coarse = facts.relative_noise > 1e-10
    first = 0.5
    if look is not None and look.first + look.deeper:
        first = (look.first + 0.5) / (look.first + look.deeper + 1.0)
    ranks = (max(1.0, d / 10.0), max(1.0, d / 2.0))  # where nothing tells the rank
    if facts.hyperplanes is not None:
        ranks = (min(d, k * first / UNSURE), min(float(d), k * UNSURE))
    prices: dict[str, Price] = {
        TWO: price_two_layer(d, m, k, coarse=coarse, orthant=orthant),
        THREE: price_three_layer(
            d, m, k, first, coarse=coarse, log_odds=facts.kind == "probabilities"
        ),
        LEARNER: price_learner(d, k, coarse=coarse),
        SPAN: price_span(d, m, ranks),
        LABELS: price_span_from_labels(d, ranks),
    }
    return dataclasses.replace(plan, queries=prices.get(method, (0, 0)))


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
    config: ExtractConfig | None = None,
) -> RecoveryResult:
    """Recover what can be recovered of a target, by the algorithm that fits it.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    domain
        Where it may be asked: ``"all"``, ``"nonnegative"`` or a box ``(low, high)``.
        In a bounded domain one hidden layer is assumed.
    plan
        What :func:`plan_extraction` returned for the same oracle and seed; made
        here otherwise.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    config
        Tolerances and sizes.

    Returns
    -------
    RecoveryResult
        A :class:`TwoLayerResult`, :class:`ThreeLayerResult` or
        :class:`LearnerResult` with a network; or, PARTIAL at most, a
        :class:`SpanResult`. The message begins with the reason for the choice.
    """
    if plan is not None and not isinstance(plan, ExtractionPlan):
        raise InvalidInput(f"plan must be what plan_extraction returned, got {plan!r}")
    target = remembered(oracle, None if plan is None else plan.record)
    if target.box is not None:
        domain = target.box
    options = ExtractConfig() if config is None else config
    meter = as_progress(progress)
    provenance = Provenance(
        algorithm="extract", seed=rng if isinstance(rng, int) else None, target=target.identity
    )
    planner, stream = as_generator(rng).spawn(2)
    if plan is None:
        try:
            with as_breakdown():
                plan = _plan(target, domain, planner, options)
        except BudgetExhausted as error:
            return RecoveryResult(
                Status.BUDGET_EXHAUSTED, f"{error}; not even the depth was found",
                target.queries, provenance,
            )  # fmt: skip
        except Breakdown as error:
            return RecoveryResult(Status.NUMERICAL_FAILURE, str(error), target.queries, provenance)
    meter.update("plan", 1, 1, plan.reason)
    low, high = plan.queries
    spent = target.allowance.spent
    target.allowance.plan(
        (spent + low, spent + high), settled=plan.diagnosis.hyperplanes is not None
    )
    run = _Run(target, domain, plan, stream, meter, options)
    result, reason = run.choose()
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
    return dataclasses.replace(
        result,
        message=f"{reason}. {result.message}",
        queries=target.queries,
        provenance=dataclasses.replace(provenance, options={"chosen": run.chosen}),
        stages=(stage, *run.stages, *result.stages),
    )


class _Run:
    """The algorithms tried, one after another, until one explains the answers."""

    def __init__(
        self,
        target: Remembered,
        domain: Area,
        plan: ExtractionPlan,
        rng: np.random.Generator,
        meter: Progress,
        options: ExtractConfig,
    ) -> None:
        self.target, self.domain, self.plan = target, domain, plan
        self.rng, self.meter, self.options = rng, meter, options
        self.chosen = plan.method
        self.flat_tried = self.deep_tried = False
        self.stages: list[StageReport] = []
        self.rejected: list[ReLUNetwork] = []

    def choose(self) -> tuple[RecoveryResult, str]:
        """Return a result and the reason that led to it."""
        reason = self.plan.reason
        method = self.plan.method
        if method == NOTHING:
            return self._nothing(), reason
        if method == LABELS:
            return self._span(labels=True), reason
        if method == SPAN:
            found = self._span()
            if self.plan.diagnosis.piecewise_linear is False:
                found = dataclasses.replace(
                    found, status=_worst(found, Status.ASSUMPTION_VIOLATED),
                    message="This is no ReLU network, and none is returned. What was still "
                    f"learned: {found.message}",
                )  # fmt: skip
            return found, reason
        if method == LEARNER:
            return self._learn(self.plan.epsilon), reason
        if method == THREE:
            return self._three(reason)
        if self.plan.look is not None and self.plan.look.kinks == 0:
            # Affine, or flat where it was looked at: only a long line tells.
            deep = extract_three_layer(
                self.target, rng=self.rng, progress=self.meter, config=self.options.three_layer
            )
            if deep.first_width > 0 or deep.status is Status.BUDGET_EXHAUSTED:
                self.chosen = THREE
                return deep, f"{self.plan.look}, but there are some far out"
            self._remember(deep)
        return self._two(reason)

    # -------------------------------------------------------------- algorithms

    def _two(self, reason: str) -> tuple[RecoveryResult, str]:
        facts = self.plan.diagnosis
        several = facts.kind == "probabilities" and facts.output_dim > 1
        flat = extract_two_layer(
            self.target,
            domain=self.domain,
            answers="probabilities" if several else "auto",
            rng=self.rng,
            progress=self.meter,
            config=self.options.two_layer,
        )
        self.chosen, self.flat_tried = TWO, True
        everywhere = isinstance(self.domain, str) and self.domain == "all"
        if flat.success or flat.status is Status.BUDGET_EXHAUSTED or not everywhere:
            return flat, reason
        if target_changed(flat):
            return flat, reason
        values = flat.answers == "values"
        self._remember(flat)
        if flat.status in {Status.ILL_CONDITIONED, Status.ASSUMPTION_VIOLATED} and values:
            why = "the noise is too much for exactness"
            if flat.status is Status.ASSUMPTION_VIOLATED:
                why = "terms hide or cancel between the points asked"
            noise = self.plan.diagnosis.noise / (self.plan.diagnosis.scale or 1.0)
            epsilon = self.options.noise_to_epsilon * noise
            learned = self._learn(
                min(max(epsilon, self.options.least_epsilon), self.options.most_epsilon)
            )
            return learned, f"{reason}, but {why}"
        if values and not self.deep_tried:
            return self._three(f"{reason}, but one hidden layer does not explain the answers")
        self.meter.update("span", 0, None)
        span = self._span()
        if not span.rank:
            self.chosen = TWO
            return flat, reason
        return span, f"{reason}, but one hidden layer does not explain them"

    def _three(self, reason: str) -> tuple[RecoveryResult, str]:
        deep = extract_three_layer(
            self.target, rng=self.rng, progress=self.meter, config=self.options.three_layer
        )
        self.chosen, self.deep_tried = THREE, True
        if deep.success or deep.status is Status.BUDGET_EXHAUSTED or target_changed(deep):
            return deep, reason
        self._remember(deep)
        look = self.plan.look
        if self._clustered(deep) and not self.flat_tried:
            return self._two(f"{look}, but many of the first layer's nearly coincide")
        if look is not None and look.deeper == 1 and look.first >= 3 and not self.flat_tried:
            return self._two(f"{look}, but two hidden layers do not explain the answers")
        span = self._span()
        if not span.rank:
            self.chosen = THREE
            return deep, reason
        found = _deep_span(span, deep)
        return found, f"{reason}, and two do not explain the answers ({_first_sentence(deep)})"

    def _clustered(self, deep: ThreeLayerResult) -> bool:
        """Whether the hyperplanes found are nearly all, and some nearly coincide."""
        if deep.first_width < max(2.0, self.options.mostly * self.plan.hyperplanes):
            return False
        rows = deep.first_weights / np.linalg.norm(deep.first_weights, axis=1, keepdims=True)
        cosines = np.abs(rows @ rows.T) - np.eye(len(rows))
        return bool(cosines.max() > self.options.parallel)

    def _learn(self, epsilon: float) -> RecoveryResult:
        self.chosen = LEARNER
        learned = learn_with_hints(
            self.target,
            self._contradicting(),
            epsilon=epsilon,
            relative=True,
            certificate_samples=self.options.held_out,
            rng=self.rng,
            progress=self.meter,
            config=self.options.learner,
        )
        told = learned.certificate
        if told is None or learned.status in {Status.BUDGET_EXHAUSTED, Status.ASSUMPTION_VIOLATED}:
            return learned
        # Nobody asked for this epsilon: what was measured counts, not what could still hide.
        close = float(told.details["square loss"]) <= learned.epsilon**2
        return self._copy(learned) if close else learned

    def _contradicting(self) -> tuple[FloatArray, FloatArray]:
        """Return inputs and answers that networks of earlier attempts do not explain."""
        facts, record = self.plan.diagnosis, self.target.record
        allowed = max(NOISE_MULTIPLE * facts.noise, self.options.exact * facts.scale)
        tolerance = Tolerance(allowed, record, "values")
        points = [np.empty((0, facts.input_dim))]
        answers = [np.empty((0, facts.output_dim))]
        for network in self.rejected:
            found = find_contradictions(record, network, tolerance)
            if found:
                points.append(found.points)
                answers.append(found.answers)
        return np.concatenate(points), np.concatenate(answers)

    def _copy(self, learned: LearnerResult) -> RecoveryResult:
        """Call a learned copy approximated, unless it is exact within the answers' noise.

        Nobody asked for its epsilon, so that it promises nothing on its own.
        """
        told = learned.certificate
        assert told is not None
        certificate = _judged(self.target, learned, self.options.exact * told.scale)
        exact = dataclasses.replace(learned, certificate=certificate)
        if learned.success and not contradictions_of(self.target, exact, "values"):
            return exact
        copy = dataclasses.replace(
            learned,
            status=Status.APPROXIMATED,
            message=f"a copy that comes close, not the target itself: {learned.message}",
            certificate=dataclasses.replace(
                told, tolerance=max(told.tolerance, NOISE_MULTIPLE * learned.noise)
            ),
        )
        found = contradictions_of(self.target, copy, "values")
        if found:
            copy = contradicted(self.target, copy, found, "values", Status.APPROXIMATED)
        return dataclasses.replace(copy, certificate=told)

    def _span(self, *, labels: bool = False) -> SpanResult:
        self.chosen = LABELS if labels else SPAN
        asked: Oracle = self.target
        if labels and asked.output_dim > 1:
            asked = Labels(asked)
        result = recover_span(
            asked,
            answers="labels" if labels else "values",
            rng=self.rng,
            progress=self.meter,
            config=self.options.span,
        )
        if result.success:
            result = dataclasses.replace(
                result, status=Status.PARTIAL,
                message="The span of the first layer was recovered, no network: "
                f"{result.message}",
            )  # fmt: skip
        return result

    def _nothing(self) -> RecoveryResult:
        facts = self.plan.diagnosis
        message = (
            "This is no ReLU network, and none is returned. What was still learned: "
            f"{facts.input_dim} inputs, {facts.output_dim} outputs, {facts.precision} answers"
        )
        if facts.kind == "labels":
            message = "Nothing was recovered; give no range if the target takes any input"
        return RecoveryResult(
            Status.ASSUMPTION_VIOLATED, message, self.target.queries, Provenance("extract")
        )

    def _remember(self, result: RecoveryResult) -> None:
        """Keep what an attempt has seen that is followed by another."""
        self.stages.extend(result.stages)
        if result.network is not None:
            self.rejected.append(result.network)


def _judged(target: Remembered, learned: LearnerResult, tolerance: float) -> Certificate:
    """Return the learner's certificate with the tolerance of an exact copy."""
    assert learned.network is not None
    assert learned.certificate is not None
    held_out = target.record.of_stage("certificate")
    assert held_out is not None
    x, y = (part[-learned.certificate.samples :] for part in held_out)
    told = learned.certificate
    return Certificate.from_deviations(
        y - learned.network(x),
        scale=told.scale,
        tolerance=tolerance,
        confidence=told.confidence,
        distribution=told.distribution,
        details=told.details,
    )


def _worst(result: RecoveryResult, status: Status) -> Status:
    """Return ``status`` unless the budget ended the run."""
    return result.status if result.status is Status.BUDGET_EXHAUSTED else status


def _first_sentence(result: RecoveryResult) -> str:
    return result.message.split("; ")[0].rstrip(".")


def _deep_span(span: SpanResult, deep: ThreeLayerResult) -> DeepSpanResult:
    """Join the span with the hyperplanes of the first layer that were found."""
    fields = {f.name: getattr(span, f.name) for f in dataclasses.fields(span)}
    if deep.first_width:
        fields["message"] = (
            f"{deep.first_width} hyperplanes of the first layer were found. {span.message}"
        )
    return DeepSpanResult(
        **fields,
        first_width=deep.first_width,
        first_weights=deep.first_weights,
        first_biases=deep.first_biases,
    )
