"""Inputs at which few units of the last known layer are on.

At typical inputs half of them are. A unit above with few negative weights is on at all of
these, and one with few positive weights never; but where the units that count are those with
the odd weights, both switch. A row is also read more easily there: the fewer units are on, the
more likely their gradients are independent.
"""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.extraction.deep_numbers import FAINT, TRIES
from unrelu.extraction.prefix import Prefix

__all__ = ["along_an_axis", "where_few_are_on"]

UNEVEN = 1.5
"""Standard deviation of the logarithm of heights: one of a few units outweighs the others."""

LOW = 0.1
"""Heights at which units are on by little, over their deviation."""


def where_few_are_on(prefix: Prefix, typical: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Move typical inputs to where a few units are on, each unevenly, ``(n, d)``.

    In the first layer any states can be had if it is no wider than the input; above it Newton
    steps come as near as they do.
    """
    z, _ = prefix.last(typical)
    n, w = z.shape
    few = rng.geometric(0.5, size=(n, 1))  # one, half as often two, and so on
    on = np.argsort(rng.random((n, w)), axis=1) < few
    sizes = z.std(axis=0) * np.exp(UNEVEN * rng.standard_normal((n, w)))
    return _moved(prefix, typical, np.where(on, sizes, -sizes))


def along_an_axis(prefix: Prefix, typical: FloatArray, unit: int, far: float) -> FloatArray:
    """Move two typical inputs to where all units are on by little, then one by far, ``(2, d)``.

    Every hyperplane that meets the orthant of the units' outputs meets one of its axes, and
    with all of them on a crossing tells the whole row.
    """
    size = prefix.last(typical)[0].std(axis=0)
    wanted = np.tile(LOW * size, (2, 1))
    wanted[1, unit] = far * size[unit]
    return _moved(prefix, typical[:2], wanted)


def _moved(prefix: Prefix, x: FloatArray, wanted: FloatArray) -> FloatArray:
    """Move inputs to where the last layer has the preactivations wanted, ``(n, w)``."""
    for _ in range(TRIES):
        z, slopes = prefix.last(x)
        missing = np.where((z > 0.0) | (wanted > 0.0), wanted - z, 0.0)  # off is off
        x = x + np.einsum("ndw,nw->nd", np.linalg.pinv(slopes, rcond=FAINT), missing)
    return np.asarray(x[np.isfinite(x).all(axis=1)])
