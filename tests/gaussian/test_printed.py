"""Algorithm 5 as printed."""

import math

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import RankOneUnits, population_tensors
from unrelu.gaussian.population import learn_from_population
from unrelu.gaussian.printed import (
    SIGNS,
    TruncatedLoss,
    _network,
    empirical_tensors,
    learn_as_printed,
    projected_descent,
    sign_features,
)
from unrelu.networks import ReLUNetwork
from unrelu.result import Status


def planted(seed, d, m):
    rng = np.random.default_rng([seed, 17])
    w = np.linalg.qr(rng.standard_normal((d, d)))[0][:m]
    return w, rng.uniform(0.8, 1.5, m) * rng.choice([-1, 1], m), rng.uniform(-0.8, 0.8, m)


def labels(truth, x):
    w, a, b = truth
    return np.maximum(x @ w.T + b, 0.0) @ a


def test_equation_14_is_unbiased_and_tells_its_error():
    truth = planted(0, 3, 3)
    x = np.random.default_rng(0).standard_normal((40_000, 3))
    found = empirical_tensors(x, labels(truth, x), range(9))
    exact = population_tensors(*truth, tuple(range(9)))
    for k in range(9):
        error = np.linalg.norm(found.tensors[k].entries - exact[k].entries)
        # He_k has the variance k!, and 1/N of it is left; y has a spread of about 1.
        assert error < 4 * math.sqrt(math.factorial(k) * len(exact[k].entries[0]) / 40_000) * 3
        if k >= 3:
            ratio = np.linalg.norm(found.errors[k].entries) / error
            assert 0.3 < ratio < 3.0  # both are one draw of the same error


def test_eight_features_stand_for_a_unit():
    w, a, b = planted(1, 4, 2)
    x = np.random.default_rng(1).standard_normal((50, 4))
    phi = sign_features(RankOneUnits(w, a, b), x)
    assert phi.shape == (50, 8 * 2 + 4 + 1)
    assert len(SIGNS) == 8
    for i, (xi1, xi2, xi3) in enumerate(SIGNS):
        expected = xi3 * a * np.maximum(x @ (xi1 * w).T + xi2 * b, 0.0)
        np.testing.assert_allclose(phi[:, 2 * i : 2 * i + 2], expected, atol=1e-14)
    np.testing.assert_array_equal(phi[:, -1], 1.0)


def test_rows_with_long_features_are_left_out():
    units = RankOneUnits(np.eye(2)[:1], np.ones(1), np.zeros(1))
    x = np.array([[0.1, 0.0], [50.0, 0.0]])
    loss = TruncatedLoss.of(units, x, np.array([2.0, 7.0]), tau=10.0)
    assert loss.kept == 0.5
    assert loss.square == pytest.approx(2.0)  # 2^2 over both rows
    beta = np.random.default_rng(0).standard_normal(11)
    left = 2.0 - sign_features(units, x[:1])[0] @ beta
    assert loss.value(beta) == pytest.approx(left**2 / 2)


@pytest.mark.parametrize("radius", [100.0, 0.5])
def test_projected_descent_ends_within_its_bound_of_the_least_loss(radius):
    rng = np.random.default_rng(2)
    phi, y = rng.standard_normal((200, 5)), rng.standard_normal(200)
    y += phi @ np.arange(5.0)
    loss = TruncatedLoss(phi.T @ phi / 200, phi.T @ y / 200, float(y @ y) / 200, 1.0)
    beta, gap = projected_descent(loss, radius, 1e-6)
    assert gap <= 1e-6
    assert np.linalg.norm(beta) <= radius * (1 + 1e-12)
    # The least in the ball, by its multiplier.
    best = np.linalg.solve(loss.gram, loss.moment)
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = 0.5 * (low + high)
        trial = np.linalg.solve(loss.gram + middle * np.eye(5), loss.moment)
        low, high = (middle, high) if np.linalg.norm(trial) > radius else (low, middle)
    least = loss.value(best if np.linalg.norm(best) <= radius else trial)
    assert -1e-9 <= loss.value(beta) - least <= 1e-6


def test_the_network_is_the_regression():
    units = RankOneUnits(*planted(3, 3, 2))
    rng = np.random.default_rng(3)
    beta = rng.standard_normal(8 * 2 + 4)
    x = rng.standard_normal((100, 3))
    net = _network(units, beta, 3)
    np.testing.assert_allclose(net(x)[:, 0], sign_features(units, x) @ beta, atol=1e-12)
    assert net.hidden_widths[0] <= 8 * 2


@pytest.mark.parametrize(("seed", "order"), [(0, 1), (1, 1), (0, 2)])
def test_algorithm_5_learns_to_epsilon(seed, order):
    d, m = (3, 2) if order == 1 else (2, 2)
    truth = planted(seed, d, m)
    x = np.random.default_rng(seed).standard_normal((60_000, d))
    result = learn_as_printed(
        x, labels(truth, x), epsilon=0.3, bound=3.0, width=m, order=order, rng=seed
    )
    assert result.status is Status.APPROXIMATED, result.message
    fresh = np.random.default_rng([seed, 1]).standard_normal((20_000, d))
    error = np.sqrt(np.mean((result.network(fresh)[:, 0] - labels(truth, fresh)) ** 2))
    assert error <= 0.3
    # The second half alone enters the regression, the first alone the tensors.
    changed = labels(truth, x).copy()
    changed[-1000:] += 5.0
    other = learn_as_printed(x, changed, epsilon=0.3, bound=3.0, width=m, order=order, rng=seed)
    np.testing.assert_array_equal(other.moment_weights, result.moment_weights)
    assert other.network != result.network


def test_what_the_paper_assumes_is_asked_for():
    x = np.random.default_rng(0).uniform(-1.7, 1.7, (20_000, 3))
    asked = {"epsilon": 0.2, "bound": 2.0, "width": 2}
    result = learn_as_printed(x, x[:, 0], **asked)
    assert result.status is Status.ASSUMPTION_VIOLATED
    shifted = np.random.default_rng(0).standard_normal((20_000, 3)) + 1.0
    with pytest.raises(InvalidInput, match="whiten"):
        learn_as_printed(shifted, shifted[:, 0], **asked)
    with pytest.raises(InvalidInput, match="epsilon"):
        learn_as_printed(x, x[:, 0], epsilon=0.0, bound=2.0, width=2)
    with pytest.raises(InvalidInput, match="too few"):
        learn_as_printed(x[:4], x[:4, 0], **asked)
    few = np.random.default_rng(1).standard_normal((400, 3))
    missed = learn_as_printed(few, np.abs(few).sum(axis=1) ** 2, **(asked | {"epsilon": 1e-3}))
    assert missed.status is Status.PARTIAL


@pytest.mark.parametrize("seed", range(3))
def test_corollary_3_3_needs_smoothing_and_no_more(seed):
    """Section 6: four units in a plane have no unique tensors; moved by 0.1 they have."""
    rng = np.random.default_rng([seed, 33])
    d, m = 6, 4
    plane = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    flat = rng.standard_normal((m, 2)) @ plane.T
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    a, b = rng.uniform(0.5, 1.5, m), rng.uniform(-1.0, 1.0, m)
    for tau in (0.0, 0.1):
        w = flat + tau / np.sqrt(d) * rng.standard_normal((m, d))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        network = ReLUNetwork([w, a[None]], [b, np.zeros(1)])
        result = learn_from_population(network, rng=seed, refine=False, pairs=1)
        assert result.success == (tau > 0.0), result.message
        if result.success:
            cosines = np.abs(result.moment_weights @ w.T)
            # Rounding times the inverse of s_m(W) = 0.05, squared.
            assert (1.0 - cosines.max(axis=0) < 1e-9).all()
