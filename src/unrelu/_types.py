"""Aliases shared by the whole package."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["AnswerKind", "ArrayLike", "BoolArray", "FloatArray", "IntArray"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

AnswerKind = Literal["auto", "values", "probabilities"]
"""How answers are to be read; ``"auto"``: as a look at some of them says."""
