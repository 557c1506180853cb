"""Theorem 1's growth: ``python -m benchmarks.two_layer_figures``.

Draws ``docs/figures/two_layer.svg`` from the row ``growth`` of the depth-2 suite: queries
against k(d + 2), and own time against k and d, each with the slope of a fitted power law.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import load

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "two_layer.svg"


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the exponent of the power law through the points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def time_exponents(runs: list[dict[str, Any]]) -> tuple[float, float]:
    """Return a and b of own time ~ k^a d^b, over the shapes that take a tenth of a second."""
    slow = [run for run in runs if run["own_seconds"] > 0.1]
    design = np.array([[1.0, np.log(run["hidden"]), np.log(run["inputs"])] for run in slow])
    right = np.log([run["own_seconds"] for run in slow])
    _, a, b = np.linalg.lstsq(design, right, rcond=None)[0]
    return float(a), float(b)


def draw(runs: list[dict[str, Any]]) -> None:
    """Write the figure."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    size = np.array([run["k(d+2)"] for run in runs], float)
    queries = np.array([run["queries"] for run in runs], float)
    seconds = np.array([run["own_seconds"] for run in runs])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for d in sorted({run["inputs"] for run in runs}):
        which = np.array([run["inputs"] == d for run in runs])
        left.loglog(size[which], queries[which], "o", label=f"d = {d}")
        right.loglog(size[which], seconds[which], "o", label=f"d = {d}")
    ends = np.array([size.min(), size.max()])
    left.loglog(ends, ends, "k:", label="one query per parameter")
    left.set(
        xlabel="k(d + 2)",
        ylabel="queries",
        title=f"queries: exponent {slope(size, queries):.2f}",
    )
    a, b = time_exponents(runs)
    right.set(
        xlabel="k(d + 2)", ylabel="own seconds", title=f"own time: about k^{a:.1f} d^{b:.1f}"
    )
    left.legend()
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    """Draw the figure from the saved runs."""
    runs = [run for run in load("two_layer")["rows"]["growth"]["runs"] if "queries" in run]
    draw(runs)
    print(f"{len(runs)} runs drawn into {FIGURE.name}")


if __name__ == "__main__":
    main()
