"""Command line of the comparison with peers."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from benchmarks.harness import RESULTS, load, print_table, run_suite
from benchmarks.peers.environments import REQUIREMENTS, python_of, versions
from benchmarks.peers.runner import Solver
from benchmarks.peers.table import rows
from benchmarks.records import note


def local_solver(text: str) -> Solver:
    """Read ``NAME=PYTHON:DRIVER``, or ``NAME=DRIVER`` for this interpreter."""
    name, _, where = text.partition("=")
    python, _, driver = where.rpartition(":")
    if not name or not Path(driver).is_file():
        raise argparse.ArgumentTypeError(
            f"expected NAME=PYTHON:DRIVER with a script, got {text!r}"
        )
    return Solver(name, Path(driver).resolve(), python=Path(python or sys.executable), exact=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rows", action="append", default=[], help="only rows that contain this")
    parser.add_argument("--seeds", type=int, help="at most this many seeds a row")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget earlier outcomes")
    parser.add_argument("--quick", action="store_true", help="unrelu and scikit-learn, one seed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the lines")
    parser.add_argument("--show", action="store_true", help="print the table, run nothing")
    parser.add_argument(
        "--local",
        type=local_solver,
        action="append",
        default=[],
        metavar="NAME=PYTHON:DRIVER",
        help="a peer of your own; see docs/peers.md",
    )
    options = parser.parse_args()
    chosen = rows(options.results, tuple(options.local))
    chosen = [row for row in chosen if all(text in row.name for text in options.rows)]
    if options.quick:
        chosen = [dataclasses.replace(row, seeds=row.seeds[:1]) for row in chosen if row.quick]
    if not chosen:
        parser.error(f"no row contains all of {options.rows}")
    if not options.show:
        run_suite("peers", chosen, seeds=options.seeds, jobs=options.jobs, fresh=options.fresh,
                  folder=options.results)  # fmt: skip
        there = {name: versions(name) for name in REQUIREMENTS if python_of(name).exists()}
        note("peers", "environments", there, options.results)
    print_table(load("peers", options.results), [row.name for row in chosen])


if __name__ == "__main__":
    main()
