"""The wrapper that answers from the ledger and records what is new."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.errors import OracleError
from unrelu.ledger import LedgerBinding, decode
from unrelu.oracles.base import Oracle, PartwiseOracle, Wrapper
from unrelu.oracles.identity_check import IdentityCheck

__all__ = ["Recorded"]


class Recorded(Wrapper):
    """Looks rows up in the ledger and sends only those that are new.

    A section with answers of an earlier run is first checked against the
    target: see :mod:`unrelu.oracles.identity_check`.
    """

    def __init__(self, inner: Oracle, binding: LedgerBinding) -> None:
        super().__init__(inner)
        self.binding = binding
        self._identity_check = IdentityCheck(inner, binding)

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        keys = self.binding.keys(points, repeat)
        held = self.binding.lookup(keys)
        first_rows = {key: i for i, key in reversed(list(enumerate(keys))) if key not in held}
        self._identity_check.run(sending=bool(first_rows))
        if first_rows:
            rows = sorted(first_rows.values())
            new_keys = [keys[i] for i in rows]
            answers = self._ask(new_keys, points[rows], repeat)
            if len(rows) == len(keys):
                return answers
            raw = np.ascontiguousarray(answers, dtype="<f8")
            held.update((key, raw[i].tobytes()) for i, key in enumerate(new_keys))
        return decode([held[key] for key in keys], self.output_dim, self.binding.ledger.path)

    def _ask(self, keys: list[bytes], points: FloatArray, repeat: int) -> FloatArray:
        """Ask the inner oracle; everything it answered is on disk when this returns or raises."""
        if isinstance(self.inner, PartwiseOracle):

            def deliver(rows: IntArray, answers: FloatArray) -> FloatArray:
                return self.binding.record([keys[i] for i in rows], points[rows], answers, repeat)

            return self.inner.answer_parts(points, deliver)
        try:
            answers = self.inner._answer(points, repeat)
        except OracleError as error:
            if error.answers is not None and len(error.answers):
                n = len(error.answers)
                self.binding.record(keys[:n], points[:n], error.answers, repeat)
            raise
        return self.binding.record(keys, points, answers, repeat)
