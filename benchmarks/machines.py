"""The same rates on every machine: suites run as other CPUs would, side by side.

``OPENBLAS_CORETYPE`` makes numpy multiply as on an older CPU: other sums, other last bits.
``python -m benchmarks.machines --seeds 20`` runs the suites on each core type, into
``benchmarks/.cache/machines/CORE``, and prints one line a row: successes, median queries
and largest error among successes, by core type, and which seeds differ.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import load

SUITES = ("two_layer", "three_layer", "query_learner", "span")
CORES = ("native", "Haswell", "Nehalem")
FOLDER = Path(__file__).parent / ".cache" / "machines"


def run(suite: str, core: str, seeds: int, jobs: int, rows: str, longest: float) -> None:
    """Run what is missing of one suite as one core type."""
    environment = dict(os.environ) | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("OPENBLAS_CORETYPE", None)
    if core != "native":
        environment["OPENBLAS_CORETYPE"] = core
    command = [sys.executable, "-m", f"benchmarks.{suite}", "--seeds", str(seeds)]
    command += ["--jobs", str(jobs), "--results", str(FOLDER / core)]
    for name in affordable(suite, rows, longest):
        subprocess.run([*command, "--rows", name], env=environment, check=True)


def affordable(suite: str, rows: str, longest: float) -> list[str]:
    """Return the rows whose published runs take no longer than ``longest`` in the median."""
    published = load(suite)["rows"]
    return [
        name
        for name, entry in published.items()
        if rows in name and statistics.median(run["wall"] for run in entry["runs"]) <= longest
    ]


def by_seed(suite: str, core: str, row: str) -> dict[int, Mapping[str, Any]]:
    """Return the outcomes of a row."""
    runs = load(suite, FOLDER / core)["rows"].get(row, {}).get("runs", ())
    return {outcome["seed"]: outcome for outcome in runs}


def compare(suite: str, cores: Sequence[str]) -> list[str]:
    """Return one line a row."""
    names = dict.fromkeys(name for core in cores for name in load(suite, FOLDER / core)["rows"])
    lines = []
    for name in names:
        outcomes = {core: by_seed(suite, core, name) for core in cores}
        common = set.intersection(*(set(runs) for runs in outcomes.values()))
        if not common:
            continue
        cells = []
        for core in cores:
            runs = [outcomes[core][seed] for seed in sorted(common)]
            good = [r for r in runs if r["success"]]
            queries = [r["queries"] for r in good if "queries" in r]
            errors = [r.get("error", r.get("angle", 0.0)) for r in good]
            asked = f"{statistics.median(queries):,.0f}" if queries else "-"
            cells.append(f"{len(good)}/{len(runs)} {asked} {max(errors, default=0.0):.1e}")
        differ = [
            seed
            for seed in sorted(common)
            if len({outcomes[core][seed]["success"] for core in cores}) > 1
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {differ or 'none'} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cores", nargs="+", default=list(CORES))
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=SUITES)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument(
        "--longest", type=float, default=600.0, help="leave out rows of more seconds a run"
    )
    parser.add_argument("--show", action="store_true", help="print the table, run nothing")
    options = parser.parse_args()
    for suite in () if options.show else options.suites:
        for core in options.cores:
            run(suite, core, options.seeds, options.jobs, options.rows, options.longest)
    print("| row | " + " | ".join(options.cores) + " | seeds that differ |")
    print("| --- " * (len(options.cores) + 2) + "|")
    for suite in options.suites:
        print("\n".join(compare(suite, options.cores)))


if __name__ == "__main__":
    main()
