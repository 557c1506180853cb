"""Formulas as printed: where they hold, and where practice departs from them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from unrelu.thresholds.graph import cliques
from unrelu.thresholds.printed import (
    construct_correlation_graph,
    correlations_of,
    exponential_objective,
    lemma_one,
    together_bound,
)

RHO, T = 0.5, 3.0
SUPPORTS = np.kron(np.eye(3), np.ones((1, 3)))


def at_cosine(cosine: float) -> np.ndarray:
    return np.array([[1.0, 0.0], [cosine, np.sqrt(1.0 - cosine**2)]])


@pytest.mark.parametrize("cosine", [-0.5, 0.0, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("t", [1.0, 2.0, 3.0])
def test_lemma_1_bounds_how_often_units_are_on_together(cosine: float, t: float) -> None:
    w = at_cosine(cosine)
    together = multivariate_normal([0.0, 0.0], w @ w.T).cdf([-t, -t])
    # Genz' integral is good to 1e-5 of it here.
    assert together <= together_bound(w, t) * (1.0 + 1e-5)
    if cosine <= 0.0:
        assert together <= lemma_one(w, t) * (1.0 + 1e-5)
    if cosine == 0.0:  # independent: both are the product of the chances
        assert together == pytest.approx(lemma_one(w, t), rel=1e-5)
        assert together == pytest.approx(together_bound(w, t), rel=1e-5)
    elif cosine > 0.0 and t >= 2.0:
        assert together > lemma_one(w, t)  # printed, it is exceeded at acute angles


def target(coefficients: dict[tuple[int, ...], float], x: np.ndarray) -> np.ndarray:
    units = np.exp(RHO * (x @ SUPPORTS.T - T))
    return sum(c * units[:, list(s)].prod(axis=1) for s, c in coefficients.items())


def test_correlations_have_the_closed_form_of_d_1() -> None:
    coefficients = {(0,): 1.0, (1,): 2.0, (2,): 0.5, (0, 1): 0.3}
    x = np.random.default_rng(0).standard_normal((400_000, 9))
    y = target(coefficients, x)
    alpha = (x * y[:, None]).T @ x / len(x)
    off = ~np.eye(9, dtype=bool)
    # Standard error of a mean of y x_i x_j: its spread over sqrt m, times five.
    spread = (y[:, None] * x[:, :1] * x).std() / np.sqrt(len(x))
    found = correlations_of(SUPPORTS, coefficients, RHO, T)
    assert np.abs(alpha - found)[off].max() < 5.0 * spread
    # X_1's inputs: rho^2 (c_1 mu + c_01 mu^2) with mu = exp(-rho (t - rho d / 2)).
    mu = np.exp(-RHO * (T - RHO * 3 / 2))
    assert found[3, 4] == pytest.approx(RHO**2 * (2.0 * mu + 0.3 * mu**2))
    assert found[0, 3] == pytest.approx(RHO**2 * 0.3 * mu**2)


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_algorithm_3_cuts_at_rho_and_so_depends_on_the_scale_of_f(scale: float) -> None:
    mu = np.exp(-RHO * (T - RHO * 3 / 2))
    # Twice rho within a support; the products' correlations are at a tenth of it.
    c = 2.0 / (RHO * mu)
    coefficients = {(0,): c, (1,): c, (2,): c, (0, 1): 0.2 / (RHO * mu**2)}
    found = correlations_of(SUPPORTS, coefficients, RHO, T)
    assert found[0, 1] > 2.0 * RHO * 0.99
    assert found[0, 3] == pytest.approx(0.2 * RHO)
    x = np.random.default_rng(1).standard_normal((200_000, 9))
    edges = construct_correlation_graph(x, scale * target(coefficients, x), RHO)
    groups, missing = cliques(edges)
    if scale == 1.0:
        assert missing == 0
        assert [list(group) for group in groups] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    else:  # the same supports, and no edge reaches rho: practice normalises
        assert len(groups) == 9


def test_the_objective_of_theorem_9_has_no_maximum() -> None:
    x = np.random.default_rng(2).standard_normal((400_000, 3))
    y = np.exp(x[:, 0] + x[:, 1])  # one unit over two inputs, c = 1
    z = np.array([0.5, 0.5, 0.0])
    # prod exp(1/2 + z_p) = exp(2), less 2 |z|_1 and |z|^2; the mean's standard error is 0.04.
    value = exponential_objective(x, y, z, penalty=2.0, gamma=1.0)
    assert value == pytest.approx(np.e**2 - 2.0 - 0.5, abs=0.2)
    along = [np.exp(1.0 + 2.0 * s) - 2.0 * (2.0 * s) - 2.0 * s**2 for s in (1.0, 2.0, 4.0, 8.0)]
    assert all(after > 4.0 * before for before, after in itertools.pairwise(along))
