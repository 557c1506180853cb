"""The layers of a network that are known: what they make of an input.

Seen through them, a target is a function ``T(h(x))`` of their outputs. While no
known unit switches, ``h`` is affine with Jacobian ``J``; where rows of ``J`` are
independent every direction of ``h`` can be taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray

__all__ = ["Prefix", "View"]


@dataclasses.dataclass(frozen=True)
class View:
    """What the known layers make of inputs.

    Attributes
    ----------
    heights
        Outputs of the last known layer, ``(n, w)``.
    jacobian
        Their derivatives by the input, ``(n, w, d)``; zero for units that are off.
    on
        Which of its units are on, ``(n, w)``.
    sure
        Where no weight that is not known counts, ``(n,)``.
    """

    heights: FloatArray
    jacobian: FloatArray
    on: BoolArray
    sure: BoolArray


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Known layers, the first one first; none is the identity.

    Attributes
    ----------
    dimension
        Number of inputs, d.
    weights, biases
        One ``(width, width below)`` and ``(width,)`` array per layer.
    unknown
        Which weights are not known, of the same shape as weights; none where it is left out.
        Where the unit below such a weight is on, nothing is said about what is above it.
    errors
        Of weights and biases, ``(width, width below + 1)`` per layer; nought where left out.
    """

    dimension: int
    weights: tuple[FloatArray, ...] = ()
    biases: tuple[FloatArray, ...] = ()
    unknown: tuple[BoolArray, ...] = ()
    errors: tuple[FloatArray, ...] = ()

    @property
    def depth(self) -> int:
        """Number of known layers."""
        return len(self.weights)

    @property
    def width(self) -> int:
        """Of the last known layer, or the number of inputs."""
        return len(self.biases[-1]) if self.biases else self.dimension

    def with_layer(
        self,
        weights: FloatArray,
        biases: FloatArray,
        unknown: BoolArray | None = None,
        errors: FloatArray | None = None,
    ) -> Prefix:
        """Return the prefix with one layer more."""
        gaps = self.unknown or tuple(np.zeros(w.shape, dtype=bool) for w in self.weights)
        gap = np.zeros(weights.shape, dtype=bool) if unknown is None else unknown
        sizes = self.errors or tuple(np.zeros((len(w), w.shape[1] + 1)) for w in self.weights)
        size = np.zeros((len(weights), weights.shape[1] + 1)) if errors is None else errors
        return Prefix(
            self.dimension,
            (*self.weights, weights),
            (*self.biases, biases),
            (*gaps, gap),
            (*sizes, size),
        )

    def unsure(self, x: FloatArray) -> FloatArray:
        """Return the errors of the last known layer's outputs, ``(n, w)``."""
        value, square = x, np.zeros_like(x)
        for w, b, e in zip(self.weights, self.biases, self.errors, strict=False):
            z = value @ w.T + b
            square = square @ (w**2).T + value**2 @ (e[:, :-1] ** 2).T + e[:, -1] ** 2
            value, square = np.maximum(z, 0.0), np.where(z > 0.0, square, 0.0)
        return np.sqrt(square) if self.errors else np.zeros((len(x), self.width))

    def sure(self, x: FloatArray) -> BoolArray:
        """Tell where no weight that is not known counts, ``(n,)``."""
        value = x
        fine = np.ones(len(x), dtype=bool)
        for w, b, gap in zip(self.weights, self.biases, self.unknown, strict=False):
            fine &= ~(value[:, gap.any(axis=0)] != 0.0).any(axis=1)
            value = np.maximum(value @ w.T + b, 0.0)
        return fine

    def _layers(self, x: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield preactivations ``(n, w)`` and their gradients ``(n, w, d)``, layer by layer."""
        heights, jacobian = x, None
        for w, b in zip(self.weights, self.biases, strict=True):
            z = heights @ w.T + b
            slope = np.broadcast_to(w, (len(x), *w.shape)) if jacobian is None else w @ jacobian
            yield z, slope
            on = z > 0
            heights, jacobian = np.where(on, z, 0.0), slope * on[:, :, None]

    def states(self, x: FloatArray) -> tuple[FloatArray, list[BoolArray]]:
        """Return preactivations ``(n, w)`` of the last layer, and which units of each are on."""
        z, on = x, [np.ones(x.shape, dtype=bool)]
        for w, b in zip(self.weights, self.biases, strict=True):
            z = np.where(on[-1], z, 0.0) @ w.T + b
            on.append(z > 0)
        return z, on

    def pulled(self, on: Sequence[BoolArray], v: FloatArray) -> FloatArray:
        """Return the gradient ``(n, d)`` of the last preactivations' combinations ``(n, w)``.

        One row's gradient needs no Jacobian: it goes down through the states of the layers.
        """
        for w, below in zip(self.weights[::-1], on[-2::-1], strict=True):
            v = np.where(below, v @ w, 0.0)
        return v

    def last(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return preactivations ``(n, w)`` and gradients ``(n, w, d)`` of the last layer."""
        z, slope = x, np.broadcast_to(np.eye(self.dimension), (len(x), *2 * (self.dimension,)))
        for z, slope in self._layers(x):  # noqa: B007 (the last one counts)
            pass
        return z, slope

    def view(self, x: FloatArray) -> View:
        """Return what the last known layer gives at ``x``, ``(n, d)``."""
        z, slope = self.last(x)
        if not self.depth:
            return View(z, slope, np.ones(x.shape, dtype=bool), self.sure(x))
        on = z > 0
        return View(np.where(on, z, 0.0), slope * on[:, :, None], on, self.sure(x))

    def heights(self, x: FloatArray) -> FloatArray:
        """Return the outputs of the last known layer alone, ``(n, w)``."""
        value = x
        for w, b in zip(self.weights, self.biases, strict=True):
            value = np.maximum(value @ w.T + b, 0.0)
        return value

    def units(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return preactivations ``(n, k)`` and gradients ``(n, k, d)`` of all known units."""
        parts = list(self._layers(x))
        if not parts:
            return np.empty((len(x), 0)), np.empty((len(x), 0, self.dimension))
        return np.concatenate([z for z, _ in parts], 1), np.concatenate([s for _, s in parts], 1)

    def distances(self, x: FloatArray) -> FloatArray:
        """Return how far each known unit's local hyperplane is, ``(n, k)``."""
        z, slope = self.units(x)
        size = np.linalg.norm(slope, axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(size > 0.0, np.abs(z) / size, np.inf))

    def switches(self, x: FloatArray, direction: FloatArray) -> FloatArray:
        """Return how far the next switch of a known unit is along unit vectors, ``(n,)``.

        Both ways along ``direction`` ``(n, d)``; infinite where there is none.
        """
        z, slope = self.units(x)
        rate = np.abs(np.einsum("nkd,nd->nk", slope, direction))
        with np.errstate(divide="ignore", invalid="ignore"):
            way = np.where(rate > 0.0, np.abs(z) / rate, np.inf)
        return np.asarray(way.min(axis=1, initial=np.inf))
