"""The targets of the comparison: random, trained and hostile networks, all seeded."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from unrelu import ReLUNetwork, planted

EXACT = 2.0**-20
#: Above this error a claimed recovery from float32 or rounded answers is wrong: a hundred
#: times what their noise alone leaves of 20-10-1.
COARSE = 1e-3


@dataclasses.dataclass(frozen=True)
class Problem:
    """A family of targets, one per seed.

    ``wrong_above`` is the error, over std(f), above which a claim of recovery is a
    wrong answer given silently.
    """

    name: str
    make: Callable[[int], ReLUNetwork]
    precision: str = "float64"
    wrong_above: float = EXACT

    def heldout(self, seed: int, d: int) -> np.ndarray:
        """Gaussian inputs that no solver sees before it has ended its questions."""
        rows = 4000 if d <= 100 else 1500
        return np.random.default_rng((seed, 77)).standard_normal((rows, d))


@lru_cache(maxsize=1)
def _digits28() -> tuple[np.ndarray, np.ndarray]:
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    data = load_digits()
    images = np.array([zoom(image / 16.0, 3.5, order=1) for image in data.images])
    return images.reshape(len(images), -1), data.target


@lru_cache(maxsize=4)
def trained(seed: int, shape: tuple[int, ...]) -> ReLUNetwork:
    """Train an MLP: digits for 784 inputs, diabetes for 10, Friedman's function else."""
    from sklearn.datasets import load_diabetes, make_friedman1
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    d, *hidden, m = shape
    if d == 784:
        x, digit = _digits28()
        y = np.eye(10)[digit] if m == 10 else np.where(digit % 2, 1.0, -1.0)
    elif d == 10:
        x, y = load_diabetes(return_X_y=True)
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    else:
        x, y = make_friedman1(1000, n_features=d, random_state=seed)
        x = (x - 0.5) * np.sqrt(12.0)
    if m == 1:
        y = (y - y.mean()) / y.std()
    model = MLPRegressor(
        hidden_layer_sizes=hidden, random_state=seed, max_iter=40 if d == 784 else 200
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    return ReLUNetwork.from_sklearn(model)


def _random(seed: int, shape: tuple[int, ...]) -> ReLUNetwork:
    return planted.random_network(*shape, rng=seed)


def tiny_outputs(seed: int) -> ReLUNetwork:
    """20-10-1 in which two neurons count a ten-thousandth of the others."""
    network = planted.random_network(20, 10, 1, rng=seed)
    u = network.weights[1].copy()
    u[:, :2] *= 1e-4
    return ReLUNetwork([network.weights[0], u], network.biases)


def near_parallel(seed: int) -> ReLUNetwork:
    return planted.near_duplicates(20, 10, angle=1e-4, rng=seed)


def dead(seed: int) -> ReLUNetwork:
    return planted.dead_neurons(20, 10, rng=seed)


SHAPES = [
    (20, 10, 1), (40, 20, 1), (10, 40, 1), (10, 10, 10, 1), (10, 20, 20, 1),
    (784, 32, 1), (100, 200, 1), (80, 40, 20, 1), (784, 128, 1),
]  # fmt: skip
SEVERAL_OUTPUTS = [(40, 20, 3), (784, 4, 10)]


def _name(shape: tuple[int, ...]) -> str:
    return "-".join(map(str, shape))


RANDOM = [Problem(_name(s), partial(_random, shape=s)) for s in SHAPES + SEVERAL_OUTPUTS]
TRAINED = [
    Problem(f"trained {_name(s)}", partial(trained, shape=s)) for s in [*SHAPES, (784, 4, 10)]
]
HOSTILE = [
    Problem("near-parallel pairs 20-10-1", near_parallel),
    Problem("tiny output weights 20-10-1", tiny_outputs),
    Problem("dead neurons 20-10-1", dead),
    Problem("float32 20-10-1", partial(_random, shape=(20, 10, 1)), "float32", COARSE),
    Problem("rounded 20-10-1", partial(_random, shape=(20, 10, 1)), "rounded", COARSE),
]
PROBLEMS = {problem.name: problem for problem in [*RANDOM, *TRAINED, *HOSTILE]}
