"""Ranges that nobody told of: inputs that a target clips in silence, or refuses with an error."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.frame import frame_of_rows
from unrelu.diagnostics import Diagnosis
from unrelu.errors import BudgetExhausted, OracleError
from unrelu.extraction.box_clip import HALVINGS, PROOFS, notice_clipping
from unrelu.oracles.base import Oracle

__all__ = ["clipped_range", "refused_range"]

Box = tuple[FloatArray, FloatArray]


def clipped_range(oracle: Oracle, seen: Diagnosis, rng: np.random.Generator) -> Box | None:
    """Return the box inside which inputs count, where the target clips them; else None.

    Only answers that do not grow far out are followed up, so that others cost nothing.
    """
    if seen.piecewise_linear is False or seen.locally_constant:
        return None
    if seen.kind not in {"values", "probabilities"}:
        return None
    if round(seen.growth) > 0:
        return None
    frame = None if oracle.data is None else frame_of_rows(oracle.data)
    found = notice_clipping(
        oracle,
        center=None if frame is None else frame.center,
        scale=1.0 if frame is None else frame.scale,
        probabilities=seen.kind == "probabilities",
        rng=rng,
    )
    return found.box() if found.noticed else None


def refused_range(oracle: Oracle, error: OracleError, rng: np.random.Generator) -> Box:
    """Return a box in which a target answers that refused other inputs.

    Raises
    ------
    OracleError
        It answers nowhere, or not in a box: the error with what to pass.
    """
    d = oracle.input_dim
    starts = [np.zeros(d), np.full(d, 0.5), np.ones(d)]
    if oracle.data is not None:
        starts.insert(0, oracle.data.mean(axis=0))
    hint = OracleError(
        f"{error}. If it takes inputs of a certain range only, tell it: "
        "input_range=(low, high), --range LOW,HIGH; or give rows that it takes: data=, --data"
    )
    with oracle.stage("range"):
        start = next((s for s in starts if _answers(oracle, s[None])), None)
        ends = [] if start is None else [_end(oracle, start, way) for way in (-0.25, 0.25)]
        if start is None or None in ends:
            raise hint from error
        low, high = (start + end for end in ends if end is not None)
        if not (low < high).all():
            raise hint from error
        corners = np.where(rng.random((PROOFS, d)) < 0.5, low, high)
        if not _answers(oracle, corners):
            raise hint from error
    return low, high


def _answers(oracle: Oracle, points: FloatArray) -> bool:
    """Whether the target takes the points ``(n, d)``."""
    try:
        oracle(points)
    except BudgetExhausted:
        raise
    except OracleError:
        return False
    return True


def _end(oracle: Oracle, start: FloatArray, step: float) -> float | None:
    """Return how far all inputs may be moved at once; None where nothing stops them."""
    good, bad = 0.0, step
    for _ in range(HALVINGS):
        if not _answers(oracle, start[None] + bad):
            break
        good, bad = bad, 2.0 * bad
    else:
        return None
    for _ in range(HALVINGS):
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if _answers(oracle, start[None] + middle) else (good, middle)
    return good
