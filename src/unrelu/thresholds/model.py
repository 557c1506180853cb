"""Outcome and prediction shared by the threshold algorithms."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.result import RecoveryResult, StageReport, Status

__all__ = [
    "Activation",
    "LowestLayerResult",
    "UnitsFit",
    "on_mass",
    "overlap_share",
    "predicted_on",
]

Activation = Literal["sign", "relu", "sigmoid"]


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
class UnitsFit:
    """Units as found, with the verdict."""

    status: Status
    message: str
    directions: FloatArray
    thresholds: FloatArray
    errors: FloatArray
    landscape: FloatArray
    stages: list[StageReport]

    @classmethod
    def empty(cls, n: int, status: Status, message: str, stages: Any = ()) -> UnitsFit:
        """Nothing was found."""
        rows, numbers = np.empty((0, n)), np.empty(0)
        return cls(status, message, rows, numbers, numbers, rows, list(stages))

    def moved(
        self, directions: FloatArray, thresholds: FloatArray, errors: FloatArray
    ) -> UnitsFit:
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
