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
import itertools
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray

__all__ = ["FirstLook", "FirstLookConfig", "take_first_look"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class FirstLookConfig:
    """Sizes and tolerances of the first look."""

    fewest: int = 5
    most: int = 12
    share: float = 6.0
    """Kinks followed: one per ``share`` inputs within these limits, as recovery then costs
    about a query per input and unit anyway."""
    kinks: float = 1.7
    """Kinks aimed at on the piece of line, for each that is to be followed."""
    points: int = 16
    """Points on it for each kink aimed at, so that most kinks stand alone."""
    longest: float = 20.0
    """Longest half-length of the piece, over sqrt(d)."""
    again: int = 1
    """Times that a piece with too few lone kinks is followed by another."""
    longer: float = 4.0
    """The next piece is this much longer where no kink was seen."""
    enough: int = 3
    """Lone kinks that must be on it, if there are so many."""
    accept: float = 20.0
    """Deviations within which answers are on one line. The noise is known within two."""
    side_steps: tuple[float, ...] = (0.12, 0.015)
    """Steps across the line, over the distance to the nearest kink: the longest that is
    straight tells a piece's slope."""
    reaches: tuple[tuple[float, ...], ...] = ((8.0, 13.0, 5.0), (23.0, 3.0, 1.5))
    """How far to follow a hyperplane, over ``sqrt(d) + |t|``, by round: later places are for
    spots that were flat or crowded."""
    delta: float = 1e-5
    """Half-width of second differences there, over sqrt(d), at least."""
    tight: float = 1e-12
    """The same on the line itself, where two kinks that pass for one must be told apart."""
    margin: float = 30.0
    """It is at least so many times the uncertainty of where the hyperplane should be."""
    signal: float = 3000.0
    """And so wide that the kink would show this many deviations."""
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
class _Lone:
    """Kinks that stand alone between two straight pieces; see :func:`_read_kinks`."""

    t: FloatArray
    jump: FloatArray  # of slope, (k, m)
    jump_std: FloatArray
    std: FloatArray  # of t
    centers: FloatArray  # of the pieces to both sides, (k, 2)
    values: FloatArray  # there, (k, 2, m)
    room: FloatArray  # half-lengths of the pieces, (k, 2)
    seen: int  # kinks in all, lone or not


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
    follow = int(np.clip(d // config.share, config.fewest, config.most))
    aim = config.kinks * follow
    half = min(most, 0.5 * math.pi * aim / max(guess, 1e-9))
    seen: list[FirstLook] = []
    for _ in range(config.again + 1):
        base, direction, across = rng.standard_normal((3, d))
        direction /= np.linalg.norm(direction)
        across -= (across @ direction) * direction
        length = float(np.linalg.norm(across))
        t = scale * np.tan(np.linspace(-half, half, int(config.points * aim)))
        points = base + np.multiply.outer(t, direction)
        lone = _read_kinks(t, ask(points), level(points), config)
        estimate = lone.seen / (2.0 * half / math.pi)
        if len(lone.t) and d > 1 and length > 1e-12:
            first, deeper = _follow(
                ask, lone, follow, base, direction, across / length, scale, level, config
            )
        else:
            first, deeper = (lone.seen, 0) if d == 1 else (0, 0)
        seen.append(FirstLook(lone.seen, first, deeper, estimate))
        if deeper or first >= min(config.enough, lone.seen) > 0 or (
            lone.seen == 0 and half == most
        ):  # fmt: skip
            break
        crowded = lone.seen > 2 * aim
        half = min(most, half / config.longer if crowded else half * config.longer)
    total = sum(look.first for look in seen), sum(look.deeper for look in seen)
    last = next((look for look in reversed(seen) if look.kinks), seen[-1])
    return FirstLook(sum(look.kinks for look in seen), *total, last.hyperplanes)


def _read_kinks(t: FloatArray, y: FloatArray, level: FloatArray, config: FirstLookConfig) -> _Lone:
    """Read kinks off the answers at points of a line."""
    part = (t[1:-1] - t[:-2]) / (t[2:] - t[:-2])
    middle = y[:-2] + part[:, None] * (y[2:] - y[:-2])
    flat = np.abs(y[1:-1] - middle).max(axis=1) <= 1.5 * config.accept * level[1:-1]
    # Log-odds that underflowed are NaN, and on no straight piece.
    straight = np.concatenate([[False], flat, [False]])  # by point; the ends don't tell
    pieces: list[tuple[int, int]] = []  # first and last point of each straight piece
    i = 1
    while i < len(t) - 1:
        if straight[i]:
            j = i
            while straight[j + 1]:
                j += 1
            pieces.append((i - 1, j + 1))
            i = j + 1
        i += 1
    m = y.shape[1]
    found: list[tuple[float, FloatArray, FloatArray, float, list[tuple[float, FloatArray, float]]]]
    found = []
    lost = 0
    for (a0, a1), (b0, b1) in itertools.pairwise(pieces):
        if b0 != a1 + 1:
            lost += max(2, (b0 - a1) // 2)  # several kinks between neighbouring points
            continue
        fits = [
            _fit(t[lo : hi + 1], y[lo : hi + 1], level[lo : hi + 1])
            for lo, hi in ((a0, a1), (b0, b1))
        ]
        (c0, v0, s0, e0), (c1, v1, s1, e1) = fits
        jump = s1 - s0
        jump_std = np.full(m, math.hypot(e0, e1))
        strength = float((jump**2).sum())
        if not strength > (config.accept * jump_std[0]) ** 2:
            continue
        # Where the two lines meet, by least squares over the outputs.
        place = float(((v0 - s0 * c0) - (v1 - s1 * c1)) @ jump / strength)
        std = float(2.0 * level[a1] / math.sqrt(strength))
        slack = 10.0 * std + 1e-9 * float(t[b0] - t[a1])
        if not t[a1] - slack <= place <= t[b0] + slack:
            lost += 2  # two kinks between neighbouring points
            continue
        sides = [
            (c, v, min(0.5 * (t[hi] - t[lo]), abs(c - place)))
            for (c, v, _, _), (lo, hi) in zip(fits, ((a0, a1), (b0, b1)), strict=True)
        ]
        found.append((place, jump, jump_std, std, sides))
    count = len(found)
    covered = sum(hi - lo for lo, hi in pieces)
    if not pieces:
        lost = len(t) // 2
    elif covered < 0.5 * len(t):
        lost = max(lost, (len(t) - covered) // 3)
    return _Lone(
        t=np.array([f[0] for f in found]),
        jump=np.array([f[1] for f in found]).reshape(count, m),
        jump_std=np.array([f[2] for f in found]).reshape(count, m),
        std=np.array([f[3] for f in found]),
        centers=np.array([[s[0] for s in f[4]] for f in found]).reshape(count, 2),
        values=np.array([[s[1] for s in f[4]] for f in found]).reshape(count, 2, m),
        room=np.array([[s[2] for s in f[4]] for f in found]).reshape(count, 2),
        seen=count + lost,
    )


def _fit(
    t: FloatArray, y: FloatArray, level: FloatArray
) -> tuple[float, FloatArray, FloatArray, float]:
    """Fit a line; returns its center, the value there, the slope and the slope's error."""
    center = float(t.mean())
    spread = t - center
    square = float(spread @ spread)
    slope = spread @ y / square
    return center, y.mean(axis=0), np.asarray(slope), float(level.max()) / math.sqrt(square)


def _follow(
    ask: AskPoints,
    lone: _Lone,
    follow: int,
    base: FloatArray,
    direction: FloatArray,
    across: FloatArray,
    scale: float,
    level: Callable[[FloatArray], FloatArray],
    config: FirstLookConfig,
) -> tuple[int, int]:
    """Follow lone kinks along their hyperplanes; returns how many go on, and end."""
    # The strongest kinks with room to both sides tell most.
    order = np.argsort(-lone.room.min(axis=1) * np.linalg.norm(lone.jump, axis=1))
    kept: IntArray = np.sort(order[:follow])
    anchors = base + np.multiply.outer(lone.t[kept], direction)
    sigma = level(anchors)
    size = np.linalg.norm(lone.jump[kept], axis=1)
    width = np.maximum(config.margin * lone.std[kept], config.signal * sigma / size)
    stencil = _stencil(anchors, np.maximum(width, config.tight * scale), direction)
    beside: list[FloatArray] = []

    def ask_with_stencil(points: FloatArray) -> FloatArray:
        answers = ask(np.concatenate([points, stencil]))  # both in one batch
        beside.append(answers[len(points) :])
        return answers[: len(points)]

    slope, std, fine = _slopes_across(
        ask_with_stencil, lone, kept, base, direction, across, level, config
    )
    # Two kinks between neighbouring points may pass for one; then it is not where it should be.
    _, real, _ = _second_differences(beside[0], sigma, config)
    fine &= real
    kept, slope, std = kept[fine], slope[fine], std[fine]
    jump_q = slope[:, 1] - slope[:, 0]
    jump_v = lone.jump[kept]
    strength = (jump_v**2).sum(axis=1)
    ratio = (jump_q * jump_v).sum(axis=1) / strength
    spread = np.hypot(np.hypot(std[:, 0], std[:, 1]), ratio * lone.jump_std[kept].max(axis=1))
    along = across - ratio[:, None] * direction
    length = np.linalg.norm(along, axis=1)
    along /= length[:, None]
    spread = spread / np.sqrt(strength) / length
    anchors = anchors[fine]
    far = scale + np.abs(lone.t[kept])
    open_sides = {(int(i), side) for i in range(len(kept)) for side in (1.0, -1.0)}
    going: set[tuple[int, float]] = set()
    ended: set[int] = set()
    for reaches in config.reaches:
        trials = [
            (i, side, r) for i, side in sorted(open_sides) if i not in ended for r in reaches
        ]
        if not trials:
            break
        index = np.array([i for i, _, _ in trials])
        reach = np.array([side * r for _, side, r in trials]) * far[index]
        points = anchors[index] + reach[:, None] * along[index]
        sigma = level(points)
        blur = np.abs(reach) * spread[index] + lone.std[kept][index]
        show = config.signal * sigma / np.sqrt(strength[index])
        width = np.maximum(np.maximum(config.margin * blur, show), config.delta * scale)
        answers = ask(_stencil(points, width, direction))
        kinked, doubled, flat = _second_differences(answers, sigma, config)
        for j, (i, side, _) in enumerate(trials):
            if (i, side) not in open_sides or i in ended:
                continue
            if doubled[j]:
                going.add((i, side))
                open_sides.discard((i, side))
            elif not kinked[j] and not flat[j]:
                ended.add(i)
    return sum((i, 1.0) in going and (i, -1.0) in going and i not in ended
               for i in range(len(kept))), len(ended)  # fmt: skip


def _slopes_across(
    ask: AskPoints,
    lone: _Lone,
    kept: IntArray,
    base: FloatArray,
    direction: FloatArray,
    across: FloatArray,
    level: Callable[[FloatArray], FloatArray],
    config: FirstLookConfig,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Measure both pieces' slopes across the line: ``(k, 2, m)``, errors ``(k, 2)``, and ok."""
    centers = lone.centers[kept]
    points = base + centers[:, :, None] * direction  # (k, 2, d)
    values = lone.values[kept]
    sigma = level(points.reshape(-1, points.shape[2])).reshape(centers.shape)
    steps = np.multiply.outer(np.array(config.side_steps), lone.room[kept])  # (s, k, 2)
    move = steps[..., None] * across
    answers = ask(np.concatenate([points + move, points - move]).reshape(-1, points.shape[2]))
    ahead, behind = np.split(answers.reshape(2 * len(steps), *values.shape), 2)
    bend = np.abs(ahead + behind - 2.0 * values).max(axis=3)
    good = bend <= np.sqrt(6.0) * config.accept * sigma
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


def _second_differences(
    answers: FloatArray, sigma: FloatArray, config: FirstLookConfig
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Whether a kink shows in a stencil, is in its middle, or the spot is flat."""
    middle, right, left, further, behind = answers.reshape(5, len(sigma), -1)
    unit = np.sqrt(6.0) * config.accept * sigma
    second = right + left - 2.0 * middle
    kinked = np.abs(second).max(axis=1) > unit
    # An answer that is not finite (log-odds that underflowed) tells as little as a flat spot.
    lost = ~np.isfinite(second).all(axis=1)
    flat = ((np.abs(right - left).max(axis=1) <= unit) & ~kinked) | lost
    twice = further + behind - 2.0 * middle
    miss = np.abs(twice - 2.0 * second).max(axis=1)
    doubled = kinked & (miss <= config.ratio * np.abs(twice).max(axis=1) + 3.0 * unit)
    return kinked, doubled, flat
