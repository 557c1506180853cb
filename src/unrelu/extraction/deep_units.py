"""Units of a depth-2 network on the non-negative orthant, with their errors."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.networks import ReLUNetwork

__all__ = ["OrthantUnits"]


@dataclasses.dataclass
class OrthantUnits:
    """``F(s) = A s + a + sum_j u_j relu(<v_j, s> + c_j)`` with all c_j <= 0.

    Attributes
    ----------
    linear, constant
        ``(m, k)`` and ``(m,)``.
    weights, biases, outputs
        ``(n, k)``, ``(n,)``, ``(m, n)``.
    errors, shifts
        Standard deviations of each unit's slope and offset, in answer units, ``(n,)``.
    open_axes
        Axes on which something remains unexplained.
    settled
        Whether a unit was measured where it has room, ``(n,)``.
    """

    linear: FloatArray
    constant: FloatArray
    weights: FloatArray
    biases: FloatArray
    outputs: FloatArray
    errors: FloatArray
    shifts: FloatArray
    open_axes: int = 0
    settled: BoolArray = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=bool))

    @staticmethod
    def affine(linear: FloatArray, constant: FloatArray) -> OrthantUnits:
        """Return an affine function, without a unit."""
        m, k = linear.shape
        none = np.empty(0)
        return OrthantUnits(linear, constant, np.empty((0, k)), none, np.empty((m, 0)), none, none)

    def __call__(self, s: FloatArray) -> FloatArray:
        """Evaluate at ``(n, k)``; returns ``(n, m)``."""
        active = np.maximum(s @ self.weights.T + self.biases, 0.0)
        return np.asarray(s @ self.linear.T + self.constant + active @ self.outputs.T)

    def add(
        self,
        weights: FloatArray,
        biases: FloatArray,
        outputs: FloatArray,
        errors: FloatArray,
        shifts: FloatArray,
    ) -> None:
        """Take units in."""
        self.weights = np.concatenate([self.weights, weights])
        self.biases = np.concatenate([self.biases, biases])
        self.outputs = np.concatenate([self.outputs, outputs], axis=1)
        self.errors = np.concatenate([self.errors, errors])
        self.shifts = np.concatenate([self.shifts, shifts])
        self.settled = np.concatenate([self.settled, np.zeros(len(weights), dtype=bool)])

    def kept(self, which: BoolArray) -> None:
        """Drop all other units."""
        self.weights, self.biases = self.weights[which], self.biases[which]
        self.outputs, self.errors = self.outputs[:, which], self.errors[which]
        self.shifts, self.settled = self.shifts[which], self.settled[which]

    def merge(self, tolerance: float) -> None:
        """Join units that share a hyperplane; two that cancel are dropped.

        An error of a unit shows on another axis as two kinks very close together.
        """
        full = np.concatenate([self.weights, self.biases[:, None]], axis=1)
        length = np.linalg.norm(full, axis=1)
        normal = full / length[:, None]
        alike = normal @ normal.T > 1.0 - 0.5 * tolerance**2
        keep = np.ones(len(full), dtype=bool)
        for i in range(len(full)):
            if not keep[i]:
                continue
            group = np.flatnonzero(alike[i] & keep)
            if len(group) < 2:
                continue
            total = self.outputs[:, group] @ length[group]
            size = float(np.linalg.norm(total))
            keep[group] = False
            if size > 1e-3 * length[group].max():
                best = group[int(np.argmax(length[group]))]
                keep[best] = True
                scale = size / length[best]
                self.weights[best] *= scale
                self.biases[best] *= scale
                self.outputs[:, best] = total / size
        self.kept(keep)

    def network(self) -> tuple[ReLUNetwork, list[BoolArray]]:
        """Return the same function on the orthant without a skip term.

        ``A s`` with s >= 0 becomes two more units per output that are always
        on, the positive and the negative part of A, after the ordinary units.

        Returns
        -------
        network, free
            And which entries of each layer's ``[W | b]`` a polish may move:
            scales and what is redundant in the affine term are held.
        """
        m, k = self.linear.shape
        n = len(self.weights)
        plus, minus = np.maximum(self.linear, 0.0), np.maximum(-self.linear, 0.0)
        v = np.concatenate([self.weights, plus, minus])
        # A lift keeps the pair on while a polish moves it; it is no larger than it must be,
        # as the two lifts cancel in floating point only.
        lift = 3.0 * float(np.abs(self.linear).max(initial=0.0)) or 1.0
        c = np.concatenate([self.biases, np.full(2 * m, lift)])
        u = np.concatenate([self.outputs, np.eye(m), -np.eye(m)], axis=1)
        first = np.zeros((n + 2 * m, k + 1), dtype=bool)
        first[:n] = True
        first[np.arange(n), np.abs(self.weights).argmax(axis=1)] = False
        first[n : n + m, :-1] = True
        last = np.ones((m, n + 2 * m + 1), dtype=bool)
        last[:, n:-1] = False
        return ReLUNetwork([v, u], [c, self.constant]), [first, last]

    def take(self, network: ReLUNetwork) -> None:
        """Take the parameters of a network made by :meth:`network`."""
        n, m = len(self.weights), len(self.linear)
        v, u = network.weights
        self.weights, self.biases = v[:n].copy(), network.biases[0][:n].copy()
        self.outputs, self.constant = u[:, :n].copy(), network.biases[1].copy()
        self.linear = v[n : n + m] - v[n + m :]
        # Both carriers are lifted by their bias, which cancels in the sum.
        self.constant += network.biases[0][n : n + m] - network.biases[0][n + m :]
