"""Crossings are grouped by unit; signs and rows come back from their crossings."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.extraction.peel_lines import Crossings, joined
from unrelu.extraction.peel_surfaces import first_layer_signs, group_crossings, surface_row
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
                size = np.linalg.norm(slope)
                slope = slope / size
                normals.append(sign * slope * (1 + error * rng.standard_normal(len(slope))))
                outputs.append(size * u[:, j] / np.linalg.norm(u[:, j]))
                units.append(j)
    n = len(points)
    found = Crossings(np.array(points), np.array(normals), np.array(outputs), np.full(n, 1e-12))
    return found, np.array(units)


@pytest.mark.parametrize("shape", [(6, 9, 5, 1), (5, 8, 6, 3)])
def test_every_group_is_one_unit(shape):
    network = random_network(*shape, rng=1)
    found, units = crossings_of(network, 40, np.random.default_rng(0), error=1e-10)
    surfaces = group_crossings(found, network.weights[0], network.biases[0], [])
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
    surfaces = group_crossings(first, w, b, [])
    before = [list(s.members) for s in surfaces]
    grown = group_crossings(Crossings(*joined([first, more])), w, b, surfaces)
    units = np.concatenate([units, others])
    assert sum(len(s.members) for s in grown) == len(units)
    assert all(len(set(units[s.members])) == 1 for s in grown)
    assert [s.members for s in surfaces] == before


def test_orientation_and_rows_come_back():
    network = random_network(6, 9, 5, 1, rng=3)
    found, units = crossings_of(network, 60, np.random.default_rng(2))
    rng = np.random.default_rng(3)
    size = np.linalg.norm(network.weights[0], axis=1)
    turned = rng.choice([-1.0, 1.0], size=9) / size
    w, b = network.weights[0] * turned[:, None], network.biases[0] * turned
    surfaces = group_crossings(found, w, b, [])
    signs = first_layer_signs(surfaces, w)
    np.testing.assert_array_equal(signs, np.sign(turned))
    told = 0
    for surface in surfaces:
        row = surface_row(surface, found, w, b, signs)
        if len(surface.members) < 2 or row is None:
            continue
        # Over units scaled to rows of unit length; the row is known up to its scale.
        j = units[surface.members[0]]
        true = np.append(network.weights[1][j] * size, network.biases[1][j])
        true[:-1][~row.known[:-1]] = 0.0
        factor = np.linalg.norm(true[:-1]) * np.sign(true[:-1] @ row.theta[:-1])
        # Crossings are exact; the systems solved have conditions up to 1e4.
        np.testing.assert_allclose(row.theta * factor, true, atol=1e-9)
        told += int(row.known[:-1].sum())
    assert told >= 40  # of 45 weights


def test_too_few_surfaces_do_not_tell_the_orientation():
    network = random_network(6, 9, 5, 1, rng=3)
    w, b = network.weights[0], network.biases[0]
    w, b = (a / np.linalg.norm(w, axis=1).reshape(-1, *[1] * (a.ndim - 1)) for a in (w, b))
    found, _ = crossings_of(network, 1, np.random.default_rng(2))
    assert (first_layer_signs(group_crossings(found, w, b, []), w) == 0.0).any()
    assert (first_layer_signs([], w) == 0.0).all()
