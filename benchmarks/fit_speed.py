"""A step of the core's fit beside its own matrix products, on a GPU.

    python -m benchmarks.fit_speed [--device cuda] [--shapes 784-128-64-10 784-1024-10]

The fit of :mod:`unrelu.core.fit` takes one step from a network beside the truth, at two answers a
parameter. Every matrix product that the step runs is written down (shapes, layout, precision) and
run again alone, on the same device: ``products`` is the time of these, ``ratio`` the step's time
over it. ``error`` is how far the whole fit on the device and the same fit with numpy end from each
other, over the spread of the outputs, beside the noise of the answers. What was measured goes to
``benchmarks/results`` as ``fit_gpu.jsonl``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.moments_speed import best
from benchmarks.records import RESULTS, record
from unrelu.core.fit import FitConfig, Layered, fit_network

NOISE = 1e-6
"""Deviation of the answers over their spread: about that of single precision."""
AWAY = 1e-4
"""Where the fit starts: this part of the weights away from the truth."""
ANSWERS = 2
"""Answers a parameter."""
REPEATS = 5


def problem(widths: tuple[int, ...], rng: np.random.Generator) -> tuple[Layered, Any, Any]:
    """Draw a start, points and noisy answers."""
    weights = tuple(
        rng.standard_normal((above, below)) / np.sqrt(below)
        for below, above in itertools.pairwise(widths)
    )
    truth = Layered(weights, tuple(rng.standard_normal(len(w)) for w in weights))
    x = rng.standard_normal((ANSWERS * truth.parameters // widths[-1], widths[0]))
    y = truth(x)
    y = y + NOISE * y.std() * rng.standard_normal(y.shape)
    moved = [b + AWAY * np.abs(b).mean() * rng.standard_normal(b.shape) for b in truth.blocks()]
    away = [after - before for after, before in zip(moved, truth.blocks(), strict=True)]
    return truth.moved(away), x, y


def on_device(net: Layered, device: str) -> Layered:
    import torch

    def there(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays)

    return Layered(there(net.weights), there(net.biases))


def products_of(action: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """Run an action and return the matrix products in it: operation, and each factor's layout."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    ops = {torch.ops.aten.mm.default, torch.ops.aten.bmm.default}
    found = []

    class Watch(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func in ops:
                layout = tuple((tuple(a.shape), a.stride(), a.dtype) for a in args)
                found.append((func, layout))
            return func(*args, **(kwargs or {}))

    with Watch():
        action()
    return found


def replay(products: list[tuple[Any, ...]], device: str) -> Callable[[], None]:
    """Return an action that runs the same products on tensors of the same layout."""
    import torch

    held: dict[Any, Any] = {}

    def tensor(layout: Any) -> Any:
        if layout not in held:
            shape, stride, dtype = layout
            empty = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            held[layout] = empty.normal_()
        return held[layout]

    ready = [(op, [tensor(a) for a in layout]) for op, layout in products]

    def run() -> None:
        for op, factors in ready:
            op(*factors)

    return run


def measure(widths: tuple[int, ...], device: str, whole: bool) -> dict[str, Any]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    start, x, y = problem(widths, np.random.default_rng(0))
    deviation = NOISE * float(y.std())
    net, points = on_device(start, device), torch.from_numpy(x).to(device)
    answers = torch.from_numpy(y).to(device)

    def fit(config: FitConfig) -> Any:
        return fit_network(net, points, answers, deviation=deviation, config=config)

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    step = FitConfig(steps=1)
    products = products_of(lambda: fit(step))
    entry: dict[str, Any] = {
        "shape": "-".join(map(str, widths)),
        "parameters": start.parameters,
        "rows": len(x),
        "products": len(products),
        "step_seconds": best(lambda: fit(step), wait, REPEATS),
        "products_seconds": best(replay(products, device), wait, REPEATS),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
    }
    entry["ratio"] = entry["step_seconds"] / entry["products_seconds"]
    begin = time.perf_counter()
    there = fit(FitConfig())
    entry |= {"fit_seconds": time.perf_counter() - begin, "steps": there.steps}
    entry |= {"rms": there.rms, "scale": there.scale, "converged": there.converged}
    if whole:
        begin = time.perf_counter()
        here = fit_network(start, x, y, deviation=deviation)
        entry["numpy_seconds"] = time.perf_counter() - begin
        fresh = np.random.default_rng(1).standard_normal((1000, widths[0]))
        back = there.network(torch.from_numpy(fresh).to(device)).cpu().numpy()
        entry["error"] = float(np.abs(here.network(fresh) - back).max() / y.std())
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="*", default=["784-128-64-10", "784-1024-10"])
    parser.add_argument("--whole", nargs="*", default=["784-128-64-10"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for shape in options.shapes:
        widths = tuple(int(part) for part in shape.split("-"))
        entry = measure(widths, options.device, shape in options.whole)
        print(entry, flush=True)
        record("fit_gpu", shape, entry, folder=options.results)


if __name__ == "__main__":
    main()
