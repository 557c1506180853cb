"""Do rows behave as a first layer does? Whole hyperplanes, and signs (section 3.5.3)."""

from __future__ import annotations

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_rows import AskPoints, RowConfig, Rows, row_rank

__all__ = ["confirm_rows", "drop_parallel", "orient_rows"]


def confirm_rows(
    ask: AskPoints,
    rows: Rows,
    noise: NoiseModel,
    *,
    scale: float,
    rng: np.random.Generator,
    config: RowConfig | None = None,
) -> Rows:
    """Drop rows whose hyperplanes end somewhere: they belong to a later layer.

    With the whole normal known, random places on each hyperplane can be
    looked at. A later layer's normal is a combination of first-layer rows, so
    rows that are linearly dependent are the sign that this is needed most.
    """
    config = RowConfig() if config is None else config
    dependent = row_rank(rows) < rows.count
    keep = np.ones(rows.count, dtype=bool)
    still = np.zeros(rows.count, dtype=bool)
    shown: IntArray = np.zeros(rows.count, dtype=np.intp)
    nearer = np.ones(rows.count)  # as far as a probability survives
    n = rows.weights.shape[1]
    for distance in config.confirmations if dependent else config.confirmations_few:
        todo = np.flatnonzero(keep)
        if len(todo) == 0:
            break
        normals = rows.weights[todo]
        move = rng.standard_normal((len(todo), n)) / np.sqrt(n)
        move -= np.einsum("kn,kn->k", move, normals)[:, None] * normals
        far = distance * (scale + np.linalg.norm(rows.anchors[todo], axis=1))
        far = far * nearer[todo]
        points = rows.anchors[todo] + far[:, None] * (move @ rows.basis)
        level = noise.at(points)
        width = np.maximum(1e-5 * scale, 30.0 * far * rows.std[todo])
        step = width[:, None] * (normals @ rows.basis)
        answers = ask(np.concatenate([points, points + step, points - step]))
        middle, up, down = np.split(answers, 3)
        nearer[todo[np.isnan(answers).reshape(3, len(todo), -1).any(axis=(0, 2))]] *= 0.25
        limit = 30.0 * level
        kinked = (np.abs(up + down - 2.0 * middle) > limit).any(axis=1)
        moving = (np.abs(up - down) > limit).any(axis=1)
        keep[todo[moving & ~kinked]] = False
        still[todo[~moving & ~kinked]] = True
        shown[todo[kinked]] += 1
    # A part of a hyperplane may lie where all of the first layer is off. That speaks against
    # it, if the others suffice and it was hardly seen elsewhere. More rows than inputs are
    # always dependent.
    sure = _chosen(rows, keep & (~still | (shown >= config.shown)))
    kept = _chosen(rows, keep)
    if row_rank(kept) < kept.count and row_rank(sure) == row_rank(kept):
        return sure
    return kept


def _chosen(rows: Rows, keep: BoolArray) -> Rows:
    return Rows(rows.basis, rows.weights[keep], rows.std[keep], rows.anchors[keep])


def drop_parallel(
    ask: AskPoints, rows: Rows, noise: NoiseModel, *, config: RowConfig | None = None
) -> Rows:
    """Of rows that are parallel, keep the one behind which nothing changes any more.

    A second-layer unit with a single input has a hyperplane parallel to a row,
    on the on side of it, that never ends; with ``d1 = 1`` all have.
    """
    config = RowConfig() if config is None else config
    cosine = rows.weights @ rows.weights.T
    alike = np.abs(cosine) > 1.0 - 0.5 * config.parallel**2
    keep = np.ones(rows.count, dtype=bool)
    leaders = np.array([not alike[i, :i].any() for i in range(rows.count)], dtype=bool)
    inverse = np.linalg.pinv(rows.weights[leaders])
    for column, i in enumerate(np.flatnonzero(leaders)):
        group = np.flatnonzero(alike[i])
        if len(group) == 1:
            continue
        move = inverse[:, column] @ rows.basis  # changes the group's heights only
        heights = (rows.anchors[group] - rows.anchors[i]) @ (rows.weights[i] @ rows.basis)
        order = group[np.argsort(heights)]
        low, high = float(heights.min()), float(heights.max())
        span = high - low
        t = np.array([low - span, low - 2.0 * span, high + span, high + 2.0 * span])
        points = rows.anchors[i] + np.multiply.outer(t, move)
        answers = ask(points)
        # Errors of the other rows let the move change them a little.
        still = 30.0 * noise.at(points).max(axis=0) + config.silent * np.ptp(answers, axis=0)
        quiet = (np.abs(answers[[0, 2]] - answers[[1, 3]]) <= still).all(axis=1)
        if quiet.any():
            keep[group] = False
            keep[order[0 if quiet[0] else -1]] = True
    return _chosen(rows, keep)


def orient_rows(
    ask: AskPoints,
    weights: FloatArray,
    biases: FloatArray,
    anchors: FloatArray,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    config: RowConfig | None = None,
) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Find the signs of rows: on the off side of a unit nothing changes.

    Moving by ``z`` with ``W z = e_i`` changes unit i only. From a point on its
    hyperplane, the answer changes towards the on side, and is exactly constant
    towards the off side.

    Parameters
    ----------
    weights, biases
        ``(k, d)``, linearly independent, of unit length, and ``(k,)``.
    anchors
        A point on each hyperplane, ``(k, d)``; tried first.

    Returns
    -------
    sign, flat, broken
        +1 or -1 per row; rows where no side ever changed the answer; rows
        where both sides did, which no first-layer unit does.
    """
    config = RowConfig() if config is None else config
    k, d = weights.shape
    inverse = np.linalg.pinv(weights)  # columns z_i
    sign = np.zeros(k)
    both = np.zeros(k, dtype=np.intp)
    nearer = np.ones(k)  # steps that a probability does not survive are shortened
    pace = 0.0
    for attempt in range(config.sign_points):
        todo = np.flatnonzero(sign == 0)
        if len(todo) == 0:
            break
        if attempt == 0:
            points = anchors[todo]
        else:
            points = rng.standard_normal((len(todo), d)) * (1.0 + 0.5 * attempt)
        moves = inverse[:, todo].T
        height = np.einsum("kd,kd->k", weights[todo], points) + biases[todo]
        points = points - height[:, None] * moves
        size = nearer[todo] * (1.0 + 0.1 * np.linalg.norm(points, axis=1) / np.sqrt(d))
        step = size[:, None] * moves
        n = len(todo)
        answers = ask(np.concatenate([points, points + step, points - step]))
        middle = answers[:n]
        up = np.abs(answers[n : 2 * n] - middle).max(axis=1)
        down = np.abs(answers[2 * n :] - middle).max(axis=1)
        lost = np.isnan(up) | np.isnan(down)
        nearer[todo[lost]] *= 0.25
        level = 30.0 * noise.at(np.concatenate([points + step, points - step])).max(axis=1)
        level = np.maximum(level[:n], level[n:])
        large, small = np.maximum(up, down), np.minimum(up, down)
        # Errors of the other rows let a move change them a little: in proportion to its length.
        length = np.linalg.norm(step, axis=1)
        pace = max(pace, float(np.median(np.where(lost, 0.0, large) / length)))
        floor = np.maximum(level, 1e-9 * pace * length)
        clear = (large > floor / config.quiet) & (small <= config.quiet * large)
        sign[todo[clear]] = np.where(up > down, 1.0, -1.0)[clear]
        both[todo[(small > config.quiet * large) & (small > floor)]] += 1
    open_ = sign == 0
    broken = open_ & (both > 0)
    return np.where(open_, 1.0, sign), open_ & ~broken, broken
