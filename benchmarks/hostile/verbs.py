"""The public functions that take a target: each as a case before a planted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unrelu
from benchmarks.hostile import price
from benchmarks.hostile.case import Case, Kind, Planted, Verdict, generator
from benchmarks.hostile.judge import judge_learner, judge_network
from benchmarks.hostile.judge_layers import judge_span
from benchmarks.hostile.networks import Maker

Verb = Callable[[Planted, int], Case]
EPSILON = 0.01


def connected(planted: Planted) -> Any:
    """Connect a planted target, as a user would."""
    if isinstance(planted.target, unrelu.ReLUNetwork):
        return unrelu.connect(planted.target, **planted.options)
    return unrelu.connect(planted.target, input_dim=planted.d, **planted.options)


def _fresh(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed + 1_000_003)


def extract(planted: Planted, seed: int) -> Case:
    return Case(
        call=lambda: unrelu.extract(connected(planted), domain=planted.domain, rng=seed),
        judge=lambda result: judge_network(planted, result, rng=_fresh(seed)),
        price=price.written_in,
    )


def two_layer(planted: Planted, seed: int) -> Case:
    def priced(result: Any) -> float | None:
        return price.written_in(result) or price.planned_for(
            "extract_two_layer", lambda: connected(planted), planted.domain, seed
        )

    return Case(
        call=lambda: unrelu.extract_two_layer(connected(planted), domain=planted.domain, rng=seed),
        judge=lambda result: judge_network(planted, result, rng=_fresh(seed)),
        price=priced,
    )


def orthant(planted: Planted, seed: int) -> Case:
    return two_layer(planted.but(domain="nonnegative"), seed)


def box(planted: Planted, seed: int) -> Case:
    corners = ((-1.0, 1.0), (0.0, 1.0), (-3.0, 3.0), (0.0, 255.0))[seed % 4]
    return two_layer(planted.but(domain=corners), seed)


def three_layer(planted: Planted, seed: int) -> Case:
    def priced(result: Any) -> float | None:
        return price.written_in(result) or price.planned_for(
            "extract_three_layer", lambda: connected(planted), "all", seed
        )

    return Case(
        call=lambda: unrelu.extract_three_layer(connected(planted), rng=seed),
        judge=lambda result: judge_network(planted, result, rng=_fresh(seed)),
        price=priced,
    )


def learner(planted: Planted, seed: int) -> Case:
    epsilon = (EPSILON, 0.1, 1e-3)[seed % 3]

    def priced(result: Any) -> float | None:
        return price.written_in(result) or price.planned_for(
            "learn_from_queries", lambda: connected(planted), "all", seed, epsilon
        )

    return Case(
        call=lambda: unrelu.learn_from_queries(
            connected(planted), epsilon=epsilon, relative=True, rng=seed
        ),
        judge=lambda result: judge_learner(planted, result, epsilon=epsilon, rng=_fresh(seed)),
        price=priced,
    )


def span(planted: Planted, seed: int) -> Case:
    def priced(result: Any) -> float | None:
        return price.written_in(result) or price.planned_for(
            "recover_span", lambda: connected(planted), "all", seed
        )

    return Case(
        call=lambda: unrelu.recover_span(connected(planted), rng=seed),
        judge=lambda result: judge_span(planted, result, rng=_fresh(seed)),
        price=priced,
    )


def span_labels(planted: Planted, seed: int) -> Case:
    def priced(result: Any) -> float | None:
        return price.written_in(result) or price.planned_for(
            "recover_span from labels", lambda: connected(planted), "all", seed
        )

    return Case(
        call=lambda: unrelu.recover_span(connected(planted), answers="labels", rng=seed),
        judge=lambda result: judge_span(planted, result, rng=_fresh(seed), labels=True),
        price=priced,
    )


def _looked(result: Any) -> Verdict:
    """Looks claim no recovery: what matters is that they come back."""
    return Verdict("honest", type(result).__name__)


def diagnose(planted: Planted, seed: int) -> Case:
    def judge(result: Any) -> Verdict:
        result.sentences()
        result.to_dict()
        return _looked(result)

    return Case(call=lambda: unrelu.diagnose(connected(planted), rng=seed), judge=judge)


def plan(planted: Planted, seed: int) -> Case:
    def judge(result: Any) -> Verdict:
        result.sentence()
        result.to_dict()
        return _looked(result)

    return Case(
        call=lambda: unrelu.plan_extraction(connected(planted), domain=planted.domain, rng=seed),
        judge=judge,
    )


VERBS: dict[str, Verb] = {
    "extract": extract,
    "two_layer": two_layer,
    "orthant": orthant,
    "box": box,
    "three_layer": three_layer,
    "learner": learner,
    "span": span,
    "span_labels": span_labels,
    "diagnose": diagnose,
    "plan": plan,
}


def kind(verb: str, what: str, make: Maker, seeds: int, **facts: Any) -> Kind:
    """Return the kind of one function before one sort of target."""
    name = f"{verb}: {what}"

    def made(seed: int) -> Case:
        # The same target for every function that is tried on it.
        return VERBS[verb](make(generator(what, seed)), seed)

    return Kind(name, made, seeds, **facts)
