"""Every choice of the learner from queries that is a number, with its reason."""

from __future__ import annotations

import dataclasses

from unrelu.learner.certificate import LearnerCertificateConfig
from unrelu.learner.compress import CompressConfig
from unrelu.learner.far import FarConfig
from unrelu.learner.formulas import FaithfulConstants
from unrelu.learner.grow import GrowConfig
from unrelu.learner.polish import PolishConfig
from unrelu.learner.search import SearchConfig

__all__ = ["LearnerConfig"]


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """Every choice of the learner that is a number."""

    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    far: FarConfig = dataclasses.field(default_factory=FarConfig)
    polish: PolishConfig = dataclasses.field(default_factory=PolishConfig)
    grow: GrowConfig = dataclasses.field(default_factory=GrowConfig)
    compress: CompressConfig = dataclasses.field(default_factory=CompressConfig)
    certificate: LearnerCertificateConfig = dataclasses.field(
        default_factory=LearnerCertificateConfig
    )
    pilot: int = 48
    """Gaussian samples asked first; they tell the spread of F."""
    goal: float = 1.0 / 3.0
    """Root mean square residual over epsilon at which the samples agree: the compression
    may add a quarter, and the certificate's bound lies above the mean."""
    miss: float = 1e-3
    """Odds of missing a bump of the narrowest width within one deviation of the origin."""
    floor: int = 250
    effort: float = 0.4
    """Where neither R nor the narrowest width is given, bumps are looked for with at most
    this part of the queries spent, but at least ``floor`` samples."""
    unexplained: float = 20.0
    """Rounding noise of the answers over what the neurons found would cause: near 1 for
    networks that are known, 100 to 1e6 where large terms cancel, as those of a bump do."""
    decimals: int = 13
    """Answers that end at this decimal or before are printed ones: rounded on purpose."""
    probes: int = 30_000
    """Samples spent at most to find what causes unexplained rounding noise."""
    features: int = 100
    regression: float = 6.0
    """Where lines did not do: candidate neurons of the regression at most, and samples per
    coefficient."""
    small: int = 600
    """Parameters up to which its outcome is polished as well."""
    lines: int = 6
    """First lines tried, if one leaves doubt."""
    distinct: float = 0.9
    """Cosine to every neuron known below which a neuron of another line is a new one: lines
    in coarse answers give directions to some 0.1 rad."""
    mute: float = 5.0
    """Spread of the answers over the lattice of their rounding below which a line would only
    find the kinks of the rounding: samples are asked instead."""
    buried: float = 2.0
    """Spread of the answers over their noise below which a line search that meets its limit
    has found the noise."""
    hopeless: float = 0.2
    """Residual over the spread of F above which a fourth line is not tried."""
    residual_lines: int = 12
    """Lines through bad samples, per first line."""
    futile: int = 3
    """Of them, how many may find nothing in a row."""
    doubtful: float = 2.0
    """A known point contradicts neurons that miss it by this many epsilon, beside the noise:
    neurons that are good miss a sample by a third of epsilon, root mean square."""
    doubt_lines: int = 24
    """Lines through such points, ``futile`` of them through one."""
    rounds: int = 4
    """Certificates that may fail and hand what they saw to the search."""
    samples_per_parameter: float = 3.0
    """Gaussian samples for the polish of coarse answers; below 2 it overfits."""
    band: int = 4
    """Samples around the hyperplanes of a bump found in coarse answers, per parameter."""
    compression: float = 0.25
    """Part of epsilon that merging and dropping neurons may cost."""
    foreign: float = 0.05
    """Residual over the spread of F above which the target is no such network."""
    constants: FaithfulConstants = dataclasses.field(default_factory=FaithfulConstants)
    max_intervals: int = 20_000
    """Intervals that the faithful mode accepts."""
