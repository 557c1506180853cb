"""Gradients of a black box from differences of its answers.

A step is as long as the function looks linear within its own noise: on a ReLU
network that is the size of a linear piece, on a smooth network it comes out
near the square root of the noise. Both then serve the same code, and steps
along the null space of a known span may be far longer still, because the
function hardly changes there.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.oracles.base import Oracle
from unrelu.span.config import SpanConfig

__all__ = [
    "GradientRows",
    "Neighbourhood",
    "estimate_noise",
    "find_neighbourhood",
    "find_step",
    "locate_change",
    "measure_gradient",
    "measure_null_slopes",
    "random_directions",
    "screen_points",
]


NOISE_SPACINGS = tuple(2.0**-e for e in range(32, 0, -5))
"""Distances at which answers are compared to find their noise, in units of the inputs: from
2^-32 (float64 answers move by a few units in the last place) to 2^-2 (answers printed with few
digits begin to move)."""
STEPS = tuple(2.0**-e for e in range(28))
"""Step lengths to choose from, longest first: factors of 2 down to the square root of float64's
resolution, below which no difference is worth taking."""


@dataclasses.dataclass(frozen=True)
class Neighbourhood:
    """A point around which the function looks linear, with slopes seen there.

    Attributes
    ----------
    point, answer
        ``(n,)`` and ``(m,)``.
    reach
        Distance up to which it looked linear.
    tests, slopes
        Random unit directions, ``(t, n)``, and the slopes along them,
        ``(t, m)``, measured over ± ``reach``.
    """

    point: FloatArray
    answer: FloatArray
    reach: float
    tests: FloatArray
    slopes: FloatArray
    noise: FloatArray


@dataclasses.dataclass(frozen=True)
class GradientRows:
    """Gradients at points, one row per point and output.

    Attributes
    ----------
    rows
        ``(P, n)``.
    noise
        Standard deviation of each entry of a row, ``(P,)``.
    points
        The point of each row, ``(P, n)``.
    outputs
        The output of each row, ``(P,)``.
    reach
        Distance up to which the point looked linear, ``(P,)``.
    check
        Root mean square deviation from slopes seen in random directions, per
        entry of the row, ``(P,)``: a kink that a few entries reached shows here.
    """

    rows: FloatArray
    noise: FloatArray
    points: FloatArray
    outputs: IntArray
    reach: FloatArray
    check: FloatArray

    @classmethod
    def none(cls, n: int) -> GradientRows:
        """Return no gradients in n dimensions."""
        empty = np.empty((0, n))
        none = np.empty(0)
        return cls(empty, none, empty, np.empty(0, dtype=np.intp), none, none)

    def take(self, index: IntArray) -> GradientRows:
        """Return some of the rows."""
        return GradientRows(*(getattr(self, f.name)[index] for f in dataclasses.fields(self)))

    def with_more(self, other: GradientRows) -> GradientRows:
        """Return both together."""
        return GradientRows(
            *(
                np.concatenate([getattr(self, f.name), getattr(other, f.name)])
                for f in dataclasses.fields(self)
            )
        )


def random_directions(
    rng: np.random.Generator, shape: tuple[int, ...], basis: FloatArray | None = None
) -> FloatArray:
    """Return random unit vectors, orthogonal to the rows of ``basis`` if given."""
    u = rng.standard_normal(shape)
    if basis is not None and len(basis):
        u -= (u @ basis.T) @ basis
        u -= (u @ basis.T) @ basis  # twice is enough
    return np.asarray(u / np.linalg.norm(u, axis=-1, keepdims=True))


def estimate_noise(
    oracle: Oracle, rng: np.random.Generator, *, scale: float, config: SpanConfig
) -> FloatArray:
    """Estimate the standard deviation of the answers' error, ``(m,)``.

    Third differences over a spacing so small that the function is linear there
    leave the noise (Moré & Wild 2011, with √20 for the binomial weights): at
    each point the smallest spacing at which every answer moves. Where the very
    smallest spacing moves nothing, answers lie on a lattice, and the noise is
    at least the uniform error of its mesh. Of the points that move
    first, the upper quartile is taken: rounding grows with the answer. An output
    that never moves gets 0.
    """
    m = oracle.output_dim
    spacings = scale * np.asarray(NOISE_SPACINGS)
    answers = _along_short_lines(oracle, rng, spacings, scale, config.places)
    for _ in range(config.rounds):
        moved = np.ptp(answers, axis=2).any(axis=(1, 2))
        # Where all units are off answers show no noise; where hardly any move, none does.
        if np.count_nonzero(moved) >= config.places // 2:
            break
        more = _along_short_lines(oracle, rng, spacings, scale, config.places)
        answers = np.concatenate([answers, more])
    third = np.abs(np.diff(answers, n=3, axis=2))[:, :, 0, :] / np.sqrt(20.0)
    moving = (np.diff(answers, axis=2) != 0).all(axis=2)
    noise = np.zeros(m)
    for j in range(m):
        levels = []
        there = np.flatnonzero(moving[:, :, j].any(axis=1))
        first = np.argmax(moving[:, :, j], axis=1)
        # Slopes differ by less than two spacings do; where all units are off nothing moves until
        # a step meets a kink, which is no noise.
        for i in there[first[there] <= first[there].min(initial=len(spacings)) + 1]:
            level = float(third[i, first[i], j])
            if first[i] > 0:
                mesh = np.diff(np.unique(answers[i, : first[i] + 1, :, j]))
                level = max(level, float(mesh.min()) / np.sqrt(12.0))
            levels.append(level)
        if levels:
            # A float64 line may be exactly linear by luck; its last bit is the least noise.
            least = float(np.spacing(np.abs(answers[..., j]).max())) / np.sqrt(12.0)
            noise[j] = max(float(np.quantile(levels, 0.75)), least)
    return noise


def _along_short_lines(
    oracle: Oracle, rng: np.random.Generator, spacings: FloatArray, scale: float, places: int
) -> FloatArray:
    """Ask four points at each spacing along a line through random places, ``(p, s, 4, m)``."""
    n = oracle.input_dim
    base = scale * rng.standard_normal((places, n))
    lines = random_directions(rng, (places, n))
    ticks = (spacings[:, None] * np.arange(4.0)).reshape(-1)
    x = base[:, None, :] + ticks[None, :, None] * lines[:, None, :]
    return oracle(x.reshape(-1, n)).reshape(places, len(spacings), 4, -1)


def _second_differences(
    oracle: Oracle, x: FloatArray, answers: FloatArray, tests: FloatArray, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return second differences and slopes along ``tests``, each ``(c, t, m)``."""
    c, t, n = tests.shape
    moved = step[:, None, None] * tests
    both = np.stack([x[:, None] + moved, x[:, None] - moved])
    right, left = oracle(both.reshape(-1, n)).reshape(2, c, t, -1)
    bend = right + left - 2.0 * answers[:, None]
    return bend, (right - left) / (2.0 * step[:, None, None])


def find_step(
    oracle: Oracle,
    rng: np.random.Generator,
    noise: FloatArray,
    *,
    scale: float,
    config: SpanConfig,
) -> float:
    """Find the longest step at which most Gaussian points look linear.

    Returns 0 when even the shortest step bends more than the noise.
    """
    n, points = oracle.input_dim, config.places
    x = scale * rng.standard_normal((points, n))
    answers = oracle(x)
    tests = random_directions(rng, (points, 1, n))
    lengths = scale * np.asarray(STEPS)
    # A function that looks linear over a step does so over shorter ones: bisect.
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        step = np.full(points, lengths[middle])
        bend, _ = _second_differences(oracle, x, answers, tests, step)
        fine = (np.abs(bend) <= config.linear * noise).all(axis=(1, 2))
        if 2 * np.count_nonzero(fine) >= points:
            high = middle
        else:
            low = middle + 1
    return float(lengths[low]) if low < len(lengths) else 0.0


def screen_points(
    oracle: Oracle,
    x: FloatArray,
    basis: FloatArray,
    noise: FloatArray,
    rng: np.random.Generator,
    *,
    step: float,
    probes: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Ask whether gradients at ``x``, ``(c, n)``, leave the span of ``basis``.

    Compares the answer at each point with those a ``step`` away in random
    directions orthogonal to the basis. No linearity is needed: a function of
    the known coordinates alone does not change at all.

    Returns
    -------
    answers
        At the points, ``(c, m)``.
    change
        Root mean square change in units of its noise, for the output that
        changes most, ``(c,)``.
    moved
        Of the points asked around each, the one with the largest change, ``(c, n)``.
    """
    c, n = x.shape
    moved = x[:, None] + step * random_directions(rng, (c, probes, n), basis)
    every = np.concatenate([x[:, None], moved], axis=1)
    answers = oracle(every.reshape(-1, n)).reshape(c, probes + 1, -1)
    change = (answers[:, 1:] - answers[:, :1]) / (np.sqrt(2.0) * _positive(noise))
    size = np.sqrt((change**2).mean(axis=1)).max(axis=1)
    furthest = np.argmax(np.abs(change).max(axis=2), axis=1)
    return answers[:, 0], size, moved[np.arange(c), furthest]


def _positive(noise: FloatArray) -> FloatArray:
    """Noise, infinite for an output that never moves: it says nothing."""
    return np.where(noise > 0, noise, np.inf)


def locate_change(
    oracle: Oracle, start: FloatArray, end: FloatArray, noise: FloatArray, *, step: float
) -> FloatArray:
    """Find where between two points, ``(n,)`` each, the answer changes most, to ``step``."""
    answers = oracle(np.stack([start, end]))
    while np.linalg.norm(end - start) > step:
        middle = 0.5 * (start + end)
        between = oracle(middle[None])
        moves = np.abs(np.diff(np.concatenate([answers[:1], between, answers[1:]]), axis=0))
        if np.argmax((moves / _positive(noise)).max(axis=1)) == 0:
            end, answers = middle, np.concatenate([answers[:1], between])
        else:
            start, answers = middle, np.concatenate([between, answers[1:]])
    return np.asarray(0.5 * (start + end))


def find_neighbourhood(
    oracle: Oracle,
    x: FloatArray,
    answer: FloatArray,
    noise: FloatArray,
    rng: np.random.Generator,
    *,
    step: float,
    config: SpanConfig,
) -> Neighbourhood | None:
    """Find how far ``x`` looks linear: ``step``, an eighth or a 64th of it, or None.

    Rounding is larger where large terms are on. There second differences do not shrink with the
    step, as those of a kink (in proportion) and of a curve (faster) do: they are the noise.
    """
    tests = random_directions(rng, (config.probes, len(x)))
    seen: list[tuple[Neighbourhood, FloatArray]] = []
    for reach in (step, step / config.shrink, step / config.shrink**2):
        bend, slopes = _second_differences(
            oracle, x[None], answer[None], tests[None], np.array([reach])
        )
        if (np.abs(bend) <= config.linear * noise).all():
            return Neighbourhood(x, answer, reach, tests, slopes[0], noise)
        largest = np.abs(bend[0]).max(axis=0)
        local = np.maximum(noise, largest / math.sqrt(6.0))
        seen.append((Neighbourhood(x, answer, reach, tests, slopes[0], local), largest))
    _, (longer, bent), (_, still) = seen
    constant = bent <= math.sqrt(config.shrink) * still
    return longer if (constant | (bent <= config.linear * noise)).all() else None


def measure_gradient(
    oracle: Oracle, around: Neighbourhood, *, config: SpanConfig
) -> GradientRows | None:
    """Measure the whole gradient at a point by n forward differences.

    The step that the sum really took, in floating point, is divided by.
    Returns None when the gradient contradicts the slopes of the tests: a kink
    lay between.
    """
    n = oracle.input_dim
    x = around.point
    step = around.reach / config.shrink
    moved = np.tile(x, (n, 1))
    diagonal = np.arange(n)
    moved[diagonal, diagonal] += step
    taken = moved[diagonal, diagonal] - x
    rows = ((oracle(moved) - around.answer) / taken[:, None]).T  # (m, n)
    sigma = np.sqrt(2.0) * around.noise / step
    spread = sigma + around.noise / around.reach
    deviation = np.abs(around.tests @ rows.T - around.slopes)  # (t, m)
    if (deviation > config.margin * spread).any():
        return None
    # A kink that a few coordinates just reached shows in the tests by 1/√n of
    # its size; a row is trusted no further than they agree.
    check = np.sqrt(np.mean(deviation**2, axis=0))
    sigma = np.maximum(sigma, check)
    alive = np.flatnonzero((around.noise > 0) & (rows != 0).any(axis=1))
    points = np.tile(x, (len(alive), 1))
    reach = np.full(len(alive), around.reach)
    return GradientRows(rows[alive], sigma[alive], points, alive, reach, check[alive])


def measure_null_slopes(
    oracle: Oracle, points: FloatArray, null: FloatArray, steps: FloatArray
) -> FloatArray:
    """Measure slopes along the rows of ``null``, ``(q, n)``, over long steps.

    ``points`` is ``(P, n)``, ``steps`` ``(P,)``; returns ``(P, q, m)``.
    """
    slopes = []
    for x, step in zip(points, steps, strict=True):
        answers = oracle(np.concatenate([x[None], x + step * null]))
        slopes.append((answers[1:] - answers[0]) / step)
    return np.stack(slopes)
