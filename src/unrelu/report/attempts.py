"""Attacks on the target itself, until one gets through or several have failed.

One attack alone may be unlucky in where it looks first: that it failed says little of the
next one. So a target is called hard to copy only where several failed, each with a seed of its
own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from unrelu._random import RandomState
from unrelu._types import FloatArray
from unrelu.choose import ExtractionPlan, extract, plan_extraction
from unrelu.errors import OracleError
from unrelu.lines.facts import Area
from unrelu.oracles import Oracle, Wrapper
from unrelu.progress import Progress
from unrelu.result import RecoveryResult, Status

__all__ = ["Attack", "Attacked", "Look", "looked_in", "run_attacks"]

Attack = Callable[[Oracle, ExtractionPlan, RandomState, Progress], RecoveryResult]
"""Recovers what it can of a target, by a plan."""
Look = Callable[[Oracle, RandomState], ExtractionPlan]
"""Looks at a target and makes a plan."""


@dataclasses.dataclass(frozen=True)
class Attacked:
    """The attack that got furthest, and what it took."""

    plan: ExtractionPlan
    result: RecoveryResult
    asked: int
    """Queries of this attack alone, its certificate too; the look that planned it aside."""
    needed: int
    """Those that one needs who knows the method: neither the first look nor certainty."""
    attacks: int = 1
    """Attacks that were run to their end."""
    cut_short: bool = False
    """Whether it failed, and others that might not were not run to their end."""


class _Asked(Wrapper):
    """Counts what one attack asks, whether the target answers or a ledger of earlier runs."""

    def __init__(self, inner: Oracle) -> None:
        super().__init__(inner)
        self.by_stage: dict[str, int] = {}

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        stage = self.meter.stage_name
        self.by_stage[stage] = self.by_stage.get(stage, 0) + len(points)
        return super()._answer(points, repeat)


def run_attacks(
    target: Oracle,
    domain: Area,
    attack: Attack | None,
    look: Look | None,
    plan: ExtractionPlan | None,
    *,
    rng: RandomState,
    attempts: int,
    progress: Progress,
) -> Attacked:
    """Attack by the plan, and where that fails look and attack anew.

    Parameters
    ----------
    domain
        Where the target may be asked.
    attack, look, plan
        What recovers, what plans, and the first plan; :func:`unrelu.extract` and
        :func:`unrelu.plan_extraction` where not given.

    Returns
    -------
    Attacked
        The first copy, or the attack that told most.
    """
    look = look or _looking(domain)
    attack = attack or _chosen(domain)
    if plan is None:
        progress.update("looking", 0, None)
        plan = look(target, rng)
    best = _attacked(target, plan, attack, rng, progress)
    for number in range(1, attempts):
        if best.result.copied or best.cut_short:
            break
        progress.update("another attack", number + 1, attempts)
        seed = rng + number if isinstance(rng, int) else rng
        try:
            other = _attacked(target, look(target, seed), attack, seed, progress)
        except OracleError:  # no more answers: what is known stays
            return dataclasses.replace(best, cut_short=True)
        further = max(best, other, key=lambda one: _told(one.result))
        best = dataclasses.replace(
            further, attacks=number + 1, cut_short=other.cut_short and not other.result.copied
        )
    return best


def _looking(domain: Area) -> Look:
    """Return what plans an attack within a domain."""
    return lambda target, rng: plan_extraction(target, domain=domain, rng=rng)


def _chosen(domain: Area) -> Attack:
    """Return the attack that looks and chooses, within a domain."""
    return lambda target, plan, rng, progress: extract(
        target, domain=domain, plan=plan, rng=rng, progress=progress
    )


def _attacked(
    target: Oracle, plan: ExtractionPlan, attack: Attack, rng: RandomState, progress: Progress
) -> Attacked:
    counted = _Asked(target)
    result = attack(counted, plan, rng, progress)
    stages = counted.by_stage
    asked = sum(stages.values())
    # A certificate that failed has become data: what the meter still calls so was for certainty.
    certain = result.queries.by_stage.get("certificate", 0)
    certain = min(certain, stages.get("certificate", 0))
    return Attacked(
        plan,
        result,
        asked,
        max(1, asked - looked_in(stages) - certain),
        cut_short=result.status is Status.BUDGET_EXHAUSTED,
    )


def looked_in(stages: Mapping[str, int]) -> int:
    """Return the queries of first looks, which one does not need who knows the method."""
    return sum(stages.get(name, 0) for name in ("connect", "diagnosis", "depth"))


def _told(result: RecoveryResult) -> tuple[bool, int, int]:
    """Return what failed attacks are compared by: a copy, then what leaked."""
    found = result.findings()
    return result.copied, found.rank or 0, found.units
