"""What halfspaces and lowest layers cost."""

from __future__ import annotations

import math
import sys

from unrelu.core.price import Price, price_between

__all__ = ["price_halfspaces", "price_lowest_layer"]


def price_halfspaces(d: int, facets: tuple[float, float]) -> Price:
    """Return the price of a number of facets between two guesses: bisections, rays, certificate.

    A facet takes d lines to see its slopes, and d more to measure them.
    """
    least, most = facets
    return price_between(least * (50.0 * d + 150.0) + 3_500.0, most * (65.0 * d + 450.0) + 8_000.0)


def price_lowest_layer(
    d: int, units: tuple[float, float], *, samples: int, tolerance: float
) -> Price:
    """Return the price of units between two guesses: a landscape, slabs, a certificate."""
    # A round of slabs leaves between a twelfth and a half of an error that begins at 0.1 or so.
    decrease = max(1.0, math.log(0.1 / max(tolerance, sys.float_info.epsilon)))
    low, high = (
        60.0 * d * count * decrease / math.log(factor)
        for count, factor in zip(units, (12.0, 2.0), strict=True)
    )
    return price_between(samples + low, samples + high + 2_000.0)
