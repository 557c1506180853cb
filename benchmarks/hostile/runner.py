"""Run cases, one JSON line each; what is on file for the same code and core type is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import unrelu
from benchmarks.hostile.case import Case, Kind, Verdict
from benchmarks.hostile.price import is_over
from benchmarks.records import append, keep, read
from benchmarks.stamps import machine

MEMORY = 8 << 30
"""Bytes that a worker may map: a target that makes memory explode must not take the machine."""


class TimeUp(BaseException):
    """The time limit; no ``except Exception`` on the way swallows it."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeUp` after so many seconds of processor time, or thirty times as many by
    the clock: other processes on the machine must not make a case slow, and one that waits
    for ever must end as well.
    """

    def stop(*_: object) -> None:
        raise TimeUp

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, 1.0),
        (signal.SIGALRM, signal.ITIMER_REAL, 30.0),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, factor in timers:
        signal.setitimer(timer, factor * seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _last_frame(error: BaseException) -> str:
    """Name the error and where in the package it came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "unrelu" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:160]}"


def _called(case: Case) -> tuple[Any, Verdict | None]:
    """Return what the call gave, or the verdict on how it ended."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return case.call(), None
    except unrelu.UnreluError as error:
        return None, Verdict("honest", f"{type(error).__name__}: {str(error)[:200]}")
    except Exception as error:
        fair = isinstance(error, (ValueError, TypeError, OSError))
        # numpy's LinAlgError is a ValueError, but no sentence about what the caller did.
        if case.mistake and fair and not isinstance(error, np.linalg.LinAlgError):
            return None, Verdict("honest", f"{type(error).__name__}: {str(error)[:200]}")
        return None, Verdict("raw", _last_frame(error))


def run_case(kind: Kind, seed: int) -> dict[str, Any]:
    """Run and judge one case."""
    start = time.process_time()
    case = kind.make(seed)
    queries, over, planned = 0, False, None
    try:
        with deadline(kind.limit):
            result, verdict = _called(case)
        spent = time.process_time() - start
        with deadline(60.0):
            if verdict is None:
                verdict = case.judge(result)
                queries = int(getattr(getattr(result, "queries", None), "total", 0) or 0)
                over, planned = is_over(queries, lambda: case.price(result))
    except TimeUp:
        spent = time.process_time() - start
        verdict = Verdict("slow", f"no end within {kind.limit:g} s of processor time")
    line = {
        "id": f"{kind.name}/{seed}",
        "kind": kind.name,
        "seed": seed,
        "outcome": verdict.outcome,
        "why": verdict.why,
        "over_price": over,
        "queries": queries,
        "planned": planned,
        "seconds": round(spent, 3),
        "judging": round(time.process_time() - start - spent, 3),
    }
    return line | {k: _plain(v) for k, v in verdict.facts.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


# ------------------------------------------------------------------------ stamps


@lru_cache(maxsize=1)
def stamp() -> dict[str, Any]:
    """Say what ran where: a hash of the sources and of the benchmarks, machine, core type."""
    from threadpoolctl import threadpool_info

    cores = sorted({str(pool.get("architecture")) for pool in threadpool_info()} - {"None"})
    facts = machine()
    return {
        "code": facts["code"],
        "core": os.environ.get("OPENBLAS_CORETYPE") or "native",
        "blas": "+".join(cores),
        "commit": facts["commit"],
        "version": unrelu.__version__,
        "processor": facts["processor"],
        "numpy": facts["numpy"],
    }


# --------------------------------------------------------------------------- run


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _work(name: str, seed: int, limit: float | None) -> dict[str, Any]:
    from threadpoolctl import threadpool_limits

    from benchmarks.hostile.kinds import KINDS

    kind = next(k for k in KINDS if k.name == name)
    if limit is not None:
        kind = dataclasses.replace(kind, limit=min(limit, kind.limit))
    with threadpool_limits(1):
        return run_case(kind, seed)


def run(
    todo: Sequence[tuple[Kind, int]],
    path: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    limit: float | None = None,
) -> None:
    """Run cases that are not on file yet; append each outcome as it comes."""
    facts = stamp()

    def wanted(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One line for each case and core type: an older outcome goes as its new one comes."""
        mine = (line for line in lines if not (fresh and line["core"] == facts["core"]))
        return list({(line["core"], line["id"]): line for line in mine}.values())

    keep(path, wanted)
    done = {
        line["id"]
        for line in read(path)
        if (line["core"], line["code"]) == (facts["core"], facts["code"])
    }
    missing = [(kind, seed) for kind, seed in todo if f"{kind.name}/{seed}" not in done]
    with ProcessPoolExecutor(max_workers=jobs, initializer=_limited) as pool:
        futures = [pool.submit(_work, kind.name, seed, limit) for kind, seed in missing]
        for count, future in enumerate(as_completed(futures), start=1):
            line = future.result() | facts
            append(path, line)
            mark = line["outcome"] + (" over its price" if line["over_price"] else "")
            if line["outcome"] in ("false", "raw", "slow") or line["over_price"]:
                print(f"[{count}/{len(missing)}] {mark}: {line['id']}: {line['why']}",
                      file=sys.stderr, flush=True)  # fmt: skip
