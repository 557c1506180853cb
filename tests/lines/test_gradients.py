"""Gradients with checked chunks: exact inside a piece, repaired across hyperplanes."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.lines.gradients import GradientConfig, measure_gradients, orthogonal_directions
from unrelu.planted import random_network

QUIET = NoiseModel(np.array([1e-15]), np.array([0.0]))


@pytest.mark.parametrize("d", [1, 2, 5, 40])
def test_directions_are_orthonormal_and_orthogonal_to_the_line(d):
    v = np.random.default_rng(d).standard_normal(d)
    v /= np.linalg.norm(v)
    q = orthogonal_directions(v)
    assert q.shape == (d - 1, d)
    np.testing.assert_allclose(q @ q.T, np.eye(d - 1), atol=1e-14)
    np.testing.assert_allclose(q @ v, 0.0, atol=1e-14)


class Counting:
    def __init__(self, function):
        self.function, self.asked, self.calls, self.points = function, 0, 0, []

    def __call__(self, x):
        self.asked += len(x)
        self.calls += 1
        self.points.append(x)
        return self.function(x)


def test_an_affine_function_costs_one_check_per_chunk():
    g = np.arange(1.0, 151.0) / 150.0
    f = Counting(lambda x: (x @ g)[:, None])
    point = np.zeros((1, 150))
    found = measure_gradients(
        f, point, np.zeros((1, 1)), np.array([0.5]), np.eye(150), QUIET,
        rng=np.random.default_rng(0), config=GradientConfig(chunk=50),
    )  # fmt: skip
    np.testing.assert_allclose(found.derivatives[0, :, 0], g, rtol=1e-12)
    assert f.asked == 150 + 4  # a short chunk first, three more behind it
    assert f.calls == 2
    assert found.ok.all()
    np.testing.assert_allclose(found.std, np.sqrt(2) * 1e-15 / 0.5)


def test_one_crossing_costs_two_more_answers():
    # Direction 3 hits a hyperplane at 0.2; the others have room.
    f = Counting(lambda x: x.sum(axis=1, keepdims=True) + 5 * np.maximum(x[:, [3]] - 0.2, 0))
    found = measure_gradients(
        f, np.zeros((1, 20)), np.zeros((1, 1)), np.array([0.5]), np.eye(20), QUIET,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    np.testing.assert_allclose(found.derivatives[0, :, 0], 1.0, atol=1e-12)
    assert f.asked == 20 + 1 + 2
    assert found.steps[0, 3] < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_crowded_points_are_still_exact(seed):
    net = random_network(8, 60, 2, rng=seed)
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((6, 8))
    found = measure_gradients(
        net, points, net(points), np.full(6, 0.3), np.eye(8),
        NoiseModel(np.full(2, 1e-15), np.full(2, 1e-16)), rng=rng,
    )  # fmt: skip
    on = points @ net.weights[0].T + net.biases[0] > 0
    truth = np.einsum("mk,pk,kd->pdm", net.weights[1], on, net.weights[0])
    assert found.ok.all()
    assert (np.abs(found.derivatives - truth) <= 12 * found.std).all()


def test_a_wrong_base_value_is_asked_anew():
    g = np.ones(6)
    wrong = np.array([[0.7]])
    found = measure_gradients(
        lambda x: (x @ g)[:, None], np.zeros((1, 6)), wrong, np.array([0.1]), np.eye(6), QUIET,
        rng=np.random.default_rng(2),
    )  # fmt: skip
    np.testing.assert_allclose(found.derivatives[0, :, 0], 1.0, rtol=1e-9)


def test_the_box_is_never_left():
    f = Counting(lambda x: x.sum(axis=1, keepdims=True))
    points = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 1.0]])
    measure_gradients(
        f, points, points.sum(axis=1, keepdims=True), np.array([0.4, 0.4]), np.eye(3), QUIET,
        rng=np.random.default_rng(3), bounds=(np.zeros(3), np.ones(3)),
    )  # fmt: skip
    asked = np.concatenate(f.points)
    assert asked.min() >= 0
    assert asked.max() <= 1


def test_no_directions_ask_nothing():
    f = Counting(lambda x: x)
    found = measure_gradients(
        f, np.zeros((2, 1)), np.zeros((2, 1)), np.ones(2), np.empty((0, 1)), QUIET,
        rng=np.random.default_rng(4),
    )  # fmt: skip
    assert found.derivatives.shape == (2, 0, 1)
    assert f.asked == 0
