"""Copies trained on labels, where no network explains them all."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import planted
from unrelu.core.run import Run
from unrelu.labels.algorithm import extract_from_labels
from unrelu.labels.approximate import predicted, train_copy, train_network
from unrelu.labels.config import LabelsConfig
from unrelu.labels.run import LabelsRun
from unrelu.lines.domains import as_domain
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import Status


def deep(seed: int, classes: int = 1) -> ReLUNetwork:
    """Two hidden layers; half of all inputs above zero, or classes of any size."""
    net = planted.random_network(10, 8, 6, classes, rng=seed)
    x = np.random.default_rng(seed).standard_normal((2000, 10))
    return ReLUNetwork(net.weights, [*net.biases[:-1], -np.median(net(x), axis=0)])


def labels(net: ReLUNetwork, x):
    out = net(x)
    return out.argmax(axis=1) if out.shape[1] > 1 else (out[:, 0] > 0).astype(float)


def new_run(target, domain="all", d=10, **numbers) -> LabelsRun:
    base = Run(connect(target, input_dim=d, output_dim=1), algorithm="labels", rng=0)
    run = LabelsRun(base, as_domain(domain, d), LabelsConfig(**numbers))
    run.look()
    return run


@pytest.mark.parametrize(("seed", "classes"), [(1, 1), (2, 3)])
def test_a_copy_beats_one_of_as_many_random_labels(seed, classes):
    net, rng = deep(seed, classes), np.random.default_rng(seed)
    run = new_run(lambda x: labels(net, x), held_out=10_000)
    copy = train_copy(run)
    spent = run.base.target.queries.without_certificate
    assert spent <= 10_000 + run.config.held_out // run.config.rounds
    random = rng.standard_normal((spent, 10))
    beside = train_network(random, labels(net, random), rng)
    x = rng.standard_normal((20_000, 10))
    wrong = (predicted(copy.network, copy.labels, x) != labels(net, x)).mean()
    usual = (predicted(beside, copy.labels, x) != labels(net, x)).mean()
    assert wrong < 0.8 * usual  # 0.5 to 0.7 of it in trials
    # Its own figure: 10,000 held-out inputs, six standard errors of a share of 5 %.
    assert copy.agreement == pytest.approx(1.0 - wrong, abs=0.013)


def test_a_copy_lives_in_its_box():
    low, high = np.full(4, 100.0), np.full(4, 300.0)

    def target(x):
        assert ((x >= low) & (x <= high)).all()
        return np.where(np.abs(x - 200.0).sum(axis=1) > 200.0, 5.0, -2.0)

    copy = train_copy(new_run(target, (low, high), d=4, held_out=4000))
    assert copy.labels == (-2.0, 5.0)
    assert copy.agreement > 0.95
    x = np.random.default_rng(1).uniform(low, high, size=(4000, 4))
    # Both shares are of 4,000 inputs: six standard errors of a share of 5 %.
    assert (predicted(copy.network, copy.labels, x) == target(x)).mean() == pytest.approx(
        copy.agreement, abs=0.03
    )


def test_what_is_no_network_is_approximated_with_its_agreement():
    """A ball: no hyperplane at all, and yet a copy that is right on most inputs."""

    def target(x):
        return ((x**2).sum(axis=1) > 4.0).astype(float)

    config = LabelsConfig(rounds=2, held_out=4000)
    oracle = connect(target, input_dim=5, output_dim=1)
    result = extract_from_labels(oracle, rng=0, config=config)
    assert result.status is Status.APPROXIMATED, result.message
    assert "trained" in result.message
    x = np.random.default_rng(3).standard_normal((20_000, 5))
    assert (result.predict(x) == target(x)).mean() == pytest.approx(result.agreement, abs=0.03)
    assert result.certificate is not None
    assert result.certificate.exceeding > 0
