"""Tests that tell a residual that depends on x from noise."""

import numpy as np
import pytest

from unrelu.core.piecewise import Kinks
from unrelu.gaussian.config import SampleOptions
from unrelu.gaussian.residual import find_structure, rows_between_kinks, visible_misfit

OPTIONS = SampleOptions()


def points(seed, n, d):
    rng = np.random.default_rng([seed, 3])
    return rng, rng.standard_normal((n, d))


@pytest.mark.parametrize("tails", ["gaussian", "student", "two values", "skewed"])
def test_noise_of_any_law_is_noise(tails):
    for seed in range(10):
        rng, x = points(seed, 3000, 3)
        noise = {
            "gaussian": rng.standard_normal(3000),
            "student": rng.standard_t(2, 3000),
            "two values": rng.choice([-1.0, 1.0], 3000),
            "skewed": rng.exponential(1.0, 3000),
        }[tails]
        units = rng.standard_normal((3, 3))
        assert find_structure(x, noise, units, np.eye(3), rng, OPTIONS) == ""


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        (lambda x: np.cos(3 * x[:, 0]), "input 1"),
        (lambda x: np.sin(12 * x[:, 1]), "along|neighbouring"),
        (lambda x: np.sign(x[:, 0] * x[:, 1] * x[:, 2]), "along|neighbouring"),
    ],
)
def test_a_misfit_that_the_samples_can_show_is_seen(shape, where):
    rng, x = points(1, 6000, 3)
    misfit = shape(x)
    # Three times the least misfit that shows along a line.
    misfit *= 3.0 * visible_misfit(6000) / misfit.std()
    left = misfit + rng.standard_normal(6000)
    found = find_structure(x, left, np.empty((0, 3)), np.eye(3), rng, OPTIONS)
    assert any(word in found for word in where.split("|")), found


def test_a_few_large_residuals_on_one_side_are_seen():
    rng, x = points(2, 4000, 4)
    left = rng.standard_normal(4000)
    anywhere = left.copy()
    anywhere[:6] += 40.0
    assert find_structure(x, anywhere, np.empty((0, 4)), np.eye(4), rng, OPTIONS) == ""
    rare = x[:, 0] > np.sort(x[:, 0])[-7]
    left[rare] += 40.0
    assert "6 samples" in find_structure(x, left, np.empty((0, 4)), np.eye(4), rng, OPTIONS)


def test_kinks_that_stand_for_a_jump_have_no_samples_between_them():
    _, x = points(3, 2000, 2)
    steep = np.array([[1e4, 0.0, 0.0], [-1e4, 0.0, 1.0]])
    assert rows_between_kinks(Kinks(steep, np.ones(2), None, "relu"), x) < 3
    apart = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, -0.5]])
    between = np.count_nonzero((x[:, 0] > 0.0) & (x[:, 0] <= 0.5))
    assert rows_between_kinks(Kinks(apart, np.ones(2), None, "relu"), x) == between
