"""Run rows of a benchmark table: parallel, resumable, failures kept.

A row is a function of a seed that returns plain numbers and a boolean
``success`` judged by ground truth. Results go to ``benchmarks/results``, one JSON line for
each run, stamped with its code and machine (:mod:`benchmarks.records`; ``--results`` chooses
another folder); the printed table shows medians, 95th percentiles and maxima beside the
targets.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.records import RESULTS, describe, forget, load, record
from benchmarks.stamps import code, machine

__all__ = ["RESULTS", "NotHereError", "Row", "load", "machine", "main", "priced", "print_table",
           "quick_rows", "run_one", "run_suite", "summary"]  # fmt: skip

QUICK_SECONDS = 15.0  # a row of the quick suite takes no longer, by its published runs


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table.

    ``target`` maps a measured key to the figure asked for: for ``success`` the
    least count of successes over all ``seeds``, for every other key the largest
    median allowed (``max:key``: the largest maximum among successes; ``mean:key``: the
    largest mean; ``count:key``: the least count of runs in which ``key`` is true).
    """

    name: str
    run: Callable[[int], dict[str, Any]]
    seeds: Sequence[int]
    target: Mapping[str, float] = dataclasses.field(default_factory=dict)
    timeout: float = 600.0
    quick: int = 1  # seeds used by the quick suite, if fast; 0 leaves the row to the full one


class _Timeout(Exception):
    pass


class NotHereError(Exception):
    """What a row needs (a data set, say) is not on this machine: the row is skipped."""


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Timeout

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_one(row: Row, seed: int) -> dict[str, Any]:
    """Run one seed of one row; a crash or a timeout is a failure that is kept."""
    from threadpoolctl import threadpool_limits

    start = time.perf_counter()
    try:
        with threadpool_limits(1), _deadline(row.timeout):
            outcome = dict(row.run(seed))
    except NotHereError as error:
        return {"skipped": str(error), "seed": int(seed)}
    except _Timeout:
        outcome = {"success": False, "failure": f"timeout after {row.timeout:g} s"}
    except Exception:
        outcome = {"success": False, "failure": traceback.format_exc(limit=4)}
    outcome["success"] = bool(outcome.get("success", False))
    outcome["seed"] = int(seed)
    outcome["wall"] = round(time.perf_counter() - start, 4)
    return outcome


def priced(result: Any) -> dict[str, int]:
    """Return the rows that a run asked in all, and the high end of its own plan if it has one."""
    for stage in result.stages:
        if stage.name == "plan":
            high = int(stage.details["expected queries"][1])
            return {"asked": result.queries.total, "planned": high}
    return {"asked": result.queries.total}


def run_suite(
    suite: str,
    rows: Sequence[Row],
    *,
    seeds: int | None = None,
    jobs: int = 1,
    fresh: bool = False,
    folder: Path = RESULTS,
) -> dict[str, Any]:
    """Run what is missing of the given rows and append every outcome as it comes."""
    if fresh:
        forget(suite, [row.name for row in rows], folder)
    before = load(suite, folder)["rows"]
    todo: list[tuple[Row, int]] = []
    for row in rows:
        about = {"target": dict(row.target), "seeds": len(row.seeds)}
        describe(suite, row.name, about, folder)
        done = {run["seed"] for run in before.get(row.name, {"runs": []})["runs"]}
        todo += [(row, s) for s in row.seeds[:seeds] if s not in done]
    if todo:
        code()  # of what this process and its workers have imported, not of later edits
        with ProcessPoolExecutor(max_workers=jobs) as pool:
            futures = {pool.submit(run_one, row, seed): (row, seed) for row, seed in todo}
            for count, future in enumerate(as_completed(futures), start=1):
                row, seed = futures[future]
                outcome = future.result()
                if "skipped" in outcome:
                    print(f"skipped {row.name}: {outcome['skipped']}", file=sys.stderr)
                    continue
                record(suite, row.name, outcome, folder=folder)
                mark = "ok  " if outcome["success"] else "FAIL"
                print(
                    f"[{count}/{len(todo)}] {mark} {row.name} seed {seed} "
                    f"({outcome['wall']:.1f} s)",
                    file=sys.stderr,
                )
    return load(suite, folder)


def quick_rows(suite: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the quick suite, each with its few seeds.

    Left out are rows whose published runs took longer than :data:`QUICK_SECONDS` in the
    median, and rows that were never measured.
    """
    published = load(suite).get("rows", {})
    chosen = []
    for row in rows:
        walls = [run["wall"] for run in published.get(row.name, {}).get("runs", ())]
        if row.quick and walls and statistics.median(walls) <= QUICK_SECONDS:
            chosen.append(dataclasses.replace(row, seeds=row.seeds[: row.quick]))
    return chosen


def _numbers(runs: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [
        float(run[key])
        for run in runs
        if isinstance(run.get(key), (int, float)) and not isinstance(run[key], bool)
    ]


def summary(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Condense one row's runs: successes, and median, p95 and max of each key."""
    runs = entry["runs"]
    keys = [
        k for k in dict.fromkeys(k for run in runs for k in run) if k not in ("seed", "success")
    ]
    facts: dict[str, Any] = {"successes": sum(r["success"] for r in runs), "runs": len(runs)}
    for key in keys:
        values = sorted(_numbers(runs, key))
        if values:
            facts[key] = {
                "median": statistics.median(values),
                "p95": values[min(len(values) - 1, int(0.95 * len(values)))],
                "max": values[-1],
            }
    return facts


def print_table(data: Mapping[str, Any], names: Sequence[str] | None = None) -> None:
    """Print the summary of each row with the figures asked for."""
    for name, entry in data["rows"].items():
        if names is not None and name not in names:
            continue
        facts = summary(entry)
        print(f"\n{name}: {facts['successes']}/{facts['runs']} succeeded", end="")
        print(f" (asked: {entry['target']})" if entry.get("target") else "")
        for key, value in facts.items():
            if isinstance(value, dict):
                print(
                    f"    {key:<16} median {value['median']:<12.4g} "
                    f"p95 {value['p95']:<12.4g} max {value['max']:.4g}"
                )
        failed = [run["seed"] for run in entry["runs"] if not run["success"]]
        if failed:
            print(f"    failed seeds     {failed[:20]}")


def main(suite: str, rows: Sequence[Row]) -> None:
    """Command line of one benchmark file."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{suite}")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--seeds", type=int, help="at most this many seeds a row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fresh", action="store_true", help="forget earlier outcomes")
    parser.add_argument("--quick", action="store_true", help="a few seeds of each row")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the lines")
    parser.add_argument("--show", action="store_true", help="print the table, run nothing")
    options = parser.parse_args()
    chosen = [row for row in rows if options.rows in row.name]
    if not chosen:
        parser.error(f"no row contains {options.rows!r}; rows: {[row.name for row in rows]}")
    if options.quick:
        chosen = quick_rows(suite, chosen)
    if options.show:
        data = load(suite, options.results)
    else:
        data = run_suite(
            suite,
            chosen,
            seeds=options.seeds,
            jobs=options.jobs,
            fresh=options.fresh,
            folder=options.results,
        )
    print_table(data, [row.name for row in chosen])
