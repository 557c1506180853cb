"""Planted networks are what their names say, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import InvalidInput, planted

X = np.random.default_rng(5).standard_normal((2000, 10))


@pytest.mark.parametrize("name", planted.HOSTILE)
def test_seeded(name):
    make = planted.HOSTILE[name]
    assert make(3) == make(3)
    assert make(3) != make(4)


def test_random_networks_have_the_stated_scales():
    net = planted.random_network(784, 128, 1, rng=0)
    # 100,352 entries: the standard deviation is within 5 / sqrt(2 n) of its value.
    assert net.weights[0].std() * 28 == pytest.approx(1, rel=5 / np.sqrt(2 * 784 * 128))
    assert net.biases[0].std() == pytest.approx(0.5, rel=5 / np.sqrt(2 * 128))
    assert net.weights[1].std() * np.sqrt(128) == pytest.approx(1, rel=5 / np.sqrt(2 * 128))
    assert not net.biases[1].any()
    with pytest.raises(InvalidInput):
        planted.random_network(3)


@pytest.mark.parametrize("width", [0.1, 1e-2, 1e-3])
def test_a_bump_is_zero_outside_its_slab_and_has_unit_variance(width):
    net = planted.bump(4, width=width, center=0.3, rng=0)
    direction = net.weights[0][0]
    inside = direction * (0.3 + np.linspace(-0.5, 0.5, 4001) * width)[:, None]
    values = net(inside)[:, 0]
    outside = net(np.outer([0.3 - 0.6 * width, 0.3 + 0.6 * width, 5.0, -5.0], direction))
    # The slopes are about height / width and cancel to rounding times their size.
    assert np.abs(outside).max() < 1e-9 * values.max()
    t = 0.3 + np.linspace(-0.5, 0.5, 4001) * width
    density = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
    mean, square = np.trapezoid(values * density, t), np.trapezoid(values**2 * density, t)
    assert square - mean**2 == pytest.approx(1.0, rel=1e-4)
    both = planted.bump(10, width=0.1, extra=5, rng=1)
    assert both(np.random.default_rng(0).standard_normal((200_000, 10))).var() == pytest.approx(
        2.0, rel=0.15
    )


def test_hostile_structure():
    pairs = planted.opposite_pairs(10, 8, rng=0)
    np.testing.assert_array_equal(pairs.weights[0][0], -pairs.weights[0][1])
    close = planted.near_duplicates(10, 8, angle=1e-6, rng=0).canonical()
    gaps = np.linalg.norm(np.diff(close.weights[0], axis=0), axis=1)
    assert (gaps < 2e-6).sum() == 2
    parallel = planted.parallel_hyperplanes(10, 8, rng=0)
    assert np.linalg.matrix_rank(parallel.weights[0][:4]) == 1
    assert len(np.unique(parallel.biases[0])) == 8
    dead = planted.dead_neurons(10, 8, dead=3, rng=0)
    hidden = X @ dead.weights[0].T + dead.biases[0]
    assert (hidden.max(axis=0) < 0).sum() == 3
    zeros = planted.zero_outputs(10, 8, zeros=3, rng=0)
    assert (zeros.weights[1] == 0).sum() == 3
    far = planted.far_kinks(10, 8, far=2, distance=30.0, rng=0)
    distance = np.abs(far.biases[0]) / np.linalg.norm(far.weights[0], axis=1)
    assert np.sort(distance)[-2:] == pytest.approx([30.0, 30.0])
    sparse = planted.sparse_inputs(10, 8, rng=0)
    assert (sparse.weights[0] == 0).any()
    assert sparse.weights[0].any(axis=1).all()
    groups = planted.clusters(10, 12, groups=3, angle=1e-6, rng=0)
    cosines = np.abs(groups.weights[0] @ groups.weights[0].T)
    assert (cosines > 1 - 1e-9).sum() == 3 * 4 * 4


def test_cancelling_pairs_are_almost_affine():
    net = planted.cancelling(10, pairs=3, ordinary=1, gap=1e-6, rng=0)
    w, u = net.weights
    quiet = planted.ReLUNetwork([w[:6], u[:, :6]], [net.biases[0][:6], net.biases[1]])
    second = quiet(X) - 2 * quiet(X + 0.1) + quiet(X + 0.2)
    assert np.abs(second).max() < 1e-5


def test_affine_and_constant():
    net = planted.affine(10, rng=0)
    second = net(X) - 2 * net(X + 1.0) + net(X + 2.0)
    assert np.abs(second).max() < 1e-13 * np.abs(net(X)).max() * 10
    assert np.ptp(planted.constant(10, rng=0)(X)) == 0
