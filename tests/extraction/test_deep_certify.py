"""The certificate of a deep network: what it must see, and what it states."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_certify import DeepCertifyConfig, certify_network
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.planted import random_network

EXACT = 1e-16


def noise(outputs, level=EXACT):
    return NoiseModel(np.full(outputs, level), np.full(outputs, 0.1 * level))


def changed(network, layer, entry, by):
    weights = [w.copy() for w in network.weights]
    weights[layer][entry] += by
    return ReLUNetwork(weights, network.biases)


def certified(truth, found, *, level=EXACT, seed=0, **options):
    oracle = connect(truth)
    verdict = certify_network(
        oracle,
        found,
        noise(truth.output_dim, level),
        rng=np.random.default_rng(seed),
        **options,
    )
    return verdict, oracle.queries.total


def test_the_same_network_passes_and_the_statement_is_tight():
    truth = random_network(6, 4, 6, 2, rng=0)
    verdict, asked = certified(truth, truth)
    assert verdict.message == ""
    assert not verdict.teaches
    certificate = verdict.certificate
    assert certificate.samples == 10_000
    assert certificate.exceeding == 0
    # Clopper-Pearson of 0 in 10,000 at 99.99 %: 1 - 0.0001 ** 1e-4.
    assert certificate.fraction_bound == pytest.approx(1.0 - 0.0001**1e-4)
    assert certificate.tolerance <= 1e-6 * certificate.scale
    assert asked <= 10_000 + 4 * 512 + DeepCertifyConfig().rare + 4 * (4 + 6)


def test_a_failure_ends_the_asking_and_hands_its_points_over():
    truth = random_network(6, 4, 6, 1, rng=1)
    wrong = changed(truth, 2, (0, slice(None)), 1e-3)
    verdict, asked = certified(truth, wrong)
    assert verdict.teaches
    assert asked < 5000
    np.testing.assert_array_equal(verdict.answers, connect(truth)(verdict.points))
    off = np.abs(truth(verdict.points) - wrong(verdict.points))[:, 0]
    scale = verdict.certificate.scale
    assert (off[verdict.over > 1.0] > 1e-8 * scale).all()
    assert verdict.certificate.exceeding > 0


def rarely_on(part):
    """A network whose first second-layer unit is on for a part of typical inputs."""
    base = random_network(6, 4, 6, 1, rng=2)
    biases = [b.copy() for b in base.biases]
    x = np.random.default_rng(3).standard_normal((200_000, 6))
    hidden = np.maximum(x @ base.weights[0].T + biases[0], 0.0) @ base.weights[1][0]
    biases[1][0] = -np.quantile(hidden, 1.0 - part)
    return ReLUNetwork(base.weights, biases)


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_weight_of_a_unit_that_is_rarely_on_is_seen(seed):
    # On for 1 input in 5,000: two of 10,000 inputs show it, none with odds e^-2. The inputs of
    # rare states do.
    truth = rarely_on(2e-4)
    row = int(np.argmax(truth.weights[1][0]))
    verdict, _ = certified(truth, changed(truth, 1, (0, row), 0.05), seed=seed)
    assert verdict.message


def test_each_output_is_judged_by_its_own_spread():
    base = random_network(6, 4, 6, 2, rng=4)
    truth = ReLUNetwork(
        [*base.weights[:2], base.weights[2] * [[1.0], [1e9]]],
        [*base.biases[:2], base.biases[2]],
    )
    model = NoiseModel(np.array([1e-16, 1e-7]), np.array([1e-17, 1e-8]))
    wrong = changed(
        truth, 2, (0, slice(None)), 1e-3
    )  # invisible beside the second output's tolerance
    oracle = connect(truth)
    for network, fine in ((truth, True), (wrong, False)):
        verdict = certify_network(oracle, network, model, rng=np.random.default_rng(0))
        assert (verdict.message == "") is fine
    small, large = verdict.certificate.details["tolerance per output"]
    assert small < 1e-6
    assert large > 1.0


def test_coarse_answers_are_judged_by_their_noise_alone():
    truth = random_network(6, 4, 6, 1, rng=5)
    level = 1e-8
    wrong = changed(truth, 2, (0, slice(None)), 1e-4)
    verdict, _ = certified(truth, wrong, level=level)
    assert verdict.message
    fine, _ = certified(truth, truth, level=level)
    # The noise at a typical length of sqrt(6): level (1 + 0.1 sqrt(6)).
    assert fine.certificate.tolerance <= 100.0 * level * (1.0 + 0.1 * np.sqrt(6.0)) * (1 + 1e-9)


def test_a_target_that_is_constant_at_typical_inputs_is_not_confirmed():
    base = random_network(4, 2, 3, 1, rng=6)
    truth = ReLUNetwork(base.weights, [base.biases[0], np.full(3, -1e3), base.biases[2]])
    verdict, _ = certified(truth, truth)
    assert "same answer" in verdict.message
    assert not verdict.teaches
