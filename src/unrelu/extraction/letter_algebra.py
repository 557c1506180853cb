"""Linear algebra that is exact over the rationals, and plain elimination over float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrelu.core.memory import BLOCK

__all__ = ["eliminated", "project", "right_inverse", "subset_that_sums"]

Numbers = NDArray[Any]


def eliminated(matrix: Numbers, columns: int) -> tuple[Numbers, list[int]]:
    """Return the reduced row echelon form over the first ``columns``, and its pivots' columns."""
    rows = matrix.copy()
    pivots: list[int] = []
    for column in range(columns):
        top = len(pivots)
        if top == len(rows):
            break
        best = top + int(np.argmax(abs(rows[top:, column])))
        if rows[best, column] == 0:
            continue
        rows[[top, best]] = rows[[best, top]]
        rows[top] = rows[top] / rows[top, column]
        for other in range(len(rows)):
            if other != top:
                rows[other] = rows[other] - rows[other, column] * rows[top]
        pivots.append(column)
    return rows, pivots


def right_inverse(matrix: Numbers) -> Numbers | None:
    """Return ``A^T (A A^T)^-1``; None where the rows are dependent."""
    k = len(matrix)
    identity = matrix[:, :1] * 0 + np.eye(k, dtype=int)
    rows, pivots = eliminated(np.column_stack([matrix @ matrix.T, identity]), k)
    return None if len(pivots) < k else np.asarray(matrix.T @ rows[:, k:])


def project(vector: Numbers, normal: Numbers) -> Numbers:
    """Return the part of a vector that is orthogonal to a normal."""
    return np.asarray(vector - normal * ((normal @ vector) / (normal @ normal)))


def subset_that_sums(rows: Numbers, total: Numbers) -> tuple[bool, ...] | None:
    """Find the one subset of rows with this sum; None where there is none, or several.

    Parameters
    ----------
    rows
        ``(k, n)``; only over the rationals is "equal" meant as it is written.
    total
        ``(n,)``.
    """
    k = len(rows)
    reduced, pivots = eliminated(np.column_stack([rows.T, total]), k)
    if any(row[-1] != 0 for row in reduced[len(pivots) :]):
        return None
    free = [column for column in range(k) if column not in pivots]
    if 1 << len(free) > BLOCK >> 10:  # tried one by one
        return None
    found: list[tuple[bool, ...]] = []
    for choice in itertools.product((0, 1), repeat=len(free)):
        chosen = dict(zip(free, choice, strict=True))
        for row, pivot in zip(reduced, pivots, strict=False):
            chosen[pivot] = row[-1] - sum(row[c] * v for c, v in zip(free, choice, strict=True))
        if all(value in (0, 1) for value in chosen.values()):
            found.append(tuple(chosen[column] == 1 for column in range(k)))
    return found[0] if len(found) == 1 else None
