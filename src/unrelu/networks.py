"""Fully connected ReLU networks as immutable values."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput

if TYPE_CHECKING:
    import torch

__all__ = ["ReLUNetwork"]

_FORMAT = "unrelu.network/1"


def _frozen(array: ArrayLike, name: str, ndim: int) -> FloatArray:
    try:
        copy = np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is not an array of numbers: {error}") from error
    if copy.ndim != ndim:
        raise InvalidInput(f"{name} must have {ndim} dimensions, got shape {copy.shape}")
    if not np.isfinite(copy).all():
        raise InvalidInput(f"{name} contains NaN or infinite entries")
    copy.setflags(write=False)
    return copy


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReLUNetwork:
    """A fully connected ReLU network, with an optional linear skip term.

    With layers ``(W_1, b_1), ..., (W_L, b_L)`` it computes::

        f(x) = S x + b_L + W_L relu(W_{L-1} ... relu(W_1 x + b_1) ... + b_{L-1})

    where ``S`` is the skip matrix (absent: zero). A network of depth 2 with a
    skip term is equation (2) of Daniely & Granot.

    Parameters
    ----------
    weights
        One matrix per layer, ``(width_l, width_{l-1})``; rows are neurons.
    biases
        One vector per layer, ``(width_l,)``.
    skip
        ``(m, d)`` or None.
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    skip: FloatArray | None = None

    def __init__(
        self,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        skip: ArrayLike | None = None,
    ) -> None:
        if len(weights) == 0 or len(weights) != len(biases):
            raise InvalidInput(
                f"need as many bias vectors as weight matrices, and at least one: "
                f"got {len(weights)} weights and {len(biases)} biases"
            )
        ws = tuple(_frozen(w, f"weights[{i}]", 2) for i, w in enumerate(weights))
        bs = tuple(_frozen(b, f"biases[{i}]", 1) for i, b in enumerate(biases))
        for i, (w, b) in enumerate(zip(ws, bs, strict=True)):
            if w.shape[0] != b.shape[0]:
                raise InvalidInput(
                    f"layer {i}: weights have {w.shape[0]} rows but biases {b.shape[0]} entries"
                )
            if i and w.shape[1] != ws[i - 1].shape[0]:
                raise InvalidInput(
                    f"layer {i}: weights have {w.shape[1]} columns, "
                    f"but layer {i - 1} has {ws[i - 1].shape[0]} neurons"
                )
        s = None
        if skip is not None:
            s = _frozen(skip, "skip", 2)
            if s.shape != (ws[-1].shape[0], ws[0].shape[1]):
                raise InvalidInput(
                    f"skip must have shape {(ws[-1].shape[0], ws[0].shape[1])}, got {s.shape}"
                )
        object.__setattr__(self, "weights", ws)
        object.__setattr__(self, "biases", bs)
        object.__setattr__(self, "skip", s)

    # ---------------------------------------------------------------- shape

    @property
    def input_dim(self) -> int:
        """Number of inputs, d."""
        return int(self.weights[0].shape[1])

    @property
    def output_dim(self) -> int:
        """Number of outputs, m."""
        return int(self.weights[-1].shape[0])

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(int(w.shape[0]) for w in self.weights[:-1])

    @property
    def depth(self) -> int:
        """Number of layers, the output layer included (one hidden layer: 2)."""
        return len(self.weights)

    @property
    def architecture(self) -> str:
        """Widths joined by dashes, such as ``784-128-1``."""
        return "-".join(map(str, (self.input_dim, *self.hidden_widths, self.output_dim)))

    @property
    def parameters(self) -> int:
        """Count of weights and biases, the skip term included."""
        count = sum(w.size for w in self.weights) + sum(b.size for b in self.biases)
        return int(count + (0 if self.skip is None else self.skip.size))

    def __repr__(self) -> str:
        skip = "" if self.skip is None else " + skip"
        return f"ReLUNetwork({self.architecture}{skip}, {self.parameters:,} parameters)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReLUNetwork):
            return NotImplemented
        mine, theirs = self._arrays(), other._arrays()
        return mine.keys() == theirs.keys() and all(
            np.array_equal(mine[key], theirs[key]) for key in mine
        )

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def fingerprint(self) -> str:
        """Hex digest of all parameters, bit for bit."""
        digest = hashlib.blake2b(digest_size=16)
        for key, value in self._arrays().items():
            digest.update(f"{key}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()

    # ------------------------------------------------------------- evaluate

    def __call__(self, x: ArrayLike) -> FloatArray:
        """Evaluate on ``x`` of shape ``(n, d)``; returns ``(n, m)``."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.input_dim:
            raise InvalidInput(f"x must have shape (n, {self.input_dim}), got {points.shape}")
        value = points
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            value = value @ w.T
            value += b
            np.maximum(value, 0.0, out=value)
        out = value @ self.weights[-1].T + self.biases[-1]
        if self.skip is not None:
            out += points @ self.skip.T
        return np.asarray(out)

    # ------------------------------------------------------------ canonical

    def canonical(self) -> ReLUNetwork:
        """Return the same function with unit hidden rows, sorted.

        Hidden rows ``w`` are scaled to unit norm (a zero row with a positive
        bias to bias one), the scale is pushed outward, and the neurons of each
        hidden layer are sorted by their rows, first coordinate first.
        """
        weights = [w.copy() for w in self.weights]
        biases = [b.copy() for b in self.biases]
        for layer in range(self.depth - 1):
            scale = np.linalg.norm(weights[layer], axis=1)
            scale = np.where(scale > 0, scale, np.abs(biases[layer]))
            scale = np.where(scale > 0, scale, 1.0)
            weights[layer] /= scale[:, None]
            biases[layer] /= scale
            weights[layer + 1] *= scale
            keys = np.column_stack([weights[layer], biases[layer]])
            order = np.lexsort(keys.T[::-1])
            weights[layer] = weights[layer][order]
            biases[layer] = biases[layer][order]
            weights[layer + 1] = weights[layer + 1][:, order]
        return ReLUNetwork(weights, biases, self.skip)

    # ---------------------------------------------------------------- files

    def _arrays(self) -> dict[str, FloatArray]:
        arrays = {f"weights.{i}": w for i, w in enumerate(self.weights)}
        arrays |= {f"biases.{i}": b for i, b in enumerate(self.biases)}
        if self.skip is not None:
            arrays["skip"] = self.skip
        return arrays

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any]) -> ReLUNetwork:
        depth = sum(key.startswith("weights.") for key in arrays)
        return cls(
            [arrays[f"weights.{i}"] for i in range(depth)],
            [arrays[f"biases.{i}"] for i in range(depth)],
            arrays.get("skip"),
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to a safetensors file (no pickle); returns the path."""
        from unrelu._files import write_tensors

        return write_tensors(path, self._arrays(), {"format": _FORMAT})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReLUNetwork:
        """Read a network, or the network of a saved result."""
        from unrelu._files import read_tensors

        arrays, metadata = read_tensors(path)
        if metadata.get("format") != _FORMAT:
            nested = {
                key.removeprefix("network."): value
                for key, value in arrays.items()
                if key.startswith("network.")
            }
            if not nested:
                raise InvalidInput(f"{path} holds no unrelu network")
            arrays = nested
        try:
            return cls._from_arrays(arrays)
        except KeyError as error:
            raise InvalidInput(f"{path} is not a complete network: {error} is missing") from error

    # --------------------------------------------------------------- export

    def to_torch(self) -> torch.nn.Module:
        """Return an equal ``torch.nn.Module`` in float64 (extra ``torch``)."""
        from unrelu._export import network_to_torch

        return network_to_torch(self)

    def to_onnx(self, path: str | os.PathLike[str], *, dtype: str = "float64") -> Path:
        """Write an ONNX file with input ``x`` and output ``y`` (extra ``onnx``)."""
        from unrelu._export import network_to_onnx

        return network_to_onnx(self, path, dtype=dtype)

    @classmethod
    def from_sklearn(cls, estimator: Any) -> ReLUNetwork:
        """Read an ``MLPRegressor`` or ``MLPClassifier`` with ReLU activation.

        A classifier gives its logits, before softmax or the logistic function.
        """
        from unrelu._export import network_from_sklearn

        return network_from_sklearn(estimator)

    @classmethod
    def from_torch(cls, module: Any) -> ReLUNetwork:
        """Read a ``torch.nn.Sequential`` of alternating Linear and ReLU layers."""
        from unrelu._export import network_from_torch

        return network_from_torch(module)
