"""Targets that a file describes, what a target prints, and one request shown."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from unrelu.cli.main import app
from unrelu.planted import random_network

runner = CliRunner()


def run(*words: str):
    return runner.invoke(app, list(words))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNRELU_CONFIG", raising=False)
    return tmp_path


def test_a_target_is_described_once(here):
    random_network(6, 4, 1, rng=3).save(here / "model.safetensors")
    (here / "unrelu.toml").write_text(
        '[targets.toy]\ntarget = "model.safetensors"\nbudget = 5000\nseed = 4\n'
        'ledger = "toy.ledger"\nheader-env = ["X-Key=TOY_KEY"]\nscale = [1, 1, 1, 1, 1, 1]\n'
    )
    deeper = here / "a" / "b"
    deeper.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(deeper)
        first = run("extract", "toy", "--json")
    assert first.exit_code == 0, first.stderr
    facts = json.loads(first.stdout)
    assert facts["status"] == "RECOVERED"
    assert facts["provenance"]["seed"] == 4
    assert (here / "toy.ledger").exists()
    # What the command line says goes first: one query is not enough.
    assert run("extract", "toy", "--budget", "1", "--ledger", "other.ledger").exit_code == 1


def test_pyproject_may_hold_them_too(here):
    (here / "pyproject.toml").write_text('[tool.unrelu.targets.toy]\ntarget = "planted:6-4-1"\n')
    listed = json.loads(run("targets", "list", "--json").stdout)
    assert listed["targets"] == {"toy": {"target": "planted:6-4-1"}}
    shown = run("targets", "check", "toy")
    assert shown.exit_code == 0
    assert "inputs        6" in shown.stderr


def test_options_are_written_as_flags_whatever_the_command_calls_them(here):
    (here / "unrelu.toml").write_text(
        '[targets.toy]\ntarget = "planted:4-3-1"\nrange = [-1, 1]\nlabels = false\n'
        'fail-if = "cloned"\ndepth = 2\n'
    )
    facts = json.loads(run("extract", "toy", "--json").stdout)
    assert facts["status"] == "RECOVERED"
    assert "range:-1.0:1.0" in facts["provenance"]["target"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[targets.toy]\nbudget = 3\n", "needs target"),
        ('[targets.toy]\ntarget = "planted:6-4-1"\nbudgets = 3\n', "no option --budgets"),
        ('[targets.toy]\ntarget = "planted:6-4-1"\ninput-range = 3\n', "no option --input-range"),
        ('[targets.toy]\ntarget = "planted:6-4-1"\nbudget = "x"\n', "no int"),
        ('[targets.toy]\ntarget = "planted:6-4-1"\nversion = true\n', "no option --version"),
        ("targets = 3\n", "no tables"),
        ("[target.toy]\n", "found target"),
        ("[[[", "cannot read"),
    ],
)
def test_mistakes_in_the_file_are_told(here, text, message):
    (here / "unrelu.toml").write_text(text)
    result = run("extract", "toy")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_missing_file_that_the_environment_names(here, monkeypatch):
    monkeypatch.setenv("UNRELU_CONFIG", str(here / "none.toml"))
    result = run("extract", "planted:6-4-1")
    assert result.exit_code == 2
    assert "UNRELU_CONFIG" in result.stderr


def test_without_a_file_the_list_says_how_to_begin(here):
    result = run("targets", "list")
    assert result.exit_code == 0
    assert "[targets.fraud]" in result.stderr


def test_what_a_target_prints_does_not_spoil_the_facts(here, monkeypatch):
    (here / "talking_model.py").write_text(
        "import numpy as np\n"
        "def f(x):\n"
        "    print('I was asked')\n"
        "    return np.maximum(x, 0.0).sum(axis=1, keepdims=True)\n"
    )
    monkeypatch.syspath_prepend(str(here))
    result = run("extract", "talking_model:f", "--input-dim", "3", "--json")
    assert json.loads(result.stdout)["status"] == "RECOVERED"
    assert "I was asked" in result.stderr
