"""Moments of halves of the samples, for layers whose structure shows them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.moments import (
    CompensatedSums,
    HermiteMoments,
    evaluate_series,
    mean_moments,
    raw_sums,
    series_coefficients,
    to_numpy,
)
from unrelu.core.noise import RARE
from unrelu.errors import InvalidInput
from unrelu.progress import Progress
from unrelu.samples import SampleSource

__all__ = [
    "Label",
    "check_restartable",
    "half_moments",
    "mean_of",
    "not_gaussian",
    "odd_inputs",
    "residual_label",
]

Label = Callable[[FloatArray, FloatArray], FloatArray]


def half_moments(
    source: SampleSource, order: int, label: Label, watch: Progress, stage: str
) -> tuple[HermiteMoments, HermiteMoments, int, float]:
    """Hermite moments of ``label(x, y)`` from the even and the odd rows.

    The last number is the standard error of an entry of T2 if labels and inputs were
    unrelated: halves of repeated rows, or of a handful, may agree by chance.
    """
    halves = (CompensatedSums(), CompensatedSums())
    seen, square = 0, 0.0
    for x_raw, y_raw in source.batches():
        x, y = to_numpy(x_raw), to_numpy(y_raw)
        values = label(x, y)
        for half, start in zip(halves, (0, 1), strict=True):
            part = slice(start, None, 2)
            half.add(raw_sums(np.ascontiguousarray(x[part]), values[part], order), len(x[part]))
        seen += len(x)
        square += float(values @ values)
        watch.update(stage, seen, source.count)
    if halves[1].count == 0:
        raise InvalidInput("too few samples: at least two are needed")
    return mean_moments(halves[0]), mean_moments(halves[1]), seen, float(np.sqrt(square)) / seen


def mean_of(first: HermiteMoments, second: HermiteMoments) -> HermiteMoments:
    """Return the moments of all samples from those of two halves."""
    return (first + second).scaled(0.5)


def residual_label(transform: Label, moments: HermiteMoments) -> Label:
    """Labels minus the polynomial that ``moments`` describe."""
    series = series_coefficients(moments)

    def label(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(transform(x, y) - evaluate_series(x, series))

    return label


def odd_inputs(source: SampleSource, effect: float) -> str:
    """Say how inputs differ from standard Gaussian ones; empty where they hardly do.

    Only what is significant and larger than ``effect`` counts.
    """
    n, count = source.input_dim, 0
    total, square = np.zeros(n), np.zeros((n, n))
    for x_raw, _ in source.batches():
        x = to_numpy(x_raw)
        total += x.sum(axis=0)
        square += x.T @ x
        count += len(x)
    if count == 0:
        raise InvalidInput("there are no samples")
    slack = effect + RARE / np.sqrt(count)
    mean = total / count
    off = np.abs(square / count - np.eye(n))
    worst = int(np.argmax(np.abs(mean)))
    if abs(mean[worst]) > slack:
        return f"input {worst + 1} has the mean {mean[worst]:.2g}"
    i, j = np.unravel_index(int(np.argmax(off)), off.shape)
    if off[i, j] > np.sqrt(2.0) * slack:
        return f"inputs {i + 1} and {j + 1} have the mean product {square[i, j] / count:.2g}"
    return ""


def not_gaussian(what: str) -> str:
    """Say what to do about inputs that are not standard Gaussian."""
    return f"the inputs are not standard Gaussian: {what}. Shift and scale them first."


def check_restartable(source: SampleSource) -> None:
    """Raise where the samples can be read only once."""
    if not source.restartable:
        raise InvalidInput(
            "the samples are read twice: pass arrays, a path, or a function that opens the stream"
        )
