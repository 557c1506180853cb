"""What a caller asks of the learner, checked."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.learner.config import DELTA
from unrelu.oracles.base import Oracle

__all__ = ["Request", "checked_hints"]


@dataclasses.dataclass(frozen=True)
class Request:
    """What :func:`~unrelu.learner.algorithm.learn_from_queries` was asked for.

    Attributes are its arguments.
    """

    epsilon: float
    delta: float = DELTA
    relative: bool = False
    faithful: bool = False
    width: int | None = None
    norm_bound: float | None = None
    bias_bound: float | None = None
    narrowest: float | None = None
    certificate_samples: int | None = None

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise InvalidInput(f"epsilon must be a positive number, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise InvalidInput(f"delta must lie between 0 and 1, got {self.delta}")
        for name in ("norm_bound", "narrowest"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InvalidInput(f"{name} must be a positive number, got {value}")
        bias = self.bias_bound
        if bias is not None and not (bias >= 0 and math.isfinite(bias)):
            raise InvalidInput(f"bias_bound must be zero or more, got {bias}")
        for name in ("width", "certificate_samples"):
            count = getattr(self, name)
            if count is not None and (isinstance(count, bool) or count < 1 or int(count) != count):
                raise InvalidInput(f"{name} must be a whole number of at least 1, got {count}")
        if self.faithful and None in (self.width, self.norm_bound, self.bias_bound):
            raise InvalidInput("faithful=True needs width (k), norm_bound (R) and bias_bound (B)")

    @property
    def told(self) -> bool:
        """Whether k and R are given: what may hide is then no assumption."""
        return self.norm_bound is not None and self.width is not None

    def options(self) -> dict[str, Any]:
        """Return what the result's provenance tells."""
        told = dataclasses.asdict(self)
        del told["certificate_samples"]
        return told


def checked_hints(
    hints: tuple[FloatArray, FloatArray], target: Oracle
) -> tuple[FloatArray, FloatArray]:
    """Return hints as arrays ``(n, d)`` and ``(n, m)``; raise where they are not."""
    x, y = (np.asarray(part, dtype=np.float64) for part in hints)
    if x.shape != (len(x), target.input_dim) or y.shape != (len(x), target.output_dim):
        raise InvalidInput(
            f"hints must be inputs (n, {target.input_dim}) and answers (n, {target.output_dim}), "
            f"got {x.shape} and {y.shape}"
        )
    return x, y
