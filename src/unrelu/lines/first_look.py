"""A first look at the hyperplanes of a target, in about five batches.

First-layer hyperplanes never bend; those of later layers do, where they meet
the first layer's (Daniely & Granot, section 3.5.2). So a short piece of a line
is asked at evenly spread points, kinks that stand alone between straight
pieces are read off, and their hyperplanes are followed to both sides. Where
:mod:`unrelu.extraction.deep_layers` does this for every kink of a line, as long as
it takes, here a few kinks are enough, and all questions of a round are asked
in one batch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import AGREES, cluster_of
from unrelu.lines.lone_kinks import LoneKinks, read_lone_kinks

__all__ = ["FirstLook", "FirstLookConfig", "price_of_look", "take_first_look"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class FirstLookConfig:
    """Sizes and tolerances of the first look."""

    fewest: int = 5
    most: int = 12
    """Kinks followed: the root of the inputs within these limits, as recovery then costs
    about a query per input and unit anyway. Twice as many are aimed at on the piece of line."""
    points: int = 14
    """Points on it for each kink aimed at, so that most kinks stand alone."""
    longest: float = 20.0
    """Longest half-length of the piece, over sqrt(d)."""
    side_steps: tuple[float, ...] = (0.12, 0.015)
    """Steps across the line, over the distance to the nearest kink: the longest that is
    straight tells a piece's slope."""
    reaches: tuple[tuple[float, ...], ...] = ((8.0,), (13.0, 5.0), (23.0, 3.0, 1.5))
    """How far to follow a hyperplane, over ``sqrt(d) + |t|``, by round: later places are for
    spots that were flat or crowded."""
    signal: float = 3000.0
    """Second differences there are so wide that the kink would show this many deviations."""
    ratio: float = 0.25
    """A kink in the middle doubles the second difference with the width, up to this."""


@dataclasses.dataclass(frozen=True)
class FirstLook:
    """What was seen.

    Attributes
    ----------
    kinks
        Kinks on the piece of line.
    first, deeper
        Of those followed, how many hyperplanes went on unbent, and how many ended.
    hyperplanes
        Estimate of how many there are in all.
    """

    kinks: int
    first: int
    deeper: int
    hyperplanes: float

    def __str__(self) -> str:
        if self.kinks == 0:
            return "no kink on the line searched"
        if self.first + self.deeper == 0:
            return f"{self.kinks} kinks on a short line, none of which could be followed"
        return (
            f"of {self.first + self.deeper} hyperplanes followed from a short line, "
            f"{self.deeper} bend and {self.first} go on unbent"
        )


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line, a direction across it, the scale of inputs and the noise at points."""

    base: FloatArray
    direction: FloatArray
    across: FloatArray
    scale: float
    level: Callable[[FloatArray], FloatArray]


def take_first_look(
    ask: AskPoints,
    d: int,
    *,
    noise: float,
    grows: bool,
    hyperplanes: float | None,
    rng: np.random.Generator,
    config: FirstLookConfig | None = None,
) -> FirstLook:
    """Follow the hyperplanes that a short piece of a line meets.

    Parameters
    ----------
    ask
        The target, ``(n, d) -> (n, m)``.
    noise
        Standard deviation of an answer's error at typical inputs.
    grows
        Whether it grows with the input, as rounding does.
    hyperplanes
        A guess of their number, which decides how long the piece is.
    """
    config = FirstLookConfig() if config is None else config
    scale = math.sqrt(d)
    growth = noise / scale if grows else 0.0

    def level(points: FloatArray) -> FloatArray:
        return np.asarray(noise + growth * np.linalg.norm(points, axis=1))

    # Kinks are spread evenly in theta, where t = sqrt(d) tan(theta).
    most = math.atan(config.longest)
    guess = hyperplanes if hyperplanes else 0.0
    follow = _followed(d, config)
    aim = 2 * follow
    half = min(most, 0.5 * math.pi * aim / max(guess, np.finfo(np.float64).eps))
    seen: list[FirstLook] = []
    for _ in range(2):  # a piece with too few lone kinks is followed by another
        base, direction, across = rng.standard_normal((3, d))
        direction /= np.linalg.norm(direction)
        across -= (across @ direction) * direction
        length = float(np.linalg.norm(across))
        t = scale * np.tan(np.linspace(-half, half, config.points * aim))
        points = base + np.multiply.outer(t, direction)
        lone = read_lone_kinks(t, ask(points), level(points))
        estimate = lone.seen / (2.0 * half / math.pi)
        if len(lone.t) and d > 1 and length > 0.0:
            line = _Line(base, direction, across / length, scale, level)
            first, deeper = _follow(ask, lone, follow, line, config)
        else:
            first, deeper = (lone.seen, 0) if d == 1 else (0, 0)
        seen.append(FirstLook(lone.seen, first, deeper, estimate))
        enough = first >= min(follow // 2 + 1, lone.seen) > 0
        if deeper or enough or (lone.seen == 0 and half == most):
            break
        half = min(most, half * aim / max(lone.seen, 1))
    total = sum(look.first for look in seen), sum(look.deeper for look in seen)
    last = next((look for look in reversed(seen) if look.kinks), seen[-1])
    return FirstLook(sum(look.kinks for look in seen), *total, last.hyperplanes)


def _followed(d: int, config: FirstLookConfig) -> int:
    """Return how many kinks are followed."""
    return int(np.clip(math.isqrt(d), config.fewest, config.most))


def price_of_look(d: int, config: FirstLookConfig | None = None) -> int:
    """Return what a look takes where one piece of a line and one round of reaches do.

    A kink: its share of the line, slopes across on two pieces, a stencil on the line, and one
    at each place to both sides.
    """
    config = FirstLookConfig() if config is None else config
    stencil = len(_stencil(np.zeros((1, 1)), np.zeros(1), np.zeros(1)))
    each = 2 * config.points + 4 * len(config.side_steps) + stencil
    return _followed(d, config) * (each + 2 * len(config.reaches[0]) * stencil)


@dataclasses.dataclass(frozen=True)
class _Trace:
    """Hyperplanes of lone kinks: a point of each, a direction along it and its uncertainty."""

    anchors: FloatArray
    along: FloatArray
    spread: FloatArray  # of the direction, as an angle
    blur: FloatArray  # of the anchor
    strength: FloatArray  # of the jump
    far: FloatArray  # scale of the inputs there


def _follow(
    ask: AskPoints, lone: LoneKinks, follow: int, line: _Line, config: FirstLookConfig
) -> tuple[int, int]:
    """Follow lone kinks along their hyperplanes; returns how many go on, and end."""
    trace = _traced(ask, lone, follow, line, config)
    count = len(trace.anchors)
    open_sides = {(i, side) for i in range(count) for side in (1.0, -1.0)}
    going: set[tuple[int, float]] = set()
    ended: set[int] = set()
    for reaches in config.reaches:
        trials = [
            (i, side, r) for i, side in sorted(open_sides) if i not in ended for r in reaches
        ]
        if not trials:
            break
        index = np.array([i for i, _, _ in trials])
        reach = np.array([side * r for _, side, r in trials]) * trace.far[index]
        points = trace.anchors[index] + reach[:, None] * trace.along[index]
        sigma = line.level(points)
        blur = np.abs(reach) * trace.spread[index] + trace.blur[index]
        width = _width(blur, sigma, trace.strength[index], config)
        width = np.maximum(width, float(np.ptp(cluster_of(np.zeros(1), np.full(1, line.scale)))))
        answers = ask(_stencil(points, width, line.direction))
        kinked, doubled, flat = _second_differences(answers, sigma, config)
        for j, (i, side, _) in enumerate(trials):
            if (i, side) not in open_sides or i in ended:
                continue
            if doubled[j]:
                going.add((i, side))
                open_sides.discard((i, side))
            elif not kinked[j] and not flat[j]:
                ended.add(i)
    both = [i for i in range(count) if (i, 1.0) in going and (i, -1.0) in going]
    return len(set(both) - ended), len(ended)


def _width(
    blur: FloatArray, sigma: FloatArray, strength: FloatArray, config: FirstLookConfig
) -> FloatArray:
    """Return how wide second differences must be to show a kink whose place is blurred."""
    return np.maximum(2.0 * AGREES * blur, config.signal * sigma / np.sqrt(strength))


def _traced(
    ask: AskPoints, lone: LoneKinks, follow: int, line: _Line, config: FirstLookConfig
) -> _Trace:
    """Measure the directions of the hyperplanes of the kinks that tell most.

    Those are the strongest with room to both sides.
    """
    order = np.argsort(-lone.room.min(axis=1) * np.linalg.norm(lone.jump, axis=1))
    kept: IntArray = np.sort(order[:follow])
    anchors = line.base + np.multiply.outer(lone.t[kept], line.direction)
    sigma = line.level(anchors)
    strength = (lone.jump[kept] ** 2).sum(axis=1)
    # On the line itself two kinks that pass for one must be told apart: hardly above the noise.
    width = 2.0 * AGREES * lone.std[kept]
    least = 2.0 * AGREES * np.finfo(np.float64).eps * (line.scale + np.abs(lone.t[kept]))
    stencil = _stencil(anchors, np.maximum(width, least), line.direction)
    beside: list[FloatArray] = []

    def ask_with_stencil(points: FloatArray) -> FloatArray:
        answers = ask(np.concatenate([points, stencil]))  # both in one batch
        beside.append(answers[len(points) :])
        return answers[: len(points)]

    slope, std, fine = _slopes_across(ask_with_stencil, lone, kept, line, config)
    fine &= _alone(beside[0], sigma, AGREES * lone.std[kept] * np.sqrt(strength))
    kept, slope, std, strength = kept[fine], slope[fine], std[fine], strength[fine]
    ratio = ((slope[:, 1] - slope[:, 0]) * lone.jump[kept]).sum(axis=1) / strength
    spread = np.hypot(np.hypot(std[:, 0], std[:, 1]), ratio * lone.jump_std[kept])
    along = line.across - ratio[:, None] * line.direction
    length = np.linalg.norm(along, axis=1)
    return _Trace(
        anchors=anchors[fine],
        along=along / length[:, None],
        spread=spread / np.sqrt(strength) / length,
        blur=lone.std[kept],
        strength=strength,
        far=line.scale + np.abs(lone.t[kept]),
    )


def _slopes_across(
    ask: AskPoints, lone: LoneKinks, kept: IntArray, line: _Line, config: FirstLookConfig
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Measure both pieces' slopes across the line: ``(k, 2, m)``, errors ``(k, 2)``, and ok."""
    centers = lone.centers[kept]
    points = line.base + centers[:, :, None] * line.direction  # (k, 2, d)
    values = lone.values[kept]
    sigma = line.level(points.reshape(-1, points.shape[2])).reshape(centers.shape)
    steps = np.multiply.outer(np.array(config.side_steps), lone.room[kept])  # (s, k, 2)
    move = steps[..., None] * line.across
    answers = ask(np.concatenate([points + move, points - move]).reshape(-1, points.shape[2]))
    ahead, behind = np.split(answers.reshape(2 * len(steps), *values.shape), 2)
    bend = np.abs(ahead + behind - 2.0 * values).max(axis=3)
    good = bend <= np.sqrt(6.0) * AGREES * sigma
    best = np.argmax(good, axis=0)  # the first, that is the longest, straight step
    i, j = np.indices(best.shape)
    h = steps[best, i, j]
    slope = (ahead[best, i, j] - behind[best, i, j]) / (2.0 * h[..., None])
    return slope, sigma / (np.sqrt(2.0) * h), good.any(axis=0).all(axis=1)


def _stencil(points: FloatArray, width: FloatArray, direction: FloatArray) -> FloatArray:
    """Return points 0, 1 and 2 widths to both sides, ``(5 n, d)``."""
    move = width[:, None] * direction
    return np.concatenate(
        [points, points + move, points - move, points + 2.0 * move, points - 2.0 * move]
    )


def _alone(answers: FloatArray, sigma: FloatArray, slack: FloatArray) -> BoolArray:
    """Whether stencils show one kink in their middle each; ``slack`` is what its place allows.

    Two kinks between neighbouring points may pass for one; then there is none where it should
    be, or double the width does not give double the second difference.
    """
    middle, right, left, further, behind = answers.reshape(5, len(sigma), -1)
    miss = np.abs(further + behind + 2.0 * (middle - right - left)).max(axis=1)
    seen = np.abs(right + left - 2.0 * middle).max(axis=1) > np.sqrt(6.0) * AGREES * sigma
    return np.asarray(seen & (miss <= np.sqrt(14.0) * AGREES * sigma + slack))


def _second_differences(
    answers: FloatArray, sigma: FloatArray, config: FirstLookConfig
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Whether a kink shows in a stencil, is in its middle, or the spot is flat."""
    middle, right, left, further, behind = answers.reshape(5, len(sigma), -1)
    unit = np.sqrt(6.0) * AGREES * sigma
    second = right + left - 2.0 * middle
    kinked = np.abs(second).max(axis=1) > unit
    # An answer that is not finite (log-odds that underflowed) tells as little as a flat spot.
    lost = ~np.isfinite(second).all(axis=1)
    flat = ((np.abs(right - left).max(axis=1) <= unit) & ~kinked) | lost
    twice = further + behind - 2.0 * middle
    miss = np.abs(twice - 2.0 * second).max(axis=1)
    doubled = kinked & (miss <= config.ratio * np.abs(twice).max(axis=1) + 3.0 * unit)
    return kinked, doubled, flat
