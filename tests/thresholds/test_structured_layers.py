"""Binary weights and even activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from unrelu.errors import InvalidInput
from unrelu.result import RecoveryResult, Status
from unrelu.thresholds.structured_layers import (
    BinaryLayerResult,
    recover_binary_layer,
    recover_even_layer,
)


def supports(n: int, sizes: list[int], rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(n)
    rows = np.zeros((len(sizes), n))
    start = 0
    for row, size in enumerate(sizes):
        rows[row, order[start : start + size]] = 1.0
        start += size
    return rows


def same_rows(a: np.ndarray, b: np.ndarray) -> bool:
    return sorted(map(tuple, a)) == sorted(map(tuple, b))


@pytest.mark.parametrize("transform", ["none", "auto"])
@pytest.mark.parametrize("seed", range(3))
def test_theorem_8(transform: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = supports(25, [5, 5, 5], rng)
    products = np.triu(rng.uniform(0, 1, (3, 3)), 1)
    x = rng.standard_normal((100_000, 25))
    units = np.exp(0.5 * (x @ w.T - 3.0))
    y = units @ rng.uniform(0.5, 1.5, 3) + ((units @ products) * units).sum(axis=1)
    result = recover_binary_layer(x, y, transform=transform, rng=0)  # type: ignore[arg-type]
    assert result.status is Status.RECOVERED
    assert same_rows(result.supports, w)
    assert result.queries.samples == 100_000


@pytest.mark.parametrize("seed", range(3))
def test_theorem_9(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = supports(15, [1, 2, 4, 6], rng)
    products = np.triu(rng.uniform(0, 1, (4, 4)), 1)
    x = rng.standard_normal((200_000, 15))
    units = np.exp(x @ w.T)
    y = units @ rng.uniform(0.5, 1.5, 4) + ((units @ products) * units).sum(axis=1)
    result = recover_binary_layer(x, y, transform="log", rng=0)
    assert result.status is Status.RECOVERED
    assert same_rows(result.supports, w)


def test_binary_is_never_wrongly_recovered() -> None:
    rng = np.random.default_rng(3)
    w = supports(25, [5, 5, 5], rng)
    for count in (200, 1000, 4000, 16_000):
        x = rng.standard_normal((count, 25))
        y = np.exp(0.5 * (x @ w.T - 3.0)).sum(axis=1)
        for transform in ("none", "log"):
            result = recover_binary_layer(x, y, transform=transform, rng=0)  # type: ignore[arg-type]
            assert result.status is not Status.RECOVERED or same_rows(result.supports, w)
    x = rng.standard_normal((20_000, 8))
    noise = recover_binary_layer(x, rng.standard_normal(20_000), rng=0)
    assert noise.status is Status.ASSUMPTION_VIOLATED
    assert noise.supports.shape == (0, 8)


def test_overlapping_supports_are_not_called_recovered() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((200_000, 8))
    w = np.zeros((2, 8))
    w[0, :4] = w[1, 3:7] = 1.0
    y = np.exp(0.5 * (x @ w.T - 2.0)).sum(axis=1)
    assert recover_binary_layer(x, y, transform="none", rng=0).status is Status.PARTIAL


def test_binary_input_checks_and_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5000, 4))
    with pytest.raises(InvalidInput, match="positive"):
        recover_binary_layer(x, x[:, 0], transform="log")
    with pytest.raises(InvalidInput, match="transform"):
        recover_binary_layer(x, x[:, 0], transform="root")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="read twice"):
        recover_binary_layer(iter([(x, x[:, 0])]))
    with pytest.raises(InvalidInput, match="two inputs"):
        recover_binary_layer(x[:, :1], x[:, 0])
    result = recover_binary_layer(x, np.exp(x[:, 0] + x[:, 1]), rng=0)
    loaded = RecoveryResult.load(result.save(tmp_path / "b.safetensors"))
    assert isinstance(loaded, BinaryLayerResult)
    assert (loaded.supports == result.supports).all()


# ------------------------------------------------------------------------ even


def largest_angle(found: np.ndarray, truth: np.ndarray) -> float:
    assert found.shape == truth.shape
    cosines = np.abs(found @ truth.T)
    rows, cols = linear_sum_assignment(-cosines)
    return float(np.arccos(np.clip(cosines[rows, cols], -1, 1)).max())


@pytest.mark.parametrize("activation", ["abs", "square", "cosh"])
@pytest.mark.parametrize("k", [5, 3])
def test_theorem_10(activation: str, k: int) -> None:
    rng = np.random.default_rng(6)
    w = np.linalg.qr(rng.standard_normal((5, k)))[0].T
    x = rng.standard_normal((300_000, 5))
    a = x @ w.T
    units = {"abs": np.abs(a), "square": a**2, "cosh": np.cosh(0.5 * a)}[activation]
    low, high = (0.1, 0.3) if activation == "square" else (-0.05, 0.05)
    products = np.triu(rng.uniform(low, high, (k, k)), 1)
    y = units.sum(axis=1) + ((units @ products) * units).sum(axis=1)
    if activation == "cosh":
        # u_4 > 0 here, so the units are maxima; products add little.
        y = units.sum(axis=1) * 5.0
    result = recover_even_layer(x, y, rng=0)
    assert result.status is Status.RECOVERED
    # Five stated standard errors cover the largest of five directions.
    assert largest_angle(result.directions, w) < 5.0 * result.angle_errors.max()
    assert result.angle_errors.max() < 0.06
    assert result.directions @ result.directions.T == pytest.approx(np.eye(k), abs=1e-10)


def test_even_statuses() -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((100_000, 4))
    flat = recover_even_layer(x, rng.standard_normal(100_000), rng=0)
    assert flat.status is not Status.RECOVERED
    # Units far from orthonormal leave entries with odd indices.
    w = np.array([[1.0, 0, 0, 0], [0.8, 0.6, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    # (Two equal units at an angle do not: they pass for their bisectors with a product.)
    slanted = recover_even_layer(x, np.abs(x @ w.T) @ np.array([1.0, 3.0, 1.0, 1.0]), rng=0)
    assert slanted.status is not Status.RECOVERED
    # A rotation-invariant f has a fourth moment without any direction in it.
    round_ = recover_even_layer(x, (x**2).sum(axis=1), rng=0)
    assert round_.status is not Status.RECOVERED
    with pytest.raises(InvalidInput, match="units"):
        recover_even_layer(x, x[:, 0], units=9)
    with pytest.raises(InvalidInput, match="read twice"):
        recover_even_layer(iter([(x, x[:, 0])]))


def test_what_is_not_even_or_not_gaussian_is_not_called_recovered() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 2))
    tilted = recover_even_layer(x, np.exp(x[:, 0]), units=1, rng=0)
    assert tilted.status is Status.ASSUMPTION_VIOLATED
    assert "even" in tilted.message
    # One direction of three samples: its error is that of the span, not 0.
    few = recover_even_layer(x[:3], x[:3, 0] ** 2, units=1, rng=0)
    assert not few.success
    tiny = recover_binary_layer(1e-8 * x, np.sin(x[:, 0]), transform="none", rng=0)
    assert tiny.status is Status.ASSUMPTION_VIOLATED
    with pytest.raises(InvalidInput, match="no samples"):
        recover_even_layer(np.empty((0, 3)), np.empty(0))
    repeated = recover_binary_layer(np.repeat(x[:1], 2, axis=0), np.ones(2), rng=0)
    assert not repeated.success
