"""The line search: every kink, few answers, few rounds, honest about noise."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import decimal_step, estimate_noise
from unrelu.lines.kinks import find_kinks
from unrelu.lines.survey import SurveyLine, calibrate, scan_line


def piecewise(kinks, jumps, slope=0.3):
    """A function on a line with given kinks; counts its calls and answers."""
    kinks, jumps = np.asarray(kinks, float), np.atleast_2d(np.asarray(jumps, float).T).T

    def f(t):
        f.calls += 1
        f.asked += len(t)
        return slope * t[:, None] + np.maximum(t[:, None] - kinks, 0.0) @ jumps

    f.calls = f.asked = 0
    return f


def seeds(f, positions, spacing=1e-3):
    t = np.asarray(positions, float)[:, None] + spacing * np.arange(4)
    return [(row, f(row)) for row in t]


def noise(level=1e-15):
    return lambda t: np.full((len(t), 1), level)


@pytest.mark.parametrize("seed", range(8))
def test_all_kinks_are_found_in_few_answers(seed):
    rng = np.random.default_rng(seed)
    kinks = np.sort(rng.uniform(-1, 1, 30))
    f = piecewise(kinks, rng.standard_normal(30))
    scan = find_kinks(f, noise(), seeds(f, [-1.2, 0.0, 1.2]))
    asked = f.asked
    assert scan.complete
    assert scan.resolved.all()
    # A kink is known to the noise over the jump; 1e-15 over the smallest of 30 jumps, and some.
    np.testing.assert_allclose(scan.kinks, kinks, atol=1e-10)
    np.testing.assert_allclose(scan.jumps[:, 0], f_jumps(f, kinks), atol=1e-7)
    assert asked < 8 * 30 + 12
    assert scan.rounds < 60


def f_jumps(f, kinks):
    """Second differences at the kinks, over steps that reach no neighbour."""
    room = 0.3 * np.minimum(np.diff(kinks, prepend=-2), np.diff(kinks, append=2))
    values = [f(kinks + s * room)[:, 0] for s in (-1.0, 0.0, 1.0)]
    return (values[0] - 2 * values[1] + values[2]) / room


def test_every_round_is_one_call():
    f = piecewise([0.1, 0.2, 0.7], [1.0, -1.0, 2.0])
    start = seeds(f, [-1.0, 1.0])
    f.calls = 0
    scan = find_kinks(f, noise(), start)
    assert f.calls == scan.rounds


def test_no_kink_costs_nothing():
    f = piecewise([5.0], [1.0])
    start = seeds(f, [-1.0, 0.0, 1.0])
    asked = f.asked
    scan = find_kinks(f, noise(), start)
    assert len(scan.kinks) == 0
    assert f.asked == asked


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_two_close_kinks_are_told_apart(gap):
    f = piecewise([0.3, 0.3 + gap], [1.0, 1.7])
    scan = find_kinks(f, noise(), seeds(f, [-1.0, 1.0]))
    np.testing.assert_allclose(scan.kinks, [0.3, 0.3 + gap], atol=1e-3 * gap)


def test_a_step_between_parallel_pieces_is_two_kinks():
    f = piecewise([0.3, 0.3 + 1e-6], [2.0, -2.0])
    scan = find_kinks(f, noise(), seeds(f, [-1.0, 1.0]))
    np.testing.assert_allclose(scan.kinks, [0.3, 0.3 + 1e-6], atol=1e-9)


def test_kinks_over_many_orders_of_magnitude():
    kinks = np.array([-3e5, -40.0, -1e-3, 2e-4, 7.0, 1e4])
    f = piecewise(kinks, [1.0, -2.0, 0.5, 1.5, -1.0, 3.0])
    start = seeds(f, [-1e7, 0.5, 1e7 - 1.0])
    # Terms of size 3e5 cancel near zero: answers there err by up to 3e5 * 2^-53 * a few.
    scan = find_kinks(f, lambda t: 1e-10 + 1e-15 * np.abs(t[:, None]), start, scale=1.0)
    np.testing.assert_allclose(scan.kinks, kinks, rtol=1e-8, atol=1e-9)


def test_vector_outputs_share_kinks_but_not_jumps():
    kinks = np.array([-0.5, 0.1, 0.6])
    jumps = np.array([[1.0, 0.0], [0.0, -2.0], [1.0, 1.0]])  # the first is silent in output 2
    f = piecewise(kinks, jumps)
    start = seeds(f, [-1.0, 1.0])
    scan = find_kinks(f, lambda t: np.full((len(t), 2), 1e-15), start)
    np.testing.assert_allclose(scan.kinks, kinks, atol=1e-12)
    np.testing.assert_allclose(scan.jumps, jumps, atol=1e-9)


def test_the_limit_on_queries_is_kept_and_told():
    rng = np.random.default_rng(0)
    f = piecewise(np.sort(rng.uniform(-1, 1, 50)), rng.standard_normal(50))
    start = seeds(f, [-1.2, 1.2])
    f.asked = 0
    scan = find_kinks(f, noise(), start, max_queries=40)
    assert not scan.complete
    assert f.asked <= 40
    again = find_kinks(f, noise(), scan.clusters())
    assert len(again.kinks) == 50


def test_a_noisy_line_has_no_false_kinks():
    rng = np.random.default_rng(1)
    kinks = np.array([-0.4, 0.3])
    exact = piecewise(kinks, [1.0, -2.0])

    def f(t):
        return exact(t) + 1e-4 * rng.standard_normal((len(t), 1))

    scan = find_kinks(f, noise(1e-4), seeds(f, [-1.0, 0.0, 1.0], spacing=0.03))
    assert len(scan.kinks) == 2
    # Pieces of length about 0.6 with a few answers each: kinks to some 1e-4 over the jump.
    np.testing.assert_allclose(scan.kinks, kinks, atol=5e-3)


def test_an_underestimated_noise_is_escalated():
    rng = np.random.default_rng(2)

    def ask(points):
        y = np.abs(points[:, :1])
        return y + 1e-9 * rng.standard_normal(y.shape)

    line = SurveyLine(np.zeros(2), np.array([0.8, 0.6]), -1.0, 1.0, np.inf)
    model, start = calibrate(ask, line, near=np.inf)
    scan, used = scan_line(ask, line, model.scaled(1e-3), start)
    assert used.absolute[0] > 3e-10
    assert len(scan.kinks) == 1


def test_noise_of_each_kind_is_measured():
    def clusters(f):
        positions = np.array([-1e3, -1.0, 0.3, 1.0, 1e3])
        return estimate_noise(
            lambda t: f(t)[:, None], np.abs, positions, np.maximum(1.0, np.abs(positions)), near=10
        )[0]

    rng = np.random.default_rng(3)
    exact = clusters(lambda t: 0.3 + 0.7 * t)
    assert exact.absolute[0] < 1e-15
    noisy = clusters(lambda t: t + 1e-6 * rng.standard_normal(len(t)))
    assert 2e-7 < noisy.absolute[0] < 5e-6
    rounded = clusters(lambda t: np.round(0.3 + 0.7 * t, 4))
    # Uniform rounding to 1e-4 has the deviation 1e-4 / sqrt(12).
    assert 2e-5 < rounded.absolute[0] < 1e-4
    single = clusters(lambda t: (0.3 + 0.7 * t).astype(np.float32).astype(float))
    assert 1e-8 < single.absolute[0] < 1e-6
    assert 1e-8 < single.growth[0] < 1e-6
    # Units that saturate far out show no rounding there; short of it theirs grows with the input.
    saturated = clusters(
        lambda t: np.clip((0.3 + 0.7 * t).astype(np.float32).astype(float), -9, 9)
    )
    assert 1e-9 < saturated.growth[0] < 1e-6


def test_a_decimal_grid_is_seen_beside_answers_too_large_for_it():
    rng = np.random.default_rng(0)
    near = np.round(rng.standard_normal(40), 8)
    far = np.round(1e8 * rng.standard_normal(40), 8)  # eight decimals of these are no number
    assert decimal_step(np.concatenate([near, far])) == 1e-8
    assert decimal_step(np.concatenate([np.zeros(40), 1e8 * rng.standard_normal(40)])) == 0.0
    assert decimal_step(np.concatenate([near, rng.standard_normal(1)])) == 0.0
    assert decimal_step(rng.standard_normal(40)) == 0.0
