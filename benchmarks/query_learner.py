"""Any one-hidden-layer network to epsilon: success, error and queries on hostile targets.

Success is judged by ground truth: the root mean square error over fresh
Gaussian inputs is at most epsilon, in units of std(F). Queries leave the
certificate out. The learner is told nothing but epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import unrelu
from benchmarks.harness import Row, main, priced
from unrelu import planted
from unrelu.learner.algorithm import learn_from_queries
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Noisy

JUDGED = 1_000_000


def judge(
    network: Any, truth: ReLUNetwork, seed: int, samples: int = JUDGED
) -> tuple[float, float]:
    """Return the root mean square error and std(F) over fresh Gaussian inputs."""
    rng = np.random.default_rng([seed, 77])
    square = total = total_square = 0.0
    batch = max(500, 400_000 // max(truth.hidden_widths[0], truth.input_dim))  # stays in cache
    for _ in range(0, samples, batch):
        x = rng.standard_normal((batch, truth.input_dim))
        y = truth(x)
        square += float(((network(x) - y) ** 2).sum())
        total += float(y.sum())
        total_square += float((y**2).sum())
    n = -(-samples // batch) * batch
    return math.sqrt(square / n), math.sqrt(max(total_square / n - (total / n) ** 2, 0.0))


def in_float32(network: ReLUNetwork) -> Oracle:
    """Evaluate weights, inputs and sums in float32, as a deployed network would."""
    (w, u), (b, c) = (
        [a.astype(np.float32) for a in arrays] for arrays in (network.weights, network.biases)
    )

    def answer(x: np.ndarray) -> np.ndarray:
        return np.maximum(x.astype(np.float32) @ w.T + b, np.float32(0)) @ u.T + c

    return unrelu.connect(answer, input_dim=network.input_dim, output_dim=1)


def run(
    seed: int,
    *,
    make: Callable[[int], ReLUNetwork],
    epsilon: float,
    answers: str = "float64",
    samples: int = JUDGED,
) -> dict[str, Any]:
    """Learn one planted network and compare."""
    truth = make(seed)
    oracle: Oracle
    if answers == "float32":
        oracle = in_float32(truth)
    elif answers == "noisy":
        x = np.random.default_rng([seed, 78]).standard_normal((100_000, truth.input_dim))
        oracle = Noisy(as_oracle(truth), 1e-3 * float(truth(x).std()), seed=seed)
    else:
        oracle = as_oracle(truth)
    result = learn_from_queries(oracle, epsilon=epsilon, relative=True, rng=seed)
    assert result.network is not None
    error, scale = judge(result.network, truth, seed, samples)
    queries = result.queries.without_certificate
    recovered = result.status is unrelu.Status.RECOVERED
    return {
        "success": error <= epsilon * scale,
        "error": error / scale,
        "error_over_epsilon": error / scale / epsilon,
        "queries": queries,
        "queries_per_parameter": queries / truth.parameters,
        "certificate_queries": result.queries.total - queries,
        "neurons": result.width,
        "recovered": int(recovered),
        "wrong_recovered": int(recovered and error > epsilon * scale),
        "status": result.status.name,
        **priced(result),
    }


def _random(seed: int, d: int, k: int) -> ReLUNetwork:
    return planted.random_network(d, k, 1, rng=seed)


def _clusters(seed: int, angle: float) -> ReLUNetwork:
    return planted.clusters(20, 40, groups=5, angle=angle, rng=seed)


def _cancelling(seed: int) -> ReLUNetwork:
    return planted.cancelling(20, pairs=5, ordinary=5, rng=seed)


def _bump(seed: int, width: float) -> ReLUNetwork:
    return planted.bump(20, width=width, extra=5, rng=seed)


def _diabetes(seed: int) -> ReLUNetwork:
    return planted.diabetes_regressor(100, rng=seed)[0]


def _row(
    name: str, make: Callable[[int], ReLUNetwork], epsilon: float, success: int,
    queries: float, seeds: int = 50, *, first: int = 5000, per_parameter: bool = False,
    timeout: float = 300.0, **options: Any,
) -> Row:  # fmt: skip
    key = "queries_per_parameter" if per_parameter else "queries"
    return Row(
        name,
        run=partial(run, make=make, epsilon=epsilon, **options),
        seeds=range(first, first + seeds),
        target={"success": success, key: queries},
        timeout=timeout,
    )


ROWS = [
    *(
        _row(f"random k={k}, epsilon 1e-4", partial(_random, d=20, k=k), 1e-4, 50, 3.0,
             per_parameter=True)
        for k in (10, 50, 200)
    ),
    _row("5 clusters, angle 1e-6, epsilon 1e-4", partial(_clusters, angle=1e-6), 1e-4, 50, 1e4),
    _row("5 clusters, angle 1e-4, epsilon 1e-3", partial(_clusters, angle=1e-4), 1e-3, 48, 2e4),
    _row("5 clusters, angle 1e-2, epsilon 1e-3", partial(_clusters, angle=1e-2), 1e-3, 48, 2e4),
    _row("cancelling to affine plus 5, epsilon 1e-4", _cancelling, 1e-4, 50, 12e3),
    _row("bump of width 0.1, epsilon 1e-2", partial(_bump, width=0.1), 1e-2, 50, 5e3),
    _row("bump of width 0.01, epsilon 1e-2", partial(_bump, width=0.01), 1e-2, 49, 1e4),
    _row("bump of width 1e-3, epsilon 1e-2", partial(_bump, width=1e-3), 1e-2, 45, 6e4),
    _row("MLPRegressor on diabetes, epsilon 1e-4", _diabetes, 1e-4, 10, 10.0, 10,
         per_parameter=True),
    _row("random k=50, noise 1e-3, epsilon 1e-2", partial(_random, d=20, k=50), 1e-2, 48, 2e4,
         answers="noisy"),
    _row("bump of width 0.1, noise 1e-3, epsilon 1e-2", partial(_bump, width=0.1), 1e-2, 47,
         25e3, answers="noisy"),
    _row("random k=50, float32, epsilon 1e-3", partial(_random, d=20, k=50), 1e-3, 48, 2e4,
         answers="float32", first=7000),
    _row("bump of width 0.1, float32, epsilon 5e-3", partial(_bump, width=0.1), 5e-3, 48, 2e4,
         answers="float32", first=7000),
    _row("k=2000, d=10, epsilon 1e-3", partial(_random, d=10, k=2000), 1e-3, 19, 4e5, 20,
         samples=200_000, timeout=900.0),
]  # fmt: skip

if __name__ == "__main__":
    main("query_learner", ROWS)
