"""A stage of a run: what it asked and how long it took, told in the result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unrelu.oracles.base import Oracle
from unrelu.result import StageReport

__all__ = ["reported_stage"]


@contextmanager
def reported_stage(
    oracle: Oracle, stages: list[StageReport], name: str, message: str = ""
) -> Iterator[dict[str, Any]]:
    """Charge and time what happens inside, and add its report to ``stages``.

    Details may be filled into what is yielded.
    """
    details: dict[str, Any] = {}
    before, start = oracle.queries.total, time.perf_counter()
    try:
        with oracle.stage(name):
            yield details
    finally:
        spent, seconds = oracle.queries.total - before, time.perf_counter() - start
        stages.append(StageReport(name, spent, seconds, message, details))
