r"""Hidden units of a depth-2 network in the form in which they are found.

.. math:: f(x) = A x + c + \sum_j u_j \, \max(0, \langle w_j, x \rangle + b_j)

Each unit keeps an anchor, a point known to lie on its hyperplane, so that a
corrected direction turns the hyperplane about that point. The orientation of a
unit is arbitrary: turning it over changes the affine part only.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.networks import ReLUNetwork

__all__ = [
    "SAME_DIRECTION",
    "SPARE",
    "Units",
    "generic_direction",
    "join_units",
    "merge_units",
    "parallel_groups",
    "resolve_signs",
]

SAME_DIRECTION = 0.99
"""Cosine above which two units that are known roughly are one."""
SPARE = 2
"""Equations beyond the unknowns that must agree: fewer do by chance."""


@dataclasses.dataclass(frozen=True)
class Units:
    """A sum of k units and an affine function, with m outputs.

    Attributes
    ----------
    weights
        Rows ``w_j``, ``(k, d)``.
    anchors
        Points on the hyperplanes, ``(k, d)``.
    outputs
        Columns ``u_j``, ``(m, k)``.
    linear
        ``A``, ``(m, d)``.
    base, value
        A point ``(d,)`` and the function there ``(m,)``; they fix ``c``.
    axes
        Unit vectors ``(k, d)`` along which each unit's slope is known far better
        than across: the lines on which they were found.
    """

    weights: FloatArray
    anchors: FloatArray
    outputs: FloatArray
    linear: FloatArray
    base: FloatArray
    value: FloatArray
    axes: FloatArray

    @property
    def count(self) -> int:
        """Number of units, k."""
        return len(self.weights)

    @property
    def biases(self) -> FloatArray:
        """``b_j``, ``(k,)``."""
        return np.asarray(-np.einsum("kd,kd->k", self.weights, self.anchors))

    @property
    def constant(self) -> FloatArray:
        """``c``, ``(m,)``."""
        active = np.maximum(self.weights @ self.base + self.biases, 0.0)
        return np.asarray(self.value - self.linear @ self.base - self.outputs @ active)

    def preactivations(self, points: FloatArray) -> FloatArray:
        """Return ``<w_j, x> + b_j`` for points ``(n, d)``, shape ``(n, k)``."""
        return np.asarray(points @ self.weights.T + self.biases)

    def gates(self, points: FloatArray) -> BoolArray:
        """Return which units are on, ``(n, k)``."""
        return np.asarray(self.preactivations(points) > 0)

    def __call__(self, points: FloatArray) -> FloatArray:
        """Evaluate at ``(n, d)``; returns ``(n, m)``."""
        active = np.maximum(self.preactivations(points), 0.0)
        return np.asarray(active @ self.outputs.T + points @ self.linear.T + self.constant)

    def gradients(self, points: FloatArray) -> FloatArray:
        """Return the gradients at ``(n, d)``, shape ``(n, m, d)``."""
        on = self.gates(points).astype(np.float64)
        moved = np.einsum("nk,mk,kd->nmd", on, self.outputs, self.weights, optimize=True)
        return np.asarray(moved + self.linear)

    def network(self, *, skip: bool = True) -> ReLUNetwork:
        """Return the same function as a network; ``skip=False`` drops ``A``."""
        return ReLUNetwork(
            [self.weights, self.outputs],
            [self.biases, self.constant],
            self.linear if skip else None,
        )

    def turned(self, which: BoolArray) -> Units:
        """Turn units over: relu(z) = z + relu(-z), the z goes to the affine part."""
        sign = np.where(which, -1.0, 1.0)
        moved = np.einsum("mk,kd->md", self.outputs[:, which], self.weights[which])
        return dataclasses.replace(
            self, weights=self.weights * sign[:, None], linear=self.linear + moved
        )

    def kept(self, which: BoolArray) -> Units:
        """Keep some units; the others must be zero at the base point, or be gone for good."""
        return dataclasses.replace(
            self,
            weights=self.weights[which],
            anchors=self.anchors[which],
            outputs=self.outputs[:, which],
            axes=self.axes[which],
        )

    @staticmethod
    def affine(linear: FloatArray, base: FloatArray, value: FloatArray) -> Units:
        """Return an affine function without units."""
        m, d = linear.shape
        none = np.empty((0, d))
        return Units(none, none, np.empty((m, 0)), linear, base, value, none)


def join_units(first: Units, second: Units) -> Units:
    """Return the sum of two functions, as one set of units."""
    return Units(
        weights=np.concatenate([first.weights, second.weights]),
        anchors=np.concatenate([first.anchors, second.anchors]),
        outputs=np.concatenate([first.outputs, second.outputs], axis=1),
        linear=first.linear + second.linear,
        base=first.base,
        value=first.value + second(first.base[None, :])[0],
        axes=np.concatenate([first.axes, second.axes]),
    )


def generic_direction(d: int) -> FloatArray:
    """Return a vector ``(d,)`` on which different rows have different products, as a rule.

    The same one always: where nothing is estimated, no generator is asked for.
    """
    return np.asarray(np.cos(np.arange(1.0, d + 1.0) ** 2))


def parallel_groups(units: Units, tolerance: FloatArray) -> list[list[int]]:
    """Group units that share one hyperplane up to tolerance.

    ``tolerance`` holds one angle per unit; two units are taken for one when
    their unit normals agree up to sign within the sum of their tolerances and
    each anchor lies as close to the other's hyperplane. Only groups of two or
    more are returned.
    """
    k = units.count
    if k < 2:
        return []
    norms = np.linalg.norm(units.weights, axis=1)
    normals = units.weights / np.maximum(norms, np.finfo(np.float64).tiny)[:, None]
    offsets = -np.einsum("kd,kd->k", normals, units.anchors)
    # Neighbours in a projection that does not see the sign.
    probe = generic_direction(units.weights.shape[1])
    key = np.abs(normals @ probe)
    order = np.argsort(key)
    reach = float(np.linalg.norm(probe)) * 2.0 * float(tolerance.max())
    groups: list[list[int]] = []
    taken: set[int] = set()
    size = 1.0 + np.linalg.norm(units.anchors, axis=1)
    for position, i in enumerate(order):
        if int(i) in taken:
            continue
        group = [int(i)]
        for j in order[position + 1 :]:
            if key[j] - key[i] > reach:
                break
            if int(j) in taken:
                continue
            limit = tolerance[i] + tolerance[j]
            sign = 1.0 if normals[i] @ normals[j] > 0 else -1.0
            apart = np.linalg.norm(normals[i] - sign * normals[j])
            shift = abs(offsets[i] - sign * offsets[j])
            if apart <= limit and shift <= limit * max(size[i], size[j]):
                group.append(int(j))
        if len(group) > 1:
            taken.update(group)
            groups.append(group)
    return groups


def merge_units(units: Units, group: list[int]) -> tuple[Units, FloatArray]:
    """Replace units that share a hyperplane by one, in the place of the loudest.

    The other members keep their places with zero output, for the caller to drop.

    Returns
    -------
    units, transform
        The transform maps ``(A, w_1, ..., w_k)`` before to after,
        ``(m + k, m + k)``: errors of the members that cancel are gone after it.
    """
    m, k = units.outputs.shape
    norms = np.linalg.norm(units.weights[group], axis=1)
    loud = np.linalg.norm(units.outputs[:, group], axis=0) * norms
    head = group[int(np.argmax(loud))]
    turn = np.zeros(k, dtype=bool)
    turn[group] = units.weights[group] @ units.weights[head] < 0
    transform = np.eye(m + k)
    transform[:m, m + np.flatnonzero(turn)] = units.outputs[:, turn]
    transform[m + np.flatnonzero(turn), m + np.flatnonzero(turn)] = -1.0
    units = units.turned(turn)
    outputs, weights = units.outputs.copy(), units.weights.copy()
    total = outputs[:, group] @ norms / norms[group.index(head)]
    square = float(total @ total)
    if square > 0:  # u relu(w x) of the head is the sum of all members', as u w is
        share = total @ outputs[:, group] / square
        weights[head] = share @ weights[group]
        mix = np.eye(m + k)
        mix[m + head] = 0.0
        mix[m + head, m + np.array(group)] = share
        transform = mix @ transform
    outputs[:, group] = 0.0
    outputs[:, head] = total
    return dataclasses.replace(units, outputs=outputs, weights=weights), transform


def resolve_signs(units: Units, std: float) -> BoolArray | None:
    """Find which units to turn over so that the affine part loses its slope.

    A network without skip term has ``A = sum_j phi_j u_j w_j`` with ``phi_j``
    in {0, -1}: the units found the wrong way round. If the matrices
    ``u_j w_j`` are linearly independent, least squares gives ``phi``.

    Parameters
    ----------
    std
        Standard deviation of an entry of ``A``.

    Returns
    -------
    Units to turn, ``(k,)``, or None where the signs are not determined (or the
    function has a skip term).
    """
    k = units.count
    m, d = units.linear.shape
    if k == 0:
        return np.zeros(0, dtype=bool) if np.abs(units.linear).max() <= 10.0 * std else None
    if k > m * d:
        return None
    # Row (i, l): entry (i, l) of A; column j: u_j w_j. Gram matrix factorises.
    norms = np.linalg.norm(units.weights, axis=1) * np.linalg.norm(units.outputs, axis=0)
    columns = np.einsum("mk,kd->mdk", units.outputs, units.weights).reshape(m * d, k) / norms
    left, values, right = np.linalg.svd(columns, full_matrices=False)
    if not values[-1] > 0:
        return None
    solution = (right.T @ ((left.T @ units.linear.ravel()) / values)) / norms
    # Uncertainty of each coefficient: of A, and of the columns, through the singular values.
    spread = np.sqrt(((right.T / values) ** 2).sum(axis=1)) * std * 10.0 / norms
    phi = np.round(solution)
    if np.any(spread > 0.1) or not np.isin(phi, (0.0, -1.0)).all():
        return None
    if np.abs(solution - phi).max() > 0.1:
        return None
    rest = units.linear.ravel() - columns @ (phi * norms)
    noise = 30.0 * std * np.sqrt(1.0 + k)
    return np.asarray(phi == -1.0) if np.abs(rest).max() <= noise else None
