"""Run all benchmarks: ``python -m benchmarks --suite quick|full``.

Outcomes go to ``benchmarks/.cache/results``, beside the published ones in
``benchmarks/results``; a second call resumes the first.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import quick_rows

PEERS, HOSTILE = "peers", "hostile"  # packages with command lines of their own
FOLDER = Path(__file__).parent / ".cache" / "results"


def suites(which: str) -> list[str]:
    """Return the modules that run: all with rows, those with a quick row, and the packages."""
    names = []
    for info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if info.name.startswith("_"):
            continue
        rows = getattr(importlib.import_module(f"benchmarks.{info.name}"), "ROWS", ())
        if quick_rows(info.name, rows) if which == "quick" else rows:
            names.append(info.name)
    return [*names, HOSTILE, PEERS, *([f"{PEERS}.moments"] if which == "full" else [])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--suite", choices=("quick", "full"), default="quick")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    for name in suites(options.suite):
        print(f"\n== {name} ==", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", "--jobs", str(options.jobs)]
        command += ["--results", str(FOLDER)]
        if options.suite == "quick":
            command.append("--quick")
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
