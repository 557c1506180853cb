"""Algorithm 6 and Theorem 2 of Daniely & Granot as printed: depth two, on space or the orthant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu.extraction.letter_algebra import subset_that_sums
from unrelu.extraction.letter_boxes import (
    Affine,
    Function,
    Irregular,
    Numbers,
    affine,
    critical_points,
    find_hp,
    halvings,
    is_convex,
)

__all__ = ["DepthTwo", "most_queries_depth_two", "recover_depth_two"]


@dataclasses.dataclass(frozen=True)
class DepthTwo:
    """``Lambda_0 + sum_i u_i relu(Lambda_i)``, equation (2).

    Attributes
    ----------
    weights, biases, signs
        ``(k, d)``, ``(k,)`` and ``(k,)``; every u is 1 or -1.
    linear, constant
        ``Lambda_0``: ``(d,)`` and a number.
    turned
        Whether every unit points the right way: then ``linear`` is zero.
    """

    weights: Numbers
    biases: Numbers
    signs: tuple[int, ...]
    linear: Numbers
    constant: Any
    turned: bool = False

    def units(self, points: Numbers) -> Numbers:
        """Return ``sum_i u_i relu(Lambda_i(x))`` for points ``(n, d)``."""
        inputs = points @ self.weights.T + self.biases
        return np.asarray(np.maximum(inputs, 0 * inputs) @ np.array(self.signs, dtype=object))

    def with_signs(self) -> DepthTwo:
        """Return it without affine term, where turning some units over explains that.

        Units found the wrong way round leave ``-sum u_i Lambda_i`` behind (proof of Theorem 4).
        """
        signs = np.array(self.signs, dtype=object)
        parts = np.column_stack([self.weights, self.biases]) * signs[:, None]
        which = subset_that_sums(parts[:, :-1], -self.linear)
        if which is None:
            return self
        wrong = np.array(which, dtype=bool)
        flip = np.where(wrong, -1, 1)
        return DepthTwo(
            self.weights * flip[:, None],
            self.biases * flip,
            self.signs,
            0 * self.linear,
            self.constant + parts[wrong, -1].sum(),
            turned=True,
        )


def recover_depth_two(
    f: Function,
    delta: Any,
    *,
    draw: Callable[[], Numbers],
    orthant: bool = False,
) -> DepthTwo:
    """Algorithm 6; with ``orthant``, Theorem 2: nothing outside of the orthant is asked.

    Parameters
    ----------
    f
        A delta-regular network as in equation (1).
    draw
        Draws a random point ``(d,)``.
    """
    axes = range(f.dimension) if orthant else range(1)  # Theorem 2: every half-axis
    found: list[tuple[Affine, int]] = []
    for axis in axes:
        points = critical_points(delta, f, axis, positive=orthant)  # Algorithm 6, line 1
        for t in points:  # Algorithm 6, line 2
            x = t * f.axis(axis)
            hyperplane = find_hp(f, delta, x, axis)  # Algorithm 6, line 3
            sign = 1 if is_convex(f, delta, x, axis) else -1  # Algorithm 6, line 4
            if not _known(hyperplane, sign, found):  # Theorem 2: met on an earlier axis
                found.append((hyperplane, sign))
    weights = np.array([h.weights for h, _ in found]).reshape(len(found), f.dimension)
    biases = np.array([h.bias for h, _ in found])
    signs = tuple(sign for _, sign in found)
    rest = DepthTwo(weights, biases, signs, f.array(np.zeros(f.dimension, int)), f.number(0))

    def residual(points: Numbers) -> tuple[Numbers, Numbers]:
        values, off = f.answer(points)
        if not found:
            return values, off
        return values - f.array(rest.units(points)), off

    left = affine(Function(f.dimension, residual, f.number), delta, draw())  # Algorithm 6, line 6
    # Algorithm 6, line 7
    return dataclasses.replace(rest, linear=left.weights, constant=left.bias)


def _known(hyperplane: Affine, sign: int, found: list[tuple[Affine, int]]) -> bool:
    """Whether the same affine map has been found (section 3.4.1).

    Up to its sign, the paper says; a map that crosses two half-axes falls, or rises, along both.
    """
    for other, its in found:
        if hyperplane.equals(other):
            if its != sign:
                raise Irregular("one hyperplane is convex on one axis and concave on another")
            return True
    return False


def most_queries_depth_two(d: int, met: int, delta: Any, *, orthant: bool = False) -> int:
    """Count the queries of Algorithm 6 from its boxes, at most.

    Parameters
    ----------
    met
        Critical points on the axes searched: Theorem 1's ``d_1``, at most ``d d_1`` in
        Theorem 2.
    """
    searches = met + (d if orthant else 1)  # one more on each axis finds nothing
    each_search = 4 * (halvings(delta) + 1) + 4  # two maps of two points, then two more
    each_unit = 2 * (d + 1) + 3  # FIND_HP, IS_CONVEX
    return searches * each_search + met * each_unit + d + 1
