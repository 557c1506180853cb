"""The numbers that learning from samples uses, with unit and reason."""

from __future__ import annotations

import dataclasses

from unrelu.core.decompose_options import PolishOptions
from unrelu.core.noise import PER_UNKNOWN
from unrelu.core.run import AGAIN
from unrelu.result import DOUBT, HELD_OUT

__all__ = ["FEW", "PAIRS", "SampleOptions"]

PAIRS = PolishOptions.starts
"""Pairs of contractions that Jennrich's algorithm chooses from; 1 is as published."""
FEW = 2000
"""Unexplained rows kept for the search of rare units, and subsets tried among them: the search's
cost grows with the square, and a few hundred rows are usual."""


@dataclasses.dataclass(frozen=True)
class SampleOptions:
    """Sizes and tolerances; lengths are relative to the labels' spread.

    Attributes
    ----------
    held_rows
        Rows held out for the certificate, and rows whose neighbours are compared (fewer if
        there are few samples).
    keep_rows
        Rows kept in memory for the polish, at most.
    rows_per_parameter
        Rows that the polish uses per parameter; 10 suffice without noise.
    effect
        Size from which on a cumulant that no Gaussian has does harm (uniform inputs have
        kurtosis -1.2).
    doubt
        Probability that pure noise is taken for something else.
    neighbours
        Near points that each point's residual is compared with.
    restarts
        Random starts of the polish if the moments' start fails, and orientations tried.
    polish
        Of the polish itself.
    """

    held_rows: int = HELD_OUT
    keep_rows: int = 200_000
    rows_per_parameter: int = PER_UNKNOWN
    effect: float = 0.2
    doubt: float = DOUBT
    neighbours: int = 3
    restarts: int = AGAIN // 2
    polish: PolishOptions = dataclasses.field(default_factory=PolishOptions)
