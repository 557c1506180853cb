"""What is shown of learning from samples: the figure, and the baselines' table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import load
from benchmarks.report_common import markdown, median, short, stamp, stamped

__all__ = ["BLOCKS", "DRAWINGS"]

METHODS = {
    "moments": "unrelu, width not given",
    "LM width 1.0m": "LM, width m",
    "LM width 1.5m": "LM, width 1.5 m",
    "Adam width 1.0m": "Adam, width m",
    "Adam width 1.5m": "Adam, width 1.5 m",
}


def baselines() -> str:
    """Return random starts beside the moments, on the same samples."""
    rows = load("samples_baselines")["rows"]
    cases = dict.fromkeys(name[name.index("d=") :] for name in rows)
    lines = []
    for case in cases:
        for key, method in METHODS.items():
            runs = rows.get(f"{key} {case}", {"runs": []})["runs"]
            if not runs:
                continue
            units = sum(run["success"] for run in runs)
            function = sum(bool(run.get("function_good")) for run in runs)
            lines.append([
                case, method, f"{units}/{len(runs)}", f"{function}/{len(runs)}",
                short(median(runs, "error")), short(median(runs, "function_error")),
                short(median(runs, "seconds")),
            ])  # fmt: skip
    return markdown(
        ["samples", "method", "units found", "function right", "parameter error",
         "function error", "seconds"],
        lines,
    )  # fmt: skip


def widths() -> str:
    """Say how often the width was discovered, over all runs in which it can be."""
    runs = [
        run
        for name, entry in load("samples")["rows"].items()
        if not name.startswith(("paper route", "smoothed"))
        for run in entry["runs"]
        if run.get("largest_cosine", 1.0) <= 0.95
    ]
    right = sum(bool(run["width_right"]) for run in runs)
    return f"Width discovered: right in {right} of {len(runs)} runs with no cosine above 0.95."


def paper_route() -> str:
    """Return the paper's tensors beside those used by default, before and after the polish."""
    lines = []
    for name, entry in load("samples")["rows"].items():
        runs = entry["runs"]
        if name.startswith("paper route") and runs:
            worst = min(run["moment_cosine"] for run in runs)
            default = min(run["default_moment_cosine"] for run in runs)
            lines.append([
                name.removeprefix("paper route "),
                f"{median(runs, 'moment_cosine'):.4f} ({worst:.4f})",
                f"{median(runs, 'default_moment_cosine'):.4f} ({default:.4f})",
                f"{sum(run['success'] for run in runs)}/{len(runs)}",
                short(median(runs, "error")),
            ])  # fmt: skip
    return markdown(
        ["samples", "paper's tensors, least cosine: median (worst)", "default's",
         "polished to 1e-8 from the paper's", "error"],
        lines,
    )  # fmt: skip


def _slope(runs: list[dict[str, Any]]) -> tuple[list[int], list[float]]:
    sizes = sorted(int(key[6:]) for key in runs[0] if key.startswith("error_"))
    return sizes, [statistics.median(run[f"error_{n}"] for run in runs) for n in sizes]


def _drawn() -> Any:
    keys = ("success", "error", "moment_cosine", "slope")
    return {
        name: [{k: v for k, v in run.items() if k in keys or k.startswith("error_")} for run in
               entry["runs"]]
        for name, entry in load("samples")["rows"].items()
    }  # fmt: skip


def current(path: Path) -> bool:
    """Whether a drawing was made from the results that are there now."""
    return stamped(path, _drawn())


def draw(path: Path) -> None:
    """Draw the moments' error against N, the rate against the smoothing, and the polish."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    rows = load("samples")["rows"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    runs = rows["moment error against N d=10 m=5"]["runs"]
    sizes, errors = _slope(runs)
    slope = statistics.fmean(run["slope"] for run in runs)
    left.loglog(sizes, errors, "o-", label=f"moments alone, mean slope {slope:.2f}")
    guide = [errors[0] * math.sqrt(sizes[0] / n) for n in sizes]
    left.loglog(sizes, guide, "k:", label="slope -1/2")
    left.set(xlabel="samples N", ylabel="error of the directions, rad", title="Moment estimate")
    left.legend()
    taus, rates = [], []
    for name, entry in rows.items():
        if name.startswith("smoothed") and entry["runs"]:
            taus.append(float(name.split("tau=")[1].split()[0]))
            rates.append(statistics.fmean(run["success"] for run in entry["runs"]))
    middle.semilogx(taus, rates, "o-")
    middle.set(xlabel="τ", ylabel="success rate", ylim=(0, 1.05), title="Smoothed W, d=8 m=12")
    for name, entry in rows.items():
        found = [run for run in entry["runs"] if run.get("moment_cosine") and "error" in run]
        if name.startswith("d=") and found:
            angles = [math.acos(min(run["moment_cosine"], 1.0)) for run in found]
            right.loglog(
                [max(angle, 1e-8) for angle in angles],
                [max(run["error"], 1e-17) for run in found],
                ".",
                label=name,
            )
    right.set(
        xlabel="largest angle of the moment estimate, rad",
        ylabel="parameter error after the polish",
        title="Both stages",
    )
    right.set_ylim(top=100.0 * right.get_ylim()[1])  # room for the legend
    right.legend(fontsize=7, ncols=2, loc="upper right")
    for axis in (left, middle, right):
        axis.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    stamp(path, _drawn())


BLOCKS: dict[str, Callable[[], str]] = {
    "samples-baselines": baselines,
    "samples-widths": widths,
    "samples-paper-route": paper_route,
}
DRAWINGS = {
    Path(__file__).parent.parent / "docs" / "figures" / "samples.svg": draw,
}
