"""Rows of the first layer: from kinks to hyperplanes, completeness, lift.

All gradients lie in the span of the first layer's rows, so d1 + 1 directions
say everything about how rows and gradients depend on each other. Rows are
measured in a basis of a few directions more than there are rows; gradients at
few points, in the remaining directions, then lift them to all of the input
space. In that basis a gradient outside the span of the rows found tells that a
row is missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_layers import piece_centers
from unrelu.extraction.deep_numbers import CROSSINGS, FAINT, FINE, PLAIN, TRIES
from unrelu.lines.gates import combine, select_pieces
from unrelu.lines.gradients import GradientConfig, measure_gradients, orthogonal_directions
from unrelu.lines.kinks import LineScan
from unrelu.lines.survey import SurveyLine

__all__ = [
    "PieceGradients",
    "RowConfig",
    "Rows",
    "join_rows",
    "lift_rows",
    "measure_rows",
    "missing_rank",
    "random_basis",
    "row_rank",
]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class RowConfig:
    """Choices of the row step."""

    crossings: float = CROSSINGS
    crossings_many: float = 1.0
    """Expected hyperplanes crossed by one chunk of steps, with one and with several chunks."""
    missing: float = FAINT
    """Part of a gradient outside the known rows' span above which a row is missing. Rounding
    reaches 1e-9 in narrow pieces; a missing unit's part is of the order of its weight."""
    certain: float = 40.0
    """The same part must also exceed so many standard deviations."""
    blind: int = 4
    """Pieces measured on a line without a first-layer kink."""
    few: int = 8
    """Up to so many rows are looked at on their whole hyperplanes, as dependent ones are: where
    few hyperplanes are, a line inside one of the second layer may meet none of them."""
    confirmations: tuple[float, ...] = (2.0, 8.0, 40.0, 5.0, 200.0, 1000.0)
    confirmations_few: tuple[float, ...] = (8.0, 40.0, 400.0)
    """Distances of these places, over that of the row from the origin and the scale."""
    shown: int = TRIES
    """Places at which a hyperplane must be there, if nothing changes at another."""
    parallel: float = FINE
    """Angle below which rows are parallel."""
    silent: float = FAINT
    """Part of the change across parallel hyperplanes that still counts as none behind them."""
    surplus: float = 1.1
    """Equations per row in the lift."""
    sign_points: int = 8
    """Places at which the two sides of a hyperplane are compared, before it counts as flat."""
    quiet: float = PLAIN
    """The off side of a unit may change the answer by this part of what the on side does."""


@dataclasses.dataclass(frozen=True)
class PieceGradients:
    """Gradients at points, in the coordinates of a basis.

    Attributes
    ----------
    points
        ``(p, d)``.
    values
        Answers there, ``(p, m)``.
    gradients, std
        ``(p, m, n)`` and ``(p, m)``.
    steps
        Typical step, ``(p,)``.
    """

    points: FloatArray
    values: FloatArray
    gradients: FloatArray
    std: FloatArray
    steps: FloatArray

    def joined(self, other: PieceGradients) -> PieceGradients:
        """Return both, one after the other."""
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)]
        return PieceGradients(*(np.concatenate(p) for p in pairs))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Hyperplanes known in the coordinates of a basis.

    Attributes
    ----------
    basis
        Orthonormal directions, ``(n, d)``.
    weights
        Unit normals in these coordinates, ``(k, n)``; the coordinates in
        directions outside the basis are not known.
    std
        Their standard deviations, ``(k,)``.
    anchors
        A point on each hyperplane, ``(k, d)``; all lie in one translate of the
        basis' span.
    """

    basis: FloatArray
    weights: FloatArray
    std: FloatArray
    anchors: FloatArray

    @property
    def count(self) -> int:
        """Number of rows, k."""
        return len(self.weights)

    @property
    def biases(self) -> FloatArray:
        """Offsets of the hyperplanes, where the basis spans everything, ``(k,)``."""
        return np.asarray(-np.einsum("kn,kn->k", self.weights, self.anchors @ self.basis.T))


def random_basis(
    n: int, d: int, rng: np.random.Generator, first: FloatArray | None = None
) -> FloatArray:
    """Return n orthonormal directions; the first is given, if any."""
    if n >= d:
        return np.eye(d)
    draw = rng.standard_normal((n, d))
    if first is not None:
        draw[0] = first
    q, r = np.linalg.qr(draw.T)
    return np.asarray((q * np.sign(np.diagonal(r))).T)


def join_rows(first: Rows, second: Rows) -> Rows:
    """Return the rows of two searches in the same basis."""
    return Rows(
        first.basis,
        np.concatenate([first.weights, second.weights]),
        np.concatenate([first.std, second.std]),
        np.concatenate([first.anchors, second.anchors]),
    )


def measure_rows(
    ask: AskPoints,
    line: SurveyLine,
    scan: LineScan,
    noise: NoiseModel,
    kinks: IntArray,
    basis: FloatArray,
    *,
    rng: np.random.Generator,
    config: RowConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> tuple[Rows, PieceGradients]:
    """Measure gradients on both sides of chosen kinks; their differences are the normals.

    Parameters
    ----------
    kinks
        Indices into ``scan.kinks``.
    basis
        Orthonormal, ``(n, d)``; its span holds the line's direction.
    """
    config = RowConfig() if config is None else config
    gradient_config = GradientConfig() if gradient_config is None else gradient_config
    pieces = np.unique(np.concatenate([kinks, kinks + 1]))
    centers, room = piece_centers(scan, line)
    if len(kinks) == 0:  # no row, but gradients that show whether one is missing
        pieces = np.argsort(-room)[: config.blind]
    t = centers[pieces]
    points = line.points(t)
    values = np.array([scan.pieces[p].predict(float(s)) for p, s in zip(pieces, t, strict=True)])
    own = basis @ line.direction
    own = own / np.linalg.norm(own)
    local = orthogonal_directions(own)  # (n - 1, n): across the line, inside the span
    if len(scan.kinks):
        crowd = (1.0 / np.abs(t[:, None] - scan.kinks)).sum(axis=1)
    else:
        crowd = 1.0 / room[pieces]
    width = max(1, min(len(local), gradient_config.chunk))
    many = len(local) > gradient_config.chunk
    steps = (config.crossings_many if many else config.crossings) * np.pi / (width * crowd)
    # The check of a single step would be that step: the line's own direction joins it.
    asked = np.concatenate([local, own[None, :]]) if len(local) == 1 else local
    found = measure_gradients(
        ask,
        points,
        values,
        steps,
        asked @ basis,
        noise,
        rng=rng,
        config=gradient_config,
    )
    slopes = np.array([scan.pieces[p].slope for p in pieces])
    across = found.derivatives[:, : len(local)].transpose(0, 2, 1)  # (p, m, n - 1)
    gradients = across @ local + slopes[:, :, None] * own
    level = noise.at(points)
    std = np.median(found.std, axis=1) if len(local) else level / steps[:, None]
    used = np.median(np.abs(found.steps), axis=1) if len(local) else steps
    measured = PieceGradients(points, values, gradients, std, used)
    good = found.ok
    usable = PieceGradients(
        *(getattr(measured, f.name)[good] for f in dataclasses.fields(measured))
    )
    return _rows(basis, line, scan, kinks, pieces, measured, good, own), usable


def _rows(
    basis: FloatArray,
    line: SurveyLine,
    scan: LineScan,
    kinks: IntArray,
    pieces: IntArray,
    measured: PieceGradients,
    good: BoolArray,
    own: FloatArray,
) -> Rows:
    """Take the jumps of the gradient at kinks between two measured pieces.

    ``own`` is the line's direction in the basis.
    """
    gradients, std = measured.gradients, measured.std
    place = {int(p): i for i, p in enumerate(pieces)}
    kinks = kinks[np.isin(kinks, pieces) & np.isin(kinks + 1, pieces)]
    left = np.array([place[int(k)] for k in kinks], dtype=np.intp)
    right = np.array([place[int(k) + 1] for k in kinks], dtype=np.intp)
    jump = gradients[right] - gradients[left]  # (k, m, n), each of rank one
    slope_jump = scan.jumps[kinks]
    size = np.linalg.norm(slope_jump, axis=1)
    # A step of the answers is no kink: the slope may be the same on both sides of it.
    output = slope_jump / np.where(size > 0.0, size, 1.0)[:, None]
    weights = np.einsum("kmn,km->kn", jump, output)
    # The slope along the line is the best known coordinate: it is put in as it is.
    weights += np.multiply.outer(size, own) - np.multiply.outer(weights @ own, own)
    error = np.sqrt((std[left] ** 2 + std[right] ** 2).max(axis=1))
    length = np.linalg.norm(weights, axis=1)
    keep = good[left] & good[right] & (length > 0.0)
    return Rows(
        basis,
        weights[keep] / length[keep, None],
        error[keep] / length[keep],
        line.points(scan.kinks[kinks])[keep],
    )


def missing_rank(
    rows: Rows, measured: PieceGradients, *, config: RowConfig | None = None
) -> tuple[int, float]:
    """Return how many directions of the gradients the rows do not span, and the largest part."""
    config = RowConfig() if config is None else config
    n = rows.weights.shape[1]
    vectors = measured.gradients.reshape(-1, n)
    size = np.linalg.norm(vectors, axis=1)
    if len(size) == 0 or not size.max() > 0:
        return 0, 0.0
    if rows.count:
        _, values, span = np.linalg.svd(rows.weights, full_matrices=False)
        span = span[values > 1e-12 * values[0]]
        rest = vectors - (vectors @ span.T) @ span
        # What errors of the rows leave of a gradient: each by its own coefficient.
        mixed = vectors @ np.linalg.pinv(rows.weights, rcond=1e-12)
        tilt = np.linalg.norm(mixed * rows.std, axis=1)
    else:
        rest, tilt = vectors, np.zeros(len(vectors))
    noise = (measured.std.reshape(-1) + tilt) * np.sqrt(n)
    part = np.linalg.norm(rest, axis=1) / size.max()
    limit = np.maximum(config.missing, config.certain * noise / size.max())
    if not (part > limit).any():
        return 0, float(part.max())
    values = np.linalg.svd(rest[part > limit] / size.max(), compute_uv=False)
    rank = int(np.count_nonzero(values > float(limit[part > limit].max())))
    return max(rank, 1), float(part.max())


def row_rank(rows: Rows) -> int:
    """Return how many of the rows are linearly independent, given their errors."""
    if rows.count == 0:
        return 0
    values = np.linalg.svd(rows.weights, compute_uv=False)
    return int(np.count_nonzero(values > 1e-9 + 100.0 * float(rows.std.max())))


def lift_rows(
    ask: AskPoints,
    rows: Rows,
    measured: PieceGradients,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    config: RowConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> tuple[Rows, float]:
    """Extend rows from a basis to all directions.

    A gradient is a combination of the rows, with coefficients known from the
    basis; the same combination holds in every other direction.

    Returns
    -------
    rows, condition
        Rows in the standard basis, and the condition of the coefficients used.
    """
    config = RowConfig() if config is None else config
    n, d = rows.basis.shape
    if n == d:
        turned = rows.weights @ rows.basis
        return Rows(np.eye(d), turned, rows.std, rows.anchors), 1.0
    inverse = np.linalg.pinv(rows.weights)
    coefficients = measured.gradients @ inverse  # (p, m, k)
    chosen = select_pieces(coefficients, measured.std, config.surplus)
    full, _ = np.linalg.qr(rows.basis.T, mode="complete")
    others = full[:, n:].T
    found = measure_gradients(
        ask,
        measured.points[chosen],
        measured.values[chosen],
        measured.steps[chosen],
        others,
        noise,
        rng=rng,
        config=gradient_config,
    )
    good = found.ok
    std = np.median(found.std, axis=1)[good]
    used = coefficients[chosen][good]
    theta, covariance = combine(used, found.derivatives.transpose(0, 2, 1)[good], std)
    condition = float(np.linalg.cond(used.reshape(-1, used.shape[2])))
    lifted = rows.weights @ rows.basis + theta @ others
    length = np.linalg.norm(lifted, axis=1)
    spread = np.sqrt(rows.std**2 + np.diagonal(covariance)) / length
    return Rows(np.eye(d), lifted / length[:, None], spread, rows.anchors), condition
