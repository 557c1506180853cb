"""The landscape whose valleys are the units: objectives, gradients, Hessians.

For f = sum_i c_i u(w_i . x) the Hermite moments are sums of powers,
``E[f He_q(x)] = sum_i c_i u_q w_i^(x)q``. With M2 = sum_i c_i u_2 w_i w_i' whitened
to the identity the vectors become orthonormal, and the paper's

    G(z) = -sgn(u_4) E[f H4(z . x)] + lambda (E[f H2(z . x)] - u_2)^2

reads, with z = B u and B' M2 B = u_2 I,

    G(u) = -sgn(u_q) T(u, ..., u) + lambda (|u|^2 - 1)^2

whose minima are the whitened units, at any order q of which u_q does not vanish. At odd
orders there is one minimum more, in the middle of the units' negatives: T is negative there,
so it cannot be taken for a unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.optimize

from unrelu._types import FloatArray

__all__ = [
    "MomentWhitening",
    "apply_tensor",
    "contract",
    "joint_objective",
    "landscape_objective",
    "minimise_joint",
    "minimise_landscape",
    "minimise_simultaneous",
    "simultaneous_objective",
    "whiten",
    "whiten_tensor",
]


@dataclasses.dataclass(frozen=True)
class MomentWhitening:
    """``to_white`` is B ``(n, k)`` with B' M2 B = I; ``from_white`` ``(n, k)`` undoes it."""

    to_white: FloatArray
    from_white: FloatArray
    values: FloatArray


def whiten(second: FloatArray, rank: int) -> MomentWhitening:
    """Whiten the leading ``rank`` eigenvectors of a symmetric M2, ``(n, n)``."""
    values, vectors = np.linalg.eigh(second)
    order = np.argsort(values)[::-1][:rank]
    top, basis = values[order], vectors[:, order]
    root = np.sqrt(top)
    return MomentWhitening(basis / root, basis * root, top)


def whiten_tensor(tensor: FloatArray, to_white: FloatArray) -> FloatArray:
    """Apply B to every mode of a symmetric tensor: ``(n,)*q`` to ``(k,)*q``."""
    result = tensor
    for _ in range(tensor.ndim):
        # Contract the first mode and put the new one last: q times is every mode.
        result = np.tensordot(result, to_white, axes=(0, 0))
    return np.asarray(result)


def contract(tensor: FloatArray, vector: FloatArray, times: int) -> FloatArray:
    """Return ``T(v, ..., v, ., ...)`` with ``times`` modes contracted."""
    result = tensor
    for _ in range(times):
        result = result @ vector
    return np.asarray(result)


def apply_tensor(tensor: FloatArray, vector: FloatArray) -> float:
    """Return ``T(v, ..., v)``."""
    return float(contract(tensor, vector, tensor.ndim))


def landscape_objective(
    tensor: FloatArray, u: FloatArray, *, penalty: float
) -> tuple[float, FloatArray, FloatArray]:
    """Return ``G(u) = -T(u, ..., u) + lambda (|u|^2 - 1)^2``, its gradient and its Hessian."""
    q, excess = tensor.ndim, float(u @ u - 1.0)
    bend = contract(tensor, u, q - 2)
    slope = bend @ u
    value = -float(slope @ u) + penalty * excess**2
    gradient = -q * slope + 4.0 * penalty * excess * u
    hessian = (
        -q * (q - 1) * bend
        + 4.0 * penalty * excess * np.eye(len(u))
        + 8.0 * penalty * np.outer(u, u)
    )
    return value, np.asarray(gradient), np.asarray(hessian)


def minimise_landscape(tensor: FloatArray, start: FloatArray, *, penalty: float) -> FloatArray:
    """Minimise :func:`landscape_objective` by a trust-region Newton.

    Parameters
    ----------
    tensor
        Symmetric, order 3 or more, ``(k,)*q``, signed so that units are peaks.
    start
        ``(k,)``.
    penalty
        The paper's lambda (times u_2 squared); above the largest component of T
        so that G is bounded below.

    Returns
    -------
    The minimiser, scaled to unit length.
    """

    def value(u: FloatArray) -> float:
        return landscape_objective(tensor, u, penalty=penalty)[0]

    def gradient(u: FloatArray) -> FloatArray:
        return landscape_objective(tensor, u, penalty=penalty)[1]

    def hessian(u: FloatArray) -> FloatArray:
        return landscape_objective(tensor, u, penalty=penalty)[2]

    found = scipy.optimize.minimize(
        value,
        start,
        jac=gradient,
        hess=hessian,
        method="trust-exact",
        options={"gtol": np.sqrt(np.finfo(np.float64).eps) * penalty, "maxiter": 500},
    )
    u = np.asarray(found.x, dtype=np.float64)
    length = float(np.linalg.norm(u))
    return u / length if length > 0 else start


def simultaneous_objective(
    tensor: FloatArray, rows: FloatArray, *, gamma: float, penalty: float, printed: bool = False
) -> tuple[float, FloatArray]:
    """Return the simultaneous objective of B.4 and its gradient, in whitened coordinates.

        G(V) = sum_{j != l} T(v_j, v_j, v_l, v_l) - gamma sum_j T(v_j, v_j, v_j, v_j)
               + lambda |V V' - I|^2

    ``E[f psi(v, w, x)]`` of the paper is ``T(v, v, w, w)`` up to a constant factor. The
    paper's penalty (``printed``) holds only the lengths, the diagonal of V V': enough for f
    linear in the units, where every cross term is positive; products of units make cross
    terms negative, and rows then collapse onto each other.

    Parameters
    ----------
    tensor
        Fourth order, ``(k, k, k, k)``, signed so that units are peaks.
    rows
        V, ``(k, k)``.
    """
    squares = np.einsum("ja,jb->jab", rows, rows)
    # slices[l] = T(., ., v_l, v_l)
    slices = np.einsum("abcd,lcd->lab", tensor, squares, optimize=True)
    cross = np.einsum("jab,lab->jl", squares, slices, optimize=True)
    diagonal = np.diag(cross)
    excess = rows @ rows.T - np.eye(len(rows))
    if printed:
        excess = np.diag(np.diag(excess))
    value = float(cross.sum() - (1.0 + gamma) * diagonal.sum() + penalty * (excess**2).sum())
    total = slices.sum(axis=0)
    gradient = 4.0 * (
        rows @ total
        - (1.0 + gamma) * np.einsum("jab,jb->ja", slices, rows)
        + penalty * excess @ rows
    )
    return value, np.asarray(gradient)


def joint_objective(
    tensor: FloatArray, rows: FloatArray, *, penalty: float
) -> tuple[float, FloatArray]:
    """Return the objective for all peaks at once, held orthonormal, and its gradient.

        G(V) = -sum_j T(v_j, ..., v_j) + lambda |V V' - I|^2

    For a fixed trace this is the simultaneous objective again: over orthonormal V
    the cross terms sum to a constant minus the peaks. Products of units pull the
    peaks of a tensor together; orthonormality cancels the common part of the pull.

    Parameters
    ----------
    tensor
        ``(k,)*q``.
    rows
        V, ``(k, k)``.
    """
    q = tensor.ndim
    slopes = np.stack([contract(tensor, v, q - 1) for v in rows])
    excess = rows @ rows.T - np.eye(len(rows))
    value = float(-(slopes * rows).sum() + penalty * (excess**2).sum())
    return value, np.asarray(-q * slopes + 4.0 * penalty * excess @ rows)


def minimise_joint(tensor: FloatArray, start: FloatArray, *, penalty: float) -> FloatArray:
    """Minimise :func:`joint_objective` from ``start`` ``(k, k)``; unit rows."""
    shape = start.shape

    def both(flat: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = joint_objective(tensor, flat.reshape(shape), penalty=penalty)
        return value, gradient.ravel()

    return _unit_rows_at_minimum(both, start)


def minimise_simultaneous(
    tensor: FloatArray, start: FloatArray, *, gamma: float, penalty: float, printed: bool = False
) -> FloatArray:
    """Minimise :func:`simultaneous_objective` from ``start`` ``(k, k)``; unit rows.

    ``gamma`` is the paper's, at most c = 0.01.
    """
    shape = start.shape

    def both(flat: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = simultaneous_objective(
            tensor, flat.reshape(shape), gamma=gamma, penalty=penalty, printed=printed
        )
        return value, gradient.ravel()

    return _unit_rows_at_minimum(both, start)


def _unit_rows_at_minimum(
    both: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray
) -> FloatArray:
    found = scipy.optimize.minimize(
        both, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 2000}
    )
    rows = np.asarray(found.x).reshape(start.shape)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
