"""Between :class:`Network` and scikit-learn's multilayer perceptrons."""

from __future__ import annotations

from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.activations import Activation, activation
from unrelu.errors import InvalidInput
from unrelu.networks import Network

__all__ = ["network_to_sklearn", "parts_from_sklearn"]

_NAMES = {"relu": "relu", "tanh": "tanh", "logistic": "logistic"}  # ours: theirs
_SUMS = {"relu", "leaky_relu", "abs", "hard_tanh", "relu6", "hard_sigmoid"}  # of ReLUs


def parts_from_sklearn(
    estimator: Any,
) -> tuple[list[FloatArray], list[FloatArray], list[Activation]]:
    """Read weights, biases and activations of a fitted scikit-learn MLP."""
    if not hasattr(estimator, "coefs_") or not hasattr(estimator, "intercepts_"):
        raise InvalidInput(
            f"{type(estimator).__name__} is not a fitted scikit-learn MLP: call fit first, and "
            "take the MLP out of a pipeline"
        )
    hidden = len(estimator.coefs_) - 1
    weights, biases = [w.T for w in estimator.coefs_], list(estimator.intercepts_)
    if estimator.activation == "identity":  # one layer in several matrices
        while len(weights) > 1:
            w, b = weights.pop(1), biases.pop(1)
            weights[0], biases[0] = w @ weights[0], w @ biases[0] + b
        hidden = 0
    name = next((k for k, v in _NAMES.items() if v == estimator.activation), "relu")
    return weights, biases, [activation(name)] * hidden


def network_to_sklearn(network: Network, classes: ArrayLike | None) -> Any:
    """Return a fitted estimator that predicts what the network does."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import LabelBinarizer

    names = {phi.name for phi in network.activations} or {"relu"}
    if names != {"relu"} and names <= _SUMS:
        network, names = _as_relus(network), {"relu"}
    if len(names) > 1 or not names <= _NAMES.keys():
        raise InvalidInput(
            f"scikit-learn has no MLP with {network.activation_names}: one of "
            f"{', '.join(_NAMES)} in all hidden layers can be expressed, or sums of ReLUs"
        )
    weights, biases = _without_skip(network)
    labels = None if classes is None else np.unique(np.asarray(classes))
    if labels is not None and len(labels) == 2 == len(weights[-1]):
        weights[-1], biases[-1] = np.diff(weights[-1], axis=0), np.diff(biases[-1])
    m = len(weights[-1])
    if labels is not None and len(labels) != (2 if m == 1 else m):
        raise InvalidInput(f"{len(labels)} classes do not fit {network.output_dim} logits")
    sizes = tuple(len(w) for w in weights[:-1])
    options = {"hidden_layer_sizes": sizes, "activation": _NAMES[names.pop()]}
    estimator = MLPRegressor(**options) if labels is None else MLPClassifier(**options)
    estimator.coefs_ = [np.ascontiguousarray(w.T) for w in weights]
    estimator.intercepts_ = [np.array(b) for b in biases]
    estimator.n_features_in_ = network.input_dim
    estimator.n_layers_, estimator.n_outputs_ = len(weights) + 1, m
    estimator.out_activation_ = "identity"
    if labels is not None:
        estimator.out_activation_ = "logistic" if m == 1 else "softmax"
        estimator._label_binarizer = LabelBinarizer().fit(labels)
        estimator.classes_ = estimator._label_binarizer.classes_
    return estimator


def _as_relus(network: Network) -> Network:
    """Return a network of piecewise linear units as one of ReLUs, two for each unit.

    ``phi(z) = [z] - a [-z]`` for a slope a below zero, ``[z + 1] - [z - 1] - 1`` for a hard tanh.
    """
    network = network.usual()
    weights, biases = list(network.weights), list(network.biases)
    for layer, phi in enumerate(network.activations):
        w, b, above = weights[layer], biases[layer], weights[layer + 1]
        if phi.name == "relu":
            continue
        if phi.name == "hard_tanh":
            weights[layer], biases[layer] = np.concatenate([w, w]), np.append(b + 1.0, b - 1.0)
            weights[layer + 1] = np.concatenate([above, -above], axis=1)
            biases[layer + 1] = biases[layer + 1] - above.sum(axis=1)
            continue
        slope = -1.0 if phi.name == "abs" else phi.parameters[..., 0]
        weights[layer], biases[layer] = np.concatenate([w, -w]), np.append(b, -b)
        weights[layer + 1] = np.concatenate([above, -above * slope], axis=1)
    return Network(weights, biases, "relu", network.skip)


def _without_skip(network: Network) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the layers; a ReLU network's skip term as pairs of units, ``s = [s] - [-s]``."""
    weights, biases = list(network.weights), list(network.biases)
    if network.skip is None:
        return weights, biases
    if network.depth != 2 or network.activations[0].name != "relu":
        raise InvalidInput("scikit-learn has no MLP with a skip term, and this one needs it")
    left, values, right = np.linalg.svd(network.skip, full_matrices=False)
    outer = left * values
    weights = [
        np.concatenate([weights[0], right, -right]),
        np.concatenate([weights[1], outer, -outer], axis=1),
    ]
    return weights, [np.concatenate([biases[0], np.zeros(2 * len(right))]), biases[1]]
