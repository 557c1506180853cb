"""Fully connected networks as immutable values: of any activation, and of ReLUs."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from unrelu._shapes import Shaped
from unrelu._types import ArrayLike, FloatArray
from unrelu.activations import KINDS, RELU, Activation, activation
from unrelu.errors import InvalidInput

if TYPE_CHECKING:
    import torch

__all__ = ["Network", "ReLUNetwork"]

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
class Network(Shaped):
    """A fully connected network with an activation a layer, and an optional linear skip term.

    With layers ``(W_1, b_1), ..., (W_L, b_L)`` it computes::

        f(x) = S x + b_L + W_L phi_{L-1}(W_{L-1} ... phi_1(W_1 x + b_1) ... + b_{L-1})

    where ``S`` is the skip matrix (absent: zero). :class:`ReLUNetwork` is the case in which
    every ``phi`` is a ReLU.

    Parameters
    ----------
    weights
        One matrix per layer, ``(width_l, width_{l-1})``; rows are neurons.
    biases
        One vector per layer, ``(width_l,)``.
    activations
        One for all hidden layers or one each, by name or as
        :class:`~unrelu.activations.Activation`.
    skip
        ``(m, d)`` or None.

    Examples
    --------
    >>> import unrelu
    >>> unit = unrelu.Network([[[1.0]], [[2.0]]], [[0.0], [1.0]], activations="tanh")
    >>> unit([[0.0]])
    array([[1.]])
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    activations: tuple[Activation, ...]
    skip: FloatArray | None = None

    def __init__(
        self,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        activations: str | Activation | Sequence[str | Activation] = "relu",
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
        object.__setattr__(self, "activations", _each(activations, [len(w) for w in ws[:-1]]))
        object.__setattr__(self, "skip", s)

    # ---------------------------------------------------------------- shape

    @property
    def parameters(self) -> int:
        """Count of weights and biases, of slopes by unit, and the skip term."""
        count = sum(w.size for w in self.weights) + sum(b.size for b in self.biases)
        count += sum(a.parameters.size for a in self.activations if a.parameters.ndim == 2)
        return int(count + (0 if self.skip is None else self.skip.size))

    @property
    def activation_names(self) -> str:
        """The hidden layers' activations in words; one where all are the same."""
        names = [str(a) for a in self.activations]
        return names[0] if len(set(names)) == 1 else ", ".join(names)

    def __repr__(self) -> str:
        skip = "" if self.skip is None else " + skip"
        kinds = "" if isinstance(self, ReLUNetwork) else f" {self.activation_names}"
        name = type(self).__name__
        return f"{name}({self.architecture}{kinds}{skip}, {self.parameters:,} parameters)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Network):
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
        layers = zip(self.weights[:-1], self.biases[:-1], self.activations, strict=True)
        for w, b, phi in layers:
            value = value @ w.T
            value += b
            value = np.maximum(value, 0.0, out=value) if phi.name == "relu" else phi(value)
        out = value @ self.weights[-1].T + self.biases[-1]
        if self.skip is not None:
            out += points @ self.skip.T
        return np.asarray(out)

    # ------------------------------------------------------------ canonical

    def canonical(self) -> Self:
        """Return the same function with unit hidden rows where scale is free, sorted.

        Rows ``w`` before a homogeneous activation are scaled to unit norm (a zero row with a
        positive bias to bias one), the scale is pushed outward; units that may be turned over
        without an affine term get a first coordinate that is not negative; and the neurons of
        each hidden layer are sorted by their rows, first coordinate first.
        """
        from unrelu._forms import canonical_layers

        return self._with(*canonical_layers(self))

    def usual(self) -> Network:
        """Return the same function with activations in their usual form.

        A logistic layer is a tanh layer, ReLU6 and the hard sigmoid are hard tanhs, softplus
        with a beta is one without: scales and shifts go to the layers around it.
        """
        from unrelu._forms import usual_layers

        return Network(*usual_layers(self), self.skip)

    def _with(
        self,
        weights: Sequence[FloatArray],
        biases: Sequence[FloatArray],
        activations: Sequence[Activation],
    ) -> Self:
        """Return a network of the same class and skip term."""
        if isinstance(self, ReLUNetwork):
            return type(self)(weights, biases, self.skip)
        return type(self)(weights, biases, activations, self.skip)

    # ---------------------------------------------------------------- files

    def _arrays(self) -> dict[str, FloatArray]:
        arrays = {f"weights.{i}": w for i, w in enumerate(self.weights)}
        arrays |= {f"biases.{i}": b for i, b in enumerate(self.biases)}
        if self.skip is not None:
            arrays["skip"] = self.skip
        for i, phi in enumerate(self.activations):
            if phi != RELU:  # a file of a ReLU network is what it always was
                arrays[f"activations.{i}.{phi.name}"] = phi.parameters
        return arrays

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any]) -> Self:
        depth = sum(key.startswith("weights.") for key in arrays)
        weights = [arrays[f"weights.{i}"] for i in range(depth)]
        biases = [arrays[f"biases.{i}"] for i in range(depth)]
        activations = [RELU] * (depth - 1)
        for key, value in arrays.items():
            part, _, rest = key.partition(".")
            if part == "activations":
                i, _, name = rest.partition(".")
                if name not in KINDS:
                    raise InvalidInput(f"the activation {name!r} is unknown: a newer file?")
                activations[int(i)] = Activation(name, np.asarray(value, dtype=np.float64))
        return cls._of(weights, biases, activations, arrays.get("skip"))

    @classmethod
    def _of(
        cls,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        activations: Sequence[str | Activation],
        skip: ArrayLike | None = None,
    ) -> Self:
        """Return a :class:`ReLUNetwork` where all activations are ReLUs, of the class asked."""
        every = [activation(phi) for phi in activations]
        plain = all(phi == RELU for phi in every)
        if issubclass(cls, ReLUNetwork) and not plain:
            names = ", ".join(dict.fromkeys(phi.name for phi in every))
            raise InvalidInput(
                f"the activation is {names}, not 'relu': Network, not ReLUNetwork, holds it"
            )
        chosen: Any = ReLUNetwork if plain and cls is Network else cls
        if issubclass(chosen, ReLUNetwork):
            made: Self = chosen(weights, biases, skip)
            return made
        return cls(weights, biases, every, skip)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to a safetensors file (no pickle); returns the path."""
        from unrelu._files import write_tensors

        return write_tensors(path, self._arrays(), {"format": _FORMAT})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
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

    def to_sklearn(self, *, classes: ArrayLike | None = None) -> Any:
        """Return a fitted ``MLPRegressor`` that predicts the same.

        With ``classes`` an ``MLPClassifier`` whose logits these are: their softmax, or for
        two classes the logistic function of one logit or of the difference of two.
        """
        from unrelu._export_sklearn import network_to_sklearn

        return network_to_sklearn(self, classes)

    @classmethod
    def from_sklearn(cls, estimator: Any) -> Self:
        """Read an ``MLPRegressor`` or ``MLPClassifier``.

        A classifier gives its logits, before softmax or the logistic function.
        """
        from unrelu._export_sklearn import parts_from_sklearn

        return cls._of(*parts_from_sklearn(estimator))

    @classmethod
    def from_torch(cls, module: Any) -> Self:
        """Read a ``torch.nn.Sequential`` of Linear layers and activations in turn.

        Batch norms beside a Linear layer are folded into it.
        """
        from unrelu._export import parts_from_torch

        return cls._of(*parts_from_torch(module))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReLUNetwork(Network):
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

    Examples
    --------
    >>> import unrelu
    >>> absolute = unrelu.ReLUNetwork([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> absolute([[-3.0], [2.0]])
    array([[3.],
           [2.]])
    """

    def __init__(
        self,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        skip: ArrayLike | None = None,
    ) -> None:
        super().__init__(weights, biases, RELU, skip)


def _each(
    activations: str | Activation | Sequence[str | Activation], widths: Sequence[int]
) -> tuple[Activation, ...]:
    """Return one activation for each hidden layer, checked against its width."""
    if isinstance(activations, (str, Activation)):
        activations = [activations] * len(widths)
    every = tuple(activation(phi) for phi in activations)
    if len(every) != len(widths):
        raise InvalidInput(f"{len(widths)} hidden layers, but {len(every)} activations")
    for i, (phi, width) in enumerate(zip(every, widths, strict=True)):
        if phi.parameters.ndim == 2 and len(phi.parameters) != width:
            raise InvalidInput(
                f"layer {i}: {len(phi.parameters)} units have parameters of their own, not {width}"
            )
    return every
