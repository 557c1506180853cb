"""The layer test against the truth."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.extraction.deep_layers import DEEPER, FIRST, find_first_layer, measure_across
from unrelu.lines.domains import as_domain
from unrelu.lines.survey import calibrate, scan_line
from unrelu.oracles import connect
from unrelu.planted import random_network


def look(network, seed):
    oracle = connect(network)
    rng = np.random.default_rng(seed)
    domain = as_domain("all", network.input_dim)
    line = domain.line(rng, 1e7)
    noise, seeds = calibrate(oracle, line, near=10.0 * domain.scale)
    scan, noise = scan_line(oracle, line, noise, seeds)
    q = rng.standard_normal(network.input_dim)
    q -= (q @ line.direction) * line.direction
    q /= np.linalg.norm(q)
    across = measure_across(oracle, line, scan, noise, q)
    return line, scan, q, across, find_first_layer(oracle, line, scan, noise, across, q)


def first_kinks(network, line, scan):
    w, b = network.weights[0], network.biases[0]
    true = -(w @ line.base + b) / (w @ line.direction)
    return (np.abs(scan.kinks[:, None] - true).min(axis=1)) < 1e-6 * (1 + np.abs(scan.kinks))


@pytest.mark.parametrize("shape", [(10, 5, 20, 1), (10, 10, 10, 1), (12, 6, 10, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_every_kink_gets_its_layer(shape, seed):
    network = random_network(*shape, rng=seed)
    line, scan, _, _, verdict = look(network, seed)
    first = first_kinks(network, line, scan)
    assert first.sum() == shape[1]
    assert (verdict[first] == FIRST).all()
    assert not (verdict[~first] == FIRST).any()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_bends_in_one_hidden_layer(seed):
    _, scan, _, _, verdict = look(random_network(8, 20, 1, rng=seed), seed)
    assert len(scan.kinks) == 20
    assert (verdict == FIRST).all()


def test_first_layers_of_deeper_networks_are_told_apart():
    network = random_network(10, 6, 6, 6, 1, rng=3)
    line, scan, _, _, verdict = look(network, 3)
    first = first_kinks(network, line, scan)
    np.testing.assert_array_equal(verdict == FIRST, first)
    assert (verdict == DEEPER).any()


def test_derivatives_across_are_exact():
    network = random_network(10, 5, 20, 1, rng=7)
    line, scan, q, across, _ = look(network, 7)
    assert across.ok.all()
    middle = np.concatenate([scan.kinks[:1] - 1e-3, 0.5 * (scan.kinks[1:] + scan.kinks[:-1])])
    h = 1e-7 * (1.0 + np.abs(middle))
    points = line.points(middle)
    numeric = (network(points + h[:, None] * q) - network(points - h[:, None] * q))[:, 0] / (2 * h)
    # Differences over 1e-7 of values of about one carry about 1e-8 of rounding.
    inner = np.abs(middle) < 100
    np.testing.assert_allclose(across.derivatives[:-1, 0][inner], numeric[inner], atol=1e-6)
