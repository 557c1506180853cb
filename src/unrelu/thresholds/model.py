"""Constants, outcome and prediction shared by the threshold algorithms."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.result import RecoveryResult, StageReport, Status
from unrelu.thresholds.facets import FacetConfig
from unrelu.thresholds.passes import PassConfig
from unrelu.thresholds.query import QueryRefineConfig
from unrelu.thresholds.refine import RefineConfig
from unrelu.thresholds.search import LandscapeConfig

__all__ = [
    "Activation",
    "Fit",
    "LowestLayerResult",
    "ThresholdConfig",
    "on_mass",
    "overlap_share",
    "predicted_on",
]

Activation = Literal["sign", "relu", "sigmoid"]


@dataclasses.dataclass(frozen=True)
class ThresholdConfig:
    """All constants of the threshold algorithms.

    Attributes
    ----------
    passes, landscape, refine, query_refine, facets
        Those of the steps.
    searches
        Rounds of search among unexplained points, at most.
    slab_reach
        Half-width of the slabs collected from all samples, over the standard
        error that the pilot left.
    same
        Cosine above which two refined units are one.
    excess
        Share of unexplained points, beyond label noise and sampling error, that
        counts as a missing unit. At 1e-4 a unit is missed only beyond t = 3.7.
    overlap
        Unrefined: largest tolerated share of on-points at which two units or more
        are on; the landscape's bias grows with it.
    missing
        Unrefined: largest tolerated share of on-points that the units found do not
        account for.
    condition
        Largest tolerated condition number of the units.
    tilt
        Biased samples: largest tolerated mean square shift of the kept points, 1
        where single units caused every one of them.
    agreement, settled
        Largest standard error in radians that counts as recovered: unrefined, and
        refined.
    clean_jump
        Refined, exact labels: least rise of the rate across a unit in its final slab,
        over that of flipped labels alone; 0.94 and above are usual.
    wedge
        Refined: held-out labels may be wrong in the wedges between true and
        recovered hyperplanes; those are this many standard errors wide.
    stray
        Queries: answers of the landscape that may contradict the refined units. At
        errors of 1e-6 not one of a million should.
    certificate_queries, inside_queries
        Gaussian inputs asked at the end, and at most to find an inside point.
    clearance
        Queries: rays start from the origin only if points so far from it (standard
        deviation) are inside as well.
    quiet_rays, rays_per_update, most_facets
        Query access: the search ends when so many rays met no new facet; it
        gives up at so many facets.
    """

    passes: PassConfig = dataclasses.field(default_factory=PassConfig)
    landscape: LandscapeConfig = dataclasses.field(default_factory=LandscapeConfig)
    refine: RefineConfig = dataclasses.field(default_factory=RefineConfig)
    query_refine: QueryRefineConfig = dataclasses.field(default_factory=QueryRefineConfig)
    facets: FacetConfig = dataclasses.field(default_factory=FacetConfig)
    searches: int = 4
    slab_reach: float = 16.0
    same: float = 0.99
    excess: float = 1e-4
    overlap: float = 0.25
    missing: float = 0.2
    condition: float = 30.0
    tilt: float = 1.3
    agreement: float = 0.2
    settled: float = 0.05
    clean_jump: float = 0.75
    wedge: float = 4.0
    stray: int = 2
    certificate_queries: int = 2000
    inside_queries: int = 1000
    clearance: float = 0.05
    quiet_rays: int = 1500
    rays_per_update: int = 3000
    most_facets: int = 500


def _no_rows() -> FloatArray:
    return np.empty((0, 0))


def _no_numbers() -> FloatArray:
    return np.empty(0)


@dataclasses.dataclass(frozen=True, repr=False)
class LowestLayerResult(RecoveryResult):
    """The lowest layer of a network with high thresholds.

    Attributes
    ----------
    directions
        Unit rows ``(k, n)``.
    thresholds
        ``(k,)``; NaN where neither given nor estimated (sigmoid units).
    angle_errors
        Standard error of each direction in radians, ``(k,)``.
    landscape_directions
        The directions before refinement, ``(j, n)``.
    activation
        As asked.
    """

    directions: FloatArray = dataclasses.field(default_factory=_no_rows)
    thresholds: FloatArray = dataclasses.field(default_factory=_no_numbers)
    angle_errors: FloatArray = dataclasses.field(default_factory=_no_numbers)
    landscape_directions: FloatArray = dataclasses.field(default_factory=_no_rows)
    activation: str = ""


@dataclasses.dataclass(frozen=True)
class Fit:
    """Units as found, with the verdict."""

    status: Status
    message: str
    directions: FloatArray
    thresholds: FloatArray
    errors: FloatArray
    landscape: FloatArray
    stages: list[StageReport]

    @classmethod
    def empty(cls, n: int, status: Status, message: str, stages: Any = ()) -> Fit:
        """Nothing was found."""
        rows, numbers = np.empty((0, n)), np.empty(0)
        return cls(status, message, rows, numbers, numbers, rows, list(stages))

    def moved(self, directions: FloatArray, thresholds: FloatArray, errors: FloatArray) -> Fit:
        """Return the same units after further refinement."""
        return dataclasses.replace(
            self, directions=directions, thresholds=thresholds, errors=errors
        )


def predicted_on(x: FloatArray, directions: FloatArray, thresholds: FloatArray) -> BoolArray:
    """Whether any unit is on, ``(m,)``."""
    if len(directions) == 0:
        return np.zeros(len(x), dtype=bool)
    return np.asarray((x @ directions.T > thresholds).any(axis=1))


def overlap_share(thresholds: FloatArray, on: float) -> float:
    """Return the share of the on-points at which more than one unit is on."""
    mass = on_mass(thresholds)
    return max(0.0, 1.0 - on / mass) if mass > 0 else 0.0


def on_mass(thresholds: FloatArray) -> float:
    """Return the sum of the units' probabilities to be on; NaN counts as never."""
    return float(np.nansum(scipy.special.ndtr(-thresholds)))
