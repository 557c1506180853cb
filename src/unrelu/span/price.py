"""What a span costs, from values and from labels."""

from __future__ import annotations

from unrelu.core.price import Price, price_between

__all__ = ["price_span", "price_span_from_labels"]


def price_span(d: int, m: int, ranks: tuple[float, float]) -> Price:
    """Return the price of a span of a rank between two guesses, from values."""
    low, high = (rank * d * (1.0 / m + 100.0 / d) + 600.0 for rank in ranks)
    return price_between(low, high)


def price_span_from_labels(d: int, ranks: tuple[float, float]) -> Price:
    """Return the same from labels: a bisection a normal's entry."""
    low, high = (rank * (60.0 * d + 4000.0) for rank in ranks)
    return price_between(low, high)
