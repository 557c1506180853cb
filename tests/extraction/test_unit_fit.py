"""Least squares over all answers: exact where it can be, robust where it must be."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from unrelu import planted
from unrelu.core.units import Units
from unrelu.extraction.unit_fit import fit_size, fit_units


def units_of(network, rng):
    """The units of a network as an extraction finds them: somewhere along each hyperplane."""
    w, u = network.weights
    b, c = network.biases
    anchors = rng.standard_normal(w.shape)
    anchors -= ((np.einsum("kd,kd->k", w, anchors) + b) / (w**2).sum(axis=1))[:, None] * w
    base = rng.standard_normal(w.shape[1])
    axes = np.tile(np.eye(w.shape[1])[0], (len(w), 1))
    return Units(w, anchors, u, np.zeros((len(c), w.shape[1])), base, network(base[None])[0], axes)


def disturbed(units, size, rng):
    """The same units, each direction off by about ``size``."""
    return dataclasses.replace(
        units,
        weights=units.weights + size * rng.standard_normal(units.weights.shape),
        linear=units.linear + size * rng.standard_normal(units.linear.shape),
        outputs=units.outputs * (1.0 + size * rng.standard_normal(units.outputs.shape)),
    )


def problem(seed, shape=(6, 5, 1), noise=1e-6):
    rng = np.random.default_rng(seed)
    truth = planted.random_network(*shape, rng=seed)
    units = units_of(truth, rng)
    start = disturbed(units, 1e-4, rng)
    covariance = 1e-8 * np.eye(shape[2] + shape[1])
    x = rng.standard_normal((6 * fit_size(units) // shape[2], shape[0]))
    x[::2] *= 5.0
    answers = truth(x) + noise * rng.standard_normal((len(x), shape[2]))
    return truth, start, covariance, x, answers, np.full(answers.shape, noise)


def error(truth, units, seed=5):
    x = np.random.default_rng(seed).standard_normal((2000, truth.input_dim))
    return float(np.sqrt(np.mean((units(x) - truth(x)) ** 2)))


@pytest.mark.parametrize("shape", [(6, 5, 1), (4, 12, 1), (8, 4, 3), (1, 3, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_error_falls_below_the_noise_of_one_answer(seed, shape):
    truth, start, covariance, x, answers, deviations = problem(seed, shape)
    assert error(truth, start) > 1e-5
    fitted, after = fit_units(start, covariance, x, answers, deviations)
    assert error(truth, fitted) < 1e-6
    assert after.shape == covariance.shape
    assert np.linalg.eigvalsh(after).min() >= -1e-20
    assert np.diagonal(after).max() <= 1e-8 * (1 + 1e-9)


@pytest.mark.parametrize("skip", [True, False])
def test_predicted_covariance_is_of_the_size_of_the_errors(skip):
    truth, start, covariance, x, answers, deviations = problem(3, (10, 6, 1))
    fitted, after = fit_units(start, covariance, x, answers, deviations, skip=skip)
    predicted = np.sqrt(np.diagonal(after)[1:])
    w, u = truth.weights
    out = fitted.outputs[0][:, None]  # a unit's scale is free
    off = np.sqrt(np.mean((fitted.weights - u[0][:, None] * w / out) ** 2, axis=1))
    ratio = off / predicted
    assert ratio.min() > 0.2
    assert ratio.max() < 4.0
    assert np.any(fitted.linear) == skip


def test_common_factor_of_the_deviations_does_not_matter():
    _, start, covariance, x, answers, deviations = problem(1)
    one = fit_units(start, covariance, x, answers, deviations)
    other = fit_units(start, covariance, x, answers, 7.0 * deviations)
    np.testing.assert_allclose(one[0].weights, other[0].weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-6, atol=1e-20)


def test_a_few_wrong_answers_do_not_bend_the_rest():
    truth, start, covariance, x, answers, deviations = problem(2)
    answers[::40] += 0.3
    fitted, _ = fit_units(start, covariance, x, answers, deviations)
    assert error(truth, fitted) < 3e-6


def test_what_no_answer_determines_stays():
    truth, start, _, x, answers, deviations = problem(4)
    far = dataclasses.replace(
        start,
        weights=np.vstack([start.weights, np.eye(6)[:1]]),
        anchors=np.vstack([start.anchors, np.full((1, 6), 1e3)]),
        outputs=np.hstack([start.outputs, [[1.0]]]),
        axes=np.vstack([start.axes, start.axes[:1]]),
    )
    fitted, _ = fit_units(far, 1e-8 * np.eye(7), x, answers, deviations)
    np.testing.assert_array_equal(fitted.weights[-1], np.eye(6)[0])
    assert error(truth, fitted) < 1e-6


def test_too_few_answers_change_nothing():
    _, start, covariance, x, answers, deviations = problem(0)
    few = fit_size(start)
    assert fit_units(start, covariance, x[:few], answers[:few], deviations[:few]) is None


def test_exact_units_with_exact_answers_change_nothing():
    _, start, covariance, x, _, deviations = problem(0)
    assert fit_units(start, covariance, x, start(x), deviations) is None


def test_answers_that_differ_from_a_batch_by_rounding_are_exact():
    """Term by term the same sum differs in its last bits from the fit's own batches."""
    _, start, covariance, x, _, deviations = problem(0)
    z = sum(x[:, [j]] * start.weights[:, j] for j in range(6)) + start.biases
    answers = x @ start.linear.T + start.constant + np.maximum(z, 0.0) @ start.outputs.T
    assert np.any(answers != start(x))
    assert fit_units(start, covariance, x, answers, deviations) is None


@pytest.mark.parametrize("left", [0.0, 1e-157, 1e-20])
def test_a_network_that_is_off_at_most_points_leaves_no_scale(left):
    """Its answers are exact there, and what the constant is off by is no noise."""
    _, start, covariance, x, _, deviations = problem(1)
    beyond = 2.0 * np.abs(x).max() * np.sign(start.weights)
    off = dataclasses.replace(
        start, anchors=beyond, linear=np.zeros((1, 6)), value=np.array([left])
    )
    np.testing.assert_array_equal(off(x), left)
    assert fit_units(off, covariance, x, np.zeros((len(x), 1)), deviations, skip=False) is None
