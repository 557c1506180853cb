"""Choices of depth-3 extraction that are numbers, and how a start ends early."""

from __future__ import annotations

import dataclasses

from unrelu.extraction.deep_certify import DeepCertifyConfig
from unrelu.extraction.deep_layers import LayerTestConfig
from unrelu.extraction.deep_numbers import FINE, PLAIN, READ, SURE, TRIES
from unrelu.extraction.deep_orthant import OrthantConfig
from unrelu.extraction.deep_polish import PolishConfig
from unrelu.extraction.deep_rows import RowConfig, Rows
from unrelu.extraction.deep_top import TopConfig
from unrelu.lines.gradients import GradientConfig
from unrelu.lines.survey import SurveyConfig
from unrelu.result import Status

__all__ = ["Failed", "ThreeLayerConfig"]


@dataclasses.dataclass(frozen=True)
class ThreeLayerConfig:
    """Every choice of the extraction that is a number."""

    survey: SurveyConfig = dataclasses.field(default_factory=lambda: SurveyConfig(attempts=2))
    """A line that takes more than 12,000 queries bends everywhere: the target is smooth."""
    layers: LayerTestConfig = dataclasses.field(default_factory=LayerTestConfig)
    rows: RowConfig = dataclasses.field(default_factory=RowConfig)
    gradients: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    top: TopConfig = dataclasses.field(default_factory=TopConfig)
    orthant: OrthantConfig = dataclasses.field(default_factory=OrthantConfig)
    polish: PolishConfig = dataclasses.field(default_factory=PolishConfig)
    polish_gently: PolishConfig = dataclasses.field(
        default_factory=lambda: PolishConfig(inner=15, ridge=1e-8)
    )
    """Used where the first setting makes the checks worse: few steps hold weak directions."""
    certify: DeepCertifyConfig = dataclasses.field(default_factory=DeepCertifyConfig)
    rounds: int = TRIES
    """Certificates asked for one start, fits to more and more answers, and starts after the
    first, at most: what failed is data for the next."""
    spare: int = TRIES
    """Directions of the basis beyond the number of rows found; they show a missing row."""
    tries: int = 8
    """Lines searched for missing rows, and searches towards checks that are not explained."""
    checks: int = 300
    """Most typical inputs at which the network is looked at before the certificate."""
    lacking: float = READ
    """Deviation at a check, over the spread, that tells of a unit not found; errors of those
    that were found stay below 1e-6."""
    many: float = SURE
    """Second-layer units, over the kinks that one line shows, that are too many. A line meets
    nearly every unit once or more."""
    close: float = PLAIN
    """Largest deviation at the checks, over their spread, below which the structure is right."""
    sharp: float = 1e-11
    """The same below which a network is not corrected."""
    fair: float = FINE
    """The same above which a start has failed."""
    few: int = 5000
    """Parameters up to which all are fitted at once, to answers most of which are there: their
    normal matrix takes no more than 200 MB. Beyond, gradients with room correct the layers."""
    typical: float = 0.55
    each: float = 2.55
    """Answers per parameter that such a fit has, at typical inputs and in all."""
    rare: float = 0.02
    """States of units held by less than this part of typical inputs are looked for as well."""
    far: float = 300.0
    """Answers farther out than this many typical inputs are not used by the fit."""
    ill: float = 1e8
    """Condition of W above which it is not inverted."""


class Failed(Exception):
    """A start that cannot go on.

    ``final``: another would fail the same way. ``structural``: it probably would,
    and one more is enough to know. ``deeper``: there are more hidden layers than two.
    ``rows``: what it had found of the first layer.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        rows: Rows | None = None,
        *,
        final: bool = False,
        structural: bool = False,
        deeper: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.rows = status, message, rows
        self.final, self.structural, self.deeper = final, structural, deeper
