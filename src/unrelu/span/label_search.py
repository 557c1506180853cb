"""Grow and sharpen a span from the normals of a decision boundary.

The counterpart of :mod:`unrelu.span.grow` for labels. State lives in one
object, so that what was found survives a budget that runs out.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.lines.boundary import Boundary, find_boundary, find_offsets
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.span.config import SpanConfig
from unrelu.span.labels import Resolution, measure_normals, measure_null_offsets
from unrelu.span.subspace import (
    SpanEstimate,
    choose_rows,
    complement,
    misfit_of_rows,
    orthonormal,
    seen_again,
    solve_tilt,
    spectrum_of_rows,
)
from unrelu.span.values import random_directions

__all__ = [
    "LabelSearch",
    "add_normals",
    "check_crossings",
    "confirm_from_labels",
    "grow_from_labels",
    "screen_boundary",
    "sharpen_from_labels",
]


@dataclasses.dataclass(kw_only=True)
class LabelSearch(SpanEstimate):
    """State of a search from labels.

    ``rows`` are unit normals at ``boundary``, with ``noise`` per entry;
    ``measured`` are all of them as first measured.
    """

    boundary: Boundary
    rows: FloatArray
    noise: FloatArray
    measured: tuple[FloatArray, FloatArray]
    resolution: Resolution
    step: float
    plane: float = 1.0
    discarded: int = 0

    @classmethod
    def start(cls, n: int, resolution: Resolution, step: float) -> LabelSearch:
        """Return a search that has seen nothing in n dimensions."""
        none = np.empty((0, n))
        spectrum = spectrum_of_rows(none, np.empty(0), margin=1.0)
        return cls(
            boundary=Boundary.none(n), rows=none, noise=np.empty(0), measured=(none, np.empty(0)),
            spectrum=spectrum, basis=none, resolution=resolution, step=step,
        )  # fmt: skip

    def decide(self, margin: float) -> None:
        """Decide rank and basis anew from all rows."""
        self.estimate_from(self.rows, self.noise, margin)
        self.ranks.append(self.spectrum.rank)


def add_normals(
    oracle: Oracle,
    search: LabelSearch,
    boundary: Boundary,
    rng: np.random.Generator,
    *,
    config: SpanConfig,
) -> None:
    """Measure the normals at boundary points and add them to the search."""
    n = oracle.input_dim
    noise, step = search.resolution.noise, search.step
    normals, error = measure_normals(
        oracle, boundary, rng, step=step, finest=noise / 2.0, config=config
    )
    length = np.linalg.norm(normals, axis=1)
    usual = np.sqrt(n)  # of a random search direction, and of those that calibrated
    good: BoolArray = np.isfinite(length) & (length < config.tangential * usual) & (length > 0)
    good &= np.isfinite(error)  # a normal whose checks were not found is not verified
    search.discarded += int(np.count_nonzero(~good))
    if not good.any():
        return
    length, normals = length[good], normals[good] / length[good][:, None]
    # By calibration offsets err by noise and curvature·step²; where the checks
    # show more, the boundary bends more here, or the direction is tangential.
    known = (noise / step + search.resolution.curvature * step) / usual
    entry = np.maximum(known, error[good] / length)
    search.boundary = search.boundary.with_more(boundary.take(good))
    search.rows = np.concatenate([search.rows, normals])
    search.noise = np.concatenate([search.noise, entry])
    first, first_noise = search.measured
    search.measured = np.concatenate([first, normals]), np.concatenate([first_noise, entry])
    search.decide(config.margin)
    search.plane = search.angle


def grow_from_labels(
    oracle: Oracle,
    search: LabelSearch,
    rng: np.random.Generator,
    *,
    scale: float,
    limit: int,
    config: SpanConfig,
    progress: Progress,
) -> bool:
    """Measure normals until there are enough for the rank they show.

    Returns False when no boundary could be found.
    """

    def wanted(rank: int) -> int:
        return config.rows_for(min(rank, limit))

    while True:
        have = len(search.rows)
        missing = wanted(search.spectrum.rank) - have
        if have and missing <= 0:
            return True
        if limit < oracle.input_dim:  # the caller knows the rank
            missing = wanted(limit) - have
        count = max(config.places, missing) if have == 0 or missing > 0 else config.places
        boundary = find_boundary(
            oracle,
            count,
            rng,
            scale=scale,
            finest=search.resolution.noise / 2.0,
            draws=config.held_out,
        )
        if boundary is None:
            return False
        add_normals(oracle, search, boundary, rng, config=config)
        rank = search.spectrum.rank
        progress.update("normals", len(search.rows), wanted(rank), f"rank {rank}")
        if search.discarded > 4 * (wanted(rank) + config.places):
            return True


def confirm_from_labels(oracle: Oracle, search: LabelSearch, *, config: SpanConfig) -> bool:
    """Look at every direction once more, from the other side; drop what does not return.

    The counterpart of :func:`unrelu.span.grow.confirm_span`: one
    bisection per direction, at the boundary point whose normal holds most of it.
    """
    rows, basis = search.rows, search.basis
    if len(basis) == 0:
        return True
    parts = rows @ basis.T
    best = np.argmax(np.abs(parts) / search.noise[:, None], axis=0)
    there = search.boundary.take(best)
    offsets = find_offsets(
        oracle, there.points - search.step * basis, there.directions, there.labels,
        expected=search.step, finest=search.resolution.noise / 2.0,
    )  # fmt: skip
    along = np.einsum("ij,ij->i", rows[best], there.directions)
    expected = parts[best, np.arange(len(basis))] / along
    again = seen_again(offsets / search.step, expected)
    if again.all():  # an offset that was not found is NaN, and not seen again
        return True
    keep = np.setdiff1d(np.arange(len(rows)), best[~again])
    search.discarded += len(rows) - len(keep)
    search.boundary = search.boundary.take(keep)
    search.rows, search.noise = rows[keep], search.noise[keep]
    search.decide(config.margin)
    search.plane = search.angle
    return False


def sharpen_from_labels(
    oracle: Oracle,
    search: LabelSearch,
    *,
    scale: float,
    target: float,
    config: SpanConfig,
    progress: Progress,
) -> None:
    """Sharpen a complete basis by long steps along its null space.

    At each of the best-spread boundary points the search now runs along the
    normal itself. A step H along the null space moves the boundary by
    H · angle only, so H may exceed the first step by one over the angle with
    no more bend than before, and the offset's noise counts for h/H of what it
    did.
    """
    n, rank = oracle.input_dim, search.spectrum.rank
    usual = np.sqrt(n)
    finest = search.resolution.noise / usual / 2.0
    longest = scale * np.sqrt(n)
    for _ in range(config.rounds):
        if not 0 < rank < n or search.angle <= target:
            return
        null = complement(search.basis)
        inside = search.rows @ search.basis.T
        best = choose_rows(inside, rank + max(2, math.ceil(0.1 * rank)))
        inside = inside[best]
        direction = inside @ search.basis
        length = np.linalg.norm(direction, axis=1)
        direction /= length[:, None]
        boundary = Boundary(search.boundary.points[best], direction, search.boundary.labels[best])
        size = min(search.step / max(search.angle, 1e-300), longest)
        steps = np.full(len(best), size)
        expected = np.full(len(best), max(size * search.angle / np.sqrt(n - rank), 4.0 * finest))
        slopes = measure_null_offsets(
            oracle, boundary, null, steps=steps, expected=expected, finest=finest
        )
        good = np.asarray(np.isfinite(slopes).all(axis=1))
        if np.count_nonzero(good) < rank:
            search.inconsistent = math.inf
            return
        boundary, slopes = boundary.take(good), slopes[good]
        coordinates = inside[good] / length[good][:, None]
        entry = np.sqrt(2.0) * search.resolution.noise / usual / size
        tilt, misfit = solve_tilt(coordinates / entry, slopes / entry)
        search.passes += 1
        if misfit > config.trust:
            search.inconsistent = misfit
            return
        entry *= max(1.0, misfit)
        before, plane = search.angle, search.plane
        turned = search.basis + tilt @ null
        contradiction = misfit_of_rows(*search.measured, orthonormal(turned))
        if contradiction > config.trust:  # long steps contradict the short ones
            search.inconsistent = contradiction
            return
        search.boundary, search.rows = boundary, coordinates @ turned
        search.noise = np.full(len(boundary), entry)
        search.decide(config.margin)
        # The coordinates inside keep the error of the first steps; it turns the tilt.
        search.angle = max(search.angle, plane * float(np.linalg.norm(tilt, ord=2)))
        progress.update("sharpen", search.passes, None, f"angle {search.angle:.1e}")
        spent = size >= longest and search.angle <= search.spectrum.angle
        if spent or search.spectrum.rank < rank or search.angle > 0.5 * before:
            return


def check_crossings(
    oracle: Oracle,
    boundary: Boundary,
    basis: FloatArray,
    rng: np.random.Generator,
    *,
    step: float,
    within: float,
) -> tuple[BoolArray, FloatArray]:
    """Tell at which points the boundary stays within ``within`` when moved.

    Each point moves by ``step`` in a random direction of the null space; one
    query on either side, ``within`` along its search direction, must show the
    same labels as before. Returns that, ``(P,)``, and the moved points.
    """
    count, n = boundary.points.shape
    moved = boundary.points + step * random_directions(rng, (count, n), basis)
    aside = within * boundary.directions
    seen = oracle(np.concatenate([moved - aside, moved + aside]))[:, 0].reshape(2, count)
    return (seen[0] == boundary.labels) & (seen[1] != boundary.labels), moved


def screen_boundary(
    oracle: Oracle,
    search: LabelSearch,
    rng: np.random.Generator,
    *,
    count: int,
    scale: float,
    config: SpanConfig,
) -> Boundary | None:
    """Return boundary points whose normals should leave the span; None if there is none.

    Fresh points are moved along the null space; where the boundary did not
    stay, it is found again beside the moved point, since what moved it may act
    there only.
    """
    n = oracle.input_dim
    finest = search.resolution.noise / 2.0
    boundary = find_boundary(
        oracle,
        count,
        rng,
        scale=scale,
        finest=finest,
        draws=config.held_out,
    )
    if boundary is None or len(search.basis) == n:
        return None
    step = min(search.step / max(search.angle, 1e-300), scale * np.sqrt(n))
    # Along a search direction an offset is √n times what it is along the normal.
    within = config.tangential * (search.resolution.noise + step * search.angle)
    stays, moved = check_crossings(oracle, boundary, search.basis, rng, step=step, within=within)
    search.quiet = int(np.count_nonzero(stays))
    if stays.all():
        return None
    left = boundary.take(~stays)
    offsets = find_offsets(
        oracle, moved[~stays], left.directions, left.labels, expected=within, finest=finest,
    )  # fmt: skip
    found = np.isfinite(offsets)
    points = left.points.copy()
    points[found] = (moved[~stays] + offsets[:, None] * left.directions)[found]
    return Boundary(points, left.directions, left.labels)
