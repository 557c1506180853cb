"""A layer that is being found."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.extraction.deep_numbers import FAINT, READ
from unrelu.extraction.peel_rows import Row
from unrelu.extraction.prefix import Prefix

__all__ = ["Layer"]

MOVED = READ
"""Change of a row after which the layer above it is found anew."""


@dataclasses.dataclass
class Layer:
    """A layer being found: its rows, and what was refused.

    Attributes
    ----------
    rows
        Believed ones.
    signs
        Of the rows, 0 where not known.
    told
        The same by the rows' anchors: rows may have been added or joined since.
    refused
        Readings that were tested and are no row, by their anchor: of how many crossings.
    tested
        By the rows' anchors: at how many places they showed a kink just where they predict
        it, and at how many they were asked.
    explains
        Part of the gradients that the rows explain.
    tried
        How often each missing weight was asked for in vain.
    below
        Rows and signs of the layer below, in which the rows are written.
    """

    rows: list[Row] = dataclasses.field(default_factory=list)
    signs: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    told: dict[bytes, float] = dataclasses.field(default_factory=dict)
    refused: dict[bytes, int] = dataclasses.field(default_factory=dict)
    tested: dict[bytes, tuple[int, int]] = dataclasses.field(default_factory=dict)
    explains: float = 0.0
    tried: dict[tuple[bytes, int], int] = dataclasses.field(default_factory=dict)
    below: list[tuple[Row, float]] = dataclasses.field(default_factory=list)

    def fits(self, below: Layer) -> bool:
        """Make room for units that the layer below has got; False where it has changed more."""
        if not self.rows:
            return True
        width = len(self.rows[0].theta) - 1
        now = list(zip(below.rows, below.signs, strict=True))
        if len(now) < width:
            return False
        for (row, sign), (old, before) in zip(now, self.below, strict=False):
            same = np.append(row.theta[: len(old.theta) - 1], row.theta[-1])
            if sign != before or np.abs(same - old.theta)[old.known].max() > MOVED:
                return False
        more = len(now) - width
        if more:  # what was refused may have been read or tested where a new unit is on
            self.refused, self.tried = {}, {}
        for i, row in enumerate(self.rows):
            theta = np.insert(row.theta, width, np.zeros(more))
            known = np.insert(row.known, width, np.zeros(more, dtype=bool))
            error = np.insert(row.error, width, np.zeros(more))
            self.rows[i] = dataclasses.replace(row, theta=theta, known=known, error=error)
        return True

    def stands_on(self, below: Layer) -> None:
        """Remember which units the rows are written in."""
        self.below = list(zip(below.rows, below.signs, strict=True))

    def without(self, units: IntArray) -> None:
        """Leave out rows."""
        gone = set(units.tolist())
        self.rows = [row for i, row in enumerate(self.rows) if i not in gone]
        if len(self.signs):
            self.signs = np.delete(self.signs, units)

    def over_fewer(self, units: IntArray) -> None:
        """Leave out units of the layer below."""
        self.below = [b for i, b in enumerate(self.below) if i not in set(units.tolist())]
        for i, row in enumerate(self.rows):
            theta, known = np.delete(row.theta, units), np.delete(row.known, units)
            error = np.delete(row.error, units)
            self.rows[i] = dataclasses.replace(row, theta=theta, known=known, error=error)

    def signs_before(self) -> FloatArray:
        """Return the rows' signs as far as gradients told them, ``(n,)``, else 0."""
        return np.array([self.told.get(r.anchor.tobytes(), 0.0) for r in self.rows])

    def orient(self, signs: FloatArray) -> None:
        """Take signs ``(n,)`` for those of the rows."""
        self.signs = signs
        self.told = {r.anchor.tobytes(): float(s) for r, s in zip(self.rows, signs, strict=True)}

    @property
    def oriented(self) -> bool:
        """Whether every sign is known."""
        return len(self.signs) == len(self.rows) > 0 and bool((self.signs != 0.0).all())

    @property
    def parallel(self) -> int:
        """Pairs of rows with the same weights, up to their sign."""
        weights = self.arrays()[0]
        weights = weights / np.linalg.norm(weights, axis=1, keepdims=True)
        return int(np.count_nonzero(np.abs(np.triu(weights @ weights.T, 1)) > 1.0 - FAINT))

    @property
    def integer(self) -> int:
        """Rows whose weights are integer multiples of one number; two of them may be chance."""
        weights = np.abs(self.arrays()[0])
        unit = np.where(weights > READ, weights, np.inf).min(axis=1, keepdims=True)
        off = np.abs(weights / unit - np.rint(weights / unit)).max(axis=1)
        several = np.count_nonzero(weights > READ, axis=1) > 2
        return int(np.count_nonzero(several & (off <= READ)))

    @property
    def missing(self) -> int:
        """Weights that are not known."""
        return sum(int((~r.known).sum()) for r in self.rows)

    def stands(self, row: Row, shown: int, asked: int, least: float) -> bool:
        """Count places where a row was tested; tells whether it showed at enough of all."""
        before = self.tested.get(row.anchor.tobytes(), (0, 0))
        shown, asked = before[0] + shown, before[1] + asked
        self.tested[row.anchor.tobytes()] = shown, asked
        return shown >= least * asked

    @property
    def confirmed(self) -> tuple[int, int]:
        """At how many places the rows showed, and at how many they were asked."""
        tested = [self.tested.get(r.anchor.tobytes(), (0, 0)) for r in self.rows]
        return sum(t[0] for t in tested), sum(t[1] for t in tested)

    def over(self, prefix: Prefix) -> Prefix:
        """Return the layers below with this one on top."""
        known = np.stack([r.known for r in self.rows])[:, :-1]
        return prefix.with_layer(*self.arrays(), ~known, np.stack([r.error for r in self.rows]))

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Return weights ``(n, w)`` and biases ``(n,)``, with the signs that are known."""
        theta = np.stack([r.theta for r in self.rows])
        sign = np.where(self.signs == 0.0, 1.0, self.signs) if self.oriented else 1.0
        theta = theta * np.reshape(sign, (-1, 1))
        return theta[:, :-1], theta[:, -1]
