"""diagnose: noise within a factor of two, precision and kind right, few queries."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import InvalidInput, ReLUNetwork, diagnose, planted
from unrelu.networks import Network
from unrelu.oracles import Cast, Labels, NetworkOracle, Noisy, Rounded, Softmax, connect

SEEDS = range(8)


def net(seed: int, *widths: int):
    return planted.random_network(*(widths or (20, 10, 1)), rng=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_float64_noise_is_at_rounding(seed):
    found = diagnose(net(seed), rng=seed)
    assert found.kind == "values"
    assert found.precision == "float64"
    assert 2.0**-54 < found.relative_noise < 2.0**-49  # a handful of roundings
    assert found.deterministic
    assert found.piecewise_linear
    assert found.queries < 350


@pytest.mark.parametrize("seed", SEEDS)
def test_float32_answers_are_seen(seed):
    for oracle in (NetworkOracle(net(seed), dtype="float32"), Cast(connect(net(seed)), "float32")):
        found = diagnose(oracle, rng=seed)
        assert found.precision == "float32"
        assert 2.0**-26 < found.relative_noise < 2.0**-20


@pytest.mark.parametrize("seed", SEEDS)
def test_added_noise_is_measured(seed):
    found = diagnose(Noisy(connect(net(seed)), 1e-3, seed=seed), rng=seed)
    assert not found.deterministic
    assert 0.5e-3 < found.noise < 2e-3


@pytest.mark.parametrize("decimals", [2, 4, 6, 8])
def test_decimals_are_counted(decimals):
    found = diagnose(Rounded(connect(net(0)), decimals))
    assert found.precision == f"{decimals} decimals"
    # Uniform rounding has standard deviation 10^-p / sqrt(12).
    assert 0.2 * 10.0**-decimals < found.noise < 10.0**-decimals


def test_bfloat16():
    assert diagnose(Cast(connect(net(0)), "bfloat16")).precision == "bfloat16"


@pytest.mark.parametrize("seed", SEEDS)
def test_kinds(seed):
    many = net(seed, 20, 10, 4)
    assert diagnose(Softmax(connect(many))).kind == "probabilities"
    assert diagnose(Softmax(connect(net(seed)))).kind == "probabilities"
    assert diagnose(Rounded(Softmax(connect(many)), 3)).kind == "probabilities"
    assert diagnose(Labels(connect(many))).kind == "labels"
    threshold = float(np.median(net(seed)(np.random.default_rng(seed).standard_normal((99, 20)))))
    assert diagnose(Labels(connect(net(seed)), threshold=threshold)).kind == "labels"
    assert diagnose(planted.constant(5, rng=seed)).kind == "constant"
    assert diagnose(many).kind == "values"


@pytest.mark.parametrize("seed", SEEDS)
def test_smooth_networks_are_told_from_piecewise_linear_ones(seed):
    w, u = net(seed).weights

    def tanh(x: np.ndarray) -> np.ndarray:
        return np.tanh(x @ w.T) @ u.T

    assert diagnose(connect(tanh, input_dim=20)).piecewise_linear is False
    assert diagnose(net(seed)).piecewise_linear is True
    assert diagnose(net(seed, 20, 30, 30, 2)).piecewise_linear is True
    assert diagnose(Softmax(connect(net(seed, 20, 10, 4)))).piecewise_linear is True


def test_an_affine_function_does_not_bend():
    found = diagnose(planted.affine(10, rng=0))
    assert found.bend_step is None
    assert any("no bend" in line for line in found.sentences())


def test_scale_and_center_move_the_look():
    base = net(0)
    stretched = connect(lambda x: base((x - 100.0) / 50.0), input_dim=20)
    found = diagnose(stretched, scale=50.0, center=np.full(20, 100.0))
    assert found.bend_step == pytest.approx(50.0 * diagnose(base).bend_step)
    with pytest.raises(InvalidInput):
        diagnose(base, scale=0.0)


def test_the_count_is_the_oracles():
    oracle = connect(net(0))
    found = diagnose(oracle)
    assert oracle.queries.by_stage["diagnosis"] == found.queries == oracle.queries.total
    assert found.to_dict()["queries"] == found.queries


def test_a_batch_dependent_target_is_noticed():
    def drifting(x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1) * (1 + 1e-15 * (len(x) > 1))

    found = diagnose(connect(drifting, input_dim=3))
    assert found.deterministic
    assert not found.batch_consistent


def test_three_round_trips_and_a_rough_count_of_hyperplanes():
    for shape in ((20, 10, 1), (64, 32, 10), (5, 500, 1)):
        found = []
        for seed in SEEDS:
            oracle = connect(net(seed, *shape))
            found.append(diagnose(oracle, rng=seed).hyperplanes)
            assert oracle.queries.round_trips == 3
        # Sixteen points tell it within a factor of three, and on the whole better.
        assert shape[1] / 2 < np.median(found) < 2 * shape[1]
    assert diagnose(planted.affine(10, rng=0)).hyperplanes == 0.0


def test_wide_networks_are_not_taken_for_smooth_ones():
    for seed in SEEDS:
        assert diagnose(net(seed, 5, 500, 1), rng=seed).piecewise_linear is True


def test_steps_are_told_from_coarse_answers():
    def steps(x: np.ndarray) -> np.ndarray:
        return np.floor(2 * x[:, 0]) + 0.3 * (x[:, 1] > 0)

    found = diagnose(connect(steps, input_dim=20))
    assert found.locally_constant
    assert any("trees" in line for line in found.sentences())
    for decimals in (1, 2, 3, 4):
        assert not diagnose(Rounded(connect(net(0)), decimals)).locally_constant
        assert not diagnose(
            Rounded(Softmax(connect(net(0, 20, 10, 4))), decimals)
        ).locally_constant


def test_a_network_that_is_flat_at_most_inputs_is_no_tree():
    # One unit that is off at nine inputs of ten: 16 points show a slope at one or two.
    network = ReLUNetwork([np.eye(1, 6), np.ones((1, 1))], [np.array([-1.3]), np.zeros(1)])
    sloped = 0
    for seed in range(20):
        found = diagnose(network, rng=seed)
        sloped += found.kind != "constant"
        assert not found.locally_constant, seed
    assert sloped > 10


def test_growth_far_out():
    w, u = net(0, 20, 10, 4).weights
    assert diagnose(net(0)).growth == pytest.approx(1.0, abs=0.3)
    assert diagnose(connect(lambda x: np.tanh(x @ w.T) @ u.T, input_dim=20)).growth < 0.5
    assert diagnose(connect(lambda x: (x @ w.T) ** 2 @ u.T, input_dim=20)).growth > 1.5


def test_a_network_that_is_flat_at_most_inputs_is_not_noisy():
    base = planted.random_network(10, 5, 5, 1, rng=42_006)
    flat = ReLUNetwork(
        base.weights, [base.biases[0], -np.abs(base.biases[1]) - 1.0, base.biases[2]]
    )
    for seed in range(10):
        # Rounding of answers of about 0.1.
        assert diagnose(flat, rng=seed).noise < 1e-14


@pytest.mark.parametrize("seed", range(4))
def test_single_precision_tells_smooth_from_kinked(seed):
    plain = planted.random_network(64, 32, 10, rng=seed)
    for name in ("tanh", "gelu"):
        smooth = Network(plain.weights, plain.biases, name)
        assert diagnose(NetworkOracle(smooth, dtype="float32"), rng=seed).piecewise_linear is False
    for network in (plain, planted.random_network(30, 100, 2, rng=seed, gain=3.0)):
        for oracle in (NetworkOracle(network, dtype="float32"), NetworkOracle(network)):
            assert diagnose(oracle, rng=seed).piecewise_linear is not False
            assert diagnose(Softmax(oracle), rng=seed).piecewise_linear is not False


def test_probabilities_that_long_steps_saturate_are_looked_at_over_short_ones():
    plain = planted.random_network(20, 30, 5, rng=1, gain=2.0)
    steep = Network([plain.weights[0], 3.0 * plain.weights[1]], plain.biases, "tanh")
    found = diagnose(Softmax(NetworkOracle(steep)), rng=1)
    assert found.kind == "probabilities"
    assert found.piecewise_linear is False


def test_short_steps_are_asked_only_where_long_ones_show_more_than_rounding():
    truth = net(0)
    smooth = Network(truth.weights, truth.biases, "tanh")
    exact = diagnose(truth)
    # 16 inputs, 8 far out, 2 again; five steps to both sides of each, or all nine.
    assert exact.queries == 26 + 16 * 2 * 5
    for oracle in (
        connect(smooth),
        NetworkOracle(truth, dtype="float32"),
        Softmax(connect(truth)),
    ):
        assert diagnose(oracle).queries == 26 + 16 * 2 * 9
