import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from unrelu.cli.learn import learn
from unrelu.result import RecoveryResult


@pytest.fixture
def app():
    app = typer.Typer()
    app.command()(learn)
    return app


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 3))
    y = np.maximum(x[:, 0] + 0.3, 0) - 0.7 * np.maximum(x[:, 1] - 0.2, 0)
    path = tmp_path / "samples"
    path.mkdir()
    np.savez(path / "part0.npz", x=x[:9000], y=y[:9000])
    np.savez(path / "part1.npz", x=x[9000:], y=y[9000:])
    return path


def test_learn_writes_and_reports(app, folder, tmp_path):
    out = tmp_path / "result.safetensors"
    run = CliRunner().invoke(app, [str(folder), "--out", str(out), "--json", "--quiet"])
    assert run.exit_code == 0, run.output
    facts = json.loads(run.stdout)
    assert facts["status"] == "RECOVERED"
    assert facts["fields"]["width"] == 2
    assert RecoveryResult.load(out).network.architecture == "3-2-1"


def test_a_failure_has_exit_code_one(app, folder):
    run = CliRunner().invoke(app, [str(folder), "--no-polish", "--quiet"])
    assert run.exit_code == 1


def test_inputs_that_are_not_gaussian(app, tmp_path):
    x = np.random.default_rng(0).uniform(size=(5000, 2))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", x[:, 0])
    files = [str(tmp_path / "x.npy"), "--labels", str(tmp_path / "labels.npy")]
    run = CliRunner().invoke(app, [*files, "--json"])
    assert run.exit_code == 1
    assert json.loads(run.stdout)["status"] == "ASSUMPTION_VIOLATED"
    assert CliRunner().invoke(app, [*files, "--no-check-gaussian", "--json"]).exit_code in (0, 1)


def test_a_mistake_has_exit_code_two(app, tmp_path):
    assert CliRunner().invoke(app, [str(tmp_path / "nowhere")]).exit_code == 2
    assert CliRunner().invoke(app, [str(tmp_path)]).exit_code == 2
