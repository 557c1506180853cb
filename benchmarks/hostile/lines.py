"""Outcomes on file: one JSON line for each case and core type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file of lines; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def latest(lines: Sequence[dict[str, Any]], core: str | None = None) -> dict[str, dict[str, Any]]:
    """Return each case's last line, of one core type where given."""
    return {line["id"]: line for line in lines if core is None or line["core"] == core}
