"""The outcomes of the hostile cases, as tables: by function, by sort of target, by core type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from benchmarks.harness import RESULTS
from benchmarks.report_common import markdown

__all__ = ["BLOCKS"]

FILE = RESULTS / "hostile.jsonl"
MISSING = "Not measured yet: `python -m benchmarks.hostile`."


@lru_cache(maxsize=1)
def _cores() -> dict[str, list[dict[str, Any]]]:
    """Return the latest outcome of every case, by core type, in the order of the cases."""
    from benchmarks.hostile.lines import latest, read

    lines = read(FILE)
    names = dict.fromkeys(line["core"] for line in lines)
    cores = {name: list(latest(lines, name).values()) for name in names}
    return dict(sorted(cores.items(), key=lambda item: (item[0] != "native", item[0])))


def _table(groups: Iterable[tuple[str, list[dict[str, Any]]]], first: str) -> str:
    from benchmarks.hostile.table import HEADER, row

    return markdown([first, *HEADER[1:]], [row(name, lines) for name, lines in groups])


def _grouped(part: int, first: str) -> str:
    cores = _cores()
    if not cores:
        return MISSING
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(next(iter(cores.values())), key=lambda line: line["id"]):
        names = line["kind"].split(": ", 1)
        groups.setdefault(names[min(part, len(names) - 1)], []).append(line)
    everything = [line for lines in groups.values() for line in lines]
    return _table([*sorted(groups.items()), ("all", everything)], first)


def by_core() -> str:
    """Return all outcomes for each core type, and what was run where."""
    cores = _cores()
    if not cores:
        return MISSING
    kinds = {line["kind"] for lines in cores.values() for line in lines}
    last = next(iter(cores.values()))[-1]
    codes = sorted({line["code"] for lines in cores.values() for line in lines})
    commit = f" (commit {last['commit']})" if last["commit"] else ""
    return (
        f"{_table(cores.items(), 'core type')}\n\n{len(kinds)} kinds; code "
        f"{', '.join(codes)}{commit}, {last['processor']}, numpy {last['numpy']}."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "hostile-cores": by_core,
    "hostile-functions": lambda: _grouped(0, "function"),
    "hostile-targets": lambda: _grouped(1, "sort of target"),
}
