"""Any JSON API, described by a request template and an answer path (JSONPath)."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidAnswer, InvalidInput
from unrelu.oracles.wire.columns import Columns
from unrelu.oracles.wire.png import encode_png
from unrelu.oracles.wire.protocol import parse_json

__all__ = ["JsonMapping"]

_PLACES = ("{{x}}", "{{row}}", "{{png}}")
"""What a template may be filled in with: all rows, one, or one as a picture."""


@dataclasses.dataclass(frozen=True)
class JsonMapping:
    """Any JSON API, described by a request template and an answer path.

    Attributes
    ----------
    request
        JSON with ``{{x}}`` where the batch goes, as a list of rows; ``{{row}}`` for an
        API that takes one row at a time; or ``"{{png}}"`` for one that takes one
        picture at a time, a PNG file in base64.
    answer
        JSONPath to the answers: ``$.outputs[0].scores``, ``$.predictions[*].p``.
    """

    request: str
    answer: str
    columns: Columns = dataclasses.field(default_factory=Columns, compare=False)

    def __post_init__(self) -> None:
        if sum(place in self.request for place in _PLACES) != 1:
            raise InvalidInput(
                "the request needs {{x}} where the batch of rows goes, {{row}} where a single row "
                f'goes, or "{{{{png}}}}" where a picture goes: {self.request!r}'
            )
        try:
            json.loads(self._fill("[]"))
        except ValueError as error:
            raise InvalidInput(f"the request is not JSON once filled in: {error}") from error
        _compiled(self.answer)

    def _fill(self, text: str) -> str:
        for place in _PLACES:
            filled = self.request.replace(place, text)
            if filled != self.request:
                return filled
        return self.request

    @property
    def rows_per_request(self) -> int | None:
        """One for an API of single rows."""
        return None if "{{x}}" in self.request else 1

    @property
    def identity(self) -> str:
        """A digest: a template may hold what should not be written down."""
        text = f"{self.request}\0{self.answer}".encode()
        return "json:" + hashlib.blake2b(text, digest_size=8).hexdigest()

    def encode(self, rows: FloatArray) -> tuple[bytes, dict[str, str]]:
        """Return the filled template."""
        values = rows[0] if self.rows_per_request == 1 else rows
        if "{{png}}" in self.request:
            body = self._fill(base64.b64encode(encode_png(values)).decode())
        else:
            body = self._fill(json.dumps(values.tolist()))
        return body.encode(), {"Content-Type": "application/json"}

    def decode(self, body: bytes, headers: Mapping[str, str], rows: int) -> FloatArray:
        """Return what the path leads to."""
        del headers
        path = _compiled(self.answer)
        found = path.findall(parse_json(body))
        if not found:
            raise InvalidAnswer(f"the server's answer has nothing at {self.answer}")
        if path.singular_query():
            return self.columns.read(found[0], rows)
        if len(found) != rows and len(found) % rows == 0:  # several stars: numbers, row by row
            return self.columns.read(np.reshape(found, (rows, -1)).tolist(), rows)
        return self.columns.read(found, rows)


def _compiled(path: str) -> Any:
    """Return a JSONPath that was understood."""
    try:
        import jsonpath
    except ImportError as error:
        raise InvalidInput(
            "an answer path needs the package python-jsonpath: pip install 'unrelu[http]'"
        ) from error
    if not path.startswith("$"):
        raise InvalidInput(f"an answer path starts with $, such as $.outputs[0].scores: {path!r}")
    try:
        return jsonpath.compile(path)
    except jsonpath.JSONPathError as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"cannot read the answer path {path!r}: {reason}") from error
