"""Lines through the target: kinks, gradients of the pieces beside them, jumps.

All of this is said about the input space, whichever layers are known: a line
asked for one layer serves every other. Known layers make it cheaper only: every
gradient is a combination of the rows of their Jacobian, so that as many
differences suffice as the Jacobian has rank; one more, across them, tells
whether that is so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_layers import piece_centers
from unrelu.extraction.deep_numbers import CROSSINGS, FINE
from unrelu.extraction.prefix import Prefix
from unrelu.lines.gradients import measure_gradients
from unrelu.lines.kinks import LineScan
from unrelu.lines.survey import SurveyLine

__all__ = [
    "Crossings",
    "Pieces",
    "Traced",
    "joined",
    "known_kinks",
    "measure_pieces",
    "measure_points",
    "row_space",
]

AskPoints = Callable[[FloatArray], FloatArray]

RANK = FINE
"""Singular values below this part of the largest are zero: rows are known to about 1e-9."""
EXPECTED = CROSSINGS
"""Hyperplanes that the steps of one gradient may be expected to cross."""
SAME_PLACE = FINE
"""A kink nearer to a known unit's surface than this, over its input's norm, is that unit's."""


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Affine pieces that lines passed through.

    Attributes
    ----------
    points, values
        A point inside, ``(p, d)``, and the answer there, ``(p, m)``.
    gradients
        ``(p, m, d)``; zero where they were not measured.
    errors
        Standard deviation of an entry of the gradient, over the gradient's size, ``(p,)``;
        infinite where it was not measured.
    sizes
        Standard deviation of an entry of the gradient, ``(p,)``.
    """

    points: FloatArray
    values: FloatArray
    gradients: FloatArray
    errors: FloatArray
    sizes: FloatArray


@dataclasses.dataclass(frozen=True)
class Crossings:
    """Kinks: places where lines cross a unit's surface.

    Attributes
    ----------
    points
        ``(k, d)``.
    normals
        Unit vectors along the jump of the gradient, ``(k, d)``; zero where not measured.
    outputs
        The answers' part of the jump, a unit vector times its size, ``(k, m)``: along the line
        that crossed, so that it has the sign of the unit's outgoing weights.
    errors
        Error of the normal, ``(k,)``; infinite where it was not measured.
    """

    points: FloatArray
    normals: FloatArray
    outputs: FloatArray
    errors: FloatArray

    def __len__(self) -> int:
        return len(self.points)

    def kept(self, which: IntArray | BoolArray) -> Crossings:
        """Return some of them."""
        return Crossings(*(getattr(self, f.name)[which] for f in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True)
class Traced:
    """One line, and what was measured on it."""

    line: SurveyLine
    scan: LineScan
    pieces: Pieces
    crossings: Crossings


def joined(parts: Sequence[Pieces] | Sequence[Crossings]) -> tuple[FloatArray, ...]:
    """Return the fields of several records, one after the other."""
    fields = [f.name for f in dataclasses.fields(parts[0])]
    return tuple(np.concatenate([getattr(p, name) for p in parts]) for name in fields)


def row_space(rows: FloatArray) -> FloatArray:
    """Return orthonormal rows that span the rows given."""
    if rows.size == 0:
        return np.empty((0, rows.shape[1]))
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(vt[s > RANK * s[0]]) if s[0] > 0 else np.empty((0, rows.shape[1]))


def known_kinks(points: FloatArray, spread: FloatArray, prefix: Prefix) -> BoolArray:
    """Tell which kinks are those of known units, ``(k,)``.

    ``spread`` is how precisely each kink's place is known.
    """
    limit = SAME_PLACE * (1.0 + np.linalg.norm(points, axis=1)) + 30.0 * spread
    return np.asarray((prefix.distances(points) <= limit[:, None]).any(axis=1))


def _steps(kinks: FloatArray, scale: float, directions: int) -> float:
    """Return a step that crosses few hyperplanes.

    One at distance r along a line is crossed by a step h aside with probability about
    h / (pi r).
    """
    crowd = 1.0 / scale + float((1.0 / np.maximum(kinks, 1e-12 * scale)).sum())
    return EXPECTED * np.pi / (max(1, directions) * crowd)


def measure_pieces(
    ask: AskPoints,
    line: SurveyLine,
    scan: LineScan,
    noise: NoiseModel,
    prefix: Prefix,
    *,
    wanted: BoolArray,
    rng: np.random.Generator,
) -> Traced:
    """Measure the gradients of the pieces beside wanted kinks, and the jumps between them.

    Parameters
    ----------
    wanted
        Kinks whose normals are to be measured, ``(k,)``.
    """
    t = _centers(scan, line)
    points = line.points(t)
    values = np.array([p.predict(float(s)) for p, s in zip(scan.pieces, t, strict=True)])
    count, d = points.shape
    beside = np.zeros(count, dtype=bool)
    beside[:-1] |= wanted
    beside[1:] |= wanted
    gradients = np.zeros((count, values.shape[1], d))
    sizes = np.full(count, np.inf)
    jacobian = prefix.view(points).jacobian
    for p in np.flatnonzero(beside):
        kinks = np.abs(scan.kinks - t[p])
        scale = line.scale if np.isfinite(line.scale) else line.high - line.low
        found = _gradient(
            ask, points[p], values[p], kinks, scale, jacobian[p], prefix.depth, noise, rng
        )
        if found is not None:
            gradients[p], sizes[p] = found
    return Traced(
        line, scan, pieces := _pieces(points, values, gradients, sizes),
        _jumps(line, scan, pieces, wanted),
    )  # fmt: skip


def _centers(scan: LineScan, line: SurveyLine) -> FloatArray:
    """Return a point inside each piece, ``(k + 1,)``."""
    if np.isfinite(line.scale):
        return piece_centers(scan, line)[0]
    ends = np.concatenate([[line.low], scan.kinks, [line.high]])
    return np.asarray(0.5 * (ends[1:] + ends[:-1]))


def measure_points(
    ask: AskPoints,
    points: FloatArray,
    noise: NoiseModel,
    prefix: Prefix,
    scale: float,
    *,
    rng: np.random.Generator,
) -> Pieces:
    """Measure gradients at given inputs ``(n, d)``."""
    values = ask(points)
    gradients = np.zeros((len(points), values.shape[1], points.shape[1]))
    sizes = np.full(len(points), np.inf)
    jacobian = prefix.view(points).jacobian
    near = prefix.distances(points)
    for p in np.flatnonzero(np.isfinite(values).all(axis=1)):
        found = _gradient(
            ask, points[p], values[p], near[p][np.isfinite(near[p])], scale, jacobian[p],
            prefix.depth, noise, rng,
        )  # fmt: skip
        if found is not None:
            gradients[p], sizes[p] = found
    return _pieces(points, values, gradients, sizes)


def _pieces(
    points: FloatArray, values: FloatArray, gradients: FloatArray, sizes: FloatArray
) -> Pieces:
    size = np.sqrt((gradients**2).sum(axis=(1, 2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(np.isfinite(sizes), sizes / np.maximum(size, sizes), np.inf)
    return Pieces(points, values, gradients, errors, sizes)


def _gradient(
    ask: AskPoints,
    point: FloatArray,
    value: FloatArray,
    kinks: FloatArray,
    scale: float,
    jacobian: FloatArray,
    depth: int,
    noise: NoiseModel,
    rng: np.random.Generator,
) -> tuple[FloatArray, float] | None:
    """Measure one gradient ``(m, d)``, and the error of its entries.

    ``kinks`` are the distances of known ones. It is sought among the combinations of the
    Jacobian's rows first, then everywhere.
    """
    bases = ([row_space(jacobian)] if depth else []) + [np.eye(len(point))]
    for basis in bases:
        found = _gradient_in(ask, point, value, kinks, scale, basis, noise, rng)
        if found is not None:
            return found
    return None


def _gradient_in(
    ask: AskPoints,
    point: FloatArray,
    value: FloatArray,
    kinks: FloatArray,
    scale: float,
    basis: FloatArray,
    noise: NoiseModel,
    rng: np.random.Generator,
) -> tuple[FloatArray, float] | None:
    """Measure a gradient in a basis; None where the basis does not hold it."""
    d = len(point)
    directions = basis
    if len(basis) < d:
        across = rng.standard_normal(d)
        across -= basis.T @ (basis @ across)
        directions = np.concatenate([basis, across[None] / np.linalg.norm(across)])
    steps = _steps(kinks, scale, len(directions))
    found = measure_gradients(
        ask, point[None], value[None], np.array([steps]), directions, noise, rng=rng
    )
    if not found.ok[0]:
        return None
    slopes, std = found.derivatives[0], found.std[0]
    if len(basis) < d:
        # Rows known to 1e-9 turn the space that they span by as much.
        allowed = 30.0 * std[-1] + 1e-6 * np.linalg.norm(slopes[:-1], axis=0)
        if (np.abs(slopes[-1]) > allowed).any():
            return None
        slopes, std = slopes[:-1], std[:-1]
    return slopes.T @ basis, float(np.max(std, initial=0.0))


def _jumps(line: SurveyLine, scan: LineScan, pieces: Pieces, wanted: BoolArray) -> Crossings:
    """Take the jumps of the gradient at kinks between two measured pieces."""
    k, m = scan.jumps.shape
    d = len(line.direction)
    points = line.points(scan.kinks)
    normals, outputs, errors = np.zeros((k, d)), np.zeros((k, m)), np.full(k, np.inf)
    for i in np.flatnonzero(wanted):
        noise = pieces.sizes[i] + pieces.sizes[i + 1]
        if not np.isfinite(noise):
            continue
        jump = pieces.gradients[i + 1] - pieces.gradients[i]
        left, s, right = np.linalg.svd(jump, full_matrices=False)
        # A kink of one unit bends all outputs along one normal.
        if s[0] <= 0.0 or (m > 1 and s[1:].max() > 1e-4 * s[0] + 30.0 * noise):
            continue
        # Taken along the line the answers bend as the unit's outgoing weights say.
        sign = 1.0 if right[0] @ line.direction > 0.0 else -1.0
        normals[i], outputs[i] = sign * right[0], sign * s[0] * left[:, 0]
        errors[i] = noise / s[0]
    return Crossings(points, normals, outputs, errors)
