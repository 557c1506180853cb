"""The numbers that the extraction from labels uses, with unit and reason."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["DISTANCES", "EPS", "LEVER", "TINY", "LabelsConfig"]

EPS = float(np.finfo(np.float64).eps)
"""Rounding of float64, from which what only has to be small or large is derived."""
TINY = float(np.finfo(np.float64).tiny)
"""Least number that may be divided by."""
DISTANCES = (1e-3, 1e-6, 1e-9)
"""From the boundary, in units of a typical input's coordinate, at which labels are compared."""
LEVER = 1e4
"""Errors of a boundary over those of the crossings it was fitted to: units that few of them
switch, inputs farther out. Points nearer than that to the boundary are reported, not judged."""


@dataclasses.dataclass(frozen=True)
class LabelsConfig:
    """Numbers of :func:`unrelu.labels.algorithm.extract_from_labels`.

    Attributes
    ----------
    dimension
        Of the subspace in which hyperplanes are found, for two classes; every
        further class adds one. Two planes that meet by chance in five dimensions
        fulfil three equations, so that false pairs are as rare as the cube of
        the tolerance.
    step
        Least length of a difference that measures a normal, in units of a typical
        input's coordinate. Short against the distances of hyperplanes.
    bits
        Halvings of such a step in the search: the angle of a normal is known to
        2^-bits. A boundary point costs about as many labels, and 2^-14 of the step
        is what float32 labels have to give where the step is 2e-3.
    margin
        Standard errors within which two measurements of one thing agree.
    starts
        Boundary points from which a round of the search sets out.
    rounds
        Of anything that is tried again: subspaces, turns of the search in one, fits to
        points where a model failed.
    surplus
        Boundary points over unknowns in a fit: one more in every two leaves a check.
    held_out
        Typical inputs of the certificate. All right, they bound the share of wrong labels by
        1.5e-4 at 95 % confidence: a weight that no boundary asked has shown may be wrong on as
        many.
    useful
        Agreement on held-out inputs from which on a network is worth being given as a copy.
    """

    dimension: int = 5
    step: float = 1e-3
    bits: int = 14
    margin: float = 6.0
    starts: int = 8
    rounds: int = 8
    surplus: float = 1.5
    held_out: int = 20_000
    useful: float = 0.9

    @property
    def draws(self) -> int:
        """Typical inputs asked at a time in search of labels."""
        return self.starts * self.rounds

    @property
    def checks(self) -> int:
        """Boundary points at which a model is compared with the target, by two labels each."""
        return self.draws * self.starts // 2
