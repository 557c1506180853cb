"""Every choice of the depth-2 extraction that is a number."""

from __future__ import annotations

import dataclasses

from unrelu.extraction.certify import CertifyConfig
from unrelu.extraction.lift import LiftConfig
from unrelu.extraction.refine import RefineConfig
from unrelu.extraction.unit_fit import UnitFitConfig
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
    lift: LiftConfig = dataclasses.field(default_factory=LiftConfig)
    constant: float = 100.0
    """A function that varies by less than this many deviations of an answer is a constant."""
    deepest: float = 600.0
    """Log-odds up to which probabilities are used: exp(-700) underflows."""
    deepest_single: float = 6.0
    """The same for a single probability p: the error of log(1 - p) grows as 1 / (1 - p)."""
    log_odds_outward: float = 1.5
    """Refinement goes out to this multiple of typical inputs for log-odds."""
    checks: int = 12
    """Random points checked before the certificate; more for wider networks."""
    checks_bounded: int = 150
    """So many more in a bounded domain, where a line meets fewer hyperplanes."""
    negligible: float = 1e-9
    """Deviations below this part of std(f) are not searched for."""
    check_accept: float = 12.0
    """Deviations, in predicted standard deviations, that a check lets pass."""
    repairs: int = 12
    """Lines searched for what a check found missing."""
    late_repairs: int = 4
    """The same for coarse answers, after a refinement."""
    restarts: int = 2
    """Times that all is done again on another line, if the checks fail to the end."""
    rounds: int = 3
    """Times that the search goes on at the points where a certificate failed."""
    useful: float = 1e-3
    """Error over std(f), predicted or met by the certificate, above which the result is
    called ill conditioned."""
    useful_exact: float = 1e-6
    """The same for the direction of any unit where answers are exact to rounding. A stated
    tolerance above it is not called exact."""
    exact_noise: float = 100.0
    """Where answers are coarse or noisy, a tolerance of more of their deviations is not."""
    float64: float = 1e-12
    """Noise over the size of answers up to which it is the rounding of float64."""
    precision: float = 5e-12
    """Root mean square error over std(f) below which nothing is refined."""
    coarse: float = 1e-10
    """Noise over the spread of answers above which answers count as coarse (float32,
    rounded): everything is then measured anew at roomy points, in two passes."""
    coarse_doubt: float = 4.0
    """Factor on the predicted errors of a first survey of coarse answers: small crossings
    hide in the noise of its checks."""
    coarse_effort: float = 0.3
    coarse_passes: int = 13
    lifted_passes: int = 3
    """Points per unknown and pass of that, and passes: each makes more units sure enough
    for the next to measure them farther out."""
    coarse_goal: float = 6.0
    """Root mean square error, in deviations of an answer, at which this ends."""
    fit: UnitFitConfig = dataclasses.field(default_factory=UnitFitConfig)
    fit_parameters: int = 2500
    """Networks of up to so many parameters are fitted to all coarse answers in the end: a step
    takes n p^2 operations, seconds at this size."""
    fit_rows: float = 2.25
    """Answers per parameter asked for that."""
    fit_outward: float = 12.0
    """Every other one of them this many times farther out than typical inputs."""
    fit_excess: float = 3.0
    """Deviations of an answer by which all answers may be off after the fit, in the median."""
    fit_least: float = 1e-3
    """Part of an answer's measured deviation below which no fit makes it appear."""
    fit_passes: int = 1
    """Passes of gradients before it, in place of ``coarse_passes``."""
    values_per_unit: float = 3.0
    """Values at typical inputs that settle the biases in the end, or as many as cost a
    quarter of ``effort``: kinks far out on the line leave their units' biases inexact."""
    worst: float = 5e-10
    worst_excess: float = 10.0
    """Predicted error at any input, over std(f) and (where typical inputs see all units) over
    the root mean square error, above which more is measured there ..."""
    worst_draws: int = 2000
    worst_passes: int = 4
    """... judged at so many inputs, in up to so many passes."""
    same: float = 6.0
    """Units whose hyperplanes agree within this many deviations are one."""
    noise_unit: float = 3.0
    """Units whose weights are below this many deviations are noise."""
    least_points: int = 3
    effort: float = 0.058
    effort_thin: float = 0.9
    effort_wide: float = 0.025
    effort_bounded: float = 1.0
    """Refinement spends up to ``effort + effort_thin d^-0.65`` queries per parameter (and
    measures three points, if that is less): a thin network has few parameters for the same
    number of kinks, and its share of line search and checks is larger anyway. Where units
    outnumber inputs there is less room between them: ``effort_wide log10(k / d)`` more. In a
    bounded domain, where units were found on short lines, up to ``effort_bounded``."""
