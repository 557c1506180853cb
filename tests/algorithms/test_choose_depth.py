"""Which depth is chosen, and that the message says why."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.algorithms.choose_depth import extract
from unrelu.oracles import connect
from unrelu.planted import affine, random_network
from unrelu.result import Status


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((10, 8, 1), "two"),
        ((6, 20, 1), "two"),
        ((10, 5, 12, 1), "three"),
        ((12, 6, 8, 3), "three"),
    ],
)
def test_the_right_algorithm_is_chosen(shape, chosen, seed):
    truth = random_network(*shape, rng=seed)
    result = extract(truth, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert result.provenance.options["chosen"] == f"extract_{chosen}_layer"
    assert "bend" in result.message
    assert result.stages[0].name == "depth"
    assert result.network.depth == {"two": 2, "three": 3}[chosen]
    x = np.random.default_rng(0).standard_normal((5000, shape[0]))
    f = truth(x)
    assert np.abs(result.network(x) - f).max() / f.std() < 1e-8


def test_deeper_targets_are_recognised():
    truth = random_network(10, 5, 5, 5, 1, rng=0)
    result = extract(truth, rng=0)
    assert result.status is Status.PARTIAL
    assert "more than one hidden layer" in result.message
    assert result.first_width == 5


def test_an_affine_target():
    result = extract(affine(5, rng=0), rng=0)
    assert result.status is Status.RECOVERED
    assert "no kink" in result.message


def test_no_budget_at_all():
    oracle = connect(random_network(5, 4, 4, 1, rng=0), output_dim=1, budget=0)
    result = extract(oracle, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total == 0


def test_the_depth_is_found_with_few_queries():
    result = extract(random_network(20, 10, 20, 1, rng=1), rng=1)
    assert result.success
    assert result.queries.by_stage["depth"] < 0.5 * result.queries.without_certificate
