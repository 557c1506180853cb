"""What a target answers as numbers; class names, one a row, get a number each.

A name may have its score beside it.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from unrelu._types import FloatArray

__all__ = ["as_numbers", "name_code"]

BYTES = int(np.finfo(np.float64).nmant) // 8
"""Of a name's digest: 48 bits are whole numbers of float64, and two of a thousand names have the
same with a chance of 2e-9."""


def as_numbers(raw: Any, names: dict[float, str]) -> FloatArray:
    """Return an answer as a float64 array of our own: a target may reuse its buffer.

    What numbers were given to class names is added to ``names``.
    """
    # No answer where it is masked.
    masked = isinstance(raw, np.ma.MaskedArray)
    values = np.ma.filled(raw.astype(np.float64), np.nan) if masked else np.asarray(raw)
    if values.dtype.kind not in "biufOU":  # text that reads as numbers is taken as such
        raise TypeError(f"it has the type {values.dtype}")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype=np.float64, order="C")
    except ValueError:
        numbered = _numbered(values)
        if numbered is None:
            raise
        names |= numbered[1]
        return numbered[0]


def name_code(name: str) -> float:
    """Return the number of a name: what it reads as, or else a digest of it.

    The same in every process and whatever the order of names, so that a ledger may be replayed.
    """
    try:
        value = float(name)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    return float(int.from_bytes(hashlib.sha256(name.encode()).digest()[:BYTES], "big"))


def _numbered(values: Any) -> tuple[FloatArray, dict[float, str]] | None:
    """Return the numbers of names, ``(n,)`` or ``(n, 1)``, and which name each stands for.

    Or of names with their scores, ``(n, 2)``. None where the answer is anything else.
    """
    if values.ndim == 2 and values.shape[1] == 2:
        return _with_scores(values)
    text = values.dtype.kind == "U" or all(isinstance(v, str) for v in values.flat)
    if not text or values.ndim not in {1, 2} or values.shape[1:] not in {(), (1,)}:
        return None
    seen, index = np.unique(values.astype(str).ravel(), return_inverse=True)
    codes = np.array([name_code(str(name)) for name in seen])
    names = {float(code): str(name) for code, name in zip(codes, seen, strict=True)}
    if len(names) < len(seen):
        return None  # two names of one number
    return codes[index].reshape(values.shape), names


def _with_scores(values: Any) -> tuple[FloatArray, dict[float, str]] | None:
    """Return names and scores ``(n, 2)``, in any order, as numbers."""
    for name, score in ((0, 1), (1, 0)):
        numbered, scores = _numbered(values[:, name]), _scores(values[:, score])
        if numbered is None or scores is None or _scores(values[:, name]) is not None:
            continue
        pair = (numbered[0], scores) if name == 0 else (scores, numbered[0])
        return np.column_stack(pair), numbered[1]
    return None


def _scores(column: Any) -> FloatArray | None:
    """Return a column that reads as numbers, None for any other."""
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return None
