"""Several outputs that share their units."""

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.gaussian.algorithm import learn_from_samples
from unrelu.gaussian.awasthi import (
    RankOneUnits,
    Thresholds,
    fix_signs,
    full_rank_algorithm,
    population_tensors,
    recover_scalars,
    robust_algorithm,
)
from unrelu.result import Status


def planted(seed, d, m, q):
    rng = np.random.default_rng([seed, 23])
    w = rng.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return w, rng.uniform(0.5, 1.5, (m, q)) * rng.choice([-1, 1], (m, q)), rng.uniform(-1, 1, m)


def labels(truth, x):
    w, a, b = truth
    return np.maximum(x @ w.T + b, 0.0) @ a


def error(truth, w, a, b):
    """Largest error of a unit after matching, orientations included."""
    index = (truth[0] @ w.T).argmax(axis=1)
    assert sorted(index) == list(range(len(w)))
    return max(
        np.abs(truth[0] - w[index]).max(),
        np.abs(truth[1] - a[index]).max(),
        np.abs(truth[2] - b[index]).max(),
    )


@pytest.mark.parametrize("seed", range(4))
def test_joint_tensors_show_units_that_no_output_shows_alone(seed):
    w, a, b = planted(seed, 5, 5, 2)
    a[:2, 0] = 0.0  # the first output lacks two units, the second another two
    a[3:, 1] = 0.0
    tensors = population_tensors(w, a, b, (1, 2, 3, 4))
    assert tensors[3].entries.shape[0] == 2
    found = full_rank_algorithm(
        tensors, Thresholds.exact(1.0), np.random.default_rng(seed), pairs=5
    )
    assert found.a.shape == (5, 2)
    # Rounding 1e-16 times condition numbers up to 1e5.
    assert error((w, a, b), found.w, found.a, found.b) < 1e-9


def test_joint_scalars_and_signs():
    w, a, b = planted(5, 4, 6, 3)
    found_a, found_b = recover_scalars(2, w, population_tensors(w, a, b, (2, 3, 4, 5)))
    np.testing.assert_allclose(found_a, a, atol=1e-9)
    np.testing.assert_allclose(found_b, b, atol=1e-9)
    # More units than inputs: the signs are determined by three outputs, not by one.
    xi = np.array([1.0, -1, -1, 1, -1, 1])
    turned = RankOneUnits(xi[:, None] * w, a, xi * b)
    again = fix_signs(population_tensors(w, a, b, (1,))[1], turned)
    np.testing.assert_allclose(again.w, w, atol=1e-12)
    order_two = robust_algorithm(
        2, population_tensors(w, a, b, (2, 3, 4, 5, 6)), Thresholds.exact(1.0),
        np.random.default_rng(0), pairs=5,
    )  # fmt: skip
    assert np.abs(w @ order_two.w.T).max(axis=1).min() > 1 - 1e-9


@pytest.mark.parametrize(("seed", "order"), [(0, None), (1, None), (2, 1)])
def test_outputs_are_learned_together(seed, order):
    truth = planted(seed, 5, 4, 3)
    truth[1][0, 1] = 0.0
    x = np.random.default_rng(seed).standard_normal((40_000, 5))
    result = learn_from_samples(x, labels(truth, x), order=order, rng=seed)
    assert result.success, result.message
    assert result.width == 4
    net = result.network
    assert net.skip is None
    length = np.linalg.norm(net.weights[0], axis=1)
    found = net.weights[0] / length[:, None], net.weights[1].T * length[:, None]
    # Rounding times a condition number of 1e3.
    assert error(truth, found[0], found[1], net.biases[0] / length) < 1e-10
    assert result.moment_outer.shape[1] == 3
    assert result.certificate.exceeding == 0


def test_noise_on_every_output():
    truth = planted(0, 4, 3, 2)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30_000, 4))
    result = learn_from_samples(
        x, labels(truth, x) + 0.1 * rng.standard_normal((30_000, 2)), rng=0
    )
    assert result.success, result.message
    fresh = rng.standard_normal((5000, 4))
    off = np.sqrt(np.mean((result.network(fresh) - labels(truth, fresh)) ** 2))
    # 0.1 sqrt(P / n) with P = 3 * 5 + 6 + 2 numbers for 60,000 labels is 0.002.
    assert off < 0.005


def test_an_output_of_another_kind_is_not_called_recovered():
    truth = planted(1, 4, 3, 1)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((30_000, 4))
    y = np.column_stack([labels(truth, x)[:, 0], np.sin(x[:, 0])])
    assert not learn_from_samples(x, y, rng=0).success
    noisy = y + 0.1 * rng.standard_normal(y.shape)
    assert not learn_from_samples(x, noisy, rng=0).success


def test_constant_outputs_and_bad_ones():
    truth = planted(2, 3, 2, 2)
    x = np.random.default_rng(2).standard_normal((20_000, 3))
    y = np.column_stack([labels(truth, x), np.full(20_000, 1.5)])
    result = learn_from_samples(x, y, rng=0)
    assert result.success, result.message
    np.testing.assert_allclose(result.network(x[:50]), y[:50], atol=1e-9)
    none = learn_from_samples(x, np.ones((20_000, 2)), rng=0)
    assert none.success
    np.testing.assert_array_equal(none.network(x[:5]), 1.0)
    bad = y.copy()
    bad[3, 1] = np.nan
    with pytest.raises(InvalidInput):
        learn_from_samples(x, bad)
    with pytest.raises(InvalidInput, match="does not fit"):
        learn_from_samples(x[:-1], y)
    wide = np.random.default_rng(0).standard_normal((500, 65))
    with pytest.raises(InvalidInput, match="too many for joint moments"):
        learn_from_samples(wide, wide[:, :2])
    assert learn_from_samples(x, y, rng=0, polish=False).status is Status.PARTIAL
