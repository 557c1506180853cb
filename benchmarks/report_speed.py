"""The speed of the moments beside a matrix product, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.harness import RESULTS

__all__ = ["BLOCKS"]


def moments_speed() -> str:
    """Return the table of ``benchmarks.moments_speed`` on a GPU."""
    path = RESULTS / "moments_gpu.json"
    if not path.exists():
        return "Not measured yet: `python -m benchmarks.moments_speed --backends torch cupy`."
    rows = json.loads(path.read_text())["measurements"]
    lines = [
        "| arrays | sums | d | dtype | batch | Tflop/s | product's Tflop/s | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        m, n, k = row["product_shape"]
        lines.append(
            f"| {row['backend']} | {row['kernel']}, as ({m}, {n}) ({n}, {k}) | {row['d']} "
            f"| {row['dtype']} | {row['batch']:,} | {row['gflops'] / 1e3:.1f} "
            f"| {row['product_gflops'] / 1e3:.1f} | {row['ratio']:.2f} |"
        )
    return "\n".join([*lines, "", f"Measured on one {rows[0]['device']}."])


BLOCKS: dict[str, Callable[[], str]] = {"moments-speed": moments_speed}
