"""What a run was planned to cost: queries at most, by the library's own plan.

Adapt here when a function learns to plan for itself. ``extract`` writes its plan into the
result. For another function a plan is made before a fresh copy of the target and priced
for that function; functions that no plan knows have the estimate of their own docs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import unrelu

TIMES = 4.0
"""A run that asks more than this many times the plan's high end is slow."""
CHEAP = 2000
"""No plan's high end lies below a quarter of this: such runs need not be held against one."""


def written_in(result: Any) -> float | None:
    """Return the high end of the plan that a function put into its result."""
    for stage in getattr(result, "stages", ()):
        expected = stage.details.get("expected queries") if stage.name == "plan" else None
        if expected:
            return float(expected[1])
    return None


def planned_for(
    method: str, connect: Callable[[], Any], domain: Any, seed: int, epsilon: float = 0.0
) -> float | None:
    """Return the high end of a plan for ``method`` before a fresh copy of the target."""
    try:
        plan = unrelu.plan_extraction(connect(), domain=domain, rng=seed)
        chosen = plan.for_method(method, "chosen", epsilon)
    except unrelu.UnreluError:
        return None
    return float(chosen.spent + chosen.queries[1])


def is_over(total: int, price: Callable[[], float | None]) -> tuple[bool, float | None]:
    """Whether ``total`` queries exceed four times the plan, and what the plan said."""
    if total <= CHEAP:
        return False, None
    high = price()
    return high is not None and total > TIMES * high, high
