"""ReLU networks over the rationals: exact weights, exact answers.

For theorems that count exact arithmetic. Inputs and answers are object arrays of
:class:`fractions.Fraction`; a float64 is a rational too, and is taken as the one it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unrelu._shapes import Shaped
from unrelu.errors import InvalidInput
from unrelu.networks import Network, ReLUNetwork

__all__ = ["ExactArray", "RationalNetwork", "common_denominator", "rationals"]

ExactArray = NDArray[np.object_]
"""Object arrays whose entries are :class:`fractions.Fraction`."""


def rationals(values: Any, name: str = "x") -> ExactArray:
    """Return numbers, nested or as an array, as an object array of Fractions; or raise."""
    try:
        given = np.asarray(values, dtype=object)
        flat = [_rational(value) for value in given.ravel().tolist()]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} is not an array of rational numbers: {error}") from error
    return _shaped(flat, given.shape)


def _rational(value: Any) -> Fraction:
    if type(value) is Fraction:  # by far the most common, and not to be copied
        return value
    # numpy's integers are no rationals to the standard library
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def _shaped(flat: list[Any], shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Return an object array with these entries."""
    array = np.empty(len(flat), dtype=object)
    array[:] = flat
    return array.reshape(shape)


def common_denominator(values: ExactArray) -> int:
    """Return the least number that makes all entries whole."""
    return math.lcm(*(value.denominator for value in values.ravel().tolist()))


def _whole(values: ExactArray, denominator: int) -> NDArray[np.object_]:
    """Return ``values * denominator`` as Python integers."""
    flat = values.ravel().tolist()
    return _shaped([v.numerator * (denominator // v.denominator) for v in flat], values.shape)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RationalNetwork(Shaped):
    """A fully connected ReLU network with rational weights; see :class:`ReLUNetwork`.

    Parameters
    ----------
    weights
        One matrix per layer, ``(width_l, width_{l-1})``; rows are neurons.
    biases
        One vector per layer.
    skip
        ``(m, d)`` or None: a linear term of the input.
    """

    weights: tuple[ExactArray, ...]
    biases: tuple[ExactArray, ...]
    skip: ExactArray | None = None

    def __init__(
        self, weights: Sequence[Any], biases: Sequence[Any], skip: Any | None = None
    ) -> None:
        matrices = tuple(rationals(w, f"weights[{i}]") for i, w in enumerate(weights))
        vectors = tuple(rationals(b, f"biases[{i}]") for i, b in enumerate(biases))
        linear = None if skip is None else rationals(skip, "skip")
        try:  # one place checks shapes
            ReLUNetwork(
                [np.zeros(w.shape) for w in matrices],
                [np.zeros(b.shape) for b in vectors],
                None if linear is None else np.zeros(linear.shape),
            )
        except InvalidInput as error:
            raise InvalidInput(f"no network: {error}") from error
        object.__setattr__(self, "weights", matrices)
        object.__setattr__(self, "biases", vectors)
        object.__setattr__(self, "skip", linear)
        # In whole numbers over one denominator a layer answers several times faster.
        whole = []
        for w, b in zip(matrices, vectors, strict=True):
            q = math.lcm(common_denominator(w), common_denominator(b))
            whole.append((_whole(w, q), _whole(b, q), q))
        object.__setattr__(self, "_whole", tuple(whole))

    def __repr__(self) -> str:
        skip = "" if self.skip is None else " + skip"
        return f"RationalNetwork({self.architecture}{skip})"

    def __call__(self, points: Any) -> ExactArray:
        """Answer points ``(n, d)``, exactly; returns ``(n, m)`` Fractions."""
        x = rationals(points)
        if x.ndim != 2 or x.shape[1] != self.input_dim:
            raise InvalidInput(f"x must have shape (n, {self.input_dim}), got {x.shape}")
        answers = np.empty((len(x), self.output_dim), dtype=object)
        layers: tuple[tuple[Any, Any, int], ...] = self._whole  # type: ignore[attr-defined]
        for row, point in enumerate(x):
            below = common_denominator(point)
            value = _whole(point, below)
            for number, (w, b, q) in enumerate(layers):
                value, below = w @ value + b * below, q * below
                if number + 1 < len(layers):
                    value = np.maximum(value, 0)
            answers[row] = [Fraction(v, below) for v in value]
        return answers if self.skip is None else answers + x @ self.skip.T

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RationalNetwork):
            return NotImplemented
        return self.to_text() == other.to_text()

    def __hash__(self) -> int:
        return hash(self.to_text())

    def fingerprint(self) -> str:
        """Return a digest of shapes and weights."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()[:16]

    # ---------------------------------------------------------------- elsewhere

    @classmethod
    def from_network(cls, network: Network) -> Self:
        """Return a float64 network of ReLUs as the rational one that its weights are."""
        if not isinstance(network, ReLUNetwork):
            raise InvalidInput(f"only ReLU networks are rational, got {network!r}")
        return cls(network.weights, network.biases, network.skip)

    def rounded(self) -> ReLUNetwork:
        """Return the network with every weight rounded to float64."""
        return ReLUNetwork(
            [w.astype(np.float64) for w in self.weights],
            [b.astype(np.float64) for b in self.biases],
            None if self.skip is None else self.skip.astype(np.float64),
        )

    def to_text(self) -> str:
        """Return the network as JSON, every weight as a text such as ``"3/7"``."""

        def texts(array: ExactArray) -> Any:
            return [texts(v) if isinstance(v, np.ndarray) else str(v) for v in array]

        return json.dumps(
            {
                "widths": [self.input_dim, *self.hidden_widths, self.output_dim],
                "weights": [texts(w) for w in self.weights],
                "biases": [texts(b) for b in self.biases],
                "skip": None if self.skip is None else texts(self.skip),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what :meth:`to_text` wrote."""
        try:
            facts = json.loads(text)
            shapes = itertools.pairwise(facts["widths"])  # a layer may be empty
            weights = [
                rationals(w).reshape(m, d)
                for w, (d, m) in zip(facts["weights"], shapes, strict=True)
            ]
            return cls(weights, facts["biases"], facts["skip"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"not the text of a rational network: {error}") from error
