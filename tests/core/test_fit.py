"""The one fit: derivatives against differences, steps against dense algebra, its efficiency."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from unrelu.core import fit
from unrelu.core.fit import FitConfig, Layered, fit_network
from unrelu.core.kronecker import kronecker_metric
from unrelu.core.links import apply_link

SHAPES = [((6, 5, 1), False), ((5, 4, 3), True), ((7, 5, 4, 3), False), ((4, 6, 3, 5, 2), True)]


def planted(widths, seed, *, skip=False):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((m, d)) / np.sqrt(d) for d, m in itertools.pairwise(widths)]
    biases = [0.3 * rng.standard_normal(m) for m in widths[1:]]
    return Layered(weights, biases, rng.standard_normal((widths[-1], widths[0])) if skip else None)


def shaken(net, size, seed):
    rng = np.random.default_rng(seed)
    return net.moved([size * rng.standard_normal(block.shape) for block in net.blocks()])


def direction(net, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(block.shape) for block in net.blocks()]


def inner(first, second):
    return sum(float(np.sum(a * b)) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("widths", "skip"), SHAPES)
def test_forward_is_the_derivative(widths, skip):
    net = planted(widths, 0, skip=skip)
    x = np.random.default_rng(1).standard_normal((40, widths[0]))
    step = direction(net, 2)
    exact = net.forward(net.trace(x)[1], step)
    h = 1e-6

    def at(t):
        return net.moved([t * block for block in step])(x)

    # central differences: h^2 from curvature, 1e-16 / h from rounding, and points within
    # about h of a kink, of which the seed has none
    np.testing.assert_allclose((at(h) - at(-h)) / (2 * h), exact, atol=1e-8)


@pytest.mark.parametrize(("widths", "skip"), SHAPES)
def test_backward_is_the_transpose_and_rows_are_both(widths, skip):
    net = planted(widths, 3, skip=skip)
    x = np.random.default_rng(4).standard_normal((30, widths[0]))
    outer = np.random.default_rng(5).standard_normal((30, widths[-1]))
    trace = net.trace(x)[1]
    step = direction(net, 6)
    pulled = net.backward(trace, outer)
    # sums of some hundred products of order one
    assert np.sum(net.forward(trace, step) * outer) == pytest.approx(
        inner(pulled, step), rel=1e-11
    )
    rows = net.jacobian(trace, outer)
    np.testing.assert_allclose(
        rows.sum(axis=0), np.concatenate([b.ravel() for b in pulled]), atol=1e-11
    )


@pytest.mark.parametrize("link", ["values", "softmax", "log_softmax", "logistic"])
def test_links_have_the_derivative_they_say(link):
    z, dz = np.random.default_rng(0).standard_normal((2, 20, 4)) * 3
    linked = apply_link(link, z)
    inside = dz if linked.coupling is None else dz - np.sum(linked.coupling * dz, 1, keepdims=True)
    h = 1e-6
    difference = apply_link(link, z + h * dz).prediction - apply_link(link, z - h * dz).prediction
    np.testing.assert_allclose(difference / (2 * h), linked.gain * inside, atol=1e-8)


@pytest.mark.parametrize("link", ["values", "softmax"])
@pytest.mark.parametrize(("widths", "skip"), SHAPES[1:])
def test_dense_and_conjugate_gradients_take_the_same_step(widths, skip, link):
    net = planted(widths, 7, skip=skip)
    rng = np.random.default_rng(8)
    x = rng.standard_normal((400, widths[0]))
    linked = apply_link(link, net(x))
    target = rng.standard_normal(linked.prediction.shape)
    gain = linked.gain * np.exp(rng.standard_normal(target.shape))
    problem = fit._problem(x, target, 1.0, link, FitConfig(inner=4000, settled=1e-7))
    metric = kronecker_metric(net, x, gain, linked.coupling, floor=1e-3, rows=400)
    args = (problem, net, gain, linked.coupling, target, metric, 1e-3)
    dense, *told = fit._dense(*args)
    iterated, *claimed = fit._conjugate_gradients(*args)
    trace = net.trace(x)[1]

    def image(step):
        z = net.forward(trace, step)
        inside = (
            z if linked.coupling is None else z - np.sum(linked.coupling * z, 1, keepdims=True)
        )
        return gain * inside

    # Images, since a softmax leaves one direction of the outputs free. Products in single
    # precision: 1e-7 times the condition that damping leaves, 1e3.
    apart = np.abs(image(dense) - image(iterated)).max()
    assert apart < 1e-3 * np.abs(image(dense)).max()
    assert claimed == pytest.approx(told, rel=1e-3)


@pytest.mark.parametrize(
    ("widths", "skip", "link"),
    [
        ((20, 10, 1), False, "values"),
        ((20, 10, 1), False, "logistic"),
        ((20, 12, 6), True, "values"),
        ((20, 12, 6), True, "softmax"),
        ((20, 12, 6), False, "log_softmax"),
        ((20, 12, 8, 3), False, "values"),
    ],
)
def test_the_error_is_that_of_the_best_estimate(widths, skip, link):
    net = planted(widths, 15, skip=skip)
    rng = np.random.default_rng(11)
    n = 6 * net.parameters // widths[-1]
    often = [np.mean(s, axis=0) for s in net.trace(rng.standard_normal((1000, 20)))[1].slopes]
    assert min(s.min() for s in often) > 0.1  # else the rows of a rare unit are not determined
    x = rng.standard_normal((n, widths[0]))
    linked = apply_link(link, net(x))
    sigma = 1e-6 * (linked.prediction if link in {"softmax", "logistic"} else 1.0)
    y = linked.prediction + sigma * rng.standard_normal(linked.prediction.shape)
    found = fit_network(shaken(net, 1e-2, 12), x, y, deviation=sigma, link=link)
    assert found.converged
    # Free parameters: a scale a hidden unit is none; of a softmax one output is none.
    free = net.parameters - sum(widths[1:-1])
    if "softmax" in link:
        free -= widths[-2] + 1 + (widths[0] if skip else 0)
    count = y.size - (n if "softmax" in link else 0)
    # chi square with count - free degrees of freedom: four standard deviations; a softmax's
    # answers are m per row (their noise is independent here)
    spread = np.sqrt(0.5 / (y.size - free))
    assert found.rms == pytest.approx(np.sqrt(1 - free / y.size), abs=4 * spread)
    fresh = rng.standard_normal((4000, widths[0]))
    error = apply_link("log_softmax" if "softmax" in link else "values", found.network(fresh))
    truth = apply_link("log_softmax" if "softmax" in link else "values", net(fresh))
    gained = np.sqrt(np.mean((error.prediction - truth.prediction) ** 2))
    if link == "logistic":
        return  # log-odds are as precise as probabilities are far from 1
    # rms over points like those fitted is noise sqrt(p / n); fresh points add p / n of it
    assert gained < 1.5e-6 * np.sqrt(free / (count - free))


def test_missing_and_contradicting_answers():
    net = planted((10, 6, 4), 20)
    rng = np.random.default_rng(21)
    x = rng.standard_normal((400, 10))
    y = net(x) + 1e-6 * rng.standard_normal((400, 4))
    y[rng.uniform(size=y.shape) < 0.2] = np.nan
    y[:6] = 100.0
    found = fit_network(shaken(net, 1e-2, 22), x, y, deviation=1e-6)
    fresh = rng.standard_normal((1000, 10))
    assert np.sqrt(np.mean((found.network(fresh) - net(fresh)) ** 2)) < 1e-6
    assert np.abs(found.residual[:6]).min() > 50.0 or np.isnan(y[:6]).any()
    assert not found.residual[np.isnan(y)].any()


def test_a_nearly_dead_unit_does_not_stall_the_fit():
    net = planted((60, 20, 10), 30)
    weights = list(net.weights)
    weights[1] = weights[1].copy()
    weights[1][:, 3] *= 1e-4
    net = dataclasses.replace(net, weights=weights)
    rng = np.random.default_rng(31)
    x = rng.standard_normal((1200, 60))
    y = net(x) + 1e-8 * rng.standard_normal((1200, 10))
    found = fit_network(shaken(net, 3e-3, 32), x, y, deviation=1e-8)
    true, got = net.normalised().weights[0][3], found.network.weights[0][3]
    # noise 1e-8 over outputs of 1e-4, 60 entries from some 500 rows of 10 answers: 1e-5
    assert found.converged
    assert np.abs(true - got).max() < 1e-4


def test_refuses_what_makes_no_sense():
    net = planted((3, 2, 1), 0)
    x, y = np.zeros((4, 3)), np.zeros((4, 1))
    with pytest.raises(ValueError, match=r"must be \(n, d\)"):
        fit_network(net, x, y[:3])
    with pytest.raises(ValueError, match="positive"):
        fit_network(net, x, y, deviation=0.0)
    with pytest.raises(ValueError, match="link must be"):
        apply_link("probit", y)
    with pytest.raises(ValueError, match="feeds"):
        Layered((np.zeros((2, 3)), np.zeros((1, 5))), (np.zeros(2), np.zeros(1)))
