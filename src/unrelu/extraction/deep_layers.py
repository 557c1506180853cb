"""Tell which kinks of a line belong to the first hidden layer (Algorithm 7).

The hyperplane of a first-layer unit never ends: every point of it is critical,
but for flat spots. A unit of a later layer bends where it meets a first-layer
hyperplane. So from a kink one moves along its hyperplane, far, to both sides,
and looks whether the kink is still there.

Moving along needs one direction inside the hyperplane only. With the jumps of
slope ``J_v`` along the line and ``J_q`` along one more direction, it is
``r = q - (J_q / J_v) v``: one derivative per piece instead of d.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import EXPECTED, LARGE, READ, SURE, ZERO
from unrelu.lines.gradients import GradientConfig
from unrelu.lines.kinks import LineScan
from unrelu.lines.survey import SurveyLine

__all__ = [
    "DEEPER",
    "FIRST",
    "UNKNOWN",
    "Across",
    "LayerTestConfig",
    "find_first_layer",
    "floored",
    "measure_across",
    "piece_centers",
]

AskPoints = Callable[[FloatArray], FloatArray]

UNKNOWN, FIRST, DEEPER = range(3)


@dataclasses.dataclass(frozen=True)
class LayerTestConfig:
    """Tolerances of the layer test. Lengths are relative to the line's scale."""

    accept: float = ZERO
    """Standard deviations within which a second difference is zero."""
    step: float = 0.12
    """First step across the line, over the distance to the nearest kink."""
    shrink: float = GradientConfig().shrink
    attempts: int = GradientConfig().attempts
    """A step whose answers are not on a line is shortened, so many times."""
    reach: tuple[float, ...] = (8.0, 13.0, 5.0, 23.0, 3.0, 1.5, 0.7)
    """How far to go along the hyperplane (R in Algorithm 7), over scale + |t|: most
    hyperplanes of the first layer lie nearer than that. Later values are for spots that were
    flat, had a second kink nearby, or were too far out for a probability."""
    delta: float = READ
    """Half-width of the second difference there."""
    margin: float = LARGE
    """It is at least so many times the uncertainty of where the kink should be."""
    signal: float = 3000.0
    """And so wide that the kink seen on the line would show this many deviations."""
    ratio: float = EXPECTED
    """A kink in the middle doubles the second difference with the width, up to this."""


@dataclasses.dataclass(frozen=True)
class Across:
    """Derivatives of a line's pieces along one direction across it.

    Attributes
    ----------
    derivatives, std
        ``(k + 1, m)``.
    ok
        Whether three answers lay on a line, ``(k + 1,)``.
    """

    derivatives: FloatArray
    std: FloatArray
    ok: BoolArray


def floored(ask: AskPoints, noise: NoiseModel, d: int, rng: np.random.Generator) -> NoiseModel:
    """Return the noise, with a floor where the line that told it was flat.

    Where all answers are the same nothing scatters; answers at typical inputs
    and farther out then say how large rounding is.
    """
    if (noise.absolute > 1e-30).all():
        return noise
    x = rng.standard_normal((16, d)) * np.repeat([1.0, 10.0], 8)[:, None]
    seen = np.abs(ask(x))
    size = np.maximum(np.where(np.isnan(seen), 0.0, seen).max(axis=0), 1e-12)
    floor = np.finfo(np.float64).eps * size
    return NoiseModel(
        np.maximum(noise.absolute, floor), np.maximum(noise.growth, 0.1 * floor / np.sqrt(d))
    )


def piece_centers(scan: LineScan, line: SurveyLine) -> tuple[FloatArray, FloatArray]:
    """Return a point inside each piece and the distance to its nearest kink, ``(k + 1,)``."""
    kinks = scan.kinks
    if len(kinks) == 0:
        return np.zeros(1), np.array([line.scale])
    inner = 0.5 * (kinks[1:] + kinks[:-1])
    out = max(line.scale, 0.25 * float(kinks[-1] - kinks[0]))
    first = kinks[0] - min(out, 0.5 * (kinks[0] - line.low))
    last = kinks[-1] + min(out, 0.5 * (line.high - kinks[-1]))
    centers = np.concatenate([[first], inner, [last]])
    room = np.abs(centers[:, None] - kinks).min(axis=1)
    return centers, room


def measure_across(
    ask: AskPoints,
    line: SurveyLine,
    scan: LineScan,
    noise: NoiseModel,
    direction: FloatArray,
    *,
    config: LayerTestConfig | None = None,
) -> Across:
    """Measure each piece's derivative along a unit direction, two answers each."""
    config = LayerTestConfig() if config is None else config
    centers, room = piece_centers(scan, line)
    points = line.points(centers)
    values = np.array([p.predict(float(t)) for p, t in zip(scan.pieces, centers, strict=True)])
    level = noise.at(points)
    step = config.step * room
    derivatives = np.zeros_like(values)
    std = np.full_like(values, np.inf)
    todo: IntArray = np.arange(len(centers))
    for _ in range(config.attempts):
        if len(todo) == 0:
            break
        h = step[todo, None]
        move = h * direction
        answers = ask(np.concatenate([points[todo] + move, points[todo] - move]))
        ahead, behind = np.split(answers, 2)
        bend = np.abs(ahead + behind - 2.0 * values[todo]) / (np.sqrt(6.0) * level[todo])
        good = bend.max(axis=1) <= config.accept
        derivatives[todo] = (ahead - behind) / (2.0 * h)
        std[todo] = np.where(good[:, None], level[todo] / (np.sqrt(2.0) * h), np.inf)
        step[todo[~good]] /= config.shrink
        todo = todo[~good]
    return Across(derivatives, std, np.isfinite(std).all(axis=1))


@dataclasses.dataclass
class _Suspect:
    """A kink on trial."""

    kink: int
    side: float
    tried: int = 0


@dataclasses.dataclass(frozen=True)
class _Seen:
    """Whether a kink is in the middle of three points, and whether nothing bends, ``(n,)``."""

    doubled: BoolArray
    straight: BoolArray


def _second_differences(
    ask: AskPoints,
    points: FloatArray,
    move: FloatArray,
    level: FloatArray,
    config: LayerTestConfig,
) -> _Seen:
    """Ask at 0 and +-move first, and at +-2 move where a kink shows; ``(n, d)`` each.

    Neither verdict where all is flat, or too far out for a probability.
    """
    n = len(points)
    answers = ask(np.concatenate([points, points + move, points - move]))
    middle, right, left = answers[:n], answers[n : 2 * n], answers[2 * n :]
    unit = np.sqrt(6.0) * level * config.accept
    second = right + left - 2.0 * middle
    lost = np.asarray(np.isnan(second).any(axis=1))
    kinked = (np.abs(second) > unit).any(axis=1)
    flat = (np.abs(right - left) <= unit).all(axis=1) & ~kinked
    doubled = np.zeros(n, dtype=bool)
    if kinked.any():
        which = np.flatnonzero(kinked)
        middles, twice = points[which], 2.0 * move[which]
        wide = ask(np.concatenate([middles + twice, middles - twice]))
        more = wide[: len(which)] + wide[len(which) :] - 2.0 * middle[which]
        miss = np.abs(more - 2.0 * second[which]).max(axis=1)
        size = np.abs(more).max(axis=1)
        doubled[which] = miss <= config.ratio * size + SURE * unit[which].max(axis=1)
    return _Seen(doubled, ~(kinked | flat | lost))


def find_first_layer(
    ask: AskPoints,
    line: SurveyLine,
    scan: LineScan,
    noise: NoiseModel,
    across: Across,
    direction: FloatArray,
    *,
    config: LayerTestConfig | None = None,
) -> IntArray:
    """Tell the layers of a line's kinks apart.

    Returns
    -------
    One of FIRST (critical on both sides, far away), DEEPER (its hyperplane
    ends) and UNKNOWN (flat or crowded wherever it was looked at) per kink.
    """
    config = LayerTestConfig() if config is None else config
    k = len(scan.kinks)
    verdict: IntArray = np.full(k, UNKNOWN, dtype=np.intp)
    if k == 0:
        return verdict
    jump_v = scan.jumps
    jump_q = np.diff(across.derivatives, axis=0)
    var_q = across.std[1:] ** 2 + across.std[:-1] ** 2
    var_v = np.array(
        [a.slope_var + b.slope_var for a, b in zip(scan.pieces, scan.pieces[1:], strict=False)]
    )
    strength = (jump_v**2).sum(axis=1)
    usable = across.ok[1:] & across.ok[:-1] & (strength > 0)
    safe = np.where(strength > 0, strength, 1.0)
    ratio = (jump_q * jump_v).sum(axis=1) / safe
    with np.errstate(invalid="ignore"):
        spread = np.sqrt((var_q + ratio[:, None] ** 2 * var_v).max(axis=1) / safe)
    along = direction - ratio[:, None] * line.direction
    length = np.linalg.norm(along, axis=1)
    along /= length[:, None]
    spread = spread / length
    anchors = line.points(scan.kinks)
    far = line.scale + np.abs(scan.kinks)
    suspects = [_Suspect(int(i), 1.0) for i in np.flatnonzero(usable)]
    while suspects:
        index = np.array([s.kink for s in suspects])
        reach = np.array([s.side * config.reach[s.tried] for s in suspects]) * far[index]
        points = anchors[index] + reach[:, None] * along[index]
        level = noise.at(points)
        blur = np.abs(reach) * spread[index] + scan.kink_std[index]
        show = config.signal * (level / np.sqrt(strength[index])[:, None]).max(axis=1)
        width = np.maximum(np.maximum(config.margin * blur, show), config.delta * line.scale)
        move = width[:, None] * line.direction
        seen = _second_differences(ask, points, move, level, config)
        later: list[_Suspect] = []
        for j, s in enumerate(suspects):
            if seen.doubled[j]:
                if s.side > 0:
                    later.append(_Suspect(s.kink, -1.0))
                else:
                    verdict[s.kink] = FIRST
            elif seen.straight[j]:
                verdict[s.kink] = DEEPER
            elif s.tried + 1 < len(config.reach):
                s.tried += 1
                later.append(s)
        suspects = later
    return verdict
