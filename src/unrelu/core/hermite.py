"""Closed forms: Hermite polynomials, a ReLU unit's coefficients, L2 distances.

Everything here concerns x ~ N(0, I) and units ``a relu(w.x + b)`` with unit w.

References
----------
Awasthi, Tang & Vijayaraghavan 2021: Definition 1.2, Lemma 3.5, Lemma 4.3.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import scipy.special

from unrelu._types import ArrayLike, FloatArray
from unrelu.core.symmetric import product_levels

__all__ = [
    "hermite",
    "hermite_products",
    "hermite_tensor",
    "normal_cdf",
    "normal_pdf",
    "relu_coefficient",
    "relu_inner_products",
]


def normal_pdf(t: ArrayLike) -> FloatArray:
    """Density of N(0, 1)."""
    values = np.asarray(t, dtype=np.float64)
    return np.asarray(np.exp(-0.5 * values**2) / math.sqrt(2.0 * math.pi))


def normal_cdf(t: ArrayLike) -> FloatArray:
    """Distribution function of N(0, 1), the paper's Phi."""
    return np.asarray(scipy.special.ndtr(np.asarray(t, dtype=np.float64)))


def hermite(k: int, t: ArrayLike) -> FloatArray:
    """Probabilists' Hermite polynomial ``He_k(t)``, elementwise.

    By the recurrence ``He_{k+1}(t) = t He_k(t) - k He_{k-1}(t)`` (13), which is
    stable on the real line for the small orders used here.
    """
    if k < 0:
        raise ValueError(f"the order must not be negative, got {k}")
    values = np.asarray(t, dtype=np.float64)
    previous, current = np.zeros_like(values), np.ones_like(values)
    for j in range(k):
        previous, current = current, values * current - j * previous
    return current


def hermite_tensor(k: int, x: ArrayLike) -> FloatArray:
    """Tensor ``He_k(x)`` of Definition 1.2, dense; for tests and small d.

    Parameters
    ----------
    k
        Order.
    x
        One point, shape ``(d,)``.

    Returns
    -------
    Shape ``(d,) * k``; entry alpha is the product over coordinates i of
    ``He_c(x_i)``, c the number of times i occurs in alpha.
    """
    point = np.asarray(x, dtype=np.float64)
    d = len(point)
    table = [hermite(c, point) for c in range(k + 1)]
    out = np.empty((d,) * k)
    for alpha in itertools.product(range(d), repeat=k):
        counts = np.bincount(np.asarray(alpha, dtype=np.intp), minlength=d)
        out[alpha] = math.prod(table[c][i] for i, c in enumerate(counts) if c)
    return out


def relu_coefficient(k: int, b: ArrayLike) -> FloatArray:
    """Coefficient g_k(b) of ``w^{(x)k}`` in ``E[relu(w.x + b) He_k(x)]``.

    Lemma 3.5: ``g_0 = b Phi(b) + phi(b)``, ``g_1 = Phi(b)`` and, for k >= 2,
    ``g_k = (-1)^k He_{k-2}(b) phi(b)``, where phi, Phi are the density and the
    distribution function of N(0, 1).
    """
    bias = np.asarray(b, dtype=np.float64)
    if k == 0:
        return np.asarray(bias * normal_cdf(bias) + normal_pdf(bias))
    if k == 1:
        return normal_cdf(bias)
    return np.asarray((-1.0) ** k * hermite(k - 2, bias) * normal_pdf(bias))


def _bivariate_cdf(h: FloatArray, k: FloatArray, rho: FloatArray) -> FloatArray:
    """P(X < h, Y < k) for standard normals of correlation rho, by Owen's T.

    Owen 1956, (2.1); ``|rho| = 1`` is handled by its limits.
    """
    s = np.sqrt(np.maximum(1.0 - rho**2, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        a_h = (k - rho * h) / (h * s)
        a_k = (h - rho * k) / (k * s)
    # h = 0 or k = 0: the limits of T(h, a) as a grows without bound.
    a_h = np.where(h == 0, np.where(k >= 0, np.inf, -np.inf), a_h)
    a_k = np.where(k == 0, np.where(h >= 0, np.inf, -np.inf), a_k)
    both_zero = (h == 0) & (k == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(s > 0, (1.0 - rho) / s, np.inf)
    a_h = np.where(both_zero, slope, a_h)
    a_k = np.where(both_zero, slope, a_k)
    product = h * k
    beta = np.where((product < 0) | ((product == 0) & (h + k < 0)), 0.5, 0.0)
    inside = (
        0.5 * (normal_cdf(h) + normal_cdf(k))
        - scipy.special.owens_t(h, a_h)
        - scipy.special.owens_t(k, a_k)
        - beta
    )
    equal = normal_cdf(np.minimum(h, k))
    opposite = np.maximum(normal_cdf(h) + normal_cdf(k) - 1.0, 0.0)
    edge = np.where(rho > 0, equal, opposite)
    return np.asarray(np.where(s > 0, inside, edge))


def relu_inner_products(w: FloatArray, b: FloatArray, v: FloatArray, c: FloatArray) -> FloatArray:
    """``E[relu(w_i.x + b_i) relu(v_j.x + c_j)]`` under N(0, I), in closed form.

    With rho = w_i.v_j and s^2 = 1 - rho^2, from d/drho E[g(X) h(Y)] =
    E[g'(X) h'(Y)] integrated by parts::

        (b c + rho) Phi2(b, c; rho) + b phi(c) Phi((b - rho c)/s)
            + c phi(b) Phi((c - rho b)/s) + s^2 phi2(b, c; rho)

    where Phi2, phi2 are the bivariate normal distribution and density.

    Parameters
    ----------
    w, v
        Unit rows, ``(m, d)`` and ``(n, d)``.
    b, c
        Biases, ``(m,)`` and ``(n,)``.

    Returns
    -------
    Shape ``(m, n)``.
    """
    rho = np.clip(w @ v.T, -1.0, 1.0)
    h = np.broadcast_to(b[:, None], rho.shape)
    k = np.broadcast_to(c[None, :], rho.shape)
    square = np.maximum(1.0 - rho**2, 0.0)
    s = np.sqrt(square)
    # Below 1e-8 the units are parallel in float64; the floor keeps Phi(0) = 1/2
    # where the two kinks coincide.
    parallel = s < 1e-8
    floor = np.maximum(s, 1e-8)
    first = normal_cdf((h - rho * k) / floor)
    second = normal_cdf((k - rho * h) / floor)
    joint = s * normal_pdf(h) * normal_pdf((k - rho * h) / floor)
    limit = np.where(parallel, np.sign(rho), rho)
    value = (
        (h * k + rho) * _bivariate_cdf(h, k, limit)
        + h * normal_pdf(k) * first
        + k * normal_pdf(h) * second
        + joint
    )
    return np.asarray(value)


def hermite_products(x: FloatArray, k: int) -> list[FloatArray]:
    """Distinct entries of ``He_0(x), ..., He_k(x)`` for many points, one product each.

    ``(n, d)`` to arrays ``(n, C(d + t - 1, t))`` for t up to k, columns in the order of
    :func:`unrelu.core.symmetric.exponents`.
    """
    return product_levels([hermite(c, x) for c in range(k + 1)])
