"""Algorithms 1 to 4 and 6 of Awasthi, Tang & Vijayaraghavan, line by line, at any order l.

They take Hermite tensors, exact or estimated, by their distinct entries
(:class:`unrelu.core.symmetric.SymmetricTensor`): ``tensors[k]`` of order k. At l = 1 they find
m <= d units (tensors 1 to 4), at a higher order up to about d^l (tensors l to 2l + 2).

Several outputs share their units' directions and biases, and a tensor may hold one for each:
the paper's scalar f is the case of one output. Then the outputs lie side by side along a
flattening's last mode, a unit's outer weight is a row of numbers, and each linear system has
the equations of all outputs.

Two readings of the printed text: the ranks of steps 2 and 3 flatten with
(l, l+1, 0) and (l, l+2, 0), and in RECOVERSCALARS, with q counted as the order
of the tensor, the factor and the polynomial are q - 2 and ``He_{q-2}``, since
Lemma 3.5 shifts the index of Lemma 4.5 by two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from unrelu._numbers import whole_number
from unrelu._types import FloatArray
from unrelu.core.hermite import hermite, relu_coefficient
from unrelu.core.jennrich import jennrich, leading_subspace
from unrelu.core.moments import DENSE_LIMIT
from unrelu.core.symmetric import SymmetricTensor, multiplicities, sum_positions
from unrelu.errors import InvalidInput

__all__ = [
    "RankOneUnits",
    "Thresholds",
    "check_order",
    "fix_signs",
    "full_rank_algorithm",
    "population_tensors",
    "recover_directions",
    "recover_scalars",
    "robust_algorithm",
]

Tensors = Mapping[int, SymmetricTensor]


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Parameters of Algorithm 4.

    Attributes
    ----------
    eta1
        Singular values of the flattened tensors at or below this are noise; for
        tensors of order 2l + 1 and 2l + 2.
    eta2
        Rank-one terms with a smaller factor are dropped, relative to the
        largest: a weak term of one tensor is a strong one of the other
        (Lemma 4.3), where its direction is more accurate.
    eta3
        Two directions nearer than this, up to sign, are one.
    """

    eta1: tuple[float, float]
    eta2: float
    eta3: float

    @classmethod
    def exact(cls, size: float) -> Thresholds:
        """Return those of exact tensors of a size: powers of float64's resolution.

        Singular values lose a few digits to rounding; two eigenvectors of an ill-conditioned
        matrix agree to about the square root of what its eigenvalues do.
        """
        eps = float(np.finfo(np.float64).eps)
        return cls((eps**0.75 * size, eps**0.75 * size), eps**0.5, eps**0.25)


@dataclasses.dataclass(frozen=True)
class RankOneUnits:
    """Units ``a relu(w.x + b)``: ``w`` (m, d) with unit rows, ``b`` (m,).

    ``a`` is (m,), or (m, outputs) where there are several.
    """

    w: FloatArray
    a: FloatArray
    b: FloatArray


def check_order(order: int, d: int) -> int:
    """Return the order; refuse one below 1, and one whose largest flattening is too large to form.

    Allowed are as many numbers as T4 has on symmetric pairs of ``DENSE_LIMIT`` inputs: order 2
    up to 17 inputs, order 3 up to 10, order 4 up to 7.
    """
    order = whole_number(order, "order", least=1)
    side = math.comb(d + order - 1, order)
    if order > 1 and side**2 * (d * (d + 1) // 2) > (DENSE_LIMIT * (DENSE_LIMIT + 1) // 2) ** 2:
        raise InvalidInput(
            f"order={order} flattens the tensor of order {2 * order + 2} over {d} inputs to "
            f"{side} x {side} x {d * (d + 1) // 2} numbers; that is too many. The default route "
            "needs no such tensor"
        )
    return order


def population_tensors(
    w: FloatArray, a: FloatArray, b: FloatArray, orders: tuple[int, ...]
) -> dict[int, SymmetricTensor]:
    """Exact Hermite coefficients of a network (Lemma 3.5); ``a`` (m,) or (m, outputs)."""
    outer = np.atleast_2d(np.asarray(a).T)
    return {k: SymmetricTensor.of_units(w, outer * relu_coefficient(k, b), k) for k in orders}


def _solved(matrix: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])


def _coefficients(tensor: SymmetricTensor, w: FloatArray) -> FloatArray:
    """Solve ``sum_i zeta(i) vec(w_i^(x)k) = vec(T)`` by its normal equations, ``(m, outputs)``."""
    return _solved((w @ w.T) ** tensor.k, tensor.contract(w).T)


def recover_scalars(order: int, w: FloatArray, tensors: Tensors) -> tuple[FloatArray, FloatArray]:
    """Algorithm 2, RECOVERSCALARS: outer weights, and biases up to sign.

    Where there are several outputs a unit's ``zeta_j`` are proportional vectors, and the
    quotients of the paper are those of their projections onto ``zeta_q``.

    Parameters
    ----------
    order
        l.
    w
        Unit rows ``(m, d)``, up to sign.
    tensors
        Orders 2 and 3 if l = 1, else l to l + 3.

    Returns
    -------
    ``a`` (m,) or (m, outputs), and ``b`` (m,).
    """
    # Step 1.
    needed = (2, 3) if order == 1 else range(order, order + 4)
    zeta = {j: _coefficients(tensors[j], w) for j in needed}
    # Step 2; a direction that is none may have no finite scalars.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        a, b = _scalars(order, zeta)
    return (a[:, 0] if a.shape[1] == 1 else a), b


def _scalars(order: int, zeta: Mapping[int, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Algorithm 2, step 2: outer weights ``(m, outputs)`` and biases from the zetas."""
    root = math.sqrt(2.0 * math.pi)

    def over(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
        return np.asarray((numerator * denominator).sum(axis=1) / (denominator**2).sum(axis=1))

    if order == 1:
        b = over(-zeta[3], zeta[2])
        return zeta[2] * (root * np.exp(0.5 * b**2))[:, None], b
    a, b = np.empty_like(zeta[order]), np.empty(len(zeta[order]))
    strength = {j: np.linalg.norm(zeta[j], axis=1) for j in (order + 1, order + 2)}
    lower = strength[order + 1] >= strength[order + 2]
    for q, mine in ((order + 1, lower), (order + 2, ~lower)):
        before, here, after = (zeta[j][mine] for j in (q - 1, q, q + 1))
        b[mine] = over(-(after + (q - 2) * before), here)
        factor = root * (-1.0) ** q * np.exp(0.5 * b[mine] ** 2) / hermite(q - 2, b[mine])
        a[mine] = here * factor[:, None]
    return a, b


def fix_signs(first: SymmetricTensor, units: RankOneUnits) -> RankOneUnits:
    """Algorithm 3, FIXSIGNS: orientations from ``f_1 = sum_i z_i a_i w_i``."""
    outer = np.atleast_2d(units.a.T)
    # One block of d equations for each output.
    system = (outer[:, :, None] * units.w).swapaxes(1, 2).reshape(-1, len(units.w))
    z = _solved(system, first.entries.ravel())  # step 1
    xi = np.where(z < 0.0, -1.0, 1.0)  # step 2
    return RankOneUnits(xi[:, None] * units.w, units.a, xi * units.b)


def _roots(vectors: FloatArray, d: int, order: int) -> FloatArray:
    """Extract unit w from rows that are nearly ``w^{(x)l}``, in isometric coordinates."""
    if order == 1:
        return vectors
    dense = vectors / np.sqrt(multiplicities(d, order))
    slices = dense[:, sum_positions(d, 1, order - 1)] * np.sqrt(multiplicities(d, order - 1))
    left, _, _ = np.linalg.svd(slices, full_matrices=False)
    return np.asarray(left[:, :, 0])


def recover_directions(
    order: int,
    tensors: Tensors,
    thresholds: Thresholds,
    rng: np.random.Generator,
    *,
    pairs: int = 1,
    width: int | None = None,
) -> FloatArray:
    """Algorithm 4, steps 1 to 4: the directions, up to sign; ``(m', d)``."""
    d = tensors[2 * order + 1].d
    # Step 1: tensors are flattened where they are used.
    found: list[tuple[FloatArray, FloatArray]] = []
    for extra, eta1 in zip((1, 2), thresholds.eta1, strict=True):
        tensor = tensors[2 * order + extra]
        # Steps 2 and 3: the rank, then Jennrich's algorithm.
        basis, _ = leading_subspace(tensor.matrix(order, order + extra), eta1)
        if width is not None:
            basis = basis[:, :width]
        rows = jennrich(tensor.flatten(order, order, extra), basis, rng, pairs=pairs)
        w = _roots(rows, d, order)
        # Compared across the two orders in units of their noise, sqrt(k!).
        factor = np.linalg.norm(_coefficients(tensor, w), axis=1) if len(w) else np.empty(0)
        found.append((factor / math.sqrt(math.factorial(tensor.k)), w))
    # Step 4.
    largest = max((float(weights.max(initial=0.0)) for weights, _ in found), default=0.0)
    found = [(a[a >= thresholds.eta2 * largest], w[a >= thresholds.eta2 * largest])
             for a, w in found]  # fmt: skip
    first, second = found
    return _without_duplicates(first, second, thresholds.eta3)


def _without_duplicates(
    first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray], eta3: float
) -> FloatArray:
    """Join the directions of two tensors, of each pair that is one the stronger; ``(m', d)``.

    Directions of one tensor are different units, however near. One of each tensor is the same
    unit where both are nearest to each other, up to sign, and within eta3.
    """
    (a, u), (b, v) = first, second
    kept = np.ones(len(u), dtype=bool), np.ones(len(v), dtype=bool)
    if len(u) and len(v):
        chord = np.sqrt(np.maximum(2.0 - 2.0 * np.abs(u @ v.T), 0.0))
        for i, j in enumerate(chord.argmin(axis=1)):
            if chord[:, j].argmin() == i and chord[i, j] <= eta3:
                kept[int(a[i] >= b[j])][j if a[i] >= b[j] else i] = False
    weights = np.concatenate([a[kept[0]], b[kept[1]]])
    rows = np.concatenate([u[kept[0]], v[kept[1]]])
    return np.asarray(rows[np.argsort(-weights, kind="stable")])


def robust_algorithm(
    order: int,
    tensors: Tensors,
    thresholds: Thresholds,
    rng: np.random.Generator,
    *,
    pairs: int = 1,
    width: int | None = None,
) -> RankOneUnits:
    """Algorithm 4 (Algorithm 1 without its step 6 on exact tensors)."""
    w = recover_directions(order, tensors, thresholds, rng, pairs=pairs, width=width)
    # Step 5.
    a, b = recover_scalars(order, w, tensors) if len(w) else (np.empty(0), np.empty(0))
    # A direction that is none has no finite scalars, and estimates no unit.
    sound = np.isfinite(b) & np.isfinite(np.atleast_2d(a.T)).all(axis=0)
    return RankOneUnits(w[sound], a[sound], b[sound])


def full_rank_algorithm(
    tensors: Tensors,
    thresholds: Thresholds,
    rng: np.random.Generator,
    *,
    pairs: int = 1,
    width: int | None = None,
) -> RankOneUnits:
    """Algorithm 6 (Algorithm 1 with l = 1 on exact tensors)."""
    units = robust_algorithm(1, tensors, thresholds, rng, pairs=pairs, width=width)  # step 1
    return fix_signs(tensors[1], units) if len(units.w) else units  # step 2
