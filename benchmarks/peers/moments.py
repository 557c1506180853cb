"""Directions from the same Hermite moments: unrelu's decomposition and tensorly's CP.

    python -m benchmarks.peers.moments [--rows SUBSTRING] [--seeds N]

Both get the number of units and the same third and fourth moment, estimated from
the same samples; the judge measures the largest angle between a true direction and
the one matched to it. A success is an angle of at most 0.1 rad, from which
unrelu's polish reaches the exact units.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.harness import Row, main
from benchmarks.peers.environments import prepare
from benchmarks.peers.runner import DRIVERS
from unrelu.core.decompose import decompose
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.moments import (
    HermiteMoments,
    evaluate_series,
    hermite_moments,
    raw_sums,
    series_coefficients,
)

PIECE = 20_000


def problem(seed: int, d: int, m: int, n: int) -> tuple[np.ndarray, HermiteMoments]:
    """Return the true directions and the moments of their labels, control variate and all."""
    g = np.random.default_rng(seed)
    w = g.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    a, b = g.uniform(0.5, 1.5, m) * g.choice([-1.0, 1.0], m), g.uniform(-1.0, 1.0, m)

    def mean(low: HermiteMoments | None) -> HermiteMoments:
        stream, sums = np.random.default_rng((seed, 1)), None
        for _ in range(n // PIECE):
            x = stream.standard_normal((PIECE, d))
            y = np.maximum(x @ w.T + b, 0.0) @ a
            if low is not None:
                y = y - evaluate_series(x, series_coefficients(low))
            part = raw_sums(x, y, 2 if low is None else 4)
            sums = part if sums is None else tuple(s + p for s, p in zip(sums, part, strict=True))
        assert sums is not None
        return hermite_moments(tuple(np.asarray(s) / n for s in sums))

    low = mean(None)
    return w, mean(low) + low


def angle(truth: np.ndarray, found: np.ndarray) -> float:
    """Largest angle between a true direction and its match, in radians."""
    cosine = np.abs(truth @ found.T)
    rows, columns = linear_sum_assignment(-cosine)
    if len(rows) < len(truth) or not np.isfinite(cosine).all():
        return float(np.pi / 2)
    return float(np.arccos(np.clip(cosine[rows, columns], 0.0, 1.0)).max())


def run(seed: int, *, d: int, m: int, n: int, solver: str, setting: str) -> dict[str, Any]:
    truth, moments = problem(seed, d, m, n)
    start = time.perf_counter()
    if solver == "unrelu":
        vectors = np.linalg.svd(moments.flattening(), full_matrices=False)[0]
        rng = np.random.default_rng((seed, 2))
        found = decompose(moments, vectors, m, rng, PolishOptions())[0]
    else:
        with tempfile.TemporaryDirectory() as folder:
            given, out = Path(folder) / "moments.npz", Path(folder) / "directions.npy"
            np.savez(given, third=moments.dense(3), fourth=moments.dense(4), rank=m,
                     seed=seed, setting=setting)  # fmt: skip
            command = [str(prepare("tensorly")), str(DRIVERS / "tensorly_cp.py"), given, out]
            subprocess.run(command, check=True, capture_output=True)
            found = np.load(out)
    worst = angle(truth, found)
    return {"success": worst <= 0.1, "angle": worst, "seconds": time.perf_counter() - start}


PROBLEMS = [(10, 5, 200_000), (10, 10, 200_000), (8, 12, 500_000)]
SOLVERS = [("unrelu", "default"), ("tensorly CP", "default"), ("tensorly CP", "tuned")]
ROWS = [
    Row(
        f"d={d} m={m} N={n:.0e} | {solver} | {setting}",
        partial(run, d=d, m=m, n=n, solver=solver, setting=setting),
        range(61_000, 61_010), timeout=120.0, quick=0,
    )
    for d, m, n in PROBLEMS
    for solver, setting in SOLVERS
]  # fmt: skip

if __name__ == "__main__":
    main("peers_moments", ROWS)
