"""Awasthi, Tang & Vijayaraghavan to the letter: what the paper's own steps reach, unpolished.

    python -m benchmarks.letter_awasthi [--rows SUBSTRING] [--seeds N] [--jobs J]
    python -m benchmarks.letter_awasthi --draw

Corollary 3.3 in Section 6's model: the columns of a W whose ``w^(x)l`` are dependent are moved
by a Gaussian of average length tau. Success: every ``|w - w'| + |a - a'| + |b - b'|``, up to
sign, is at most EPSILON; the moments alone, no polish. How many samples that takes is far beyond
what can be drawn: an error that was drawn is scaled as N^-1/2 instead. ``--draw`` writes
``docs/figures/letter_awasthi.svg`` from the results on file.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Row, load, main
from benchmarks.samples import Units, draw, labels, matching, network
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.symmetric import SymmetricTensor, monomials, multiplicities
from unrelu.gaussian.algorithm import learn_as_printed, learn_from_population, learn_from_samples
from unrelu.gaussian.awasthi import population_tensors
from unrelu.gaussian.moment_stage import EstimatedTensors
from unrelu.gaussian.printed import empirical_tensors

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "letter_awasthi.svg"
SUITE = "letter_awasthi"
EPSILON = 0.1
TAUS = (0.0, 0.01, 0.03, 0.1, 0.3)
DRAWN = 300_000  # samples whose error is scaled
POWERS = range(4, 21)  # of ten: samples


def smoothed(rng: np.random.Generator, d: int, m: int, rank: int, tau: float) -> Units:
    """Section 6's model: w in a subspace of dimension ``rank``, then tau-smoothed."""
    frame = np.linalg.qr(rng.standard_normal((d, rank)))[0]
    w = rng.standard_normal((m, rank))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    w = w @ frame.T + tau / np.sqrt(d) * rng.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    a = rng.uniform(0.5, 1.5, m) * rng.choice([-1.0, 1.0], m)
    return w, a, rng.uniform(-1.0, 1.0, m)


def least_singular_value(w: np.ndarray, order: int) -> float:
    """``s_m(W^(.)l)``."""
    rows = monomials(w, order) * np.sqrt(multiplicities(w.shape[1], order))
    return float(np.linalg.svd(rows, compute_uv=False)[-1]) if len(w) <= rows.shape[1] else 0.0


def unit_error(truth: Units, found: np.ndarray, outer: np.ndarray, biases: np.ndarray) -> float:
    """Largest error of a unit, up to sign; infinite if one is missing."""
    w, a, b = truth
    if len(found) < len(w):
        return math.inf
    index = matching(w, found)
    sign = np.sign(np.einsum("ij,ij->i", w, found[index]))
    gap = np.linalg.norm(w - sign[:, None] * found[index], axis=1) + np.abs(a - outer[index])
    return float((gap + np.abs(b - sign * biases[index])).max())


def moment_error(truth: Units, result: Any) -> float:
    """Largest error of a unit of the moment estimate."""
    return unit_error(truth, result.moment_weights, result.moment_outer, result.moment_biases)


def _told(truth: Units, result: Any, order: int) -> dict[str, Any]:
    error = moment_error(truth, result)
    return {
        "success": error <= EPSILON,
        "error": min(error, 1e3),
        "s_m": least_singular_value(truth[0], order),
        "status": result.status.name,
    }


def exact_tensors(seed: int, *, d: int, m: int, rank: int, tau: float, order: int) -> Any:
    """Algorithm 1 on exact tensors: one pair of contractions, nothing fitted after it."""
    truth = smoothed(np.random.default_rng(seed), d, m, rank, tau)
    result = learn_from_population(network(truth), order=order, rng=seed, refine=False, pairs=1)
    return _told(truth, result, order)


def sampled(seed: int, *, d: int, m: int, rank: int, tau: float, n: int) -> dict[str, Any]:
    """The paper's route of order 1 on samples, moments alone."""
    rng = np.random.default_rng(seed)
    truth = smoothed(rng, d, m, rank, tau)
    x, y = draw(rng, truth, n)
    result = learn_from_samples(x, y, order=1, width=m, polish=False, rng=seed)
    return _told(truth, result, 1) | {"tau": tau, "d": d, "n": n}


def needed(seed: int, *, d: int, m: int, rank: int, tau: float) -> dict[str, Any]:
    """Samples that Algorithm 6 needs: the error of drawn tensors, scaled to any N.

    ``needed`` is the least power of ten from which on every error is within EPSILON; ``slope``
    that of log error against log N over the last four decades, -1/2 where sampling is all that
    is wrong.
    """
    rng = np.random.default_rng(seed)
    truth = smoothed(rng, d, m, rank, tau)
    drawn = empirical_tensors(*draw(rng, truth, DRAWN), range(5))
    exact = population_tensors(*truth, tuple(range(5)))
    errors = []
    for power in POWERS:
        scale = math.sqrt(DRAWN / 10.0**power)
        tensors = EstimatedTensors(
            {k: SymmetricTensor(
                t.entries + scale * (drawn.tensors[k].entries - t.entries), d, k)
             for k, t in exact.items()},
            {k: SymmetricTensor(scale * t.entries, d, k) for k, t in drawn.errors.items()},
        )  # fmt: skip
        units = tensors.units(1, np.random.default_rng(seed), PolishOptions(), width=m, pairs=1)
        errors.append(min(unit_error(truth, units.w, units.a, units.b), 1e3))
    enough = [p for i, p in enumerate(POWERS) if max(errors[i:]) <= EPSILON]
    slope = float(np.polyfit(POWERS[-5:], np.log10(errors[-5:]), 1)[0])
    return {"success": bool(enough), "needed": 10.0 ** enough[0] if enough else None,
            "slope": slope, "s_m": least_singular_value(truth[0], 1), "tau": tau}  # fmt: skip


def printed(seed: int, *, d: int, m: int, n: int, order: int, epsilon: float) -> dict[str, Any]:
    """Algorithm 5 as printed: split halves, eight features, projected gradient descent."""
    rng = np.random.default_rng(seed)
    truth = smoothed(rng, d, m, d, 0.0)
    x, y = draw(rng, truth, n)
    result = learn_as_printed(x, y, epsilon=epsilon, bound=3.0, width=m, order=order, rng=seed)
    fresh = rng.standard_normal((50_000, d))
    off = result.network(fresh)[:, 0] - labels(truth, fresh)
    error = float(np.sqrt(np.mean(off**2)))
    gap = result.stages[1].details["gap"]
    return {"success": error <= epsilon, "function_error": error, "gap": gap,
            "units": result.width, "status": result.status.name}  # fmt: skip


def outputs(seed: int, *, d: int, m: int, q: int, n: int) -> dict[str, Any]:
    """Several outputs: joint moments, then the polish; every output to rounding."""
    rng = np.random.default_rng(seed)
    w, _, b = smoothed(rng, d, m, d, 0.0)
    outer = rng.standard_normal((m, q))
    x = rng.standard_normal((n, d))
    y = np.maximum(x @ w.T + b, 0.0) @ outer
    result = learn_from_samples(x, y, rng=seed)
    fresh = rng.standard_normal((20_000, d))
    off = np.abs(result.network(fresh) - np.maximum(fresh @ w.T + b, 0.0) @ outer).max()
    cosine = np.abs(w @ result.moment_weights.T).max(axis=1).min()
    return {"success": bool(result.success and off <= 1e-9), "function_error": float(off),
            "moment_cosine": float(cosine), "status": result.status.name}  # fmt: skip


def law(seed: int, *, kind: str) -> dict[str, Any]:
    """Inputs of another law: refused, and never a wrong network if one goes on regardless."""
    rng = np.random.default_rng(seed)
    d, n = 6, 30_000
    truth = smoothed(rng, d, 4, d, 0.0)

    def inputs(count: int) -> np.ndarray:
        x = rng.standard_normal((count, d))
        if kind == "t":
            return rng.standard_t(5, (count, d))
        if kind == "laplace":
            return rng.laplace(size=(count, d))
        if kind == "uniform":
            return rng.uniform(-1.7, 1.7, (count, d))
        if kind == "sphere":
            return np.sqrt(d) * x / np.linalg.norm(x, axis=1, keepdims=True)
        factor = np.eye(d) + 0.3 * np.random.default_rng([seed, 1]).standard_normal((d, d))
        return x @ factor.T + np.arange(d)

    x = inputs(n)
    asked = learn_from_samples(x, labels(truth, x), rng=seed)
    forced = learn_from_samples(x, labels(truth, x), rng=seed, check_gaussian=False)
    fresh = inputs(5000)
    off = np.abs(forced.network(fresh)[:, 0] - labels(truth, fresh)).max()
    wrong = bool(forced.success and off > 1e-8)
    good = asked.success if kind == "gaussian" else asked.status.name == "ASSUMPTION_VIOLATED"
    return {"success": bool(good and not wrong), "status": asked.status.name,
            "forced": forced.status.name, "function_error": float(off)}  # fmt: skip


def _row(name: str, run: Any, count: int, **target: float) -> Row:
    return Row(name, run=run, seeds=range(9000, 9000 + count), target=target, timeout=180.0)


ROWS = [
    *[
        _row(f"Corollary 3.3, exact tensors, order {order}, tau={tau:g}",
             partial(exact_tensors, d=d, m=m, rank=rank, tau=tau, order=order), 20,
             success=0 if tau < 0.1 else 18)
        for order, d, m, rank in ((1, 6, 4, 2), (2, 5, 8, 3), (3, 4, 12, 3))
        for tau in TAUS
    ],
    *[
        _row(f"Corollary 3.3, samples, tau={tau:g}, d=6 N=1e6",
             partial(sampled, d=6, m=3, rank=2, tau=tau, n=10**6), 8)
        for tau in (*TAUS, 1.0)
    ],
    *[
        _row(f"samples needed for Corollary 3.3, tau={tau:g}, d=6",
             partial(needed, d=6, m=3, rank=2, tau=tau), 20, success=0 if tau == 0.0 else 18)
        for tau in (*TAUS, 1.0)
    ],
    *[
        _row(f"moments alone, N={n:g}, d=6", partial(sampled, d=6, m=3, rank=6, tau=0.0, n=n), 8)
        for n in (10**4, 10**5, 10**6)
    ],
    *[
        _row(f"moments alone, d={d}, N=3e5", partial(sampled, d=d, m=3, rank=d, tau=0.0,
                                                     n=300_000), 8)
        for d in (4, 8, 16, 32)
    ],
    _row("Algorithm 5 as printed, order 1, d=4 m=3", partial(
        printed, d=4, m=3, n=300_000, order=1, epsilon=0.2), 8, success=6),
    _row("Algorithm 5 as printed, order 2, d=3 m=3", partial(
        printed, d=3, m=3, n=300_000, order=2, epsilon=0.3), 8, success=6),
    _row("three outputs, d=8 m=6", partial(outputs, d=8, m=6, q=3, n=60_000), 8, success=7),
    _row("three outputs, d=5 m=8", partial(outputs, d=5, m=8, q=3, n=60_000), 8, success=6),
    *[
        _row(f"inputs: {kind}", partial(law, kind=kind), 4, success=4)
        for kind in ("gaussian", "t", "laplace", "sphere", "uniform")
    ],
]  # fmt: skip


def _panel(axis: Any, runs: list[dict[str, Any]], key: str, label: str) -> None:
    """Errors of single runs against one number."""
    xs = np.array([run[key] for run in runs])
    ys = np.array([min(run["error"], 3.0) for run in runs])
    axis.plot(xs, ys, "o", ms=3, alpha=0.6)
    for x in np.unique(xs) if key != "s_m" else ():
        axis.plot([x], [np.median(ys[xs == x])], "k_", ms=14)
    axis.axhline(EPSILON, color="grey", lw=0.8)
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel("largest error of a unit")


def draw_figure() -> None:
    """Five panels: success against tau; error against s_m(W), d and N; samples needed."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    rows = load(SUITE)["rows"]

    def runs(prefix: str) -> list[dict[str, Any]]:
        return [run for name, entry in rows.items() if name.startswith(prefix)
                for run in entry["runs"]]  # fmt: skip

    figure, axes = plt.subplots(1, 5, figsize=(18.5, 3.6), constrained_layout=True)
    kinds = [(f"Corollary 3.3, exact tensors, order {k}, tau=", f"exact tensors, order {k}")
             for k in (1, 2, 3)]  # fmt: skip
    for prefix, label in [*kinds, ("Corollary 3.3, samples, tau=", "order 1, 1e6 samples")]:
        found = {
            float(name.removeprefix(prefix).partition(",")[0]): entry["runs"]
            for name, entry in rows.items()
            if name.startswith(prefix) and entry["runs"]
        }
        taus = sorted(found)
        share = [np.mean([run["success"] for run in found[tau]]) for tau in taus]
        axes[0].plot(range(len(taus)), share, "o-", label=label)
        axes[0].set_xticks(range(len(taus)), [f"{tau:g}" for tau in taus])
    axes[0].set_xlabel("tau")
    axes[0].set_ylabel(f"share within {EPSILON:g}")
    axes[0].legend(fontsize=7)
    _panel(axes[1], runs("Corollary 3.3, samples"), "s_m", "s_m(W), 1e6 samples")
    axes[1].set_xscale("log")
    _panel(axes[2], runs("moments alone, d="), "d", "inputs d, 3e5 samples")
    _panel(axes[3], runs("moments alone, N="), "n", "samples N, d = 6")
    axes[3].set_xscale("log")
    found = [run for run in runs("samples needed for Corollary 3.3") if run.get("needed")]
    axes[4].loglog([run["s_m"] for run in found], [run["needed"] for run in found], "o", ms=3,
                   alpha=0.6)  # fmt: skip
    if found:
        line = np.geomspace(*np.quantile([run["s_m"] for run in found], (0.0, 1.0)), 2)
        middle = np.median([run["needed"] * run["s_m"] ** 4 for run in found])
        axes[4].loglog(line, middle / line**4, "k:", label="s_m^-4")
        axes[4].legend(fontsize=7)
    axes[4].set_xlabel("s_m(W)")
    axes[4].set_ylabel(f"samples needed for {EPSILON:g}")
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    if "--draw" in sys.argv:
        draw_figure()
    else:
        main(SUITE, ROWS)
