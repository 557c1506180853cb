"""What the suites of depth measure of one run of the public ``extract``."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from benchmarks.harness import priced
from benchmarks.three_layer import FALSE, error_of
from unrelu import extract
from unrelu.extraction.peel import AnyDepthResult
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import RecoveryResult

__all__ = ["facts", "layers_right"]


def layers_right(
    result: RecoveryResult, truth: ReLUNetwork, tolerance: float = 1e-6
) -> tuple[int, int]:
    """Count the layers, from the first, whose rows are those of the truth, signs included.

    Rows are compared as functions, at inputs: each layer over the layers found below it. The
    second number counts the layers of which the result says so.
    """
    if not isinstance(result, AnyDepthResult):
        return (len(truth.hidden_widths),) * 2 if result.success else (0, 0)
    x = np.random.default_rng(0).standard_normal((2000, truth.input_dim))
    mine = theirs = x
    right, said, fine = 0, 0, True
    found = zip(result.layers(truth.input_dim), result.signed, strict=True)
    for ((w, b), signed), v, c in zip(found, truth.weights, truth.biases, strict=False):
        if not (signed or result.success):
            break
        said += 1
        z, t = mine @ w.T + b, theirs @ v.T + c
        seen = ((t > 0).mean(axis=0) > 1e-3) & ((t < 0).mean(axis=0) > 1e-3)
        size = np.linalg.norm(z, axis=0)
        near = (t.T @ z) / np.maximum(np.outer(np.linalg.norm(t, axis=0), size), 1e-300)
        if not signed:
            near = np.abs(near)
        fine &= bool((near.max(axis=1)[seen] > 1.0 - tolerance).all())
        right += fine
        mine, theirs = np.maximum(z, 0.0), np.maximum(t, 0.0)
    return right, said


def _spurious(widths: tuple[int, ...], truth: ReLUNetwork) -> int:
    """Count units beyond the target's; those that never switch are no unit of the function."""
    if len(widths) != len(truth.hidden_widths):
        return max(0, sum(widths) - sum(truth.hidden_widths))
    return sum(max(0, w - t) for w, t in zip(widths, truth.hidden_widths, strict=True))


def facts(
    truth: ReLUNetwork, seed: int, limit: float, *, probabilities: Any = None
) -> dict[str, Any]:
    """Extract, and compare with the truth: error, price, widths, time and memory."""
    oracle = connect(truth) if probabilities is None else probabilities
    start, busy = time.perf_counter(), time.process_time()
    result = extract(oracle, rng=seed)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    network = result.network if isinstance(result.network, ReLUNetwork) else None
    error = error_of(network, truth, seed, log_odds=probabilities is not None)
    spent = result.queries.without_certificate
    widths = result.findings().widths
    right, said = layers_right(result, truth)
    return {
        "success": result.success and error <= limit and not _spurious(widths, truth),
        "status": result.status.name,
        "message": "" if result.success else result.message,
        "error": error,
        "ratio": spent / truth.parameters,
        "queries": spent,
        "certificate": result.queries.total - spent,
        "round_trips": result.queries.round_trips,
        "parameters": truth.parameters,
        "widths": "-".join(map(str, widths)),
        "true_widths": int(widths == tuple(truth.hidden_widths)),
        "spurious": _spurious(widths, truth),
        "layers_right": right,
        "layers_said": said,
        "two_layers": int(right >= 2),
        "false_recovered": int(result.success and error > FALSE),
        "own_seconds": seconds,
        "cpu_seconds": busy,
        "memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        **priced(result),
    }
