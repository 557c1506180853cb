"""What a run may cost: a plan's price, and the end of a run that outgrows it."""

from __future__ import annotations

import math
import sys

from unrelu.errors import BudgetExhausted
from unrelu.oracles.base import Meter

__all__ = [
    "FIRST_AGAIN",
    "OVERRUN",
    "UNSURE",
    "Allowance",
    "Price",
    "price_any_depth",
    "price_halfspaces",
    "price_labels",
    "price_learner",
    "price_lowest_layer",
    "price_noisy",
    "price_span",
    "price_span_from_labels",
    "price_three_layer",
    "price_two_layer",
]

Price = tuple[int, int]
"""Queries that a method will roughly take, certificate included: a low and a high guess."""

UNSURE = 1.6
"""A look tells the number of hyperplanes within this factor."""
MARGIN = 1.2
"""The formulas below are fitted to the benchmarks' tables, good within this factor."""

OVERRUN = 4
"""A run ends when it would ask more than this many times the high end of its plan. A plan
is good within a factor of two; what costs twice that again follows something that is not there."""


FIRST_AGAIN = 8
"""First points of a run that are asked again where something disagrees."""


class Allowance:
    """Rows that a run may send, by its own plan.

    A budget that the caller has set counts instead: the meter keeps it.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._start = meter.sent
        self.planned: Price | None = None
        self._settled = False

    def plan(self, price: Price, *, settled: bool = False) -> None:
        """Expect ``price`` from the start of the run to its end.

        A method that learns more about its target may plan again, and the dearest
        plan counts; unless a look at the target has ``settled`` it. First points that are
        asked again, to see whether the target has changed, come on top.
        """
        price = price[0], price[1] + FIRST_AGAIN
        if not self._settled and (self.planned is None or price[1] > self.planned[1]):
            self.planned = price
        self._settled = self._settled or settled

    def begin_again(self, price: Price) -> None:
        """Expect ``price`` from now on: another method is tried, whose plan is another."""
        low, high = price
        self.planned = (self.spent + low, self.spent + high)
        self._settled = True

    @property
    def spent(self) -> int:
        """Rows sent since the run began."""
        return self._meter.sent - self._start

    def check(self, rows: int) -> None:
        """Raise :class:`BudgetExhausted` where ``rows`` more are beyond every plan."""
        if self.planned is None or self._meter.budget is not None:
            return
        most = OVERRUN * self.planned[1]
        if self.spent + rows > most:
            raise BudgetExhausted(
                f"the run was planned at {self.planned[1]:,} queries at most, has asked "
                f"{self.spent:,} and would pass {OVERRUN} times that; it follows something that "
                f"may not be there. Set a budget (budget=, --budget) to allow it more"
            )


def _range(low: float, high: float) -> Price:
    return round(low / MARGIN), round(high * MARGIN)


def price_two_layer(
    d: int, m: int, hyperplanes: float, *, coarse: bool = False, orthant: bool = False
) -> Price:
    """Return the price of one hidden layer: lines, gradients, certificate."""

    def price(k: float) -> float:
        lines = 100.0 + 6.0 * k
        gradients = d * (k * 1.2 / m + 3.0) + 0.1 * k * d
        certificate = 4300.0 if orthant else 3300.0
        return (lines + gradients) * (4.0 if coarse or orthant else 1.0) + certificate

    # In a part of space a line meets fewer of the hyperplanes.
    most = hyperplanes * (UNSURE**2 if orthant else UNSURE)
    return _range(price(max(1.0, hyperplanes / UNSURE)), price(max(1.0, most)))


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

    return _range(price(max(1.0, hyperplanes / UNSURE)), price(max(1.0, hyperplanes * UNSURE)))


def price_learner(
    d: int, neurons: float, *, coarse: bool = False, samples: Price = (8_000, 28_000)
) -> Price:
    """Return the price of learning to an error, with so many samples and held-out inputs."""

    def price(k: float) -> float:
        return k * (d + 2.0) * (10.0 if coarse else 2.5)

    least, most = samples
    return _range(
        price(max(1.0, neurons / UNSURE)) + least, price(max(1.0, neurons * UNSURE)) + most
    )


def price_span(d: int, m: int, ranks: tuple[float, float]) -> Price:
    """Return the price of a span of a rank between two guesses, from values."""
    low, high = (rank * d * (1.0 / m + 100.0 / d) + 600.0 for rank in ranks)
    return _range(low, high)


def price_span_from_labels(d: int, ranks: tuple[float, float]) -> Price:
    """Return the same from labels: a bisection a normal's entry."""
    low, high = (rank * (60.0 * d + 4000.0) for rank in ranks)
    return _range(low, high)


def price_halfspaces(d: int, facets: tuple[float, float]) -> Price:
    """Return the price of a number of facets between two guesses: bisections, rays, certificate.

    A facet takes d lines to see its slopes, and d more to measure them.
    """
    least, most = facets
    return _range(least * (50.0 * d + 150.0) + 3_500.0, most * (65.0 * d + 450.0) + 8_000.0)


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
    return _range(samples + low, samples + high + 2_000.0)


def price_labels(d: int, classes: int, units: float) -> Price:
    """Return the price of a network from labels: a search, then a bisection a parameter."""
    parameters = units * (d + 1.0) + max(1, classes - 1) * (units + 1.0)
    return _range(60.0 * parameters + 24_000.0, 600.0 * parameters + 30_000.0 * classes)


def price_any_depth(d: int, m: int, hyperplanes: float) -> Price:
    """Return the price of any number of hidden layers, whose units one line shows."""

    def price(k: float, each: float) -> float:
        return k * (d + 1.0 + m) * each + 12_300.0

    return _range(price(hyperplanes, 4.0), price(hyperplanes, 15.0))


def price_noisy(d: int, m: int, hyperplanes: float) -> Price:
    """Return the price of one hidden layer from noisy answers: lines, lift, fit, certificate."""

    def price(k: float) -> float:
        parameters = k * (d + 1.0 + m) + m
        return 1500.0 + 60.0 * k + 4.0 * parameters / m + 3.0 * d + 1300.0

    return _range(price(max(1.0, hyperplanes / UNSURE)), price(max(1.0, hyperplanes * UNSURE)))
