"""The lowest layer from queries: Gaussian samples, slabs asked directly, every answer compared."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import EXACT, Within, find_contradictions, withdrawn
from unrelu.core.record import Remembered
from unrelu.errors import BudgetExhausted
from unrelu.progress import Progress
from unrelu.result import Certificate, Provenance, StageReport, Status
from unrelu.samples import as_source
from unrelu.thresholds.fit import fit_landscape
from unrelu.thresholds.halfspaces import check_scalar
from unrelu.thresholds.model import (
    Activation,
    Fit,
    LowestLayerResult,
    ThresholdConfig,
    predicted_on,
)
from unrelu.thresholds.passes import Base, Passes
from unrelu.thresholds.price import price_lowest_layer
from unrelu.thresholds.query import QueryRefinement, refine_by_queries
from unrelu.thresholds.search import Method
from unrelu.thresholds.union import fit_union

__all__ = ["layer_from_queries"]


def layer_from_queries(
    oracle: Remembered,
    *,
    activation: Activation,
    threshold: float | None,
    refine: bool,
    method: Method,
    units: int | None,
    samples: int,
    tolerance: float,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
    watch: Progress,
    provenance: Provenance,
) -> LowestLayerResult:
    """Ask for Gaussian samples, then refine on slabs that are asked directly."""
    check_scalar(oracle)
    n = oracle.input_dim
    found: Fit | None = None
    slabs: _Slabs | None = None
    certificate: Certificate | None = None

    def expect(least: int, most: int) -> None:
        guesses = float(least), float(most)
        oracle.allowance.plan(price_lowest_layer(n, guesses, samples=samples, tolerance=tolerance))

    expect(1, n if units is None else units)
    try:
        with as_breakdown():
            with oracle.stage("landscape"):
                x = rng.standard_normal((samples, n))
                y = oracle(x)[:, 0]
            passes = Passes(as_source(x, y), lambda labels: labels, cfg.passes)
            refined = refine and activation != "sigmoid"
            found = (fit_union if refined else fit_landscape)(
                passes,
                method=method,
                units=units,
                threshold=threshold,
                biased=False,
                rng=rng,
                config=cfg,
                watch=watch,
            )
            status, message = found.status, found.message
            if refined and len(found.directions):
                expect(len(found.directions), len(found.directions))
                slabs = _Slabs(oracle, passes.base, found)
                slabs.refine(tolerance, threshold is None, rng, cfg)
                found = slabs.found
                with oracle.stage("certificate"):
                    fresh = rng.standard_normal((cfg.certificate_queries, n))
                    on = slabs.is_on(fresh)
                status, message, certificate = _certify(found, fresh, on, tolerance)
    except (BudgetExhausted, Breakdown) as error:
        status = Status.NUMERICAL_FAILURE
        if isinstance(error, BudgetExhausted):
            status = Status.BUDGET_EXHAUSTED
        message = f"{error}. What was found until then is kept, unverified."
        if slabs is not None:
            found = slabs.found
    if found is None:
        found = Fit.empty(n, status, message)
    result = LowestLayerResult(
        status=status,
        message=message,
        queries=oracle.queries,
        provenance=provenance,
        certificate=certificate,
        stages=tuple(found.stages),
        directions=found.directions,
        thresholds=found.thresholds,
        angle_errors=found.errors,
        landscape_directions=found.landscape,
        activation=activation,
    )
    if slabs is None or not result.success:
        return result
    if units not in (None, len(found.directions)):
        message = f"{len(found.directions)} units found, {units} expected. {message}"
        result = dataclasses.replace(result, status=Status.PARTIAL, message=message)
    return _explained(oracle, result, slabs.base, cfg)


class _Slabs:
    """Units under refinement by queries: what was found is kept when a budget ends it."""

    def __init__(self, oracle: Remembered, base: Base, found: Fit) -> None:
        self.oracle, self.base, self._found = oracle, base, found
        self.state = QueryRefinement(
            found.directions.copy(),
            found.thresholds.copy(),
            found.errors.copy(),
            np.zeros(len(found.directions)),
        )

    @property
    def found(self) -> Fit:
        """The units as refined by now."""
        return self._found.moved(self.state.directions, self.state.thresholds, self.state.errors)

    def is_on(self, points: FloatArray) -> BoolArray:
        """Ask whether any unit is on, ``(m,)``."""
        return self.base.is_on(self.oracle(points)[:, 0])

    def refine(
        self,
        tolerance: float,
        move_thresholds: bool,
        rng: np.random.Generator,
        cfg: ThresholdConfig,
    ) -> None:
        """Ask slabs around each unit until its error is below ``tolerance``."""
        begin, before = time.perf_counter(), self.oracle.queries.total
        with self.oracle.stage("refine"):
            refine_by_queries(
                self.is_on,
                self.state,
                tolerance=tolerance,
                move_thresholds=move_thresholds,
                rng=rng,
                config=cfg.query_refine,
            )
        report = StageReport(
            "refine by queries",
            self.oracle.queries.total - before,
            time.perf_counter() - begin,
            details={"largest step per round": self.state.history},
        )
        self._found.stages.append(report)


@dataclasses.dataclass(frozen=True)
class _AwayFromUnits:
    """Units must be on or off as predicted, but where their errors leave it open.

    At a point x a direction's error moves its hyperplane by up to ``error * |x|``; six
    standard errors are allowed for.
    """

    layer: LowestLayerResult

    def at(self, points: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return what states may differ by, ``(m, 1)``."""
        height = points @ self.layer.directions.T - self.layer.thresholds
        doubt = 6.0 * np.outer(1.0 + np.linalg.norm(points, axis=1), self.layer.angle_errors)
        certain = (height > doubt).any(axis=1) | (height < -doubt).all(axis=1)
        return np.where(certain, Within().tolerance, np.inf)[:, None]


def _explained(
    oracle: Remembered, result: LowestLayerResult, base: Base, cfg: ThresholdConfig
) -> LowestLayerResult:
    """Hold the units against every answer of the run, where a base value tells on from off.

    The answers of the landscape and of the slabs are a hundred times those of the certificate,
    and the slabs' lie next to the units.
    """
    if not result.success or not base.exact:
        return result

    def states(x: FloatArray) -> FloatArray:
        on = predicted_on(x, result.directions, result.thresholds)
        return on.astype(np.float64)[:, None]

    found = find_contradictions(
        oracle.record, states, _AwayFromUnits(result), lambda y: base.is_on(y).astype(np.float64)
    )
    if found.count <= cfg.stray:
        return result
    largest = max(float(np.abs(batch.answers).max()) for batch in oracle.record.batches())
    told = withdrawn(oracle, result, found, Within(EXACT * largest), what="the units")
    cause = (
        " A unit that is rarely on is missing, or one almost coincides with another. Raise "
        "samples."
    )
    return dataclasses.replace(told, message=told.message + cause)


def _certify(
    found: Fit, x: FloatArray, on: BoolArray, tolerance: float
) -> tuple[Status, str, Certificate]:
    """Judge refined units by fresh answers."""
    wrong = predicted_on(x, found.directions, found.thresholds) != on
    certificate = Certificate.from_deviations(
        wrong.astype(np.float64), scale=float(on.std()), tolerance=0.5
    )
    k, worst = len(found.directions), float(found.errors.max())
    if wrong.any():
        return (
            Status.PARTIAL,
            f"{k} units refined, but {int(wrong.sum())} of {len(wrong)} fresh inputs are on or "
            "off against them: a unit is missing or wrong. Raise samples, or check that f "
            "keeps its base value wherever every unit is off.",
            certificate,
        )
    if worst > 10.0 * tolerance:
        return (
            Status.PARTIAL,
            f"{k} units found, but the refinement stopped at a standard error of {worst:.1e} "
            f"rad, above the tolerance {tolerance:.1e}: other units cover a slab, or the "
            "answers are too coarse.",
            certificate,
        )
    return (
        Status.RECOVERED,
        f"{k} units, each direction to a standard error of at most {worst:.1e} rad.",
        certificate,
    )
