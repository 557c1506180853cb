"""Models in memory and in files: the same answers, the same recovery, no code executed."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
from one_network import NETWORK, check_same

from unrelu import InvalidInput, ReLUNetwork, connect, diagnose, planted
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.oracles import EstimatorOracle, OnnxOracle
from unrelu.result import Status

X = np.random.default_rng(0).standard_normal((40, 10))


def regressor(network: ReLUNetwork = NETWORK):
    """A scikit-learn MLP with the planted weights."""
    from sklearn.neural_network import MLPRegressor

    model = MLPRegressor(hidden_layer_sizes=network.hidden_widths, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge, and need not
        model.fit(X, np.zeros((len(X), network.output_dim)))
    model.coefs_ = [w.T.copy() for w in network.weights]
    model.intercepts_ = [b.copy() for b in network.biases]
    return model


def classifier():
    from sklearn.neural_network import MLPClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPClassifier(hidden_layer_sizes=(6,), max_iter=3, random_state=0).fit(
            X, np.arange(40) % 3
        )


def skops_file(folder, model):
    skops_io = pytest.importorskip("skops.io")
    skops_io.dump(model, folder / "model.skops")
    return str(folder / "model.skops")


TARGETS = {
    "callable": lambda folder: (NETWORK.__call__, {"input_dim": 10}),
    "network": lambda folder: (NETWORK, {}),
    "safetensors": lambda folder: (str(NETWORK.save(folder / "n.safetensors")), {}),
    "sklearn": lambda folder: (regressor(), {}),
    "skops": lambda folder: (skops_file(folder, regressor()), {}),
    "onnx float64": lambda folder: (str(NETWORK.to_onnx(folder / "n.onnx")), {}),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_every_kind_of_target_gives_the_same_network_and_certificate(tmp_path, kind):
    target, options = TARGETS[kind](tmp_path)
    oracle = connect(target, **options)
    # Two orders of summation differ by a few roundings of the largest term.
    assert np.abs(oracle(X) - NETWORK(X)).max() < 1e-13
    check_same(oracle)


def test_a_float32_onnx_file_is_recovered_at_its_precision(tmp_path):
    path = NETWORK.to_onnx(tmp_path / "n.onnx", dtype="float32")
    check_same(connect(str(path)), error=1e-4)


def test_identities_are_stable_across_processes_and_tell_models_apart(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_targets as t; "
        "from unrelu import connect; print(connect(t.classifier()).identity)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(__file__).rsplit("/", 1)[0]],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == connect(classifier()).identity
    other = planted.random_network(10, 6, 2, rng=1)
    assert connect(regressor()).identity != connect(regressor(other)).identity
    one, two = NETWORK.to_onnx(tmp_path / "1.onnx"), other.to_onnx(tmp_path / "2.onnx")
    assert connect(str(one)).identity != connect(str(two)).identity


def test_a_classifier_shows_probabilities_unless_told_otherwise():
    model = classifier()
    assert np.array_equal(connect(model)(X), model.predict_proba(X))
    assert np.array_equal(connect(model, output="predict")(X)[:, 0], model.predict(X))
    with pytest.raises(InvalidInput, match="has no decision_function"):
        connect(model, output="decision_function")
    with pytest.raises(InvalidInput, match="method must be"):
        EstimatorOracle(model, method="fit")
    from sklearn.svm import SVC

    with pytest.raises(InvalidInput, match="call fit"):
        connect(SVC())


def test_a_pipeline_is_an_estimator():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, np.arange(40) % 2)
    assert np.array_equal(connect(model)(X), model.predict_proba(X))


def test_onnx_outputs_of_a_converted_classifier(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    model = classifier()
    for zipmap, kind in ((False, DoubleTensorType), (True, FloatTensorType)):
        kinds = [("input", kind([None, 10]))]
        path = tmp_path / f"{zipmap}.onnx"
        options = {id(model): {"zipmap": zipmap}}
        path.write_bytes(
            skl2onnx.convert_sklearn(
                model, initial_types=kinds, options=options, target_opset=17
            ).SerializeToString()
        )
        oracle = connect(str(path))
        # The second file computes in float32.
        assert np.abs(oracle(X) - model.predict_proba(X)).max() < 1e-6
        label = next(o for o in ("label", "output_label") if _has_output(path, o))
        assert np.array_equal(connect(str(path), output=label)(X)[:, 0], model.predict(X))
    with pytest.raises(InvalidInput, match="it has:"):
        OnnxOracle(str(path), output="nothing")


def _has_output(path, name: str) -> bool:
    import onnx

    return any(output.name == name for output in onnx.load(path).graph.output)


def image_model(path, batch="n", channels=1, side=4, sizes_known=True):
    """An ONNX model of (n, c, s, s) images: flatten, then one affine layer."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    d = channels * side * side
    weights = np.random.default_rng(2).standard_normal((d, 2))
    tail = [channels, side, side] if sizes_known else ["c", "h", "w"]
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"], axis=1),
            helper.make_node("MatMul", ["flat", "w"], ["scores"]),
        ],
        "g",
        [helper.make_tensor_value_info("image", TensorProto.DOUBLE, [batch, *tail])],
        [helper.make_tensor_value_info("scores", TensorProto.DOUBLE, [batch, 2])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return str(path), weights


def test_shapes_are_discovered_or_asked_for(tmp_path):
    path, weights = image_model(tmp_path / "a.onnx")
    oracle = connect(path)
    x = np.random.default_rng(0).random((5, 16))
    assert oracle.input_dim == 16
    assert oracle.row_shape == (1, 4, 4)
    assert np.abs(oracle(x) - x @ weights).max() < 1e-12  # 16 terms of order one
    with pytest.raises(InvalidInput, match="not"):
        connect(path, shape=(4, 4))
    path, weights = image_model(tmp_path / "b.onnx", batch=1)  # one image at a time
    assert np.abs(connect(path)(x) - x @ weights).max() < 1e-12
    path, weights = image_model(tmp_path / "c.onnx", sizes_known=False)
    with pytest.raises(InvalidInput, match="--shape"):
        connect(path)
    assert np.abs(connect(path, shape=(1, 4, 4))(x) - x @ weights).max() < 1e-12


def test_callables_get_the_shape_they_want():
    seen = []

    def model(images):
        seen.append(images.shape)
        return images.sum(axis=(1, 2))

    oracle = connect(model, shape=(2, 3))
    assert oracle.input_dim == 6
    oracle(np.zeros((4, 6)))
    assert seen == [(1, 2, 3), (4, 2, 3)]
    for shape in ((), (0, 2)):
        with pytest.raises(InvalidInput, match="positive sizes"):
            connect(model, shape=shape)
    with pytest.raises(InvalidInput, match="have 6 inputs, not 7"):
        connect(model, shape=(2, 3), input_dim=7)


def test_a_jax_function_is_a_callable():
    jax = pytest.importorskip("jax", reason="run: make environments torch")
    weights = np.random.default_rng(0).standard_normal((10, 2)).astype(np.float32)

    def model(scale):
        parameters = jax.numpy.asarray(scale * weights)
        return connect(jax.jit(lambda x: jax.numpy.maximum(x @ parameters, 0)), input_dim=10)

    # JAX computes in float32 unless told otherwise.
    assert np.abs(model(1)(X) - np.maximum(X @ weights, 0)).max() < 1e-4
    assert model(1).identity == model(1).identity != model(2).identity


def test_scale_and_range_give_the_algorithms_a_box():
    asked = []

    def pixels(x):
        asked.append(x)
        assert x.min() >= 0
        assert x.max() <= 255
        return NETWORK(x / 127.5 - 1.0)

    oracle = connect(pixels, input_dim=10, scale=255.0, input_range=(0, 255))
    low, high = oracle.box
    assert np.array_equal(low, np.zeros(10))
    assert np.array_equal(high, np.ones(10))
    diagnosis = diagnose(oracle)
    assert diagnosis.kind == "values"
    result = extract_two_layer(oracle, domain=oracle.box, rng=0)
    assert result.status is Status.RECOVERED
    x = np.random.default_rng(0).random((200, 10))
    assert np.abs(result.network(x) - NETWORK(2 * x - 1)).max() < 1e-9
    before = len(asked)
    with pytest.raises(InvalidInput, match="outside the range"):
        oracle(np.full((1, 10), 1.5))
    assert len(asked) == before
    shifted = connect(lambda x: x.sum(axis=1), input_dim=2, input_range=(1, 2))
    assert np.array_equal(shifted(np.full((1, 2), 1.5)), [[3.0]])
    for options in ({"scale": 0.0}, {"scale": -1.0}, {"input_range": (1, 1)}):
        with pytest.raises(InvalidInput):
            connect(pixels, input_dim=10, **options)


# ------------------------------------------------------------------- security


class Bomb:
    """Unpickling this writes a file."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return (exec, (f"open({str(self.path)!r}, 'w').write('boom')",))


@pytest.mark.parametrize(
    "suffix", [".pkl", ".pickle", ".joblib", ".onnx", ".skops", ".safetensors"]
)
def test_a_pickle_under_any_name_is_never_opened(tmp_path, suffix):
    crater = tmp_path / "crater"
    path = tmp_path / f"model{suffix}"
    path.write_bytes(pickle.dumps(Bomb(crater)))
    with pytest.raises(InvalidInput):
        connect(str(path))
    assert not crater.exists()


def test_a_skops_file_with_foreign_types_is_refused_by_name(tmp_path):
    skops_io = pytest.importorskip("skops.io")
    path = tmp_path / "model.skops"
    skops_io.dump({"a": subprocess.Popen}, path)
    with pytest.raises(InvalidInput, match=r"subprocess\.Popen"):
        connect(str(path))
    # A schema that was edited by hand to call a function.
    content = io.BytesIO()
    crater = tmp_path / "crater"
    with zipfile.ZipFile(content, "w") as archive:
        schema = {
            "__class__": "system", "__module__": "os", "__loader__": "ObjectNode", "__id__": 1,
            "content": {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode",
                        "__id__": 2, "content": json.dumps(f"touch {crater}"), "is_json": True},
            "protocol": 2, "_skops_version": "0.11",
        }  # fmt: skip
        archive.writestr("schema.json", json.dumps(schema))
    path.write_bytes(content.getvalue())
    with pytest.raises(InvalidInput):
        connect(str(path))
    assert not crater.exists()
    path.write_bytes(skops_io.dumps([1, 2, 3]))
    with pytest.raises(InvalidInput, match="not an estimator"):
        connect(str(path))


@pytest.mark.parametrize("where", ["initializer", "constant"])
def test_an_onnx_file_that_reaches_for_other_files_is_refused(tmp_path, where):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    (tmp_path / "secret").write_bytes(b"\0" * 160)
    tensor = TensorProto(name="w", data_type=TensorProto.DOUBLE, dims=[10, 2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if where == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n", 10])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n", 2])],
        [tensor] if where == "initializer" else [],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(InvalidInput, match=r"\.\./\.\./secret"):
        connect(str(path))
    assert onnx


@pytest.mark.parametrize("damage", ["empty", "noise", "cut", "operator"])
def test_a_damaged_onnx_file_is_an_error(tmp_path, damage):
    onnx = pytest.importorskip("onnx")
    path = NETWORK.to_onnx(tmp_path / "n.onnx")
    content = path.read_bytes()
    if damage == "operator":
        model = onnx.load(path)
        model.graph.node[0].op_type = "Evil"
        model.graph.node[0].domain = "evil"
        content = model.SerializeToString()
    bad = {
        "empty": b"", "noise": bytes(range(256)) * 4, "cut": content[: len(content) // 2],
        "operator": content,
    }  # fmt: skip
    path.write_bytes(bad[damage])
    with pytest.raises(InvalidInput):
        connect(str(path))


def test_missing_files_are_told():
    for name in ("no.onnx", "no.skops", "no.safetensors"):
        with pytest.raises(InvalidInput, match="no file"):
            connect(name)
