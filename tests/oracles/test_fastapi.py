"""A real FastAPI server: score maps, ranked lists, images as lists and as PNG files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import model_servers as servers
import numpy as np
import pytest
from test_model_servers import python_of
from typer.testing import CliRunner

from unrelu import InvalidInput, connect, extract, planted
from unrelu.cli.main import app
from unrelu.oracles import HTTPOptions, Softmax
from unrelu.oracles.wire.png import encode_png

NETWORK = planted.random_network(12, 4, 3, rng=0)
POINTS = np.random.default_rng(0).standard_normal((50, 12))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    environment = python_of("mlflow")
    weights = tmp_path_factory.mktemp("fastapi") / "weights.npz"
    names = {f"w{i}": w for i, w in enumerate(NETWORK.weights)}
    np.savez(weights, **names, **{f"b{i}": b for i, b in enumerate(NETWORK.biases)})
    port = servers.free_port()
    script = Path(__file__).with_name("fastapi_server.py")
    root = f"http://127.0.0.1:{port}"
    with servers.process([environment / "python", script, weights, port], f"{root}/ready"):
        yield root


def truth(points):
    return Softmax(connect(NETWORK))(points)


@pytest.mark.parametrize("path", ["maps", "best"])
def test_names_are_columns_and_the_field_is_found(server, path):
    oracle = connect(f"{server}/{path}", input_dim=12)
    # Names in order of their letters are the network's own order here; sums may round otherwise.
    assert np.abs(oracle(POINTS) - truth(POINTS)).max() < 1e-14


def test_a_network_is_recovered_from_score_maps(server):
    result = extract(connect(f"{server}/maps", input_dim=12), rng=0)
    assert result.success, result.message
    assert result.network.hidden_widths == (4,)


def test_images_are_nested_lists_where_they_have_a_shape(server):
    oracle = connect(f"{server}/images", shape=(3, 4))
    assert np.abs(oracle(POINTS) - truth(POINTS)).max() < 1e-14


def test_pictures_are_png_files(server):
    http = HTTPOptions(request='{"image": "{{png}}"}', answer="$.scores")
    oracle = connect(
        f"{server}/picture", shape=(3, 4), scale=255.0, input_range=(0.0, 255.0), http=http
    )
    pixels = np.random.default_rng(1).integers(256, size=(5, 12)) / 255.0
    assert np.abs(oracle(pixels) - truth(pixels)).max() < 1e-12
    assert oracle.queries.total == 6  # the outputs were counted with one


def test_one_request_is_shown_and_how_its_answer_is_read(server):
    words = ["targets", "check", f"{server}/maps", "--input-dim", "12", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert json.loads(facts["request"]) == {"features": [[0.0] * 12]}
    assert np.allclose(json.loads(facts["read as"]), truth(np.zeros((1, 12)))[0])


def test_png_files_are_what_other_programs_read():
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for shape in ((5, 7), (5, 7, 1), (1, 5, 7), (5, 7, 3), (3, 5, 7)):
        pixels = rng.integers(256, size=shape)
        read = np.asarray(image.open(io.BytesIO(encode_png(pixels.astype(float)))))
        if shape == (3, 5, 7):
            pixels = np.moveaxis(pixels, 0, 2)
        np.testing.assert_array_equal(read, pixels.squeeze())
    for bad in (np.full((2, 2), 256.0), np.full((2, 2), -1.0), np.full((2, 2), np.nan)):
        with pytest.raises(InvalidInput, match="pixels lie in"):
            encode_png(bad)
    with pytest.raises(InvalidInput, match="height and a width"):
        encode_png(np.zeros((2, 3, 4)))
