"""The numbers that the threshold algorithms use, with unit and reason."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu.core.fit import FitConfig
from unrelu.core.noise import PER_UNKNOWN
from unrelu.lines.boundary import GROWTH
from unrelu.result import DOUBT, HELD_OUT

__all__ = ["EPS", "GAMMA", "TINY", "ThresholdConfig"]

EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)
GAMMA = 0.01
"""The paper's gamma of the simultaneous objective."""


@dataclasses.dataclass(frozen=True)
class ThresholdConfig:
    """Numbers of the threshold algorithms; angles in radians, heights in units of the inputs.

    Attributes
    ----------
    pilot_rows
        Samples kept in memory: they bring the error to about 1e-3 rad, from where thin slabs
        of all samples go on.
    held_out
        Rows kept for the certificate, at most; one in twenty where there are few.
    atom
        Least share of the most common label for it to count as c_0, the value where every
        unit is off.
    signal
        Times the sampling error, measured by halves, above which something is there: an
        eigenvalue of M2, a gap between edges and others, energy where there should be none.
    doubt
        Share of unexplained points, beyond label noise and sampling error, that counts as a
        missing unit (at 1e-4 one is missed only beyond t = 3.7), and probability that labels
        flipped at random are called structured.
    overlap
        Unrefined: largest tolerated share of on-points at which two units or more are on, or
        that the units found do not account for; the landscape's bias grows with it.
    agreement, settled
        Largest standard error of a direction that counts as recovered: unrefined, and refined.
    condition
        Largest tolerated condition number of the units.
    spacing
        Distance between the directions that a search tries, and to which first estimates are
        good: the wedge between two hyperplanes at this angle is twice as high. Queries: offset
        of the lines that measure a facet, whose rough normal is as good.
    reach
        Half-width of a slab over the error expected in it; a slab shrinks at most by this
        factor a round.
    points_per_unknown
        A slab holds at least this many points per input: below it the Gram matrix is noise.
    rounds
        Most rounds of what converges; 12 to 18 are usual.
    tries
        How often something that did not help is tried again.
    certificate
        Fresh Gaussian inputs asked at the end.
    radius
        Queries: rays are followed to this times sqrt(n). A facet at distance t is met at about
        ``t sqrt(n) / sqrt(2 log k)``; farther ones have no Gaussian mass to speak of.
    checks
        Points of a facet verified on both sides, and rays aimed at it.
    quiet_rays, most_facets
        Queries: the search ends when so many rays met no new facet; it gives up at so many
        facets.
    epsilon
        The detector's epsilon in its search: above 1.6 times ``spacing`` most lines at the nearest
        direction tried still cross the unit.
    lines
        Lines per direction in the detector's first search; more where a unit is missing.
    finest
        Epsilon at which a unit of the detector is settled.
    degree
        Of the polynomial that checks the detector's units for completeness.
    """

    pilot_rows: int = 1_000_000
    held_out: int = 2 * HELD_OUT
    atom: float = 0.05
    signal: float = 2.0
    doubt: float = DOUBT
    overlap: float = 0.2
    agreement: float = 0.15
    settled: float = 0.05
    condition: float = 30.0
    spacing: float = 0.25
    reach: float = GROWTH
    points_per_unknown: int = PER_UNKNOWN
    rounds: int = FitConfig.steps
    tries: int = 4
    certificate: int = 2000
    radius: float = 20.0
    checks: int = 12
    quiet_rays: int = 1500
    most_facets: int = 500
    epsilon: float = 0.4
    lines: int = 300
    finest: float = 1e-4
    degree: int = 3
