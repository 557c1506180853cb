"""Layers and halfspaces from queries: answers count, a price holds, breakdown is a status."""

import numpy as np
import pytest

import unrelu
from unrelu import Status
from unrelu.core.price import OVERRUN
from unrelu.core.record import remembered
from unrelu.thresholds import facets, halfspaces, layer_queries
from unrelu.thresholds.price import price_halfspaces, price_lowest_layer


def _rows(n, k, seed):
    w = np.random.default_rng(seed).standard_normal((k, n))
    return w / np.linalg.norm(w, axis=1, keepdims=True)


def _inside(w, t):
    return lambda x: (x @ w.T <= t).all(axis=1).astype(float)


def _any_above(w, t):
    return lambda x: (x @ w.T > t).any(axis=1).astype(float)


def _layer(oracle, **options):
    return unrelu.recover_lowest_layer(
        oracle, activation="sign", samples=30_000, tolerance=1e-4, **options
    )


def _replaced(run, first, second):
    """Run on a target that answered otherwise before."""
    shown = [first]
    oracle = remembered(unrelu.connect(lambda x: shown[0](x), input_dim=4))
    oracle(np.random.default_rng(9).standard_normal((300, 4)))
    shown[0] = second
    return run(oracle, rng=1)


@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_halfspaces_are_held_against_answers_before_the_run(moved):
    w = _rows(4, 3, 1)
    result = _replaced(unrelu.learn_halfspaces, _inside(w, 1.0 - moved), _inside(w, 1.0))
    assert result.success == (moved == 0.0)
    if moved:
        assert "answers of the run disagree with the halfspaces" in result.message
        assert len(result.directions) == 3


@pytest.mark.parametrize("moved", [0.0, 0.7])
def test_a_layer_is_held_against_answers_before_the_run(moved):
    w = np.eye(4)[:2]
    result = _replaced(_layer, _any_above(w, 1.5 - moved), _any_above(w, 1.5))
    assert result.success == (moved == 0.0), result.message
    if moved:
        assert "answers of the run disagree with the units" in result.message
        assert len(result.directions) == 2


def test_nothing_is_asked_where_every_answer_agrees():
    for result in (
        unrelu.learn_halfspaces(unrelu.connect(_inside(_rows(4, 3, 1), 1.0), input_dim=4), rng=1),
        _layer(unrelu.connect(_any_above(np.eye(4)[:2], 1.5), input_dim=4), rng=1),
    ):
        assert result.success
        assert "explanation" not in result.queries.by_stage


@pytest.mark.parametrize("seed", range(4))
def test_the_plan_covers_the_run_and_is_told(seed):
    n, k = 5 + seed, 3 + seed
    found = unrelu.learn_halfspaces(
        unrelu.connect(_inside(_rows(n, k, seed), 1.0), input_dim=n), rng=seed
    )
    layer = _layer(unrelu.connect(_any_above(np.eye(n)[:3], 1.5), input_dim=n), rng=seed)
    for result in (found, layer):
        plan = result.stages[0]
        assert plan.name == "plan"
        low, high = plan.details["expected queries"]
        assert low <= result.queries.total <= high


@pytest.mark.parametrize("verb", ["halfspaces", "layer"])
def test_a_run_that_outgrows_its_plan_ends_and_keeps_what_it_found(monkeypatch, verb):
    if verb == "halfspaces":
        monkeypatch.setattr(halfspaces, "price_halfspaces", lambda *a: (10, 492))
        oracle = unrelu.connect(_inside(_rows(4, 3, 1), 1.0), input_dim=4)
        result = unrelu.learn_halfspaces(oracle, rng=1)
    else:
        monkeypatch.setattr(layer_queries, "price_lowest_layer", lambda *a, **b: (10, 7_692))
        oracle = unrelu.connect(_any_above(np.eye(4)[:2], 1.5), input_dim=4)
        result = _layer(oracle, rng=1)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert "budget=" in result.message
    assert result.queries.total <= OVERRUN * (500 if verb == "halfspaces" else 7_700) + 1
    assert len(result.directions) >= 1


def test_a_budget_of_the_callers_counts_instead(monkeypatch):
    monkeypatch.setattr(halfspaces, "price_halfspaces", lambda *a: (10, 492))
    oracle = unrelu.connect(_inside(_rows(4, 3, 1), 1.0), input_dim=4, budget=50_000)
    assert unrelu.learn_halfspaces(oracle, rng=1).success


def test_breakdown_is_a_status_with_what_was_found(monkeypatch):
    def broken(*args, **kwargs):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(facets.FacetSearch, "search_facets", broken)
    oracle = unrelu.connect(_inside(_rows(4, 3, 1), 1.0), input_dim=4)
    result = unrelu.learn_halfspaces(oracle, rng=1)
    assert result.status is Status.NUMERICAL_FAILURE
    assert "broke down" in result.message
    assert len(result.directions) == 3
    monkeypatch.setattr(layer_queries, "refine_by_queries", broken)
    oracle = unrelu.connect(_any_above(np.eye(4)[:2], 1.5), input_dim=4)
    layer = _layer(oracle, rng=1)
    assert layer.status is Status.NUMERICAL_FAILURE
    assert len(layer.directions) == 2


def test_prices_grow_with_what_is_asked():
    assert price_halfspaces(10, (1, 5))[1] < price_halfspaces(20, (1, 5))[1]
    coarse = price_lowest_layer(5, (1, 5), samples=1000, tolerance=1e-2)
    fine = price_lowest_layer(5, (1, 5), samples=1000, tolerance=1e-8)
    assert coarse[1] < fine[1]
    assert price_lowest_layer(5, (1, 5), samples=1000, tolerance=0.0)[1] < 10**6


@pytest.mark.parametrize("options", [{"tolerance": -1.0}, {"tolerance": np.nan}, {"samples": 0}])
def test_a_mistake_of_the_caller_is_told(options):
    oracle = unrelu.connect(_any_above(np.eye(4)[:2], 1.5), input_dim=4)
    with pytest.raises(unrelu.errors.InvalidInput):
        unrelu.recover_lowest_layer(oracle, activation="sign", **options)
