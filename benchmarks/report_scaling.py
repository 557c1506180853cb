"""Fitted growth of queries, time and memory, and what it would mean for published sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import load
from benchmarks.report_common import count, markdown, median, short, stamp, stamped

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
#: Curves in the order of the page: what is on the axis.
AXES = {
    "depth 2, width": "hidden units k, 20-k-1",
    "depth 2, inputs": "inputs d, d-10-1",
    "depth 2, parameters": "parameters P, k-k-1",
    "depth 3, parameters": "parameters P, 2k-k-k-1",
    "learner, accuracy": "1/ε, d = 20, k = 50",
    "span, inputs": "inputs d, first layer of 20",
    "samples, N": "samples N, d = 10, m = 5, noise 0.1",
}
QUANTITIES = {"queries": "queries", "seconds": "computing seconds", "peak_mib": "peak MiB",
              "error": "error (rms over std)"}  # fmt: skip


class Fit(NamedTuple):
    """``value = scale x^exponent`` with the share of log-variance it explains."""

    scale: float
    exponent: float
    explained: float

    def __call__(self, x: float) -> float:
        return float(self.scale * x**self.exponent)


def curve(name: str) -> dict[float, list[dict[str, Any]]]:
    """Return the runs of one curve by their place on the axis."""
    points: dict[float, list[dict[str, Any]]] = {}
    for row, entry in load("scaling")["rows"].items():
        if row.startswith(f"{name}: "):
            for run in entry["runs"]:
                if "x" in run:
                    points.setdefault(float(run["x"]), []).append(run)
    return dict(sorted(points.items()))


def fit(name: str, quantity: str) -> Fit | None:
    """Fit a power law to the medians of the larger half of a curve, three points at least."""
    points = [(x, median(runs, quantity)) for x, runs in curve(name).items()]
    good = [(x, y) for x, y in points if y is not None and y > 0 and math.isfinite(y)]
    good = good[min(len(good) // 2, max(len(good) - 3, 0)) :]
    if len(good) < 3:
        return None
    x, y = (np.log([point[i] for point in good]) for i in (0, 1))
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(np.sum((y - y.mean()) ** 2))
    rest = float(np.sum((y - slope * x - intercept) ** 2))
    return Fit(float(np.exp(intercept)), float(slope), 1.0 - rest / spread if spread else 1.0)


def exponents() -> str:
    """Return the table of fitted exponents."""
    rows = []
    for name, axis in AXES.items():
        points = curve(name)
        if not points:
            continue
        runs = [run for some in points.values() for run in some]
        row = [name, axis, f"{short(min(points))} to {short(max(points))}",
               f"{sum(run['success'] for run in runs)}/{len(runs)}"]  # fmt: skip
        for quantity in QUANTITIES:
            law = fit(name, quantity)
            row.append("–" if law is None else f"{law.exponent:+.2f} ({law.explained:.3f})")
        rows.append(row)
    return markdown(["curve", "axis", "range", "success", *QUANTITIES.values()], rows)


def points() -> str:
    """Return the medians behind the fits."""
    rows = []
    for name in AXES:
        for x, runs in curve(name).items():
            rows.append([
                name, count(x), f"{sum(run['success'] for run in runs)}/{len(runs)}",
                count(median(runs, "queries")), count(median(runs, "round_trips")),
                short(median(runs, "seconds")), short(median(runs, "peak_mib")),
                short(median(runs, "error")),
            ])  # fmt: skip
    return markdown(
        [
            "curve",
            "x",
            "success",
            "queries",
            "round trips",
            "computing seconds",
            "peak MiB",
            "error",
        ],
        rows,
    )


def depth() -> str:
    """Compare one and two hidden layers at about the same number of parameters."""
    laws = {d: fit(f"depth {d}, parameters", "queries") for d in (2, 3)}
    times = {d: fit(f"depth {d}, parameters", "seconds") for d in (2, 3)}
    rows = []
    for size in (500, 1000, 2000):
        row = [count(size)]
        for table in (laws, times):
            row += [short(law(size)) if (law := table[d]) else "–" for d in (2, 3)]
        rows.append(row)
    header = ["parameters", "queries, depth 2", "queries, depth 3", "seconds, depth 2",
              "seconds, depth 3"]  # fmt: skip
    return markdown(header, rows)


#: Sizes as their authors publish them; none but the first two is a network that unrelu takes.
MODELS = [
    ("784-128-10 perceptron", 101_770, "within reach: measured, not extrapolated, at 784-128-1"),
    ("LeNet-300-100 perceptron (784-300-100-10)", 266_610, "two hidden layers"),
    ("ResNet-50", 25_600_000, "convolutional: not a target of unrelu"),
    ("BERT base", 110_000_000, "attention, GELU: not a target of unrelu"),
    ("GPT-2 XL", 1_500_000_000, "attention, GELU: not a target of unrelu"),
    ("GPT-3", 175_000_000_000, "attention, GELU: not a target of unrelu"),
]
RATES = (10.0, 100.0, 1000.0)  # queries a second


def price(queries: float) -> float:
    """Dollars at 1.50 a thousand for the first five million a month, 1.00 beyond."""
    first = min(queries, 5e6)
    return (1.5 * first + 1.0 * (queries - first)) / 1000.0


def _time(seconds: float) -> str:
    for unit, length in (
        ("years", 3.156e7), ("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0),
    ):  # fmt: skip
        if seconds >= length:
            return f"{short(seconds / length)} {unit}"
    return f"{short(seconds)} seconds"


#: Least exponents of the extrapolation: a scalar answer tells one number, so P parameters need P
#: queries; on the curve k-k-1 a query holds about sqrt P numbers, and all must be read.
LEAST_QUERIES, LEAST_SECONDS = 1.0, 1.5


def beyond(name: str, quantity: str, least: float) -> Fit | None:
    """Return a law that meets the fit at the largest point and is no flatter than ``least``."""
    law = fit(name, quantity)
    if law is None:
        return None
    exponent = max(law.exponent, least)
    largest = max(curve(name))
    return Fit(law(largest) / largest**exponent, exponent, law.explained)


def internet() -> str:
    """Extrapolate the fitted cost of depth 2 to published sizes."""
    name = "depth 2, parameters"
    fits = fit(name, "queries"), fit(name, "seconds")
    queries = beyond(name, "queries", LEAST_QUERIES)
    seconds = beyond(name, "seconds", LEAST_SECONDS)
    if queries is None or seconds is None or fits[0] is None or fits[1] is None:
        return "The curve `depth 2, parameters` has not been measured yet."
    rows = []
    for model, size, note in MODELS:
        asked = queries(size)
        rows.append([
            model, count(size), short(asked), f"${short(price(asked))}",
            *(_time(asked / rate) for rate in RATES), _time(seconds(size)), note,
        ])  # fmt: skip
    law = (
        f"Fitted to networks k-k-1 from P = {count(min(curve(name)))} to "
        f"{count(max(curve(name)))}: "
        f"queries grow as P^{fits[0].exponent:.2f}, "
        f"computing seconds as P^{fits[1].exponent:.2f}. Used "
        f"beyond the largest of them: {queries.scale:.3g} P^{queries.exponent:.2f} queries and "
        f"{seconds.scale:.2g} P^{seconds.exponent:.2f} seconds, since P parameters need at least "
        f"P scalar answers, and every number sent must be read, about P^1.5 of them here. "
        f"Everything below is extrapolation."
    )
    header = ["model", "parameters P", "queries", "price",
              *(f"at {rate:g}/s" for rate in RATES), "time on one core", "note"]  # fmt: skip
    return f"{law}\n\n{markdown(header, rows)}"


# ------------------------------------------------------------------- figure


def _drawn() -> Any:
    return {
        name: [[x, *(median(runs, q) for q in QUANTITIES)] for x, runs in curve(name).items()]
        for name in AXES
    }


def current(path: Path) -> bool:
    """Whether a drawing was made from the results that are there now."""
    return stamped(path, _drawn())


def draw(path: Path) -> None:
    """Draw all curves with their fits."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    plt.rcParams["svg.hashsalt"] = "unrelu"
    figure, axes = plt.subplots(4, 2, figsize=(7.5, 12), layout="constrained")
    marks = {"queries": "o", "seconds": "s", "peak_mib": "^", "error": "d"}
    for panel, (name, axis) in zip(axes.ravel(), AXES.items(), strict=False):
        places = curve(name)
        for quantity, label in QUANTITIES.items():
            y = [median(runs, quantity) for runs in places.values()]
            if not any(y):
                continue
            law = fit(name, quantity)
            slope = "" if law is None else f" ∝ x^{law.exponent:.2f}"
            (line,) = panel.loglog(
                list(places), [np.nan if v is None else v for v in y], marks[quantity],
                label=label + slope, markersize=4,
            )  # fmt: skip
            if law is not None:
                grid = np.geomspace(min(places), max(places), 20)
                panel.loglog(grid, [law(x) for x in grid], "-", lw=0.8, color=line.get_color())
        panel.set_title(name, fontsize=12)
        panel.set_xlabel(axis, fontsize=10)
        panel.xaxis.set_minor_formatter(NullFormatter())
        if places:
            low, high = panel.get_ylim()
            panel.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
            panel.legend(fontsize=9, frameon=False, loc="upper left")
        panel.grid(alpha=0.3)
    axes.ravel()[-1].axis("off")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    stamp(path, _drawn())


DRAWINGS: dict[Path, Callable[[Path], None]] = {FIGURES / "scaling.svg": draw}

BLOCKS: dict[str, Callable[[], str]] = {
    "scaling-exponents": exponents,
    "scaling-points": points,
    "scaling-depth": depth,
    "internet-scale": internet,
}
