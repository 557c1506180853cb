"""The numbers that learning from samples uses, with unit and reason."""

from __future__ import annotations

import dataclasses

from unrelu.core.decompose_options import PolishOptions

__all__ = ["FEW", "PAIRS", "SampleOptions"]

PAIRS = 20
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

    held_rows: int = 10_000
    keep_rows: int = 200_000
    rows_per_parameter: int = 40
    effect: float = 0.2
    doubt: float = 1e-4
    neighbours: int = 3
    restarts: int = 3
    polish: PolishOptions = dataclasses.field(default_factory=PolishOptions)
