"""The first pass over the samples: inputs, low moments, rows to keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from unrelu._types import FloatArray
from unrelu.core.moments import CompensatedSums, raw_sums, to_numpy
from unrelu.errors import InvalidInput
from unrelu.gaussian.stream import HoldOut, ReadingPlan, map_batches
from unrelu.samples import SampleSource

__all__ = ["SampleSurvey", "survey_samples"]

Array = Any


@dataclasses.dataclass(frozen=True)
class SampleSurvey:
    """What the first pass saw.

    Attributes
    ----------
    count
        Samples read, held-out ones included.
    input_mean, input_covariance
        ``(d,)`` and ``(d, d)`` of x.
    skewness, kurtosis
        Standardised third and excess fourth cumulants along probe directions
        (the axes and random ones), ``(q,)``.
    radius
        Standardised mean of ``|x|^4`` in excess of a Gaussian's (Mardia).
    label_mean, label_scale
        Mean and standard deviation of y.
    train_x, train_y, held_x, held_y
        Rows kept for the polish, and rows kept from it.
    raw
        Raw sums of order 2 over the training rows, and their number.
    """

    count: int
    input_mean: FloatArray
    input_covariance: FloatArray
    skewness: FloatArray
    kurtosis: FloatArray
    radius: float
    label_mean: float
    label_scale: float
    train_x: FloatArray
    train_y: FloatArray
    held_x: FloatArray
    held_y: FloatArray
    raw: tuple[FloatArray, ...]
    train_count: int

    @property
    def summary(self) -> str:
        """What was read, in words."""
        return f"{self.count:,} samples of {len(self.input_mean)} inputs"


@dataclasses.dataclass(frozen=True)
class _SurveyKernel:
    probes: FloatArray
    held: HoldOut
    train_stride: int

    def __call__(self, x: Array, y: Array, start: int) -> Any:
        xp = array_namespace(x)
        mask = self.held.mask(start, len(x))
        index = start + np.arange(len(x))
        keep = ~mask & (index % self.train_stride == 0)
        along = x @ xp.asarray(self.probes.T, dtype=x.dtype, device=x.device)
        square = along * along
        inputs = (
            xp.sum(x, axis=0),
            x.T @ x,
            xp.sum(along, axis=0),
            xp.sum(square, axis=0),
            xp.sum(square * along, axis=0),
            xp.sum(square * square, axis=0),
            xp.sum(y),
        )
        train = np.flatnonzero(~mask)
        rows = xp.asarray(train, device=x.device)
        chosen = x[rows], y[rows]
        sums = raw_sums(*chosen, order=2)
        host_x, host_y = to_numpy(x), to_numpy(y)
        return (
            (inputs, len(x)),
            (sums, len(train)),
            (host_x[keep], host_y[keep]),
            (host_x[mask], host_y[mask]),
        )


def survey_samples(
    source: SampleSource,
    plan: ReadingPlan,
    *,
    rng: np.random.Generator,
    held: HoldOut,
    stride: int,
    progress: Callable[[int], None],
) -> SampleSurvey:
    """Read all samples once: moments of x, low moments of y, rows to keep.

    Parameters
    ----------
    source, plan
        What to read, and how.
    rng
        Draws the probe directions of the Gaussian test.
    held
        Rows to hold out.
    stride
        Every so many rows one is kept for the polish.
    progress
        Called with the number of rows read so far.
    """
    d = source.input_dim
    extra = rng.standard_normal((16, d))
    extra /= np.linalg.norm(extra, axis=1, keepdims=True)
    probes = np.concatenate([np.eye(d)[: min(d, 512)], extra])
    inputs, labels = CompensatedSums(), CompensatedSums()
    train: list[tuple[FloatArray, FloatArray]] = []
    out: list[tuple[FloatArray, FloatArray]] = []
    kernel = _SurveyKernel(probes, held, stride)
    for part, sums, kept, held_out in map_batches(source, kernel, plan):
        inputs.add(*part)
        labels.add(*sums)
        train.append(kept)
        out.append(held_out)
        progress(inputs.count)
    n = inputs.count
    if n == 0:
        raise InvalidInput("there are no samples")
    first, second, p1, p2, p3, p4, y1 = (value / n for value in inputs.values())
    covariance = second - np.outer(first, first)
    skewness, kurtosis = _cumulants(p1, p2, p3, p4)
    held_x, held_y = (np.concatenate(parts) for parts in zip(*out, strict=True))
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return SampleSurvey(
        count=n,
        input_mean=first,
        input_covariance=covariance,
        skewness=skewness,
        kurtosis=kurtosis,
        radius=_radial_excess(train_x, first, covariance),
        label_mean=float(y1),
        label_scale=_spread(np.concatenate([train_y, held_y])),
        train_x=train_x,
        train_y=train_y,
        held_x=held_x,
        held_y=held_y,
        raw=labels.values(),
        train_count=labels.count,
    )


def _spread(y: FloatArray) -> float:
    """Return the standard deviation of labels, whatever their size and their mean.

    The difference of two sums of squares would lose what is small beside the mean.
    """
    off = y - y.mean()
    largest = float(np.abs(off).max(initial=0.0))
    # Equal labels differ from their mean by its rounding.
    if largest <= 4.0 * np.finfo(np.float64).eps * float(np.abs(y).max(initial=0.0)):
        return 0.0
    return largest * float(np.sqrt(np.mean((off / largest) ** 2)))


def _cumulants(
    p1: FloatArray, p2: FloatArray, p3: FloatArray, p4: FloatArray
) -> tuple[FloatArray, FloatArray]:
    # A direction without variance has no shape to test: its cumulants are set to 0.
    variance = p2 - p1**2
    flat = variance <= 1e-12 * np.maximum(p2, 1e-300)
    variance = np.where(flat, 1.0, variance)
    third = p3 - 3 * p1 * p2 + 2 * p1**3
    fourth = p4 - 4 * p1 * p3 + 6 * p1**2 * p2 - 3 * p1**4
    skewness, kurtosis = third / variance**1.5, fourth / variance**2 - 3.0
    return np.where(flat, 0.0, skewness), np.where(flat, 0.0, kurtosis)


def _radial_excess(x: FloatArray, mean: FloatArray, covariance: FloatArray) -> float:
    """Mardia's kurtosis minus its Gaussian mean, in standard deviations."""
    d = len(mean)
    if len(x) < 2:
        return 0.0
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= 1e-12 * max(values[-1], 1e-300):
        return 0.0
    z = (x - mean) @ (vectors / np.sqrt(values))
    square = np.einsum("ni,ni->n", z, z)
    return float((np.mean(square**2) - d * (d + 2)) / np.sqrt(8.0 * d * (d + 2) / len(x)))
