"""Spans from labels: normals of a decision boundary."""

from __future__ import annotations

import numpy as np

from unrelu.result import Certificate, Status
from unrelu.span.common import SpanResult, SpanRun, unseen_share
from unrelu.span.label_search import (
    LabelSearch,
    add_normals,
    check_crossings,
    confirm_from_labels,
    grow_from_labels,
    screen_boundary,
    sharpen_from_labels,
)
from unrelu.span.labels import find_boundary, measure_resolution

__all__ = ["span_from_labels"]


def span_from_labels(
    run: SpanRun, rank: int | None, tolerance: float, scale: float, certify: bool
) -> SpanResult:
    """Algorithm 2: boundary points, normals, singular values, long null-space steps."""
    oracle, rng, config = run.oracle, run.rng, run.config
    n, scales = oracle.input_dim, config.label_scales
    with run.stage("boundary") as details:
        for factor in scales.widenings:
            boundary = find_boundary(
                oracle, scales.calibrations, rng, scale=factor * scale,
                finest=factor * scale * scales.finest, scales=scales,
            )  # fmt: skip
            if boundary is not None:
                break
        else:
            return run.result(
                Status.ASSUMPTION_VIOLATED,
                "one label is all that Gaussian inputs show, at scales from "
                f"{scale * min(scales.widenings):g} to {scale * max(scales.widenings):g}; "
                "pass a scale at which two labels occur",
            )
        run.scale = scale = factor * scale
        resolution = measure_resolution(oracle, rng, boundary, scale=scale, scales=scales)
        step = float(np.sqrt(resolution.noise / resolution.curvature))
        details |= {
            "scale": scale, "noise": resolution.noise,
            "curvature": resolution.curvature, "step": step,
        }  # fmt: skip
    run.search = search = LabelSearch.start(n, resolution, step)
    limit = n if rank is None else rank
    for _ in range(config.labels.rounds):
        with run.stage("normals") as details:
            grow_from_labels(
                oracle, search, rng, scale=scale, limit=limit, config=config.labels,
                scales=scales, progress=run.progress,
            )  # fmt: skip
            details |= {"normals": len(search.rows), "discarded": search.discarded}
        with run.stage("confirm"):
            confirmed = confirm_from_labels(oracle, search, config=config.labels, scales=scales)
        if not (confirmed and _stays_put(run, search, scale)):
            continue
        with run.stage("sharpen") as details:
            search.inconsistent = 0.0
            sharpen_from_labels(
                oracle, search, scale=scale, target=tolerance, config=config.labels,
                scales=scales, progress=run.progress,
            )  # fmt: skip
            details |= {"passes": search.passes, "misfit": search.inconsistent}
        if search.inconsistent:  # a direction is missing: more normals lift it over the floor
            with run.stage("normals"):
                more = find_boundary(
                    oracle, max(config.labels.batch, search.spectrum.rank), rng, scale=scale,
                    finest=resolution.noise / 2.0, scales=scales,
                )  # fmt: skip
                if more is not None:
                    add_normals(oracle, search, more, rng, config=config.labels, scales=scales)
            continue
        if _stays_put(run, search, scale):
            search.finished = True
            break
    if search.spectrum.rank == 0:
        return run.result(
            Status.NUMERICAL_FAILURE,
            "no boundary normal stands out of the noise: the labels may be random, or the "
            f"boundary rough on the scale of {step:.1e}",
        )
    if certify:
        _certify_labels(run, scale)
    unseen = unseen_share(config.labels.patience, config.confidence, "boundary normal")
    return run.conclude(rank, search.finished or len(search.basis) == rank, unseen)


def _stays_put(run: SpanRun, search: LabelSearch, scale: float) -> bool:
    """Screen fresh boundary points; add the normals of those that move.

    True if none moved, or if their normals added nothing: tangential search
    directions raise false alarms, and the certificate has the last word.
    """
    config, before = run.config, search.spectrum.rank
    with run.stage("screen"):
        leaving = screen_boundary(
            run.oracle, search, run.rng, scale=scale, config=config.labels,
            scales=config.label_scales,
        )  # fmt: skip
        if leaving is None:
            return True
        add_normals(
            run.oracle, search, leaving, run.rng, config=config.labels, scales=config.label_scales
        )
    return search.spectrum.rank == before


def _certify_labels(run: SpanRun, scale: float) -> None:
    """Move held-out boundary points along the null space; labels beside them must stay."""
    assert isinstance(run.search, LabelSearch)
    search, config, n = run.search, run.config, run.oracle.input_dim
    if len(search.basis) == n:
        return
    with run.stage("certificate"):
        boundary = find_boundary(
            run.oracle, config.held_out_boundary, run.rng, scale=scale,
            finest=search.resolution.noise / 2.0, scales=config.label_scales,
        )  # fmt: skip
        if boundary is None:
            return
        size = scale * float(np.sqrt(n))
        leak = size * search.angle + search.resolution.noise
        within = config.certificate_margin * config.labels.screen * leak
        stays, _ = check_crossings(
            run.oracle, boundary, search.basis, run.rng, step=size, within=within
        )
    run.certificate = Certificate.from_deviations(
        (~stays).astype(np.float64),
        scale=1.0,
        tolerance=0.5,
        confidence=config.confidence,
        distribution="boundary points, moved by an input's norm along the null space,",
        details={"within": within, "angle": search.angle, "gap": search.spectrum.gap},
    )
