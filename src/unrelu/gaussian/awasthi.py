"""Algorithms 1 to 4 and 6 of Awasthi, Tang & Vijayaraghavan, line by line.

They take Hermite tensors, exact or estimated, as dense arrays: ``tensors[k]`` of
shape ``(d,) * k``. The order l is 1 (m <= d, tensors 1 to 4) or more (m up to
about d^l, tensors l to 2l + 2).

Two readings of the printed text: the ranks of steps 2 and 3 flatten with
(l, l+1, 0) and (l, l+2, 0), and in RECOVERSCALARS, with q counted as the order
of the tensor, the factor and the polynomial are q - 2 and ``He_{q-2}``, since
Lemma 3.5 shifts the index of Lemma 4.5 by two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.hermite import hermite, relu_coefficient, symmetric_power_sum
from unrelu.core.jennrich import jennrich, leading_subspace

__all__ = [
    "RankOneUnits",
    "Thresholds",
    "contract_all",
    "fix_signs",
    "full_rank_algorithm",
    "population_tensors",
    "recover_directions",
    "recover_scalars",
    "robust_algorithm",
]

Tensors = Mapping[int, FloatArray]


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
    """Units ``a relu(w.x + b)``: ``w`` (m, d) with unit rows, ``a``, ``b`` (m,)."""

    w: FloatArray
    a: FloatArray
    b: FloatArray


def population_tensors(
    w: FloatArray, a: FloatArray, b: FloatArray, orders: tuple[int, ...]
) -> dict[int, FloatArray]:
    """Exact Hermite coefficients of a network (Lemma 3.5)."""
    return {k: symmetric_power_sum(w, a * relu_coefficient(k, b), k) for k in orders}


def contract_all(tensor: FloatArray, w: FloatArray) -> FloatArray:
    """``T(w_i, ..., w_i)`` for each row; ``(m,)``."""
    if tensor.ndim == 0:
        return np.full(len(w), float(tensor))
    value = np.tensordot(w, tensor, axes=(1, 0))
    while value.ndim > 1:
        value = np.einsum("ij...,ij->i...", value, w)
    return np.asarray(value)


def recover_scalars(order: int, w: FloatArray, tensors: Tensors) -> tuple[FloatArray, FloatArray]:
    """Algorithm 2, RECOVERSCALARS: outer weights, and biases up to sign.

    Parameters
    ----------
    order
        l.
    w
        Unit rows ``(m, d)``, up to sign.
    tensors
        Orders 2 and 3 if l = 1, else l to l + 3.
    """
    rho = w @ w.T

    def zeta(j: int) -> FloatArray:
        # Step 1: sum_i zeta_j(i) w_i^{(x)j} = T_j, through its normal equations.
        return np.asarray(np.linalg.lstsq(rho**j, contract_all(tensors[j], w), rcond=1e-14)[0])

    root = math.sqrt(2.0 * math.pi)
    if order == 1:
        second, third = zeta(2), zeta(3)
        b = -third / second
        return second * root * np.exp(0.5 * b**2), b
    z = {j: zeta(j) for j in range(order, order + 4)}
    a, b = np.empty(len(w)), np.empty(len(w))
    for i in range(len(w)):
        q = max((order + 1, order + 2), key=lambda j: abs(z[j][i]))
        b[i] = -(z[q + 1][i] + (q - 2) * z[q - 1][i]) / z[q][i]
        a[i] = root * (-1) ** q * z[q][i] * math.exp(0.5 * b[i] ** 2) / hermite(q - 2, b[i])
    return a, b


def fix_signs(first: FloatArray, units: RankOneUnits) -> RankOneUnits:
    """Algorithm 3, FIXSIGNS: orientations from ``f_1 = sum_i z_i a_i w_i``."""
    z = np.linalg.lstsq((units.a[:, None] * units.w).T, first, rcond=1e-14)[0]
    xi = np.where(z < 0.0, -1.0, 1.0)
    return RankOneUnits(xi[:, None] * units.w, units.a, xi * units.b)


def _roots(vectors: FloatArray, d: int, order: int) -> FloatArray:
    """Extract unit w from rows that are nearly ``w^{(x)l}``."""
    if order == 1:
        return vectors
    rows = []
    for vector in vectors:
        left, _, _ = np.linalg.svd(vector.reshape(d, -1))
        rows.append(left[:, 0])
    return np.asarray(rows).reshape(-1, d)


def recover_directions(
    order: int,
    tensors: Tensors,
    thresholds: Thresholds,
    rng: np.random.Generator,
    *,
    pairs: int = 1,
    width: int | None = None,
    refine: Callable[[FloatArray, FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Algorithm 4, steps 1 to 4: the directions, up to sign; ``(m', d)``.

    ``refine`` may replace the directions that Jennrich's algorithm found in one
    tensor (it gets the tensor, flattened, and the directions).
    """
    d = tensors[2 * order + 1].shape[0]
    found: list[tuple[float, FloatArray]] = []
    for extra, eta1 in zip((1, 2), thresholds.eta1, strict=True):
        tensor = tensors[2 * order + extra]
        flat = tensor.reshape(d**order, -1)
        basis, _ = leading_subspace(flat, eta1)
        if width is not None:
            basis = basis[:, :width]
        cube = tensor.reshape(d**order, d**order, -1)
        rows = jennrich(cube, basis, rng, pairs=pairs)
        w = _roots(rows, d, order)
        if refine is not None and len(w):
            w = refine(cube, w)
        if len(w) == 0:
            continue
        k = 2 * order + extra
        factor = np.linalg.lstsq((w @ w.T) ** k, contract_all(tensor, w), rcond=1e-14)[0]
        # Compared across the two orders in units of their noise, sqrt(k!).
        weight = np.abs(factor) / math.sqrt(math.factorial(k))
        found.extend(zip(weight.tolist(), w, strict=True))
    found.sort(key=lambda pair: -pair[0])
    kept: list[FloatArray] = []
    for weight, w in found:
        if weight < thresholds.eta2 * found[0][0]:
            continue
        if all(min(np.linalg.norm(w - v), np.linalg.norm(w + v)) > thresholds.eta3 for v in kept):
            kept.append(w)
    return np.asarray(kept).reshape(-1, d)


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
    a, b = recover_scalars(order, w, tensors) if len(w) else (np.empty(0), np.empty(0))
    return RankOneUnits(w, a, b)


def full_rank_algorithm(
    tensors: Tensors,
    thresholds: Thresholds,
    rng: np.random.Generator,
    *,
    pairs: int = 1,
    width: int | None = None,
) -> RankOneUnits:
    """Algorithm 6 (Algorithm 1 with l = 1 on exact tensors)."""
    units = robust_algorithm(1, tensors, thresholds, rng, pairs=pairs, width=width)
    return fix_signs(tensors[1], units) if len(units.w) else units
