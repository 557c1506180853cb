"""A copy trained on labels, where no network explains them all.

Labels far from a boundary tell what a copy knows already. So inputs are asked in turns: of many
typical ones those between whose two likeliest classes the last copy decides least (uncertainty
sampling: D. D. Lewis, W. A. Gale, *A Sequential Algorithm for Training Text Classifiers*, 1994).
The copy has two hidden layers, as one that a single layer does not explain often has.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from unrelu._types import ArrayLike, FloatArray
from unrelu.core.fit import FitConfig
from unrelu.labels.certify import summary
from unrelu.labels.run import LabelsRun
from unrelu.networks import Network, ReLUNetwork
from unrelu.result import Certificate

__all__ = ["Copy", "predicted", "train_copy", "train_network"]

HIDDEN = (32, 32)
"""Units of a copy: a weight or two for every ten labels of a training."""


@dataclasses.dataclass(frozen=True)
class Copy:
    """A trained network, the labels of its outputs, and how it fared on held-out inputs."""

    network: ReLUNetwork
    labels: tuple[float, ...]
    agreement: float
    certificate: Certificate


def train_copy(run: LabelsRun) -> Copy:
    """Train a network on about as many labels as a certificate has; then test it on others.

    Every turn asks for as many labels as there are, and chooses each of ``rounds`` inputs.
    """
    target, rng, rounds = run.target, run.rng, run.config.rounds
    # Every label that was seen occurs.
    x = np.concatenate([target.examples, run.labelled[0]])
    labels = np.concatenate([np.arange(len(target.examples)), run.labelled[1]])
    with run.stage("training") as details:
        more = target.domain.draw(max(0, run.config.held_out // rounds - len(x)), rng)
        while True:
            x, labels = np.concatenate([x, more]), np.concatenate([labels, target.ask(more)])
            network = train_network(x, np.asarray(target.names)[labels], rng)
            if len(x) >= run.config.held_out:
                break
            more = undecided(network, target.domain.draw(rounds * len(x), rng), len(x))
        details["inputs"] = len(x)
    known = tuple(float(v) for v in np.unique(np.asarray(target.names)[labels]))
    with run.stage("certificate"):
        x = target.domain.draw(run.config.held_out, rng)
        asked = np.asarray(target.names)[target.ask(x)]
    wrong = np.asarray(asked != predicted(network, known, x))
    return Copy(network, known, 1.0 - float(wrong.mean()), summary(wrong, target.domain))


def train_network(x: FloatArray, labels: FloatArray, rng: np.random.Generator) -> ReLUNetwork:
    """Return a network whose outputs are the classes of labels ``(n,)`` of inputs ``(n, d)``.

    In the order of the labels; with two of them one output, positive where the second is right.
    """
    passes = FitConfig().steps  # over all labels
    centre, size = x.mean(axis=0), np.maximum(x.std(axis=0), np.finfo(np.float64).tiny)
    estimator = MLPClassifier(
        HIDDEN, max_iter=passes, n_iter_no_change=passes,
        random_state=int(rng.integers(np.iinfo(np.int32).max)),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it ends with its passes
        estimator.fit((x - centre) / size, labels)
    inner = ReLUNetwork.from_sklearn(estimator)
    first = inner.weights[0] / size
    biases = [inner.biases[0] - first @ centre, *inner.biases[1:]]
    return ReLUNetwork([first, *inner.weights[1:]], biases)


def undecided(network: ReLUNetwork, x: FloatArray, count: int) -> FloatArray:
    """Return the inputs between whose two likeliest classes a network decides least."""
    out = network(x)
    top = np.sort(out, axis=1) if out.shape[1] > 1 else np.sort(np.append(out, -out, 1), axis=1)
    return np.asarray(x[np.argsort(top[:, -1] - top[:, -2])[:count]])


def predicted(network: Network, labels: tuple[float, ...], x: ArrayLike) -> FloatArray:
    """Return the labels that a network gives inputs ``(n, d)``, ``(n,)``."""
    out = network(x)
    index = out.argmax(axis=1) if out.shape[1] > 1 else (out[:, 0] > 0).astype(np.intp)
    return np.asarray(np.asarray(labels, dtype=np.float64)[index])
