"""Deployed models in a box, and two hidden layers, through the public verb, against the truth.

Classifiers trained here on scikit-learn's digits or MNIST, asked inside ``[0, 1]^d`` only, and
networks with two hidden layers; all of them through :func:`unrelu.extract` with default options.
``error`` is the largest deviation of logits over their spread, or of probabilities, over uniform
inputs, corners of random density and data (box), or over 10,000 Gaussian inputs and, for trained
networks, data; ``ratio`` is queries over parameters, the certificate's excluded.

MNIST rows need ``UNRELU_MNIST``, a folder with the four IDX files.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.special

import unrelu
from benchmarks.harness import Row, main
from unrelu import planted
from unrelu._types import FloatArray
from unrelu.datasets import MNIST_ENVIRONMENT, ImageSet, load_digit_images, train_classifier
from unrelu.extraction.box_points import BoxInputs
from unrelu.networks import ReLUNetwork
from unrelu.result import RecoveryResult

SAMPLES = 10_000


@lru_cache(maxsize=2)
def images(which: str) -> ImageSet:
    return load_digit_images() if which == "mnist" else load_digit_images("")


@lru_cache(maxsize=8)
def trained(which: str, hidden: tuple[int, ...], seed: int) -> ReLUNetwork:
    epochs = 5 if which == "mnist" else 150
    return train_classifier(images(which), *hidden, seed=seed, epochs=epochs)


class Deployed:
    """A network as it is served: in single or double precision, logits or probabilities.

    ``limits`` is what it does about inputs outside [0, 1]: nothing, ``"refuses"`` or ``"clips"``.
    """

    def __init__(
        self, truth: ReLUNetwork, *, single: bool, softmax: bool, limits: str = ""
    ) -> None:
        self.dtype: Any = np.float32 if single else np.float64
        self.w = [w.astype(self.dtype) for w in truth.weights]
        self.b = [b.astype(self.dtype) for b in truth.biases]
        self.truth = ReLUNetwork(self.w, self.b)  # what was rounded is the target
        self.softmax, self.limits = softmax, limits

    def __call__(self, x: FloatArray) -> Any:
        if self.limits == "refuses" and ((x < 0).any() or (x > 1).any()):
            raise ValueError("invalid input")
        h = (np.clip(x, 0.0, 1.0) if self.limits == "clips" else x).astype(self.dtype)
        for i, (w, b) in enumerate(zip(self.w, self.b, strict=True)):
            h = h @ w.T + b
            h = h if i == len(self.w) - 1 else np.maximum(h, self.dtype(0))
        if self.softmax:
            h = np.exp(h - h.max(axis=1, keepdims=True))
            h = h / h.sum(axis=1, keepdims=True)
        return h


def cloned(served: Deployed, seed: int, **options: Any) -> tuple[RecoveryResult, float]:
    """Extract with default options; returns what came, and the seconds it took."""
    truth, start = served.truth, time.perf_counter()
    oracle = unrelu.connect(
        served, input_dim=truth.input_dim, output_dim=truth.output_dim, **options
    )
    result = unrelu.extract(oracle, rng=seed)
    return result, time.perf_counter() - start


def deviation(served: Deployed, network: Any, x: FloatArray) -> float:
    """Return the largest deviation of probabilities, or of logits over their spread."""
    f, g = served.truth(x), network(x)
    if served.softmax:
        p, q = (scipy.special.softmax(v, axis=1) for v in (f, g))
        return float(np.abs(p - q).max())
    return float(np.abs(f - g).max() / f.std(axis=0).max())


def facts(
    served: Deployed, result: RecoveryResult, seconds: float, limit: float, *inputs: FloatArray
) -> dict[str, Any]:
    """Judge a result with the truth: each kind of input by its own spread."""
    error = float("inf")
    if result.network is not None:
        error = max(deviation(served, result.network, x) for x in inputs)
    return judged(result, error, limit, served.truth.parameters) | {"seconds": seconds}


def judged(result: RecoveryResult, error: float, limit: float, parameters: int) -> dict[str, Any]:
    """Return what a row tells of a result whose error is known."""
    spent = result.queries.without_certificate
    return {
        "success": result.success and error <= limit,
        "status": result.status.name,
        "false_recovered": int(result.success and not error <= limit),
        "error": error,
        "ratio": spent / parameters,
        "queries": spent,
        "total": result.queries.total,
        "message": result.message[:300],
    }


def in_box(dimension: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw uniform inputs and corners of random density."""
    rng, inputs = np.random.default_rng(10_000 + seed), BoxInputs(dimension)
    return inputs.uniform(SAMPLES // 2, rng), inputs.corners(SAMPLES // 2, rng)


def box(
    seed: int,
    *,
    limit: float,
    which: str = "digits",
    hidden: tuple[int, ...] = (32,),
    single: bool,
    softmax: bool,
    data: bool,
    limits: str = "refuses",
) -> dict[str, Any]:
    served = Deployed(trained(which, hidden, seed), single=single, softmax=softmax, limits=limits)
    options: dict[str, Any] = {"input_range": (0.0, 1.0)} if limits == "refuses" else {}
    if data:
        options["data"] = images(which).x_train
    result, seconds = cloned(served, seed, **options)
    test = images(which).x_test
    inputs = (test,) if which == "mnist" else (*in_box(served.truth.input_dim, seed), test)
    return facts(served, result, seconds, limit, *inputs)


def unnamed(seed: int) -> dict[str, Any]:
    """A range enforced by an error that names none: recovered, or refused with what to pass."""
    served = Deployed(
        trained("digits", (32,), seed), single=False, softmax=False, limits="refuses"
    )
    try:
        result, seconds = cloned(served, seed)
    except unrelu.UnreluError as error:
        said = str(error)
        return {"success": "input_range" in said, "status": "refused", "message": said[:300]}
    inputs = in_box(served.truth.input_dim, seed)
    return facts(served, result, seconds, 1e-11, *inputs, images("digits").x_test)


def two_hidden(
    seed: int, *, widths: tuple[int, ...] | None, softmax: bool, limit: float, single: bool = True
) -> dict[str, Any]:
    """Two hidden layers, random ones of ``widths``, or trained on digits."""
    truth = (
        trained("digits", (24, 16), seed)
        if widths is None
        else planted.random_network(*widths, rng=seed)
    )
    served = Deployed(truth, single=single, softmax=softmax)
    result, seconds = cloned(served, seed)
    rng = np.random.default_rng(10_000 + seed)
    inputs = [rng.standard_normal((SAMPLES, truth.input_dim))]
    if widths is None:
        inputs.append(images("digits").x_test)
    return facts(served, result, seconds, limit, *inputs)


def _boxes() -> list[Row]:
    rows = []
    for single, softmax in ((False, False), (False, True), (True, False), (True, True)):
        for data in (True, False):
            limit = 2e-5 if single else 1e-11
            name = f"box: digits 64-32-10, {'float32' if single else 'float64'} "
            name += ("softmax" if softmax else "logits") + ("" if data else ", without data")
            run = partial(box, single=single, softmax=softmax, data=data, limit=limit)
            asked = {"success": 19.0 if single else 20.0, "ratio": 4.0 if data else 6.0}
            rows.append(Row(name, run, range(18_000, 18_020), asked, 300.0))
    return rows


def _clips() -> list[Row]:
    rows = []
    for single, softmax in ((False, False), (True, True)):
        limit = 2e-5 if single else 1e-11
        kind = "float32 softmax" if single else "float64 logits"
        name = f"silent clipping: digits 64-32-10, {kind}"
        run = partial(box, single=single, softmax=softmax, data=False, limit=limit, limits="clips")
        rows.append(Row(name, run, range(18_000, 18_010), {"success": 10.0}, 300.0))
    return rows


def _deep(
    name: str, widths: tuple[int, ...] | None, count: int, asked: dict[str, float], **how: Any
) -> Row:
    run = partial(two_hidden, widths=widths, **how)
    return Row(f"two hidden, {name}", run, range(18_000, 18_000 + count), asked, 300.0)


_SINGLE: dict[str, Any] = {"softmax": False, "limit": 1e-4}
_DOUBLE: dict[str, Any] = {"softmax": True, "limit": 1e-9, "single": False}
_WIDE = {"success": 19.0, "ratio": 60.0}
_DIGITS = {"success": 10.0, "ratio": 20.0}

ROWS = [
    *_boxes(),
    *_clips(),
    Row("a range that an error enforces and does not name", unnamed, range(18_000, 18_010),
        {"success": 10.0}, 300.0),
    Row(
        "box: digits 64-24-16-10, float64 logits",
        partial(box, hidden=(24, 16), single=False, softmax=False, data=True, limit=1e-6),
        range(18_000, 18_010), {"success": 8.0}, 300.0,
    ),
    _deep("float32: 10-10-10-1", (10, 10, 10, 1), 20, _WIDE, **_SINGLE),
    _deep("float32: 20-10-10-1", (20, 10, 10, 1), 20, _WIDE, **_SINGLE),
    _deep("float32: digits 64-24-16-10, logits", None, 10, _DIGITS, **_SINGLE),
    _deep("float32: digits 64-24-16-10, softmax", None, 10, _DIGITS,
          **(_SINGLE | {"softmax": True})),
    _deep("float64 softmax: 10-8-6-4", (10, 8, 6, 4), 20, {"success": 20.0}, **_DOUBLE),
    _deep("float64 softmax: digits 64-24-16-10", None, 10, {"success": 10.0}, **_DOUBLE),
]  # fmt: skip
if os.environ.get(MNIST_ENVIRONMENT):
    ROWS += [
        Row(
            "box: MNIST 784-32-10, float32 softmax",
            partial(box, which="mnist", single=True, softmax=True, data=True, limit=5e-3),
            range(18_000, 18_003), {"success": 3.0}, 900.0,
        )
    ]  # fmt: skip

if __name__ == "__main__":
    main("deployed_boxes", ROWS)
