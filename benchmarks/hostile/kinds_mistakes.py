"""Calls that a caller gets wrong: each deserves a clear refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import unrelu
from benchmarks.hostile.case import Case, Kind, Verdict
from benchmarks.hostile.judge import status_of
from benchmarks.hostile.releases import function
from unrelu import planted

recover_span_from_replies = function("span.algorithm", "recover_span_from_replies")
draw_biased_samples = function("thresholds.algorithm", "draw_biased_samples")
detect_directions = function("thresholds.detector", "detect_directions")
recover_binary_layer = function("thresholds.structured_layers", "recover_binary_layer")
recover_even_layer = function("thresholds.structured_layers", "recover_even_layer")

NET = planted.random_network(3, 2, 1, rng=0)
X = np.random.default_rng(0).standard_normal((500, 3))
Y = NET(X)[:, 0]
NAN, INF = math.nan, math.inf
Call = Callable[[], Any]


def _connect(target: Any = NET, **options: Any) -> Call:
    return lambda: unrelu.connect(target, **options)


def _plain(x: Any) -> Any:
    return NET(x)


CONNECT: list[Call] = [
    *(_connect(budget=v) for v in (NAN, INF, -INF, -1, 1.5, "10", True, [10], np.float64(NAN))),
    *(_connect(price=v) for v in (NAN, INF, -1.0, "free")),
    *(_connect(price=1.0, max_cost=v) for v in (NAN, INF, -1.0, "much")),
    _connect(max_cost=1.0),
    *(_connect(batch_size=v) for v in (0, -1, NAN, 0.5, "all", None)),
    *(_connect(_plain, input_dim=v) for v in (None, 0, -3, 2.5, NAN, "three", INF)),
    *(_connect(_plain, input_dim=3, output_dim=v) for v in (0, -1, NAN, "one", 2.5)),
    *(_connect(input_range=v) for v in ((1, 0), (0, 0), (NAN, 1), (0, INF), 3, "01", (0,), ())),
    *(_connect(scale=v) for v in (0.0, -1.0, NAN, INF, "big")),
    *(_connect(_plain, shape=v) for v in ((), (0,), (-1, 3), "333", (1.5, 2), (NAN,))),
    *(_connect(target) for target in (None, 3, 3.5, [], {}, b"model", object(), NET.weights[0])),
    *(_connect(text) for text in ("", "nonsense", "missing.onnx", "missing.safetensors",
      "missing.skops", "missing.pt", "model.pkl", "no_such_module:f", "math:missing", "math:pi",
      "http://", "http://127.0.0.1:9/v2/models/x", "/", ":", "a:b:c", "math:")),
    _connect(name=3), _connect(ledger=3), _connect(ledger=""),
    _connect(_plain, input_dim=3, name=""), _connect(NET, input_dim=7),
]  # fmt: skip


def _with(function: Callable[..., Any], target: Any = NET, **options: Any) -> Call:
    return lambda: function(target, rng=0, **options)


DOMAINS = ("some", "", None, 3, (1.0, 0.0), (0.0, 0.0), (NAN, 1.0), (0.0, INF), (0.0,),
           (0.0, 1.0, 2.0), ([0.0, 0.0], 1.0), ("a", "b"), ((), ()))  # fmt: skip
EXTRACT: list[Call] = [
    *(_with(unrelu.extract, domain=v) for v in DOMAINS),
    *(_with(unrelu.plan_extraction, domain=v) for v in DOMAINS),
    *(_with(unrelu.extract_two_layer, domain=v) for v in DOMAINS),
    *(_with(unrelu.extract_two_layer, answers=v) for v in ("words", None, 3)),
    *(_with(unrelu.extract_three_layer, answers=v) for v in ("words", None, 3)),
    *(_with(f, target) for f in (unrelu.extract, unrelu.extract_two_layer, unrelu.diagnose,
      unrelu.extract_three_layer, unrelu.plan_extraction, unrelu.recover_span)
      for target in (None, 3, "nonsense", _plain)),
    *((lambda f=f, rng=rng: f(NET, rng=rng)) for f in (unrelu.extract, unrelu.extract_two_layer)
      for rng in ("seed", -1, 1.5, NAN, [])),
    *(_with(unrelu.diagnose, scale=v) for v in (0.0, -1.0, NAN, INF, "big")),
    *(_with(unrelu.diagnose, center=v) for v in (np.zeros(7), "middle", [NAN, 0.0, 0.0])),
    _with(unrelu.extract, plan="none"),
]  # fmt: skip
LEARNER: list[Call] = [
    *(_with(unrelu.learn_from_queries, epsilon=v) for v in (0.0, -1.0, NAN, INF, "small", None)),
    *(_with(unrelu.learn_from_queries, epsilon=0.1, delta=v) for v in (0.0, 1.0, -1.0, NAN, 2.0)),
    *(_with(unrelu.learn_from_queries, epsilon=0.1, norm_bound=v) for v in (0.0, -1.0, NAN, INF)),
    *(_with(unrelu.learn_from_queries, epsilon=0.1, narrowest=v) for v in (0.0, -1.0, NAN)),
    *(_with(unrelu.learn_from_queries, epsilon=0.1, certificate_samples=v)
      for v in (0, -1, NAN, 0.5, "all")),
    *(_with(unrelu.learn_from_queries, epsilon=0.1, faithful=True, width=v)
      for v in (None, 0, -1)),
]  # fmt: skip
SPAN: list[Call] = [
    *(_with(unrelu.recover_span, rank=v) for v in (0, -1, 99, 1.5, NAN, "two")),
    *(_with(unrelu.recover_span, answers=v) for v in ("words", None)),
    *(_with(unrelu.recover_span, outputs=v) for v in (7, -9, 0.5, "some", None)),
    *(_with(unrelu.recover_span, tolerance=v) for v in (-1.0, NAN, "small")),
    *(_with(unrelu.recover_span, scale=v) for v in (0.0, -1.0, NAN, INF)),
    *(_with(unrelu.recover_span, adaptive=False, gradients=v) for v in (None, 0, -1, NAN)),
    lambda: recover_span_from_replies(X, Y[:7]),
    lambda: recover_span_from_replies("missing.npy", "missing.npy"),
    lambda: recover_span_from_replies(X, np.full((500, 1), NAN)),
    lambda: recover_span_from_replies(np.empty((0, 3)), np.empty((0, 1))),
    lambda: recover_span_from_replies(X, Y[:, None]),
    *((lambda x=x: unrelu.obfuscate(x, np.eye(3)[:1], noise=1.0, rng=0)) for x in (
      np.zeros(7), np.full((2, 3), NAN), "image", None, np.zeros((2, 3, 3)), [[1j, 0, 0]])),
    *((lambda v=v: unrelu.obfuscate(X, np.eye(3)[:1], noise=v, rng=0))
      for v in (-1.0, NAN, INF, "some", None)),
    *((lambda v=v: unrelu.obfuscate(np.abs(X), np.eye(3)[:1], noise=1.0, box=v, rng=0))
      for v in ((1.0, 0.0), (NAN, 1.0), (0.0, 1e-3), 3, (0.0,))),
    *((lambda v=v: unrelu.obfuscate(X, v, noise=1.0, rng=0))
      for v in (np.eye(7), np.full((1, 3), NAN), "span", None, np.zeros((2, 3)))),
]  # fmt: skip

BAD_DATA: list[tuple[Any, Any]] = [
    (np.empty((0, 3)), np.empty(0)), (X, Y[:7]), (X, None), (X[:, 0], Y), (X[:, :0], Y),
    (np.where(X > 2, NAN, X), Y), (X, np.where(Y > 0, NAN, Y)), (X, np.full(500, INF)),
    ("missing.npz", None), (None, None), (3, 4), (X.astype(str), Y), (X.astype(object), Y),
    (X + 1j, Y), (X, Y.astype(str)), (X, np.stack([Y, Y], axis=1)), ([], []), (X[:1], Y[:1]),
    (X, np.zeros(500)), (np.zeros((500, 3)), Y), (X * 1e200, Y), (X, Y * 1e300), ({}, {}),
]  # fmt: skip
FROM_SAMPLES: dict[str, Callable[..., Any]] = {
    "learn_from_samples": unrelu.learn_from_samples,
    "recover_lowest_layer": unrelu.recover_lowest_layer,
    "learn_halfspaces": unrelu.learn_halfspaces,
    "recover_binary_layer": recover_binary_layer,
    "recover_even_layer": recover_even_layer,
}


def _data_calls(function: Callable[..., Any]) -> list[Call]:
    return [(lambda x=x, y=y: function(x, y, rng=0)) for x, y in BAD_DATA]


OPTIONS: list[Call] = [
    *((lambda o=o: unrelu.learn_from_samples(X, Y, rng=0, **o)) for o in (
      {"width": 0}, {"width": -1}, {"width": 1.5}, {"width": NAN}, {"order": 0}, {"order": 9},
      {"method": "magic"}, {"max_width": 0}, {"max_width": -2}, {"jobs": 0}, {"jobs": -5},
      {"scheduler": 3})),
    *((lambda o=o: unrelu.recover_lowest_layer(X, Y, rng=0, **o)) for o in (
      {"activation": "tanh"}, {"threshold": NAN}, {"threshold": INF}, {"units": 0},
      {"units": -1}, {"method": "magic"}, {"samples": 0}, {"tolerance": NAN})),
    *((lambda o=o: unrelu.recover_lowest_layer(NET, rng=0, **o)) for o in (
      {"samples": 0}, {"samples": -1}, {"samples": NAN}, {"tolerance": 0.0}, {"tolerance": -1.0})),
    *((lambda o=o: unrelu.learn_halfspaces(X, (Y > 0) * 1.0, rng=0, **o)) for o in (
      {"kind": "sum"}, {"units": 0}, {"units": -1}, {"kind": None})),
    lambda: unrelu.learn_halfspaces(X, Y, rng=0),
    lambda: unrelu.learn_halfspaces(NET, rng=0),
    *((lambda o=o: recover_binary_layer(X, Y, rng=0, **o)) for o in (
      {"transform": "exp"}, {"transform": "log"})),
    *((lambda o=o: recover_even_layer(X, Y, rng=0, **o)) for o in (
      {"units": 0}, {"units": -1}, {"units": 99})),
    *((lambda o=o: detect_directions(NET, rng=0, **o)) for o in (
      {"activation": "tanh", "threshold": 0.0}, {"activation": "relu", "threshold": NAN},
      {"activation": "relu", "threshold": INF}, {"activation": "relu", "threshold": 0.0,
       "bound": 0}, {"activation": "relu", "threshold": 0.0, "bound": -1},
      {"activation": "relu", "threshold": 0.0, "bound": NAN})),
    *((lambda o=o: draw_biased_samples(NET, rng=0, **o)) for o in (
      {"count": 0}, {"count": -1}, {"count": 5, "bound": 0.0}, {"count": 5, "bound": NAN},
      {"count": 5, "limit": 0})),
]  # fmt: skip


def judge(result: Any) -> Verdict:
    """Say what a mistake that passed unnoticed came to.

    Some may be taken: a copy of the data in another type, as many workers as there are.
    """
    status = status_of(result)
    return Verdict("honest", f"taken: {status or type(result).__name__}", {"status": status})


def _mistakes(name: str, calls: list[Call]) -> Kind:
    return Kind(
        f"mistakes: {name}",
        lambda seed: Case(call=calls[seed], judge=judge, mistake=True),
        len(calls),
    )


KINDS = [
    _mistakes("connect", CONNECT),
    _mistakes("extract", EXTRACT),
    _mistakes("learner", LEARNER),
    _mistakes("span", SPAN),
    *(_mistakes(name, _data_calls(function)) for name, function in FROM_SAMPLES.items()),
    _mistakes("options", OPTIONS),
]
