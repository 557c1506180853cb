import numpy as np
import pytest

from unrelu.core.piecewise import Kinks, damped_step, normal_equations, residuals


def model(kind, seed=0, m=3, d=4, affine=True):
    rng = np.random.default_rng(seed)
    part = rng.standard_normal(d + 1) if affine else None
    return Kinks(rng.standard_normal((m, d + 1)), np.array([1.0, -1.0, 1.0])[:m], part, kind)


@pytest.mark.parametrize("kind", ["abs", "relu"])
@pytest.mark.parametrize("affine", [True, False])
def test_normal_equations_match_finite_differences(kind, affine):
    f = model(kind, affine=affine)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((5000, 4)), rng.standard_normal(5000)
    h = 1e-6
    columns = []
    for i in range(len(f.parameters)):
        step = np.zeros(len(f.parameters))
        step[i] = h
        columns.append((f.moved(step)(x) - f.moved(-step)(x)) / (2 * h))
    jacobian = np.stack(columns, axis=1)
    left = residuals(f, x, y)
    found = normal_equations(f, x, y)
    # A point within 1e-6 of a kink has half a difference; about 0.01 of 5000.
    np.testing.assert_allclose(found.matrix, jacobian.T @ jacobian, rtol=1e-3, atol=5.0)
    np.testing.assert_allclose(found.right, jacobian.T @ left, rtol=1e-3, atol=5.0)
    assert found.square == pytest.approx(left @ left, rel=1e-12)
    assert found.count == 5000


def test_one_step_is_exact_once_every_sample_is_on_its_side():
    truth = model("abs")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2000, 4))
    x = x[np.abs(x @ truth.u[:, :-1].T + truth.u[:, -1]).min(axis=1) > 0.1]
    start = truth.moved(0.005 * rng.standard_normal(len(truth.parameters)))
    step = damped_step(normal_equations(start, x, truth(x)), 0.0)
    # Linear least squares: rounding times the square of a condition number ~10.
    np.testing.assert_allclose(start.moved(step).parameters, truth.parameters, atol=1e-12)


def test_a_unit_that_no_sample_reaches_does_not_stop_the_step():
    f = model("relu", affine=False)
    f.u[0] = [0, 0, 0, 0, -1.0]
    x = np.random.default_rng(3).standard_normal((100, 4))
    step = damped_step(normal_equations(f, x, np.ones(100)), 0.0)
    assert np.isfinite(step).all()


def test_equations_add_up():
    f = model("abs")
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((300, 4)), rng.standard_normal(300)
    total = normal_equations(f, x[:100], y[:100])
    total += normal_equations(f, x[100:], y[100:])
    whole = normal_equations(f, x, y)
    np.testing.assert_allclose(total.matrix, whole.matrix, rtol=1e-12, atol=1e-10)
    assert total.count == whole.count
