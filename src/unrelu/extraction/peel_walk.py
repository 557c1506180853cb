r"""Rows whose crossings do not tell them alone: a unit's surface is followed.

Where more units are on than their gradients have independent directions, a crossing gives
fewer equations on a row than it has unknowns. The surface goes on, and bends, where a unit
below switches; that place is known. A short line just beyond it crosses the same unit
again, and the Jacobian is another one there. Crossings i of one unit have

.. math:: J_i^T a = \lambda_i n_i , \qquad \langle a, h_i \rangle + b = 0 ,

linear in the row (a, b) and the scales :math:`\lambda_i`, of which the first is one.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.units import SPARE
from unrelu.extraction.deep_numbers import FAINT, TRIES
from unrelu.extraction.peel_lines import Crossings, row_space
from unrelu.extraction.peel_rows import AGREE, KNOWN_TO, WELL, Row
from unrelu.extraction.peel_run import Peeling
from unrelu.extraction.peel_weights import BEYOND
from unrelu.extraction.prefix import Prefix

__all__ = ["combined_row", "follow", "taken_in", "undetermined"]

WINDOW = 10.0
"""Half-length of the line beyond a switch over its distance from it: a surface that bends there
is not far."""


def undetermined(crossings: Crossings, prefix: Prefix) -> BoolArray:
    """Tell which crossings have too few independent gradients to tell a row, ``(k,)``."""
    seen = prefix.view(crossings.points)
    s = np.linalg.svd(seen.jacobian, compute_uv=False)
    rank = np.count_nonzero(s > WELL * s[:, :1], axis=1)
    return np.asarray(seen.sure & (rank < seen.on.sum(axis=1)) & (rank > 0))


def combined_row(points: FloatArray, normals: FloatArray, prefix: Prefix) -> Row | None:
    """Return the row that crossings ``(m, d)`` of one unit tell, as far as they do.

    None where they contradict each other, or leave open a weight at the first of them.
    """
    seen = prefix.view(points)
    columns = np.flatnonzero(seen.on.any(axis=0))
    count, w = len(points), len(columns)
    blocks, right = [], []
    for i, (x, n) in enumerate(zip(points, normals, strict=True)):
        jacobian = seen.jacobian[i][columns]
        basis = row_space(jacobian)
        if np.linalg.norm(n - basis.T @ (basis @ n)) > AGREE:
            return None
        block = np.zeros((len(basis) + 1, w + count))
        block[:-1, :w] = basis @ jacobian.T
        block[-1, :w] = seen.heights[i, columns]
        block[-1, w] = 1.0
        block[-1] /= 1.0 + np.linalg.norm(x)
        if i:
            block[:-1, w + i] = -basis @ n
        blocks.append(block)
        right.append(np.append(np.zeros(len(basis)) if i else basis @ n, 0.0))
    matrix, wanted = np.concatenate(blocks), np.concatenate(right)
    left, s, span = np.linalg.svd(matrix, full_matrices=True)
    rank = int(np.count_nonzero(s > WELL * s[0]))
    solution = span[:rank].T @ ((left.T @ wanted)[:rank] / s[:rank])
    if np.abs(matrix @ solution - wanted).max() > AGREE:
        return None
    # What the Jacobian takes to nothing fits any crossing.
    if (np.abs(solution[w + 1 :]) < AGREE).any():
        return None
    told = np.linalg.norm(span[rank:], axis=0) <= FAINT
    theta, known = np.zeros(prefix.width + 1), np.zeros(prefix.width + 1, dtype=bool)
    known[columns], known[-1] = told[:w], told[w]
    theta[columns], theta[-1] = np.where(told[:w], solution[:w], 0.0), solution[w]
    size = float(np.linalg.norm(theta[:-1]))
    if not known[-1] or (seen.on[0] & ~known[:-1]).any() or size == 0.0:
        return None
    error = np.where(known, KNOWN_TO, 0.0)
    return Row(theta / size, known, error, count, points)


def taken_in(row: Row, crossings: Crossings, prefix: Prefix) -> Row:
    """Read weights of a row that are not known from crossings that only it explains.

    With so few unknowns a crossing tells whether it is the row's, however few gradients are
    independent there.
    """
    seen = prefix.view(crossings.points)
    for i in np.flatnonzero(seen.sure & (seen.on & ~row.known[:-1]).any(axis=1)):
        on = seen.on[i]
        fresh = np.flatnonzero(on & ~row.known[:-1])
        if len(fresh) == 0:
            continue
        jacobian, heights = seen.jacobian[i], seen.heights[i]
        basis = row_space(jacobian[on])
        if len(basis) < len(fresh) + SPARE:
            continue
        far = 1.0 + float(np.linalg.norm(crossings.points[i]))
        told = np.append(basis @ (row.theta[:-1] @ jacobian), row.value(heights[None])[0] / far)
        matrix = np.zeros((len(told), len(fresh) + 1))
        matrix[:-1, :-1], matrix[-1, :-1] = basis @ jacobian[fresh].T, heights[fresh] / far
        matrix[:-1, -1] = -basis @ crossings.normals[i]
        s = np.linalg.svd(matrix, compute_uv=False)
        if s[-1] < WELL * s[0]:
            continue
        solution = np.linalg.lstsq(matrix, -told, rcond=None)[0]
        if np.abs(matrix @ solution + told).max() > AGREE * np.abs(solution[-1]):
            continue
        theta, known, error = row.theta.copy(), row.known.copy(), row.error.copy()
        theta[fresh], known[fresh], error[fresh] = solution[:-1], True, FAINT
        row = dataclasses.replace(
            row, theta=theta, known=known, error=error, members=row.members + 1
        )
        row = row.seen_at(crossings.points[[i]])
    return row


def _beyond(x: FloatArray, n: FloatArray, prefix: Prefix) -> tuple[FloatArray, FloatArray]:
    """Return inputs just beyond the switches next to ``x`` on its surface, and how far beyond.

    Returns
    -------
    points, steps
        ``(k, d)`` and ``(k,)``.
    """
    z, slopes = (part[0] for part in prefix.units(x[None]))
    along = slopes - np.multiply.outer(slopes @ n, n)
    size = np.linalg.norm(along, axis=1)
    able = np.flatnonzero(size > FAINT * np.linalg.norm(slopes, axis=1).max())
    ways = -np.sign(z[able])[:, None] * along[able] / size[able, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        far = -z / (ways @ slopes.T)
    far[~(far > 0.0)] = np.inf
    first = np.sort(far, axis=1)
    next_one = first[:, 1] if first.shape[1] > 1 else np.full(len(first), np.inf)
    own = far[np.arange(len(able)), able]
    reach = 1.0 + np.linalg.norm(x)
    steps = np.minimum(BEYOND * reach, (next_one - first[:, 0]) / (2.0 * WINDOW))
    fine = (own <= first[:, 0]) & (steps > BEYOND * FAINT * reach)
    points = x + (own[fine] + steps[fine])[:, None] * ways[fine]
    return points, steps[fine]


def _open(points: list[FloatArray], prefix: Prefix) -> int:
    """Count the numbers that crossings at points would leave open."""
    seen = prefix.view(np.array(points))
    columns = seen.on.any(axis=0)
    s = np.linalg.svd(
        np.concatenate(np.swapaxes(seen.jacobian[:, columns], 1, 2)), compute_uv=False
    )
    # Each crossing after the first brings its own scale.
    return int(columns.sum()) - int(np.count_nonzero(s > WELL * s[0]))


def follow(run: Peeling, x: FloatArray, n: FloatArray, prefix: Prefix) -> Row | None:
    """Follow a unit's surface from a crossing until its row is told."""
    points, normals = [x], [n]
    ends: list[tuple[FloatArray, FloatArray, float]] = []
    for _ in range(_open(points, prefix) + TRIES):  # each switch tells one number or more
        at, along = points[-1], normals[-1]
        ends += [
            (p, along, float(step)) for p, step in zip(*_beyond(at, along, prefix), strict=True)
        ]
        ends = [e for e in ends if prefix.sure(e[0][None])[0]]
        if not ends:
            return None
        left = [_open([*points, e[0]], prefix) for e in ends]
        place, across, step = ends.pop(int(np.argmin(left)))
        crossing = run.crossing_near(place, across, WINDOW * step)
        if crossing is None:
            continue
        points.append(crossing[0])
        normals.append(crossing[1])
        row = combined_row(np.array(points), np.array(normals), prefix)
        if row is not None:
            return row
    return None
