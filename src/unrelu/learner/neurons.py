r"""Neurons of a learned network: plain weights, biases and coefficients.

.. math:: F'(x) = A x + c + \sum_j u_j \, \max(0, \langle w_j, x \rangle + b_j)

The orientation of a neuron is arbitrary: turning it over changes ``A`` and
``c`` only, since ``relu(z) = z + relu(-z)``.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.units import Units, generic_direction
from unrelu.networks import ReLUNetwork

__all__ = ["Neurons", "close_groups", "join_neurons"]

_TINY = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True)
class Neurons:
    """A sum of k neurons and an affine function, with m outputs.

    Attributes
    ----------
    weights, biases
        ``w_j`` in rows, ``(k, d)``, and ``b_j``, ``(k,)``.
    outputs
        ``u_j`` in columns, ``(m, k)``.
    linear, constant
        ``A``, ``(m, d)``, and ``c``, ``(m,)``.
    """

    weights: FloatArray
    biases: FloatArray
    outputs: FloatArray
    linear: FloatArray
    constant: FloatArray

    @classmethod
    def from_units(cls, units: Units) -> Neurons:
        """Take over what a line search found, less neurons without weights."""
        all_of_them = cls(units.weights, units.biases, units.outputs, units.linear, units.constant)
        return all_of_them.without_broken()

    def without_broken(self) -> Neurons:
        """Make neurons without weights part of the constant, and leave out broken ones."""
        size = self.strengths
        # Below 1e-100 of the loudest, quotients of weights and biases lose their meaning.
        live = np.isfinite(size) & (size > 1e-100 * float(size.max(initial=0.0)))
        live &= np.isfinite(self.biases) & (self.norms > 1e-150)
        if live.all():
            return self
        still = ~live & np.isfinite(self.biases) & np.isfinite(size)
        rest = self.outputs[:, still] @ np.maximum(self.biases[still], 0.0)
        return dataclasses.replace(self.kept(live), constant=self.constant + rest)

    @property
    def count(self) -> int:
        """Number of neurons, k."""
        return len(self.weights)

    @property
    def norms(self) -> FloatArray:
        """``|w_j|``, ``(k,)``, at least the smallest positive number."""
        return np.asarray(np.maximum(np.linalg.norm(self.weights, axis=1), _TINY))

    @property
    def strengths(self) -> FloatArray:
        """``|u_j| |w_j|``, ``(k,)``: the norm of the neuron in the paper's form."""
        return np.asarray(np.linalg.norm(self.outputs, axis=0) * self.norms)

    def __call__(self, points: FloatArray) -> FloatArray:
        """Evaluate at ``(n, d)``; returns ``(n, m)``."""
        active = points @ self.weights.T
        active += self.biases
        np.maximum(active, 0.0, out=active)
        return np.asarray(active @ self.outputs.T + points @ self.linear.T + self.constant)

    def magnitudes(self, points: FloatArray) -> FloatArray:
        """Sum of the sizes of all terms that are added up, at ``(n, d)``; shape ``(n,)``."""
        parts = np.abs(points @ self.weights.T) + np.abs(self.biases)
        affine = np.linalg.norm(points @ self.linear.T, axis=1) + np.linalg.norm(self.constant)
        return np.asarray(parts @ np.linalg.norm(self.outputs, axis=0) + affine)

    def kept(self, which: BoolArray) -> Neurons:
        """Keep some neurons."""
        return dataclasses.replace(
            self,
            weights=self.weights[which],
            biases=self.biases[which],
            outputs=self.outputs[:, which],
        )

    def turned(self, which: BoolArray) -> Neurons:
        """Turn neurons over; the function stays the same."""
        sign = np.where(which, -1.0, 1.0)
        u = self.outputs[:, which]
        return dataclasses.replace(
            self,
            weights=self.weights * sign[:, None],
            biases=self.biases * sign,
            linear=self.linear + u @ self.weights[which],
            constant=self.constant + u @ self.biases[which],
        )

    def network(self) -> ReLUNetwork:
        """Return the same function as a network, its skip term left out where it is zero."""
        skip = self.linear if np.any(self.linear) else None
        return ReLUNetwork([self.weights, self.outputs], [self.biases, self.constant], skip)


def join_neurons(first: Neurons, second: Neurons) -> Neurons:
    """Return the sum of two functions."""
    return Neurons(
        np.concatenate([first.weights, second.weights]),
        np.concatenate([first.biases, second.biases]),
        np.concatenate([first.outputs, second.outputs], axis=1),
        first.linear + second.linear,
        first.constant + second.constant,
    )


def close_groups(neurons: Neurons, angle: float) -> list[list[int]]:
    """Group neurons that are (angle, angle)-close (Definition 3.7), up to sign.

    Each group gathers around its first member, which its others are close to.
    Only groups of two or more are returned.
    """
    k = neurons.count
    if k < 2:
        return []
    rows = np.column_stack([neurons.weights, neurons.biases]) / neurons.norms[:, None]
    # Close rows agree in any projection, up to sign: only neighbours are compared.
    probe = generic_direction(rows.shape[1])
    key = np.abs(rows @ probe)
    order = np.argsort(key, kind="stable")
    key = key[order]
    size = np.maximum(1.0, np.abs(rows[:, -1]))
    reach = 2.0 * float(np.linalg.norm(probe)) * angle
    free = np.ones(k, dtype=bool)
    groups: list[list[int]] = []
    for place, i in enumerate(order):
        if not free[i]:
            continue
        stop = int(np.searchsorted(key, key[place] + reach * size[i], side="right"))
        others = order[place + 1 : stop]
        others = others[free[others]]
        if len(others) == 0:
            continue
        sign = np.where(rows[others, :-1] @ rows[i, :-1] < 0, -1.0, 1.0)
        apart = sign[:, None] * rows[others] - rows[i]
        close = (np.linalg.norm(apart[:, :-1], axis=1) <= angle) & (
            np.abs(apart[:, -1]) <= angle * size[i]
        )
        if close.any():
            group = [int(i), *map(int, others[close])]
            free[group] = False
            groups.append(group)
    return groups
