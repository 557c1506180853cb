"""Algorithm 7 and Theorem 3 of Daniely & Granot as printed: depth three with ``d1 <= d``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from unrelu.extraction.letter_algebra import project, right_inverse
from unrelu.extraction.letter_boxes import (
    Affine,
    Function,
    Irregular,
    Numbers,
    critical_points,
    find_hp,
    halvings,
    is_general,
)
from unrelu.extraction.letter_two import DepthTwo, most_queries_depth_two, recover_depth_two

__all__ = [
    "Critical",
    "DepthThree",
    "Spread",
    "TooFine",
    "candidate_hyperplanes",
    "find_directions",
    "is_first_layer",
    "most_queries_depth_three",
    "recover_depth_three",
    "spread_of",
    "top_layers",
]

HALF_PI_ROOT = Fraction(5, 4)
"""A rational below sqrt(pi / 2), 1.2533, in line 1 of Algorithm 7."""


class TooFine(Exception):
    """float64 does not carry the steps that the algorithm asks for."""


@dataclasses.dataclass(frozen=True)
class Critical:
    """A pair of the list L: a critical point ``(d,)`` and its hyperplane."""

    x: Numbers
    hyperplane: Affine


@dataclasses.dataclass(frozen=True)
class Spread:
    """How far Algorithm 7 goes beyond a hyperplane (R), and its last step (delta')."""

    step: Any
    far: Any


@dataclasses.dataclass(frozen=True)
class DepthThree:
    """``Lambda_0(h) + sum_i u_i relu(Lambda_i(h))`` over ``h = relu(W x + b)``.

    Attributes
    ----------
    weights, biases
        Of the first layer, ``(d1, d)`` and ``(d1,)``; the largest weight of a row is 1 or -1.
    top
        The rest, in the orthant.
    """

    weights: Numbers
    biases: Numbers
    top: DepthTwo


# ------------------------------------------------------------- 3.5.1 and 3.5.2


def candidate_hyperplanes(f: Function, delta: Any) -> list[Critical]:
    """Section 3.5.1: the list L, from the critical points on the first axis."""
    points = [t * f.axis(0) for t in critical_points(delta, f, 0)]
    return [Critical(x, find_hp(f, delta, x)) for x in points]


def spread_of(f: Function, delta: Any, units: int, met: int) -> Spread:
    """Lines 1 and 2 of Algorithm 7, for ``units = d1 + d2`` and ``met = m``."""
    chance = Fraction(1, 2 ** (f.dimension + 1) * met**2)
    step = chance * HALF_PI_ROOT * Fraction(delta) / 2 ** (2 * units)  # Algorithm 7, line 1
    # Algorithm 7, line 2; a float64 rounds up once it is made a little larger.
    far = math.nextafter(math.sqrt(-2.0 * math.log(chance)), math.inf)
    return Spread(f.number(step), f.number(Fraction(far) + step))


def is_first_layer(
    f: Function, which: int, found: list[Critical], spread: Spread, rng: np.random.Generator
) -> bool:
    """Algorithm 7: whether a critical hyperplane corresponds to the first layer."""
    x, plane = found[which].x, found[which].hyperplane
    for k, other in enumerate(found):  # Algorithm 7, line 3
        inside = project(other.hyperplane.weights, plane.weights)
        if k == which or _parallel(other.hyperplane, plane):
            continue
        z = _beyond(x, other.hyperplane, inside, spread.far)  # Algorithm 7, line 4
        gaussian = f.array(rng.standard_normal(f.dimension))
        z = z + project(gaussian, plane.weights)  # Algorithm 7, line 5
        if is_general(f, spread.step, z):  # Algorithm 7, line 6
            return False
    return True  # Algorithm 7, line 8


def _parallel(one: Affine, other: Affine) -> bool:
    """Whether two hyperplanes never meet: line 4 has no such point then."""
    pivot = int(np.argmax(abs(one.weights)))
    ratio = other.weights[pivot] / one.weights[pivot]
    difference = abs(other.weights - ratio * one.weights)
    return bool((difference <= other.weights_off + abs(ratio) * one.weights_off).all())


def _beyond(x: Numbers, other: Affine, inside: Numbers, far: Any) -> Numbers:
    """Return a point of P that the other hyperplane separates from x, farther than ``far``."""
    here = other(x)
    # The sum of magnitudes is no less than the norm, and rational.
    aim = far * abs(other.weights).sum() * (-1 if here > 0 else 1)
    return np.asarray(x + inside * ((aim - here) / (other.weights @ inside)))


# ------------------------------------------------------------- 3.5.3 and 3.5.4


def find_directions(f: Function, rows: list[Critical], delta: Any) -> tuple[Numbers, Numbers]:
    """Section 3.5.3: the first layer with the right signs, ``(d1, d)`` and ``(d1,)``.

    A row's largest weight is made 1 or -1, where the paper takes unit norms.
    """
    weights = np.stack([row.hyperplane.weights for row in rows])
    sizes = abs(weights).max(axis=1)
    weights = weights / sizes[:, None]
    biases = np.array([row.hyperplane.bias for row in rows]) / sizes
    wobble = len(rows) * max((row.hyperplane.weights_off / size).max() for row, size in
                             zip(rows, sizes, strict=True))  # fmt: skip
    inverse = right_inverse(weights)
    if inverse is None:
        raise Irregular(
            f"{len(rows)} hyperplanes pass for first-layer ones, but their normals are dependent: "
            "W has no right inverse"
        )
    for j, row in enumerate(rows):
        z = inverse[:, j]  # orthogonal to the other rows, and w_j z = 1 > 0
        step = delta / (2 * abs(z).sum()) * z  # within the ball in which only P_j is critical
        values, off = f.answer(np.stack([row.x, row.x + step, row.x - step]))
        changes = abs(values[1:] - values[0])
        # z is orthogonal to the other rows as far as these are exact.
        unseen = off[1:] + off[0] + wobble * changes.max()
        ahead, behind = (changes > unseen).tolist()  # section 3.5.3: M(x) != M(x + epsilon z)
        if ahead == behind:
            raise Irregular(
                "beside a first-layer hyperplane the answers change on both sides, or on none: "
                "the top layer has a zero partial derivative there, or a row is missing"
            )
        if behind:  # section 3.5.3: else, replace it
            weights[j], biases[j] = -weights[j], -biases[j]
    return weights, biases


def top_layers(f: Function, weights: Numbers, biases: Numbers) -> Function:
    """Section 3.5.4: direct access to the top two layers, by a right inverse of W."""
    inverse = right_inverse(weights)
    assert inverse is not None  # or there were no directions

    def answer(points: Numbers) -> tuple[Numbers, Numbers]:
        return f.answer((points - biases) @ inverse.T)

    return Function(len(weights), answer, f.number)


def recover_depth_three(
    f: Function,
    delta: Any,
    units: int,
    *,
    rng: np.random.Generator,
    stage: Callable[[str], Any],
) -> DepthThree:
    """Theorem 3: the four steps of section 3.5.

    Parameters
    ----------
    units
        ``d1 + d2``, or more.
    stage
        A context that charges queries to a name.
    """
    with stage("candidates"):
        found = candidate_hyperplanes(f, delta)
    if not found:
        raise Irregular("there is no critical point on the first axis")
    with stage("layer test"):
        spread = spread_of(f, delta, units, len(found))
        _check_resolution(f, spread, found)
        first = [is_first_layer(f, which, found, spread, rng) for which in range(len(found))]
        rows = [pair for pair, is_first in zip(found, first, strict=True) if is_first]
    if not rows:
        raise Irregular("no critical hyperplane passes for one of the first layer")
    with stage("directions"):
        weights, biases = find_directions(f, rows, delta)
    with stage("top layers"):
        top = top_layers(f, weights, biases)
        inside = recover_depth_two(
            top,
            delta,
            draw=lambda: f.array(np.abs(rng.standard_normal(len(weights)))),
            orthant=True,
        )
    return DepthThree(weights, biases, inside)


def _check_resolution(f: Function, spread: Spread, found: list[Critical]) -> None:
    """Refuse steps over which errors, of answers or of the hyperplanes, hide every bend."""
    if f.exact:
        return
    _, off = f.answer(np.stack([pair.x + spread.far for pair in found]))
    planes = [pair.hyperplane for pair in found]
    least = min(abs(plane.weights[0]) for plane in planes)
    blur = max(
        (plane.bias_off + spread.far * plane.weights_off.sum()) / abs(plane.weights).max()
        for plane in planes
    )
    hidden = max(4 * off.max() / least, blur)  # IS_GENERAL's error over the bend
    if spread.step <= hidden:
        raise TooFine(
            f"line 1 of Algorithm 7 asks for steps of {spread.step:.2g}, and the answers' errors "
            f"hide what happens within {hidden:.2g}; give exact answers (an ExactOracle), or "
            "leave `faithful` off"
        )


def most_queries_depth_three(d: int, widths: tuple[int, int], met: int, delta: Any) -> int:
    """Count the queries of section 3.5 from its boxes, at most.

    Parameters
    ----------
    widths
        ``d1`` and ``d2``.
    met
        m, the critical points on the first axis; ``O(d1 d2)``.
    """
    d1, d2 = widths
    candidates = (met + 1) * (4 * (halvings(delta) + 1) + 4) + met * 2 * (d + 1)
    layer_test = 3 * met * (met - 1)
    top = most_queries_depth_two(d1, d1 * d2, delta, orthant=True)
    return candidates + layer_test + 3 * d1 + top
