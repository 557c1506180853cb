"""What ran where: a hash of the sources, the commit they are, and the machine.

A run is stamped with a hash of ``src/`` and ``benchmarks/**/*.py`` and with a hash of the
machine. Two commits that differ in documentation alone have the same sources, so their
runs count as one; a tree that was edited has a hash of its own and no commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
DIGITS = 12  # of a hash: 16^12 trees, no two of which will meet


def digest(package: Path, benchmarks: Path = BENCHMARKS) -> str:
    """Return the hash of a package's files and of all Python files of the benchmarks."""
    every = sorted(path for path in package.rglob("*") if path.is_file())
    files = {f"src/{package.name}/{path.relative_to(package)}": path for path in every}
    for path in sorted(benchmarks.rglob("*.py")):
        files[f"benchmarks/{path.relative_to(benchmarks)}"] = path
    sums = hashlib.sha256()
    for name, path in files.items():
        if "__pycache__" not in name and "/.cache/" not in name:
            sums.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return sums.hexdigest()[:DIGITS]


@lru_cache(maxsize=1)
def code() -> str:
    """Return the hash of what runs: the imported package and these benchmarks.

    Taken once, when a process starts to measure: what is edited later does not run in it.
    """
    import unrelu

    return digest(Path(unrelu.__file__).parent)


def _git(*arguments: str) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, cwd=BENCHMARKS.parent, check=False
        ).stdout.strip()
    return ""


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the commit that holds these sources; nothing where they were edited since.

    A copy of the tree without git (on a GPU machine, say) is told by ``UNRELU_COMMIT``.
    """
    told = os.environ.get("UNRELU_COMMIT")
    if told:
        return told.removesuffix("-dirty")
    if _git("status", "--porcelain", "--", "src", "benchmarks/*.py", "benchmarks/**/*.py"):
        return ""
    return _git("rev-parse", "--short", "HEAD")


@lru_cache(maxsize=1)
def facts() -> dict[str, Any]:
    """Describe the machine: processor, versions, and the core type that BLAS was told to be."""
    import numpy
    import scipy

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    found = {
        "cores": os.cpu_count(),
        "processor": model,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }
    core = os.environ.get("OPENBLAS_CORETYPE")
    return found | ({"core_type": core} if core else {})


def machine() -> dict[str, Any]:
    """Say with what and where the figures of this process are measured."""
    return {"commit": commit(), "code": code()} | facts()


def name_of(machine_facts: dict[str, Any]) -> str:
    """Return a short name for a machine, the same for equal facts."""
    text = repr(sorted(machine_facts.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:6]
