"""A one-hidden-layer network with an affine part, and its decision boundary."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.boundary import Crossings
from unrelu.labels.config import EPS, TINY

__all__ = ["Model"]


@dataclasses.dataclass(frozen=True)
class Model:
    """``F(y) = relu(y @ rows.T + offsets) @ out.T + y @ skip.T + shift``, label = argmax.

    Only differences of outputs show in labels: output 0 is zero throughout.

    Attributes
    ----------
    rows, offsets
        Hidden units, ``(k, s)`` and ``(k,)``.
    out
        Output weights, ``(m, k)``.
    skip, shift
        The affine part, ``(m, s)`` and ``(m,)``.
    """

    rows: FloatArray
    offsets: FloatArray
    out: FloatArray
    skip: FloatArray
    shift: FloatArray

    @property
    def width(self) -> int:
        """Number of units, k."""
        return len(self.rows)

    @property
    def classes(self) -> int:
        """Number of outputs, m."""
        return len(self.out)

    @property
    def unknowns(self) -> int:
        """Parameters that a fit may change."""
        free = self.classes - 1
        return int(self.rows.size + self.width + free * (self.width + self.rows.shape[1] + 1))

    def heights(self, y: FloatArray) -> FloatArray:
        """Return the units' inputs, ``(n, k)``."""
        return np.asarray(y @ self.rows.T + self.offsets)

    def __call__(self, y: FloatArray) -> FloatArray:
        """Return the outputs, ``(n, m)``."""
        hidden = np.maximum(self.heights(y), 0.0)
        return np.asarray(hidden @ self.out.T + y @ self.skip.T + self.shift)

    def labels(self, y: FloatArray) -> IntArray:
        """Return the classes of ``y``."""
        return np.asarray(self(y).argmax(axis=1), np.intp)

    def differences(
        self, y: FloatArray, inside: IntArray, outside: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return ``F_outside - F_inside`` and its gradient, ``(n,)`` and ``(n, s)``."""
        index, values = np.arange(len(y)), self(y)
        weights = (self.out[outside] - self.out[inside]) * (self.heights(y) > 0.0)
        gradient = weights @ self.rows + self.skip[outside] - self.skip[inside]
        return values[index, outside] - values[index, inside], gradient

    def distances(self, at: Crossings) -> FloatArray:
        """Return how far the model's boundary is from crossings, with a sign, ``(n,)``."""
        value, gradient = self.differences(at.points, at.inside, at.outside)
        return np.asarray(value / np.maximum(np.linalg.norm(gradient, axis=1), TINY))

    def jacobian(self, y: FloatArray, inside: IntArray, outside: IntArray) -> FloatArray:
        """Return the derivatives of the differences by all unknowns, ``(n, p)``.

        Order: rows, offsets, then per output 1 .. m-1 its weights, skip and shift.
        """
        n, k, m = len(y), self.width, self.classes
        height = self.heights(y)
        on = height > 0.0
        weights = (self.out[outside] - self.out[inside]) * on
        parts = [(weights[:, :, None] * y[:, None, :]).reshape(n, -1), weights]
        features = np.concatenate([height * on, y, np.ones((n, 1))], axis=1)
        for c in range(1, m):
            sign = (outside == c).astype(float) - (inside == c)
            parts.append(sign[:, None] * features)
        assert parts[0].shape[1] == k * y.shape[1]
        return np.concatenate(parts, axis=1)

    def vector(self) -> FloatArray:
        """Return all unknowns in the order of :meth:`jacobian`."""
        parts = [self.rows.ravel(), self.offsets]
        for c in range(1, self.classes):
            parts += [self.out[c], self.skip[c], self.shift[c : c + 1]]
        return np.concatenate(parts)

    def output_vector(self) -> FloatArray:
        """Return the same with zeros for rows and offsets: the direction of the outputs' scale."""
        theta = self.vector()
        theta[: self.rows.size + self.width] = 0.0
        return theta

    def moved(self, step: FloatArray) -> Model:
        """Return the model with ``step`` added to its unknowns, rescaled."""
        theta = self.vector() + step
        k, s = self.rows.shape
        rows, offsets, rest = theta[: k * s].reshape(k, s), theta[k * s : k * (s + 1)], theta
        rest = theta[k * (s + 1) :].reshape(self.classes - 1, k + s + 1)
        zero = np.zeros((1, k + s + 1))
        head = np.concatenate([zero, rest])
        return Model(rows, offsets, head[:, :k], head[:, k : k + s], head[:, -1]).normalised()

    def normalised(self) -> Model:
        """Return the same labels with unit rows and outputs of unit size."""
        length = np.linalg.norm(self.rows, axis=1)
        length = np.where(length > 0, length, 1.0)
        out = self.out * length
        size = np.sqrt((out**2).sum() + (self.skip**2).sum() + (self.shift**2).sum())
        size = size if size > 0 else 1.0
        return Model(
            self.rows / length[:, None], self.offsets / length, out / size, self.skip / size,
            self.shift / size,
        )  # fmt: skip

    def on_inputs(self, basis: FloatArray, origin: FloatArray) -> Model:
        """Return the model of x where this one's inputs are ``(x - origin) @ basis.T / |row|²``.

        What lies outside of the rows ``(s, d)`` of ``basis`` does not count.
        """
        inverse = basis / float(basis[0] @ basis[0])
        rows, skip = self.rows @ inverse, self.skip @ inverse
        return Model(
            rows, self.offsets - rows @ origin, self.out, skip, self.shift - skip @ origin
        ).normalised()

    def in_chart(self, basis: FloatArray, origin: FloatArray) -> Model:
        """Return the model of y where this one's inputs are ``origin + y @ basis``."""
        return Model(
            self.rows @ basis.T,
            self.heights(origin[None])[0],
            self.out,
            self.skip @ basis.T,
            self.shift + self.skip @ origin,
        ).normalised()

    def folded(self, y: FloatArray) -> Model:
        """Return the model whose units all switch among points ``(n, s)``.

        A unit that is on at all of them is part of the affine function; one that is off does
        not count. Its hyperplane would solve the boundary's equations by itself.
        """
        on = self.heights(y) > 0.0
        always, never = np.asarray(on.all(axis=0)), np.asarray(~on.any(axis=0))
        if not (always | never).any():
            return self
        out = self.out[:, always]
        moved = dataclasses.replace(
            self, skip=self.skip + out @ self.rows[always],
            shift=self.shift + out @ self.offsets[always],
        )  # fmt: skip
        return moved.without(np.asarray(always | never))

    def padded(self, classes: int) -> Model:
        """Return the model with outputs far below all others for classes it does not know."""
        more = classes - self.classes
        if more <= 0:
            return self
        low = -(1.0 + np.abs(self.shift).max(initial=0.0)) / EPS**0.25
        return dataclasses.replace(
            self, out=np.concatenate([self.out, np.zeros((more, self.width))]),
            skip=np.concatenate([self.skip, np.zeros((more, self.skip.shape[1]))]),
            shift=np.concatenate([self.shift, np.full(more, low)]),
        )  # fmt: skip

    def nearest_pair(self) -> tuple[int, int, float]:
        """Return the two units whose hyperplanes are nearest, and how far apart those are."""
        planes = np.column_stack([self.rows, self.offsets])
        turned = np.sign(self.rows @ self.rows.T)[:, :, None] * planes[None]
        away = np.linalg.norm(planes[:, None] - turned, axis=2)
        away[np.tril_indices(self.width)] = np.inf
        first, second = np.unravel_index(np.argmin(away), away.shape)
        return int(first), int(second), float(away[first, second])

    def merged(self, first: int, second: int) -> Model:
        """Return the model with one unit for two on one hyperplane.

        The second may be on where the first is off: the difference is affine.
        """
        out, skip, shift = self.out.copy(), self.skip, self.shift
        out[:, first] += out[:, second]
        if self.rows[first] @ self.rows[second] < 0.0:  # relu(-z) = relu(z) - z
            skip = skip - np.outer(out[:, second], self.rows[first])
            shift = shift - out[:, second] * self.offsets[first]
        gone = np.arange(self.width) == second
        return dataclasses.replace(self, out=out, skip=skip, shift=shift).without(gone)

    def with_units(self, rows: FloatArray, offsets: FloatArray) -> Model:
        """Return the model with further units, whose output weights are zero."""
        return dataclasses.replace(
            self, rows=np.concatenate([self.rows, rows]),
            offsets=np.concatenate([self.offsets, offsets]),
            out=np.concatenate([self.out, np.zeros((self.classes, len(rows)))], axis=1),
        )  # fmt: skip

    def without(self, units: BoolArray) -> Model:
        """Return the model without some units."""
        keep = ~units
        return dataclasses.replace(
            self, rows=self.rows[keep], offsets=self.offsets[keep], out=self.out[:, keep]
        )
