"""Lowest layers, halfspaces, structured layers, detected directions, obfuscated inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unrelu
from benchmarks.hostile.case import Array, Case, Function, Kind, generator
from benchmarks.hostile.judge_layers import (
    DETECTED,
    judge_directions,
    judge_obfuscation,
    judge_supports,
)
from benchmarks.hostile.releases import function

detect_directions = function("thresholds.detector", "detect_directions")
recover_binary_layer = function("thresholds.structured_layers", "recover_binary_layer")
recover_even_layer = function("thresholds.structured_layers", "recover_even_layer")

Units = tuple[Array, Array]
ROWS = 40_000


def _fresh(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed + 1_000_003)


def _rows(g: np.random.Generator, k: int, d: int) -> Array:
    """Draw ``k`` unit rows, orthogonal where there is room, tilted a little."""
    w = np.linalg.qr(g.standard_normal((d, d)))[0][:k] if k <= d else g.standard_normal((k, d))
    w = w + float(g.choice([0.0, 0.2])) * g.standard_normal(w.shape) / np.sqrt(d)
    return np.asarray(w / np.linalg.norm(w, axis=1, keepdims=True))


# -------------------------------------------------------------- sorts of units


def high(g: np.random.Generator) -> Units:
    d = int(g.integers(3, 8))
    k = int(g.integers(1, min(4, d) + 1))
    return _rows(g, k, d), g.uniform(1.5, 2.5, size=k)


def low(g: np.random.Generator) -> Units:
    """Plant thresholds that the method's assumption excludes."""
    w, t = high(g)
    return w, g.uniform(-1.0, 0.5, size=len(t))


def very_high(g: np.random.Generator) -> Units:
    w, t = high(g)
    t = t.copy()
    t[0] = float(g.uniform(3.2, 6.0))
    return w, t


def close(g: np.random.Generator) -> Units:
    """Plant two units at a small angle."""
    return _pair(g, float(10.0 ** g.uniform(-3.0, -0.7)))


def twins(g: np.random.Generator) -> Units:
    """Plant two units that forty thousand samples can just tell apart."""
    return _pair(g, float(g.uniform(0.015, 0.04)))


def _pair(g: np.random.Generator, angle: float) -> Units:
    d = int(g.integers(3, 7))
    w = _rows(g, 2, d)
    w[1] = np.cos(angle) * w[0] + np.sin(angle) * _across(g, w[0])
    t = np.full(2, float(g.uniform(1.0, 2.0)))
    return w, t


def _across(g: np.random.Generator, v: Array) -> Array:
    u = g.standard_normal(len(v))
    u -= (u @ v) * v
    return np.asarray(u / np.linalg.norm(u))


def parallel(g: np.random.Generator) -> Units:
    """Plant one direction with two thresholds: the higher one is hidden, or nearly."""
    w, t = high(g)
    gap = float(g.choice([0.0, 0.05, 0.5]))
    return np.concatenate([w, w[:1]]), np.append(t, t[0] + gap)


def opposed(g: np.random.Generator) -> Units:
    """Plant a slab: a direction and its opposite."""
    w, t = high(g)
    return np.concatenate([w, -w[:1]]), np.append(t, float(g.uniform(0.0, 2.5)))


def through_origin(g: np.random.Generator) -> Units:
    w, t = high(g)
    some = int(g.integers(1, len(t) + 1))
    t = t.copy()
    t[:some] = 0.0
    return w, t


def many(g: np.random.Generator) -> Units:
    """Plant more units than inputs."""
    d = int(g.integers(2, 4))
    k = d + int(g.integers(1, 5))
    return _rows(g, k, d), g.uniform(1.0, 2.0, size=k)


def one_input(g: np.random.Generator) -> Units:
    return np.array([[float(g.choice([-1.0, 1.0]))]]), g.uniform(-1.0, 2.0, size=1)


def none_at_all(g: np.random.Generator) -> Units:
    return np.empty((0, int(g.integers(1, 6)))), np.empty(0)


UNITS: dict[str, Callable[[np.random.Generator], Units]] = {
    "high": high,
    "low": low,
    "very high": very_high,
    "close": close,
    "twins": twins,
    "parallel": parallel,
    "opposed": opposed,
    "through the origin": through_origin,
    "many": many,
    "one input": one_input,
    "none": none_at_all,
}


def _is_on(w: Array, t: Array) -> Function:
    def on(x: Array) -> Array:
        if len(w) == 0:
            return np.zeros(len(x))
        return (x @ w.T > t).any(axis=1).astype(float)

    return on


def _visible(w: Array, t: Array) -> Array:
    """Return the directions without those hidden behind an equal one of lower threshold."""
    keep = [
        i
        for i in range(len(w))
        if not any(
            (t[j], j) < (t[i], i) and np.abs(w[i] - w[j]).max() < 1e-12 for j in range(len(w))
        )
    ]
    return w[keep]


# ------------------------------------------------------------------ halfspaces


def _labels(on: Function, kind: str, flip: float, seed: int) -> Function:
    """Return labels of an intersection or a union, a share of them flipped."""
    rng = np.random.default_rng(seed)

    def answer(x: Array) -> Array:
        y = on(x) if kind == "union" else 1.0 - on(x)
        wrong = rng.random(len(x)) < flip if flip else np.zeros(len(x), dtype=bool)
        return np.where(wrong, 1.0 - y, y)

    return answer


def _halfspaces(what: str, *, queries: bool, flip: float, seeds: int) -> Kind:
    name = f"halfspaces {'asked' if queries else 'sampled'}: {what}" + (", flips" if flip else "")

    def made(seed: int) -> Case:
        g = generator(name, seed)
        w, t = UNITS[what](g)
        on = _is_on(w, t)
        kind = ("intersection", "union")[seed % 2]
        answer = _labels(on, kind, flip, seed)
        d = w.shape[1]

        def call() -> Any:
            if queries:
                return unrelu.learn_halfspaces(
                    unrelu.connect(answer, input_dim=d), kind=kind, rng=seed
                )
            x = g.standard_normal((ROWS, d))
            return unrelu.learn_halfspaces(x, answer(x), kind=kind, rng=seed)

        return Case(
            call=call,
            judge=lambda result: judge_directions(result, _visible(w, t), on=on, rng=_fresh(seed)),
            # By its docs: 60 n queries a facet, its rays and its certificate.
            price=lambda result: 60.0 * d * (len(w) + 1) + 20_000.0 if queries else None,
        )

    return Kind(name, made, seeds)


# ---------------------------------------------------------------- lowest layer


def _upper(g: np.random.Generator, w: Array, t: Array, activation: str) -> Function:
    """Return a network above the units: a weighted sum, or one of their products too."""
    k = len(w)
    u = g.uniform(0.5, 2.0, size=k)
    product = float(g.choice([0.0, 0.5]))

    def f(x: Array) -> Array:
        z = x @ w.T - t if k else np.zeros((len(x), 0))
        h = np.maximum(z, 0.0) if activation == "relu" else (z > 0).astype(float)
        return np.asarray(h @ u + product * h.prod(axis=1) if k else np.zeros(len(x)))

    return f


def _lowest(what: str, activation: str, *, queries: bool, seeds: int) -> Kind:
    name = f"lowest {activation} {'asked' if queries else 'sampled'}: {what}"

    def made(seed: int) -> Case:
        g = generator(name, seed)
        w, t = UNITS[what](g)
        f, on = _upper(g, w, t, activation), _is_on(w, t)
        d = w.shape[1]

        def call() -> Any:
            if queries:
                return unrelu.recover_lowest_layer(
                    unrelu.connect(f, input_dim=d), activation=activation, samples=ROWS, rng=seed
                )
            x = g.standard_normal((ROWS, d))
            return unrelu.recover_lowest_layer(x, f(x), activation=activation, rng=seed)

        return Case(
            call=call,
            judge=lambda result: judge_directions(result, _visible(w, t), on=on, rng=_fresh(seed)),
            # By its docs: ``samples`` for the landscape, refinement and certificate on top.
            price=lambda result: 2.0 * ROWS + 20_000.0 * (len(w) + 1) if queries else None,
        )

    return Kind(name, made, seeds)


def _sigmoid(seed: int) -> Case:
    g = generator("lowest sigmoid", seed)
    w, t = (high, low, close)[seed % 3](g)
    x = g.standard_normal((ROWS, w.shape[1]))
    y = (1.0 / (1.0 + np.exp(-4.0 * (x @ w.T - t)))).sum(axis=1)
    return Case(
        call=lambda: unrelu.recover_lowest_layer(x, y, activation="sigmoid", rng=seed),
        # sigmoid(z) = 1 - sigmoid(-z): a unit and its opposite are the same unit.
        judge=lambda result: judge_directions(
            result, w, either_sign=True, complete=True, rng=_fresh(seed)
        ),
    )


# ----------------------------------------------------------- structured layers


def _binary(seed: int) -> Case:
    g = generator("binary", seed)
    d = int(g.integers(2, 12))
    owner = g.integers(-1, 3, size=d)
    supports = np.array([(owner == i).astype(float) for i in range(3) if (owner == i).any()])
    supports = supports.reshape(-1, d)
    if seed % 5 == 4 and len(supports) > 1:  # against the assumption: one input in two units
        supports[0, int(np.flatnonzero(supports[1])[0])] = 1.0
    rho = float(g.uniform(0.2, 0.8))
    x = g.standard_normal((ROWS, d))
    y = np.exp(rho * (x @ supports.T - 1.0)).sum(axis=1) if len(supports) else np.zeros(ROWS)
    if seed % 3 == 0:
        y = y + 0.1 * y.std() * g.standard_normal(ROWS)
    transform = ("auto", "none", "log")[seed % 3]
    return Case(
        call=lambda: recover_binary_layer(x, y, transform=transform, rng=seed),
        judge=lambda result: judge_supports(result, supports),
        mistake=transform == "log",  # of labels that may not be positive
    )


def _even(seed: int) -> Case:
    g = generator("even", seed)
    d = int(g.integers(2, 8))
    k = int(g.integers(0, min(3, d) + 1))
    w = np.linalg.qr(g.standard_normal((d, d)))[0][:k]
    x = g.standard_normal((ROWS, d))
    bends: list[Function] = [np.abs, lambda z: z**2, np.cos, lambda z: np.exp(-(z**2)), np.tanh]
    bend = bends[seed % len(bends)]
    y = bend(x @ w.T).sum(axis=1) + 0.1 * (seed % 2) * g.standard_normal(ROWS)
    # Several squares are one quadratic form, odd units have no even moments: nothing is
    # determined there.
    blind = seed % len(bends) == 4 or (seed % len(bends) == 1 and k > 1)
    true = np.empty((0, d)) if blind else w
    return Case(
        call=lambda: recover_even_layer(x, y, rng=seed),
        judge=lambda result: judge_directions(
            result, true, either_sign=True, complete=True, rng=_fresh(seed)
        ),
    )


def _detected(seed: int) -> Case:
    g = generator("detected", seed)
    d = int(g.integers(1, 4))
    k = int(g.integers(0, d + 1))
    w = np.linalg.qr(g.standard_normal((d, d)))[0][:k]
    t = float(g.uniform(-0.5, 1.5))
    activation = ("sign", "relu")[seed % 2]
    f = _upper(g, w, np.full(k, t), activation)
    if seed % 4 == 3:
        f = _noisy(f, seed)
    told = t + (0.5 if seed % 5 == 4 else 0.0)

    def call() -> Any:
        oracle = unrelu.connect(f, input_dim=d)
        return detect_directions(
            oracle, activation=activation, threshold=told, bound=2_000_000, rng=seed
        )

    def judge(result: Any) -> Any:
        stated = np.full(len(result.directions), DETECTED / 5.0)
        return judge_directions(
            result, w, either_sign=t == 0.0, stated=stated, complete=True, rng=_fresh(seed)
        )

    # By its docs: the search within ``bound``, the refinement about as much again.
    return Case(call=call, judge=judge, price=lambda result: 4_000_000.0)


def _noisy(f: Function, seed: int) -> Function:
    rng = np.random.default_rng(seed)
    return lambda x: f(x) + 0.01 * rng.standard_normal(len(x))


# ------------------------------------------------------------------- obfuscate


def _obfuscated(seed: int) -> Case:
    g = generator("obfuscate", seed)
    d = int(g.choice([1, 2, 5, 20, 100, 500]))
    r = int(g.integers(0, d + 1)) if d < 20 else int(g.integers(0, 10))
    basis = np.linalg.qr(g.standard_normal((d, d)))[0][:r]
    rows = basis if seed % 3 else g.standard_normal((2 * r, r)) @ basis
    x = g.random((int(g.choice([1, 5])), d))
    if seed % 7 == 3:
        x[0] = 0.0
    box = (0.0, 1.0) if seed % 2 else None
    noise = float(g.choice([0.0, 0.1, 1.0, 100.0]))
    return Case(
        call=lambda: unrelu.obfuscate(x, rows, noise=noise, box=box, rng=seed),
        judge=lambda result: judge_obfuscation(x, basis, result, box),
        mistake=r in (0, d),  # there is nothing to hide in, or nothing to hide from
    )


def _kinds() -> list[Kind]:
    kinds = []
    for what in UNITS:
        kinds += [_halfspaces(what, queries=True, flip=0.0, seeds=6)]
        kinds += [_halfspaces(what, queries=False, flip=0.0, seeds=4)]
        kinds += [_lowest(what, "relu", queries=False, seeds=3)]
        kinds += [_lowest(what, "sign", queries=False, seeds=3)]
        kinds += [_lowest(what, "relu", queries=True, seeds=3)]
        kinds += [_lowest(what, "sign", queries=True, seeds=3)]
    for what in ("high", "close"):
        kinds += [_halfspaces(what, queries=True, flip=0.01, seeds=5)]
        kinds += [_halfspaces(what, queries=False, flip=0.05, seeds=5)]
    kinds += [Kind("lowest sigmoid", _sigmoid, 9), Kind("binary layer", _binary, 20)]
    kinds += [Kind("even layer", _even, 20), Kind("detected directions", _detected, 20)]
    return [*kinds, Kind("obfuscate", _obfuscated, 30)]


KINDS = _kinds()
