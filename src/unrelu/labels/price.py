"""What a network from labels costs."""

from __future__ import annotations

from unrelu.core.price import Price, price_between

__all__ = ["price_labels"]


def price_labels(d: int, classes: int, units: float) -> Price:
    """Return the price of a network from labels: a search, then a bisection a parameter."""
    parameters = units * (d + 1.0) + max(1, classes - 1) * (units + 1.0)
    return price_between(60.0 * parameters + 24_000.0, 600.0 * parameters + 30_000.0 * classes)
