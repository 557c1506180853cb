"""Gradients of a black box from differences of its answers.

A step is as long as the function looks linear within its own noise: on a ReLU
network that is the size of a linear piece, on a smooth network it comes out
near the square root of the noise. Both then serve the same code, and steps
along the null space of a known span may be far longer still, because the
function hardly changes there.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.oracles.base import Oracle

__all__ = [
    "Gradients",
    "Neighbourhood",
    "ValueScales",
    "estimate_noise",
    "find_neighbourhood",
    "find_step",
    "locate_change",
    "measure_gradient",
    "measure_null_slopes",
    "random_directions",
    "screen_points",
]


@dataclasses.dataclass(frozen=True)
class ValueScales:
    """Numbers that the measurement of gradients needs.

    Attributes
    ----------
    noise_spacings
        Distances at which answers are compared to find their noise, in units of
        the inputs. From 2^-32 (float64 answers move by a few units in the last
        place) to 2^-2 (answers printed with few digits begin to move).
    noise_points
        Points at which noise is measured; the median over them is taken.
    steps
        Step lengths to choose from, longest first: factors of 2 down to the square root
        of float64's resolution, below which no difference is worth taking.
    linear
        A second difference below this many noise levels counts as zero: 6 times
        its standard deviation √6 would be exceeded by chance once in 1e9.
    test_directions
        Random directions, both ways, in which a point must look linear.
    shrink
        Gradients are measured at the tested step over this: among n coordinate
        directions some move a unit about 3 times as far as a random direction
        does, and 4 tests miss a kink within reach about once in 100 times.
    zooms, zoom_parts
        A change between two distant points is traced to 8^-4 of their distance.
    agree
        Largest deviation, in standard deviations, between a measured gradient
        and the slopes seen in the tests before it.
    """

    noise_spacings: tuple[float, ...] = tuple(2.0**-e for e in (32, 27, 22, 17, 12, 7, 2))
    noise_points: int = 9
    steps: tuple[float, ...] = tuple(2.0**-e for e in range(28))
    linear: float = 15.0
    test_directions: int = 4
    shrink: float = 8.0
    agree: float = 5.0
    zooms: int = 4
    zoom_parts: int = 8


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


@dataclasses.dataclass(frozen=True)
class Gradients:
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
    def none(cls, n: int) -> Gradients:
        """Return no gradients in n dimensions."""
        empty = np.empty((0, n))
        none = np.empty(0)
        return cls(empty, none, empty, np.empty(0, dtype=np.intp), none, none)

    def take(self, index: IntArray) -> Gradients:
        """Return some of the rows."""
        return Gradients(*(getattr(self, f.name)[index] for f in dataclasses.fields(self)))

    def with_more(self, other: Gradients) -> Gradients:
        """Return both together."""
        return Gradients(
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
    oracle: Oracle, rng: np.random.Generator, *, scale: float, scales: ValueScales
) -> FloatArray:
    """Estimate the standard deviation of the answers' error, ``(m,)``.

    Third differences over a spacing so small that the function is linear there
    leave the noise (Moré & Wild 2011, with √20 for the binomial weights): at
    each point the smallest spacing at which every answer moves. Where the very
    smallest spacing moves nothing, answers lie on a lattice, and the noise is
    at least the uniform error of its mesh. Of the points, the upper quartile is
    taken: rounding grows with the answer. An output that never moves gets 0.
    """
    n, m = oracle.input_dim, oracle.output_dim
    spacings = scale * np.asarray(scales.noise_spacings)
    base = scale * rng.standard_normal((scales.noise_points, n))
    lines = random_directions(rng, (scales.noise_points, n))
    ticks = (spacings[:, None] * np.arange(4.0)).reshape(-1)
    x = base[:, None, :] + ticks[None, :, None] * lines[:, None, :]
    answers = oracle(x.reshape(-1, n)).reshape(scales.noise_points, len(spacings), 4, m)
    third = np.abs(np.diff(answers, n=3, axis=2))[:, :, 0, :] / np.sqrt(20.0)
    moving = (np.diff(answers, axis=2) != 0).all(axis=2)
    noise = np.zeros(m)
    for j in range(m):
        levels = []
        for i in range(scales.noise_points):
            if not moving[i, :, j].any():
                continue
            first = int(np.argmax(moving[i, :, j]))
            level = float(third[i, first, j])
            if first > 0:
                mesh = np.diff(np.unique(answers[i, : first + 1, :, j]))
                level = max(level, float(mesh.min()) / np.sqrt(12.0))
            levels.append(level)
        if levels:
            # A float64 line may be exactly linear by luck; its last bit is the least noise.
            least = float(np.spacing(np.abs(answers[..., j]).max())) / np.sqrt(12.0)
            noise[j] = max(float(np.quantile(levels, 0.75)), least)
    return noise


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
    share: float,
    points: int,
    scales: ValueScales,
) -> float:
    """Find the longest step at which a ``share`` of Gaussian points looks linear.

    Returns 0 when even the shortest step bends more than the noise.
    """
    n = oracle.input_dim
    x = scale * rng.standard_normal((points, n))
    answers = oracle(x)
    tests = random_directions(rng, (points, 1, n))
    lengths = scale * np.asarray(scales.steps)
    # A function that looks linear over a step does so over shorter ones: bisect.
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        step = np.full(points, lengths[middle])
        bend, _ = _second_differences(oracle, x, answers, tests, step)
        fine = (np.abs(bend) <= scales.linear * noise).all(axis=(1, 2))
        if fine.mean() >= share:
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
    oracle: Oracle, start: FloatArray, end: FloatArray, noise: FloatArray, *, scales: ValueScales
) -> FloatArray:
    """Find where between two points, ``(n,)`` each, the answer changes most steeply."""
    for _ in range(scales.zooms):
        ticks = np.linspace(0.0, 1.0, scales.zoom_parts + 1)[:, None]
        points = start + ticks * (end - start)
        moves = np.abs(np.diff(oracle(points), axis=0)) / _positive(noise)
        part = int(np.argmax(moves.max(axis=1)))
        start, end = points[part], points[part + 1]
    return np.asarray(0.5 * (start + end))


def find_neighbourhood(
    oracle: Oracle,
    x: FloatArray,
    answer: FloatArray,
    noise: FloatArray,
    rng: np.random.Generator,
    *,
    step: float,
    scales: ValueScales,
) -> Neighbourhood | None:
    """Find how far ``x`` looks linear: ``step``, an eighth or a 64th of it, or None."""
    tests = random_directions(rng, (scales.test_directions, len(x)))
    for reach in (step, step / 8.0, step / 64.0):
        bend, slopes = _second_differences(
            oracle, x[None], answer[None], tests[None], np.array([reach])
        )
        if (np.abs(bend) <= scales.linear * noise).all():
            return Neighbourhood(x, answer, reach, tests, slopes[0])
    return None


def measure_gradient(
    oracle: Oracle, around: Neighbourhood, noise: FloatArray, *, scales: ValueScales
) -> Gradients | None:
    """Measure the whole gradient at a point by n forward differences.

    The step that the sum really took, in floating point, is divided by.
    Returns None when the gradient contradicts the slopes of the tests: a kink
    lay between.
    """
    n = oracle.input_dim
    x = around.point
    step = around.reach / scales.shrink
    moved = np.tile(x, (n, 1))
    diagonal = np.arange(n)
    moved[diagonal, diagonal] += step
    taken = moved[diagonal, diagonal] - x
    rows = ((oracle(moved) - around.answer) / taken[:, None]).T  # (m, n)
    sigma = np.sqrt(2.0) * noise / step
    spread = sigma + noise / around.reach
    deviation = np.abs(around.tests @ rows.T - around.slopes)  # (t, m)
    if (deviation > scales.agree * spread).any():
        return None
    # A kink that a few coordinates just reached shows in the tests by 1/√n of
    # its size; a row is trusted no further than they agree.
    check = np.sqrt(np.mean(deviation**2, axis=0))
    sigma = np.maximum(sigma, check)
    alive = np.flatnonzero((noise > 0) & (rows != 0).any(axis=1))
    points = np.tile(x, (len(alive), 1))
    reach = np.full(len(alive), around.reach)
    return Gradients(rows[alive], sigma[alive], points, alive, reach, check[alive])


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
