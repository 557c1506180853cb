"""Networks from labels, against planted ones: parameters, statuses, hostile targets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from unrelu import extract, planted
from unrelu.core.record import remembered
from unrelu.errors import InvalidInput
from unrelu.labels.algorithm import LabelsResult, extract_from_labels
from unrelu.labels.config import LabelsConfig
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import RecoveryResult, Status

SMALL = LabelsConfig(held_out=400)


def threshold(seed: int, shape: tuple[int, ...] = (8, 4, 1)) -> ReLUNetwork:
    """A random network whose single output is above zero for half of all inputs."""
    net = planted.random_network(*shape, rng=seed)
    x = np.random.default_rng(seed).standard_normal((2000, shape[0]))
    return ReLUNetwork(net.weights, [*net.biases[:-1], -np.median(net(x), axis=0)])


def labels(net: ReLUNetwork, x):
    out = net(x)
    return out.argmax(axis=1) if out.shape[1] > 1 else (out[:, 0] > 0).astype(float)


def ask(net: ReLUNetwork, **options):
    return connect(lambda x: labels(net, x), input_dim=net.input_dim, output_dim=1, **options)


def hyperplanes(net: ReLUNetwork):
    """Unit rows with offsets, strengths as they act on the output."""
    rows = np.column_stack([net.weights[0], net.biases[0]])
    length = np.linalg.norm(net.weights[0], axis=1)
    return rows / length[:, None], net.weights[1] * length


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_a_threshold_gives_away_rows_and_outputs(seed):
    net = threshold(seed)
    result = extract_from_labels(ask(net), rng=seed, config=SMALL)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 4
    assert result.network.skip is None
    true, strength = hyperplanes(net)
    mine, weights = hyperplanes(result.network)
    away = np.minimum(
        np.linalg.norm(true[:, None] - mine[None], axis=2),
        np.linalg.norm(true[:, None] + mine[None], axis=2),
    )
    rows, columns = linear_sum_assignment(away)
    # Crossings are known to 1e-15 of an input; a fit of 60 points loses up to 1e4 of that.
    assert away[rows, columns].max() < 1e-10
    ratio = strength[0, rows] / weights[0, columns]
    assert np.ptp(ratio) < 1e-8 * np.abs(ratio).max()
    assert ratio.min() > 0  # the scale that labels leave open is positive
    assert any("scale" in line for line in result.free)


def test_a_weak_unit_is_found():
    """One unit moves the boundary by parts in a thousand only, and is found all the same."""
    net = threshold(5)
    weak = np.array([1.0, 1.0, 1.0, 4e-3])
    net = ReLUNetwork([net.weights[0], net.weights[1] * weak], net.biases)
    result = extract_from_labels(ask(net), rng=1, config=SMALL)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 4
    true, strength = hyperplanes(net)
    mine, weights = hyperplanes(result.network)
    away = np.minimum(np.linalg.norm(mine - true[3], axis=1),
                      np.linalg.norm(mine + true[3], axis=1))  # fmt: skip
    # Crossings are known to 1e-15; the unit's own row 4e-3 times worse, and 1e4 of that in a fit.
    assert away.min() < 1e-8
    share = np.abs(weights[0]).min() / np.abs(weights[0]).max()
    assert share == pytest.approx(np.abs(strength[0, 3]) / np.abs(strength[0]).max(), rel=1e-6)


def test_labels_are_counted_and_the_seed_decides():
    net, seen = threshold(3), []

    def target(x):
        seen.append(len(x))
        return labels(net, x)

    def run() -> LabelsResult:
        return extract_from_labels(connect(target, input_dim=8, output_dim=1), rng=7, config=SMALL)

    first = run()
    assert sum(seen) == first.queries.total
    assert first.network == run().network


def test_argmax_gives_away_the_differences_of_logits():
    rng = np.random.default_rng(2)
    net = planted.random_network(8, 4, 3, rng=rng)
    net = ReLUNetwork(net.weights, [net.biases[0], 0.1 * rng.standard_normal(3)])
    result = extract_from_labels(ask(net), rng=0, config=SMALL)
    assert result.success, result.message
    x = rng.standard_normal((5000, 8))
    assert (result.predict(x) == labels(net, x)).all()
    f, g = (v - v.mean(axis=1, keepdims=True) for v in (net(x), result.network(x)))
    scale = (f * g).sum() / (g * g).sum()
    assert np.abs(scale * g - f).max() < 1e-8 * f.std()
    assert any("added to all" in line for line in result.free)


def test_labels_keep_the_names_that_a_target_gives():
    net = threshold(4)
    names = np.array([7.0, -3.0])
    oracle = connect(lambda x: names[labels(net, x).astype(int)], input_dim=8, output_dim=1)
    result = extract_from_labels(oracle, rng=1, config=SMALL)
    assert result.success
    assert result.labels == (-3.0, 7.0)
    x = np.random.default_rng(0).standard_normal((1000, 8))
    assert (result.predict(x) == names[labels(net, x).astype(int)]).all()


def test_float32_labels():
    net = threshold(1)
    w, b = ([a.astype(np.float32) for a in part] for part in (net.weights, net.biases))

    def target(x):
        hidden = np.maximum(x.astype(np.float32) @ w[0].T + b[0], np.float32(0))
        return ((hidden @ w[1].T + b[1])[:, 0] > 0).astype(float)

    result = extract_from_labels(connect(target, input_dim=8, output_dim=1), rng=3, config=SMALL)
    assert 1e-9 < result.noise < 1e-5  # float32 has 24 bits; inputs are of size one
    x = np.random.default_rng(0).standard_normal((20_000, 8))
    assert (result.predict(x) == labels(net, x)).mean() >= 0.9999
    assert result.width == 4


def test_a_box_is_never_left():
    net, low, high = threshold(4), np.full(8, -1.5), np.full(8, 1.5)
    outside = 0

    def target(x):
        nonlocal outside
        outside += int(((x < low) | (x > high)).any(axis=1).sum())
        return labels(net, x)

    result = extract_from_labels(
        connect(target, input_dim=8, output_dim=1), domain=(low, high), rng=0, config=SMALL
    )
    assert outside == 0
    assert result.network is not None
    x = np.random.default_rng(0).uniform(low, high, size=(5000, 8))
    agreement = (result.predict(x) == labels(net, x)).mean()
    assert agreement >= (1.0 if result.success else 0.9)


def test_two_hidden_layers_are_not_called_recovered():
    net = threshold(0, (6, 5, 4, 1))
    quick = dataclasses.replace(SMALL, rounds=2)
    result = extract_from_labels(ask(net), rng=0, config=quick)
    x = np.random.default_rng(0).standard_normal((20_000, 6))
    if result.success:
        assert (result.predict(x) == labels(net, x)).all()
    else:
        assert result.message


def test_a_budget_ends_with_what_was_found():
    result = extract_from_labels(ask(threshold(1)), budget=3000, rng=0, config=SMALL)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= 3000


@pytest.mark.parametrize("classes", [2, 3])
def test_a_linear_classifier_has_no_units(classes):
    weights = np.random.default_rng(classes).standard_normal((classes, 9))
    oracle = connect(lambda x: (x @ weights.T + 0.1).argmax(axis=1), input_dim=9, output_dim=1)
    result = extract_from_labels(oracle, rng=0, config=SMALL)
    assert result.success, result.message
    assert result.width == 0
    x = np.random.default_rng(5).standard_normal((2000, 9))
    assert (result.predict(x) == (x @ weights.T + 0.1).argmax(axis=1)).all()


def test_one_label_is_said():
    oracle = connect(lambda x: np.ones(len(x)), input_dim=5, output_dim=1)
    result = extract_from_labels(oracle, rng=0, config=SMALL)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "one label" in result.message
    with pytest.raises(InvalidInput):
        result.predict(np.zeros((1, 5)))


def test_random_labels_are_not_a_network():
    def target(x):
        return (np.sin(1e6 * x).sum(axis=1) > 0).astype(float)

    quick = dataclasses.replace(SMALL, rounds=2)
    oracle = connect(target, input_dim=5, output_dim=1, budget=20_000)
    result = extract_from_labels(oracle, rng=0, config=quick)
    assert not result.success


def test_values_are_refused():
    with pytest.raises(InvalidInput, match="one column"):
        extract_from_labels(connect(planted.random_network(4, 3, 2, rng=0)))


def test_a_result_survives_a_file(tmp_path):
    result = extract_from_labels(ask(threshold(3)), rng=0, config=SMALL)
    again = RecoveryResult.load(result.save(tmp_path / "labels.safetensors"))
    assert isinstance(again, LabelsResult)
    assert again.network == result.network
    x = np.zeros((1, 8))
    assert again.predict(x) == result.predict(x)


def test_class_names_come_back(tmp_path):
    net = threshold(3)
    words = np.array(["dog", "cat"])
    oracle = connect(lambda x: words[labels(net, x).astype(int)], input_dim=8, output_dim=1)
    result = extract_from_labels(oracle, rng=1, config=SMALL)
    assert result.success
    assert sorted(result.names) == ["cat", "dog"]
    x = np.random.default_rng(0).standard_normal((500, 8))
    told = words[labels(net, x).astype(int)]
    assert (result.predict(x) == told).all()
    again = RecoveryResult.load(result.save(tmp_path / "names.safetensors"))
    assert isinstance(again, LabelsResult)
    assert (again.predict(x) == told).all()


def test_the_rows_given_are_asked_by_the_certificate():
    """One of them lies where the target departs from the network: that is not recovered."""
    net, data = threshold(3), 3.0 * np.random.default_rng(1).standard_normal((200, 8))
    odd = data[7]

    def target(x):
        return np.where((x == odd).all(axis=1), 1.0 - labels(net, x), labels(net, x))

    told = connect(lambda x: labels(net, x), input_dim=8, output_dim=1, data=data)
    result = extract_from_labels(told, rng=0, config=SMALL)
    assert result.success, result.message
    assert result.certificate.details["agreement on data"] == 1.0
    assert 0.0 < result.certificate.details["bound on data"] < 0.1  # of 200 rows
    quick = dataclasses.replace(SMALL, rounds=1)
    lying = connect(target, input_dim=8, output_dim=1, data=data)
    result = extract_from_labels(lying, rng=0, config=quick)
    assert not result.success


def test_a_label_with_its_score_is_a_label():
    net = threshold(3, (8, 4, 2))

    def target(x):
        odds = np.exp(net(x) - net(x).max(axis=1, keepdims=True))
        return np.column_stack([labels(net, x), (odds / odds.sum(axis=1, keepdims=True)).max(1)])

    result = extract(connect(target, input_dim=8, output_dim=2), rng=0)
    assert isinstance(result, LabelsResult)
    assert result.success, result.message
    x = np.random.default_rng(0).standard_normal((2000, 8))
    assert (result.predict(x) == labels(net, x)).all()


@pytest.mark.slow
def test_the_first_of_two_hidden_layers():
    net = threshold(9001, (10, 8, 6, 1))
    result = extract_from_labels(ask(net), rng=1, config=SMALL)
    assert not result.success
    true, _ = hyperplanes(net)
    mine = np.column_stack([result.first_weights, result.first_biases])
    away = np.minimum(
        np.linalg.norm(true[:, None] - mine[None], axis=2),
        np.linalg.norm(true[:, None] + mine[None], axis=2),
    )
    # Normals are measured to 4e-12 of 1e-3; a unit's weak bends cost two or three digits.
    assert (away.min(axis=0) < 1e-6).all()  # nothing of a later layer is told
    assert len(mine) >= 6


def test_large_lifts_keep_the_ends_of_bisections_only(monkeypatch):
    """What is too much to keep is asked all the same, in blocks, with the same outcome."""
    net = threshold(3)
    usual = extract_from_labels(ask(net), rng=2, config=SMALL)
    monkeypatch.setattr("unrelu.labels.lift.AT_ONCE", 16)  # two directions at a time
    oracle = remembered(ask(net))
    frugal = extract_from_labels(oracle, rng=2, config=SMALL)
    assert frugal.success
    # Rounding inside the target differs with the size of a batch: a label here and there.
    assert frugal.queries.total == pytest.approx(usual.queries.total, rel=0.05)
    assert len(oracle.record) < 0.95 * frugal.queries.total
    x = np.random.default_rng(0).standard_normal((100, 8))
    # Both have an error of 1e-13 or so, of a function of size one.
    assert frugal.network(x) == pytest.approx(usual.network(x), abs=1e-9)
