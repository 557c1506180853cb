"""Answers of one batch while they arrive, from requests side by side."""

from __future__ import annotations

import threading

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.errors import InvalidAnswer
from unrelu.oracles.base import Deliver

__all__ = ["Arriving"]


class Arriving:
    """Answers of one batch, in the order they arrive."""

    def __init__(self, n: int, deliver: Deliver) -> None:
        self._deliver = deliver
        self._answers: FloatArray | None = None
        self._known = np.zeros(n, dtype=np.bool_)
        self._lock = threading.Lock()

    def add(self, rows: IntArray, answers: FloatArray) -> None:
        """Hand answers over, then keep what came back."""
        kept = self._deliver(rows, np.ascontiguousarray(answers))
        with self._lock:
            if self._answers is None:
                self._answers = np.empty((len(self._known), kept.shape[1]))
            if kept.shape[1] != self._answers.shape[1]:
                raise InvalidAnswer("the number of outputs differs within one batch")
            self._answers[rows] = kept
            self._known[rows] = True

    def prefix(self) -> FloatArray | None:
        """Return the answers up to the first row without one."""
        if self._answers is None:
            return None
        end = len(self._known) if self._known.all() else int(np.argmin(self._known))
        return self._answers[:end].copy() if end else None

    def all(self) -> FloatArray:
        """Return all answers."""
        assert self._answers is not None
        return self._answers
