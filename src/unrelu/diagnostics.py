"""What is this oracle? A few queries that tell noise, precision and kind.

Algorithms derive their tolerances from what is measured here; nothing in it
uses more than answers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._diagnosis import Diagnosis, DiagnosisConfig
from unrelu._numbers import real_number
from unrelu._random import RandomState, as_generator
from unrelu._types import BoolArray, FloatArray
from unrelu.core.answers import between_zero_and_one, vote
from unrelu.core.noise import AGREES, NORMAL_MEDIAN, decimal_step, is_single
from unrelu.errors import InvalidInput
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import to_bfloat16

__all__ = ["Diagnosis", "DiagnosisConfig", "diagnose"]

_TINY = float(np.finfo(np.float64).tiny)


_READINGS = ("values", "probabilities")


def check_reading(answers: str) -> None:
    """Refuse what does not say how to read answers."""
    if answers not in ("auto", *_READINGS):
        raise InvalidInput(f"answers is auto, values or probabilities, got {answers!r}")


def diagnose(
    oracle: Any,
    *,
    rng: RandomState = 0,
    scale: float = 1.0,
    center: FloatArray | None = None,
    answers: str = "auto",
    config: DiagnosisConfig | None = None,
) -> Diagnosis:
    """Measure an oracle's noise, precision, determinism and kind.

    Parameters
    ----------
    oracle
        An oracle, or anything :func:`unrelu.connect` takes.
    scale, center
        Points are ``center + scale * N(0, I)``: give them where inputs live on
        another scale, such as pixels in 0..255. An oracle with a box is looked
        at inside it instead.
    answers
        ``"values"`` or ``"probabilities"``, where the look at them should not decide.

    Examples
    --------
    >>> import unrelu
    >>> seen = unrelu.diagnose(unrelu.planted.random_network(4, 3, 1, rng=0))
    >>> seen.kind, seen.precision, seen.deterministic
    ('values', 'float64', True)
    """
    scale = real_number(scale, "scale", above=0.0)
    check_reading(answers)
    oracle = as_oracle(oracle)
    options = DiagnosisConfig() if config is None else config
    before = oracle.queries.total
    seen = _ask(oracle, options, scale, center, as_generator(rng))
    near, far, ends = seen.near, seen.far, seen.ends
    kind = "labels" if oracle.class_names else _kind(near, far, ends)
    if answers != "auto" and kind in _READINGS:
        kind = answers
    size = float(np.sqrt(np.mean(near**2)))
    precision, quantum = _precision(np.concatenate([near, far]), size)
    # Three repeats tell a deviation within a factor of three; many differences tell it better.
    quietest, jitter = _quietest(near, ends, seen.steps, options), seen.jitter
    noise = max(quietest, quantum / np.sqrt(12.0), jitter if jitter > 3.0 * quietest else 0.0)
    bend_step = piecewise = hyperplanes = None
    steps_only = False
    if kind not in {"labels", "constant"}:
        if kind == "probabilities":
            # A softmax bends everywhere; log-odds bend only where the network does.
            seconds, floor = _as_log_odds(near, ends, noise, seen.steps)
        else:
            seconds, floor = _second_differences(near, ends), np.full(len(near), noise)
        bend_step, piecewise = _bends(seconds, floor, seen.scale, seen.steps)
        steps_only = _locally_constant(near, ends, quantum, seen.steps, options)
        if piecewise and not steps_only and oracle.box is None:
            bent = seconds > 2.0 * AGREES * floor
            hyperplanes = _count_hyperplanes(bent, seen.steps / np.sqrt(oracle.input_dim))
    return Diagnosis(
        kind=kind,
        precision=precision,
        noise=noise,
        relative_noise=noise / size if size > 0 else noise,
        deterministic=seen.jitter == 0.0,
        batch_consistent=seen.consistent,
        scale=float(near.std()),
        bend_step=bend_step,
        piecewise_linear=piecewise,
        input_dim=oracle.input_dim,
        output_dim=oracle.output_dim,
        queries=oracle.queries.total - before,
        locally_constant=steps_only,
        growth=_growth(near[: len(far)], far, options),
        hyperplanes=hyperplanes,
    )


@dataclasses.dataclass(frozen=True)
class _Seen:
    """Answers near the origin, far out and beside the near ones, by step and side."""

    near: FloatArray
    far: FloatArray
    ends: FloatArray
    steps: FloatArray  # that were asked, over their scale
    scale: float
    jitter: float  # deviation of repeated answers, 0 where they are the same
    consistent: bool  # whether a point alone and in a batch gave the same bits


def _ask(
    oracle: Oracle,
    options: DiagnosisConfig,
    scale: float,
    center: FloatArray | None,
    g: np.random.Generator,
) -> _Seen:
    """Ask all that most targets need in one batch: round trips cost as much as queries.

    Then one point twice; and, unless long steps leave nothing but rounding, short ones.
    """
    d, box = oracle.input_dim, oracle.box
    offset = np.zeros(d) if center is None else _center(center, d)
    if box is None:
        x = offset + scale * g.standard_normal((options.points, d))
    else:  # the middle half, and steps that stay inside
        offset = (box[0] + box[1]) / 2
        x = offset + (box[1] - box[0]) * g.uniform(-0.25, 0.25, (options.points, d))
        scale = float((box[1] - box[0]).min()) / 4 / max(options.steps)
    away = offset + options.far * (x[: len(x) // 2] - offset)
    away = away if box is None else np.clip(away, *box)
    steps = np.asarray(options.steps)
    long = int(np.count_nonzero(steps >= options.small[1]))
    around = _line_ends(x, scale * steps, g)
    ahead, behind = around[:long].reshape(-1, d), around[long:].reshape(-1, d)
    with oracle.stage("diagnosis"):
        seen = oracle(np.concatenate([x, away, ahead]))
        again = oracle(x[:1], repeat=1)
        alone = oracle(x[:1], repeat=2)
        near, far, rest = np.split(seen, [len(x), len(x) + len(away)])
        ends = rest.reshape(long, 2, len(x), -1)
        if _kind(near, far, ends) != "values" or not _only_rounding(
            near, ends, steps[:long], options
        ):
            short = oracle(behind).reshape(len(steps) - long, 2, len(x), -1)
            ends = np.concatenate([ends, short])
    repeats = np.concatenate([near[:1], again, alone])
    same = bool(np.array_equal(again, alone))
    return _Seen(
        near=near,
        far=far,
        ends=ends,
        steps=steps[: len(ends)],
        scale=scale,
        jitter=0.0 if same else float(repeats.std(axis=0, ddof=1).max()),
        consistent=bool(np.array_equal(near[:1], again)),
    )


def _only_rounding(
    near: FloatArray, ends: FloatArray, steps: FloatArray, options: DiagnosisConfig
) -> bool:
    """Whether steps move the answers, and the last bends nearly none beyond float64's rounding.

    Shorter steps would show the same.
    """
    rounding = AGREES * 2.0**-52 * float(np.sqrt(np.mean(near**2)))
    straight = _second_differences(near, ends[-1:])[0] <= np.sqrt(6.0) * rounding
    if np.mean(straight) <= options.still:
        return False
    return 0.0 < _quietest(near, ends, steps, options) <= rounding


def _center(center: Any, d: int) -> FloatArray:
    try:
        offset = np.broadcast_to(np.asarray(center, dtype=np.float64), (d,))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"center must be {d} numbers, got {center!r}") from error
    if not np.isfinite(offset).all():
        raise InvalidInput(f"center must be finite, got {center!r}")
    return offset


def _kind(near: FloatArray, far: FloatArray, ends: FloatArray) -> str:
    """Decide the kind of output from answers near the origin, beside them and far out."""
    seen = np.concatenate([near, far])
    if (seen == seen[0]).all():
        return "constant"
    whole = bool((seen == np.round(seen)).all())
    if whole and len(np.unique(seen)) <= max(2, len(seen) // 2):
        return "labels"
    if not between_zero_and_one(np.concatenate([seen, ends.reshape(-1, seen.shape[1])])):
        return "values"
    if seen.shape[1] > 1:
        return "probabilities"
    votes = vote(ends[:, 0].ravel(), np.tile(near.ravel(), len(ends)), ends[:, 1].ravel())
    return "probabilities" if votes.log_odds > votes.values else "values"


def _precision(seen: FloatArray, size: float) -> tuple[str, float]:
    """Return the coarsest grid that holds every answer, and its spacing."""
    if size == 0:
        return "float64", 0.0
    step = decimal_step(seen)
    if step > 0.0:
        return f"{round(-np.log10(step))} decimals", step
    if (to_bfloat16(seen) == seen).all():
        return "bfloat16", 2.0**-7 * size
    if is_single(seen):
        return "float32", 2.0**-23 * size
    return "float64", 2.0**-52 * size


def _line_ends(x: FloatArray, steps: FloatArray, g: np.random.Generator) -> FloatArray:
    """Return ``x - h v`` and ``x + h v``, by step, sign and point, ``(steps, 2, points, d)``."""
    direction = g.standard_normal(x.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return np.array([[x + sign * h * direction for sign in (-1.0, 1.0)] for h in steps])


def _second_differences(middle: FloatArray, ends: FloatArray) -> FloatArray:
    """Return ``|f(x-hv) - 2 f(x) + f(x+hv)|``, the largest output, ``(steps, points)``."""
    return np.asarray(np.abs(ends[:, 0] - 2.0 * middle + ends[:, 1]).max(axis=2))


def _quietest(
    middle: FloatArray, ends: FloatArray, steps: FloatArray, options: DiagnosisConfig
) -> float:
    """Estimate an answer's error from the quietest step that moves the answer.

    A network may be flat around many inputs; those around which it is not tell
    the noise, where there are some.
    """
    lively = _lively(middle, ends, steps, options)
    if np.count_nonzero(lively) >= 3:
        middle, ends = middle[lively], ends[:, :, lively]
    moved = (ends != middle).any(axis=(1, 3)).mean(axis=1) > 0.5
    if not moved.any():
        return 0.0
    # Second differences of independent errors have variance 6 sigma^2.
    medians = np.median(_second_differences(middle, ends), axis=1) / (np.sqrt(6.0) * NORMAL_MEDIAN)
    least = float(medians[moved].min())
    # Steps as quiet as the quietest, but for chance, tell the same: their mean is steadier.
    return float(medians[moved & (medians <= 2.0 * least)].mean())


def _lively(
    middle: FloatArray, ends: FloatArray, steps: FloatArray, options: DiagnosisConfig
) -> BoolArray:
    """Return which points lie on no flat part: all small steps move the answer, ``(points,)``."""
    small = (steps <= options.small[1]) & (steps >= options.small[0])
    return np.asarray((ends[small] != middle).any(axis=(1, 3)).all(axis=0))


def _as_log_odds(
    middle: FloatArray, ends: FloatArray, noise: float, steps: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return second differences of log-odds, and their noise, where unsaturated.

    Steps as long as a typical coordinate, and longer, may end where a probability is nothing
    but rounding: short ones tell.
    """
    p = np.concatenate([middle[None], ends.reshape(-1, *middle.shape)])
    if p.shape[2] == 1:
        p = np.concatenate([p, 1.0 - p], axis=2)
    short = np.append(True, np.repeat(steps < 1.0, 2))
    smallest = p[short].min(axis=(0, 2))
    usable = smallest > np.sqrt(noise)  # log(p) keeps half of the digits there
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(p > 0, p, 1.0))[:, usable]
    odds = logs[:, :, 1:] - logs[:, :, :1]
    shape = (*ends.shape[:2], *odds.shape[1:])
    seconds = _second_differences(odds[0], odds[1:].reshape(shape))
    # The shortest steps show noise alone, of logarithms near their end more than was measured.
    shown = seconds[-2:].max(axis=0) / np.sqrt(6.0)
    return seconds, np.maximum(2 * noise / smallest[usable], shown)


def _bends(
    seconds: FloatArray, noise: FloatArray, scale: float, steps: FloatArray
) -> tuple[float | None, bool | None]:
    """Return the step at which half of the points bend, and whether pieces are linear."""
    if seconds.shape[1] < 3:
        return None, None
    bent = seconds > 2.0 * AGREES * noise
    often = np.flatnonzero(bent.mean(axis=1) >= 0.5)
    if len(often) == 0:
        return None, True
    bend = scale * float(steps[int(often.max())])
    # A smooth function's second differences fall by 100 with each ten times smaller
    # step, at nearly every point; a piecewise linear one's drop to zero, or by 10. Where
    # even a small step meets many kinks only the drop to zero tells.
    floor = 2.0 * AGREES * noise
    near = [i for i in range(len(steps) - 1) if steps[i] < 1.0]
    could = seconds[near] > 3.0 * 100.0 * floor
    dropped = could & (seconds[[i + 1 for i in near]] <= floor)
    telling = np.count_nonzero(could.any(axis=0))
    if telling >= 3:
        return bend, bool(np.count_nonzero(dropped.any(axis=0)) > 0.3 * telling)
    medians = np.median(seconds, axis=1)
    small = [i for i in often if steps[i] < 1.0]
    if len(small) < 2:
        return bend, not (small and _falls_evenly(seconds[small[0] - 1], seconds[small[0]]))
    rates = np.log10(medians[small[:-1]] / medians[small[1:]])
    return bend, not bool(np.median(rates) > 1.7)


def _falls_evenly(wide: FloatArray, narrow: FloatArray) -> bool:
    """Whether second differences fall by 100, within a factor of two, at nearly every point.

    Single precision leaves one small step above the noise, and the one ten times as long beside
    it. Kinks are met by chance: where there are few, most points lose all of them on the way,
    where there are many, their numbers and signs differ from point to point.
    """
    with np.errstate(divide="ignore"):
        rates = np.log10(wide / narrow)
    return bool(np.mean(np.abs(rates - 2.0) < np.log10(2.0)) > DiagnosisConfig().still)


def _locally_constant(
    middle: FloatArray,
    ends: FloatArray,
    quantum: float,
    steps: FloatArray,
    options: DiagnosisConfig,
) -> bool:
    """Whether small steps change nothing, and where anything changes, it jumps.

    Answers on a coarse grid do not change with small steps either; but where
    most of them do not, the others change by one unit of the grid. A network may be
    flat at most points, too; but a single one at which it is not shows a slope, not a jump.
    """
    if len(np.unique(middle, axis=0)) < 2 or _lively(middle, ends, steps, options).any():
        return False
    change: FloatArray = np.abs(ends - middle).max(axis=(1, 3))  # (steps, points)
    still = np.mean(change == 0, axis=1)
    if (still[steps <= options.small[1]] < options.still).any():
        return False
    jumps = change[still >= 0.5]
    jumps = jumps[jumps > 0]
    return len(jumps) == 0 or bool(np.round(np.median(jumps) / max(quantum, _TINY)) > 1.0)


def _growth(near: FloatArray, far: FloatArray, options: DiagnosisConfig) -> float:
    """Return the exponent with which the spread of answers grows outwards."""
    small, large = float(near.std()), float(far.std())
    if small == 0 or large == 0:
        return 0.0
    return float(np.log(large / small) / np.log(options.far))


def _count_hyperplanes(bent: BoolArray, steps: FloatArray) -> float | None:
    """Estimate how many hyperplanes there are from the step at which each point first bends.

    A Gaussian hyperplane meets the segment ``x +- h v`` with probability
    ``2 / pi atan(h / sqrt(d))``, so k of them spare it with probability
    ``exp(-k p)``. The likeliest k is returned; ``steps`` are over sqrt(d), falling.
    """
    if bent.shape[1] < 3:
        return None
    p = 2.0 / np.pi * np.arctan(steps)
    p = np.append(p, 0.0)
    # Index of the smallest step that bends, with all larger ones: -1 if none.
    last = np.minimum.accumulate(bent, axis=0).sum(axis=0) - 1
    if (last < 0).all():
        return 0.0
    k = np.logspace(-1.0, 7.0, 400)
    spared = np.exp(-np.multiply.outer(k, p))  # at each step, and at none
    within = np.maximum(spared[:, 1:] - spared[:, :-1], _TINY)
    chance = np.where(last < 0, spared[:, [0]], within[:, np.maximum(last, 0)])
    return float(k[np.argmax(np.log(np.maximum(chance, _TINY)).sum(axis=1))])
