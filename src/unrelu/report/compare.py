"""What changed between two audits of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unrelu.errors import InvalidInput

__all__ = ["changes", "read_audit"]

LEVELS = ("low", "not shown", "medium", "high")


def read_audit(path: Path) -> dict[str, Any]:
    """Return the facts of an earlier audit, as ``unrelu audit --json`` printed them."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read the audit {path}: {error}") from error
    schema = facts.get("schema") if isinstance(facts, dict) else None
    if schema is None or not str(schema).startswith("unrelu-audit/"):
        raise InvalidInput(f"{path} holds no audit: write one with unrelu audit --json > FILE")
    return dict(facts)


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs, in sentences, most important first."""
    found = []
    before, after = old["risk"]["level"], new["risk"]["level"]
    if before != after:
        worse = LEVELS.index(after) > LEVELS.index(before)
        found.append(f"The risk {'rose' if worse else 'fell'} from {before} to {after}.")
    if old["recovered"] != new["recovered"]:
        found.append(
            "The model can be copied exactly now, which it could not before."
            if new["recovered"]
            else "The model can no longer be copied exactly by this attack."
        )
    elif old["recovered"] and old["attack_queries"] != new["attack_queries"]:
        found.append(
            f"A copy takes {new['attack_queries']:,} queries, {old['attack_queries']:,} before."
        )
    first, second = (_best_copy(facts) for facts in (old, new))
    if first is not None and second is not None and abs(first - second) >= _NOTICED:
        found.append(
            f"The best ordinary copy agrees on {100 * second:.1f} % of inputs, "
            f"{100 * first:.1f} % before."
        )
    found += _defences(old, new)
    if old["target"] != new["target"]:
        found.append(f"The targets differ: {old['target']} before, {new['target']} now.")
    return found or ["Nothing that the audit measures has changed."]


_NOTICED = 0.005  # part of inputs: what training a copy twice may differ by


def _best_copy(facts: dict[str, Any]) -> float | None:
    return max((point["agreement"] for point in facts["copies"]), default=None)


def _defences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Say which defences end otherwise than before."""
    before = {defence["name"]: defence["status"] for defence in old["defences"]}
    return [
        f"Behind '{defence['name']}' the attack ends {_words(defence['status'])}, "
        f"{_words(before[defence['name']])} before."
        for defence in new["defences"]
        if before.get(defence["name"], defence["status"]) != defence["status"]
    ]


def _words(status: str) -> str:
    return status.replace("_", " ").lower()
