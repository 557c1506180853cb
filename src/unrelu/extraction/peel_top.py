r"""The last hidden layer, closed by a regression.

Over the rows of the last hidden layer the target is

.. math:: f = \sum_j \tfrac{u_j}{2} |z_j| + \langle p, h \rangle + q ,

linear in (u, p, q), whichever way the rows point and whatever units are always on. A row
that points the right way leaves ``u_j z_j / 2`` in the linear part, so the signs are those
that leave nothing there; what they cannot explain belongs to units that never switch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.signs import sign_patterns
from unrelu.extraction.peel_rows import Row
from unrelu.extraction.prefix import Prefix
from unrelu.networks import ReLUNetwork

__all__ = ["Closed", "close_layers"]

FITS = 1e-7
"""Deviation over the spread of answers up to which the regression explains one."""
LEFT = 1e-6
"""Part of the linear term that may be left where all signs are right."""
SURPLUS = 1.3
"""Answers per coefficient of the regression at least."""


@dataclasses.dataclass(frozen=True)
class Closed:
    """A network whose last hidden layer was closed.

    Attributes
    ----------
    network
        The target, as far as the rows go.
    share
        Part of the answers that it explains.
    free
        Which entries of each ``[W | b]`` a polish may move.
    carriers
        Units added for what no orientation of the rows explains.
    fits, told
        Which answers it explains, and which were looked at, ``(n,)``.
    """

    network: ReLUNetwork
    share: float
    free: list[BoolArray]
    carriers: int
    fits: BoolArray
    told: BoolArray


def _robust(features: FloatArray, answers: FloatArray, rounds: int = 20) -> tuple[FloatArray, BoolArray]:
    """Fit as many answers as possible exactly; returns coefficients and which fit."""
    spread = float(np.std(answers, axis=0).max()) or 1.0
    size = np.linalg.norm(features, axis=0)
    size = np.where(size > 1e-12 * size.max(), size, np.inf)
    scaled = features / size
    weight = np.ones(len(features))
    for _ in range(rounds):  # least sums of deviations, by reweighting
        root = np.sqrt(weight)[:, None]
        solution = np.linalg.lstsq(scaled * root, answers * root, rcond=1e-12)[0]
        miss = np.abs(scaled @ solution - answers).max(axis=1) / spread
        weight = 1.0 / np.maximum(miss, FITS)
        weight /= weight.max()
    fits = miss < 10.0 * FITS
    if fits.sum() >= SURPLUS * features.shape[1]:
        solution = np.linalg.lstsq(scaled[fits], answers[fits], rcond=1e-12)[0]
        miss = np.abs(scaled @ solution - answers).max(axis=1) / spread
    return solution / size[:, None], miss < FITS


def close_layers(
    prefix: Prefix, rows: Sequence[Row], points: FloatArray, answers: FloatArray
) -> Closed | None:
    """Take rows for the last hidden layer, and find the layer above them.

    Parameters
    ----------
    points, answers
        ``(n, d)`` and ``(n, m)``, well spread.

    Returns
    -------
    None where there are too few answers.
    """
    heights = prefix.heights(points)
    theta = np.stack([r.theta for r in rows])
    unknown = ~np.stack([r.known for r in rows])[:, :-1]
    told = ~((heights > 0)[:, None, :] & unknown[None]).any(axis=(1, 2))
    a, b = theta[:, :-1], theta[:, -1]
    n, w = a.shape
    columns = n + w + 1
    if told.sum() < SURPLUS * columns:
        told[:] = True
    if told.sum() < SURPLUS * columns:
        return None
    heights, answers, points = heights[told], answers[told], points[told]
    z = heights @ a.T + b
    features = np.concatenate([np.abs(z), heights, np.ones((len(z), 1))], axis=1)
    scale = (1.0 + np.linalg.norm(points, axis=1))[:, None]
    solution, good = _robust(features / scale, answers / scale)
    half, linear, constant = solution[:n], solution[n:-1], solution[-1]
    network, free, carriers = _oriented(prefix, a, b, half, linear, constant)
    fits = told.copy()
    fits[told] = good
    return Closed(network, float(good.mean()), free, carriers, fits, told)


def _oriented(
    prefix: Prefix,
    a: FloatArray,
    b: FloatArray,
    half: FloatArray,
    linear: FloatArray,
    constant: FloatArray,
) -> tuple[ReLUNetwork, list[BoolArray], int]:
    """Choose the signs, and put the network together."""
    n, m = half.shape
    columns = (a[:, :, None] * half[:, None, :]).reshape(n, -1).T
    found = sign_patterns(columns, linear.ravel(), keep=1)
    sign = found.patterns[0]
    rest = linear - a.T @ (half * sign[:, None])
    constant = constant - (half * sign[:, None]).T @ b
    weights = [*prefix.weights, a * sign[:, None]]
    biases = [*prefix.biases, b * sign]
    size = max(float(np.linalg.norm(linear)), float(np.linalg.norm(columns)))
    outer = 2.0 * half.T
    carriers = 0
    skip = None
    if found.remainders[0] > LEFT * size:
        if prefix.depth:  # heights are not negative: both parts of the term are always on
            carriers = 2 * m
            weights[-1] = np.concatenate(
                [weights[-1], np.maximum(rest.T, 0.0), np.maximum(-rest.T, 0.0)]
            )
            biases[-1] = np.concatenate([biases[-1], np.zeros(2 * m)])
            outer = np.concatenate([outer, np.eye(m), -np.eye(m)], axis=1)
        else:
            skip = rest.T
    network = ReLUNetwork([*weights, outer], [*biases, constant], skip)
    return network, _free(network, carriers), carriers


def _free(network: ReLUNetwork, carriers: int) -> list[BoolArray]:
    """Return what a polish may move: not the scale of a unit, nor what carries a linear term."""
    masks = [np.ones((w.shape[0], w.shape[1] + 1), dtype=bool) for w in network.weights]
    for mask, w in zip(masks[:-1], network.weights[:-1], strict=True):
        mask[np.arange(len(w)), np.abs(w).argmax(axis=1)] = False
    if carriers:
        masks[-2][-carriers:] = False
        masks[-2][-carriers : len(masks[-2]) - carriers // 2, :-1] = True
        masks[-1][:, -1 - carriers : -1] = False
    return masks
