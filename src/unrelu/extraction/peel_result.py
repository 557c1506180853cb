"""What an extraction of any depth returns."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.result import RecoveryResult

__all__ = ["AnyDepthResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class AnyDepthResult(RecoveryResult):
    """A network of any depth, or the layers of it that were found.

    Attributes
    ----------
    widths
        Of the hidden layers found.
    hidden_layers
        How many were found; those of which signs are missing count.
    numbers
        Their rows, one layer after the other, each row with its bias last.
    signed
        Whether a layer's signs are known, one number per layer.
    confirmed, places
        Per layer: at how many places far from where they were read its rows showed a kink just
        where they predict it, and how many places were asked.
    explains
        Per layer: the part of the gradients that its rows explain.
    lines
        Lines and parts of lines that were traced.
    noise
        Standard deviation of an answer's error, at typical inputs.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    widths: tuple[int, ...] = ()
    hidden_layers: int = 0
    numbers: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    signed: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    confirmed: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    places: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    explains: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    lines: int = 0
    noise: float = 0.0
    answers: str = "values"

    def layers(self, input_dim: int) -> list[tuple[FloatArray, FloatArray]]:
        """Return the layers found as ``(W, b)``, rows of unit length, the first one first."""
        found, start, below = [], 0, input_dim
        for width in self.widths:
            stop = start + width * (below + 1)
            rows = self.numbers[start:stop].reshape(width, below + 1)
            found.append((rows[:, :-1], rows[:, -1]))
            start, below = stop, width
        return found
