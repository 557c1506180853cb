"""Break one formula at a time, and see the test that names it fail.

``python -m benchmarks.mutations [paper ...]`` reads the rows ``MUTATIONS`` of
``benchmarks/mutations_PAPER.py``: ``(file, old, new, test)``. Each is made in a copy of the
repository, where the one place of ``file`` that reads ``old`` is made to read ``new``, and
``test`` must fail. Before that every test named must pass in the copy as it is.
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

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "benchmarks", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")
PREFIX = "mutations_"
FAILED = 1  # of pytest: it ran, and some tests failed
LONGEST = 240.0  # seconds; a broken loop may have no end, and is noticed too
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
    """Run tests in a copy; return pytest's status, that of a failure where they do not end."""
    paths = os.pathsep.join([str(copy / "src"), str(copy)])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, check=False, timeout=LONGEST
        ).returncode
    except subprocess.TimeoutExpired:
        return FAILED


def run(paper: str, copy: Path) -> int:
    """Try a paper's mutations, print what became of each, and count those not noticed."""
    rows = mutations(paper)
    tests = sorted({test for *_, test in rows})
    if outcome(copy, tests) != 0:
        raise SystemExit(f"{paper}: a test fails before anything is changed")
    unnoticed = 0
    for file, old, new, test in rows:
        path = copy / file
        before = path.read_text()
        path.write_text(mutated(before, old, new))
        failed = outcome(copy, [test]) == FAILED
        path.write_text(before)
        unnoticed += not failed
        told = "fails" if failed else "PASSES, though broken"
        print(f"| {file} | `{old}` → `{new}` | {test.partition('::')[2]} | {told} |", flush=True)
    print(f"{paper}: {len(rows) - unnoticed} of {len(rows)} noticed", flush=True)
    return unnoticed


def main() -> None:
    known = papers()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations")
    parser.add_argument("papers", nargs="*", metavar="paper", help=f"of {', '.join(known)}")
    options = parser.parse_args()
    if unknown := set(options.papers) - set(known):
        parser.error(f"no such paper: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    with copied() as copy:
        unnoticed = sum(run(paper, copy) for paper in options.papers or known)
    if unnoticed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
