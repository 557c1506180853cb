"""Algorithms 1 to 5 of Daniely & Granot as printed; the names follow the boxes.

The numbers are those of the function: rationals, whose answers have no error, or float64, whose
answers have one that is known. "Equal" means equal within these errors: with rationals, equal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Affine",
    "Function",
    "Irregular",
    "affine",
    "critical_points",
    "find_cp",
    "find_hp",
    "halvings",
    "is_convex",
    "is_general",
]

Numbers = NDArray[Any]
"""Object arrays of Fractions, or float64."""


class Irregular(Exception):
    """What was met shows that the function is not regular for this delta."""


@dataclasses.dataclass(frozen=True)
class Function:
    """Black-box access to a piecewise linear ``f: R^d -> R``.

    Attributes
    ----------
    dimension
        d.
    answer
        Takes points ``(n, d)``, gives values ``(n,)`` and how far each may be off ``(n,)``.
    number
        Makes a number of the kind that it computes with.
    """

    dimension: int
    answer: Callable[[Numbers], tuple[Numbers, Numbers]]
    number: Callable[[Any], Any]

    @property
    def exact(self) -> bool:
        """Whether the numbers are rationals."""
        return self.number is Fraction

    def array(self, values: Any) -> Numbers:
        """Return values as an array of these numbers."""
        given = np.asarray(values, dtype=object)
        flat = np.empty(given.size, dtype=object)
        flat[:] = [self.number(value) for value in given.ravel().tolist()]
        return flat.reshape(given.shape) if self.exact else flat.reshape(given.shape).astype(float)

    def axis(self, i: int) -> Numbers:
        """Return the standard basis vector ``e^(i)``."""
        return self.array([int(i == j) for j in range(self.dimension)])

    def along(self, i: int) -> Function:
        """Return ``t -> f(t e^(i))``."""

        def answer(t: Numbers) -> tuple[Numbers, Numbers]:
            points = np.zeros((len(t), self.dimension), dtype=t.dtype)
            points[:, i] = t[:, 0]
            return self.answer(points)

        return Function(1, answer, self.number)


class Affine(NamedTuple):
    """``Lambda_{w, b}``, and how far each weight and the bias may be off."""

    weights: Numbers
    bias: Any
    weights_off: Numbers
    bias_off: Any

    def __call__(self, x: Numbers) -> Any:
        """Return ``<w, x> + b``."""
        return self.weights @ x + self.bias

    def minus(self, other: Affine) -> Affine:
        """Return the difference of two maps."""
        return Affine(
            self.weights - other.weights,
            self.bias - other.bias,
            self.weights_off + other.weights_off,
            self.bias_off + other.bias_off,
        )

    @property
    def vanishes(self) -> bool:
        """Whether it is zero within its errors."""
        return bool((abs(self.weights) <= self.weights_off).all()) and bool(
            abs(self.bias) <= self.bias_off
        )

    def equals(self, other: Affine) -> bool:
        """Whether two maps are the same, within their errors."""
        return self.minus(other).vanishes


def affine(f: Function, epsilon: Any, x: Numbers) -> Affine:
    """AFFINE_epsilon(f, x), Algorithm 2: the affine map near an epsilon-general point."""
    steps = f.array(np.eye(f.dimension, dtype=int)) * epsilon
    values, off = f.answer(np.concatenate([x[None], x + steps]))
    weights = (values[1:] - values[0]) / epsilon  # Algorithm 2, line 1
    bias = values[0] - weights @ x  # Algorithm 2, line 1
    weights_off = (off[1:] + off[0]) / epsilon
    return Affine(weights, bias, weights_off, off[0] + weights_off @ abs(x))


def halvings(delta: Any) -> int:
    """Return ``ceil(log2(2 / delta^2))``, exactly."""
    # The least n with 2^n >= q is the length of ceil(q) - 1 in binary digits.
    return (math.ceil(2 / Fraction(delta) ** 2) - 1).bit_length()


def find_cp(delta: Any, f: Function, a: Any | None) -> Any | None:
    """FIND_CP(delta, f, a), Algorithm 1: the left-most critical point in ``(a, 1/delta)``.

    Parameters
    ----------
    delta
        For which f is delta-nice.
    f
        Of one variable.
    a
        A critical point, or 0, or None for all of the range. Nothing to its left is asked.

    Returns
    -------
    The point, or None where there is none.
    """
    epsilon = delta * delta

    def piece(x: Any) -> Affine:
        return affine(f, epsilon, f.array([x]))

    left, right = -1 / delta, 1 / delta  # Algorithm 1, line 1
    for _ in range(halvings(delta) + 1):  # Algorithm 1, line 2
        middle = (left + right) / 2  # Algorithm 1, line 3
        # As printed AFFINE(x_L) is the map on the other side of a, which differs from all to
        # the right of a, and a itself is found again. Pieces are longer than delta / 2.
        start = left if a is None or left > a else a + delta / 2
        if (a is not None and middle <= a) or piece(start).equals(piece(middle)):
            left = middle
        else:
            right = middle
    on_left, on_right = piece(left), piece(right)  # Algorithm 1, line 5
    if on_left.equals(on_right):
        return None
    x, off = _meeting(on_left.minus(on_right))
    if x is None or not left - off <= x <= right + off or (a is not None and x - a < delta):
        raise Irregular(
            f"between {float(left):.6g} and {float(right):.6g} on an axis two pieces do not meet, "
            "or are shorter than delta"
        )
    return x


def _meeting(difference: Affine) -> tuple[Any, Any]:
    """Return where a map of one variable is zero, None if nowhere, and how far that may be off."""
    slope = difference.weights[0]
    if slope == 0:
        return None, 0
    x = -difference.bias / slope
    return x, (difference.bias_off + difference.weights_off[0] * abs(x)) / abs(slope)


def critical_points(delta: Any, f: Function, axis: int, *, positive: bool = False) -> list[Any]:
    """Section 3.2.2: FIND_CP again and again; all critical points on an axis, or its half."""
    line, found = f.along(axis), []
    last: Any | None = f.number(0) if positive else None
    while (x := find_cp(delta, line, last)) is not None:
        found.append(x)
        last = x
    return found


def find_hp(f: Function, delta: Any, x: Numbers, axis: int = 0) -> Affine:
    """FIND_HP(f, delta, x), Algorithm 3: the hyperplane of a delta-non-degenerate point.

    In the orthant ``axis`` is the one that x lies on: beside the others there is no room.
    """
    epsilon = (delta / 2) ** 2  # Algorithm 3, line 1
    step = delta / 2 * f.axis(axis)
    first = affine(f, epsilon, x + step)  # Algorithm 3, line 2
    second = affine(f, epsilon, x - step)  # Algorithm 3, line 2
    return first.minus(second)  # Algorithm 3, line 3


def _bend(f: Function, delta: Any, x: Numbers, axis: int) -> tuple[Any, Any]:
    """Return ``(f(x + delta e) - f(x)) - (f(x) - f(x - delta e))``, and its error."""
    step = delta * f.axis(axis)
    (ahead, here, behind), off = f.answer(np.stack([x + step, x, x - step]))
    return (ahead - here) - (here - behind), off[0] + 2 * off[1] + off[2]


def is_convex(f: Function, delta: Any, x: Numbers, axis: int = 0) -> bool:
    """IS_CONVEX(f, delta, x), Algorithm 4, at a delta-non-degenerate critical point."""
    bend, off = _bend(f, delta, x, axis)
    if bend > off:  # Algorithm 4, line 1
        return True  # Algorithm 4, line 2: "convex"
    if bend < -off:
        return False  # Algorithm 4, line 4: "concave"
    raise Irregular("a critical point is neither convex nor concave at distance delta")


def is_general(f: Function, epsilon: Any, x: Numbers) -> bool:
    """IS_GENERAL(f, epsilon, x), Algorithm 5: whether x is general, not critical."""
    bend, off = _bend(f, epsilon, x, 0)
    return bool(abs(bend) <= off)  # Algorithm 5, line 1; line 2 returns
