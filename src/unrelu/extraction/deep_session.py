"""What all stages of an extraction with several hidden layers share.

The run, the answers as they are worked on (values in units of each output's size, or log-odds),
where typical inputs are, and what the network found means to the caller.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.levels import output_levels
from unrelu.core.noise import NoiseModel
from unrelu.core.run import Run
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import (
    AnswerConfig,
    NotFinite,
    Recorder,
    Saturated,
    as_log_odds,
)
from unrelu.extraction.deep_numbers import SURE
from unrelu.lines.domains import as_domain
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles.base import all_finite
from unrelu.oracles.wrappers import LogOdds
from unrelu.result import RecoveryResult

__all__ = ["AROUND", "Session"]

Result = TypeVar("Result", bound=RecoveryResult)

AROUND = SURE
"""Inputs up to so many times typical ones are near: there a network must be right."""
FLAT = 0.01
"""An output's spread counts as at least this part of that of all answers near typical inputs."""


class Session:
    """A run, and how its answers are read.

    Attributes
    ----------
    run
        Target, generator, progress and stages.
    oracle
        The answers as they are worked on.
    noise
        Of these, once a line was calibrated.
    kinks
        Most kinks that one line has shown.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rng, self.progress = run.rng, run.progress
        self.oracle = Recorder(run.target)
        self.domain = as_domain("all", run.target.input_dim)
        self.answers = AnswerConfig()
        self._noise: NoiseModel | None = None
        self.kinks = 0
        self.reference = 0

    @property
    def noise(self) -> NoiseModel:
        """Of an answer, as the lines so far have shown it."""
        if self._noise is None:
            raise BudgetExhausted("no line has been calibrated yet")
        return self._noise

    def has_noise(self, noise: NoiseModel) -> None:
        """Take the noise of a line: no line says that another's is less."""
        if self._noise is not None:
            noise = NoiseModel(
                np.maximum(self._noise.absolute, noise.absolute),
                np.maximum(self._noise.growth, noise.growth),
            )
        self._noise = noise

    def stage(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        return self.run.stage(name)

    def look(self, answers: str, odds: LogOdds | None) -> None:
        """Find out whether the answers are probabilities, and turn to log-odds if so.

        ``odds`` is the caller's own view of them, if any. Values are taken in units of each
        output's size.
        """
        target, view = self.run.target, odds
        if view is None:
            with self.stage("calibration"):
                view = as_log_odds(target, answers, self.rng, self.answers)
        if view is not None:
            single = target.output_dim == 1
            deepest = self.answers.deepest
            high = self.answers.highest_single if single else deepest
            view = LogOdds(target, reference=view.reference)
            self.oracle = Recorder(view, low=-deepest, high=high)
            self.reference = view.reference
        elif target.output_dim > 1:
            with self.stage("calibration"):
                typical = self.domain.draw(self.answers.balance, self.rng)
                self.oracle = Recorder(target, units=output_levels(target(typical)))

    def recall(self) -> None:
        """Take in the answers of the run from before: of the plan, and of other methods.

        Log-odds are taken from here on only.
        """
        if self.oracle.log_odds:
            return
        for batch in self.run.target.record.batches():
            if not all_finite(batch.answers):
                raise NotFinite
            self.oracle.record.add(batch.points, batch.answers / self.oracle.units, "")

    def ask_line(self, points: FloatArray) -> FloatArray:
        """Ask where every answer is needed."""
        answers = self.oracle(points)
        if np.isnan(answers).any():
            raise Saturated
        return answers

    def spreads(self, answers: FloatArray) -> FloatArray:
        """Return how much each output varies among answers at typical inputs, ``(m,)``.

        A target that is flat there varies at inputs that found its kinks; an output that
        never does is judged by the others, or by its size.
        """
        near = [y for _, y in self.oracle.batches(AROUND * self.domain.scale)]
        spread = np.maximum(answers.std(axis=0), FLAT * np.concatenate(near).std(axis=0))
        largest = float(spread.max()) or float(np.abs(answers).max(initial=0.0)) or 1.0
        return np.where(spread > 0.0, spread, largest)

    def noise_of_target(self) -> float:
        """Return the deviation of the target's own answers at typical inputs."""
        if self._noise is None:
            return 0.0
        return float((self._noise.std(np.array([self.domain.scale])) * self.oracle.units).max())

    def network_of_target(self, network: ReLUNetwork) -> ReLUNetwork:
        """Return the network of the target's own answers.

        Log-odds of several classes get their reference back, as a zero logit.
        """
        units = self.oracle.units
        last, bias = units[:, None] * network.weights[-1], units * network.biases[-1]
        skip = None if network.skip is None else units[:, None] * network.skip
        if network.output_dim != self.run.target.output_dim:
            last, bias = (np.insert(a, self.reference, 0.0, axis=0) for a in (last, bias))
            skip = None if skip is None else np.insert(skip, self.reference, 0.0, axis=0)
        return ReLUNetwork([*network.weights[:-1], last], [*network.biases[:-1], bias], skip)

    def as_asked(self, result: Result, odds: LogOdds | None) -> Result:
        """Leave the reference out where the caller asked for log-odds, which have none of it."""
        network: Network | None = result.network
        if odds is None or network is None or odds.output_dim == 1:
            return result
        skip = None if network.skip is None else np.delete(network.skip, odds.reference, axis=0)
        last, bias = (
            np.delete(a, odds.reference, axis=0) for a in (network.weights[-1], network.biases[-1])
        )
        smaller = ReLUNetwork([*network.weights[:-1], last], [*network.biases[:-1], bias], skip)
        return dataclasses.replace(result, network=smaller)
