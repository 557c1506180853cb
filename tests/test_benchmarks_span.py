"""The span-recovery paper's experiments: curves, figures, and the command that draws them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import letter_jayaram  # noqa: E402
from benchmarks.span_curves import (  # noqa: E402
    _curve,
    gradient_rows,
    normal_rows,
    random_relu,
    rank_experiment,
)
from benchmarks.span_figures import reproduce_span  # noqa: E402
from unrelu.cli import reproduce  # noqa: E402
from unrelu.cli.main import app as unrelu_app  # noqa: E402
from unrelu.datasets import ImageSet  # noqa: E402

app = typer.Typer(pretty_exceptions_enable=False)
app.command("reproduce-span")(reproduce_span)
app.command("nothing")(lambda: None)
runner = CliRunner()


def run(*words):
    result = runner.invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_runs_the_benchmark_of_a_checkout(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(reproduce.subprocess, "call", lambda *a, **k: called.append((a, k)) or 7)
    monkeypatch.setattr(reproduce, "CHECKOUT", ROOT)
    words = ["reproduce", "span", "--figure", "2", "--out", str(tmp_path)]
    assert runner.invoke(unrelu_app, words).exit_code == 7
    ((command,), options) = called[0]
    assert command[1:] == ["-m", "benchmarks.span_figures", *words[2:]]
    assert options["env"]["PYTHONPATH"].startswith(str(ROOT))
    monkeypatch.setattr(reproduce, "CHECKOUT", tmp_path)  # as installed from a wheel
    refused = runner.invoke(unrelu_app, words)
    assert refused.exit_code == 2
    assert "python -m benchmarks.span_figures --figure 2" in refused.output.replace("\n", " ")


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
    assert len(curves) == 8
    for curve in curves:
        assert len(curve.ranks) == len(curve.assumed) == 2
        assert all(ranks == sorted(ranks) for ranks in curve.ranks)
        assert max(curve.final) <= curve.full == 6
        assert curve.network in curve.summary()
    whole = [
        c.final for c in curves if c.network == "30->[6]" and c.method != "GradientsRandomAda"
    ]
    assert whole == [[6, 6], [6, 6], [6, 6]]


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


@pytest.mark.parametrize("seed", range(3))
def test_figures_count_live_samples_in_both_readings(seed: int) -> None:
    """Figure 1: a ReLU on the output silences the samples with a negative output, no others."""
    hidden = (80, 6, 3)
    linear = letter_jayaram.figure_1(seed, hidden=hidden, relu_head=False)
    head = letter_jayaram.figure_1(seed, hidden=hidden, relu_head=True)
    net = letter_jayaram.random_relu((784, *hidden, 1), seed)
    x = np.random.default_rng([seed, 1]).standard_normal((letter_jayaram.SAMPLES, 784))
    assert head["live"] == int((net(x)[:, 0] > 0.0).sum())
    assert linear["live"] == int((net(x)[:, 0] != 0.0).sum())
    # One live sample gives one direction, up to 80.
    assert linear["rank"] == min(linear["live"], 80)
    assert head["rank"] == min(head["live"], 80)
