"""What every wire protocol does, and how JSON is parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidAnswer

__all__ = ["SCORE_WORDS", "WireProtocol", "as_rows", "parse_json", "telling"]

SCORE_WORDS = ("prob", "score", "logit")
"""Parts of names that an output with scores may have."""


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


def parse_json(body: bytes) -> Any:
    """Parse a response's body."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"the server's answer is not JSON: {error}") from error


def as_rows(values: Any, rows: int) -> FloatArray:
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


def telling(names: list[str]) -> list[str]:
    """Return those names that promise scores."""
    return [name for name in names if any(word in name.lower() for word in SCORE_WORDS)]
