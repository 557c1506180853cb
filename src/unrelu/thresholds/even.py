"""Even units: orthonormal directions in fourth moments, and what tells them apart."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.optimize

from unrelu._types import FloatArray
from unrelu.core.hermite import hermite
from unrelu.core.moments import to_numpy
from unrelu.core.noise import RARE
from unrelu.progress import Progress
from unrelu.result import Status
from unrelu.samples import SampleSource
from unrelu.thresholds.config import TINY, ThresholdConfig
from unrelu.thresholds.half_moments import Label, half_moments, mean_of, residual_label
from unrelu.thresholds.landscape import apply_tensor, minimise_joint, whiten_tensor
from unrelu.thresholds.search import HARD

__all__ = ["EvenUnits", "odd_energy"]


def angles_to_spans(directions: FloatArray, halves: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Root mean square angle of each direction to the span that each half's T2 shows."""
    squares = np.zeros(len(directions))
    for second in halves:
        values, vectors = np.linalg.eigh(second)
        span = vectors[:, np.argsort(-np.abs(values))[: len(directions)]]
        inside = np.linalg.norm(directions @ span, axis=1)
        squares += np.arccos(np.clip(inside, 0.0, 1.0)) ** 2
    return np.asarray(np.sqrt(squares / len(halves)))


def odd_significance(source: SampleSource, label: Label) -> float:
    """Largest of ``E[f x_j]`` over its standard error; noise where f is even."""
    count, total, square = 0, np.zeros(source.input_dim), np.zeros(source.input_dim)
    for x_raw, y_raw in source.batches():
        x = to_numpy(x_raw)
        product = label(x, to_numpy(y_raw))[:, None] * x
        total += product.sum(axis=0)
        square += (product**2).sum(axis=0)
        count += len(x)
    spread = np.sqrt(np.maximum(square - total**2 / count, 0.0))
    return float(np.max(np.abs(total) / np.where(spread > 0.0, spread, np.inf)))


def polish(tensor: FloatArray, start: FloatArray) -> FloatArray:
    """Orthonormal rows at the peaks of a tensor next to ``start``, ``(k, k)``."""
    scale = float(np.abs(tensor).max()) + TINY
    rows = minimise_joint(tensor / scale, start, penalty=HARD)
    # The nearest orthonormal rows: the penalty leaves them slightly off.
    left, _, right = np.linalg.svd(rows)
    return np.asarray(left @ right)


def best_rows(
    tensor: FloatArray, rank: int, rng: np.random.Generator, cfg: ThresholdConfig
) -> FloatArray:
    """Orthonormal rows at peaks of the tensor, with the least odd energy."""
    best, best_energy = np.eye(rank), np.inf
    for _ in range(2 * cfg.tries):
        start, _ = np.linalg.qr(rng.standard_normal((rank, rank)))
        rows = polish(tensor, start)
        energy = odd_energy(tensor, rows)
        if energy < best_energy:
            best, best_energy = rows, energy
    return best


def chosen_sign(
    source: SampleSource,
    label: Label,
    halves: list[FloatArray],
    candidates: list[FloatArray],
    cfg: ThresholdConfig,
) -> tuple[int, float]:
    """Choose between the peaks and the valleys of the fourth moments.

    Two units have both at orthonormal directions, 45 degrees apart, that explain the fourth
    moments alike. Which of them are the units, higher even moments of the labels tell.

    Returns
    -------
    index, significance
        Of the choice, in standard errors; infinite where the fourth moments tell.
    """
    mean, noise = 0.5 * (halves[0] + halves[1]), 0.5 * (halves[0] - halves[1])
    energies = [odd_energy(mean, rows) for rows in candidates]
    floors = [max(odd_energy(noise, rows), TINY) for rows in candidates]
    if any(e > cfg.signal * f for e, f in zip(energies, floors, strict=True)):
        return int(np.argmin(energies)), np.inf
    if len(candidates[0]) == 1:
        return int(np.argmin(energies)), np.inf
    residuals = additive_residuals(source, label, candidates)
    gain = residuals[0] ** 2 - residuals[1] ** 2
    error = float(gain.std()) / np.sqrt(len(gain))
    significance = float(gain.mean()) / error if error > 0.0 else 0.0
    return int(significance > 0.0), abs(significance)


def additive_residuals(
    source: SampleSource, label: Label, candidates: list[FloatArray]
) -> list[FloatArray]:
    """Return what sums of even polynomials along each set of directions leave of the labels."""
    features: list[list[FloatArray]] = [[] for _ in candidates]
    labels: list[FloatArray] = []
    for x_raw, y_raw in source.batches():
        x = to_numpy(x_raw)
        labels.append(label(x, to_numpy(y_raw)))
        for columns, rows in zip(features, candidates, strict=True):
            z = x @ rows.T
            powers = [hermite(k, z) / math.sqrt(math.factorial(k)) for k in (2, 4, 6, 8)]
            columns.append(np.concatenate([np.ones((len(x), 1)), *powers], axis=1))
    y = np.concatenate(labels)
    left = []
    for columns in features:
        a = np.concatenate(columns)
        left.append(y - a @ np.linalg.lstsq(a, y)[0])
    return left


def odd_energy(tensor: FloatArray, rows: FloatArray) -> float:
    """Sum the squares of what orthonormal even units would leave at zero.

    In an orthonormal basis that begins with ``rows`` ``(k, n)`` these are the entries with
    an index outside the rows, or with one that occurs an odd number of times.
    """
    rotated = whiten_tensor(tensor, rows.T)
    total = float((tensor**2).sum())
    diagonal = np.einsum("iiii->i", rotated)
    pairs = np.einsum("iijj->ij", rotated)
    even = 3.0 * float((pairs**2).sum()) - 2.0 * float((diagonal**2).sum())
    return total - even


def condition_margin(tensor: FloatArray, rows: FloatArray) -> float:
    """Least ``T_iiii + T_jjjj - 6 T_iijj`` over pairs: positive at a strict maximum."""
    if len(rows) == 1:
        return abs(apply_tensor(tensor, rows[0]))
    rotated = whiten_tensor(tensor, rows.T)
    diagonal = np.einsum("iiii->i", rotated)
    pairs = np.einsum("iijj->ij", rotated)
    margin = diagonal[:, None] + diagonal[None, :] - 6.0 * pairs
    return float(margin[np.triu_indices(len(rows), 1)].min())


def angles_between(rows: FloatArray, others: list[FloatArray]) -> FloatArray:
    """Root mean square angle of each row to its match in each of ``others``."""
    squares = np.zeros(len(rows))
    for other in others:
        cosines = np.abs(rows @ other.T)
        i, j = scipy.optimize.linear_sum_assignment(-cosines)
        squares[i] += np.arccos(np.clip(cosines[i, j], -1.0, 1.0)) ** 2
    return np.asarray(np.sqrt(squares / len(others)))


@dataclasses.dataclass(frozen=True)
class EvenUnits:
    """Directions found in the fourth moments, and what speaks for them.

    Attributes
    ----------
    directions, errors
        ``(k, n)`` and ``(k,)``.
    sign
        Whether they are peaks or valleys.
    doubt
        Standard errors by which one set of directions explains the labels better.
    uneven
        Standard errors of the largest ``E[f x_j]``.
    odd, floor
        Energy where there should be none, and that of its sampling error.
    margin
        Theorem 10's condition: positive at a strict extremum.
    seen
        Samples read.
    """

    directions: FloatArray
    errors: FloatArray
    sign: float
    doubt: float
    uneven: float
    odd: float
    floor: float
    margin: float
    seen: int

    @classmethod
    def of(
        cls,
        samples: SampleSource,
        plain: Label,
        units: int | None,
        rng: np.random.Generator,
        cfg: ThresholdConfig,
        watch: Progress,
    ) -> EvenUnits | None:
        """Find the directions; None where the second moments show none."""
        first, second, _, least = half_moments(samples, 2, plain, watch, "quadratic part")
        low, quadratic = mean_of(first, second), (first.t2, second.t2)
        values, vectors = np.linalg.eigh(low.t2)
        noise = max(float(np.linalg.norm(0.5 * (first.t2 - second.t2), 2)), least)
        order = np.argsort(-np.abs(values))
        rank = units or int(np.count_nonzero(np.abs(values) > cfg.signal * noise))
        if rank == 0:
            return None
        basis = vectors[:, order[:rank]]
        first, second, seen, _ = half_moments(
            samples, 4, residual_label(plain, low), watch, "fourth moments"
        )
        whole = [half.dense(4) for half in (first, second)]
        tensors = [whiten_tensor(half, basis) for half in whole]
        tensor = 0.5 * (tensors[0] + tensors[1])
        found = [best_rows(sign * tensor, rank, rng, cfg) for sign in (-1.0, 1.0)]
        chosen, doubt = chosen_sign(samples, plain, whole, [rows @ basis.T for rows in found], cfg)
        rows, sign = found[chosen], (-1.0, 1.0)[chosen]
        errors = angles_between(rows, [polish(sign * half, rows) for half in tensors])
        directions = rows @ basis.T
        return cls(
            directions,
            np.hypot(errors, angles_to_spans(directions, quadratic)),
            sign,
            doubt,
            odd_significance(samples, plain),
            odd_energy(0.5 * (whole[0] + whole[1]), directions),
            max(odd_energy(0.5 * (whole[0] - whole[1]), directions), TINY),
            condition_margin(sign * tensor, rows),
            seen,
        )

    def verdict(self, cfg: ThresholdConfig) -> tuple[Status, str]:
        """Judge the directions by what the moments leave."""
        rank, worst = len(self.errors), float(self.errors.max())
        if self.margin <= 0:
            return Status.ASSUMPTION_VIOLATED, (
                "a direction found is no strict extremum of the fourth moment: the products of "
                "units outweigh the units (Theorem 10's condition)."
            )
        if self.uneven > cfg.reach:
            return Status.ASSUMPTION_VIOLATED, (
                f"E[f x] is {self.uneven:.0f} standard errors away from 0 along an input: f is "
                "not even."
            )
        if worst > cfg.agreement:
            return Status.PARTIAL, (
                f"two halves of the samples disagree on a direction by {worst:.2f} rad: give "
                "more samples, or f is quadratic and has no directions of its own."
            )
        if self.doubt < RARE:
            return Status.PARTIAL, (
                "the fourth moments fit two sets of directions alike, and neither explains the "
                "labels better: they are not determined; give more samples."
            )
        if self.odd > cfg.signal * self.floor:
            return Status.PARTIAL, (
                f"the fourth moments fit {rank} orthonormal even units only to "
                f"{self.odd / self.floor:.1f} times their sampling error: the units are not "
                "orthonormal, or not even."
            )
        return Status.RECOVERED, (
            f"{rank} directions to a standard error of at most {worst:.1e} rad."
        )
