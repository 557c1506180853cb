"""What the boundary costs: wrappers without a ledger, new and cached rows with one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Row, main
from unrelu import connect
from unrelu.oracles import Batched, CallableOracle, Oracle

DIMENSION, BATCH = 784, 4096


def _zeros(x: np.ndarray) -> np.ndarray:
    return np.zeros((len(x), 1))


def _best(action: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def wrappers(seed: int) -> dict[str, Any]:
    """Microseconds a row that all wrappers add, over calling the target itself."""
    x = np.random.default_rng(seed).standard_normal((BATCH, DIMENSION))
    oracle: Oracle = CallableOracle(_zeros, input_dim=DIMENSION)
    oracle = connect(Batched(oracle, BATCH), budget=10**9)
    bare = _best(partial(_zeros, x), 20)
    wrapped = _best(partial(oracle, x), 20)
    micros = (wrapped - bare) / BATCH * 1e6
    return {"success": micros <= 1.0, "microseconds_per_row": micros}


def ledger(seed: int) -> dict[str, Any]:
    """Rows a second through the ledger, new and cached, in durable batches."""
    x = np.random.default_rng(seed).standard_normal((10 * BATCH, DIMENSION))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.db"
        oracle = connect(_zeros, input_dim=DIMENSION, ledger=path)
        new = len(x) / _best(partial(oracle, x), 1)
        cached = len(x) / _best(partial(oracle, x), 3)
        size = path.stat().st_size
    return {
        "success": new >= 10_000 and cached >= 50_000,
        "new_rows_per_second": new,
        "cached_rows_per_second": cached,
        "bytes_per_answer": size / len(x),
    }


ROWS = [
    Row("wrappers, 4096 x 784", wrappers, range(5), {"success": 5, "microseconds_per_row": 1.0}),
    Row("ledger, 4096 x 784", ledger, range(5), {"success": 5}),
]

if __name__ == "__main__":
    main("foundation", ROWS)
