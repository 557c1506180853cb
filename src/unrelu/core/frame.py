"""Centre and scale of each input: where a target's inputs live, and in which units.

The algorithms work at inputs of size one around the origin. A model over raw features takes
one feature in thousands and the next in thousandths, far from zero. A :class:`Frame` maps
``u`` of size one to the target's own ``x = center + scale * u``; what is recovered in it is
written back in the target's units, exactly but for rounding.

Rows like those the model is meant for give a frame (:func:`frame_of_rows`). Without them the
target itself tells: a network found of it, even in part, has its own (:func:`frame_of_network`);
else (:func:`find_frame`) how steeply it depends on each input gives the units of one input
against another's, and where rays from the origin meet its kinks how far out all of them lie.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.answers import between_zero_and_one
from unrelu.core.noise import AGREES, NORMAL_MEDIAN
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles.base import Oracle, Wrapper

__all__ = ["Frame", "Framed", "find_frame", "frame_of_network", "frame_of_rows"]

REACH = (-4, 6)
"""Decades over sqrt(d) in which a ray is followed."""
RAYS = 4
"""Rays followed, in opposite pairs: far out a class on one side is seldom that on the other. As
many places on each in a decade: a kink's place is wanted within a factor of two."""
MOVES = 3
"""Times that centre and units are taken anew: each brings them from far off to a few units."""
NEAR = (0.01, 5.0)
"""Kinks between these parts of sqrt(d) are where the algorithms look for them anyway."""
UNEVEN = 1.5
"""Standard deviation of the logarithms of inputs' units from which on they are a hindrance."""
MOST_PLACES = 256
"""Gradients for that at most: beyond, they cost more than what they are to help with."""
SHARP = math.sqrt(np.finfo(np.float32).eps)
"""Half of the digits of float32: what an answer must be rounded less than to be read; the step
of a difference, over the distance of the kinks, seldom across one; and the part of the steepest
direction's slope below which another says nothing about the centre."""
STRIDE = 1.0 / SHARP
"""A step is made longer or shorter by this factor, as often as the decades of a ray allow: so far
apart lie the shortest step that moves an answer and the longest that leaves it readable."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """The map ``x = center + scale * u``.

    Attributes
    ----------
    center, scale
        ``(d,)`` each; scales are positive.
    source
        Where they come from, in words.
    """

    center: FloatArray
    scale: FloatArray
    source: str = ""

    def out(self, u: FloatArray) -> FloatArray:
        """Return the target's ``x`` for ``u``, ``(n, d)``."""
        return np.asarray(self.center + self.scale * u)

    def into(self, x: FloatArray) -> FloatArray:
        """Return ``u`` for the target's ``x``, ``(n, d)``."""
        return np.asarray((x - self.center) / self.scale)

    def network(self, inside: Network) -> Network:
        """Return a network of ``u`` as one of ``x``: the first layer and the skip term change."""
        weights, biases, skip = list(inside.weights), list(inside.biases), inside.skip
        biases[0] = biases[0] - weights[0] @ (self.center / self.scale)
        weights[0] = weights[0] / self.scale
        if skip is not None:
            biases[-1] = biases[-1] - skip @ (self.center / self.scale)
            skip = skip / self.scale
        if isinstance(inside, ReLUNetwork):
            return ReLUNetwork(weights, biases, skip)
        return Network(weights, biases, inside.activations, skip)

    def basis(self, inside: FloatArray) -> FloatArray:
        """Return orthonormal rows ``(r, d)`` of ``x`` that span what ``inside`` spans in ``u``."""
        if len(inside) == 0:
            return inside
        q, _ = np.linalg.qr((inside / self.scale).T)
        return np.ascontiguousarray(q.T)


class Framed(Wrapper):
    """An oracle asked in a frame's coordinates."""

    def __init__(self, inner: Oracle, frame: Frame) -> None:
        super().__init__(inner)
        self.frame = frame
        if inner.box is not None:
            self.box = (frame.into(inner.box[0]), frame.into(inner.box[1]))
        if inner.data is not None:
            self.data = frame.into(inner.data)

    def _identity_suffix(self) -> str:
        digest = hashlib.blake2b(self.frame.center.tobytes() + self.frame.scale.tobytes())
        return f"|frame:{digest.hexdigest()[:16]}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        x = self.frame.out(points)
        box = self.inner.box
        return self.inner._answer(x if box is None else np.clip(x, *box), repeat)


def frame_of_rows(rows: FloatArray) -> Frame:
    """Return mean and standard deviation of each column of ``rows`` ``(n, d)``.

    A column that never changes keeps the unit one.
    """
    center = rows.mean(axis=0)
    spread = rows.std(axis=0)
    # A mean of equal numbers is off by rounding, and so is their deviation.
    rounding = len(rows) * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)
    return Frame(center, np.where(spread > rounding, spread, 1.0), "the rows given")


def frame_of_network(
    network: Network, log_odds: bool, least: float, rng: np.random.Generator
) -> Frame | None:
    """Return in which units the inputs of a network live; None where they seem to be one.

    In these every input weighs as much in the first layer as any other. The centre is the point
    that its hyperplanes pass by; they do so at a distance of one, or, where they all meet there,
    as far as the origin is. Of ``log_odds``, values at typical inputs differ by one. Inputs that
    weigh less than the part ``least`` of the heaviest say nothing.
    """
    size = np.linalg.norm(network.weights[0], axis=1)
    if not (size > 0).any():
        return None
    w, b = ((a[size > 0].T / size[size > 0]).T for a in (network.weights[0], network.biases[0]))
    d = w.shape[1]
    heavy = np.linalg.norm(w, axis=0)
    heavy = heavy > least * heavy.max()
    units = np.ones(d)
    for _ in range(MOVES):  # rows of equal length, columns of equal length, in turn
        rows = w * units
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        units = units * _units(np.where(heavy, np.linalg.norm(rows, axis=0), 0.0))
    length = np.linalg.norm(w * units, axis=1)
    rows, offsets = w * units / length[:, None], b / length
    center = np.linalg.lstsq(rows, -offsets, rcond=SHARP)[0]
    away = float(np.linalg.norm(center)) / math.sqrt(d)
    if np.log(units[heavy]).std() <= UNEVEN and away * float(np.median(units)) <= NEAR[1]:
        return None
    unit = float(np.median(np.abs(rows @ center + offsets))) / NORMAL_MEDIAN
    if unit <= SHARP * away:
        unit = away
    if log_odds:
        values = network(units * (center + rng.standard_normal((MOST_PLACES, d))))
        unit = 1.0 / max(float((values - values[:, :1]).std(axis=0).max()), SHARP)
        if values.shape[1] == 1:
            unit = 1.0 / max(float(values.std()), SHARP)
    return Frame(units * center, units * unit, "the network that was found")


def find_frame(
    ask: Callable[[FloatArray], FloatArray], d: int, rng: np.random.Generator
) -> Frame | None:
    """Look for inputs' units by asking: None where they seem to be one.

    Parameters
    ----------
    ask
        The target, ``(n, d) -> (n, m)``.
    d
        Number of inputs.

    Notes
    -----
    Takes ``d`` queries and about two hundred; where units differ, twice as many.
    """
    origin = np.zeros(d)
    place, distance = _along_rays(ask, origin, np.ones(d), rng)
    if place is None:
        return None
    near = _usual(distance, d) and float(np.linalg.norm(place)) <= NEAR[1] * math.sqrt(d)
    steepness = _steepness(ask, place, distance / math.sqrt(d))
    if steepness is None or (near and _spread(steepness, steepness) <= UNEVEN**2):
        return None
    # Chance makes inputs uneven at one place; at another it does so otherwise.
    beside = place + 0.5 * distance / math.sqrt(d) * _units(steepness) * rng.standard_normal(d)
    again = _steepness(ask, beside, distance / math.sqrt(d) * _units(steepness))
    if again is None:
        again = steepness
    if near and _spread(steepness, again) <= UNEVEN**2:
        return None
    units = np.sqrt(_units(steepness) * _units(again))
    for _ in range(MOVES):
        moved, distance = _along_rays(ask, place, units, rng)
        place = place if moved is None else moved
        center = _homogeneous_about(ask, place, units * distance / math.sqrt(d), rng)
        if center is None:
            break
        readable, nearer = _along_rays(ask, center, units, rng)
        if readable is None or nearer > distance:
            break
        place, distance = readable, nearer
        steepness = _steepness(ask, place, distance / math.sqrt(d) * units)
        if steepness is not None:
            units = units * np.sqrt(_units(steepness * units))
        if _usual(distance, d):
            break
    return Frame(
        place, units * distance / math.sqrt(d), "how steeply, and how far out, the answers bend"
    )


def _usual(distance: float, d: int) -> bool:
    """Whether kinks lie where the algorithms look for them anyway."""
    return NEAR[0] <= distance / math.sqrt(d) <= NEAR[1]


def _homogeneous_about(
    ask: Callable[[FloatArray], FloatArray],
    place: FloatArray,
    scale: FloatArray,
    rng: np.random.Generator,
) -> FloatArray | None:
    """Return the point that all hyperplanes pass by, as seen from far away.

    There the network is nearly homogeneous about it: ``g(x) . (x - c) = f(x) - f(c)`` for its
    gradients g, linear equations in c and f(c), as many at a place as there are outputs.
    None where that many gradients cost more than all rows of a first layer could.
    """
    d = len(place)
    (first,), _ = _read(ask(place[None]))
    m = len(first)
    places = -(-2 * (d + m) // m)  # twice as many equations as unknowns
    if places > MOST_PLACES:
        return None
    u = rng.standard_normal((places, d))
    step = SHARP * np.eye(d)
    points = place + scale * np.concatenate([u[:, None], u[:, None] + step], axis=1)
    read, _ = _read(ask(points.reshape(-1, d)))
    read = read.reshape(places, d + 1, m)
    good = np.isfinite(read).all(axis=(1, 2))
    gradient = (read[good, 1:] - read[good, :1]).transpose(0, 2, 1) / SHARP  # (places, m, d)
    right = (gradient * u[good, None]).sum(axis=2) - read[good, 0]
    ones = np.broadcast_to(-np.eye(m), (len(gradient), m, m))
    matrix = np.concatenate([gradient, ones], axis=2).reshape(-1, d + m)
    if len(matrix) < d + m:
        return None
    solution = np.linalg.lstsq(matrix, right.reshape(-1), rcond=SHARP)[0]
    return np.asarray(place + scale * solution[:d])


def _read(answers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return answers as piecewise affine numbers, and their rounding, ``(n, m)`` each.

    Of probabilities these are logarithms against the first; NaN where one of the two is nought.
    """
    eps = float(np.finfo(np.float32).eps)
    if answers.shape[1] == 1 or not between_zero_and_one(answers):
        return answers, eps * np.abs(answers)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(answers)
        odds = logs[:, 1:] - logs[:, :1]
        rounding = np.finfo(np.float64).eps * (1.0 / answers[:, 1:] + 1.0 / answers[:, :1])
    odds[~np.isfinite(odds)] = np.nan
    if answers.shape[1] > 2:  # a softmax; one of two may be what the other leaves of one
        rounding = np.where(np.isnan(odds), np.inf, eps)
    return odds, np.asarray(eps * np.nan_to_num(np.abs(odds)) + rounding)


def _along_rays(
    ask: Callable[[FloatArray], FloatArray],
    origin: FloatArray,
    units: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray | None, float]:
    """Return a place where answers can be read, and how far out kinks lie, in ``units``.

    Along a ray a ReLU network bends where units switch; before the first and behind the last
    it is straight. Within the distance lies half of them; sqrt(d) where hardly a ray
    bends. The place is the origin, unless probabilities are nought or one there.
    """
    d = len(units)
    t = math.sqrt(d) * np.logspace(*REACH, (REACH[1] - REACH[0]) * RAYS + 1)
    rays = rng.standard_normal((RAYS // 2, d))
    rays *= units / np.linalg.norm(rays, axis=1, keepdims=True)
    rays = np.concatenate([rays, -rays])
    points = origin + t[None, :, None] * rays[:, None, :]  # (rays, t, d)
    seen = ask(np.concatenate([origin[None], points.reshape(-1, d)]))
    read, rounding = _read(seen)
    place = _readable(ask, origin, points, seen, rounding)
    answers, rounding = (p[1:].reshape(RAYS, len(t), -1) for p in (read, rounding))
    part = ((t[1:-1] - t[:-2]) / (t[2:] - t[:-2]))[:, None]
    straight = answers[:, :-2] + part * (answers[:, 2:] - answers[:, :-2])
    allowed = 2.0 * AGREES * np.maximum(rounding[:, 1:-1], rounding[:, 2:])
    bent = (np.abs(answers[:, 1:-1] - straight) > allowed).any(axis=2)
    where = t[1:-1][np.nonzero(bent)[1]]
    if len(where) <= RAYS:  # one a ray may lie anywhere
        return place, math.sqrt(d)
    return place, float(np.median(where))


def _readable(
    ask: Callable[[FloatArray], FloatArray],
    origin: FloatArray,
    points: FloatArray,
    seen: FloatArray,
    rounding: FloatArray,
) -> FloatArray | None:
    """Return the origin, or the point of the rays ``(r, t, d)`` that is rounded least.

    Between two neighbours of which one is sure of another class than the other it is sought
    by halving.
    """
    if seen.shape[1] == 1 or not between_zero_and_one(seen):
        return origin
    coarse = rounding.max(axis=1)  # infinite where there is nothing to read
    if coarse[0] <= SHARP:
        return origin
    flat = np.concatenate([origin[None], points.reshape(-1, points.shape[2])])
    best = int(np.argmin(coarse))
    if coarse[best] <= SHARP:
        return np.asarray(flat[best])
    label = seen[1:].argmax(axis=1).reshape(points.shape[:2])
    changes = np.argwhere(label[:, 1:] != label[:, :-1])
    for ray, step in changes[:RAYS]:
        a, b = points[ray, step], points[ray, step + 1]
        for _ in range(np.finfo(np.float64).nmant):
            middle = 0.5 * (a + b)
            answer = ask(middle[None])
            if _read(answer)[1].max() <= SHARP:
                return np.asarray(middle)
            a, b = (middle, b) if answer.argmax() == label[ray, step] else (a, middle)
    return None


def _steepness(
    ask: Callable[[FloatArray], FloatArray], place: FloatArray, step: float | FloatArray
) -> FloatArray | None:
    """Return how steeply each input moves the answers at a place, ``(d,)``.

    A step that leaves what can be read is shortened; one that moves nothing, lengthened.
    """
    d = len(place)
    steps = np.array(np.broadcast_to(step, (d,)))
    slope = np.zeros(d)
    (base,), _ = _read(ask(place[None]))
    if not np.isfinite(base).all():
        return None
    todo = np.arange(d)
    for _ in range(math.ceil((REACH[1] - REACH[0]) / math.log10(STRIDE))):
        moved = place + np.zeros((len(todo), 1))
        moved[np.arange(len(todo)), todo] += steps[todo]
        read, rounding = _read(ask(moved))
        change = np.abs(read - base).max(axis=1)
        unread = ~np.isfinite(change)
        still = ~unread & (change <= 2.0 * AGREES * rounding.max(axis=1))
        good = ~unread & ~still
        slope[todo[good]] = change[good] / steps[todo[good]]
        steps[todo[unread]] /= STRIDE
        steps[todo[still]] *= STRIDE
        todo = todo[~good]
        if len(todo) == 0:
            break
    return slope


def _units(steepness: FloatArray) -> FloatArray:
    """Return units in which all inputs are about as steep; one that moves nothing is usual."""
    moving = steepness > 0
    if not moving.any():
        return np.ones(len(steepness))
    usual = float(np.exp(np.log(steepness[moving]).mean()))
    return np.asarray(np.where(moving, usual / np.where(moving, steepness, 1.0), 1.0))


def _spread(steepness: FloatArray, again: FloatArray) -> float:
    """Return the variance of inputs' units, by how steep they are at two places.

    What differs from place to place, as the sign of a sum does, is no unit.
    """
    moving = (steepness > 0) & (again > 0)
    if np.count_nonzero(moving) < 2:
        return 0.0
    a, b = np.log(steepness[moving]), np.log(again[moving])
    return float(np.mean((a - a.mean()) * (b - b.mean())))
