import math

import numpy as np
import pytest
from scipy.integrate import quad

from unrelu.core.hermite import (
    hermite,
    normal_pdf,
    relu_coefficient,
    relu_inner_products,
)


@pytest.mark.parametrize("k", range(9))
def test_hermite_matches_numpy(k):
    t = np.linspace(-4, 4, 41)
    expected = np.polynomial.hermite_e.hermeval(t, [0] * k + [1])
    # Values reach 4^8; both sides round at 1e-16 of that, a few times over.
    np.testing.assert_allclose(hermite(k, t), expected, rtol=1e-12, atol=1e-9)


def test_hermite_refuses_a_negative_order():
    with pytest.raises(ValueError, match="negative"):
        hermite(-1, 0.0)


@pytest.mark.parametrize("k", range(8))
@pytest.mark.parametrize("b", [-2.0, -1.0, 0.0, 0.3, 1.7])
def test_lemma_3_5_against_quadrature(k, b):
    def integrand(t):
        return max(t + b, 0.0) * float(hermite(k, t)) * float(normal_pdf(t))

    value, _ = quad(integrand, -b, 14.0, epsabs=1e-12)
    # quad's own absolute error, times the size of He_k in the tail.
    assert float(relu_coefficient(k, b)) == pytest.approx(value, abs=1e-9)


def test_the_derivative_of_a_coefficient_is_the_next():
    b, h = np.linspace(-3, 3, 13), 1e-5
    for k in range(6):
        slope = (relu_coefficient(k, b + h) - relu_coefficient(k, b - h)) / (2 * h)
        # Central difference: h^2 f'''/6 <= 1e-10 * 100, rounding 1e-16/1e-5.
        np.testing.assert_allclose(slope, relu_coefficient(k + 1, b), atol=1e-8)


def test_separation_of_roots():
    # Lemma 4.3 as its proof has it: He_{k+1} and He_{k+2} for k >= 1. (As printed,
    # with He_k and He_{k+1}, it fails at k = 1: He_1 and He_2 are both 0.618.)
    x = np.linspace(-6, 6, 4001)
    for k in range(1, 8):
        both = np.maximum(np.abs(hermite(k + 1, x)), np.abs(hermite(k + 2, x)))
        assert both.min() >= math.sqrt(math.factorial(k) / 2)
    both = np.maximum(np.abs(hermite(1, x)), np.abs(hermite(2, x)))
    assert both.min() == pytest.approx((math.sqrt(5) - 1) / 2, abs=3e-3)  # the grid's step


def test_inner_products_against_the_hermite_series():
    rng = np.random.default_rng(1)
    w = rng.standard_normal((6, 4))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    b = rng.uniform(-2, 2, 6)
    rho = w @ w.T
    np.fill_diagonal(rho, 0.0)  # the series converges slowly where rho = 1
    series = sum(
        np.outer(relu_coefficient(k, b), relu_coefficient(k, b)) * rho**k / math.factorial(k)
        for k in range(120)
    )
    closed = relu_inner_products(w, b, w, b)
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(closed[off], series[off], atol=1e-12)


@pytest.mark.parametrize("b", [-1.5, 0.0, 0.8])
def test_inner_product_of_a_unit_with_itself_and_its_opposite(b):
    w = np.array([[0.6, 0.8]])
    bias = np.array([b])
    same = relu_inner_products(w, bias, w, bias)[0, 0]
    phi, cdf = float(normal_pdf(b)), float(relu_coefficient(1, b))
    # E[(b + t)^2; t > -b] = (b^2 + 1) Phi(b) + b phi(b); clipping s at 1e-8
    # moves the result by as much.
    assert same == pytest.approx((b * b + 1) * cdf + b * phi, abs=1e-7)
    opposite = relu_inner_products(w, bias, -w, -bias)[0, 0]
    assert opposite == pytest.approx(0.0, abs=1e-7)
