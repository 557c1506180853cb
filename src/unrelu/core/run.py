"""A run of a method: its target, its stages, its end.

Every method that asks holds one :class:`Run`: the oracle with the record of all answers, the
generator, the progress, the reports of its stages and where the result comes from. How a run
ends is told once, here: a budget that is spent and arithmetic that breaks down become a status
with what was found until then, and nothing is called recovered that an answer contradicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from unrelu._random import RandomState, as_generator
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.record import remembered, with_plan
from unrelu.errors import BudgetExhausted
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, RecoveryResult, StageReport, Status

__all__ = ["AGAIN", "Run", "reported_stage"]

Result = TypeVar("Result", bound=RecoveryResult)

AGAIN = 6
"""How often something that did not help is tried again: what fails half of the time by chance
fails as often in a row once in a hundred."""


class Run:
    """What every method holds while it asks.

    Parameters
    ----------
    oracle
        The caller's target; where a caller has begun a record, it is continued.
    algorithm
        Name of the function that was called.
    rng
        Seed or generator.
    options
        What the caller chose, for the result's provenance.
    budget
        Queries that may be asked; None: what the oracle's meter says.
    progress
        Receives updates.

    Attributes
    ----------
    target
        The oracle, with the record of all answers and the allowance of the price.
    stages
        Reports of the stages that ended.
    """

    def __init__(
        self,
        oracle: Any,
        *,
        algorithm: str,
        rng: RandomState = None,
        options: Mapping[str, Any] | None = None,
        budget: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.oracle = oracle
        self.target = remembered(oracle)
        if budget is not None:
            self.target.meter.budget = budget
        self.rng = as_generator(rng)
        self.progress = as_progress(progress)
        self.stages: list[StageReport] = []
        self.provenance = Provenance(
            algorithm=algorithm,
            seed=rng if isinstance(rng, int) else None,
            options=dict(options or {}),
            target=self.target.identity,
        )

    @contextmanager
    def stage(self, name: str, message: str = "") -> Iterator[dict[str, Any]]:
        """Tell, charge and time what happens inside; details may be filled in."""
        self.progress.update(name, 0)
        with reported_stage(self.target, self.stages, name, message) as details:
            yield details

    def ended(
        self,
        steps: Callable[[], Result],
        stopped: Callable[[Status, str], Result],
        explained: Callable[[Result], Result],
    ) -> Result:
        """Return what ``steps`` gives, however it ends, held against every answer of the run.

        Parameters
        ----------
        steps
            The method.
        stopped
            Makes a result of what is known, with a status and a message.
        explained
            Compares a result with the record.
        """
        try:
            with as_breakdown():
                result = steps()
        except BudgetExhausted as error:
            message = f"{error}; what was found until then is returned"
            result = stopped(Status.BUDGET_EXHAUSTED, message)
        except Breakdown as error:
            result = stopped(Status.NUMERICAL_FAILURE, str(error))
        return with_plan(explained(result), self.target, self.oracle)


@contextmanager
def reported_stage(
    oracle: Oracle, stages: list[StageReport], name: str, message: str = ""
) -> Iterator[dict[str, Any]]:
    """Charge and time what happens inside, and add its report to ``stages``."""
    details: dict[str, Any] = {}
    before, start = oracle.queries.total, time.perf_counter()
    try:
        with oracle.stage(name):
            yield details
    finally:
        spent, seconds = oracle.queries.total - before, time.perf_counter() - start
        stages.append(StageReport(name, spent, seconds, message, details))
