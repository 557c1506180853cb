"""The record of all answers of a run, and the oracle that keeps it.

Nothing that was seen is dropped: a result is compared with every answer of the
whole run before it is called recovered, those of the plan, of attempts given up
and of earlier methods included (:mod:`unrelu.core.explain`).
"""

from __future__ import annotations

import dataclasses
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.memory import BLOCK
from unrelu.core.price import Allowance
from unrelu.errors import OracleError
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle, Wrapper
from unrelu.result import RecoveryResult, StageReport

__all__ = ["Batch", "Record", "Remembered", "remembered", "with_plan"]

Result = TypeVar("Result", bound=RecoveryResult)

SPILL_BYTES = 32 * BLOCK * np.dtype(np.float64).itemsize
"""Answers beyond this size, 1 GiB, move from memory to a temporary file."""


class Batch(NamedTuple):
    """One batch of a run: where it was asked, what came back, for which stage."""

    points: FloatArray
    answers: FloatArray
    stage: str
    first: int
    """Number of its first row in the run."""


class Record:
    """Answers in the order in which they came; large ones wait on disk.

    Parameters
    ----------
    spill_bytes
        Size from which on what is held moves to a temporary file.
    """

    def __init__(self, spill_bytes: int = SPILL_BYTES) -> None:
        self._spill_bytes = spill_bytes
        self._held: list[Batch] = []
        self._held_bytes = 0
        self._spilled: list[tuple[int, tuple[int, int], int, str, int]] = []
        self._file: IO[bytes] | None = None
        self.rows = 0

    def __len__(self) -> int:
        return self.rows

    def add(self, points: FloatArray, answers: FloatArray, stage: str) -> None:
        """Keep a copy of ``points`` ``(n, d)`` and ``answers`` ``(n, m)``."""
        if len(points) == 0:
            return
        self._held.append(Batch(points.copy(), answers.copy(), stage, self.rows))
        self.rows += len(points)
        self._held_bytes += points.nbytes + answers.nbytes
        if self._held_bytes > self._spill_bytes:
            self._spill()

    def batches(self) -> Iterator[Batch]:
        """Yield all batches, oldest first."""
        for offset, (n, d), m, stage, first in self._spilled:
            assert self._file is not None
            self._file.seek(offset)
            numbers = np.frombuffer(self._file.read(8 * n * (d + m)))
            points, answers = numbers[: n * d], numbers[n * d :]
            yield Batch(points.reshape(n, d), answers.reshape(n, m), stage, first)
        yield from self._held

    def first_rows(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Return the first ``count`` points and answers of the run."""
        points: list[FloatArray] = []
        answers: list[FloatArray] = []
        for batch in self.batches():
            wanted = count - sum(map(len, points))
            if wanted <= 0:
                break
            points.append(batch.points[:wanted])
            answers.append(batch.answers[:wanted])
        if not points:
            return np.empty((0, 0)), np.empty((0, 0))
        return np.concatenate(points), np.concatenate(answers)

    def of_stage(self, stage: str) -> tuple[FloatArray, FloatArray] | None:
        """Return what was asked for a stage, ``(n, d)`` and ``(n, m)``; None if nothing was."""
        found = [batch for batch in self.batches() if batch.stage == stage]
        if not found:
            return None
        return np.concatenate([b.points for b in found]), np.concatenate(
            [b.answers for b in found]
        )

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the record)
            weakref.finalize(self, self._file.close)
        self._file.seek(0, 2)
        for batch in self._held:
            offset = self._file.tell()
            self._file.write(np.ascontiguousarray(batch.points, np.float64).tobytes())
            self._file.write(np.ascontiguousarray(batch.answers, np.float64).tobytes())
            n, d = batch.points.shape
            self._spilled.append(
                (offset, (n, d), batch.answers.shape[1], batch.stage, batch.first)
            )
        self._held, self._held_bytes = [], 0


class Remembered(Wrapper):
    """Passes queries on, keeps every answer, and holds a run to its price.

    Attributes
    ----------
    record
        All answers that passed, as the target gave them.
    allowance
        What the run may ask before it has outgrown its own plan.
    """

    def __init__(self, inner: Oracle, record: Record | None = None) -> None:
        super().__init__(inner)
        self.record = Record() if record is None else record
        self.allowance = Allowance(inner.meter)

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        self.allowance.check(len(points))
        stage = self.meter.stage_name
        try:
            answers = self.inner._answer(points, repeat)
        except OracleError as error:
            if error.answers is not None:
                self.record.add(points[: len(error.answers)], error.answers, stage)
            raise
        self.record.add(points, answers, stage)
        return answers


def with_plan(result: Result, target: Remembered, oracle: Any) -> Result:
    """Tell the plan's price in the result of the verb that began the run for ``oracle``."""
    planned = target.allowance.planned
    if planned is None or target is oracle:
        return result
    report = StageReport("plan", details={"expected queries": list(planned)})
    return dataclasses.replace(result, stages=(report, *result.stages))


def remembered(oracle: Any, record: Record | None = None) -> Remembered:
    """Return the oracle with a record: its own where a caller has begun one."""
    target = as_oracle(oracle)
    return target if isinstance(target, Remembered) else Remembered(target, record)
