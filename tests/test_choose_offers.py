"""No offer is made that the facts exclude, and none ends a run by an exception."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from unrelu import _choose_plan, choose, connect, extract, planted
from unrelu.core.answers import values_where_refuted
from unrelu.errors import BudgetExhausted
from unrelu.extraction.noisy import extract_from_noisy
from unrelu.lines.facts import Facts, Merit, Offer
from unrelu.oracles import Cast, Rounded, Softmax
from unrelu.oracles.wrappers import NotProbabilities
from unrelu.result import Status


def tried(oracle, seed, monkeypatch):
    """Return the result of extract, and the methods that were run for it."""
    methods = []

    def noted(offer: Offer) -> Offer:
        def run(target, rng, progress):
            methods.append(offer.method)
            return offer.run(target, rng, progress)

        return dataclasses.replace(offer, run=run)

    best = choose.best_offer
    monkeypatch.setattr(
        choose, "best_offer", lambda facts: None if best(facts) is None else noted(best(facts))
    )
    return extract(oracle, rng=seed), methods


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("decimals", [6, 8])
def test_two_hidden_layers_of_few_decimals(seed, decimals):
    network = planted.random_network(12, 4, 6, 2, rng=seed)
    result = extract(Rounded(connect(network), decimals), rng=seed)
    assert result.status is Status.RECOVERED
    x = np.random.default_rng(0).standard_normal((500, 12))
    # Half a step of the decimals is an answer's error; a fit averages it, a step bounds it.
    assert np.abs(result.network(x) - network(x)).max() < 10.0**-decimals


def test_four_decimals_of_two_hidden_layers_end_soon(monkeypatch):
    network = planted.random_network(12, 4, 6, 2, rng=1)
    result, methods = tried(Rounded(connect(network), 4), 3, monkeypatch)
    assert not result.success
    assert "extract_two_layer" not in methods
    assert "extract_any_depth" not in methods


def test_lines_that_disagree_end_a_fit():
    network = planted.random_network(12, 8, 8, 1, rng=0)
    result = extract_from_noisy(Cast(connect(network), "float32"), rng=3)
    assert result.status is Status.PARTIAL
    assert "more than one hidden layer" in result.message
    assert {stage.name for stage in result.stages} <= {
        "plan", "calibration", "line search", "trial fit",
    }  # fmt: skip


def test_rounded_probabilities_of_several_classes_are_fitted(monkeypatch):
    network = planted.random_network(3, 3, 3, rng=0)
    result, methods = tried(Rounded(Softmax(connect(network)), 3), 0, monkeypatch)
    assert methods[0] == "extract_from_noisy"
    assert result.status is Status.APPROXIMATED


def test_single_probabilities_of_float32_are_certified_where_they_can_be_read():
    network = planted.random_network(6, 2, 1, rng=1, gain=3.0)
    result = extract_from_noisy(Cast(Softmax(connect(network)), "float32"), rng=1)
    if result.status is Status.RECOVERED:
        # 1 - p of log-odds 6 holds 0.0025 / 6e-8 steps of float32: an error of 2.4e-5.
        assert result.certificate.tolerance < 1e-3
        assert result.certificate.samples <= 1000


def stub(run) -> Offer:
    return Offer("stub", "a stub", "a stub is tried", Merit.NETWORK, (1, 1), run)


def test_a_price_passed_between_runs_is_a_status(monkeypatch):
    def passes(target, rng, progress):
        raise BudgetExhausted("more than was planned")

    monkeypatch.setattr(_choose_plan, "METHODS", (lambda facts: stub(passes),))
    result = extract(connect(planted.random_network(3, 2, 1, rng=0)), rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert "More than was planned" in result.message


def test_answers_that_leave_their_range_are_values(monkeypatch):
    kinds = []

    def offer(facts: Facts) -> Offer | None:
        kinds.append(facts.diagnosis.kind)
        if facts.diagnosis.kind == "values":
            return None

        def refuted(target, rng, progress):
            raise NotProbabilities("outside [0, 1]")

        return stub(refuted)

    monkeypatch.setattr(_choose_plan, "METHODS", (offer,))
    extract(Softmax(connect(planted.random_network(3, 2, 2, rng=0))), rng=0)
    assert kinds[0] == "probabilities"
    assert kinds[-1] == "values"


def test_a_method_begins_again_with_values():
    seen = []

    @values_where_refuted
    def method(*, answers: str = "auto") -> str:
        seen.append(answers)
        if answers != "values":
            raise NotProbabilities("outside [0, 1]")
        return answers

    assert method() == "values"
    assert seen == ["auto", "values"]
    with pytest.raises(NotProbabilities):
        method(answers="probabilities")
