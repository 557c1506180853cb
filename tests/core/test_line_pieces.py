"""Affine fits on a line and their crossings, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.pieces import cross, fit_piece


def line(t, value, slope):
    return np.asarray(value) + np.multiply.outer(t, np.asarray(slope))


def test_an_exact_line_is_recovered_with_its_variances():
    t = np.array([-2.0, -1.0, 1.0, 2.0])
    std = np.full((4, 2), 0.1)
    piece = fit_piece(t, line(t, [1.0, -3.0], [2.0, 0.5]), std)
    assert piece.center == pytest.approx(0.0)
    np.testing.assert_allclose(piece.predict(7.0), [15.0, 0.5], atol=1e-12)  # rounding
    # Textbook: var(mean) = s^2 / n and var(slope) = s^2 / sum (t - mean)^2.
    np.testing.assert_allclose(piece.value_var, 0.01 / 4)
    np.testing.assert_allclose(piece.slope_var, 0.01 / 10)
    assert piece.misfit == pytest.approx(0.0, abs=1e-12)


def test_predicted_variance_matches_repeated_noise():
    rng = np.random.default_rng(0)
    t = np.array([0.0, 0.3, 1.0, 1.1])
    std = np.array([[0.1], [0.2], [0.1], [0.3]])
    truth = line(t, [1.0], [2.0])
    predictions = [
        fit_piece(t, truth + std * rng.standard_normal((4, 1)), std).predict(5.0)[0]
        for _ in range(4000)
    ]
    expected = fit_piece(t, truth, std).variance(5.0)[0]
    # The variance of 4000 normal draws is known to 1 / sqrt(2000), about 2.2 %: five of those.
    assert np.var(predictions) == pytest.approx(expected, rel=0.11)


def test_a_point_off_the_line_shows_as_misfit_even_with_high_leverage():
    t = np.array([0.0, 0.01, 10.0])
    std = np.full((3, 1), 1e-3)
    y = line(t, [0.0], [1.0])
    # The pair predicts the far point with a deviation of about 1.4e-3 * 1000.
    y[2] += 30 * 1.4
    assert fit_piece(t, y, std).misfit == pytest.approx(30, rel=0.05)


def test_crossing_of_two_pieces_in_all_outputs():
    std = np.full((2, 2), 1e-9)
    left = fit_piece(np.array([0.0, 1.0]), line(np.array([0.0, 1.0]), [0, 0], [1, 2]), std)
    t = np.array([3.0, 4.0])
    right = fit_piece(t, np.array([2.0, 4.0]) + np.multiply.outer(t - 2.0, [5.0, -1.0]), std)
    meet = cross(left, right)
    assert meet.t == pytest.approx(2.0, abs=1e-12)
    np.testing.assert_allclose(meet.jump, [4.0, -3.0], atol=1e-12)
    assert meet.misfit < 1e-3


def test_outputs_that_meet_at_different_points_are_no_single_kink():
    std = np.full((2, 2), 1e-9)
    t = np.array([0.0, 1.0])
    left = fit_piece(t, line(t, [0, 0], [0, 0]), std)
    u = np.array([3.0, 4.0])
    right = fit_piece(u, np.stack([u - 2.0, u - 2.5], axis=1), std)
    assert cross(left, right).misfit > 1e6


def test_parallel_pieces_do_not_meet():
    std = np.full((2, 1), 1.0)
    t = np.array([0.0, 1.0])
    left = fit_piece(t, np.zeros((2, 1)), std)
    right = fit_piece(t + 5.0, np.ones((2, 1)), std)
    assert np.isnan(cross(left, right).t)
