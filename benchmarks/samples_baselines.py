"""What a user would try first, on the same samples: random starts.

    python -m benchmarks.samples_baselines [--rows SUBSTRING] [--seeds N]

- ``moments``: :func:`unrelu.learn_from_samples`, width not given.
- ``LM``: Levenberg-Marquardt from up to 20 random starts at the true width m and
  at 1.5 m, the same code as the polish (stopped at the first exact fit, or with the first
  start that ends after two minutes).
- ``Adam``: torch in float32, best of 20 starts by fresh inputs, 6,000 batches of 4,096
  along a cosine from 1e-2 (needs torch; on a GPU where there is one).

A success is a parameter error, up to sign, of at most 1e-6 (1e-3 for Adam, which works
in float32; 0.1 with label noise); the moments and LM must also end with the right width
(LM after dropping needless units), Adam at 1.5 m need only hold the true units among its
own. ``function_good``: error on fresh inputs, over std(F), of at most 1e-3 plus three
times what the noise alone leaves.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import NotHereError, Row, main
from benchmarks.samples import draw, labels, parameter_error, planted
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.piecewise import Kinks
from unrelu.gaussian.algorithm import learn_from_samples
from unrelu.gaussian.polish import (
    drop_needless_units,
    fit_kinks,
    linear_fit,
    random_kinks,
)
from unrelu.networks import ReLUNetwork

STARTS = 20
STEPS = 6000  # of Adam
PATIENCE = 120.0  # seconds for all starts of Levenberg-Marquardt


def _problem(seed: int, d: int, m: int, n: int, sigma: float) -> Any:
    rng = np.random.default_rng(seed)
    truth = planted(rng, d, m)
    return truth, *draw(rng, truth, n, sigma)


def _network(model: Kinks) -> ReLUNetwork:
    """Units in one orientation; the error is judged up to sign."""
    return ReLUNetwork([model.u[:, :-1], 2.0 * model.sign[None, :]], [model.u[:, -1], np.zeros(1)])


def _function(truth: Any, predict: Any, seed: int, n: int, sigma: float) -> dict[str, Any]:
    fresh = np.random.default_rng([seed, 6]).standard_normal((20_000, truth[0].shape[1]))
    clean = labels(truth, fresh)
    error = float(np.sqrt(np.mean((predict(fresh) - clean) ** 2)) / clean.std())
    floor = sigma * np.sqrt(truth[0].size / n) / clean.std()  # what noise leaves to anyone
    return {"function_error": error, "function_good": error <= 1e-3 + 3.0 * float(floor)}


def moments(seed: int, *, d: int, m: int, n: int, sigma: float) -> dict[str, Any]:
    truth, x, y = _problem(seed, d, m, n, sigma)
    start = time.perf_counter()
    result = learn_from_samples(x, y, rng=seed)
    seconds = time.perf_counter() - start
    error = parameter_error(truth, result.network, up_to_sign=True)
    bound = 1e-6 if sigma == 0 else 0.1
    good = error <= bound and result.width == m
    found = _function(truth, lambda points: result.network(points)[:, 0], seed, n, sigma)
    return {"success": good, "error": error, "seconds": seconds} | found


def lm(seed: int, *, d: int, m: int, n: int, sigma: float, factor: float) -> dict[str, Any]:
    truth, x, y = _problem(seed, d, m, n, sigma)
    rng = np.random.default_rng([seed, 5])
    options = PolishOptions()
    width = round(factor * m)
    all_x, all_y = x, y
    rows = min(n, max(20_000, 40 * (width + 1) * (d + 1)))
    x, y = x[:rows], y[:rows]
    start = time.perf_counter()
    best, tries = None, 0
    for _ in range(STARTS):
        tries += 1
        model = linear_fit(random_kinks(width, d, float(y.std()), rng), x, y)
        fit = fit_kinks(model, x, y, options)
        if best is None or fit.rms < best.rms:
            best = fit
        if best.rms <= max(1e-9 * y.std(), 1.02 * sigma):
            break
        if time.perf_counter() - start > PATIENCE:
            break
    assert best is not None
    if factor > 1.0:
        best = drop_needless_units(best, x, y, options)
    if sigma:
        best = fit_kinks(best.model, all_x, all_y, options)
    seconds = time.perf_counter() - start
    error = parameter_error(truth, _network(best.model), up_to_sign=True)
    bound = 1e-6 if sigma == 0 else 0.1
    good = error <= bound and len(best.model.u) == m
    return {
        "success": good, "error": error, "seconds": seconds, "starts": tries,
        "width": len(best.model.u), "rms": best.rms / float(y.std()),
    } | _function(truth, best.model, seed, n, sigma)  # fmt: skip


def adam(seed: int, *, d: int, m: int, n: int, sigma: float, factor: float) -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        raise NotHereError("torch is not installed") from error
    truth, x, y = _problem(seed, d, m, n, sigma)
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mean, scale = float(y.mean()), float(y.std())
    start = time.perf_counter()
    points = torch.from_numpy(x).float().to(device)
    goal = torch.from_numpy((y - mean) / scale).float().to(device)
    width = round(factor * m)

    def uniform(bound: float, *shape: int) -> Any:
        values = (2 * torch.rand(STARTS, *shape, device=device) - 1) * bound
        return values.requires_grad_()

    inside, outside = d**-0.5, width**-0.5  # as torch.nn.Linear begins
    parameters = [
        uniform(inside, d, width), uniform(inside, 1, width),
        uniform(outside, width, 1), uniform(outside, 1, 1),
    ]  # fmt: skip

    def forward(rows: Any) -> Any:
        w, b, a, c = parameters
        return (torch.relu(rows @ w + b) @ a + c)[..., 0]

    optimiser = torch.optim.Adam(parameters, lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):  # all starts side by side, on the same batches
        index = torch.randint(len(points), (4096,), device=device)
        loss = ((forward(points[index]) - goal[index]) ** 2).mean(dim=1).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    fresh = np.random.default_rng([seed, 7]).standard_normal((20_000, d))
    clean = labels(truth, fresh)
    with torch.no_grad():
        answers = forward(torch.from_numpy(fresh).float().to(device)).double().cpu().numpy()
    seconds = time.perf_counter() - start
    best = int(np.argmin(np.mean((answers * scale + mean - clean) ** 2, axis=1)))
    w, b, a, c = (p.detach()[best].double().cpu().numpy() for p in parameters)
    net = ReLUNetwork([w.T, scale * a.T], [b[0], scale * c[0] + mean])
    error = parameter_error(truth, net, up_to_sign=True)
    return {
        "success": error <= (1e-3 if sigma == 0 else 0.1),
        "error": error,
        "seconds": seconds,
        "device": device,
    } | _function(truth, lambda points: net(points)[:, 0], seed, n, sigma)


SETTINGS = [(10, 5, 10**5, 0.0), (20, 20, 10**5, 0.0), (50, 20, 10**6, 0.0), (20, 40, 10**6, 0.0),
            (10, 5, 10**5, 0.1), (20, 20, 10**6, 0.1)]  # fmt: skip
SEEDS = list(range(8000, 8010))


def _rows() -> list[Row]:
    rows = []
    for d, m, n, sigma in SETTINGS:
        case = f"d={d} m={m} N={n:.0e} noise={sigma}"
        common = {"d": d, "m": m, "n": n, "sigma": sigma}
        rows.append(Row(f"moments {case}", run=partial(moments, **common), seeds=SEEDS))
        for factor in (1.0, 1.5):
            rows.append(
                Row(f"LM width {factor}m {case}", run=partial(lm, **common, factor=factor),
                    seeds=SEEDS, timeout=900)
            )  # fmt: skip
            rows.append(
                Row(f"Adam width {factor}m {case}", run=partial(adam, **common, factor=factor),
                    seeds=SEEDS, timeout=900, quick=0)
            )  # fmt: skip
    return rows


ROWS = _rows()

if __name__ == "__main__":
    main("samples_baselines", ROWS)
