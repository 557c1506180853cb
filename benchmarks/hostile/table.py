"""Tables of outcomes: by kind, by core type, and beside another release."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OUTCOMES = ("right", "approximated", "honest", "false", "raw")
HEADER = ("kind", "cases", *OUTCOMES, "slow", "seconds", "at 0.3", "at 3")
Line = Mapping[str, Any]


def is_slow(line: Line) -> bool:
    """Whether a case ran out of time or beyond four times its planned price."""
    return line["outcome"] == "slow" or bool(line["over_price"])


def _largest(lines: Iterable[Line], key: str) -> float | None:
    values = [float(line[key]) for line in lines if line.get(key) is not None]
    return max(values) if values else None


def row(name: str, lines: Sequence[Line]) -> list[str]:
    """Return one line of the table."""
    counts = [sum(line["outcome"] == outcome for line in lines) for outcome in OUTCOMES]
    beside = [_largest(lines, f"at {scale}") for scale in ("0.3", "3")]
    return [
        name,
        str(len(lines)),
        *(str(count) for count in counts),
        str(sum(map(is_slow, lines))),
        f"{statistics.median(line['seconds'] for line in lines):.2f}",
        *("–" if value is None else f"{value:.1e}" for value in beside),
    ]


def by_kind(lines: Iterable[Line]) -> list[list[str]]:
    """Return a row for each kind, and one for all."""
    kinds: dict[str, list[Line]] = {}
    for line in lines:
        kinds.setdefault(line["kind"], []).append(line)
    rows = [row(name, group) for name, group in kinds.items()]
    everything = [line for group in kinds.values() for line in group]
    return [*rows, row("all", everything)] if everything else []


def text(rows: Sequence[Sequence[str]], header: Sequence[str] = HEADER) -> str:
    """Return a table for a terminal."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in (header, *rows)
    ]
    return "\n".join(lines)


def blemishes(lines: Iterable[Line]) -> list[str]:
    """Return a sentence for every case that is false, raw or slow, the worst first."""
    order = {"false": 0, "raw": 1, "slow": 2}
    bad = [line for line in lines if line["outcome"] in order or line["over_price"]]
    bad.sort(key=lambda line: (order.get(line["outcome"], 3), line["kind"], line["seed"]))
    return [
        f"{line['outcome']:<6} {line['id']}: {line['why']}"
        + (f" [{line['queries']:,} queries, planned {line['planned']:,.0f}]"
           if line["over_price"] else "")
        for line in bad
    ]  # fmt: skip


def lost(now: Mapping[str, Line], before: Mapping[str, Line]) -> list[str]:
    """Return the cases that were right before, and are not now."""
    return [
        f"{name}: right before, now {now[name]['outcome']} ({now[name]['why'] or 'no reason'})"
        for name, line in before.items()
        if line["outcome"] == "right" and name in now and now[name]["outcome"] != "right"
    ]
