"""Spans from labels: normals of a decision boundary (Algorithm 2)."""

from __future__ import annotations

import numpy as np

from unrelu.lines.boundary import GROWTH, Boundary, find_boundary
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
from unrelu.span.labels import measure_resolution
from unrelu.span.run import SpanResult, SpanRun, unseen_share

__all__ = ["span_from_labels"]


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
    return run.conclude(rank, search.finished or len(search.basis) == rank, unseen)


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
        within = config.trust * config.tangential * leak
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
