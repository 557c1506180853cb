"""Rational networks: exact answers, equality up to order and scaling, the exact oracle."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from unrelu import planted
from unrelu.errors import BudgetExhausted, InvalidInput
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles import ExactOracle, Meter
from unrelu.rational import RationalNetwork, rationals
from unrelu.rational_compare import normal_form, same_function, same_network

F = Fraction


def by_hand(network, x):
    """Answer one point with plain Fractions, unit by unit."""
    value = list(x)
    for number, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        value = [sum((a * v for a, v in zip(row, value, strict=True)), c)
                 for row, c in zip(w, b, strict=True)]  # fmt: skip
        if number + 1 < len(network.weights):
            value = [max(v, F(0)) for v in value]
    if network.skip is not None:
        value = [v + sum(a * c for a, c in zip(row, x, strict=True))
                 for v, row in zip(value, network.skip, strict=True)]  # fmt: skip
    return value


@pytest.mark.parametrize("shape", [(2, 3, 1), (3, 2, 4, 2), (1, 1, 1)])
def test_answers_are_exact(shape):
    network = planted.random_rational_network(*shape, rng=3)
    skip = [[F(2, 7)] * shape[0]] * shape[-1]
    for net in (network, RationalNetwork(network.weights, network.biases, skip)):
        x = rationals(np.random.default_rng(0).standard_normal((5, shape[0])))
        assert net(x).tolist() == [by_hand(net, row) for row in x]
        # float64 products of a few terms of size one
        assert np.allclose(net.rounded()(x.astype(float)), net(x).astype(float), atol=1e-12)


def test_texts_give_the_network_back():
    network = planted.random_rational_network(3, 2, 4, 1, rng=0)
    assert RationalNetwork.from_text(network.to_text()) == network
    assert RationalNetwork.from_text(network.to_text()).fingerprint() == network.fingerprint()
    affine = RationalNetwork([np.empty((0, 2)), np.empty((1, 0))], [[], ["1/3"]], [["1/2", 3]])
    assert RationalNetwork.from_text(affine.to_text()) == affine
    assert affine([[2, 1]]).item() == F(1, 3) + 1 + 3
    with pytest.raises(InvalidInput, match="text of a rational network"):
        RationalNetwork.from_text("{}")


def test_a_float64_network_is_a_rational_one():
    network = planted.random_network(4, 3, 1, rng=0)
    exact = RationalNetwork.from_network(network)
    assert exact.rounded() == network
    with pytest.raises(InvalidInput, match="ReLU"):
        RationalNetwork.from_network(Network([[[1.0]], [[1.0]]], [[0.0], [0.0]], "tanh"))
    with pytest.raises(InvalidInput, match="rational"):
        rationals([np.nan])
    with pytest.raises(InvalidInput, match="no network"):
        RationalNetwork([[[1, 2]]], [[1, 2]])


def shuffled(network, rng):
    """Return the same network with its units in another order and at another scale."""
    weights, biases = list(network.weights), list(network.biases)
    for layer in range(len(weights) - 1):
        order = rng.permutation(len(weights[layer]))
        scale = rationals(rng.integers(1, 9, len(order)))
        weights[layer] = weights[layer][order] * scale[:, None]
        biases[layer] = biases[layer][order] * scale
        weights[layer + 1] = weights[layer + 1][:, order] / scale
    return RationalNetwork(weights, biases)


@pytest.mark.parametrize("shape", [(3, 5, 1), (3, 2, 4, 1)])
def test_the_same_up_to_order_and_positive_scaling(shape):
    network = planted.random_rational_network(*shape, rng=1)
    other = shuffled(network, np.random.default_rng(2))
    assert network != other
    assert normal_form(network) == normal_form(other)
    assert same_network(network, other)
    assert same_function(network, other)
    weights = [w.copy() for w in other.weights]
    weights[0][0, 0] += F(1, 10**30)  # the least of differences is one
    assert not same_network(network, RationalNetwork(weights, other.biases))
    assert not same_function(network, RationalNetwork(weights, other.biases))


def test_a_unit_turned_over_is_another_network_but_the_same_function():
    network = planted.random_rational_network(2, 3, 1, rng=0)
    w, u = (a.copy() for a in network.weights)
    b = network.biases[0].copy()
    skip = u[:, 0][:, None] * w[0]  # relu(z) = z + relu(-z)
    constant = u[0, 0] * b[0]
    w[0], b[0] = -w[0], -b[0]
    turned = RationalNetwork([w, u], [b, [constant]], skip)
    assert same_function(network, turned)
    assert not same_network(network, turned)
    assert not same_function(network, RationalNetwork([w, u], [b, [constant]]))


def test_units_that_never_switch_on_the_orthant_are_affine_there():
    always_on = RationalNetwork([[[1, 2]], [[3]]], [[1], [0]])
    affine = RationalNetwork([[[-1, -1]], [[5]]], [[-1], [3]], [[3, 6]])
    assert same_function(always_on, affine, orthant=True)
    assert not same_function(always_on, affine)


def test_exact_oracles_count_every_row():
    network = planted.random_rational_network(2, 3, 1, rng=0)
    oracle = ExactOracle(network, meter=Meter(budget=6))
    x = rationals([[F(1, 3), F(2, 5)], [1, 2]])
    with oracle.stage("first"):
        assert (oracle.exact(x) == network(x)).all()
    assert oracle.exact(x[:0]).shape == (0, 1)
    # Asked as others are, it rounds: the same as the rounded exact answer.
    assert oracle(np.array([[0.5, 0.25]])).item() == float(network([[0.5, 0.25]]).item())
    assert oracle.queries.total == 3
    assert oracle.queries.by_stage["first"] == 2
    with pytest.raises(InvalidInput, match="shape"):
        oracle.exact(rationals([[1]]))
    with pytest.raises(BudgetExhausted):
        oracle.exact(rationals([[1, 2]] * 4))
    with pytest.raises(InvalidInput, match="RationalNetwork"):
        ExactOracle(ReLUNetwork([[[1.0]]], [[0.0]]))
