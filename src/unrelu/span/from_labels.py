"""Spans from labels: normals of a decision boundary (Algorithm 2)."""

from __future__ import annotations

import math

import numpy as np

from unrelu.lines.boundary import GROWTH, Boundary, find_boundary, find_offsets
from unrelu.result import Certificate, Status
from unrelu.span.config import FINEST
from unrelu.span.label_search import (
    LabelSearch,
    add_normals,
    check_crossings,
    confirm_from_labels,
    grow_from_labels,
    screen_boundary,
    sharpen_from_labels,
)
from unrelu.span.labels import Resolution, measure_resolution
from unrelu.span.printed import Float64, PrintedNumbers, adaptive_gradients
from unrelu.span.run import SpanResult, SpanRun, unseen_share
from unrelu.span.values import random_directions

__all__ = ["span_as_printed", "span_from_labels"]


def span_from_labels(
    run: SpanRun, rank: int | None, tolerance: float, certify: bool
) -> SpanResult:
    """Algorithm 2: boundary points, normals, singular values, long null-space steps."""
    oracle, config = run.oracle, run.config
    with run.stage("boundary") as details:
        boundary = _first_boundary(run)
        if isinstance(boundary, SpanResult):
            return boundary
        resolution = measure_resolution(oracle, run.rng, boundary, scale=run.scale, config=config)
        step = float(np.sqrt(resolution.noise / resolution.curvature))
        details |= {
            "scale": run.scale, "noise": resolution.noise,
            "curvature": resolution.curvature, "step": step,
        }  # fmt: skip
    run.search = search = LabelSearch.start(oracle.input_dim, resolution, step)
    for _ in range(config.rounds):
        if _grown(run, search, oracle.input_dim if rank is None else rank) and _sharpened(
            run, search, tolerance
        ):
            search.finished = True
            break
    if search.spectrum.rank == 0:
        return run.result(
            Status.NUMERICAL_FAILURE,
            "no boundary normal stands out of the noise: the labels may be random, or the "
            f"boundary rough on the scale of {step:.1e}",
        )
    if certify:
        _certify_labels(run, search)
    unseen = unseen_share(config.boundary_points, "boundary normal")
    return run.conclude(search, rank, search.finished or len(search.basis) == rank, unseen)


def span_as_printed(run: SpanRun, rank: int, certify: bool) -> SpanResult:
    """Algorithm 2 as printed, in float64 (:mod:`unrelu.span.printed`)."""
    oracle, config, n = run.oracle, run.config, run.oracle.input_dim
    arithmetic = Float64()
    numbers = PrintedNumbers.carried(arithmetic.bits)
    origin = oracle(np.zeros((1, n)))[0, 0]
    # A search of beta 2^-N is what line 6 resolves; over c of epsilon_0 the boundary bends.
    resolution = Resolution(run.scale * FINEST, config.flattest / run.scale)
    step = arithmetic.power(numbers.epsilon_log2)
    run.search = search = LabelSearch.start(n, resolution, step)
    with run.stage("as printed") as details:
        found = adaptive_gradients(
            lambda points: oracle(run.scale * points)[:, 0] != origin, n, rank, numbers=numbers,
            arithmetic=arithmetic, rng=run.rng, draws=config.held_out, checks=config.probes,
        )  # fmt: skip
        details |= {"N": numbers.size, "restarts": found.restarts, "rank": len(found.basis)}
    if len(found.basis):
        search.rows, search.noise = found.rows, np.maximum(found.noise, FINEST)
        search.decide(config.margin)
    if len(search.basis) == len(found.basis) == rank:
        search.basis = found.basis
        if certify:
            # A missing direction moves the boundary too: what was seen to move only lowers
            # what is forgiven, and only raises what is told (weak directions hardly move it).
            estimate, seen = search.angle, _seen_angle(run, search)
            search.angle = min(estimate, seen)
            _certify_labels(run, search)
            search.angle = max(estimate, seen) if np.isfinite(seen) else estimate
        return run.conclude(
            search, rank, True, "Algorithm 2 ends after as many vectors as the rank"
        )
    if found.silent:
        return run.result(
            Status.PARTIAL,
            f"rank {len(search.basis)} of {rank}: line 3 of Algorithm 2 drew {found.silent} "
            "inputs outside of the directions found; none has another label than the origin. "
            "Assumption 3 asks for some outside of every subspace, in whatever precision; try "
            "a larger scale, or leave faithful off",
        )
    return run.result(
        Status.ILL_CONDITIONED,
        f"rank {len(search.basis)} of {rank} stands out of the noise of float64, with N = "
        f"{numbers.size} and {found.restarts} restarts of line 7; leave faithful off, or see "
        "unrelu.span.precision",
    )


def _first_boundary(run: SpanRun) -> Boundary | SpanResult:
    """Find points of the boundary, at the first scale at which two labels occur."""
    scales = [
        run.scale * GROWTH**power for power in sorted(range(-1, run.config.rounds - 1), key=abs)
    ]
    for scale in scales:
        boundary = find_boundary(
            run.oracle, run.config.places, run.rng, scale=scale, finest=scale * FINEST,
            draws=run.config.held_out,
        )  # fmt: skip
        if boundary is not None:
            run.scale = scale
            return boundary
    return run.result(
        Status.ASSUMPTION_VIOLATED,
        f"one label is all that Gaussian inputs show, at scales from {min(scales):g} to "
        f"{max(scales):g}; pass a scale at which two labels occur",
    )


def _grown(run: SpanRun, search: LabelSearch, limit: int) -> bool:
    """Measure normals until there are enough for their rank; tell whether they are all."""
    with run.stage("normals") as details:
        grow_from_labels(
            run.oracle, search, run.rng, scale=run.scale, limit=limit, config=run.config,
            progress=run.progress,
        )  # fmt: skip
        details |= {"normals": len(search.rows), "discarded": search.discarded}
    with run.stage("confirm"):
        if not confirm_from_labels(run.oracle, search, config=run.config):
            return False
    return _stays_put(run, search, run.config.places)


def _sharpened(run: SpanRun, search: LabelSearch, tolerance: float) -> bool:
    """Sharpen the basis; tell whether fresh boundary points stay put in it."""
    config = run.config
    with run.stage("sharpen") as details:
        search.inconsistent = 0.0
        sharpen_from_labels(
            run.oracle, search, scale=run.scale, target=tolerance, config=config,
            progress=run.progress,
        )  # fmt: skip
        details |= {"passes": search.passes, "misfit": search.inconsistent}
    if not search.inconsistent:
        return _stays_put(run, search, config.boundary_points)
    # A direction is missing: more normals lift it over the floor.
    with run.stage("normals"):
        more = find_boundary(
            run.oracle, max(config.places, search.spectrum.rank), run.rng, scale=run.scale,
            finest=search.resolution.noise / 2.0, draws=config.held_out,
        )  # fmt: skip
        if more is not None:
            add_normals(run.oracle, search, more, run.rng, config=config)
    return False


def _stays_put(run: SpanRun, search: LabelSearch, count: int) -> bool:
    """Screen ``count`` fresh boundary points; add the normals of those that move.

    True if none moved, or if their normals added nothing: tangential search
    directions raise false alarms, and the certificate has the last word.
    """
    before = search.spectrum.rank
    with run.stage("screen"):
        leaving = screen_boundary(
            run.oracle, search, run.rng, count=count, scale=run.scale, config=run.config
        )
        if leaving is None:
            return True
        add_normals(run.oracle, search, leaving, run.rng, config=run.config)
    return search.spectrum.rank == before


def _seen_angle(run: SpanRun, search: LabelSearch) -> float:
    """Return how far the boundary moves along the null space, as an angle; else infinity.

    Deflation magnifies errors: the gradient outside of V errs by V's error times what V hides
    over what is left, which no line of the box can tell; and the directions' nearness to
    each other may magnify them less than it could. A random direction of the null space
    shows one of n - r parts of the angle, and a random search direction magnifies it as much.
    """
    n = run.oracle.input_dim
    if len(search.basis) == n:
        return math.inf
    finest = search.resolution.noise / 2.0
    with run.stage("screen"):
        boundary = find_boundary(
            run.oracle, run.config.places, run.rng, scale=run.scale, finest=finest,
            draws=run.config.held_out,
        )  # fmt: skip
        if boundary is None:
            return math.inf
        size = run.scale * float(np.sqrt(n))
        moved = boundary.points + size * random_directions(
            run.rng, boundary.points.shape, search.basis
        )
        offsets = find_offsets(
            run.oracle, moved, boundary.directions, boundary.labels,
            expected=size * search.angle, finest=finest,
        )  # fmt: skip
    if not np.isfinite(offsets).any():
        return math.inf
    return float(np.nanmedian(np.abs(offsets))) / size + finest


def _certify_labels(run: SpanRun, search: LabelSearch) -> None:
    """Move held-out boundary points along the null space; labels beside them must stay."""
    config, n = run.config, run.oracle.input_dim
    if len(search.basis) == n:
        return
    with run.stage("certificate"):
        boundary = find_boundary(
            run.oracle, config.boundary_points, run.rng, scale=run.scale,
            finest=search.resolution.noise / 2.0, draws=config.held_out,
        )  # fmt: skip
        if boundary is None:
            return
        size = run.scale * float(np.sqrt(n))
        leak = size * search.angle + search.resolution.noise
        # Farther than an input's deviation along a line, other parts of the boundary count.
        within = min(config.trust * config.tangential * leak, run.scale)
        stays, _ = check_crossings(
            run.oracle, boundary, search.basis, run.rng, step=size, within=within
        )
    run.certificate = Certificate.from_deviations(
        (~stays).astype(np.float64),
        scale=1.0,
        tolerance=0.5,
        distribution="boundary points, moved by an input's norm along the null space,",
        details={"within": within, "angle": search.angle, "gap": search.spectrum.gap},
    )
