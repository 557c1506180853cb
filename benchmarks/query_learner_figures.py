"""Figures of the query learner: ``python -m benchmarks.query_learner_figures``.

Writes ``docs/figures/query_learner.svg`` and the numbers behind it,
``benchmarks/results/query_learner_figures.jsonl``:

- queries to find a bump against 1/width: the limit of Remark 1.3 where answers
  are noisy, and what float64 rounding gives away;
- queries against 1/epsilon, k and d;
- error at equal queries beside trained networks: scikit-learn's MLPRegressor,
  and a torch MLP where torch is installed, each tuned on a fifth of the queries
  (:mod:`benchmarks.query_learner_baselines`).

The tables of ``docs/query_learner.md`` are written from the same numbers.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.query_learner import _bump, _random
from benchmarks.query_learner_baselines import compare, summary
from benchmarks.records import RESULTS, forget, load, record
from unrelu.learner.algorithm import learn_from_queries
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Noisy

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "query_learner.svg"
SUITE = "query_learner_figures"
PAGE = Path(__file__).parent.parent / "docs" / "query_learner.md"
BEGIN, END = "<!-- tables: begin (generated) -->", "<!-- tables: end -->"


def learn(oracle: Any, epsilon: float, seed: int, **options: Any) -> Any:
    return learn_from_queries(oracle, epsilon=epsilon, relative=True, rng=seed, **options)


def bump_queries(width: float, seeds: int) -> dict[str, float]:
    """Median queries, and successes, with exact and with noisy answers."""
    out: dict[str, float] = {"width": width}
    for name in ("float64", "noisy"):
        counts, found = [], 0
        for seed in range(6000, 6000 + seeds):
            truth = _bump(seed, width)
            exact: Oracle = as_oracle(truth)
            oracle = exact if name == "float64" else Noisy(exact, 1.4e-3, seed=seed)
            told = {} if name == "float64" else {"narrowest": width}
            result = learn(oracle, 1e-2, seed, certificate_samples=2000, **told)
            counts.append(result.queries.without_certificate)
            found += result.width >= 7
        out |= {name: statistics.median(counts), f"{name} found": found, "seeds": seeds}
    return out


def learner_queries(make: Callable[[int], ReLUNetwork], epsilon: float, seeds: int) -> float:
    return statistics.median(
        learn(make(seed), epsilon, seed).queries.without_certificate
        for seed in range(6100, 6100 + seeds)
    )


def draw(data: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    bumps = data["bumps"]
    inverse = [1 / b["width"] for b in bumps]
    axes[0].loglog(inverse, [b["noisy"] for b in bumps], "o-", label="noise 1e-3, width told")
    axes[0].loglog(inverse, [b["float64"] for b in bumps], "s-", label="float64, told nothing")
    axes[0].loglog(inverse, [2.6 * v for v in inverse], "k:", label="1 / (width · density)")
    axes[0].set(xlabel="1 / width of the bump", ylabel="queries", title="Finding a bump")
    for key, label in (("epsilon", "1 / ε"), ("k", "k"), ("d", "d")):
        points = data["growth"][key]
        axes[1].loglog(
            [p["value"] for p in points], [p["queries"] for p in points], "o-", label=label
        )
    axes[1].set(xlabel="1/ε, k or d (others: 1e-4, 50, 20)", ylabel="queries", title="Queries")
    rows = summary(data["baselines"])
    place = np.arange(len(rows))
    for key, mark in (("learner", "o"), ("scikit-learn", "s"), ("torch", "^")):
        values = [row.get(key) for row in rows]
        if any(v is not None for v in values):
            heights = [math.nan if v is None else v for v in values]
            axes[2].semilogy(place, heights, mark, label=key)
    axes[2].set_xticks(place, [row["name"] for row in rows], rotation=75, fontsize=7)
    axes[2].set(ylabel="error / std(F)", title="Error at equal queries")
    axes[2].set_ylim(top=1e3)
    for axis in axes:
        axis.legend(fontsize=8, **({"loc": "upper center", "ncols": 3} if axis is axes[2] else {}))
        axis.grid(alpha=0.3)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


def tables(data: dict[str, Any]) -> str:
    """The numbers behind the figure as Markdown."""

    def number(value: Any) -> str:
        return "" if value is None else f"{value:.1e}"

    def times(value: float) -> str:
        return f"{value:,.0f}" if value < 1e5 else f"{value:.0e}"

    rows = summary(data["baselines"])
    seeds = rows[0]["seeds"]
    lines = [
        f"Error over std(F) at equal queries, medians of {seeds} networks each; the ratio is "
        "the better baseline's error over the learner's, and the least ratio the worst of all "
        "networks:",
        "",
        "| target | queries | learner | scikit-learn | torch | ratio | least ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {r['name']} | {r['queries']:,.0f} | {number(r['learner'])} | "
            f"{number(r['scikit-learn'])} | {number(r['torch'])} | {times(r['ratio'])} | "
            f"{times(r['least ratio'])} |"
            for r in rows
        ),
        "",
        "Queries to find a bump that holds half of the variance, by its width:",
        "",
        "| width | " + " | ".join(f"{b['width']:g}" for b in data["bumps"]) + " |",
        "| --- |" + " ---: |" * len(data["bumps"]),
        *(
            f"| {label} | "
            + " | ".join(
                f"{b[key]:,.0f} ({b[key + ' found']}/{b['seeds']})" for b in data["bumps"]
            )
            + " |"
            for key, label in (
                ("float64", "float64, told nothing"),
                ("noisy", "noise 1e-3, width told"),
            )
        ),
        "",
        "Median queries on random networks, one quantity varied at a time (otherwise "
        "ε = 1e-4, k = 50, d = 20):",
        "",
        "| varied | value: queries |",
        "| --- | --- |",
        *(
            f"| {label} | "
            + ", ".join(f"{p['value']:g}: {p['queries']:,.0f}" for p in data["growth"][key])
            + " |"
            for key, label in (("epsilon", "1/ε"), ("k", "k"), ("d", "d"))
        ),
        "",
        "The tables above count the learning alone. What it costs with the certificate, medians "
        "of the published runs:",
        "",
        *costs(),
    ]
    return "\n".join(lines)


def costs(folder: Path = RESULTS) -> list[str]:
    """What learning and its certificate cost together, from the published rows."""
    lines = ["| target | learning | certificate | together |", "| --- | ---: | ---: | ---: |"]
    for name, entry in load("query_learner", folder)["rows"].items():
        runs = [run for run in entry["runs"] if "certificate_queries" in run]
        if runs:
            parts = [[run[key] for run in runs] for key in ("queries", "certificate_queries")]
            parts.append([a + b for a, b in zip(*parts, strict=True)])
            cells = (f"{statistics.median(part):,.0f}" for part in parts)
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def write_tables(data: dict[str, Any], page: Path = PAGE) -> None:
    """Put the tables between their marks."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{tables(data)}\n{END}{after}")


def numbers(folder: Path = RESULTS) -> dict[str, Any]:
    """Return what is on file: ``bumps``, ``growth`` by quantity, and ``baselines``."""
    data: dict[str, Any] = {}
    for name, entry in load(SUITE, folder)["rows"].items():
        part, _, quantity = name.partition(": ")[0].partition(" in ")
        if quantity:
            data.setdefault(part, {}).setdefault(quantity, []).extend(entry["runs"])
        else:
            data.setdefault(part, []).extend(entry["runs"])
    return data


def bumps(seeds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each width's row and what was measured."""
    for width in (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3):
        yield f"bumps: {width:g}", bump_queries(width, seeds)


def growth(seeds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the queries as one quantity grows, a row each."""
    random_50 = partial(_random, d=20, k=50)
    for e in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6):
        queries = learner_queries(random_50, e, seeds)
        yield f"growth in epsilon: {1 / e:g}", {"value": 1 / e, "queries": queries}
    for key in ("k", "d"):
        for size in (3, 10, 30, 100, 300):
            shape = {"d": 20, "k": 50} | {key: size}
            queries = learner_queries(partial(_random, **shape), 1e-4, seeds)
            yield f"growth in {key}: {size}", {"value": size, "queries": queries}


def baselines(seeds: int, jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each target's row and errors; may run on another machine, one with torch."""
    for run in compare(list(range(6200, 6200 + seeds)), jobs):
        yield f"baselines: {run['name']}", run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query_learner_figures")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", choices=["bumps", "growth", "baselines", "draw"])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the lines")
    options = parser.parse_args()
    seeds, part = options.seeds, options.part
    parts = {
        "bumps": partial(bumps, seeds),
        "growth": partial(growth, seeds),
        "baselines": partial(baselines, seeds, options.jobs),
    }
    start = time.perf_counter()
    for name, measured in parts.items():
        if part in (None, name):
            found = list(measured())
            old = load(SUITE, options.results)["rows"]
            forget(SUITE, [row for row in old if row.startswith(name)], options.results)
            for row, outcome in found:
                record(SUITE, row, outcome, options.results)
    print(f"{time.perf_counter() - start:.0f} s")
    data = numbers(options.results)
    if parts.keys() <= data.keys() and part in (None, "draw"):
        draw(data)
        write_tables(data)


if __name__ == "__main__":
    main()
