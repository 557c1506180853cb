"""Exit codes: 0 recovered, 1 not, 2 a mistake, 3 the target could not be asked; no traceback."""

from __future__ import annotations

import logging
import os
import socket

import numpy as np
import pytest
from typer.testing import CliRunner

from unrelu import Ledger, OracleError, connect, planted
from unrelu.cli import _common
from unrelu.cli.main import app

runner = CliRunner()
TARGETS = """
import sys
import numpy as np

def line(x): return np.maximum(x.sum(axis=1), 0) - np.maximum(x[:, 0] - 1, 0)
def smooth(x): return np.sin(x).sum(axis=1)
def broken(x): raise OSError("down")
def text(x): return [{"a": [1]}] * len(x)
def leaves(x): sys.exit(5)
def interrupted(x): raise KeyboardInterrupt
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "exit_targets.py").write_text(TARGETS)
    (tmp_path / "exit_script.py").write_text("import sys\nsys.exit(7)\n")


def run(*words, code):
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


COMMANDS = [["extract"], ["extract", "--depth", "2"], ["extract", "--dry-run"], ["span"],
            ["span", "--argmax"], ["doctor"], ["audit"]]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("target", ["broken", "text", "leaves"])
def test_a_target_that_cannot_be_asked_gives_three(words, target):
    command, *options = words
    text = run(command, f"exit_targets:{target}", "--input-dim", "4", *options, code=3)
    assert text.startswith("error:")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_ctrl_c_gives_130(words):
    command, *options = words
    text = run(command, "exit_targets:interrupted", "--input-dim", "4", *options, code=130)
    assert "Interrupted" in text


def test_a_server_that_is_not_there_gives_three():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v2/models/m"
    for command in ("extract", "span"):
        assert "cannot be reached" in run(command, url, "--retries", "0", code=3)


def test_recovered_or_not():
    run("extract", "planted:6-3-1", "--out", "a.safetensors", code=0)
    run("extract", "planted:6-3-1", "--budget", "50", code=1)
    run("extract", "planted:6-3-1", "--budget", "50", "--dry-run", code=1)
    run("span", "planted:6-3-1", code=0)
    run("span", "planted:6-3-1", "--budget", "50", code=1)
    text = run("extract", "planted:6-3-1", "--budget", "50", "--out", "a.onnx", code=1)
    assert "was not written" in text
    assert "BUDGET_EXHAUSTED" in text


NUMBERS = ["nan", "inf", "-inf", "-1", "x", ""]


@pytest.mark.parametrize("value", [*NUMBERS, "10.5", "true"])
@pytest.mark.parametrize(
    "option", ["--budget", "--batch", "--input-dim", "--seed", "--concurrency", "--retries"]
)
def test_whole_numbers(option, value):
    run("extract", "planted:6-3-1", f"{option}={value}", code=2)


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize(
    "words",
    [
        ["--price"], ["--price=1", "--max-cost"], ["--scale"], ["--timeout"], ["--rate"],
        ["--epsilon"], ["--range=0"], ["--domain=0"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_real_numbers(words, value):
    *others, last = words
    pair = f"{last},{value}" if "=" in last else f"{last}={value}"
    run("extract", "planted:6-3-1", *others, pair, code=2)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "x"])
@pytest.mark.parametrize("option", ["--tolerance", "--threshold", "--step", "--scale"])
def test_real_numbers_of_a_span(option, value):
    plan = ["--plan", "p.npy", "--gradients", "3"] if option in {"--step", "--scale"} else []
    run("span", "planted:6-3-1", *plan, f"{option}={value}", code=2)


def test_files_that_cannot_be_used():
    for name, content in (
        ("bad.npy", b"no array"), ("bad.npz", b"no archive"), ("bad.parquet", b"no table"),
        ("bad.safetensors", b"no tensors"), ("bad.onnx", b"no graph"), ("bad.skops", b"no zip"),
        ("empty.npy", b""),
    ):  # fmt: skip
        with open(name, "wb") as file:
            file.write(content)
        for words in (["learn", name], ["learn", name, "--labels", "bad.npy"], ["extract", name],
                      ["span", "--plan", name, "--replies", name],
                      ["obfuscate", "planted:6-3-1", "--span", name],
                      ["obfuscate", "planted:6-3-1", "--images", name],
                      ["audit", "planted:6-3-1", "--examples", name]):  # fmt: skip
            run(*words, code=2)
    run("extract", "exit_script:f", code=2)
    run("span", "planted:6-3-1", "--out", "nowhere/a.safetensors", code=2)
    run("span", "planted:6-3-1", "--out", "a.onnx", code=2)
    run("span", "planted:6-3-1", "--plan", "nowhere/p.npy", "--gradients", "3", code=2)
    run("learn", "bad.npy", "--out", "a.txt", code=2)


def test_ledgers_that_cannot_be_used():
    os.mkfifo("pipe")
    for path in ("/dev/null", "pipe", "."):
        run("extract", "planted:6-3-1", "--ledger", path, code=2)
        run("ledger", "show", path, code=2)
    connect(planted.random_network(6, 3, 1, rng=0), ledger="l.db", name="m")(np.eye(6))
    text = run("span", "planted:6-3-1:1", "--ledger", "l.db", "--name", "m", code=2)
    assert "unrelu ledger prune l.db --oracle 'm'" in text
    run("ledger", "prune", "l.db", "--oracle", "m", "--yes", code=0)
    run("span", "planted:6-3-1:1", "--ledger", "l.db", "--name", "m", code=0)


def test_what_the_library_has_to_say_is_a_note():
    network = planted.random_network(6, 3, 1, rng=0)
    connect(network, ledger="l.db", name="m")(np.eye(6))
    text = run(
        "doctor", "planted:6-3-1", "--ledger", "l.db", "--name", "m", "--budget", "7", code=1
    )
    assert "note: it was not checked" in text
    assert not any(isinstance(h, _common._Notes) for h in logging.getLogger("unrelu").handlers)
    with Ledger("l.db") as book:
        assert "identity" not in book.entries()[0].by_stage


def test_every_kind_of_our_errors_has_a_code():
    import typer

    from unrelu import errors

    codes = {}
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind("a", "b", "c") if name == "MissingExtra" else kind("sentence")
        with pytest.raises(typer.Exit) as caught, _common.friendly():
            raise error
        codes[name] = caught.value.exit_code
        assert (codes[name] == 3) == (isinstance(error, OracleError) and name != "BudgetExhausted")
    assert codes["BudgetExhausted"] == 1
    assert set(codes.values()) == {1, 2, 3}
