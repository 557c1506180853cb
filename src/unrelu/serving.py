"""A small KServe v2 server to practise on: one model, standard library only.

It serves what :func:`unrelu.connect` opens, with JSON and the binary tensor
data extension. Meant for loopback: no TLS, no authentication.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu._version import __version__
from unrelu.errors import InvalidInput, UnreluError
from unrelu.oracles.base import Oracle
from unrelu.oracles.wire.kserve import HEADER_LENGTH

__all__ = ["ModelServer"]

MAX_REQUEST_BYTES = 1 << 28
_DATATYPES: dict[str, np.dtype[Any]] = {"FP64": np.dtype("<f8"), "FP32": np.dtype("<f4")}


class ModelServer(ThreadingHTTPServer):
    """Serves one oracle at ``/v2/models/NAME``.

    Parameters
    ----------
    oracle
        The model; it must answer from several threads.
    name
        As it appears in the address.
    datatype
        ``FP64`` or ``FP32``: the type of input and output.
    port
        0 picks a free one; :attr:`url` tells.
    """

    daemon_threads = True

    def __init__(
        self,
        oracle: Oracle,
        *,
        name: str = "model",
        datatype: str = "FP64",
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        if datatype not in _DATATYPES:
            raise InvalidInput(f"datatype must be FP64 or FP32, got {datatype!r}")
        if not name or not all(c.isalnum() or c in "-_." for c in name):
            raise InvalidInput(
                f"a model's name is made of letters, digits, - _ and ., got {name!r}"
            )
        self.oracle, self.name, self.datatype = oracle, name, datatype
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise InvalidInput(f"cannot listen on {host}:{port}: {error}") from error

    @property
    def url(self) -> str:
        """The model's address."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/v2/models/{self.name}"

    def metadata(self) -> dict[str, Any]:
        """Return what GET on the model answers."""
        shape = self.oracle.row_shape or (self.oracle.input_dim,)
        return {
            "name": self.name,
            "versions": ["1"],
            "platform": "unrelu",
            "inputs": [{"name": "x", "datatype": self.datatype, "shape": [-1, *shape]}],
            "outputs": [
                {"name": "y", "datatype": self.datatype, "shape": [-1, self.oracle.output_dim]}
            ],
        }


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: ModelServer
    protocol_version = "HTTP/1.1"
    server_version = f"unrelu/{__version__}"
    timeout = 60
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Stay silent."""

    def do_GET(self) -> None:
        """Answer health checks and descriptions."""
        path = self.path.split("?")[0].rstrip("/")
        model = f"/v2/models/{self.server.name}"
        if path == "/v2":
            facts = {"name": "unrelu", "version": __version__}
            self.reply(200, {**facts, "extensions": ["binary_tensor_data"]})
        elif path in {"/v2/health/live", "/v2/health/ready", f"{model}/ready"}:
            self.reply(200, {"ready": True})
        elif path == model:
            self.reply(200, self.server.metadata())
        else:
            self.reply(404, {"error": f"there is nothing here; the model is at {model}"})

    def do_POST(self) -> None:
        """Answer inference requests."""
        body = self.read_body()
        if body is None:
            return
        if self.path.split("?")[0].rstrip("/") != f"/v2/models/{self.server.name}/infer":
            self.reply(404, {"error": "there is no such model"})
            return
        try:
            points, binary = self.points(body)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            self.reply(400, {"error": f"not an inference request: {error}"})
            return
        try:
            self.infer(points, binary)
        except UnreluError as error:
            self.reply(500, {"error": str(error)})

    def infer(self, points: FloatArray, binary: bool) -> None:
        """Ask the model and send its answers."""
        answers = self.server.oracle(points)
        values = answers.astype(_DATATYPES[self.server.datatype])
        output: dict[str, Any] = {
            "name": "y",
            "datatype": self.server.datatype,
            "shape": list(values.shape),
        }
        message = {"model_name": self.server.name, "model_version": "1", "outputs": [output]}
        if not binary:
            output["data"] = values.astype(np.float64).ravel().tolist()
            self.reply(200, message)
            return
        raw = values.tobytes()
        output["parameters"] = {"binary_data_size": len(raw)}
        header = json.dumps(message).encode()
        self.send(200, header + raw, {HEADER_LENGTH: str(len(header))})

    def read_body(self) -> bytes | None:
        """Read the request's body; None, and an answer, where that is not possible."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            self.reply(411, {"error": "Content-Length is needed"})
            return None
        if int(length) > MAX_REQUEST_BYTES:
            self.close_connection = True
            self.reply(413, {"error": f"more than {MAX_REQUEST_BYTES} bytes"})
            return None
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def points(self, body: bytes) -> tuple[FloatArray, bool]:
        """Return the rows of a request, and whether its answer should be binary."""
        split = int(self.headers.get(HEADER_LENGTH, len(body)))
        message = json.loads(body[:split])
        (tensor,) = message["inputs"]
        datatype = tensor["datatype"]
        if datatype not in _DATATYPES:
            raise ValueError(f"datatype {datatype!r} is not FP64 or FP32")
        size = (tensor.get("parameters") or {}).get("binary_data_size")
        if size is None:
            values = np.asarray(tensor["data"], dtype=_DATATYPES[datatype])
        else:
            values = np.frombuffer(body[split : split + int(size)], dtype=_DATATYPES[datatype])
        # A float32 model rounds what it is given, whatever it was sent as.
        values = values.astype(_DATATYPES[self.server.datatype]).astype(np.float64)
        shape = tensor["shape"]
        points = values.reshape([int(n) for n in shape]).reshape(int(shape[0]), -1)
        if points.shape[1] != self.server.oracle.input_dim:
            raise ValueError(
                f"rows have {points.shape[1]} numbers, not {self.server.oracle.input_dim}"
            )
        if not np.isfinite(points).all():
            raise ValueError("NaN and infinity are not inputs")
        binary = bool((message.get("parameters") or {}).get("binary_data_output"))
        return points, binary

    def reply(self, status: int, message: dict[str, Any]) -> None:
        """Send JSON."""
        self.send(status, json.dumps(message).encode(), {"Content-Type": "application/json"})

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send a response whole."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
