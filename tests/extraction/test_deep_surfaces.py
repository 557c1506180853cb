"""Crossings are grouped by unit, and units come back from their crossings."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.extraction.deep_crossings import first_layer_signs, missed_rows, second_layer
from unrelu.extraction.deep_surfaces import Crossings, group_crossings
from unrelu.planted import random_network


def crossings_of(network, count, rng, error=0.0):
    """Points where random lines cross a second-layer unit, with the jump of the gradient."""
    w, v, u = network.weights
    b, c, _ = network.biases
    points, normals, outputs, units = [], [], [], []
    for _ in range(count):
        base, direction = rng.standard_normal((2, network.input_dim))
        t = np.linspace(-4.0, 4.0, 4001)
        x = base + np.outer(t, direction)
        z = np.maximum(x @ w.T + b, 0.0) @ v.T + c
        for j in range(len(v)):
            for i in np.flatnonzero(np.diff(z[:, j] > 0)):
                part = z[i, j] / (z[i, j] - z[i + 1, j])
                if not np.array_equal(x[i] @ w.T + b > 0, x[i + 1] @ w.T + b > 0):
                    continue
                x0 = x[i] + part * (x[i + 1] - x[i])
                slope = (v[j] * (w @ x0 + b > 0)) @ w * np.linalg.norm(u[:, j])
                sign = np.sign(slope @ direction)
                points.append(x0)
                normals.append(sign * slope * (1 + error * rng.standard_normal(len(slope))))
                outputs.append(u[:, j] / np.linalg.norm(u[:, j]))
                units.append(j)
    n = len(points)
    found = Crossings(np.array(points), np.array(normals), np.array(outputs), np.full(n, 1e-12))
    return found, np.array(units)


@pytest.mark.parametrize("shape", [(6, 9, 5, 1), (5, 8, 6, 3)])
@pytest.mark.parametrize("oriented", [False, True])
def test_every_group_is_one_unit(shape, oriented):
    network = random_network(*shape, rng=1)
    found, units = crossings_of(network, 40, np.random.default_rng(0), error=1e-10)
    w, b = network.weights[0], network.biases[0]
    surfaces = group_crossings(found, w, b, oriented=oriented)
    assert sum(len(s.members) for s in surfaces) == len(found)
    for surface in surfaces:
        assert len(set(units[surface.members])) == 1
    large = [s for s in surfaces if len(s.members) > 4]
    assert len(large) >= shape[2] - 2
    assert len(large) == len({units[s.members[0]] for s in large})


def test_groups_grow_with_new_crossings():
    network = random_network(6, 9, 5, 1, rng=2)
    w, b = network.weights[0], network.biases[0]
    rng = np.random.default_rng(1)
    first, units = crossings_of(network, 15, rng)
    more, others = crossings_of(network, 15, rng)
    surfaces = group_crossings(first, w, b, oriented=True)
    grown = group_crossings(first.joined(more), w, b, surfaces, oriented=True)
    units = np.concatenate([units, others])
    assert sum(len(s.members) for s in grown) == len(units)
    assert all(len(set(units[s.members])) == 1 for s in grown)


def test_orientation_and_units_come_back():
    network = random_network(6, 9, 5, 1, rng=3)
    found, _ = crossings_of(network, 60, np.random.default_rng(2))
    rng = np.random.default_rng(3)
    size = np.linalg.norm(network.weights[0], axis=1)
    turned = rng.choice([-1.0, 1.0], size=9) / size
    w, b = network.weights[0] * turned[:, None], network.biases[0] * turned
    surfaces = group_crossings(found, w, b)
    signs, off = first_layer_signs(surfaces, w)
    assert off < 1e-6
    np.testing.assert_array_equal(signs, np.sign(turned))
    w, b = w * signs[:, None], b * signs
    surfaces = group_crossings(found, w, b, oriented=True)
    surfaces = [s for s in surfaces if len(s.members) > 1]
    x = rng.standard_normal((600, 6))
    top = second_layer(surfaces, w, b, x, network(x), np.full((600, 1), 1e-12))
    fresh = rng.standard_normal((2000, 6))
    off = np.abs(top(np.maximum(fresh @ w.T + b, 0.0)) - network(fresh))[:, 0]
    assert np.mean(off > 1e-8) < 0.02  # corners that no line met


def test_too_few_surfaces_do_not_tell_the_orientation():
    network = random_network(6, 9, 5, 1, rng=3)
    w, b = network.weights[0], network.biases[0]
    found, _ = crossings_of(network, 1, np.random.default_rng(2))
    assert first_layer_signs(group_crossings(found, w, b), w)[1] == np.inf
    assert first_layer_signs([], w)[1] == np.inf


def test_a_row_that_was_missed_is_found_among_the_crossings():
    rng = np.random.default_rng(4)
    network = random_network(6, 9, 5, 1, rng=4)
    found, _ = crossings_of(network, 20, rng)
    w, b = network.weights[0], network.biases[0]
    assert missed_rows(found, w, b)[2].sum() == 0
    normal = rng.standard_normal(6)
    normal /= np.linalg.norm(normal)
    x = rng.standard_normal((8, 6))
    x -= ((x @ normal) + 0.3)[:, None] * normal
    jumps = normal * rng.uniform(0.5, 2.0, (8, 1)) * rng.choice([-1.0, 1.0], (8, 1))
    extra = Crossings(x, jumps, np.ones((8, 1)), np.full(8, 1e-12))
    rows, biases, members = missed_rows(found.joined(extra), w, b)
    assert len(rows) == 1
    assert abs(rows[0] @ normal) == pytest.approx(1.0, abs=1e-9)
    assert abs(biases[0]) == pytest.approx(0.3, abs=1e-9)
    assert members[-8:].all()
    assert not members[:-8].any()
