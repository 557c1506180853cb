"""Definition 1, measured: each condition against networks in which it is known."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.extraction.critical_hyperplanes import depth_three
from unrelu.extraction.general_position import general_position
from unrelu.extraction.letter_boxes import halvings
from unrelu.extraction.regular_chances import (
    lemma_seven,
    lemma_six,
    lemma_two_delta,
    theorem_five,
)
from unrelu.networks import ReLUNetwork
from unrelu.planted import random_network, random_rational_network
from unrelu.rational import RationalNetwork

F = Fraction


def one(position, item):
    """Return the condition whose text contains this."""
    (found,) = [c for c in position.conditions if item in c.item]
    return found


def depth_two(w, b):
    return RationalNetwork([w, [[1] * len(w)]], [b, [0]])


def test_critical_points_near_zero_and_far_out():
    position = general_position(depth_two([[1, 1], [F(1, 50), 3]], [F(-1, 100), 1]))
    near, far = one(position, "near zero"), one(position, "far out")
    assert near.delta == pytest.approx(0.01, rel=1e-12)  # -b / w = 1/100
    assert "unit 0" in near.units
    assert far.delta == pytest.approx(1 / 50, rel=1e-12)  # -1 / (1/50) = -50
    assert far.units == "unit 1 of layer 1 on axis 0"


def test_a_short_piece():
    position = general_position(depth_two([[1, 2], [1, -3]], [F(-1), F(-101, 100)]))
    short = one(position, "short piece")
    assert short.delta == pytest.approx(0.01, rel=1e-12)  # 1 and 1.01 on the first axis
    assert short.units == "unit 0 of layer 1 and unit 1 of layer 1 on axis 0"


def test_angles_between_hyperplanes_and_with_axes():
    position = general_position(depth_two([[3, 4], [4, 3]], [1, 7]))
    # cos = 24/25, so the sine is 7/25; the least angle to an axis is 3/5.
    assert one(position, "4, the angle").delta == pytest.approx(7 / 25, rel=1e-12)
    assert one(position, "5, the angle").delta == pytest.approx(3 / 5, rel=1e-12)


def test_a_hyperplane_near_a_critical_point():
    # The second meets axis 0 at (21/4, 0), where the first is (21/4 - 5) / sqrt(2) away.
    position = general_position(depth_two([[1, 1], [4, 3]], [-5, -21]))
    near = one(position, "2, a hyperplane near")
    assert near.delta == pytest.approx(0.25 / math.sqrt(2), rel=1e-12)
    assert near.units == "unit 1 of layer 1 on axis 0, and unit 0 of layer 1"


def test_two_pieces_with_one_map_are_not_nice():
    # relu(x - 1) - relu(x - 2) ... + its mirror image: constant zero on both sides
    bump = RationalNetwork(
        [[[1], [1], [1]], [[1, -2, 1]]], [[-1, F(-3, 2), -2], [0]]
    )  # fmt: skip
    position = general_position(bump)
    assert position.delta == 0
    assert not position.general
    assert "1 (3)" in position.limiting.item


def test_in_depth_three_flat_pieces_repeat_a_map():
    """Lemma 5 overlooks it: at all networks near this one two pieces of an axis are zero."""
    flat = RationalNetwork(
        [[[1, 3], [2, -1]], [[1, 2], [1, 1]], [[1, 1]]],
        [[F(-1, 10), F(1, 7)], [-5, -6], [0]],
    )
    for shift in (F(0), F(1, 1000), F(-1, 777)):
        near = RationalNetwork([w + shift for w in flat.weights], flat.biases)
        position = general_position(near)
        assert position.delta == 0
        assert "1 (3)" in position.limiting.item
        assert position.flat is not None


def test_parallel_hyperplanes_are_irregular_as_printed_only():
    position = general_position(depth_two([[1, 2], [2, 4]], [1, 5]))
    assert position.as_printed == 0
    assert position.delta > 0
    apart = one(position, "parallel")
    assert apart.delta == pytest.approx(1.5 / math.sqrt(5), rel=1e-12)  # (5/2 - 1) / |(1, 2)|
    same = general_position(depth_two([[1, 2], [-2, -4]], [1, -2]))
    assert one(same, "parallel").delta == 0.0
    assert not same.general


def test_in_depth_three_rows_have_parallels():
    # Where row i alone is on, a second-layer unit with v_ji c_j < 0 switches parallel to it.
    network = random_rational_network(3, 2, 4, 1, rng=1)
    v, c = network.weights[1], network.biases[1]
    assert any(x * bias < 0 for row, bias in zip(v, c, strict=True) for x in row)
    position = general_position(network)
    assert position.as_printed == 0
    assert position.delta > 0


@pytest.mark.parametrize("seed", range(6))
def test_the_grid_keeps_its_distance(seed):
    network = random_rational_network(3, 5, 1, rng=seed)
    delta = general_position(network).delta
    assert delta.numerator == 1
    assert delta.denominator % 2 == 1
    grid = F(1, 2 ** halvings(delta)) / delta
    w, b = network.weights[0], network.biases[0]
    for t in (-b[:, None] / w).ravel():
        assert min(t % grid, grid - t % grid) >= delta**2


@pytest.mark.parametrize("seed", [4, 7, 9])
def test_depth_three_counts_the_axis_exactly(seed):
    """Critical points on the axes are those where the function bends."""
    network = random_rational_network(2, 2, 3, 1, rng=seed)
    planes, axes = depth_three(network)
    for i, axis in enumerate(axes):
        ends = [crossing.t for crossing in axis]
        assert ends == sorted(ends)
        step = F(1, 10**9)
        direction = [F(int(i == j)) for j in range(2)]

        def bend(t, direction=direction, step=step):
            low, here, high = network(
                [[(t + s) * e for e in direction] for s in (-step, 0, step)]
            )[:, 0]
            return low - 2 * here + high

        assert all(bend(t) != 0 for t in ends)
        for t, plane in axis:
            point = t * np.array(direction)
            assert planes.weights[plane] @ point + planes.biases[plane] == 0
        # And nowhere else: each piece is affine from end to end.
        for low, high in zip([ends[0] - 99, *ends], [*ends, ends[-1] + 99], strict=True):
            along = [low + (high - low) * F(k, 50) for k in range(51)]
            values = network([[t * e for e in direction] for t in along])[:, 0]
            assert not np.diff(values, 2).any()


def test_flat_tops_and_missing_right_inverses_are_named():
    flat = RationalNetwork([[[1, 2], [3, 1]], [[1, 1], [2, 1]], [[1, 1]]], [[1, 2], [-3, -4], [0]])
    position = general_position(flat)
    assert position.flat is not None
    h = position.flat
    assert (np.array([[1, 1], [2, 1]]) @ h <= np.array([3, 4]) + 1e-9).all()  # HiGHS' tolerance
    assert "flat" in str(position)
    on = RationalNetwork([[[1, 2], [3, 1]], [[1, 1], [2, -1]], [[1, 1]]], [[1, 2], [3, -4], [0]])
    assert general_position(on).flat is None
    narrow = random_network(2, 3, 4, 1, rng=0)
    assert not general_position(narrow).surjective


def test_what_is_measured_of_float64_networks():
    network = random_network(10, 6, 1, rng=0)
    exact = general_position(RationalNetwork.from_network(network))
    assert general_position(network) == exact
    assert str(exact).startswith("delta = ")
    with pytest.raises(InvalidInput, match="hidden layers"):
        general_position(random_network(3, 3, 3, 3, 1, rng=0))
    with pytest.raises(InvalidInput, match="too many"):
        general_position(random_network(30, 20, 3, 1, rng=0))
    with pytest.raises(InvalidInput, match="no weights"):
        general_position(ReLUNetwork([[[0.0]], [[1.0]], [[1.0]]], [[1.0], [1.0], [0.0]]))


# -------------------------------------------------------------------- the lemmas


@pytest.mark.parametrize(("d", "q", "most"), [(2, 3, 1.0), (4, 10, 2.0), (8, 30, 5.0)])
def test_lemma_two_follows_from_six_and_seven(d, q, most):
    delta = lemma_two_delta(d, q, most, 2)
    assert sum(lemma_six(d, q, most, delta)) < 2.0**-d
    # the proof's bound, 10 (M+1)^2 q^2 d^1.5 delta 2^d, is what delta makes equal to 2^-d
    assert 10 * (most + 1) ** 2 * q**2 * d**1.5 * delta * 2.0**d == pytest.approx(2.0**-d)
    delta = lemma_two_delta(d, q, most, 3)
    assert len(lemma_seven(d, q, most, delta)) == 7
    assert sum(lemma_seven(d, q, most, delta)) < 2.0**-d
    assert 20 * (d * most**2 + 2) ** 2 * q**4 * d**1.5 * delta * 2.0**d == pytest.approx(2.0**-d)


def test_lemma_six_item_by_item():
    # d = 2, q = 3, M = 1, delta = 1e-3, by hand
    found = lemma_six(2, 3, 1.0, 1e-3)
    expected = (
        2 * 3 * 1e-3 * 2 * 8,
        2 * 4 * 9 * 1e-3 * 2,
        3 * 2 * 3 * 1e-3,
        2**1.5 * 9 * 1e-3 * 2 * 2,
        1e-3 * 9 * 2**1.5 * 4 * 8,
        2 * 3 * 1e-3 * 4,
    )
    assert found == pytest.approx(expected, rel=1e-12)
    seven = lemma_seven(2, 3, 1.0, 1e-3)
    assert seven[0] == pytest.approx(2 * 9 * 1e-3 * 4 * 8)
    assert seven[4] == pytest.approx(1e-3 * 81 * 2**1.5 * 16 * 8)
    assert seven[6] == pytest.approx(sum(found))


def test_perturbed_networks_are_regular_for_the_lemmas_delta():
    """Lemma 2 on networks of whole numbers, which are not regular before."""
    rng = np.random.default_rng(0)
    d, k, regular = 3, 4, 0
    noise = 2.0**-d
    for _ in range(20):
        w = rng.integers(-1, 2, (k, d)) + rng.uniform(-noise, noise, (k, d))
        b = rng.integers(-1, 2, k) + rng.uniform(-noise, noise, k)
        position = general_position(ReLUNetwork([w, np.ones((1, k))], [b, np.zeros(1)]))
        regular += position.limiting.delta >= lemma_two_delta(d, k, 1.0, 2)
    assert regular >= 17  # 2^-3 of 20 may fail, and none does


def test_theorem_five_bounds_how_often_tops_are_flat():
    d1, d2, n = 2, 8, 30
    bound = float(theorem_five(d1, d2))
    assert bound == (1 + 8 + 28 + 56) / 256
    flat = sum(
        general_position(random_network(d1, d1, d2, 1, rng=seed)).flat is not None
        for seed in range(n)
    )
    # The bound's chance is 0.363; so many more of 30 happen once in 1e4.
    assert flat <= n * bound + 4 * math.sqrt(n * bound * (1 - bound))
    # Lemma 4: at d2 = 3.5 d1 the printed bound falls with d1.
    printed = [(math.e * 3.5) ** (d + 1) / 2.0 ** (3.5 * d) for d in (10, 20, 40)]
    assert sorted(printed, reverse=True) == printed
    assert all(
        theorem_five(d, int(3.5 * d)) <= p for d, p in zip((10, 20, 40), printed, strict=True)
    )
