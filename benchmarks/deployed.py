"""Deployed models: float32 arithmetic, softmax, rounded answers, one hidden layer.

Everything goes through :func:`unrelu.extract` with default options: neither the width nor the
kind of answers is told. Targets compute in float32 throughout, their inputs cast as well.
``ratio`` is queries over parameters, the certificate's excluded. ``error`` is the largest
deviation of probabilities (softmax) or of logits over their spread, over 10,000 inputs:
Gaussian ones and, for trained models, their test data. ``rms`` (random networks) is the error's
root mean square over ``noise sqrt(p / (n - p))``, the noise being that of the target's answers,
n = 2p. ``labels``: whether all test data get the target's labels. ``student`` is the error of
scikit-learn's MLP of the target's width, trained on as many answers.

MNIST rows need ``UNRELU_MNIST``, a folder with the four IDX files.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.special

from benchmarks.harness import Row, main
from unrelu import extract, planted
from unrelu._types import FloatArray
from unrelu.datasets import MNIST_ENVIRONMENT, ImageSet, load_digit_images, train_classifier
from unrelu.extraction.two_layer import TwoLayerResult
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import RecoveryResult

SAMPLES = 10_000
EFFORT = 2.0


class Deployed:
    """A network in float32, with or without softmax and rounding; counts its own seconds."""

    def __init__(self, truth: ReLUNetwork, *, softmax: bool, decimals: int | None = None) -> None:
        self.w = [a.astype(np.float32) for a in truth.weights]
        self.b = [a.astype(np.float32) for a in truth.biases]
        self.truth = ReLUNetwork(self.w, self.b)  # what was rounded is the target
        self.softmax, self.decimals, self.seconds = softmax, decimals, 0.0

    def logits(self, x: FloatArray) -> Any:
        hidden = np.maximum(x.astype(np.float32) @ self.w[0].T + self.b[0], np.float32(0))
        return hidden @ self.w[1].T + self.b[1]

    def __call__(self, x: FloatArray) -> Any:
        start = time.perf_counter()
        y = self.logits(x)
        if self.softmax:
            y = np.exp(y - y.max(axis=1, keepdims=True))
            y = y / y.sum(axis=1, keepdims=True)
        if self.decimals is not None:
            y = np.round(y.astype(np.float64), self.decimals)
        self.seconds += time.perf_counter() - start
        return y


@lru_cache(maxsize=2)
def images(which: str) -> ImageSet:
    return load_digit_images() if which == "mnist" else load_digit_images("")


@lru_cache(maxsize=64)
def trained(which: str, seed: int, width: int) -> ReLUNetwork:
    return train_classifier(images(which), width, seed=seed, epochs=5 if which == "mnist" else 150)


def clone(target: Deployed, seed: int) -> tuple[RecoveryResult, float]:
    truth = target.truth
    oracle = connect(target, input_dim=truth.input_dim, output_dim=truth.output_dim)
    start = time.perf_counter()
    result = extract(oracle, rng=seed)
    return result, time.perf_counter() - start - target.seconds


def deviation(
    target: Deployed, network: Callable[[FloatArray], FloatArray], x: FloatArray
) -> float:
    """Largest deviation of probabilities, or of logits over their spread."""
    f, g = target.truth(x), network(x)
    if target.softmax:
        return float(
            np.abs(scipy.special.softmax(f, axis=1) - scipy.special.softmax(g, axis=1)).max()
        )
    return float(np.abs(f - g).max() / f.std(axis=0).max())


def facts(
    result: RecoveryResult, own: float, target: Deployed, error: float, limit: float
) -> dict[str, Any]:
    spent = result.queries.without_certificate
    good = error <= limit
    return {
        "success": good and (result.success or target.decimals is not None),
        "false": int(result.success and not good),
        "status": result.status.name,
        "error": error,
        "ratio": spent / target.truth.parameters,
        "queries": spent,
        **shape_found(result),
        "own_seconds": own,
        "round_trips": result.queries.round_trips,
        "message": result.message,
    }


def shape_found(result: RecoveryResult) -> dict[str, Any]:
    """Return width and whether the units' signs are sure, of a network of one hidden layer."""
    if not isinstance(result, TwoLayerResult):
        return {}
    return {"width": result.width, "signs": int(result.signs_determined)}


def random_net(seed: int, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    target = Deployed(planted.random_network(*shape, rng=seed), softmax=False)
    result, own = clone(target, seed + 1)
    x = np.random.default_rng(seed + 999).standard_normal((SAMPLES, shape[0]))
    x = x.astype(np.float32).astype(np.float64)
    error = rms = float("inf")
    if result.network is not None:
        missed = result.network(x) - target.truth(x)
        noise = np.sqrt(np.mean((target.logits(x) - target.truth(x)) ** 2))
        rms = float(np.sqrt(np.mean(missed**2)) / noise * np.sqrt(EFFORT - 1.0))
        error = deviation(target, result.network, x)
    outcome = facts(result, own, target, rms, limit)
    return outcome | {"error": error, "rms": rms}


def classifier(
    seed: int,
    which: str,
    width: int,
    limit: float,
    *,
    softmax: bool,
    decimals: int | None = None,
    student: bool = False,
) -> dict[str, Any]:
    target = Deployed(trained(which, seed, width), softmax=softmax, decimals=decimals)
    result, own = clone(target, seed + 1)
    data = images(which).x_test
    gaussian = np.random.default_rng(seed + 999).standard_normal((SAMPLES, data.shape[1]))
    error, labels = float("inf"), False
    if result.network is not None:
        error = max(deviation(target, result.network, x) for x in (gaussian, data))
        labels = bool((result.network(data).argmax(1) == target.logits(data).argmax(1)).all())
    outcome = facts(result, own, target, error, limit) | {"labels": labels}
    if student:
        other = student_error(target, result.queries.total, width, seed, (gaussian, data))
        outcome |= {"student": other, "better": error < other}
    return outcome


def student_error(
    target: Deployed, answers: int, width: int, seed: int, inputs: tuple[FloatArray, ...]
) -> float:
    """Train scikit-learn's MLP on log-probabilities of as many answers."""
    from sklearn.neural_network import MLPRegressor

    x = np.random.default_rng(seed + 5).standard_normal((answers, target.truth.input_dim))
    least = 0.5 * 10.0 ** -(target.decimals or 7)
    logs = np.log(np.maximum(np.asarray(target(x), dtype=np.float64), least))
    model = MLPRegressor(
        hidden_layer_sizes=(width,), random_state=seed, max_iter=300, early_stopping=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, logs - logs.mean(axis=1, keepdims=True))
    return max(deviation(target, model.predict, x) for x in inputs)


def _random(name: str, shape: tuple[int, ...], count: int, timeout: float, quick: int) -> Row:
    target = {"success": count, "max:rms": 2.0, "ratio": 5.0}
    run = partial(random_net, shape=shape, limit=2.0)
    return Row(f"{name} float32", run, range(16_000, 16_000 + count), target, timeout, quick)


def _digits(softmax: bool) -> Row:
    run = partial(classifier, which="digits", width=32, limit=2e-5, softmax=softmax)
    target = {"success": 20, "max:error": 2e-5, "ratio": 4.0, "count:labels": 20}
    name = f"digits 64-32-10 float32 {'softmax' if softmax else 'logits'}"
    return Row(name, run, range(16_000, 16_020), target, 300.0, 1)


def _rounded(decimals: int, limit: float) -> Row:
    asked = {"which": "digits", "width": 32, "limit": limit, "softmax": True}
    run = partial(classifier, **asked, decimals=decimals, student=True)
    target = {"success": 9, "count:better": 10}
    name = f"digits 64-32-10 softmax, {decimals} decimals"
    return Row(name, run, range(16_000, 16_010), target, 900.0, 0)


def _mnist(width: int, count: int, least: int, softmax: bool) -> Row:
    run = partial(classifier, which="mnist", width=width, limit=5e-4, softmax=softmax)
    target = {"success": least, "max:error": 5e-4, "ratio": 2.0}
    name = f"MNIST 784-{width}-10 float32 {'softmax' if softmax else 'logits'}"
    return Row(name, run, range(16_000, 16_000 + count), target, 1200.0, 0)


ROWS = [
    _digits(softmax=False),
    _digits(softmax=True),
    _random("20-10-1", (20, 10, 1), 50, 60.0, 3),
    _random("784-32-1", (784, 32, 1), 10, 900.0, 0),
    _random("100-200-1", (100, 200, 1), 10, 900.0, 0),
    _random("784-128-1", (784, 128, 1), 3, 1200.0, 0),
    _rounded(6, 2e-3),
    _rounded(4, 2e-2),
    _rounded(3, 0.1),
]
if os.environ.get(MNIST_ENVIRONMENT):
    ROWS += [
        _mnist(width, 5, 5 if width == 32 else 3, s) for width in (32, 128) for s in (False, True)
    ]

if __name__ == "__main__":
    main("deployed", ROWS)
