"""Goel & Panigrahy to the letter: cuts in the middle, Theorem 7 from samples, high thresholds.

    python -m benchmarks.letter_goel [--rows SUBSTRING] [--seeds N] [--jobs J]
    python -m benchmarks.letter_goel --draw

``--draw`` writes ``docs/figures/letter_goel.svg`` (error against d at t = sqrt(2 log d)) from
the results on file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Row, load, main
from benchmarks.thresholds import match, orthonormal, pairs, stream, unit_rows
from unrelu.gaussian.algorithm import learn_from_samples
from unrelu.modular import learn_modular
from unrelu.thresholds.algorithm import recover_lowest_layer
from unrelu.thresholds.detect_samples import detect_in_samples

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "letter_goel.svg"
SUITE = "letter_goel"
UNITS = 10

Function = Callable[[np.ndarray], np.ndarray]


def middle(seed: int, kind: str, n: int, p: int, k: int) -> tuple[Function, Function, Any]:
    """A lower part h, sign units above it that are on at 2 %, a ReLU network of them on top."""
    rng = np.random.default_rng(seed)
    first, second = unit_rows(n, p, rng), rng.standard_normal((p, p)) / np.sqrt(p)
    bias = rng.uniform(0.0, 0.5, p)

    def lower(x: np.ndarray) -> np.ndarray:
        hidden = np.maximum(x @ first.T + bias, 0.0)
        if kind == "two ReLU layers":
            return np.maximum(hidden @ second.T + 0.5, 0.0)
        return np.tanh(2.0 * hidden) @ second.T if kind == "ReLU, tanh, mixed" else hidden

    truth = unit_rows(p, k, rng)
    cuts = np.quantile(lower(rng.standard_normal((100_000, n))) @ truth.T, 0.98, axis=0)
    inner, outer = rng.uniform(0.2, 1.0, (8, k)), rng.uniform(0.2, 1.0, 8)

    def f(x: np.ndarray) -> np.ndarray:
        units = (lower(x) @ truth.T > cuts).astype(float)
        return np.maximum(units @ inner.T - 0.1, 0.0) @ outer

    return lower, f, truth


def cut(seed: int, *, kind: str, learned: bool, count: int) -> dict[str, Any]:
    """Appendix E behind a lower part that is given, or learned from another output's labels.

    Success: the whole network is learned, and RECOVERED is said only of directions that are right.
    Where an input of the cut does not vary next to a unit (``recovered`` 0), no number of samples
    tells the unit's weight on it, and the function is the same.
    """
    n, p, k = 8, 6, 4
    lower, f, truth = middle(seed, kind, n, p, k)
    rng = np.random.default_rng([seed, 1])
    x = rng.standard_normal((count, n))
    part: Any = lower
    if learned:
        part = learn_from_samples(
            x[:60_000], lower(x[:60_000]) @ rng.uniform(0.5, 1.5, p), rng=seed
        )
    blind = learn_modular(x, f(x), rng=seed)
    begin = time.perf_counter()
    result = learn_modular(x, f(x), lower=part, rng=seed)
    angle = None if learned else match(result.directions, truth)[0]
    fresh = rng.standard_normal((50_000, n))
    answers = f(fresh)
    # Above the cut a polynomial of degree 2 stands for a ReLU network: not exact.
    whole = float(np.sqrt(np.mean((result.predict(fresh) - answers) ** 2)) / answers.std())
    wrong = bool(result.success and angle is not None and angle > 0.05)
    return {
        "success": bool(whole <= 0.1 and not wrong),
        "recovered": int(result.success),
        "angle": angle,
        "whole": whole,
        "overlap": result.overlap,
        "false_recovered": int(wrong),
        "without_lower": blind.status.name,
        "status": result.status.name,
        "seconds": time.perf_counter() - begin,
    }


def theorem_7(seed: int, *, n: int, precision: float, count: int) -> dict[str, Any]:
    """P = X_1 X_2, no linear term, low thresholds; samples only."""
    rng = np.random.default_rng(seed)
    truth, t = orthonormal(n, 2, rng), 0.3
    x = rng.standard_normal((count, n))
    y = (x @ truth.T > t).all(axis=1).astype(float)
    found = detect_in_samples(
        x, y, activation="sign", threshold=t, precision=precision, least=0.3, rng=seed
    )
    angle = match(found.directions, truth)[0]
    return {"success": angle <= 1.5 * precision, "angle": angle, "found": len(found.directions),
            "status": found.status.name}  # fmt: skip


def growing(seed: int, *, d: int, units: int, count: int) -> dict[str, Any]:
    """t = sqrt(2 log d): a union of orthonormal units among d inputs, landscape and refined."""
    truth, t = orthonormal(d, units, np.random.default_rng(seed)), float(np.sqrt(2 * np.log(d)))

    def f(x: np.ndarray) -> np.ndarray:
        return (x @ truth.T > t).any(axis=1).astype(float)

    result = recover_lowest_layer(
        stream(d, f, count, seed), activation="sign", units=units, rng=seed
    )
    landscape = match(result.landscape_directions, truth)[0]
    angle = match(result.directions, truth)[0]
    wrong = bool(result.success and angle > 0.5)
    return {"success": angle <= 0.3, "d": d, "t": t, "count": count, "landscape": landscape,
            "angle": angle, "false_recovered": wrong, "status": result.status.name}  # fmt: skip


def simultaneous(seed: int, *, printed: bool, products: bool) -> dict[str, Any]:
    """G(W) with and without the penalty that holds rows apart: directions of the landscape."""
    rng = np.random.default_rng(seed)
    truth, c = orthonormal(6, 6, rng), pairs(6, 0.0, 1.0, rng)

    def f(x: np.ndarray) -> np.ndarray:
        units = (x @ truth.T > 2.4).astype(float)
        extra = ((units @ c) * units).sum(axis=1) if products else 0.0
        return units.sum(axis=1) + extra

    result = recover_lowest_layer(
        stream(6, f, 10**6, seed), activation="sign", refine=False, units=6, rng=seed,
        method="printed" if printed else "simultaneous",
    )  # fmt: skip
    angle = match(result.landscape_directions, truth)[0]
    return {"success": angle <= 0.15, "angle": angle, "status": result.status.name}


def _row(name: str, run: Any, count: int, **target: float) -> Row:
    return Row(name, run=run, seeds=range(9100, 9100 + count), target=target, timeout=600.0)


ROWS = [
    *[
        _row(f"Appendix E, cut behind {kind}, known",
             partial(cut, kind=kind, learned=False, count=300_000), 8, success=6)
        for kind in ("a ReLU layer", "ReLU, tanh, mixed", "two ReLU layers")
    ],
    _row("Appendix E, cut behind a ReLU layer, learned by learn_from_samples",
         partial(cut, kind="a ReLU layer", learned=True, count=300_000), 8, success=6),
    _row("Theorem 7 from samples, n=2", partial(theorem_7, n=2, precision=0.1, count=200_000), 8,
         success=8),
    _row("Theorem 7 from samples, n=3", partial(theorem_7, n=3, precision=0.3, count=200_000), 8,
         success=8),
    *[
        _row(f"t = sqrt(2 log d), 10 units, d={d}",
             partial(growing, d=d, units=UNITS, count=10**6), 4, success=4)
        for d in (10, 20, 50, 100, 200)
    ],
    _row("t = sqrt(2 log d), 10 units, d=200, N=4e6",
         partial(growing, d=200, units=UNITS, count=4 * 10**6), 2, success=2),
    *[
        _row(f"t = sqrt(2 log d), d units, d={d}", partial(growing, d=d, units=d, count=10**6), 4)
        for d in (10, 20)
    ],
    *[
        _row(f"G(W) {'as printed' if printed else 'held apart'}, "
             f"{'products' if products else 'linear'} f",
             partial(simultaneous, printed=printed, products=products), 8)
        for printed in (True, False)
        for products in (False, True)
    ],
]  # fmt: skip


def draw_figure() -> None:
    """Draw the largest angle against d: of the landscape, and refined."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    rows = load(SUITE)["rows"]
    figure, axis = plt.subplots(figsize=(5.5, 3.8), constrained_layout=True)
    start = "t = sqrt(2 log d), "
    for prefix, style in ((f"{start}10 units", "o-"), (f"{start}d units", "s--")):
        runs = [run for name, entry in rows.items() if name.startswith(prefix)
                for run in entry["runs"] if run["count"] == 10**6]  # fmt: skip
        ds = sorted({run["d"] for run in runs})
        units = prefix.removeprefix(start)
        for key, colour in (("landscape", "tab:orange"), ("angle", "tab:blue")):
            ys = [np.median([min(run[key], np.pi) for run in runs if run["d"] == d]) for d in ds]
            name = "landscape" if key == "landscape" else "refined"
            axis.plot(ds, ys, style, color=colour, label=f"{name}, {units}")
    more = rows.get(f"{start}10 units, d=200, N=4e6", {"runs": []})["runs"]
    if more:
        for key, colour in (("landscape", "tab:orange"), ("angle", "tab:blue")):
            y = np.median([run[key] for run in more])
            axis.plot([200], [y], "*", color=colour, ms=9, label="4e6 samples")
    runs = [run for name, entry in rows.items() if name.startswith(f"{start}10 units")
            for run in entry["runs"] if run["count"] == 10**6]  # fmt: skip
    law = sorted({(r["d"], r["d"] / (r["count"] * np.exp(-r["t"] ** 2 / 2) / np.sqrt(2 * np.pi)))
                  for r in runs})  # fmt: skip
    axis.plot([d for d, _ in law], [v for _, v in law], "k:", label="d / (N phi(t))")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("inputs d, thresholds t = sqrt(2 log d)")
    axis.set_ylabel("largest angle, rad")
    axis.legend(fontsize=7)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    if "--draw" in sys.argv:
        draw_figure()
    else:
        main(SUITE, ROWS)
