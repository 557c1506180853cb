import math

import numpy as np
import pytest
import scipy.special

from unrelu import planted
from unrelu.learner.compress import (
    affine_costs,
    compress_neurons,
    drop_flat,
    merge_clusters,
)
from unrelu.learner.formulas import (
    GAUSSIAN_PEAK,
    WIDE,
    bump_slope,
    bump_square_loss,
    bump_width,
    hits_bound,
    samples_to_see,
    wide_samples,
    wide_width,
    width_seen,
)
from unrelu.learner.neurons import Neurons, close_groups, join_neurons
from unrelu.learner.regression import (
    bounded_least_squares,
    distinct_rows,
    relu_features,
)
from unrelu.networks import ReLUNetwork


def neurons_of(network: ReLUNetwork) -> Neurons:
    (w, u), (b, c) = network.weights, network.biases
    return Neurons(w, b, u, np.zeros((len(u), w.shape[1])), c)


def rms(a: np.ndarray) -> float:
    return float(np.sqrt(np.mean(a**2)))


# -------------------------------------------------------------------- formulas


def test_bump_loss_against_a_planted_bump():
    # Centred bump: density within 0.1 % of the peak over a width of 0.05, mean
    # of the triangle 2 % of its height, so the mean square is right to 1 %.
    width = 0.05
    network = planted.bump(1, width=width, center=0.0, rng=0)
    slope = float(np.abs(network.weights[1]).min())
    t = np.linspace(-1, 1, 400_001)[:, None]
    density = np.exp(-(t[:, 0] ** 2) / 2) / math.sqrt(2 * math.pi)
    square = float(np.trapezoid(network(t)[:, 0] ** 2 * density, t[:, 0]))
    assert bump_square_loss(width, slope) == pytest.approx(square, rel=0.01)


def test_bump_width_inverts_the_loss():
    for norm in (0.1, 1.0, 1e5):
        for loss in (1e-12, 1e-3):
            assert bump_square_loss(bump_width(loss, norm), norm) == pytest.approx(loss)
    assert bump_width(1.0, 0.0) == math.inf


def test_no_bump_of_the_same_norms_is_worse_than_the_even_triangle():
    # Random jumps of slope on a slab, orthogonal to 1 and t so that both sides are zero.
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 1.0, 4001)
    worst = bump_square_loss(1.0, bump_slope(1.0)) / GAUSSIAN_PEAK
    for trial in range(200):
        at = np.sort(rng.uniform(size=3 + trial % 4))
        jumps = rng.standard_normal(len(at))
        basis = np.linalg.qr(np.column_stack([np.ones_like(at), at]))[0]
        jumps -= basis @ (basis.T @ jumps)
        jumps /= np.abs(jumps).sum()
        values = np.maximum(t[:, None] - at, 0.0) @ jumps
        assert np.trapezoid(values**2, t) <= worst * (1 + 1e-6)
    triangle = 0.25 * np.minimum(t, 1.0 - t)
    assert np.trapezoid(triangle**2, t) == pytest.approx(worst, rel=1e-3)


@pytest.mark.parametrize("mass", [1e-2, 1e-3, 1e-5])
def test_the_worst_slab_for_wide_samples_lies_at_the_origin(mass):
    # Even and slanted triangles on slabs of a mass of the wide samples, half-spaces included.
    worst = bump_square_loss(wide_width(1, mass), 0.25)
    inside = np.linspace(0.0, 1.0, 2001)
    for low in np.linspace(0.0, 8.0, 81):
        tail = scipy.special.ndtr(-low / WIDE) - mass
        high = -WIDE * scipy.special.ndtri(tail) if tail > 1e-16 else low + 12.0
        z = low + (high - low) * inside
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        for peak in (0.05, 0.25, 0.5, 0.75):
            shape = np.minimum(inside / peak, (1.0 - inside) / (1.0 - peak))
            height = 0.5 * (high - low) * peak * (1.0 - peak)
            assert np.trapezoid((height * shape) ** 2 * density, z) <= worst * (1 + 1e-3)
        if tail <= 1e-16:
            beyond = np.trapezoid((z - low) ** 2 * density, z)  # one neuron of norm 1
            assert beyond <= worst


def test_hits_bound_is_the_upper_limit_of_a_poisson_mean():
    assert hits_bound(0, 0.025) == pytest.approx(-math.log(0.025))
    assert scipy.special.pdtr(3, hits_bound(3, 0.05)) == pytest.approx(0.05)
    assert wide_samples(wide_width(777, 3.7), 3.7) == pytest.approx(777)
    assert wide_samples(math.inf, 3.7) == 0
    # a width that no double tells from nothing is out of reach, not out of range
    assert 1e15 < wide_samples(np.float64(0.0), np.float64(3.7)) < 1e18
    assert wide_width(0, 3.7) == math.inf


def test_samples_to_see_keeps_its_odds():
    n = samples_to_see(0.01, 1e-2)
    z = np.random.default_rng(0).standard_normal((2000, n))
    missed = (~((z > 0.99) & (z < 1.0)).any(axis=1)).mean()
    assert missed <= 0.02  # 1 % expected, 4.5 deviations allowed
    assert samples_to_see(math.inf, 0.1) == 0
    assert samples_to_see(width_seen(777, 1e-3), 1e-3) in (777, 778)  # rounded up
    assert width_seen(0, 0.1) == math.inf


# --------------------------------------------------------------------- neurons


def test_neurons_agree_with_the_network_and_survive_turning_and_joining():
    network = planted.random_network(5, 7, 2, rng=1)
    x = np.random.default_rng(0).standard_normal((50, 5))
    neurons = neurons_of(network)
    np.testing.assert_allclose(neurons(x), network(x), atol=1e-14)
    turned = neurons.turned(np.arange(7) % 2 == 0)
    np.testing.assert_allclose(turned(x), network(x), atol=1e-13)
    np.testing.assert_allclose(turned.network()(x), network(x), atol=1e-13)
    np.testing.assert_allclose(join_neurons(neurons, turned)(x), 2 * network(x), atol=1e-13)
    assert neurons.network().skip is None


def test_close_groups_finds_clusters_up_to_sign_and_nothing_else():
    neurons = neurons_of(planted.clusters(8, 12, groups=3, angle=1e-5, rng=0))
    groups = close_groups(neurons, 1e-3)
    assert sorted(sorted(g) for g in groups) == [sorted(range(i, 12, 3)) for i in range(3)]
    assert close_groups(neurons_of(planted.random_network(8, 40, 1, rng=0)), 1e-3) == []


# --------------------------------------------------------------------- compress


def test_affine_cost_is_the_residual_of_the_best_affine_fit():
    neurons = neurons_of(planted.random_network(3, 5, 1, rng=2))
    x = np.random.default_rng(1).standard_normal((400_000, 3))
    design = np.column_stack([x, np.ones(len(x))])
    for j, cost in enumerate(affine_costs(neurons)):
        z = np.maximum(x @ neurons.weights[j] + neurons.biases[j], 0) * neurons.outputs[0, j]
        rest = z - design @ np.linalg.lstsq(design, z, rcond=None)[0]
        assert cost == pytest.approx(rms(rest), rel=0.01)  # 400,000 samples: 0.2 %


def test_dropping_costs_no_more_than_allowed():
    neurons = neurons_of(planted.random_network(10, 60, 1, rng=3))
    x = np.random.default_rng(2).standard_normal((20_000, 10))
    for allowance in (1e-6, 1e-2, 0.1, 10.0):
        less = drop_flat(neurons, allowance)
        assert rms(less(x) - neurons(x)) <= allowance
    assert less.count == 0


@pytest.mark.parametrize("outputs", [1, 3])
def test_exact_duplicates_and_opposites_become_one(outputs):
    rng = np.random.default_rng(4)
    w, b = rng.standard_normal((3, 6)), rng.standard_normal(3)
    u = rng.standard_normal((outputs, 3))
    both = Neurons(
        np.concatenate([w, -2 * w]),
        np.concatenate([b, -2 * b]),
        np.concatenate([u, 0.7 * u], axis=1),
        np.zeros((outputs, 6)),
        np.zeros(outputs),
    )
    merged = merge_clusters(both, 1e-9, np.random.default_rng(0))
    x = rng.standard_normal((500, 6))
    assert merged.count == 3
    np.testing.assert_allclose(merged(x), both(x), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_clusters_become_the_few_neurons_of_lemma_3_21(seed):
    x = np.random.default_rng(9).standard_normal((50_000, 20))
    neurons = neurons_of(planted.clusters(20, 40, groups=5, angle=1e-6, rng=seed))
    scale = float(neurons(x).std())
    less = compress_neurons(neurons, 1e-4 * scale, np.random.default_rng(0))
    assert less.count <= 5
    assert rms(less(x) - neurons(x)) <= 1e-4 * scale
    pairs = neurons_of(planted.cancelling(20, pairs=5, ordinary=5, rng=seed))
    assert (
        compress_neurons(pairs, 1e-4 * float(pairs(x).std()), np.random.default_rng(0)).count <= 5
    )


def test_a_thin_bump_is_never_merged_away():
    neurons = neurons_of(planted.bump(20, width=1e-4, extra=5, rng=0))
    assert compress_neurons(neurons, 1e-2, np.random.default_rng(0)).count >= 7


# ------------------------------------------------------------------- regression


def test_bounded_least_squares_is_plain_inside_and_on_the_sphere_outside():
    rng = np.random.default_rng(0)
    z, v = rng.standard_normal((60, 8)), rng.standard_normal((8, 2))
    y = z @ v
    np.testing.assert_allclose(bounded_least_squares(z, y, 100.0), v, atol=1e-12)
    small = bounded_least_squares(z, y, 0.5)
    np.testing.assert_allclose(np.linalg.norm(small, axis=0), 0.5, rtol=1e-9)
    # No other vector of that length does better.
    best = np.linalg.norm(z @ small - y, axis=0)
    for _ in range(200):
        other = small + 0.05 * rng.standard_normal(small.shape)
        other *= 0.5 / np.linalg.norm(other, axis=0)
        assert (np.linalg.norm(z @ other - y, axis=0) >= best - 1e-9).all()


def test_features_and_distinct_rows():
    w, b = np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([0.5, 0.0])
    z = relu_features(w, b, np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(z, [[1.5, 0.0, 1.0, 2.0, 1.0]])
    rows = np.array([[0.0, 1.0], [1e-9, 1.0], [0.0, 2.0], [-1e-9, 1.0]])
    assert len(distinct_rows(rows, 1e-6)) == 2
    assert len(distinct_rows(rows[:0], 1e-6)) == 0
