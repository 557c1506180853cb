"""Learning from samples: smooth and stepped labels, noise, other inputs, degenerate data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unrelu
from benchmarks.hostile import functions as f
from benchmarks.hostile import networks as n
from benchmarks.hostile.case import Array, Case, Kind, Planted, generator
from benchmarks.hostile.judge_layers import judge_samples
from unrelu import planted

Sampled = tuple[Planted, Array, Array, float, dict[str, Any]]
ROWS = 8000


def _samples(
    name: str, make: Callable[[np.random.Generator], Sampled], seeds: int, **facts: Any
) -> Kind:
    def made(seed: int) -> Case:
        plan, x, y, noise, options = make(generator(name, seed))
        fresh = np.random.default_rng(seed + 1_000_003)
        return Case(
            call=lambda: unrelu.learn_from_samples(x, y, rng=seed, **options),
            judge=lambda result: judge_samples(plan, result, noise=noise, rows=len(x), rng=fresh),
        )

    return Kind(f"samples: {name}", made, seeds, **facts)


def _drawn(g: np.random.Generator, plan: Planted, rows: int, part: float) -> Sampled:
    """Draw Gaussian samples with label noise of ``part`` of the labels' spread."""
    x = g.standard_normal((rows, plan.d))
    y = plan.truth(x)[:, 0]
    noise = part * float(y.std())
    one = plan.but(truth=lambda z: plan.truth(z)[:, :1])
    return one, x, y + noise * g.standard_normal(rows), noise, {}


def _of(make: n.Maker, part: float = 0.0) -> Callable[[np.random.Generator], Sampled]:
    def made(g: np.random.Generator) -> Sampled:
        plan = make(g)
        return _drawn(g, plan, ROWS, part)

    return made


def _small(g: np.random.Generator) -> Planted:
    d = int(g.integers(2, 6))
    return n.of(planted.random_network(d, int(g.integers(1, d + 1)), 1, rng=g))


def not_gaussian(g: np.random.Generator) -> Sampled:
    """Draw uniform, heavy-tailed or discrete inputs, the test for them switched off or on."""
    plan = _small(g)
    draws: list[Callable[[int, np.random.Generator], Array]] = [
        lambda m, r: r.uniform(-1.7, 1.7, size=(m, plan.d)),
        lambda m, r: r.standard_t(3, size=(m, plan.d)),
        lambda m, r: r.integers(-2, 3, size=(m, plan.d)).astype(float),
        lambda m, r: np.abs(r.standard_normal((m, plan.d))),
    ]
    draw = draws[int(g.integers(len(draws)))]
    x = draw(ROWS, g)
    options = {"check_gaussian": bool(g.random() < 0.3)}
    return plan.but(draw=draw), x, plan.truth(x)[:, 0], 0.0, options


def other_gaussian(g: np.random.Generator) -> Sampled:
    """Draw from another Gaussian: shifted, stretched, nearly singular."""
    plan = _small(g)
    mix = g.standard_normal((plan.d, plan.d))
    if g.random() < 0.5:
        mix[0] = mix[-1] + float(10.0 ** g.uniform(-9.0, -2.0)) * mix[0]
    mean = g.standard_normal(plan.d)

    def draw(m: int, r: np.random.Generator) -> Array:
        return mean + r.standard_normal((m, plan.d)) @ mix.T

    x = draw(ROWS, g)
    return plan.but(draw=draw), x, plan.truth(x)[:, 0], 0.0, {}


def few_rows(g: np.random.Generator) -> Sampled:
    """Give as many rows as parameters, fewer, or hardly any."""
    rows = int(g.choice([1, 2, 5, 20, 60, 200, 600]))
    return _drawn(g, _small(g), rows, float(g.choice([0.0, 0.1])))


def flawed_rows(g: np.random.Generator) -> Sampled:
    """Repeat rows, spoil labels, or keep an input constant."""
    plan, x, y, noise, options = _drawn(g, _small(g), ROWS, 0.0)
    sort = int(g.integers(4))
    if sort == 0:
        x, y = np.tile(x[:100], (40, 1)), np.tile(y[:100], 40)
    elif sort == 1:
        x[:, 0] = 1.0
        y = plan.truth(x)[:, 0]
    elif sort == 2:
        y = y.copy()
        y[::500] += 100.0
        noise = float(np.sqrt(np.mean((y - plan.truth(x)[:, 0]) ** 2)))
    else:
        y = np.round(y, 2)
        noise = 0.01 / np.sqrt(12.0)
    return plan, x, y, noise, options


def told_wrong(g: np.random.Generator) -> Sampled:
    """Ask for another width, order or method than the labels call for."""
    plan, x, y, noise, _ = _drawn(g, _small(g), ROWS, 0.0)
    choices: list[dict[str, Any]] = [
        {"width": 1}, {"width": 9}, {"order": 1}, {"order": 2}, {"method": "jennrich"},
        {"method": "joint"}, {"polish": False}, {"max_width": 1},
    ]  # fmt: skip
    return plan, x, y, noise, choices[int(g.integers(len(choices)))]


KINDS = [
    _samples("plain", _of(_small), 5),
    _samples("noise", _of(_small, 0.1), 4),
    _samples("smooth", _of(f.smooth), 5),
    _samples("smooth and noise", _of(f.smooth, 0.1), 7),
    _samples("stepped", _of(f.stepped), 4),
    _samples("periodic and noise", _of(f.periodic, 0.1), 4),
    _samples("rare units", _of(n.rare), 4),
    _samples("duplicates", _of(n.duplicates), 4),
    _samples("near duplicates", _of(n.near_duplicates), 4),
    _samples("thin bump", _of(n.bump), 4),
    _samples("always on", _of(n.always_on), 4),
    _samples("constant", _of(n.constant), 3),
    _samples("affine", _of(n.affine), 3),
    _samples("no biases", _of(n.no_biases), 4),
    _samples("two hidden layers", _of(n.deep), 4),
    _samples("large or tiny", _of(n.large_or_tiny), 4),
    _samples("other inputs", not_gaussian, 7),
    _samples("other Gaussian", other_gaussian, 4),
    _samples("few rows", few_rows, 7),
    _samples("flawed rows", flawed_rows, 5),
    _samples("told wrong", told_wrong, 7),
]
