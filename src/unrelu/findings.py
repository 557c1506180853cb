"""What a result tells of its target, whichever method found it.

The report, the result pages and the command line ask :meth:`RecoveryResult.findings`; none
of them knows the methods. A method's result is understood by the names of its fields:

====================  ======================================================================
``width``, ``*_width``  units found in the hidden layers, the first layer first
``widths``              the same as one tuple
``answers``             ``"log-odds"`` where the network computes what a softmax hides
``first_weights``       rows of the first layer that were found, ``(k, d)``
``basis``               orthonormal rows of what the target looks at, ``(r, d)``
``singular_values``     those from which that was read
``labels``              labels by output, where the network was recovered from labels alone
``reached``             bound on the root mean square error of a learned copy
====================  ======================================================================

A result that knows better overrides the method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from unrelu._types import FloatArray

__all__ = ["Findings"]


def _no_rows() -> FloatArray:
    return np.zeros((0, 0))


@dataclasses.dataclass(frozen=True)
class Findings:
    """What was found out about a target; empty where the method does not look for it.

    Attributes
    ----------
    widths
        Units found, by hidden layer.
    log_odds
        Whether the network computes log-odds: a function common to all outputs is free.
    first_layer
        Rows of the first layer, ``(k, d)``.
    basis
        Orthonormal rows that span what the target looks at, ``(r, d)``.
    singular_values
        Those from which the span was read.
    labels
        Labels by output of the network, where all that it tells is labels.
    copy_error
        Bound on the root mean square error of a copy that was learned, not extracted.
    """

    widths: tuple[int, ...] = ()
    log_odds: bool = False
    first_layer: FloatArray = dataclasses.field(default_factory=_no_rows)
    basis: FloatArray = dataclasses.field(default_factory=_no_rows)
    singular_values: FloatArray = dataclasses.field(default_factory=lambda: np.zeros(0))
    labels: tuple[float, ...] = ()
    copy_error: float | None = None

    @property
    def units(self) -> int:
        """Hidden units found, all layers together."""
        return sum(self.widths)

    @property
    def rank(self) -> int:
        """Dimension of the span that was found; 0 where none was."""
        return len(self.basis)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Findings:
        """Read a result's own fields, by the names above."""
        counted = [v for k, v in fields.items() if k == "width" or k.endswith("_width")]
        widths = tuple(int(width) for width in fields.get("widths", counted))
        reached = fields.get("reached")
        return cls(
            widths=widths,
            log_odds=fields.get("answers") == "log-odds",
            first_layer=fields.get("first_weights", _no_rows()),
            basis=fields.get("basis", _no_rows()),
            singular_values=fields.get("singular_values", np.zeros(0)),
            labels=tuple(fields.get("labels", ())),
            copy_error=None if reached is None else float(reached),
        )
