"""How much is at risk, by a rule that the report prints, and what to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from unrelu.report.copies import CopyPoint
from unrelu.report.simulation import Defence
from unrelu.result import RecoveryResult, Status

__all__ = ["CLOSE", "RULE", "USABLE", "Risk", "actions", "risk_of"]

CLOSE, USABLE = 0.99, 0.9
"""Agreement of a copy that stands in for the model, and of one that is worth having."""
RULE = (
    f"High: an exact copy was made, or an ordinary one that agrees on {100 * CLOSE:.0f} % of "
    f"inputs (where the answer is one number: that is off by {100 * (1 - CLOSE):.0f} % of what "
    f"answers vary by). Medium: the same for {100 * USABLE:.0f} %, or the weights leak in part. "
    "Low: neither, and every attack ran to its end. Not shown: an attack was cut short and found "
    "none of this, so nothing is known."
)


@dataclasses.dataclass(frozen=True)
class Risk:
    """A level and the reason for it.

    ``level`` is ``"high"``, ``"medium"``, ``"low"`` or ``"not shown"``.
    """

    level: str
    reason: str


def risk_of(
    result: RecoveryResult,
    copies: Sequence[CopyPoint],
    *,
    leaking: bool,
    cut_short: bool = False,
) -> Risk:
    """Return the risk of a model, by :data:`RULE`."""
    learned = () if result.success else _label_copy(result)
    best = max((*copies, *learned), key=lambda point: point.agreement, default=None)
    if result.copied and result.network is not None and not learned:
        exact = result.findings().copy_error is None
        return Risk(
            "high", f"{'an exact' if exact else 'a close'} copy was made from answers alone"
        )
    told = "" if best is None else _told(best)
    if best is not None and best.agreement >= CLOSE:
        return Risk("high", told)
    if best is not None and best.agreement >= USABLE:
        return Risk("medium", told)
    if leaking:
        return Risk("medium", "part of the weights leaks, if not all")
    if cut_short or result.status is Status.BUDGET_EXHAUSTED or best is None:
        return Risk("not shown", "the attack was cut short before it found anything")
    return Risk("low", f"no exact copy was made, and {told}")


def _told(best: CopyPoint) -> str:
    return f"a copy trained on {best.queries:,} answers agrees to {100 * best.agreement:.1f} %"


def _label_copy(result: RecoveryResult) -> tuple[CopyPoint, ...]:
    """Return how far a network learned from labels agrees: it is an ordinary copy."""
    found = result.certificate
    if not result.findings().labels or found is None or not result.copied:
        return ()
    return (CopyPoint(result.queries.total, 1.0 - found.exceeding / found.samples),)


def actions(
    risk: Risk,
    needed: int | None,
    copies: Sequence[CopyPoint],
    best_defence: Defence | None,
    defences: Sequence[Defence],
) -> tuple[str, ...]:
    """Return what to do, most urgent first."""
    found = []
    cheapest = [needed] if needed is not None else []
    cheapest += [point.queries for point in copies if point.agreement >= USABLE][:1]
    if cheapest:
        found.append(
            f"Limit each user, and all users together, to well below {min(cheapest):,} queries "
            "in the time after which a copy would be worthless; alert on users who come near."
        )
    if best_defence is not None:
        found.append(
            f"Change the answers: {best_defence.name}. It stops the exact attack and changes the "
            f"top class of {100 * best_defence.label_change:.2g} % of inputs."
        )
        found.append(
            "Do both: the changed answers still teach an ordinary copy, and a limit alone does "
            "not stop users who join."
        )
    elif unfinished := [d.name for d in defences if d.changes_answers and not d.finished]:
        stopped = any(d.status == "UNFINISHED" for d in defences)
        found.append(
            f"Do not rely on changing the answers yet: the attack on {len(unfinished)} of the "
            "changes was not tried to its end."
            + (" Run the audit again with more --patience, or without." if stopped else "")
        )
    elif defences:
        found.append(
            "Do not rely on changing the answers: none of the changes tried surely stops the "
            "attack at a price that honest users would pay."
        )
    found.append(
        "Log queries, and look for inputs that lie on straight lines or far from real ones: exact "
        "attacks need them."
    )
    if risk.level == "not shown":
        found.insert(0, "Run the audit again with a larger --budget: this one cannot tell.")
    if risk.level in {"high", "medium"}:
        found.append("Treat the model as public when you decide what its training data may hold.")
    return tuple(found)
