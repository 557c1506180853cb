import numpy as np
import pytest

from unrelu.span.hidden_noise import correlations, project_to_box, remove_span
from unrelu.span.subspace import orthonormal


def test_remove_span_leaves_nothing_in_it():
    rng = np.random.default_rng(0)
    basis = orthonormal(rng.standard_normal((4, 12)))
    z = rng.standard_normal((7, 12))
    out = remove_span(z, basis)
    np.testing.assert_allclose(out @ basis.T, 0, atol=1e-15)
    np.testing.assert_allclose(remove_span(out, basis), out, atol=1e-15)


def test_projection_onto_a_line_and_a_box_in_closed_form():
    # The network sees x0 + x1; the admissible line through (0.2, 0.3) is x0 + x1 = 0.5.
    basis = np.array([[1.0, 1.0]]) / np.sqrt(2)
    x = np.array([[0.2, 0.3]])
    target = np.array([[5.0, -4.5]])
    z, _ = project_to_box(x, target, basis, 0.0, 1.0, iterations=2000, tolerance=1e-12)
    # The farthest point of the segment in that direction is its end (0.5, 0).
    np.testing.assert_allclose(z, [[0.5, 0.0]], atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_projection_is_inside_the_box_and_unseen(seed):
    rng = np.random.default_rng(seed)
    basis = orthonormal(rng.standard_normal((6, 40)))
    x = rng.random((9, 40)) * (rng.random((9, 40)) < 0.3)
    z, count = project_to_box(
        x, x + 5 * rng.standard_normal(x.shape), basis, 0.0, 1.0,
        iterations=5000, tolerance=1e-10,
    )  # fmt: skip
    assert z.min() >= 0
    assert z.max() <= 1
    np.testing.assert_allclose((z - x) @ basis.T, 0, atol=1e-9)
    assert count < 5100
    assert np.linalg.norm(z - x, axis=1).min() > 0.5


def test_correlations_of_equal_opposite_and_constant_rows():
    a = np.array([[1.0, 2, 3], [1, 2, 3], [1, 1, 1]])
    b = np.array([[2.0, 4, 6], [3, 2, 1], [1, 2, 3]])
    np.testing.assert_allclose(correlations(a, b), [1, -1, 0], atol=1e-15)
