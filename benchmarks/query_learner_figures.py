"""Figures of the query learner: ``python -m benchmarks.query_learner_figures``.

Writes ``docs/figures/query_learner.svg`` and the numbers behind it,
``benchmarks/results/query_learner_figures.json``:

- queries to find a bump against 1/width: the limit of Remark 1.3 where answers
  are noisy, and what float64 rounding gives away;
- queries against 1/epsilon, k and d;
- error at equal queries beside trained networks: scikit-learn's MLPRegressor,
  and a torch MLP where torch is installed, each tuned on a fifth of the queries.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, machine
from benchmarks.query_learner import _bump, _cancelling, _clusters, _diabetes, _random, judge
from unrelu.algorithms.query_learner import learn_from_queries
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Noisy

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "query_learner.svg"
NUMBERS = RESULTS / "query_learner_figures.json"
SAMPLES = 100_000


def spread(truth: ReLUNetwork) -> float:
    x = np.random.default_rng(7).standard_normal((SAMPLES, truth.input_dim))
    return float(truth(x).std())


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


def scikit_error(
    x: np.ndarray, y: np.ndarray, truth: ReLUNetwork, seed: int, widths: list[int]
) -> float:
    """Best of several MLPRegressors by a held-out fifth; root mean square error."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    mean, scale = y.mean(), max(y.std(), 1e-300)
    cut = len(x) * 4 // 5
    best: tuple[float, Any] = (math.inf, None)
    for width in widths:
        effort = int(min(1500, max(200, 4e8 / (len(x) * width))))
        for solver, alpha in (("lbfgs", 1e-6), ("lbfgs", 1e-3), ("adam", 1e-6)):
            model = MLPRegressor(
                hidden_layer_sizes=(width,), solver=solver, alpha=alpha, random_state=seed,
                max_iter=effort if solver == "lbfgs" else 300, tol=1e-9, learning_rate_init=3e-3,
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(x[:cut], (y[:cut] - mean) / scale)
            error = float(np.mean((model.predict(x[cut:]) - (y[cut:] - mean) / scale) ** 2))
            if error < best[0]:
                best = (error, model)

    def predict(points: np.ndarray) -> np.ndarray:
        return np.asarray(best[1].predict(points) * scale + mean)[:, None]

    return judge(predict, truth, seed, SAMPLES)[0]


def torch_error(
    x: np.ndarray, y: np.ndarray, truth: ReLUNetwork, seed: int, widths: list[int]
) -> float | None:
    """Best of several torch MLPs by a held-out fifth; None where torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mean, scale = y.mean(), max(y.std(), 1e-300)
    cut = len(x) * 4 // 5
    data = torch.tensor(x, dtype=torch.float32, device=device)
    goal = torch.tensor((y - mean) / scale, dtype=torch.float32, device=device)[:, None]
    best: tuple[float, Any] = (math.inf, None)
    for width in widths:
        for rate in (1e-2, 3e-3):
            model = torch.nn.Sequential(
                torch.nn.Linear(x.shape[1], width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
            ).to(device)
            steps = 4000
            optimizer = torch.optim.Adam(model.parameters(), lr=rate)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            for _ in range(steps):
                rows = torch.randint(cut, (min(cut, 512),), device=device)
                loss = torch.mean((model(data[rows]) - goal[rows]) ** 2)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            with torch.no_grad():
                error = float(torch.mean((model(data[cut:]) - goal[cut:]) ** 2))
            if error < best[0]:
                best = (error, model)

    def predict(points: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            out = best[1](torch.tensor(points, dtype=torch.float32, device=device))
        return np.asarray(out.cpu().numpy() * scale + mean, dtype=np.float64)

    return judge(predict, truth, seed, SAMPLES)[0]


BASELINES: list[tuple[str, Callable[[int], ReLUNetwork], float, bool]] = [
    ("random k=10", partial(_random, d=20, k=10), 1e-4, False),
    ("random k=50", partial(_random, d=20, k=50), 1e-4, False),
    ("random k=200", partial(_random, d=20, k=200), 1e-4, False),
    ("5 clusters, angle 1e-6", partial(_clusters, angle=1e-6), 1e-4, False),
    ("5 clusters, angle 1e-2", partial(_clusters, angle=1e-2), 1e-3, False),
    ("cancelling", _cancelling, 1e-4, False),
    ("bump of width 0.1", partial(_bump, width=0.1), 1e-2, False),
    ("bump of width 0.01", partial(_bump, width=0.01), 1e-2, False),
    ("diabetes", _diabetes, 1e-4, False),
    ("random k=50, noise 1e-3", partial(_random, d=20, k=50), 1e-2, True),
    ("bump of width 0.1, noise 1e-3", partial(_bump, width=0.1), 1e-2, True),
]


def compare(
    name: str,
    make: Callable[[int], ReLUNetwork],
    epsilon: float,
    noisy: bool,
    *,
    seed: int,
    scikit: bool = True,
) -> dict[str, Any]:
    """Learner and baselines at equal queries; errors over std(F)."""
    truth = make(seed)
    scale = spread(truth)
    oracle: Oracle = as_oracle(truth)
    sigma = 1e-3 * scale if noisy else 0.0
    result = learn(Noisy(oracle, sigma, seed=seed) if noisy else oracle, epsilon, seed)
    queries = result.queries.without_certificate
    rng = np.random.default_rng([seed, 5])
    x = rng.standard_normal((queries, truth.input_dim))
    y = truth(x)[:, 0] + sigma * rng.standard_normal(queries)
    k = truth.hidden_widths[0]
    widths = sorted({max(10, k), min(4 * max(10, k), 200)})
    torch_rms = torch_error(x, y, truth, seed, widths)
    outcome: dict[str, Any] = {
        "name": name,
        "queries": queries,
        "learner": judge(result.network, truth, seed, SAMPLES)[0] / scale,
        "torch": None if torch_rms is None else torch_rms / scale,
    }
    if scikit:
        outcome["scikit-learn"] = scikit_error(x, y, truth, seed, widths) / scale
    return outcome


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
    rows = data.get("baselines") or data["torch"]
    place = np.arange(len(rows))
    for key, mark in (("learner", "o"), ("scikit-learn", "s"), ("torch", "^")):
        values = [row.get(key) for row in rows]
        if any(v is not None for v in values):
            heights = [math.nan if v is None else v for v in values]
            axes[2].semilogy(place, heights, mark, label=key)
    axes[2].set_xticks(place, [row["name"] for row in rows], rotation=75, fontsize=7)
    axes[2].set(ylabel="error / std(F)", title="Error at equal queries")
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query_learner_figures")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", choices=["bumps", "growth", "baselines", "torch", "draw"])
    parser.add_argument("--numbers", type=Path, default=NUMBERS, help="file to read and write")
    options = parser.parse_args()
    data: dict[str, Any] = {}
    if options.numbers.exists():
        data = json.loads(options.numbers.read_text())
    data["machine"] = machine()
    seeds = options.seeds
    part = options.part
    start = time.perf_counter()
    if part in (None, "bumps"):
        data["bumps"] = [bump_queries(w, seeds) for w in (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)]
    random_50 = partial(_random, d=20, k=50)
    if part in (None, "growth"):
        data["growth"] = {
            "epsilon": [
                {"value": 1 / e, "queries": learner_queries(random_50, e, seeds)}
                for e in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
            ],
            "k": [
                {"value": k, "queries": learner_queries(partial(_random, d=20, k=k), 1e-4, seeds)}
                for k in (3, 10, 30, 100, 300)
            ],
            "d": [
                {"value": d, "queries": learner_queries(partial(_random, d=d, k=50), 1e-4, seeds)}
                for d in (3, 10, 30, 100, 300)
            ],
        }
    if part in (None, "baselines"):
        data["baselines"] = [compare(*row, seed=6200) for row in BASELINES]
    if part == "torch":  # may run on another machine, one with torch
        for row in BASELINES:
            data.setdefault("torch", []).append(compare(*row, seed=6200, scikit=False))
            options.numbers.write_text(json.dumps(data, indent=1, default=float) + "\n")
    for row in data.get("baselines", []):
        trained = {r["name"]: r["torch"] for r in data.get("torch", [])}
        row["torch"] = row["torch"] or trained.get(row["name"])
        best = min(v for v in (row["scikit-learn"], row["torch"]) if v is not None)
        row["ratio"] = best / row["learner"]
    print(f"{time.perf_counter() - start:.0f} s")
    RESULTS.mkdir(exist_ok=True)
    options.numbers.write_text(json.dumps(data, indent=1, default=float) + "\n")
    if {"bumps", "growth"} <= data.keys() and data.keys() & {"baselines", "torch"}:
        draw(data)


if __name__ == "__main__":
    main()
