"""GETNEURONS in practice: lines searched for kinks, and where to lay the next one.

The first line shows every hyperplane once, but for what hides between its
points: bumps. Gaussian samples find those, at a cost of about 1 / width, which
Remark 1.3 of Chen, Klivans & Meka shows to be unavoidable. A line through the
sample of the largest residual then finds the neurons that explain it, since
all that is known is subtracted first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import NoiseModel, Samples
from unrelu.lines.gradients import GradientConfig
from unrelu.lines.kinks import LineConfig, find_kinks
from unrelu.lines.survey import Survey, SurveyConfig, SurveyLine, survey

__all__ = ["SearchConfig", "gaussian_line", "residual_noise", "search_residual"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """Sizes and tolerances of the search."""

    line: LineConfig = dataclasses.field(default_factory=LineConfig)
    gradients: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    survey: SurveyConfig = dataclasses.field(default_factory=SurveyConfig)
    floor: float = 1.0 / 300.0
    """Residuals below this part of epsilon are not looked into: at 12 deviations accepted,
    kinks that bend the residual by less than epsilon / 25 are left alone."""
    typical: float = 3.0
    """Noise of the residual over its median magnitude at Gaussian samples: calibrated from
    what is seen, so that errors of the units found are not taken for new kinks."""
    line_limit: int = 400
    """Answers spent on one residual line at most, and 30 more per unit known: a search that
    needs more is chasing the errors of the units, not new ones."""
    per_unit: int = 30
    local: tuple[float, ...] = (1e-6, 1e-4, 1e-2)
    """Companions of the point that a residual line goes through, in units of the scale."""


def gaussian_line(
    d: int,
    rng: np.random.Generator,
    *,
    reach: float,
    stretch: float = 1.0,
    through: FloatArray | None = None,
) -> SurveyLine:
    """Draw a Gaussian line (Definition 4.1), magnified, or one through a given point."""
    base = stretch * rng.standard_normal(d) if through is None else through
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    scale = stretch * math.sqrt(d)
    return SurveyLine(base, direction, -reach * scale, reach * scale, scale)


def residual_noise(
    noise: NoiseModel, residual: FloatArray, d: int, epsilon: float, config: SearchConfig
) -> NoiseModel:
    """Noise of ``F - F'``: of the answers, of the units, and what epsilon forgives."""
    level = config.typical * float(np.median(np.abs(residual))) if len(residual) else 0.0
    level = max(level, config.floor * epsilon)
    return noise.widened(level, level / math.sqrt(d))


def search_residual(
    ask: AskPoints,
    line: SurveyLine,
    noise: NoiseModel,
    known: int,
    *,
    rng: np.random.Generator,
    config: SearchConfig,
) -> Survey | None:
    """Search a line through a point of large residual; None where nothing was found.

    Parameters
    ----------
    ask
        The residual ``F - F'``, ``(n, d) -> (n, m)``.
    line
        Its base is the point.
    noise
        Of the residual.
    known
        Units already subtracted.
    """
    positions, _ = line.seeds()
    near = line.scale * np.concatenate([[0.0], config.local, np.negative(config.local)])
    positions = np.unique(np.concatenate([positions, near]))
    positions = positions[(positions >= line.low) & (positions <= line.high)]
    answers = ask(line.points(positions))
    seeds: list[Samples] = [
        (positions[i : i + 1], answers[i : i + 1]) for i in range(len(positions))
    ]
    limit = config.line_limit + config.per_unit * known
    scan = find_kinks(
        lambda t: ask(line.points(t)),
        lambda t: noise.std(line.norms(t)),
        seeds,
        scale=line.scale,
        max_queries=limit,
        config=config.line,
    )
    if len(scan.kinks) == 0:
        return None
    if not scan.complete or len(scan.kinks) > 8 + 2 * known:
        return None
    return survey(
        ask,
        line,
        noise,
        scan,
        rng=rng,
        config=config.survey,
        gradient_config=config.gradients,
    )
