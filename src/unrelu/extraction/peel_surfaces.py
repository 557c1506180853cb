r"""Signs of a first layer whose rows are dependent, from the surfaces above it.

Over known first-layer hyperplanes ``z_i = <w_i, x> + b_i`` the preactivation of a
second-layer unit is

.. math:: Z(x) = \tfrac12 \sum_i v_i |z_i(x)| + \langle p, x \rangle + q ,

linear in (v, p, q), whichever way the first layer is oriented. Where a line
crosses its zero, the jump of the target's gradient is the gradient of Z, and Z
vanishes: d + 1 equations in k + d + 1 unknowns. Crossings of one unit agree with
each other, crossings of two units do not, as soon as there are more equations
than unknowns: that tells them apart. With units ``relu(s_i z_i)`` every surface has
``p = sum_i v_i s_i w_i / 2``, which tells the signs, and ``v`` is its row over the oriented layer.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.units import SPARE
from unrelu.extraction.deep_numbers import FAINT, PLAIN
from unrelu.extraction.peel_lines import RANK, Crossings
from unrelu.extraction.peel_rows import KNOWN_TO, Row

__all__ = ["Surface", "first_layer_signs", "group_crossings", "surface_row"]

AGREE = FAINT
"""Relative disagreement of equations that measurement explains: the error of a normal up to
which a crossing is used."""
SIGNED = PLAIN
"""How far from +1 or -1 the solution for a sign may be."""


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

    def takes(self, other: Surface) -> bool:
        """Join another surface's crossings if all agree, one way round or the other."""
        if self.output @ other.output < 1.0 - AGREE:  # bends the other way, or other outputs
            return False
        matrix = np.concatenate([self.matrix, other.matrix])
        left, values, _ = np.linalg.svd(matrix, full_matrices=False)
        rank = int(np.count_nonzero(values > RANK * values[0]))
        if self.rank + other.rank - rank < SPARE:
            return False
        basis = left[:, :rank]
        for sign in (1.0, -1.0):
            right = np.concatenate([self.right, sign * other.right])
            rest = right - basis @ (basis.T @ right)
            if np.abs(rest).max() <= AGREE:
                self.members += other.members
                self.matrix, self.right = _condensed(matrix, right)
                self.rank = rank
                return True
        return False

    def solution(self) -> tuple[FloatArray, FloatArray]:
        """Return the unknowns of least norm, and the directions that nothing determines."""
        left, values, right = np.linalg.svd(self.matrix, full_matrices=True)
        rank = int(np.count_nonzero(values > RANK * values[0]))
        theta = right[:rank].T @ ((left.T @ self.right)[:rank] / values[:rank])
        return theta, np.asarray(right[rank:])


def _equations(
    x: FloatArray, normal: FloatArray, weights: FloatArray, biases: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the d + 1 equations of one crossing in (v, p, q), over the size of its normal."""
    k, d = weights.shape
    z = weights @ x + biases
    matrix = np.zeros((d + 1, k + d + 1))
    matrix[:d, :k] = 0.5 * (np.sign(z)[:, None] * weights).T
    matrix[d, :k] = 0.5 * np.abs(z)
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
    crossings: Crossings, weights: FloatArray, biases: FloatArray, known: list[Surface]
) -> list[Surface]:
    """Group crossings by the unit whose surface they lie on, the largest group first.

    ``known`` are groups of the first crossings, from an earlier call.
    """
    surfaces = [dataclasses.replace(s, members=list(s.members)) for s in known]
    seen = {i for s in surfaces for i in s.members}
    size = np.linalg.norm(crossings.outputs, axis=1)
    changed: list[Surface] = []
    for i in np.argsort(crossings.errors, kind="stable"):
        if int(i) in seen:
            continue
        normal = size[i] * crossings.normals[i]
        matrix, right = _equations(crossings.points[i], normal, weights, biases)
        rank = int(np.linalg.matrix_rank(matrix, rtol=RANK))
        new = Surface([int(i)], matrix, right, crossings.outputs[i] / size[i], rank)
        home = next((s for s in surfaces if s.takes(new)), new)
        if home is new:
            surfaces.append(new)
        changed = [s for s in changed if s is not home] + [home]
    while changed:  # what was too far from a surface's first members may be near its later ones
        small = changed.pop()
        surfaces.sort(key=lambda s: -len(s.members))
        home = next((s for s in surfaces if s is not small and s.takes(small)), small)
        if home is not small:
            surfaces = [s for s in surfaces if s is not small]
            changed = [s for s in changed if s is not home] + [home]
    return surfaces


def _unseen(null: FloatArray, k: int) -> BoolArray:
    """Tell which of the first k unknowns a null space reaches."""
    return np.asarray(np.linalg.norm(null[:, :k], axis=0) > AGREE)


def first_layer_signs(surfaces: list[Surface], weights: FloatArray) -> FloatArray:
    """Return the orientation of the first layer, 0 where nothing told, ``(k,)``.

    Where a surface was seen on one side of a hyperplane only, its v_i cannot be told from
    p; across such rows, and what else is open, the equation holds all the same.
    """
    k, d = weights.shape
    rows, right = [np.zeros((1, k))], [np.zeros(1)]
    for surface in surfaces:
        theta, null = surface.solution()
        unseen = _unseen(null, k)
        hidden = np.concatenate([weights[unseen], null[:, k : k + d], np.zeros((1, d))])
        _, values, span = np.linalg.svd(hidden, full_matrices=True)
        across = span[int(np.count_nonzero(values > AGREE * max(1.0, values[0]))) :]
        size = float(np.linalg.norm(theta[:k][~unseen]))
        if len(across) == 0 or not size > 0:
            continue
        v = np.where(unseen, 0.0, theta[:k]) / size
        rows.append(0.5 * (across @ weights.T) * v)
        right.append(across @ theta[k : k + d] / size)
    left, values, span = np.linalg.svd(np.concatenate(rows), full_matrices=True)
    rank = int(np.count_nonzero(values > AGREE))
    solution = span[:rank].T @ ((left.T @ np.concatenate(right))[:rank] / values[:rank])
    told = ~_unseen(span[rank:], k) & (np.abs(np.abs(solution) - 1.0) < SIGNED)
    return np.where(told, np.sign(solution), 0.0)


def surface_row(
    surface: Surface,
    crossings: Crossings,
    weights: FloatArray,
    biases: FloatArray,
    signs: FloatArray,
) -> Row | None:
    """Return a surface's row over the first layer as ``signs`` orients it, as far as known.

    None where no member lies where all units that are on have a known weight.
    """
    k, d = weights.shape
    theta, _ = surface.solution()
    members = np.array(surface.members)
    places = crossings.points[members]
    z = places @ weights.T + biases
    # The gradient at a member is what its normal says, with the sign that fits the others.
    slopes = (0.5 * np.sign(z) * theta[:k]) @ weights + theta[k : k + d]
    heights = np.maximum(signs * z, 0.0)
    on = np.asarray(heights > 0.0, dtype=np.float64)
    matrix = np.einsum("nk,kd->ndk", on, signs[:, None] * weights).reshape(-1, k)
    left, values, right = np.linalg.svd(matrix, full_matrices=True)
    rank = int(np.count_nonzero(values > RANK * values[0]))
    v = right[:rank].T @ ((left.T @ slopes.ravel())[:rank] / values[:rank])
    known = ~_unseen(right[rank:], k)
    v = np.where(known, v, 0.0)
    told = np.flatnonzero(~((on > 0.0) & ~known).any(axis=1))
    size = float(np.linalg.norm(v))
    if len(told) == 0 or size == 0.0:
        return None
    first = int(told[int(np.argmin(crossings.errors[members[told]]))])
    v /= size
    order = np.append(first, np.delete(np.arange(len(members)), first))
    row, known = np.append(v, -v @ heights[first]), np.append(known, True)
    error = np.where(known, max(KNOWN_TO, float(crossings.errors[members].max())), 0.0)
    return Row(row, known, error, len(members), places[order])
