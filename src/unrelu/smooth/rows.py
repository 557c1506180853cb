r"""Rows of a smooth hidden layer from first and second derivatives.

Gradients of :math:`f = \sum_j u_j \varphi(w_j x + b_j) + Sx + c` differ by combinations of the
rows: their rank is the number of independent rows, and they span them. Inside that span second
derivatives are :math:`\sum_j u_j \varphi''(z_j)\, w_j w_j^\top` with the same rows everywhere:
diagonalised jointly they give each row up to its scale.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.jennrich import jennrich, joint_diagonalise
from unrelu.smooth.config import SmoothConfig
from unrelu.smooth.run import SmoothRun

__all__ = ["Rows", "Span", "find_rows", "measure_gradients", "span_of_rows"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Directions of the rows of a hidden layer.

    Attributes
    ----------
    directions
        Unit rows, ``(k, d)``.
    duals
        Directions along which one unit changes and no other, ``(k, d)``:
        ``directions @ duals.T`` is the identity.
    basis
        Orthonormal rows of their span, ``(k, d)``.
    mixed
        How far second derivatives are from being diagonal, 0 to 1.
    shared
        Whether they share a basis: not where there are more units than dimensions, or more than
        one hidden layer. Differences in float32 leave 0.02 off the diagonal.
    straight
        Whether there are none at most points.
    """

    directions: FloatArray
    duals: FloatArray
    basis: FloatArray
    mixed: float
    shared: bool = False
    straight: bool = False


def measure_gradients(run: SmoothRun, points: FloatArray) -> tuple[FloatArray, float]:
    """Return gradients ``(n, m, d)`` by central differences, and an entry's deviation.

    Outputs are divided by their spread. The step balances rounding and curvature:
    ``h^3 = 3 sigma`` over the length on which the function bends.
    """
    n, d = points.shape
    h = float(np.cbrt(3.0 * run.relative_noise)) * run.length
    around = points[:, None, None, :] + h * np.stack([np.eye(d), -np.eye(d)])[None]
    answers = run.ask(around.reshape(-1, d)).reshape(n, 2, d, -1) / run.spread
    gradients = np.swapaxes(answers[:, 0] - answers[:, 1], 1, 2) / (2.0 * h)
    error = float((run.noise / run.spread).max()) / (np.sqrt(2.0) * h)
    return gradients[np.isfinite(gradients).all(axis=(1, 2))], error


@dataclasses.dataclass(frozen=True)
class Span:
    """The span of the rows of a hidden layer, as gradients show it.

    Attributes
    ----------
    basis
        Orthonormal rows, ``(n, d)``, strongest first. It goes on beyond ``rank`` with what stands
        above the noise, but not for sure: a unit that gradients hardly show, or the curvature
        that differences neglect.
    rank
        How many of them are sure.
    values
        All singular values of the gradients' differences.
    gradients
        Those asked for, ``(points, m, d)``.
    """

    basis: FloatArray
    rank: int
    values: FloatArray
    gradients: FloatArray


def span_of_rows(run: SmoothRun, before: Span | None = None) -> Span:
    """Return the rows' span; ``before``: with more gradients than those.

    Gradients are asked for until the last points did not raise their rank. Every other point
    lies farther out: units that typical inputs leave on one side show there. And each comes
    with its mirror image: units that are straight on one side of their hyperplane (ELU) show
    by a point on either.
    """
    d, m = run.domain.dimension, run.oracle.output_dim
    gradients = np.empty((0, m, d)) if before is None else before.gradients
    history: list[int] = []
    while True:
        points = run.draw_wide(1 if history else 2)
        new, error = measure_gradients(run, np.concatenate([points, -points]))
        gradients = np.concatenate([gradients, new])
        if len(gradients) < 2:
            raise ValueError("no gradient could be read at typical inputs")
        table = (gradients - gradients.mean(axis=0)).reshape(-1, d)
        _, values, right = np.linalg.svd(table, full_matrices=False)
        # The largest singular value of noise (Davidson & Szarek 2001).
        floor = error * (np.sqrt(len(table)) + np.sqrt(d))
        rank = int(np.count_nonzero(values > run.config.margin * floor))
        history.append(rank)
        same = history.count(rank) - 1
        if rank == d or same >= run.config.extra or len(gradients) > 2 * d + run.config.extra:
            return Span(right[values > floor], rank, values, gradients)


def _hessians(run: SmoothRun, basis: FloatArray, places: FloatArray) -> tuple[FloatArray, float]:
    """Return second derivatives in a subspace, ``(n m, k, k)``, by central differences.

    Also the deviation of an entry.

    ``h^4 = 48 sigma`` balances rounding and the fourth derivative.
    """
    k = len(basis)
    h = float((48.0 * run.relative_noise) ** 0.25) * run.length
    i, j = np.triu_indices(k, 1)
    eye = np.eye(k)
    steps = np.concatenate([np.zeros((1, k)), eye, -eye, eye[i] + eye[j], -eye[i] - eye[j]])
    points = places[:, None, :] + h * (steps @ basis)[None]
    answers = run.ask(points.reshape(-1, places.shape[1]))
    answers = answers.reshape(len(places), len(steps), -1) / run.spread
    answers = answers[np.isfinite(answers).all(axis=(1, 2))]
    centre, ahead, back = answers[:, :1], answers[:, 1 : k + 1], answers[:, k + 1 : 2 * k + 1]
    own = ahead + back - 2.0 * centre
    both = answers[:, 2 * k + 1 :].reshape(len(answers), 2, len(i), -1).sum(axis=1) - 2.0 * centre
    hessians = np.zeros((len(answers), answers.shape[2], k, k))
    hessians[:, :, np.arange(k), np.arange(k)] = np.swapaxes(own, 1, 2)
    cross = 0.5 * np.swapaxes(both - own[:, i] - own[:, j], 1, 2)
    hessians[:, :, i, j] = hessians[:, :, j, i] = cross
    error = 4.0 * float((run.noise / run.spread).max()) / h**2
    return hessians.reshape(-1, k, k) / h**2, error


def find_rows(run: SmoothRun, basis: FloatArray) -> Rows:
    """Return the rows in a span of as many dimensions as there are rows.

    Second derivatives are asked for at more and more points until each row is visible in them
    and no two come and go together.
    """
    k, m = len(basis), run.oracle.output_dim
    least = max(2, -(-run.config.hessians // m))
    hessians = np.empty((0, k, k))
    places = np.empty((0, run.domain.dimension))
    for turn in range(run.config.tries):
        # What bends on one side of its hyperplane only (ELU) shows there, or at the mirror image.
        places = -places if turn % 2 else run.draw_wide(least)
        new, error = _hessians(run, basis, places)
        hessians = np.concatenate([hessians, new])
        if len(hessians) < 2:
            continue
        sizes = np.linalg.norm(hessians, axis=(1, 2))
        if np.median(sizes) <= run.config.margin * error * k:
            return Rows(basis, basis, basis, 1.0, straight=True)
        rows, diagonal, off = _diagonalised(hessians, basis, run)
        # A step across a place where the second derivative jumps spoils one of them.
        sound = off <= run.config.margin * np.median(off)
        if not sound.all():
            rows, diagonal, off = _diagonalised(hessians[sound], basis, run)
        # What is off the diagonal is rounding, and the curvature that differences neglect.
        entries = np.sqrt(max(k * (k - 1), 1))
        error = max(error * np.sqrt(len(hessians)), float(np.linalg.norm(off)) / entries)
        if not rows.shared or _separate(diagonal, run.config, error):
            break
    return rows


def _diagonalised(
    hessians: FloatArray, basis: FloatArray, run: SmoothRun
) -> tuple[Rows, FloatArray, FloatArray]:
    """Return the rows, the diagonals ``(n, k)``, and what is off each diagonal, ``(n,)``."""
    k = len(basis)
    start = jennrich(np.moveaxis(hessians, 0, 2), np.eye(k), run.rng, pairs=2 * run.config.profile)
    inner = joint_diagonalise(hessians, start)
    inverse = np.linalg.pinv(inner)
    # Along directions of unit length errors are alike; a unit that bends nowhere has a long dual.
    unit = inverse / np.linalg.norm(inverse, axis=0)
    reduced = unit.T @ hessians @ unit
    diagonal = np.einsum("nii->ni", reduced)
    squares = np.sum(reduced**2, axis=(1, 2))
    off = np.sqrt(np.maximum(squares - np.sum(diagonal**2, axis=1), 0.0))
    mixed = float(np.linalg.norm(off) / max(np.sqrt(squares.sum()), np.finfo(np.float64).tiny))
    shared = mixed * run.config.margin <= 1.0
    return Rows(inner @ basis, inverse.T @ basis, basis, mixed, shared), diagonal, off


def _separate(diagonal: FloatArray, config: SmoothConfig, error: float) -> bool:
    """Whether every unit is seen, and no two of them bend in proportion everywhere."""
    size = np.linalg.norm(diagonal, axis=0)
    if not (size > config.margin * error).all():
        return False
    cosine = (diagonal / size).T @ (diagonal / size)
    np.fill_diagonal(cosine, 0.0)
    # In proportion diagonalisation would mix their rows.
    return bool(np.abs(cosine).max() < 1.0 - config.trace)
