import numpy as np
import pytest

from unrelu.lines.boundary import Boundary, find_boundary, find_offsets
from unrelu.oracles import as_oracle, connect
from unrelu.oracles.wrappers import Labels
from unrelu.planted import random_network
from unrelu.span.config import SpanConfig
from unrelu.span.label_search import check_crossings
from unrelu.span.labels import measure_normals, measure_null_offsets, measure_resolution

CONFIG, DRAWS = SpanConfig(), 200


def sphere(n, radius):
    return connect(lambda x: (np.linalg.norm(x, axis=1) > radius).astype(float), input_dim=n)


def halfspace(w, b):
    return connect(lambda x: (x @ w > b).astype(float), input_dim=len(w))


@pytest.mark.parametrize("seed", range(5))
def test_boundary_points_lie_on_the_boundary(seed):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(7)
    found = find_boundary(halfspace(w, 0.3), 6, rng, scale=1.0, finest=2.0**-54, draws=DRAWS)
    assert found is not None
    # Position along a direction to 2^-54, times the slope; rounding of x @ w on top.
    np.testing.assert_allclose(found.points @ w, 0.3, atol=1e-14)
    inside = (found.points - 1e-6 * found.directions) @ w > 0.3
    np.testing.assert_array_equal(inside.astype(float), found.labels)


def test_one_label_gives_none():
    rng = np.random.default_rng(0)
    constant = connect(lambda x: np.zeros(len(x)), input_dim=4)
    assert find_boundary(constant, 3, rng, scale=1.0, finest=1e-9, draws=DRAWS) is None


def test_offsets_in_closed_form_and_missing_ones():
    oracle = halfspace(np.array([1.0, 0.0]), 0.25)
    start = np.array([[0.0, 0.0], [1.0, 5.0], [0.0, 0.0]])
    direction = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the last is parallel
    offsets = find_offsets(oracle, start, direction, np.zeros(3), expected=1e-3, finest=1e-12)
    np.testing.assert_allclose(offsets[:2], [0.25, -0.75], atol=1e-12)
    assert np.isnan(offsets[2])


def test_resolution_and_curvature_of_a_sphere():
    rng = np.random.default_rng(0)
    radius = 3.0
    oracle = sphere(10, radius)
    boundary = find_boundary(oracle, 30, rng, scale=1.0, finest=2.0**-54, draws=DRAWS)
    assert boundary is not None
    found = measure_resolution(oracle, rng, boundary, scale=1.0, config=CONFIG)
    assert 1e-17 < found.noise < 1e-14
    # Along a normal the sphere bends by h²/(2 radius); along a random direction of
    # cosine c by about 1/c of that: within a factor of 10 either way.
    assert 0.1 / (2 * radius) < found.curvature < 10 / (2 * radius) * np.sqrt(10)


@pytest.mark.parametrize("step", [1e-3, 1e-5, 1e-7])
def test_normals_converge_with_the_step(step):
    rng = np.random.default_rng(1)
    oracle = sphere(8, 2.5)
    boundary = find_boundary(oracle, 5, rng, scale=1.0, finest=2.0**-54, draws=DRAWS)
    assert boundary is not None
    normals, error = measure_normals(
        oracle, boundary, rng, step=step, finest=2.0**-54, config=CONFIG
    )
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    exact = boundary.points / np.linalg.norm(boundary.points, axis=1, keepdims=True)
    exact *= np.sign(np.sum(exact * boundary.directions, axis=1, keepdims=True))
    deviation = np.abs(normals / length - exact).max()
    # One-sided differences: curvature·step·length² plus resolution/step.
    assert deviation < 20 * step * (length.max() / 2.5) ** 2 + 1e-14 / step
    assert np.all(error < 20 * step * length[:, 0] ** 3 + 1e-14 * length[:, 0] / step)


def test_null_offsets_measure_the_tilt_over_long_steps():
    rng = np.random.default_rng(2)
    w = np.array([1.0, 0, 0, 1e-9, 0])
    oracle = halfspace(w, 0.1)
    points = np.tile(np.array([0.1, 0, 0, 0, 0]), (2, 1))
    boundary = Boundary(points, np.tile(np.eye(5)[0], (2, 1)), np.zeros(2))
    slopes = measure_null_offsets(
        oracle, boundary, np.eye(5)[1:], steps=np.full(2, 10.0), expected=np.full(2, 1e-8),
        finest=1e-17,
    )  # fmt: skip
    del rng
    # Resolution 1e-17 over a step of 10, plus rounding of 0.1 in the sum.
    np.testing.assert_allclose(slopes, np.tile([0, 0, 1e-9, 0], (2, 1)), atol=1e-16)


def test_crossings_stay_only_in_the_null_space():
    net = random_network(20, 4, 5, rng=0)
    oracle = Labels(as_oracle(net))
    rng = np.random.default_rng(0)
    boundary = find_boundary(oracle, 12, rng, scale=1.0, finest=1e-15, draws=DRAWS)
    assert boundary is not None
    q = np.linalg.qr(net.weights[0].T)[0].T
    stays, moved = check_crossings(oracle, boundary, q, rng, step=4.0, within=1e-10)
    assert stays.all()
    np.testing.assert_allclose(np.linalg.norm(moved - boundary.points, axis=1), 4.0)
    stays, _ = check_crossings(oracle, boundary, q[:-1], rng, step=4.0, within=1e-10)
    assert not stays.all()
