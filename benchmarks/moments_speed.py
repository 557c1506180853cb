"""Moment accumulation against a matrix product of the same size and dtype.

    python -m benchmarks.moments_speed [--rows N] [--dims 128 256] [--dtypes float64 float32]
                                       [--backends numpy torch cupy] [--threads T]

Kernels of ``unrelu.core.moments``, exactly as the learner calls them, sums
over batches included:

- ``T2``: ``sum y`` and ``sum y x x^T``, all that T2 takes; a product (d, N) (N, d).
- ``T0-T2``: the same with ``sum y x``, one more pass over the data.
- ``slices``: ``sum y (v.x) x x^T`` and ``sum y (v.x)^2 x x^T`` for 128 vectors v; a
  product (256, N) (N, d(d+1)/2). Each slice on its own would cost a product
  (d, N) (N, d): ``naive_ratio`` counts the rate in those.

The product is timed both in batches of the same length and in one call; the
faster is the reference. T2 runs over 8 times as many rows, in longer batches. Runs on
numpy always, on torch (CUDA) and cupy where they are installed; what was measured goes to
``benchmarks/results`` as ``moments_cpu.jsonl`` and ``moments_gpu.jsonl``.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import RESULTS, record

PROBES = 128


def _backend(name: str) -> tuple[Any, Callable[[np.ndarray], Any], Callable[[], None], str]:
    """Return namespace, mover, synchroniser and the device's name."""
    if name == "numpy":
        return np, lambda a: a, lambda: None, platform.processor() or platform.machine()
    if name == "torch":
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA device")
        torch.backends.cuda.matmul.allow_tf32 = False
        return (
            torch,
            lambda a: torch.from_numpy(a).cuda(),
            torch.cuda.synchronize,
            torch.cuda.get_device_name(),
        )
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return cupy, cupy.asarray, cupy.cuda.Device().synchronize, name


def best(action: Callable[[], Any], wait: Callable[[], None], repeats: int) -> float:
    action()
    wait()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


def _accumulate(x: Any, y: Any, batch: int, kernel: Callable[[Any, Any], Any]) -> Any:
    from unrelu.core.moments import CompensatedSums

    sums = CompensatedSums()
    for start in range(0, len(x), batch):
        piece = x[start : start + batch]
        sums.add(kernel(piece, y[start : start + batch]), len(piece))
    return sums


def _products(a: Any, b: Any, batch: int) -> Any:
    total = None
    for start in range(0, len(a), batch):
        part = a[start : start + batch].T @ b[start : start + batch]
        total = part if total is None else total + part
    return total


def measure(
    name: str, kind: str, d: int, dtype: str, n: int, repeats: int, batches: list[int]
) -> dict[str, Any]:
    from unrelu.core.contractions import contraction_sums
    from unrelu.core.moments import raw_sums, second_sums

    xp, move, wait, device = _backend(name)
    rng = np.random.default_rng(0)
    pairs = d * (d + 1) // 2

    def gaussian(rows: int, columns: int) -> Any:
        """Draw a block, and repeat it on the device: billions of draws would take minutes."""
        block = move(rng.standard_normal((min(rows, 8192), columns)).astype(dtype))
        return xp.concatenate([block] * (rows // len(block)))

    x = gaussian(n, d)
    y = move(rng.standard_normal(n).astype(dtype))
    v = move(rng.standard_normal((PROBES, d)).astype(dtype) / np.asarray(d**0.5, dtype))

    def kernel(points: Any, values: Any) -> Any:
        if kind == "T2":
            return second_sums(points, values)
        if kind == "T0-T2":
            return raw_sums(points, values, order=2)
        return contraction_sums(points, values, v)

    tried = {
        batch: best(partial(_accumulate, x, y, batch, kernel), wait, repeats)
        for batch in batches
        if batch <= n
    }
    batch = min(tried, key=lambda b: tried[b])
    del x
    # The reference: two different arrays, or numpy would use the cheaper
    # symmetric product. Its rows are limited to what fits, and scaled up.
    m, k = (2 * PROBES, pairs) if kind == "slices" else (d, d)
    reference = min(n, max(batches)) if kind == "slices" else n
    left, right = gaussian(reference, m), gaussian(reference, k)
    scale = n / reference
    product = min(
        scale * best(partial(_products, left, right, rows), wait, repeats)
        for rows in {reference, min(batch, reference)}
    )
    flop = 2.0 * n * m * k
    row = {
        "backend": name, "device": device, "kernel": kind, "d": d, "dtype": dtype,
        "rows": n, "probes": PROBES if kind == "slices" else 0, "batch": batch,
        "seconds": tried[batch], "gflops": flop / tried[batch] / 1e9,
        "product_shape": [m, n, k], "product_gflops": flop / product / 1e9,
        "ratio": product / tried[batch],
    }  # fmt: skip
    if kind == "slices":
        row["naive_ratio"] = row["ratio"] * d * d / pairs
    print(
        f"{name} {kind} d={d} {dtype}: {row['gflops']:.0f} of "
        f"{row['product_gflops']:.0f} Gflop/s, ratio {row['ratio']:.2f}",
        file=sys.stderr,
    )
    return row


def linear_in_rows(d: int, rows: int) -> dict[str, Any]:
    """Time and peak memory of T2..T4 sums over N and 4 N rows, numpy."""
    import tracemalloc

    from unrelu.core.moments import raw_sums

    rng = np.random.default_rng(0)
    block = rng.standard_normal((4096, d)), rng.standard_normal(4096)
    facts = {}
    for n in (rows, 4 * rows):
        tracemalloc.start()
        start = time.perf_counter()
        from unrelu.core.moments import CompensatedSums

        sums = CompensatedSums()
        for _ in range(n // 4096):
            sums.add(raw_sums(*block, 4), 4096)
        facts[n] = (time.perf_counter() - start, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    (t1, m1), (t4, m4) = facts[rows], facts[4 * rows]
    return {"d": d, "rows": rows, "time_ratio_for_4x": t4 / t1, "memory_ratio_for_4x": m4 / m1}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moments_speed")
    parser.add_argument("--rows", type=int, help="rows for the slices (T2 takes 8 times as many)")
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--backends", nargs="+", default=["numpy", "torch", "cupy"])
    parser.add_argument("--threads", type=int, default=0, help="BLAS threads on the CPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the lines")
    options = parser.parse_args()
    from threadpoolctl import threadpool_limits

    with threadpool_limits(options.threads or None):
        for name in options.backends:
            suite = "moments_cpu" if name == "numpy" else "moments_gpu"
            try:
                for row in one_backend(name, options):
                    what = f"{name} {row['kernel']} d={row['d']} {row['dtype']}"
                    record(suite, what, row, options.results)
            except (ImportError, RuntimeError) as error:
                print(f"skipped {name}: {error}", file=sys.stderr)
        if "numpy" in options.backends:
            record("moments_cpu", "growth", linear_in_rows(24, 40_960), options.results)


def one_backend(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure one kind of arrays: every size, dtype and kernel."""
    gpu = name != "numpy"
    n = options.rows or (262_144 if gpu else 16_384)
    batches = [16_384, 65_536] if gpu else [1024, 2048, 4096]
    longer = [65_536, 262_144, 1_048_576] if gpu else batches
    room = (40 if gpu else 2) << 30  # bytes of pair products at most in a batch
    for d in options.dims:
        for dtype in options.dtypes:
            size = d * (d + 1) // 2 * np.dtype(dtype).itemsize
            fitting = [b for b in batches if b * size <= room]
            for kind in ("T2", "T0-T2", "slices"):
                count = n if kind == "slices" else 8 * n
                some = fitting if kind == "slices" else longer
                yield measure(name, kind, d, dtype, count, options.repeats, some)


if __name__ == "__main__":
    main()
