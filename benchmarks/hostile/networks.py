"""Planted networks that mislead: degenerate, cancelling, thin, rare, always or never on.

Every function takes a generator and returns a :class:`Planted`; sizes vary with the seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.hostile.case import Array, Planted
from unrelu import ReLUNetwork, planted

Maker = Callable[[np.random.Generator], Planted]
Edit = Callable[[Array, Array, Array], None]


def of(network: ReLUNetwork, **facts: object) -> Planted:
    """Plant a network, answered in float64."""
    return Planted(network.input_dim, network, rows=network.weights[0]).but(**facts)


def sizes(g: np.random.Generator, least: int = 2, most: int = 9) -> tuple[int, int, int]:
    """Draw inputs, hidden units and outputs of a small network."""
    d, k = (int(v) for v in g.integers(least, most, size=2))
    return d, k, int(g.choice([1, 1, 2, 3]))


def plain(g: np.random.Generator) -> Planted:
    return of(planted.random_network(*sizes(g), rng=g))


def edited(g: np.random.Generator, edit: Edit, least: int = 2, **facts: object) -> Planted:
    """Plant a random network after ``edit(W, b, U)``."""
    base = planted.random_network(*sizes(g, least), rng=g)
    w, u, b = base.weights[0].copy(), base.weights[1].copy(), base.biases[0].copy()
    edit(w, b, u)
    return of(ReLUNetwork([w, u], [b, base.biases[1]]), **facts)


def one_input(g: np.random.Generator) -> Planted:
    return of(planted.random_network(1, int(g.integers(1, 9)), int(g.integers(1, 3)), rng=g))


def one_unit(g: np.random.Generator) -> Planted:
    return of(planted.random_network(int(g.integers(1, 12)), 1, 1, rng=g))


def many_units(g: np.random.Generator) -> Planted:
    return of(planted.random_network(int(g.integers(2, 4)), int(g.integers(15, 40)), 1, rng=g))


def many_inputs(g: np.random.Generator) -> Planted:
    d = int(g.choice([100, 150, 200, 300, 500]))
    return of(planted.random_network(d, int(g.integers(2, 7)), int(g.choice([1, 3])), rng=g))


def affine(g: np.random.Generator) -> Planted:
    return of(planted.affine(int(g.integers(1, 10)), rng=g))


def constant(g: np.random.Generator) -> Planted:
    """Plant a constant, zero among them."""
    d, value = int(g.integers(1, 10)), float(g.choice([0.0, 1.0, 0.5, -3.7, 1e9]))
    return of(ReLUNetwork([np.zeros((1, d)), [[1.0]]], [[-1.0], [value]]))


def dead(g: np.random.Generator) -> Planted:
    """Plant zero rows, with a bias of either sign, beside ordinary units."""

    def edit(w: Array, b: Array, u: Array) -> None:
        some = max(1, len(w) // 2)
        w[:some], b[:some] = 0.0, g.choice([-1.0, 0.0, 1.0], size=some)

    return edited(g, edit)


def all_dead(g: np.random.Generator) -> Planted:
    def edit(w: Array, b: Array, u: Array) -> None:
        w[:], b[:] = 0.0, -1.0

    return edited(g, edit)


def invisible(g: np.random.Generator) -> Planted:
    """Plant units whose output weight is zero."""

    def edit(w: Array, b: Array, u: Array) -> None:
        u[:, : max(1, len(w) // 2)] = 0.0

    return edited(g, edit)


def _shifted(low: float, high: float, some: int) -> Callable[[np.random.Generator], Edit]:
    """Return an edit that moves ``some`` units so many standard deviations away."""

    def chosen(g: np.random.Generator) -> Edit:
        def edit(w: Array, b: Array, u: Array) -> None:
            n = min(some, len(w))
            b[:n] = g.uniform(low, high, size=n) * np.linalg.norm(w[:n], axis=1)

        return edit

    return chosen


def always_on(g: np.random.Generator) -> Planted:
    return edited(g, _shifted(12.0, 60.0, 3)(g))


def all_always_on(g: np.random.Generator) -> Planted:
    return edited(g, _shifted(12.0, 60.0, 99)(g))


def never_on(g: np.random.Generator) -> Planted:
    return edited(g, _shifted(-60.0, -12.0, 3)(g))


def rare(g: np.random.Generator) -> Planted:
    """Plant units that one input in 200 to 500,000 turns on, with large output weights."""

    def edit(w: Array, b: Array, u: Array) -> None:
        _shifted(-4.6, -2.5, 2)(g)(w, b, u)
        u[:, :2] *= 10.0

    return edited(g, edit, thin=True)


def seldom_off(g: np.random.Generator) -> Planted:
    """Plant units that one input in 200 to 500,000 turns off."""
    return edited(g, _shifted(2.5, 4.6, 2)(g), thin=True)


def duplicates(g: np.random.Generator) -> Planted:
    """Plant exact copies of units, some with another length, some that cancel."""

    def edit(w: Array, b: Array, u: Array) -> None:
        for i in range(len(w) // 2):
            factor = float(g.choice([1.0, 2.0, 0.5]))
            w[2 * i + 1], b[2 * i + 1] = factor * w[2 * i], factor * b[2 * i]
            if g.random() < 0.3:
                u[:, 2 * i + 1] = -u[:, 2 * i] / factor

    return edited(g, edit)


def near_duplicates(g: np.random.Generator) -> Planted:
    angle = float(10.0 ** g.uniform(-9.0, -2.0))
    d = int(g.integers(3, 10))
    return of(planted.near_duplicates(d, 6, angle=angle, rng=g), thin=True)


def clusters(g: np.random.Generator) -> Planted:
    angle = float(10.0 ** g.uniform(-8.0, -2.0))
    d = int(g.integers(3, 9))
    return of(planted.clusters(d, 9, groups=3, angle=angle, rng=g), thin=True)


def opposite(g: np.random.Generator) -> Planted:
    return of(planted.opposite_pairs(int(g.integers(2, 10)), 6, rng=g))


def cancelling(g: np.random.Generator) -> Planted:
    gap = float(10.0 ** g.uniform(-7.0, -1.0))
    d = int(g.integers(2, 9))
    return of(planted.cancelling(d, pairs=2, ordinary=3, gap=gap, rng=g), thin=True)


def bump(g: np.random.Generator) -> Planted:
    """Plant a thin bump beside a few ordinary units, or alone."""
    width = float(10.0 ** g.uniform(-3.5, -0.5))
    extra = int(g.choice([0, 1, 4]))
    d, center = int(g.integers(1, 9)), float(g.uniform(-1.5, 1.5))
    return of(planted.bump(d, width=width, center=center, extra=extra, rng=g), thin=True)


def low_bump(g: np.random.Generator) -> Planted:
    """Plant a bump of moderate height, so that its neurons are no longer than others."""
    d, width = int(g.integers(2, 9)), float(10.0 ** g.uniform(-2.5, -1.0))
    base = planted.random_network(d, 4, 1, rng=g)
    v = g.standard_normal(d)
    v /= np.linalg.norm(v)
    c = float(g.uniform(-1.0, 1.0))
    w = np.concatenate([base.weights[0], np.repeat(v[None], 3, axis=0)])
    b = np.concatenate([base.biases[0], [-c + width, -c, -c - width]])
    u = np.concatenate([base.weights[1], [[1.0, -2.0, 1.0]]], axis=1)
    return of(ReLUNetwork([w, u], [b, np.zeros(1)]), thin=True)


def stacked_bumps(g: np.random.Generator) -> Planted:
    """Plant many copies of one thin bump: each neuron is short, their slopes add up."""
    d, copies = int(g.integers(2, 7)), int(g.choice([20, 50, 100]))
    width = float(10.0 ** g.uniform(-3.5, -1.5))
    v = g.standard_normal(d)
    v /= np.linalg.norm(v)
    c = float(g.uniform(-1.0, 1.0))
    base = planted.random_network(d, 2, 1, rng=g)
    three = np.array([-c + width, -c, -c - width])
    w = np.concatenate([base.weights[0], np.repeat(v[None], 3 * copies, axis=0)])
    b = np.concatenate([base.biases[0], np.tile(three, copies)])
    u = np.concatenate([base.weights[1], np.tile([[1.0, -2.0, 1.0]], copies)], axis=1)
    return of(ReLUNetwork([w, u], [b, np.zeros(1)]), thin=True)


def slab(g: np.random.Generator) -> Planted:
    """Plant a wedge: two nearly parallel units that differ in a thin slice only."""

    def edit(w: Array, b: Array, u: Array) -> None:
        angle = 10.0 ** g.uniform(-4.0, -1.5)
        w[1] = w[0] + angle * np.linalg.norm(w[0]) * g.standard_normal(w.shape[1])
        b[1], u[:, 1] = b[0], -u[:, 0]

    return edited(g, edit, thin=True)


def parallel(g: np.random.Generator) -> Planted:
    gap = float(10.0 ** g.uniform(-3.0, 0.0))
    return of(planted.parallel_hyperplanes(int(g.integers(2, 10)), 6, gap=gap, rng=g), thin=True)


def no_biases(g: np.random.Generator) -> Planted:
    def edit(w: Array, b: Array, u: Array) -> None:
        b[:] = 0.0

    return edited(g, edit)


def through_a_point(g: np.random.Generator) -> Planted:
    """Plant hyperplanes that all pass through one point."""

    def edit(w: Array, b: Array, u: Array) -> None:
        b[:] = -w @ g.standard_normal(w.shape[1])

    return edited(g, edit)


def sparse(g: np.random.Generator) -> Planted:
    d = int(g.integers(2, 12))
    return of(planted.sparse_inputs(d, 6, density=float(g.uniform(0.0, 0.4)), rng=g))


def axis_parallel(g: np.random.Generator) -> Planted:
    """Plant units that look at one input each."""

    def edit(w: Array, b: Array, u: Array) -> None:
        which = g.integers(w.shape[1], size=len(w))
        w[:] = 0.0
        w[np.arange(len(w)), which] = g.choice([-1.0, 1.0], size=len(w))

    return edited(g, edit)


def whole_numbers(g: np.random.Generator) -> Planted:
    def edit(w: Array, b: Array, u: Array) -> None:
        w[:] = g.integers(-3, 4, size=w.shape)
        b[:] = g.integers(-2, 3, size=b.shape)
        u[:] = g.integers(-2, 3, size=u.shape)

    return edited(g, edit)


def low_rank(g: np.random.Generator) -> Planted:
    """Plant rows that span two directions of many."""

    def edit(w: Array, b: Array, u: Array) -> None:
        d = w.shape[1]
        w[:] = g.standard_normal((len(w), 2)) @ g.standard_normal((2, d)) / np.sqrt(d)

    return edited(g, edit, least=3)


def far_kinks(g: np.random.Generator) -> Planted:
    distance = float(10.0 ** g.uniform(0.7, 4.0))
    d = int(g.integers(2, 9))
    return of(planted.far_kinks(d, 5, distance=distance, rng=g), thin=distance < 6.0)


def unlike_lengths(g: np.random.Generator) -> Planted:
    """Plant rows of very different length: strong and nearly invisible units."""

    def edit(w: Array, b: Array, u: Array) -> None:
        factor = 10.0 ** g.uniform(-5.0, 2.0, size=len(w))
        w *= factor[:, None]
        b *= factor

    return edited(g, edit)


def _scaled(network: ReLUNetwork, factor: Array) -> ReLUNetwork:
    w, u = network.weights
    return ReLUNetwork([w, u * factor[:, None]], [network.biases[0], network.biases[1] * factor])


def large_or_tiny(g: np.random.Generator) -> Planted:
    """Plant answers of size 1e-12 to 1e12."""
    network = planted.random_network(*sizes(g), rng=g)
    factor = float(g.choice([1e-12, 1e-9, 1e-6, 1e6, 1e9, 1e12]))
    return of(_scaled(network, np.full(network.output_dim, factor)))


def mixed_outputs(g: np.random.Generator) -> Planted:
    """Plant outputs of sizes 1 : 1e3 to 1 : 1e12."""
    d, k, _ = sizes(g)
    m = int(g.integers(2, 4))
    network = planted.random_network(d, k, m, rng=g)
    factor = np.ones(m)
    factor[1:] = 10.0 ** g.choice([3.0, 6.0, 9.0, 12.0], size=m - 1)
    return of(_scaled(network, factor))


def offset(g: np.random.Generator) -> Planted:
    """Plant small variations of a large value, such as 0.5 + 1e-7 g(x)."""
    network = planted.random_network(*sizes(g), rng=g)
    height, part = float(g.choice([0.5, 1.0, 1e3, 1e6])), 10.0 ** float(g.uniform(-8.0, -1.0))
    w, u = network.weights
    high = np.full(network.output_dim, height)
    return of(ReLUNetwork([w, height * part * u], [network.biases[0], high]))


def idle_outputs(g: np.random.Generator) -> Planted:
    """Plant outputs that are constant, or copies of another one."""
    d, k, _ = sizes(g)
    network = planted.random_network(d, k, 3, rng=g)
    w, u = network.weights
    u, c = u.copy(), network.biases[1].copy()
    u[0], c[0] = 0.0, float(g.standard_normal())
    if g.random() < 0.5:
        u[1] = u[2]
    return of(ReLUNetwork([w, u], [network.biases[0], c]))


def deaf_inputs(g: np.random.Generator) -> Planted:
    """Plant inputs that do not matter."""

    def edit(w: Array, b: Array, u: Array) -> None:
        w[:, : max(1, w.shape[1] - 2)] = 0.0

    return edited(g, edit, least=3)


def skip(g: np.random.Generator) -> Planted:
    """Plant a strong affine part beside the units."""
    d, k, m = sizes(g)
    base = planted.random_network(d, k, m, rng=g)
    linear = g.standard_normal((m, d)) * 10.0 ** float(g.uniform(-1.0, 3.0))
    return of(ReLUNetwork(base.weights, base.biases, linear), rows=np.eye(d))


def deep(g: np.random.Generator) -> Planted:
    d = int(g.integers(3, 8))
    k1 = int(g.integers(2, d + 1))
    return of(planted.random_network(d, k1, int(g.integers(2, 6)), 1, rng=g), thin=True)


def deep_many_outputs(g: np.random.Generator) -> Planted:
    d = int(g.integers(3, 8))
    k1 = int(g.integers(2, d + 1))
    return of(planted.random_network(d, k1, int(g.integers(2, 6)), 3, rng=g), thin=True)


def deep_wide(g: np.random.Generator) -> Planted:
    """Plant more first-layer units than inputs."""
    d = int(g.integers(2, 4))
    return of(planted.random_network(d, d + 1, int(g.integers(1, 4)), 1, rng=g), thin=True)


def _deep(g: np.random.Generator, second: Edit) -> Planted:
    d = int(g.integers(2, 7))
    k1, k2 = int(g.integers(1, d + 1)), int(g.integers(1, 5))
    base = planted.random_network(d, k1, k2, 1, rng=g)
    w, v, u = (a.copy() for a in base.weights)
    b, c = base.biases[0].copy(), base.biases[1].copy()
    second(v, c, u)
    return of(ReLUNetwork([w, v, u], [b, c, base.biases[2]]), thin=True)


def deep_always_on(g: np.random.Generator) -> Planted:
    """Plant a second layer of which some or all units never switch off."""

    def second(v: Array, c: Array, u: Array) -> None:
        some = len(v) if g.random() < 0.5 else max(1, len(v) // 2)
        v[:some], c[:some] = np.abs(v[:some]), 1.0

    return _deep(g, second)


def deep_never_on(g: np.random.Generator) -> Planted:
    """Plant a second layer of which some or all units never switch on."""

    def second(v: Array, c: Array, u: Array) -> None:
        some = len(v) if g.random() < 0.3 else max(1, len(v) // 2)
        v[:some], c[:some] = -np.abs(v[:some]), -1.0

    return _deep(g, second)


def deep_whole_numbers(g: np.random.Generator) -> Planted:
    """Plant small whole weights in two hidden layers."""
    d = int(g.integers(3, 7))
    k1, k2 = int(g.integers(2, d + 1)), int(g.integers(2, 5))
    draw = g.integers
    weights = [draw(-2, 3, size=s).astype(float) for s in ((k1, d), (k2, k1), (1, k2))]
    biases = [draw(-1, 2, size=s).astype(float) for s in (k1, k2, 1)]
    return of(ReLUNetwork(weights, biases), thin=True)


def deep_parallel(g: np.random.Generator) -> Planted:
    """Plant parallel or equal rows in the first of two hidden layers."""
    d = int(g.integers(3, 7))
    base = planted.random_network(d, 3, 3, 1, rng=g)
    w, b = base.weights[0].copy(), base.biases[0].copy()
    w[1] = w[0]
    b[1] = b[0] + float(g.choice([0.0, 0.1, 1.0]))
    return of(ReLUNetwork([w, *base.weights[1:]], [b, *base.biases[1:]]), thin=True)


def bottleneck(g: np.random.Generator) -> Planted:
    """Plant one first-layer unit below several, as 2-1-3-1."""
    d = int(g.integers(1, 7))
    return of(planted.random_network(d, 1, int(g.integers(1, 4)), 1, rng=g), thin=True)


def deeper(g: np.random.Generator) -> Planted:
    """Plant three hidden layers."""
    d = int(g.integers(3, 7))
    return of(planted.random_network(d, d, 4, 3, 1, rng=g), thin=True)


def relu_output(g: np.random.Generator) -> Planted:
    """Plant one hidden layer whose output passes a ReLU of its own."""
    d, k, _ = sizes(g)
    base = planted.random_network(d, min(k, d), 1, rng=g)
    w, u = base.weights
    return of(ReLUNetwork([w, u, [[1.0]]], [base.biases[0], base.biases[1], [0.0]]), thin=True)
