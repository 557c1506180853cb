r"""The last hidden layer, closed by a regression.

Over the rows of the last hidden layer the target is

.. math:: f = \sum_j \tfrac{u_j}{2} |z_j| + \langle p, h \rangle + q ,

linear in (u, p, q), whichever way the rows point and whatever units are always on. A row
that points the right way leaves ``u_j z_j / 2`` in the linear part, so the signs are those
that leave nothing there; what they cannot explain belongs to units that never switch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.signs import sign_patterns
from unrelu.extraction.deep_numbers import ALIKE, FINE, READ
from unrelu.extraction.peel_rows import Row
from unrelu.extraction.prefix import Prefix
from unrelu.networks import ReLUNetwork

__all__ = ["Closed", "close_layers"]

FITS = READ
"""Deviation over the spread of answers up to which the regression explains one."""
LEFT = ALIKE
"""Part of the linear term that may be left where all signs are right."""
MOST_BLIND = 5
"""Rows with weights that are not known, up to which both sides are tried for each."""
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

    def without(self, layer: int, units: IntArray) -> Closed:
        """Return it without some units of a layer, counted from nought."""
        weights, biases = list(self.network.weights), list(self.network.biases)
        weights[layer], biases[layer] = (np.delete(a[layer], units, 0) for a in (weights, biases))
        weights[layer + 1] = np.delete(weights[layer + 1], units, axis=1)
        network = ReLUNetwork(weights, biases, self.network.skip)
        return dataclasses.replace(self, network=network, free=_free(network, self.carriers))


def _robust(
    features: FloatArray, answers: FloatArray, rounds: int = 10
) -> tuple[FloatArray, BoolArray]:
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
    # What deviates a little is near a unit that is missing: it would bend the others.
    for limit in (10.0 * FITS, FITS, FINE):
        fits = miss < limit
        if fits.sum() < SURPLUS * features.shape[1]:
            break
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
    n, w = unknown.shape
    columns = n + w + 1
    blind = np.flatnonzero(unknown.any(axis=1))
    # Where a unit is on whose weight is not known, no surface of the row was met: it is on one
    # side there, and what the weight adds is linear in that unit's height.
    reached: BoolArray = np.asarray((heights > 0)[:, None, :] & unknown[None])
    told = prefix.sure(points) & ~(reached.any(axis=(1, 2)) & (len(blind) > MOST_BLIND))
    if told.sum() < SURPLUS * columns:
        return None
    heights, answers, points = (a[told] for a in (heights, answers, points))
    reached = reached[told]
    z = heights @ theta[:, :-1].T + theta[:, -1]
    scale = (1.0 + np.linalg.norm(points, axis=1))[:, None]
    best: tuple[FloatArray, BoolArray, FloatArray] | None = None
    for side in _sides(unknown):
        above, below = ((reached & (side == s)).any(axis=2) for s in (1.0, -1.0))
        bent = np.where(above, z, np.where(below, -z, np.abs(z)))
        features = np.concatenate([bent, heights, np.ones((len(z), 1))], axis=1)
        one_way = ~(above & below).any(axis=1)
        good = np.zeros(len(z), dtype=bool)
        if one_way.sum() < SURPLUS * columns:
            continue
        solution, good[one_way] = _robust((features / scale)[one_way], (answers / scale)[one_way])
        if best is None or good.sum() > best[1].sum():
            best = solution, good, side
        if good.all():
            break
    if best is None:
        return None
    solution, good, side = best
    fits = told.copy()
    fits[told] = good
    network, masks, carriers = _oriented(prefix, theta, unknown, solution, side, heights)
    return Closed(network, float(good.mean()), masks, carriers, fits, told)


def _sides(unknown: BoolArray) -> Iterator[FloatArray]:
    """Yield the sides on which rows may be where a unit is on whose weight is not known.

    One for every such weight, ``(n, w)``; where they are many one for every row.
    """
    rows = np.flatnonzero(unknown.any(axis=1))
    pairs = [tuple(p) for p in np.argwhere(unknown)]
    free = pairs if len(pairs) <= MOST_BLIND else [(j,) for j in rows]
    for code in range(1 << len(free) if len(free) <= MOST_BLIND else 1):
        side = np.ones(unknown.shape)
        for i, which in enumerate(free):
            side[which] = 1.0 - 2.0 * ((code >> i) & 1)
        yield side


def _oriented(
    prefix: Prefix,
    theta: FloatArray,
    unknown: BoolArray,
    solution: FloatArray,
    side: FloatArray,
    heights: FloatArray,
) -> tuple[ReLUNetwork, list[BoolArray], int]:
    """Choose the signs, and put the network together."""
    a, b = theta[:, :-1].copy(), theta[:, -1]
    n = len(b)
    half, linear, constant = solution[:n], solution[n:-1], solution[-1]
    clear = ~unknown.any(axis=0)
    columns = (a[:, clear, None] * half[:, None, :]).reshape(n, -1).T
    found = sign_patterns(columns, linear[clear].ravel(), keep=1)
    sign = found.patterns[0]
    on_side = unknown & (side == sign[:, None])
    pull = half * sign[:, None]
    a = _filled(a, b, unknown, on_side, linear, pull, sign, heights)
    # A unit counts twice where it is on, and a weight that was open counts only there.
    rest = linear - (np.where(unknown, 0.0, a) + 2.0 * np.where(on_side, a, 0.0)).T @ pull
    constant = constant - pull.T @ b
    weights = [*prefix.weights, a * sign[:, None]]
    biases = [*prefix.biases, b * sign]
    size = max(float(np.linalg.norm(linear)), float(np.linalg.norm(columns)))
    outer = 2.0 * half.T
    carriers = 0
    skip = None
    if np.linalg.norm(rest) > LEFT * size:
        if prefix.depth:
            rows, columns = _carriers(rest)
            carriers = len(rows)
            weights[-1] = np.concatenate([weights[-1], rows])
            biases[-1] = np.concatenate([biases[-1], np.zeros(carriers)])
            outer = np.concatenate([outer, columns], axis=1)
        else:
            skip = rest.T
    network = ReLUNetwork([*weights, outer], [*biases, constant], skip)
    return network, _free(network, carriers), carriers


def _filled(
    a: FloatArray,
    b: FloatArray,
    unknown: BoolArray,
    on_side: BoolArray,
    linear: FloatArray,
    pull: FloatArray,
    sign: FloatArray,
    heights: FloatArray,
) -> FloatArray:
    """Fill in the weights that are not known, ``(n, w)``.

    A row that is on wherever unit k is has its weight in the linear term, if no other row has.
    Where that would not leave it on, or it is to be off, any weight that is large enough does.

    Parameters
    ----------
    on_side
        Unknown weights to units where the row is on.
    pull
        Half of the outgoing weights, times the signs, ``(n, m)``.
    """
    a = a.copy()
    for k in np.flatnonzero(on_side.any(axis=0)):
        j = on_side[:, k].argmax()
        rest = linear[k] - np.where(unknown[:, k], 0.0, a[:, k]) @ pull
        a[j, k] = float(rest @ pull[j] / (2.0 * (pull[j] @ pull[j])))
    for j, k in np.argwhere(unknown):
        way = sign[j] if on_side[j, k] else -sign[j]
        on = heights[:, k] > 0.0
        short = -way * (heights[on] @ a[j] + b[j])
        steep = float((short / heights[on, k]).max(initial=0.0))
        if steep > FITS or way != sign[j]:
            a[j, k] += way * (1.0 + 2.0 * steep)
    return a


def _carriers(rest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Write a linear term ``(w, m)`` of heights as units that are always on.

    Heights are not negative: the positive and the negative part of a row are both on
    everywhere. One unit that is always on makes a term of rank one.

    Returns
    -------
    rows, columns
        ``(c, w)`` and ``(m, c)``.
    """
    left, s, right = np.linalg.svd(rest, full_matrices=False)
    rows, columns = [], []
    for p, size, q in zip(left.T, s, right, strict=True):
        if size <= LEFT * s[0]:
            break
        for sign in (1.0, -1.0):
            part = np.maximum(sign * p, 0.0)
            if part.max() > LEFT:
                rows.append(part)
                columns.append(sign * size * q)
    return np.array(rows), np.array(columns).T


def _free(network: ReLUNetwork, carriers: int) -> list[BoolArray]:
    """Return what a polish may move: not the scale of a unit, nor a carrier's zeros."""
    masks = [np.ones((w.shape[0], w.shape[1] + 1), dtype=bool) for w in network.weights]
    for mask, w in zip(masks[:-1], network.weights[:-1], strict=True):
        mask[np.arange(len(w)), np.abs(w).argmax(axis=1)] = False
    if carriers:
        masks[-2][-carriers:, :-1] &= network.weights[-2][-carriers:] > 0.0
        masks[-2][-carriers:, -1] = False
    return masks
