"""Units found by a search over directions."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.oracles import connect
from unrelu.result import Status
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.detector import detect_directions


def product_network(n: int, seed: int, activation: str, t: float) -> tuple:
    w = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0].T

    def f(x: np.ndarray) -> np.ndarray:
        heights = x @ w.T - t
        units = (heights > 0).astype(float) if activation == "sign" else np.maximum(heights, 0.0)
        return (units[:, :-1] * units[:, 1:]).sum(axis=1)

    return w, f


def largest_angle(found: np.ndarray, truth: np.ndarray) -> float:
    assert found.shape == truth.shape
    distance = np.linalg.norm(found[:, None] - truth[None], axis=2)
    assert len(set(distance.argmin(axis=1))) == len(truth)
    return float(distance.min(axis=1).max())


@pytest.mark.parametrize("activation", ["sign", "relu"])
@pytest.mark.parametrize(("n", "t"), [(2, 0.5), (3, 0.5), (3, 1.0)])
def test_products_alone_show_their_units(activation: str, n: int, t: float) -> None:
    for seed in range(2):
        w, f = product_network(n, seed, activation, t)
        asked = 0

        def counted(x: np.ndarray, f: object = f) -> np.ndarray:
            nonlocal asked
            asked += len(x)
            return f(x)  # type: ignore[operator]

        oracle = connect(counted, input_dim=n, batch_size=100_000)
        result = detect_directions(oracle, activation=activation, threshold=t, rng=seed)  # type: ignore[arg-type]
        assert result.status is Status.RECOVERED
        # Lines end at epsilon = 1e-4, a tenth of which one regression on 1,500 leaves.
        assert largest_angle(result.directions, w) < 1e-4
        assert result.thresholds == pytest.approx(t, abs=1e-4)
        assert result.queries.total == asked
        assert asked < 5_000_000
        assert len(result.strengths) == n


def test_units_that_are_not_orthogonal() -> None:
    w = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]])

    def f(x: np.ndarray) -> np.ndarray:
        units = (x @ w.T > 0.7).astype(float)
        return units[:, 0] * units[:, 1] - 0.5 * units[:, 1] * units[:, 2]

    result = detect_directions(connect(f, input_dim=3), activation="sign", threshold=0.7, rng=0)
    assert result.success
    assert largest_angle(result.directions, w) < 1e-4


def test_the_bound_is_kept_before_anything_is_asked() -> None:
    _, f = product_network(3, 0, "sign", 1.0)
    asked = 0

    def counted(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        return f(x)

    oracle = connect(counted, input_dim=3, output_dim=1)
    result = detect_directions(oracle, activation="sign", threshold=1.0, bound=1000, rng=0)
    assert result.status is Status.PARTIAL
    assert "exponential" in result.message
    assert asked == 0


@pytest.mark.parametrize("budget", [0, 1000, 200_000])
def test_budget(budget: int) -> None:
    _, f = product_network(3, 1, "sign", 1.0)
    oracle = connect(f, input_dim=3, output_dim=1, budget=budget)
    result = detect_directions(oracle, activation="sign", threshold=1.0, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= budget


def test_wrong_threshold_activation_or_function_is_not_recovered() -> None:
    small = ThresholdConfig(lines=100)
    _, f = product_network(2, 2, "sign", 0.5)
    wrong = detect_directions(
        connect(f, input_dim=2), activation="sign", threshold=2.5, bound=100_000, rng=0
    )
    assert wrong.status is not Status.RECOVERED
    smooth = detect_directions(
        connect(lambda x: np.tanh(x[:, 0] * x[:, 1]), input_dim=2),
        activation="relu",
        threshold=0.5,
        bound=100_000,
        rng=0,
        config=small,
    )
    assert smooth.status is not Status.RECOVERED
    # A unit beside the search: another threshold, which the polynomial misses.
    odd = detect_directions(
        connect(lambda x: f(x) + (x[:, 0] > 2.0), input_dim=2),
        activation="sign",
        threshold=0.5,
        bound=100_000,
        rng=0,
    )
    assert odd.status is not Status.RECOVERED


def test_bad_arguments() -> None:
    oracle = connect(lambda x: x[:, 0], input_dim=3)
    with pytest.raises(InvalidInput, match="activation"):
        detect_directions(oracle, activation="tanh", threshold=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="threshold"):
        detect_directions(oracle, activation="sign", threshold=np.inf)
    with pytest.raises(InvalidInput, match="outputs"):
        detect_directions(connect(lambda x: x, input_dim=3), activation="sign", threshold=1.0)
    with pytest.raises(InvalidInput, match="one input"):
        detect_directions(
            connect(lambda x: x[:, 0], input_dim=1), activation="sign", threshold=1.0
        )
