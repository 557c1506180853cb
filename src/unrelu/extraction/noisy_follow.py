r"""From an answer that contradicts a network to the unit that the network lacks.

A unit that only far inputs switch moves no typical answer: a fit to typical answers cannot see
it, answers far out do. On the chord from an input that the network explains to one that it does
not, the residual is zero up to the unit's hyperplane; how such a chord leads to the unit is that
of boxes (:mod:`unrelu.extraction.box_follow`), in the cube about both ends.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.fit import Layered
from unrelu.extraction.box_follow import Residual, find_first_kink, measure_star
from unrelu.extraction.noisy_answers import Answers, Seen

__all__ = ["Against", "Chords"]


@dataclasses.dataclass(frozen=True)
class Against:
    """Answers that contradict a network.

    Attributes
    ----------
    seen
        The answers, the best to follow first.
    tolerance
        Deviation of a reading that is allowed at typical inputs.
    """

    seen: Seen
    tolerance: float


@dataclasses.dataclass(frozen=True)
class Chords:
    """What a search on chords stands on.

    Attributes
    ----------
    answers
        The target.
    network
        Of readings: values, or log-odds over the reference class.
    known
        Answers that it was fitted to.
    tolerance
        Deviation of a reading that is allowed at typical inputs.
    """

    answers: Answers
    network: Layered
    known: Seen
    tolerance: float

    def allowed(self, x: FloatArray) -> FloatArray:
        """Return how far readings at ``(n, d)`` may be from the network's, ``(n,)``.

        Errors of weights grow with the input beyond typical ones.
        """
        typical = float(np.median(np.linalg.norm(self.known.x, axis=1)))
        return np.asarray(self.tolerance * np.maximum(1.0, np.linalg.norm(x, axis=1) / typical))

    def missed(self, seen: Seen) -> BoolArray:
        """Whether answers contradict the network, ``(n,)``; not those that cannot be read."""
        apart = np.abs(self.answers.readings(seen.y) - self.network(seen.x)).max(axis=1)
        return np.asarray(apart > self.allowed(seen.x))  # NaN is not

    def unit_towards(self, bad: FloatArray) -> tuple[FloatArray, float, FloatArray] | None:
        """Return row, bias and outputs of the first unit on the chord to an input ``(d,)``.

        None where the chord shows none: the input is explained after all, or slopes are wrong.
        """
        good = self.known.x[~self.missed(self.known)]
        if len(good) == 0:
            return None
        start = good[int(np.argmin(np.linalg.norm(good - bad, axis=1)))]
        # Steps of a star may be longer than the chord's coordinates.
        reach = 2.0 * float(np.abs(np.stack([start, bad])).max())
        noise = self.answers.noise.widened(self.answers.reading_error, 0.0)

        def ask(cube: FloatArray) -> Residual:
            seen = self.answers.ask(reach * (2.0 * cube - 1.0))
            left = self.answers.readings(seen.y) - self.network(seen.x)
            back = 0.5 * (seen.x / reach + 1.0)
            return Residual(back, left, noise.at(seen.x).max(axis=1))

        ends = 0.5 * (np.stack([start, bad]) / reach + 1.0)
        slack = float(self.allowed(bad[None])[0] / noise.at(bad[None]).max())
        kink, _ = find_first_kink(ask, ends[0], ends[1], slack)
        if kink is None:
            return None
        star = measure_star(ask, ends[0], ends[1], kink, slack)
        if star is None:
            return None
        row, bias, outputs = star.unit()
        return 0.5 * row / reach, bias + 0.5 * float(row.sum()), outputs
