"""The wrapper that answers from the ledger and records what is new."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import OracleError
from unrelu.ledger import LedgerBinding, decode
from unrelu.oracles.base import Oracle, Wrapper

__all__ = ["Recorded"]


class Recorded(Wrapper):
    """Looks rows up in the ledger and sends only those that are new."""

    def __init__(self, inner: Oracle, binding: LedgerBinding) -> None:
        super().__init__(inner)
        self.binding = binding

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        keys = self.binding.keys(points, repeat)
        held = self.binding.lookup(keys)
        first_rows = {key: i for i, key in reversed(list(enumerate(keys))) if key not in held}
        if first_rows:
            rows = sorted(first_rows.values())
            new_keys = [keys[i] for i in rows]
            new_points = points[rows]
            try:
                answers = self.inner._answer(new_points, repeat)
            except OracleError as error:
                if error.answers is not None and len(error.answers):
                    n = len(error.answers)
                    self.binding.record(new_keys[:n], new_points[:n], error.answers, repeat)
                raise
            answers = self.binding.record(new_keys, new_points, answers, repeat)
            if len(rows) == len(keys):
                return answers
            raw = np.ascontiguousarray(answers, dtype="<f8")
            held.update((key, raw[i].tobytes()) for i, key in enumerate(new_keys))
        return decode([held[key] for key in keys], self.output_dim, self.binding.ledger.path)
