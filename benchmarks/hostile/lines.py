"""Outcomes on file: one JSON line for each case and core type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.records import read

__all__ = ["latest", "read"]


def latest(lines: Sequence[dict[str, Any]], core: str | None = None) -> dict[str, dict[str, Any]]:
    """Return each case's last line, of one core type where given."""
    return {line["id"]: line for line in lines if core is None or line["core"] == core}
