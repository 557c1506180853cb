"""Activations other than ReLU against the ground truth, through ``unrelu.extract``.

The activation, the width and the kind of answers are not told: every row connects a function and
calls ``extract`` as it stands. Trained scikit-learn models are connected as they are; targets
that are not one hidden layer may not be called recovered. ``ratio`` is queries over parameters,
the certificate's excluded; ``ratio_planned`` is what of it the look at the target took (diagnosis
and, unless an attempt at one hidden layer is cheaper, a first look); ``error`` is max |f - f^|
over 10,000 Gaussian inputs over std(f).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Row, main, priced
from unrelu import extract, planted
from unrelu._types import FloatArray
from unrelu.core.activations import Activation, activation
from unrelu.networks import Network
from unrelu.oracles import connect
from unrelu.oracles.adapters import NetworkOracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Softmax
from unrelu.result import RecoveryResult

SAMPLES = 10_000
FALSE = 1e-5  # error above which a RECOVERED is a false one, whatever was asked of the row
MESSAGE = 400  # characters that are kept of what a failed run said
PIECEWISE = ("leaky 0.01", "leaky 0.1", "prelu", "abs", "hard_tanh", "relu6", "hard_sigmoid")
TWO_KINKS = ("hard_tanh", "relu6", "hard_sigmoid")
SMOOTH = ("tanh", "logistic", "gelu", "gelu_tanh", "silu", "softplus", "elu", "sine")
USUAL = {
    "logistic": "tanh",
    "relu6": "hard_tanh",
    "hard_sigmoid": "hard_tanh",
    "softplus": "softplus",
}


def make(kind: str, k: int, seed: int) -> Activation:
    """Return an activation by its name in the table."""
    g = np.random.default_rng(seed + 77)
    if kind.startswith("leaky"):
        return activation("leaky_relu", float(kind.split()[1]))
    if kind == "prelu":
        return activation("leaky_relu", g.uniform(0.0, 0.5, k))
    if kind == "softplus":
        return activation("softplus", float(g.uniform(0.5, 4.0)))
    return activation(kind)


def planted_network(kind: str, shape: tuple[int, ...], seed: int) -> Network:
    plain = planted.random_network(*shape, rng=seed)
    hidden = [make(kind, width, seed + layer) for layer, width in enumerate(shape[1:-1])]
    return Network(plain.weights, plain.biases, hidden)


def error_of(
    network: Network | None, truth: Callable[[FloatArray], FloatArray], d: int, seed: int,
    *, centred: bool = False,
) -> float:  # fmt: skip
    if network is None:
        return float("inf")
    x = np.random.default_rng(seed + 999).standard_normal((SAMPLES, d))
    f, g = truth(x), network(x)
    if f.shape[1] == 1 and g.shape[1] == 2:  # two classes, one logit
        g = np.diff(g, axis=1)
    if centred and f.shape[1] > 1:
        f, g = (v - v.mean(axis=1, keepdims=True) for v in (f, g))
    return float(np.abs(f - g).max() / f.std())


def facts(result: RecoveryResult, parameters: int, error: float, success: bool) -> dict[str, Any]:
    spent = result.queries.without_certificate
    planned = next((stage.queries for stage in result.stages if stage.name == "plan"), 0)
    return {
        "success": success,
        "status": result.status.name,
        "error": error,
        "ratio": spent / parameters,
        "ratio_planned": planned / parameters,
        "queries": spent,
        "round_trips": result.queries.round_trips,
        "chosen": str(result.provenance.options.get("chosen", "")),
        "false": bool(result.success and error > FALSE),
        **({} if success else {"message": result.message[:MESSAGE]}),
        **priced(result),
    }


def form_of(network: Network | None) -> tuple[str, tuple[int, ...]]:
    """Return the activation of a recovered network, in its usual form, and its widths."""
    if network is None or not network.activations:
        return "", ()
    names = {phi.name for phi in network.activations}
    return "/".join(sorted(USUAL.get(name, name) for name in names)), network.hidden_widths


def piecewise(seed: int, kind: str, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    truth = planted_network(kind, shape, seed)
    result = extract(connect(truth.__call__, input_dim=shape[0], output_dim=shape[-1]), rng=seed)
    error = error_of(result.network, truth, shape[0], seed)
    kinks = 2 if kind in TWO_KINKS else 1
    determined = shape[1] <= shape[-1] * (shape[0] + 1)
    if len(shape) > 3 or kinks == 2:  # a second layer's kinks beyond what the first gives hide
        determined = len(shape) == 3 or kinks == 1
    usual = USUAL.get(kind, truth.activations[0].name)
    own = form_of(result.network) == (usual, shape[1:-1])
    success = result.success and error <= limit and (own or not determined)
    return facts(result, truth.parameters, error, success) | {"own_form": own}


def maxout(seed: int, shape: tuple[int, ...], limit: float) -> dict[str, Any]:
    """Maxout of two: ReLUs and an affine part, max(a, b) = [a - b] + b."""
    first, second = (planted.random_network(*shape, rng=g) for g in (seed, seed + 500_000))
    d, k, m = shape

    def truth(x: FloatArray) -> FloatArray:
        pieces = [x @ net.weights[0].T + net.biases[0] for net in (first, second)]
        return np.asarray(np.maximum(*pieces) @ first.weights[1].T)

    result = extract(connect(truth, input_dim=d, output_dim=m), rng=seed)
    error = error_of(result.network, truth, d, seed)
    own = form_of(result.network) == ("relu", (k,))
    success = result.success and error <= limit and own
    return facts(result, 2 * k * (d + 1) + m * (k + 1), error, success) | {"own_form": own}


def smooth(
    seed: int, kind: str, shape: tuple[int, ...], limit: float, dtype: str = "float64",
    softmax: bool = False,
) -> dict[str, Any]:  # fmt: skip
    truth = planted_network(kind, shape, seed)
    oracle: Oracle = NetworkOracle(truth, dtype=dtype)
    if softmax:
        oracle = Softmax(oracle)
    result = extract(connect(oracle.__call__, input_dim=shape[0], output_dim=shape[-1]), rng=seed)
    error = error_of(result.network, truth, shape[0], seed, centred=softmax)
    found = form_of(result.network) == (USUAL.get(kind, kind), shape[1:-1])
    success = result.success and found and error <= limit
    outcome = facts(result, truth.parameters, error, success)
    margin = min(float(getattr(result, "margin", 0.0)), 1e300)
    return outcome | {"activation_found": found, "margin": margin}


def trained(seed: int, data: str, kind: str, width: int, limit: float) -> dict[str, Any]:
    """A scikit-learn model as it is fitted by default, inputs scaled."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import StandardScaler

    load = {"diabetes": load_diabetes, "breast cancer": load_breast_cancer, "digits": load_digits}
    x, y = load[data](return_X_y=True)
    x = x / 16.0 if data == "digits" else StandardScaler().fit_transform(x)
    kinds = MLPRegressor if data == "diabetes" else MLPClassifier
    model = kinds(hidden_layer_sizes=(width,), activation=kind, random_state=seed, max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    truth = Network.from_sklearn(model)
    result = extract(connect(model), rng=seed)
    error = error_of(result.network, truth, truth.input_dim, seed, centred=True)
    own = form_of(result.network) == ("tanh", (width,))
    success = result.success and own and error <= limit
    return facts(result, truth.parameters, error, success) | {"own_form": own}


OTHERS = ("mixture", "two layers", "LayerNorm", "LayerNorm first", "attention")


def other_target(
    kind: str, seed: int, d: int = 10, k: int = 6
) -> Callable[[FloatArray], FloatArray]:
    """A smooth function that is no network of one hidden layer with one activation."""
    g = np.random.default_rng(seed)
    w, b = g.standard_normal((k, d)) / np.sqrt(d), 0.5 * g.standard_normal(k)
    v, c = g.standard_normal((k, k)) / np.sqrt(k), 0.5 * g.standard_normal(k)
    u = g.standard_normal((1, k)) / np.sqrt(k)
    names = ("tanh", "gelu", "silu", "softplus", "sine", "elu")
    phi = activation(names[seed % 6])
    psi = activation(names[(seed + 1 + seed // 6 % 5) % 6])
    query, key, value = g.standard_normal((3, 2, 2))

    def normed(z: FloatArray) -> FloatArray:
        centred = z - z.mean(axis=1, keepdims=True)
        return np.asarray(centred / np.sqrt(z.var(axis=1, keepdims=True) + 1e-5))

    def attention(x: FloatArray) -> FloatArray:
        tokens = x.reshape(len(x), -1, 2)
        score = (tokens @ query) @ np.swapaxes(tokens @ key, 1, 2) / np.sqrt(2.0)
        weight = np.exp(score - score.max(axis=2, keepdims=True))
        weight /= weight.sum(axis=2, keepdims=True)
        return np.asarray((weight @ (tokens @ value)).reshape(len(x), -1)[:, :k] @ u.T)

    def mixture(x: FloatArray) -> FloatArray:
        z = x @ w.T + b
        return np.asarray(np.concatenate([phi(z[:, : k // 2]), psi(z[:, k // 2 :])], axis=1) @ u.T)

    return {
        "mixture": mixture,
        "two layers": lambda x: phi(phi(x @ w.T + b) @ v.T + c) @ u.T,
        "LayerNorm": lambda x: phi(normed(x @ w.T + b)) @ u.T,
        "LayerNorm first": lambda x: phi(normed(x) @ w.T + b) @ u.T,
        "attention": attention,
    }[kind]


def other(seed: int) -> dict[str, Any]:
    """Every kind in turn; success is the absence of a false RECOVERED."""
    kind = OTHERS[seed % len(OTHERS)]
    truth = other_target(kind, seed)
    result = extract(connect(truth, input_dim=10, budget=200_000), rng=seed)
    error = error_of(result.network, truth, 10, seed)
    return {
        "success": not (result.success and error > FALSE),
        "status": result.status.name,
        "name": kind,
        "recovered": int(result.success),
        "error_if_copied": error if result.copied else None,
        "queries": result.queries.total,
    }


def _row(
    name: str, run: Callable[..., dict[str, Any]], count: int, least: int, error: float,
    ratio: float | None, timeout: float = 300.0,
) -> Row:  # fmt: skip
    target = {"success": least, "max:error": error} | ({} if ratio is None else {"ratio": ratio})
    return Row(name, partial(run, limit=error), range(12_000, 12_000 + count), target, timeout)


def _text(shape: tuple[int, ...]) -> str:
    return "-".join(map(str, shape))


SHAPES = ((20, 10, 1), (10, 40, 1), (64, 32, 10))
ROWS = [
    *(
        _row(
            f"{kind} {_text(shape)}", partial(piecewise, kind=kind, shape=shape), 20, 20, 1e-9,
            4.0 if kind in TWO_KINKS else 2.5,
        )
        for kind in PIECEWISE
        for shape in SHAPES
    ),
    *(
        _row(f"maxout {_text(shape)}", partial(maxout, shape=shape), 20, 20, 1e-9, 2.5)
        for shape in SHAPES
    ),
    *(
        _row(f"{kind} 12-8-6-1", partial(piecewise, kind=kind, shape=(12, 8, 6, 1)), 10, 10, 1e-9,
             None)
        for kind in PIECEWISE
    ),
    *(
        _row(f"{kind} 20-10-1", partial(smooth, kind=kind, shape=(20, 10, 1)), 20, 19, 1e-10, 12.0)
        for kind in SMOOTH
    ),
    *(
        _row(f"{kind} 64-32-10 {what}",
             partial(smooth, kind=kind, shape=(64, 32, 10), softmax=soft), 10, least, 1e-8, 6.0)
        for kind in SMOOTH
        for what, soft, least in (("logits", False, 9), ("softmax", True, 8))
    ),
    *(
        _row(f"{kind} 10-20-1", partial(smooth, kind=kind, shape=(10, 20, 1)), 10, 8, 1e-8, None)
        for kind in ("tanh", "gelu")
    ),
    *(
        _row(f"{kind} {_text(shape)} float32",
             partial(smooth, kind=kind, shape=shape, dtype="float32"), count, least, 1e-5, None)
        for kind in ("tanh", "gelu")
        for shape, count, least in (((20, 10, 1), 20, 18), ((64, 32, 10), 10, 8))
    ),
    *(
        _row(f"{data} {kind} ({width},)", partial(trained, data=data, kind=kind, width=width),
             10, 9, 1e-6, None, 900.0)
        for data in ("diabetes", "breast cancer", "digits")
        for kind in ("tanh", "logistic")
        for width in (20, 100)
    ),
    Row("not one hidden layer", other, range(13_000, 13_200), {"success": 200}, 120.0, 5),
]  # fmt: skip

if __name__ == "__main__":
    main("activations", ROWS)
