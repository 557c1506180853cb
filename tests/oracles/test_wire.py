"""Protocols by name, against the requests and answers that their documentation shows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_http import FAST, Scripted, X, model

from unrelu import InvalidAnswer, InvalidInput, OracleError, connect
from unrelu.oracles import HTTPOptions
from unrelu.oracles.wire.columns import Columns
from unrelu.oracles.wire.services import service

SIGNATURE = {
    "model_spec": {"name": "m", "signature_name": "", "version": "1"},
    "metadata": {"signature_def": {"signature_def": {"serving_default": {
        "inputs": {"x": {"dtype": "DT_FLOAT", "name": "x:0", "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}, {"size": "3", "name": ""}],
            "unknown_rank": False}}},
        "outputs": {}, "method_name": "tensorflow/serving/predict"}}}},
}  # fmt: skip


def say(message):
    return 200, {}, json.dumps(message).encode()


# ------------------------------------------------------------ one at a time


def test_tensorflow_serving_tells_its_shape_and_answers_rows():
    def respond(path, body, n):
        if path.endswith("/v1/models/m/metadata"):
            return say(SIGNATURE)
        if path.endswith("/v1/models/m:predict"):
            return say({"predictions": model(np.asarray(json.loads(body)["instances"])).tolist()})
        return 404, {}, b'{"error": "no such thing"}'

    with Scripted(respond) as server:
        for address in ("/v1/models/m", "/v1/models/m:predict"):
            oracle = connect(server.root + address)
            assert oracle.input_dim == 3
            assert np.array_equal(oracle(X), model(X))


def test_tensorflow_serving_with_a_version_and_named_outputs():
    def respond(path, body, n):
        if path.endswith("/metadata"):
            return 404, {}, b"{}"
        assert path.endswith("/v1/models/m/versions/7:predict")
        values = model(np.asarray(json.loads(body)["instances"]))
        return say(
            {"predictions": [{"classes": 1, "logits": y.tolist(), "other": [1.0]} for y in values]}
        )

    with Scripted(respond) as server:
        address = server.root + "/v1/models/m/versions/7"
        assert np.array_equal(connect(address, input_dim=3)(X), model(X))
        assert connect(address, input_dim=3, output="other").output_dim == 1
        with pytest.raises(InvalidInput, match="does not tell how many inputs"):
            connect(address)


@pytest.mark.parametrize(
    ("protocol", "address", "rows_of", "reply"),
    [
        ("auto", "/predictions/m", lambda m: m["instances"],
         lambda y: {"predictions": y.tolist()}),
        ("auto", "/endpoints/m/invocations", lambda m: [r["features"] for r in m["instances"]],
         lambda y: {"predictions": [{"score": r.tolist(), "predicted_label": int(r.argmax())}
                                    for r in y]}),
        ("sagemaker", "/invocations", lambda m: [r["features"] for r in m["instances"]],
         lambda y: {"predictions": [{"score": float(r[0]), "predicted_label": 0} for r in y]}),
        ("auto", "/invocations", lambda m: m["inputs"], lambda y: {"predictions": y.tolist()}),
        ("huggingface", "/models/a/b", lambda m: m["inputs"],
         lambda y: [[{"label": f"LABEL_{j}", "score": float(r[j])} for j in np.argsort(-r)]
                    for r in y]),
        ("auto", "/anything", lambda m: m["instances"], lambda y: {"predictions": y.tolist()}),
        ("auto", "/anything", lambda m: m["data"], lambda y: {"probabilities": y.tolist()}),
        ("auto", "/anything", lambda m: np.asarray(m), lambda y: y.tolist()),
    ],
)  # fmt: skip
def test_services_by_name_and_by_address(protocol, address, rows_of, reply):
    def respond(path, body, n):
        try:
            points = np.asarray(rows_of(json.loads(body)), dtype=float)
            return say(reply(model(points)))
        except (KeyError, TypeError):
            return 422, {}, b'{"detail": "field required"}'

    with Scripted(respond) as server:
        oracle = connect(
            server.root + address, input_dim=3, http=HTTPOptions(protocol=protocol, **FAST)
        )
        assert np.array_equal(oracle(X), model(X)[:, : oracle.output_dim])


def test_an_address_that_answers_nothing_usual_is_told_what_was_tried():
    with (
        Scripted(lambda path, body, n: (422, {}, b"{}")) as server,
        pytest.raises(InvalidInput, match=r'Tried \{"instances": rows\}: status 422'),
    ):
        connect(server.root + "/predict", input_dim=3)
    with (
        Scripted(lambda path, body, n: (404, {}, b"gone")) as server,
        pytest.raises(OracleError, match="404"),
    ):
        connect(server.root + "/predict", input_dim=3)


def test_what_was_tried_is_charged():
    def respond(path, body, n):
        message = json.loads(body)
        if "data" not in message:
            return 400, {}, b"{}"
        return say({"result": model(np.asarray(message["data"])).tolist()})

    with Scripted(respond) as server:
        oracle = connect(server.root + "/predict", input_dim=3)
        sent = sum(len(next(iter(json.loads(body).values()))) for _, _, body in server.requests)
        assert oracle.queries.total == sent


# ------------------------------------------------------------------ columns


def test_score_maps_are_columns_in_an_order_that_no_answer_decides():
    columns = Columns()
    first = columns.read([{"dog": 0.2, "cat": 0.8}, {"cat": 0.3, "dog": 0.7}], 2)
    assert np.array_equal(first, [[0.8, 0.2], [0.3, 0.7]])
    assert columns.names == ("cat", "dog")
    assert np.array_equal(columns.read({"dog": 0.1, "cat": 0.9}, 1), [[0.9, 0.1]])
    numbered = Columns().read([{"10": 0.1, "9": 0.9}], 1)
    assert np.array_equal(numbered, [[0.9, 0.1]])


def test_lists_sorted_by_score_are_read_by_label():
    entries = [
        [{"label": "b", "score": 0.9}, {"label": "a", "score": 0.1}],
        [{"label": "a", "score": 0.6}, {"label": "b", "score": 0.4}],
    ]
    assert np.array_equal(Columns().read(entries, 2), [[0.1, 0.9], [0.6, 0.4]])


def test_the_best_few_of_many_classes_are_refused():
    columns = Columns()
    columns.read([[{"label": "b", "score": 0.9}, {"label": "a", "score": 0.1}]], 1)
    with pytest.raises(InvalidAnswer, match="all classes"):
        columns.read([[{"label": "c", "score": 0.9}, {"label": "a", "score": 0.1}]], 1)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([{"a": [1.0], "b": [2.0]}] * 2, "--output-name"),
        ([{"a": 1.0}, 3.0], "not all of one kind"),
        ([[{"label": "a", "score": 1.0}, {"label": "a", "score": 0.5}]] * 2, "twice"),
        (["cat", "dog"], "not an array of numbers"),
        ({}, "no predictions"),
    ],
)
def test_what_cannot_be_read_is_told(predictions, message):
    with pytest.raises(InvalidAnswer, match=message):
        Columns().read(predictions, 2)


def test_an_answer_without_predictions_names_its_fields():
    with pytest.raises(InvalidAnswer, match="it has: status, took"):
        service("tfserving").decode(b'{"status": "ok", "took": 3}', {}, 2)
