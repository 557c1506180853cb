"""From samples to units: landscape, thresholds, refinement, what is left over."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.kernels.hermite import normal_pdf
from unrelu.kernels.moments import CompensatedSums, HermiteMoments, mean_moments, raw_sums
from unrelu.progress import Progress
from unrelu.result import Certificate, StageReport, Status
from unrelu.steps.threshold_facets import FacetConfig
from unrelu.steps.threshold_passes import PassConfig, Passes, Slabs
from unrelu.steps.threshold_query import QueryRefineConfig
from unrelu.steps.threshold_refine import (
    RefineConfig,
    Refinement,
    estimate_thresholds,
    refine_hyperplanes,
)
from unrelu.steps.threshold_search import (
    Landscape,
    LandscapeConfig,
    Method,
    count_units,
    find_directions,
)

__all__ = [
    "Fit",
    "ThresholdConfig",
    "fit_landscape",
    "fit_union",
    "judge_union",
    "predicted_on",
]


@dataclasses.dataclass(frozen=True)
class ThresholdConfig:
    """All constants of the threshold algorithms.

    Attributes
    ----------
    passes, landscape, refine, query_refine, facets
        Those of the steps.
    searches
        Rounds of search among unexplained points, at most.
    slab_reach
        Half-width of the slabs collected from all samples, over the standard
        error that the pilot left.
    same
        Cosine above which two refined units are one.
    excess
        Share of unexplained points, beyond label noise and sampling error, that
        counts as a missing unit. At 1e-4 a unit is missed only beyond t = 3.7.
    overlap
        Unrefined: largest tolerated share of on-points at which two units or more
        are on; the landscape's bias grows with it.
    condition
        Largest tolerated condition number of the units.
    tilt
        Biased samples: largest tolerated mean square shift of the kept points, 1
        where single units caused every one of them.
    agreement, settled
        Largest standard error in radians that counts as recovered: unrefined, and
        refined.
    wedge
        Refined: held-out labels may be wrong in the wedges between true and
        recovered hyperplanes; those are this many standard errors wide.
    certificate_queries, inside_queries
        Gaussian inputs asked at the end, and at most to find an inside point.
    quiet_rays, rays_per_update, most_facets
        Query access: the search ends when so many rays met no new facet; it
        gives up at so many facets.
    """

    passes: PassConfig = dataclasses.field(default_factory=PassConfig)
    landscape: LandscapeConfig = dataclasses.field(default_factory=LandscapeConfig)
    refine: RefineConfig = dataclasses.field(default_factory=RefineConfig)
    query_refine: QueryRefineConfig = dataclasses.field(default_factory=QueryRefineConfig)
    facets: FacetConfig = dataclasses.field(default_factory=FacetConfig)
    searches: int = 4
    slab_reach: float = 16.0
    same: float = 0.99
    excess: float = 1e-4
    overlap: float = 0.25
    condition: float = 30.0
    tilt: float = 1.3
    agreement: float = 0.2
    settled: float = 0.05
    wedge: float = 4.0
    certificate_queries: int = 2000
    inside_queries: int = 1000
    quiet_rays: int = 1500
    rays_per_update: int = 3000
    most_facets: int = 500


@dataclasses.dataclass(frozen=True)
class Fit:
    """Units as found, with the verdict."""

    status: Status
    message: str
    directions: FloatArray
    thresholds: FloatArray
    errors: FloatArray
    landscape: FloatArray
    stages: list[StageReport]

    @classmethod
    def empty(cls, n: int, status: Status, message: str, stages: Any = ()) -> Fit:
        """Nothing was found."""
        rows, numbers = np.empty((0, n)), np.empty(0)
        return cls(status, message, rows, numbers, numbers, rows, list(stages))

    def moved(self, directions: FloatArray, thresholds: FloatArray, errors: FloatArray) -> Fit:
        """Return the same units after further refinement."""
        return dataclasses.replace(
            self, directions=directions, thresholds=thresholds, errors=errors
        )


def predicted_on(x: FloatArray, directions: FloatArray, thresholds: FloatArray) -> BoolArray:
    """Whether any unit is on, ``(m,)``."""
    if len(directions) == 0:
        return np.zeros(len(x), dtype=bool)
    return np.asarray((x @ directions.T > thresholds).any(axis=1))


def _mean(halves: tuple[HermiteMoments, HermiteMoments]) -> HermiteMoments:
    return (halves[0] + halves[1]).scaled(0.5)


def _nothing_found(passes: Passes, seen: int, threshold: float | None) -> str:
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


def _landscape(
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
    if biased:
        halves = passes.moments(order, value=lambda x, y: np.ones(len(x)), step=step)
    else:
        halves = passes.moments(order, step=step)
        values = np.linalg.eigvalsh(_mean(halves).t2)
        _, noise = count_units(*halves, cfg.landscape.rank_factor)
        if passes.base.exact and values[0] < -cfg.landscape.rank_factor * noise:
            # Linear terms of both signs: whether f differs from c_0 has one sign.
            done, note = 0, "on or off"
            halves = passes.moments(
                order, value=lambda x, y: passes.base.is_on(y).astype(np.float64), step=step
            )
    rank, noise = count_units(*halves, cfg.landscape.rank_factor)
    rank = min(units, passes.n) if units is not None else rank
    found = find_directions(_mean(halves), rank, method=method, rng=rng, config=cfg.landscape)
    report = StageReport(
        "landscape",
        seconds=time.perf_counter() - begin,
        message=f"{len(found.directions)} directions from the {note}, {rank} counted",
        details={
            "rank": rank,
            "noise": noise,
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
    found, halves, report = _landscape(passes, method, units, biased, rng, cfg, watch)
    k = len(found.directions)
    if k == 0:
        reason = _nothing_found(passes, 0, threshold)
        return Fit.empty(passes.n, Status.ASSUMPTION_VIOLATED, reason, [report])
    errors = _half_errors(found, halves, method, rng, cfg)
    thresholds = np.full(k, np.nan if threshold is None else threshold)
    overlap = 0.0
    if passes.base.exact and not biased:
        on = passes.base.is_on(passes.pilot_y)
        estimated, _ = estimate_thresholds(passes.pilot_x, on, found.directions, config=cfg.refine)
        thresholds = estimated if threshold is None else thresholds
        overlap = _overlap(estimated, float(on.mean()))
    status, message = (
        Status.RECOVERED,
        (
            f"{k} directions from the landscape, sampling error at most {errors.max():.1e} rad; "
            "the bias of the units' products comes on top."
        ),
    )
    tilt = float(np.trace(_mean(halves).t2)) / _mean(halves).t0 if biased else 1.0
    negative = float(np.linalg.eigvalsh(_mean(halves).t2)[0])
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


def _overlap(thresholds: FloatArray, on: float) -> float:
    """Share of the on-points at which more than one unit is on."""
    mass = float(np.nansum(scipy.special.ndtr(-thresholds)))
    return max(0.0, 1.0 - on / mass) if mass > 0 else 0.0


def fit_union(
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
    """Do steps 1 and 2: landscape, then refinement on "some unit is on"."""
    del biased
    cfg = config
    n = passes.n
    found, _, report = _landscape(passes, method, units, False, rng, cfg, watch)
    stages = [report]
    begin = time.perf_counter()
    x, on = passes.pilot_x, passes.base.is_on(passes.pilot_y)
    directions, thresholds = _with_thresholds(x, on, found.directions, threshold, cfg)
    dropped = len(found.directions) - len(directions)
    state: Refinement | None = None
    for search in range(cfg.searches + 1):
        watch.update("refine", search, None, f"{len(directions)} units")
        if len(directions):
            state = refine_hyperplanes(
                x,
                on,
                directions,
                thresholds,
                move_thresholds=threshold is None,
                blurred=not passes.base.exact,
                config=cfg.refine,
            )
            keep = _distinct(state, cfg)
            dropped += len(directions) - int(keep.sum())
            state = _subset(state, keep)
            directions, thresholds = state.directions, state.thresholds
        if units is not None and len(directions) >= units:
            break
        more = _search_unexplained(x, on, state, threshold, rng, cfg)
        if more is None:
            break
        directions = np.vstack([directions, more[0]])
        thresholds = np.append(thresholds, more[1])
    if state is None or len(state.directions) == 0:
        reason = _nothing_found(passes, len(found.directions), threshold)
        return Fit.empty(n, Status.ASSUMPTION_VIOLATED, reason, stages)
    slabs = passes.slabs(
        state.directions, state.thresholds, np.maximum(cfg.slab_reach * state.errors, 1e-12)
    )
    if not passes.pilot_is_all:
        state = refine_hyperplanes(
            slabs.x,
            slabs.on,
            state.directions,
            state.thresholds,
            widths=cfg.slab_reach * state.errors,
            move_thresholds=threshold is None,
            blurred=not passes.base.exact,
            config=cfg.refine,
        )
    stages.append(
        StageReport(
            "refine",
            seconds=time.perf_counter() - begin,
            message=f"{len(state.directions)} units, {dropped} candidates dropped",
            details={
                "largest step per round": list(state.history),
                "unexplained": slabs.unexplained_count,
                "least jump": float(state.jumps.min()),
            },
        )
    )
    status, message = _verdict(state, slabs, passes, cfg)
    return Fit(
        status,
        message,
        state.directions,
        state.thresholds,
        state.errors,
        found.directions,
        stages,
    )


def _with_thresholds(
    x: FloatArray,
    on: BoolArray,
    directions: FloatArray,
    threshold: float | None,
    cfg: ThresholdConfig,
) -> tuple[FloatArray, FloatArray]:
    """Keep the directions along which the rate of on-labels passes one half."""
    estimated, _ = estimate_thresholds(x, on, directions, config=cfg.refine)
    kept = np.isfinite(estimated)
    if threshold is not None:
        return directions, np.full(len(directions), threshold)
    return directions[kept], estimated[kept]


def _distinct(state: Refinement, cfg: ThresholdConfig) -> BoolArray:
    """Mark units across which the rate rises, each one once."""
    keep = state.jumps > cfg.refine.jump
    for i in np.argsort(-state.jumps):
        if keep[i]:
            same = state.directions @ state.directions[i] > cfg.same
            close = np.abs(state.thresholds - state.thresholds[i]) < 10 * (1 - cfg.same)
            same &= close
            same[i] = False
            keep &= ~same
    return np.asarray(keep)


def _subset(state: Refinement, keep: BoolArray) -> Refinement:
    return Refinement(
        state.directions[keep],
        state.thresholds[keep],
        state.errors[keep],
        state.jumps[keep],
        state.widths[keep],
        state.history,
    )


def _search_unexplained(
    x: FloatArray,
    on: BoolArray,
    state: Refinement | None,
    threshold: float | None,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
) -> tuple[FloatArray, FloatArray] | None:
    """Look for units among points that are on though no known unit is."""
    free = np.ones(len(x), dtype=bool)
    if state is not None and len(state.directions):
        heights = x @ state.directions.T - state.thresholds
        free = (heights < -np.maximum(8.0 * state.errors, 1e-3)).all(axis=1)
    lost = on & free
    if np.count_nonzero(lost) < 20 * x.shape[1]:
        return None
    halves = []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        sums = CompensatedSums()
        points = x[part][lost[part]]
        sums.add(raw_sums(points, np.ones(len(points)), 3), len(x[part]))
        halves.append(mean_moments(sums))
    rank, _ = count_units(halves[0], halves[1], cfg.landscape.rank_factor)
    if rank == 0:
        return None
    found = find_directions(
        _mean((halves[0], halves[1])), rank, method="joint", rng=rng, config=cfg.landscape
    )
    directions, thresholds = _with_thresholds(x[free], on[free], found.directions, threshold, cfg)
    if state is not None and len(state.directions) and len(directions):
        fresh = (directions @ state.directions.T).max(axis=1) < cfg.same
        directions, thresholds = directions[fresh], thresholds[fresh]
    return (directions, thresholds) if len(directions) else None


def _verdict(
    state: Refinement, slabs: Slabs, passes: Passes, cfg: ThresholdConfig
) -> tuple[Status, str]:
    """Compare what the units leave unexplained with label noise."""
    k = len(state.directions)
    # Flipped labels show on both sides alike; a missing unit only below.
    noise = slabs.overexplained_count / max(slabs.above, 1)
    stray = slabs.unexplained_count / max(slabs.below, 1)
    doubt = 4.0 * np.sqrt(max(noise, 1.0 / max(slabs.above, 1)) / max(slabs.above, 1))
    weak = float(state.jumps.min())
    condition = float(np.linalg.cond(state.directions))
    worst = float(state.errors.max())
    if stray > noise + doubt + cfg.excess or (
        slabs.overexplained_count == 0 and slabs.unexplained_count > 3
    ):
        overlap = _overlap(state.thresholds, float(passes.base.is_on(passes.pilot_y).mean()))
        low = (
            f" (two or more of the found ones are on at {overlap:.0%} of the on-points)"
            if overlap > cfg.overlap
            else ""
        )
        return (
            Status.PARTIAL,
            f"{k} units found, but {slabs.unexplained_count} of {slabs.below} samples far below "
            f"each of them are on: a unit is missing{low}. Give more samples, or units=.",
        )
    if noise > stray + doubt + 0.01:
        return (
            Status.ASSUMPTION_VIOLATED,
            f"{slabs.overexplained_count} of {slabs.above} samples above some unit are off "
            f"({noise:.1%}), but only {stray:.1%} of those below are on: f is not monotone in "
            "its units, or a direction is spurious.",
        )
    if weak < cfg.refine.jump or k > passes.n * 50:
        return (
            Status.PARTIAL,
            f"the rate of on-labels rises only by {weak:.2f} across one unit: its direction is "
            "not settled. Give more samples.",
        )
    wrong = 0.0
    if len(passes.held_y):
        on = passes.base.is_on(passes.held_y)
        seen = predicted_on(passes.held_x, state.directions, state.thresholds)
        wrong = float(np.mean(seen != on))
        wedges = cfg.wedge * float(normal_pdf(state.thresholds) @ state.errors)
        blur = 0.01 if not passes.base.exact else 0.0
        expected = max(noise, stray) + wedges + blur
        allowed = expected + 5.0 * np.sqrt((expected + 1e-4) / len(on))
        if wrong > allowed:
            return (
                Status.PARTIAL,
                f"{k} units, but {wrong:.2%} of the held-out labels contradict them, more than "
                f"the {expected:.2%} that their standard errors allow. Give more samples; are "
                "the inputs standard Gaussian?",
            )
    if worst > cfg.settled:
        return (
            Status.PARTIAL,
            f"{k} units, but one direction only to a standard error of {worst:.2f} rad: too few "
            "samples near its threshold.",
        )
    if condition > cfg.condition and k <= passes.n:
        return (
            Status.ILL_CONDITIONED,
            f"{k} units, but their condition number is {condition:.0f}: some are almost "
            "dependent.",
        )
    flipped = f"; about {noise:.1%} of the labels are flipped" if noise > 1e-3 else ""
    if not passes.base.exact:
        flipped = (
            f"; the labels are noisy, and each threshold is where f exceeds its base by "
            f"{passes.base.tolerance:.2g}"
        )
    return (
        Status.RECOVERED,
        f"{k} units, each direction to a standard error of at most {worst:.1e} rad{flipped}.",
    )


def judge_union(fit: Fit, passes: Passes) -> Certificate | None:
    """Summarise the held-out labels that the units get wrong."""
    if len(passes.held_y) == 0:
        return None
    on = passes.base.is_on(passes.held_y)
    wrong = predicted_on(passes.held_x, fit.directions, fit.thresholds) != on
    return Certificate.from_deviations(
        wrong.astype(np.float64),
        scale=float(on.std()),
        tolerance=0.5,
        details={"misclassified": float(wrong.mean())},
    )
