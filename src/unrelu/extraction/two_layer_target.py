"""The target of the depth-2 extraction, as it is asked: where, in what units, how noisy."""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.answers import LookConfig, look_for_probabilities
from unrelu.core.legible import Legible, legible_log_odds
from unrelu.core.levels import Levelled, output_levels
from unrelu.core.noise import AGREES, NoiseModel, Samples
from unrelu.core.price import Price
from unrelu.core.run import Run
from unrelu.extraction.price import price_two_layer
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.lines.domains import Domain
from unrelu.lines.readable import line_where_readable, readable_part
from unrelu.lines.survey import SurveyLine, calibrate, variation
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds

__all__ = ["Calibrated", "Meaningless", "Saturated", "TwoLayerTarget"]


class Saturated(Exception):
    """A probability underflowed where a log-odds was needed."""


class Meaningless(Exception):
    """Noise was taken for structure, until numbers overflowed."""


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A line, and the noise of the answers on it.

    Attributes
    ----------
    line, seeds
        Where it lies, and what was asked on it.
    noise, measured
        What a search goes by, and what the answers' own scatter showed.
    coarse
        Whether differences of a few answers say too little.
    """

    line: SurveyLine
    seeds: list[Samples]
    noise: NoiseModel
    measured: NoiseModel
    coarse: bool


class TwoLayerTarget:
    """Where a target is asked, and how its answers are read."""

    def __init__(self, run: Run, domain: Domain, config: TwoLayerConfig) -> None:
        self.run, self.domain, self.config, self.rng = run, domain, config, run.rng
        self.oracle: Oracle = run.target
        self.reach = config.survey.reach
        self.log_odds = False
        self.reference = 0
        self.legible = Legible()
        self.levels = np.ones(self.oracle.output_dim)  # what the outputs are divided by
        self.heard: list[tuple[FloatArray, FloatArray]] = []  # log-odds, but for checks

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs, ``(n, d)``."""
        return self.domain.draw(n, self.rng)

    def ask(self, points: FloatArray) -> FloatArray:
        """Ask the oracle, never outside the domain by a rounding error."""
        if not np.isfinite(points).all():
            raise Meaningless
        if self.domain.bounds is not None:
            points = np.clip(points, self.domain.low, self.domain.high)
        answers = self.oracle(points)
        if self.log_odds:
            if np.isnan(answers).any():
                raise Saturated
            self.heard.append((points, answers))
        return answers

    def look(self, answers: str) -> None:
        """Find out what the answers are: probabilities, outputs of very different size."""
        ways = {"all": (1.0, -1.0), "nonnegative": (1.0,), "box": ()}[self.domain.kind]
        found, seen = False, np.empty((0, self.oracle.output_dim))
        with self.run.stage("calibration"):
            if answers != "values":
                found, seen = look_for_probabilities(self.oracle, self.draw, ways_out=ways)
            elif self.oracle.output_dim > 1:
                seen = self.oracle(self.draw(LookConfig.looks))
        if found or answers == "probabilities":
            # The likeliest class is the reference: its probability underflows last.
            reference = int(np.argmax(seen.mean(axis=0)))
            self.oracle, self.log_odds = LogOdds(self.oracle, reference=reference), True
            self.reference = reference
            record, limit = self.run.target.record, self.config.deepest_single
            self.legible = legible_log_odds(record, reference, limit)
            self.levels = np.ones(self.oracle.output_dim)
            return
        self.levels = output_levels(seen)
        if (self.levels != 1.0).any():
            self.oracle = Levelled(self.oracle, self.levels)

    def readable(self, points: FloatArray) -> BoolArray:
        """Return at which points ``(n, d)`` the answers can be read."""
        return self.legible(self.oracle(points))

    def shorten(self, line: SurveyLine) -> SurveyLine:
        """Limit a line to where no probability underflows."""
        if not self.log_odds:
            return line
        unit = line.scale if math.isfinite(line.scale) else 0.5 * (line.high - line.low)
        with self.run.stage("calibration"):
            short = readable_part(line, unit, self.readable)
        if short is None:
            raise Saturated
        return short

    def calibrate(self) -> Calibrated:
        """Draw a line, and measure the noise of the answers on it."""
        line = self.domain.line(self.rng, self.reach)
        if self.log_odds and self.domain.kind == "all":
            with self.run.stage("calibration"):
                line = line_where_readable(line, self.draw(LookConfig.looks), self.readable)
        line = self.shorten(line)
        if not line.low < line.high:  # probabilities underflow all around its base
            raise Saturated
        with self.run.stage("calibration"):
            noise, seeds = calibrate(self.ask, line, near=self.near())
        measured = noise.typical(seeds) if self.log_odds else noise
        if (self.levels != 1.0).any():  # decimals do not show any more
            t, y = (np.concatenate(part) for part in zip(*seeds, strict=True))
            noise, measured = self.at_least((noise, measured), y, line.norms(t))
        middle = min(seeds, key=lambda seed: float(np.abs(seed[0]).min()))
        level = float(noise.at(line.points(middle[0])).max())
        typical = 2.0 * self.domain.scale * float(np.sqrt(self.run.target.input_dim))
        varied = variation(line, seeds, typical)
        # A constant, as far as the line tells, has no digits to be coarse by.
        coarse = varied > AGREES * level > AGREES * self.config.coarse * varied
        return Calibrated(line, seeds, noise, measured, coarse)

    def begin(self) -> Calibrated | None:
        """Calibrate on a line; None where none can be read."""
        for _ in range(self.config.restarts + 1):
            with suppress(Saturated, Meaningless):
                return self.calibrate()
        return None

    def at_least(
        self, models: tuple[NoiseModel, NoiseModel], answers: FloatArray, norms: FloatArray
    ) -> tuple[NoiseModel, NoiseModel]:
        """Let noise be no less than the rounding of answers at inputs of given norms."""
        first, second = (
            model.at_least(answers, self.levels, norms=norms, near=self.near()) for model in models
        )
        return first, second

    def near(self) -> float:
        """Norm of inputs up to which noise is absolute; beyond, it grows with them."""
        return 10.0 * self.domain.scale if self.domain.kind != "box" else math.inf

    def price(self, kinks: int) -> Price:
        """Return what a network of so many units costs."""
        target, orthant = self.run.target, self.domain.kind != "all"
        return price_two_layer(target.input_dim, target.output_dim, kinks, orthant=orthant)
