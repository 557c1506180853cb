"""Steps of the threshold algorithms on planted hyperplanes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from unrelu.core.moments import HermiteMoments, pair_index
from unrelu.core.symmetric import SymmetricTensor
from unrelu.errors import InvalidInput
from unrelu.samples import as_source
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.detect import detect, move_by_lines
from unrelu.thresholds.facets import FacetSearch, Polyhedron
from unrelu.thresholds.passes import Passes, find_base
from unrelu.thresholds.query import (
    QueryRefinement,
    queried_tan_alpha,
    refine_by_queries,
    sample_biased,
    sample_slab,
)
from unrelu.thresholds.refine import (
    estimate_thresholds,
    refine_estimate,
    refine_hyperplanes,
    sampled_tan_alpha,
)
from unrelu.thresholds.search import count_units, find_directions

CONFIG = ThresholdConfig()


def power_sum(w: np.ndarray, c: np.ndarray, k: int) -> np.ndarray:
    """``sum_i c_i w_i^(x)k``, dense."""
    return SymmetricTensor.of_units(w, c, k).dense()


def orthonormal(n: int, k: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, k)))[0].T


def largest_angle(found: np.ndarray, truth: np.ndarray) -> float:
    assert found.shape == truth.shape
    distance = np.linalg.norm(found[:, None] - truth[None], axis=2)
    assert len(set(distance.argmin(axis=1))) == len(truth)
    return float(2.0 * np.arcsin(distance.min(axis=1) / 2.0).max())


# ------------------------------------------------------------------- landscape


def exact_moments(w: np.ndarray, c: np.ndarray) -> HermiteMoments:
    """E[f He_q] of f = sum c_i u(w_i.x) with all Hermite coefficients of u equal to 1."""
    n = w.shape[1]
    rows, cols = pair_index(n)
    third = power_sum(w, c, 3)
    fourth = power_sum(w, c, 4)
    return HermiteMoments(
        float(c.sum()),
        c @ w,
        power_sum(w, c, 2),
        third[rows, cols],
        fourth[rows, cols][:, rows, cols],
    )


@pytest.mark.parametrize("method", ["joint", "third", "fourth", "simultaneous", "printed"])
@pytest.mark.parametrize("seed", range(3))
def test_directions_from_exact_moments(method: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((4, 7))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    moments = exact_moments(w, rng.uniform(0.5, 2.0, 4))
    found = find_directions(moments, 4, method=method, rng=rng, config=CONFIG)  # type: ignore[arg-type]
    # L-BFGS stops at relative decreases of 2e-9, angles of 1e-4, times the condition number.
    assert largest_angle(found.directions, w) < 2e-3 * found.condition
    assert found.rank == 4


def test_units_are_counted_above_the_noise() -> None:
    rng = np.random.default_rng(0)
    w = orthonormal(8, 3, 0)
    moments = exact_moments(w, np.ones(3))
    noise = 0.01 * rng.standard_normal((8, 8))
    noise = HermiteMoments(0.0, np.zeros(8), noise + noise.T)
    assert count_units(moments + noise, moments - noise, 2.0)[0] == 3
    none = find_directions(moments, 0, method="joint", rng=rng, config=CONFIG)
    assert none.directions.shape == (0, 8)


# ---------------------------------------------------------------------- passes


def test_base_is_the_atom_or_the_median() -> None:
    rng = np.random.default_rng(1)
    y = np.where(rng.random(10_000) < 0.8, 0.25, rng.uniform(0.3, 1.0, 10_000))
    base = find_base(y, CONFIG)
    assert base.exact
    assert base.level == 0.25
    assert base.share == pytest.approx(0.8, abs=0.02)
    assert base.is_on(np.array([0.25, 0.26])).tolist() == [False, True]
    noisy = find_base(y + 1e-3 * rng.standard_normal(len(y)), CONFIG)
    assert not noisy.exact
    assert noisy.level == pytest.approx(0.25, abs=1e-3)
    # Two values, the upper one more common: a base that is on more often than not.
    assert find_base(np.array([0.0] * 4 + [1.0] * 5 + [2.0] * 2), CONFIG).level == 0.0


def batches(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(2)
    for _ in range(count):
        x = rng.standard_normal((1000, 3))
        yield x, (x[:, 0] > 1.0).astype(float)


@pytest.mark.parametrize("restartable", [True, False])
def test_passes_see_every_row_once_and_hold_some_out(restartable: bool) -> None:
    config = ThresholdConfig(pilot_rows=2000, held_out=500)
    source = as_source((lambda: batches(8)) if restartable else batches(8))
    passes = Passes(source, lambda y: y, config)
    every = np.concatenate([x for x, _ in batches(8)])
    assert len(passes.held_x) == 500
    assert (passes.held_x == every[:500]).all()
    seen = np.concatenate([x for x, _ in passes.training()])
    assert (seen == every[500:]).all()
    assert passes.samples == 8000
    again = np.concatenate([x for x, _ in passes.training()])
    assert len(again) == (7500 if restartable else len(passes.pilot_x))


def test_slabs_collect_what_is_near_and_what_is_unexplained() -> None:
    x = np.concatenate([x for x, _ in batches(8)])
    on = (x[:, 0] > 1.0) | (x[:, 1] > 1.5)
    passes = Passes(as_source(x, on.astype(float)), lambda y: y, ThresholdConfig(held_out=0))
    slabs = passes.slabs(np.eye(3)[:1], np.array([1.0]), np.array([0.1]))
    near = np.abs(x[:, 0] - 1.0) < 0.1
    assert len(slabs.x) == near.sum()
    assert slabs.unexplained_count == (on & (x[:, 0] <= 0.9)).sum()
    assert slabs.overexplained_count == 0
    assert slabs.below == (x[:, 0] <= 0.9).sum()
    with pytest.raises(InvalidInput, match="beyond the held-out"):
        Passes(as_source(iter([(x[:10], on[:10])])), lambda y: y, CONFIG)


# ------------------------------------------------------------------ refinement


@pytest.mark.parametrize("seed", range(3))
def test_refinement_on_samples_reaches_the_rate_of_a_boundary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k, count = 6, 4, 200_000
    w = orthonormal(n, k, seed)
    t = np.array([1.8, 2.0, 2.1, 1.9])
    x = rng.standard_normal((count, n))
    on = (x @ w.T > t).any(axis=1)
    start = w + 0.1 * rng.standard_normal(w.shape) / np.sqrt(n)
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    thresholds, tangents = estimate_thresholds(x, on, start, config=CONFIG)
    # Rates from bins of 0.05: the threshold to within a bin or two.
    assert thresholds == pytest.approx(t, abs=0.1)
    assert (tangents < 0.4).all()
    found = refine_hyperplanes(x, on, start, thresholds, config=CONFIG)
    # n / (count phi(2.1)) = 7e-4 rad per unit; five times that, for the largest of four.
    assert largest_angle(found.directions, w) < 3.5e-3
    assert found.thresholds == pytest.approx(t, abs=3.5e-3)
    assert (found.jumps > 0.8).all()
    assert (found.errors < 3e-3).all()


def test_algorithm_one_lowers_the_angle_and_records_each_accepted_step() -> None:
    w = orthonormal(4, 1, 0)[0]
    tilt = np.linalg.svd(w[None])[2][1]
    start = np.cos(0.3) * w + np.sin(0.3) * tilt

    def exact(z: np.ndarray) -> float:
        return float(np.tan(np.arccos(np.clip(z @ w, -1, 1))))

    z, accepted = refine_estimate(
        exact, start, rng=np.random.default_rng(0), tolerance=0.1, iterations=4000
    )
    assert np.arccos(z @ w) <= 0.1
    ratios = np.array(accepted[1:]) / np.array(accepted[:-1])
    # Acceptance asks for a factor of at least 1 - 0.004 / 4.
    assert (ratios <= 1.0 - 0.001).all()
    lost, none = refine_estimate(
        lambda z: None, start, rng=np.random.default_rng(0), tolerance=0.1, iterations=5
    )
    assert lost == pytest.approx(start, rel=1e-15)
    assert none == []


def test_sampled_and_queried_tan_alpha() -> None:
    rng = np.random.default_rng(1)
    w = orthonormal(5, 1, 1)[0]
    z = np.cos(0.2) * w + np.sin(0.2) * np.linalg.svd(w[None])[2][1]
    x = rng.standard_normal((400_000, 5))
    sampled = sampled_tan_alpha(x, x @ w > 1.5, width=0.05)(z)
    queried = queried_tan_alpha(lambda p: p @ w > 1.5, 5, 1.5, count=50_000, rng=rng, start=0.3)(z)
    # About 5 % noise in each crossing's height over the interval between them.
    assert sampled == pytest.approx(np.tan(0.2), rel=0.35)
    assert queried == pytest.approx(np.tan(0.2), rel=0.25)


def test_algorithm_one_by_queries_falls_geometrically() -> None:
    w = orthonormal(5, 1, 2)[0]
    start = np.cos(0.2) * w + np.sin(0.2) * np.linalg.svd(w[None])[2][1]
    rng = np.random.default_rng(3)
    tan_alpha = queried_tan_alpha(lambda p: p @ w > 2.0, 5, 2.0, count=5000, rng=rng, start=0.3)
    z, accepted = refine_estimate(tan_alpha, start, rng=rng, tolerance=0.02, iterations=1500)
    assert len(accepted) > 20
    # Estimates are within about 20 % of the angle, whatever it is.
    assert np.arccos(z @ w) < 0.04


@pytest.mark.parametrize("seed", range(3))
def test_refinement_by_queries_goes_on_to_the_tolerance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = orthonormal(6, 5, seed)
    asked = 0

    def is_on(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        return (x @ w.T > 2.0).any(axis=1)

    start = w + 0.05 * rng.standard_normal(w.shape) / np.sqrt(6)
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    state = QueryRefinement(start, np.full(5, 2.05), np.full(5, 0.08), np.zeros(5))
    refine_by_queries(is_on, state, tolerance=1e-8, move_thresholds=True, rng=rng, config=CONFIG)
    # The standard errors are below 1e-8; five of them for the largest of five units.
    assert largest_angle(state.directions, w) < 5e-8
    assert state.thresholds == pytest.approx(2.0, abs=5e-8)
    assert asked < 60_000
    assert state.history[-1] < 1e-6 < state.history[0]


def test_slab_sampling_respects_its_limits() -> None:
    z = np.eye(3)[0]
    x = sample_slab(
        z, 2.0, 0.1, 500, rng=np.random.default_rng(0), clear=lambda p: p[:, 1] < 0, redraws=50
    )
    assert len(x) == 500
    assert (np.abs(x[:, 0] - 2.0) <= 0.1).all()
    assert (x[:, 1] < 0).all()
    none = sample_slab(
        z, 2.0, 0.1, 50, rng=np.random.default_rng(0), clear=lambda p: p[:, 1] > 99, redraws=3
    )
    assert len(none) == 0


def test_biased_sampler_keeps_in_proportion() -> None:
    rng = np.random.default_rng(3)

    def f(x: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * (x[:, 0] - 1.0) ** 2)

    kept = sample_biased(f, 2, 20_000, rng=rng, bound=1.0)
    # phi(a) f(a) is a Gaussian of mean 1/2 and variance 1/2; standard error 0.005.
    assert kept.x[:, 0].mean() == pytest.approx(0.5, abs=0.025)
    assert kept.x[:, 0].var() == pytest.approx(0.5, abs=0.03)
    assert kept.clipped == 0
    short = sample_biased(f, 2, 10**6, rng=rng, limit=50_000)
    assert len(short.x) < 10**6
    assert short.drawn <= 50_000
    with pytest.raises(InvalidInput, match="never negative"):
        sample_biased(lambda x: x[:, 0], 2, 10, rng=rng, bound=1.0)
    with pytest.raises(InvalidInput, match="zero wherever"):
        sample_biased(lambda x: np.zeros(len(x)), 2, 10, rng=rng)


# ---------------------------------------------------------------------- facets


def test_crossings_of_a_polyhedron() -> None:
    cube = Polyhedron(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4))
    rays = np.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    nearest = cube.crossings(np.array([0.5, 0.0]), rays).min(axis=1)
    assert nearest == pytest.approx([0.5, 0.5 / 0.6, 1.5])
    empty = Polyhedron(np.empty((0, 2)), np.empty(0))
    assert empty.crossings(np.zeros(2), rays).shape == (3, 0)


@pytest.mark.parametrize(("n", "k"), [(2, 3), (3, 6), (8, 5), (12, 20)])
def test_facets_to_machine_precision(n: int, k: int) -> None:
    rng = np.random.default_rng(n * k)
    w = rng.standard_normal((k, n))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    t = rng.uniform(1.0, 2.0, k)
    search = FacetSearch(lambda x: (x @ w.T > t).any(axis=1), np.zeros(n), rng=rng, config=CONFIG)
    assert search.search() == CONFIG.quiet_rays
    assert search.unresolved == 0
    # Crossings to 1e-15 at points of norm up to 20 sqrt(n), spread over 0.01 or more where
    # facets are small.
    for direction, threshold in zip(search.known.directions, search.known.thresholds, strict=True):
        i = int(np.argmax(w @ direction))
        assert np.linalg.norm(direction - w[i]) < 1e-10
        assert abs(threshold - t[i]) < 1e-9
    # Halfspaces may be redundant, but nothing found is found twice.
    owners = (search.known.directions @ w.T).argmax(axis=1)
    assert len(set(owners)) == len(owners)


def test_a_curved_region_is_given_up() -> None:
    rng = np.random.default_rng(0)
    search = FacetSearch(
        lambda x: np.linalg.norm(x, axis=1) > 2.0, np.zeros(3), rng=rng,
        config=ThresholdConfig(most_facets=30),
    )  # fmt: skip
    search.search()
    assert search.unresolved or len(search.precision) == 30


# -------------------------------------------------------------------- detector


@pytest.mark.parametrize("kink", [False, True])
def test_detector_stays_at_a_unit_and_falls_elsewhere(kink: bool) -> None:
    rng = np.random.default_rng(4)

    def f(x: np.ndarray) -> np.ndarray:
        heights = x[:, :2] - 1.0
        units = np.maximum(heights, 0.0) if kink else (heights > 0).astype(float)
        return units[:, 0] * units[:, 1]

    between = np.array([np.cos(0.6), 0.0, np.sin(0.6)])
    at = np.vstack([np.eye(3)[0], between])
    near, far = (
        detect(f, at, 1.0, epsilon, 40_000, kink=kink, rng=rng) for epsilon in (0.05, 0.1)
    )
    # E[X_2] is 1 - Phi(1) = 0.159 for sign, phi(1) - (1 - Phi(1)) = 0.083 for ReLU.
    assert near[0].strength == pytest.approx(0.083 if kink else 0.159, abs=0.01)
    assert far[0].strength == pytest.approx(near[0].strength, abs=0.02)
    assert abs(near[1].strength) < 0.75 * abs(far[1].strength)


@pytest.mark.parametrize("kink", [False, True])
def test_lines_move_a_hyperplane_to_the_break(kink: bool) -> None:
    rng = np.random.default_rng(5)

    def f(x: np.ndarray) -> np.ndarray:
        heights = x[:, 0] - 1.0
        units = np.maximum(heights, 0.0) if kink else (heights > 0).astype(float)
        return units * (1.0 + (x[:, 1] > 0))

    z = np.array([1.0, 0.05, -0.05])
    z /= np.linalg.norm(z)
    step = move_by_lines(f, z, 1.02, 0.3, 4000, kink=kink, rng=rng)
    assert step is not None
    before, after = np.linalg.norm(z - np.eye(3)[0]), np.linalg.norm(step.direction - np.eye(3)[0])
    # A jump's position is known to a random point per line: a few per cent of the error remain.
    # A kink's is exact where nothing else breaks; the jump in the factor at x_1 = 0 is crossed
    # by few lines and tilts some of the slopes.
    assert after < 0.25 * before
    assert step.threshold == pytest.approx(1.0, abs=0.01)
    flat = move_by_lines(lambda x: np.zeros(len(x)), z, 1.0, 0.3, 200, kink=kink, rng=rng)
    assert flat is None
