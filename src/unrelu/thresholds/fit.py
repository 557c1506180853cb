"""Step 1 on samples: moments, directions, and what the data say about them."""

from __future__ import annotations

import time

import numpy as np
import scipy.optimize

from unrelu._types import FloatArray
from unrelu.core.moments import HermiteMoments
from unrelu.progress import Progress
from unrelu.result import StageReport, Status
from unrelu.thresholds.landscape import contract
from unrelu.thresholds.model import Fit, ThresholdConfig, on_mass, overlap_share
from unrelu.thresholds.passes import Passes
from unrelu.thresholds.refine import estimate_thresholds
from unrelu.thresholds.search import Landscape, Method, count_units, find_directions

__all__ = ["explain_nothing_found", "fit_landscape", "mean_of_halves", "search_landscape"]


def mean_of_halves(halves: tuple[HermiteMoments, HermiteMoments]) -> HermiteMoments:
    """Return the moments of all samples from those of two halves."""
    return (halves[0] + halves[1]).scaled(0.5)


def explain_nothing_found(passes: Passes, seen: int, threshold: float | None) -> str:
    """Say why no unit came out, from what the data show."""
    share = float(passes.base.is_on(passes.pilot_y).mean())
    raised = float((passes.pilot_y > passes.pilot_y.min()).mean())
    if raised == 0.0:
        return "every label is the same: no unit is on at any sample."
    if passes.base.exact and raised > 0.5:
        return (
            f"{raised:.0%} of the labels lie above the lowest: if some unit is on there, the "
            "thresholds are too low for the linear part to dominate. Queries need no high "
            "threshold: see detect_directions, and learn_halfspaces with an oracle."
        )
    if seen == 0:
        return (
            "the labels' second moments show no direction above their sampling error: too few "
            "samples for this threshold, or every unit's linear term vanishes. Give more "
            "samples; with queries, detect_directions needs no linear term."
        )
    given = "" if threshold is None else f", at the threshold {threshold:g} that was given"
    return (
        f"the landscape shows {seen} directions, but across none of them does the rate of "
        f"on-labels rise by one half{given}: the units are not sign or ReLU, or the directions "
        f"are too biased (some unit is on at {share:.0%} of the samples)."
    )


def search_landscape(
    passes: Passes,
    method: Method,
    units: int | None,
    biased: bool,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
    watch: Progress,
) -> tuple[Landscape, tuple[HermiteMoments, HermiteMoments], StageReport]:
    """Moments of all samples and the directions in them."""
    begin = time.perf_counter()
    order = 3 if method in ("joint", "third") else 4
    total = passes.source.count
    done = 0

    def step(rows: int) -> None:
        nonlocal done
        done += rows
        watch.update("moments", done, total)

    note = "values"
    spread = 1.0 if biased else float(np.std(passes.pilot_y))
    if biased:
        halves = passes.moments(order, value=lambda x, y: np.ones(len(x)), step=step)
    else:
        halves = passes.moments(order, step=step)
        values = np.linalg.eigvalsh(mean_of_halves(halves).t2)
        _, noise = count_units(*halves, cfg.landscape.rank_factor)
        if passes.base.exact and values[0] < -cfg.landscape.rank_factor * noise:
            # Linear terms of both signs: whether f differs from c_0 has one sign.
            done, note = 0, "on or off"
            spread = float(np.std(passes.base.is_on(passes.pilot_y)))
            halves = passes.moments(
                order, value=lambda x, y: passes.base.is_on(y).astype(np.float64), step=step
            )
    rank, noise = count_units(*halves, cfg.landscape.rank_factor)
    rank = min(units, passes.n) if units is not None else rank
    found = find_directions(
        mean_of_halves(halves), rank, method=method, rng=rng, config=cfg.landscape
    )
    report = StageReport(
        "landscape",
        seconds=time.perf_counter() - begin,
        message=f"{len(found.directions)} directions from the {note}, {rank} counted",
        details={
            "rank": rank,
            "noise": noise,
            "spread": spread,
            "condition": found.condition,
            "starts": found.starts,
            "base value": passes.base.level,
            "base share": passes.base.share,
        },
    )
    return found, halves, report


def fit_landscape(
    passes: Passes,
    *,
    method: Method,
    units: int | None,
    threshold: float | None,
    biased: bool,
    rng: np.random.Generator,
    config: ThresholdConfig,
    watch: Progress,
) -> Fit:
    """Step 1 alone, with errors from two halves of the samples."""
    cfg = config
    found, halves, report = search_landscape(passes, method, units, biased, rng, cfg, watch)
    k = len(found.directions)
    if k == 0:
        reason = explain_nothing_found(passes, 0, threshold)
        return Fit.empty(passes.n, Status.ASSUMPTION_VIOLATED, reason, [report])
    errors = _half_errors(found, halves, method, rng, cfg)
    thresholds = np.full(k, np.nan if threshold is None else threshold)
    overlap, missing = 0.0, 0.0
    if passes.base.exact and not biased:
        on = passes.base.is_on(passes.pilot_y)
        estimated, _ = estimate_thresholds(passes.pilot_x, on, found.directions, config=cfg.refine)
        thresholds = estimated if threshold is None else thresholds
        overlap = overlap_share(estimated, float(on.mean()))
        raised = float((passes.pilot_y > passes.pilot_y.min()).mean())
        overlap = max(overlap, raised if raised > 0.5 else 0.0)
        missing = max(0.0, 1.0 - on_mass(estimated) / max(float(on.mean()), 1e-300))
    status, message = (
        Status.RECOVERED,
        (
            f"{k} directions from the landscape, sampling error at most {errors.max():.1e} rad; "
            "the bias of the units' products comes on top."
        ),
    )
    tilt = (
        float(np.trace(mean_of_halves(halves).t2)) / mean_of_halves(halves).t0 if biased else 1.0
    )
    negative = float(np.linalg.eigvalsh(mean_of_halves(halves).t2)[0])
    noise = report.details["noise"]
    if found.condition > cfg.condition:
        status = Status.ILL_CONDITIONED
        message = (
            f"the units' condition number is about {found.condition:.0f}, above "
            f"{cfg.condition:.0f}: too correlated for the landscape. Refinement separates "
            "them where the units are sign or ReLU."
        )
    elif overlap > cfg.overlap or tilt > cfg.tilt:
        seen = (
            f"two units or more are on at about {overlap:.0%} of the points where any is"
            if overlap > cfg.overlap
            else f"the kept points are shifted by {tilt:.2f} instead of 1 in mean square"
        )
        status = Status.ASSUMPTION_VIOLATED
        message = (
            f"the thresholds are too low for the linear part to dominate: {seen}. The "
            "directions are biased; refine them where the units are sign or ReLU."
        )
    elif not _one_sided(
        found.directions, halves, report.details["spread"] / np.sqrt(passes.samples)
    ):
        status = Status.ASSUMPTION_VIOLATED
        message = (
            "the third moment along a direction is not positive beyond its sampling error: f is "
            "even there, or not above a threshold. For even units see recover_even_layer."
        )
    elif missing > cfg.missing:
        status = Status.PARTIAL
        message = (
            f"{k} directions, but units at their thresholds would be on at only "
            f"{1.0 - missing:.0%} of the points where f is: some are missing. Give more samples."
        )
    elif negative < -3.0 * noise and not passes.base.exact:
        status = Status.ASSUMPTION_VIOLATED
        message = "the linear terms have both signs: the landscape needs one."
    elif k < report.details["rank"] or errors.max() > cfg.agreement:
        status = Status.PARTIAL
        message = (
            f"{k} of {report.details['rank']} directions, and two halves of the samples put "
            f"them up to {errors.max():.2f} rad (standard error) apart: give more samples."
        )
    return Fit(status, message, found.directions, thresholds, errors, found.directions, [report])


def _one_sided(
    directions: FloatArray, halves: tuple[HermiteMoments, HermiteMoments], error: float
) -> bool:
    """Whether the third moment is positive along each direction beyond its sampling error.

    Two halves that agree may do so by chance once in ten times. He_3 has the variance 6:
    four standard errors are asked for as well, ``error`` being that of the labels' mean.
    """
    least = 4.0 * np.sqrt(6.0) * error
    for w in directions:
        one, two = (contract(half.dense(3), w, 3) for half in halves)
        if one + two < 3.0 * abs(one - two) or 0.5 * (one + two) < least:
            return False
    return True


def _half_errors(
    found: Landscape,
    halves: tuple[HermiteMoments, HermiteMoments],
    method: Method,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
) -> FloatArray:
    """Estimate standard errors from the directions that each half of the samples gives."""
    angles = []
    for half in halves:
        if np.linalg.eigvalsh(half.t2)[-len(found.directions)] <= 0:
            return np.full(len(found.directions), np.pi / 2)
        other = find_directions(
            half, len(found.directions), method=method, rng=rng, config=cfg.landscape
        )
        if len(other.directions) < len(found.directions):
            return np.full(len(found.directions), np.pi / 2)
        cosines = found.directions @ other.directions.T
        rows, cols = scipy.optimize.linear_sum_assignment(-cosines)
        angles.append(np.arccos(np.clip(cosines[rows, cols], -1.0, 1.0)))
    # A half is off the whole by as much as the whole is off the truth.
    return np.asarray(np.sqrt(0.5 * (angles[0] ** 2 + angles[1] ** 2)))
