import dataclasses

import numpy as np
import pytest

from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import Noisy
from unrelu.planted import random_network
from unrelu.progress import as_progress
from unrelu.span.config import SpanConfig
from unrelu.span.grow import SpanSearch, grow_span
from unrelu.span.sharpen import calibrate_gradients, measure_contrasts, strengthen_span
from unrelu.span.subspace import largest_principal_angle
from unrelu.span.values import estimate_noise

CONFIG, STEP = SpanConfig(), 2.0**-6


def weak_network(n, k, weak, seed, size=1e-4):
    """One hidden layer; the first ``weak`` units hardly reach the output."""
    g = np.random.default_rng(seed)
    last = np.where(np.arange(k) < weak, size, 1.0) * np.where(g.random(k) < 0.5, -1.0, 1.0)
    return ReLUNetwork(
        [g.standard_normal((k, n)) / np.sqrt(n), last[None]], [np.zeros(k), np.zeros(1)]
    )


def grown(net, seed=0):
    oracle, rng = as_oracle(net), np.random.default_rng(seed)
    noise = estimate_noise(oracle, rng, scale=1.0, config=CONFIG)
    search = SpanSearch.start(net.input_dim)
    grow_span(
        oracle, search, rng, noise, step=STEP, scale=1.0, limit=net.input_dim,
        config=CONFIG, progress=as_progress(None),
    )  # fmt: skip
    return oracle, search, rng, noise


@pytest.mark.parametrize("weak", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_contrasts_sharpen_the_weak_directions(weak, seed):
    net = weak_network(120, 12, weak, seed)
    oracle, search, rng, noise = grown(net, seed)
    assert search.spectrum.rank == 12
    before = largest_principal_angle(search.basis, net.weights[0])
    asked = oracle.queries.total
    strengthen_span(
        oracle, search, rng, noise, step=STEP, scale=1.0, target=before / 30.0,
        config=dataclasses.replace(CONFIG, surplus=1.5),
    )  # fmt: skip
    # Each step outside is longer by over 1000; errors of the strong directions remain.
    assert largest_principal_angle(search.basis, net.weights[0]) < before / 10.0
    assert search.spectrum.rank == 12
    assert len(search.contrasts.rows) >= weak
    # One gradient to calibrate, weak + 1 per round, and a few per cent to choose places.
    assert oracle.queries.total - asked < 1.5 * 120 * (1 + 2 * (weak + 1))


def test_a_contrast_lies_in_the_span_far_better_than_a_gradient():
    net = weak_network(120, 12, 1, 5)
    oracle, search, rng, noise = grown(net)
    contrast = measure_contrasts(
        oracle, search, rng, noise, count=1, step=STEP, scale=1.0, config=CONFIG
    )
    q = np.linalg.qr(net.weights[0].T)[0].T

    def outside(rows):
        return np.linalg.norm(rows - (rows @ q.T) @ q, axis=1)

    assert outside(contrast.rows) < 0.03 * np.median(outside(search.gradients.rows))
    # The noise claimed is that of rounded inputs far out, an upper bound.
    assert outside(contrast.rows) < 3.0 * contrast.noise * np.sqrt(120 - 12)


def test_many_weak_directions_are_left_to_sharpening():
    net = weak_network(60, 10, 8, 0)
    oracle, search, rng, noise = grown(net)
    basis = search.basis.copy()
    strengthen_span(
        oracle, search, rng, noise, step=STEP, scale=1.0, target=1e-300,
        config=CONFIG,
    )  # fmt: skip
    assert len(search.contrasts.rows) == 0
    assert largest_principal_angle(search.basis, basis) < 1e-6


def test_calibration_returns_the_noise_of_gradients():
    net = random_network(40, 6, 1, rng=0)
    _, search, rng, _ = grown(net)
    sigma = 1e-6
    oracle = Noisy(as_oracle(net), sigma, seed=3)
    g = search.gradients
    step = g.reach / CONFIG.shrink
    rows = g.rows + np.sqrt(2.0) * sigma / step[:, None] * rng.standard_normal(g.rows.shape)
    g = dataclasses.replace(g, rows=rows, noise=10.0 * np.sqrt(2.0) * sigma / step)
    # Assumed ten times too large; the quartile of 40 half-normal values is good to 15 %.
    level = calibrate_gradients(oracle, g, rng, config=CONFIG)
    assert level == pytest.approx(0.1, rel=0.5)
