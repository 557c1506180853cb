"""GETNEURONS in practice: lines searched for kinks, and where to lay the next one.

The first line shows every hyperplane once, but for what hides between its
points: bumps. Gaussian samples find those, at a cost of about 1 / width, which
Remark 1.3 of Chen, Klivans & Meka shows to be unavoidable. A line through the
sample of the largest residual then finds the neurons that explain it, since
all that is known is subtracted first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import NORMAL_MEDIAN, NoiseModel, Samples
from unrelu.lines.chain import MARGIN
from unrelu.lines.kinks import find_kinks
from unrelu.lines.survey import Survey, SurveyConfig, SurveyLine, survey

__all__ = ["gaussian_line", "residual_noise", "search_residual"]

AskPoints = Callable[[FloatArray], FloatArray]


def gaussian_line(
    d: int,
    rng: np.random.Generator,
    *,
    stretch: float = 1.0,
    through: FloatArray | None = None,
) -> SurveyLine:
    """Draw a Gaussian line (Definition 4.1), magnified, or one through a given point."""
    base = stretch * rng.standard_normal(d) if through is None else through
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    scale = stretch * math.sqrt(d)
    reach = SurveyConfig().reach * scale
    return SurveyLine(base, direction, -reach, reach, scale)


def residual_noise(noise: NoiseModel, residual: FloatArray, d: int, forgiven: float) -> NoiseModel:
    """Noise of ``F - F'``: of the answers, of the units, and what is forgiven.

    Parameters
    ----------
    residual
        At Gaussian samples, ``(n, m)``: its median tells the usual error of the units found,
        which are not to be taken for new kinks, within a factor of two.
    forgiven
        Kinks that nowhere bend the residual by as much are left alone.
    """
    usual = float(np.median(np.abs(residual))) / NORMAL_MEDIAN if len(residual) else 0.0
    level = max(2.0 * usual, forgiven / MARGIN)
    return noise.widened(level, level / math.sqrt(d))


def search_residual(
    ask: AskPoints, line: SurveyLine, noise: NoiseModel, *, rng: np.random.Generator
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
    """
    positions, _ = line.seeds()
    positions = np.unique(np.append(positions, 0.0))
    answers = ask(line.points(positions))
    seeds: list[Samples] = [
        (positions[i : i + 1], answers[i : i + 1]) for i in range(len(positions))
    ]
    scan = find_kinks(
        lambda t: ask(line.points(t)),
        lambda t: noise.std(line.norms(t)),
        seeds,
        scale=line.scale,
        max_queries=SurveyConfig().first_limit // 3,
    )
    # One feature takes far fewer than a whole line may before it is looked at; a search that
    # does not end is chasing the errors of the units, not new ones.
    if len(scan.kinks) == 0 or not scan.complete:
        return None
    return survey(ask, line, noise, scan, rng=rng)
