"""One run: the target as it is asked, what its answers are worth, and all that was asked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import scipy.special

from unrelu._types import FloatArray
from unrelu.core.answers import look_for_probabilities
from unrelu.core.noise import NoiseModel
from unrelu.core.run import Run
from unrelu.lines.domains import Domain
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.smooth.config import EPS, SmoothConfig

__all__ = ["SmoothRun"]

_TAPS = np.array([1.0, -5.0, 10.0, -10.0, 5.0, -1.0])  # fifth difference


class SmoothRun:
    """The target, its noise, and everything asked so far."""

    def __init__(self, base: Run, domain: Domain, config: SmoothConfig) -> None:
        self.base, self.domain, self.rng, self.config = base, domain, base.rng, config
        self.oracle: Oracle = base.target
        self.inner_outputs = self.oracle.output_dim
        self.log_odds, self.reference = False, 0
        self.noise = np.zeros(self.inner_outputs)  # deviation of an answer, by output
        self.spread = np.ones(self.inner_outputs)
        self.length = 1.0  # over which the function bends
        self.straight = False  # whether it does not
        self._drawn = 0

    def stage(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        self.base.progress.update(name, 0, None)
        return self.base.stage(name)

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs, ``(n, d)``."""
        return self.domain.draw(n, self.rng)

    def draw_wide(self, n: int) -> FloatArray:
        """Draw typical inputs, every other one farther out."""
        points = self.draw(n)
        odd = (self._drawn + np.arange(n)) % 2 == 1
        self._drawn += n
        points[odd] *= self.config.wide
        return points

    def ask(self, points: FloatArray) -> FloatArray:
        """Answer ``(n, d)``; rows of probabilities that underflowed are NaN."""
        return self.oracle(points)

    def look(self, answers: str) -> None:
        """Find out whether the answers are probabilities; if so, log-odds are asked for."""
        with self.stage("calibration"):
            found = answers == "probabilities"
            seen = np.zeros((1, self.inner_outputs))
            if answers != "values":
                looked, seen = look_for_probabilities(self.oracle, self.draw)
                found = found or looked
        if found:
            self.log_odds, self.reference = True, int(np.argmax(seen.mean(axis=0)))
            self.oracle = LogOdds(self.oracle, reference=self.reference)

    def calibrate(self) -> None:
        """Measure the noise of an answer, the spread of answers, and where they bend.

        Fifth differences over a tiny step show noise alone. Second differences over a typical
        coordinate tell over which length the function bends.
        """
        m, d = self.oracle.output_dim, self.domain.dimension
        count = 2 * self.config.hessians
        spacing = EPS**0.25  # over a typical coordinate: what is smooth leaves 1e-20 of itself
        places = self.draw(count)
        directions = self.rng.standard_normal((count, d))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        t = np.concatenate([spacing * np.arange(6.0), [-1.0, 1.0]])
        with self.stage("calibration"):
            points = places[:, None, :] + t[None, :, None] * directions[:, None, :]
            seen = self.ask(points.reshape(-1, d))
        usable = np.isfinite(seen).all(axis=1)
        values = seen.reshape(count, len(t), m)
        values = values[np.isfinite(values).all(axis=(1, 2))]
        if len(values) == 0:
            raise ValueError("no answer could be read at typical inputs")
        fifth = np.einsum("t,ptm->pm", _TAPS, values[:, :6])
        scatter = np.sqrt(np.mean(fifth**2, axis=0) / np.sum(_TAPS**2))
        model = NoiseModel(scatter, np.zeros(m)).at_least(values.reshape(-1, m))
        self.noise = model.absolute
        self.spread = np.maximum(seen[usable].std(axis=0), self.noise)
        bend = values[:, 6] + values[:, 7] - 2.0 * values[:, 0]
        relative = float(np.sqrt(np.mean((bend / self.spread) ** 2)))
        least = max(self.relative_noise, np.finfo(np.float64).eps)
        self.straight = relative <= self.config.margin * least
        self.length = 1.0 / np.sqrt(max(relative, np.sqrt(least)))

    @property
    def relative_noise(self) -> float:
        """Deviation of an answer over the spread of answers, of the best output."""
        return float((self.noise / self.spread).min())

    @property
    def exact(self) -> bool:
        """Whether answers are exact but for the rounding of float64."""
        middle = np.finfo(np.float64).eps * np.finfo(np.float32).eps
        return bool(self.relative_noise <= np.sqrt(middle))

    def deviations(self, answers: FloatArray) -> FloatArray:
        """Return how far answers ``(n, m)`` may be off, ``(n,)``, in units of the noise.

        A single probability near one has lost digits of what is missing to one.
        """
        if not self.log_odds or answers.shape[1] > 1:
            return np.ones(len(answers))
        p = scipy.special.expit(answers[:, 0])
        return np.asarray(0.25 / np.maximum(p * (1.0 - p), np.finfo(np.float64).tiny))

    def explains(self, rms: float) -> bool:
        """Whether a fit's root mean square residual, over the noise, is noise.

        Answers that are exact but for rounding need not be met to the last digit: parameters
        that hardly matter are found to fewer digits.
        """
        return rms <= self.enough

    @property
    def enough(self) -> float:
        """The largest such residual."""
        return max(self.config.fits, self.config.negligible / self.relative_noise)
