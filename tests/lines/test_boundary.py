import numpy as np

from unrelu.lines.boundary import halve_brackets


def test_brackets_are_halved_to_their_own_width_and_no_further():
    cuts = np.array([0.3, -0.2])
    finest = np.array([2.0**-19, 2.0**-4])
    asked = []

    def inside(points, lines):
        asked.append(len(lines))
        return points[:, 0] <= cuts[lines]

    low, high = halve_brackets(
        inside, np.zeros((2, 2)), np.tile([1.0, 0.0], (2, 1)), np.full(2, -1.0), np.full(2, 1.0),
        finest,
    )  # fmt: skip
    np.testing.assert_array_equal(high - low, finest)
    assert np.all((low <= cuts) & (cuts <= high))
    # 2 to 2^-19 takes 20 halvings, 2 to 2^-4 five; both go together.
    assert asked == 5 * [2] + 15 * [1]


def test_a_bracket_with_no_number_inside_is_closed():
    one = np.array([1.0])
    low, high = halve_brackets(
        lambda points, lines: points[:, 0] <= 1.0, np.zeros((1, 1)), np.ones((1, 1)), one,
        np.nextafter(one, 2.0), 0.0,
    )  # fmt: skip
    assert low == high
