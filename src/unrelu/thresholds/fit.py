"""Step 1 on samples: moments, directions, and what the data say about them."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import scipy.optimize

from unrelu._types import FloatArray
from unrelu.core.moments import HermiteMoments
from unrelu.progress import Progress
from unrelu.result import StageReport, Status
from unrelu.thresholds.config import TINY, ThresholdConfig
from unrelu.thresholds.landscape import contract
from unrelu.thresholds.model import UnitsFit, on_mass, overlap_share
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
        _, noise = count_units(*halves, cfg.signal)
        if passes.base.exact and values[0] < -cfg.signal * noise:
            # Linear terms of both signs: whether f differs from c_0 has one sign.
            done, note = 0, "on or off"
            spread = float(np.std(passes.base.is_on(passes.pilot_y)))
            halves = passes.moments(
                order, value=lambda x, y: passes.base.is_on(y).astype(np.float64), step=step
            )
    rank, noise = count_units(*halves, cfg.signal)
    rank = min(units, passes.n) if units is not None else rank
    found = find_directions(mean_of_halves(halves), rank, method=method, rng=rng, config=cfg)
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
) -> UnitsFit:
    """Step 1 alone, with errors from two halves of the samples."""
    found, halves, report = search_landscape(passes, method, units, biased, rng, config, watch)
    k = len(found.directions)
    if k == 0:
        reason = explain_nothing_found(passes, 0, threshold)
        return UnitsFit.empty(passes.n, Status.ASSUMPTION_VIOLATED, reason, [report])
    errors = _half_errors(found, halves, method, rng, config)
    thresholds = np.full(k, np.nan if threshold is None else threshold)
    overlap, missing = 0.0, 0.0
    if passes.base.exact and not biased:
        on = passes.base.is_on(passes.pilot_y)
        estimated, _ = estimate_thresholds(passes.pilot_x, on, found.directions, config=config)
        thresholds = estimated if threshold is None else thresholds
        overlap = overlap_share(estimated, float(on.mean()))
        raised = float((passes.pilot_y > passes.pilot_y.min()).mean())
        overlap = max(overlap, raised if raised > 0.5 else 0.0)
        missing = max(0.0, 1.0 - on_mass(estimated) / max(float(on.mean()), TINY))
    seen = _Seen(found, halves, report, passes, errors, overlap, missing, biased)
    status, message = _landscape_verdict(seen, config)
    return UnitsFit(
        status, message, found.directions, thresholds, errors, found.directions, [report]
    )


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What step 1 saw: directions and moments, and how the labels agree with them."""

    found: Landscape
    halves: tuple[HermiteMoments, HermiteMoments]
    report: StageReport
    passes: Passes
    errors: FloatArray
    overlap: float
    missing: float
    biased: bool

    @property
    def tilt(self) -> float:
        """Mean square shift of biased samples, 1 where single units caused every one."""
        whole = mean_of_halves(self.halves)
        return float(np.trace(whole.t2)) / whole.t0 if self.biased else 1.0

    @property
    def both_signs(self) -> bool:
        """Whether M2 has a negative eigenvalue beyond its noise."""
        least = float(np.linalg.eigvalsh(mean_of_halves(self.halves).t2)[0])
        return least < -3.0 * self.report.details["noise"] and not self.passes.base.exact


def _landscape_verdict(seen: _Seen, cfg: ThresholdConfig) -> tuple[Status, str]:
    """Judge directions that were not refined."""
    k, errors, rank = len(seen.errors), seen.errors, seen.report.details["rank"]
    one_sided = _one_sided(
        seen.found.directions,
        seen.halves,
        seen.report.details["spread"] / np.sqrt(seen.passes.samples),
    )
    if seen.found.condition > cfg.condition:
        return Status.ILL_CONDITIONED, (
            f"the units' condition number is about {seen.found.condition:.0f}, above "
            f"{cfg.condition:.0f}: too correlated for the landscape. Refinement separates "
            "them where the units are sign or ReLU."
        )
    if seen.overlap > cfg.overlap or seen.tilt > 1.0 + cfg.overlap:
        why = (
            f"two units or more are on at about {seen.overlap:.0%} of the points where any is"
            if seen.overlap > cfg.overlap
            else f"the kept points are shifted by {seen.tilt:.2f} instead of 1 in mean square"
        )
        return Status.ASSUMPTION_VIOLATED, (
            f"the thresholds are too low for the linear part to dominate: {why}. The "
            "directions are biased; refine them where the units are sign or ReLU."
        )
    if not one_sided:
        return Status.ASSUMPTION_VIOLATED, (
            "the third moment along a direction is not positive beyond its sampling error: f is "
            "even there, or not above a threshold. For even units see recover_even_layer."
        )
    if seen.missing > cfg.overlap:
        return Status.PARTIAL, (
            f"{k} directions, but units at their thresholds would be on at only "
            f"{1.0 - seen.missing:.0%} of the points where f is: some are missing. Give more "
            "samples."
        )
    if seen.both_signs:
        message = "the linear terms have both signs: the landscape needs one."
        return Status.ASSUMPTION_VIOLATED, message
    if k < rank or errors.max() > cfg.agreement:
        return Status.PARTIAL, (
            f"{k} of {rank} directions, and two halves of the samples put them up to "
            f"{errors.max():.2f} rad (standard error) apart: give more samples."
        )
    return Status.RECOVERED, (
        f"{k} directions from the landscape, sampling error at most {errors.max():.1e} rad; "
        "the bias of the units' products comes on top."
    )


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
        other = find_directions(half, len(found.directions), method=method, rng=rng, config=cfg)
        if len(other.directions) < len(found.directions):
            return np.full(len(found.directions), np.pi / 2)
        cosines = found.directions @ other.directions.T
        rows, cols = scipy.optimize.linear_sum_assignment(-cosines)
        angles.append(np.arccos(np.clip(cosines[rows, cols], -1.0, 1.0)))
    # A half is off the whole by as much as the whole is off the truth.
    return np.asarray(np.sqrt(0.5 * (angles[0] ** 2 + angles[1] ** 2)))
