"""Look at a target, ask each method what it offers, and run the best offer.

A diagnosis (:mod:`unrelu.diagnostics`) tells what kind of answers come back
and how noisy they are. A first look (:mod:`unrelu.lines.first_look`) follows a
few hyperplanes: those of the first layer never bend, those of later layers do
(Daniely & Granot, section 3.5.2). Together they take about 600 queries in seven
round trips; where exact answers show few hyperplanes, an attempt at one hidden layer
costs less than that look, and tells the depth as well. These facts are shown
to every method; one that can serve such a target offers to do so
(``accepts.py`` in its folder), with its reason, its price and what it promises.
The best offer is run. Where its own checks fail, that is one more fact, and the
methods are asked again, until one explains the answers or none has anything left
to offer.

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
from typing import Any

import numpy as np

from unrelu._choose_plan import (
    ExtractionPlan,
    best_offer,
    looked_at,
    make_plan,
    of_values,
    plan_extraction,
)
from unrelu._choose_result import (
    DeepSpanResult,
    called_no_network,
    in_its_own_form,
    in_its_own_units,
    nothing_recovered,
    with_first_layer,
)
from unrelu._random import RandomState, as_generator
from unrelu._types import AnswerKind, FloatArray
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import (
    EXACT,
    NOISE_MULTIPLE,
    predicted_answers,
    target_changed,
    told_if_changed,
)
from unrelu.core.frame import MOVES, Framed, find_frame, frame_of_network
from unrelu.core.record import Remembered, remembered
from unrelu.errors import BudgetExhausted, InvalidInput, OracleError
from unrelu.extraction.certify import CertifyConfig
from unrelu.lines.facts import Area
from unrelu.networks import Network
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import NotProbabilities
from unrelu.progress import Callback, Progress, told_too
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status
from unrelu.span.algorithm import SpanResult

__all__ = ["DeepSpanResult", "ExtractionPlan", "extract", "plan_extraction"]

HELD_OUT = CertifyConfig.samples + CertifyConfig.lines * CertifyConfig.line_samples
"""Inputs of size one that a network found in other units must explain as well, and inputs in its
own units that one found at size one must: as many as its certificate asks."""


def extract(
    oracle: Any,
    *,
    domain: Area = "all",
    answers: AnswerKind = "auto",
    plan: ExtractionPlan | None = None,
    rng: RandomState = None,
    progress: Progress | None = None,
    callback: Callback | None = None,
) -> RecoveryResult:
    """Recover what can be recovered of a target, by the algorithm that fits it.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    domain
        Where it may be asked: ``"all"``, ``"nonnegative"`` or a box ``(low, high)``.
    answers
        ``"values"`` or ``"probabilities"``, where the look at them should not decide.
    plan
        What :func:`plan_extraction` returned for the same oracle and seed; made
        here otherwise.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    callback
        A function of ``(stage, done, total, note)`` that is called at each of them. What it
        raises ends the run and reaches the caller.

    Returns
    -------
    RecoveryResult
        The result of the algorithm that was chosen; a :class:`SpanResult`,
        PARTIAL at most, where no network could be had. The message begins with
        the reason for the choice.

    Examples
    --------
    >>> import unrelu
    >>> target = unrelu.planted.random_network(6, 3, 1, rng=0)
    >>> result = unrelu.extract(unrelu.connect(target), rng=0)
    >>> result.status.name, result.network.architecture
    ('RECOVERED', '6-3-1')
    """
    if plan is not None and not isinstance(plan, ExtractionPlan):
        raise InvalidInput(f"plan must be what plan_extraction returned, got {plan!r}")
    source = as_oracle(oracle)
    began = source.meter.sent - (0 if plan is None else plan.spent)
    meter = told_too(progress, callback)
    provenance = Provenance(
        algorithm="extract", seed=rng if isinstance(rng, int) else None, target=source.identity
    )
    planner, stream = as_generator(rng).spawn(2)
    if plan is None:
        try:
            with as_breakdown():
                plan, target = make_plan(source, domain, planner, answers=answers, frugal=True)
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
    result, network = _follow(target, plan, stream, meter, provenance)
    if not _may_have_units(source, plan, result):
        return result
    try:
        with as_breakdown():
            return _in_units_of_its_own(
                source,
                domain,
                plan,
                (result, network),
                began,
                (planner, stream),
                meter,
                provenance,
            )
    except (BudgetExhausted, Breakdown, OracleError):
        return dataclasses.replace(result, queries=source.queries)


def _follow(
    target: Remembered,
    plan: ExtractionPlan,
    rng: np.random.Generator,
    meter: Progress,
    provenance: Provenance,
) -> tuple[RecoveryResult, Network | None]:
    """Do what was planned, and what comes next where that fails.

    Returns the network that was found as well, though it be no result.
    """
    meter.update("plan", 1, 1, plan.reason)
    low, high = plan.queries
    spent = target.allowance.spent
    target.allowance.plan(
        (spent + low, spent + high), settled=plan.diagnosis.hyperplanes is not None
    )
    chosen, result, network = _attempts(target, plan, rng, meter, provenance)
    result = in_its_own_form(result)
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
    if plan.frame is None:
        return result, network
    outside = None if network is None else plan.frame.network(network)
    return in_its_own_units(result, plan.frame), outside


def _may_have_units(source: Oracle, plan: ExtractionPlan, result: RecoveryResult) -> bool:
    """Whether inputs may live in other units: nothing was recovered, or not all of it.

    Probabilities that are nought and one everywhere look like labels in several columns.
    """
    if result.status is Status.BUDGET_EXHAUSTED or target_changed(result):
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
    plan: ExtractionPlan,
    found: tuple[RecoveryResult, Network | None],
    began: int,
    generators: tuple[np.random.Generator, np.random.Generator],
    meter: Progress,
    provenance: Provenance,
) -> RecoveryResult:
    """Find in which units inputs live, and try again there; the old result where that fails.

    What was recovered must hold there, too. ``began`` is what had been sent before the run; each
    trial has a price of its own on top of what was spent by then, as every other method has.
    """
    planner, stream = generators
    best, network = found
    stages = best.stages
    for _ in range(MOVES):  # a network found in some units tells better ones
        if network is not None:
            least = max(EXACT, NOISE_MULTIPLE * plan.diagnosis.relative_noise)
            frame = frame_of_network(network, plan.facts.probabilities, least, planner)
        elif best.copied:
            break
        else:
            with source.stage("units"):
                frame = find_frame(source, source.input_dim, planner)
        if frame is None:
            break
        if best.success:
            best = _holds_at(
                source, plan, best, frame.out(stream.standard_normal((HELD_OUT, source.input_dim)))
            )
            if best.success:
                break
        spent = source.meter.sent - began
        plan, target = make_plan(source, domain, planner, frame)
        again, network = _follow(target, plan, stream, meter, provenance)
        stages = (_with_price_of(again.stages[0], stages[0], spent), *stages[1:], *again.stages)
        if again.copied:
            x = stream.standard_normal((HELD_OUT, source.input_dim))
            best = _holds_at(source, plan, again, x)
            break
    return dataclasses.replace(best, queries=source.queries, stages=stages)


def _with_price_of(again: StageReport, first: StageReport, spent: int) -> StageReport:
    """Return the first plan with what the trial after ``spent`` queries was planned to take."""
    expected = [spent + queries for queries in again.details["expected queries"]]
    return dataclasses.replace(first, details={**first.details, "expected queries": expected})


def _holds_at(
    source: Oracle, plan: ExtractionPlan, result: RecoveryResult, x: FloatArray
) -> RecoveryResult:
    """Compare at inputs ``(n, d)`` of another size: PARTIAL where the network does not hold."""
    network, certificate = result.network, result.certificate
    if network is None or certificate is None:
        return result
    with source.stage("certificate"):
        y = source(x)
    answers = "log-odds" if result.findings().log_odds else "values"
    off = np.abs(predicted_answers(network, answers, source.output_dim)(x) - y).max(axis=0)
    noise = max(plan.diagnosis.noise, plan.diagnosis.relative_noise * float(np.abs(y).max()))
    if (off <= np.maximum(EXACT * y.std(axis=0), NOISE_MULTIPLE * noise)).all():
        return _exact_at(result, network, certificate, x)
    size = float(np.median(np.linalg.norm(x, axis=1)))
    message = f"at inputs of size {size:.2g} it is off by {off.max():.2g}. {result.message}"
    return dataclasses.replace(result, status=Status.PARTIAL, message=message)


def _exact_at(
    result: RecoveryResult, network: Network, certificate: Certificate, x: FloatArray
) -> RecoveryResult:
    """State a tolerance that is exact where values vary less, too, if all held-out inputs met it.

    Wilks's bound is the same for every tolerance that all of them met.
    """
    values = network(x)
    if result.findings().log_odds:  # what is added to all of them says nothing
        values = values - values[:, :1] if values.shape[1] > 1 else values
    tolerance = EXACT * float(values.std(axis=0).max())
    if not certificate.max_deviation <= tolerance < certificate.tolerance:
        return result
    tight = dataclasses.replace(certificate, tolerance=tolerance)
    message = result.message.replace(str(certificate), str(tight))
    return dataclasses.replace(result, certificate=tight, message=message)


def _attempts(
    target: Remembered,
    plan: ExtractionPlan,
    rng: np.random.Generator,
    meter: Progress,
    provenance: Provenance,
) -> tuple[str, RecoveryResult, Network | None]:
    """Run offers until one explains the answers; return its method, result and network.

    That is the first that was found where none explains them.
    """
    facts = dataclasses.replace(plan.facts, record=target.record)
    reasons: list[str] = []
    stages: list[StageReport] = []
    best: tuple[str, RecoveryResult] | None = None
    while (offer := best_offer(facts)) is not None:
        meter.update(offer.method, 0, None, offer.reason)
        if reasons:
            target.allowance.begin_again(offer.price)
        try:
            with as_breakdown():
                result = offer.run(target, rng, meter)
                following = facts.after(offer.method, result)
                if facts.look_saved and not _ends(result):
                    following = looked_at(target, facts, rng)
        except NotProbabilities:  # methods that find out for themselves do not raise it
            facts = of_values(facts)
            reasons.append("the answers seemed to be probabilities")
            continue
        except (BudgetExhausted, Breakdown) as error:  # between the runs of an offer
            spent = isinstance(error, BudgetExhausted)
            status = Status.BUDGET_EXHAUSTED if spent else Status.NUMERICAL_FAILURE
            result = RecoveryResult(status, str(error), target.queries, provenance)
            following = facts.after(offer.method, result)
        reasons.append(offer.reason)
        told = dataclasses.replace(
            result,
            message=f"{_joined(reasons)}. {result.message[:1].upper()}{result.message[1:]}",
            stages=(*stages, *result.stages),
        )
        if best is None or _says_something(result):
            best = offer.method, told
        if _ends(result):
            break
        stages.extend(result.stages)
        facts = following
    if best is None:
        return "nothing", nothing_recovered(target, plan, provenance), None
    networks = [result.network for result in (best[1], *(r for _, r in facts.attempts))]
    network = next((net for net in networks if net is not None), None)
    return best[0], with_first_layer(called_no_network(best[1], facts), facts), network


def _ends(result: RecoveryResult) -> bool:
    """Whether nothing else is tried after a result."""
    exhausted = result.status is Status.BUDGET_EXHAUSTED
    return result.copied or exhausted or target_changed(result)


def _joined(reasons: list[str]) -> str:
    return ", but ".join(reasons)


def _says_something(result: RecoveryResult) -> bool:
    """Whether a later attempt found anything at all: a network, or a span."""
    return not isinstance(result, SpanResult) or result.rank > 0
