"""Choices of depth-3 extraction that are numbers, and how a start ends early."""

from __future__ import annotations

import dataclasses

from unrelu.extraction.deep_answers import AnswerConfig
from unrelu.extraction.deep_certify import DeepCertifyConfig
from unrelu.extraction.deep_layers import LayerTestConfig
from unrelu.extraction.deep_orthant import OrthantConfig
from unrelu.extraction.deep_polish import PolishConfig
from unrelu.extraction.deep_rows import RowConfig
from unrelu.extraction.deep_top import TopConfig
from unrelu.lines.gradients import GradientConfig
from unrelu.lines.survey import SurveyConfig
from unrelu.result import Status

__all__ = ["Failed", "ThreeLayerConfig"]


@dataclasses.dataclass(frozen=True)
class WideConfig:
    """Choices where the first layer has more units than there are inputs."""

    reach: float = 4.0
    """Half-length of a line, over the length of its base or of typical inputs."""
    step: float = 0.35
    """How far each line's base, and its direction, are from the last's."""
    first_lines: int = 8
    more_lines: int = 4
    most_lines: int = 32
    """Lines searched before the orientation of the first layer is tried, between two tries,
    and in all."""
    explore: int = 12
    idle: int = 3
    """Rounds in which surfaces that are not determined are crossed by a short line, and those
    without news after which a surface is let be."""
    short: float = 0.5
    aside: tuple[float, float] = (0.2, 1.2)
    """Half-length of a short line, in the same units, and how far it lies from
    where the surface was crossed before: over that length, or over the way to a place."""
    pool: int = 4000
    """Inputs among which those are looked for where a unit is not determined."""
    descent: int = 8
    beyond: float = 0.01
    nearest: int = 20
    """Newton steps that take them onto its surface, how far at least what is not determined
    may move it there, over the length of the input, and how many of the places where it moves
    least one is chosen from."""
    checks: int = 1500
    checks_open: int = 60
    """Inputs looked at in a round: nothing else tells of a unit that no line met. And so many
    more for each unit that is not determined there."""
    far: tuple[float, float] = (1.3, 4.5)
    """Two in three of them are so many times as long as typical inputs."""
    rounds: int = 6
    """Rounds at most, until one is explained at once."""
    hopeless: float = 0.6
    """Part of them without an explanation in a round above which none is looked for."""
    repairs: int = 40
    """Inputs per round that are looked into because the network does not explain them."""
    sure: float = 1e-3
    """How far from +1 or -1 the solution for an orientation may be."""
    enough: int = 16
    alone: float = 0.5
    """After so many lines a second layer shows: no more than this part of the crossings is on
    surfaces that were crossed once or twice."""


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
    wide: WideConfig = dataclasses.field(default_factory=WideConfig)
    orthant: OrthantConfig = dataclasses.field(default_factory=OrthantConfig)
    polish: PolishConfig = dataclasses.field(default_factory=PolishConfig)
    polish_gently: PolishConfig = dataclasses.field(
        default_factory=lambda: PolishConfig(inner=15, ridge=1e-8)
    )
    """Used where the first setting makes the checks worse: few steps hold weak directions."""
    certify: DeepCertifyConfig = dataclasses.field(default_factory=DeepCertifyConfig)
    certificates: int = 3
    """Certificates asked for one start at most: one that fails is data for another round."""
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
    few: int = 5000
    """Parameters up to which all are fitted at once to the answers at hand, at no query: the
    normal matrix then takes no longer than the search."""
    sharp: float = 1e-11
    """Deviation at the checks below which a larger network is not corrected."""
    unsharp: float = 3e-13
    """The same after a polish above which another one follows, with more answers."""
    rounds: int = 3
    extra: float = 0.5
    """So many of them per parameter, at typical inputs."""
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
