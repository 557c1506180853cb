"""A learned network against every answer of its run, those on lines included.

The certificate vouches for fresh inputs, and the search has looked at its samples; the run
has seen more. An answer that the network misses by more than epsilon and the noise allow is
where the search goes on; what stays unexplained is not called recovered.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.explain import Contradictions, Result, find_contradictions, withdrawn
from unrelu.learner.run import Learning
from unrelu.result import Status

__all__ = ["contradicting_answers", "explained_copy"]


class _WithinEpsilon:
    """What epsilon and the noise allow an answer to differ by.

    Epsilon is about N(0, I): answers farther out than the certificate's wide inputs are
    none that it can be compared with.
    """

    def __init__(self, learning: Learning) -> None:
        self.seen, self.reach = learning.seen, math.inf
        held_out = learning.target.record.of_stage("certificate")
        if held_out is not None:
            self.reach = float(np.linalg.norm(held_out[0], axis=1).max())

    def at(self, points: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return the same tolerance for all outputs, ``(n, m)``."""
        far = np.linalg.norm(points, axis=1) > self.reach
        allowed = np.where(far, np.inf, self.seen.allowed(points))
        return np.broadcast_to(allowed[:, None], predicted.shape)


def contradicting_answers(
    learning: Learning, network: Callable[[FloatArray], FloatArray]
) -> Contradictions:
    """Return the answers of the whole run that a network does not explain.

    Neurons as they were found are compared: what merging them costs is arithmetic.
    """
    found = network if learning.learned is None else learning.learned
    return find_contradictions(learning.target.record, found, _WithinEpsilon(learning))


def explained_copy(learning: Learning, result: Result) -> Result:
    """Return a result that claims to be recovered only if every answer of the run agrees.

    With k and R given what is rare is within the promise, and counted in its bound: then
    only a target that has changed takes it back.
    """
    if result.network is None or result.status not in (Status.RECOVERED, Status.APPROXIMATED):
        return result
    found = contradicting_answers(learning, result.network)
    if not found:
        return result
    kept = result.status if learning.request.told else Status.APPROXIMATED
    return withdrawn(learning.target, result, found, _WithinEpsilon(learning), kept)
