"""Recovery of the lowest layer under high thresholds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unrelu.errors import InvalidAnswer, InvalidInput
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import RecoveryResult, Status
from unrelu.thresholds.algorithm import (
    LowestLayerResult,
    ThresholdConfig,
    draw_biased_samples,
    recover_lowest_layer,
)

Function = Callable[[np.ndarray], np.ndarray]


def orthonormal(n: int, k: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, k)))[0].T


def union(w: np.ndarray, t: float | np.ndarray) -> Function:
    return lambda x: (x @ w.T > t).any(axis=1).astype(float)


def largest_angle(found: np.ndarray, truth: np.ndarray) -> float:
    assert found.shape == truth.shape
    distance = np.linalg.norm(found[:, None] - truth[None], axis=2)
    assert len(set(distance.argmin(axis=1))) == len(truth)
    return float(2.0 * np.arcsin(distance.min(axis=1) / 2.0).max())


def gaussian(count: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).standard_normal((count, n))


# The limit of a boundary seen by `count` samples is n / (count phi(t)): 5 / (2e5 * 0.054) =
# 5e-4 rad here. Four to six times that holds for the largest of a handful of units.
COUNT, LIMIT = 200_000, 3e-3


@pytest.mark.parametrize("seed", range(3))
def test_sign_units_under_an_or(seed: int) -> None:
    w = orthonormal(5, 4, seed)
    x = gaussian(COUNT, 5, seed)
    result = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", rng=seed)
    assert result.status is Status.RECOVERED
    assert largest_angle(result.directions, w) < LIMIT
    assert largest_angle(result.landscape_directions, w) < 0.3
    assert result.thresholds == pytest.approx(2.0, abs=LIMIT)
    assert np.linalg.norm(result.directions, axis=1) == pytest.approx(1.0, abs=1e-12)
    assert result.angle_errors.max() < LIMIT
    assert result.queries.samples == COUNT
    assert result.certificate is not None
    assert result.certificate.rms_deviation**2 < 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_relu_units_correlated_and_under_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = orthonormal(5, 4, seed)
    w[1] = 0.6 * w[0] + 0.8 * w[1]
    c = np.triu(rng.uniform(0, 1, (4, 4)), 1)

    def f(x: np.ndarray) -> np.ndarray:
        units = np.maximum(x @ w.T - 2.0, 0.0)
        return 3.0 + units.sum(axis=1) + ((units @ c) * units).sum(axis=1)

    x = gaussian(COUNT, 5, seed)
    result = recover_lowest_layer(x, f(x), activation="relu", rng=seed)
    assert result.success
    assert largest_angle(result.directions, w) < LIMIT


def test_a_deeper_network_and_linear_terms_of_both_signs() -> None:
    w = orthonormal(6, 4, 3)
    x = gaussian(COUNT, 6, 3)
    units = np.maximum(x @ w.T - 1.9, 0.0)
    deep = 1.0 / (1.0 + np.exp(1.0 - units @ np.array([0.5, 1.0, 1.5, 0.7])))
    mixed = units @ np.array([1.0, -1.0, 0.5, -2.0])
    for y in (deep, mixed):
        result = recover_lowest_layer(x, y, activation="relu", rng=0)
        assert result.success
        assert largest_angle(result.directions, w) < LIMIT


@pytest.mark.parametrize("method", ["third", "fourth", "simultaneous", "printed"])
def test_every_landscape_leads_there(method: str) -> None:
    w = orthonormal(4, 3, 4)
    x = gaussian(COUNT, 4, 4)
    y = np.maximum(x @ w.T - 2.0, 0.0).sum(axis=1)
    result = recover_lowest_layer(x, y, activation="relu", method=method, rng=0)  # type: ignore[arg-type]
    assert result.success
    assert largest_angle(result.directions, w) < LIMIT


def test_known_threshold_and_width() -> None:
    w = orthonormal(4, 3, 5)
    x = gaussian(COUNT, 4, 5)
    result = recover_lowest_layer(
        x, union(w, 2.0)(x), activation="sign", threshold=2.0, units=3, rng=0
    )
    assert result.success
    assert (result.thresholds == 2.0).all()
    wrong = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", threshold=2.6, rng=0)
    assert not wrong.success
    fewer = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", units=2, rng=0)
    assert not fewer.success


def test_different_thresholds_and_more_units_than_inputs() -> None:
    w = orthonormal(5, 4, 6)
    t = np.array([1.5, 1.9, 2.3, 2.7])
    x = gaussian(2 * COUNT, 5, 6)
    result = recover_lowest_layer(x, union(w, t)(x), activation="sign", rng=0)
    assert result.success
    order = (result.directions @ w.T).argmax(axis=1)
    # phi(2.7) = 0.0104: a limit of 5 / (4e5 * 0.0104) = 1.2e-3 rad, times five.
    assert largest_angle(result.directions, w) < 6e-3
    assert result.thresholds == pytest.approx(t[order], abs=6e-3)


def test_flipped_labels_are_survived_and_told() -> None:
    w = orthonormal(5, 3, 7)
    x = gaussian(COUNT, 5, 7)
    y = union(w, 2.0)(x)
    y = np.where(np.random.default_rng(0).random(COUNT) < 0.03, 1.0 - y, y)
    result = recover_lowest_layer(x, y, activation="sign", rng=0)
    assert result.success
    assert "flipped" in result.message
    # Wrong labels in a slab of a few times the error add to its noise: twice the limit.
    assert largest_angle(result.directions, w) < 2 * LIMIT


def test_noise_on_the_values() -> None:
    w = orthonormal(5, 3, 8)
    x = gaussian(2 * COUNT, 5, 8)
    noise = 0.01 * np.random.default_rng(0).standard_normal(2 * COUNT)
    y = np.maximum(x @ w.T - 2.0, 0.0).sum(axis=1) + noise
    result = recover_lowest_layer(x, y, activation="relu", rng=0)
    assert result.success
    assert "noisy" in result.message
    # The blur is 0.01 high: sqrt(n 0.01 / (4e5 phi(2))) = 1.5e-3 rad, times five.
    assert largest_angle(result.directions, w) < 8e-3


def test_streams_give_the_same_as_arrays_and_one_pass_streams_work() -> None:
    w = orthonormal(4, 3, 9)
    x = gaussian(COUNT, 4, 9)
    y = union(w, 2.0)(x)
    config = ThresholdConfig(pilot_rows=100_000)

    def opened() -> object:
        return iter([(x[i : i + 5000], y[i : i + 5000]) for i in range(0, COUNT, 5000)])

    stream = recover_lowest_layer(opened, activation="sign", config=config, rng=0)
    assert stream.success
    assert stream.queries.samples == COUNT
    assert largest_angle(stream.directions, w) < LIMIT
    once = recover_lowest_layer(opened(), activation="sign", config=config, rng=0)
    assert once.success
    # Only the pilot, half of the samples, is left for the refinement.
    assert largest_angle(once.directions, w) < 2 * LIMIT


def test_same_seed_same_bits_and_a_round_trip(tmp_path: Path) -> None:
    w = orthonormal(4, 3, 10)
    x = gaussian(60_000, 4, 10)
    y = union(w, 1.8)(x)
    first = recover_lowest_layer(x, y, activation="sign", rng=5)
    second = recover_lowest_layer(x, y, activation="sign", rng=5)
    assert (first.directions == second.directions).all()
    assert (first.thresholds == second.thresholds).all()
    loaded = RecoveryResult.load(first.save(tmp_path / "layer.safetensors"))
    assert isinstance(loaded, LowestLayerResult)
    assert (loaded.directions == first.directions).all()
    assert loaded.activation == "sign"


def test_rotating_the_inputs_rotates_the_units() -> None:
    w = orthonormal(4, 3, 11)
    x = gaussian(COUNT, 4, 11)
    y = union(w, 2.0)(x)
    q = orthonormal(4, 4, 12)
    plain = recover_lowest_layer(x, y, activation="sign", rng=0)
    turned = recover_lowest_layer(x @ q, y, activation="sign", rng=0)
    assert turned.success
    # Both are within LIMIT of the truth.
    assert largest_angle(turned.directions @ q.T, plain.directions) < 2 * LIMIT


# -------------------------------------------------------- unrefined, sigmoids


def test_unrefined_units_carry_honest_errors() -> None:
    w = orthonormal(5, 3, 13)
    x = gaussian(COUNT, 5, 13)
    result = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", refine=False, rng=0)
    assert result.success
    angle = largest_angle(result.directions, w)
    assert angle < 0.15
    # The stated error is sampling error alone; the products' bias is about 0.03 here.
    assert angle < 4.0 * result.angle_errors.max() + 0.05


def kept_by_sigmoids(w: np.ndarray, t: float, count: int, seed: int) -> np.ndarray:
    """Points with density phi(x) sum_i s(w_i.x - t): s(a) <= exp(a) tilts to N(w_i, I)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3 * count, w.shape[1])) + w[rng.integers(0, len(w), 3 * count)]
    bound = np.exp(x @ w.T - t)
    keep = rng.random(len(x)) * bound.sum(axis=1) < (bound / (1 + bound)).sum(axis=1)
    return x[keep][:count]


def test_sigmoid_units_from_biased_samples() -> None:
    w = orthonormal(6, 3, 14)
    x = kept_by_sigmoids(w, 6.0, COUNT, 14)
    result = recover_lowest_layer(x, np.ones(len(x)), activation="sigmoid", biased=True, rng=0)
    assert result.success
    # Third moments of 2e5 points, weight 1/3 per unit: sqrt(6 * 6 / 2e5) * 3 = 0.04 rad.
    assert largest_angle(result.directions, w) < 0.15
    assert np.isnan(result.thresholds).all()
    shifted = x + w.sum(axis=0)  # as if every point had been caused by several units
    low = recover_lowest_layer(shifted, np.ones(len(x)), activation="sigmoid", biased=True, rng=0)
    assert low.status is Status.ASSUMPTION_VIOLATED
    assert "too low" in low.message


def test_sigmoid_units_by_queries_and_by_the_biased_sampler() -> None:
    w = orthonormal(5, 3, 23)
    oracle = connect(lambda x: (1.0 / (1.0 + np.exp(6.0 - x @ w.T))).sum(axis=1), input_dim=5)
    asked = recover_lowest_layer(oracle, activation="sigmoid", samples=200_000, rng=0)
    assert asked.success
    # Weights f of relative variance about 2: third moments of an effective 1e5 points.
    assert largest_angle(asked.directions, w) < 0.2
    kept = draw_biased_samples(oracle, 20_000, bound=0.5, rng=0)
    assert len(kept.x) == 20_000
    assert oracle.queries.by_stage["biased sampler"] == kept.drawn
    # exp tilts to a mixture of N(w_i, I): the kept points' mean is that of the units.
    assert kept.x.mean(axis=0) == pytest.approx(w.mean(axis=0), abs=0.06)
    with pytest.raises(InvalidInput, match="count"):
        draw_biased_samples(oracle, 0)


# -------------------------------------------------------------------- queries


def test_queries_refine_far_beyond_samples() -> None:
    w = orthonormal(6, 4, 15)
    asked = 0

    def f(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        units = np.maximum(x @ w.T - 2.0, 0.0)
        return np.tanh(units.sum(axis=1) - 0.5)

    oracle = connect(f, input_dim=6)
    result = recover_lowest_layer(oracle, activation="relu", samples=60_000, rng=0)
    assert result.status is Status.RECOVERED
    # Standard errors below 1e-6 rad: five of them for the largest of four units.
    assert largest_angle(result.directions, w) < 5e-6
    assert result.thresholds == pytest.approx(2.0, abs=5e-6)
    assert result.queries.total == asked
    assert result.queries.by_stage["certificate"] == 2000
    assert result.certificate is not None
    assert result.certificate.exceeding == 0


def test_a_relu_network_is_a_target() -> None:
    w = orthonormal(5, 3, 16)
    network = ReLUNetwork([w, np.ones((1, 3))], [np.full(3, -2.0), np.zeros(1)])
    result = recover_lowest_layer(network, activation="relu", samples=60_000, rng=0)
    assert result.success
    assert largest_angle(result.directions, w) < 5e-6


def test_a_rare_unit_that_is_missed_is_noticed() -> None:
    w = orthonormal(5, 4, 24)
    t = np.array([2.0, 2.0, 2.0, 3.5])
    oracle = connect(union(w, t), input_dim=5)
    result = recover_lowest_layer(oracle, activation="sign", samples=60_000, rng=0)
    # 14 of the 60,000 answers are on for the last unit alone.
    assert result.status is Status.PARTIAL or largest_angle(result.directions, w) < 1e-4


@pytest.mark.parametrize("budget", [0, 100, 30_000, 61_000])
def test_budgets_end_the_run_with_what_was_found(budget: int) -> None:
    w = orthonormal(4, 3, 17)
    oracle = connect(union(w, 2.0), input_dim=4, output_dim=1, budget=budget)
    result = recover_lowest_layer(oracle, activation="sign", samples=60_000, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= budget
    assert "budget" in result.message
    if budget > 60_000:
        assert largest_angle(result.directions, w) < 0.05


def test_nonsense_answers_are_not_hidden() -> None:
    with pytest.raises(InvalidAnswer):
        recover_lowest_layer(
            connect(lambda x: np.full(len(x), np.nan), input_dim=3, output_dim=1),
            activation="sign",
            rng=0,
        )


# -------------------------------------------------------------- never wrongly


@pytest.mark.parametrize("t", [0.3, 0.7, 1.0])
def test_low_thresholds_are_named(t: float) -> None:
    w = orthonormal(8, 8, 18)
    x = gaussian(60_000, 8, 18)
    result = recover_lowest_layer(x, union(w, t)(x), activation="sign", rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "too low" in result.message
    rough = recover_lowest_layer(x, union(w, t)(x), activation="sign", refine=False, rng=0)
    assert rough.status in (Status.ASSUMPTION_VIOLATED, Status.PARTIAL)


@pytest.mark.parametrize(
    "labels",
    [
        lambda x: np.zeros(len(x)),
        lambda x: np.random.default_rng(0).integers(0, 2, len(x)).astype(float),
        lambda x: (np.linalg.norm(x, axis=1) > 3.0).astype(float),
        lambda x: x[:, 0] ** 2,
    ],
    ids=["constant", "coin", "ball", "square"],
)
def test_what_has_no_such_layer_is_never_recovered(labels: Function) -> None:
    x = gaussian(60_000, 5, 19)
    for refine in (True, False):
        result = recover_lowest_layer(x, labels(x), activation="sign", refine=refine, rng=0)
        assert result.status is not Status.RECOVERED
        assert len(result.message) > 20


def test_units_that_cancel_are_found_but_not_called_monotone() -> None:
    w = orthonormal(5, 3, 22)
    x = gaussian(COUNT, 5, 22)
    parity = ((x @ w.T > 1.7).sum(axis=1) % 2).astype(float)
    result = recover_lowest_layer(x, parity, activation="sign", rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "monotone" in result.message
    assert largest_angle(result.directions, w) < LIMIT


def test_too_few_samples_are_named() -> None:
    w = orthonormal(6, 4, 20)
    for count in (30, 300, 2000):
        x = gaussian(count, 6, 20)
        result = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", rng=0)
        assert result.status is not Status.RECOVERED


def test_dependent_units_are_told_apart_or_named() -> None:
    w = orthonormal(4, 3, 21)
    w[2] = w[0] + 0.02 * w[2]
    w[2] /= np.linalg.norm(w[2])
    x = gaussian(COUNT, 4, 21)
    result = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", rng=0)
    if result.status is Status.RECOVERED:
        assert largest_angle(result.directions, w) < 5 * LIMIT
    y = np.maximum(x @ w.T - 2.0, 0.0).sum(axis=1)
    rough = recover_lowest_layer(x, y, activation="relu", refine=False, units=3, rng=0)
    assert rough.status in (Status.ILL_CONDITIONED, Status.PARTIAL)


@pytest.mark.parametrize(
    ("keywords", "match"),
    [
        ({"activation": "tanh"}, "activation"),
        ({"method": "fifth"}, "method"),
        ({"threshold": np.nan}, "threshold"),
        ({"units": 0}, "units"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_arguments(keywords: dict[str, object], match: str) -> None:
    x = gaussian(100, 3, 0)
    with pytest.raises(InvalidInput, match=match):
        recover_lowest_layer(x, x[:, 0], **keywords)  # type: ignore[arg-type]


def test_bad_sources() -> None:
    x = gaussian(100, 3, 0)
    oracle = connect(lambda p: p, input_dim=3)
    with pytest.raises(InvalidInput, match="3 outputs"):
        recover_lowest_layer(oracle)
    with pytest.raises(InvalidInput, match="leave y out"):
        recover_lowest_layer(oracle, x[:, 0])
    with pytest.raises(InvalidInput, match="biased"):
        recover_lowest_layer(connect(lambda p: p[:, 0], input_dim=3), biased=True)
    with pytest.raises(InvalidInput, match="labels are missing"):
        recover_lowest_layer(x)
    with pytest.raises(InvalidInput, match="connect"):
        recover_lowest_layer(lambda p: p[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ten_units_at_a_million_samples(seed: int) -> None:
    w = orthonormal(10, 10, seed + 30)
    x = gaussian(1_000_000, 10, seed + 30)
    result = recover_lowest_layer(x, union(w, 2.0)(x), activation="sign", rng=seed)
    assert result.success
    assert largest_angle(result.directions, w) < 2e-3
