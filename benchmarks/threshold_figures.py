"""Figures of the threshold algorithms: ``python -m benchmarks.threshold_figures [--seeds N]``.

Writes ``docs/figures/thresholds.svg`` and the numbers behind it,
``benchmarks/results/threshold_figures.jsonl``: accuracy against the threshold and against
the number of samples, and the refinement's error per step.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.records import forget, load, record
from benchmarks.thresholds import match, orthonormal, stream
from unrelu.thresholds.algorithm import recover_lowest_layer
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.query import QueryRefinement, queried_tan_alpha, refine_by_queries
from unrelu.thresholds.refine import refine_estimate

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "thresholds.svg"
SUITE = "threshold_figures"
UNITS = 10


def one(t: float, count: int, seed: int) -> dict[str, float]:
    """Landscape and refined error of a union of ten sign units."""
    truth = orthonormal(UNITS, UNITS, np.random.default_rng(seed))

    def f(x: np.ndarray) -> np.ndarray:
        return (x @ truth.T > t).any(axis=1).astype(float)

    result = recover_lowest_layer(stream(UNITS, f, count, seed), activation="sign", rng=seed)
    return {
        "t": t,
        "count": count,
        "seed": seed,
        "landscape": match(result.landscape_directions, truth)[0],
        "refined": match(result.directions, truth)[0],
    }


def nonlinear_share(t: float) -> float:
    """E|f - f_lin| / E f for the OR of ten independent units."""
    p = float(ndtr(-t))
    linear, either = UNITS * p, 1.0 - (1.0 - p) ** UNITS
    return (linear - either) / either


def steps(seed: int) -> dict[str, list[float]]:
    """The error after each accepted step of Algorithm 1, and after each slab's move."""
    rng = np.random.default_rng(seed)
    truth = orthonormal(5, 1, rng)
    tilt = np.linalg.svd(truth)[2][1]
    start = np.cos(0.2) * truth[0] + np.sin(0.2) * tilt
    asked = 0

    def is_on(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        return x @ truth[0] > 2.0

    tan_alpha = queried_tan_alpha(is_on, 5, 2.0, count=10_000, rng=rng, start=0.3)
    _, accepted = refine_estimate(tan_alpha, start, rng=rng, tolerance=1e-3, iterations=3000)
    random_search, asked = asked, 0
    state = QueryRefinement(start[None].copy(), np.array([2.05]), np.array([0.3]), np.zeros(1))
    refine_by_queries(
        is_on, state, tolerance=1e-8, move_thresholds=True, rng=rng, config=ThresholdConfig()
    )
    return {
        "accepted": accepted,
        "slab": state.history,
        "queries": [float(random_search), float(asked)],
    }


def numbers() -> dict[str, Any]:
    """Return what is on file: ``by_t`` and ``by_count``, a list each, and ``steps``."""
    rows = load(SUITE)["rows"]
    data: dict[str, Any] = {"steps": rows["steps"]["runs"][0]}
    for name, entry in rows.items():
        if name != "steps":
            data.setdefault(name.partition(": ")[0], []).extend(entry["runs"])
    return data


def draw(data: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    for axis, key, label in (
        (axes[0], "t", "threshold t (1e6 samples)"),
        (axes[1], "count", "samples (t = 2)"),
    ):
        runs = data["by_" + key]
        xs = sorted({run[key] for run in runs})
        for kind, colour in (("landscape", "tab:orange"), ("refined", "tab:blue")):
            ys = [np.median([r[kind] for r in runs if r[key] == x]) for x in xs]
            axis.plot(xs, ys, "o-", color=colour, label=kind)
        axis.set_yscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel("largest angle, rad")
    grid = np.linspace(min(r["t"] for r in data["by_t"]), max(r["t"] for r in data["by_t"]), 50)
    axes[0].plot(grid, [nonlinear_share(t) for t in grid], "k--", label="E|f - f_lin| / E f")
    axes[0].plot(
        grid,
        UNITS / (1e6 * np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi)),
        "k:",
        label="n / (N phi(t))",
    )
    axes[1].set_xscale("log")
    axes[0].legend()
    axes[1].legend()
    axes[2].semilogy(data["steps"]["accepted"], color="tab:orange", label="Algorithm 1, estimated")
    axes[2].semilogy(
        np.linspace(0, len(data["steps"]["accepted"]), len(data["steps"]["slab"])),
        data["steps"]["slab"],
        "o-",
        color="tab:blue",
        label=f"slab moves ({len(data['steps']['slab'])} in all)",
    )
    axes[2].set_xlabel("accepted steps of Algorithm 1")
    axes[2].set_ylabel("angle, rad")
    axes[2].legend()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threshold_figures")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    seeds = range(3000, 3000 + options.seeds)
    places = {
        "by_t": [(t, 1_000_000) for t in (1.6, 2.0, 2.4, 2.8, 3.2)],
        "by_count": [(2.0, c) for c in (50_000, 200_000, 1_000_000, 4_000_000)],
    }
    found: list[tuple[str, dict[str, Any]]] = [
        (f"{key}: t={t:g}, count={c}", one(t, c, seed))
        for key, some in places.items()
        for t, c in some
        for seed in seeds
    ]
    found.append(("steps", dict(steps(3000))))
    forget(SUITE, load(SUITE)["rows"])
    for row, outcome in found:
        record(SUITE, row, outcome)
    draw(numbers())


if __name__ == "__main__":
    main()
