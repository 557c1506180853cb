"""A target in unit coordinates: asked inside its box only, its answers read as logits.

Probabilities of a softmax are read as centred logarithms, a single one as log-odds: both are
piecewise affine where the network's logits are. Answers in single precision come from inputs in
single precision, so inputs are put on that grid before they are sent, and the point that was
asked is the one on the grid.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import NORMAL_MEDIAN, is_single
from unrelu.lines.domains import Domain
from unrelu.oracles.base import Oracle

__all__ = [
    "BoxTarget",
    "CubeTarget",
    "RowNoise",
    "measure_noise",
    "read_probabilities",
]

_PLACES = 48
"""Places at which the noise is measured, four answers each: its level comes out within 10 %."""
_SPACING = 2.0**-10
"""Distance of those answers over the box. A power of two: four such points are equidistant on
the float32 grid too, and a kink between them is rare."""
_THIRD = np.array([-1.0, 3.0, -3.0, 1.0])  # third difference: a line drops out


class CubeTarget(Protocol):
    """Piecewise affine values over the unit cube."""

    dimension: int
    outputs: int

    def ask(self, cube: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask near ``cube`` ``(n, d)``.

        Returns
        -------
        points, values, coarseness
            Where it was asked ``(n, d)``, what was read ``(n, m)``, NaN where an answer cannot
            be read, and the deviation that reading alone brings, ``(n,)``.
        """
        ...


def read_probabilities(answers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Read probabilities as piecewise affine values.

    Returns
    -------
    values, coarseness
        Centred logarithms ``(n, m)``, or log-odds ``(n, 1)`` of a single column; NaN where a
        probability has underflowed, or is subnormal and has lost its digits. And the deviation
        of a value because ``p`` is rounded: ``eps`` for a logarithm, ``eps / (1 - p)`` for
        log-odds.
    """
    single = is_single(answers)
    with np.errstate(divide="ignore", invalid="ignore"):
        kind = np.finfo(np.float32 if single else np.float64)
        logs = np.log(np.where(answers < kind.tiny, np.nan, answers))
        if answers.shape[1] > 1:
            values = logs - logs.mean(axis=1, keepdims=True)
            return values, np.full(len(values), float(kind.eps))
        rest = np.where(answers < 1.0, 1.0 - answers, np.nan)
        return logs - np.log(rest), float(kind.eps) / rest[:, 0]


class BoxTarget:
    """An oracle over a box, seen as values over the unit cube."""

    def __init__(self, oracle: Oracle, domain: Domain, *, probabilities: bool, single: bool):
        self.oracle, self.domain = oracle, domain
        self.probabilities, self.single = probabilities, single
        self.dimension, self.outputs = oracle.input_dim, oracle.output_dim

    def inputs(self, cube: FloatArray, inside: bool = True) -> FloatArray:
        """Return the inputs of the target at cube points, ``(n, d)``."""
        low, high = self.domain.low, self.domain.high
        x = low + cube * (high - low)
        if not inside:
            return np.asarray(x.astype(np.float32), dtype=np.float64) if self.single else x
        x = np.clip(x, low, high)
        if self.single:
            grid = x.astype(np.float32)
            # Rounding must not leave a box that the target enforces.
            grid = np.where(grid > high, np.nextafter(grid, np.float32(-np.inf)), grid)
            grid = np.where(grid < low, np.nextafter(grid, np.float32(np.inf)), grid)
            x = grid.astype(np.float64)
        return x

    def ask(
        self, cube: FloatArray, *, inside: bool = True
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask near ``cube``, moved into the box if ``inside``; see :class:`CubeTarget`."""
        low, high = self.domain.low, self.domain.high
        x = self.inputs(cube, inside)
        answers = self.oracle(x)
        points = (x - low) / (high - low)
        if self.probabilities:
            return points, *read_probabilities(answers)
        return points, answers, np.zeros(len(answers))


@dataclasses.dataclass(frozen=True)
class RowNoise:
    """Deviation of a read value: ``level`` at rows of usual size, in proportion beyond.

    Attributes
    ----------
    level
        At rows whose largest value is ``size`` or less.
    size
        Largest value of a usual row.
    precision
        Relative rounding of the target's arithmetic.
    """

    level: float
    size: float
    precision: float = float(np.finfo(np.float64).eps)

    def at(self, values: FloatArray, coarseness: FloatArray) -> FloatArray:
        """Return the deviations of rows ``(n, m)``, ``(n,)``; infinite for unread ones."""
        size = np.abs(values).max(axis=1)
        deviation = np.maximum(self.level * np.maximum(1.0, size / self.size), coarseness)
        return np.where(np.isfinite(deviation), deviation, np.inf)


def measure_noise(
    target: CubeTarget, rng: np.random.Generator, *, single: bool = False, grid: float = 0.0
) -> RowNoise:
    """Measure the noise by third differences of four close answers on a line.

    ``single`` says that the answers are in single precision, ``grid`` is the step that they were
    rounded to: close ones may repeat exactly.
    """
    d = target.dimension
    places = 0.1 + 0.8 * rng.random((_PLACES, d))
    places = np.round(places / _SPACING) * _SPACING
    step = rng.choice([-1.0, 1.0], size=places.shape) * _SPACING
    cube = np.concatenate([places + i * step for i in range(4)])
    _, values, coarseness = target.ask(cube)
    y = values.reshape(4, _PLACES, -1)
    third = np.tensordot(_THIRD, y, axes=1)
    read = np.isfinite(third).all(axis=1)
    if not read.any():
        return RowNoise(np.nan, np.nan)
    square = float(np.median(third[read] ** 2)) / NORMAL_MEDIAN**2 / float(_THIRD @ _THIRD)
    kind = np.finfo(np.float64)
    size = max(float(np.median(np.abs(y[0][read]).max(axis=1))), float(kind.tiny / kind.eps))
    least = max(float(kind.eps) * size, grid / math.sqrt(12.0))
    rounding = float(np.median(coarseness.reshape(4, -1)[0][read]))
    precision = float(np.finfo(np.float32 if single else np.float64).eps)
    return RowNoise(max(float(np.sqrt(square)), least, rounding), size, precision)
