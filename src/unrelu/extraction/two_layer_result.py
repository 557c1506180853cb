"""What the extraction of one hidden layer returns."""

from __future__ import annotations

import dataclasses

from unrelu.result import RecoveryResult

__all__ = ["TwoLayerResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class TwoLayerResult(RecoveryResult):
    """A recovered depth-2 network and what is known about it.

    Attributes
    ----------
    width
        Number of hidden units found.
    signs_determined
        True: the network has no skip term and its units point the right way.
        False: it is the affine-skip form of equation (2).
    noise
        Measured standard deviation of an answer's error, at typical inputs.
    predicted_error
        Root mean square error of the network at typical inputs, as predicted
        from the noise, in answer units.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    width: int = 0
    signs_determined: bool = False
    noise: float = 0.0
    predicted_error: float = 0.0
    answers: str = "values"
