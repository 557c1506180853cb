"""Does a plan's high end cover what runs ask? ``python -m benchmarks.prices``.

Prints one line a suite, from the runs on file: how many carry their plan, the share of them
that asked no more than its high end, the largest ratio of the two, and the rows of the runs
that asked more.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from benchmarks.records import RESULTS, load

SUITES = ("two_layer", "three_layer", "query_learner", "span", "thresholds")


def covered(suite: str, folders: list[Path]) -> tuple[int, int, float, Counter[str]]:
    """Return runs with a plan, those within it, the largest ratio, and rows of the others."""
    runs = within = 0
    largest = 0.0
    beyond: Counter[str] = Counter()
    for folder in folders:
        for name, entry in load(suite, folder)["rows"].items():
            for run in entry["runs"]:
                if "planned" not in run:
                    continue
                ratio = run["asked"] / run["planned"]
                runs, within, largest = runs + 1, within + (ratio <= 1.0), max(largest, ratio)
                if ratio > 1.0:
                    beyond[name] += 1
    return runs, within, largest, beyond


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prices")
    parser.add_argument("--results", type=Path, nargs="+", default=[RESULTS])
    options = parser.parse_args()
    print("| suite | runs with a plan | within its high end | largest ratio | beyond |")
    print("| --- | --- | --- | --- | --- |")
    total = inside = 0
    for suite in SUITES:
        runs, within, largest, beyond = covered(suite, options.results)
        if runs:
            where = ", ".join(f"{name}: {count}" for name, count in beyond.items()) or "-"
            print(f"| {suite} | {runs} | {within / runs:.1%} | {largest:.2f} | {where} |")
        total, inside = total + runs, inside + within
    if total:
        print(f"| all | {total} | {inside / total:.1%} | | |")


if __name__ == "__main__":
    main()
