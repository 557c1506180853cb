"""What a run may cost: a plan's price, and the end of a run that outgrows it."""

from __future__ import annotations

from unrelu.errors import BudgetExhausted
from unrelu.ledger import FIRST_POINTS
from unrelu.oracles.base import Meter

__all__ = [
    "FIRST_AGAIN",
    "OVERRUN",
    "UNSURE",
    "Allowance",
    "Price",
    "price_between",
]

Price = tuple[int, int]
"""Queries that a method will roughly take, certificate included: a low and a high guess."""

UNSURE = 1.6
"""A look tells the number of hyperplanes within this factor."""
MARGIN = 1.2
"""Methods' formulas are fitted to the benchmarks' tables, good within this factor."""

OVERRUN = 4
"""A run ends when it would ask more than this many times the high end of its plan. A plan
is good within a factor of two; what costs twice that again follows something that is not there."""


FIRST_AGAIN = FIRST_POINTS
"""First points of a run that are asked again where something disagrees: as many as a ledger
keeps."""


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
        if self.spent + rows >= most:  # connecting may have asked a row before
            raise BudgetExhausted(
                f"the run was planned at {self.planned[1]:,} queries at most, has asked "
                f"{self.spent:,} and would reach {OVERRUN} times that; it follows something "
                f"that may not be there. Set a budget (budget=, --budget) to allow it more"
            )


def price_between(low: float, high: float) -> Price:
    """Return a price between two guesses of a formula that is fitted to tables of runs."""
    return round(low / MARGIN), round(high * MARGIN)
