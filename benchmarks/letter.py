"""The five papers to the letter: ``python -m benchmarks.letter [part ...]``.

Runs the suites ``benchmarks/letter_*.py``, one for each paper (all that are there, or those
named), and prints their tables; ``--show`` prints what was measured before. Each also runs on
its own, as ``python -m benchmarks.letter_daniely``, with the options of every suite.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.harness import load, print_table, run_suite

PREFIX = "letter_"


def parts() -> list[str]:
    """Return the papers that have a suite."""
    found = Path(__file__).parent.glob(f"{PREFIX}*.py")
    return sorted(
        name
        for name in (path.stem.removeprefix(PREFIX) for path in found)
        if hasattr(importlib.import_module(f"benchmarks.{PREFIX}{name}"), "ROWS")
    )


def main() -> None:
    known = parts()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.letter")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(known)}")
    parser.add_argument("--seeds", type=int, help="at most this many seeds a row")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the tables, run nothing")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for part in options.parts or known:
        suite = f"{PREFIX}{part}"
        rows = importlib.import_module(f"benchmarks.{suite}").ROWS
        print(f"\n== {part} ==")
        if options.show:
            data = load(suite)
        else:
            data = run_suite(suite, rows, seeds=options.seeds, jobs=options.jobs)
        print_table(data, [row.name for row in rows])


if __name__ == "__main__":
    main()
