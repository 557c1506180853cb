"""B.7: polynomials P with powers of a unit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from unrelu.core.hermite import hermite, normal_pdf
from unrelu.samples import as_source
from unrelu.thresholds.algorithm import recover_lowest_layer
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.landscape import apply_tensor
from unrelu.thresholds.passes import Base, Passes

T = 2.0
POWERS = np.array([[0.5, 0.0, 1.0], [1.0, 0.7, 0.0]])  # of X_i, X_i^2, X_i^3


def univariate(height: np.ndarray, i: int) -> np.ndarray:
    """q_i o u_t for a ReLU clipped to [0, 1], which Assumption 4 allows."""
    unit = np.clip(height - T, 0.0, 1.0)
    return POWERS[i] @ np.stack([unit, unit**2, unit**3])


def coefficient(i: int, k: int) -> float:
    """Return ``E[q_i(u_t(g)) He_k(g)]``."""

    def integrand(g: float) -> float:
        value = univariate(np.array([g]), i)[0]
        return float(value * hermite(k, g) * normal_pdf(g))

    return quad(integrand, T, 9.0, points=[T + 1.0])[0]


def test_correlations_of_powers_are_sums_over_units() -> None:
    """``E[f_uni H_k(z.x)] = sum_i (q_i o u)_k (z.w_i)^k`` for k = 2, 3, 4: B.7's first display.

    The same kernel that the landscape is built on estimates the left side.
    """
    rng = np.random.default_rng(0)
    w = np.array([[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])
    x = rng.standard_normal((400_000, 3))
    y = sum(univariate(x @ w[i], i) for i in range(2))
    passes = Passes(
        as_source(x, y), lambda labels: labels, ThresholdConfig(),
        base=Base(0.0, 0.0, 1.0, True),
    )  # fmt: skip
    halves = passes.moments(4)
    z = np.array([0.36, 0.48, 0.8])
    for k in (2, 3, 4):
        expected = sum(coefficient(i, k) * float(z @ w[i]) ** k for i in range(2))
        seen = np.mean([apply_tensor(half.dense(k), z) for half in halves])
        # Six standard errors of the mean of f He_k(z.x).
        error = 6.0 * float(np.std(y * hermite(k, x @ z))) / math.sqrt(len(x))
        assert seen == pytest.approx(expected, abs=error)
        assert abs(expected) > 3 * error  # the test can fail


@pytest.mark.parametrize("activation", ["sign", "relu"])
def test_units_are_recovered_under_powers_and_their_products(activation: str) -> None:
    """Lemmas 17 and 18: products of powers count by how many units they have, not by degree."""
    rng = np.random.default_rng(1)
    w = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    x = rng.standard_normal((200_000, 4))
    heights = x @ w.T - 1.9
    units = (heights > 0).astype(float) if activation == "sign" else np.clip(heights, 0.0, 1.0)
    y = (0.5 * units + 0.3 * units**2 + 0.8 * units**3).sum(axis=1)
    y += 0.7 * units[:, 0] ** 3 * units[:, 1] ** 2 + 0.5 * units[:, 2] * units[:, 3] ** 3
    result = recover_lowest_layer(x, y, activation=activation, rng=0)  # type: ignore[arg-type]
    assert result.success, result.message
    gaps = np.linalg.norm(result.directions[:, None] - w[None], axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2, 3]
    # n / (count phi(1.9)) = 4 / (200,000 * 0.066) = 3e-4 rad, times six.
    assert gaps.min(axis=1).max() < 2e-3
    # A clipped power has no linear term of its own: its first coefficient is q_i o u's.
    cubes = (units**3).sum(axis=1)
    alone = recover_lowest_layer(x, cubes, activation=activation, rng=0)  # type: ignore[arg-type]
    assert alone.success, alone.message
