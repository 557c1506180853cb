"""Which solver meets which target: the rows of the comparison."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.harness import RESULTS, Row
from benchmarks.peers.problems import HOSTILE, PROBLEMS, RANDOM, TRAINED, Problem
from benchmarks.peers.runner import DRIVERS, PATIENCE, Solver, key_of, run

SEEDS = range(31_000, 31_010)
TIMEOUT = 60.0  # seconds of processor time, for every solver

SOLVERS = {
    solver.name: solver
    for solver in (
        Solver("unrelu", DRIVERS / "unrelu_extract.py", exact=True),
        Solver("ART FunctionallyEquivalentExtraction", DRIVERS / "art_fee.py", "art", exact=True),
        Solver("ART KnockoffNets", DRIVERS / "art_knockoff.py", "art"),
        Solver("ART CopycatCNN", DRIVERS / "art_copycat.py", "art"),
        Solver("torch student", DRIVERS / "student_torch.py", "torch"),
        Solver("scikit-learn MLPRegressor", DRIVERS / "student_sklearn.py", "sklearn"),
    )
}

#: Targets on which the students are trained: those where training has a chance, a depth-3
#: one, one with several outputs, a wide input and the hostile ones.
TAUGHT = (
    "20-10-1", "40-20-1", "10-40-1", "10-10-10-1", "10-20-20-1", "40-20-3", "784-32-1",
    "trained 10-10-10-1", "near-parallel pairs 20-10-1",
)  # fmt: skip
#: Beyond the time limit for one that searches a line as long as the width squared.
TOO_WIDE = ("100-200-1", "784-128-1", "trained 784-32-1", "trained 100-200-1", "trained 784-128-1")
QUICK = ("20-10-1", "10-10-10-1", "40-20-3")


def _depth(problem: Problem) -> int:
    return problem.name.split()[-1].count("-")


def _plan() -> list[tuple[str, str, str, str]]:
    """Return (target, solver, setting, width) in the order in which they run."""
    plan = [(p.name, "unrelu", "default", "unknown") for p in (*RANDOM, *HOSTILE, *TRAINED)]
    art = "ART FunctionallyEquivalentExtraction"
    for setting in ("default", "tuned"):
        for problem in (*RANDOM, *HOSTILE, *TRAINED):
            if _depth(problem) == 2 and not (
                problem.name in TOO_WIDE and (setting == "tuned" or "trained" in problem.name)
            ):  # it knows one hidden layer, and must be told its width
                plan.append((problem.name, art, setting, "given"))
    students = ("torch student", "scikit-learn MLPRegressor")
    for student in students:
        for setting in ("default", "tuned"):
            plan += [(name, student, setting, "given") for name in TAUGHT]
        plan += [(name, student, "default", "unknown") for name in TAUGHT]
    plan += [(name, "torch student", "same points", "given") for name in TAUGHT]
    for thief in ("ART KnockoffNets", "ART CopycatCNN"):
        for setting in ("default", "tuned"):
            plan += [(name, thief, setting, "given") for name in ("40-20-3", "784-4-10")]
    return plan


def rows(folder: Path = RESULTS, local: tuple[Solver, ...] = ()) -> list[Row]:
    """Return all rows; ``local`` solvers of the user meet every target, widths given."""
    plan = [(*entry, SOLVERS[entry[1]]) for entry in _plan()]
    plan += [
        (name, solver.name, "default", "given", solver) for solver in local for name in PROBLEMS
    ]
    return [
        Row(
            key_of(name, solver.name, setting, width),
            partial(
                run,
                problem=name,
                solver=solver,
                setting=setting,
                width=width,
                timeout=TIMEOUT,
                folder=folder,
            ),
            SEEDS,
            timeout=PATIENCE * TIMEOUT + 120.0,  # the runner ends the solver itself
            quick=int(
                name in QUICK and setting == "default" and solver.environment in (None, "sklearn")
            ),
        )
        for name, _, setting, width, solver in plan
    ]


ROWS = rows()
