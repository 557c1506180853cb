"""Rows of the first layer: lift, completeness, signs; the top as a black box."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import Recorder
from unrelu.extraction.deep_certify import DeepCertifyConfig, certify_network
from unrelu.extraction.deep_layers import FIRST, find_first_layer, measure_across
from unrelu.extraction.deep_rows import (
    Rows,
    lift_rows,
    measure_rows,
    missing_rank,
    random_basis,
)
from unrelu.extraction.deep_signs import confirm_rows, drop_parallel, orient_rows
from unrelu.extraction.deep_top import TopConfig, TopOracle
from unrelu.lines.domains import as_domain
from unrelu.lines.survey import calibrate, scan_line
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.planted import random_network

NOISE = NoiseModel(np.array([1e-16]), np.array([1e-16]))


def unit_rows(network):
    w, b = network.weights[0], network.biases[0]
    length = np.linalg.norm(w, axis=1)
    return w / length[:, None], b / length


def rows_of(network, seed, directions):
    oracle = connect(network)
    rng = np.random.default_rng(seed)
    domain = as_domain("all", network.input_dim)
    line = domain.line(rng, 1e7)
    noise, seeds = calibrate(oracle, line, near=10.0 * domain.scale)
    scan, noise = scan_line(oracle, line, noise, seeds)
    basis = random_basis(directions, network.input_dim, rng, line.direction)
    q = rng.standard_normal(len(basis)) @ basis
    q -= (q @ line.direction) * line.direction
    q /= np.linalg.norm(q)
    across = measure_across(oracle, line, scan, noise, q)
    verdict = find_first_layer(oracle, line, scan, noise, across, q)
    kinks = np.flatnonzero(verdict == FIRST)
    rows, measured = measure_rows(oracle, line, scan, noise, kinks, basis, rng=rng)
    return oracle, noise, rng, rows, measured


@pytest.mark.parametrize("directions", [9, 20])
def test_rows_are_the_first_layer(directions):
    network = random_network(20, 6, 12, 1, rng=1)
    oracle, noise, rng, rows, measured = rows_of(network, 1, directions)
    assert rows.weights.shape == (6, directions)
    assert missing_rank(rows, measured)[0] == 0
    lifted, condition = lift_rows(oracle, rows, measured, noise, rng=rng)
    assert condition >= 1.0
    w, b = unit_rows(network)
    which = np.abs(lifted.weights @ w.T).argmax(axis=1)
    sign = np.sign(np.einsum("kd,kd->k", lifted.weights, w[which]))
    assert sorted(which) == list(range(6))
    # Rounding of 1e-16 over steps of 1e-4 and more; offsets at anchors a few away.
    np.testing.assert_allclose(sign[:, None] * lifted.weights, w[which], atol=1e-8)
    np.testing.assert_allclose(sign * lifted.biases, b[which], atol=1e-6)


def test_a_missing_row_shows():
    network = random_network(12, 5, 12, 1, rng=2)
    _, _, _, rows, measured = rows_of(network, 2, 8)
    part = Rows(rows.basis, rows.weights[1:], rows.std[1:], rows.anchors[1:])
    count, size = missing_rank(part, measured)
    assert count == 1
    assert size > 1e-3
    none = Rows(rows.basis, rows.weights[:0], rows.std[:0], rows.anchors[:0])
    assert missing_rank(none, measured)[0] == 5


def test_signs_and_what_is_no_row():
    network = random_network(10, 6, 20, 1, rng=3)
    oracle = connect(network)
    w, b = unit_rows(network)
    rng = np.random.default_rng(0)
    flip = rng.choice([-1.0, 1.0], 6)
    anchors = -(flip * b)[:, None] * (flip[:, None] * w)
    sign, flat, broken = orient_rows(oracle, flip[:, None] * w, flip * b, anchors, NOISE, rng=rng)
    np.testing.assert_array_equal(sign, flip)
    assert not flat.any()
    assert not broken.any()
    # A row that is none: nothing depends on it alone.
    extra = rng.standard_normal(10)
    more = np.concatenate([w, extra[None, :] / np.linalg.norm(extra)])
    points = np.concatenate([-b[:, None] * w, np.zeros((1, 10))])
    _, flat, broken = orient_rows(oracle, more, np.append(b, 0.0), points, NOISE, rng=rng)
    np.testing.assert_array_equal(flat, [False] * 6 + [True])
    assert not broken.any()
    # A row left out moves with the others; where it is off, the signs still show.
    sign, flat, broken = orient_rows(oracle, w[1:], b[1:], -b[1:, None] * w[1:], NOISE, rng=rng)
    assert (sign[~broken & ~flat] == 1.0).all()


def test_hyperplanes_that_end_are_no_rows():
    network = random_network(6, 3, 12, 1, rng=7)
    w, b = unit_rows(network)
    # The hyperplane of a second-layer unit where all of the first layer is on, and a point
    # of it there.
    inverse = np.linalg.pinv(network.weights[0])
    j = int(np.argmax(network.weights[1].max(axis=1) * (network.biases[1] < 0)))
    i = int(np.argmax(network.weights[1][j]))
    height = np.full(3, 1e-3)
    height[i] -= (network.weights[1][j] @ height + network.biases[1][j]) / network.weights[1][j, i]
    assert (height > 0).all()
    point = inverse @ (height - network.biases[0])
    normal = network.weights[1][j] @ network.weights[0]
    normal /= np.linalg.norm(normal)
    rows = Rows(
        np.eye(6),
        np.concatenate([w, normal[None, :]]),
        np.full(4, 1e-14),
        np.concatenate([-b[:, None] * w, point[None, :]]),
    )
    kept = confirm_rows(
        connect(network), rows, NOISE, scale=np.sqrt(6.0), rng=np.random.default_rng(0)
    )
    np.testing.assert_array_equal(kept.weights, w)


def test_of_parallel_rows_the_outermost_stays():
    w = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]])
    network = ReLUNetwork(
        [w, [[1.0, 0.0], [1.0, 0.0], [0.3, 1.0]], [[1.0, -2.0, 0.7]]],
        [[0.5, 0.1], [-1.0, -2.0, -0.5], [0.0]],
    )
    # The first two second-layer units depend on row 0 alone, at heights 1 and 2 of it.
    offsets = np.array([-1.5, 0.5, -0.5])
    rows = Rows(
        np.eye(3),
        np.concatenate([-w[:1], w[:1], w[:1], w[1:]]),
        np.full(4, 1e-14),
        np.concatenate([-offsets[:, None] * w[0], [-0.1 * w[1]]]),
    )
    kept = drop_parallel(connect(network), rows, NOISE)
    np.testing.assert_array_equal(kept.weights, w)
    np.testing.assert_allclose(kept.biases, [0.5, 0.1])


def test_the_top_is_the_top():
    network = random_network(9, 5, 7, 2, rng=4)
    recorder = Recorder(connect(network))
    top = TopOracle(recorder, network.weights[0], network.biases[0], limit=50)
    s = np.abs(np.random.default_rng(0).standard_normal((20, 5)))
    y = top.cone.heights(s)
    assert (y > 0).all()
    v, u = network.weights[1:]
    expected = np.maximum(y @ v.T + network.biases[1], 0.0) @ u.T + network.biases[2]
    np.testing.assert_allclose(top(s), expected, atol=1e-12)
    x, answers = recorder.stored()
    np.testing.assert_array_equal(network(x), answers)
    # Back from inputs to the cone: the margin is subtracted, the tilt undone.
    np.testing.assert_allclose(top.coordinates(x), s, atol=1e-12)
    assert TopConfig().margin > 0
    with pytest.raises(BudgetExhausted):
        top(np.ones((31, 5)))
    assert top.exhausted


def test_the_certificate_sees_an_error():
    network = random_network(6, 5, 7, 1, rng=5)
    config = DeepCertifyConfig(samples=200, lines=1, line_samples=50)
    oracle = connect(network)
    good = certify_network(oracle, network, NOISE, rng=np.random.default_rng(0), config=config)
    assert good.message == ""
    assert good.certificate.exceeding == 0
    other = random_network(6, 5, 7, 1, rng=6)
    bad = certify_network(oracle, other, NOISE, rng=np.random.default_rng(0), config=config)
    assert "deviate" in bad.message
    assert bad.certificate.exceeding > 0
