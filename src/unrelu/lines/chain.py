"""The ordered chain of pieces that a search of a line keeps.

A link is a lone point (one answer), a tentative piece (two answers that may share a line) or a
sure piece (three or more that do). Answers are given to the piece whose line they lie on, or
become lone points; pieces that lie on one line are joined.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import AGREES, Samples
from unrelu.core.pieces import AffinePiece, fit_piece
from unrelu.lines.scan import Noise

__all__ = ["MARGIN", "Chain", "Link", "Plan"]

MARGIN = 5.0 * AGREES
"""Deviations by which two lines differ where one of them is tested: an answer that agrees with
one, whose own error may be as large, is then far from agreeing with the other."""
CERTAIN = math.sqrt(np.finfo(np.float64).eps)
"""Half of the digits: a piece whose prediction's error is above this part of the typical
variation of the function may agree with an answer by chance: a point in between is asked."""
INFORMATIVE = math.sqrt(CERTAIN)
"""A quarter of the digits: above this part, a piece may not judge an answer at all."""


class Link:
    """A chain link: points in order, their fit, and the failures blamed on it."""

    __slots__ = ("doubts", "failures", "fit", "gone", "left", "right", "settled", "std", "t", "y")

    def __init__(self, t: list[float], y: list[FloatArray], std: list[FloatArray]) -> None:
        self.t, self.y, self.std = t, y, std
        self.left: Link | None = None
        self.right: Link | None = None
        self.failures = 0
        self.doubts: list[tuple[float, float]] = []
        self.gone = False
        self.settled: tuple[int, int, int] | None = None
        self.fit: AffinePiece | None = None
        if len(t) > 1:
            self.refit()

    def state(self) -> tuple[int, int, int]:
        """Return what a decision about the gap to the right depends on."""
        other = self.right
        size = len(self.t) + len(self.doubts)
        return (size, id(other), 0 if other is None else len(other.t))

    def refit(self) -> None:
        """Fit a line to the points."""
        self.fit = fit_piece(np.array(self.t), np.array(self.y), np.array(self.std))

    def with_points(self, other: Link) -> AffinePiece:
        """Return the fit of both links' points."""
        return fit_piece(
            np.array(self.t + other.t),
            np.array(self.y + other.y),
            np.array(self.std + other.std),
        )

    def absorb(self, other: Link, fit: AffinePiece, *, after: bool) -> None:
        """Add another link's points, behind or before its own."""
        if after:
            self.t, self.y, self.std = self.t + other.t, self.y + other.y, self.std + other.std
        else:
            self.t, self.y, self.std = other.t + self.t, other.y + self.y, other.std + self.std
        self.fit = fit


@dataclasses.dataclass
class Plan:
    """One point to ask in the gap right of ``left``."""

    left: Link
    t: float
    suspect: Link | None  # the piece whose line is on trial
    lone: Link | None  # the lone point that wants a companion
    inside: Link | None = None  # the tentative piece between whose points t lies


class Chain:
    """The chain, and what tells whether links are one piece.

    Attributes
    ----------
    head
        Its first link.
    scale
        Below it lengths count, beyond it orders of magnitude; infinite on a bounded line.
    length, bend
        Of the line, and how much slopes vary along it, ``(m,)``.
    """

    def __init__(self, seeds: Iterable[Samples], noise: Noise, scale: float) -> None:
        self.noise, self.scale = noise, scale
        self.length = 0.0
        self.bend = np.zeros(1)
        self.head = self.start(seeds)

    def __iter__(self) -> Iterator[Link]:
        link: Link | None = self.head
        while link is not None:
            yield link
            link = link.right

    # ------------------------------------------------------------------- fits

    def _tells(self, piece: Link, t: float, std: FloatArray, level: float | None = None) -> bool:
        """Whether a piece predicts its value at t well enough to judge an answer by it.

        A line through points that are close together predicts anything far
        away, within its error; an answer that agrees then means nothing.
        """
        assert piece.fit is not None
        local = self.scale + abs(t) if math.isfinite(self.scale) else self.length
        part = INFORMATIVE if level is None else level
        least = MARGIN * std if level is None else 2.0 * std
        error = AGREES * np.sqrt(piece.fit.variance(t))
        return bool((error <= np.maximum(part * self.bend * local, least)).all())

    def joined(self, piece: Link, other: Link) -> AffinePiece | None:
        """Return the common fit of two links, or None where they are not one piece."""
        if piece.fit is None:
            return None
        gap = other.t[0] if other.t[0] > piece.t[0] else other.t[-1]
        tells = self._tells(piece, gap, other.std[0])
        if not tells and other.fit is not None:
            near = piece.t[-1] if other.t[0] > piece.t[0] else piece.t[0]
            tells = self._tells(other, near, piece.std[0])
        if not tells:
            return None
        joint = piece.with_points(other)
        return joint if joint.misfit <= AGREES else None

    def take_in(self, piece: Link, other: Link, joint: AffinePiece, *, after: bool) -> None:
        """Join a link to a piece; if the agreement may be chance, note the hole between."""
        hole = (piece.t[-1], other.t[0]) if after else (other.t[-1], piece.t[0])
        sure = self._tells(piece, hole[1 if after else 0], other.std[0], CERTAIN)
        if not sure and other.fit is not None:
            far = hole[0 if after else 1]
            sure = self._tells(other, far, piece.std[0], CERTAIN)
        piece.absorb(other, joint, after=after)
        piece.doubts += other.doubts
        if not sure:
            piece.doubts.append(hole)

    # ----------------------------------------------------------------- chain

    def start(self, seeds: Iterable[Samples]) -> Link:
        """Make links of the seeds; returns the first."""
        pieces: list[Link] = []
        seeds = list(seeds)
        self._size_up(seeds)
        for t, y in sorted(seeds, key=lambda seed: float(seed[0][0])):
            std = self.noise(t)
            order = np.argsort(t)
            columns = [float(v) for v in t[order]], list(y[order]), list(std[order])
            whole = Link(*columns)
            if whole.fit is not None and whole.fit.misfit > AGREES:
                pieces += [Link([a], [b], [c]) for a, b, c in zip(*columns, strict=True)]
            else:
                pieces.append(whole)
        for a, b in itertools.pairwise(pieces):
            a.right, b.left = b, a
        return pieces[0]

    def _size_up(self, seeds: list[Samples]) -> None:
        """Learn the length of the line and how much slopes vary along it."""
        t = np.concatenate([s[0] for s in seeds])
        y = np.concatenate([s[1] for s in seeds])
        order = np.argsort(t)
        t, y = t[order], y[order]
        self.length = float(t[-1] - t[0])
        wide = np.diff(t) > np.median(np.diff(t))
        slopes = np.diff(y, axis=0)[wide] / np.diff(t)[wide, None]
        if len(slopes):
            middle = np.median(slopes, axis=0)
            self.bend = np.abs(slopes - middle).mean(axis=0)
            # Where all slopes are equal, a tenth of them stands for what would be a bend.
            self.bend = np.maximum(self.bend, 0.1 * np.abs(middle))

    def insert(self, left: Link, new: Link) -> None:
        """Put a link behind another."""
        new.left, new.right = left, left.right
        if left.right is not None:
            left.right.left = new
        left.right = new

    def remove(self, piece: Link) -> None:
        """Take a link out."""
        piece.gone = True
        if piece.left is not None:
            piece.left.right = piece.right
        if piece.right is not None:
            piece.right.left = piece.left

    def hand_over(self, a: Link, b: Link) -> bool:
        """Move a tentative piece's point to the neighbour on whose line it lies."""
        for giver, taker, index, after in ((b, a, 0, True), (a, b, -1, False)):
            if len(giver.t) != 2:
                continue
            point = Link([giver.t[index]], [giver.y[index]], [giver.std[index]])
            joint = self.joined(taker, point)
            if joint is not None:
                for column in (giver.t, giver.y, giver.std):
                    del column[index]
                giver.fit, giver.failures = None, 0
                self.take_in(taker, point, joint, after=after)
                return True
        return False

    def place(self, plan: Plan, y: FloatArray, std: FloatArray) -> None:
        """Give an answer to the piece it fits, or make it a lone point."""
        point = Link([plan.t], [y], [std])
        if plan.inside is not None:
            self._place_inside(plan.inside, point)
            return
        a = plan.left  # other answers of the round may have put links in between
        while a.right is not None and a.right.t[0] < plan.t:
            a = a.right
        b = a.right
        if a.t[-1] >= plan.t or (b is not None and b.t[0] <= plan.t):
            return  # asked already
        fits = []
        for piece, after in ((a, True), (b, False)):
            if piece is not None and len(piece.t) > 1:
                joint = self.joined(piece, point)
                if joint is not None:
                    fits.append((joint.misfit, after, piece, joint))
        fits.sort(key=lambda f: f[0])
        if fits:
            _, after, piece, joint = fits[0]
            self.take_in(piece, point, joint, after=after)
            if plan.suspect is not None and piece is not plan.suspect:
                plan.suspect.failures += 1
            return
        if plan.suspect is not None:
            plan.suspect.failures += 1
        if plan.lone is not None:
            z = plan.lone
            pair = [z, point] if plan.t > z.t[0] else [point, z]
            z.t = [p.t[0] for p in pair]
            z.y = [p.y[0] for p in pair]
            z.std = [p.std[0] for p in pair]
            z.refit()
            return
        self.insert(a, point)

    def _place_inside(self, piece: Link, point: Link) -> None:
        """Confirm a piece by a point in a hole of it, or take it apart there."""
        t = point.t[0]
        if piece.fit is None or not piece.t[0] < t < piece.t[-1] or t in piece.t:
            return  # changed by another answer of the same round
        cut = int(np.searchsorted(piece.t, t))
        whole = Link(
            [*piece.t[:cut], t, *piece.t[cut:]],
            [*piece.y[:cut], point.y[0], *piece.y[cut:]],
            [*piece.std[:cut], point.std[0], *piece.std[cut:]],
        )
        if whole.fit is not None and whole.fit.misfit <= AGREES:
            piece.t, piece.y, piece.std, piece.fit = whole.t, whole.y, whole.std, whole.fit
            return
        right = Link(piece.t[cut:], piece.y[cut:], piece.std[cut:])
        right.doubts = [hole for hole in piece.doubts if hole[0] >= right.t[0]]
        piece.doubts = [hole for hole in piece.doubts if hole[1] <= piece.t[cut - 1]]
        piece.t, piece.y, piece.std = piece.t[:cut], piece.y[:cut], piece.std[:cut]
        piece.failures, piece.fit = 0, None
        if cut > 1:
            piece.refit()
        self.insert(piece, right)
        self.insert(piece, point)

    def dissolve(self, piece: Link) -> None:
        """Take a tentative piece that keeps failing for two lone points."""
        second = Link([piece.t[1]], [piece.y[1]], [piece.std[1]])
        piece.t, piece.y, piece.std = piece.t[:1], piece.y[:1], piece.std[:1]
        piece.fit, piece.failures = None, 0
        self.insert(piece, second)
