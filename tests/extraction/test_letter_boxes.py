"""Algorithms 1 to 5 as printed, against functions that are known exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from unrelu.extraction.letter_algebra import eliminated, project, right_inverse, subset_that_sums
from unrelu.extraction.letter_boxes import (
    Function,
    Irregular,
    affine,
    critical_points,
    find_cp,
    find_hp,
    halvings,
    is_convex,
    is_general,
)
from unrelu.planted import random_rational_network
from unrelu.rational import RationalNetwork, rationals

F = Fraction


class Watched:
    """A network as a function that remembers where it was asked."""

    def __init__(self, network):
        self.asked = []
        self.network = network
        self.function = Function(network.input_dim, self.answer, Fraction)

    def answer(self, points):
        self.asked += points.tolist()
        return self.network(points)[:, 0], np.zeros(len(points), dtype=object)


# |x - 1| / 2 - relu(x - 5/2) + relu(-x - 2): critical points -2, 1 and 5/2; it is delta-nice for
# 1/17, and not for 1/9, whose grid comes within 1/81 of -2
LINE = RationalNetwork(
    [[[1], [-1], [1], [-1]], [[F(1, 2), F(1, 2), -1, 1]]], [[-1, 1, F(-5, 2), -2], [0]]
)
DELTA = F(1, 17)


@pytest.mark.parametrize("delta", [F(1, 2), F(1, 3), F(1, 9), F(2, 7), F(1, 4095), F(1, 4096)])
def test_halvings_are_the_least_power_of_two(delta):
    n = halvings(delta)
    assert 2**n >= 2 / delta**2 > 2 ** (n - 1)


def test_affine_is_exact_near_a_general_point():
    network = random_rational_network(3, 8, 1, rng=0)
    x = rationals([F(1, 3), F(-2, 5), F(7, 4)])
    (w, u), (b, _) = network.weights, network.biases
    on = (w @ x + b) > 0
    assert 0 < on.sum() < 8
    watched = Watched(network)
    found = affine(watched.function, F(1, 10**6), x)
    assert found.weights.tolist() == (u[0] * on @ w).tolist()
    assert found.bias == u[0] * on @ b
    assert len(watched.asked) == 4  # d + 1 queries (section 3.2.1)


def test_find_cp_gives_the_critical_points_from_left_to_right():
    watched = Watched(LINE)
    f = watched.function.along(0)
    assert find_cp(DELTA, f, None) == -2
    # Line 2's loop asks two maps of two points each, line 5 two more.
    assert len(watched.asked) == 4 * (halvings(DELTA) + 1) + 4
    assert find_cp(DELTA, f, F(-2)) == 1
    assert find_cp(DELTA, f, F(1)) == F(5, 2)
    assert find_cp(DELTA, f, F(5, 2)) is None
    assert critical_points(DELTA, watched.function, 0) == [-2, 1, F(5, 2)]


def test_the_grid_must_keep_its_distance():
    """Condition (4) of a nice function: a map asked across a critical point is none of f's."""
    assert find_cp(F(1, 9), Watched(LINE).function, None) != -2


def test_line_three_as_printed_would_find_its_own_start_again():
    """Why the code departs from the box: AFFINE(x_L) lies on the other side of ``a``."""
    f, epsilon, a = Watched(LINE).function, DELTA**2, F(-2)
    left, right = -1 / DELTA, 1 / DELTA
    for _ in range(halvings(DELTA) + 1):
        middle = (left + right) / 2
        one, other = (affine(f, epsilon, rationals([x])) for x in (left, middle))
        if middle <= a or one.equals(other):
            left = middle
        else:
            right = middle
    assert left < a < right


def test_on_the_half_axis_nothing_outside_is_asked():
    watched = Watched(LINE)
    assert critical_points(DELTA, watched.function, 0, positive=True) == [1, F(5, 2)]
    assert min(x for (x,) in watched.asked) > 0


def test_steps_on_the_grid_end_within_half_of_delta():
    # As Lemma 13 needs: the last interval is no longer than the shortest piece.
    assert 2 / DELTA / 2 ** (halvings(DELTA) + 1) <= DELTA / 2


@pytest.mark.parametrize("seed", range(4))
def test_find_hp_and_is_convex_give_a_unit_up_to_sign(seed):
    network = random_rational_network(3, 3, 1, rng=seed)
    (w, u), (b, _) = network.weights, network.biases
    watched = Watched(network)
    delta = F(1, 10**5)
    for j in range(3):
        x = rationals([-b[j] / w[j, 0], 0, 0])
        found = find_hp(watched.function, delta, x)
        size = abs(u[0, j])
        same = (found.weights == size * w[j]).all() and found.bias == size * b[j]
        turned = (found.weights == -size * w[j]).all() and found.bias == -size * b[j]
        assert same or turned
        assert found(x) == 0
        assert is_convex(watched.function, delta, x) == (u[0, j] > 0)
        assert not is_general(watched.function, delta, x)
        assert is_general(watched.function, delta, x + rationals([F(1, 1000), 0, 0]))


def test_find_hp_steps_by_half_of_delta_and_its_square():
    watched = Watched(LINE)
    find_hp(watched.function, DELTA, rationals([1]))
    beside = [1 + DELTA / 2, 1 + DELTA / 2 + DELTA**2 / 4, 1 - DELTA / 2]
    assert [x for (x,) in watched.asked] == [*beside, 1 - DELTA / 2 + DELTA**2 / 4]


def test_a_delta_that_is_too_large_is_told():
    # Two critical points within one step of the grid; the outer pieces meet at 11.
    near = RationalNetwork([[[1], [1]], [[1, F(-1001, 1000)]]], [[-1, F(-101, 100)], [0]])
    with pytest.raises(Irregular, match="pieces"):
        critical_points(F(1, 11), Watched(near).function, 0)
    square = Function(1, lambda t: (t[:, 0] ** 2, 0 * t[:, 0]), Fraction)
    with pytest.raises(Irregular, match="pieces"):
        critical_points(F(1, 9), square, 0)
    with pytest.raises(Irregular, match="neither"):
        is_convex(Watched(LINE).function, F(1, 9), rationals([F(3, 2)]))


def test_in_float64_equal_means_within_the_errors():
    def answer(points):
        values = np.abs(points[:, 0] - 1.0 / 3.0)
        return values + 1e-12 * np.sin(1e9 * values), np.full(len(points), 1e-12)

    f = Function(1, answer, float)
    (x,) = critical_points(0.01, f, 0)
    # Slopes are good within 2e-12 / delta^2, values within that times x: the kink within 1e-8.
    assert math.isclose(x, 1.0 / 3.0, abs_tol=1e-7)


# ---------------------------------------------------------------------- algebra


def test_elimination_is_exact():
    rng = np.random.default_rng(0)
    matrix = rationals(rng.integers(-9, 10, (3, 5)))
    inverse = right_inverse(matrix)
    assert (matrix @ inverse == rationals(np.eye(3, dtype=int))).all()
    dependent = np.vstack([matrix, matrix[:1] + matrix[1:2]])
    assert right_inverse(dependent) is None
    assert len(eliminated(dependent, 5)[1]) == 3
    assert matrix[0] @ project(matrix[1], matrix[0]) == 0


def test_the_one_subset_with_a_sum():
    rows = random_rational_network(3, 6, 1, rng=0).weights[0]
    chosen = (True, False, True, True, False, False)
    total = rows[[0, 2, 3]].sum(axis=0)
    assert subset_that_sums(rows, total) == chosen
    assert subset_that_sums(rows, total + F(1, 7)) is None
    twice = np.vstack([rows, rows[:1]])
    assert subset_that_sums(twice, total) is None  # two of them
