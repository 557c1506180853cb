"""Theorem 7 from samples, as stated."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.result import Status
from unrelu.thresholds.detect_samples import detect_in_samples, slab_correlations


def pair(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0][:2]


def product(x: np.ndarray, w: np.ndarray, t: float) -> np.ndarray:
    """P = X_1 X_2: no linear term."""
    return (x @ w.T > t).all(axis=1).astype(float)


def test_lemma_8_at_a_unit_and_away_from_all() -> None:
    w = pair(3, 0)
    x = np.random.default_rng(0).standard_normal((600_000, 3))
    y = product(x, w, 0.3)
    away = np.linalg.svd(w)[2][2:]
    for epsilon in (0.2, 0.1):
        at, off = slab_correlations(x, y, np.concatenate([w[:1], away]), 0.3, epsilon, kink=False)
        # E[Q_1 | w_1.x = t] = P(w_2.x > 0.3) = 0.382.
        assert at.strength == pytest.approx(0.382, abs=6 * at.error)
        assert at.error < 0.01
        assert abs(off.strength) < 6 * off.error  # f does not depend on that direction


@pytest.mark.parametrize(
    ("n", "precision", "seed"), [(2, 0.1, 0), (2, 0.1, 1), (2, 0.1, 2), (3, 0.3, 0), (3, 0.3, 1)]
)
def test_units_without_a_linear_term(n: int, precision: float, seed: int) -> None:
    w = pair(n, seed)
    x = np.random.default_rng(seed).standard_normal((150_000, n))
    found = detect_in_samples(
        x, product(x, w, 0.3), activation="sign", threshold=0.3, precision=precision, least=0.3,
        rng=seed,
    )  # fmt: skip
    assert found.status is Status.APPROXIMATED
    cosines = w @ found.directions.T
    assert len(found.directions) == 2
    # Half a spacing, and the plateau of a detector of width epsilon.
    assert np.arccos(cosines.max(axis=1)).max() <= 1.5 * precision


def test_relu_units_by_the_second_difference() -> None:
    w = pair(2, 3)
    x = np.random.default_rng(3).standard_normal((1_600_000, 2))
    y = np.maximum(x @ w.T - 0.3, 0.0).sum(axis=1)
    found = detect_in_samples(
        x, y, activation="relu", threshold=0.3, precision=0.3, least=0.8, rng=0
    )
    assert found.status is Status.APPROXIMATED
    assert np.arccos((w @ found.directions.T).max(axis=1)).max() <= 1.5 * 0.3


@pytest.mark.parametrize("seed", range(20))
def test_a_slope_is_no_unit(seed: int) -> None:
    """The detector halves with epsilon; with noise, one direction of many seems to stay."""
    x = np.random.default_rng(1000 + seed).standard_normal((100_000, 2))
    asked = {"activation": "sign", "threshold": 0.5, "precision": 0.2, "least": 0.3}
    found = detect_in_samples(x, x[:, 0] ** 2, **asked, rng=seed)
    assert found.status is Status.ASSUMPTION_VIOLATED


def test_nothing_is_found_where_nothing_breaks() -> None:
    x = np.random.default_rng(4).standard_normal((100_000, 2))
    asked = {"activation": "sign", "threshold": 0.5, "precision": 0.2, "least": 0.3, "rng": 0}
    assert detect_in_samples(x, x[:, 0] ** 2, **asked).status is Status.ASSUMPTION_VIOLATED
    noise = np.random.default_rng(5).standard_normal(100_000)
    assert detect_in_samples(x, noise, **asked).status is Status.ASSUMPTION_VIOLATED
    with pytest.raises(InvalidInput, match="too many"):
        detect_in_samples(np.zeros((4, 9)), np.zeros(4), **asked)
    with pytest.raises(InvalidInput, match="precision"):
        detect_in_samples(x, noise, **(asked | {"precision": 0.0}))
    with pytest.raises(InvalidInput, match="activation"):
        detect_in_samples(x, noise, **(asked | {"activation": "tanh"}))
