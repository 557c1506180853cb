"""Every choice of the depth-2 extraction that is a number."""

from __future__ import annotations

import dataclasses

from unrelu.core.run import AGAIN
from unrelu.extraction.certify import CertifyConfig
from unrelu.extraction.refine import RefineConfig
from unrelu.lines.facts import COARSE
from unrelu.lines.gradients import GradientConfig
from unrelu.lines.survey import SurveyConfig

__all__ = ["TwoLayerConfig"]


@dataclasses.dataclass(frozen=True)
class TwoLayerConfig:
    """Every choice of the extraction that is a number."""

    gradients: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    survey: SurveyConfig = dataclasses.field(default_factory=SurveyConfig)
    refine: RefineConfig = dataclasses.field(default_factory=RefineConfig)
    certify: CertifyConfig = dataclasses.field(default_factory=CertifyConfig)
    deepest_single: float = 6.0
    """The same for a single probability p: the error of log(1 - p) grows as 1 / (1 - p)."""
    log_odds_outward: float = 1.5
    """Refinement goes out to this multiple of typical inputs for log-odds."""
    checks: int = 12
    """Random points checked before the certificate; more for wider networks."""
    checks_bounded: int = 150
    """So many more in a bounded domain, where a line meets fewer hyperplanes."""
    repairs: int = 2 * AGAIN
    """Lines searched for what a check found missing."""
    restarts: int = 2
    """Times that all is done again on another line, if the checks fail to the end."""
    useful: float = COARSE
    """Error over std(f), predicted or met by the certificate, above which the result is
    called ill conditioned."""
    float64: float = 1e-12
    """Noise over the size of answers up to which it is the rounding of float64."""
    precision: float = 5e-12
    """Root mean square error over std(f) below which nothing is refined."""
    coarse: float = 1e-10
    """Noise over the size of answers above which they count as coarse (float32, rounded):
    differences of a few answers say too little then."""
    values_per_unit: float = 3.0
    """Values at typical inputs that settle the biases in the end, or as many as cost a
    quarter of ``effort``: kinks far out on the line leave their units' biases inexact."""
    effort: float = 0.058
    effort_thin: float = 0.9
    """Refinement spends up to ``effort + effort_thin d^-0.65`` queries per parameter (and
    measures more than ``SPARE`` points, if that is less): a thin network has few parameters
    for the same number of kinks, and its share of line search and checks is larger anyway.
    In a bounded domain, where units were found on short lines, as much as for one input."""
