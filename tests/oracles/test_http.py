"""Prediction APIs over HTTP: protocols, limits, chaos, secrets."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import json
import logging
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import model_servers as servers
import numpy as np
import pytest

import exact_sums
from unrelu import (
    BudgetExhausted,
    InvalidAnswer,
    InvalidInput,
    Ledger,
    OracleError,
    UnreluError,
    connect,
)
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.oracles import HTTPOptions
from unrelu.oracles.http import parse_rate
from unrelu.oracles.http_transport import retry_after
from unrelu.result import Status

X = np.random.default_rng(0).standard_normal((50, 3))
W = np.random.default_rng(1).standard_normal((3, 2))
# A time-out is for servers that hang: a busy machine may take long over an honest answer.
FAST = {"backoff": 0.001, "timeout": 300.0}
PATIENCE = 900.0  # seconds after which another process has hung


class Scripted:
    """A server in a thread that answers each request by calling ``answer(path, body, n)``.

    ``answer`` returns ``(status, headers, body)``; n counts requests from zero.
    """

    def __init__(self, answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with outer.lock:
                    n = len(outer.requests)
                    outer.requests.append((self.path, dict(self.headers), body))
                status, headers, content = answer(self.path, body, n)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(content)

            do_GET = do_POST  # noqa: N815 - the base class's name

        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.root = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Scripted:
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def rows(self) -> int:
        return sum(len(json.loads(body)["x"]) for _, _, body in self.requests)


def model(points: np.ndarray) -> np.ndarray:
    """The target: the same bits however points are batched."""
    return exact_sums.product(points, W)


def ok(points: np.ndarray) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"y": model(points).tolist()}).encode()


def points_of(body: bytes) -> np.ndarray:
    return np.asarray(json.loads(body)["x"])


def ask(server: Scripted, path: str = "/predict", **options):
    http = HTTPOptions(request='{"x": {{x}}}', answer="$.y", **{**FAST, **options.pop("http", {})})
    return connect(server.root + path, http=http, **{"input_dim": 3, **options})


# ------------------------------------------------------------------ protocols


def test_a_mapping_asks_any_json_api_exactly():
    with Scripted(lambda path, body, n: ok(points_of(body))) as server:
        oracle = ask(server, batch_size=7)
        assert np.array_equal(oracle(X), model(X))
        assert oracle.queries.total == server.rows() == 51
        assert oracle.queries.round_trips == len(server.requests) == 1 + 8


@pytest.mark.parametrize(
    ("request_text", "answer", "reply"),
    [
        ('{"r": {{row}}}', "$.out", lambda p: {"out": p[0].tolist()}),
        ('{"r": {{row}}}', "$.out[0]['a b']", lambda p: {"out": [{"a b": float(p[0, 0])}]}),
        ('{"a": [1, {"r": {{x}}}]}', "$", lambda p: p.tolist()),
        ('{"r": {{x}}}', "$.p[*].s", lambda p: {"p": [{"s": row.tolist()} for row in p]}),
    ],
)
def test_mappings(request_text, answer, reply):
    def respond(path, body, n):
        message = json.loads(body)
        rows = message["r"] if "r" in message else message["a"][1]["r"]
        return 200, {}, json.dumps(reply(model(np.atleast_2d(rows)))).encode()

    with Scripted(respond) as server:
        http = HTTPOptions(request=request_text, answer=answer, **FAST)
        oracle = connect(server.root, input_dim=3, http=http)
        expected = model(X[:5])
        assert np.array_equal(oracle(X[:5]), expected[:, : oracle.output_dim])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request": "{}", "answer": "$.y"}, "needs {{x}}"),
        ({"request": "{{{x}}", "answer": "$.y"}, "not JSON"),
        ({"request": '{"a": {{x}}}', "answer": "y"}, "starts with"),
        ({"request": '{"a": {{x}}}', "answer": "$.y[?]"}, "cannot read"),
        ({"request": '{"a": {{x}}}'}, "both"),
        ({"protocol": "grpc"}, "is none of"),
        ({"protocol": "json"}, "template"),
        ({"concurrency": 0}, "concurrency"),
        ({"token_variable": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(options, message):
    with pytest.raises(InvalidInput, match=message):
        connect("http://127.0.0.1:9/predict", input_dim=3, http=HTTPOptions(**options))


def test_mlflow_answers():
    replies = [
        lambda p: {"predictions": model(p).tolist()},
        lambda p: {"predictions": model(p)[:, 0].tolist()},
        lambda p: {"predictions": [{"a": a, "b": b} for a, b in model(p).tolist()]},
        lambda p: {"predictions": {"a": model(p)[:, 0].tolist(), "b": model(p)[:, 1].tolist()}},
    ]
    for reply in replies:

        def respond(path, body, n, reply=reply):
            p = np.asarray(json.loads(body)["inputs"])
            return 200, {}, json.dumps(reply(p)).encode()

        with Scripted(respond) as server:
            oracle = connect(server.root + "/invocations", input_dim=3)
            assert np.array_equal(oracle(X), model(X)[:, : oracle.output_dim])


@pytest.mark.parametrize("kind", ["v2", "v2-binary", "auto"])
def test_kserve_v2_discovers_input_and_answers_to_the_bit(tmp_path, kind):
    with servers.chaos_server(tmp_path / "log") as url:
        oracle = connect(url, http=HTTPOptions(protocol=kind))
        x = np.random.default_rng(0).standard_normal((30, servers.WIDTHS[0]))
        assert np.array_equal(oracle(x), servers.row_by_row(x))
        assert connect(url + "/infer", http=HTTPOptions(protocol=kind)).identity == oracle.identity


def test_kserve_reads_the_scores_among_outputs_and_other_types():
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}

    def respond(path, body, n):
        if path.endswith("/m"):
            return 200, {}, json.dumps({"inputs": [tensor]}).encode()
        if not path.endswith("/infer"):
            return 404, {}, b"{}"
        message = json.loads(body)
        x = np.asarray(message["inputs"][0]["data"]).reshape(message["inputs"][0]["shape"])
        outputs = [
            {"name": "label", "datatype": "INT64", "shape": [len(x)], "data": [1] * len(x)},
            {"name": "probabilities", "datatype": "FP32", "shape": [len(x), 2],
             "data": model(x).ravel().tolist()},
        ]  # fmt: skip
        return 200, {}, json.dumps({"outputs": outputs}).encode()

    with Scripted(respond) as server:
        oracle = connect(server.root + "/v2/models/m")
        single = X.astype(np.float32).astype(np.float64)
        assert np.array_equal(oracle(X), model(single))
        labels = connect(server.root + "/v2/models/m", output="label")
        assert np.array_equal(labels(X), np.ones((50, 1)))
        with pytest.raises(InvalidAnswer, match="no output"):
            connect(server.root + "/v2/models/m", output="other")


# ------------------------------------------------------- failures and limits


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_failed_request_is_sent_again_and_charged_again(status):
    def respond(path, body, n):
        return (status, {}, b"{}") if n == 1 else ok(points_of(body))

    with Scripted(respond) as server:
        oracle = ask(server)
        assert np.array_equal(oracle(X), model(X))
        assert oracle.queries.total == server.rows() == 101


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_not_repeated(status):
    with Scripted(lambda path, body, n: (status, {}, b'{"error": "no\\n\\u001b[31m"}')) as server:
        with pytest.raises(OracleError, match=f"status {status}"):
            ask(server)
        assert len(server.requests) == 1


def test_giving_up_names_the_last_failure():
    with (
        Scripted(lambda path, body, n: (503, {}, b"busy")) as server,
        pytest.raises(OracleError, match=r"failed 3 times; the last time: .* status 503: busy"),
    ):
        ask(server, http={"retries": 2})


def test_too_large_a_request_is_halved():
    def respond(path, body, n):
        points = points_of(body)
        return ok(points) if len(points) <= 10 else (413, {}, b"")

    with Scripted(respond) as server:
        oracle = ask(server, http={"concurrency": 1})
        assert np.array_equal(oracle(X), model(X))
        before = len(server.requests)
        oracle(X + 1)
        assert len(server.requests) - before == 9  # it remembers that six rows pass


def test_nan_is_asked_again_three_times_then_told():
    asked: Counter[float] = Counter()

    def respond(path, body, n):
        points = points_of(body)
        answers = model(points)
        for i, first in enumerate(points[:, 0]):
            asked[first] += 1
            if first == X[4, 0] and asked[first] <= bad:
                answers[i, 1] = np.nan
        return 200, {}, json.dumps({"y": answers.tolist()}).encode()

    bad = 3
    with Scripted(respond) as server:
        assert np.array_equal(ask(server, batch_size=10)(X), model(X))
        # Only the row that was NaN is asked again.
        assert asked[X[4, 0]] == 4
        assert sum(asked.values()) == 1 + 50 + 3
        asked.clear()
        bad = 4
        with pytest.raises(InvalidAnswer, match="4 times"):
            ask(server, batch_size=10)(X)
        assert asked[X[4, 0]] == 4


@pytest.mark.parametrize(
    "body",
    [b"not json", b"[]", b'{"y": "text"}', b'{"y": [[1], [2, 3]]}', b'{"y": []}', b'{"y": null}',
     b'{"y": {"a": 1}}', b"[" * 100_000],
)  # fmt: skip
def test_nonsense_is_an_error(body):
    with Scripted(lambda path, b, n: (200, {}, body)) as server, pytest.raises(OracleError):
        ask(server)(X[:2])


def test_answers_that_arrived_are_kept_when_another_part_fails(tmp_path):
    gate = threading.Event()

    def respond(path, body, n):
        points = points_of(body)
        if X[25, 0] in points[:, 0] and not healed:
            gate.wait(PATIENCE)
            return 400, {}, b"no"
        if X[49, 0] in points[:, 0]:
            gate.set()
        return ok(points)

    healed = False
    with Scripted(respond) as server:
        oracle = ask(server, batch_size=10, ledger=tmp_path / "l.db", http={"concurrency": 5})
        with pytest.raises(OracleError, match="status 400") as caught:
            oracle(X)
        assert np.array_equal(caught.value.answers, model(X[:20]))
        with Ledger(tmp_path / "l.db") as book:
            assert book.entries()[0].answers == 1 + 40
        healed = True
        before = server.rows()
        assert np.array_equal(oracle(X), model(X))
        assert server.rows() - before == 10


def test_the_budget_covers_retries():
    def respond(path, body, n):
        return (500, {}, b"") if n % 2 else ok(points_of(body))

    with Scripted(respond) as server:
        oracle = ask(server, budget=120, batch_size=10)
        with pytest.raises(BudgetExhausted):
            oracle(np.concatenate([X + i for i in range(20)]))
        assert server.rows() == oracle.queries.total <= 120


def test_money_is_a_budget():
    with Scripted(lambda path, body, n: ok(points_of(body))) as server:
        oracle = ask(server, price=0.1, max_cost=1.0, batch_size=3)
        with pytest.raises(BudgetExhausted, match="budget of 10"):
            oracle(X)
        assert server.rows() == 10
        with pytest.raises(InvalidInput, match="price"):
            ask(server, max_cost=1.0)


def test_rows_never_leave_faster_than_the_rate():
    arrivals = []

    def respond(path, body, n):
        arrivals.append((time.monotonic(), len(points_of(body))))
        return (503, {}, b"") if n == 3 else ok(points_of(body))

    with Scripted(respond) as server:
        start = time.monotonic()
        oracle = ask(server, batch_size=20, http={"rate": 200.0, "concurrency": 4})
        oracle(np.concatenate([X, X + 1]))
    sent = 0
    for moment, rows in sorted(arrivals):
        sent += rows
        assert sent <= 200.0 * (moment - start)
    assert sent == 1 + 100 + 20


def test_a_refused_connection_costs_nothing(tmp_path):
    port = servers.free_port()
    http = HTTPOptions(request='{"x": {{x}}}', answer="$.y", retries=2, **FAST)
    for ledger in (None, tmp_path / "l.db"):
        oracle = connect(
            f"http://127.0.0.1:{port}/p", input_dim=3, output_dim=2, http=http, ledger=ledger
        )
        with pytest.raises(OracleError, match="no connection"):
            oracle(X)
        assert oracle.queries.total == 0


def test_retry_after_is_honoured_and_bounded():
    moments = []

    def respond(path, body, n):
        moments.append(time.monotonic())
        return (429, {"Retry-After": "1"}, b"") if n == 1 else ok(points_of(body))

    with Scripted(respond) as server:
        oracle = ask(server)
        oracle(X)
        assert moments[2] - moments[1] >= 1.0
    with (
        Scripted(lambda path, body, n: (429, {"Retry-After": "4000"}, b"")) as server,
        pytest.raises(OracleError, match="wait 4000 s"),
    ):
        ask(server)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=10_000)
    assert 9_000 < retry_after({"Retry-After": email.utils.format_datetime(later)}) <= 10_000
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None


def test_rates_are_read():
    assert parse_rate("50/s") == 50.0
    assert parse_rate("120 / min") == 2.0
    assert parse_rate("3600/h") == 1.0
    for text in ("50", "0/s", "-1/s", "1/day", "x/s"):
        with pytest.raises(InvalidInput, match="such as 50/s"):
            parse_rate(text)


# ------------------------------------------------------------------- security


def test_a_redirect_to_another_host_is_refused():
    with Scripted(lambda path, body, n: ok(points_of(body))) as elsewhere:
        for target in (elsewhere.root + "/p", "//evil.invalid/p", "https://127.0.0.1/p"):
            with (
                Scripted(lambda path, body, n, t=target: (307, {"Location": t}, b"")) as server,
                pytest.raises(OracleError, match="another host"),
            ):
                ask(server)
        assert elsewhere.requests == []


def test_a_redirect_on_the_same_host_is_followed_with_its_body():
    def respond(path, body, n):
        if path == "/predict":
            return 308, {"Location": "/v2/predict"}, b""
        return ok(points_of(body))

    with Scripted(respond) as server:
        assert np.array_equal(ask(server)(X), model(X))
    with (
        Scripted(lambda path, body, n: (302, {"Location": "/login"}, b"")) as server,
        pytest.raises(OracleError, match="moved to"),
    ):
        ask(server)
    with (
        Scripted(lambda path, body, n: (307, {"Location": "/predict"}, b"")) as server,
        pytest.raises(OracleError, match="status 307"),
    ):
        ask(server)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_an_unknown_certificate_is_refused(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with (
        Scripted(lambda path, body, n: ok(points_of(body)), tls=context) as server,
        pytest.raises(OracleError, match="certificate"),
    ):
        ask(server)
    assert server.requests == []


def test_a_token_reaches_the_server_and_nothing_else(tmp_path, monkeypatch, caplog, capfd):
    token, key = "s3cr3t-t0ken-value", "an0ther-secret"
    monkeypatch.setenv("MY_TOKEN", token)
    monkeypatch.setenv("MY_KEY", key)
    caplog.set_level(logging.DEBUG)

    def respond(path, body, n):
        if n < 2:
            return ok(points_of(body))
        # A server that echoes what it was sent, in an error.
        return (500 if n < 5 else 403), {}, f"bad token {token} {key}".encode()

    options = {"token_variable": "MY_TOKEN", "header_variables": {"X-Key": "MY_KEY"}, "retries": 5}
    with Scripted(respond) as server:
        oracle = ask(server, "/p?version=2&hidden=1", ledger=tmp_path / "l.db", http=options)
        oracle(X)
        with pytest.raises(OracleError) as caught:
            oracle(X + 1)
        _, headers, _ = server.requests[0]
        assert headers["Authorization"] == f"Bearer {token}"
        assert headers["X-Key"] == key
    texts = [
        str(caught.value), repr(caught.value), oracle.identity, repr(oracle.inner.inner.options),
        caplog.text, *capfd.readouterr(),
    ]  # fmt: skip
    files = [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    for text in texts + files:
        assert token not in text
        assert key not in text
    assert "hidden" not in oracle.identity
    other = Scripted(respond)
    other.server.server_close()


def test_credentials_in_an_address_are_refused():
    with pytest.raises(InvalidInput, match="user or password") as caught:
        connect("http://me:pa55word@127.0.0.1/v2/models/m", input_dim=3)
    assert "pa55word" not in str(caught.value)


def test_addresses_that_differ_in_their_query_are_different_targets():
    with Scripted(lambda path, body, n: ok(points_of(body))) as server:
        assert ask(server, "/p?model=a").identity != ask(server, "/p?model=b").identity


# ---------------------------------------------------------------------- chaos


def finished(log: Path) -> Counter[str]:
    """Rows of requests that were answered whole, and finite."""
    rows: Counter[str] = Counter()
    for line in servers.read_log(log):
        if line["outcome"] == "ok":
            rows.update(line["rows"])
        elif line["outcome"] == "nan":  # the last row's answer was NaN
            rows.update(line["rows"][:-1])
    return rows


def test_chaos_changes_nothing_but_the_count(tmp_path):
    # One request is left without an answer. All others take milliseconds, so that even on a
    # busy machine none is given up too early, which the server would count as answered.
    options = HTTPOptions(protocol="v2", timeout=15.0, backoff=0.02, retries=60, concurrency=4)

    def extract(url: str, ledger: str, **more):
        oracle = connect(
            url, ledger=tmp_path / ledger, batch_size=16, name="target", http=options, **more
        )
        return extract_two_layer(oracle, rng=3)

    with servers.chaos_server(tmp_path / "calm.log") as url:
        calm = extract(url, "calm.db")
    assert calm.status is Status.RECOVERED

    port = servers.free_port()
    outcome = {}

    def client() -> None:
        url = f"http://127.0.0.1:{port}/v2/models/model"
        outcome["result"] = extract(url, "stormy.db", budget=20_000)

    log = tmp_path / "stormy.log"
    with servers.chaos_server(log, "1", port):
        thread = threading.Thread(target=client)
        thread.start()
        while len(servers.read_log(log)) < 60 and thread.is_alive():
            time.sleep(0.01)
    with servers.chaos_server(log, "2", port):  # restarted in the middle
        thread.join()
    stormy = outcome["result"]

    assert stormy.status is Status.RECOVERED
    assert stormy.network == calm.network
    assert str(stormy.certificate) == str(calm.certificate)
    # Asked twice at most what was in flight when the server was stopped: four requests.
    again = finished(log) - finished(tmp_path / "calm.log")
    assert sum(again.values()) <= 4 * 16
    assert not finished(tmp_path / "calm.log") - finished(log)
    lines = servers.read_log(log)
    assert {"nan", "500", "503", "429", "drop", "cut", "stall"} <= {x["outcome"] for x in lines}
    received = sum(len(line["rows"]) for line in lines)
    assert calm.queries.total < received <= stormy.queries.total <= 20_000


def searching(log: Path) -> int:
    """Requests with more rows than the check of a model's identity has."""
    return sum(len(line["rows"]) > 3 for line in servers.read_log(log))


def test_a_client_killed_twenty_times_ends_with_the_same_bits(tmp_path):
    worker = Path(servers.__file__).with_name("http_worker.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def spawn(url: str, ledger: str, **life: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, str(worker), url, str(tmp_path / ledger)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment | life,
        )  # fmt: skip

    with servers.chaos_server(tmp_path / "calm.log") as url:
        process = spawn(url, "calm.db")
        expected, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    log, kills = tmp_path / "stormy.log", 0
    moments = random.Random(0)
    with servers.chaos_server(log) as url:
        while kills < 20:
            # Past the three rows that tell whether it is the same model. A life gets ten
            # answers at most: however late the killer is, it never finishes.
            process = spawn(url, "stormy.db", LIFE=f"life {kills}")
            known, deadline = searching(log), time.monotonic() + PATIENCE
            while searching(log) == known:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(moments.random() * 0.02)
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        process = spawn(url, "stormy.db")
        found, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    assert found == expected
    # Asked twice at most what was in flight at a kill, four requests of sixteen rows, and the
    # three rows that tell at each start whether it is the same model.
    again = finished(log) - finished(tmp_path / "calm.log")
    assert sum(again.values()) <= kills * (4 * 16 + 3)
    assert not finished(tmp_path / "calm.log") - finished(log)


class Dripping:
    """A server that sends a byte now and then, without end: headers, or a body."""

    def __init__(self, start: bytes) -> None:
        self.start = start
        self.server = socket.create_server(("127.0.0.1", 0))
        self.stop = threading.Event()
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}/p"

    def __enter__(self) -> Dripping:
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.server.accept()
                threading.Thread(target=self.drip, args=(client,), daemon=True).start()

    def drip(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(self.start)
            while not self.stop.wait(0.02):
                client.sendall(b"a")

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join()


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"],
    ids=["status line", "headers", "body"],
)
def test_the_deadline_of_a_request_holds_for_headers_too(start):
    http = HTTPOptions(request='{"x": {{x}}}', answer="$.y", timeout=0.3, retries=1, backoff=0.0)
    with Dripping(start) as server:
        oracle = connect(server.url, input_dim=3, output_dim=1, http=http)
        outcome = []

        def client() -> None:
            with pytest.raises(OracleError, match=r"within 0\.3 s"):
                oracle(np.ones((2, 3)))
            outcome.append(oracle.queries.total)

        thread = threading.Thread(target=client, daemon=True)
        thread.start()
        thread.join(60)  # without a deadline it would never end
        assert outcome == [4]  # both tries left, and are counted


@pytest.mark.parametrize("body", [
    b"[]", b"5", b"null", b'{"inputs": 5}', b'{"inputs": ["x"]}', b'{"inputs": [{"shape": 5}]}',
    b'{"inputs": [{"shape": [1]}], "extensions": 7}', b"[" * 100_000, b"\xff\xfe",
    b'{"inputs": [{"shape": [-1, "a"], "datatype": 5}]}',
])  # fmt: skip
def test_descriptions_of_any_shape_are_read_or_refused(body):
    def respond(path, content, n):
        return 200, {}, body

    with Scripted(respond) as server:
        for given in ({}, {"input_dim": 3}):
            with pytest.raises(UnreluError):
                connect(server.root + "/v2/models/m", http=HTTPOptions(**FAST), **given)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, "5", True, None])
@pytest.mark.parametrize(
    "name", ["timeout", "rate", "concurrency", "retries", "patience", "backoff", "backoff_limit"]
)
def test_numbers_that_are_none_are_refused(name, value):
    if (name == "rate" and value is None) or (value == 0.0 and name in ZERO_IS_FINE):
        return
    with pytest.raises(InvalidInput, match=name):
        HTTPOptions(**{name: value})


ZERO_IS_FINE = {"retries", "patience", "backoff", "backoff_limit"}


def test_names_of_headers_and_waits_that_make_no_sense(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "x")
    for header in ("X Key", "Schlüssel", "", "A\nB"):
        http = HTTPOptions(
            request='{"x": {{x}}}', answer="$", header_variables={header: "A_TOKEN"}
        )
        with pytest.raises(InvalidInput, match="header"):
            connect("http://127.0.0.1:9/p", input_dim=2, http=http)
    assert retry_after({"Retry-After": "nan"}) is None
    assert retry_after({"Retry-After": "inf"}) == float("inf")
    assert retry_after({"Retry-After": "Mon, 01 Jan 99999999999 00:00:00 GMT"}) is None
    for text in ("nan/s", "inf/s", "1e400/s", "-5/s", "0/s", "9" * 400 + "/s", "5/year", ""):
        with pytest.raises(InvalidInput, match="rate"):
            parse_rate(text)


def test_a_refused_description_and_an_error_page_give_one_sentence():
    page = b"<html><head><title>x</title></head><body><h1>Not  here</h1>" + b"<p>a</p>" * 500

    def respond(path, body, n):
        return (401 if path.endswith("/secret") else 404), {}, page

    with Scripted(respond) as server:
        with pytest.raises(OracleError, match=r"status 401: Not here .*token-env"):
            connect(server.root + "/v2/models/secret", http=HTTPOptions(**FAST))
        with pytest.raises(InvalidInput, match=r"status 404.*check the address"):
            connect(server.root + "/v2/models/m", http=HTTPOptions(**FAST))
        with pytest.raises(OracleError) as caught:
            connect(server.root + "/v2/models/m", input_dim=3, http=HTTPOptions(**FAST))
        assert len(str(caught.value)) < 500
        assert "<" not in str(caught.value)
