"""What goes over the wire: KServe v2, MLflow, and any JSON API through a mapping.

A protocol turns points into a request's body and a response's body into
answers. It knows nothing of connections, retries or credentials.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidAnswer, InvalidInput

__all__ = ["JsonMapping", "KServeV2", "MLflow", "WireProtocol", "find_in_json"]

_FLOATS: dict[str, np.dtype[Any]] = {
    "FP64": np.dtype("<f8"),
    "FP32": np.dtype("<f4"),
    "FP16": np.dtype("<f2"),
}
_DATATYPES: dict[str, np.dtype[Any]] = {
    **_FLOATS,
    "BOOL": np.dtype("?"),
    **{f"{kind}INT{8 * n}": np.dtype(f"<{kind or 'I'}{n}".lower()) for kind in ("", "U")
       for n in (1, 2, 4, 8)},
}  # fmt: skip
_SCORE_WORDS = ("prob", "score", "logit")
HEADER_LENGTH = "Inference-Header-Content-Length"


class WireProtocol(Protocol):
    """Encodes points and decodes answers."""

    @property
    def identity(self) -> str:
        """What makes this way of asking different from another, without secrets."""
        ...

    @property
    def rows_per_request(self) -> int | None:
        """The most rows a request can carry, or None."""
        ...

    def encode(self, rows: FloatArray) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers that ask for ``rows``, ``(n, *row_shape)``."""
        ...

    def decode(self, body: bytes, headers: Mapping[str, str], rows: int) -> FloatArray:
        """Return the answers, ``(rows, m)``; NaN where the server said so."""
        ...


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"the server's answer is not JSON: {error}") from error


def _as_rows(values: Any, rows: int) -> FloatArray:
    """Return nested lists of numbers as ``(rows, m)``; null becomes NaN."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidAnswer(f"the server's answer is not an array of numbers: {error}") from error
    if rows == 1 and array.ndim <= 1:
        return array.reshape(1, -1)
    if array.ndim == 0 or len(array) != rows:
        raise InvalidAnswer(f"the server's answer has shape {array.shape} for {rows} rows")
    return array.reshape(rows, -1)


@dataclasses.dataclass(frozen=True)
class KServeV2:
    """The open inference protocol of KServe, Triton and MLServer.

    Attributes
    ----------
    input_name, output
        Tensor names; ``output`` None reads the one that carries scores.
    datatype
        ``FP64``, ``FP32`` or ``FP16``: how the input is declared and sent.
    binary
        Send and ask for raw bytes after a JSON header (binary tensor data
        extension).
    """

    input_name: str = "x"
    output: str | None = None
    datatype: str = "FP64"
    binary: bool = False
    rows_per_request: int | None = None

    def __post_init__(self) -> None:
        if self.datatype not in _FLOATS:
            raise InvalidInput(
                f"the model's input is {self.datatype}; only {', '.join(_FLOATS)} are asked"
            )

    @property
    def identity(self) -> str:
        """Protocol, type and output; JSON or binary carry the same numbers."""
        return f"v2:{self.datatype}:{self.output or ''}"

    def encode(self, rows: FloatArray) -> tuple[bytes, dict[str, str]]:
        """Return the body and headers of an inference request."""
        values = rows.astype(_DATATYPES[self.datatype])
        tensor: dict[str, Any] = {
            "name": self.input_name,
            "shape": list(rows.shape),
            "datatype": self.datatype,
        }
        request: dict[str, Any] = {"inputs": [tensor]}
        if self.output is not None:
            request["outputs"] = [{"name": self.output}]
        if not self.binary:
            tensor["data"] = values.astype(np.float64).ravel().tolist()
            return json.dumps(request).encode(), {"Content-Type": "application/json"}
        raw = np.ascontiguousarray(values).tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        request["parameters"] = {"binary_data_output": True}
        header = json.dumps(request).encode()
        return header + raw, {
            "Content-Type": "application/octet-stream",
            HEADER_LENGTH: str(len(header)),
        }

    def decode(self, body: bytes, headers: Mapping[str, str], rows: int) -> FloatArray:
        """Return the answers of an inference response."""
        length = headers.get(HEADER_LENGTH)
        if length is not None and not length.isdecimal():
            raise InvalidAnswer(f"the server's {HEADER_LENGTH} is not a number")
        split = len(body) if length is None else int(length)
        message = _parse(body[:split])
        outputs = message.get("outputs") if isinstance(message, dict) else None
        if not isinstance(outputs, list) or not all(isinstance(o, dict) for o in outputs):
            raise InvalidAnswer("the server's answer has no list of outputs")
        arrays, offset = {}, split
        for output in outputs:
            size = (output.get("parameters") or {}).get("binary_data_size")
            if size is None:
                arrays[str(output.get("name"))] = (output, output.get("data"))
                continue
            arrays[str(output.get("name"))] = (output, body[offset : offset + int(size)])
            offset += int(size)
        name = self._choose(arrays)
        return self._values(*arrays[name], rows)

    def _choose(self, arrays: Mapping[str, tuple[dict[str, Any], Any]]) -> str:
        if self.output is not None:
            if self.output not in arrays:
                raise InvalidAnswer(
                    f"the server has no output {self.output!r}; it has: {', '.join(arrays)}"
                )
            return self.output
        floats = [n for n, (o, _) in arrays.items() if o.get("datatype") in _FLOATS]
        telling = [n for n in floats if any(word in n.lower() for word in _SCORE_WORDS)]
        for names in (telling, floats, list(arrays)):
            if names:
                return names[-1]
        raise InvalidAnswer("the server's answer has no output")

    @staticmethod
    def _values(output: dict[str, Any], data: Any, rows: int) -> FloatArray:
        if isinstance(data, bytes):
            datatype = str(output.get("datatype"))
            kind = _DATATYPES.get(datatype)
            if kind is None or len(data) % kind.itemsize:
                raise InvalidAnswer(f"the server sent {len(data)} bytes of {datatype}")
            data = np.frombuffer(data, dtype=kind).astype(np.float64)
        try:
            flat = np.asarray(data, dtype=np.float64).ravel()
        except (TypeError, ValueError) as error:
            raise InvalidAnswer(f"the server's output is not numbers: {error}") from error
        if flat.size == 0 or flat.size % rows:
            raise InvalidAnswer(f"the server answered {flat.size} numbers to {rows} rows")
        return flat.reshape(rows, -1)


@dataclasses.dataclass(frozen=True)
class MLflow:
    """MLflow's scoring server: POST to ``/invocations``."""

    identity: str = "mlflow"
    rows_per_request: int | None = None

    def encode(self, rows: FloatArray) -> tuple[bytes, dict[str, str]]:
        """Return the body and headers of an invocation."""
        return json.dumps({"inputs": rows.tolist()}).encode(), {"Content-Type": "application/json"}

    def decode(self, body: bytes, headers: Mapping[str, str], rows: int) -> FloatArray:
        """Return the predictions: rows of numbers, numbers, or records."""
        del headers
        message = _parse(body)
        values = message.get("predictions") if isinstance(message, dict) else message
        if isinstance(values, dict):  # one list per column
            columns = [np.asarray(_as_rows(column, rows)) for column in values.values()]
            if not columns:
                raise InvalidAnswer("the server's answer has no predictions")
            return np.concatenate(columns, axis=1)
        if isinstance(values, list) and values and isinstance(values[0], dict):
            values = [list(record.values()) for record in values]
        if values is None:
            raise InvalidAnswer("the server's answer has no predictions")
        return _as_rows(values, rows)


_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\[\*\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")


def _parse_path(path: str) -> list[str | int | None]:
    """Split ``$.a[0]['b'][*]`` into names, indices and None for the star."""
    if not path.startswith("$"):
        raise InvalidInput(f"an answer path starts with $, such as $.outputs[0].scores: {path!r}")
    steps: list[str | int | None] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise InvalidInput(
                f"cannot read the answer path {path!r} at {path[position:]!r}; it is made of "
                ".name, ['name'], [0] and [*]"
            )
        name, index, single, double = match.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        position = match.end()
    return steps


def find_in_json(value: Any, steps: list[str | int | None]) -> Any:
    """Follow a path through parsed JSON; a star collects a list."""
    for i, step in enumerate(steps):
        if step is None:
            if not isinstance(value, list):
                raise InvalidAnswer(f"the server's answer has no list at step {i + 1} of the path")
            return [find_in_json(item, steps[i + 1 :]) for item in value]
        try:
            fits = isinstance(value, dict if isinstance(step, str) else list)
            value = value[step] if fits else _missing()
        except (KeyError, IndexError) as error:
            raise InvalidAnswer(f"the server's answer has no {step!r} where it should") from error
    return value


def _missing() -> Any:
    raise KeyError


@dataclasses.dataclass(frozen=True)
class JsonMapping:
    """Any JSON API, described by a request template and an answer path.

    Attributes
    ----------
    request
        JSON with ``{{x}}`` where the batch goes, as a list of rows, or
        ``{{row}}`` for an API that takes one row at a time.
    answer
        Where the answers are: ``$.outputs[0].scores``, ``$.predictions[*].p``.
    """

    request: str
    answer: str

    def __post_init__(self) -> None:
        if ("{{x}}" in self.request) == ("{{row}}" in self.request):
            raise InvalidInput(
                "the request needs {{x}} where the batch of rows goes, or {{row}} where a single "
                f"row goes: {self.request!r}"
            )
        try:
            json.loads(self._fill("[]"))
        except ValueError as error:
            raise InvalidInput(f"the request is not JSON once filled in: {error}") from error
        _parse_path(self.answer)

    def _fill(self, text: str) -> str:
        return self.request.replace("{{x}}", text).replace("{{row}}", text)

    @property
    def rows_per_request(self) -> int | None:
        """One for an API of single rows."""
        return 1 if "{{row}}" in self.request else None

    @property
    def identity(self) -> str:
        """A digest: a template may hold what should not be written down."""
        text = f"{self.request}\0{self.answer}".encode()
        return "json:" + hashlib.blake2b(text, digest_size=8).hexdigest()

    def encode(self, rows: FloatArray) -> tuple[bytes, dict[str, str]]:
        """Return the filled template."""
        values = rows[0] if self.rows_per_request == 1 else rows
        body = self._fill(json.dumps(values.tolist()))
        return body.encode(), {"Content-Type": "application/json"}

    def decode(self, body: bytes, headers: Mapping[str, str], rows: int) -> FloatArray:
        """Return what the path leads to."""
        del headers
        return _as_rows(find_in_json(_parse(body), _parse_path(self.answer)), rows)
