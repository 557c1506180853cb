"""Two hidden layers at the sizes that people deploy, and beside the assumptions.

Everything goes through the public ``extract`` with its default options.

Random networks with weights N(0, 1/fan-in) and biases N(0, 0.25) up to 109,386 parameters,
the growth of the time with the number of parameters at 2k-k-k-1, first layers wider than the
input, classifiers trained on digits and on MNIST, parallel first-layer rows and integer
weights. ``ratio`` is queries over parameters, the certificate's excluded; ``error`` is max
|f - f^| over 10,000 Gaussian inputs over std(f), f being the log-odds where answers are
probabilities. A success has no unit that the target has not. ``cpu_seconds`` is the time of
the one thread used, the target's answers included. In the degenerate rows a success
is a network that agrees, or a status that names what is degenerate.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from benchmarks._depth import facts
from benchmarks._three_layer_kinds import target
from benchmarks.harness import NotHereError, Row, main
from benchmarks.three_layer import error_of
from unrelu import extract, planted
from unrelu.datasets import MNIST_ENVIRONMENT, load_mnist
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect

SEEDS = 51_000
NAMES = ("parallel", "dependent", "same hyperplane", "integer")
"""A status that names a degeneracy holds one of these words."""


def run_size(seed: int, *, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    return facts(planted.random_network(*shape, rng=seed), seed, limit)


def run_digits(seed: int, *, hidden: tuple[int, int], probabilities: bool) -> dict[str, Any]:
    truth, model = planted.digits_classifier(*hidden, rng=seed)
    if not probabilities:
        return facts(truth, seed, 1e-8)
    oracle = connect(model.predict_proba, input_dim=64, output_dim=10)
    return facts(truth, seed, 1e-8, probabilities=oracle)


def run_mnist(seed: int, *, hidden: tuple[int, int], limit: float) -> dict[str, Any]:
    """Train on MNIST, and extract the logits."""
    from sklearn.neural_network import MLPClassifier

    folder = os.environ.get(MNIST_ENVIRONMENT)
    if not folder:
        raise NotHereError(f"set {MNIST_ENVIRONMENT} to the folder of MNIST's files")
    images = load_mnist(folder)
    model = MLPClassifier(hidden, random_state=seed, max_iter=5, batch_size=200)
    with np.errstate(all="ignore"):
        model.fit(images.x_train, images.y_train)
    return facts(ReLUNetwork.from_sklearn(model), seed, limit)


def integer_weights(*shape: int, seed: int) -> ReLUNetwork:
    """Plant small integers: rows may repeat, and combinations of them vanish."""
    g = np.random.default_rng(seed)
    sizes = list(zip(shape[1:], shape[:-1], strict=True))
    weights = [g.integers(-2, 3, size).astype(np.float64) for size in sizes]
    biases = [g.integers(-2, 3, size[0]).astype(np.float64) for size in sizes]
    return ReLUNetwork(weights, biases)


def run_degenerate(seed: int, *, kind: str) -> dict[str, Any]:
    if kind == "integer":
        truth = integer_weights(6, 4, 14, 1, seed=seed)
        oracle: Any = connect(truth)
    else:
        truth, oracle = target(kind, seed)
    result = extract(oracle, rng=seed)
    network = result.network if isinstance(result.network, ReLUNetwork) else None
    error = error_of(network, truth, seed)
    recovered = result.success and error <= 1e-5
    named = any(word in result.message for word in NAMES)
    return {
        "success": recovered or (not result.success and named),
        "recovered": int(recovered),
        "named": int(named),
        "status": result.status.name,
        "message": "" if recovered else result.message,
        "error": error if recovered else 0.0,
        "queries": result.queries.without_certificate,
        "false_recovered": int(result.success and not recovered),
    }


def size_row(
    shape: tuple[int, ...], count: int, limit: float, ratio: float, seconds: float
) -> Row:
    return Row(
        "-".join(map(str, shape)),
        run=partial(run_size, shape=shape, limit=limit),
        seeds=range(SEEDS, SEEDS + count),
        target={
            "success": count,
            "max:error": limit,
            "ratio": ratio,
            "cpu_seconds": seconds,
            "max:memory_gib": 2.0,
        },
        timeout=20.0 * seconds + 60.0,
        quick=int(seconds <= 5.0),
    )


ROWS = [
    size_row((100, 50, 25, 1), 10, 1e-9, 3.5, 5.0),
    size_row((200, 100, 50, 1), 10, 1e-9, 3.5, 20.0),
    size_row((400, 200, 100, 1), 3, 1e-9, 3.5, 180.0),
    size_row((784, 128, 64, 10), 5, 1e-7, 1.2, 120.0),
    Row(
        "784-128-64-10 trained on MNIST",
        run=partial(run_mnist, hidden=(128, 64), limit=1e-7),
        seeds=range(SEEDS, SEEDS + 3),
        target={"success": 3, "max:error": 1e-7, "ratio": 1.2, "cpu_seconds": 120.0},
        timeout=3600.0,
        quick=0,
    ),
    *(
        Row(
            f"growth: {2 * k}-{k}-{k}-1",
            run=partial(run_size, shape=(2 * k, k, k, 1), limit=1e-8),
            seeds=range(SEEDS, SEEDS + 3),
            target={"success": 3},
            timeout=1200.0,
        )
        for k in (25, 50, 100)
    ),
    Row(
        "10-20-20-1, wider than the input",
        run=partial(run_size, shape=(10, 20, 20, 1), limit=1e-9),
        seeds=range(SEEDS, SEEDS + 20),
        target={"success": 20, "max:error": 1e-9, "ratio": 15.0},
        timeout=300.0,
    ),
    *(
        Row(
            f"64-64-32-10 digits, {name}",
            run=partial(run_digits, hidden=(64, 32), probabilities=probabilities),
            seeds=range(SEEDS, SEEDS + 10),
            target={"success": least, "max:error": 1e-8, "ratio": 4.0},
            timeout=900.0,
        )
        for name, probabilities, least in (("logits", False, 10), ("softmax", True, 9))
    ),
    *(
        Row(
            name,
            run=partial(run_degenerate, kind=kind),
            seeds=range(SEEDS, SEEDS + 20),
            target={"success": 20, "count:recovered": 15, "max:false_recovered": 0},
            timeout=120.0,
        )
        for name, kind in (
            ("parallel first-layer rows, 10-6-12-1", "parallel rows"),
            ("integer weights, 6-4-14-1", "integer"),
        )
    ),
]

if __name__ == "__main__":
    main("depth", ROWS)
