r"""Which way round the rows of a layer point.

On an affine piece the target's gradient is a combination of the rows that are on,
``g = J^T sum_k beta_k a_k``, and a unit that is off has ``beta_k = 0``. So the sparsest
combination tells the state of every unit; with the side of its surface on which the piece
lies, that is its sign. With r the rank of J and n rows, n - r of the coefficients are free:
guess as many units that are off, solve for the rest, and see whether more coefficients than
guessed vanish. A wrong guess makes none vanish.

Units whose sign is known and that are off at a piece leave its equation, so that what one
piece tells helps at the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.core.units import SPARE
from unrelu.extraction.deep_numbers import FAINT
from unrelu.extraction.peel_lines import RANK, Pieces
from unrelu.extraction.peel_rows import Row
from unrelu.extraction.prefix import Prefix

__all__ = ["Orientation", "orient_rows"]

VANISHES = FAINT
"""A coefficient's part of the gradient below which it is zero, beside the noise."""
GUESSES = 200
MOST_FREE = 8
"""Guesses a piece, and free coefficients up to which it is tried: with half of the units off,
2^(n-r) guesses are expected to be needed."""
ENOUGH = GUESSES
"""Pieces that are looked at, those of the highest rank."""
SILENT = 8
"""Pieces on one side of a row without a sign of it, after which it is off there: where a unit
is on it shows in most gradients."""
RARE = 0.1
"""Part of the pieces below which a side of a row is rare."""


@dataclasses.dataclass(frozen=True)
class Orientation:
    """Signs of a layer's rows.

    Attributes
    ----------
    signs
        1, -1, or 0 where nothing told, ``(n,)``.
    votes
        Pieces that told, for the sign minus against it, ``(n,)``.
    against
        Pieces that told the other sign, ``(n,)``.
    explained, asked
        Pieces whose gradient is a combination of the rows that are on, among those
        where it need not be.
    unexplained, fitting
        Numbers of the other pieces, and of those.
    """

    signs: FloatArray
    votes: IntArray
    against: IntArray
    explained: int
    asked: int
    unexplained: IntArray
    fitting: IntArray

    @staticmethod
    def told(signs: FloatArray) -> Orientation:
        """Return signs that gradients did not have to tell."""
        none = np.empty(0, dtype=np.int64)
        return Orientation(signs, none, none, 1, 1, none, none)

    @property
    def share(self) -> float:
        """Part of the pieces that are explained."""
        return self.explained / max(1, self.asked)


@dataclasses.dataclass(frozen=True)
class _Equation:
    """One piece: ``columns @ beta = gradient``, in coordinates of the Jacobian's rows."""

    number: int
    columns: FloatArray
    gradient: FloatArray
    side: FloatArray
    noise: float

    @property
    def tolerance(self) -> float:
        """What of the gradient counts as nothing."""
        return VANISHES + 100.0 * self.noise


def _equations(pieces: Pieces, prefix: Prefix, rows: Sequence[Row]) -> list[_Equation]:
    usable = np.flatnonzero(pieces.errors < VANISHES)
    if len(usable) == 0:
        return []
    seen = prefix.view(pieces.points[usable])
    theta = np.stack([r.theta for r in rows])
    known = np.stack([r.known for r in rows])[:, :-1]
    told = seen.sure & ~(seen.on[:, None, :] & ~known[None]).any(axis=(1, 2))
    found: list[_Equation] = []
    for i in np.flatnonzero(told):
        left, s, right = np.linalg.svd(seen.jacobian[i], full_matrices=False)
        rank = int(np.count_nonzero(s > RANK * s[0])) if s[0] > 0 else 0
        if rank == 0:
            continue
        p = int(usable[i])
        columns = ((theta[:, :-1] @ left[:, :rank]) * s[:rank]).T
        side = theta[:, :-1] @ seen.heights[i] + theta[:, -1]
        gradient = right[:rank] @ pieces.gradients[p].T
        size = float(np.linalg.norm(gradient))
        if size > 0.0:
            noise = float(pieces.sizes[p]) / size
            found.append(_Equation(p, columns, gradient / size, side, noise))
    return found


def _rest(columns: FloatArray, gradient: FloatArray) -> float:
    """Return what no coefficients explain."""
    left, s, _ = np.linalg.svd(columns, full_matrices=False)
    left = left[:, s > RANK * s[0]]
    return float(np.abs(gradient - left @ (left.T @ gradient)).max())


def _solve(
    columns: FloatArray, gradient: FloatArray, tolerance: float, rng: np.random.Generator
) -> FloatArray | None:
    """Return the sparsest coefficients ``(c, m)``, or None where none stand out."""
    rank, count = columns.shape
    left, s, right = np.linalg.svd(columns, full_matrices=True)
    full = int(np.count_nonzero(s > RANK * s[0]))
    start = right[:full].T @ ((left[:, :full].T @ gradient) / s[:full, None])
    if np.abs(gradient - columns @ start).max() > tolerance:
        return None
    free = count - full
    size = np.linalg.norm(columns, axis=0)
    # Equations beyond the rank agree by themselves; what else is needed must vanish.
    enough = free + max(0, SPARE - (rank - full))
    if free == 0:
        zeros = np.count_nonzero(np.linalg.norm(start, axis=1) * size < tolerance)
        return start if zeros >= enough else None
    null = right[full:].T
    if enough > count or free > MOST_FREE:
        return None
    off = np.argsort(rng.random((GUESSES, count)), axis=1)[:, :free]
    u, t, v = np.linalg.svd(null[off])
    t = np.maximum(t, 1e-9)
    inner = np.einsum("gji,gjm->gim", u, start[off]) / t[:, :, None]
    beta = start - np.einsum("cf,gif,gim->gcm", null, v, inner)
    part = np.linalg.norm(beta, axis=2) * size
    zeros = np.count_nonzero(part < tolerance, axis=1)
    best = int(zeros.argmax())
    stands = zeros[best] >= max(enough, free + 1)
    return np.asarray(beta[best]) if stands else None


def _rare(signs: FloatArray, equations: Sequence[_Equation]) -> FloatArray:
    """Give rows that nothing told a sign, where nearly all pieces lie on one side.

    A unit that is on there would have shown.
    """
    if len(equations) < SILENT or not (signs != 0.0).any():
        return signs
    above = np.mean([e.side > 0.0 for e in equations], axis=0)
    rare = np.where(above > 1.0 - RARE, -1.0, np.where(above < RARE, 1.0, 0.0))
    return np.asarray(np.where(signs == 0.0, rare, signs))


def _votes(
    equations: Sequence[_Equation], signs: FloatArray, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Count the pieces at which each row is on, and off, ``(2, n)`` each: above it and below.

    Only pieces where a row without a sign may be on tell anything new.
    """
    shown, silent = np.zeros((2, 2, len(signs)), dtype=np.int64)
    for e in equations:
        active = np.flatnonzero(signs * e.side >= 0.0)
        if (signs[active] != 0.0).all():
            continue
        columns = e.columns[:, active]
        tolerance = e.tolerance
        beta = _solve(columns, e.gradient, tolerance, rng)
        if beta is None:
            continue
        size = np.linalg.norm(beta, axis=1) * np.linalg.norm(columns, axis=0)
        below = np.asarray(e.side[active] < 0.0, dtype=np.int64)
        for count, which in ((shown, size > 100.0 * tolerance), (silent, size <= tolerance)):
            count[below[which], active[which]] += 1
    return shown, silent


def _judged(equations: Sequence[_Equation], signs: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the pieces that the rows which may be on explain, and those they do not.

    Where there are as many rows as directions anything is explained: such pieces tell nothing.
    """
    fitting: list[int] = []
    missed: list[int] = []
    for e in equations:
        columns = e.columns[:, signs * e.side >= 0.0]
        if 0 < columns.shape[1] < len(columns):
            rest = _rest(columns, e.gradient)
            (fitting if rest <= e.tolerance else missed).append(e.number)
    return np.array(fitting, dtype=np.int64), np.array(missed, dtype=np.int64)


def orient_rows(
    pieces: Pieces,
    prefix: Prefix,
    rows: Sequence[Row],
    *,
    rng: np.random.Generator,
    known: FloatArray | None = None,
) -> Orientation:
    """Tell the signs of rows from the gradients of pieces.

    Parameters
    ----------
    known
        Signs from before, ``(n,)``, 0 where nothing told.
    """
    equations = _equations(pieces, prefix, rows)
    # Where most directions can be seen the fewest coefficients are free.
    equations.sort(key=lambda e: -len(e.columns))
    equations = equations[:ENOUGH]
    signs = np.zeros(len(rows)) if known is None else known
    votes, against = np.zeros((2, len(rows)), dtype=np.int64)
    while (signs == 0.0).any():
        (plus, minus), silent = _votes(equations, signs, rng)
        new = np.where(plus > 2 * minus, 1.0, np.where(minus > 2 * plus, -1.0, 0.0))
        # A unit that never showed is off on the side where it could have, often.
        never = (plus + minus == 0) & (silent.max(axis=0) >= SILENT)
        never &= silent.max(axis=0) > 4 * silent.min(axis=0)
        new = np.where(never, np.where(silent[0] > silent[1], -1.0, 1.0), new)
        new = np.where(signs != 0.0, signs, new)
        votes, against = votes + np.maximum(plus, minus), against + np.minimum(plus, minus)
        same = bool((new == signs).all())
        signs = new
        if same:
            break
    signs = _rare(signs, equations)
    fitting, missed = _judged(equations, signs)
    asked = len(fitting) + len(missed)
    return Orientation(signs, votes, against, len(fitting), asked, missed, fitting)
