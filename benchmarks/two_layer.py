"""Exact extraction of depth-2 networks against the ground truth.

Random Gaussian networks, trained classifiers, float32 networks, bounded
domains, hostile planted networks, and how queries and time grow with the
shape. ``ratio`` is queries over parameters, the certificate's excluded;
``error`` is max |f - f^| over 10,000 typical inputs over std(f).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from benchmarks.harness import Row, main, priced
from unrelu import planted
from unrelu._types import FloatArray
from unrelu.extraction.two_layer import TwoLayerResult, extract_two_layer
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect

SAMPLES = 10_000


class Timed:
    """A callable target that knows how long it took itself."""

    def __init__(self, function: Callable[[FloatArray], Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, x: FloatArray) -> Any:
        start = time.perf_counter()
        try:
            return self.function(x)
        finally:
            self.seconds += time.perf_counter() - start


def extract(target: Callable[[FloatArray], Any], d: int, m: int, seed: int, **options: Any) -> (
    tuple[TwoLayerResult, float]
):  # fmt: skip
    """Run the extraction; returns the result and its own seconds, the target's excluded."""
    timed = Timed(target)
    oracle = connect(timed, input_dim=d, output_dim=m)
    start = time.perf_counter()
    result = extract_two_layer(oracle, rng=seed, **options)
    return result, time.perf_counter() - start - timed.seconds


def facts(
    result: TwoLayerResult,
    own: float,
    truth: ReLUNetwork,
    width: int,
    limit: float,
    x: FloatArray,
    *,
    centred: bool = False,
) -> dict[str, Any]:
    error = float("inf")
    if result.network is not None:
        f, g = truth(x), result.network(x)
        if centred:  # logits are known up to a function common to all of them
            f, g = (v - v.mean(axis=1, keepdims=True) for v in (f, g))
        error = float(np.abs(f - g).max() / f.std())
    spent = result.queries.without_certificate
    return {
        "success": result.success and result.width == width and error <= limit,
        "status": result.status.name,
        "error": error,
        "ratio": spent / truth.parameters,
        "queries": spent,
        "certificate": result.queries.total - spent,
        "round_trips": result.queries.round_trips,
        "width": result.width,
        "signs": int(result.signs_determined),
        "own_seconds": own,
        "parameters": truth.parameters,
        **priced(result),
    }


def gaussian(seed: int, d: int, n: int = SAMPLES) -> FloatArray:
    return np.random.default_rng(seed + 999).standard_normal((n, d))


def random_net(seed: int, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    truth = planted.random_network(*shape, rng=seed)
    result, own = extract(truth, shape[0], shape[-1], seed + 1)
    return facts(result, own, truth, shape[1], limit, gaussian(seed, shape[0]))


def float32_net(seed: int, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    """The whole network computes in float32, its inputs cast as well."""
    truth = planted.random_network(*shape, rng=seed)
    w = [a.astype(np.float32) for a in truth.weights]
    b = [a.astype(np.float32) for a in truth.biases]

    def target(x: FloatArray) -> Any:
        hidden = np.maximum(x.astype(np.float32) @ w[0].T + b[0], np.float32(0))
        return hidden @ w[1].T + b[1]

    result, own = extract(target, shape[0], shape[-1], seed + 1)
    return facts(result, own, truth, shape[1], limit, gaussian(seed, shape[0]))


def orthant(seed: int, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    truth = planted.random_network(*shape, rng=seed)
    w, b = truth.weights[0], truth.biases[0]
    width = int(np.count_nonzero((-b[:, None] / w > 0).any(axis=1)))  # meets a half-axis
    outside = 0

    def target(x: FloatArray) -> Any:
        nonlocal outside
        outside += int((x < 0).any(axis=1).sum())
        return truth(x)

    result, own = extract(target, shape[0], shape[-1], seed + 1, domain="nonnegative")
    x = np.abs(gaussian(seed, shape[0]))
    outcome = facts(result, own, truth, width, limit, x)
    outcome["outside"] = outside
    outcome["success"] = outcome["success"] and outside == 0
    return outcome


@lru_cache(maxsize=1)
def digits28() -> tuple[FloatArray, Any]:
    """Return scikit-learn's digits, enlarged to 28 by 28 pixels by linear interpolation."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    data = load_digits()
    images = np.array([zoom(image / 16.0, 3.5, order=1) for image in data.images])
    return images.reshape(len(images), -1), data.target


def trained_logits(seed: int, limit: float) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    x, y = digits28()
    model = MLPClassifier((64,), random_state=seed, max_iter=30, batch_size=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    truth = ReLUNetwork.from_sklearn(model)
    result, own = extract(truth, 784, 10, seed + 1)
    return facts(result, own, truth, 64, limit, gaussian(seed, 784))


def trained_probabilities(seed: int, limit: float) -> dict[str, Any]:
    truth, model = planted.digits_classifier(32, rng=seed)
    result, own = extract(model.predict_proba, 64, 10, seed + 1)
    return facts(result, own, truth, 32, limit, gaussian(seed, 64), centred=True)


def hostile(seed: int) -> dict[str, Any]:
    """Every hostile network in turn; success is the absence of a false RECOVERED."""
    names = list(planted.HOSTILE)
    name = names[seed % len(names)]
    truth = planted.HOSTILE[name](seed)
    d, m = truth.input_dim, truth.output_dim
    oracle = connect(truth, budget=500_000)
    start = time.perf_counter()
    result = extract_two_layer(oracle, rng=seed + 1)
    x = gaussian(seed, d)
    f = truth(x)
    scale = float(f.std())
    error = float("inf")
    if result.network is not None:
        error = float(np.abs(result.network(x) - f).max() / (scale if scale > 1e-12 else 1.0))
    false = result.success and error > 1e-6
    return {
        "success": not false,
        "recovered": int(result.success),
        "status": result.status.name,
        "name": name,
        "error_if_recovered": error if result.success else None,
        "queries": result.queries.without_certificate,
        "outputs": m,
        "seconds_all": time.perf_counter() - start,
        **priced(result),
    }


GROWTH = [(10, 5), (10, 20), (10, 80), (40, 10), (40, 40), (40, 160), (160, 10), (160, 40),
          (160, 160), (640, 10), (640, 40)]  # fmt: skip


def growth(seed: int) -> dict[str, Any]:
    """Queries and own time over a range of shapes, for the plot of Theorem 1."""
    d, k = GROWTH[seed % len(GROWTH)]
    outcome = random_net(seed, (d, k, 1), 1e-8)
    return outcome | {"inputs": d, "hidden": k, "k(d+2)": k * (d + 2)}


def _row(
    name: str,
    run: Callable[..., dict[str, Any]],
    count: int,
    least: int,
    error: float,
    ratio: float,
    timeout: float = 300.0,
    quick: int = 1,
) -> Row:
    target = {"success": least, "max:error": error, "ratio": ratio}
    return Row(name, partial(run, limit=error), range(6000, 6000 + count), target, timeout, quick)


def _net(shape: tuple[int, ...]) -> Callable[..., dict[str, Any]]:
    return partial(random_net, shape=shape)


ROWS = [
    _row("20-10-1 float64", _net((20, 10, 1)), 200, 200, 1e-10, 1.7, quick=5),
    _row("10-40-1 float64", _net((10, 40, 1)), 200, 200, 1e-9, 1.7, quick=5),
    _row("100-200-1 float64", _net((100, 200, 1)), 50, 50, 2e-9, 1.25),
    _row("784-32-1 float64", _net((784, 32, 1)), 50, 50, 1e-10, 1.2),
    _row("784-128-1 float64", _net((784, 128, 1)), 50, 50, 1e-9, 1.12),
    _row("10-500-1 float64", _net((10, 500, 1)), 50, 49, 2e-8, 1.7),
    _row("40-4000-1 float64", _net((40, 4000, 1)), 10, 10, 1e-7, 1.35, 900.0, 0),
    _row("784-64-10 logits, digits", trained_logits, 10, 10, 1e-8, 1.5),
    _row("64-32-10 probabilities, digits", trained_probabilities, 10, 10, 1e-6, 2.0),
    _row("20-10-1 float32", partial(float32_net, shape=(20, 10, 1)), 200, 196, 1e-4, 5.0, quick=5),
    _row("784-32-1 float32", partial(float32_net, shape=(784, 32, 1)), 20, 18, 5e-4, 6.0, 600.0),
    _row("20-10-1 orthant", partial(orthant, shape=(20, 10, 1)), 50, 50, 1e-9, 12.0, quick=3),
    Row("hostile networks", hostile, range(7000, 8000), {"success": 1000}, 120.0, 17),
    Row("growth", growth, range(11_000, 11_033), {"success": 33}, 300.0, 3),
]

if __name__ == "__main__":
    main("two_layer", ROWS)
