"""Chen, Klivans & Meka to the letter: ``python -m benchmarks.letter_chen``.

Algorithms 1 to 4 as printed on fresh small networks; Theorem 1.1's promise where neurons
coincide, so that their slopes add up to k R; and what a thin bump costs with its certificate.
Success is judged by ground truth.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.query_learner import judge
from unrelu import planted
from unrelu.learner.algorithm import learn_from_queries
from unrelu.learner.config import AFFORDABLE, FaithfulConstants, LearnerConfig
from unrelu.networks import ReLUNetwork
from unrelu.result import Status

JUDGED = 200_000
MOST = 10_000_000  # queries that the printed boxes may ask; the library refuses above a million


def strengths(network: ReLUNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Return ``|w_i|`` and ``|b_i|`` of the neurons in the paper's form."""
    u = np.abs(network.weights[1][0])
    return np.linalg.norm(network.weights[0], axis=1) * u, np.abs(network.biases[0]) * u


def outcome(result: Any, truth: ReLUNetwork, seed: int) -> dict[str, Any]:
    """Judge a result; success is a RECOVERED that is true."""
    error = math.inf
    if result.network is not None:
        error, _ = judge(result.network, truth, seed, JUDGED)
    right, recovered = error <= result.epsilon, result.status is Status.RECOVERED
    queries = result.queries.without_certificate
    return {
        "success": recovered and right,
        "error_over_epsilon": error / result.epsilon,
        "status": result.status.name,
        "wrong_recovered": int(recovered and not right),
        "queries": queries,
        "certificate_queries": result.queries.total - queries,
        "asked": result.queries.total,
    }


def as_printed(seed: int, *, d: int, k: int) -> dict[str, Any]:
    """Algorithms 1 to 4 with the constants of the guide, epsilon = 0.03 R and delta = 0.1."""
    truth = planted.random_network(d, k, 1, rng=seed)
    norms, biases = strengths(truth)
    result = learn_from_queries(
        truth, epsilon=0.03 * float(norms.max()), delta=0.1, rng=seed, faithful=True, width=k,
        norm_bound=float(norms.max()), bias_bound=float(biases.max()),
        config=LearnerConfig(constants=AFFORDABLE, most=MOST),
    )  # fmt: skip
    return outcome(result, truth, seed)


def own_powers(seed: int) -> dict[str, Any]:
    """Algorithms 1 to 4 with the paper's powers, 9/2 and k^4, and constants of one."""
    truth = planted.random_network(1, 1, 1, rng=seed)
    norms, biases = strengths(truth)
    result = learn_from_queries(
        truth, epsilon=0.4 * float(norms[0]), delta=0.3, rng=seed, faithful=True, width=1,
        norm_bound=float(norms[0]), bias_bound=float(biases[0]),
        config=LearnerConfig(constants=FaithfulConstants(), most=MOST),
    )  # fmt: skip
    return outcome(result, truth, seed)


def stacked(seed: int, *, copies: int, width: float) -> dict[str, Any]:
    """Plant copies of a thin bump beside three neurons, and give k and R.

    The bump's mean square is nine times epsilon squared. What counts is that no RECOVERED
    is wrong: one bump of norm R would be far below epsilon, and slopes up to k R are not.
    """
    d, epsilon = 5, 1e-2
    g = np.random.default_rng(seed)
    ordinary = planted.random_network(d, 3, 1, rng=g)
    direction = g.standard_normal(d)
    direction /= np.linalg.norm(direction)
    density = math.exp(-0.5 * 0.3**2) / math.sqrt(2.0 * math.pi)  # where the bump stands
    height = 3.0 * epsilon * math.sqrt(3.0 / (density * width))
    slope = height / (width / 2) / copies
    w = np.concatenate([np.tile(direction, (3 * copies, 1)), ordinary.weights[0]])
    b = np.append(np.tile([width / 2, 0.0, -width / 2], copies) - 0.3, ordinary.biases[0])
    u = np.append(np.tile([slope, -2 * slope, slope], copies), ordinary.weights[1][0])
    truth = ReLUNetwork([w, u[None]], [b, np.zeros(1)])
    result = learn_from_queries(
        truth, epsilon=epsilon, rng=seed, width=3 * copies + 3,
        norm_bound=float(strengths(truth)[0].max()),
    )  # fmt: skip
    found = outcome(result, truth, seed)
    return found | {"success": not found["wrong_recovered"], "found": int(found["success"])}


def bump_cost(seed: int, *, width: float) -> dict[str, Any]:
    """A bump among five neurons in 20 inputs, told nothing, at 1e-2 of the spread."""
    truth = planted.bump(20, width=width, extra=5, rng=seed)
    result = learn_from_queries(truth, epsilon=1e-2, relative=True, rng=seed)
    return outcome(result, truth, seed)


ROWS = [
    *(
        Row(f"as printed {d}-{k}", partial(as_printed, d=d, k=k), range(23_000, 23_020),
            {"success": 19, "max:error_over_epsilon": 1.0}, 60.0)
        for d, k in ((2, 2), (3, 3), (2, 3))
    ),
    Row("as printed 1-1, the paper's own powers", own_powers, range(23_100, 23_120),
        {"success": 14, "max:error_over_epsilon": 1.0}, 60.0),
    *(
        Row(f"{copies} copies of a bump of width {width:g}, k and R given",
            partial(stacked, copies=copies, width=width), range(20_200, 20_208),
            {"success": 8}, 120.0)
        for copies, width in ((100, 1e-3), (30, 3e-3))
    ),
    *(
        Row(f"bump of width {width:g}, certificate included", partial(bump_cost, width=width),
            range(20_300, 20_310), {"success": 10}, 120.0)
        for width in (1e-1, 1e-3)
    ),
]  # fmt: skip


def main() -> None:
    """Run the rows and print their table."""
    harness.main("letter_chen", ROWS)


if __name__ == "__main__":
    main()
