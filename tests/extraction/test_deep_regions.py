"""Regions: the affine map, the walls, the centre."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.extraction.deep_polish import gauge_mask
from unrelu.extraction.deep_regions import (
    beside_surfaces,
    cover_gates,
    gate_patterns,
    hold_unseen,
    region_at,
    unseen_pairs,
)
from unrelu.networks import ReLUNetwork
from unrelu.planted import random_network

WIDTHS = [(4, 6, 1), (5, 4, 6, 2), (3, 4, 4, 4, 1)]


@pytest.mark.parametrize("widths", WIDTHS)
def test_the_affine_map_holds_inside_and_only_there(widths):
    g = np.random.default_rng(0)
    network = random_network(*widths, rng=g)
    x = g.standard_normal(widths[0])
    region = region_at(network, x)
    near = x + 0.3 * g.standard_normal((400, widths[0]))
    inside = region.contains(near)
    assert inside.any()
    assert not inside.all()
    affine = near @ region.matrix.T + region.offset
    np.testing.assert_allclose(affine[inside], network(near[inside]), atol=1e-13)
    same = np.concatenate(gate_patterns(network, near), axis=1) == np.concatenate(region.pattern)
    np.testing.assert_array_equal(inside, same.all(axis=1))


@pytest.mark.parametrize("widths", WIDTHS)
def test_the_center_has_the_room_it_claims(widths):
    g = np.random.default_rng(1)
    network = random_network(*widths, rng=g)
    for _ in range(5):
        x = g.standard_normal(widths[0])
        region = region_at(network, x)
        center, radius = region.center(10.0)
        room = float(region.room(center[None, :])[0])
        assert radius >= float(region.room(x[None, :])[0]) - 1e-9
        # The reach may bound the ball as well; then the walls are farther.
        assert room >= radius - 1e-7


def test_an_empty_region_is_seen():
    network = ReLUNetwork([[[1.0], [-1.0]], [[1.0, 1.0]]], [[-1.0, -1.0], [0.0]])
    region = region_at(network, np.array([2.0]))
    _, radius = region.center(10.0)
    assert radius > 0
    off = np.array([1.0, -1.0])
    flipped = type(region)(
        region.pattern,
        region.matrix,
        region.offset,
        region.normals * off[:, None],
        region.bounds * off,
    )
    assert flipped.center(10.0)[1] < 0  # x > 1 and x < -1


def test_rare_states_are_covered():
    g = np.random.default_rng(2)
    base = random_network(4, 6, 1, rng=g)
    bias = base.biases[0].copy()
    bias[0] = -2.5 * np.linalg.norm(base.weights[0][0])  # on at less than one percent
    network = ReLUNetwork(base.weights, [bias, base.biases[1]])
    pool = g.standard_normal((5000, 4))
    chosen = cover_gates(network, pool, 0.02, 7)
    on = gate_patterns(network, pool[chosen])[0][:, 0]
    assert on.sum() == 7
    assert len(cover_gates(base, pool, 0.0, 7)) == 0


def test_a_unit_that_few_places_show_is_held():
    rng = np.random.default_rng(0)
    network = random_network(5, 4, 6, 2, rng=3)
    free = gauge_mask(network)
    typical = rng.standard_normal((400, 5))
    on = gate_patterns(network, typical)[1]
    assert (on.sum(axis=0) >= 8).any()
    unit = int(np.argmax(on.sum(axis=0)))
    seen = hold_unseen(network, typical, free)
    assert (seen[1][unit] == free[1][unit]).all()
    # The same unit on nowhere but close to a single point.
    place = typical[on[:, unit]][0]
    near = place + 1e-7 * rng.standard_normal((40, 5))
    few = np.concatenate([typical[~on[:, unit]], near])
    assert gate_patterns(network, few)[1][:, unit].sum() == 40
    held = hold_unseen(network, few, free)
    assert not held[1][unit].any()
    assert not held[2][:, unit].any()
    assert (held[0] == free[0]).all()
    assert free[1][unit].any()  # the caller's masks are not touched


def test_pairs_of_states_that_few_points_show_are_found():
    g = np.random.default_rng(11)
    network = random_network(5, 4, 6, 2, rng=12)
    seen, pool = g.standard_normal((40, 5)), g.standard_normal((3000, 5))

    def counts(x):
        first, second = (
            np.concatenate([a, ~a], axis=1).astype(float) for a in gate_patterns(network, x)
        )
        return first.T @ second

    chosen = unseen_pairs(network, seen, pool, 3, 500)
    assert len(set(chosen)) == len(chosen) < 300
    wanted = np.minimum(3, counts(seen) + counts(pool))
    assert (counts(seen) < wanted).any()  # else nothing was asked of it
    assert (counts(np.concatenate([seen, pool[chosen]])) >= wanted).all()
    assert len(unseen_pairs(network, seen, pool, 3, 7)) == 7


def test_the_points_beside_a_surface_are_the_nearest_on_each_side():
    g = np.random.default_rng(13)
    network = random_network(4, 3, 1, rng=14)
    pool = g.standard_normal((500, 4))
    chosen = beside_surfaces(network, pool, 2)
    z = pool @ network.weights[0].T + network.biases[0]
    for column in z.T:
        for side in (column > 0, column <= 0):
            where = np.flatnonzero(side)
            nearest = where[np.argsort(np.abs(column[where]))[:2]]
            assert np.isin(nearest, chosen).all()
