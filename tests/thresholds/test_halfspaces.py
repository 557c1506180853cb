"""Intersections and unions of halfspaces, from labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unrelu.errors import InvalidAnswer, InvalidInput
from unrelu.oracles import Labels, connect
from unrelu.result import RecoveryResult, Status
from unrelu.thresholds.algorithm import ThresholdConfig
from unrelu.thresholds.halfspaces import HalfspacesResult, learn_halfspaces


def planted(n: int, k: int, seed: int, low: float = 1.8, high: float = 2.4) -> tuple:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((k, n))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return w, rng.uniform(low, high, k)


def distances(result: HalfspacesResult, w: np.ndarray, t: np.ndarray) -> tuple[float, float]:
    assert result.directions.shape == w.shape
    chords = np.linalg.norm(result.directions[:, None] - w[None], axis=2)
    owner = chords.argmin(axis=1)
    assert len(set(owner)) == len(w)
    return float(chords.min(axis=1).max()), float(np.abs(result.thresholds - t[owner]).max())


@pytest.mark.parametrize("kind", ["intersection", "union"])
@pytest.mark.parametrize("seed", range(2))
def test_from_samples(kind: str, seed: int) -> None:
    w, t = planted(6, 4, seed)
    x = np.random.default_rng(seed + 50).standard_normal((300_000, 6))
    on = (x @ w.T > t).any(axis=1)
    y = on if kind == "union" else ~on
    result = learn_halfspaces(x, y.astype(float), kind=kind, rng=seed)  # type: ignore[arg-type]
    assert result.status is Status.RECOVERED
    angle, offset = distances(result, w, t)
    # n / (count phi(2.4)) = 9e-4 rad for the farthest unit; five times that.
    assert angle < 5e-3
    assert offset < 5e-3
    assert np.mean(result.predict(x) == y) > 0.9995
    assert set(np.unique(result.predict(x))) <= {0.0, 1.0}


def test_flipped_labels() -> None:
    w, t = planted(6, 3, 7)
    rng = np.random.default_rng(8)
    x = rng.standard_normal((300_000, 6))
    y = (x @ w.T <= t).all(axis=1).astype(float)
    y = np.where(rng.random(len(y)) < 0.02, 1.0 - y, y)
    result = learn_halfspaces(x, y, rng=0)
    assert result.success
    assert "flipped" in result.message
    assert distances(result, w, t)[0] < 1e-2


@pytest.mark.parametrize("kind", ["intersection", "union"])
@pytest.mark.parametrize(("n", "k"), [(2, 3), (5, 4), (10, 5), (20, 10)])
def test_from_queries_to_machine_precision(kind: str, n: int, k: int) -> None:
    w, t = planted(n, k, n + k)
    asked = 0

    def f(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        on = (x @ w.T > t).any(axis=1)
        return (on if kind == "union" else ~on).astype(float)

    result = learn_halfspaces(connect(f, input_dim=n), kind=kind, rng=0)  # type: ignore[arg-type]
    assert result.status is Status.RECOVERED
    angle, offset = distances(result, w, t)
    # Crossings to a few ulp of points of norm up to a hundred, spread over 0.05 and more.
    assert angle < 1e-11
    assert offset < 1e-11
    assert result.queries.total == asked
    # 60 n per halfspace, 1,500 quiet rays and what came before them, 2,000 in the certificate.
    assert asked < 80 * n * k + 6000
    assert result.queries.by_stage["certificate"] == 2000


def test_the_origin_may_lie_outside() -> None:
    w, t = planted(4, 3, 3)
    t = t - 2.5 * np.array([1.0, 0.2, 0.2])
    result = learn_halfspaces(
        connect(lambda x: (x @ w.T <= t).all(axis=1).astype(float), input_dim=4), rng=0
    )
    assert result.success
    assert distances(result, w, t)[0] < 1e-10


def test_labels_of_a_model_with_values() -> None:
    w, t = planted(5, 3, 4)
    model = connect(lambda x: np.maximum(x @ w.T - t, 0.0).sum(axis=1), input_dim=5)
    result = learn_halfspaces(Labels(model, threshold=0.0), kind="union", rng=0)
    assert result.success
    assert distances(result, w, t)[0] < 1e-6


def test_same_seed_same_bits_and_a_round_trip(tmp_path: Path) -> None:
    w, t = planted(4, 3, 5)

    def f(x: np.ndarray) -> np.ndarray:
        return (x @ w.T <= t).all(axis=1).astype(float)

    first = learn_halfspaces(connect(f, input_dim=4), rng=1)
    second = learn_halfspaces(connect(f, input_dim=4), rng=1)
    assert (first.directions == second.directions).all()
    loaded = RecoveryResult.load(first.save(tmp_path / "h.safetensors"))
    assert isinstance(loaded, HalfspacesResult)
    x = np.random.default_rng(0).standard_normal((100, 4)) * 2
    assert (loaded.predict(x) == f(x)).all()
    with pytest.raises(InvalidInput, match="shape"):
        loaded.predict(x[:, :3])


@pytest.mark.parametrize("budget", [0, 1, 50, 500, 3000])
def test_budget(budget: int) -> None:
    w, t = planted(5, 4, 6)
    oracle = connect(
        lambda x: (x @ w.T <= t).all(axis=1).astype(float),
        input_dim=5,
        output_dim=1,
        budget=budget,
    )
    result = learn_halfspaces(oracle, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= budget
    assert result.directions.shape[1] == 5


def test_statuses_of_what_is_no_polyhedron() -> None:
    few = ThresholdConfig(most_facets=30)

    def learn(f: object, n: int = 3) -> HalfspacesResult:
        return learn_halfspaces(connect(f, input_dim=n), rng=0, config=few)

    everywhere = learn(lambda x: np.ones(len(x)))
    assert everywhere.status is Status.ASSUMPTION_VIOLATED
    nowhere = learn(lambda x: np.zeros(len(x)))
    assert nowhere.status is Status.ASSUMPTION_VIOLATED
    ball = learn(lambda x: (np.linalg.norm(x, axis=1) < 2.0).astype(float))
    assert ball.status in (Status.PARTIAL, Status.NUMERICAL_FAILURE)
    rng = np.random.default_rng(0)
    coin = learn(lambda x: rng.integers(0, 2, len(x)).astype(float))
    assert coin.status is not Status.RECOVERED
    shell = learn(lambda x: (np.abs(x[:, 0]) > 0.5).astype(float))  # two pieces
    assert shell.status is not Status.RECOVERED


def test_bad_input() -> None:
    x = np.random.default_rng(0).standard_normal((100, 3))
    with pytest.raises(InvalidInput, match="0 or 1"):
        learn_halfspaces(x, x[:, 0])
    with pytest.raises(InvalidInput, match="kind"):
        learn_halfspaces(x, np.ones(100), kind="xor")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="units"):
        learn_halfspaces(x, np.ones(100), units=0)
    with pytest.raises(InvalidInput, match="0 or 1"):
        learn_halfspaces(connect(lambda p: 2.0 * p[:, 0], input_dim=3))
    with pytest.raises(InvalidInput, match="leave y out"):
        learn_halfspaces(connect(lambda p: p[:, 0] > 0, input_dim=3), np.ones(3))
    with pytest.raises(InvalidAnswer):
        learn_halfspaces(connect(lambda p: np.full(len(p), np.nan), input_dim=3, output_dim=1))


def close_pair(n: int, angle: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 5])
    w = rng.standard_normal((2, n))
    w[0] /= np.linalg.norm(w[0])
    w[1] -= (w[1] @ w[0]) * w[0]
    w[1] /= np.linalg.norm(w[1])
    return np.array([w[0], np.cos(angle) * w[0] + np.sin(angle) * w[1]])


@pytest.mark.parametrize("seed", range(3))
def test_two_that_almost_coincide_are_not_one(seed: int) -> None:
    w = close_pair(4, 0.02, seed)
    x = np.random.default_rng(seed).standard_normal((30_000, 4))
    y = (x @ w.T <= 1.8).all(axis=1).astype(float)
    result = learn_halfspaces(x, y, rng=seed)
    # About nine labels tell a bend of 0.02 from a plane, and a plane can be ruled out.
    assert not result.success or len(result.thresholds) == 2, result.message

    def f(points: np.ndarray) -> np.ndarray:
        return (points @ w.T <= 1.8).all(axis=1).astype(float)

    asked = learn_halfspaces(connect(f, input_dim=4), rng=seed)
    assert asked.success, asked.message
    assert distances(asked, w, np.full(2, 1.8))[0] < 1e-10


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("seed", range(2))
def test_facets_through_the_origin(n: int, seed: int) -> None:
    w, t = planted(n, min(n, 3), seed)
    t[: max(len(t) - 1, 1)] = 0.0

    def f(x: np.ndarray) -> np.ndarray:
        return (x @ w.T <= t).all(axis=1).astype(float)

    result = learn_halfspaces(connect(f, input_dim=n), rng=seed)
    assert result.success, result.message
    assert distances(result, w, t)[0] < 1e-9


def test_a_missing_unit_is_told_from_flipped_labels() -> None:
    from unrelu.thresholds.flat import lie_apart

    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 5))
    assert not lie_apart(x[rng.random(20_000) < 0.05], x, rng, 1e-4)
    hidden = (x[:, 0] > 2.0) | (rng.random(20_000) < 0.05)
    assert lie_apart(x[hidden], x, rng, 1e-4)


def test_an_answer_that_contradicts_the_facets_is_counted() -> None:
    w, t = planted(4, 3, 1)
    seen = 0

    def f(x: np.ndarray) -> np.ndarray:
        nonlocal seen
        # Another halfspace at the first thousand points only: the service has changed.
        extra = (x[:, 0] <= 0.5) | (seen + np.arange(len(x)) > 500)
        seen += len(x)
        return ((x @ w.T <= t).all(axis=1) & extra).astype(float)

    result = learn_halfspaces(connect(f, input_dim=4), rng=0)
    assert not result.success


def test_two_that_nearly_coincide_are_told_apart() -> None:
    w = np.array([[1.0, 0.012, 0.0], [1.0, -0.012, 0.004]])
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    both = 0
    for seed in range(8):
        x = np.random.default_rng(seed).standard_normal((20_000, 3))
        y = (x @ w.T > 1.3).any(axis=1).astype(float)
        result = learn_halfspaces(x, y, kind="union", rng=seed)
        if not result.success:
            continue  # no two hyperplanes were found that explain every label
        apart = np.linalg.norm(result.directions[:, None] - w, axis=2)
        # Five standard errors each; the two are 0.024 rad apart.
        assert (apart.min(axis=1) < 5.0 * result.angle_errors).all()
        assert result.angle_errors.max() < 0.012
        both += sorted(apart.argmin(axis=1)) == [0, 1]
    assert both >= 5


def test_three_that_nearly_coincide_are_not_called_two() -> None:
    w = np.array([[1.0, 0.08, 0.0], [1.0, -0.05, 0.07], [1.0, -0.05, -0.07]])
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((30_000, 3))
        y = (x @ w.T > 1.3).any(axis=1).astype(float)
        result = learn_halfspaces(x, y, kind="union", rng=seed)
        assert not result.success


def test_a_bend_is_split_into_its_two_planes() -> None:
    from unrelu.thresholds.flat import split_in_two

    rng = np.random.default_rng(0)
    along, heights = rng.standard_normal((600, 2)), rng.uniform(-0.3, 0.3, 600)
    planes = np.array([[0.01, 0.1, 0.0], [-0.01, -0.1, 0.02]])
    bounds = planes[:, :1] + planes[:, 1:] @ along.T
    found = split_in_two(heights, along, heights > bounds.min(axis=0), rounds=30)
    assert found is not None
    # 600 points in a height of 0.6, half of them beside each plane: 3 unknowns in 500 per height.
    error = np.abs(np.array(found)[:, None] - planes[None]).max(axis=2).min(axis=0)
    assert (error < 0.03).all()
    bowl = heights > -0.15 * (along**2).sum(axis=1) + 0.1
    assert split_in_two(heights, along, bowl, rounds=30) is None
