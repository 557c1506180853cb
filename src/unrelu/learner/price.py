"""What learning to an error costs."""

from __future__ import annotations

from unrelu.core.price import UNSURE, Price, price_between

__all__ = ["price_learner"]


def price_learner(d: int, neurons: float, *, coarse: bool = False, samples: int = 0) -> Price:
    """Return the price of learning to an error, with so many samples.

    A certificate of 8,000 inputs comes on top, and others after each that fails.
    """

    def price(k: float) -> float:
        return max(1.0, k) * (d + 2.0) * (10.0 if coarse else 2.5) + samples

    return price_between(price(neurons / UNSURE) + 8_000.0, price(neurons * UNSURE) + 28_000.0)
