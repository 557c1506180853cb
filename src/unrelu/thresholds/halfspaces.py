"""Learn an intersection or a union of halfspaces from 0/1 labels.

Reference
---------
Goel & Panigrahy 2018, Section 2.3 (Theorem 6). With samples this is the recovery of
:mod:`unrelu.thresholds.algorithm` for sign units under an OR; its assumptions and its
promise are those. With queries the halfspaces are the facets of a convex region.

Guarantee with queries
----------------------
RECOVERED: every halfspace was verified on both sides at the stated distance, a long run
of random rays and rays aimed at every facet met no other, fresh Gaussian inputs and fresh
points on either side of every facet have the labels predicted, and so has every other
point that was asked. A facet that almost no ray meets may be missing: the certificate
bounds the Gaussian mass behind it.

Deviation
---------
With queries there is no landscape and no threshold assumption: rays from an inside point,
bisection, and a linear solve per facet give machine precision in about 60 n queries a facet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike, BoolArray, FloatArray
from unrelu.core.explain import Within, find_contradictions, withdrawn
from unrelu.core.price import UNSURE
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress, as_progress
from unrelu.result import (
    Certificate,
    Provenance,
    QueryStats,
    RecoveryResult,
    Status,
)
from unrelu.samples import SampleSource, as_source
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.facets import FacetSearch
from unrelu.thresholds.model import predicted_on
from unrelu.thresholds.passes import Base, Passes
from unrelu.thresholds.price import price_halfspaces
from unrelu.thresholds.union import fit_union, judge_union

__all__ = ["HalfspacesResult", "check_scalar", "learn_halfspaces", "read_source"]

ALGORITHM = "goel-panigrahy/halfspaces"
Kind = Literal["intersection", "union"]


@dataclasses.dataclass(frozen=True, repr=False)
class HalfspacesResult(RecoveryResult):
    """An intersection or a union of halfspaces.

    Attributes
    ----------
    directions
        Unit rows ``(k, n)``.
    thresholds
        ``(k,)``.
    angle_errors
        Standard error of each direction in radians, or the distance at which
        queries verified it, ``(k,)``.
    kind
        "intersection": label 1 where ``directions @ x <= thresholds`` holds for
        all; "union": label 1 where ``directions @ x > thresholds`` for any.
    """

    directions: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    thresholds: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    angle_errors: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    kind: str = "intersection"

    def predict(self, x: ArrayLike) -> FloatArray:
        """Return labels 0.0 or 1.0, ``(m,)``, for points ``(m, n)``."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.directions.shape[1]:
            raise InvalidInput(
                f"x must have shape (m, {self.directions.shape[1]}), got {points.shape}"
            )
        on = predicted_on(points, self.directions, self.thresholds)
        return (on if self.kind == "union" else ~on).astype(np.float64)


def learn_halfspaces(
    source: Any,
    y: Any = None,
    *,
    kind: Kind = "intersection",
    units: int | None = None,
    rng: RandomState = None,
    config: ThresholdConfig | None = None,
    progress: Progress | None = None,
) -> HalfspacesResult:
    """Learn an intersection (or union) of halfspaces from 0/1 labels.

    Parameters
    ----------
    source
        Samples x ~ N(0, I) with labels ``y``, or anything that
        :func:`unrelu.samples.as_source` reads; or an oracle that answers 0 or 1.
        Samples may have a share of flipped labels; an oracle may not.
    kind
        "intersection": label 1 where ``directions @ x <= thresholds`` holds for
        all; "union": label 1 where ``directions @ x > thresholds`` for any.
    units
        Number of halfspaces, where known; otherwise counted.

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> box = unrelu.connect(lambda x: (np.abs(x) <= 1.5).all(axis=1).astype(float), input_dim=2)
    >>> unrelu.learn_halfspaces(box, rng=0).directions.shape
    (4, 2)
    """
    cfg = ThresholdConfig() if config is None else config
    if kind not in ("intersection", "union"):
        raise InvalidInput(f"kind must be 'intersection' or 'union', got {kind!r}")
    if units is not None and units < 1:
        raise InvalidInput(f"units must be at least 1, got {units}")
    options = {"kind": kind, "units": units}
    if isinstance(source, (Oracle, ReLUNetwork)):
        if y is not None:
            raise InvalidInput("an oracle answers by itself: leave y out")
        run = Run(source, algorithm=ALGORITHM, rng=rng, options=options, progress=progress)
        check_scalar(run.target)
        search = HalfspaceRun(run, kind, cfg)
        return run.ended(search.steps, search.stopped, search.explained)
    off = Base(level=0.0, tolerance=0.5, share=0.0, exact=True)
    passes = Passes(read_source(source, y), _labels_of(kind), cfg, base=off)
    found = fit_union(
        passes, method="joint", units=units, threshold=None, rng=as_generator(rng), config=cfg,
        watch=as_progress(progress),
    )  # fmt: skip
    return HalfspacesResult(
        status=found.status,
        message=found.message,
        queries=QueryStats(samples=passes.samples),
        provenance=Provenance(ALGORITHM, rng if isinstance(rng, int) else None, options),
        certificate=judge_union(found, passes),
        stages=tuple(found.stages),
        directions=found.directions,
        thresholds=found.thresholds,
        angle_errors=found.errors,
        kind=kind,
    )


def read_source(source: Any, y: Any) -> SampleSource:
    """Return the samples that were passed; name the way for a bare function."""
    try:
        return as_source(source, y)
    except TypeError as error:
        raise InvalidInput(
            f"cannot read samples from {type(source).__name__} ({error}); to query a function, "
            "connect it first: unrelu.connect(f, input_dim=n)"
        ) from error


def check_scalar(oracle: Oracle) -> None:
    """Raise where the target has several outputs."""
    if oracle.output_dim != 1:
        raise InvalidInput(
            f"the target has {oracle.output_dim} outputs; wrap it so that it answers one"
        )


def _labels_of(kind: str) -> Callable[[FloatArray], FloatArray]:
    """Return what turns 0/1 labels into "some halfspace is left"."""

    def prepare(labels: FloatArray) -> FloatArray:
        if not ((labels == 0.0) | (labels == 1.0)).all():
            raise InvalidInput("labels must be 0 or 1; for other values say y = (y > cut)")
        return labels if kind == "union" else 1.0 - labels

    return prepare


class HalfspaceRun:
    """A run in search of the facets of a convex side; they survive the end of the budget."""

    def __init__(self, run: Run, kind: Kind, config: ThresholdConfig) -> None:
        self.run, self.kind, self.config = run, kind, config
        self.facets: FacetSearch | None = None
        self.certificate: Certificate | None = None
        self._to_on = _labels_of(kind)

    def outside(self, points: FloatArray) -> BoolArray:
        """Ask which points ``(m, n)`` lie outside the convex side, ``(m,)``."""
        return np.asarray(self._to_on(self.run.target(points)[:, 0]) > 0.5)

    def expect(self, facets: int) -> None:
        """Plan for a number of facets."""
        n = self.run.target.input_dim
        guesses = float(facets), max(float(n), UNSURE * facets)
        self.run.target.allowance.plan(price_halfspaces(n, guesses))

    def steps(self) -> HalfspacesResult:
        """Find facets by bisection along rays from a point of the convex side."""
        run, cfg = self.run, self.config
        n = run.target.input_dim
        self.expect(1)
        with run.stage("inside"):
            centre = self._inside_point()
        if centre is None:
            return self.result(
                Status.ASSUMPTION_VIOLATED,
                f"none of {cfg.certificate} Gaussian inputs lies inside the convex side: check "
                "the kind, or shift the inputs to where the labels change.",
            )
        self.facets = search = FacetSearch(
            self.outside, centre, rng=run.rng, config=cfg, expect=self.expect
        )
        with run.stage("facets") as details:
            silence = self._find_facets(search)
            self._ask_beside_facets(search)
            details |= {"quiet rays": silence, "unresolved": search.unresolved}
        with run.stage("certificate"):
            fresh = run.rng.standard_normal((cfg.certificate, n))
            on = self.outside(fresh)
        status, message, self.certificate = _certify_facets(search, fresh, on, silence)
        return self.result(status, message)

    def _inside_point(self) -> FloatArray | None:
        """Return the origin, or a Gaussian point, well inside the convex side; or None.

        The origin serves unless a facet passes through it or next to it: rays must have a way
        to go before they leave.
        """
        n, rng, cfg = self.run.target.input_dim, self.run.rng, self.config
        near = cfg.spacing**2 * rng.standard_normal((cfg.checks, n))
        if not self.outside(np.vstack([np.zeros(n), near])).any():
            return np.zeros(n)
        points = rng.standard_normal((cfg.certificate, n))
        inside = points[~self.outside(points)]
        # The mean of inside points is inside, and farther from the facets.
        return inside.mean(axis=0) if len(inside) else None

    def _find_facets(self, search: FacetSearch) -> int:
        """Follow rays, at random and aimed at the facets, until none meets a new one."""
        while True:
            silence = search.search()
            self.run.progress.update(
                "facets", silence, self.config.quiet_rays, f"{len(search.precision)} facets"
            )
            if silence == 0:
                return 0
            if not search.search_facets():
                return 0 if search.unresolved else silence

    def _ask_beside_facets(self, search: FacetSearch) -> None:
        """Ask fresh points on either side of every facet, as close as its error allows."""
        w = search.known.directions
        for i in range(len(w)):
            points = search.points_on(i, self.config.checks)
            step = 2.0 * search.error_at(points)[:, i, None] * w[i]
            if len(points):
                self.outside(np.concatenate([points - step, points + step]))

    def result(self, status: Status, message: str) -> HalfspacesResult:
        """Return what was found so far."""
        search, n = self.facets, self.run.target.input_dim
        return HalfspacesResult(
            status=status,
            message=message,
            queries=self.run.target.queries,
            provenance=self.run.provenance,
            certificate=self.certificate,
            stages=tuple(self.run.stages),
            directions=np.empty((0, n)) if search is None else search.known.directions,
            thresholds=np.empty(0) if search is None else search.known.thresholds,
            angle_errors=np.empty(0) if search is None else np.array(search.precision),
            kind=self.kind,
        )

    def stopped(self, status: Status, message: str) -> HalfspacesResult:
        """Return what was found until something ended the run."""
        count = 0 if self.facets is None else len(self.facets.precision)
        return self.result(status, f"{message}. The {count} halfspaces found until then are kept.")

    def explained(self, result: HalfspacesResult) -> HalfspacesResult:
        """Hold the facets against every answer of the run."""
        if self.facets is None or not result.success:
            return result
        found = find_contradictions(
            self.run.target.record,
            lambda x: result.predict(x)[:, None],
            _AwayFromFacets(self.facets),
        )
        if not found:
            return result
        told = withdrawn(self.run.target, result, found, Within(), what="the halfspaces")
        cause = (
            " Another halfspace almost coincides with one, or the answers are not those of a "
            "convex region."
        )
        return dataclasses.replace(told, message=told.message + cause)


@dataclasses.dataclass(frozen=True)
class _AwayFromFacets:
    """Labels must be those predicted, but closer to a facet than it is known there."""

    search: FacetSearch

    def at(self, points: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return what labels may differ by, ``(m, 1)``."""
        height = points @ self.search.known.directions.T - self.search.known.thresholds
        doubt = self.search.error_at(points)
        certain = (height > doubt).any(axis=1) | (height < -doubt).all(axis=1)
        return np.where(certain, Within().tolerance, np.inf)[:, None]


def _certify_facets(
    search: FacetSearch, x: FloatArray, on: BoolArray, silence: int
) -> tuple[Status, str, Certificate]:
    known = search.known
    wrong = predicted_on(x, known.directions, known.thresholds) != on
    certificate = Certificate.from_deviations(
        wrong.astype(np.float64),
        scale=float(on.std()),
        tolerance=0.5,
        details={"quiet rays": silence, "verified at": max(search.precision, default=0.0)},
    )
    k = len(known.directions)
    if search.unresolved:
        return (
            Status.NUMERICAL_FAILURE,
            f"{k} halfspaces found, but a boundary that {search.unresolved} ray met is not flat "
            "at any scale tried: the labels are noisy, or the region is not a polyhedron.",
            certificate,
        )
    if silence == 0:
        return (
            Status.PARTIAL,
            f"{k} halfspaces found, and rays still meet new ones: the region may be curved.",
            certificate,
        )
    if wrong.any():
        return (
            Status.PARTIAL,
            f"{k} halfspaces found, but {int(wrong.sum())} of {len(wrong)} fresh labels differ: "
            "the labels are noisy, or the region is not convex.",
            certificate,
        )
    if k == 0:
        return (
            Status.ASSUMPTION_VIOLATED,
            f"no boundary within a radius of {search.radius:.3g}: every answer is the same.",
            certificate,
        )
    return (
        Status.RECOVERED,
        f"{k} halfspaces, each verified on both sides at a distance of "
        f"{max(search.precision):.0e}; the last {silence} rays met no other.",
        certificate,
    )
