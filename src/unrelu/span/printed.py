r"""Algorithm 2 of Jayaram, Woodruff & Zhang as printed: Span Recovery With Adaptive Gradients.

Each line of the box is marked. The numbers of line 1 follow from the digits of the arithmetic:
:math:`\beta = 2^{-N^2} \epsilon_0^2` must be a distance that it can tell. With
:math:`\epsilon_0 = 2^{-N^2}` that is :math:`2^{-3 N^2}`, so float64 carries N = 4, and 200 bits
carry N = 8 (:mod:`unrelu.span.precision`). What the lines lose is about :math:`\epsilon_0`
times the curvature of the boundary: 1e-5 with N = 4, 1e-19 with N = 8.

What stops it is Assumption 3, not floating point. Line 3 draws inputs outside of V until one has
M = 1. For thresholds that a network reaches with all of its k directions but not with the last
few of them, none ever has: V ends with k - 1 or fewer directions in whatever precision.

Where the letter is open, and what is done here
-----------------------------------------------
- N is "poly(...)" of numbers that nobody has: taken from the digits, see above.
- :math:`\epsilon_0 = 2^{-poly(N)}`: :math:`2^{-N^2}`.
- :math:`\eta`, where it is not given, is :math:`2^{-N}`: N is at least log(1/:math:`\eta`).
- Line 2 counts from 0 to k, which is one too many: after k vectors nothing is left.
- Line 7 says "restart from line 5 (regenerate the Gaussian g)": from line 3, as the proof of
  Lemma 4.2 does, for it is x that was bad.
- M = 1 is "another label than at the origin", where :math:`\sigma(0) = 0 < 1`.
- Line 3 ends after ``draws`` inputs, which bounds :math:`\gamma` of Assumption 3.
- Beyond the box: a few more directions u are searched, and tell how far y is off.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from unrelu._types import BoolArray, FloatArray

__all__ = ["Arithmetic", "Float64", "PrintedNumbers", "PrintedSpan", "adaptive_gradients"]

Vectors = Any  # (p, n): float64, or objects with the operators of numbers
Labels = Callable[[Vectors], BoolArray]


class Arithmetic(Protocol):
    """Numbers with so many bits."""

    bits: int

    def vectors(self, values: FloatArray) -> Vectors:
        """Return float64 numbers as numbers of this arithmetic, of the same shape."""

    def power(self, exponent: int) -> Any:
        """Return ``2 ** exponent``."""

    def root(self, value: Any) -> Any:
        """Return the square root."""

    def solve(self, rows: Vectors, right: Vectors) -> Vectors:
        """Return y with ``rows @ y = right``, ``(n, n)`` and ``(n,)``."""


class Float64:
    """Double precision."""

    bits = np.finfo(np.float64).nmant + 1

    def vectors(self, values: FloatArray) -> Vectors:
        """Return the same numbers."""
        return values

    def power(self, exponent: int) -> float:
        """Return ``2 ** exponent``."""
        return math.ldexp(1.0, exponent)

    def root(self, value: float) -> float:
        """Return the square root."""
        return math.sqrt(value)

    def solve(self, rows: Vectors, right: Vectors) -> Vectors:
        """Return y with ``rows @ y = right``."""
        return np.linalg.solve(rows, right)


@dataclasses.dataclass(frozen=True)
class PrintedNumbers:
    """The numbers of line 1.

    Attributes
    ----------
    size
        N.
    eta_log2
        log2 of eta, the least slope of Assumption 4.
    """

    size: int
    eta_log2: int

    @classmethod
    def carried(cls, bits: int, eta: float | None = None) -> PrintedNumbers:
        """Return the largest numbers that an arithmetic of so many bits carries."""
        size = max(1, math.isqrt((bits - 1) // 3))
        return cls(size, -size if eta is None else math.floor(math.log2(eta)))

    @property
    def epsilon_log2(self) -> int:
        """log2 of epsilon_0: ``-N^2``."""
        return -(self.size**2)

    @property
    def beta_log2(self) -> int:
        """log2 of beta, line 6: ``2^(-N^2) epsilon_0^2``."""
        return -(self.size**2) + 2 * self.epsilon_log2

    @property
    def farthest_log2(self) -> int:
        """log2 of ``2^-N epsilon_0 / eta``, a tenth of what line 7 allows."""
        return -self.size + self.epsilon_log2 - self.eta_log2


@dataclasses.dataclass(frozen=True)
class PrintedSpan:
    """What the box returns.

    Attributes
    ----------
    basis
        V: orthonormal rows in the arithmetic's numbers, ``(r, n)``.
    rows
        The vectors y of line 9, at length one, ``(r, n)``.
    noise
        Error of an entry of each row, as further directions tell, ``(r,)``.
    restarts
        How often line 7 started again.
    silent
        Inputs that line 3 drew in vain before it gave up; 0 where it did not.
    """

    basis: Vectors
    rows: Vectors
    noise: FloatArray
    restarts: int
    silent: int


def adaptive_gradients(
    labels: Labels,
    n: int,
    rank: int,
    *,
    numbers: PrintedNumbers,
    arithmetic: Arithmetic,
    rng: np.random.Generator,
    draws: int,
    checks: int,
) -> PrintedSpan:
    """Run Algorithm 2.

    Parameters
    ----------
    labels
        M: tells of points ``(p, n)`` whether they lie beyond the threshold, ``(p,)``.
    n, rank
        Inputs, and k.
    numbers, arithmetic
        Line 1, and what everything is computed with.
    draws
        Inputs that line 3 draws at most; and restarts of line 7.
    checks
        Directions beyond the n of line 5, which tell the error of a gradient.

    Returns
    -------
    PrintedSpan
        With fewer than ``rank`` directions where line 3 or line 7 gave up.
    """
    basis = rows = arithmetic.vectors(np.empty((0, n)))  # line 1: V; N and the rest are numbers
    noise: list[float] = []
    restarts = silent = 0

    def fires(points: Vectors) -> BoolArray:  # M_V(x) = M((I - P_V) x)
        return labels(points - (points @ basis.T) @ basis if len(basis) else points)

    while len(basis) < rank:  # line 2
        g, silent = _firing_input(fires, n, arithmetic, rng, draws)  # line 3
        if g is None or restarts > draws:
            break
        x = _boundary_input(fires, g, numbers, arithmetic)  # line 4
        u = arithmetic.vectors(rng.standard_normal((n + checks, n)))  # line 5
        u = u * arithmetic.power(-numbers.size) - x / _length(x, arithmetic)
        c = _crossings(fires, x, u, numbers, arithmetic)  # line 6
        if c is None:
            restarts += 1  # line 7
            continue
        b = np.array([1 / value for value in c])  # line 8; the columns of B are u[:n]
        y = arithmetic.solve(u[:n], b[:n])  # line 9
        deviation = np.array([float(v) for v in (u[n:] @ y) * c[n:] - 1])
        length = _length(y, arithmetic)
        seen = float(np.sqrt(np.mean(deviation**2))) * float(b[0] / length)
        # What a search is off by, the directions' nearness to each other magnifies.
        inverse = np.linalg.inv(np.array([[float(v) for v in row] for row in u[:n]]))
        noise.append(seen * float(np.linalg.norm(inverse)) / math.sqrt(n))
        row = (y / length)[None]
        new = row
        for _ in range(2):  # twice is enough
            new = new - (new @ basis.T) @ basis if len(basis) else new
        new = new / _length(new[0], arithmetic)
        rows, basis = np.concatenate([rows, row]), np.concatenate([basis, new])  # lines 9 and 10
    return PrintedSpan(basis, rows, np.array(noise), restarts, silent)  # line 11


def _length(x: Vectors, arithmetic: Arithmetic) -> Any:
    return arithmetic.root((x * x).sum())


def _firing_input(
    fires: Labels, n: int, arithmetic: Arithmetic, rng: np.random.Generator, draws: int
) -> tuple[Vectors | None, int]:
    """Line 3: draw Gaussian inputs until one has M_V = 1; None after ``draws`` of them."""
    for _ in range(draws):
        g = arithmetic.vectors(rng.standard_normal((1, n)))
        if fires(g)[0]:
            return g[0], 0
    return None, draws


def _boundary_input(
    fires: Labels, g: Vectors, numbers: PrintedNumbers, arithmetic: Arithmetic
) -> Vectors:
    """Line 4, Proposition 4.1: scale g to just beyond the threshold.

    The crossing is found to ``epsilon_0 2^-N``, and x put as much farther out.
    """
    length = _length(g, arithmetic)
    near = arithmetic.power(numbers.epsilon_log2 - numbers.size)
    low, high = arithmetic.power(0) * 0, arithmetic.power(0)
    while (high - low) * length > near:
        middle = (low + high) / 2
        if fires((middle * g)[None])[0]:
            high = middle
        else:
            low = middle
    return high * g + near * g / length


def _crossings(
    fires: Labels, x: Vectors, u: Vectors, numbers: PrintedNumbers, arithmetic: Arithmetic
) -> Vectors | None:
    """Line 6: c with ``1 - beta <= sigma_V(x + c u) <= 1`` for each direction; None by line 7."""
    count = len(u)
    low = np.array([arithmetic.power(0) * 0] * count)
    high = low + 10 * arithmetic.power(numbers.farthest_log2)
    if fires(x + high[:, None] * u).any():  # line 7
        return None
    # 2^N bounds the slope, so that c within beta 2^-N leaves sigma within beta.
    finest = arithmetic.power(numbers.beta_log2 - numbers.size)
    while (high - low)[0] > finest:
        middle = (low + high) / 2
        beyond = fires(x + middle[:, None] * u)
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return high
