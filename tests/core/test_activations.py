"""Activations: slopes against differences, mirrors and disguises against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import InvalidInput
from unrelu.core.activations import KINDS, RELU, SMOOTH, Activation, activation, spline

NAMES = [name for name in KINDS if name != "spline"]
Z = np.random.default_rng(0).uniform(-8.0, 8.0, size=(200, 3))


@pytest.mark.parametrize("name", NAMES)
def test_slope_is_the_derivative(name):
    phi, h = activation(name), 1e-5
    difference = (phi(Z + h) - phi(Z - h)) / (2 * h)
    # Curvature below 2 over h^2 / 6, rounding 1e-15 over h; none of the points is at a kink.
    np.testing.assert_allclose(phi.slope(Z), difference, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_mirror_is_what_it_says(name):
    phi = activation(name)
    mirror = phi.mirror
    if mirror is None:
        assert name == "elu"
        return
    expected = mirror.sign * phi(Z) + mirror.slope * Z + mirror.offset
    # A few roundings of numbers below 10.
    np.testing.assert_allclose(phi(2 * mirror.center - Z), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", [n for n in NAMES if KINDS[n].disguise is not None])
def test_disguise_is_what_it_says(name):
    disguise = KINDS[name].disguise
    inner = activation(disguise.usual)(disguise.inner * Z + disguise.shift)
    expected = disguise.scale * inner + disguise.offset
    np.testing.assert_allclose(activation(name)(Z), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_homogeneous_ones_scale(name):
    phi = activation(name)
    scales = bool(np.allclose(phi(3.0 * Z), 3.0 * phi(Z), rtol=0, atol=1e-12))
    assert scales == phi.homogeneous


def test_parameters_of_each_unit():
    phi = activation("prelu", [0.1, 0.5, -1.0])
    z = np.array([[-2.0, -2.0, -2.0], [2.0, 2.0, 2.0]])
    np.testing.assert_array_equal(phi(z), [[-0.2, -1.0, 2.0], [2.0, 2.0, 2.0]])
    assert phi.taken([2, 0]) == activation("leaky_relu", [-1.0, 0.1])
    assert phi.mirror is None  # each unit has one of its own
    assert activation("leaky_relu", 0.1).mirror.slope == -1.1


def test_spline_goes_through_its_values_and_on_straight():
    t = np.linspace(-2.0, 2.0, 41)
    phi = spline(np.array([-2.0]), np.array([2.0]), np.sin(t)[None, :])
    np.testing.assert_allclose(phi(t[:, None])[:, 0], np.sin(t), rtol=0, atol=1e-14)
    beyond = phi(np.array([[3.0], [4.0], [5.0]]))[:, 0]
    np.testing.assert_allclose(np.diff(beyond, 2), 0.0, atol=1e-12)


def test_names_and_errors():
    assert activation("Sigmoid").name == "logistic"
    assert activation(RELU) is RELU
    assert str(activation("softplus", 2.0)) == "softplus(2)"
    assert activation("tanh") == activation("tanh") != activation("sine")
    assert {activation("tanh"), activation("tanh")} == {Activation("tanh", np.empty(0))}
    assert set(SMOOTH) <= KINDS.keys()
    for bad in (("mish",), ("tanh", 1.0), ("spline",)):
        with pytest.raises(InvalidInput):
            activation(*bad)
