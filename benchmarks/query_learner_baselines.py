"""Networks trained on Gaussian queries: what a user would pick instead of the learner.

``python -m benchmarks.query_learner_figures --part baselines`` runs them: every
target of the benchmark table, learned first, then fitted by scikit-learn's
MLPRegressor and by a torch MLP on as many Gaussian queries as the learner
asked. Both are tuned on a fifth of these queries.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.query_learner import (
    _bump,
    _cancelling,
    _clusters,
    _diabetes,
    _random,
    in_float32,
    judge,
)
from unrelu.learner.algorithm import learn_from_queries
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Noisy

SAMPLES = 100_000
Make = Callable[[int], ReLUNetwork]
TARGETS: list[tuple[str, Make, float, str]] = [
    ("random k=10", partial(_random, d=20, k=10), 1e-4, "float64"),
    ("random k=50", partial(_random, d=20, k=50), 1e-4, "float64"),
    ("random k=200", partial(_random, d=20, k=200), 1e-4, "float64"),
    ("5 clusters, angle 1e-6", partial(_clusters, angle=1e-6), 1e-4, "float64"),
    ("5 clusters, angle 1e-4", partial(_clusters, angle=1e-4), 1e-3, "float64"),
    ("5 clusters, angle 1e-2", partial(_clusters, angle=1e-2), 1e-3, "float64"),
    ("cancelling to affine", _cancelling, 1e-4, "float64"),
    ("bump, width 0.1", partial(_bump, width=0.1), 1e-2, "float64"),
    ("bump, width 0.01", partial(_bump, width=0.01), 1e-2, "float64"),
    ("bump, width 1e-3", partial(_bump, width=1e-3), 1e-2, "float64"),
    ("k=2000, d=10", partial(_random, d=10, k=2000), 1e-3, "float64"),
    ("MLPRegressor, diabetes", _diabetes, 1e-4, "float64"),
    ("random k=50, noise", partial(_random, d=20, k=50), 1e-2, "noisy"),
    ("bump 0.1, noise", partial(_bump, width=0.1), 1e-2, "noisy"),
    ("random k=50, float32", partial(_random, d=20, k=50), 1e-3, "float32"),
    ("bump 0.1, float32", partial(_bump, width=0.1), 5e-3, "float32"),
]


def spread(truth: ReLUNetwork) -> float:
    """Standard deviation of F under N(0, I)."""
    x = np.random.default_rng(7).standard_normal((SAMPLES, truth.input_dim))
    return float(truth(x).std())


def target_of(truth: ReLUNetwork, answers: str, scale: float, seed: int) -> Oracle:
    """What is asked: the network in float64, in float32, or with noise of 1e-3 std(F)."""
    if answers == "float32":
        return in_float32(truth)
    exact = as_oracle(truth)
    return Noisy(exact, 1e-3 * scale, seed=seed) if answers == "noisy" else exact


def learner_row(index: int, seed: int) -> dict[str, Any]:
    """Error and queries of the learner on one target."""
    name, make, epsilon, answers = TARGETS[index]
    truth = make(seed)
    scale = spread(truth)
    oracle = target_of(truth, answers, scale, seed)
    result = learn_from_queries(oracle, epsilon=epsilon, relative=True, rng=seed)
    return {
        "name": name,
        "seed": seed,
        "epsilon": epsilon,
        "queries": result.queries.without_certificate,
        "learner": judge(result.network, truth, seed, SAMPLES)[0] / scale,
    }


def training_data(index: int, seed: int, count: int) -> tuple[Any, Any, ReLUNetwork, float]:
    """As many Gaussian queries, their answers, the truth and std(F)."""
    _, make, _, answers = TARGETS[index]
    truth = make(seed)
    scale = spread(truth)
    x = np.random.default_rng([seed, 5]).standard_normal((count, truth.input_dim))
    return x, target_of(truth, answers, scale, seed + 1)(x)[:, 0], truth, scale


def scikit_error(index: int, seed: int, count: int) -> float:
    """Best of several MLPRegressors by a held-out fifth; root mean square error over std(F)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    x, y, truth, spread_of_truth = training_data(index, seed, count)
    mean, scale = y.mean(), max(y.std(), 1e-300)
    cut = len(x) * 4 // 5
    best: tuple[float, Any] = (math.inf, None)
    k = min(truth.hidden_widths[0], 500)  # wider ones would train for hours
    for width in sorted({max(10, k), min(4 * max(10, k), max(200, k))}):
        effort = int(min(1500, max(200, 4e8 / (len(x) * width))))
        for solver, alpha in product(("lbfgs", "adam"), (1e-6, 1e-3)):
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

    return judge(predict, truth, seed, SAMPLES)[0] / spread_of_truth


def torch_error(index: int, seed: int, count: int, *, steps: int = 6000) -> float | None:
    """Best of a dozen torch MLPs by a held-out fifth; None where torch is not installed.

    All are trained side by side by Adam with decoupled decay on a cosine
    schedule: two widths, three rates, two decays; each is kept as it was when
    the held-out fifth liked it best.
    """
    try:
        import torch
    except ImportError:
        return None
    x, y, truth, spread_of_truth = training_data(index, seed, count)
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mean, scale = y.mean(), max(y.std(), 1e-300)
    cut, d, k = len(x) * 4 // 5, x.shape[1], truth.hidden_widths[0]
    widths = sorted({max(10, k), min(4 * max(10, k), max(200, k))})
    choices = list(product(widths, (1e-2, 3e-3, 1e-3), (0.0, 1e-4)))
    wide = max(widths)

    def tensor(values: Any) -> Any:
        return torch.tensor(values, dtype=torch.float32, device=device)

    data, goal = tensor(x), tensor((y - mean) / scale)
    width, rate, decay = (tensor([c[i] for c in choices])[:, None, None] for i in range(3))
    exists = (torch.arange(wide, device=device)[None, None] < width).float()

    def start(*shape: int, bound: Any) -> Any:
        values = (2 * torch.rand(len(choices), *shape, device=device) - 1) * bound
        return values.requires_grad_()

    inside, outside = 1 / math.sqrt(d), 1 / torch.sqrt(width)
    parameters = [
        start(d, wide, bound=inside), start(1, wide, bound=inside),
        start(wide, 1, bound=outside), start(1, 1, bound=outside),
    ]  # fmt: skip

    def forward(points: Any, p: list[Any]) -> Any:
        return ((torch.relu(points @ p[0] + p[1]) * exists) @ p[2] + p[3])[..., 0]

    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    best = torch.full((len(choices),), math.inf, device=device)
    kept = [p.detach().clone() for p in parameters]
    for step in range(1, steps + 1):
        rows = torch.randint(cut, (min(cut, 512),), device=device)
        loss = ((forward(data[rows], parameters) - goal[rows]) ** 2).mean(dim=1).sum()
        gradients = torch.autograd.grad(loss, parameters)
        speed = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        with torch.no_grad():
            for p, g, (first, second) in zip(parameters, gradients, moments, strict=True):
                first.mul_(0.9).add_(g, alpha=0.1)
                second.mul_(0.999).addcmul_(g, g, value=0.001)
                size = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
                p -= speed * (first / (1 - 0.9**step) / size + decay * p)
            if step % 250 == 0:
                error = ((forward(data[cut:], parameters) - goal[cut:]) ** 2).mean(dim=1)
                better = error < best
                best = torch.where(better, error, best)
                for p, q in zip(parameters, kept, strict=True):
                    q[better] = p[better]
    chosen = int(torch.argmin(best))
    weights = [q[chosen].double().cpu().numpy() for q in kept]
    on = exists[chosen].double().cpu().numpy()

    def predict(points: np.ndarray) -> np.ndarray:
        hidden = np.maximum(points @ weights[0] + weights[1], 0.0) * on
        return np.asarray((hidden @ weights[2] + weights[3]) * scale + mean)

    return judge(predict, truth, seed, SAMPLES)[0] / spread_of_truth


def compare(seeds: list[int], jobs: int) -> list[dict[str, Any]]:
    """Learner and baselines at equal queries, on every target and seed."""
    from joblib import Parallel, delayed

    tasks = [(index, seed) for index in range(len(TARGETS)) for seed in seeds]
    tasks.sort(key=lambda task: TARGETS[task[0]][0] != "k=2000, d=10")  # the longest first
    rows = Parallel(n_jobs=jobs)(delayed(learner_row)(*task) for task in tasks)
    asked = [(*task, row["queries"]) for task, row in zip(tasks, rows, strict=True)]
    scikit = Parallel(n_jobs=jobs)(delayed(scikit_error)(*task) for task in asked)
    # Small networks leave a GPU idle between steps: several share it.
    torch = Parallel(n_jobs=min(jobs, 6))(delayed(torch_error)(*task) for task in asked)
    for row, first, second in zip(rows, scikit, torch, strict=True):
        row |= {"scikit-learn": first, "torch": second}
        row["ratio"] = min(v for v in (first, second) if v is not None) / row["learner"]
    return list(rows)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the seeds of each target, and the smallest ratio."""
    out = []
    for name, *_ in TARGETS:
        some = [row for row in rows if row["name"] == name]
        if not some:
            continue
        line: dict[str, Any] = {"name": name, "seeds": len(some)}
        for key in ("queries", "learner", "scikit-learn", "torch", "ratio"):
            values = [row[key] for row in some if row.get(key) is not None]
            line[key] = statistics.median(values) if values else None
        line["least ratio"] = min(row["ratio"] for row in some)
        out.append(line)
    return out
