"""The lowest layer from queries: Gaussian samples, slabs asked directly, every answer compared."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.explain import EXACT, Within, find_contradictions, withdrawn
from unrelu.core.noise import RARE
from unrelu.core.record import Remembered
from unrelu.core.run import Run
from unrelu.result import Certificate, Status
from unrelu.samples import as_source
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.fit import fit_landscape
from unrelu.thresholds.model import Activation, LowestLayerResult, UnitsFit, predicted_on
from unrelu.thresholds.passes import Base, Passes
from unrelu.thresholds.price import price_lowest_layer
from unrelu.thresholds.query import QueryRefinement, refine_by_queries
from unrelu.thresholds.search import Method
from unrelu.thresholds.union import fit_union

__all__ = ["Asked", "LayerRun"]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the caller asked for.

    Attributes
    ----------
    activation, threshold, units
        As in :func:`unrelu.recover_lowest_layer`.
    samples, tolerance
        Queries for the landscape, and the error in radians to which slabs refine.
    """

    activation: Activation
    threshold: float | None
    units: int | None
    samples: int
    tolerance: float


class LayerRun:
    """A run in search of the lowest layer; what was found survives the end of the budget."""

    def __init__(self, run: Run, config: ThresholdConfig, asked: Asked) -> None:
        self.run, self.config, self.asked = run, config, asked
        self.found = UnitsFit.empty(run.target.input_dim, Status.PARTIAL, "nothing was asked")
        self.slabs: _Slabs | None = None
        self.certificate: Certificate | None = None

    def steps(self, refine: bool, method: Method) -> LowestLayerResult:
        """Ask for Gaussian samples, then refine on slabs that are asked directly."""
        run, n = self.run, self.run.target.input_dim
        self._expect(1, n if self.asked.units is None else self.asked.units)
        with run.stage("landscape"):
            x = run.rng.standard_normal((self.asked.samples, n))
            y = run.target(x)[:, 0]
        passes = Passes(as_source(x, y), lambda labels: labels, self.config)
        if not refine or self.asked.activation == "sigmoid":
            self.found = fit_landscape(
                passes, method=method, units=self.asked.units, threshold=self.asked.threshold,
                biased=False, rng=run.rng, config=self.config, watch=run.progress,
            )  # fmt: skip
            return self.result(self.found.status, self.found.message)
        self.found = fit_union(
            passes, method=method, units=self.asked.units, threshold=self.asked.threshold,
            rng=run.rng, config=self.config, watch=run.progress,
        )  # fmt: skip
        k = len(self.found.directions)
        if k == 0:
            return self.result(self.found.status, self.found.message)
        self._expect(k, k)
        self.slabs = _Slabs(run, passes.base, self.found)
        self.slabs.refine(self.asked.tolerance, self.asked.threshold is None, self.config)
        with run.stage("certificate"):
            fresh = run.rng.standard_normal((self.config.certificate, n))
            on = self.slabs.is_on(fresh)
        status, message, self.certificate = _certify(
            self.slabs.found, fresh, on, self.asked.tolerance
        )
        if status is Status.RECOVERED and self.asked.units not in (None, k):
            status = Status.PARTIAL
            message = f"{k} units found, {self.asked.units} expected. {message}"
        return self.result(status, message)

    def _expect(self, least: int, most: int) -> None:
        price = price_lowest_layer(
            self.run.target.input_dim, (float(least), float(most)), samples=self.asked.samples,
            tolerance=self.asked.tolerance,
        )  # fmt: skip
        self.run.target.allowance.plan(price)

    def result(self, status: Status, message: str) -> LowestLayerResult:
        """Return what was found so far."""
        found = self.found if self.slabs is None else self.slabs.found
        return LowestLayerResult(
            status=status,
            message=message,
            queries=self.run.target.queries,
            provenance=self.run.provenance,
            certificate=self.certificate,
            stages=(*found.stages, *self.run.stages),
            directions=found.directions,
            thresholds=found.thresholds,
            angle_errors=found.errors,
            landscape_directions=found.landscape,
            activation=self.asked.activation,
        )

    def explained(self, result: LowestLayerResult) -> LowestLayerResult:
        """Hold the units against every answer of the run."""
        if self.slabs is None:
            return result
        return _explained(self.run.target, result, self.slabs.base)


class _Slabs:
    """Units under refinement by queries: what was found is kept when a budget ends it."""

    def __init__(self, run: Run, base: Base, found: UnitsFit) -> None:
        self.run, self.base, self._found = run, base, found
        self.state = QueryRefinement(
            found.directions.copy(),
            found.thresholds.copy(),
            found.errors.copy(),
            np.zeros(len(found.directions)),
        )

    @property
    def found(self) -> UnitsFit:
        """The units as refined by now."""
        return self._found.moved(self.state.directions, self.state.thresholds, self.state.errors)

    def is_on(self, points: FloatArray) -> BoolArray:
        """Ask whether any unit is on, ``(m,)``."""
        return self.base.is_on(self.run.target(points)[:, 0])

    def refine(self, tolerance: float, move_thresholds: bool, config: ThresholdConfig) -> None:
        """Ask slabs around each unit until its error is below ``tolerance``."""
        with self.run.stage("refine") as details:
            refine_by_queries(
                self.is_on,
                self.state,
                tolerance=tolerance,
                move_thresholds=move_thresholds,
                rng=self.run.rng,
                config=config,
            )
            details["largest step per round"] = self.state.history


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
        doubt = RARE * np.outer(1.0 + np.linalg.norm(points, axis=1), self.layer.angle_errors)
        certain = (height > doubt).any(axis=1) | (height < -doubt).all(axis=1)
        return np.where(certain, Within().tolerance, np.inf)[:, None]


def _explained(oracle: Remembered, result: LowestLayerResult, base: Base) -> LowestLayerResult:
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
    if not found:
        return result
    largest = max(float(np.abs(batch.answers).max()) for batch in oracle.record.batches())
    told = withdrawn(oracle, result, found, Within(EXACT * largest), what="the units")
    cause = (
        " A unit that is rarely on is missing, or one almost coincides with another. Raise "
        "samples."
    )
    return dataclasses.replace(told, message=told.message + cause)


def _certify(
    found: UnitsFit, x: FloatArray, on: BoolArray, tolerance: float
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
