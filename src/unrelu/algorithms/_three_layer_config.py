"""Choices of depth-3 extraction that are numbers, and how a start ends early."""

from __future__ import annotations

import dataclasses

from unrelu.kernels.deep_polish import PolishConfig
from unrelu.result import Status
from unrelu.steps.deep_answers import AnswerConfig
from unrelu.steps.deep_certify import DeepCertifyConfig
from unrelu.steps.deep_layers import LayerTestConfig
from unrelu.steps.deep_orthant import OrthantConfig
from unrelu.steps.deep_rows import RowConfig
from unrelu.steps.deep_top import TopConfig
from unrelu.steps.gradients import GradientConfig
from unrelu.steps.survey import SurveyConfig

__all__ = ["Failed", "ThreeLayerConfig"]


@dataclasses.dataclass(frozen=True)
class ThreeLayerConfig:
    """Every choice of the extraction that is a number."""

    survey: SurveyConfig = dataclasses.field(default_factory=lambda: SurveyConfig(attempts=2))
    """A line that takes more than 12,000 queries bends everywhere: the target is smooth."""
    answers: AnswerConfig = dataclasses.field(default_factory=AnswerConfig)
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
    spare: int = 3
    """Directions of the basis beyond the number of rows found; they show a missing row."""
    lively: int = 64
    """Inputs among which one is chosen for a line, if the first line showed no row."""
    more_lines: int = 8
    """Lines searched for missing rows."""
    restarts: int = 3
    """Fresh starts after a failed check."""
    checks: int = 60
    checks_more: float = 0.12
    checks_most: int = 300
    """Gaussian inputs at which the network is looked at before the certificate, and how many
    more per parameter, up to a limit: a larger network has more corners."""
    checks_least: float = 0.25
    """Part of them that must have an answer, where probabilities may underflow."""
    lacking: float = 1e-5
    """Deviation at a check, over the spread, that tells of a unit not found; errors of those
    that were found stay below 1e-6."""
    repairs: int = 8
    repair_points: int = 3
    """Times that units are searched towards such checks, and checks tried each time."""
    many: float = 3.0
    """Second-layer units, over the kinks that one line shows, that are too many. A line meets
    nearly every unit once or more."""
    around: float = 3.0
    flat: float = 0.01
    """The checks' spread counts as at least ``flat`` times that of all answers at up to
    ``around`` times typical inputs."""
    good: float = 1e-12
    """Largest deviation at the checks, over their spread, at which no polish is needed."""
    close: float = 1e-3
    """The same below which the structure is right, and more answers can sharpen it."""
    turned: float = 3.0
    """Units are turned round, so that no affine term remains, if the deviations from the
    answers known grow by no more than this factor."""
    hopeless: float = 0.1
    """The same above which a polish would only bend a wrong structure."""
    sharp: float = 1e-11
    """The same below which the answers at hand suffice for the polish."""
    unsharp: float = 3e-10
    """The same after a polish above which another round follows."""
    rounds: int = 3
    extra: float = 0.8
    """Answers per parameter asked at typical inputs otherwise."""
    pool: int = 10_000
    rare: float = 0.02
    """States of units held by less than this part of so many typical inputs are looked for."""
    extra_reach: float = 3.0
    """They lie at one to so many times typical inputs: farther out slopes weigh more."""
    fair: float = 1e-7
    """The same above which a start has failed."""
    far: float = 300.0
    """Answers farther out than this many typical inputs are not used by the polish."""
    ill: float = 1e8
    """Condition of W above which it is not inverted."""


class Failed(Exception):
    """A start that cannot go on.

    ``final``: another would fail the same way. ``structural``: it probably would,
    and one more is enough to know.
    """

    def __init__(
        self, status: Status, message: str, *, final: bool = False, structural: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.final, self.structural = final, structural
