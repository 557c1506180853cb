"""The command line: help that teaches, clean stdout, exit codes, no tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from unrelu import Ledger, __version__, planted
from unrelu.cli.main import app
from unrelu.oracles import connect

runner = CliRunner()
PATIENCE = 900.0  # seconds after which another process has hung, however busy the machine


def run(*words: str, code: int = 0):
    result = runner.invoke(app, list(words))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def commands() -> list[list[str]]:
    return [
        [],
        *(
            [c]
            for c in (
                "demo",
                "doctor",
                "extract",
                "learn",
                "audit",
                "span",
                "obfuscate",
                "serve",
                "ledger",
                "targets",
            )
        ),
        *(["targets", c] for c in ("list", "check")),
        *(["ledger", c] for c in ("show", "verify", "export", "prune")),
    ]


def test_version():
    assert run("--version").stdout == f"unrelu {__version__}\n"


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_fits_eighty_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*words, "--help").stdout
    assert "Usage:" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "[[" not in text
    assert "every  " not in text  # brackets that were taken for markup
    assert "(or  " not in text
    # Words of people: no Python types, no name cut off, nothing behind a flag.
    for word in ("range>", "<bool>", "list[", "…", "python -m"):
        assert word not in text, word


def test_doctor_speaks_to_people_on_stderr_and_to_machines_on_stdout():
    person = run("doctor", "planted:20-10-1")
    assert person.stdout == ""
    assert "float64" in person.stderr
    machine = run("doctor", "planted:20-10-1:7", "--json", "--seed", "3")
    facts = json.loads(machine.stdout)
    assert facts["input_dim"] == 20
    assert facts["kind"] == "values"
    assert facts["queries"] == 186  # short steps only where long ones show more than rounding


def test_environment_variables_set_options():
    result = runner.invoke(app, ["doctor", "planted:20-10-1"], env={"UNRELU_BUDGET": "10"})
    assert result.exit_code == 1
    assert "budget of 10" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor", "nothing"], "don't know how to connect"),
        (["doctor", "planted:nothing"], "near-duplicate-neurons"),
        (["doctor", "planted:20-10-1:x"], "planted:NAME:SEED"),
        (["doctor", "missing.safetensors"], "no file"),
        (["doctor", "no_such_module:f", "--input-dim", "3"], "cannot import"),
        (
            ["doctor", "planted:20-10-1", "--scale", "0"],
            "scale must be a finite number and more than 0",
        ),
        (["ledger", "show", "missing.db"], "no ledger"),
        (["ledger", "prune", "missing.db", "--yes"], "no ledger"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_two(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = " ".join(run(*words, code=2).stderr.split())
    assert message in text


def test_unknown_options_and_commands_exit_two():
    run("doctor", "planted:20-10-1", "--budget", "-5", code=2)
    run("no-such-command", code=2)


def test_a_target_that_fails_exits_three_and_names_the_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad_target.py").write_text(
        "n = 0\ndef f(x):\n    global n\n    n += 1\n    if n > 2: raise OSError('down')\n"
        "    return x.sum(axis=1)\n"
    )
    result = run("doctor", "bad_target:f", "--input-dim", "2", "--ledger", "l.db", code=3)
    text = " ".join(result.stderr.split())
    assert "OSError: down" in text
    assert "safe in l.db" in text


def test_ledger_commands(tmp_path):
    path = tmp_path / "l.db"
    with Ledger(path, store_points=True) as book:
        oracle = connect(planted.random_network(3, 2, 1, rng=0), ledger=book, name="one")
        with oracle.stage("lines"):
            oracle(np.random.default_rng(0).standard_normal((10, 3)))
    shown = run("ledger", "show", str(path))
    assert "lines" in shown.stderr
    facts = json.loads(run("ledger", "show", str(path), "--json").stdout)
    assert facts["oracles"][0]["queries"] == 10
    assert "sound" in run("ledger", "verify", str(path)).stderr
    run("ledger", "export", str(path), "--out", str(tmp_path / "data.npz"))
    assert np.load(tmp_path / "data.npz")["x"].shape == (10, 3)
    run("ledger", "export", str(path), "--out", str(tmp_path / "data.csv"), code=2)
    refused = runner.invoke(app, ["ledger", "prune", str(path)], input="n\n")
    assert "Nothing was deleted" in refused.output
    run("ledger", "prune", str(path), "--oracle", "one", "--yes")
    assert json.loads(run("ledger", "show", str(path), "--json").stdout)["oracles"] == []
    run("ledger", "export", str(path), "--out", str(tmp_path / "data.npz"), code=2)


def test_points_kept_by_a_flag_can_be_exported(tmp_path):
    ledger, out = str(tmp_path / "l.db"), str(tmp_path / "data.npz")
    run("doctor", "planted:3-2-1", "--ledger", ledger)
    told = run("ledger", "export", ledger, "--out", out, code=2)
    assert "--store-points" in told.stderr
    ledger = str(tmp_path / "with_points.db")
    run("doctor", "planted:3-2-1", "--ledger", ledger, "--store-points")
    run("ledger", "export", ledger, "--out", out)
    kept = np.load(out)
    network = planted.random_network(3, 2, 1, rng=0)
    np.testing.assert_array_equal(network(kept["x"]), kept["y"])
    assert "goes with --ledger" in run("doctor", "planted:3-2-1", "--store-points", code=2).stderr


def test_messages_name_flags_not_arguments():
    told = run("doctor", "planted:3-2-1", "--max-cost", "3", code=2).stderr
    assert "--max-cost needs the price" in told
    told = run("doctor", "os:getcwd", code=2).stderr
    assert "--input-dim" in told
    assert "connect(" not in told


def test_verify_reports_damage(tmp_path):
    import sqlite3

    path = tmp_path / "l.db"
    connect(planted.random_network(3, 2, 1, rng=0), ledger=path)(np.zeros((1, 3)))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE answers SET crc = crc + 1")
    db.close()
    assert "checksum" in run("ledger", "verify", str(path), code=1).stderr


def test_ctrl_c_says_how_to_resume(tmp_path):
    (tmp_path / "slow_target.py").write_text(
        "import pathlib, time\ndef f(x):\n    pathlib.Path('asked').touch()\n"
        "    time.sleep(900)\n    return x.sum(axis=1)\n"
    )
    command = [sys.executable, "-m", "unrelu", "doctor", "slow_target:f", "--input-dim", "2"]
    process = subprocess.Popen(
        [*command, "--ledger", "l.db"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # As in a terminal, also where the tests themselves run in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "asked").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "run the same command again" in " ".join(errors.split())
    assert "Traceback" not in errors


def test_what_wraps_hangs_under_its_text(monkeypatch):
    from unrelu.cli import _common

    with _common.console.capture() as shown:
        _common.entry("request", "word " * 40, indent=2)
    lines = shown.get().splitlines()
    assert lines[0].startswith("  request       word")
    assert len(lines) > 1
    assert all(line.startswith(" " * 16 + "word") for line in lines[1:])


def test_a_binary_request_is_shown_as_far_as_it_is_text():
    from unrelu.cli.targets import _brief

    assert _brief(b'{"a": 1}') == '{"a": 1}'
    assert _brief(b'{"a": 1}' + bytes(48)) == '{"a": 1} and 48 bytes of numbers'
    assert _brief(b"[" + b"0, " * 500 + b"0]").endswith("...")


def test_one_is_not_many():
    text = " ".join(run("extract", "planted:affine", "--json").stdout.split())
    assert "1 outputs" not in text
    from unrelu import diagnose

    def steps(x):
        return (x[:, :1] > 0.2) + 0.5 * (x[:, 1:2] > 0)

    seen = diagnose(connect(steps, input_dim=2))
    assert seen.outline == "2 inputs, 1 output, answers in 1 decimal"
