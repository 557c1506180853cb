"""The open inference protocol (v2) of KServe, Triton and MLServer, as JSON or raw bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidAnswer, InvalidInput
from unrelu.oracles.wire.protocol import parse_json, telling

__all__ = ["HEADER_LENGTH", "KServeV2"]

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
HEADER_LENGTH = "Inference-Header-Content-Length"


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
        message = parse_json(body[:split])
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
        for names in (telling(floats), floats, list(arrays)):
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
