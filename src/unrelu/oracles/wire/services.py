"""Servers that take rows in one field of a JSON object and answer in another.

TensorFlow Serving (and KServe v1), MLflow, TorchServe behind its JSON envelope,
SageMaker's common format and Hugging Face's endpoints differ in names alone. An
address that is none of these is asked in each of the usual ways, once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from unrelu._types import FloatArray
from unrelu.errors import InvalidAnswer
from unrelu.oracles.wire.columns import Columns
from unrelu.oracles.wire.protocol import parse_json, telling

__all__ = ["PLAIN_FORMS", "SERVICES", "JsonService", "service"]

_ANSWERS = ("predictions", "outputs", "output", "results", "result", "data", "y")


@dataclasses.dataclass(frozen=True)
class JsonService:
    """One way to send rows and to find the answers.

    Attributes
    ----------
    identity
        Name of the protocol.
    field
        Field of the request that holds the rows; None: the rows are the request.
    row_field
        Field of an object that each row is wrapped into; None: a row is a list.
    columns
        Reads the predictions.
    """

    identity: str
    field: str | None = "instances"
    row_field: str | None = None
    columns: Columns = dataclasses.field(default_factory=Columns, compare=False)
    rows_per_request: int | None = None

    def encode(self, rows: FloatArray) -> tuple[bytes, dict[str, str]]:
        """Return the body and headers of a prediction request."""
        values: Any = rows.tolist()
        if self.row_field is not None:
            values = [{self.row_field: row} for row in values]
        message = values if self.field is None else {self.field: values}
        return json.dumps(message).encode(), {"Content-Type": "application/json"}

    def decode(self, body: bytes, headers: Mapping[str, str], rows: int) -> FloatArray:
        """Return the predictions."""
        del headers
        return self.columns.read(find_answers(parse_json(body), rows), rows)


def find_answers(message: Any, rows: int) -> Any:
    """Return the part of a response that holds the predictions."""
    if not isinstance(message, dict):
        return message
    for name in _ANSWERS:
        if message.get(name) is not None:
            return message[name]
    fields = telling(list(message))
    if fields:
        return message[fields[-1]]
    long_enough = [v for v in message.values() if isinstance(v, list) and len(v) == rows]
    if len(long_enough) == 1:
        return long_enough[0]
    raise InvalidAnswer(
        f"the server's answer has no predictions; it has: {', '.join(map(str, message))}. Say "
        "where they are: --request '{\"inputs\": {{x}}}' --answer '$.path.to.them'"
    )


SERVICES: Mapping[str, Mapping[str, str | None]] = {
    "tfserving": {"field": "instances"},
    "torchserve": {"field": "instances"},
    "sagemaker": {"field": "instances", "row_field": "features"},
    "mlflow": {"field": "inputs"},
    "huggingface": {"field": "inputs"},
}
"""How each protocol's requests differ."""
PLAIN_FORMS = ("instances", "inputs", "data", "x", "features", "input", None)
"""Fields in which an unknown JSON API may want its rows, the most usual first."""


def service(name: str, output: str | None = None) -> JsonService:
    """Return a protocol by name."""
    return JsonService(name, columns=Columns(output), **SERVICES[name])  # type: ignore[arg-type]
