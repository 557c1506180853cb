"""The path along the axes of the orthant."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_answers import Saturated
from unrelu.extraction.deep_orthant import OrthantSearch
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.planted import random_network


def recover_on_orthant(*args, **options):
    search = OrthantSearch(*args, **options)
    search.axes()
    return search.units


def noise(m):
    return NoiseModel(np.full(m, 2e-16), np.full(m, 2e-16))


def meets_the_orthant(network):
    """Whether each unit has a kink for some s >= 0."""
    v, c = network.weights[0], network.biases[0]
    return ((v * -np.sign(c)[:, None]) > 0).any(axis=1)


@pytest.mark.parametrize("shape", [(5, 20, 1), (10, 10, 1), (6, 12, 3), (1, 4, 1), (2, 20, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_units_and_values(shape, seed):
    truth = random_network(*shape, rng=seed)
    inside = []

    def ask(s):
        inside.append(bool((s >= 0).all()))
        return truth(s)

    units = recover_on_orthant(
        connect(ask, input_dim=shape[0]), shape[0], noise(shape[-1]),
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    assert all(inside)
    assert len(units.weights) == meets_the_orthant(truth).sum()
    g = np.random.default_rng(100 + seed)
    s = np.abs(g.standard_normal((2000, shape[0]))) * (g.random((2000, shape[0])) < 0.7)
    # Rounding of 1e-16 over steps of 1e-3 and more, at distances of a few.
    assert np.abs(units(s) - truth(s)).max() < 1e-9
    network, _ = units.network()
    assert np.abs(network(s) - units(s)).max() < 1e-12


def test_units_come_out_off_at_the_corner():
    truth = random_network(6, 10, 1, rng=9)
    units = recover_on_orthant(connect(truth), 6, noise(1), rng=np.random.default_rng(0))
    assert (units.biases <= 0).all()
    found = np.concatenate([units.weights, units.biases[:, None]], axis=1)
    true = np.concatenate([truth.weights[0], truth.biases[0][:, None]], axis=1)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    best = np.abs(found @ true.T).max(axis=1)
    assert (1.0 - best < 1e-12).all()


def test_an_affine_function_has_no_units():
    truth = ReLUNetwork([[[1.0, 2.0], [-1.0, -2.0]], [[1.0, -1.0]]], [[0.5, -0.5], [0.0]])
    units = recover_on_orthant(connect(truth), 2, noise(1), rng=np.random.default_rng(0))
    assert len(units.weights) == 0
    np.testing.assert_allclose(units.linear, [[1.0, 2.0]], atol=1e-12)


def test_too_many_units_end_the_search():
    truth = random_network(5, 20, 1, rng=0)
    units = recover_on_orthant(
        connect(truth), 5, noise(1), rng=np.random.default_rng(0), max_units=3
    )
    assert units.open_axes == 5


def test_a_ray_shows_units_beyond_the_end_of_the_answers():
    # One unit meets every axis at 20, where answers have ended at 10; the ray to (9, 9, 9)
    # crosses it.
    truth = ReLUNetwork(
        [np.array([[1.0, 1.0, 1.0], [1.0, -0.5, 0.3]]), np.array([[1.0, 2.0]])],
        [np.array([-20.0, -1.0]), np.zeros(1)],
    )

    def ask(s):
        return np.where((s <= 10.0).all(axis=1)[:, None], truth(s), np.nan)

    search = OrthantSearch(ask, 3, noise(1), rng=np.random.default_rng(0))
    search.axes()
    assert len(search.units.weights) == 1
    # The last of the halvings of 100 that is answered is 6.25, and 1.5 times that.
    np.testing.assert_allclose(search.ends, 9.375)
    assert not search.toward(np.array([2.0, 2.0, 2.0]))
    assert search.toward(np.array([9.0, 9.0, 9.0]))
    assert len(search.units.weights) == 2
    s = np.random.default_rng(1).uniform(0.0, 10.0, (500, 3))
    np.testing.assert_allclose(search.units(s), truth(s), rtol=0, atol=1e-11)


def test_a_corner_without_an_answer_is_named():
    with pytest.raises(Saturated):
        OrthantSearch(
            lambda s: np.full((len(s), 1), np.nan), 2, noise(1), rng=np.random.default_rng(0)
        )
