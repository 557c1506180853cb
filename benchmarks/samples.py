"""Depth-2 networks from Gaussian samples: every row of the table.

    python -m benchmarks.samples [--rows SUBSTRING] [--seeds N] [--jobs J]

Targets: m units with unit w, a in +-[0.5, 1.5], b in [-1, 1]. The parameter
error is the largest ``|w - w'| + |a - a'| + |b - b'|`` over units after matching.
Width is discovered; a success needs the right one.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.harness import Row, main
from unrelu.gaussian.algorithm import learn_from_population, learn_from_samples
from unrelu.networks import ReLUNetwork

Units = tuple[np.ndarray, np.ndarray, np.ndarray]


# ------------------------------------------------------------------ problems


def planted(rng: np.random.Generator, d: int, m: int) -> Units:
    w = rng.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    a = rng.uniform(0.5, 1.5, m) * rng.choice([-1.0, 1.0], m)
    return w, a, rng.uniform(-1.0, 1.0, m)


def network(units: Units) -> ReLUNetwork:
    w, a, b = units
    return ReLUNetwork([w, a[None, :]], [b, np.zeros(1)])


def labels(units: Units, x: np.ndarray) -> np.ndarray:
    w, a, b = units
    out = np.empty(len(x))
    for start in range(0, len(x), 50_000):
        piece = slice(start, start + 50_000)
        out[piece] = np.maximum(x[piece] @ w.T + b, 0.0) @ a
    return out


def draw(rng: np.random.Generator, units: Units, n: int, sigma: float = 0.0) -> Any:
    x = rng.standard_normal((n, units[0].shape[1]))
    y = labels(units, x)
    return x, y + sigma * rng.standard_normal(n) if sigma else y


# ------------------------------------------------------------------- judging


def unit_rows(net: ReLUNetwork) -> Units:
    w, a, b = net.weights[0], net.weights[1][0], net.biases[0]
    length = np.maximum(np.linalg.norm(w, axis=1), 1e-300)
    return w / length[:, None], a * length, b / length


def matching(w: np.ndarray, found: np.ndarray) -> np.ndarray:
    return linear_sum_assignment(-np.abs(w @ found.T))[1]


def parameter_error(truth: Units, net: ReLUNetwork, *, up_to_sign: bool) -> float:
    w, a, b = truth
    fw, fa, fb = unit_rows(net)
    if len(fw) < len(w):
        return float("inf")
    index = matching(w, fw)
    sign = np.sign(np.einsum("ij,ij->i", w, fw[index])) if up_to_sign else np.ones(len(w))
    gap = np.linalg.norm(w - sign[:, None] * fw[index], axis=1)
    gap = gap + np.abs(a - fa[index]) + np.abs(b - sign * fb[index])
    return float(gap.max())


def function_error(truth: Units, net: ReLUNetwork, seed: int) -> float:
    x = np.random.default_rng([seed, 99]).standard_normal((100_000, truth[0].shape[1]))
    y = labels(truth, x)
    return float(np.sqrt(np.mean((net(x)[:, 0] - y) ** 2)) / y.std())


def largest_cosine(w: np.ndarray) -> float:
    return float(np.abs(np.triu(w @ w.T, 1)).max(initial=0.0))


def moment_cosine(truth: Units, result: Any) -> float:
    found = result.moment_weights
    if len(found) < len(truth[0]):
        return 0.0
    return float(np.abs(truth[0] @ found.T).max(axis=1).min())


def outcome(truth: Units, result: Any, bound: float, *, up_to_sign: bool) -> dict[str, Any]:
    error = parameter_error(truth, result.network, up_to_sign=up_to_sign)
    right = result.width == len(truth[0])
    return {
        "success": bool(error <= bound and right),
        "error": error,
        "width_right": right,
        "width": result.width,
        "moment_cosine": moment_cosine(truth, result),
        "moments_good": moment_cosine(truth, result) >= 0.99,
        "wrong_recovered": bool(result.success and error > bound),
        "largest_cosine": largest_cosine(truth[0]),
        "status": result.status.name,
        "improper_error": result.improper_error,
        "signs_determined": result.signs_determined,
    }


# ---------------------------------------------------------------------- rows


def population(seed: int, *, d: int, m: int, order: int) -> dict[str, Any]:
    truth = planted(np.random.default_rng(seed), d, m)
    result = learn_from_population(network(truth), order=order, rng=seed)
    raw = learn_from_population(network(truth), order=order, rng=seed, refine=False, pairs=1)
    error = parameter_error(truth, result.network, up_to_sign=order > 1)
    published = parameter_error(truth, raw.network, up_to_sign=order > 1)
    return {
        "success": error <= 1e-8 and result.width == m,
        "error": error,
        "error_as_published": published,
        "as_published_good": published <= 1e-8,
        "width": result.width,
    }


def in_memory(
    seed: int, *, d: int, m: int, n: int, bound: float = 1e-10, up_to_sign: bool = False
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = planted(rng, d, m)
    x, y = draw(rng, truth, n)
    start = time.perf_counter()
    result = learn_from_samples(x, y, rng=seed)
    seconds = time.perf_counter() - start
    return outcome(truth, result, bound, up_to_sign=up_to_sign) | {"seconds": seconds}


def from_disk(seed: int, *, d: int, m: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = planted(rng, d, m)
    with tempfile.TemporaryDirectory() as folder:
        for shard in range(n // 100_000):
            x, y = draw(rng, truth, 100_000)
            np.save(Path(folder) / f"x_{shard:04d}.npy", x)
            np.save(Path(folder) / f"y_{shard:04d}.npy", y)
        start = time.perf_counter()
        result = learn_from_samples(folder, rng=seed)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = outcome(truth, result, 1e-10, up_to_sign=False)
    found["success"] = found["success"] and peak < 2.0
    return found | {"seconds": seconds, "peak_gib": peak}


def large_biases(seed: int, *, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    extra = np.array([-6.0, -4.0, 3.5, 4.0, 6.0, 8.0])
    w, a, b = planted(rng, 10, 5 + len(extra))
    truth = w, a, np.concatenate([b[:5], extra])
    x, y = draw(rng, truth, n)
    result = learn_from_samples(x, y, rng=seed)
    visible = np.abs(truth[2]) <= 4.0
    good: Units = (truth[0][visible], truth[1][visible], truth[2][visible])
    error = parameter_error(good, result.network, up_to_sign=True)
    function = function_error(truth, result.network, seed)
    return {
        "success": error <= 1e-6 and result.width == int(visible.sum()),
        "error": error,
        "width": result.width,
        "function_error": function,
        "function_good": function <= 1e-4,
        "units_in_network": result.network.hidden_widths[0] if result.network else 0,
        "status": result.status.name,
    }


def fisher(seed: int, *, d: int, m: int, n: int, sigma: float) -> dict[str, Any]:
    """``(t - t*)^T I (t - t*) / p`` in the parameters a (w, b), up to curvature."""
    rng = np.random.default_rng(seed)
    truth = planted(rng, d, m)
    x, y = draw(rng, truth, n, sigma)
    start = time.perf_counter()
    result = learn_from_samples(x, y, rng=seed)
    seconds = time.perf_counter() - start
    found = outcome(truth, result, np.inf, up_to_sign=False)
    ratio = float("inf")
    if result.network is not None and result.width == m:
        w, a, b = truth
        fw, fa, fb = unit_rows(result.network)
        index = matching(w, fw)
        old = np.abs(a)[:, None] * np.column_stack([w, b])
        new = np.abs(fa[index])[:, None] * np.column_stack([fw[index], fb[index]])
        step = (new - old) * np.sign(a)[:, None]
        square = 0.0
        for first in range(0, n, 50_000):
            points = x[first : first + 50_000]
            active = (points @ w.T + b) > 0.0
            move = active * (points @ step[:, :-1].T + step[:, -1])
            square += float(np.sum(move.sum(axis=1) ** 2))
        ratio = square / sigma**2 / (m * (d + 1))
    return found | {"success": ratio <= 2.0, "ratio": ratio, "seconds": seconds}


def smoothed(seed: int, *, tau: float, n: int) -> dict[str, Any]:
    """Corollary 3.3: twelve w in a 4-dimensional subspace of R^8, perturbed.

    There the w w^T span only ten dimensions: without the perturbation, order 2
    cannot tell the units apart.
    """
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.standard_normal((8, 4)))[0]
    w, a, b = planted(rng, 4, 12)
    w = w @ frame.T + tau / np.sqrt(8.0) * rng.standard_normal((12, 8))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    truth = w, a, b
    x, y = draw(rng, truth, n)
    return outcome(truth, learn_from_samples(x, y, rng=seed), 1e-8, up_to_sign=True)


def paper_route(seed: int, *, d: int, m: int, n: int, order: int) -> dict[str, Any]:
    """The paper's own tensors (T3, T4 or T5, T6), before and after the polish."""
    rng = np.random.default_rng(seed)
    truth = planted(rng, d, m)
    x, y = draw(rng, truth, n)
    result = learn_from_samples(x, y, order=order, rng=seed)
    found = outcome(truth, result, 1e-8, up_to_sign=order > 1)
    default = learn_from_samples(x, y, rng=seed, polish=False)
    return found | {"default_moment_cosine": moment_cosine(truth, default)}


def moment_slope(seed: int, *, d: int, m: int) -> dict[str, Any]:
    """Error of the moment estimate against N: slope on a log-log plot."""
    rng = np.random.default_rng(seed)
    truth = planted(rng, d, m)
    sizes = [30_000, 100_000, 300_000, 1_000_000]
    x, y = draw(rng, truth, sizes[-1])
    errors = []
    for n in sizes:
        result = learn_from_samples(x[:n], y[:n], width=m, polish=False, rng=seed)
        found = result.moment_weights
        cosine = np.abs(truth[0] @ found.T).max(axis=1) if len(found) else np.zeros(1)
        errors.append(float(np.sqrt(np.mean(2.0 - 2.0 * np.minimum(cosine, 1.0)))))
    slope = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    out = {f"error_{n}": e for n, e in zip(sizes, errors, strict=True)}
    return {"success": -0.65 <= slope <= -0.35, "slope": slope} | out


def _seeds(count: int) -> Iterator[int]:
    yield from range(7000, 7000 + count)


def _row(
    name: str,
    run: Any,
    count: int,
    successes: int,
    timeout: float = 600.0,
    more: dict[str, float] | None = None,
    **targets: float,
) -> Row:
    target = {"success": successes, **targets, **(more or {})}
    return Row(name, run=run, seeds=list(_seeds(count)), target=target, timeout=timeout)


ROWS = [
    _row("population order 1, d=20 m=20", partial(population, d=20, m=20, order=1), 50, 50),
    _row("population order 2, d=8 m=20", partial(population, d=8, m=20, order=2), 50, 50),
    _row("d=10 m=5 N=1e6", partial(in_memory, d=10, m=5, n=10**6), 20, 20, error=1e-10,
         more={"count:moments_good": 19}),
    _row("d=20 m=10 N=1e6", partial(in_memory, d=20, m=10, n=10**6), 20, 20, error=1e-10),
    _row("d=20 m=20 N=1e6", partial(in_memory, d=20, m=20, n=10**6), 20, 19, error=1e-10),
    _row("d=20 m=20 N=1e5", partial(in_memory, d=20, m=20, n=10**5), 20, 16, error=1e-10),
    _row("d=50 m=20 from disk N=1e6", partial(from_disk, d=50, m=20, n=10**6), 10, 10, 1800,
         error=1e-10, peak_gib=2.0),
    _row("d=50 m=20 from disk N=1e7", partial(from_disk, d=50, m=20, n=10**7), 10, 10, 3600,
         error=1e-10, peak_gib=2.0),
    _row("d=8 m=12 N=1e6", partial(in_memory, d=8, m=12, n=10**6, bound=1e-8, up_to_sign=True),
         20, 18, error=1e-8),
    _row("d=20 m=40 N=1e6",
         partial(in_memory, d=20, m=40, n=10**6, bound=1e-8, up_to_sign=True), 10, 8, error=1e-8),
    _row("large biases d=10 N=1e6", partial(large_biases, n=10**6), 20, 18, error=1e-6,
         more={"count:function_good": 20}),
    _row("noise 0.1 d=10 m=5 N=1e6", partial(fisher, d=10, m=5, n=10**6, sigma=0.1), 20, 20,
         more={"mean:ratio": 1.2}),
    _row("noise 0.1 d=20 m=20 N=1e6", partial(fisher, d=20, m=20, n=10**6, sigma=0.1), 20, 20,
         more={"mean:ratio": 1.2}),
    *[
        _row(f"smoothed tau={tau} d=8 m=12 N=1e6", partial(smoothed, tau=tau, n=10**6), 20,
             16 if tau == 0.1 else 0)
        for tau in (0.01, 0.03, 0.1, 0.3)
    ],
    _row("paper route order 1 d=10 m=5 N=1e6", partial(paper_route, d=10, m=5, n=10**6, order=1),
         5, 0),
    _row("paper route order 2 d=8 m=12 N=1e6", partial(paper_route, d=8, m=12, n=10**6, order=2),
         5, 0),
    _row("moment error against N d=10 m=5", partial(moment_slope, d=10, m=5), 5, 4,
         more={"mean:slope": -0.35}),
]  # fmt: skip


if __name__ == "__main__":
    main("samples", ROWS)
