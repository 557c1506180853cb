"""Model servers as processes of their own, for tests.

Run as a script: ``model_servers.py LOG PORT FAULTS`` serves a planted network over
KServe v2. Each inference request is logged as one JSON line: when, which rows
(digests), and what became of it. FAULTS is ``none`` or a seed: then about one
request in ten fails, each time in another way, the first NaN included; one is left
without an answer until the client gives up. A client that says which of its lives it is
in (``X-Life``) gets so many answers in it, and waits to be killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import numpy as np

import exact_sums
from unrelu import connect, planted
from unrelu.serving import Handler, ModelServer

WIDTHS = (10, 6, 1)
LIFE = 10  # answers that a client gets in each life that it counts

NETWORK = planted.random_network(*WIDTHS, rng=0)


def row_by_row(points: np.ndarray) -> np.ndarray:
    """The network's answers, the same bits however rows are batched."""
    return exact_sums.evaluate(NETWORK, points)


class Chaos:
    """Decides what happens to each request, and logs it."""

    def __init__(self, log: Path, seed: int | None) -> None:
        self.log = log.open("a", buffering=1)
        self.random = None if seed is None else random.Random(f"{seed}:{time.time()}")
        self.kinds = ["500", "503", "429", "drop", "cut"]
        # The first requests meet every fault that the log has not yet seen, NaN included.
        seen = {line["outcome"] for line in read_log(log)}
        script = [] if seed is None else ["ok", "nan", *self.kinds, "stall"]
        self.script = [outcome for outcome in script if outcome not in seen]
        self.lives: Counter[str] = Counter()
        self.lock = threading.Lock()

    def next(self) -> str:
        with self.lock:
            if self.random is None:
                return "ok"
            if self.script:
                return self.script.pop(0)
            return self.random.choice(self.kinds) if self.random.random() < 0.1 else "ok"

    def write(self, points: np.ndarray, outcome: str) -> None:
        digests = [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in points]
        with self.lock:
            line = {"time": time.time(), "outcome": outcome, "rows": digests}
            self.log.write(json.dumps(line) + "\n")

    def lives_on(self, life: str | None) -> bool:
        """Whether this life of a client has not had all of its answers."""
        if life is None:
            return True
        with self.lock:
            self.lives[life] += 1
            return self.lives[life] <= LIFE


class ChaosHandler(Handler):
    def wait_for_the_end(self) -> None:
        """Say nothing until the client hangs up."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.recv(1)

    def infer(self, points: np.ndarray, binary: bool) -> None:
        chaos = self.server.chaos
        if not chaos.lives_on(self.headers.get("X-Life")):
            self.wait_for_the_end()
            return
        outcome = chaos.next()
        if outcome in {"ok", "nan"}:
            if chaos.random is not None:
                time.sleep(chaos.random.random() * 0.02)  # answers overtake each other
            self.poison = outcome == "nan"
            chaos.write(points, outcome)
            super().infer(points, binary)
            return
        chaos.write(points, outcome)
        self.close_connection = True
        if outcome in {"500", "503"}:
            self.reply(int(outcome), {"error": "chaos"})
        elif outcome == "429":
            self.send(429, b"{}", {"Retry-After": "0"})
        elif outcome == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"outputs": [')
        elif outcome == "stall":
            self.wait_for_the_end()
        if outcome in {"drop", "cut"}:
            self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        if status == 200 and getattr(self, "poison", False) and "Content-Type" in headers:
            message = json.loads(body)
            message["outputs"][0]["data"][-1] = float("nan")
            body = json.dumps(message).encode()
            self.poison = False
        with contextlib.suppress(OSError):
            super().send(status, body, headers)


def read_log(path: Path) -> list[dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen, seconds: float = 900.0) -> None:
    """Wait until the server says that it is ready."""
    opener = build_opener(ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while True:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, f"{url} does not answer"
        try:
            opener.open(url, timeout=seconds).close()
        except OSError:  # not yet, or an error status
            time.sleep(0.05)
        else:
            return


@contextlib.contextmanager
def process(command: list[str], ready_url: str, **options) -> Iterator[subprocess.Popen]:
    """Run a server until the block ends."""
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, **options,
    ) as server:  # fmt: skip
        try:
            wait_for(ready_url, server)
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # its workers too
            server.wait()


@contextlib.contextmanager
def chaos_server(log: Path, faults: str = "none", port: int | None = None) -> Iterator[str]:
    """Serve the planted network in a process of its own; yields the model's address."""
    port = free_port() if port is None else port
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, str(log), str(port), faults]
    with process(command, f"http://127.0.0.1:{port}/v2", env=environment):
        yield f"http://127.0.0.1:{port}/v2/models/model"


if __name__ == "__main__":
    log_path, port_text, faults_text = sys.argv[1:]
    model = connect(row_by_row, input_dim=WIDTHS[0])
    with ModelServer(model, port=int(port_text)) as model_server:
        model_server.RequestHandlerClass = ChaosHandler
        model_server.chaos = Chaos(
            Path(log_path), None if faults_text == "none" else int(faults_text)
        )
        model_server.serve_forever(poll_interval=0.05)
