"""The polish: its derivative, its fixed points, its speed of convergence."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.extraction.deep_polish import (
    PolishConfig,
    _forward,
    _layers,
    _pull,
    _push,
    gauge_mask,
    polish,
)
from unrelu.networks import ReLUNetwork
from unrelu.planted import random_network


def moved(network, size, rng):
    """Return the network with all but the held weights moved by ``size``."""
    free = gauge_mask(network)
    weights = [w + size * rng.standard_normal(w.shape) * f[:, :-1]
               for w, f in zip(network.weights, free, strict=True)]  # fmt: skip
    biases = [b + size * rng.standard_normal(b.shape) for b in network.biases]
    return ReLUNetwork(weights, biases)


@pytest.mark.parametrize("widths", [(4, 6, 1), (4, 5, 6, 2), (5, 4, 4, 4, 3)])
def test_push_is_the_derivative_and_pull_its_transpose(widths):
    g = np.random.default_rng(0)
    network = random_network(*widths, rng=g)
    x = g.standard_normal((50, widths[0]))
    layers = _layers(network)
    move = [g.standard_normal(a.shape) for a in layers]
    inputs, gates, value = _forward(layers, x)
    change = _push(layers, inputs, gates, move)
    h = 1e-7
    ahead = _forward([a + h * b for a, b in zip(layers, move, strict=True)], x)[2]
    # One-sided difference: h times the curvature of a product of layers, and eps / h.
    assert np.abs((ahead - value) / h - change).max() < 1e-4
    r = g.standard_normal(value.shape)
    pulled = _pull(layers, inputs, gates, r)
    inner = sum(float((a * b).sum()) for a, b in zip(pulled, move, strict=True))
    assert inner == pytest.approx(float((r * change).sum()), rel=1e-12)


@pytest.mark.parametrize("widths", [(5, 6, 1), (6, 4, 8, 1), (6, 5, 5, 4, 1), (6, 4, 8, 3)])
def test_a_perturbed_network_is_found_again(widths):
    g = np.random.default_rng(1)
    truth = random_network(*widths, rng=g)
    x = 2.0 * g.standard_normal((6 * truth.parameters, widths[0]))
    start = moved(truth, 1e-7, g)
    done = polish(start, x, truth(x), np.full((len(x), widths[-1]), 1e-16))
    fresh = g.standard_normal((2000, widths[0]))
    before = np.abs(start(fresh) - truth(fresh)).max()
    after = np.quantile(np.abs(done.network(fresh) - truth(fresh)), 0.99)
    assert before > 1e-8
    # Rounding of the answers, times the condition of six answers per parameter; a unit that
    # is almost never on has fewer answers than parameters, hence the quantile.
    assert after < 1e-13
    assert done.after < done.before


def test_what_is_held_stays():
    g = np.random.default_rng(2)
    truth = random_network(5, 4, 6, 1, rng=g)
    x = g.standard_normal((400, 5))
    free = gauge_mask(truth)
    done = polish(moved(truth, 1e-6, g), x, truth(x), np.full((400, 1), 1e-15), free=free)
    for f, a, b in zip(free, truth.weights, done.network.weights, strict=True):
        np.testing.assert_array_equal(a[~f[:, :-1]], b[~f[:, :-1]])


def test_a_few_wrong_answers_do_not_bend_the_rest():
    g = np.random.default_rng(3)
    truth = random_network(5, 8, 1, rng=g)
    x = 2.0 * g.standard_normal((600, 5))
    y = truth(x)
    y[:5] += 1.0
    done = polish(
        moved(truth, 1e-8, g), x, y, np.full((600, 1), 1e-15), config=PolishConfig(steps=12)
    )
    fresh = g.standard_normal((500, 5))
    # Pulled in to 30 median residuals, five of 600 move the fit by about that much noise.
    assert np.abs(done.network(fresh) - truth(fresh)).max() < 1e-11


def test_deviations_cover_the_error():
    g = np.random.default_rng(4)
    truth = random_network(4, 5, 1, rng=g)
    x = 2.0 * g.standard_normal((500, 4))
    y = truth(x) + 1e-6 * g.standard_normal((500, 1))
    done = polish(truth, x, y, np.full((500, 1), 1e-6), deviations=True)
    free = gauge_mask(truth)
    error = np.concatenate(
        [(a - b).ravel() for a, b in zip(_layers(done.network), _layers(truth), strict=True)]
    )
    std = np.concatenate([s.ravel() for s in done.std])
    mask = np.concatenate([f.ravel() for f in free])
    score = error[mask] / std[mask]
    assert 0.5 < np.sqrt(np.mean(score**2)) < 1.6  # 31 parameters: within about 5 sigma of 1
    assert (std[~mask] == 0).all()


def test_a_unit_that_no_answer_sees_is_left_alone():
    truth = random_network(3, 4, 1, rng=5)
    off = truth.biases[0] - np.array([1e3, 0.0, 0.0, 0.0])
    dead = ReLUNetwork(truth.weights, [off, truth.biases[1]])
    x = np.random.default_rng(6).standard_normal((200, 3))
    done = polish(dead, x, dead(x), np.full((200, 1), 1e-15))
    np.testing.assert_allclose(done.network.weights[0][0], dead.weights[0][0], rtol=1e-12)
