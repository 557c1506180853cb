import gzip
import struct

import numpy as np
import pytest

from unrelu import datasets
from unrelu.errors import InvalidInput


def idx(array):
    head = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def test_idx_plain_and_gzipped(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(datasets.load_idx(tmp_path / "plain"), array)
    np.testing.assert_array_equal(datasets.load_idx(tmp_path / "packed"), array)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an IDX"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01", "not an IDX"),
        (b"\x00\x00\x08\x03\x00", "header"),
        (idx(np.zeros(5, np.uint8))[:-1], "promises 5"),
    ],
)
def test_damaged_idx(tmp_path, content, words):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        datasets.load_idx(tmp_path / "x")


def test_missing_or_foreign_files(tmp_path):
    with pytest.raises(InvalidInput, match="no file train-images"):
        datasets.load_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((1, 28, 28), np.uint8)))
    with pytest.raises(InvalidInput, match="SHA-256"):
        datasets.load_mnist(tmp_path)
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    with pytest.raises(InvalidInput, match="cannot read"):
        datasets.load_idx(tmp_path / "bad")


def test_whole_mnist_by_check_sum(tmp_path, monkeypatch):
    import hashlib

    rng = np.random.default_rng(0)
    made = {
        name: idx(rng.integers(0, 10, (6, 28, 28) if "images" in name else 6, dtype=np.uint8))
        for name in datasets.MNIST_FILES
    }
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in made.items()}
    monkeypatch.setattr(datasets, "MNIST_FILES", sums)
    monkeypatch.setenv(datasets.MNIST_ENVIRONMENT, str(tmp_path))
    data = datasets.load_digit_images()
    assert data.name == "mnist"
    assert data.x_test.shape == (6, 784)
    assert data.x_train.max() <= 1
    assert data.y_train.dtype == np.intp


def test_digits_when_there_is_no_mnist():
    data = datasets.load_digit_images()
    assert (data.name, data.shape) == ("digits", (8, 8))
    assert data.x_train.shape[1] == 64
    assert data.x_test.min() >= 0
    assert data.x_test.max() <= 1
    net = datasets.train_classifier(data, 16, seed=0, epochs=10)
    assert net.architecture == "64-16-10"
    assert np.mean(net(data.x_test).argmax(1) == data.y_test) > 0.8
