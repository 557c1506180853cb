"""Class names as labels: text that a target answers, numbered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._types import FloatArray

__all__ = ["NamedLabels"]


class NamedLabels:
    """Turns a target that answers with names into one that answers with numbers.

    ``connect(NamedLabels(target), input_dim=d, output_dim=1)`` gives labels 0, 1, ... in the
    order in which names first appeared; ``names[i]`` is label i. Another process may number
    them otherwise: keep ``names`` beside a ledger.

    Parameters
    ----------
    target
        Takes ``(n, d)`` and returns n names.
    names
        Names that are known already.
    """

    def __init__(
        self, target: Callable[[FloatArray], Any], names: list[str] | None = None
    ) -> None:
        self.target = target
        self.names: list[str] = list(names or [])

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the numbers of the names of ``x``, ``(n, 1)``."""
        answers = [str(name) for name in np.asarray(self.target(x)).ravel()]
        self.names += [n for n in dict.fromkeys(answers) if n not in self.names]
        number = {name: float(i) for i, name in enumerate(self.names)}
        return np.array([number[name] for name in answers])[:, None]
