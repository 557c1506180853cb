"""The boundary to a black box: one small class, and the meter that counts.

An oracle answers batches: ``oracle(x)`` takes ``(n, d)`` and returns ``(n, m)``
in float64. Adapters (one file per kind of target) implement ``_ask``; wrappers
hold an ``inner`` oracle and pass on what they do not change. Rows are counted
where they leave for the target, in the adapter, by the :class:`Meter` that the
whole stack shares.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np

from unrelu._numbers import whole_number
from unrelu._types import ArrayLike, FloatArray, IntArray
from unrelu.errors import BudgetExhausted, InvalidAnswer, InvalidInput, OracleError, UnreluError
from unrelu.oracles.class_names import as_numbers
from unrelu.result import QueryStats

__all__ = [
    "DEFAULT_BATCH",
    "Adapter",
    "Deliver",
    "Meter",
    "Oracle",
    "PartwiseOracle",
    "SpendStore",
    "Wrapper",
    "all_finite",
    "check_points",
    "quick_sum",
]

DEFAULT_BATCH = 4096
"""Rows asked at a time: bounds memory, and what a crash can lose."""

DEFAULT_STAGE = "other"
Deliver = Callable[[IntArray, FloatArray], FloatArray]


class SpendStore(Protocol):
    """Where a meter keeps its counts durably (the ledger)."""

    def charge(self, stage: str, rows: int, budget: int | None) -> bool:
        """Record that ``rows`` leave; False, and no record, if over budget."""
        ...

    def refund(self, stage: str, rows: int) -> None:
        """Take back a charge for rows that provably never left."""
        ...

    def rebook(self, stage: str, other: str, rows: int) -> None:
        """Count ``rows`` that were charged to ``stage`` under ``other`` instead."""
        ...

    def spent(self) -> tuple[dict[str, int], int]:
        """Return rows by stage, and round trips, over all runs."""
        ...


class Meter:
    """Counts rows by stage and refuses what exceeds the budget.

    One meter serves one stack of wrappers. A batch is charged before it is
    sent, so that a crash never undercounts.

    Attributes
    ----------
    price
        What one row costs, in the caller's currency; None where unknown.
    sent
        Rows that left in this process; unlike :meth:`stats` it costs nothing to read.
    """

    price: float | None = None
    sent: int = 0

    def __init__(self, budget: int | None = None, store: SpendStore | None = None) -> None:
        self.budget = budget
        self._store = store
        self._by_stage: dict[str, int] = {}
        self._round_trips = 0
        self._stage = DEFAULT_STAGE
        self._lock = threading.Lock()

    @property
    def budget(self) -> int | None:
        """Rows that may be sent, or None."""
        return self._budget

    @budget.setter
    def budget(self, value: int | None) -> None:
        self._budget = None if value is None else whole_number(value, "budget")

    def attach(self, store: SpendStore) -> None:
        """Keep counts in ``store`` from now on; what was counted moves there."""
        with self._lock:
            for stage, rows in self._by_stage.items():
                store.charge(stage, rows, None)
            self._by_stage, self._round_trips = {}, 0
            self._store = store

    @property
    def stage_name(self) -> str:
        """The stage that is charged now."""
        return self._stage

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge what is asked inside to ``name``; nests, innermost wins."""
        outer, self._stage = self._stage, name
        try:
            yield
        finally:
            self._stage = outer

    def charge(self, rows: int) -> None:
        """Count ``rows`` about to be sent, or raise :class:`BudgetExhausted`."""
        with self._lock:
            if self._store is not None:
                granted = self._store.charge(self._stage, rows, self.budget)
            else:
                spent = sum(self._by_stage.values())
                granted = self.budget is None or spent + rows <= self.budget
                if granted:
                    self._by_stage[self._stage] = self._by_stage.get(self._stage, 0) + rows
                    self._round_trips += 1
            if granted:
                self.sent += rows
        if not granted:
            raise BudgetExhausted(
                f"the next batch of {rows:,} queries would exceed the budget of "
                f"{self.budget:,} ({self.stats().total:,} spent); raise the budget to go on"
            )

    def refund(self, rows: int) -> None:
        """Take back the last charge: the connection was never made, nothing left."""
        with self._lock:
            self.sent -= rows
            if self._store is not None:
                self._store.refund(self._stage, rows)
            else:
                self._by_stage[self._stage] -= rows
                self._round_trips -= 1

    def rebook(self, stage: str, other: str, rows: int) -> None:
        """Count ``rows`` of ``stage`` under ``other``: they came to serve another purpose.

        A certificate that fails becomes data for the search; what vouches for a
        result is then asked afresh.
        """
        with self._lock:
            if self._store is not None:
                self._store.rebook(stage, other, rows)
            else:
                rows = min(rows, self._by_stage.get(stage, 0))
                self._by_stage[stage] = self._by_stage.get(stage, 0) - rows
                self._by_stage[other] = self._by_stage.get(other, 0) + rows

    def stats(self) -> QueryStats:
        """Return the counts so far."""
        if self._store is not None:
            by_stage, round_trips = self._store.spent()
        else:
            by_stage, round_trips = dict(self._by_stage), self._round_trips
        return QueryStats(sum(by_stage.values()), by_stage, round_trips)


def quick_sum(array: FloatArray) -> float:
    """Return the sum of all entries, infinite where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.add.reduce(array, axis=None)) if array.size else 0.0


def all_finite(array: FloatArray) -> bool:
    """Whether no entry is NaN or infinite.

    A sum is several times faster than ``isfinite``: it is finite only if every
    entry is, and where it overflows on finite entries the exact test decides.
    """
    return bool(np.isfinite(quick_sum(array))) or bool(np.isfinite(array).all())


def check_points(x: ArrayLike, input_dim: int) -> FloatArray:
    """Return ``x`` as a C-contiguous float64 ``(n, d)`` array, or raise."""
    try:
        if np.iscomplexobj(x):
            raise TypeError("they are complex")
        points = np.ascontiguousarray(x, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"x is not an array of numbers: {error}") from error
    if points.ndim != 2 or points.shape[1] != input_dim:
        raise InvalidInput(f"x must have shape (n, {input_dim}), got {points.shape}")
    if not all_finite(points):
        raise InvalidInput("x contains NaN or infinite entries; nothing was sent")
    return points


class Oracle(abc.ABC):
    """A black box that answers batches of points.

    Attributes
    ----------
    input_dim, output_dim
        d and m.
    identity
        A stable name for the target; the ledger files answers under it.
    meter
        Shared by the whole stack.
    box
        Corners ``(low, high)`` of where the target may be asked, each ``(d,)``;
        None where it answers everywhere.
    row_shape
        Shape of one input as the target sees it, such as ``(1, 28, 28)``; None
        for flat rows.
    data
        Rows like those that the target is meant for, ``(n, d)``; None where none were given.
    class_names
        What the numbers stand for that were given to class names, where the target answers those.

    >>> import unrelu
    >>> unrelu.connect(unrelu.planted.affine(3, rng=0)).input_dim
    3
    """

    input_dim: int
    output_dim: int
    identity: str
    meter: Meter
    box: tuple[FloatArray, FloatArray] | None = None
    row_shape: tuple[int, ...] | None = None
    data: FloatArray | None = None
    class_names: Mapping[float, str] = MappingProxyType({})

    def __call__(self, x: ArrayLike, *, repeat: int = 0) -> FloatArray:
        """Answer ``x`` of shape ``(n, d)`` with ``(n, m)``.

        ``repeat`` tells apart deliberate repetitions of the same point: each
        value is a new query of its own, and a resumed run replays it.
        """
        repeat = whole_number(repeat, "repeat")
        points = check_points(x, self.input_dim)
        if len(points) == 0:
            return np.empty((0, self.output_dim))
        return self._answer(points, repeat)

    @abc.abstractmethod
    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        """Answer validated points."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge the queries asked inside to a named stage."""
        with self.meter.stage(name):
            yield

    @property
    def queries(self) -> QueryStats:
        """Rows sent to the target so far, by stage."""
        return self.meter.stats()


class Adapter(Oracle):
    """An oracle that talks to a target: subclasses implement ``_ask``."""

    def __init__(self, *, input_dim: int, identity: str, meter: Meter | None = None) -> None:
        self.input_dim = whole_number(input_dim, "input_dim", least=1)
        self.identity = identity
        self.meter = Meter() if meter is None else meter
        self._output_dim: int | None = None
        self._batches = 0
        self.class_names: dict[float, str] = {}

    @abc.abstractmethod
    def _ask(self, points: FloatArray) -> ArrayLike:
        """Send points to the target; return ``(n, m)`` or ``(n,)``."""

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        del repeat
        self.meter.charge(len(points))
        self._batches += 1
        name = f"batch {self._batches} ({len(points)} rows)"
        try:
            # A copy: what the target does to its input, now or later, changes no point of ours.
            raw = self._ask(points.copy())
        except UnreluError:
            raise
        except (Exception, SystemExit) as error:
            raise OracleError(
                f"the target failed on {name}: {type(error).__name__}: {error}"
            ) from error
        return self._check_answers(raw, len(points), name)

    def _check_answers(self, raw: ArrayLike, rows: int, name: str) -> FloatArray:
        try:
            answers = as_numbers(raw, self.class_names)
        except Exception as error:  # an answer of any type may do anything when it is read
            raise InvalidAnswer(
                f"the target's answer to {name} is not an array of numbers: {error}"
            ) from error
        if answers.ndim == 1 and len(answers) == rows:
            answers = answers[:, None]
        width = self._output_dim
        if answers.ndim != 2 or len(answers) != rows or (width and answers.shape[1] != width):
            expected = f"({rows}, {width})" if width else f"({rows}, m) or ({rows},)"
            raise InvalidAnswer(
                f"the target's answer to {name} has shape {answers.shape}, expected {expected}"
            )
        if answers.shape[1] == 0:
            raise InvalidAnswer(f"the target's answer to {name} has no output at all")
        if not all_finite(answers):
            row = int(np.flatnonzero(~np.isfinite(answers).all(axis=1))[0])
            raise InvalidAnswer(
                f"the target answered {answers[row].tolist()!r} to row {row} of {name}: "
                "NaN and infinity are not answers",
                answers=answers[:row].copy(),
            )
        return answers

    @property
    def output_dim(self) -> int:
        """m; where it is not known yet, one query at the origin finds out."""
        if self._output_dim is None:
            self.discover_output_dim(np.zeros((1, self.input_dim)))
        assert self._output_dim is not None
        return self._output_dim

    @output_dim.setter
    def output_dim(self, value: int) -> None:
        self._output_dim = whole_number(value, "output_dim", least=1)

    @property
    def knows_output_dim(self) -> bool:
        """Whether m is known without asking."""
        return self._output_dim is not None

    def discover_output_dim(self, point: FloatArray) -> FloatArray:
        """Ask one point ``(1, d)`` to learn how many outputs there are; return its answer."""
        with self.stage("connect"):
            answer = self._answer(point, 0)
        self.output_dim = answer.shape[1]
        return answer


@runtime_checkable
class PartwiseOracle(Protocol):
    """An oracle that sends parts of a batch side by side and hands each over on arrival.

    The ledger gives it ``deliver(rows, answers)``, which stores the answers to
    ``points[rows]`` and returns what the ledger holds for them: a part that
    arrived is kept whatever becomes of the others.
    """

    def answer_parts(self, points: FloatArray, deliver: Deliver) -> FloatArray:
        """Answer validated points, delivering every part as it arrives."""
        ...


class Wrapper(Oracle):
    """An oracle around another; subclasses change what passes through."""

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        self.input_dim = inner.input_dim
        self.output_dim = inner.output_dim
        self.box = inner.box
        self.row_shape = inner.row_shape
        self.data = inner.data

    @property
    def class_names(self) -> Mapping[float, str]:  # type: ignore[override]
        """Those of the target."""
        return self.inner.class_names

    @property
    def meter(self) -> Meter:  # type: ignore[override]
        """The meter of the whole stack."""
        return self.inner.meter

    @property
    def identity(self) -> str:  # type: ignore[override]
        """The inner identity, and what this wrapper does to it."""
        return self.inner.identity + self._identity_suffix()

    def _identity_suffix(self) -> str:
        return ""

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return self.inner._answer(points, repeat)
