import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.gaussian.identifiability import hermite_risk, identifiability
from unrelu.networks import ReLUNetwork


def net(w, a, b, **kwargs):
    return ReLUNetwork([w, np.atleast_2d(a)], [b, np.zeros(1)], **kwargs)


def random_units(seed, d, m):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)), rng.uniform(0.5, 1.5, m), rng.uniform(-1, 1, m)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("d", "m"), [(5, 4), (3, 8)])
def test_random_networks_are_determined(seed, d, m):
    found = identifiability(net(*random_units(seed, d, m)))
    assert found.determined is True
    np.testing.assert_array_equal(found.patterns, np.ones((1, m)))


@pytest.mark.parametrize("seed", range(5))
def test_claim_4_8_pair_is_found(seed):
    # Dependent w with the dependency as outer weights: all may be turned round.
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((5, 4))
    beta = np.linalg.svd(w.T)[2][-1]
    f = net(w, beta, np.zeros(5))
    found = identifiability(f)
    assert found.determined is False
    assert len(found.patterns) == 2
    x = rng.standard_normal((100, 4))
    for xi in found.patterns:
        g = net(xi[:, None] * w, beta, np.zeros(5))
        np.testing.assert_allclose(g(x), f(x), atol=1e-13)


def test_biases_can_restore_the_signs():
    # The dependency must hold for the biases too (condition (5), second half).
    w = np.random.default_rng(0).standard_normal((5, 4))
    beta = np.linalg.svd(w.T)[2][-1]
    assert identifiability(net(w, beta, np.arange(5.0))).determined is True


def test_parallel_silent_and_too_many_units_are_mentioned():
    w, a, b = random_units(1, 3, 4)
    w[1] = -2 * w[0]
    a[2] = 0.0
    found = identifiability(net(w, a, b))
    assert found.parallel == ((0, 1),)
    assert found.silent == (2,)
    assert "parallel" in found.message
    big = identifiability(net(*random_units(2, 2, 40)))
    assert big.determined is None


def test_only_depth_two_with_one_output():
    wrong = ReLUNetwork([np.ones((2, 3)), np.ones((2, 2))], [np.zeros(2), np.zeros(2)])
    with pytest.raises(InvalidInput, match="one output"):
        identifiability(wrong)
    with pytest.raises(InvalidInput, match="one output"):
        hermite_risk(wrong, wrong)


@pytest.mark.parametrize("seed", range(4))
def test_risk_is_the_mean_square_distance(seed):
    f, g = net(*random_units(seed, 4, 6)), net(*random_units(seed + 50, 4, 3))
    risk = hermite_risk(f, g)
    x = np.random.default_rng(seed).standard_normal((200_000, 4))
    square = (f(x) - g(x)) ** 2
    # Six standard errors of a mean of 2e5 squares.
    assert float(risk) == pytest.approx(square.mean(), abs=6 * square.std() / np.sqrt(2e5))
    assert 0 <= risk.tail < 2e-3 * risk.total  # terms fall like k^(-5/2)
    assert np.all(risk.terms >= 0)


def test_risk_terms_add_up_as_orders_grow():
    f, g = net(*random_units(3, 5, 4)), net(*random_units(4, 5, 4))
    tails = [hermite_risk(f, g, orders=k).tail for k in (5, 20, 80)]
    assert tails[0] > tails[1] > tails[2] >= 0
    # Tail of sum k^(-5/2) is (2/3) k^(-3/2): from 20 to 80 a factor of 8.
    assert tails[2] < 0.3 * tails[1]


def test_risk_with_affine_parts():
    w, a, b = random_units(5, 3, 2)
    f = ReLUNetwork([w, a[None]], [b, np.array([0.7])], skip=np.array([[1.0, -2.0, 0.5]]))
    g = net(*random_units(6, 3, 3))
    x = np.random.default_rng(0).standard_normal((200_000, 3))
    square = (f(x) - g(x)) ** 2
    risk = hermite_risk(f, g)
    assert risk.total == pytest.approx(square.mean(), abs=6 * square.std() / np.sqrt(2e5))
    assert hermite_risk(f, f).total == pytest.approx(0.0, abs=1e-6)


def test_risk_ignores_scale_and_order():
    w, a, b = random_units(7, 4, 3)
    f = net(w, a, b)
    g = net(2 * w[::-1], a[::-1] / 2, 2 * b[::-1])
    assert hermite_risk(f, g).total == pytest.approx(0.0, abs=1e-7)


def test_risk_needs_the_same_inputs():
    with pytest.raises(InvalidInput, match="3 and 4 inputs"):
        hermite_risk(net(*random_units(0, 3, 2)), net(*random_units(0, 4, 2)))
