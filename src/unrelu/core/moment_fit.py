"""Least squares on the Hermite moments: the decomposition's last word.

Minimises ``sum_k ||T_k - sum_i alpha_ik w_i^{(x)k}||^2 / k!`` over k = 2..4,
which is Proposition 3.6's risk restricted to those orders and, since the noise
of ``T_k`` has variance proportional to k!, also the weighted least-squares fit.
The scalars are free (a canonical decomposition of all orders at once) or tied
to a unit, ``alpha_ik = a_i g_k(b_i)`` (Lemma 3.5).

No Jacobian is formed: with ``rho = w_i.w_j`` the inner products of its columns
are ``rho^k``, ``k rho^(k-1) w_j`` and ``k rho^(k-1) I + k(k-1) rho^(k-2) w_j w_i^T``.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.fit import FitConfig
from unrelu.core.hermite import relu_coefficient
from unrelu.core.moments import (
    MAX_ORDER,
    HermiteMoments,
    pair_index,
    pair_products,
    unpack_pairs,
)

__all__ = ["MomentFit", "fit_moments", "fit_scalars", "units_from_scalars"]

_ORDERS = tuple(range(2, MAX_ORDER + 1))


@dataclasses.dataclass(frozen=True)
class MomentFit:
    """Directions and scalars that fit the moments.

    Attributes
    ----------
    w
        Unit rows, ``(m, d)``, up to sign.
    alpha
        ``(orders, m)``: the factor of ``w_i^{(x)k}``, k = 2, 3, 4.
    loss
        Weighted sum of squares that is left.
    """

    w: FloatArray
    alpha: FloatArray
    loss: float


def _contract(moments: HermiteMoments, w: FloatArray) -> list[FloatArray]:
    """``T_k(w_i, ..., w_i, .)`` for each order present; each ``(m, d)``."""
    d = moments.input_dim
    out = [w @ moments.t2]
    rows, cols = pair_index(d)
    weighted = pair_products(w) * np.where(rows == cols, 1.0, 2.0)
    if moments.t3 is not None:
        out.append(weighted @ moments.t3)
    if moments.t4 is not None:
        out.append(np.einsum("mij,mj->mi", unpack_pairs(weighted @ moments.t4, d), w))
    return out


def _norm(moments: HermiteMoments) -> float:
    return float(np.sum(moments.flattening() ** 2))


def fit_scalars(moments: HermiteMoments, w: FloatArray) -> FloatArray:
    """Scalars ``zeta_k(i)`` of Algorithm 2, step 1, for k = 2, 3, 4.

    The least-squares solution of ``sum_i zeta_k(i) w_i^{(x)k} = T_k``; its normal
    equations have the matrix ``rho^k``. Shape ``(orders, m)``.
    """
    rho = w @ w.T
    out = []
    for k, contracted in zip(_ORDERS, _contract(moments, w), strict=False):
        right = np.einsum("mi,mi->m", contracted, w)
        out.append(np.linalg.lstsq(rho**k, right, rcond=1e-13)[0])
    return np.stack(out)


def units_from_scalars(alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Outer weight and bias from the scalars of orders 2 and 3 (Lemma 5.7).

    ``b = -zeta_3 / zeta_2`` and ``a = zeta_2 sqrt(2 pi) exp(b^2 / 2)``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        b = np.nan_to_num(-alpha[1] / alpha[0], nan=0.0, posinf=0.0, neginf=0.0)
    a = alpha[0] * math.sqrt(2.0 * math.pi) * np.exp(0.5 * np.minimum(b**2, 50.0))
    return np.asarray(a), np.asarray(b)


def fit_moments(
    moments: HermiteMoments,
    w: FloatArray,
    *,
    tied: bool,
    start: tuple[FloatArray, FloatArray] | None = None,
    steps: int = FitConfig.steps,
) -> MomentFit:
    """Fit directions and scalars to the moments by Levenberg-Marquardt.

    Parameters
    ----------
    moments
        Orders 2 to 4, or 2 to 3.
    w
        Starting directions, ``(m, d)``.
    tied
        Whether the scalars are those of ReLU units.
    start
        ``(a, b)`` to start from where ``tied``; from the scalars if None.
    steps
        Stop after so many, or when they decrease no more than rounding does.
    """
    orders = _ORDERS[: moments.order - 1]
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    alpha = fit_scalars(moments, w)
    if tied:
        a, b = units_from_scalars(alpha) if start is None else start
        scalars = np.stack([a, np.clip(b, -4.0, 4.0)])
    else:
        scalars = alpha
    total = _norm(moments)
    state = _Problem(moments, orders, tied, total)
    loss, damping = state.loss(w, scalars), 1e-3
    for _ in range(steps):
        hessian, gradient = state.normal_equations(w, scalars)
        diagonal = np.diagonal(hessian).copy()
        improved = False
        for _ in range(12):
            step = _solve(hessian, diagonal, damping, gradient)
            new_w, new_scalars = state.move(w, scalars, step)
            new_loss = state.loss(new_w, new_scalars)
            if new_loss < loss:
                improved = True
                break
            damping *= 4.0
        if not improved:
            break
        decrease = loss - new_loss
        w, scalars, loss = new_w, new_scalars, new_loss
        damping = max(damping / 5.0, 1e-15)
        if decrease <= np.finfo(np.float64).eps * total:
            break
    w, scalars = _sharpen(state, w, scalars)
    return MomentFit(w, state.alpha(scalars), max(loss, 0.0))


def _sharpen(state: _Problem, w: FloatArray, scalars: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Undamped steps while the gradient falls.

    The loss is a difference of large sums and stops telling points apart at the
    square root of rounding; the gradient does not.
    """
    hessian, gradient = state.normal_equations(w, scalars)
    for _ in range(6):
        step = _solve(hessian, np.diagonal(hessian).copy(), 0.0, gradient)
        new_w, new_scalars = state.move(w, scalars, step)
        hessian, new_gradient = state.normal_equations(new_w, new_scalars)
        if not np.linalg.norm(new_gradient) < 0.5 * np.linalg.norm(gradient):
            break
        w, scalars, gradient = new_w, new_scalars, new_gradient
    return w, scalars


def _solve(
    hessian: FloatArray, diagonal: FloatArray, damping: float, gradient: FloatArray
) -> FloatArray:
    floor = 1e-14 * float(diagonal.max())
    damped = hessian + np.diag(damping * diagonal + floor)
    try:
        return np.asarray(np.linalg.solve(damped, gradient))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(damped, gradient, rcond=1e-13)[0])


@dataclasses.dataclass(frozen=True)
class _Problem:
    """The fit's algebra; parameters are ordered (w_1..w_m, scalars)."""

    moments: HermiteMoments
    orders: tuple[int, ...]
    tied: bool
    total: float

    def alpha(self, scalars: FloatArray) -> FloatArray:
        if not self.tied:
            return scalars
        return np.stack([scalars[0] * relu_coefficient(k, scalars[1]) for k in self.orders])

    def _chain(self, scalars: FloatArray) -> FloatArray:
        """Differentiate alpha_k by scalar_s; shape (orders, scalars, m); g_k' = g_{k+1}."""
        m = scalars.shape[1]
        if not self.tied:
            count = len(self.orders)
            return np.broadcast_to(np.eye(count)[:, :, None], (count, count, m))
        a, b = scalars
        rows = [(relu_coefficient(k, b), a * relu_coefficient(k + 1, b)) for k in self.orders]
        return np.stack([np.stack(pair) for pair in rows])

    def loss(self, w: FloatArray, scalars: FloatArray) -> float:
        alpha, rho = self.alpha(scalars), w @ w.T
        value = self.total
        for i, (k, contracted) in enumerate(
            zip(self.orders, _contract(self.moments, w), strict=True)
        ):
            cross = alpha[i] @ np.einsum("mi,mi->m", contracted, w)
            value += (alpha[i] @ rho**k @ alpha[i] - 2.0 * cross) / math.factorial(k)
        return float(value)

    def move(
        self, w: FloatArray, scalars: FloatArray, step: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        m, d = w.shape
        new_w = w + step[: m * d].reshape(m, d)
        new_w /= np.linalg.norm(new_w, axis=1, keepdims=True)
        new_scalars = scalars + step[m * d :].reshape(scalars.shape)
        if self.tied:
            # Beyond |b| = 6 the coefficients are below rounding.
            new_scalars[1] = np.clip(new_scalars[1], -6.0, 6.0)
        return new_w, new_scalars

    def normal_equations(
        self, w: FloatArray, scalars: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        m, d = w.shape
        s = scalars.shape[0]
        alpha, chain, rho = self.alpha(scalars), self._chain(scalars), w @ w.T
        ww = np.zeros((m, d, m, d))
        wc = np.zeros((m, d, s, m))
        cc = np.zeros((s, m, s, m))
        grad_w, grad_c = np.zeros((m, d)), np.zeros((s, m))
        outer = np.einsum("jp,iq->ipjq", w, w)  # entry: (w_j)_p (w_i)_q
        for n, (k, contracted) in enumerate(
            zip(self.orders, _contract(self.moments, w), strict=True)
        ):
            weight = 1.0 / math.factorial(k)
            both = alpha[n][:, None] * alpha[n][None, :] * weight
            power = rho ** (k - 2)
            ww += np.einsum("ij,pq->ipjq", both * k * power * rho, np.eye(d))
            ww += (both * k * (k - 1) * power)[:, None, :, None] * outer
            # w_i against alpha_j: alpha_i k rho^(k-1) w_j
            lever = weight * k * alpha[n][:, None] * power * rho
            wc += np.einsum("ij,jp,sj->ipsj", lever, w, chain[n])
            cc += weight * np.einsum("si,ij,tj->sitj", chain[n], rho**k, chain[n])
            residual = contracted - (power * rho * alpha[n]) @ w
            grad_w += weight * k * alpha[n][:, None] * residual
            grad_c += weight * chain[n] * np.einsum("mi,mi->m", residual, w)
        # The length of w_i is not a parameter: project its rows and columns onto
        # the sphere's tangent space, and freeze the direction that is left.
        tangent = np.eye(d) - np.einsum("ip,iq->ipq", w, w)
        ww = np.einsum("ipa,iajb,jbq->ipjq", tangent, ww, tangent, optimize=True)
        wc = np.einsum("ipa,iasj->ipsj", tangent, wc, optimize=True)
        grad_w -= np.einsum("mi,mi->m", grad_w, w)[:, None] * w
        size = m * d
        hessian = np.empty((size + s * m,) * 2)
        hessian[:size, :size] = ww.reshape(size, size)
        hessian[:size, size:] = wc.reshape(size, s * m)
        hessian[size:, :size] = hessian[:size, size:].T
        hessian[size:, size:] = cc.reshape(s * m, s * m)
        index = np.arange(m)
        blocks = hessian[:size, :size].reshape(m, d, m, d)
        blocks[index, :, index, :] += (np.eye(d) - tangent) * np.trace(hessian) / len(hessian)
        return hessian, np.concatenate([grad_w.ravel(), grad_c.ravel()])
