"""Answers of a target with two hidden layers: asked, read, and what each is worth."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.answers import look_for_probabilities
from unrelu.core.noise import is_single
from unrelu.core.run import Run
from unrelu.extraction.box_config import BoxConfig
from unrelu.extraction.box_target import RowNoise, measure_noise, read_probabilities

__all__ = ["Reader", "TwoHiddenConfig"]


@dataclasses.dataclass(frozen=True)
class TwoHiddenConfig:
    """Sizes of the extraction of two hidden layers from coarse answers."""

    lines: int = 9
    points: int = 128
    """Lines of a plane, and points on each: a kink needs three straight points on either side,
    so some tens of kinks a line can be read."""
    radius: float = 1.2
    """Radius of the disc that lines cross, over the length of a typical input."""
    planes: int = 10
    """Planes looked at, at most."""
    above: BoxConfig = dataclasses.field(
        default_factory=lambda: BoxConfig(probes=600, held_out=2000)
    )
    """Of the layers above, which are searched as a box, and of the certificate."""


class Reader:
    """Asks the target of a run."""

    def __init__(self, run: Run) -> None:
        self.run, self.target, self.rng = run, run.target, run.rng
        self.dimension, self.outputs = run.target.input_dim, run.target.output_dim
        self.probabilities = self.single = False
        self.noise = RowNoise(0.0, 1.0)

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs."""
        return self.rng.standard_normal((n, self.dimension))

    def read(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask; returns inputs as asked, values read, and their deviations."""
        if self.single:
            x = x.astype(np.float32).astype(np.float64)
        return x, *self.judge(self.target(x))

    def judge(self, answers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Read answers; returns values and their deviations, infinite where unread."""
        values, coarseness = answers, np.zeros(len(answers))
        if self.probabilities:
            values, coarseness = read_probabilities(answers)
        return values, self.noise.at(values, coarseness)

    def look(self, answers: str) -> None:
        """Find out what the answers are and how exact."""
        with self.run.stage("calibration") as details:
            found, seen = look_for_probabilities(self.target, self.draw, ways_out=())
            self.probabilities = answers == "probabilities" or (answers == "auto" and found)
            self.single = is_single(seen)
            self.noise = measure_noise(_Around(self), self.rng, single=self.single)
            details |= {"noise": self.noise.level, "float32": self.single}


class _Around:
    """Typical inputs as a cube, for measuring the noise."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.dimension, self.outputs = reader, reader.dimension, reader.outputs

    def ask(self, cube: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask at ``4 cube - 2``: uniform points there are as long as Gaussian ones."""
        x = 4.0 * cube - 2.0
        answers = self.reader.target(x)
        if self.reader.probabilities:
            return cube, *read_probabilities(answers)
        return cube, answers, np.zeros(len(answers))
