"""Units and rows measured again where they have room."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_room import RoomConfig, confirm, measure_again, safe_steps
from unrelu.extraction.deep_rows import Rows
from unrelu.extraction.deep_rows_again import measure_rows_again
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.lines.gradients import GradientConfig
from unrelu.planted import random_network

CONFIG = RoomConfig()
EPS = 2e-16


def noise(m):
    return NoiseModel(np.full(m, EPS), np.full(m, EPS))


def planted(k, n, m, seed):
    """Units that are off at the corner, and bend on the orthant."""
    g = np.random.default_rng(seed)
    v = g.standard_normal((n, k)) / np.sqrt(k)
    v[:, 0] = np.abs(v[:, 0])
    u = g.standard_normal((m, n))
    u /= np.linalg.norm(u, axis=0)
    a, c = g.standard_normal((m, k)), -g.uniform(0.3, 1.0, n)
    none = np.zeros(n)
    return OrthantUnits(a, np.zeros(m), v, c, u, none, none, settled=none > 0)


def shaken(units, size, seed):
    g = np.random.default_rng(seed)
    found = planted(units.weights.shape[1], len(units.weights), len(units.outputs), 0)
    found.linear, found.constant = units.linear, units.constant
    found.weights = units.weights + size * g.standard_normal(units.weights.shape)
    found.biases = units.biases + size * g.standard_normal(units.biases.shape)
    found.outputs = units.outputs + size * g.standard_normal(units.outputs.shape)
    found.outputs /= np.linalg.norm(found.outputs, axis=0)
    if len(units.outputs) == 1:
        found.outputs = units.outputs.copy()
    return found


def again(truth, found, which, seed=0):
    class Inward(np.random.Generator):
        def standard_normal(self, *args, **kwargs):
            return np.abs(super().standard_normal(*args, **kwargs))

    return measure_again(
        lambda s: truth(s) - found(s), found, which, noise(len(truth.outputs)), 0.5,
        rng=Inward(np.random.PCG64(seed)), config=CONFIG, gradient_config=GradientConfig(),
    )  # fmt: skip


@pytest.mark.parametrize(("k", "n", "m"), [(20, 8, 1), (30, 10, 3)])
def test_units_are_corrected_to_rounding(k, n, m):
    truth = planted(k, n, m, 1)
    found = shaken(truth, 1e-7, 2)
    which, agreed = again(truth, found, np.arange(n))
    np.testing.assert_array_equal(which, np.arange(n))
    assert agreed.all()
    # Rounding of 1e-15 over steps of a hundredth and more, in up to thirty directions.
    assert np.abs(found.weights - truth.weights).max() < 1e-11
    assert np.abs(found.biases - truth.biases).max() < 1e-11
    assert np.abs(found.outputs - truth.outputs).max() < 1e-11
    # What is claimed is not too little.
    off = np.linalg.norm(found.weights - truth.weights, axis=1)
    assert (off <= 10.0 * found.errors + 1e-15).all()
    assert found.settled.all()


def test_a_unit_that_is_none_is_not_confirmed():
    truth = planted(15, 6, 1, 3)
    found = planted(15, 7, 1, 3)
    for name in ("weights", "biases", "outputs"):
        old, new = getattr(truth, name), getattr(found, name)
        new[..., :6] = old if name == "outputs" else new[..., :6]
    found.weights[:6], found.biases[:6] = truth.weights, truth.biases
    found.linear = truth.linear
    residual = lambda s: truth(s) - found(s)  # noqa: E731
    sure = confirm(
        residual, found, np.arange(7), noise(1), rng=np.random.default_rng(0), config=CONFIG
    )
    np.testing.assert_array_equal(sure, np.arange(7) < 6)
    _, agreed = again(truth, found, np.array([6]))
    assert not agreed.any()


def test_steps_end_before_the_next_hyperplane():
    slopes = np.array([[1.0, 0.0], [0.5, 2.0]])
    steps = safe_steps(np.array([[0.2, -1.0]]), slopes, 0.5, np.array([0.3]))
    # 0.2 along the first axis, 0.5 along the second; half of it, and no more than 0.3.
    np.testing.assert_allclose(steps, [[0.1, 0.25]])


@pytest.mark.parametrize("m", [1, 3])
def test_a_badly_known_row_is_measured_again(m):
    truth = random_network(30, 8, 6, m, rng=4)
    w, b = truth.weights[0], truth.biases[0]
    length = np.linalg.norm(w, axis=1)
    w, b = w / length[:, None], b / length
    g = np.random.default_rng(5)
    off = w + 1e-7 * g.standard_normal(w.shape)
    off /= np.linalg.norm(off, axis=1, keepdims=True)
    std = np.where(np.arange(8) < 3, 1e-7, 1e-12)
    off[3:] = w[3:]
    rows = Rows(np.eye(30), off, std, -b[:, None] * off)
    found = measure_rows_again(truth, rows, noise(m), scale=np.sqrt(30.0), rng=g)
    # Those that were known stay; the others gain four digits, and say so.
    np.testing.assert_array_equal(found.weights[3:], off[3:])
    assert np.abs(found.weights - w).max() < 1e-11
    assert np.abs(found.biases - b).max() < 1e-10
    assert (found.std < 1e-9).all()
