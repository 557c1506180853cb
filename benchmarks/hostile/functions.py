"""Targets that are no ReLU network, or answer in other precisions or units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.hostile.case import Array, Function, Planted
from benchmarks.hostile.networks import Maker, of, sizes
from unrelu import planted


def _column(values: Array) -> Array:
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)


def _of_projections(g: np.random.Generator, bend: Callable[[Array], Array]) -> Planted:
    """Plant a sum of ``bend`` of a few projections."""
    d, k = int(g.integers(1, 7)), int(g.integers(1, 5))
    w = g.standard_normal((k, d)) / np.sqrt(d)
    b, u = g.standard_normal(k), g.standard_normal(k)

    def truth(x: Array) -> Array:
        return _column(bend(x @ w.T + b) @ u)

    return Planted(d, truth, rows=w, thin=True)


def smooth(g: np.random.Generator) -> Planted:
    """Plant tanh, softplus, GELU-like, square or a slow sine."""
    bends: list[Callable[[Array], Array]] = [
        np.tanh,
        lambda z: np.logaddexp(0.0, z),
        lambda z: z / (1.0 + np.exp(-np.clip(1.7 * z, -700, 700))),
        lambda z: z**2,
        np.sin,
        lambda z: np.sqrt(z**2 + 1e-4),
        lambda z: np.exp(-(z**2)),
    ]
    return _of_projections(g, bends[int(g.integers(len(bends)))])


def nearly_relu(g: np.random.Generator) -> Planted:
    """Plant softplus with a sharp bend: a ReLU but for a narrow band."""
    sharp = float(10.0 ** g.uniform(1.0, 6.0))
    return _of_projections(g, lambda z: np.logaddexp(0.0, sharp * z) / sharp)


def stepped(g: np.random.Generator) -> Planted:
    """Plant steps, jumps beside ReLUs, or a tree."""
    height = float(10.0 ** g.uniform(-6.0, 0.0))
    bends: list[Callable[[Array], Array]] = [
        np.floor,
        lambda z: (z > 0).astype(float),
        lambda z: np.maximum(z, 0.0) + height * (z > 0.5),
        lambda z: np.maximum(z, 0.0) + height * np.floor(z),
        np.sign,
    ]
    return _of_projections(g, bends[int(g.integers(len(bends)))])


def periodic(g: np.random.Generator) -> Planted:
    """Plant triangles, saw teeth and fast sines, alone or small beside ReLUs."""
    rate = float(10.0 ** g.uniform(0.0, 3.0))
    small = float(10.0 ** g.uniform(-6.0, 0.0))

    def triangle(z: Array) -> Array:
        return np.abs((z * rate) % 2.0 - 1.0)

    bends: list[Callable[[Array], Array]] = [
        triangle,
        lambda z: (z * rate) % 1.0,
        lambda z: np.sin(rate * z),
        lambda z: np.maximum(z, 0.0) + small * triangle(z),
        lambda z: np.maximum(z, 0.0) + small * np.sin(rate * z),
    ]
    return _of_projections(g, bends[int(g.integers(len(bends)))])


def other_units(g: np.random.Generator) -> Planted:
    """Plant other piecewise linear units: leaky, absolute, clipped, dead zone."""
    bends: list[Callable[[Array], Array]] = [
        lambda z: np.where(z > 0, z, 0.01 * z),
        np.abs,
        lambda z: np.clip(z, 0.0, 6.0),
        lambda z: np.clip(z, -1.0, 1.0),
        lambda z: z - np.clip(z, -0.3, 0.3),
    ]
    return _of_projections(g, bends[int(g.integers(len(bends)))])


def maxout(g: np.random.Generator) -> Planted:
    d = int(g.integers(2, 6))
    w, b = g.standard_normal((3, d)), g.standard_normal(3)
    return Planted(d, lambda x: _column((x @ w.T + b).max(axis=1)), rows=np.eye(d), thin=True)


def bounded_norm(g: np.random.Generator) -> Planted:
    """Plant norms, sorted inputs, the median: piecewise linear or curved in other ways."""
    d = int(g.integers(2, 6))
    chosen: list[Function] = [
        lambda x: _column(np.abs(x).max(axis=1)),
        lambda x: _column(np.sort(x, axis=1)[:, d // 2]),
        lambda x: _column(np.linalg.norm(x, axis=1)),
        lambda x: np.sort(x, axis=1),
    ]
    return Planted(d, chosen[int(g.integers(len(chosen)))], rows=np.eye(d), thin=True)


def hidden_island(g: np.random.Generator) -> Planted:
    """Plant a ReLU network with a jump inside a ball that few inputs meet."""
    base = planted.random_network(*sizes(g, 2, 5), rng=g)
    centre = 0.5 * g.standard_normal(base.input_dim)
    radius = float(10.0 ** g.uniform(-2.0, -0.5))

    def truth(x: Array) -> Array:
        inside = np.linalg.norm(x - centre, axis=1) < radius
        return np.asarray(base(x) + inside[:, None])

    return Planted(base.input_dim, truth, thin=True)


# ------------------------------------------------------------------- precisions


def to_bfloat16(values: Array) -> Array:
    """Round to the 8 bits of a bfloat16's significand."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 256.0) / 256.0, exponent)


def _rounded(decimals: int) -> Function:
    return lambda values: np.round(values, decimals)


PRECISIONS: dict[str, Function] = {
    "float32": lambda values: values.astype(np.float32).astype(np.float64),
    "bfloat16": to_bfloat16,
    "float16": lambda values: values.astype(np.float16).astype(np.float64),
    "6 decimals": _rounded(6),
    "4 decimals": _rounded(4),
    "3 decimals": _rounded(3),
}


class Rounding:
    """Answers of another precision."""

    def __init__(self, truth: Function, precision: str) -> None:
        self.truth, self.precision = truth, precision

    def __call__(self, x: Array) -> Array:
        return PRECISIONS[self.precision](self.truth(x))


def rounded(make: Maker, precision: str) -> Maker:
    """Return the same target, answered in another precision."""

    def made(g: np.random.Generator) -> Planted:
        base = make(g)
        return base.but(ask=Rounding(base.truth, precision))

    return made


class Float32Network:
    """A network that computes in float32 throughout, its inputs cast as well."""

    def __init__(self, network: object) -> None:
        self.w = [a.astype(np.float32) for a in network.weights]  # type: ignore[attr-defined]
        self.b = [a.astype(np.float32) for a in network.biases]  # type: ignore[attr-defined]

    def __call__(self, x: Array) -> NDArrayFloat32:
        h = x.astype(np.float32)
        for w, b in zip(self.w[:-1], self.b[:-1], strict=True):
            h = np.maximum(h @ w.T + b, np.float32(0))
        return h @ self.w[-1].T + self.b[-1]


NDArrayFloat32 = np.ndarray


def computed_in_float32(make: Maker) -> Maker:
    def made(g: np.random.Generator) -> Planted:
        base = make(g)
        return base.but(ask=Float32Network(base.truth))

    return made


# -------------------------------------------------------------- probabilities


def softmax(logits: Array) -> Array:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def sigmoid(logits: Array) -> Array:
    e = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, e) / (1.0 + e)


def probabilities(
    g: np.random.Generator, *, squash: str = "softmax", precision: str = "", hidden: int = 1
) -> Planted:
    """Plant the probabilities of a small classifier."""
    d, k, _ = sizes(g, 2, 7)
    m = int(g.integers(2, 5)) if squash == "softmax" else 1
    widths = (d, k) if hidden == 1 else (d, min(d, k), 3)
    logits = planted.random_network(*widths, m, rng=g, gain=float(g.choice([1.0, 2.0])))
    apply = softmax if squash == "softmax" else sigmoid

    def truth(x: Array) -> Array:
        return apply(logits(x))

    ask = Rounding(truth, precision) if precision else None
    return Planted(d, truth, ask=ask, logits=logits, rows=logits.weights[0], thin=hidden > 1)


def both_classes(g: np.random.Generator) -> Planted:
    """Plant two columns p and 1 - p."""
    d, k, _ = sizes(g, 2, 7)
    logit = planted.random_network(d, k, 1, rng=g)

    def truth(x: Array) -> Array:
        p = sigmoid(logit(x))
        return np.concatenate([1.0 - p, p], axis=1)

    def logits(x: Array) -> Array:
        z = logit(x)
        return np.concatenate([np.zeros_like(z), z], axis=1)

    return Planted(d, truth, ask=truth, logits=logits, rows=logit.weights[0])


def like_probabilities(g: np.random.Generator) -> Planted:
    """Plant values between 0 and 1 that are none: clipped, or a small part around 0.5."""
    base = planted.random_network(*sizes(g, 2, 7)[:2], 1, rng=g)
    part = float(10.0 ** g.uniform(-7.0, -2.0))
    if g.random() < 0.5:
        return Planted(base.input_dim, lambda x: 0.5 + part * base(x), rows=base.weights[0])
    return Planted(
        base.input_dim, lambda x: np.clip(0.5 + base(x), 0.0, 1.0), rows=base.weights[0], thin=True
    )


def labels(g: np.random.Generator) -> Planted:
    """Plant nothing but labels: a threshold or an argmax."""
    d, k, _ = sizes(g, 3, 7)
    several = bool(g.random() < 0.5)
    base = planted.random_network(d, k, 3 if several else 1, rng=g)
    cut = float(np.median(base(g.standard_normal((500, d)))[:, 0]))

    def truth(x: Array) -> Array:
        values = base(x)
        return _column(values.argmax(axis=1) if several else values[:, 0] > cut)

    return Planted(d, truth, rows=base.weights[0])


# ----------------------------------------------------------------------- noise


class Noisy:
    """Answers that differ from time to time."""

    def __init__(self, truth: Function, sigma: float, sort: str, seed: int) -> None:
        self.truth, self.sigma, self.sort = truth, sigma, sort
        self.rng = np.random.default_rng(seed)

    def __call__(self, x: Array) -> Array:
        y = self.truth(x)
        e = self.rng.standard_normal(y.shape)
        if self.sort == "relative":
            return np.asarray(y * (1.0 + self.sigma * e))
        if self.sort == "rare":  # one answer in a hundred is off by much
            return np.asarray(y + self.sigma * 10.0 * e * (self.rng.random(y.shape) < 0.01))
        if self.sort == "growing":
            return np.asarray(y + self.sigma * e * np.linalg.norm(x, axis=1, keepdims=True))
        return np.asarray(y + self.sigma * e)


def noisy(sort: str, low: float, high: float) -> Maker:
    """Return small networks with noise of ``10**low`` to ``10**high`` of their spread."""

    def made(g: np.random.Generator) -> Planted:
        base = planted.random_network(*sizes(g, 2, 7), rng=g)
        spread = float(base(g.standard_normal((500, base.input_dim))).std()) or 1.0
        sigma = float(10.0 ** g.uniform(low, high)) * (1.0 if sort == "relative" else spread)
        return of(base, ask=Noisy(base, sigma, sort, int(g.integers(2**31))))

    return made
