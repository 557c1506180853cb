"""General position: how regular a network is (Daniely & Granot, Definition 1).

For those who hold the network: the largest delta for which it is delta-regular, what each
condition of the definition allows, and which units set it. Critical points are computed in
rationals (a float64 is one), distances and angles in float64.

Readings
--------
- Item 4 asks for the sine of the angle between any two critical hyperplanes. In depth three it is
  zero in every network with a second-layer unit that switches where one row alone is on: that
  hyperplane is parallel to the row's. So no such network is regular as printed (and item 4 of
  Lemma 5 fails). What its use, Lemma 9, needs of two parallel hyperplanes is that they lie apart:
  their distance is taken instead. ``as_printed`` keeps the definition's zero.
- Condition (3) of a nice function, no affine map twice, fails on an axis with two pieces on which
  no second-layer unit is on: with positive probability, which item 1 of Lemma 5 overlooks. A top
  layer without zero partial derivatives, as Theorem 3 assumes anyway, excludes it.
- The paper scales rows of W to unit norm, which is irrational; here a row's largest weight is one.
- Condition (4) of a nice function depends on delta twice. Reciprocals of odd numbers are tried in
  turn: a dyadic delta has a grid that meets every dyadic critical point.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy.optimize

from unrelu._types import FloatArray
from unrelu.core.memory import BLOCK
from unrelu.errors import InvalidInput
from unrelu.extraction.critical_hyperplanes import (
    Axes,
    HyperplaneCrossing,
    Planes,
    depth_three,
    depth_two,
)
from unrelu.extraction.letter_boxes import halvings
from unrelu.networks import Network
from unrelu.rational import RationalNetwork

__all__ = ["Condition", "GeneralPosition", "general_position"]


@dataclasses.dataclass(frozen=True)
class Condition:
    """What one condition of Definition 1 allows.

    Attributes
    ----------
    item
        Its number in the definition, and what it is about.
    delta
        The largest delta that it allows; 0: it is violated.
    units
        What sets it, in words.
    """

    item: str
    delta: float
    units: str

    def __str__(self) -> str:
        return f"{self.item}: at most {self.delta:.3g}, by {self.units}"


@dataclasses.dataclass(frozen=True)
class GeneralPosition:
    """How regular a network is.

    Attributes
    ----------
    delta
        It is delta-regular for this one, a reciprocal of an odd number, and for hardly any
        larger one; 0 where it is not regular at all.
    as_printed
        The same by the definition's letter: 0 in depth three where hyperplanes are parallel.
    conditions
        All conditions, the one that sets delta first.
    surjective
        Depth three: W has a right inverse.
    flat
        Depth three: outputs ``h >= 0`` of the first layer at which no unit of the second is on,
        so that the top layer's partial derivatives vanish; None where there are none.
    """

    delta: Fraction
    as_printed: Fraction
    conditions: tuple[Condition, ...]
    surjective: bool = True
    flat: FloatArray | None = None

    @property
    def limiting(self) -> Condition:
        """The condition that sets delta."""
        return self.conditions[0]

    @property
    def general(self) -> bool:
        """Whether the network is in general position (section 3.3)."""
        return self.delta > 0 and self.surjective and self.flat is None

    def __str__(self) -> str:
        said = [f"delta = {float(self.delta):.3g} ({self.limiting})"]
        said += [] if self.surjective else ["W has no right inverse"]
        said += [] if self.flat is None else ["the top layer is flat somewhere on the orthant"]
        return "; ".join(said)


class _Found(NamedTuple):
    """What was measured: conditions, critical points by axis, and parallel hyperplanes."""

    conditions: list[Condition]
    axes: Axes
    parallel: bool

    def and_(self, other: _Found) -> _Found:
        """Return both."""
        return _Found(
            self.conditions + other.conditions,
            self.axes + other.axes,
            self.parallel or other.parallel,
        )


def general_position(network: Network | RationalNetwork) -> GeneralPosition:
    """Measure for which delta a network of depth two or three is delta-regular.

    Parameters
    ----------
    network
        With one or two hidden layers of ReLUs; rational, or float64 taken as rational.

    Returns
    -------
    GeneralPosition
    """
    exact = (
        network if isinstance(network, RationalNetwork) else RationalNetwork.from_network(network)
    )
    if len(exact.hidden_widths) == 1:
        return _measured(_conditions(exact, *depth_two(exact, 1), ""))
    if len(exact.hidden_widths) != 2:
        raise InvalidInput(f"one or two hidden layers are needed, got {exact!r}")
    d1, d2 = exact.hidden_widths
    if (d2 << d1) ** 2 > BLOCK:  # every second-layer unit in every state, in pairs
        raise InvalidInput(
            f"the states of {d1} first-layer units under {d2} others are too many to look at one "
            "by one"
        )
    scaled = _scaled(exact)
    top = RationalNetwork(scaled.weights[1:], scaled.biases[1:])
    first = scaled.weights[0].astype(np.float64)
    whole = _conditions(scaled, *depth_three(scaled), "")
    return dataclasses.replace(
        _measured(whole.and_(_conditions(top, *depth_two(top, 2), "7, top layers: "))),
        surjective=int(np.linalg.matrix_rank(first)) == len(first),
        flat=_flat(top),
    )


def _scaled(network: RationalNetwork) -> RationalNetwork:
    """Return a depth-3 network whose first-layer rows have a largest weight of one."""
    (w, v, u), (b, c, out) = network.weights, network.biases
    sizes = abs(w).max(axis=1)
    if (sizes == 0).any():
        raise InvalidInput("a first-layer unit has no weights at all")
    return RationalNetwork([w / sizes[:, None], v * sizes, u], [b / sizes, c, out])


def _measured(found: _Found) -> GeneralPosition:
    """Put the conditions together, and find a delta whose grid meets no critical point."""
    order = sorted(found.conditions, key=lambda condition: condition.delta)
    points = [crossing.t for axis in found.axes for crossing in axis]
    delta = _on_no_grid(order[0].delta, points)
    return GeneralPosition(delta, Fraction(0) if found.parallel else delta, tuple(order))


def _on_no_grid(most: float, points: list[Fraction]) -> Fraction:
    """Return the largest ``1 / odd`` for which every point keeps delta^2 from delta's grid."""
    if most <= 0.0:
        return Fraction(0)
    # One more than needed: float64 has rounded what is allowed.
    for below in itertools.count(max(math.ceil(1.0 / most) + 1, 2) | 1, 2):
        delta = Fraction(1, below)
        grid = Fraction(below, 2 ** halvings(delta))
        if all(delta**2 <= t % grid <= grid - delta**2 for t in points):
            return delta
    raise AssertionError  # the count has no end


# -------------------------------------------------------------------- conditions


def _conditions(network: RationalNetwork, planes: Planes, axes: Axes, prefix: str) -> _Found:
    """Return what items 1 to 5 of Definition 1 allow."""
    angles, parallel = _angles(planes, prefix)
    found = [*_nice(network, planes, axes, prefix), *angles]
    return _Found([*found, *_apart_and_general(planes, axes, prefix)], axes, parallel)


def _nice(network: RationalNetwork, planes: Planes, axes: Axes, prefix: str) -> list[Condition]:
    """Item 1: every axis' function is nice (section 3.2.2); (4) comes last."""
    near, far, gap = [], [], []
    for i, axis in enumerate(axes):
        for t, plane in axis:
            name = f"{planes.names[plane]} on axis {i}"
            near.append((abs(float(t)), name))
            far.append((1.0 / max(abs(float(t)), np.finfo(float).tiny), name))
        for one, other in itertools.pairwise(axis):
            names = f"{planes.names[one.plane]} and {planes.names[other.plane]} on axis {i}"
            gap.append((float(other.t - one.t), names))
    found = [
        (f"{prefix}1 (1), a critical point near zero", near),
        (f"{prefix}1 (1), a critical point far out", far),
        (f"{prefix}1 (2), a short piece", gap),
    ]
    same = [(0.0, f"axis {i}") for i, axis in enumerate(axes) if _repeats(network, i, axis)]
    found.append((f"{prefix}1 (3), two pieces with one affine map", same))
    return [Condition(item, *min(values)) for item, values in found if values]


def _repeats(network: RationalNetwork, axis: int, crossings: list[HyperplaneCrossing]) -> bool:
    """Whether two pieces of ``t -> f(t e)`` have the same affine map."""
    (w, *rest), biases = network.weights, network.biases
    line = RationalNetwork([w[:, [axis]], *rest], biases)
    ends = [crossing.t for crossing in crossings]
    if not ends:
        return False
    edges = [ends[0] - 2, *ends, ends[-1] + 2]
    pairs = [
        (low + (high - low) / 3, low + 2 * (high - low) / 3)
        for low, high in itertools.pairwise(edges)
        if low < high
    ]
    values = line([[t] for pair in pairs for t in pair])
    maps = set()
    for (s, t), (f, g) in zip(pairs, zip(values[::2], values[1::2], strict=True), strict=True):
        slope = (g - f) / (t - s)
        maps.add((*slope, *(f - slope * s)))
    return len(maps) < len(pairs)


def _angles(planes: Planes, prefix: str) -> tuple[list[Condition], bool]:
    """Items 3, 4 and 6: any two hyperplanes, and whether some are parallel."""
    normals, offsets = planes.unit()
    count, names = len(normals), planes.names
    if count < 2:
        return [], False
    # The sine of the angle, without the cancellation of 1 - cos^2.
    sines = np.array(
        [
            np.linalg.norm(normals - row, axis=1) * np.linalg.norm(normals + row, axis=1) / 2.0
            for row in normals
        ]
    )
    sines[np.tril_indices(count)] = np.inf
    gaps = []
    for i, j in np.argwhere(sines < math.sqrt(np.finfo(float).eps)).tolist():
        pivot = int(np.argmax(abs(planes.weights[i])))
        ratio = planes.weights[j, pivot] / planes.weights[i, pivot]
        if (planes.weights[j] == ratio * planes.weights[i]).all():
            sines[i, j] = np.inf
            same = planes.biases[j] == ratio * planes.biases[i]
            sign = 1.0 if ratio > 0 else -1.0
            gap = 0.0 if same else abs(offsets[j] - sign * offsets[i])
            gaps.append((float(gap), f"{names[i]} and {names[j]}"))
    found = []
    if np.isfinite(sines).any():
        one, other = divmod(int(np.argmin(sines)), count)
        item = f"{prefix}4, the angle of two hyperplanes"
        by = f"{names[one]} and {names[other]}"
        found.append(Condition(item, float(sines[one, other]), by))
    if gaps:
        found.append(Condition(f"{prefix}4, the distance of two parallel ones", *min(gaps)))
    return found, bool(gaps)


def _apart_and_general(planes: Planes, axes: Axes, prefix: str) -> list[Condition]:
    """Item 2, other hyperplanes near a critical point on an axis, and item 5, angles to axes."""
    normals, offsets = planes.unit()
    near = []
    for i, axis in enumerate(axes):
        for t, plane in axis:
            distances = np.abs(float(t) * normals[:, i] + offsets)
            distances[plane] = np.inf
            other = int(np.argmin(distances))
            if np.isfinite(distances[other]):
                names = f"{planes.names[plane]} on axis {i}, and {planes.names[other]}"
                near.append((float(distances[other]), names))
    steep = [
        (float(np.abs(normal).min()), f"{name} and axis {int(np.argmin(np.abs(normal)))}")
        for normal, name in zip(normals, planes.names, strict=True)
    ]
    found = [
        (f"{prefix}2, a hyperplane near a critical point", near),
        (f"{prefix}5, the angle of a hyperplane and an axis", steep),
    ]
    return [Condition(item, *min(values)) for item, values in found if values]


def _flat(top: RationalNetwork) -> FloatArray | None:
    """Return ``h >= 0`` at which every unit of the top layers is off; None if there is none."""
    v = top.weights[0].astype(np.float64)
    c = top.biases[0].astype(np.float64)
    seen = np.array([any(column) for column in top.weights[1].T])
    answer = scipy.optimize.linprog(
        np.ones(v.shape[1]), A_ub=v[seen], b_ub=-c[seen], bounds=(0, None), method="highs"
    )
    return np.asarray(answer.x) if answer.status == 0 else None
