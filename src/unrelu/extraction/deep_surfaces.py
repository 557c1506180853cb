r"""The surfaces on which second-layer units switch, put together from their crossings.

Over known first-layer hyperplanes ``z_i = <w_i, x> + b_i`` the preactivation of a
second-layer unit is

.. math:: Z(x) = \tfrac12 \sum_i v_i |z_i(x)| + \langle p, x \rangle + q ,

linear in (v, p, q), whichever way the first layer is oriented. Where a line
crosses its zero, the jump of the target's gradient is the gradient of Z, and Z
vanishes: d + 1 equations in k + d + 1 unknowns. Crossings of one unit agree with
each other, crossings of two units do not, as soon as there are more equations
than unknowns: that tells them apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from unrelu._types import FloatArray, IntArray

__all__ = ["Crossings", "Surface", "SurfaceConfig", "group_crossings"]


@dataclasses.dataclass(frozen=True)
class Crossings:
    """Places where lines cross surfaces.

    Attributes
    ----------
    points
        ``(n, d)``.
    normals
        Jump of the gradient, along the direction ``outputs`` of answers, ``(n, d)``.
    outputs
        Unit vectors, ``(n, m)``: the jump is the product of both. Its sign is that of the
        unit's outgoing weights: whether the target bends up or down there.
    errors
        Relative error of the normal, ``(n,)``.
    """

    points: FloatArray
    normals: FloatArray
    outputs: FloatArray
    errors: FloatArray

    def __len__(self) -> int:
        return len(self.points)

    def kept(self, which: IntArray) -> Crossings:
        """Return some of them."""
        return Crossings(*(getattr(self, f.name)[which] for f in dataclasses.fields(self)))

    def joined(self, other: Crossings) -> Crossings:
        """Return both, one after the other."""
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)]
        return Crossings(*(np.concatenate(p) for p in pairs))


@dataclasses.dataclass(frozen=True)
class SurfaceConfig:
    """When crossings belong together."""

    tolerance: float = 1e-6
    """Relative disagreement that measurement explains."""
    spare: int = 2
    """Equations beyond the unknowns that must agree."""
    cutoff: float = 1e-7
    """Singular values below this part of the largest are zero."""


@dataclasses.dataclass
class Surface:
    """Crossings that agree, and what they say.

    Attributes
    ----------
    members
        Indices of crossings.
    matrix, right
        Equations of all members, condensed.
    output
        Unit vector ``(m,)``.
    rank
        Of the matrix.
    """

    members: list[int]
    matrix: FloatArray
    right: FloatArray
    output: FloatArray
    rank: int

    def takes(self, other: Surface, config: SurfaceConfig) -> bool:
        """Join another surface's crossings if all agree, one way round or the other."""
        if self.output @ other.output < 1.0 - 1e-9:  # bends the other way, or other outputs
            return False
        matrix = np.concatenate([self.matrix, other.matrix])
        left, values, _ = np.linalg.svd(matrix, full_matrices=False)
        rank = int(np.count_nonzero(values > config.cutoff * values[0]))
        if self.rank + other.rank - rank < config.spare:
            return False
        basis = left[:, :rank]
        for sign in (1.0, -1.0):
            right = np.concatenate([self.right, sign * other.right])
            rest = right - basis @ (basis.T @ right)
            if np.abs(rest).max() <= config.tolerance:
                self.members += other.members
                self.matrix, self.right = _condensed(matrix, right)
                self.rank = rank
                return True
        return False

    def solution(self, cutoff: float = 1e-7) -> tuple[FloatArray, int]:
        """Return the unknowns of least norm, and how many directions are determined."""
        left, values, right = np.linalg.svd(self.matrix, full_matrices=False)
        keep = values > cutoff * values[0]
        theta = right[keep].T @ ((left.T @ self.right)[keep] / values[keep])
        return theta, int(keep.sum())

    def null(self, cutoff: float = 1e-7) -> FloatArray:
        """Return orthonormal directions of the unknowns that nothing determines, as rows."""
        _, values, right = np.linalg.svd(self.matrix, full_matrices=True)
        return np.asarray(right[int(np.count_nonzero(values > cutoff * values[0])) :])


def _equations(
    x: FloatArray, normal: FloatArray, weights: FloatArray, biases: FloatArray, oriented: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the d + 1 equations of one crossing, divided by the size of its normal.

    The unknowns are (v, p, q); over an oriented first layer (v, c), as in
    ``Z = <v, relu(W x + b)> + c``.
    """
    k, d = weights.shape
    z = weights @ x + biases
    slope, height = 0.5 * np.sign(z), 0.5 * np.abs(z)
    if oriented:
        slope, height = (z > 0).astype(np.float64), np.maximum(z, 0.0)
    matrix = np.zeros((d + 1, k + 1 if oriented else k + d + 1))
    matrix[:d, :k] = (slope[:, None] * weights).T
    matrix[d, :k] = height
    if not oriented:
        matrix[:d, k : k + d] = np.eye(d)
        matrix[d, k : k + d] = x
    matrix[d, -1] = 1.0
    matrix[d] /= np.sqrt(1.0 + float(x @ x))
    size = float(np.linalg.norm(normal))
    return matrix / size, np.append(normal, 0.0) / size


def _condensed(matrix: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return equations with the same solutions, no more than unknowns and one."""
    if len(matrix) <= matrix.shape[1] + 1:
        return matrix, right
    triangle = np.asarray(np.linalg.qr(np.column_stack([matrix, right]), mode="r"))
    return triangle[:, :-1], triangle[:, -1]


def group_crossings(
    crossings: Crossings,
    weights: FloatArray,
    biases: FloatArray,
    known: Sequence[Surface] = (),
    *,
    oriented: bool = False,
    config: SurfaceConfig | None = None,
) -> list[Surface]:
    """Group crossings by the unit whose surface they lie on, the largest group first.

    Parameters
    ----------
    known
        Groups of the first crossings, from an earlier call; they are changed in place.
    oriented
        Whether the first layer's units are known to be on where ``z > 0``.
    """
    config = SurfaceConfig() if config is None else config
    surfaces = list(known)
    seen = {i for surface in surfaces for i in surface.members}
    changed: list[Surface] = []
    for i in np.argsort(crossings.errors, kind="stable"):
        if int(i) in seen:
            continue
        matrix, right = _equations(
            crossings.points[i], crossings.normals[i], weights, biases, oriented
        )
        new = Surface([int(i)], matrix, right, crossings.outputs[i], _rank(matrix, config.cutoff))
        home = next((s for s in surfaces if s.takes(new, config)), new)
        if home is new:
            surfaces.append(new)
        if not any(s is home for s in changed):
            changed.append(home)
    while changed:  # what was too far from a surface's first members may be near its later ones
        small = changed.pop()
        surfaces.sort(key=lambda s: -len(s.members))
        for other in surfaces:
            if other is small or not any(s is small for s in surfaces):
                continue
            if other.takes(small, config):
                surfaces = [s for s in surfaces if s is not small]
                changed = [s for s in changed if s is not small and s is not other]
                changed.append(other)
                break
    return surfaces


def _rank(matrix: FloatArray, cutoff: float) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > cutoff * values[0]))
