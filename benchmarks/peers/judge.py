"""The one function that says how close a recovered function is."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.problems import EXACT
from benchmarks.peers.target import Record
from unrelu import ReLUNetwork, compare
from unrelu.errors import UnreluError


def judge(
    truth: ReLUNetwork, heldout: np.ndarray, record: Record, *, wrong_above: float = EXACT
) -> dict[str, Any]:
    """Compare what a solver handed in with the truth.

    ``error`` is the largest deviation over std(f) on held-out Gaussian inputs.
    Success: an error of at most 2^-20 from a run that did not declare itself
    failed. Silently wrong: the solver claims the recovery, and the error is
    above ``wrong_above``.
    """
    verdict: dict[str, Any] = {"success": False, "claim": record.claim, "silently_wrong": 0}
    if record.late:
        return verdict | {"failure": f"asked {record.late} rows after the end"}
    if record.claim is None or record.arrays is None:
        return verdict | {"failure": "handed in nothing"}
    if "answers" not in record.arrays:
        return verdict | {"failure": record.message or "recovered nothing, and says so"}
    f, g = truth(heldout), record.arrays["answers"]
    if g.shape != f.shape or not np.isfinite(g).all():
        bad = f"answers of shape {g.shape}, expected {f.shape}, or not finite"
        return verdict | {"failure": bad, "silently_wrong": int(record.claim == "exact")}
    scale = float(f.std()) or 1.0
    error = float(np.abs(f - g).max()) / scale
    verdict["error"] = error
    verdict["rms_error"] = float(np.sqrt(np.mean((f - g) ** 2))) / scale
    if f.shape[1] > 1:
        verdict["agreement"] = float(np.mean(f.argmax(axis=1) == g.argmax(axis=1)))
    verdict["weight_error"] = weight_error(truth, record.arrays)
    verdict["success"] = error <= EXACT and record.claim != "failed"
    verdict["silently_wrong"] = int(record.claim == "exact" and error > wrong_above)
    return verdict


def weight_error(truth: ReLUNetwork, arrays: dict[str, np.ndarray]) -> float | None:
    """Largest difference of matched parameters, in canonical scale; None without weights."""
    if "weights.0" not in arrays:
        return None
    depth = sum(name.startswith("weights.") for name in arrays)
    try:
        network = ReLUNetwork(
            [arrays[f"weights.{i}"] for i in range(depth)],
            [arrays[f"biases.{i}"] for i in range(depth)],
            arrays.get("skip"),
        )
        return compare(network, truth, samples=50).max_parameter_error
    except (UnreluError, KeyError):
        return None
