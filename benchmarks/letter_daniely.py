"""Daniely & Granot to the letter: the theorems themselves, run in exact arithmetic.

Random rational networks with d <= 4 and k <= 6 in general position, each extracted as printed
with the delta that :func:`general_position` measures; success is equality of the rationals.
``queries`` are compared with the boxes' own count (``part`` of it), and with the theorems' order
(``ratio``: over ``d1 log2(1/delta) + d1 d``, times d for Theorem 2; for Theorem 3 the sum of both
orders with m critical points). Then float64, Lemma 2, Theorem 5, and the delta that was needed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Row, main
from unrelu import planted
from unrelu.extraction.general_position import GeneralPosition, general_position
from unrelu.extraction.regular_chances import lemma_two_delta, theorem_five
from unrelu.extraction.three_layer import extract_three_layer
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.networks import ReLUNetwork
from unrelu.rational import RationalNetwork
from unrelu.rational_compare import same_function, same_network
from unrelu.result import Status

MOST_INPUTS, MOST_UNITS = 4, 6


def depth_two(seed: int) -> tuple[RationalNetwork, GeneralPosition]:
    """Draw a shape with d <= 4 and k <= 6, and a network of it in general position."""
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(1, MOST_INPUTS + 1)), int(rng.integers(1, MOST_UNITS + 1))
    while True:
        network = planted.random_rational_network(d, k, 1, rng=rng)
        position = general_position(network)
        if position.general:
            return network, position


def switching(network: RationalNetwork) -> int:
    """Count the second-layer units that switch somewhere on the orthant."""
    v, c = network.weights[1], network.biases[1]
    return sum(any(x * bias < 0 for x in row) for row, bias in zip(v, c, strict=True))


def depth_three(seed: int, *, all_switch: bool) -> tuple[RationalNetwork, GeneralPosition]:
    """Draw a network of depth three; with units that never switch, or without any."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, MOST_INPUTS + 1))
    d1, d2 = int(rng.integers(2, d + 1)), int(rng.integers(2, MOST_UNITS + 1))
    while True:
        network = planted.random_rational_network(d, d1, d2, 1, rng=rng)
        if (switching(network) == d2) != all_switch:
            continue
        position = general_position(network)
        if position.general:
            return network, position


def facts(result: Any, equal: bool, order: float, position: GeneralPosition) -> dict[str, Any]:
    spent = result.queries.without_certificate - result.queries.by_stage.get("calibration", 0)
    return {
        "success": result.success and equal,
        "status": result.status.name,
        "equal": equal,
        "queries": spent,
        "most": result.most_queries,
        "part": spent / result.most_queries if result.most_queries else None,
        "ratio": spent / order,
        "delta": float(position.delta),
        "limiting": position.limiting.item,
        "message": "" if result.success else result.message,
    }


def exact(result: Any) -> RationalNetwork | None:
    return RationalNetwork.from_text(result.exact) if result.exact else None


def run_two(seed: int, *, orthant: bool) -> dict[str, Any]:
    truth, position = depth_two(seed)
    domain = "nonnegative" if orthant else "all"
    result = extract_two_layer(
        truth, faithful=True, delta=position.delta, domain=domain, rng=seed + 1
    )
    found, (d, k) = exact(result), (truth.input_dim, truth.hidden_widths[0])
    order = (d if orthant else 1) * k * -math.log2(position.delta) + k * d
    if found is None:
        equal = False
    elif orthant:
        equal = same_function(found, truth, orthant=True)
    else:
        equal = same_network(found, truth)
    return facts(result, equal, order, position) | {"shape": truth.architecture}


def run_three(seed: int, *, all_switch: bool) -> dict[str, Any]:
    truth, position = depth_three(seed, all_switch=all_switch)
    d1, d2 = truth.hidden_widths
    result = extract_three_layer(
        truth, faithful=True, delta=position.delta, units=d1 + d2, rng=seed + 1
    )
    found, d, log = exact(result), truth.input_dim, -math.log2(position.delta)
    same = same_network if all_switch else same_function
    equal = found is not None and same(found, truth)
    # 3.5.1, 3.5.2 and 3.5.4 with m = d1 d2
    m = d1 * d2
    order = m * (log + d) + m**2 + (d1 * d2 * log + d1 * d2 * d1)
    by_stage = {f"in {name}": count for name, count in result.queries.by_stage.items()}
    return facts(result, equal, order, position) | {"shape": truth.architecture} | by_stage


def run_float(seed: int) -> dict[str, Any]:
    """The same code in float64, on the rounded network."""
    truth, position = depth_two(seed)
    network = truth.rounded()
    result = extract_two_layer(network, faithful=True, delta=position.delta, rng=seed + 1)
    x = np.random.default_rng(seed).standard_normal((10_000, truth.input_dim))
    error = math.inf
    if result.network is not None:
        error = float(np.abs(result.network(x) - network(x)).max() / network(x).std())
    wrong = result.success and error > 1e-6
    order = truth.hidden_widths[0] * (-math.log2(position.delta) + truth.input_dim)
    outcome = facts(result, error <= 1e-6, order, position)
    return outcome | {"error": error, "false_recovered": int(wrong), "shape": truth.architecture}


def run_perturbed(seed: int, *, depth: int) -> dict[str, Any]:
    """Lemma 2: a network of small whole numbers, perturbed, is regular for the lemma's delta."""
    rng = np.random.default_rng(seed)
    d, hidden = 3, (4,) if depth == 2 else (2, 3)
    widths = (d, *hidden, 1)
    noise = 2.0**-d
    shapes = list(zip(widths[1:], widths[:-1], strict=True))

    def drawn(*shape: int) -> Any:
        return rng.integers(-1, 2, shape) + rng.uniform(-noise, noise, shape)

    network = ReLUNetwork(
        [drawn(*shape) for shape in shapes],
        [*(drawn(width) for width in hidden), np.zeros(1)],
    )
    position = general_position(network)
    promised = lemma_two_delta(d, sum(hidden), 1.0, depth)
    return {
        # The grid of condition (4) is delta's own: the least of the others decides. Tops that
        # are flat somewhere are not in general position, and repeat a map on an axis.
        "success": position.limiting.delta >= promised or position.flat is not None,
        "flat": position.flat is not None,
        "irregular": position.limiting.delta < promised,
        "delta": position.limiting.delta,
        "promised": promised,
        "as_printed": float(position.as_printed) > 0.0,
        "allowed": noise,
        "limiting": position.limiting.item,
    }


def run_flat(seed: int, *, d1: int, d2: int) -> dict[str, Any]:
    """Theorem 5: how often a random top layer is flat somewhere on the orthant."""
    network = planted.random_network(d1, d1, d2, 1, rng=seed)
    flat = general_position(network).flat is not None
    return {"success": True, "flat": float(flat), "bound": float(min(1, theorem_five(d1, d2)))}


# ------------------------------------------------------------- the delta needed


def trained(seed: int) -> ReLUNetwork:
    """Return a regressor trained on scikit-learn's diabetes data, with one output."""
    return planted.diabetes_regressor(8, rng=seed)[0]


KINDS: dict[str, Any] = {
    "random 4-6-1": lambda seed: planted.random_network(4, 6, 1, rng=seed),
    "random 10-10-1": lambda seed: planted.random_network(10, 10, 1, rng=seed),
    "random 20-10-1": lambda seed: planted.random_network(20, 10, 1, rng=seed),
    "random 10-20-1": lambda seed: planted.random_network(10, 20, 1, rng=seed),
    "trained 10-8-1": trained,
}


def largest_delta(network: ReLUNetwork, seed: int, least: Fraction) -> Fraction:
    """Return the largest of ``3^-n`` with which the extraction as printed succeeds."""
    exactly = RationalNetwork.from_network(network)
    delta = Fraction(1, 3)
    while delta > least / 9:
        result = extract_two_layer(exactly, faithful=True, delta=delta, rng=seed)
        if result.status is Status.RECOVERED:
            return delta
        delta /= 3
    return Fraction(0)


def run_needed(seed: int, *, kind: str) -> dict[str, Any]:
    """The measured delta, the one that was needed as printed, and whether practice succeeds."""
    network = KINDS[kind](seed)
    position = general_position(network)
    needed = largest_delta(network, seed + 1, position.delta)
    practice = extract_two_layer(network, rng=seed + 1)
    most = max(float(np.abs(a).max()) for a in (*network.weights, *network.biases))
    return {
        "success": needed >= position.delta / 9,
        "delta": float(position.delta),
        "needed": float(needed),
        "lemma": lemma_two_delta(network.input_dim, network.hidden_widths[0], most, 2),
        "practice": practice.success,
        "limiting": position.limiting.item,
        "by": position.limiting.units,
    }


ROWS = [
    Row("one hidden layer, exact", partial(run_two, orthant=False), range(5000, 5100),
        {"success": 100}, 120.0),
    Row("two hidden layers, exact", partial(run_three, all_switch=True), range(5200, 5300),
        {"success": 100}, 120.0),
    Row("Theorem 2, the orthant, exact", partial(run_two, orthant=True), range(5400, 5440),
        {"success": 40}, 120.0),
    Row("two hidden layers, units that never switch, exact",
        partial(run_three, all_switch=False), range(5500, 5520), {"success": 20}, 120.0),
    Row("one hidden layer, float64", run_float, range(5600, 5640),
        {"success": 38, "max:false_recovered": 0}, 120.0),
    *(Row(f"Lemma 2, depth {depth}", partial(run_perturbed, depth=depth), range(5700, 5740),
          {"success": 35}, 120.0) for depth in (2, 3)),
    *(Row(f"Theorem 5, d1 = {d1}, d2 = {d2}", partial(run_flat, d1=d1, d2=d2),
          range(5800, 5860), {"mean:flat": float(min(1, theorem_five(d1, d2)))}, 120.0)
      for d1, d2 in ((2, 4), (2, 7), (2, 12))),
    *(Row(f"delta, {kind}", partial(run_needed, kind=kind), range(5900, 5908),
          {"success": 8}, 240.0) for kind in KINDS),
]  # fmt: skip

if __name__ == "__main__":
    main("letter_daniely", ROWS)
