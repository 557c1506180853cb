"""Deployed models in a box, and two hidden layers in single precision, against the truth.

Classifiers trained here on scikit-learn's digits, asked in ``[0, 1]^64`` only, and networks
with two hidden layers that answer in float32. ``error`` is the largest deviation of logits
(centred for a softmax) over their spread, or of probabilities where those are larger relative
to one, over uniform inputs, corners of random density and all data (box), or 10,000 Gaussian
inputs; ``ratio`` is queries over parameters, the certificate's excluded.
"""

from __future__ import annotations

import time
import warnings
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.special

from benchmarks.harness import Row, main
from unrelu import planted
from unrelu._types import FloatArray
from unrelu.extraction.box import extract_in_box
from unrelu.extraction.box_clip import notice_clipping
from unrelu.extraction.box_points import BoxInputs
from unrelu.extraction.two_hidden import extract_two_hidden
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import RecoveryResult

SAMPLES = 10_000


@lru_cache(maxsize=1)
def digits() -> tuple[FloatArray, FloatArray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x / 16.0, y


@lru_cache(maxsize=4)
def trained(hidden: tuple[int, ...], seed: int) -> ReLUNetwork:
    from sklearn.neural_network import MLPClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier(hidden, max_iter=400, random_state=seed).fit(*digits())
    return ReLUNetwork.from_sklearn(model)


class Deployed:
    """A network as it is served: in single or double precision, logits or probabilities."""

    def __init__(self, network: ReLUNetwork, *, single: bool, softmax: bool, box: bool) -> None:
        self.network, self.softmax, self.box = network, softmax, box
        self.dtype = np.float32 if single else np.float64

    def __call__(self, x: FloatArray) -> FloatArray:
        if self.box and ((x < 0).any() or (x > 1).any()):
            raise ValueError("inputs must lie in [0, 1]")
        h = x.astype(self.dtype)
        last = len(self.network.weights) - 1
        for i, (w, b) in enumerate(zip(self.network.weights, self.network.biases, strict=True)):
            h = h @ w.T.astype(self.dtype) + b.astype(self.dtype)
            h = h if i == last else np.maximum(h, 0)
        return np.asarray(scipy.special.softmax(h, axis=1) if self.softmax else h)


def facts(
    result: RecoveryResult, truth: ReLUNetwork, x: FloatArray, limit: float, softmax: bool
) -> dict[str, Any]:
    error = float("inf")
    if result.network is not None:
        f, g = truth(x), result.network(x)
        if softmax:
            p, q = (scipy.special.softmax(v, axis=1) for v in (f, g))
            error = float(np.abs(p - q).max())
        else:
            error = float(np.abs(f - g).max() / f.std(axis=0).max())
    spent = result.queries.without_certificate
    return {
        "success": result.success and error <= limit,
        "status": result.status.name,
        "false_recovered": int(result.success and not error <= limit),
        "error": error,
        "ratio": spent / truth.parameters,
        "queries": spent,
        "message": result.message,
    }


def box(seed: int, *, single: bool, softmax: bool, data: bool, limit: float) -> dict[str, Any]:
    truth = trained((32,), seed)
    served = Deployed(truth, single=single, softmax=softmax, box=True)
    start = time.process_time()
    result = extract_in_box(
        connect(served, input_dim=64, output_dim=10),
        domain=(0.0, 1.0),
        data=digits()[0] if data else None,
        rng=seed,
    )
    seconds = time.process_time() - start
    rng, inputs = np.random.default_rng(10_000 + seed), BoxInputs(64)
    x = np.concatenate([inputs.uniform(5000, rng), inputs.corners(5000, rng), digits()[0]])
    return {**facts(result, truth, x, limit, softmax), "seconds": seconds, "width": result.width}


def clipped(seed: int) -> dict[str, Any]:
    truth = trained((32,), seed)
    oracle = connect(lambda x: truth(np.clip(x, 0.0, 1.0)), input_dim=64, output_dim=10)
    found = notice_clipping(oracle, center=digits()[0].mean(axis=0), rng=seed)
    off = np.abs(np.stack([found.low, found.high - 1.0])[:, found.found])
    error = float(off.max()) if off.size else float("inf")
    return {
        "success": found.noticed and error <= 1e-3,
        "error": error,
        "features": int(found.found.sum()),
        "queries": oracle.queries.total,
    }


def two_hidden(
    seed: int, *, widths: tuple[int, ...] | None, softmax: bool, limit: float
) -> dict[str, Any]:
    truth = (
        trained((24, 16), seed) if widths is None else planted.random_network(*widths, rng=seed)
    )
    served = Deployed(truth, single=True, softmax=softmax, box=False)
    start = time.process_time()
    result = extract_two_hidden(
        connect(served, input_dim=truth.input_dim, output_dim=truth.output_dim), rng=seed
    )
    seconds = time.process_time() - start
    x = np.random.default_rng(10_000 + seed).standard_normal((SAMPLES, truth.input_dim))
    return {**facts(result, truth, x, limit, softmax), "seconds": seconds}


def _boxes() -> list[Row]:
    rows = []
    for single, softmax in ((False, False), (False, True), (True, False), (True, True)):
        for data in (True, False):
            limit = 2e-5 if single else 1e-11
            name = f"box: digits 64-32-10, {'float32' if single else 'float64'} "
            name += ("softmax" if softmax else "logits") + ("" if data else ", without data")
            run = partial(box, single=single, softmax=softmax, data=data, limit=limit)
            asked = {"success": 19.0 if single else 20.0, "ratio": 4.0 if data else 6.0}
            rows.append(Row(name, run, range(100, 120), asked | {"seconds": 60.0}))
    return rows


ROWS = [
    *_boxes(),
    Row("silent clipping: digits 64-32-10", clipped, range(100, 110), {"success": 10.0}),
    Row(
        "two hidden, float32: 10-10-10-1",
        partial(two_hidden, widths=(10, 10, 10, 1), softmax=False, limit=1e-4),
        range(100, 120),
        {"success": 19.0, "ratio": 60.0},
    ),
    Row(
        "two hidden, float32: 20-10-10-1",
        partial(two_hidden, widths=(20, 10, 10, 1), softmax=False, limit=1e-4),
        range(100, 120),
        {"success": 19.0, "ratio": 60.0},
    ),
    *(
        Row(
            f"two hidden, float32: digits 64-24-16-10, {'softmax' if softmax else 'logits'}",
            partial(two_hidden, widths=None, softmax=softmax, limit=1e-4),
            range(100, 110),
            {"success": 10.0, "ratio": 20.0},
        )
        for softmax in (False, True)
    ),
]

if __name__ == "__main__":
    main("deployed_boxes", ROWS)
