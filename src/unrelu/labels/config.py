"""The numbers that the extraction from labels uses, with unit and reason."""

from __future__ import annotations

import dataclasses

__all__ = ["LabelsConfig"]


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
    tangents
        Directions that are tried from every place before it counts as explored.
    rounds, charts
        Rounds of the search in a subspace before it gives up, and subspaces.
    surplus
        Boundary points over unknowns in a fit: one more in every two leaves a check.
    held_out
        Typical inputs of the certificate, and boundary points at each distance.
    confidence
        Of its bounds.
    approximate
        Agreement on held-out inputs from which on a network is worth being given as a copy.
    """

    dimension: int = 5
    step: float = 1e-3
    bits: int = 14
    margin: float = 6.0
    starts: int = 8
    tangents: int = 6
    rounds: int = 12
    charts: int = 6
    surplus: float = 1.5
    held_out: int = 2000
    confidence: float = 0.95
    approximate: float = 0.9
