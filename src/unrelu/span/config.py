"""The numbers that span recovery uses, with unit and reason."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu.core.explain import EXACT
from unrelu.core.noise import HALF_DIGITS, RARE
from unrelu.core.run import AGAIN
from unrelu.lines.gradients import GradientConfig

__all__ = ["FINEST", "SpanConfig"]

FINEST = float(np.finfo(np.float64).eps) / 4.0
"""Brackets are not halved below this distance, in units of the inputs: half a unit in the last
place of an input just below 1."""


@dataclasses.dataclass(frozen=True)
class SpanConfig:
    """Numbers of :func:`unrelu.span.algorithm.recover_span`.

    Attributes
    ----------
    margin
        Standard deviations of noise above which something is there: a singular value over the
        noise floor, a change of an answer, a second difference.
    trust
        Deviations are explained by noise and the estimated angle up to this factor: the angle
        is an estimate to within ``slack``.
    slack
        The estimated angle is within this factor of the true one; a basis is strengthened until
        the estimate is so many times below the one asked for.
    negligible
        Part of a gradient that may be mistaken for error of the basis; well below the paper's
        cut of 1e-5 of the largest singular value.
    places
        Points that are compared, or over which a median is taken: candidates for the next
        gradient, starts of contrasts, pilots that tell noise, step and curvature.
    probes
        Random directions that check what was measured at a point, and rows measured beyond
        the rank: as many as the rank leave no gap and no check.
    held_out, boundary_points
        Moves along the null space that must show nothing outside the span before a search
        ends, and as many held-out ones of the certificate: of inputs for values, and of
        boundary points for labels, where each costs a bisection.
    surplus
        Rows measured per rank.
    tangential
        A search direction this many times nearer to the boundary's tangent than usual is of no
        use; one in 60 random ones is.
    rounds
        How often something that did not help is tried again.
    shrink
        Gradients are measured at the tested step over this: among n coordinate directions some
        move a unit about 3 times as far as a random direction does, and 4 tests miss a kink
        within reach about once in 100 times.
    flattest
        Curvature of a decision boundary that is assumed at least, per unit of the inputs'
        scale: a flat piece must not stretch the first steps over its edge.
    tolerance, label_tolerance
        Angles that are sharp enough unless the caller says otherwise: what a first round of
        float64 values reaches, and what one sharpening pass of labels does.
    """

    margin: float = RARE
    slack: float = 3.0
    trust: float = slack * RARE
    negligible: float = EXACT
    places: int = 8
    probes: int = 3
    held_out: int = 300
    boundary_points: int = 40
    surplus: float = 1.2
    tangential: float = 50.0
    rounds: int = AGAIN
    shrink: float = GradientConfig.shrink
    flattest: float = 1e-2
    tolerance: float = HALF_DIGITS
    label_tolerance: float = 1e-10

    @property
    def linear(self) -> float:
        """Second difference that counts as zero, in noise levels: its deviation is √6."""
        return self.margin * math.sqrt(6.0)

    @property
    def patience(self) -> int:
        """Points that show nothing before a search from values ends, at ``probes`` moves each."""
        return math.ceil(self.held_out / self.probes)

    def rows_for(self, rank: int) -> int:
        """Return how many rows are measured for a rank."""
        return math.ceil(self.surplus * rank) + self.probes
