"""How queries, own time and memory grow: with width, inputs, depth, accuracy and samples.

    python -m benchmarks.scaling [--rows SUBSTRING] [--seeds N]

Each row is one point of one curve; the report fits the exponents. The time is
the solver's own, the target's excluded; the memory is what it allocates at its
peak, measured in a second run under tracemalloc. Times are processor times.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Row, main
from unrelu import (
    connect,
    extract_three_layer,
    extract_two_layer,
    learn_from_queries,
    learn_from_samples,
    planted,
    recover_span,
)
from unrelu.networks import ReLUNetwork


class _Timed:
    """A target that knows how long it was busy."""

    def __init__(self, truth: ReLUNetwork) -> None:
        self.truth, self.seconds = truth, 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        start = time.process_time()
        answers = self.truth(x)
        self.seconds += time.process_time() - start
        return answers


def _measure(truth: ReLUNetwork, solve: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """Run twice: for the time, and under tracemalloc for the memory."""
    target = _Timed(truth)
    oracle = connect(target, input_dim=truth.input_dim, output_dim=truth.output_dim)
    start = time.process_time()
    result = solve(oracle)
    seconds = time.process_time() - start - target.seconds
    tracemalloc.start()
    try:
        solve(connect(truth))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return result, {
        "success": result.success,
        "queries": result.queries.without_certificate,
        "certificate": result.queries.total - result.queries.without_certificate,
        "round_trips": result.queries.round_trips,
        "seconds": seconds,
        "peak_mib": peak / 2**20,
        "parameters": truth.parameters,
    }


def two_layer(seed: int, *, shape: tuple[int, ...], x: float) -> dict[str, Any]:
    truth = planted.random_network(*shape, rng=seed)
    _, facts = _measure(truth, lambda oracle: extract_two_layer(oracle, rng=seed + 1))
    return facts | {"x": x}


def three_layer(seed: int, *, shape: tuple[int, ...], x: float) -> dict[str, Any]:
    truth = planted.random_network(*shape, rng=seed)
    _, facts = _measure(truth, lambda oracle: extract_three_layer(oracle, rng=seed + 1))
    return facts | {"x": x}


def accuracy(seed: int, *, x: float) -> dict[str, Any]:
    """The learner at d = 20, k = 50; x is 1/epsilon."""
    truth = planted.random_network(20, 50, 1, rng=seed)
    _, facts = _measure(
        truth, lambda oracle: learn_from_queries(oracle, epsilon=1.0 / x, rng=seed + 1)
    )
    return facts | {"x": x}


def span(seed: int, *, x: float) -> dict[str, Any]:
    """The span of 20 first-layer rows of a network with three hidden layers, against d."""
    truth = planted.random_network(int(x), 20, 15, 10, 5, rng=seed)
    _, facts = _measure(truth, lambda oracle: recover_span(oracle, rng=seed + 1))
    return facts | {"x": x}


def samples(seed: int, *, x: float) -> dict[str, Any]:
    """Learning d = 10, m = 5 from N samples with noise 0.1: error, time and memory."""
    g = np.random.default_rng(seed)
    w = g.standard_normal((5, 10))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    a, b = g.uniform(0.5, 1.5, 5) * g.choice([-1.0, 1.0], 5), g.uniform(-1.0, 1.0, 5)
    truth = ReLUNetwork([w, a[None, :]], [b, np.zeros(1)])
    points = g.standard_normal((int(x), 10))
    labels = truth(points)[:, 0] + 0.1 * g.standard_normal(int(x))
    start = time.process_time()
    result = learn_from_samples(points, labels, rng=seed + 1)
    seconds = time.process_time() - start
    tracemalloc.start()
    try:
        learn_from_samples(points, labels, rng=seed + 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    fresh = g.standard_normal((20_000, 10))
    f = truth(fresh)
    error = float("inf")
    if result.network is not None:
        error = float(np.sqrt(np.mean((result.network(fresh) - f) ** 2)) / f.std())
    return {
        "success": result.success, "error": error, "seconds": seconds,
        "peak_mib": peak / 2**20, "x": x,
    }  # fmt: skip


#: Curve: (what is on the axis, the function, its points).
CURVES: dict[str, tuple[str, list[tuple[str, Callable[[int], dict[str, Any]]]]]] = {
    "depth 2, width": (
        "hidden units k at d = 20",
        [(f"20-{k}-1", partial(two_layer, shape=(20, k, 1), x=k))
         for k in (5, 10, 20, 40, 80, 160, 320)],
    ),
    "depth 2, inputs": (
        "inputs d at k = 10",
        [(f"{d}-10-1", partial(two_layer, shape=(d, 10, 1), x=d))
         for d in (10, 20, 40, 80, 160, 320, 640)],
    ),
    "depth 2, parameters": (
        "parameters of k-k-1",
        [(f"{k}-{k}-1", partial(two_layer, shape=(k, k, 1), x=k * (k + 2) + 1))
         for k in (8, 16, 32, 64, 128, 256)],
    ),
    "depth 3, parameters": (
        "parameters of 2k-k-k-1",
        [(f"{2 * k}-{k}-{k}-1",
          partial(three_layer, shape=(2 * k, k, k, 1), x=3 * k * k + 3 * k + 1))
         for k in (5, 8, 12, 18, 27)],
    ),
    "learner, accuracy": (
        "1/epsilon at d = 20, k = 50",
        [(f"epsilon {1 / x:.0e}", partial(accuracy, x=x)) for x in (1e1, 1e2, 1e3, 1e4, 1e5)],
    ),
    "span, inputs": (
        "inputs d, first layer of 20 units, three hidden layers",
        [(f"{d} inputs", partial(span, x=d)) for d in (50, 100, 200, 400, 800)],
    ),
    "samples, N": (
        "samples N at d = 10, m = 5, label noise 0.1",
        [(f"N = {n:.0e}", partial(samples, x=n)) for n in (2e4, 5e4, 1e5, 2e5, 5e5)],
    ),
}  # fmt: skip

ROWS = [
    Row(f"{curve}: {name}", run, range(51_000, 51_003), {}, 300.0, quick=0)
    for curve, (_, points) in CURVES.items()
    for name, run in points
]

if __name__ == "__main__":
    main("scaling", ROWS)
