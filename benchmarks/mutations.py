"""Break one formula at a time, and see the test that names it fail.

``python -m benchmarks.mutations [paper ...]`` reads the rows ``MUTATIONS`` of
``benchmarks/mutations_PAPER.py``: ``(file, old, new, test)``. Each is made in a copy of the
repository, where the one place of ``file`` that reads ``old`` is made to read ``new``, and
``test`` must fail. Before that every test named must pass in the copy as it is. Outcomes go to
``benchmarks/results/mutations.jsonl``, from which the papers page tells them; rows that were
noticed before are left out unless ``--fresh`` asks for all.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.records import load, record
from benchmarks.report_common import markdown

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "benchmarks", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")
PREFIX = "mutations_"
SUITE = "mutations"
FAILED = 1  # of pytest: it ran, and some tests failed
UNENDED = -1  # it was stopped
LONGEST = 240.0  # seconds a test; a broken loop may have no end, and is noticed too
Mutation = tuple[str, str, str, str]


def papers() -> list[str]:
    """Return the papers with mutations."""
    found = Path(__file__).parent.glob(f"{PREFIX}*.py")
    return sorted(path.stem.removeprefix(PREFIX) for path in found)


def mutations(paper: str) -> list[Mutation]:
    """Return a paper's rows."""
    rows: list[Mutation] = importlib.import_module(f"benchmarks.{PREFIX}{paper}").MUTATIONS
    return rows


def mutated(text: str, old: str, new: str) -> str:
    """Return the text with its one ``old`` replaced, or raise."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is there {text.count(old)} times, not once")
    return text.replace(old, new)


@contextmanager
def copied() -> Iterator[Path]:
    """Give a copy of the repository, without what is generated."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__", ".cache", "results", "figures")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=ignored)
            elif (ROOT / name).exists():
                shutil.copy(ROOT / name, copy / name)
        yield copy


def outcome(copy: Path, tests: list[str]) -> int:
    """Run tests in a copy; return pytest's status, or that they did not end."""
    paths = os.pathsep.join([str(copy / "src"), str(copy)])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    limit = LONGEST * len(tests)
    try:
        return subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, check=False, timeout=limit
        ).returncode
    except subprocess.TimeoutExpired:
        return UNENDED


def name_of(paper: str, row: Mutation) -> str:
    """Return the name under which a mutation's outcome is on file."""
    file, old, new, test = row
    return f"{paper}: {file}: {old} -> {new}: {test}"


def on_file(paper: str) -> dict[str, dict[str, Any]]:
    """Return the outcomes of a paper's present rows, by name; of rows changed since, none."""
    rows = load(SUITE)["rows"]
    names = [name_of(paper, row) for row in mutations(paper)]
    return {name: rows[name]["runs"][-1] for name in names if name in rows}


def run(paper: str, copy: Path, *, fresh: bool) -> int:
    """Try a paper's mutations, tell and record each, and count those on file not noticed."""
    known = {} if fresh else on_file(paper)
    done = {name for name, run in known.items() if run["success"]}
    rows = [row for row in mutations(paper) if name_of(paper, row) not in done]
    tests = sorted({test for *_, test in rows})
    if tests and outcome(copy, tests) != 0:
        raise SystemExit(f"{paper}: a test fails before anything is changed")
    for row in rows:
        file, old, new, test = row
        path = copy / file
        before = path.read_text()
        path.write_text(mutated(before, old, new))
        status = outcome(copy, [test])
        path.write_text(before)
        told = {FAILED: "fails", UNENDED: "does not end"}.get(status, "PASSES, though broken")
        noticed = status in (FAILED, UNENDED)
        record(SUITE, name_of(paper, row), {"success": noticed, "told": told})
        print(f"| {file} | `{old}` → `{new}` | {test.partition('::')[2]} | {told} |", flush=True)
    found = on_file(paper).values()
    noticed_all = sum(run["success"] for run in found)
    print(f"{paper}: {noticed_all} of {len(found)} noticed", flush=True)
    return len(found) - noticed_all


def table() -> str:
    """Return, for each paper, how many mutations there are and what became of them."""
    rows = []
    for paper in papers():
        found = list(on_file(paper).values())
        noticed = sum(run["success"] for run in found)
        unended = sum(run["told"] == "does not end" for run in found)
        every = len(mutations(paper))
        counts = (every, len(found), noticed, unended, len(found) - noticed)
        rows.append([paper, *map(str, counts)])
    header = ["paper", "mutations", "tried", "noticed", "of these without end", "not noticed"]
    return markdown(header, rows)


def main() -> None:
    known = papers()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations")
    parser.add_argument("papers", nargs="*", metavar="paper", help=f"of {', '.join(known)}")
    parser.add_argument("--fresh", action="store_true", help="try again what is on file")
    options = parser.parse_args()
    if unknown := set(options.papers) - set(known):
        parser.error(f"no such paper: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    with copied() as copy:
        unnoticed = sum(run(paper, copy, fresh=options.fresh) for paper in options.papers or known)
    if unnoticed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
