"""``unrelu span``, ``unrelu obfuscate`` and ``unrelu reproduce span``."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from unrelu.cli._span_curves import (
    _curve,
    estimate_gamma,
    gradient_rows,
    normal_rows,
    random_relu,
    rank_experiment,
    silent_share,
)
from unrelu.cli.obfuscate import obfuscate
from unrelu.cli.reproduce_span import reproduce_span
from unrelu.cli.span import span
from unrelu.datasets import ImageSet
from unrelu.networks import ReLUNetwork
from unrelu.planted import random_network
from unrelu.result import RecoveryResult

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(span)
app.command()(obfuscate)
app.command("reproduce-span")(reproduce_span)
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


def test_figure_3_without_mnist(tmp_path):
    words = ["--epochs", "5", "--held-out", "100", "--json"]
    result = run("reproduce-span", "--figure", "3", "--out", tmp_path, *words)
    assert "no MNIST" in result.stderr
    facts = json.loads(result.stdout)
    assert (tmp_path / "span-figure-3-digits.png").stat().st_size > 10_000
    assert (tmp_path / "span-figure-3-digits.json").exists()
    assert facts["rows"][0]["name"] == "original"
    assert all(row["unchanged"] >= 0.99 for row in facts["rows"][1:])


def test_rank_curves_on_a_small_problem():
    g = np.random.default_rng(0)
    x, y = g.random((90, 30)), g.integers(0, 10, 90)
    data = ImageSet("tiny", (5, 6), x, y, x, y)
    curves = rank_experiment(((6,), (6, 4)), data, samples=30, networks=2, epochs=1)
    assert len(curves) == 6
    for curve in curves:
        assert len(curve.ranks) == len(curve.assumed) == 2
        assert all(ranks == sorted(ranks) for ranks in curve.ranks)
        assert max(curve.final) <= curve.full == 6
        assert curve.network in curve.summary()
    whole = [
        c.final for c in curves if c.network == "30->[6]" and c.method != "GradientsRandomAda"
    ]
    assert whole == [[6, 6], [6, 6]]


def test_the_share_of_silence():
    # Two units of opposite signs are never off together; one alone is off for half of the inputs.
    w = np.eye(1, 5)
    pair = ReLUNetwork([np.vstack([w, -w]), np.ones((1, 2))], [np.zeros(2), np.zeros(1)])
    assert silent_share(pair) == 0
    half = ReLUNetwork([w, np.ones((1, 1))], [np.zeros(1), np.zeros(1)])
    # 20,000 fair coins: 0.0035 standard deviation, five of them.
    assert silent_share(half) == pytest.approx(0.5, abs=0.018)


@pytest.mark.slow
def test_figures_1_and_2_without_mnist(tmp_path):
    for figure in (1, 2):
        words = ["--samples", "10", "--networks", "1", "--epochs", "1", "--out", tmp_path]
        run("reproduce-span", "--figure", figure, *words)
        assert (tmp_path / f"span-figure-{figure}-digits.png").stat().st_size > 10_000


def test_gradients_and_normals_lie_in_the_span():
    net = random_relu((40, 5, 4, 1), 1)
    q = np.linalg.qr(net.weights[0].T)[0].T
    for measure in (gradient_rows, normal_rows):
        rows, queries = measure(net, 12, 0)
        assert queries > 0
        outside = rows - (rows @ q.T) @ q
        assert np.linalg.norm(outside) < 1e-6 * max(np.linalg.norm(rows), 1)
    dead = random_relu((40, 5, 1), 0)
    dead = type(dead)([dead.weights[0], -np.abs(dead.weights[1]), np.ones((1, 1))],
                      [*dead.biases, np.zeros(1)])  # fmt: skip
    assert normal_rows(dead, 3, 0)[0].sum() == 0
    assert _curve(np.zeros((4, 9)), [2, 4]) == [0, 0]


def test_gamma_of_orthogonal_and_correlated_rows():
    # Orthogonal rows: every orthant has probability 2^-k, γ = 1.
    assert estimate_gamma(np.eye(6, 9)) == pytest.approx(0.0, abs=1e-9)
    # Two rows with correlation r: the worst orthant has 1/4 - arcsin(|r|)/(2π).
    r = 0.6
    rows = np.array([[1.0, 0.0], [r, np.sqrt(1 - r**2)]])
    exact = np.log2(4 * (0.25 - np.arcsin(r) / (2 * np.pi)))
    # 2000 draws of a bounded variable: about 2 %, 0.03 in log2; 4 sigma.
    assert estimate_gamma(rows) == pytest.approx(exact, abs=0.12)
