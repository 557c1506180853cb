"""Hyperplanes from dual points: where the spans of two pairs of normals meet."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.labels.model import Model

__all__ = ["Duals", "Hyperplanes", "pair_up"]

BLURRED = 0.02
"""Angle (radians) beyond which two pairs of normals tell too little of a unit's row: with it
false pairs would pass."""


@dataclasses.dataclass(frozen=True)
class Duals:
    """Dual points: where the boundary crosses a hyperplane.

    Attributes
    ----------
    points
        ``(n, s)``.
    spans
        Orthonormal bases of the two normals' span, ``(n, s, 2)``: it holds the unit's row.
    before, after
        The normals, ``(n, s)``.
    blur
        Error of a row read off the span, in radians, ``(n,)``: the normals' own over the sine
        between them.
    """

    points: FloatArray
    spans: FloatArray
    before: FloatArray
    after: FloatArray
    blur: FloatArray

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def none(cls, s: int) -> Duals:
        """Return no dual point."""
        empty = np.empty((0, s))
        return cls(empty, np.empty((0, s, 2)), empty, empty, np.empty(0))

    def with_one(
        self, point: FloatArray, before: FloatArray, after: FloatArray, blur: float
    ) -> Duals:
        """Return these and one more."""
        span = np.linalg.qr(np.stack([before, after], axis=1))[0]
        return Duals(
            np.concatenate([self.points, point[None]]),
            np.concatenate([self.spans, span[None]]),
            np.concatenate([self.before, before[None]]),
            np.concatenate([self.after, after[None]]),
            np.append(self.blur, blur),
        )


@dataclasses.dataclass(frozen=True)
class Hyperplanes:
    """Hyperplanes ``rows @ y + offsets = 0`` with unit rows; ``votes`` dual points each."""

    rows: FloatArray
    offsets: FloatArray
    votes: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls, s: int) -> Hyperplanes:
        """Return no hyperplane."""
        return cls(np.empty((0, s)), np.empty(0), np.empty(0, np.intp))

    @classmethod
    def of(cls, model: Model) -> Hyperplanes:
        """Return those of a model's units."""
        return cls(model.rows, model.offsets, np.zeros(model.width, np.intp))

    def splitting(self, points: FloatArray) -> Hyperplanes:
        """Return those with points ``(n, s)`` on both sides."""
        above = (points @ self.rows.T + self.offsets > 0.0).sum(axis=0)
        both = (above >= 2) & (above <= len(points) - 2)
        return self.take(both)

    def take(self, index: BoolArray) -> Hyperplanes:
        """Return some of them."""
        return Hyperplanes(self.rows[index], self.offsets[index], self.votes[index])

    def joined(self, other: Hyperplanes) -> Hyperplanes:
        """Return these, and those of the others that are not among them.

        One hyperplane twice would add up to an affine function, and solve the boundary's
        equations for any outputs.
        """
        rows, offsets, votes = self.rows, self.offsets, self.votes
        for row, offset, vote in zip(other.rows, other.offsets, other.votes, strict=True):
            sign = np.where(rows @ row < 0.0, -1.0, 1.0)
            away = np.hypot(
                np.linalg.norm(rows - sign[:, None] * row, axis=1), offsets - sign * offset
            )
            if len(rows) == 0 or away.min() > BLURRED:
                rows = np.concatenate([rows, row[None]])
                offsets, votes = np.append(offsets, offset), np.append(votes, vote)
        return Hyperplanes(rows, offsets, votes)


def _across(vectors: FloatArray, spans: FloatArray) -> FloatArray:
    """Return the sines of unit vectors ``(..., s)`` to spans ``(..., s, r)``, small ones too.

    From what is left of a vector: one less a cosine's square loses half of all digits.
    """
    inside = np.einsum("...sx,...s->...x", spans, vectors)
    return np.asarray(
        np.linalg.norm(vectors - np.einsum("...sx,...x->...s", spans, inside), axis=-1)
    )


def _meeting(duals: Duals) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return for all pairs the vector nearest to both spans, and both principal sines."""
    products = np.einsum("asx,bsy->abxy", duals.spans, duals.spans)
    left = np.linalg.svd(products)[0]
    first, second = (np.einsum("asx,abx->abs", duals.spans, left[:, :, :, i]) for i in (0, 1))
    return first, _across(first, duals.spans[None]), _across(second, duals.spans[None])


def _fits(duals: Duals, row: FloatArray, offset: float, margin: float) -> BoolArray:
    """Tell which dual points lie on a hyperplane whose row is in their span."""
    reach = 1.0 + np.linalg.norm(duals.points, axis=1)
    near = np.abs(duals.points @ row + offset) <= margin * duals.blur * reach
    outside = _across(np.broadcast_to(row, duals.points.shape), duals.spans)
    return np.asarray((outside <= margin * duals.blur) & near)


def pair_up(duals: Duals, margin: float) -> Hyperplanes:
    """Find the hyperplanes that two or more dual points share.

    A pair counts where the spans meet within their errors in one direction only (two in
    common: the same facets again), that is neither's own normal (a facet in common).
    """
    s = duals.points.shape[1]
    if len(duals) < 2:
        return Hyperplanes.none(s)
    nearest, angle, apart = _meeting(duals)
    blur = margin * np.sqrt(duals.blur[:, None] ** 2 + duals.blur[None, :] ** 2)
    gap = np.linalg.norm(duals.points[:, None] - duals.points[None], axis=2)
    height = np.abs(np.einsum("abs,abs->ab", nearest, duals.points[:, None] - duals.points[None]))
    good = (angle <= blur) & (height <= blur * (1.0 + gap)) & (apart > 2.0 * blur)
    for normals in (duals.before, duals.after):
        good &= _across(nearest, normals[:, None, :, None]) > 2.0 * blur
        good &= _across(nearest, normals[None, :, :, None]) > 2.0 * blur
    good &= blur < BLURRED
    candidates = []
    for a, b in zip(*np.nonzero(np.triu(good, 1)), strict=True):
        row = nearest[a, b]
        members = _fits(duals, row, -float(row @ duals.points[a]), 2.0 * margin)
        candidates.append((int(members.sum()), int(a), int(b), members))
    candidates.sort(key=lambda c: -c[0])
    used = np.zeros(len(duals), dtype=bool)
    rows, offsets, votes = [], [], []
    for _, a, b, members in candidates:
        if used[a] or used[b]:
            continue
        members = members & ~used
        row, offset = _refit(duals, members)
        used |= members | _fits(duals, row, offset, 2.0 * margin)
        rows.append(row)
        offsets.append(offset)
        votes.append(int(members.sum()))
    if not rows:
        return Hyperplanes.none(s)
    return Hyperplanes(np.array(rows), np.array(offsets), np.array(votes))


def _refit(duals: Duals, members: BoolArray) -> tuple[FloatArray, float]:
    """Return the row nearest to all members' spans, and its offset."""
    index, s = np.flatnonzero(members), duals.points.shape[1]
    weight = 1.0 / duals.blur[index] ** 2
    total = np.eye(s) * weight.sum() - np.einsum(
        "n,nsx,ntx->st", weight, duals.spans[index], duals.spans[index]
    )
    # Differences of points lie in the hyperplane, too.
    middle = np.average(duals.points[index], axis=0, weights=weight)
    centred = duals.points[index] - middle
    total += np.einsum("n,ns,nt->st", weight, centred, centred)
    row = np.linalg.eigh(total)[1][:, 0]
    return row, -float(row @ middle)
