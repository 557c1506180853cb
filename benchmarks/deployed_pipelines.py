"""Deployed models over raw features, as files and behind HTTP, through the public verb.

Pipelines of a StandardScaler and an MLP, trained here on scikit-learn's data sets in their own
units; the same exported to float32 ONNX; and a float32 softmax behind a server that speaks JSON.
All through :func:`unrelu.extract` with default options. ``error`` is the largest deviation of
probabilities, or of values over their spread, over the data and 10,000 Gaussian inputs with the
data's mean and covariance; ``ratio`` is queries over parameters, the certificate's excluded.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

import unrelu
from benchmarks.deployed_boxes import Deployed, images, judged, trained
from benchmarks.harness import Row, main
from unrelu._types import FloatArray
from unrelu.core.explain import predicted_answers
from unrelu.result import RecoveryResult

SAMPLES = 10_000
SETS = ("breast_cancer", "wine", "diabetes", "digits")
HIDDEN = ((20,), (100,), (16, 8))


@lru_cache(maxsize=4)
def features(which: str) -> tuple[FloatArray, FloatArray]:
    """Return raw features and labels of one of scikit-learn's data sets."""
    import sklearn.datasets

    raw = {"scaled": False} if which == "diabetes" else {}
    x, y = getattr(sklearn.datasets, f"load_{which}")(return_X_y=True, **raw)
    return np.asarray(x, dtype=np.float64), np.asarray(y)


@lru_cache(maxsize=2)
def pipeline(which: str, hidden: tuple[int, ...], seed: int) -> Any:
    """Train a StandardScaler and an MLP; features that are constant in the half used stay."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = features(which)
    some = np.random.default_rng(seed).permutation(len(x))[: 3 * len(x) // 4]
    kind = MLPRegressor if which == "diabetes" else MLPClassifier
    model = make_pipeline(
        StandardScaler(), kind(hidden_layer_sizes=hidden, random_state=seed, max_iter=300)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x[some], y[some])


def parameters(model: Any) -> int:
    """Return the number of parameters of a pipeline's network."""
    return int(sum(a.size for a in (*model[-1].coefs_, *model[-1].intercepts_)))


def typical(which: str, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the data, and Gaussian inputs with their mean and covariance."""
    x, _ = features(which)
    rng = np.random.default_rng(10_000 + seed)
    return x, rng.multivariate_normal(x.mean(axis=0), np.cov(x.T), SAMPLES)


def facts(
    result: RecoveryResult,
    truth: Callable[[FloatArray], FloatArray],
    size: int,
    limit: float,
    *inputs: FloatArray,
) -> dict[str, Any]:
    """Judge a result by the target's own answers."""
    error = float("inf")
    if result.network is not None:
        error = max(_deviation(result, truth, x) for x in inputs)
    return judged(result, error, limit, size)


def _deviation(
    result: RecoveryResult, truth: Callable[[FloatArray], FloatArray], x: FloatArray
) -> float:
    f = np.asarray(truth(x), dtype=np.float64).reshape(len(x), -1)
    log_odds = result.findings().log_odds
    assert result.network is not None
    g = predicted_answers(result.network, "log-odds" if log_odds else "values", f.shape[1])(x)
    return float(np.abs(f - g).max() / (1.0 if log_odds else f.std(axis=0).max()))


def scaled(
    seed: int, *, which: str, hidden: tuple[int, ...], data: bool, limit: float
) -> dict[str, Any]:
    """A pipeline over raw features, as scikit-learn holds it."""
    model = pipeline(which, hidden, seed)
    start = time.perf_counter()
    oracle = unrelu.connect(model, data=features(which)[0] if data else None)
    result = unrelu.extract(oracle, rng=seed)
    seconds = time.perf_counter() - start
    answer = model.predict if which == "diabetes" else model.predict_proba
    outcome = facts(result, answer, parameters(model), limit, *typical(which, seed))
    return outcome | {"seconds": seconds}


def exported(
    seed: int, *, which: str, hidden: tuple[int, ...], data: bool, limit: float
) -> dict[str, Any]:
    """The same as a float32 ONNX file."""
    import onnxruntime
    from skl2onnx import to_onnx

    model = pipeline(which, hidden, seed)
    x = features(which)[0]
    options = None if which == "diabetes" else {id(model): {"zipmap": False}}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        onnx = to_onnx(model, x[:1].astype(np.float32), options=options)
        Path(path).write_bytes(onnx.SerializeToString())
        output = None if which == "diabetes" else "probabilities"
        start = time.perf_counter()
        oracle = unrelu.connect(path, output=output, data=x if data else None)
        result = unrelu.extract(oracle, rng=seed)
        seconds = time.perf_counter() - start
        session = onnxruntime.InferenceSession(path)

    def answer(x: FloatArray) -> Any:
        name = session.get_inputs()[0].name
        return session.run(None, {name: x.astype(np.float32)})[-1]

    grid = [part.astype(np.float32).astype(np.float64) for part in typical(which, seed)]
    return facts(result, answer, parameters(model), limit, *grid) | {"seconds": seconds}


@contextmanager
def served(model: Callable[[FloatArray], Any], field: str) -> Iterator[tuple[str, list[int]]]:
    """Serve a model as JSON on this machine; yields the address, and the rows of each request."""
    rows: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def say(self, status: int, message: Any) -> None:
            body = json.dumps(message).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.say(404, {"error": "not found"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not isinstance(body, dict) or field not in body:
                return self.say(400, {"error": f"{field} is missing"})
            x = np.asarray(body[field], dtype=np.float64)
            rows.append(len(x))
            return self.say(200, {"predictions": model(x).tolist()})

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", rows
    finally:
        server.shutdown()
        server.server_close()


def remote(seed: int, *, path: str, field: str, limit: float) -> dict[str, Any]:
    """A float32 softmax over digits behind a server, asked 256 rows at a time."""
    model = Deployed(trained("digits", (32,), seed), single=True, softmax=True)
    size = model.truth.parameters
    with served(model, field) as (root, requests):
        start = time.perf_counter()
        oracle = unrelu.connect(root + path, input_dim=64, batch_size=256)
        result = unrelu.extract(oracle, rng=seed)
        seconds = time.perf_counter() - start
        x = np.random.default_rng(10_000 + seed).standard_normal((SAMPLES, 64))
        outcome = facts(result, model, size, limit, x, images("digits").x_test)
    few = len(requests) <= 120
    return outcome | {
        "success": outcome["success"] and few, "requests": len(requests), "seconds": seconds
    }  # fmt: skip


def _raw() -> list[Row]:
    rows = []
    for kind, run, limit, least in (
        ("pipeline", scaled, 1e-6, 10.0),
        ("ONNX", exported, 1e-3, 9.0),
    ):
        for which, hidden, data in itertools.product(SETS, HIDDEN, (True, False)):
            name = f"{kind}: {which} {'-'.join(map(str, hidden))}"
            name += "" if data else ", without data"
            job = partial(run, which=which, hidden=hidden, data=data, limit=limit)
            rows.append(Row(name, job, range(18_000, 18_010), {"success": least}, 300.0))
    return rows


ROWS = [
    *_raw(),
    *(
        Row(
            f"HTTP: {name}, digits 64-32-10 float32 softmax",
            partial(remote, path=path, field=field, limit=2e-5),
            range(18_000, 18_010), {"success": 10.0, "max:requests": 120.0}, 300.0,
        )
        for name, path, field in (
            ("TF-Serving", "/v1/models/m:predict", "instances"),
            ("plain JSON", "/predict", "inputs"),
        )
    ),
]  # fmt: skip

if __name__ == "__main__":
    main("deployed_pipelines", ROWS)
