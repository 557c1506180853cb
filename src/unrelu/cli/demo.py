"""``unrelu demo``: the main job on an embedded default, over HTTP."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from unrelu import planted
from unrelu.cli._common import (
    JsonOption,
    QuietOption,
    SeedOption,
    console,
    friendly,
    print_json,
)
from unrelu.errors import InvalidInput, OracleError
from unrelu.metrics import compare
from unrelu.networks import ReLUNetwork
from unrelu.result import RecoveryResult

PATIENCE = 5
"""Seconds for each defence that the demo's audit tries: an introduction, not an audit to keep."""


class Server(enum.StrEnum):
    """What serves the model."""

    UNRELU = "unrelu"
    MLSERVER = "mlserver"


ServerOption = Annotated[
    Server,
    typer.Option(
        "--server",
        help="Use unrelu's own server, or the real MLServer (from .venvs/mlserver or the PATH).",
        envvar="UNRELU_SERVER",
    ),
]
OutOption = Annotated[Path, typer.Option("--out", help="Write the report here: one HTML file.")]


def demo(
    seed: SeedOption = 0,
    server: ServerOption = Server.UNRELU,
    out: OutOption = Path("unrelu-demo-report.html"),
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:  # fmt: skip
    """Train a digit classifier, serve it, and recover it over HTTP.

    The classifier (64 pixels, 32 hidden units, 10 classes) runs in a server
    process of its own on loopback and answers with probabilities only. The
    commands `unrelu extract` and `unrelu audit` see nothing but its address.
    The last line says how close the recovered network is to the hidden one.
    """
    silent = quiet or as_json

    def say(text: str) -> None:
        if not silent:
            console.print(text, markup=False)

    start = time.perf_counter()
    with friendly(), tempfile.TemporaryDirectory(prefix="unrelu-demo-") as name:
        folder = Path(name)
        say("Training a digit classifier (64-32-10) ...")
        truth, classifier = planted.digits_classifier(32, rng=seed)
        if server is Server.MLSERVER:
            serving, words = _mlserver(classifier, folder), _MLSERVER_OPTIONS
        else:
            serving, words = _serving(truth.save(folder / "model.safetensors")), ()
        with serving as url:
            say(f"Serving it in a process of its own ({server.value}): {url}")
            clone = folder / "clone.safetensors"
            shared = (*words, "--ledger", str(folder / "answers.db"), "--seed", str(seed))
            _command(silent, "extract", url, "--out", str(clone), *shared)
            limits = ("--image", "8,8", "--patience", str(PATIENCE))
            _command(silent, "audit", url, "--out", str(out), *limits, *shared)
        result = RecoveryResult.load(clone)
        closeness = compare(ReLUNetwork.load(clone), truth, common_function=True)
    facts = {
        "status": result.status.name,
        "queries": result.queries.total,
        "queries_per_parameter": result.queries.without_certificate / truth.parameters,
        "round_trips": result.queries.round_trips,
        "seconds": time.perf_counter() - start,
        "relative_error": closeness.relative_error,
        "max_parameter_error": closeness.max_parameter_error,
        "report": str(out.absolute()),
    }
    if as_json:
        print_json(facts)
    else:
        say(f"\nThe report: {facts['report']}")
        console.print(
            f"The recovered network is within {facts['relative_error']:.1e} of the hidden one "
            f"(largest logit difference over their spread, 10,000 inputs), from "
            f"{facts['queries']:,} queries in {facts['round_trips']} requests, "
            f"{facts['queries_per_parameter']:.2f} a parameter before the certificate."
        )
    if not result.success:
        raise typer.Exit(1)


_MLSERVER_OPTIONS: tuple[str, ...] = ("--input-dim", "64", "--output-name", "predict_proba")


@contextlib.contextmanager
def _mlserver(classifier: Any, folder: Path) -> Iterator[str]:
    """Run MLServer with the classifier until the block ends; yields the model's address."""
    local = Path(".venvs/mlserver/bin/mlserver").absolute()
    program = str(local) if local.exists() else shutil.which("mlserver")
    if program is None:
        raise InvalidInput(
            "MLServer is not installed: run `make demo SERVER=mlserver`, or "
            "pip install mlserver mlserver-sklearn"
        )
    import joblib

    joblib.dump(classifier, folder / "model.joblib")
    ports = [_free_port() for _ in range(3)]
    settings = {"host": "127.0.0.1", "parallel_workers": 0, "http_port": ports[0],
                "grpc_port": ports[1], "metrics_port": ports[2]}  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"name": "digits", "implementation": "mlserver_sklearn.SKLearnModel",
             "parameters": {"uri": "./model.joblib"}}  # fmt: skip
    (folder / "model-settings.json").write_text(json.dumps(model))
    url = f"http://127.0.0.1:{ports[0]}/v2/models/digits"
    path = os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", "")])
    with subprocess.Popen(
        [program, "start", str(folder)], cwd=folder, env={**os.environ, "PATH": path},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _wait_for(f"{url}/ready", process)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # its workers too


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            opener.open(url, timeout=5).close()
        except OSError:  # not yet, or an error status
            time.sleep(0.1)
        else:
            return
    raise OracleError("MLServer did not start; run `.venvs/mlserver/bin/mlserver --version`")


@contextlib.contextmanager
def _serving(model: Path) -> Iterator[str]:
    """Run ``unrelu serve`` until the block ends; yields the model's address."""
    command = [sys.executable, "-m", "unrelu", "serve", str(model), "--softmax"]
    with subprocess.Popen(
        [*command, "--port", "0", "--json", "--quiet"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            text = ""
            assert server.stdout is not None
            while "}" not in text:
                line = server.stdout.readline()
                if not line:
                    raise OracleError("the demo's server did not start")
                text += line
            yield str(json.loads(text)["url"])
        finally:
            server.terminate()


def _command(silent: bool, *words: str) -> None:
    """Run one of our commands as a user would, and show what it says."""
    if not silent:
        console.print(f"\n$ unrelu {words[0]} {words[1]}", markup=False)
    # The matrices are small: several threads of BLAS would spend their time waiting.
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "unrelu", *words],
        env={**threads, **os.environ, "COLUMNS": str(console.width - 2)},
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in {0, 1} or "Traceback" in done.stderr:
        raise OracleError(f"unrelu {words[0]} failed: {done.stderr.strip()[-500:]}")
    if not silent:
        for line in done.stderr.splitlines():
            console.print(f"  {line}", markup=False)
