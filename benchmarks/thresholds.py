"""High thresholds, halfspaces, structured layers (Goel & Panigrahy).

``python -m benchmarks.thresholds --rows SUBSTRING --seeds N --jobs 1``

Rows that begin with "baseline" show what else a user would pick, at equal samples;
they have no target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.harness import NotHereError, Row, main, priced
from unrelu.modular import learn_modular
from unrelu.oracles import connect
from unrelu.thresholds.algorithm import learn_halfspaces, recover_lowest_layer
from unrelu.thresholds.detector import detect_directions
from unrelu.thresholds.structured_layers import recover_binary_layer, recover_even_layer

SEEDS = range(2000, 2020)

Function = Callable[[np.ndarray], np.ndarray]


# --------------------------------------------------------------- planted truth


def orthonormal(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((n, k)))[0].T


def unit_rows(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    rows = rng.standard_normal((k, n))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def conditioned(n: int, k: int, condition: float, rng: np.random.Generator) -> np.ndarray:
    """Unit rows with a given condition number, by alternating projections."""
    rows = rng.standard_normal((k, n))
    for _ in range(500):
        left, _, right = np.linalg.svd(rows, full_matrices=False)
        rows = (left * np.geomspace(condition, 1.0, k)) @ right
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def stream(n: int, f: Function, count: int, seed: int, rows: int = 100_000) -> Callable[[], Any]:
    """Samples generated anew at every reading: nothing of size ``count`` is kept."""

    def open_stream() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng([seed, 77])
        for start in range(0, count, rows):
            x = rng.standard_normal((min(rows, count - start), n))
            yield x, f(x)

    return open_stream


def pairs(k: int, low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    return np.triu(rng.uniform(low, high, (k, k)), 1)


def match(
    found: np.ndarray, truth: np.ndarray, *, signed: bool = True
) -> tuple[float, np.ndarray]:
    """Largest angle after the best matching, pi where units are missing; and the match."""
    if found.shape != truth.shape:
        return float(np.pi), np.arange(len(truth))
    cosines = found @ truth.T
    cosines = cosines if signed else np.abs(cosines)
    rows, cols = linear_sum_assignment(-cosines)
    signs = np.ones(len(rows)) if signed else np.sign((found @ truth.T)[rows, cols])
    chords = np.linalg.norm(found[rows] * signs[:, None] - truth[cols], axis=1)
    return float(2.0 * np.arcsin(np.minimum(chords / 2.0, 1.0)).max()), cols


# ------------------------------------------------------------------------ rows


def _layer(
    seed: int,
    f: Function,
    truth: np.ndarray,
    count: int,
    activation: str,
    limit: float,
    landscape_limit: float = np.pi,
) -> dict[str, Any]:
    begin = time.perf_counter()
    result = recover_lowest_layer(
        stream(truth.shape[1], f, count, seed), activation=activation, rng=seed
    )
    angle, _ = match(result.directions, truth)
    landscape, _ = match(result.landscape_directions, truth)
    return {
        "success": result.success and angle <= limit and landscape <= landscape_limit,
        "angle": angle,
        "landscape": landscape,
        "standard_error": float(result.angle_errors.max(initial=0.0)),
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


def run_union(seed: int, count: int, limit: float, landscape_limit: float) -> dict[str, Any]:
    truth = orthonormal(10, 10, np.random.default_rng(seed))

    def f(x: np.ndarray) -> np.ndarray:
        return (x @ truth.T > 2.0).any(axis=1).astype(float)

    return _layer(seed, f, truth, count, "sign", limit, landscape_limit)


def run_relu(seed: int, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth, products = conditioned(10, 10, 3.0, rng), pairs(10, 0.0, 1.0, rng)

    def f(x: np.ndarray) -> np.ndarray:
        units = np.maximum(x @ truth.T - 2.0, 0.0)
        return units.sum(axis=1) + ((units @ products) * units).sum(axis=1)

    return _layer(seed, f, truth, count, "relu", 1e-3)


def run_deep(seed: int, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth, weights = unit_rows(20, 10, rng), rng.uniform(0.5, 1.5, 10)

    def f(x: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(1.0 - np.maximum(x @ truth.T - 2.5, 0.0) @ weights))

    return _layer(seed, f, truth, count, "relu", 1e-3)


def run_powers(seed: int, count: int, activation: str) -> dict[str, Any]:
    """B.7: each unit in powers 1 to 3, and products of powers."""
    rng = np.random.default_rng(seed)
    truth = orthonormal(10, 10, rng)
    single, products = rng.uniform(0.2, 1.0, (3, 10)), pairs(10, 0.0, 1.0, rng)

    def f(x: np.ndarray) -> np.ndarray:
        heights = x @ truth.T - 2.0
        units = (heights > 0).astype(float) if activation == "sign" else np.clip(heights, 0.0, 1.0)
        powers = single[0] * units + single[1] * units**2 + single[2] * units**3
        return powers.sum(axis=1) + ((units @ products) * units**2).sum(axis=1)

    return _layer(seed, f, truth, count, activation, 1e-2)


def run_modular(seed: int, count: int) -> dict[str, Any]:
    """Appendix E: a rotation, tanh, sign units with t = 2, a ReLU network above."""
    rng = np.random.default_rng(seed)
    truth = orthonormal(10, 10, rng)
    inner, outer = rng.uniform(0.2, 1.0, (12, 10)), rng.uniform(0.2, 1.0, 12)

    def f(x: np.ndarray) -> np.ndarray:
        cut = (np.tanh(x @ truth.T) > np.tanh(2.0)).astype(float)
        return np.maximum(cut @ inner.T - 0.1, 0.0) @ outer

    begin = time.perf_counter()
    result = learn_modular(stream(10, f, count, seed), rng=seed)
    angle, _ = match(result.directions, truth)
    fresh = rng.standard_normal((50_000, 10))
    answers = f(fresh)
    error = float(np.sqrt(np.mean((result.predict(fresh) - answers) ** 2)) / answers.std())
    return {
        "success": result.success and angle <= 1e-2,
        "angle": angle,
        "whole": error,
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


def _halfspaces(seed: int, n: int, k: int, low: float, high: float) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    truth, distances = unit_rows(n, k, rng), rng.uniform(low, high, k)

    def inside(x: np.ndarray) -> np.ndarray:
        return (x @ truth.T <= distances).all(axis=1).astype(float)

    return rng, truth, distances, inside


def _judge_halfspaces(
    result: Any,
    rng: np.random.Generator,
    truth: np.ndarray,
    distances: np.ndarray,
    inside: Function,
) -> dict[str, Any]:
    angle, _ = match(result.directions, truth)
    offset = float(np.pi)
    if len(result.thresholds) == len(distances):
        cosines = result.directions @ truth.T
        rows, cols = linear_sum_assignment(-cosines)
        offset = float(np.abs(result.thresholds[rows] - distances[cols]).max())
    fresh = rng.standard_normal((400_000, truth.shape[1]))
    wrong = float(np.mean(result.predict(fresh) != inside(fresh)))
    return {"angle": angle, "offset": offset, "wrong": wrong, "status": result.status.name}


def run_halfspaces(seed: int, count: int, flipped: float) -> dict[str, Any]:
    rng, truth, distances, inside = _halfspaces(seed, 10, 5, 1.8, 2.4)
    x = rng.standard_normal((count, 10))
    y = inside(x)
    y = np.where(rng.random(count) < flipped, 1.0 - y, y)
    begin = time.perf_counter()
    result = learn_halfspaces(x, y, rng=seed)
    facts = _judge_halfspaces(result, rng, truth, distances, inside)
    good = facts["angle"] <= 1e-2
    if not flipped:
        good = facts["angle"] <= 2e-3 and facts["offset"] <= 2e-3 and facts["wrong"] <= 5e-4
    return {"success": result.success and good, **facts, "seconds": time.perf_counter() - begin}


def run_halfspaces_queries(
    seed: int, n: int, k: int, low: float, high: float, limit: int
) -> dict[str, Any]:
    rng, truth, distances, inside = _halfspaces(seed, n, k, low, high)
    asked = 0

    def target(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        return inside(x)

    begin = time.perf_counter()
    result = learn_halfspaces(connect(target, input_dim=n), rng=seed)
    spent = asked
    facts = _judge_halfspaces(result, rng, truth, distances, inside)
    good = facts["angle"] <= 1e-10 and spent <= limit and spent == result.queries.total
    return {
        "success": result.success and good,
        **facts,
        "queries": spent,
        "seconds": time.perf_counter() - begin,
        **priced(result),
    }


def run_relu_queries(seed: int) -> dict[str, Any]:
    """Slabs asked directly: the deep network of the third row, by queries."""
    rng = np.random.default_rng(seed)
    truth, weights = unit_rows(20, 10, rng), rng.uniform(0.5, 1.5, 10)

    def f(x: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(1.0 - np.maximum(x @ truth.T - 2.5, 0.0) @ weights))

    begin = time.perf_counter()
    result = recover_lowest_layer(connect(f, input_dim=20), activation="relu", rng=seed)
    angle, _ = match(result.directions, truth)
    return {
        "success": result.success and angle <= 5e-6,
        "angle": angle,
        "queries": result.queries.total,
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
        **priced(result),
    }


def kept_samples(
    truth: np.ndarray, t: float, products: np.ndarray, count: int, seed: int
) -> Callable[[], Any]:
    """Points with density phi(x) f(x) / E f, f = sum s_i + sum c_ij s_i s_j of sigmoids.

    s(a) <= exp(a), so a mixture of shifted Gaussians is an exact envelope: the same
    distribution as keeping Gaussian points with probability proportional to f, at a
    hundredth of the cost.
    """
    k, n = truth.shape
    i, j = np.triu_indices(k, 1)
    shifts = np.vstack([truth, truth[i] + truth[j]])
    logs = np.concatenate([np.full(k, -t), np.log(products[i, j]) - 2.0 * t])
    weights = np.exp(logs + 0.5 * (shifts**2).sum(axis=1))
    weights /= weights.sum()

    def open_stream() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng([seed, 78])
        have = 0
        while have < count:
            part = rng.choice(len(weights), size=100_000, p=weights)
            x = rng.standard_normal((100_000, n)) + shifts[part]
            bound = np.exp(x @ truth.T - t)
            units = bound / (1.0 + bound)
            f = units.sum(axis=1) + ((units @ products) * units).sum(axis=1)
            envelope = bound.sum(axis=1) + ((bound @ products) * bound).sum(axis=1)
            kept = np.flatnonzero(rng.random(len(x)) * envelope < f)[: count - have]
            have += len(kept)
            yield x[kept], f[kept]

    return open_stream


def run_sigmoid(seed: int, k: int, limit: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth, products = orthonormal(10, k, rng), pairs(k, 0.0, 1.0, rng)
    source = kept_samples(truth, 6.0, products, 1_000_000, seed)
    begin = time.perf_counter()
    result = recover_lowest_layer(source, activation="sigmoid", biased=True, rng=seed)
    angle, _ = match(result.directions, truth)
    return {
        "success": result.success and angle <= limit,
        "angle": angle,
        "standard_error": float(result.angle_errors.max(initial=0.0)),
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


def _supports(n: int, sizes: list[int], rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(n)
    rows = np.zeros((len(sizes), n))
    start = 0
    for row, size in enumerate(sizes):
        rows[row, order[start : start + size]] = 1.0
        start += size
    return rows


def run_binary(
    seed: int, n: int, sizes: list[int], count: int, threshold: float | None, transform: str
) -> dict[str, Any]:
    """Units exp(0.5 (w . x - t)) for Theorem 8, exp(w . x) for Theorem 9."""
    rng = np.random.default_rng(seed)
    k = len(sizes)
    truth = _supports(n, sizes, rng)
    linear, products = rng.uniform(0.5, 1.5, k), pairs(k, 0.0, 1.0, rng)

    def f(x: np.ndarray) -> np.ndarray:
        sums = x @ truth.T
        units = np.exp(sums if threshold is None else 0.5 * (sums - threshold))
        return units @ linear + ((units @ products) * units).sum(axis=1)

    begin = time.perf_counter()
    source = stream(n, f, count, seed, 20_000)
    result = recover_binary_layer(source, transform=transform, rng=seed)
    exact = {tuple(r) for r in result.supports} == {tuple(r) for r in truth}
    return {
        "success": result.success and exact,
        "exact": float(exact),
        "gap": float(result.stages[0].details["gap"]),
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


def run_even(seed: int, count: int, activation: str, limit: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = orthonormal(10, 10, rng)
    products = pairs(10, -0.1, 0.1, rng) if activation == "abs" else pairs(10, 0.1, 0.3, rng)

    def f(x: np.ndarray) -> np.ndarray:
        units = np.abs(x @ truth.T)
        units = units if activation == "abs" else units**2
        return units.sum(axis=1) + ((units @ products) * units).sum(axis=1)

    begin = time.perf_counter()
    result = recover_even_layer(stream(10, f, count, seed), rng=seed)
    angle, _ = match(result.directions, truth, signed=False)
    return {
        "success": result.success and angle <= limit,
        "angle": angle,
        "standard_error": float(result.angle_errors.max(initial=0.0)),
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


def run_detector(seed: int, activation: str, limit: int, t: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = orthonormal(3, 3, rng)

    def f(x: np.ndarray) -> np.ndarray:
        heights = x @ truth.T - t
        units = (heights > 0).astype(float) if activation == "sign" else np.maximum(heights, 0.0)
        return units[:, 0] * units[:, 1] + units[:, 1] * units[:, 2]

    begin = time.perf_counter()
    oracle = connect(f, input_dim=3, batch_size=200_000)
    result = detect_directions(oracle, activation=activation, threshold=t, rng=seed)
    angle, _ = match(result.directions, truth)
    return {
        "success": result.success and angle <= 1e-2 and result.queries.total <= limit,
        "angle": angle,
        "queries": result.queries.total,
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


# ------------------------------------------------------------------- baselines


def run_fastica(seed: int, count: int) -> dict[str, Any]:
    """FastICA on the positive samples of the union."""
    from sklearn.decomposition import FastICA

    truth = orthonormal(10, 10, np.random.default_rng(seed))
    x = np.random.default_rng([seed, 77]).standard_normal((count, 10))
    x = x[(x @ truth.T > 2.0).any(axis=1)]
    begin = time.perf_counter()
    ica = FastICA(10, whiten="unit-variance", random_state=0, max_iter=500, tol=1e-6).fit(x)
    found = ica.components_ / np.linalg.norm(ica.components_, axis=1, keepdims=True)
    angle, _ = match(found, truth, signed=False)
    return {"success": angle <= 0.13, "angle": angle, "seconds": time.perf_counter() - begin}


def run_pca(seed: int, count: int) -> dict[str, Any]:
    """Principal components of the positive samples of the union."""
    truth = orthonormal(10, 10, np.random.default_rng(seed))
    x = np.random.default_rng([seed, 77]).standard_normal((count, 10))
    x = x[(x @ truth.T > 2.0).any(axis=1)]
    begin = time.perf_counter()
    _, vectors = np.linalg.eigh(np.cov(x.T))
    angle, _ = match(vectors.T, truth, signed=False)
    return {"success": angle <= 0.13, "angle": angle, "seconds": time.perf_counter() - begin}


def run_mlp(seed: int, count: int) -> dict[str, Any]:
    """A ReLU network trained with Adam on the union; its first layer, matched."""
    from sklearn.neural_network import MLPClassifier

    truth = orthonormal(10, 10, np.random.default_rng(seed))
    x = np.random.default_rng([seed, 77]).standard_normal((count, 10))
    y = (x @ truth.T > 2.0).any(axis=1)
    begin = time.perf_counter()
    model = MLPClassifier(
        (30, 30), batch_size=500, learning_rate_init=2e-3, max_iter=8, tol=0.0, random_state=seed
    )
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    rows = model.coefs_[0].T
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    # The best row for each unit: kinder than a matching.
    angle = float(np.arccos(np.clip((rows @ truth.T).max(axis=0), -1, 1)).max())
    fresh = np.random.default_rng([seed, 79]).standard_normal((200_000, 10))
    wrong = float(np.mean(model.predict(fresh) != (fresh @ truth.T > 2.0).any(axis=1)))
    return {
        "success": angle <= 1e-3,
        "angle": angle,
        "wrong": wrong,
        "seconds": time.perf_counter() - begin,
    }


def run_torch_mlp(seed: int, count: int) -> dict[str, Any]:
    """The same with torch: the better, by training loss, of two rates of a decaying Adam."""
    try:
        import torch
    except ImportError as error:
        raise NotHereError("torch is not installed: pip install torch") from error

    torch.set_num_threads(1)
    truth = orthonormal(10, 10, np.random.default_rng(seed))
    points = np.random.default_rng([seed, 77]).standard_normal((count, 10)).astype(np.float32)
    x = torch.from_numpy(points)
    y = torch.from_numpy((points @ truth.T > 2.0).any(axis=1).astype(np.float32))
    begin = time.perf_counter()
    best, rows = np.inf, np.empty((0, 10))
    for rate in (2e-3, 1e-2):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Linear(10, 30), torch.nn.ReLU(),
            torch.nn.Linear(30, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1),
        )  # fmt: skip
        adam = torch.optim.Adam(model.parameters(), lr=rate)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 12)
        for _ in range(12):
            total = 0.0
            for part in torch.randperm(count).split(1000):
                adam.zero_grad()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(
                    model(x[part])[:, 0], y[part]
                )
                loss.backward()
                adam.step()
                total += float(loss.detach()) * len(part)
            decay.step()
        if total < best:
            best, rows = total, model[0].weight.detach().numpy().astype(float)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    angle = float(np.arccos(np.clip((rows @ truth.T).max(axis=0), -1, 1)).max())
    return {
        "success": angle <= 1e-3,
        "angle": angle,
        "loss": best / count,
        "seconds": time.perf_counter() - begin,
    }


TENMILLION = 10_000_000
ROWS = [
    Row(
        "sign union n=10 k=10 t=2 N=1e7",
        partial(run_union, count=TENMILLION, limit=1e-3, landscape_limit=0.13),
        SEEDS,
        {"success": 19, "landscape": 0.13, "angle": 1e-3},
    ),
    Row(
        "sign union n=10 k=10 t=2 N=1e6",
        partial(run_union, count=1_000_000, limit=2e-3, landscape_limit=np.pi),
        SEEDS,
        {"success": 19, "angle": 2e-3},
    ),
    Row(
        "relu n=10 k=10 condition 3 t=2 N=1e7",
        partial(run_relu, count=TENMILLION),
        SEEDS,
        {"success": 18, "angle": 1e-3},
    ),
    Row(
        "relu n=20 k=10 t=2.5 under a sigmoid N=2e7",
        partial(run_deep, count=2 * TENMILLION),
        SEEDS,
        {"success": 18, "angle": 1e-3},
    ),
    Row("relu n=20 k=10 t=2.5 under a sigmoid, queries", run_relu_queries, SEEDS, {"angle": 1e-6}),
    Row(
        "halfspaces n=10 k=5 N=1e6",
        partial(run_halfspaces, count=1_000_000, flipped=0.0),
        SEEDS,
        {"success": 19, "angle": 2e-3, "offset": 2e-3, "wrong": 5e-4},
    ),
    Row(
        "halfspaces n=10 k=5 N=1e6, 2 % flipped",
        partial(run_halfspaces, count=1_000_000, flipped=0.02),
        SEEDS,
        {"success": 19, "angle": 1e-2},
    ),
    Row(
        "halfspaces n=10 k=5, queries",
        partial(run_halfspaces_queries, n=10, k=5, low=1.8, high=2.4, limit=20_000),
        SEEDS,
        {"success": 20, "angle": 1e-10, "queries": 20_000},
    ),
    Row(
        "halfspaces n=50 k=20 t=3, queries",
        partial(run_halfspaces_queries, n=50, k=20, low=3.0, high=3.0, limit=300_000),
        SEEDS,
        {"success": 20, "angle": 1e-10, "queries": 300_000},
    ),
    Row(
        "sigmoid t=6 biased k=5",
        partial(run_sigmoid, k=5, limit=0.05),
        SEEDS,
        {"success": 18, "angle": 0.05},
    ),
    Row(
        "sigmoid t=6 biased k=10",
        partial(run_sigmoid, k=10, limit=0.15),
        SEEDS,
        {"success": 18, "angle": 0.15},
    ),
    Row(
        "theorem 8 n=50, 5 of 6, N=1e5",
        partial(run_binary, n=50, sizes=[6] * 5, count=100_000, threshold=3.0, transform="auto"),
        SEEDS,
        {"success": 19},
    ),
    Row(
        "theorem 8 n=50, 5 of 6, N=1e5, plain correlations",
        partial(run_binary, n=50, sizes=[6] * 5, count=100_000, threshold=3.0, transform="none"),
        SEEDS,
    ),
    Row(
        "theorem 8 n=200, 20 of 8, N=1e6, plain correlations",
        partial(
            run_binary, n=200, sizes=[8] * 20, count=1_000_000, threshold=3.0, transform="none"
        ),
        SEEDS,
        {"success": 19},
    ),
    Row(
        "theorem 9 n=30, sizes 2 3 5 7 9, N=1e6",
        partial(
            run_binary,
            n=30,
            sizes=[2, 3, 5, 7, 9],
            count=1_000_000,
            threshold=None,
            transform="log",
        ),
        SEEDS,
        {"success": 19},
    ),
    Row(
        "theorem 10 |a| N=1e7",
        partial(run_even, count=TENMILLION, activation="abs", limit=0.007),
        SEEDS,
        {"success": 18, "angle": 0.007},
    ),
    Row(
        "theorem 10 a^2 N=1e7",
        partial(run_even, count=TENMILLION, activation="square", limit=0.02),
        SEEDS,
        {"success": 18, "angle": 0.02},
    ),
    Row(
        "B.7 powers, sign N=1e7",
        partial(run_powers, count=TENMILLION, activation="sign"),
        SEEDS,
        {"success": 16, "angle": 1e-2},
    ),
    Row(
        "B.7 powers, bounded relu N=1e7",
        partial(run_powers, count=TENMILLION, activation="relu"),
        SEEDS,
        {"success": 16, "angle": 1e-2},
    ),
    Row(
        "appendix E, cut of sign units N=1e7",
        partial(run_modular, count=TENMILLION),
        SEEDS,
        {"success": 16, "angle": 1e-2},
    ),
    Row(
        "section 3 detector, sign n=3",
        partial(run_detector, activation="sign", limit=5_000_000),
        SEEDS,
        {"success": 18, "angle": 1e-2, "queries": 5e6},
    ),
    Row(
        "section 3 detector, relu n=3",
        partial(run_detector, activation="relu", limit=20_000_000),
        SEEDS,
        {"success": 18, "angle": 1e-2, "queries": 2e7},
    ),
    Row("baseline FastICA, sign union N=1e6", partial(run_fastica, count=1_000_000), SEEDS[:3]),
    Row("baseline PCA, sign union N=1e6", partial(run_pca, count=1_000_000), SEEDS[:3]),
    Row("baseline MLP with Adam, sign union N=1e6", partial(run_mlp, count=1_000_000), SEEDS[:3]),
    Row(
        "baseline torch MLP with Adam, sign union N=1e6",
        partial(run_torch_mlp, count=1_000_000),
        SEEDS[:3],
    ),
]


if __name__ == "__main__":
    main("thresholds", ROWS)
