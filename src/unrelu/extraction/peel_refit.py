"""A row fitted to all places where its surface was found, and how sure it is then.

A kink's place is far more precise than the jump of a gradient, but tells one number only. What
the layers below are off by moves the place that they predict; errors grow a hundredfold from
layer to layer, so that a single row which is less precise than the others spoils all above it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.core.units import SPARE
from unrelu.extraction.deep_numbers import EXPECTED, LARGE, READ, SURE
from unrelu.extraction.peel_rows import KNOWN_TO, Row
from unrelu.extraction.prefix import Prefix

__all__ = ["refit_row", "telling", "unsure"]

PLACED_TO = 1e-12
"""How precisely a kink's place is known, over the norm of its input."""
WRONG = LARGE
"""Deviations of this many times that, on average, come from a place that is not the row's."""


def _told(row: Row, x: FloatArray, prefix: Prefix) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what places tell of a row: heights and one ``(n, w + 1)``, slope, error ``(n,)``."""
    z, states = prefix.states(x)
    heights = np.where(states[-1], z, 0.0)
    slope = np.linalg.norm(prefix.pulled(states, states[-1] * row.theta[:-1]), axis=1)
    far = 1.0 + np.linalg.norm(x, axis=1)
    below = prefix.unsure(x) ** 2 @ row.theta[:-1] ** 2
    error = np.sqrt((PLACED_TO * slope * far) ** 2 + below)
    return np.concatenate([heights, np.ones((len(x), 1))], axis=1), slope, error


def _equations(row: Row, prefix: Prefix) -> FloatArray:
    """Return what the row's own places tell, in units of their errors, ``(n, known)``."""
    rows, slope, error = _told(row, row.places, prefix)
    fine = prefix.sure(row.places) & ~(rows[:, :-1] > 0.0)[:, ~row.known[:-1]].any(axis=1)
    fine &= slope > 0.0
    return np.asarray(rows[fine][:, row.known] / error[fine, None])


def _spread(rows: FloatArray, loose: FloatArray) -> FloatArray:
    """Return a factor of the covariance that equations leave, of numbers that are loose."""
    triangle = np.linalg.qr(np.concatenate([rows * loose, np.eye(len(loose))]), mode="r")
    return np.asarray(loose[:, None] * np.linalg.inv(triangle))


def unsure(row: Row, x: FloatArray, prefix: Prefix) -> FloatArray:
    """Return how far from ``x`` ``(n, d)`` on its surface the row's kink may be, ``(n,)``."""
    spread = _spread(_equations(row, prefix), _loose(row))
    rows, slope, _ = _told(row, x, prefix)
    off = np.linalg.norm(rows[:, row.known] @ spread, axis=1)
    return np.asarray(SURE * off / np.maximum(slope, 1e-300))


def telling(row: Row, x: FloatArray, prefix: Prefix, count: int) -> IntArray:
    """Choose places ``(n, d)`` on a row's surface that tell most of what is open about it.

    Fewer than ``count`` where it is as sure of the others as a kink's place is.
    """
    spread = _spread(_equations(row, prefix), _loose(row))
    rows, _, error = _told(row, x, prefix)
    rows = rows[:, row.known] / np.maximum(error, 1e-300)[:, None]
    chosen: list[int] = []
    while len(chosen) < min(count, len(x)):
        gain = ((rows @ spread) ** 2).sum(axis=1)
        best = int(gain.argmax())
        if gain[best] <= SURE**2:
            break
        chosen.append(best)
        along = rows[best] @ spread
        part = (1.0 - 1.0 / np.sqrt(1.0 + gain[best])) / gain[best]
        spread = spread - part * np.outer(spread @ along, along)
    return np.array(chosen, dtype=np.int64)


def _loose(row: Row) -> FloatArray:
    return np.maximum(PLACED_TO, row.error[row.known])


def _claimed(row: Row, rows: FloatArray) -> FloatArray:
    """Return what the numbers of a row may be off by, before its places are looked at.

    Of a row as it was read a few places tell how good the reading was.
    """
    loose, theta = _loose(row), row.theta[row.known]
    if loose.min() < KNOWN_TO or len(rows) <= SPARE:
        return loose
    expected = 1.0 + (rows * loose) ** 2 @ np.ones(len(loose))
    seen = float(np.sqrt(np.median((rows @ theta) ** 2 / expected)))
    return np.minimum(SURE * seen * loose, np.maximum(READ, loose))


def _agreed(
    rows: FloatArray, theta: FloatArray, loose: FloatArray
) -> tuple[FloatArray, FloatArray, bool]:
    """Bring ``rows @ theta`` to zero, but for places where another kink was met or came between.

    Returns
    -------
    kept, change, fits
        The equations that agree, what theta changes by, and whether enough of them do.
    """
    least = (1.0 - EXPECTED) * len(rows)
    while True:
        matrix = np.concatenate([rows * loose, np.eye(len(theta))])
        right = np.concatenate([-rows @ theta, np.zeros(len(theta))])
        basis, triangle = np.linalg.qr(matrix)
        change = np.linalg.solve(triangle, basis.T @ right)
        off = matrix @ change - right
        fits = bool((off**2).sum() <= WRONG**2 * len(rows))
        if fits or len(rows) <= least:
            return rows, loose * change, fits
        # The one without which all others fit best.
        part = 1.0 - (basis[: len(rows)] ** 2).sum(axis=1)
        worst = int((off[: len(rows)] ** 2 / np.maximum(part, 1e-300)).argmax())
        rows = np.delete(rows, worst, axis=0)


def refit_row(row: Row, prefix: Prefix) -> Row:
    """Fit a row to all its places; what they leave open stays as it was read."""
    every, theta = _equations(row, prefix), row.theta[row.known]
    loose = _claimed(row, every)
    rows, change, fits = _agreed(every, theta, loose)
    if not fits:  # not some of the places but the reading, which claimed too much
        loose = np.maximum(READ, loose)
        rows, change, fits = _agreed(every, theta, loose)
    new, error = row.theta.copy(), row.error.copy()
    new[row.known] = theta + change
    error[row.known] = np.linalg.norm(_spread(rows, loose), axis=1)
    # Rows of the layer above are written in this row's scale: what was well known keeps its.
    firm = row.known[:-1] & (row.error[:-1] <= KNOWN_TO)
    firm = firm if firm.any() else row.known[:-1]
    old, now = (np.linalg.norm(t[:-1][firm]) for t in (row.theta, new))
    if not now > 0.0:
        return row
    return dataclasses.replace(row, theta=new * float(old / now), error=error)
