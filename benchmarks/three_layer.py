"""Exact extraction of depth-3 networks against the ground truth.

Random networks with weights N(0, 1/fan-in) and biases N(0, 0.25), a trained
classifier's logits, probabilities of both, targets outside the assumptions (more first-layer units
than inputs, three hidden layers, a top layer that is flat over most of the
orthant), and the rate of failure against d2/d1 beside Theorem 5's bound.
``ratio`` is queries over parameters, the certificate's excluded; ``error`` is
max |f - f^| over 10,000 Gaussian inputs over std(f), f being the log-odds where
answers are probabilities. ``own_seconds`` is wall time, ``cpu_seconds`` that of
the one thread used: on a busy machine it says more. In the hostile rows a
success is any status that is true: no RECOVERED with an error above 1e-5.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks._three_layer_kinds import KINDS, target
from benchmarks.harness import Row, main, priced
from unrelu import planted
from unrelu.choose import extract
from unrelu.extraction.three_layer import extract_three_layer
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.oracles.wrappers import Softmax

SAMPLES = 10_000
FALSE = 1e-5
"""Error, over std(f), above which RECOVERED is a lie."""


def error_of(
    found: ReLUNetwork | None, truth: ReLUNetwork, seed: int, *, log_odds: bool = False
) -> float:
    if found is None:
        return float("inf")
    x = np.random.default_rng(10_000_000 + seed).standard_normal((SAMPLES, truth.input_dim))
    f, g = truth(x), found(x)
    if log_odds and f.shape[1] > 1:  # a logit common to all classes does not count
        f, g = f - f[:, :1], g - g[:, :1]
    spread = float(f.std(axis=0).max())
    return float(np.abs(f - g).max()) / (spread if spread > 0 else 1.0)


def facts(
    truth: ReLUNetwork, seed: int, limit: float, *, probabilities: Any = None
) -> dict[str, Any]:
    oracle = connect(truth) if probabilities is None else probabilities
    start, busy = time.perf_counter(), time.process_time()
    result = extract_three_layer(oracle, rng=seed)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    error = error_of(result.network, truth, seed, log_odds=probabilities is not None)
    first, second = truth.hidden_widths[:2]
    spent = result.queries.without_certificate
    right = result.first_width == first and result.second_width <= second
    return {
        "success": result.success and right and error <= limit,
        "status": result.status.name,
        "error": error,
        "ratio": spent / truth.parameters,
        "queries": spent,
        "certificate": result.queries.total - spent,
        "round_trips": result.queries.round_trips,
        "first_width": result.first_width,
        "second_width": result.second_width,
        "starts": result.starts,
        "condition": result.condition,
        "false_recovered": int(result.success and error > FALSE),
        "own_seconds": seconds,
        "cpu_seconds": busy,
        **priced(result),
    }


def run_random(seed: int, *, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    return facts(planted.random_network(*shape, rng=seed), seed, limit)


def run_digits(
    seed: int, *, hidden: tuple[int, int], limit: float, probabilities: bool = False
) -> dict[str, Any]:
    truth, model = planted.digits_classifier(*hidden, rng=seed)
    if not probabilities:
        return facts(truth, seed, limit)
    oracle = connect(model.predict_proba, input_dim=64, output_dim=10)
    return facts(truth, seed, limit, probabilities=oracle)


def run_softmax(seed: int, *, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    truth = planted.random_network(*shape, rng=seed)
    return facts(truth, seed, limit, probabilities=Softmax(connect(truth)))


def flat_top(*shape: int, seed: int) -> ReLUNetwork:
    """Plant second-layer units that are off over most of the orthant."""
    base = planted.random_network(*shape, rng=seed)
    biases = [base.biases[0], -np.abs(base.biases[1]) - 1.0, base.biases[2]]
    return ReLUNetwork(base.weights, biases)


def run_hostile(seed: int, *, kind: str, shape: tuple[int, ...]) -> dict[str, Any]:
    if kind == "flat":
        truth = flat_top(*shape, seed=seed)
    else:
        truth = planted.random_network(*shape, rng=seed)
    start = time.perf_counter()
    result = extract(connect(truth), rng=seed)
    error = error_of(result.network, truth, seed)
    false = result.success and error > FALSE
    return {
        "success": not false,
        "recovered": int(result.success),
        "status": result.status.name,
        "error": error if result.success else 0.0,
        "queries": result.queries.without_certificate,
        "false_recovered": int(false),
        "own_seconds": time.perf_counter() - start,
        **priced(result),
    }


def run_kind(seed: int) -> dict[str, Any]:
    """Run one of the kinds at or beyond the edge of the assumptions, each in its turn."""
    kind = KINDS[seed % len(KINDS)]
    truth, oracle = target(kind, seed)
    start = time.process_time()
    result = extract_three_layer(oracle, rng=seed)
    error = error_of(result.network, truth, seed)
    false = result.success and error > FALSE
    return {
        "success": not false,
        "recovered": int(result.success),
        "kind": kind,
        "status": result.status.name,
        "error": error if result.success else 0.0,
        "queries": result.queries.without_certificate,
        "false_recovered": int(false),
        "cpu_seconds": time.process_time() - start,
        **priced(result),
    }


def run_flatness(seed: int, *, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Measure how often the extraction fails, beside Theorem 5's bound, at one d2/d1."""
    d, d1, d2 = shape
    outcome = run_random(seed, shape=(d, d1, d2, 1), limit=1e-6)
    # Sauer's sum itself: the theorem's (e d2/d1)^(d1+1) bounds it only from d2 > d1 on.
    bound = min(1.0, sum(math.comb(d2, i) for i in range(d1 + 2)) / 2.0**d2)
    return {
        "success": outcome["false_recovered"] == 0,
        "failed": float(not outcome["success"]),
        "bound": bound,
        "status": outcome["status"],
        "error": outcome["error"] if outcome["success"] else 0.0,
        "ratio": outcome["ratio"],
        "false_recovered": outcome["false_recovered"],
    }


def random_row(
    shape: tuple[int, ...],
    count: int,
    least: int,
    limit: float,
    ratio: float,
    timeout: float,
    **more: float,
) -> Row:
    return Row(
        "-".join(map(str, shape)),
        run=partial(run_random, shape=shape, limit=limit),
        seeds=range(41_000, 41_000 + count),
        target={"success": least, "max:error": limit, "ratio": ratio} | more,
        timeout=timeout,
    )


PUBLIC_10, PUBLIC_80 = 40_059, 450_514
"""Fewest queries that the best public tool needs for 10-10-10-1 and 80-40-20-1."""


ROWS = [
    random_row((10, 5, 20, 1), 200, 198, 1e-10, 10.0, 60.0),
    random_row((20, 10, 40, 1), 100, 98, 1e-9, 7.0, 120.0),
    random_row((10, 10, 10, 1), 200, 196, 1e-9, 8.0, 60.0, queries=PUBLIC_10 / 20),
    random_row((40, 20, 80, 1), 50, 48, 1e-8, 8.0, 600.0, **{"max:cpu_seconds": 60.0}),
    random_row((80, 40, 20, 1), 40, 38, 3e-9, 3.5, 600.0, queries=PUBLIC_80 / 20),
    random_row((100, 20, 70, 1), 40, 38, 1e-7, 4.5, 900.0),
    *(
        Row(
            f"{'-'.join(map(str, shape))}, more first-layer units than inputs",
            run=partial(run_random, shape=shape, limit=1e-9),
            seeds=range(45_000, 45_020),
            target={"success": 18, "max:error": 1e-9, "ratio": 60.0},
            timeout=300.0,
        )
        for shape in ((10, 20, 20, 1), (10, 15, 10, 3), (20, 30, 10, 1))
    ),
    Row(
        "64-16-32-10 digits",
        run=partial(run_digits, hidden=(16, 32), limit=1e-6),
        seeds=range(41_000, 41_010),
        target={"success": 9, "max:error": 1e-6, "ratio": 15.0},
        timeout=900.0,
    ),
    Row(
        "64-16-32-10 digits, probabilities",
        run=partial(run_digits, hidden=(16, 32), limit=1e-6, probabilities=True),
        seeds=range(41_000, 41_010),
        target={"success": 9, "max:error": 1e-6, "ratio": 15.0},
        timeout=900.0,
    ),
    *(
        Row(
            f"{name}, probabilities",
            run=partial(run_softmax, shape=shape, limit=1e-6),
            seeds=range(41_000, 41_050),
            target={"success": 48, "max:error": 1e-6, "ratio": 15.0},
            timeout=120.0,
        )
        for name, shape in (("10-5-20-1", (10, 5, 20, 1)), ("20-10-20-5", (20, 10, 20, 5)))
    ),
    *(
        Row(
            f"hostile: {name}",
            run=partial(run_hostile, kind=kind, shape=shape),
            seeds=range(42_000, 42_000 + count),
            target={"success": count, "max:false_recovered": 0},
            timeout=300.0,
        )
        for name, kind, shape, count in (
            ("d1 > d, 6-12-10-1", "wide", (6, 12, 10, 1), 40),
            ("three hidden layers, 10-6-6-6-1", "deep", (10, 6, 6, 6, 1), 40),
            ("narrow top, 10-8-2-1", "narrow", (10, 8, 2, 1), 40),
            ("flat top, 10-5-5-1", "flat", (10, 5, 5, 1), 40),
            ("flat top, 8-8-8-1", "flat", (8, 8, 8, 1), 40),
        )
    ),
    Row(
        f"hostile: degenerate, coarse, odd shapes ({len(KINDS)} kinds)",
        run=run_kind,
        seeds=range(44_000, 44_000 + 10 * len(KINDS)),
        target={"success": 10 * len(KINDS), "max:false_recovered": 0},
        timeout=120.0,
    ),
    *(
        Row(
            f"d2/d1 = {d2 / 8:g}, 10-8-{d2}-1",
            run=partial(run_flatness, shape=(10, 8, d2)),
            seeds=range(43_000, 43_020),
            target={"success": 20},
            timeout=120.0,
        )
        for d2 in (2, 4, 8, 16, 28)
    ),
]

if __name__ == "__main__":
    main("three_layer", ROWS)
