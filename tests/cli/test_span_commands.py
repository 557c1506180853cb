"""``unrelu span`` and ``unrelu obfuscate``."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from unrelu.cli.obfuscate import obfuscate
from unrelu.cli.span import span
from unrelu.planted import random_network
from unrelu.result import RecoveryResult

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(span)
app.command()(obfuscate)
runner = CliRunner()


def run(*words, code=0):
    result = runner.invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output
    return result


def test_span_of_a_planted_network(tmp_path):
    out = tmp_path / "span.safetensors"
    facts = json.loads(run("span", "planted:30-5-2", "--out", out, "--json").stdout)
    assert facts["status"] == "RECOVERED"
    assert RecoveryResult.load(out).basis.shape == (5, 30)
    again = run("span", "planted:30-5-2")
    assert again.stdout == ""
    assert "RECOVERED: rank 5" in again.stderr


def test_span_from_labels_and_one_output():
    for options in (["--argmax"], ["--threshold", "0.1", "--output", "1"], ["--output", "0"]):
        facts = json.loads(run("span", "planted:20-4-3", "--json", *options).stdout)
        assert facts["status"] == "RECOVERED", facts["message"]


def test_plan_then_replies(tmp_path):
    net = random_network(20, 4, 2, rng=0)
    queries, replies = tmp_path / "queries.npy", tmp_path / "replies.npy"
    words = ["span", "planted:20-4-2", "--plan", queries]
    facts = json.loads(run(*words, "--gradients", "9", "--json").stdout)
    assert facts["queries"] == len(np.load(queries))
    run(*words, "--rank", "4")
    run(*words, "--gradients", "9")
    np.save(replies, net(np.load(queries)))
    found = json.loads(run("span", "--plan", queries, "--replies", replies, "--json").stdout)
    assert found["status"] == "RECOVERED"
    assert found["queries"]["total"] == facts["queries"]


def test_mistakes_are_sentences(tmp_path):
    assert "name a target" in run("span", code=2).stderr
    assert "--replies needs" in run("span", "--replies", "r.npy", code=2).stderr
    words = ["span", "planted:9-2-1", "--plan", tmp_path / "q.npy"]
    assert "--gradients" in run(*words, code=2).stderr
    assert "BUDGET_EXHAUSTED" in run("span", "planted:9-2-1", "--budget", "50", code=1).stderr
    words = ["obfuscate", "planted:9-2-1", "--images"]
    assert "no file" in run(*words, tmp_path / "none", code=2).stderr
    np.save(tmp_path / "x.npy", np.ones((2, 4)))
    assert "4 pixels" in run(*words, tmp_path / "x.npy", code=2).stderr
    (tmp_path / "y.npy").write_bytes(b"nothing")
    assert "cannot read" in run(*words, tmp_path / "y.npy", code=2).stderr


def test_obfuscate_images(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((12, 5, 8)))
    words = ["obfuscate", "planted:40-6-3", "--images", tmp_path / "x.npy", "--json"]
    facts = json.loads(run(*words, "--out", tmp_path / "z.npy").stdout)
    assert facts["unchanged"] == 1.0
    assert facts["largest_change"] < 1e-6
    assert facts["noise_norm"] == pytest.approx(10)
    assert np.load(tmp_path / "z.npy").shape == (12, 40)
    saved = tmp_path / "span.safetensors"
    run("span", "planted:40-6-3", "--out", saved)
    boxed = json.loads(run(*words, "--span", saved, "--box", "0", "1").stdout)
    assert boxed["unchanged"] == 1.0
    assert boxed["box_residual"] == 0
    assert "predictions unchanged" in run(*words[:-1], "--out", tmp_path / "z.npy").stderr
