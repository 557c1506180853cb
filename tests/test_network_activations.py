"""Networks with other activations: forms, files, exports, comparison."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unrelu import InvalidInput, ReLUNetwork, compare
from unrelu.core.activations import KINDS, activation
from unrelu.networks import Network
from unrelu.oracles.adapters import NetworkOracle

NAMES = [name for name in KINDS if name != "spline"]
X = np.random.default_rng(5).normal(size=(64, 3))
# A few hundred roundings of numbers below 100.
ROUNDING = 1e-12


def planted(name, seed=0, outputs=2, skip=False, depth=2):
    g = np.random.default_rng(seed)
    phi = activation(name)
    if name == "leaky_relu":
        phi = activation(name, g.uniform(0.1, 0.9, 4))
    if name == "softplus":
        phi = activation(name, 3.0)
    widths = [3, 4, 5, outputs] if depth == 3 else [3, 4, outputs]
    weights = [g.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]
    biases = [g.normal(size=b) for b in widths[1:]]
    activations = [phi, "tanh"] if depth == 3 else [phi]
    return Network(weights, biases, activations, g.normal(size=(outputs, 3)) if skip else None)


@pytest.mark.parametrize("name", NAMES)
def test_canonical_and_usual_form_keep_the_function(name):
    network = planted(name, skip=True, depth=3)
    for form in (network.canonical(), network.usual(), network.usual().canonical()):
        np.testing.assert_allclose(form(X), network(X), rtol=0, atol=ROUNDING)
    assert network.usual().activations[0].name not in {"logistic", "relu6", "hard_sigmoid"}


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_read_again(name, tmp_path):
    network = planted(name, skip=True)
    path = network.save(tmp_path / "n.safetensors")
    assert Network.load(path) == network
    assert hash(Network.load(path)) == hash(network)
    if name == "relu":
        assert isinstance(Network.load(path), ReLUNetwork)
        assert ReLUNetwork.load(path) == network
    else:
        assert network != planted("relu", skip=True)
        with pytest.raises(InvalidInput, match="not 'relu'"):
            ReLUNetwork.load(path)


@pytest.mark.parametrize("name", NAMES)
def test_onnx_answers_the_same(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    network = planted(name, skip=True, depth=3)
    # onnxruntime has no Erf in double; float32 leaves 1e-6 of numbers of size ten.
    dtype, tolerance = ("float32", 1e-4) if name == "gelu" else ("float64", ROUNDING)
    path = network.to_onnx(tmp_path / "n.onnx", dtype=dtype)
    answers = runtime.InferenceSession(str(path)).run(None, {"x": X.astype(dtype)})[0]
    np.testing.assert_allclose(answers, network(X), rtol=0, atol=tolerance)


def test_a_spline_is_evaluated_but_not_exported(tmp_path):
    pytest.importorskip("onnx")
    from unrelu.core.activations import spline

    values = np.tile(np.sin(np.linspace(-3, 3, 31)), (4, 1))
    phi = spline(np.full(4, -3.0), np.full(4, 3.0), values)
    network = Network(planted("tanh").weights, planted("tanh").biases, phi)
    assert network(X).shape == (64, 2)
    assert Network.load(network.save(tmp_path / "s.safetensors")) == network
    with pytest.raises(InvalidInput, match="spline"):
        network.to_onnx(tmp_path / "s.onnx")
    with pytest.raises(InvalidInput, match="spline"):
        network.to_sklearn()


SUMS = ["relu", "leaky_relu", "abs", "hard_tanh", "relu6", "hard_sigmoid"]


@pytest.mark.parametrize("name", [*SUMS, "tanh", "logistic"])
def test_scikit_learn_predicts_the_same(name):
    network = planted(name, outputs=3, skip=name in SUMS)
    model = network.to_sklearn()
    np.testing.assert_allclose(model.predict(X), network(X), rtol=0, atol=ROUNDING)
    classes = ["ant", "bee", "cat"]
    model = network.to_sklearn(classes=classes)
    assert [classes[i] for i in network(X).argmax(axis=1)] == list(model.predict(X))
    logits, expected = (
        v - v.mean(axis=1, keepdims=True) for v in (np.log(model.predict_proba(X)), network(X))
    )
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-10)
    again = Network.from_sklearn(model)
    np.testing.assert_allclose(again(X), network(X), rtol=0, atol=ROUNDING)


def test_two_logits_are_one_of_scikit_learn():
    network = planted("tanh", outputs=2)
    model = network.to_sklearn(classes=[0, 1])
    p = model.predict_proba(X)
    np.testing.assert_allclose(
        np.log(p[:, 1] / p[:, 0]), np.diff(network(X), axis=1)[:, 0], rtol=0, atol=1e-10
    )


def test_what_scikit_learn_cannot_express_is_refused():
    for network in (planted("gelu"), planted("tanh", skip=True), planted("relu", depth=3)):
        with pytest.raises(InvalidInput):
            network.to_sklearn()
    with pytest.raises(InvalidInput, match="classes"):
        planted("tanh", outputs=3).to_sklearn(classes=[0, 1])
    with pytest.raises(InvalidInput, match="not 'relu'"):
        ReLUNetwork.from_sklearn(planted("tanh").to_sklearn())


class Tensor:
    """What is used of a torch tensor."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=np.float64)

    def detach(self):
        return self

    cpu = double = detach

    def numpy(self):
        return self.values


def module(kind, **attributes):
    return type(kind, (), attributes)()


def linear(w, b):
    return module("Linear", weight=Tensor(w), bias=None if b is None else Tensor(b))


def norm(g, k):
    return module(
        "BatchNorm1d",
        running_mean=Tensor(g.normal(size=k)), running_var=Tensor(g.uniform(1, 2, k)),
        weight=Tensor(g.normal(size=k)), bias=Tensor(g.normal(size=k)), eps=1e-5,
    )  # fmt: skip


def normed(layer, z):
    scale = layer.weight.values / np.sqrt(layer.running_var.values + layer.eps)
    return (z - layer.running_mean.values) * scale + layer.bias.values


class Sequence:
    def __init__(self, *layers):
        self.layers = layers

    def modules(self):
        return [module("Sequential"), *self.layers]


def test_batch_norms_fold():
    g = np.random.default_rng(3)
    w, b, u = g.normal(size=(4, 3)), g.normal(size=4), g.normal(size=(2, 4))
    first, middle, after = norm(g, 3), norm(g, 4), norm(g, 4)
    layers = first, linear(w, b), middle, module("Tanh"), after, module("Dropout"), linear(u, None)
    hidden = normed(after, np.tanh(normed(middle, normed(first, X) @ w.T + b)))
    network = Network.from_torch(Sequence(*layers))
    np.testing.assert_allclose(network(X), hidden @ u.T, rtol=0, atol=ROUNDING)
    assert network.activation_names == "tanh"


def test_torch_activations_are_read():
    w = np.eye(3)
    kinds = {
        "gelu": module("GELU", approximate="none"),
        "gelu_tanh": module("GELU", approximate="tanh"),
        "softplus(2)": module("Softplus", beta=2.0),
        "leaky_relu(0.2)": module("LeakyReLU", negative_slope=0.2),
        "leaky_relu(0.1 to 0.3, by unit)": module("PReLU", weight=Tensor([0.1, 0.2, 0.3])),
        "elu": module("ELU", alpha=1.0),
        "hard_tanh": module("Hardtanh", min_val=-1.0, max_val=1.0),
    }
    for name, layer in kinds.items():
        network = Network.from_torch(Sequence(linear(w, None), layer, linear(w, None)))
        assert network.activation_names == name
    for bad in (module("ELU", alpha=2.0), module("LayerNorm")):
        with pytest.raises(InvalidInput, match="cannot read"):
            Network.from_torch(Sequence(linear(w, None), bad, linear(w, None)))


@pytest.mark.parametrize("name", NAMES)
def test_comparison_knows_the_symmetries(name):
    network = planted(name)
    g = np.random.default_rng(1)
    order = g.permutation(4)
    scale = g.uniform(0.5, 2.0, 4) if network.activations[0].homogeneous else np.ones(4)
    phi = network.activations[0]
    w, u = network.weights
    b, c = network.biases
    mirror = phi.mirror
    sign = np.ones(4)
    if mirror is not None and mirror.slope == 0.0:
        sign = np.array([1.0, -1.0, -1.0, 1.0])
        c = c - mirror.sign * mirror.offset * u[:, sign < 0].sum(axis=1)
        b = np.where(sign < 0, 2 * mirror.center - b, b)
        u = u * np.where(sign < 0, mirror.sign, 1.0)
    other = Network(
        [(w * (sign * scale)[:, None])[order], (u / scale)[:, order]],
        [(b * scale)[order], c],
        phi.taken(order),
    )
    same = compare(other, network)
    assert same.max_parameter_error < ROUNDING
    assert same.relative_error < ROUNDING
    assert same.matched == (4,)
    assert compare(other.usual(), network).max_parameter_error < ROUNDING
    # A perturbed weight is seen at its own size, in units of a row of unit length at most.
    bump = 1e-3 * (np.arange(12) == 5).reshape(4, 3)
    moved = Network([network.weights[0] + bump, network.weights[1]], network.biases, phi)
    assert 1e-5 < compare(moved, network).max_parameter_error < 1e-2


def test_turned_units_count_with_a_skip_term_only():
    network = planted("gelu", skip=True)
    w, u = network.weights
    turned = Network(
        [-w, u], [-network.biases[0], network.biases[1] + u @ network.biases[0]], "gelu",
        network.skip + u @ w,
    )  # fmt: skip
    np.testing.assert_allclose(turned(X), network(X), rtol=0, atol=ROUNDING)
    assert compare(turned, network).max_parameter_error < ROUNDING
    assert compare(planted("tanh"), planted("sine")).unmatched == 8


def test_a_network_is_a_target_in_both_precisions():
    network = planted("gelu")
    answers = NetworkOracle(network, dtype="float32")(X)
    # float32: 1e-7 of terms of size ten.
    np.testing.assert_allclose(answers, network(X), rtol=0, atol=1e-4)
    assert not np.array_equal(answers, network(X))


def test_bad_networks_are_refused():
    w, u = planted("tanh").weights
    b, c = planted("tanh").biases
    with pytest.raises(InvalidInput, match="hidden layers"):
        Network([w, u], [b, c], ["tanh", "tanh"])
    with pytest.raises(InvalidInput, match="parameters of their own"):
        Network([w, u], [b, c], activation("prelu", [0.1, 0.2]))
    assert "gelu" in repr(planted("gelu"))
