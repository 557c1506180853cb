"""Networks from labels alone, against the ground truth.

Thresholds lie at the output's median; argmax targets have output biases, and every class at
least 1 % of Gaussian inputs (seeds that fail that are drawn again). ``agreement`` is that of
100,000 Gaussian inputs, ``error`` max |f - f^| over std(f) of logits less their mean over
classes, on 10,000 of them, after the best scales: one for every block of neighbouring classes,
as no cycle of boundaries ties two blocks. ``ratio`` is labels over parameters, the certificate's
excluded. Everything goes through :func:`unrelu.extract`.
"""

from __future__ import annotations

import gzip
import os
import struct
import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import unrelu
from benchmarks.harness import Row, main
from unrelu import planted
from unrelu._types import FloatArray, IntArray
from unrelu.labels.algorithm import LabelsConfig
from unrelu.labels.approximate import predicted, train_network
from unrelu.labels.fit import class_blocks
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import RecoveryResult

SAMPLES = 100_000
RARE = 0.01
BIAS = 0.1  # standard deviation of an argmax target's output biases


def gaussian(d: int, n: int = SAMPLES) -> FloatArray:
    return np.random.default_rng(99).standard_normal((n, d))


def random_target(seed: int, shape: tuple[int, ...]) -> ReLUNetwork:
    """Return logits: above zero for half of all inputs, or none of the classes rare."""
    d, m = shape[0], shape[-1]
    for attempt in range(1000):
        rng = np.random.default_rng([seed, attempt])
        net = planted.random_network(*shape, rng=rng)
        x = rng.standard_normal((4000, d))
        shift = -np.median(net(x), axis=0) if m == 1 else BIAS * rng.standard_normal(m)
        net = ReLUNetwork(net.weights, [*net.biases[:-1], shift])
        shares = np.bincount(net(x).argmax(axis=1), minlength=m) / len(x)
        if m == 1 or shares.min() >= RARE:
            return net
    raise RuntimeError("no target without a rare class")


def in_single(net: ReLUNetwork) -> Callable[[FloatArray], Any]:
    """Return the network computed in float32 throughout."""
    weights = [w.astype(np.float32) for w in net.weights]
    biases = [b.astype(np.float32) for b in net.biases]

    def logits(x: FloatArray) -> Any:
        value = x.astype(np.float32)
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            value = np.maximum(value @ w.T + b, np.float32(0))
        return value @ weights[-1].T + biases[-1]

    return logits


def labels_of(logits: FloatArray) -> FloatArray:
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).astype(float)
    return logits.argmax(axis=1).astype(float)


def extract(net: ReLUNetwork, seed: int, *, single: bool) -> RecoveryResult:
    function = in_single(net) if single else net
    oracle = connect(
        lambda x: labels_of(np.asarray(function(x))), input_dim=net.input_dim, output_dim=1
    )
    return unrelu.extract(oracle, rng=seed + 1)


def neighbours(net: ReLUNetwork, x: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the classes that meet on segments between inputs ``(n, d)``."""
    a, b = x[: len(x) // 2].copy(), x[len(x) // 2 : 2 * (len(x) // 2)].copy()
    inside, outside = net(a).argmax(axis=1), net(b).argmax(axis=1)
    for _ in range(40):  # to 1e-12 of the segment
        middle = 0.5 * (a + b)
        label = net(middle).argmax(axis=1)
        same = label == inside
        a, b = np.where(same[:, None], middle, a), np.where(same[:, None], b, middle)
        outside = np.where(same, outside, label)
    unequal = inside != outside
    return np.asarray(inside[unequal]), np.asarray(outside[unequal])


def scaled_parts(net: ReLUNetwork, outputs: FloatArray, x: FloatArray) -> FloatArray:
    """Return the parts of a network's outputs that have a free scale each, ``(b, n, m)``.

    Without the edges of a block its classes fall apart; what hangs on each of them moves with it.
    """
    m = outputs.shape[1]
    if m == 1:
        return outputs[None]
    edges, block = class_blocks(*neighbours(net, x))
    parts = []
    for b in range(int(block.max()) + 1):
        rest, own = edges[block != b], np.unique(edges[block == b])
        graph = coo_array((np.ones(len(rest)), (rest[:, 0], rest[:, 1])), shape=(m, m))
        part = connected_components(graph, directed=False)[1]
        holder = {int(part[v]): int(v) for v in own}
        moved = outputs[:, [holder.get(int(part[c]), int(own[0])) for c in range(m)]]
        parts.append(moved - moved.mean(axis=1, keepdims=True))
    return np.array(parts)


def logit_error(net: ReLUNetwork, network: Network, x: FloatArray) -> float:
    """Return the error of centred logits after the best scales, infinite if one is negative."""
    f, g = net(x), np.asarray(network(x))
    if f.shape != g.shape:
        return float("inf")
    if f.shape[1] > 1:
        f = f - f.mean(axis=1, keepdims=True)
    parts = scaled_parts(net, g, x)
    flat = parts.reshape(len(parts), -1).T
    scale, *_ = np.linalg.lstsq(flat, f.ravel(), rcond=None)
    if not (scale > 0).all():
        return float("inf")
    return float(np.abs(flat @ scale - f.ravel()).max() / f.std())


def judge(
    net: ReLUNetwork, seed: int, limit: float, *, single: bool = False,
    data: FloatArray | None = None,
) -> dict[str, Any]:  # fmt: skip
    start = time.perf_counter()
    result = extract(net, seed, single=single)
    seconds = time.perf_counter() - start
    agreement = on_data = 0.0
    error = float("inf")
    if result.network is not None:
        labels = getattr(result, "labels", ())
        x = gaussian(net.input_dim, min(SAMPLES, 50_000_000 // net.input_dim))

        def agree(inputs: FloatArray) -> float:
            told = predicted(result.network, labels, inputs)  # type: ignore[arg-type]
            return float((told == labels_of(net(inputs))).mean())

        agreement = agree(x)
        error = logit_error(net, result.network, x[:10_000])
        on_data = agreement if data is None else agree(data)
    spent = result.queries.without_certificate
    return {
        "success": min(agreement, on_data) >= limit,
        "status": result.status.name,
        "false": int(result.success and min(agreement, on_data) < limit),
        "agreement": agreement,
        "on_data": on_data,
        "error": error,
        "exact": error <= 1e-9,
        "ratio": spent / net.parameters,
        "queries": spent,
        "certificate": result.queries.total - spent,
        "round_trips": result.queries.round_trips,
        "width": getattr(result, "width", 0),
        "first_layer": rows_found(net, result),
        "parameters": net.parameters,
        "own_seconds": seconds,
    }


def rows_found(net: ReLUNetwork, result: RecoveryResult) -> int:
    """Count the first layer's hyperplanes that a partial result tells within 1e-6."""
    rows = getattr(result, "first_weights", np.empty((0, 0)))
    if len(rows) == 0:
        return 0
    mine = np.column_stack([rows, getattr(result, "first_biases")])  # noqa: B009
    true = np.column_stack([net.weights[0], net.biases[0]])
    true = true / np.linalg.norm(net.weights[0], axis=1)[:, None]
    away = np.minimum(
        np.linalg.norm(true[:, None] - mine[None], axis=2),
        np.linalg.norm(true[:, None] + mine[None], axis=2),
    )
    wrong = int((away.min(axis=0) > 1e-6).sum())  # told, and none of the first layer's
    return int((away.min(axis=1) <= 1e-6).sum()) - wrong


def random_net(
    seed: int, shape: tuple[int, ...], limit: float, *, single: bool = False
) -> dict[str, Any]:
    return judge(random_target(seed, shape), seed, limit, single=single)


def digits(seed: int, limit: float, *, single: bool = False) -> dict[str, Any]:
    from sklearn.datasets import load_digits

    net, _ = planted.digits_classifier(32, rng=seed)
    return judge(net, seed, limit, single=single, data=load_digits().data / 16.0)


@lru_cache(maxsize=1)
def mnist() -> tuple[FloatArray, Any]:
    """Return MNIST from IDX files in the folder that UNRELU_MNIST names."""
    folder = Path(os.environ["UNRELU_MNIST"])

    def read(name: str) -> Any:
        path = next(p for p in sorted(folder.rglob("*")) if name in p.name)
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        sizes = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(sizes)

    return read("train-images").reshape(-1, 784) / 255.0, read("train-labels")


def mnist_net(seed: int, limit: float) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    x, y = mnist()
    model = MLPClassifier((16,), random_state=seed, max_iter=5, batch_size=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x[:50_000], y[:50_000])
    return judge(ReLUNetwork.from_sklearn(model), seed, limit, data=x[50_000:])


def two_hidden(seed: int) -> dict[str, Any]:
    """Two hidden layers: not called recovered; the first layer, and a copy.

    Success: all of the first layer was told, and nothing else. ``beside`` is the agreement of a
    network trained on as many labels of Gaussian inputs as the copy's.
    """
    net = random_target(seed, (10, 8, 6, 1))
    outcome = judge(net, seed, 1.0)
    rng = np.random.default_rng(seed)
    x, fresh = rng.standard_normal((LabelsConfig().held_out, 10)), gaussian(10)
    beside = train_network(x, labels_of(net(x)), rng)
    outcome["beside"] = float((labels_of(beside(fresh)) == labels_of(net(fresh))).mean())
    outcome["better"] = outcome["agreement"] > outcome["beside"]
    outcome["success"] = not outcome["false"] and outcome["first_layer"] == len(net.weights[0])
    return outcome


def _row(
    name: str, run: Callable[..., dict[str, Any]], count: int, least: int, limit: float,
    ratio: float, timeout: float = 300.0, quick: int = 1, **more: float,
) -> Row:  # fmt: skip
    target = {"success": least, "ratio": ratio, "max:false": 0, **more}
    return Row(name, partial(run, limit=limit), range(9100, 9100 + count), target, timeout, quick)


def _net(*shape: int, single: bool = False) -> Callable[..., dict[str, Any]]:
    return partial(random_net, shape=shape, single=single)


ROWS = [
    _row("10-5-1 threshold", _net(10, 5, 1), 20, 20, 1.0, 1000, quick=3, **{"count:exact": 18}),
    _row("20-10-1 threshold", _net(20, 10, 1), 20, 20, 1.0, 400, quick=3, **{"count:exact": 18}),
    _row("20-10-3 argmax", _net(20, 10, 3), 20, 18, 0.99999, 600),
    _row("20-10-5 argmax", _net(20, 10, 5), 20, 18, 0.99999, 600),
    _row("20-10-1 threshold, float32", _net(20, 10, 1, single=True), 10, 8, 0.9999, 1000),
    _row("digits 64-32-10 argmax", digits, 5, 5, 0.9999, 500, 1800.0, 0),
    _row("digits, float32", partial(digits, single=True), 5, 3, 0.9999, 1000, 1800.0, 0),
    _row("2048-4-1 threshold", _net(2048, 4, 1), 3, 3, 0.9999, 2**21 / 8201, 900.0, 0),
    Row(
        "10-8-6-1 threshold",
        two_hidden,
        range(9100, 9110),
        {"success": 8, "max:false": 0},
        600.0,
        0,
    ),
]
if "UNRELU_MNIST" in os.environ:
    ROWS.append(_row("MNIST 784-16-10 argmax", mnist_net, 2, 2, 0.999, 300, 3600.0, 0))

if __name__ == "__main__":
    main("labels", ROWS)
