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


def _near(duals: Duals, margin: float) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the pairs whose spans may meet within their errors, and those errors.

    By the larger singular value of the spans' product: enough to rule most pairs out.
    """
    n, s = duals.points.shape
    flat = duals.spans.transpose(0, 2, 1).reshape(2 * n, s)
    product = (flat @ flat.T).reshape(n, 2, n, 2)
    size = (product**2).sum(axis=(1, 3))
    root = product[:, 0, :, 0] * product[:, 1, :, 1] - product[:, 0, :, 1] * product[:, 1, :, 0]
    cosine2 = 0.5 * (size + np.sqrt(np.maximum(size**2 - 4.0 * root**2, 0.0)))
    blur = margin * np.hypot(duals.blur[:, None], duals.blur[None])
    close = (cosine2 > 1.0 - (2.0 * BLURRED) ** 2) & (blur < BLURRED)
    first, second = np.nonzero(np.triu(close, 1))
    return first, second, blur[first, second]


def _meeting(duals: Duals, a: IntArray, b: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return for pairs ``(p,)`` the vector nearest to both spans, and both principal sines."""
    products = np.einsum("psx,psy->pxy", duals.spans[a], duals.spans[b])
    left = np.linalg.svd(products)[0]
    first, second = (np.einsum("psx,px->ps", duals.spans[a], left[:, :, i]) for i in (0, 1))
    return first, _across(first, duals.spans[b]), _across(second, duals.spans[b])


def _fits(duals: Duals, rows: FloatArray, offsets: FloatArray, margin: float) -> BoolArray:
    """Tell which dual points lie on hyperplanes whose rows are in their spans, ``(c, n)``."""
    reach = 1.0 + np.linalg.norm(duals.points, axis=1)
    near = np.abs(rows @ duals.points.T + offsets[:, None]) <= margin * duals.blur * reach
    for c, j in enumerate(near):  # few are near
        spans = duals.spans[j]
        outside = _across(np.broadcast_to(rows[c], spans.shape[:2]), spans)
        near[c, j] = outside <= margin * duals.blur[j]
    return np.asarray(near)


def pair_up(duals: Duals, margin: float) -> Hyperplanes:
    """Find the hyperplanes that two or more dual points share.

    A pair counts where the spans meet within their errors in one direction only (two in
    common: the same facets again), that is neither's own normal (a facet in common).
    """
    s = duals.points.shape[1]
    a, b, blur = _near(duals, margin)
    nearest, angle, apart = _meeting(duals, a, b)
    between = duals.points[a] - duals.points[b]
    gap, height = np.linalg.norm(between, axis=1), np.abs((nearest * between).sum(axis=1))
    good = (angle <= blur) & (height <= blur * (1.0 + gap)) & (apart > 2.0 * blur)
    for normals in (duals.before, duals.after):
        good &= _across(nearest, normals[a][:, :, None]) > 2.0 * blur
        good &= _across(nearest, normals[b][:, :, None]) > 2.0 * blur
    a, b, nearest = a[good], b[good], nearest[good]
    members = _fits(duals, nearest, -(nearest * duals.points[a]).sum(axis=1), 2.0 * margin)
    used = np.zeros(len(duals), dtype=bool)
    rows, offsets, votes = [], [], []
    for c in np.argsort(-members.sum(axis=1), kind="stable"):
        if used[a[c]] or used[b[c]]:
            continue
        own = members[c] & ~used
        row, offset = _refit(duals, own)
        used |= own | _fits(duals, row[None], np.array([offset]), 2.0 * margin)[0]
        rows.append(row)
        offsets.append(offset)
        votes.append(int(own.sum()))
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
