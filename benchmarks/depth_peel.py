"""Extraction of three hidden layers and more against the ground truth.

Everything goes through the public ``extract`` with its default options. Random networks with
weights N(0, 1/fan-in) and biases N(0, 0.25), trained classifiers' logits and probabilities,
and targets that are deeper, or hostile. ``ratio`` is queries over parameters, the
certificate's excluded; ``error`` is max |f - f^| over 10,000 Gaussian inputs over std(f), f
being the log-odds where answers are probabilities. ``two_layers`` tells whether the first two
layers were found with all their rows and signs. A success has no unit that the
target has not. In the hostile rows a success is any status that is true: no RECOVERED
with an error above 1e-5.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks._depth import facts
from benchmarks.harness import Row, main
from benchmarks.three_layer import FALSE, flat_top
from unrelu import planted
from unrelu.oracles import connect
from unrelu.oracles.wrappers import Softmax


def run_random(seed: int, *, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    return facts(planted.random_network(*shape, rng=seed), seed, limit)


def run_digits(
    seed: int, *, hidden: tuple[int, ...], limit: float, log_odds: bool = False
) -> dict[str, Any]:
    truth, _ = planted.digits_classifier(*hidden, rng=seed)
    probabilities = Softmax(connect(truth)) if log_odds else None
    return facts(truth, seed, limit, probabilities=probabilities)


def run_hostile(seed: int, *, shape: tuple[int, ...], kind: str) -> dict[str, Any]:
    truth = planted.random_network(*shape, rng=seed)
    if kind == "flat":
        truth = flat_top(*shape, seed=seed)
    elif kind == "low gain":  # biases decide: most units never switch
        truth = planted.random_network(*shape, rng=seed, gain=0.4, bias_std=1.0)
    outcome = facts(truth, seed, FALSE)
    return outcome | {"success": not outcome["false_recovered"]}


def _name(shape: tuple[int, ...]) -> str:
    return "-".join(map(str, shape))


def _random(shape: tuple[int, ...], seeds: int, least: int, limit: float, ratio: float) -> Row:
    return Row(
        _name(shape),
        partial(run_random, shape=shape, limit=limit),
        range(900_000, 900_000 + seeds),
        {"success": least, "max:error": limit, "ratio": ratio, "max:false_recovered": 0},
        timeout=1200.0,
    )


def _digits(log_odds: bool, least: int) -> Row:
    return Row(
        f"digits 64-32-16-12-10, {'softmax' if log_odds else 'logits'}",
        partial(run_digits, hidden=(32, 16, 12), limit=1e-6, log_odds=log_odds),
        range(900_000, 900_010),
        {"success": least, "max:error": 1e-6, "max:false_recovered": 0},
        timeout=1200.0,
    )


def _hostile(name: str, shape: tuple[int, ...], kind: str, seeds: int) -> Row:
    return Row(
        f"{name} {_name(shape)}",
        partial(run_hostile, shape=shape, kind=kind),
        range(900_000, 900_000 + seeds),
        {"success": seeds, "max:false_recovered": 0},
        timeout=1200.0,
        quick=0,
    )


ROWS = [
    _random((40, 20, 10, 10, 1), 50, 48, 1e-8, 10.0),
    _random((64, 32, 16, 8, 1), 20, 19, 1e-8, 10.0),
    _random((80, 40, 20, 10, 1), 10, 9, 1e-8, 10.0),
    _random((20, 10, 10, 10, 1), 50, 45, 1e-6, 40.0),
    _random((16, 16, 16, 16, 1), 50, 40, 1e-6, 40.0),
    _random((16, 16, 16, 16, 4), 20, 18, 1e-6, 40.0),
    _digits(False, 8),
    _digits(True, 7),
    Row(
        "32-32-32-32-32-1",
        partial(run_random, shape=(32, 32, 32, 32, 32, 1), limit=1e-6),
        range(900_000, 900_010),
        {"success": 5, "count:two_layers": 8, "max:false_recovered": 0},
        timeout=1800.0,
    ),
    Row(
        "20-20-20-20-20-20-1",
        partial(run_random, shape=(20,) * 6 + (1,), limit=1e-6),
        range(900_000, 900_010),
        {"success": 5, "count:two_layers": 8, "max:false_recovered": 0},
        timeout=1800.0,
    ),
    _hostile("flat", (10, 10, 10, 10, 1), "flat", 50),
    _hostile("low gain", (12, 10, 8, 6, 1), "low gain", 50),
    _hostile("growing", (6, 8, 12, 16, 1), "random", 50),
    _hostile("deep", (8, 8, 8, 8, 8, 8, 8, 1), "random", 50),
]

if __name__ == "__main__":
    main("depth_peel", ROWS)
