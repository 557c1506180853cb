"""How a plan and its price are told, to a person or a machine."""

from __future__ import annotations

from typing import Any

from unrelu.choose import ExtractionPlan
from unrelu.cli._common import console, duration
from unrelu.oracles import Oracle

__all__ = ["priced", "tell_plan"]


def tell_plan(plan: ExtractionPlan, oracle: Oracle, rate: float | None) -> None:
    """Say what was seen, what was chosen, and what it costs in queries, money and time."""
    console.print(plan.sentence(), markup=False)
    low, high = plan.queries
    price, budget = oracle.meter.price, oracle.meter.budget
    lines = []
    if high and price is not None:
        lines.append(f"at {price:g} a query: {low * price:,.2f} to {high * price:,.2f} in money")
    if high and rate is not None:
        lines.append(
            f"at {rate:g} queries a second: {duration(low / rate)} to {duration(high / rate)}"
        )
    if high and budget is not None:
        left = max(0, budget - oracle.queries.total)
        enough = "enough" if left >= high else "perhaps enough" if left >= low else "not enough"
        lines.append(f"the budget leaves {left:,} queries: {enough}")
    if plan.spent:
        lines.append(f"(this look took {plan.spent:,} queries)")
    for line in lines:
        console.print(f"  {line}", markup=False)


def priced(plan: ExtractionPlan, oracle: Oracle, rate: float | None) -> dict[str, Any]:
    """Return the same as plain values."""
    facts = plan.to_dict()
    low, high = plan.queries
    for name, unit in (("cost", oracle.meter.price), ("seconds", rate and 1.0 / rate)):
        if unit is not None:
            facts[name] = {"low": low * unit, "high": high * unit}
    return facts
