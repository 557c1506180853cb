"""Sharpen the units of a depth-2 extraction: gradients and values where they help most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.legible import Legible
from unrelu.core.noise import NoiseModel
from unrelu.core.units import SPARE
from unrelu.extraction.refine import RefineConfig, Refiner
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.two_layer_units import Estimate
from unrelu.lines.domains import Domain

__all__ = ["TYPICAL", "UnitRefinement"]

TYPICAL = RefineConfig.candidates
"""Typical inputs over which spread, noise and errors are judged."""


@dataclasses.dataclass(frozen=True)
class UnitRefinement:
    """What a refinement needs beside the units.

    Attributes
    ----------
    ask
        The target.
    noise
        Of its answers.
    domain
        Where it may be asked.
    spread
        Of its values over typical inputs.
    log_odds
        Whether values far out cannot be read.
    legible
        Which can, and which digits they lose.
    """

    ask: Callable[[FloatArray], FloatArray]
    noise: NoiseModel
    domain: Domain
    spread: float
    log_odds: bool
    legible: Legible
    rng: np.random.Generator
    config: TwoLayerConfig

    def __call__(
        self, found: Estimate, known: list[tuple[FloatArray, FloatArray]]
    ) -> tuple[Estimate, int]:
        """Sharpen units where the predicted error is above the goal.

        ``known`` are points and answers that settle biases: log-odds are read on short lines,
        and a kink of a residual is as inexact as what was subtracted. Returns how many gradients
        were measured as well.
        """
        found = found.tidied()
        units, config, bounds = found.units, self.config, self.domain.bounds
        outward = config.log_odds_outward if self.log_odds else config.refine.outward
        refiner = Refiner(
            self.ask,
            units,
            found.covariance,
            self.noise,
            self.draw,
            rng=self.rng,
            bounds=bounds,
            legible=self.legible,
            config=dataclasses.replace(config.refine, outward=outward),
            gradient_config=config.gradients,
        )
        limit, goal = self.limit(units.count), self.goal()
        refiner.measure(limit, goal)
        values = config.values_per_unit * (units.count + 1)
        if bounds is None:
            values = min(values, 0.25 * config.effort * units.count * self.domain.dimension)
        refiner.settle(int(values), self.some(known, units.count))
        return Estimate(refiner.units, refiner.covariance).tidied(), refiner.measured

    def some(
        self, known: list[tuple[FloatArray, FloatArray]], units: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return some of the points that are known, no longer than typical ones, with answers."""
        points = np.concatenate([x for x, _ in known])
        answers = np.concatenate([y for _, y in known])
        if len(known) == 1:
            return points, answers
        typical = float(np.linalg.norm(self.draw(TYPICAL), axis=1).max())
        near = (np.linalg.norm(points, axis=1) <= typical) & self.legible(answers)
        chosen = self.rng.permutation(np.flatnonzero(near))
        chosen = chosen[: int(self.config.values_per_unit * (units + 1))]
        return points[chosen], answers[chosen]

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs, ``(n, d)``."""
        return self.domain.draw(n, self.rng)

    def limit(self, units: int) -> int:
        """Return how many gradients may be measured."""
        config, d = self.config, self.domain.dimension
        effort = config.effort + config.effort_thin * d**-0.65
        if self.domain.bounds is not None:
            effort = config.effort + config.effort_thin
        return max(SPARE + 1, int(effort * units))

    def goal(self) -> float:
        """Return the root mean square error at which no more is measured."""
        goal = self.config.precision * self.spread
        if self.domain.bounds is not None:
            goal *= 0.1  # units that typical inputs hardly see weigh little in the mean
        return max(goal, float(self.noise.at(self.draw(TYPICAL)).max()))
