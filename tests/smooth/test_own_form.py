"""Own forms: recognised in recovered networks, parameters included, and only where they are."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import InvalidInput, ReLUNetwork, compare, extract, extract_two_layer, planted
from unrelu.core.activations import activation
from unrelu.extraction.clipped import clipped_network, find_ends
from unrelu.networks import Network
from unrelu.oracles.adapters import NetworkOracle
from unrelu.smooth.piecewise import in_own_form, layers_in_own_form


def network_of(kind, shape, seed):
    plain = planted.random_network(*shape, rng=seed)
    slopes = np.random.default_rng(seed).uniform(0.0, 0.5, shape[1])
    phi = {"leaky": activation("leaky_relu", 0.1), "prelu": activation("leaky_relu", slopes)}
    return Network(plain.weights, plain.biases, phi.get(kind) or activation(kind))


@pytest.mark.parametrize("seed", [31, 32])
@pytest.mark.parametrize("kind", ["leaky", "prelu", "abs", "hard_tanh", "relu6", "hard_sigmoid"])
def test_recovered_in_its_own_form(kind, seed):
    truth = network_of(kind, (12, 6, 1), seed)
    result = extract_two_layer(NetworkOracle(truth), rng=seed)
    assert result.success
    form = in_own_form(result.network)
    assert form.recognised == truth.usual().activations[0].name
    assert form.network.skip is None
    # Extraction reaches 1e-11 of outputs, and rows 1e-9; shares of the affine part amplify that
    # by the condition of ten matrices in twelve dimensions.
    against = compare(form.network, truth)
    assert against.relative_error < 1e-9
    assert against.max_parameter_error < 1e-7
    assert against.matched == (6,)
    assert against.unmatched == 0


@pytest.mark.parametrize(("kind", "most"), [("leaky", 2.8), ("abs", 2.8), ("hard_tanh", 4.4)])
def test_few_queries_are_taken_beside_the_certificate(kind, most):
    truth = network_of(kind, (20, 10, 1), 4)
    result = extract(NetworkOracle(truth), rng=4)
    assert result.network.usual().activations[0].name == truth.usual().activations[0].name
    # A diagnosis of 190 queries, and d for each kink: benchmarks tell the median, a tenth less.
    assert result.queries.without_certificate <= most * truth.parameters


def test_clipped_units_are_paired_when_they_outnumber_the_inputs():
    truth = network_of("hard_tanh", (5, 12, 1), 7)
    result = extract_two_layer(NetworkOracle(truth), rng=7)
    form = in_own_form(result.network)
    assert form.recognised == "hard_tanh"
    assert form.network.hidden_widths == (12,)
    assert compare(form.network, truth).relative_error < 1e-9


def test_what_is_not_determined_stays_as_it_is():
    truth = network_of("leaky", (4, 9, 1), 3)
    result = extract_two_layer(NetworkOracle(truth), rng=3)
    form = in_own_form(result.network)
    assert form.recognised == "relu"
    assert form.network is result.network
    assert compare(form.network, result.network).relative_error == 0.0


def test_maxout_stays_relus_and_an_affine_part():
    g = np.random.default_rng(2)
    a, b, u = g.normal(size=(4, 10)), g.normal(size=(4, 10)), g.normal(size=4)
    # max(p, q) = q + [p - q]
    truth = ReLUNetwork([a - b, u[None]], [np.zeros(4), np.zeros(1)], (u @ b)[None])
    form = in_own_form(truth)
    assert form.recognised == "relu"
    assert form.network is truth


def test_plain_relus_and_half_paired_units_are_left_alone():
    plain = planted.random_network(8, 4, 1, rng=0)
    assert in_own_form(plain).network is plain
    hard = network_of("hard_tanh", (8, 3, 1), 1)
    w, b = hard.weights[0], hard.biases[0]
    u = hard.weights[1]
    # Two kinks each, but for one: that layer is a mixture.
    rows = np.concatenate([w, w[:2]])
    biases = np.concatenate([b + 1.0, b[:2] - 1.0])
    mixed = ReLUNetwork(
        [rows, np.concatenate([u, -u[:, :2]], axis=1)], [biases, np.zeros(1)], np.ones((1, 8))
    )
    assert in_own_form(mixed).recognised == "relu"


def test_clipped_units_keep_a_skip_term():
    hard = network_of("hard_tanh", (8, 3, 1), 1)
    w, b, u = hard.weights[0], hard.biases[0], hard.weights[1]
    skip = np.arange(8.0)[None]
    disguised = ReLUNetwork(
        [np.concatenate([w, w]), np.concatenate([u, -u], axis=1)],
        [np.concatenate([b + 1.0, b - 1.0]), -u.sum(axis=1)],
        skip,
    )
    form = in_own_form(disguised)
    truth = Network(hard.weights, hard.biases, "hard_tanh", skip)
    assert form.recognised == "hard_tanh"
    # Rounding only.
    assert compare(form.network, truth).max_parameter_error < 1e-12


def test_other_networks_are_refused():
    for bad in (planted.random_network(4, 3, 2, 1, rng=0), network_of("tanh", (4, 3, 1), 0)):
        with pytest.raises(InvalidInput):
            in_own_form(bad)


@pytest.mark.slow
def test_two_layers_of_units_that_saturate():
    plain = planted.random_network(12, 8, 6, 1, rng=0)
    truth = Network(plain.weights, plain.biases, [activation("hard_tanh")] * 2)
    result = extract(NetworkOracle(truth), rng=0)
    assert result.success, result.message
    assert "a first layer of hard tanhs" in result.message
    assert result.network.hidden_widths == (8, 6)
    # Ends of the first layer are found to 1e-11 of their size.
    assert compare(result.network, truth).relative_error < 1e-9


def test_the_ends_of_a_clipped_layer_are_found_and_it_is_put_together():
    g = np.random.default_rng(0)
    rows, biases, ends = g.standard_normal((4, 6)), g.standard_normal(4), g.uniform(1, 5, 4)
    top = ReLUNetwork(
        [g.standard_normal((5, 4)), g.standard_normal((2, 5))],
        [g.standard_normal(5), g.standard_normal(2)],
        skip=g.standard_normal((2, 4)),
    )
    found = find_ends(lambda z: top(np.clip(z, 0.0, ends)), 4, g)
    # Two answers a thousandth below the end, of sixteen digits.
    np.testing.assert_allclose(found, ends, rtol=1e-11)
    assert find_ends(top, 4, g) is None
    network, relus = clipped_network(rows, biases, ends, top)
    x = g.standard_normal((500, 6))
    expected = top(np.clip(x @ rows.T + biases, 0.0, ends))
    for form in (network, relus, layers_in_own_form(network).network):
        np.testing.assert_allclose(form(x), expected, rtol=0, atol=1e-12)
