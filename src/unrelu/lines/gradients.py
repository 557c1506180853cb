"""Gradients of affine pieces by finite differences, each chunk of them checked.

Inside one piece a difference quotient is exact up to noise, so steps should be
as large as the piece allows; but how far it reaches is not known, and a step
that crosses a hyperplane gives a wrong derivative without a sign of it. So
directions are measured in chunks, and one more answer, at a random combination
of a chunk's steps, must agree with the sum of the differences. Where it does
not, a second combination tells which single step crossed (the two
disagreements are that step's overshoot times two known weights); that step is
repeated shorter. Only where this fails is the whole chunk repeated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.memory import BLOCK
from unrelu.core.noise import AGREES, NoiseModel

__all__ = ["GradientConfig", "Gradients", "measure_gradients", "orthogonal_directions"]

AskPoints = Callable[[FloatArray], FloatArray]
"""Points ``(n, d)`` to answers ``(n, m)``."""


@dataclasses.dataclass(frozen=True)
class GradientConfig:
    """Sizes and tolerances of the gradient step."""

    chunk: int = 64
    """Directions per check; a quarter of them in the first chunk of a piece, where there are
    several: if its check fails, the other chunks start with shorter steps."""
    shrink: float = 8.0
    """A repeated step is shorter by this factor."""

    @property
    def pilot(self) -> int:
        """Directions of the first chunk of several."""
        return max(1, self.chunk // 4)

    @property
    def attempts(self) -> int:
        """Times a chunk is repeated: until steps have lost half of float64's digits."""
        digits = -0.5 * math.log(np.finfo(np.float64).eps)
        return math.ceil(digits / math.log(self.shrink))


@dataclasses.dataclass(frozen=True)
class Gradients:
    """Directional derivatives at P points along n directions.

    Attributes
    ----------
    derivatives
        Shape ``(P, n, m)``.
    steps
        Signed step of each difference quotient, ``(P, n)``.
    std
        Standard deviation of each derivative, ``(P, n, m)``.
    ok
        Whether every chunk of a point agreed with its check, ``(P,)``.
    """

    derivatives: FloatArray
    steps: FloatArray
    std: FloatArray
    ok: BoolArray


def orthogonal_directions(direction: FloatArray) -> FloatArray:
    """Return d - 1 orthonormal rows, all orthogonal to a unit vector.

    They are the other rows of the Householder reflection that maps the vector
    to plus or minus the axis of its largest entry.
    """
    d = len(direction)
    axis = int(np.argmax(np.abs(direction)))
    u = direction.copy()
    u[axis] += np.copysign(1.0, u[axis])
    u /= np.linalg.norm(u)
    reflection = np.eye(d) - 2.0 * np.outer(u, u)
    return np.delete(reflection, axis, axis=0)


class _Chunk:
    """Some directions at one point, their answers and their checks."""

    __slots__ = ("answers", "attempt", "checks", "index", "piece", "state", "steps", "todo")

    def __init__(self, piece: int, index: IntArray, steps: FloatArray) -> None:
        self.piece, self.index, self.steps = piece, index, steps
        self.answers: FloatArray | None = None
        self.checks: list[tuple[FloatArray, FloatArray]] = []  # weights, answer
        self.attempt = 0
        self.state = "measure"
        self.todo: IntArray = np.arange(len(index))


class _Measurement:
    def __init__(
        self,
        ask: AskPoints,
        points: FloatArray,
        values: FloatArray,
        std: FloatArray,
        directions: FloatArray,
        rng: np.random.Generator,
        bounds: tuple[FloatArray, FloatArray] | None,
        slack: float,
        config: GradientConfig,
    ) -> None:
        self.ask, self.points, self.values, self.std = ask, points, values, std
        self.slack = slack
        self.directions, self.rng, self.bounds, self.config = directions, rng, bounds, config

    def _fit_into_bounds(self, chunk: _Chunk) -> None:
        """Turn or shorten steps that would leave the box."""
        if self.bounds is None:
            return
        low, high = self.bounds
        x = self.points[chunk.piece]
        q = self.directions[chunk.index]
        room = []
        for sign in (1.0, -1.0):
            with np.errstate(divide="ignore", invalid="ignore"):
                limit = np.where(q * sign > 0, (high - x) / (q * sign), np.inf)
                limit = np.minimum(limit, np.where(q * sign < 0, (low - x) / (q * sign), np.inf))
            room.append(limit.min(axis=1))
        forward, backward = room
        size = np.abs(chunk.steps)
        # Half of the room leaves the combinations of steps inside as well, nearly always.
        # On an edge there may be no room either way: any step then, for the check to refuse.
        chunk.steps = np.where(
            size <= 0.5 * forward,
            size,
            np.where(
                size <= 0.5 * backward,
                -size,
                np.where(
                    forward >= backward,
                    np.maximum(0.5 * forward, 1e-9 * size),
                    -0.5 * backward,
                ),
            ),
        )

    def _check_point(self, chunk: _Chunk) -> tuple[FloatArray, FloatArray]:
        """Return weights of a chunk's steps, and the point that their combination reaches."""
        weights = self.rng.standard_normal(len(chunk.index))
        weights /= np.linalg.norm(weights)
        if len(weights) == 1:  # the step itself proves nothing, what lies opposite does
            weights[:] = -self.rng.uniform(0.5, 1.0)
        room = self._room(chunk, weights)
        if room < 0.5:
            # On a face of the box most combinations lead out. Steps stay inside, and so
            # does what lies between them: weights of one sign.
            weights = np.abs(weights)
            room = max(self._room(chunk, weights), 1.0 / float(weights.sum()))
        weights *= room
        move = (weights * chunk.steps) @ self.directions[chunk.index]
        return weights, self.points[chunk.piece] + move

    def _room(self, chunk: _Chunk, weights: FloatArray) -> float:
        """Return the part, at most 1, of a combination of steps that stays in the box."""
        if self.bounds is None:
            return 1.0
        low, high = self.bounds
        x = self.points[chunk.piece]
        move = (weights * chunk.steps) @ self.directions[chunk.index]
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(move > 0, (high - x) / move, np.inf)
            scale = np.minimum(scale, np.where(move < 0, (low - x) / move, np.inf))
        return min(1.0, 0.9 * float(scale.min()))

    def _rows(self, chunk: _Chunk) -> tuple[FloatArray, FloatArray]:
        """Return the points that a chunk asks next, and the weights of its new check."""
        x = self.points[chunk.piece]
        if chunk.state == "second check":
            weights, point = self._check_point(chunk)
            return point[None, :], weights
        q = self.directions[chunk.index[chunk.todo]]
        moved = x + chunk.steps[chunk.todo, None] * q
        if chunk.state == "repair":
            return moved, np.empty(0)
        weights, point = self._check_point(chunk)
        rows = [moved, point[None, :]]
        if chunk.attempt:  # the value at the point itself may be what is wrong: ask it
            rows.append(x[None, :])
        return np.concatenate(rows), weights

    def residual(self, chunk: _Chunk, check: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Disagreement of a check, per output, in standard deviations of one answer."""
        assert chunk.answers is not None
        weights, answer = check
        base = self.values[chunk.piece]
        r = answer - base - weights @ (chunk.answers - base)
        return np.asarray(r / self.std[chunk.piece])

    def agrees(self, chunk: _Chunk, check: tuple[FloatArray, FloatArray]) -> bool:
        weights, _ = check
        # The check, the combined answers, and the base value with what is left of its weight.
        spread = np.sqrt(1.0 + float(weights @ weights) + (1.0 - float(weights.sum())) ** 2)
        worst = np.abs(self.residual(chunk, check))
        bend = self.slack * float(np.abs(chunk.steps).max()) / self.std[chunk.piece]
        return bool((worst <= AGREES * (float(spread) + bend)).all())

    def advance(self, chunk: _Chunk, answers: FloatArray, weights: FloatArray) -> None:
        """Take in the answers of one round and decide what comes next."""
        if chunk.state == "measure":
            if chunk.attempt:
                self._renew_value(chunk.piece, answers[-1])
                answers = answers[:-1]
            chunk.answers = answers[:-1].copy()
            chunk.checks = [(weights, answers[-1])]
            chunk.state = "done" if self.agrees(chunk, chunk.checks[0]) else "second check"
            return
        if chunk.state == "second check":
            chunk.checks.append((weights, answers[0]))
            if self.agrees(chunk, chunk.checks[1]):
                chunk.state = "done"  # only the first check's own point had crossed
                return
            suspect = self._decode(chunk)
            if suspect is None:
                self._restart(chunk)
                return
            chunk.todo = np.array([suspect])
            chunk.steps[suspect] /= self.config.shrink
            chunk.state = "repair"
            return
        # A repaired direction: scale its difference to the step that the checks used.
        assert chunk.answers is not None
        i = int(chunk.todo[0])
        base = self.values[chunk.piece]
        chunk.answers[i] = base + self.config.shrink * (answers[0] - base)
        worst = max(float(np.abs(self.residual(chunk, c)).max()) for c in chunk.checks)
        # The scaled difference carries that much more noise into the checks.
        noisier = 2.0 + self.config.shrink * max(abs(float(w[i])) for w, _ in chunk.checks)
        chunk.answers[i] = answers[0]
        if worst <= AGREES * noisier:
            chunk.state = "done"
        else:
            self._restart(chunk)

    def _renew_value(self, piece: int, answer: FloatArray) -> None:
        """Replace a value that the target does not confirm."""
        if (np.abs(answer - self.values[piece]) > AGREES * self.std[piece]).any():
            self.values[piece] = answer

    def _decode(self, chunk: _Chunk) -> int | None:
        """Find the one direction whose overshoot explains both disagreements."""
        (w1, _), (w2, _) = chunk.checks
        r1 = self.residual(chunk, chunk.checks[0])
        r2 = self.residual(chunk, chunk.checks[1])
        # Per direction i, least squares of (r1, r2) on (w1_i, w2_i), over all outputs.
        norm = np.maximum(w1**2 + w2**2, np.finfo(np.float64).tiny)
        across = np.abs(np.multiply.outer(w1, r2) - np.multiply.outer(w2, r1)).max(axis=1)
        misfit = across / np.sqrt(norm)
        best = int(np.argmin(misfit))
        return best if misfit[best] <= AGREES else None

    def _restart(self, chunk: _Chunk) -> None:
        chunk.attempt += 1
        chunk.state = "measure" if chunk.attempt < self.config.attempts else "failed"
        chunk.todo = np.arange(len(chunk.index))
        size = np.abs(chunk.steps)
        chunk.steps = np.full_like(size, np.median(size) / self.config.shrink)
        self._fit_into_bounds(chunk)

    def run(self, chunks: list[_Chunk]) -> None:
        open_chunks = [c for c in chunks if c.state not in {"done", "failed"}]
        limit = max(1, BLOCK // self.points.shape[1])
        while open_chunks:
            start = 0
            while start < len(open_chunks):
                rows: list[FloatArray] = []
                weights: list[FloatArray] = []
                count = 0
                stop = start
                while stop < len(open_chunks) and (count == 0 or count < limit):
                    block, w = self._rows(open_chunks[stop])
                    rows.append(block)
                    weights.append(w)
                    count += len(block)
                    stop += 1
                answers = self.ask(np.concatenate(rows))
                ends = np.cumsum([len(block) for block in rows])
                for j, part in enumerate(np.split(answers, ends[:-1])):
                    self.advance(open_chunks[start + j], part, weights[j])
                start = stop
            open_chunks = [c for c in open_chunks if c.state not in {"done", "failed"}]


def measure_gradients(
    ask: AskPoints,
    points: FloatArray,
    values: FloatArray,
    steps: FloatArray,
    directions: FloatArray,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    slack: float = 0.0,
    config: GradientConfig | None = None,
) -> Gradients:
    """Measure directional derivatives at points inside affine pieces.

    Parameters
    ----------
    ask
        ``(n, d) -> (n, m)``.
    points
        Shape ``(P, d)``, each inside its piece.
    values
        The function there, ``(P, m)``, at least as precise as one answer.
    steps
        Steps to try first, ``(P,)`` or ``(P, n)``; shortened where a check fails.
    directions
        Rows to differentiate along, ``(n, d)``, orthonormal.
    noise
        Of the answers.
    bounds
        Lower and upper corner ``(d,)`` of a box that must not be left.
    slack
        Bends of slope up to this size are let pass: a residual bends a little
        wherever the function subtracted from it has an inexact kink.

    Notes
    -----
    All points share each batch; a round trip more is spent only on checks that
    failed. A failed check costs two answers where one step had crossed.
    """
    config = GradientConfig() if config is None else config
    count, n = len(points), len(directions)
    if n == 0:
        m = values.shape[1]
        empty = np.empty((count, 0, m))
        return Gradients(empty, np.empty((count, 0)), empty, np.ones(count, dtype=bool))
    std = noise.at(points)
    first = np.broadcast_to(steps[:, None] if steps.ndim == 1 else steps, (count, n)).copy()
    values = values.copy()
    job = _Measurement(ask, points, values, std, directions, rng, bounds, slack, config)

    def make(piece: int, index: IntArray, shorter: float = 1.0) -> _Chunk:
        chunk = _Chunk(piece, index, first[piece, index] / shorter)
        job._fit_into_bounds(chunk)
        return chunk

    if n <= config.chunk:
        chunks = [make(p, np.arange(n)) for p in range(count)]
        job.run(chunks)
    else:
        head = np.arange(config.pilot)
        chunks = [make(p, head) for p in range(count)]
        job.run(chunks)
        parts = np.array_split(np.arange(config.pilot, n), -(-(n - config.pilot) // config.chunk))
        rest = [make(c.piece, part, config.shrink**c.attempt) for c in chunks for part in parts]
        job.run(rest)
        chunks += rest
    derivatives = np.zeros((count, n, values.shape[1]))
    used = np.ones((count, n))
    ok = np.ones(count, dtype=bool)
    for chunk in chunks:
        assert chunk.answers is not None
        difference = chunk.answers - values[chunk.piece]
        derivatives[chunk.piece, chunk.index] = difference / chunk.steps[:, None]
        used[chunk.piece, chunk.index] = chunk.steps
        ok[chunk.piece] &= chunk.state == "done"
    spread = std[:, None, :] / np.abs(used)[:, :, None]
    return Gradients(derivatives, used, np.asarray(np.sqrt(2.0) * spread + slack), ok)
