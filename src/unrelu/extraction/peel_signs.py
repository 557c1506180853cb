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
from unrelu.extraction.deep_numbers import FAINT
from unrelu.extraction.peel_lines import Pieces
from unrelu.extraction.peel_rows import Row
from unrelu.extraction.peel_surfaces import SPARE
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


def _equations(pieces: Pieces, prefix: Prefix, rows: Sequence[Row]) -> list[_Equation]:
    usable = np.flatnonzero(pieces.errors < VANISHES)
    if len(usable) == 0:
        return []
    seen = prefix.view(pieces.points[usable])
    theta = np.stack([r.theta for r in rows])
    known = np.stack([r.known for r in rows])[:, :-1]
    told = ~(seen.on[:, None, :] & ~known[None]).any(axis=(1, 2))
    found: list[_Equation] = []
    for i in np.flatnonzero(told):
        left, s, right = np.linalg.svd(seen.jacobian[i], full_matrices=False)
        rank = int(np.count_nonzero(s > 1e-7 * s[0])) if s[0] > 0 else 0
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


def _solve(
    columns: FloatArray, gradient: FloatArray, tolerance: float, rng: np.random.Generator
) -> tuple[FloatArray | None, float]:
    """Return the sparsest coefficients ``(c, m)``, and what no coefficients explain.

    None where none stands out.
    """
    rank, count = columns.shape
    left, s, right = np.linalg.svd(columns, full_matrices=True)
    full = int(np.count_nonzero(s > 1e-7 * s[0]))
    start = right[:full].T @ ((left[:, :full].T @ gradient) / s[:full, None])
    rest = float(np.abs(gradient - columns @ start).max())
    if rest > tolerance:
        return None, rest
    free = count - full
    size = np.linalg.norm(columns, axis=0)
    # Equations beyond the rank agree by themselves; what else is needed must vanish.
    enough = free + max(0, SPARE - (rank - full))
    if free == 0:
        zeros = np.count_nonzero(np.linalg.norm(start, axis=1) * size < tolerance)
        return (start if zeros >= enough else None), rest
    null = right[full:].T
    if enough > count or free > MOST_FREE:
        return None, rest
    off = np.argsort(rng.random((GUESSES, count)), axis=1)[:, :free]
    u, t, v = np.linalg.svd(null[off])
    t = np.maximum(t, 1e-9)
    inner = np.einsum("gji,gjm->gim", u, start[off]) / t[:, :, None]
    beta = start - np.einsum("cf,gif,gim->gcm", null, v, inner)
    part = np.linalg.norm(beta, axis=2) * size
    zeros = np.count_nonzero(part < tolerance, axis=1)
    best = int(zeros.argmax())
    stands = zeros[best] >= max(enough, free + 1)
    return (np.asarray(beta[best]) if stands else None), rest


def _rare(signs: FloatArray, equations: Sequence[_Equation]) -> FloatArray:
    """Give rows that nothing told a sign, where nearly all pieces lie on one side.

    A unit that is on there would have shown.
    """
    if len(equations) < SILENT or not (signs != 0.0).any():
        return signs
    above = np.mean([e.side > 0.0 for e in equations], axis=0)
    rare = np.where(above > 1.0 - RARE, -1.0, np.where(above < RARE, 1.0, 0.0))
    return np.asarray(np.where(signs == 0.0, rare, signs))


def orient_rows(
    pieces: Pieces, prefix: Prefix, rows: Sequence[Row], *, rng: np.random.Generator
) -> Orientation:
    """Tell the signs of rows from the gradients of pieces."""
    n = len(rows)
    equations = _equations(pieces, prefix, rows)
    # Where most directions can be seen the fewest coefficients are free.
    equations.sort(key=lambda e: -len(e.columns))
    equations = equations[:ENOUGH]
    signs = np.zeros(n)
    while True:
        plus, minus = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
        silent = np.zeros((2, n), dtype=int)
        asked = 0
        missed: list[int] = []
        fitting: list[int] = []
        for e in equations:
            active = np.flatnonzero(signs * e.side >= 0.0)
            tolerance = VANISHES + 100.0 * e.noise
            if len(active) == 0:
                continue
            columns = e.columns[:, active]
            beta, rest = _solve(columns, e.gradient, tolerance, rng)
            if len(active) < len(columns):
                asked += 1
                (fitting if rest <= tolerance else missed).append(e.number)
            if beta is None:
                continue
            size = np.linalg.norm(beta, axis=1) * np.linalg.norm(columns, axis=0)
            on = active[size > 100.0 * tolerance]
            plus[on] += e.side[on] > 0
            minus[on] += e.side[on] < 0
            none = active[size <= tolerance]
            silent[0, none] += e.side[none] > 0
            silent[1, none] += e.side[none] < 0
        new = np.where(plus > 2 * minus, 1.0, np.where(minus > 2 * plus, -1.0, 0.0))
        # A unit that never showed is off on the side where it could have, often.
        never = (plus + minus == 0) & (silent.max(axis=0) >= SILENT)
        never &= silent.max(axis=0) > 4 * silent.min(axis=0)
        new = np.where(never, np.where(silent[0] > silent[1], -1.0, 1.0), new)
        same = bool((np.abs(new) <= np.abs(signs)).all())
        signs = new
        if same:
            signs = _rare(signs, equations)
            return Orientation(
                signs,
                np.maximum(plus, minus),
                np.minimum(plus, minus),
                len(fitting),
                asked,
                np.array(missed, dtype=np.int64),
                np.array(fitting, dtype=np.int64),
            )
