"""Smooth hidden layers: parameters, activations, every status, and targets that are none."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import Status, compare, extract, planted
from unrelu.core.activations import SMOOTH, activation
from unrelu.networks import Network
from unrelu.oracles import connect
from unrelu.oracles.adapters import NetworkOracle
from unrelu.oracles.wrappers import Softmax
from unrelu.result import RecoveryResult
from unrelu.smooth.algorithm import SmoothResult, extract_smooth
from unrelu.smooth.config import SmoothConfig
from unrelu.smooth.fit import fit_layer, solve_outputs


def network_of(name, shape, seed):
    plain = planted.random_network(*shape, rng=seed)
    return Network(plain.weights, plain.biases, name)


@pytest.mark.parametrize("name", [*SMOOTH, "logistic"])
def test_recovers_parameters_and_finds_the_activation(name):
    truth = network_of(name, (8, 5, 1), 41)
    oracle = NetworkOracle(truth)
    result = extract_smooth(oracle, rng=5)
    assert result.status is Status.RECOVERED, result.message
    assert result.activation == truth.usual().activations[0].name
    assert result.width == result.rank == 5
    assert result.margin > 1e6  # the next best leaves what it is wrong by, over rounding
    assert result.network.skip is None
    against = compare(result.network, truth)
    # A fit to answers of 1e-16: errors of 1e-12 and below, in parameters amplified by the
    # condition of the layer, 1e3 or so.
    assert against.relative_error < 1e-10
    assert against.max_parameter_error < 1e-8
    assert result.queries.total == oracle.queries.total


def test_the_same_seed_gives_the_same_result():
    truth = network_of("tanh", (6, 3, 1), 1)
    first, second = (extract_smooth(NetworkOracle(truth), rng=9) for _ in range(2))
    assert first.network == second.network
    assert first.queries == second.queries


def test_softplus_of_any_beta_and_a_skip_term():
    plain = planted.random_network(7, 4, 2, rng=3)
    skip = np.random.default_rng(0).normal(size=(2, 7))
    truth = Network(plain.weights, plain.biases, activation("softplus", 2.5), skip)
    result = extract_smooth(NetworkOracle(truth), rng=4)
    assert result.success, result.message
    assert result.activation == "softplus"
    # As above.
    assert compare(result.network, truth).max_parameter_error < 1e-8


def test_softmax_over_several_outputs():
    truth = network_of("gelu", (8, 5, 4), 2)
    result = extract_smooth(Softmax(NetworkOracle(truth)), rng=2)
    assert result.success, result.message
    assert result.answers == "log-odds"
    # Log-odds of probabilities are as exact as their digits: 1e-15 over 1e-3.
    assert compare(result.network, truth, common_function=True).relative_error < 1e-9


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_float32_answers(name):
    truth = network_of(name, (10, 5, 1), 6)
    result = extract_smooth(NetworkOracle(truth, dtype="float32"), rng=6)
    assert result.success, result.message
    assert result.activation == name
    # Rounding of 1e-7, a few parameters an answer.
    assert compare(result.network, truth).relative_error < 1e-5


@pytest.mark.parametrize("seed", [0, 1])
def test_a_unit_that_gradients_hardly_show_is_found_where_the_others_do_not_explain_all(seed):
    plain = planted.random_network(8, 4, 1, rng=seed)
    outputs = plain.weights[1].copy()
    outputs[0, 0] *= 1e-3  # its gradients stand a few deviations above float32's rounding
    truth = Network([plain.weights[0], outputs], plain.biases, "gelu")
    result = extract_smooth(NetworkOracle(truth, dtype="float32"), rng=seed)
    assert result.success, result.message
    assert result.width == 4
    # float32 answers, a few deviations of 6e-8 over the spread
    assert compare(result.network, truth).relative_error < 1e-5


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_more_units_than_inputs(name):
    truth = network_of(name, (4, 7, 1), 8)
    result = extract_smooth(NetworkOracle(truth), rng=8)
    assert result.success, result.message
    assert result.width == 7
    assert result.rank == 4
    against = compare(result.network, truth)
    # Condition of an overcomplete layer: 1e5 and more.
    assert against.relative_error < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_units_that_are_straight_on_one_side_show_with_many_outputs(seed):
    # A few gradients of ten outputs have the rank of all units, and leave one out that is on at
    # all their points: mirror images show it, or what its absence leaves unexplained.
    truth = network_of("elu", (30, 16, 10), seed)
    result = extract_smooth(NetworkOracle(truth), rng=seed)
    assert result.success, result.message
    assert result.width == 16


def test_batch_norm_folds():
    """At inference a batch norm is part of the layer beside it."""
    plain = network_of("tanh", (6, 4, 1), 12)
    g = np.random.default_rng(0)
    mean, scale, shift = g.normal(size=4), g.uniform(0.5, 2.0, 4), g.normal(size=4)

    def target(x):
        z = (x @ plain.weights[0].T - mean) * scale + shift
        return np.tanh(z) @ plain.weights[1].T

    folded = Network(
        [plain.weights[0] * scale[:, None], plain.weights[1]],
        [shift - mean * scale, [0.0]],
        "tanh",
    )
    result = extract_smooth(connect(target, input_dim=6), rng=1)
    assert result.success, result.message
    assert compare(result.network, folded).max_parameter_error < 1e-8


def other(kind, seed):
    """Targets that are no single layer of one known activation."""
    g = np.random.default_rng(seed)
    w, b = g.normal(size=(4, 6)) / np.sqrt(6), 0.5 * g.normal(size=4)
    v, u = g.normal(size=(4, 4)) / 2.0, g.normal(size=(4, 1)) / 2.0

    def norm(z):
        return (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5)

    gelu = activation("gelu")
    return {
        "two layers": lambda x: np.tanh(np.tanh(x @ w.T + b) @ v.T + 0.3) @ u,
        "LayerNorm": lambda x: np.tanh(norm(x @ w.T + b)) @ u,
        "LayerNorm first": lambda x: np.tanh(norm(x) @ w.T + b) @ u,
        "mixture": lambda x: np.concatenate(
            [np.tanh((x @ w.T + b)[:, :2]), gelu((x @ w.T + b)[:, 2:])], axis=1
        ) @ u,
        "bump": lambda x: np.exp(-((x @ w.T + b) ** 2)) @ u,
        "relu": lambda x: np.maximum(x @ w.T + b, 0.0) @ u,
        "affine": lambda x: x @ w.T @ u + 1.0,
        "constant": lambda x: 0.0 * x[:, :1] + 2.0,
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("two layers", "share no basis"),
        ("LayerNorm", "LayerNorm on the hidden layer"),
        ("LayerNorm first", "LayerNorm comes first"),
        ("relu", "extract_two_layer"),
        ("affine", "affine"),
        ("constant", "affine"),
    ],
)
def test_what_is_no_smooth_layer_is_said_so(kind, says):
    result = extract_smooth(connect(other(kind, 3), input_dim=6), rng=3)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert says in result.message


@pytest.mark.parametrize(
    ("kind", "says"),
    [("mixture", "nearest to gelu"), ("bump", "splines")],
)
def test_unknown_profiles_are_copied_with_a_measured_error(kind, says):
    target = other(kind, 4)
    result = extract_smooth(connect(target, input_dim=6), rng=4)
    assert result.status is Status.APPROXIMATED, result.message
    assert says in result.message
    assert result.activation == "spline"
    x = np.random.default_rng(1).normal(size=(2000, 6))
    error = np.abs(result.network(x) - target(x)).max()
    # The certificate saw 1000 other inputs of the same kind; beyond four deviations splines end.
    assert 0.0 < error < 30.0 * result.certificate.max_deviation
    assert result.certificate.relative_deviation < 0.03


def test_a_budget_ends_it_with_a_status():
    truth = network_of("tanh", (8, 5, 1), 1)
    oracle = NetworkOracle(truth)
    result = extract_smooth(oracle, rng=1, budget=300)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert oracle.queries.total <= 300


def test_nonsense_is_a_status_too():
    g = np.random.default_rng(0)
    result = extract_smooth(connect(lambda x: g.normal(size=(len(x), 1)), input_dim=4), rng=1)
    assert not result.success
    steps = extract_smooth(connect(lambda x: np.sign(x[:, :1]), input_dim=4), rng=1)
    assert not steps.success


def test_a_target_that_changes_is_contradicted():
    truth, count = network_of("tanh", (6, 3, 1), 2), [0]

    def target(x):
        count[0] += len(x)
        return truth(x) + (1.0 if count[0] < 40 else 0.0)

    result = extract_smooth(connect(target, input_dim=6), rng=2)
    assert not result.success


def test_a_result_is_saved_and_read(tmp_path):
    result = extract_smooth(NetworkOracle(network_of("sine", (5, 3, 1), 3)), rng=3)
    again = RecoveryResult.load(result.save(tmp_path / "r.safetensors"))
    assert isinstance(again, SmoothResult)
    assert again.network == result.network
    assert again.activation == "sine"
    assert "sine" in repr(again)


def test_the_fit_converges_to_the_planted_layer():
    truth = network_of("silu", (4, 3, 2), 5)
    g = np.random.default_rng(2)
    x = g.normal(size=(120, 4))
    y, ones = truth(x), np.full(120, 1e-15)
    phi = truth.activations[0]
    start = truth.weights[0] + 1e-2 * g.normal(size=(3, 4)), truth.biases[0] + 1e-2
    fit = fit_layer(x, y, ones, *start, phi, skip=False)
    np.testing.assert_allclose(fit.layer.weights, truth.weights[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(fit.layer.outputs, truth.weights[1], rtol=0, atol=1e-10)
    exact = solve_outputs(x, y, ones, truth.weights[0], truth.biases[0], phi, skip=True)
    np.testing.assert_allclose(exact.layer.linear, 0.0, atol=1e-11)
    # Noise of one deviation leaves a residual of one, whatever the number of parameters.
    noisy = y + 1e-3 * g.normal(size=y.shape)
    fit = fit_layer(x, noisy, np.full(120, 1e-3), *start, phi, skip=False)
    assert fit.rms == pytest.approx(1.0, abs=0.15)  # 220 answers: one in 21


@pytest.mark.parametrize("seed", range(4))
def test_the_fit_keeps_all_digits_where_units_are_nearly_dependent(seed):
    g, phi, k, d = np.random.default_rng(seed), activation("tanh"), 14, 4
    # Units that hardly bend over typical inputs: nearly polynomials, and of those there are few.
    weights, biases = 0.2 * g.standard_normal((k, d)), 0.3 * g.standard_normal(k)
    x = g.standard_normal((400, d))
    y = phi(x @ weights.T + biases) @ g.standard_normal((k, 1))
    deviations = np.full(len(x), 1e-15 * y.std())
    near = weights + 1e-3 * g.standard_normal(weights.shape)
    fit = fit_layer(x, y, deviations, near, biases, phi, skip=False)
    # Nothing but rounding is left; normal equations leave hundreds to thousands of it.
    assert fit.rms < 10.0


def test_a_span_says_what_was_seen_of_a_smooth_layer():
    result = extract(connect(other("LayerNorm first", 3), input_dim=6), rng=3)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "LayerNorm comes first" in result.message
    assert "span of the first layer" in result.message


def test_units_that_bend_on_one_side_show_at_the_mirror_image():
    """Two places of ten outputs leave a quarter of ELUs unseen; their images show them."""
    truth = network_of("elu", (14, 10, 8), 31)
    result = extract_smooth(NetworkOracle(truth), rng=2)
    assert result.success, result.message
    assert result.activation == "elu"
    # A fit to answers of 1e-16, amplified by the condition of the layer.
    assert compare(result.network, truth).max_parameter_error < 1e-8


def test_held_out_answers_that_are_not_explained_become_data():
    """Of more units than inputs a fit to as many answers as parameters is loose far out."""
    truth = network_of("tanh", (4, 24, 1), 5)
    result = extract_smooth(NetworkOracle(truth), rng=5)
    fits = [stage for stage in result.stages if stage.name == "fit"]
    if len(fits) > 1:  # the certificate that counts is a fresh one
        assert result.stages[-1].name == "certificate"
        assert result.queries.by_stage["certificate"] <= 2 * SmoothConfig().samples
    assert result.success, result.message
