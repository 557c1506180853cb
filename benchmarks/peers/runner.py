"""Run one solver on one target: three processes, a time limit, and nothing lost."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, load
from benchmarks.peers.environments import ROOT, NoEnvironment, prepare
from benchmarks.peers.judge import judge
from benchmarks.peers.problems import PROBLEMS, Problem
from benchmarks.peers.target import TargetProcess, processor_seconds
from unrelu import ReLUNetwork

PATIENCE = 5.0  # wall time allowed over processor time
DRIVERS = Path(__file__).parent / "drivers"
POINTS = Path(__file__).parent.parent / ".cache" / "points"


@dataclasses.dataclass(frozen=True)
class Solver:
    """A driver script and the interpreter that runs it.

    ``environment`` is a key of :data:`environments.REQUIREMENTS`, or None for the
    interpreter that runs the benchmark; ``python`` overrides both.
    """

    name: str
    driver: Path
    environment: str | None = None
    python: Path | None = None
    exact: bool = False  # whether it sets out to recover the function itself

    def interpreter(self) -> Path:
        if self.python is not None:
            return self.python
        return Path(sys.executable) if self.environment is None else prepare(self.environment)


@lru_cache(maxsize=2)
def truth_of(problem: str, seed: int) -> ReLUNetwork:
    return PROBLEMS[problem].make(seed)


def key_of(problem: str, solver: str, setting: str, width: str) -> str:
    """Return the name of a row: target, solver, setting, and whether the widths are told."""
    return f"{problem} | {solver} | {setting} | width {width}"


def rows_granted(problem: str, seed: int, truth: ReLUNetwork, folder: Path) -> int:
    """Return what unrelu spent on this target, certificate included; 2 a parameter if unknown."""
    entry = load("peers", folder)["rows"].get(key_of(problem, "unrelu", "default", "unknown"))
    for run in entry["runs"] if entry else ():
        if run["seed"] == seed and run.get("queries"):
            return int(run["queries"])
    return 2 * truth.parameters


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def _watch(process: subprocess.Popen[Any], timeout: float) -> tuple[int, bool]:
    """Wait for the driver; returns its peak memory in KiB and whether it had to be ended.

    The limit is on processor time, so that a busy machine ends no run early; one that
    sleeps is ended after five times as long.
    """
    peak, wait, deadline = 0, 0.01, time.monotonic() + PATIENCE * timeout
    while process.poll() is None:
        peak = max(peak, _peak_kib(process.pid))
        if processor_seconds(process.pid) > timeout or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the driver leads a group of its own
            process.wait()
            return peak, True
        time.sleep(wait)
        wait = min(0.1, 1.5 * wait)
    return peak, False


def run(
    seed: int,
    *,
    problem: str | Problem,
    solver: Solver,
    setting: str = "default",
    width: str = "unknown",
    timeout: float = 120.0,
    folder: Path = RESULTS,
) -> dict[str, Any]:
    """Run a solver on one target and judge it; a crash, a timeout and a cheat are failures."""
    if isinstance(problem, Problem):
        chosen, truth = problem, problem.make(seed)
    else:
        chosen, truth = PROBLEMS[problem], truth_of(problem, seed)
    heldout = chosen.heldout(seed, truth.input_dim)
    points = POINTS / f"{chosen.name.replace(' ', '_')}-{seed}.npy"
    task = {
        "input_dim": truth.input_dim,
        "output_dim": truth.output_dim,
        "hidden": list(truth.hidden_widths) if width == "given" else None,
        "seed": int(np.random.default_rng((seed, 5)).integers(2**31)),
        "setting": setting,
        "rows": rows_granted(chosen.name, seed, truth, folder),
        "seconds": timeout,
        "points": str(points) if setting == "same points" and points.exists() else None,
    }
    try:
        interpreter = solver.interpreter()
    except NoEnvironment as error:
        return {"success": False, "failure": str(error)}
    target = TargetProcess(
        list(truth.weights), list(truth.biases), precision=chosen.precision, task=task,
        heldout=heldout, keep=points if solver.name == "unrelu" else None,
    )  # fmt: skip
    with target, tempfile.TemporaryFile() as log:
        path = [str(DRIVERS), *([str(ROOT / "src")] if solver.environment is None else [])]
        environment = os.environ | target.environment | {
            "PYTHONPATH": os.pathsep.join(path),
            "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        }  # fmt: skip
        process = subprocess.Popen(
            [str(interpreter), str(solver.driver)],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            peak, late = _watch(process, timeout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.seek(0)
        said = log.read()[-800:].decode(errors="replace")
        record = target.stop()
    outcome = judge(truth, heldout, record, wrong_above=chosen.wrong_above)
    if late:
        outcome = {"success": False, "silently_wrong": 0, "failure": f"timeout, {timeout:g} s"}
    elif process.returncode and "failure" in outcome:
        outcome["failure"] = f"exit {process.returncode}: {said}"
    if record.message:
        outcome["message"] = record.message[:300]
    return outcome | {
        "queries": record.rows,
        "checks": record.checks,
        "round_trips": record.round_trips,
        "seconds": record.seconds,
        "peak_mib": round(peak / 1024, 1),
        "parameters": truth.parameters,
    }
