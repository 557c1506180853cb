"""Results on file: ``benchmarks/results/SUITE.jsonl``, one JSON line for each run.

A line without ``says`` is a run: its ``row`` and ``seed``, what was measured, and the stamps
``code`` and ``machine`` (see :mod:`benchmarks.stamps`). The others say, once each:

``row``      a row's ``target`` and number of ``seeds``, again when they change
``code``     which commit has these sources, where a commit has them
``machine``  processor and versions
``note``     what else a suite says of itself

Lines are only appended, under a lock, so two processes may write at once and a process that
is killed loses its own line at most; the last line of a row and seed is the one that counts.
:func:`forget` alone writes a file anew, also under the lock, old or new but never half.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import stamps

RESULTS = Path(__file__).parent / "results"

Line = dict[str, Any]

#: What names a line of each kind: a later one of the same name replaces it.
NAMED_BY = {
    "run": ("row", "seed"),
    "row": ("row",),
    "code": ("code",),
    "machine": ("name",),
    "note": ("about",),
}


# ------------------------------------------------------------------ lines of any file


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the lock is a file beside it, which outlives a rewrite."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _whole(text: str) -> Iterator[Line]:
    """Yield the lines that are whole: a process may have been killed within one."""
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def read(path: Path) -> list[Line]:
    """Read a file of lines; none where there is no file."""
    return list(_whole(path.read_text())) if path.exists() else []


def _text(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, default=float) + "\n" for line in lines)


def append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Append lines; after one that was cut short, on a new line."""
    with _locked(path), path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(_text(lines).encode())


def keep(path: Path, wanted: Callable[[list[Line]], Sequence[Line]]) -> None:
    """Write a file anew with those of its lines that are wanted."""
    with _locked(path):
        if path.exists():
            temporary = path.parent / f".{path.name}"
            temporary.write_text(_text(wanted(read(path))))
            temporary.replace(path)


# ------------------------------------------------------------------------ one suite's


def file_of(suite: str, folder: Path = RESULTS) -> Path:
    """Return where a suite's results are."""
    return folder / f"{suite}.jsonl"


def load(suite: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Read a suite's results; empty when there are none.

    Returns
    -------
    dict
        ``rows``: by name, with ``target``, ``seeds`` and ``runs`` in the order of the seeds;
        ``codes``: by hash, the commit (empty where none) and how many runs have it, the
        latest last; ``machine``: where the latest run was; and the suite's notes.
    """
    data: dict[str, Any] = {"suite": suite, "rows": {}, "codes": {}, "machine": {}}
    machines: dict[str, Line] = {}
    commits: dict[str, Line] = {}
    runs: dict[str, dict[Any, Line]] = {}
    last: Line = {}
    for line in read(file_of(suite, folder)):
        says = line.pop("says", "run")
        if says == "machine":
            machines[line.pop("name")] = line
        elif says == "code":
            commits[line.pop("code")] = line
        elif says == "note":
            data[line["about"]] = line["said"]
        elif says == "row":
            data["rows"].setdefault(line.pop("row"), {"runs": []}).update(line)
        elif "row" in line:  # the hostile cases have kinds instead
            data["rows"].setdefault(line["row"], {"runs": []})
            last = line
            runs.setdefault(line.pop("row"), {})[line.get("seed")] = line
    for name, by_seed in runs.items():
        data["rows"][name]["runs"] = [
            by_seed[seed] for seed in sorted(by_seed, key=lambda s: (s is None, s))
        ]
        for run in by_seed.values():
            code = run.get("code", "")
            entry = data["codes"].setdefault(code, {"runs": 0} | commits.get(code, {}))
            entry["runs"] += 1
    if runs:
        code = last.get("code", "")
        data["codes"][code] = data["codes"].pop(code)
        where = machines.get(last.get("machine", ""), {})
        data["machine"] = {"code": code, "commit": commits.get(code, {}).get("commit", "")} | where
    return data


def stamped(suite: str, lines: Sequence[Mapping[str, Any]], folder: Path = RESULTS) -> None:
    """Append runs, stamped; say what the stamps mean where the file does not yet."""
    path = file_of(suite, folder)
    code, where = stamps.code(), stamps.facts()
    known = {(line["says"], line.get("name", line.get("code")))
             for line in read(path) if line.get("says") in ("machine", "code")}  # fmt: skip
    name = stamps.name_of(where)
    said: list[Line] = []
    if ("code", code) not in known and stamps.commit():
        said.append({"says": "code", "code": code, "commit": stamps.commit()})
    if ("machine", name) not in known:
        said.append({"says": "machine", "name": name} | where)
    append(path, *said, *({**line, "code": code, "machine": name} for line in lines))


def record(suite: str, row: str, outcome: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Append one run of one row; ``seed`` is part of the outcome where there is one."""
    taken = {"says", "row", "code", "machine"} & outcome.keys()
    if taken:
        raise ValueError(f"an outcome cannot hold {sorted(taken)}: a line's own names")
    seed = {"seed": int(outcome["seed"])} if "seed" in outcome else {}
    stamped(suite, [{"row": row} | seed | dict(outcome)], folder)


def describe(suite: str, row: str, about: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Say what a row asks for, unless the file says just that."""
    entry = load(suite, folder)["rows"].get(row)
    if entry is None or {k: v for k, v in entry.items() if k != "runs"} != dict(about):
        append(file_of(suite, folder), {"says": "row", "row": row} | dict(about))


def note(suite: str, about: str, said: Any, folder: Path = RESULTS) -> None:
    """Say something of a suite as a whole, unless the file says just that."""
    if load(suite, folder).get(about) != said:
        append(file_of(suite, folder), {"says": "note", "about": about, "said": said})


def forget(suite: str, rows: Iterable[str], folder: Path = RESULTS) -> None:
    """Drop the runs of some rows, and older lines of what was measured again since."""
    gone = set(rows)

    def wanted(lines: list[Line]) -> list[Line]:
        last: dict[tuple[Any, ...], Line] = {}
        for line in lines:
            says = line.get("says", "run")
            if says == "run" and line["row"] in gone:
                continue
            last[(says, *(line.get(key) for key in NAMED_BY[says]))] = line
        return list(last.values())

    keep(file_of(suite, folder), wanted)
