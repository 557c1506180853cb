"""The speed of the moments and of the fit beside their matrix products, as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.records import load
from benchmarks.report_common import markdown

__all__ = ["BLOCKS"]


def _rows(suite: str, unit: float, command: str) -> tuple[list[dict[str, Any]], str]:
    measured = load(suite)["rows"].items()
    rows = [run for name, entry in measured if name != "growth" for run in entry["runs"]]
    if not rows:
        return [], f"Not measured yet: `{command}`."
    lines = []
    for row in rows:
        m, n, k = row["product_shape"]
        lines.append([
            row["backend"], f"{row['kernel']}, as ({m}, {n}) ({n}, {k})", str(row["d"]),
            row["dtype"], f"{row['batch']:,}", f"{row['gflops'] / unit:.1f}",
            f"{row['product_gflops'] / unit:.1f}", f"{row['ratio']:.2f}",
        ])  # fmt: skip
    letter = "T" if unit == 1e3 else "G"
    header = ["arrays", "sums", "d", "dtype", "batch", f"{letter}flop/s",
              f"product's {letter}flop/s", "ratio"]  # fmt: skip
    return rows, markdown(header, lines)


def moments_speed() -> str:
    """Return the table of ``benchmarks.moments_speed`` on a GPU."""
    command = "python -m benchmarks.moments_speed --backends torch cupy"
    rows, table = _rows("moments_gpu", 1e3, command)
    return f"{table}\n\nMeasured on one {rows[0]['device']}." if rows else table


def moments_speed_cpu() -> str:
    """Return the same on the CPU, and how time and memory grow with the samples."""
    rows, table = _rows("moments_cpu", 1.0, "python -m benchmarks.moments_speed --backends numpy")
    if not rows:
        return table
    data = load("moments_cpu")
    growth = data["rows"]["growth"]["runs"][0]
    return (
        f"{table}\n\nMeasured on {data['machine']['cores']} cores. Four times as many rows than "
        f"{growth['rows']:,} (T0 to T4, d = {growth['d']}) take {growth['time_ratio_for_4x']:.2f} "
        f"times as long, and {growth['memory_ratio_for_4x']:.2f} times the memory."
    )


def fit_speed() -> str:
    """Return the table of ``benchmarks.fit_speed``."""
    measured = [entry["runs"][-1] for entry in load("fit_gpu")["rows"].values()]
    if not measured:
        return "Not measured yet: `python -m benchmarks.fit_speed`."
    lines = [
        [
            run["shape"], f"{run['parameters']:,}", f"{run['rows']:,}",
            f"{1e3 * run['step_seconds']:.0f} ms", f"{1e3 * run['products_seconds']:.0f} ms",
            f"{run['ratio']:.1f}", f"{run['fit_seconds']:.1f} s, {run['steps']} steps",
            f"{run['numpy_seconds']:.0f} s" if "numpy_seconds" in run else "",
        ]
        for run in measured
    ]  # fmt: skip
    header = ["network", "parameters", "rows", "first step", "its matrix products", "ratio",
              "whole fit", "with numpy, 16 cores"]  # fmt: skip
    return f"{markdown(header, lines)}\n\nMeasured on one {measured[0]['device']}."


BLOCKS: dict[str, Callable[[], str]] = {
    "moments-speed": moments_speed,
    "moments-speed-cpu": moments_speed_cpu,
    "fit-speed": fit_speed,
}
