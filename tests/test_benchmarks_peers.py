"""The peer runner: rows are counted at the target, and nothing a solver does is lost."""

from __future__ import annotations

import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.peers import environments  # noqa: E402
from benchmarks.peers.__main__ import local_solver  # noqa: E402
from benchmarks.peers.judge import judge, weight_error  # noqa: E402
from benchmarks.peers.problems import EXACT, PROBLEMS, Problem  # noqa: E402
from benchmarks.peers.runner import Solver, run  # noqa: E402
from benchmarks.peers.table import ROWS  # noqa: E402
from benchmarks.peers.target import Record, answerer  # noqa: E402
from unrelu import ReLUNetwork, planted  # noqa: E402

AFFINE = Problem("affine", lambda seed: planted.affine(3, rng=seed))

#: Solves an affine target exactly from d + 1 rows.
SOLVE = """
from peer_client import Task
import numpy as np
task = Task()
x = np.vstack([np.zeros(3), np.eye(3)])
y = task.ask(x)
solution = lambda p: y[0] + p @ (y[1:] - y[0])
"""


def solve(tmp_path: Path, script: str, **options: object) -> dict:
    driver = tmp_path / "driver.py"
    driver.write_text(textwrap.dedent(script))
    solver = Solver("mine", driver)
    return run(0, problem=AFFINE, solver=solver, folder=tmp_path, **{"timeout": 30.0} | options)


def test_every_row_counts_repeats_and_second_connections_too(tmp_path):
    again = "task.ask(x)\nother = Task()\nother.ask(x[:2])\ntask.finish(solution, claim='exact')"
    outcome = solve(tmp_path, SOLVE + again)
    assert outcome["success"], outcome
    assert outcome["queries"] == 4 + 4 + 2
    assert outcome["error"] <= 1e-13  # four roundings of numbers of size one
    assert outcome["silently_wrong"] == 0
    assert outcome["peak_mib"] > 1


def test_a_solver_that_asks_after_the_end_fails(tmp_path):
    cheat = """
    heldout = np.frombuffer(task._call(b"F")).reshape(-1, 3)
    try:
        task.ask(heldout)
    except RuntimeError:
        pass
    """
    outcome = solve(
        tmp_path, SOLVE + textwrap.dedent(cheat) + "task.finish(solution, claim='exact')"
    )
    assert not outcome["success"]
    assert "after the end" in outcome["failure"]
    assert outcome["queries"] == 4 + 4000  # the refused rows are counted as well


def test_answers_cannot_be_handed_in_before_the_questions_end(tmp_path):
    outcome = solve(tmp_path, SOLVE + "task._call(b'R')")
    assert not outcome["success"]
    assert "out of order" in outcome["failure"]


def test_a_wrong_claim_is_silently_wrong_and_no_claim_is_not(tmp_path):
    for claim, wrong in (("exact", 1), ("none", 0), ("failed", 0)):
        outcome = solve(
            tmp_path, SOLVE + f"task.finish(lambda p: 0 * solution(p), claim='{claim}')"
        )
        assert not outcome["success"]
        assert outcome["silently_wrong"] == wrong
        assert outcome["error"] > EXACT


def test_a_solver_that_declares_failure_does_not_succeed(tmp_path):
    outcome = solve(tmp_path, SOLVE + "task.finish(solution, claim='failed', message='no')")
    assert not outcome["success"]
    outcome = solve(tmp_path, SOLVE + "task.finish(None, claim='failed', message='no kink')")
    assert outcome["failure"] == "no kink"


@pytest.mark.parametrize("bad", ["np.nan * solution(p)", "solution(p)[1:]"])
def test_answers_of_the_wrong_shape_or_not_finite_fail(tmp_path, bad):
    outcome = solve(tmp_path, SOLVE + f"task.finish(lambda p: {bad}, claim='exact')")
    assert not outcome["success"]
    assert outcome["silently_wrong"] == 1


def test_a_crash_is_kept_with_its_words_and_its_queries(tmp_path):
    outcome = solve(tmp_path, SOLVE + "raise ValueError('no such neuron')")
    assert not outcome["success"]
    assert "no such neuron" in outcome["failure"]
    assert outcome["queries"] == 4


def test_a_run_that_takes_too_long_is_ended_and_kept(tmp_path):
    outcome = solve(tmp_path, SOLVE + "while True: pass", timeout=1.0)
    assert not outcome["success"]
    assert outcome["failure"] == "timeout, 1 s"


def test_widths_are_told_only_where_they_are_given(tmp_path):
    tell = """
    from peer_client import Task
    task = Task()
    task.finish(None, claim="failed", message=str(task.hidden))
    """
    assert solve(tmp_path, tell)["failure"] == "None"
    assert solve(tmp_path, tell, width="given")["failure"] == "[2]"


def test_no_weight_reaches_the_solver(tmp_path):
    """Neither the task nor the environment of the driver holds a weight or the target's seed."""
    truth = AFFINE.make(0)
    tell = """
    import os
    from peer_client import Task
    t = Task()
    t.finish(None, claim="failed", message=repr({**vars(t), "_link": 0, **{
        k: v for k, v in os.environ.items() if k.startswith("UNRELU")}}))
    """
    said = solve(tmp_path, tell)["failure"]
    assert "peer-" in said
    assert not any(f"{w:.6g}"[:7] in said for w in truth.weights[0].ravel())


def test_unrelu_runs_through_the_same_door(tmp_path):
    from benchmarks.peers.table import SOLVERS

    problem = Problem("small", lambda seed: planted.random_network(6, 3, 1, rng=seed))
    outcome = run(1, problem=problem, solver=SOLVERS["unrelu"], folder=tmp_path, timeout=60.0)
    assert outcome["success"], outcome
    assert outcome["weight_error"] < 1e-8
    assert 0 < outcome["checks"] < outcome["queries"]


def test_the_judge_measures_by_the_spread_of_the_truth():
    truth = planted.random_network(4, 3, 2, rng=0)
    x = np.random.default_rng(1).standard_normal((500, 4))
    f = truth(x)
    shifted = Record(claim="none", arrays={"answers": f + 0.5 * f.std()})
    verdict = judge(truth, x, shifted)
    assert verdict["error"] == pytest.approx(0.5)
    assert verdict["agreement"] == 1.0
    arrays = {f"weights.{i}": w for i, w in enumerate(truth.weights)}
    arrays |= {f"biases.{i}": b for i, b in enumerate(truth.biases)}
    assert weight_error(truth, arrays) == 0.0
    assert weight_error(truth, {}) is None


@pytest.mark.parametrize("precision", ["float64", "float32", "rounded"])
def test_the_target_answers_like_the_network(precision):
    truth = planted.random_network(5, 4, 2, rng=0)
    x = np.random.default_rng(1).standard_normal((50, 5))
    answers = answerer(list(truth.weights), list(truth.biases), precision)(x)
    # float32: 24 bits, sums of five terms; rounding: half of the last decimal.
    limit = {"float64": 1e-14, "float32": 1e-5, "rounded": 5.1e-7}[precision]
    assert np.abs(answers - truth(x)).max() <= limit


def test_a_missing_environment_is_a_failure_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    with pytest.raises(environments.NoEnvironment, match="not installed"):
        environments.prepare("sklearn", install=False)


def test_a_peer_of_the_users_own(tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text("")
    solver = local_solver(f"other={sys.executable}:{driver}")
    assert (solver.name, solver.driver) == ("other", driver.resolve())
    assert local_solver(f"other={driver}").python == Path(sys.executable)


def test_rows_have_unique_names_and_known_targets():
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(name.split(" | ")[0] in PROBLEMS for name in names)


@pytest.mark.parametrize("name", ["20-10-1", "10-10-10-1", "tiny output weights 20-10-1"])
def test_targets_are_seeded(name):
    assert PROBLEMS[name].make(3) == PROBLEMS[name].make(3)
    assert isinstance(PROBLEMS[name].make(4), ReLUNetwork)


def test_one_process_at_a_time_installs_an_environment(tmp_path, monkeypatch):
    installed = []

    def slow_install(name):
        (tmp_path / f"peer-{name}").mkdir()  # a second one would fail here
        time.sleep(0.05)
        installed.append(name)

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_install", slow_install)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(environments.prepare, ["sklearn"] * 4))
    assert installed == ["sklearn"]
    assert set(found) == {environments.python_of("sklearn")}
