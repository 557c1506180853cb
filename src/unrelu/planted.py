"""Ground-truth networks for tests, demos and benchmarks.

Every generator takes a seed and returns a :class:`ReLUNetwork`. Algorithms
never import this module: what knows the true weights cannot reach the code
that recovers them. :data:`HOSTILE` is the registry of the networks that break
naive extraction; tests and benchmarks run over all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.networks import ReLUNetwork
from unrelu.rational import RationalNetwork

__all__ = [
    "HOSTILE",
    "affine",
    "bump",
    "cancelling",
    "clusters",
    "constant",
    "dead_neurons",
    "diabetes_regressor",
    "digits_classifier",
    "far_kinks",
    "near_duplicates",
    "opposite_pairs",
    "parallel_hyperplanes",
    "random_network",
    "random_rational_network",
    "sparse_inputs",
    "zero_outputs",
]


def random_network(
    *widths: int, rng: RandomState = None, bias_std: float = 0.5, gain: float = 1.0
) -> ReLUNetwork:
    """Draw weights N(0, gain²/fan-in), hidden biases N(0, bias_std²).

    ``random_network(784, 128, 1, rng=0)`` is the standard random target: the
    output layer has weights N(0, 1/k) and no bias.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise InvalidInput(f"need at least two positive widths, got {widths}")
    g = as_generator(rng)
    weights = [
        gain * g.standard_normal((m, d)) / np.sqrt(d) for d, m in itertools.pairwise(widths)
    ]
    biases = [bias_std * g.standard_normal(m) for m in widths[1:-1]]
    return ReLUNetwork(weights, [*biases, np.zeros(widths[-1])])


def random_rational_network(
    *widths: int, rng: RandomState = None, denominator: int = 97
) -> RationalNetwork:
    """Draw a network whose weights and hidden biases are rationals, none of them zero.

    Each is a Gaussian rounded to a fraction with a denominator of its own, up to
    ``denominator``. The output layer has no bias, as in the papers.
    """
    if len(widths) < 2 or min(widths) < 1 or denominator < 2:
        raise InvalidInput(f"need positive widths and a denominator, got {widths}, {denominator}")
    g = as_generator(rng)

    def one() -> Fraction:
        below = int(g.integers(2, denominator + 1))
        above = 0
        while above == 0:
            above = round(below * g.standard_normal())
        return Fraction(above, below)

    weights = [
        [[one() for _ in range(d)] for _ in range(m)] for d, m in itertools.pairwise(widths)
    ]
    biases = [[one() for _ in range(m)] for m in widths[1:-1]]
    return RationalNetwork(weights, [*biases, [Fraction(0)] * widths[-1]])


def _unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _edited(
    network: ReLUNetwork, edit: Callable[[FloatArray, FloatArray, FloatArray], None]
) -> ReLUNetwork:
    """Return a copy of a depth-2 network after ``edit(W, b, U)``."""
    w, u = (a.copy() for a in network.weights)
    b = network.biases[0].copy()
    edit(w, b, u)
    return ReLUNetwork([w, u], [b, network.biases[1]], network.skip)


def bump(
    d: int = 20,
    *,
    width: float = 0.1,
    center: float = 0.3,
    extra: int = 0,
    rng: RandomState = None,
) -> ReLUNetwork:
    """Plant Example 1.2 of Chen, Klivans & Meka: zero but in a thin slab.

    A triangle of the given width in a random direction, scaled to variance
    one under N(0, I), beside ``extra`` ordinary neurons that together have
    variance one too: the bump holds half of the variance, or all of it when
    ``extra`` is 0.
    """
    if not width > 0:
        raise InvalidInput(f"width must be positive, got {width}")
    g = as_generator(rng)
    direction = _unit(g.standard_normal(d))
    # Mean and variance of the triangle under N(0, 1), by quadrature on its support.
    t = center + width / 2 * np.linspace(-1.0, 1.0, 2001)
    triangle = 1.0 - np.abs(t - center) / (width / 2)
    density = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
    mean, square = (float(np.trapezoid(triangle**p * density, t)) for p in (1, 2))
    height = 1.0 / np.sqrt(square - mean**2)
    slope = height / (width / 2)
    w = np.repeat(direction[None, :], 3, axis=0)
    b = np.array([-center + width / 2, -center, -center - width / 2])
    u = np.array([[slope, -2 * slope, slope]])
    if extra:
        other = random_network(d, extra, 1, rng=g)
        values = other(g.standard_normal((20_000, d)))
        w = np.concatenate([w, other.weights[0]])
        b = np.concatenate([b, other.biases[0]])
        u = np.concatenate([u, other.weights[1] / values.std()], axis=1)
    return ReLUNetwork([w, u], [b, np.zeros(1)])


def near_duplicates(
    d: int = 20, k: int = 10, *, angle: float = 1e-6, pairs: int = 2, rng: RandomState = None
) -> ReLUNetwork:
    """Plant a random network in which some neurons come in nearly equal pairs."""
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        for i in range(min(pairs, k // 2)):
            w[2 * i + 1] = w[2 * i] + angle * np.linalg.norm(w[2 * i]) * _unit(
                g.standard_normal(d)
            )
            b[2 * i + 1] = b[2 * i] + angle * g.standard_normal()

    return _edited(random_network(d, k, 1, rng=g), edit)


def clusters(
    d: int = 20, k: int = 40, *, groups: int = 5, angle: float = 1e-6, rng: RandomState = None
) -> ReLUNetwork:
    """Plant ``k`` neurons in ``groups`` clusters of nearly equal hyperplanes, mixed signs."""
    g = as_generator(rng)
    centers = _unit(g.standard_normal((groups, d)))
    offsets = 0.5 * g.standard_normal(groups)
    which = np.arange(k) % groups
    w = _unit(centers[which] + angle * _unit(g.standard_normal((k, d))))
    b = offsets[which] + angle * g.standard_normal(k)
    flip = g.choice([-1.0, 1.0], size=k)
    u = g.standard_normal((1, k)) / np.sqrt(k)
    return ReLUNetwork([flip[:, None] * w, u], [flip * b, np.zeros(1)])


def opposite_pairs(
    d: int = 20, k: int = 10, *, pairs: int = 2, rng: RandomState = None
) -> ReLUNetwork:
    """Plant neurons w and -w that share a hyperplane with unequal weights.

    On the shared hyperplane the kinks add up: two neurons look like one plus
    an affine function, which the skip term holds.
    """
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        for i in range(min(pairs, k // 2)):
            w[2 * i + 1], b[2 * i + 1] = -w[2 * i], -b[2 * i]

    return _edited(random_network(d, k, 1, rng=g), edit)


def cancelling(
    d: int = 20, *, pairs: int = 5, ordinary: int = 5, gap: float = 1e-6, rng: RandomState = None
) -> ReLUNetwork:
    """Plant pairs that cancel to almost affine, beside ordinary neurons.

    relu(z) - relu(-z + gap) differs from z only within ``gap`` of the kink.
    """
    g = as_generator(rng)
    base = random_network(d, 2 * pairs + ordinary, 1, rng=g)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        for i in range(pairs):
            w[2 * i + 1], b[2 * i + 1] = -w[2 * i], -b[2 * i] + gap
            u[:, 2 * i + 1] = -u[:, 2 * i]

    return _edited(base, edit)


def parallel_hyperplanes(
    d: int = 20, k: int = 10, *, gap: float = 0.05, rng: RandomState = None
) -> ReLUNetwork:
    """Plant half of the neurons with one common direction and spaced biases."""
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        half = max(2, k // 2)
        w[:half] = w[0]
        b[:half] = b[0] + gap * np.arange(half)

    return _edited(random_network(d, max(k, 2), 1, rng=g), edit)


def dead_neurons(
    d: int = 20, k: int = 10, *, dead: int = 3, rng: RandomState = None
) -> ReLUNetwork:
    """Plant neurons that never fire: zero rows with a negative bias."""
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        w[:dead], b[:dead] = 0.0, -1.0

    return _edited(random_network(d, k, 1, rng=g), edit)


def zero_outputs(
    d: int = 20, k: int = 10, *, zeros: int = 3, rng: RandomState = None
) -> ReLUNetwork:
    """Plant neurons whose output weight is zero: present, but invisible."""
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        u[:, :zeros] = 0.0

    return _edited(random_network(d, k, 1, rng=g), edit)


def sparse_inputs(
    d: int = 20, k: int = 10, *, density: float = 0.3, rng: RandomState = None
) -> ReLUNetwork:
    """Plant rows with many exact zeros: hyperplanes parallel to axes."""
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        mask = g.random(w.shape) < density
        mask[np.arange(k), g.integers(d, size=k)] = True  # no row is empty
        w *= mask

    return _edited(random_network(d, k, 1, rng=g), edit)


def far_kinks(
    d: int = 20, k: int = 10, *, far: int = 2, distance: float = 30.0, rng: RandomState = None
) -> ReLUNetwork:
    """Plant hyperplanes many standard deviations away from the origin."""
    g = as_generator(rng)

    def edit(w: FloatArray, b: FloatArray, u: FloatArray) -> None:
        norms = np.linalg.norm(w[:far], axis=1)
        b[:far] = distance * norms * g.choice([-1.0, 1.0], size=far)

    return _edited(random_network(d, k, 1, rng=g), edit)


def affine(d: int = 20, *, rng: RandomState = None) -> ReLUNetwork:
    """Plant a purely affine function, written as one opposite pair."""
    g = as_generator(rng)
    w, b = g.standard_normal(d), g.standard_normal()
    return ReLUNetwork([[w, -w], [[1.0, -1.0]]], [[b, -b], [0.5]])


def constant(d: int = 20, *, rng: RandomState = None) -> ReLUNetwork:
    """Plant a constant function: one dead neuron and an output bias."""
    g = as_generator(rng)
    return ReLUNetwork([np.zeros((1, d)), [[1.0]]], [[-1.0], [g.standard_normal()]])


def digits_classifier(
    *hidden: int, rng: RandomState = None, upscale: int = 1, iterations: int = 60
) -> tuple[ReLUNetwork, Any]:
    """Train a scikit-learn classifier on its digits; return its logits and itself.

    ``upscale`` repeats each pixel, so that 8 by 8 images become
    ``(8 upscale)²`` inputs; pixels lie in [0, 1].
    """
    import warnings

    from sklearn.datasets import load_digits
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    g = as_generator(rng)
    data = load_digits()
    images = data.images / 16.0
    x = np.kron(images, np.ones((upscale, upscale))).reshape(len(images), -1)
    if upscale > 1:  # break the exact ties between copies of a pixel
        x = np.clip(x + 0.05 * g.standard_normal(x.shape), 0.0, 1.0)
    model = MLPClassifier(
        hidden_layer_sizes=hidden or (32,),
        random_state=int(g.integers(2**31)),
        max_iter=iterations,
        batch_size=200,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, data.target)
    return ReLUNetwork.from_sklearn(model), model


def diabetes_regressor(
    *hidden: int, rng: RandomState = None, iterations: int = 300
) -> tuple[ReLUNetwork, Any]:
    """Train a scikit-learn regressor on diabetes; return the network and itself.

    Inputs and target are standardised; many neurons end dead or nearly equal.
    """
    import warnings

    from sklearn.datasets import load_diabetes
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    g = as_generator(rng)
    x, y = load_diabetes(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = (y - y.mean()) / y.std()
    model = MLPRegressor(
        hidden_layer_sizes=hidden or (100,),
        random_state=int(g.integers(2**31)),
        max_iter=iterations,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    return ReLUNetwork.from_sklearn(model), model


HOSTILE: dict[str, Callable[[RandomState], ReLUNetwork]] = {
    "bump of width 0.1": lambda rng: bump(10, width=0.1, extra=5, rng=rng),
    "bump of width 1e-2": lambda rng: bump(10, width=1e-2, extra=5, rng=rng),
    "bump of width 1e-3": lambda rng: bump(10, width=1e-3, extra=5, rng=rng),
    "near-duplicate neurons": lambda rng: near_duplicates(10, 8, rng=rng),
    "clusters": lambda rng: clusters(10, 12, groups=3, rng=rng),
    "opposite pairs": lambda rng: opposite_pairs(10, 8, rng=rng),
    "cancelling pairs": lambda rng: cancelling(10, pairs=2, ordinary=4, rng=rng),
    "parallel hyperplanes": lambda rng: parallel_hyperplanes(10, 8, rng=rng),
    "dead neurons": lambda rng: dead_neurons(10, 8, rng=rng),
    "zero output weights": lambda rng: zero_outputs(10, 8, rng=rng),
    "sparse input weights": lambda rng: sparse_inputs(10, 8, rng=rng),
    "kinks far out": lambda rng: far_kinks(10, 8, rng=rng),
    "more neurons than inputs": lambda rng: random_network(4, 30, 1, rng=rng),
    "one input": lambda rng: random_network(1, 6, 1, rng=rng),
    "one neuron": lambda rng: random_network(10, 1, 1, rng=rng),
    "affine": lambda rng: affine(10, rng=rng),
    "constant": lambda rng: constant(10, rng=rng),
}
