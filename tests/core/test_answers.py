"""Probabilities told from values that happen to lie between 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import diagnose
from unrelu.core.answers import complementary, look_for_probabilities, vote
from unrelu.oracles import connect
from unrelu.oracles.wrappers import Cast, Rounded, Softmax
from unrelu.planted import random_network


def look(oracle, seed=0, **options):
    rng = np.random.default_rng(seed)
    return look_for_probabilities(
        oracle, lambda n: rng.standard_normal((n, oracle.input_dim)), **options
    )[0]


def squeezed(size, seed):
    truth = random_network(6, 5, 1, rng=seed)
    return connect(lambda x: 0.5 + size * truth(x), input_dim=6, output_dim=1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1e-3, 1e-7, 1e-12])
@pytest.mark.parametrize("ways_out", [(1.0, -1.0), ()])
def test_small_values_around_a_half_are_values(size, seed, ways_out):
    assert not look(squeezed(size, seed), seed, ways_out=ways_out)
    assert diagnose(squeezed(size, seed)).kind == "values"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("ways_out", [(1.0, -1.0), ()])
def test_a_softmax_is_told_also_in_a_box_and_coarse(outputs, seed, ways_out):
    exact = Softmax(connect(random_network(6, 5, outputs, rng=seed)))
    assert look(exact, seed, ways_out=ways_out)
    assert look(Cast(exact, "float32"), seed, ways_out=ways_out)
    assert diagnose(exact).kind == "probabilities"
    if outputs == 1 and ways_out:  # several rounded ones do not sum to one within 1e-5
        assert look(Rounded(exact, 3), seed)


def test_two_columns_that_sum_to_one_may_be_values():
    truth = random_network(6, 5, 1, rng=0)

    def target(x):
        return np.concatenate([0.5 + 1e-7 * truth(x), 0.5 - 1e-7 * truth(x)], axis=1)

    assert not look(connect(target, input_dim=6, output_dim=2))


def test_votes_are_counted_where_the_predictions_differ():
    z = np.linspace(-3.0, 3.0, 7)
    logistic = [1.0 / (1.0 + np.exp(-(z + step))) for step in (-0.5, 0.0, 0.5)]
    votes = vote(*logistic)
    assert (votes.values, votes.log_odds) == (0, 6)  # at z = 0 the logistic is straight
    straight = [np.linspace(0.1, 0.3, 5) + step for step in (-0.05, 0.0, 0.05)]
    assert (vote(*straight).values, vote(*straight).log_odds) == (5, 0)
    flat = [np.full(3, 0.5)] * 3
    assert (vote(*flat).values, vote(*flat).log_odds) == (0, 0)


def test_two_columns_of_one_probability_are_told_from_a_softmax():
    z = np.random.default_rng(0).normal(0.0, 3.0, (16, 1))
    p = 1.0 / (1.0 + np.exp(-z))
    other = 1.0 / (1.0 + np.exp(z))
    assert complementary(np.concatenate([1.0 - p, p], axis=1))
    assert complementary(np.concatenate([p, 1.0 - p], axis=1))
    assert not complementary(np.concatenate([other, p], axis=1))
    assert not complementary(p)
