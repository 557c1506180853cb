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

SKIP = {"harness", "report", "__main__"}
FOLDER = Path(__file__).parent / ".cache" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--suite", choices=("quick", "full"), default="quick")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = [
        info.name
        for info in pkgutil.iter_modules([str(Path(__file__).parent)])
        if info.name not in SKIP
    ]
    for name in names:
        if not hasattr(importlib.import_module(f"benchmarks.{name}"), "ROWS"):
            continue
        print(f"\n== {name} ==", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", "--jobs", str(options.jobs)]
        command += ["--results", str(FOLDER)]
        if options.suite == "quick":
            command.append("--quick")
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
