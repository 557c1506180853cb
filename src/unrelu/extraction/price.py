"""What extraction costs, by the number of hidden layers and the noise."""

from __future__ import annotations

from unrelu.core.price import UNSURE, Price, price_between

__all__ = [
    "look_pays",
    "price_any_depth",
    "price_leaky",
    "price_noisy",
    "price_three_layer",
    "price_two_layer",
]


def price_two_layer(
    d: int, m: int, hyperplanes: float, *, coarse: bool = False, orthant: bool = False
) -> Price:
    """Return the price of one hidden layer: lines, gradients, certificate."""

    def price(k: float) -> float:
        certificate = 4300.0 if orthant else 3300.0
        return _one_layer(d, m, k) * (4.0 if coarse or orthant else 1.0) + certificate

    # In a part of space a line meets fewer of the hyperplanes.
    most = hyperplanes * (UNSURE**2 if orthant else UNSURE)
    return price_between(price(max(1.0, hyperplanes / UNSURE)), price(max(1.0, most)))


def _one_layer(d: int, m: int, k: float) -> float:
    """Return what lines and gradients of one hidden layer take."""
    return 100.0 + 6.0 * k + d * (k * 1.2 / m + 3.0) + 0.1 * k * d


def look_pays(d: int, m: int, hyperplanes: float, look: int) -> bool:
    """Whether a look at the depth saves more than it takes, before one hidden layer is tried.

    The look is lost where there is one hidden layer, the attempt where there are more: each
    over all that such a target costs, whichever is the larger part decides.
    """
    one, attempt = price_two_layer(d, m, hyperplanes), _one_layer(d, m, hyperplanes)
    more = price_three_layer(d, m, hyperplanes, 0.5)
    return attempt * sum(one) > look * sum(more)


def price_three_layer(
    d: int,
    m: int,
    hyperplanes: float,
    first: float,
    *,
    coarse: bool = False,
    log_odds: bool = False,
) -> Price:
    """Return the price of two hidden layers, ``first`` of all hyperplanes in the first."""

    def price(k: float) -> float:
        one, two = max(1.0, first * k), max(1.0, (1.0 - first) * k)
        parameters = one * (d + 1.0) + two * (one + 1.0) + m * (two + 1.0)
        each = 2.6 + 25.0 / d if one <= 1.35 * d else 30.0  # no right inverse: the long way
        # Lines that end where a probability does must be drawn several times.
        return parameters * each * (3.0 if coarse or log_odds else 1.0) + 12_300.0

    return price_between(
        price(max(1.0, hyperplanes / UNSURE)), price(max(1.0, hyperplanes * UNSURE))
    )


def price_leaky(first: int, m: int, hyperplanes: float) -> Price:
    """Return the price of slopes, of the layer above in an orthant, and of two certificates."""
    low, high = price_two_layer(first, m, max(1.0, hyperplanes - first), orthant=True)
    more = round(12_300.0 + 100.0 * first)
    return low + more, high + more


def price_any_depth(d: int, m: int, hyperplanes: float) -> Price:
    """Return the price of any number of hidden layers, whose units one line shows."""

    def price(k: float, each: float) -> float:
        return k * (d + 1.0 + m) * each + 12_300.0

    return price_between(price(hyperplanes, 4.0), price(hyperplanes, 15.0))


def price_noisy(d: int, m: int, hyperplanes: float) -> Price:
    """Return the price of one hidden layer from noisy answers: lines, lift, fit, certificate."""

    def price(k: float) -> float:
        parameters = k * (d + 1.0 + m) + m
        return 1500.0 + 60.0 * k + 4.0 * parameters / m + 3.0 * d + 1300.0

    return price_between(
        price(max(1.0, hyperplanes / UNSURE)), price(max(1.0, hyperplanes * UNSURE))
    )
