"""What all generated tables share: how a number, a row's target and its median are written."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import summary


def figure(value: float) -> str:
    """Format a number for a table."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+")


def short(value: float | None) -> str:
    """Format a number with two digits, or a dash."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1e4:
        return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+")


def count(value: float | None) -> str:
    """Format a whole number with thousands apart, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def median(runs: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the median of a key over the runs that have it."""
    values = [float(run[key]) for run in runs if isinstance(run.get(key), (int, float))]
    return statistics.median(values) if values else None


WORDS = {"own_seconds": "computing seconds", "cpu_seconds": "processor seconds"}
"""How keys of the results are written for a reader."""


def required(entry: Mapping[str, Any]) -> str:
    """Say which figures a row must reach."""
    parts = []
    for key, value in entry.get("target", {}).items():
        kind, _, name = key.rpartition(":")
        name = WORDS.get(name, name)
        if key == "success":
            parts.append(f"{value:g}/{entry['seeds']} succeed")
        elif kind == "count":
            parts.append(f"{name} in {value:g}/{entry['seeds']}")
        elif kind:
            parts.append(f"{'' if kind == 'max' else 'mean '}{name} ≤ {figure(value)}")
        else:
            parts.append(f"median {name} ≤ {figure(value)}")
    return ", ".join(parts)


def measured(entry: Mapping[str, Any]) -> str:
    """Say what was measured, for each key that the row asks about."""
    facts, runs = summary(entry), entry["runs"]
    parts = []
    for key in dict.fromkeys(k.removeprefix("max:") for k in entry.get("target", {})):
        kind, _, name = key.rpartition(":")
        if kind == "count":
            parts.append(f"{name} in {sum(bool(run.get(name)) for run in runs)}/{len(runs)}")
        elif kind == "mean":
            values = [float(run[name]) for run in runs if name in run]
            parts.append(f"mean {name} {figure(statistics.fmean(values))}" if values else "")
        elif isinstance(facts.get(key), dict):
            median_, most = facts[key]["median"], facts[key]["max"]
            parts.append(f"{WORDS.get(key, key)} {figure(median_)} (max {figure(most)})")
    return ", ".join(filter(None, parts))


def measured_where(data: Mapping[str, Any]) -> str:
    """Say on which machine a suite's latest run was, and from which code its runs are.

    A code is a hash of the sources; commits that have the same sources are one code. Runs
    from before there were hashes, of sources that no commit has, are counted as such.
    """
    where = data.get("machine", {})
    codes = data.get("codes", {})
    total = sum(code["runs"] for code in codes.values())
    parts = []
    latest_first = [name for name in reversed(codes) if name]
    for name in (*latest_first, *([""] if "" in codes else [])):
        code = codes[name]
        commit = f" (commit {code['commit']})" if code.get("commit") else ""
        said = f"code {name}{commit}" if name else "code that was not noted"
        share = "" if code["runs"] == total else f": {code['runs']:,} runs"
        parts.append(f"{said}{share}")
    machine = (
        f"{where.get('cores')} cores, {where.get('processor')}, Python {where.get('python')}, "
        f"numpy {where.get('numpy')}; "
    )
    return f"{machine if where.get('cores') else ''}{', '.join(parts)}."


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def stamp(path: Path, data: Any) -> None:
    """Write into a drawing which data it was made from."""
    path.write_text(path.read_text().rstrip() + f"\n<!-- data {_digest(data)} -->\n")


def stamped(path: Path, data: Any) -> bool:
    """Whether a drawing was made from these data."""
    return path.exists() and f"data {_digest(data)}" in path.read_text()[-200:]


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, default=float).encode()).hexdigest()[:16]
