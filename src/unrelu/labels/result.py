"""What labels gave away."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput
from unrelu.labels.approximate import predicted
from unrelu.result import RecoveryResult

__all__ = ["LabelsResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class LabelsResult(RecoveryResult):
    """A network that predicts a target's labels.

    Attributes
    ----------
    labels
        The labels, in the order of the network's outputs; with two labels the network has one
        output, which is positive where the second is right.
    names
        What they are called, where the target answers class names: ``labels`` are numbers that
        stand for them.
    free
        What labels do not determine, in words.
    width
        Hidden units found.
    agreement
        Share of held-out typical inputs whose label the network predicts; NaN if not measured.
    noise
        Resolution of the labels: error of a boundary point, in units of the inputs.
    hyperplanes
        Unit rows and offsets found in the last subspace, ``(k, s + 1)``; for what is PARTIAL.
    subspace
        Its rows, ``(s, d)``: input = centre of the domain + coordinates @ subspace.
    first_weights, first_biases
        Of a network with more layers: the hyperplanes of its first layer as far as found, unit
        rows ``(k, d)`` and offsets ``(k,)``. The boundary was seen to bend at every place of
        them that was asked.
    """

    labels: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    width: int = 0
    agreement: float = float("nan")
    noise: float = 0.0
    hyperplanes: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    subspace: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    first_weights: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    first_biases: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))

    def predict(self, x: ArrayLike) -> Any:
        """Return the labels of inputs ``(n, d)``, as the target gives them, ``(n,)``."""
        if self.network is None:
            raise InvalidInput("there is no network to predict with")
        labels = predicted(self.network, self.labels, x)
        if not self.names:
            return labels
        return np.asarray(self.names)[np.searchsorted(self.labels, labels)]
