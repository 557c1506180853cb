"""Targets whose answers are next to nothing: zeros, rounding errors, one kink far away."""

import numpy as np
import pytest

from unrelu.learner.algorithm import learn_from_queries
from unrelu.learner.formulas import lattice_noise
from unrelu.networks import ReLUNetwork


def network(rows, biases, outputs, constant=0.0):
    return ReLUNetwork(
        [np.atleast_2d(rows).astype(float), np.atleast_2d(outputs).astype(float)],
        [np.asarray(biases, dtype=float), np.array([constant])],
    )


@pytest.mark.parametrize("seed", range(3))
def test_terms_that_cancel_but_for_rounding_cost_no_line(seed):
    g = np.random.default_rng(seed)
    w, b, u = g.standard_normal((5, 8)), g.standard_normal(5), g.standard_normal(5)
    target = network(np.vstack([w, w]), np.r_[b, b], np.r_[u, -u])
    result = learn_from_queries(target, epsilon=1e-6, rng=seed)
    assert result.success
    assert result.width == 0
    # Rounding gives large terms away: up to 30,000 samples look for a bump, nothing more.
    assert result.queries.without_certificate < 31_000
    x = g.standard_normal((1000, 8))
    assert np.abs(result.network(x) - target(x)).max() < 1e-14


@pytest.mark.parametrize("seed", range(4))
def test_a_bump_and_nothing_else_on_the_real_line(seed):
    target = network([[1.0]] * 3, [-0.3, -0.325, -0.35], [1.0, -2.0, 1.0])
    result = learn_from_queries(target, epsilon=1e-3, relative=True, rng=seed)
    assert result.success
    assert result.width == 3
    x = np.linspace(-2, 2, 4001)[:, None]
    # The bump is 0.025 high; its kinks are known to rounding over its slopes.
    assert np.abs(result.network(x) - target(x)).max() < 1e-10


@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_kink_that_no_sample_reaches(d, seed):
    rows = np.eye(1, d) if d == 1 else np.random.default_rng(seed).standard_normal((1, d))
    target = network(rows, [-12.0 * np.linalg.norm(rows)], [1.0])
    result = learn_from_queries(target, epsilon=1e-3, rng=seed)
    assert result.success
    x = np.random.default_rng(seed).standard_normal((1000, d))
    # A line search that reaches the kink leaves it out, up to rounding.
    assert np.abs(result.network(x) - target(x)).max() < 1e-15


@pytest.mark.parametrize("seed", range(3))
def test_two_inputs_and_one_input(seed):
    g = np.random.default_rng(seed)
    for d, k in ((1, 20), (2, 30)):
        target = network(g.standard_normal((k, d)), g.standard_normal(k), g.standard_normal(k))
        result = learn_from_queries(target, epsilon=1e-3, relative=True, rng=seed)
        assert result.success
        x = g.standard_normal((20_000, d))
        error = np.sqrt(np.mean((result.network(x) - target(x)) ** 2))
        assert error <= 1e-3 * target(x).std()


def test_a_lattice_of_rounding_is_told_from_flat_pieces():
    g = np.random.default_rng(0)
    rounding = 2.0**-53 * g.integers(-2, 3, 48)
    assert lattice_noise(rounding) == pytest.approx(2.0**-53, rel=1.0)
    step = np.where(g.random(48) < 0.5, 0.0, 1.0)  # two flat pieces
    assert lattice_noise(step) == 0
    assert lattice_noise(g.standard_normal(48)) == 0
    assert lattice_noise(np.zeros(48)) == 0
