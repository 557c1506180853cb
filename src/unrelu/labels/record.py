"""A model against the labels of a whole run."""

from __future__ import annotations

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.record import Record
from unrelu.labels.config import LEVER
from unrelu.labels.hyperplanes import BLURRED
from unrelu.labels.model import Model

__all__ = ["contradictions", "margins", "resolvable"]


def resolvable(noise: float) -> float:
    """Return the distance from a boundary at which a network is held to its labels."""
    return LEVER * noise


def margins(model: Model, x: FloatArray) -> FloatArray:
    """Return how far inputs are from the model's boundary, to first order, ``(n,)``."""
    order = np.argsort(model(x), axis=1)
    value, gradient = model.differences(x, order[:, -2], order[:, -1])
    length = np.linalg.norm(gradient, axis=1)
    # Where outputs are parallel their difference alone tells.
    return np.asarray(value / np.maximum(length, BLURRED * float(np.median(length))))


def contradictions(
    record: Record, model: Model, code: dict[float, int], held: float
) -> tuple[int, FloatArray]:
    """Count answers of a run that a model contradicts, farther than ``held`` from its boundary.

    Returns the count and the first few inputs.
    """
    count, found = 0, []
    for batch in record.batches():
        labels: IntArray = np.array([code.get(float(v), -1) for v in batch.answers[:, 0]])
        wrong: BoolArray = model.labels(batch.points) != labels
        if wrong.any():
            x = batch.points[wrong]
            x = x[margins(model, batch.points)[wrong] > held * (1.0 + np.abs(x).max(axis=1))]
            count += len(x)
            found.append(x[:8])
    return count, np.concatenate(found)[:64] if found else np.empty((0, model.rows.shape[1]))
