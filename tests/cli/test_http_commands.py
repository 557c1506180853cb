"""The commands against a real server process: serve, doctor, extract."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from typer.testing import CliRunner

from unrelu import ReLUNetwork, planted
from unrelu.cli.main import app
from unrelu.errors import InvalidInput
from unrelu.oracles import connect
from unrelu.serving import ModelServer

runner = CliRunner()
PATIENCE = 900.0  # seconds after which another process has hung, however busy the machine


@contextlib.contextmanager
def served(*words: str) -> Iterator[str]:
    """Run ``unrelu serve`` in a process of its own; yields the address it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "unrelu", "serve", *words, "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            text = ""
            while "}" not in text:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                text += line
            yield json.loads(text)["url"]
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors


def run(*words: str, code: int = 0, **options):
    result = runner.invoke(app, list(words), **options)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("softmax", [False, True])
def test_extract_over_http_is_exact_and_frugal(tmp_path, softmax):
    truth = planted.random_network(64, 32, 10, rng=4)
    path = truth.save(tmp_path / "model.safetensors")
    with served(str(path), *(["--softmax"] if softmax else [])) as url:
        out = tmp_path / "clone.safetensors"
        found = run("extract", url, "--out", str(out), "--json", "--seed", "1")
    facts = json.loads(found.stdout)
    assert facts["status"] == "RECOVERED"
    x = np.random.default_rng(0).standard_normal((500, 64))
    clone, expected = ReLUNetwork.load(out)(x), truth(x)
    if softmax:  # logits are determined up to a function common to all
        clone, expected = clone - clone[:, :1], expected - expected[:, :1]
    assert np.abs(clone - expected).max() < 1e-6 * expected.std()
    queries = facts["queries"]
    assert queries["round_trips"] <= 60 + queries["total"] / 4096
    certificate = queries["by_stage"]["certificate"]
    assert queries["total"] - certificate <= 2 * truth.parameters


def test_a_token_stays_out_of_everything_a_command_writes(tmp_path, monkeypatch):
    token = "s3cr3t-t0ken-value"
    monkeypatch.setenv("MY_TOKEN", token)
    monkeypatch.chdir(tmp_path)
    with served("planted:10-6-1") as url:
        found = run(
            "extract", url, "--token-env", "MY_TOKEN", "--header-env", "X-Key=MY_TOKEN",
            "--ledger", "l.db", "--out", "clone.safetensors", "--json",
        )  # fmt: skip
        gone = run("doctor", url + "x", "--token-env", "MY_TOKEN", "--input-dim", "10", code=3)
    texts = [found.output, gone.output]
    texts += [p.read_bytes().decode("latin-1") for p in tmp_path.iterdir() if p.is_file()]
    assert len(texts) > 3
    assert not any(token in text for text in texts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shape", "a,b"], "--shape takes"),
        (["--range", "1"], "--range takes"),
        (["--range", "2,1"], "LOW below HIGH"),
        (["--rate", "fast"], "such as 50/s"),
        (["--header-env", "X-Key"], "HEADER=VARIABLE"),
        (["--header-env", "X-Key=not a name"], "HEADER=VARIABLE"),
        (["--max-cost", "1"], "price"),
        (["--protocol", "soap"], "is none of"),
    ],
)
def test_mistakes_in_shared_options(words, message):
    text = " ".join(run("doctor", "planted:20-10-1", *words, code=2).stderr.split())
    assert message in text


def test_shared_options_reach_the_target():
    facts = json.loads(
        run("doctor", "planted:20-10-1", "--scale", "5", "--range=-1,1", "--json").stdout
    )
    assert facts["kind"] == "values"
    spent = run("doctor", "planted:20-10-1", "--price", "0.5", "--max-cost", "20", code=1)
    assert "budget of 40" in " ".join(spent.stderr.split())


def test_options_of_one_command_do_not_reach_the_next():
    from unrelu.cli._target import connect_options

    run("doctor", "planted:20-10-1", "--range=-1,1")
    assert connect_options() == {}


def test_the_range_becomes_the_domain(tmp_path):
    truth = planted.random_network(10, 6, 1, rng=1)
    path = truth.save(tmp_path / "m.safetensors")
    out = tmp_path / "clone.safetensors"
    run("extract", str(path), "--range=-1,1", "--out", str(out))
    x = np.random.default_rng(0).uniform(-1, 1, (200, 10))
    assert np.abs(ReLUNetwork.load(out)(x) - truth(x)).max() < 1e-9


def test_the_server_answers_nonsense_with_an_error():
    import http.client

    oracle = connect(planted.random_network(3, 2, 1, rng=0))
    with ModelServer(oracle) as server:
        import threading

        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        host, port = server.server_address[:2]
        tensor = {"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [1, 2, 3]}
        bad = [
            b"", b"{", b"[]", b"{}", b'{"inputs": []}', b"\xff",
            *(json.dumps({"inputs": [{**tensor, **change}]}).encode() for change in (
                {"shape": [1, 4]}, {"shape": [2, 3]}, {"shape": []}, {"datatype": "BYTES"},
                {"data": ["a", "b", "c"]}, {"data": [1, 2, float("nan")]}, {"data": None},
                {"parameters": {"binary_data_size": -5}},
            )),
        ]  # fmt: skip
        for body in bad:
            link = http.client.HTTPConnection(host, port, timeout=PATIENCE)
            link.request("POST", "/v2/models/model/infer", body)
            response = link.getresponse()
            assert response.status == 400, body
            assert "error" in json.loads(response.read())
            link.close()
        for method, place, status in (
            ("GET", "/", 404), ("POST", "/v2/models/other/infer", 404),
            ("GET", "/v2/health/ready", 200), ("GET", "/v2/models/model/ready", 200),
        ):  # fmt: skip
            link = http.client.HTTPConnection(host, port, timeout=PATIENCE)
            link.request(method, place, b"{}" if method == "POST" else None)
            assert link.getresponse().status == status
            link.close()
        server.shutdown()
        thread.join()
    with pytest.raises(InvalidInput, match="name"):
        ModelServer(oracle, name="a/b")
    with pytest.raises(InvalidInput, match="FP64 or FP32"):
        ModelServer(oracle, datatype="INT8")


def test_the_demo_recovers_its_classifier_over_http_and_writes_a_report(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "unrelu", "demo", "--json", "--out", str(tmp_path / "r.html")],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["status"] == "RECOVERED"
    assert facts["relative_error"] < 1e-8
    assert facts["queries_per_parameter"] < 2
    assert facts["round_trips"] <= 60 + facts["queries"] / 4096
    assert "This model can be cloned" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["planted:20-10-1"], "extract_two_layer"),
        (["planted:10-10-10-1"], "extract_three_layer"),
        (["planted:10-10-10-1", "--depth", "2"], "extract_two_layer"),
        (["planted:20-10-1", "--epsilon", "0.01", "--relative"], "learn_from_queries"),
        (["planted:20-10-1", "--range=-1,1"], "extract_in_box"),
    ],
)
def test_a_dry_run_says_method_and_price_and_stops(words, chosen, tmp_path):
    out = tmp_path / "clone.safetensors"
    options = ["--dry-run", "--price", "0.001", "--rate", "100/s", "--out", str(out)]
    facts = json.loads(run("extract", *words, *options, "--json").stdout)
    assert facts["method"] == chosen
    assert facts["spent"] < 1200
    low, high = facts["queries"]["low"], facts["queries"]["high"]
    assert 0 < low < high
    assert facts["cost"] == {
        "low": pytest.approx(0.001 * low),
        "high": pytest.approx(0.001 * high),
    }
    assert facts["seconds"]["high"] == pytest.approx(high / 100)
    assert not out.exists()
    person = run("extract", *words, *options)
    assert person.stdout == ""
    text = " ".join(person.stderr.split())
    for word in ("Chosen:", "in money", "at 100 queries a second", "this look took"):
        assert word in text


def test_the_choice_is_told_before_anything_is_spent_and_a_budget_is_weighed():
    told = run("extract", "planted:20-10-1", "--budget", "2000", code=1)
    text = " ".join(told.stderr.split())
    assert text.index("Chosen: exact extraction of one hidden layer") < text.index("BUDGET_EX")
    assert "not enough" in text
    run("extract", "planted:20-10-1", "--budget", "0", code=1)
    none = run("extract", "planted:20-10-1", "--budget", "5", "--dry-run", code=1)
    assert "budget of 5" in " ".join(none.stderr.split())


def test_what_extract_writes_can_be_read_again(tmp_path):
    from unrelu import RecoveryResult

    for target, code in (("planted:8-4-4-4-4-2", 1), ("planted:10-4-6-1", 0)):
        out = tmp_path / "r.safetensors"
        run("extract", target, "--out", str(out), "--quiet", code=code)
        assert RecoveryResult.load(out).status.name == ("PARTIAL" if code else "RECOVERED")
    run("extract", "planted:10-4-6-1", "--out", "x.txt", code=2)
    run("extract", "planted:10-4-6-1", "--out", str(tmp_path / "no" / "x.onnx"), code=2)


def test_retries_are_told_as_they_happen():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v2/models/m"
        result = run("doctor", address, "--retries", "3", code=3)
    text = " ".join(result.stderr.split())
    # The first try again is common and goes untold; after the last nothing is sent again.
    assert text.count("again within") == 2
    assert "(2 of 3 times)" in text
    assert "(3 of 3 times)" in text
    assert text.endswith("Connection refused)")


def test_a_missing_extra_is_told_before_the_first_query(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "onnx" else found(name, *a)
    )
    out = tmp_path / "clone.onnx"
    result = run("extract", "planted:5-3-1", "--out", str(out), code=2)
    assert "unrelu[onnx]" in result.stderr
    assert "queries" not in result.stderr
