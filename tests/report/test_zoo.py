"""Several models side by side: one page that ranks them, and nothing lost with a worker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_audit import QUICK, Page
from typer.testing import CliRunner

from unrelu import planted
from unrelu.cli import _zoo
from unrelu.cli.main import app
from unrelu.report import zoo

SMALL = planted.random_network(8, 3, 2, rng=0)
VICTIM = """
import os, signal
from pathlib import Path
from unrelu import planted

HERE = Path(__file__).parent
NETWORK = planted.random_network(8, 3, 2, rng=0)


def ask(x):
    log = HERE / "log"
    with log.open("a") as stream:
        stream.write(f"{os.getpid()} {len(x)}\\n")
    asked = sum(int(line.split()[1]) for line in log.read_text().splitlines())
    if asked > 500 and not (HERE / "killed").exists():
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return NETWORK(x)
"""


def tree(x):
    return (x[:, :1] > 0.2) + 0.5 * (x[:, 1:2] > 0)


def read(log: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in log.read_text().splitlines()]


def job(name: str, folder: Path, target, **more) -> zoo.Job:
    return zoo.Job(
        name=name, target=target, said=name, folder=folder, connecting={"input_dim": 8},
        auditing={"rng": 0, "config": QUICK}, **more,
    )  # fmt: skip


@pytest.mark.slow  # two processes that each load the library
@pytest.mark.filterwarnings("ignore")  # dask's own, about ports and about workers that we kill
def test_two_workers_and_one_of_them_killed(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    (tmp_path / "victim.py").write_text(VICTIM)
    monkeypatch.syspath_prepend(str(tmp_path))
    jobs = [job("victim", tmp_path, "victim:ask"), job("other", tmp_path, SMALL)]
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        found = {j.name: facts for j, facts in zoo.audit_jobs(jobs, cluster.scheduler_address)}
    assert (tmp_path / "killed").exists()
    assert all(facts["recovered"] for facts in found.values()), found
    lives = read(tmp_path / "log")
    assert len({pid for pid, _ in lives}) == 2
    # Undisturbed it asks the same but for the batch in flight, and three rows that tell whether
    # the same model still answers.
    first = lives[0][0]
    lost = [rows for pid, rows in lives if pid == first][-1]
    (tmp_path / "log").unlink()
    again = tmp_path / "again"
    again.mkdir()
    calm = zoo.run_job(job("victim", again, "victim:ask"))
    expected = sum(rows for _, rows in read(tmp_path / "log"))
    assert sum(rows for _, rows in lives) == expected + lost + 3
    # The same weights, to rounding of sums in another process.
    assert calm["singular_values"] == pytest.approx(found["victim"]["singular_values"], rel=1e-9)
    # What is finished is not done again: no cluster is asked for.
    kept = {j.name: facts for j, facts in zoo.audit_jobs(jobs, "tcp://127.0.0.1:9")}
    assert kept == found


@pytest.fixture
def serial(monkeypatch):
    """Run jobs in this process, with small sizes."""

    def one_by_one(jobs, scheduler=None):
        return ((job, zoo.run_job(job)) for job in jobs)

    monkeypatch.setattr(_zoo, "audit_jobs", one_by_one)
    monkeypatch.setattr(_zoo, "AuditConfig", lambda seconds: QUICK)


def test_a_list_of_models_is_ranked_on_one_page(tmp_path, monkeypatch, serial):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    Path("zoo.toml").write_text(
        '[targets.tree]\ntarget = "test_zoo:tree"\ninput-dim = 8\n'
        '[targets."a <b>"]\ntarget = "planted:8-3-2"\nprice = 0.5\nrate = "10/s"\n'
        '[targets.poor]\ntarget = "planted:8-3-2"\nbudget = 10\n'
        '[targets.deep]\ntarget = "planted:8-3-3-1"\ndepth = 3\nledger = "own.ledger"\n'
    )
    words = ["audit", "--targets", "zoo.toml", "--out", "all models.html"]
    result = CliRunner().invoke(app, [*words, "--json", "--fail-if", "cloned"])
    assert result.exit_code == 1, result.stderr
    facts = json.loads(result.stdout)
    names = [model["name"] for model in facts["models"]]
    assert names[-1] == "tree"
    assert set(names[:2]) == {"a <b>", "deep"}
    costs = [model["facts"]["attack_queries"] for model in facts["models"][:2]]
    assert costs == sorted(costs)
    assert facts["failed"][0]["name"] == "poor"
    assert Path("own.ledger").exists()
    assert Path("all models/tree.ledger").exists()
    text = Path("all models.html").read_text()
    page = Page(text)
    assert "2 of 4 models" in page.text
    assert "that is no all-clear" in page.text
    assert "a <b>" in page.text
    links = {a["href"] for tag, a in page.tags if tag == "a"}
    assert links == {
        "all%20models/tree.html", "all%20models/a__b_.html", "all%20models/deep.html"
    }  # fmt: skip
    plain = CliRunner().invoke(app, words)
    assert plain.exit_code == 3  # one could not be audited
    assert "deep: high risk" in plain.stderr
    assert "(audited before)" in plain.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit"], "give a TARGET"),
        (["audit", "planted:8-3-2", "--targets", "zoo.toml"], "give a TARGET"),
        (["audit", "planted:8-3-2", "--scheduler", "tcp://x:1"], "--scheduler goes with"),
        (["audit", "--targets", "none.toml"], "no such file"),
        (["audit", "--targets", "zoo.toml", "--dry-run"], "take one TARGET"),
        (["audit", "--targets", "zoo.toml"], "no option --depht"),
        (["audit", "--targets", "empty.toml"], "describes no targets"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    Path("zoo.toml").write_text('[targets.a]\ntarget = "planted:8-3-2"\ndepht = 3\n')
    Path("empty.toml").write_text("")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_two_models_must_not_write_the_same_files(tmp_path):
    with pytest.raises(ValueError, match="two models would write"):
        list(zoo.audit_jobs([job("a/b", tmp_path, SMALL), job("a_b", tmp_path, SMALL)]))


def test_options_that_change_the_question_ask_anew(tmp_path):
    first = job("a", tmp_path, SMALL)
    zoo.run_job(first)
    assert first.kept() is not None
    assert zoo.Job(**{**vars(first), "connecting": {"input_dim": 8, "price": 1.0}}).kept() is None
    first.file(".json").write_text("{")
    assert first.kept() is None
