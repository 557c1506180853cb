"""Step 1: find approximate directions in the landscape of the moments."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.moments import HermiteMoments
from unrelu.thresholds.config import GAMMA, TINY, ThresholdConfig
from unrelu.thresholds.landscape import (
    apply_tensor,
    minimise_joint,
    minimise_landscape,
    minimise_simultaneous,
    whiten,
    whiten_tensor,
)

__all__ = ["Landscape", "count_units", "find_directions"]

HARD = 20.0
"""Penalty that holds rows orthonormal, over the tensor's size."""

Method = Literal["joint", "third", "fourth", "simultaneous", "printed"]


@dataclasses.dataclass(frozen=True)
class Landscape:
    """What the landscape showed.

    Attributes
    ----------
    directions
        Unit rows ``(k, n)``.
    peaks
        Heights of the peaks in whitened coordinates, ``(k,)``.
    rank
        Units counted in M2.
    condition
        Square root of the ratio of M2's kept eigenvalues: the condition number
        of the rows c_i^(1/2) w_i.
    starts
        Minimisations made.
    """

    directions: FloatArray
    peaks: FloatArray
    rank: int
    condition: float
    starts: int


def count_units(first: HermiteMoments, second: HermiteMoments, factor: float) -> tuple[int, float]:
    """Count M2's eigenvalues above its noise, from the moments of two halves.

    Returns the count and the noise, the spectral norm of half the difference.
    """
    noise = float(np.linalg.norm(0.5 * (first.t2 - second.t2), 2))
    values = np.linalg.eigvalsh(0.5 * (first.t2 + second.t2))
    return int(np.count_nonzero(values > factor * noise)), noise


def find_directions(
    moments: HermiteMoments,
    rank: int,
    *,
    method: Method,
    rng: np.random.Generator,
    config: ThresholdConfig,
) -> Landscape:
    """Find ``rank`` directions in the Hermite moments of f.

    One by one (Claim 2): minimise G from random starts in the complement of the
    peaks found, on the tensor with those peaks subtracted, then on the tensor
    itself; or all at once (Theorem 12). Peaks come from the fourth order, as in
    the paper, or from the third. "simultaneous" holds the rows apart, which "printed", G(W) of
    B.4 to the letter, does not. "joint" starts from the third order's peaks one
    by one and moves them together, held orthonormal in whitened coordinates.
    """
    n = moments.input_dim
    # A unit adds a positive eigenvalue: directions without one cannot be whitened.
    values = np.linalg.eigvalsh(moments.t2)
    rank = min(
        rank,
        int(
            np.count_nonzero(
                values > len(values) * np.finfo(np.float64).eps * max(float(values[-1]), TINY)
            )
        ),
    )
    if rank == 0:
        return Landscape(np.empty((0, n)), np.empty(0), 0, 1.0, 0)
    white = whiten(moments.t2, rank)
    third = whiten_tensor(moments.dense(3), white.to_white)
    tensor = third
    if method in ("fourth", "simultaneous", "printed"):
        tensor = whiten_tensor(moments.dense(4), white.to_white)
        tensor = tensor * _sign_of_peaks(tensor, _one_by_one(third, rank, rng, config)[0])
    condition = float(np.sqrt(white.values[0] / white.values[-1]))
    if method in ("simultaneous", "printed"):
        start, _ = np.linalg.qr(rng.standard_normal((rank, rank)))
        peaks = minimise_simultaneous(
            tensor,
            start,
            gamma=GAMMA,
            penalty=HARD * float(np.abs(tensor).max()),
            printed=method == "printed",
        )
        used = 1
    else:
        peaks, used = _one_by_one(tensor, rank, rng, config)
        if method == "joint" and len(peaks) == rank:
            peaks = minimise_joint(tensor, peaks, penalty=HARD * _largest(tensor))
    # The third order tells w from -w: its peaks are positive.
    flip = np.array([1.0 if apply_tensor(third, u) >= 0 else -1.0 for u in peaks])
    rows = (peaks * flip[:, None]) @ white.from_white.T
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    heights = np.array([apply_tensor(tensor, u) for u in peaks])
    return Landscape(rows / lengths, heights, rank, condition, used)


def _sign_of_peaks(tensor: FloatArray, peaks: FloatArray) -> float:
    """Sign of u_4, seen at the peaks of the third order.

    The tensor's trace would be cheaper, but products of units outweigh them there.
    """
    return 1.0 if sum(apply_tensor(tensor, u) for u in peaks) >= 0 else -1.0


def _one_by_one(
    tensor: FloatArray, rank: int, rng: np.random.Generator, config: ThresholdConfig
) -> tuple[FloatArray, int]:
    order = tensor.ndim
    peaks: list[FloatArray] = []
    used = 0
    misses = 0
    deflated = tensor
    while len(peaks) < rank and misses < config.tries:
        best: FloatArray | None = None
        best_height = -np.inf
        for _ in range(3):  # the higher of three peaks is the better separated
            start = rng.standard_normal(rank)
            for peak in peaks:
                start -= (start @ peak) * peak
            start /= max(float(np.linalg.norm(start)), TINY)
            u = minimise_landscape(deflated, start, penalty=2.0 * _largest(deflated))
            u = minimise_landscape(tensor, u, penalty=2.0 * _largest(tensor))
            used += 1
            height = apply_tensor(tensor, u)
            overlap = max((abs(float(u @ p)) for p in peaks), default=0.0)
            if overlap < np.sqrt(0.5) and height > best_height:
                best, best_height = u, height
        if best is None:
            misses += 1
            continue
        peaks.append(best)
        power = best
        for _ in range(order - 1):
            power = np.multiply.outer(power, best)
        deflated = deflated - best_height * power
    return (np.array(peaks) if peaks else np.empty((0, rank))), used


def _largest(tensor: FloatArray) -> float:
    """Bound ``T(u, ..., u)`` over unit vectors: the flattening's spectral norm."""
    k = tensor.shape[0]
    return float(np.linalg.norm(tensor.reshape(k, -1), 2)) + TINY
