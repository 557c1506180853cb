"""Units: evaluation, orientation, joining, merging and signs."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.units import Units, join_units, merge_units, parallel_groups, resolve_signs


def random_units(k, d, m, seed, *, linear=True):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((k, d))
    anchors = rng.standard_normal((k, d))
    u = rng.standard_normal((m, k))
    a = rng.standard_normal((m, d)) if linear else np.zeros((m, d))
    base = rng.standard_normal(d)
    return Units(w, anchors, u, a, base, rng.standard_normal(m), np.zeros((k, d)))


@pytest.fixture
def points():
    return np.random.default_rng(9).standard_normal((50, 4))


def test_value_at_the_base_and_zero_at_the_anchors():
    units = random_units(5, 4, 2, 0)
    np.testing.assert_allclose(units(units.base[None, :])[0], units.value, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(units.preactivations(units.anchors)), 0, atol=1e-12)


def test_network_and_gradients_agree_with_values(points):
    units = random_units(5, 4, 2, 1)
    np.testing.assert_allclose(units.network()(points), units(points), atol=1e-12)
    step = 1e-6
    for i in range(4):
        moved = points.copy()
        moved[:, i] += step
        slope = (units(moved) - units(points)) / step
        same = (units.gates(moved) == units.gates(points)).all(axis=1)
        np.testing.assert_allclose(slope[same], units.gradients(points)[same][:, :, i], atol=1e-8)


def test_turning_over_does_not_change_the_function(points):
    units = random_units(5, 4, 2, 2)
    turned = units.turned(np.array([True, False, True, True, False]))
    np.testing.assert_allclose(turned(points), units(points), atol=1e-12)


def test_joining_adds(points):
    a, b = random_units(3, 4, 2, 3), random_units(4, 4, 2, 4)
    np.testing.assert_allclose(join_units(a, b)(points), a(points) + b(points), atol=1e-12)


def test_merging_units_of_one_hyperplane(points):
    units = random_units(4, 4, 2, 5)
    w = units.weights.copy()
    anchors = units.anchors.copy()
    w[2], anchors[2] = -3.0 * w[0], anchors[0]
    units = Units(w, anchors, units.outputs, units.linear, units.base, units.value, units.axes)
    groups = parallel_groups(units, np.full(4, 1e-9))
    assert [sorted(g) for g in groups] == [[0, 2]]
    merged, change = merge_units(units, groups[0])
    np.testing.assert_allclose(merged(points), units(points), atol=1e-12)
    before = np.concatenate([units.linear, units.weights])
    after = np.concatenate([merged.linear, merged.weights])
    np.testing.assert_allclose((change @ before)[[0, 1]], after[[0, 1]], atol=1e-12)
    head = int(np.argmax(np.abs(merged.outputs[:, [0, 2]]).max(axis=0))) * 2
    np.testing.assert_allclose((change @ before)[2 + head], after[2 + head], atol=1e-12)
    size = np.abs(merged.outputs).max(axis=0)
    assert np.count_nonzero(size) == 3


def test_errors_that_cancel_between_members_are_gone_after_merging(points):
    # One unit as a half and a half, each tilted the other way: the sum knows its direction.
    units = random_units(3, 4, 1, 6)
    w, anchors, outputs = units.weights.copy(), units.anchors.copy(), units.outputs.copy()
    tilt = 1e-4 * np.random.default_rng(7).standard_normal(4)
    tilt -= tilt @ w[0] / (w[0] @ w[0]) * w[0]
    right = w[0].copy()
    w[0], w[2], anchors[2] = right + tilt, right - tilt, anchors[0]
    outputs[:, 2] = outputs[:, 0]
    units = Units(w, anchors, outputs, units.linear, units.base, units.value, units.axes)
    merged, change = merge_units(units, [0, 2])
    head = int(np.argmax(np.abs(merged.outputs[0, [0, 2]]))) * 2
    np.testing.assert_allclose(merged.weights[head], right, atol=1e-12)
    covariance = np.zeros((4, 4))
    covariance[np.ix_([1, 3], [1, 3])] = [[1.0, -1.0], [-1.0, 1.0]]
    spread = change @ covariance @ change.T
    assert abs(spread[1 + head, 1 + head]) < 1e-12


def test_hyperplanes_farther_apart_than_the_tolerance_stay():
    units = random_units(4, 4, 1, 6)
    assert parallel_groups(units, np.full(4, 1e-6)) == []


@pytest.mark.parametrize(("k", "m"), [(3, 1), (4, 1), (10, 3)])
def test_signs_of_a_network_without_skip_are_found(points, k, m):
    truth = random_units(k, 4, m, 7, linear=False)
    wrong = truth.turned(np.random.default_rng(8).random(k) < 0.5)
    turn = resolve_signs(wrong, 1e-12)
    assert turn is not None
    right = wrong.turned(turn)
    np.testing.assert_allclose(right.linear, 0.0, atol=1e-12)
    np.testing.assert_allclose(right.weights, truth.weights)


def test_signs_are_not_claimed_where_they_are_not_determined():
    assert resolve_signs(random_units(9, 4, 1, 9, linear=False), 1e-12) is None  # k > d
    assert resolve_signs(random_units(3, 4, 1, 10), 1e-12) is None  # a true skip term
