"""Whether labels next to hyperplanes, and far from them, are what the units say.

A union of halfspaces has a flat boundary next to each unit, and labels that contradict
it elsewhere are flips, which fall anywhere. Two units that almost coincide bend the
boundary; a unit that is missing leaves contradictions on one side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.stats

from unrelu._types import BoolArray, FloatArray
from unrelu.core.explain import CHUNK
from unrelu.core.noise import RARE
from unrelu.thresholds.config import EPS
from unrelu.thresholds.slab import tangent_basis

__all__ = [
    "bent_units",
    "lie_apart",
    "plane_freedom",
    "roomiest_plane",
    "separating_shift",
    "split_in_two",
]


def separating_shift(
    heights: FloatArray, along: FloatArray, on: BoolArray, *, move_threshold: bool
) -> tuple[float, FloatArray]:
    """Find the boundary ``h = c + a . s`` that contradicts the labels least.

    Minimises the sum of the heights by which points lie on the wrong side of it, a linear
    program. 0 means that one hyperplane explains every label.

    Parameters
    ----------
    heights, along
        Of the points over the present hyperplane, ``(m,)``, and within it, ``(m, n - 1)``.
    on
        Their labels, ``(m,)``.
    move_threshold
        Whether c is free; otherwise it is 0.

    Returns
    -------
    The sum at the minimum, and (c, a).
    """
    m = len(heights)
    features = np.column_stack([np.full(m, 1.0 if move_threshold else 0.0), along])
    sign = np.where(on, 1.0, -1.0)
    scale = float(np.abs(heights).max())
    # sign (h - c - a.s) >= -slack, in units of the slab's width.
    slack = scipy.sparse.eye_array(m, format="csr")
    matrix: Any = scipy.sparse.hstack([scipy.sparse.csr_array(sign[:, None] * features), -slack])
    count = features.shape[1]
    solved = scipy.optimize.linprog(
        np.append(np.zeros(count), np.ones(m)),
        A_ub=matrix,
        b_ub=sign * heights / scale,
        bounds=[(None, None)] * count + [(0, None)] * m,
        method="highs",
    )
    if solved.x is None:
        return np.inf, np.zeros(count)
    return float(solved.fun or 0.0) * scale, np.asarray(solved.x[:count]) * scale


def roomiest_plane(points: FloatArray, on: BoolArray) -> tuple[FloatArray, float, float]:
    """Find the hyperplane ``w . x = c`` with the most room between two sets of points.

    A linear program: the room is measured where ``|w_i| <= 1`` for all i. Touching is not
    separating: inputs that are often 0 have hyperplanes through most of the points.

    Returns
    -------
    Unit normal ``(n,)``, threshold, and the room on either side, 0 where nothing separates them.
    """
    m, n = points.shape
    sign = np.where(on, 1.0, -1.0)[:, None]
    # sign (w.x - c) >= room
    solved = scipy.optimize.linprog(
        np.append(np.zeros(n + 1), -1.0),
        A_ub=np.hstack([-sign * points, sign, np.ones((m, 1))]),
        b_ub=np.zeros(m),
        bounds=[(-1.0, 1.0)] * n + [(None, None), (0.0, None)],
        method="highs",
    )
    if solved.x is None or not (length := float(np.linalg.norm(solved.x[:n]))) > 0.0:
        return np.zeros(n), 0.0, 0.0
    normal, rest = np.asarray(solved.x[:n]), np.asarray(solved.x[n:])
    return normal / length, float(rest[0]) / length, float(rest[1]) / length


def plane_freedom(
    direction: FloatArray, heights: FloatArray, x: FloatArray, inputs: FloatArray
) -> float:
    """Bound the angle by which a hyperplane can turn and leave every point on its side.

    Parameters
    ----------
    direction, heights
        Unit normal ``(n,)``, and of the points over it ``(m,)``.
    x
        The points, ``(m, n)``.
    inputs
        Rows that undo a whitening, ``(n, p)``: the angle is that of ``direction @ inputs``.

    Returns
    -------
    The length of the box around all such normals, whose component along ``direction`` is 1;
    infinite where some coordinate of them has no bound.
    """
    basis = tangent_basis(direction)
    sign = np.where(heights > 0.0, 1.0, -1.0)[:, None]
    # sign (h + a.s - c) >= 0 for the normal direction + basis a
    matrix = -sign * np.column_stack([x @ basis, -np.ones(len(x))])
    free = [(None, None)] * matrix.shape[1]
    total = 0.0
    for column in (basis.T @ inputs).T:
        widths = []
        for side in (1.0, -1.0):
            solved = scipy.optimize.linprog(
                np.append(side * column, 0.0), A_ub=matrix, b_ub=np.abs(heights), bounds=free,
                method="highs",
            )  # fmt: skip
            if solved.status != 0 or solved.x is None:
                return np.inf
            widths.append(-side * float(column @ solved.x[:-1]))
        total += max(widths) ** 2
    return float(np.sqrt(total) / np.linalg.norm(direction @ inputs))


def bent_units(
    x: FloatArray,
    on: BoolArray,
    directions: FloatArray,
    thresholds: FloatArray,
    widths: FloatArray,
    errors: FloatArray,
    *,
    flipped: tuple[int, int] | None,
    move_thresholds: bool,
    doubt: float,
    rng: np.random.Generator,
) -> list[tuple[int, int, int]]:
    """List the units next to which no single hyperplane explains the labels.

    Only points near one unit and far below all others are looked at: there the label is
    that unit's. One hyperplane must explain all of them but the share that is flipped;
    where noise blurs the boundary itself the contradictions may not depend on the square
    of where they lie along the hyperplane, which is what a bend makes them do.

    Parameters
    ----------
    x, on
        Points and their labels.
    directions, thresholds, widths, errors
        Of the units: hyperplanes, half-widths of their slabs, standard errors.
    flipped
        Labels known to be flipped, far from every unit, and of how many; None where
        noise blurs the boundaries.

    Returns
    -------
    For each: the unit, how many of its points contradict it, and of how many.
    """
    heights = x @ directions.T - thresholds
    near_or_on = heights > -widths
    alone = near_or_on.sum(axis=1) == 1
    bent = []
    for i in range(len(directions)):
        mine = np.flatnonzero(alone & near_or_on[:, i] & (heights[:, i] < widths[i]))[:CHUNK]
        if len(mine) < 2 * x.shape[1] or x.shape[1] < 2:
            continue
        along = x[mine] @ tangent_basis(directions[i])
        labels, height = on[mine], heights[mine, i]
        wrong = labels != (height > 0)
        if flipped is None:
            signs = np.where(labels[wrong], 1.0, -1.0)
            failed = _top_exceeds_chance(along[wrong], signs, rng)
        else:
            left, best = separating_shift(height, along, labels, move_threshold=move_thresholds)
            if left <= np.sqrt(EPS) * float(widths[i]):
                continue
            above = height - best[0] - along @ best[1:]
            # With flipped labels the hyperplane is known to its standard error only.
            sure = np.abs(above) > (errors[i] if flipped[0] else 0.0)
            mine, wrong = mine[sure], (labels != (above > 0))[sure]
            failed = _more_than_flipped(int(np.count_nonzero(wrong)), len(mine), *flipped, doubt)
        if failed:
            bent.append((i, int(np.count_nonzero(wrong)), len(mine)))
    return bent


def _more_than_flipped(wrong: int, count: int, flips: int, labels: int, doubt: float) -> bool:
    """Whether contradictions are more than the share of flipped labels explains."""
    if flips == 0:
        return True
    share = (flips + 3.0 * np.sqrt(flips)) / max(labels, 1)
    return bool(scipy.stats.binom.sf(wrong - 1, count, min(share, 1.0)) < doubt)


def lie_apart(
    points: FloatArray, among: FloatArray, rng: np.random.Generator, doubt: float
) -> bool:
    """Whether ``points`` lie elsewhere than a random choice from ``among`` would.

    Compares means, by a chi-square test, and second moments, by their top eigenvalue.
    """
    m, n = points.shape
    if m < 4 or len(among) < 10 * n:
        return False
    centre = among.mean(axis=0)
    covariance = np.cov(among.T).reshape(n, n)
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= 0.0:
        return False
    white = (points - centre) @ (vectors / np.sqrt(values))
    mean = white.mean(axis=0)
    if scipy.stats.chi2.sf(m * float(mean @ mean), n) < doubt:
        return True
    return m >= 10 * n and _top_exceeds_chance(white, np.ones(m), rng)


def _top_exceeds_chance(points: FloatArray, sign: FloatArray, rng: np.random.Generator) -> bool:
    """Whether ``sum sign (s s^T - I)`` has an eigenvalue that random signs do not give."""
    points, sign = points[:CHUNK], sign[:CHUNK]
    m, n = points.shape
    if m < 4:
        return False

    def top(signs: FloatArray) -> float:
        matrix = (points * signs[:, None]).T @ points - signs.sum() * np.eye(n)
        return float(np.abs(np.linalg.eigvalsh(matrix)).max())

    chance = [top(rng.choice([-1.0, 1.0], m)) for _ in range(int(RARE**2))]
    return top(sign) > float(np.mean(chance)) + RARE * float(np.std(chance))


def split_in_two(
    heights: FloatArray, along: FloatArray, on: BoolArray, *, rounds: int
) -> list[FloatArray] | None:
    """Find two boundaries ``h = c + a . s`` that explain a bent one exactly, or None.

    A point is on where it lies above either: off-points lie below both, on-points above the
    one that they are farther above. One linear program each, in turn, never contradicts the
    labels more than before. The first guess bends along the axis on which the labels that
    contradict a single hyperplane depend most.

    Parameters
    ----------
    heights, along, on
        As for :func:`separating_shift`.
    rounds
        Turns at most.
    """
    _, single = separating_shift(heights, along, on, move_threshold=True)
    above = heights - single[0] - along @ single[1:]
    wrong = on != (above > 0)
    sign = np.where(on[wrong], 1.0, -1.0)
    scatter = (along[wrong] * sign[:, None]).T @ along[wrong]
    values, vectors = np.linalg.eigh(scatter)
    bend = vectors[:, int(np.argmax(np.abs(values)))]
    side = along @ bend > 0
    planes: list[FloatArray] = []
    for _ in range(rounds):
        left, planes = 0.0, []
        for mine in (side, ~side):
            part = ~on | mine
            if np.count_nonzero(on & mine) <= along.shape[1]:
                return None
            rest, plane = separating_shift(
                heights[part], along[part], on[part], move_threshold=True
            )
            left += rest
            planes.append(plane)
        if left <= np.sqrt(EPS) * float(np.abs(heights).max()):
            return planes
        over = [heights - plane[0] - along @ plane[1:] for plane in planes]
        moved = over[0] > over[1]
        if (moved == side)[on].all():
            return None
        side = moved
    return None
