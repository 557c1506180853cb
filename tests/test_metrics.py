"""compare: zero for every symmetry, linear in a planted perturbation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrelu import InvalidInput, ReLUNetwork, compare, planted

# Matching and rescaling cost a few roundings of numbers of size one.
ROUNDING = 1e-12


def rescaled_and_permuted(net: ReLUNetwork, rng: np.random.Generator) -> ReLUNetwork:
    weights = [w.copy() for w in net.weights]
    biases = [b.copy() for b in net.biases]
    for layer in range(net.depth - 1):
        order = rng.permutation(len(biases[layer]))
        scale = np.exp(rng.uniform(-2, 2, size=len(order)))
        weights[layer] = weights[layer][order] * scale[:, None]
        biases[layer] = biases[layer][order] * scale
        weights[layer + 1] = weights[layer + 1][:, order] / scale
    return ReLUNetwork(weights, biases, net.skip)


def with_flipped_neurons(net: ReLUNetwork, which: np.ndarray) -> ReLUNetwork:
    w, u = (a.copy() for a in net.weights)
    b, c = (a.copy() for a in net.biases)
    skip = np.zeros((u.shape[0], w.shape[1])) if net.skip is None else net.skip.copy()
    skip += u[:, which] @ w[which]
    c += u[:, which] @ b[which]
    w[which] *= -1
    b[which] *= -1
    return ReLUNetwork([w, u], [b, c], skip)


def assert_equal(a: ReLUNetwork, b: ReLUNetwork, **options) -> None:
    for x, y in ((a, b), (b, a)):
        result = compare(x, y, samples=500, **options)
        # Units are compared at length one, where the offset of a short one may be large.
        offset = np.abs(b.biases[0]) / np.linalg.norm(b.weights[0], axis=1)
        assert result.max_parameter_error < ROUNDING * max(1.0, float(offset.max()))
        # Terms are of size one, also where their sum is nearly constant.
        assert result.max_function_error < ROUNDING * max(result.scale, 1.0)
        assert result.unmatched == 0
        assert result.same_widths


@given(widths=st.lists(st.integers(1, 8), min_size=3, max_size=5), seed=st.integers(0, 10_000))
def test_permutation_and_scale_change_nothing(widths, seed):
    rng = np.random.default_rng(seed)
    net = planted.random_network(*widths, rng=rng)
    assert_equal(rescaled_and_permuted(net, rng), net)


@given(d=st.integers(1, 8), k=st.integers(1, 12), m=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_signs_that_a_skip_term_absorbs_change_nothing(d, k, m, seed):
    rng = np.random.default_rng(seed)
    net = planted.random_network(d, k, m, rng=rng)
    flipped = with_flipped_neurons(net, rng.random(k) < 0.5)
    assert_equal(rescaled_and_permuted(flipped, rng), net)


def test_a_function_common_to_all_logits_is_ignored_when_asked():
    rng = np.random.default_rng(0)
    net = planted.random_network(6, 5, 4, rng=rng)
    common = planted.random_network(6, 3, 1, rng=rng)
    w = np.concatenate([net.weights[0], common.weights[0]])
    b = np.concatenate([net.biases[0], common.biases[0]])
    u = np.concatenate([net.weights[1], np.repeat(common.weights[1], 4, axis=0)], axis=1)
    shifted = ReLUNetwork([w, u], [b, net.biases[1] + 0.7])
    assert_equal(shifted, net, common_function=True)
    assert compare(shifted, net).relative_error > 0.1


def test_dead_constant_and_doubled_neurons_are_not_counted():
    rng = np.random.default_rng(0)
    net = planted.random_network(6, 5, 2, rng=rng)
    w = np.concatenate([net.weights[0], np.zeros((2, 6)), rng.standard_normal((1, 6))])
    b = np.concatenate([net.biases[0], [-1.0, 2.0], [0.1]])
    u = np.concatenate([net.weights[1], rng.standard_normal((2, 2)), np.zeros((2, 1))], axis=1)
    padded = ReLUNetwork([w, u], [b, net.biases[1] - 2.0 * u[:, 6]])
    assert_equal(padded, net)
    w = np.concatenate([net.weights[0], 3.0 * net.weights[0][:1]])
    b = np.concatenate([net.biases[0], 3.0 * net.biases[0][:1]])
    u = np.concatenate([net.weights[1], net.weights[1][:, :1] / 6.0], axis=1)
    u[:, 0] /= 2.0
    assert_equal(ReLUNetwork([w, u], [b, net.biases[1]]), net)


@pytest.mark.parametrize("widths", [(20, 10, 1), (5, 20, 2), (10, 8, 6, 1)])
def test_error_grows_linearly_with_a_perturbation(widths):
    rng = np.random.default_rng(0)
    net = planted.random_network(*widths, rng=rng)
    noise_w = [rng.standard_normal(w.shape) for w in net.weights]
    noise_b = [rng.standard_normal(b.shape) for b in net.biases]

    def error(size: float):
        moved = ReLUNetwork(
            [w + size * e for w, e in zip(net.weights, noise_w, strict=True)],
            [b + size * e for b, e in zip(net.biases, noise_b, strict=True)],
        )
        return compare(rescaled_and_permuted(moved, rng), net, samples=2000)

    small, large = error(1e-8), error(1e-6)
    for name in ("max_parameter_error", "rms_parameter_error", "max_function_error"):
        ratio = getattr(large, name) / getattr(small, name)
        # Curvature enters at relative order 1e-6; rounding at 1e-12 / 1e-8 = 1e-4.
        assert ratio == pytest.approx(100, rel=1e-2)
    # The noise itself has entries of size one, up to a few standard deviations.
    assert 1e-7 < large.rms_parameter_error < 2e-5


def test_a_missing_neuron_counts_with_its_output():
    net = planted.random_network(6, 5, 1, rng=0).canonical()
    keep = [0, 1, 2, 3]
    smaller = ReLUNetwork(
        [net.weights[0][keep], net.weights[1][:, keep]], [net.biases[0][keep], net.biases[1]]
    )
    result = compare(smaller, net)
    assert result.unmatched == 1
    assert not result.same_widths
    assert result.max_parameter_error == pytest.approx(abs(net.weights[1][0, 4]))
    assert "4 neurons matched, 1 not" in str(result)


def test_different_depth_is_compared_by_function():
    a = planted.random_network(4, 3, 1, rng=0)
    b = planted.random_network(4, 3, 2, 1, rng=0)
    result = compare(a, b)
    assert result.relative_error > 0.01
    assert result.unmatched == 8


def test_other_shapes_are_refused():
    with pytest.raises(InvalidInput, match="inputs and outputs"):
        compare(planted.random_network(4, 3, 1, rng=0), planted.random_network(5, 3, 1, rng=0))
