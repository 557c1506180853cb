"""What a search of a line found: its pieces and the kinks between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import Samples
from unrelu.core.pieces import AffinePiece, cross

__all__ = ["Ask", "LineScan", "Noise"]

Ask = Callable[[FloatArray], FloatArray]
"""A function on a line: points ``(n,)`` to answers ``(n, m)``."""
Noise = Callable[[FloatArray], FloatArray]
"""Standard deviations ``(n, m)`` of the answers at points ``(n,)``."""


@dataclasses.dataclass(frozen=True)
class LineScan:
    """All pieces that a search found, in order.

    Attributes
    ----------
    kinks, kink_std
        Where neighbouring pieces meet and how precisely that is known, ``(k,)``.
    jumps
        Change of slope there, ``(k, m)``.
    resolved
        Whether both sides of the kink were tested, ``(k,)``; False where the
        gap reached the resolution of float64 or the search was cut short.
    pieces
        The k + 1 fitted pieces.
    starts, ends
        First and last point seen on each piece, ``(k + 1,)``.
    counts
        Answers on each piece, ``(k + 1,)``.
    t, y
        Every point asked, sorted, and its answer.
    rounds
        Batches sent.
    complete
        False if the search was cut short by its limit on queries or rounds.
    """

    kinks: FloatArray
    kink_std: FloatArray
    jumps: FloatArray
    resolved: FloatArray
    pieces: tuple[AffinePiece, ...]
    starts: FloatArray
    ends: FloatArray
    counts: FloatArray
    t: FloatArray
    y: FloatArray
    rounds: int
    complete: bool

    def clusters(self) -> list[Samples]:
        """Return the points piece by piece, lone ones by themselves, to go on from."""
        first = np.searchsorted(self.t, self.starts, side="left")
        last = np.searchsorted(self.t, self.ends, side="right")
        groups: list[Samples] = []
        lone = np.ones(len(self.t), dtype=bool)
        end = 0
        for a, b in zip(first, last, strict=True):
            start, end = max(int(a), end), max(int(b), end)
            if start < end:
                groups.append((self.t[start:end], self.y[start:end]))
                lone[start:end] = False
        return groups + [(self.t[[i]], self.y[[i]]) for i in np.flatnonzero(lone)]

    def significance(self, noise: Noise) -> FloatArray:
        """Return by how many deviations each kink bends its shorter neighbour, ``(k,)``."""
        if len(self.kinks) == 0:
            return np.empty(0)
        length = self.ends - self.starts
        shorter = np.minimum(length[:-1], length[1:])
        bend = np.abs(self.jumps) * shorter[:, None] / noise(self.kinks)
        return np.asarray(bend.max(axis=1))

    def without_piece(self, index: int) -> LineScan:
        """Return the scan with a piece taken for noise: its neighbours meet in one kink."""
        kept = np.arange(len(self.pieces)) != index
        first, last = max(index - 1, 0), min(index + 1, len(self.kinks))
        kinks, std, jumps, resolved = (
            np.delete(a, slice(first, last), axis=0)
            for a in (self.kinks, self.kink_std, self.jumps, self.resolved)
        )
        if 0 < index < len(self.pieces) - 1:
            meet = cross(self.pieces[index - 1], self.pieces[index + 1])
            low, high = float(self.ends[index - 1]), float(self.starts[index + 1])
            kinks = np.insert(
                kinks, first, min(max(meet.t, low), high) if meet.t == meet.t else low
            )
            std, resolved = np.insert(std, first, meet.std), np.insert(resolved, first, 0.0)
            jumps = np.insert(jumps, first, meet.jump, axis=0)
        return dataclasses.replace(
            self,
            kinks=kinks,
            kink_std=std,
            jumps=jumps,
            resolved=resolved,
            pieces=tuple(p for p, k in zip(self.pieces, kept, strict=True) if k),
            starts=self.starts[kept],
            ends=self.ends[kept],
            counts=self.counts[kept],
        )

    def misfit(self) -> float:
        """Median over pieces with spare answers of the largest residual, in deviations.

        Infinite where no piece has any: nothing then tells the noise.
        """
        values = [p.misfit for p, n in zip(self.pieces, self.counts, strict=True) if n > 3]
        return float(np.median(values)) if values else np.inf
