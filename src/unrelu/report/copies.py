"""Ordinary copies: a network and a decision tree trained on answers, as anyone would try first.

Every model can be copied so, trees and convolutions too; what differs is how
well, after how many queries. The better of the two counts: a network learns a
tree badly, and a tree a network. An exact clone makes asking unnecessary: the
curve is then measured on the clone.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import UnreluError
from unrelu.oracles import Oracle
from unrelu.progress import Progress

__all__ = ["CopyPoint", "copy_curve", "draw_inputs", "missed", "train_students", "typical_inputs"]

_LEAST = 1e-9  # probabilities below this are not told apart by a student
Ask = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class CopyPoint:
    """An ordinary copy: how many answers it was trained on, and how far it agrees.

    ``agreement`` is the part of fresh inputs whose top class it gets right or, for a single
    output, one less its root mean square error over the answers' spread.
    """

    queries: int
    agreement: float


def draw_inputs(oracle: Oracle, n: int, rng: np.random.Generator) -> FloatArray:
    """Return inputs such as an outsider would send: rows of the data, of the box, or Gaussian.

    Where the data has fewer rows, points between two of them are taken as well.
    """
    if oracle.data is not None and len(oracle.data):
        rows = np.asarray(oracle.data, dtype=np.float64)
        first, second = rows[rng.integers(len(rows), size=(2, n))]
        between = np.where(np.arange(n) < len(rows), 0.0, rng.random(n))[:, None]
        return np.asarray(first + between * (second - first))
    return typical_inputs(oracle, n, rng)


def typical_inputs(oracle: Oracle, n: int, rng: np.random.Generator) -> FloatArray:
    """Return inputs that need no data: uniform in the box, or Gaussian without one."""
    size = (n, oracle.input_dim)
    if oracle.box is not None:
        return np.asarray(rng.uniform(*oracle.box, size=size))
    return rng.standard_normal(size)


def copy_curve(
    ask: Ask,
    inputs: FloatArray,
    fresh: FloatArray,
    sizes: Sequence[int],
    *,
    probabilities: bool,
    labels: bool,
    width: int,
    epochs: int,
    seed: int,
    progress: Progress,
) -> tuple[CopyPoint, ...]:
    """Train a copy on more and more answers.

    Parameters
    ----------
    ask
        Answers ``(n, m)`` to points ``(n, d)``; what it refuses ends the curve.
    inputs, fresh
        Points to train on, and points to compare at.
    sizes
        Answers after which a copy is trained.
    """
    found: list[CopyPoint] = []
    try:
        truth = ask(fresh)
        answers = np.zeros((0, truth.shape[1]))
        for i, size in enumerate(sizes):
            answers = np.concatenate([answers, ask(inputs[len(answers) : size])])
            students = train_students(
                inputs[:size], answers, probabilities=probabilities, labels=labels,
                width=width, epochs=epochs, seed=seed,
            )  # fmt: skip
            wrong = [
                missed(student(fresh), truth, probabilities=probabilities, labels=labels)
                for student in students
            ]
            found.append(CopyPoint(size, 1.0 - min(wrong)))
            progress.update("ordinary copy", i + 1, len(sizes))
    except UnreluError:  # the budget ended, or the target answers no more: what is known stays
        return tuple(found)
    return tuple(found)


def train_students(
    inputs: FloatArray,
    answers: FloatArray,
    *,
    probabilities: bool,
    labels: bool = False,
    width: int,
    epochs: int,
    seed: int,
) -> list[Ask]:
    """Train an ordinary network and a decision tree on answers; returns what predicts them.

    Labels come back as labels, probabilities as their logarithms, values as values.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    names = np.unique(answers[:, 0]) if labels else np.zeros(0)
    wanted = answers
    if labels:
        wanted = (answers[:, :1] == names).astype(np.float64)
    elif probabilities:
        wanted = np.log(np.clip(answers, _LEAST, 1.0))
    centre, spread = wanted.mean(axis=0), float(wanted.std()) or 1.0
    scaler = StandardScaler().fit(inputs)
    models = (
        MLPRegressor(hidden_layer_sizes=(width,), max_iter=epochs, random_state=seed),
        DecisionTreeRegressor(random_state=seed),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed effort is meant
        scaled = (wanted - centre) / spread
        for model in models:
            model.fit(scaler.transform(inputs), scaled[:, 0] if scaled.shape[1] == 1 else scaled)

    def predict(points: FloatArray, model: Any) -> FloatArray:
        raw = model.predict(scaler.transform(points)).reshape(len(points), -1) * spread + centre
        return names[raw.argmax(axis=1)][:, None] if labels else np.asarray(raw)

    return [partial(predict, model=model) for model in models]


def missed(
    found: FloatArray, truth: FloatArray, *, probabilities: bool, labels: bool = False
) -> float:
    """Return the part of inputs whose top class is wrong, or the relative error of one output."""
    if labels:
        return float(np.mean(found[:, 0] != truth[:, 0]))
    if truth.shape[1] > 1:
        return float(np.mean(found.argmax(axis=1) != truth.argmax(axis=1)))
    shown = np.log(np.clip(truth, _LEAST, 1.0)) if probabilities else truth
    error = float(np.sqrt(np.mean((found - shown) ** 2)) / (float(shown.std()) or 1.0))
    return min(1.0, error)
