"""All queries of the non-adaptive algorithm, written down before any is asked.

A plan is a sequence of blocks, one per gradient: the Gaussian point, n
coordinate steps, and a few longer steps both ways in random directions that
later tell noise from kinks. The points alone are enough to read replies.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from unrelu._numbers import real_number, whole_number
from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.span.config import SpanConfig
from unrelu.span.values import GradientRows, random_directions

__all__ = ["SpanPlan", "gradients_from_replies", "noise_from_replies"]

DEFAULT_STEP = 2.0**-15
"""Step over the norm of a Gaussian point: a network with some hundred units and 784 inputs is
linear over tests eight times this long around all but a few per cent of Gaussian points."""


@dataclasses.dataclass(frozen=True)
class SpanPlan:
    """Queries for ``gradients`` gradients at Gaussian points in n dimensions.

    Attributes
    ----------
    input_dim
        n.
    gradients
        How many gradients.
    step
        Coordinate steps, in units of the inputs.
    scale
        Standard deviation of the Gaussian points.
    seed
        The plan is a function of it.
    """

    input_dim: int
    gradients: int
    step: float
    scale: float = 1.0
    seed: int = 0

    @classmethod
    def draw(
        cls,
        input_dim: int,
        *,
        gradients: int,
        step: float | None = None,
        scale: float = 1.0,
        rng: RandomState = None,
    ) -> SpanPlan:
        """Draw a plan; the default step suits ReLU networks answered in float64.

        For smooth networks take a step near the square root of the answers'
        relative precision, about 1e-7.
        """
        input_dim = whole_number(input_dim, "input_dim", least=1)
        gradients = whole_number(gradients, "gradients", least=1)
        scale = real_number(scale, "scale", above=0.0)
        size = DEFAULT_STEP * scale * np.sqrt(input_dim) if step is None else step
        size = real_number(size, "step", above=0.0)
        seed = int(as_generator(rng).integers(2**62))
        return cls(input_dim, gradients, size, scale, seed)

    @property
    def block(self) -> int:
        """Queries per gradient."""
        return block_size(self.input_dim)

    def __len__(self) -> int:
        return self.block * self.gradients

    def points(self, index: int) -> FloatArray:
        """Return the points of block ``index``, ``(block, n)``."""
        n, config = self.input_dim, SpanConfig()
        rng = np.random.default_rng([self.seed, index])
        x = self.scale * rng.standard_normal(n)  # Algorithm 1, line 3
        tests = random_directions(rng, (config.probes, n))
        reach = config.shrink * self.step * tests
        return np.concatenate([x[None], x + self.step * np.eye(n), x + reach, x - reach])

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write all points to a ``.npy`` file, block by block; returns the path."""
        target = Path(path)
        try:
            out = np.lib.format.open_memmap(
                target, mode="w+", dtype=np.float64, shape=(len(self), self.input_dim)
            )
        except OSError as error:
            raise InvalidInput(f"cannot write {target}: {error.strerror}") from error
        for i in range(self.gradients):  # Algorithm 1, lines 2 and 5
            out[i * self.block : (i + 1) * self.block] = self.points(i)
        out.flush()
        return target


def block_size(n: int) -> int:
    """Return the number of queries per gradient in n dimensions."""
    return 1 + n + 2 * SpanConfig().probes


def _bends(replies: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    tests = SpanConfig().probes
    base = replies[0]
    right, left = replies[1 + n : 1 + n + tests], replies[1 + n + tests :]
    return right + left - 2.0 * base, right, left


def noise_from_replies(replies: FloatArray, n: int) -> FloatArray:
    """Estimate the noise of answers, curvature included, from blocks ``(G, block, m)``.

    Most second differences see no kink; their median, over 0.6745·√6 for the
    weights (1, -2, 1) of Gaussian noise, is robust against those that do.
    Outputs that never move get 0.
    """
    bends = np.stack([_bends(block, n)[0] for block in replies])  # (G, t, m)
    level = np.median(np.abs(bends), axis=(0, 1)) / (0.6745 * np.sqrt(6.0))
    size = np.abs(replies).max(axis=(0, 1))
    moving = (replies != replies[:, :1]).any(axis=(0, 1))
    return np.where(moving, np.maximum(level, np.spacing(size)), 0.0)


def gradients_from_replies(
    points: FloatArray, replies: FloatArray, noise: FloatArray
) -> GradientRows | None:
    """Read one block: gradients of all outputs that move, or None where a kink interferes."""
    n, config = points.shape[1], SpanConfig()
    x = points[0]
    diagonal = np.arange(n)
    taken = points[1 : n + 1][diagonal, diagonal] - x
    rows = ((replies[1 : n + 1] - replies[0]) / taken[:, None]).T  # Algorithm 1, line 4
    bends, right, left = _bends(replies, n)
    moves = points[1 + n : 1 + n + config.probes] - x
    reach = float(np.linalg.norm(moves[0]))
    step = float(np.median(taken))
    sigma = np.sqrt(2.0) * noise / step
    spread = reach * sigma + noise
    deviation = np.abs(moves @ rows.T - 0.5 * (right - left))
    straight = np.abs(bends) <= config.linear * noise
    if not (straight.all() and (deviation <= config.margin * spread).all()):
        return None
    check = np.sqrt(np.mean(deviation**2, axis=0)) / reach
    sigma = np.maximum(sigma, check)
    alive = np.flatnonzero((noise > 0) & (rows != 0).any(axis=1))
    return GradientRows(
        rows[alive],
        sigma[alive],
        np.tile(x, (len(alive), 1)),
        alive,
        np.full(len(alive), reach),
        check[alive],
    )
