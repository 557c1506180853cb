"""ReLUNetwork: evaluation, canonical form, files, exports, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrelu import InvalidInput, ReLUNetwork, planted


def by_hand(network: ReLUNetwork, x: np.ndarray) -> np.ndarray:
    """The definition, one row at a time."""
    out = []
    for row in x:
        value = row
        for w, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
            value = np.maximum(0, [float(np.dot(r, value)) + c for r, c in zip(w, b, strict=True)])
        y = network.weights[-1] @ value + network.biases[-1]
        out.append(y if network.skip is None else y + network.skip @ row)
    return np.array(out)


@given(
    widths=st.lists(st.integers(1, 7), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
    skip=st.booleans(),
)
def test_evaluates_its_definition_and_keeps_it_in_canonical_form(widths, seed, skip):
    rng = np.random.default_rng(seed)
    net = planted.random_network(*widths, rng=rng)
    if skip:
        net = ReLUNetwork(net.weights, net.biases, rng.standard_normal((widths[-1], widths[0])))
    x = rng.standard_normal((9, widths[0]))
    expected = by_hand(net, x)
    # A few hundred roundings of numbers of size one.
    np.testing.assert_allclose(net(x), expected, rtol=0, atol=1e-12)
    canonical = net.canonical()
    np.testing.assert_allclose(canonical(x), expected, rtol=0, atol=1e-11)
    for w in canonical.weights[:-1]:
        np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1.0, atol=1e-14)
        assert (np.diff(w[:, 0]) >= 0).all()
    again = canonical.canonical()
    for a, b in zip(again.weights, canonical.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_canonical_form_of_zero_rows_has_unit_bias():
    net = ReLUNetwork([[[0.0, 0.0], [3.0, 4.0]], [[2.0, 1.0]]], [[-4.0, 5.0], [1.0]])
    canonical = net.canonical()
    assert sorted(np.linalg.norm(canonical.weights[0], axis=1)) == [0.0, 1.0]
    assert np.sort(canonical.biases[0]).tolist() == [-1.0, 1.0]


def test_shape_facts():
    net = planted.random_network(784, 128, 10, rng=0)
    assert (net.input_dim, net.output_dim, net.depth) == (784, 10, 2)
    assert net.hidden_widths == (128,)
    assert net.architecture == "784-128-10"
    assert net.parameters == 784 * 128 + 128 + 1280 + 10
    assert "784-128-10" in repr(net)
    with_skip = ReLUNetwork(net.weights, net.biases, np.zeros((10, 784)))
    assert with_skip.parameters == net.parameters + 7840


def test_is_frozen_and_compares_by_bits():
    net = planted.random_network(3, 2, 1, rng=0)
    with pytest.raises(ValueError):
        net.weights[0][0, 0] = 1.0
    with pytest.raises(AttributeError):
        net.weights = ()
    assert net == planted.random_network(3, 2, 1, rng=0)
    assert hash(net) == hash(planted.random_network(3, 2, 1, rng=0))
    assert net != planted.random_network(3, 2, 1, rng=1)


@pytest.mark.parametrize(
    ("weights", "biases", "skip", "match"),
    [
        ([], [], None, "at least one"),
        ([[[1.0]]], [], None, "as many bias"),
        ([[1.0]], [[1.0]], None, "2 dimensions"),
        ([[[1.0]]], [[1.0, 2.0]], None, "1 rows but biases 2"),
        ([[[1.0]], [[1.0, 2.0]]], [[0.0], [0.0]], None, "2 columns"),
        ([[[np.nan]]], [[0.0]], None, "NaN"),
        ([[["a"]]], [[0.0]], None, "not an array of numbers"),
        ([[[1.0]]], [[0.0]], [[1.0, 2.0]], "skip must have shape"),
    ],
)
def test_bad_parameters_are_refused(weights, biases, skip, match):
    with pytest.raises(InvalidInput, match=match):
        ReLUNetwork(weights, biases, skip)


def test_wrong_input_shape_is_refused():
    net = planted.random_network(3, 2, 1, rng=0)
    with pytest.raises(InvalidInput, match=r"\(n, 3\)"):
        net(np.zeros((4, 2)))
    with pytest.raises(InvalidInput):
        net(np.zeros(3))


def test_save_and_load_keep_every_bit(tmp_path):
    net = planted.random_network(5, 4, 3, 2, rng=0)
    net = ReLUNetwork(net.weights, net.biases, np.random.default_rng(1).standard_normal((2, 5)))
    path = net.save(tmp_path / "net.safetensors")
    assert ReLUNetwork.load(path) == net


def test_loading_rubbish_gives_a_clear_error(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(InvalidInput, match="no file"):
        ReLUNetwork.load(path)
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(InvalidInput, match="not a readable"):
        ReLUNetwork.load(path)
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(InvalidInput, match="holds no unrelu network"):
        ReLUNetwork.load(path)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("skip", [False, True])
def test_onnx_export_answers_the_same(tmp_path, dtype, skip):
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    net = planted.random_network(6, 5, 4, 3, rng=rng)
    if skip:
        net = ReLUNetwork(net.weights, net.biases, rng.standard_normal((3, 6)))
    path = net.to_onnx(tmp_path / "net.onnx", dtype=dtype)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = rng.standard_normal((11, 6))
    y = session.run(["y"], {"x": x.astype(dtype)})[0]
    # Rounding of sums of a few terms of size one, in either precision.
    tolerance = 1e-14 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(y, net(x), rtol=0, atol=tolerance)


def test_onnx_refuses_other_types(tmp_path):
    pytest.importorskip("onnx")
    with pytest.raises(InvalidInput, match="float64"):
        planted.random_network(2, 2, 1, rng=0).to_onnx(tmp_path / "n.onnx", dtype="int8")


def test_torch_round_trip():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    net = planted.random_network(6, 5, 4, 3, rng=rng)
    x = rng.standard_normal((11, 6))
    module = net.to_torch()
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), net(x), atol=1e-13)
    assert ReLUNetwork.from_torch(module) == net
    with_skip = ReLUNetwork(net.weights, net.biases, rng.standard_normal((3, 6)))
    out = with_skip.to_torch()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(out, with_skip(x), atol=1e-13)
    with pytest.raises(InvalidInput, match="Tanh"):
        ReLUNetwork.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()))


def test_sklearn_networks_give_their_logits():
    net, model = planted.digits_classifier(16, rng=0, iterations=5)
    x = np.random.default_rng(0).random((20, 64))
    from scipy.special import softmax

    np.testing.assert_allclose(softmax(net(x), axis=1), model.predict_proba(x), atol=1e-13)
    net, model = planted.diabetes_regressor(8, rng=0, iterations=20)
    x = np.random.default_rng(0).standard_normal((20, 10))
    np.testing.assert_allclose(net(x)[:, 0], model.predict(x), atol=1e-13)


def test_sklearn_without_weights_or_relu_is_refused():
    from sklearn.neural_network import MLPRegressor

    with pytest.raises(InvalidInput, match="call fit first"):
        ReLUNetwork.from_sklearn(MLPRegressor())
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPRegressor(hidden_layer_sizes=(3,), activation="tanh", max_iter=1)
        model.fit(np.eye(4), np.arange(4.0))
    with pytest.raises(InvalidInput, match="tanh"):
        ReLUNetwork.from_sklearn(model)
