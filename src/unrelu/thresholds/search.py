"""Step 1: find approximate directions in the landscape of the moments."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.moments import HermiteMoments
from unrelu.thresholds.landscape import (
    apply_tensor,
    minimise_joint,
    minimise_landscape,
    minimise_simultaneous,
    whiten,
    whiten_tensor,
)

__all__ = ["Landscape", "LandscapeConfig", "count_units", "find_directions"]

Method = Literal["joint", "third", "fourth", "simultaneous"]


@dataclasses.dataclass(frozen=True)
class LandscapeConfig:
    """Constants of the landscape search; all are ratios.

    Attributes
    ----------
    rank_factor
        An eigenvalue of M2 counts as a unit above this many times the spectral
        norm of M2's sampling error, measured by halves.
    penalty
        The paper's lambda u_2^2, over the largest peak of the tensor: Theta(1),
        above 1 so that the objective is bounded below.
    gamma
        The paper's gamma of the simultaneous objective.
    starts
        Random starts per missing direction before the search gives up.
    distinct
        Cosine above which two peaks are the same one (peaks of an exact
        tensor are orthogonal in whitened coordinates).
    peak
        A peak below this fraction of the highest is not a unit.
    """

    rank_factor: float = 2.0
    penalty: float = 2.0
    gamma: float = 0.01
    starts: int = 12
    distinct: float = 0.7
    peak: float = 0.05


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
    config: LandscapeConfig | None = None,
) -> Landscape:
    """Find ``rank`` directions in the Hermite moments of f.

    One by one (Claim 2): minimise G from random starts in the complement of the
    peaks found, on the tensor with those peaks subtracted, then on the tensor
    itself; or all at once (Theorem 12). Peaks come from the fourth order, as in
    the paper, or from the third. "joint" starts from the third order's peaks one
    by one and moves them together, held orthonormal in whitened coordinates.
    """
    cfg = LandscapeConfig() if config is None else config
    n = moments.input_dim
    # A unit adds a positive eigenvalue: directions without one cannot be whitened.
    values = np.linalg.eigvalsh(moments.t2)
    rank = min(rank, int(np.count_nonzero(values > 1e-12 * max(float(values[-1]), 1e-300))))
    if rank == 0:
        return Landscape(np.empty((0, n)), np.empty(0), 0, 1.0, 0)
    white = whiten(moments.t2, rank)
    third = whiten_tensor(moments.dense(3), white.to_white)
    tensor = third
    if method in ("fourth", "simultaneous"):
        tensor = whiten_tensor(moments.dense(4), white.to_white)
        tensor = tensor * _sign_of_peaks(tensor, _one_by_one(third, rank, rng, cfg)[0])
    condition = float(np.sqrt(white.values[0] / white.values[-1]))
    if method == "simultaneous":
        start, _ = np.linalg.qr(rng.standard_normal((rank, rank)))
        peaks = minimise_simultaneous(
            tensor,
            start,
            gamma=cfg.gamma,
            penalty=10.0 * cfg.penalty * float(np.abs(tensor).max()),
        )
        used = 1
    else:
        peaks, used = _one_by_one(tensor, rank, rng, cfg)
        if method == "joint" and len(peaks) == rank:
            peaks = minimise_joint(tensor, peaks, penalty=10.0 * cfg.penalty * _largest(tensor))
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
    tensor: FloatArray, rank: int, rng: np.random.Generator, cfg: LandscapeConfig
) -> tuple[FloatArray, int]:
    order = tensor.ndim
    peaks: list[FloatArray] = []
    highest = 0.0
    used = 0
    misses = 0
    deflated = tensor
    while len(peaks) < rank and misses < cfg.starts:
        best: FloatArray | None = None
        best_height = -np.inf
        for _ in range(3):  # the higher of three peaks is the better separated
            start = rng.standard_normal(rank)
            for peak in peaks:
                start -= (start @ peak) * peak
            start /= max(float(np.linalg.norm(start)), 1e-300)
            penalty = cfg.penalty * _largest(deflated)
            u = minimise_landscape(deflated, start, penalty=penalty)
            u = minimise_landscape(tensor, u, penalty=cfg.penalty * _largest(tensor))
            used += 1
            height = apply_tensor(tensor, u)
            overlap = max((abs(float(u @ p)) for p in peaks), default=0.0)
            if overlap < cfg.distinct and height > best_height:
                best, best_height = u, height
        if best is None or best_height < cfg.peak * highest:
            misses += 1
            continue
        highest = max(highest, best_height)
        peaks.append(best)
        power = best
        for _ in range(order - 1):
            power = np.multiply.outer(power, best)
        deflated = deflated - best_height * power
    return (np.array(peaks) if peaks else np.empty((0, rank))), used


def _largest(tensor: FloatArray) -> float:
    """Bound ``T(u, ..., u)`` over unit vectors: the flattening's spectral norm."""
    k = tensor.shape[0]
    return float(np.linalg.norm(tensor.reshape(k, -1), 2)) + 1e-300
