"""Steps 1 and 2 on samples: units refined, searched for among what is left, judged."""

from __future__ import annotations

import time

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.hermite import normal_pdf
from unrelu.core.moments import CompensatedSums, mean_moments, raw_sums
from unrelu.core.noise import RARE
from unrelu.core.units import SAME_DIRECTION
from unrelu.progress import Progress
from unrelu.result import Certificate, StageReport, Status
from unrelu.thresholds.config import TINY, ThresholdConfig
from unrelu.thresholds.fit import explain_nothing_found, mean_of_halves, search_landscape
from unrelu.thresholds.flat import bent_units, lie_apart
from unrelu.thresholds.model import UnitsFit, overlap_share, predicted_on
from unrelu.thresholds.passes import Passes, Slabs
from unrelu.thresholds.refine import (
    CLEAR,
    RISE,
    Refinement,
    estimate_thresholds,
    refine_hyperplanes,
)
from unrelu.thresholds.search import Method, count_units, find_directions
from unrelu.thresholds.twins import slab_widths, with_twins

__all__ = ["fit_union", "judge_union"]


def fit_union(
    passes: Passes,
    *,
    method: Method,
    units: int | None,
    threshold: float | None,
    rng: np.random.Generator,
    config: ThresholdConfig,
    watch: Progress,
    starts: FloatArray | None = None,
) -> UnitsFit:
    """Do steps 1 and 2: landscape, then refinement on "some unit is on".

    ``starts``, rows ``(j, n)``, replace the landscape where inputs are not Gaussian.
    """
    if starts is None:
        found, _, report = search_landscape(passes, method, units, False, rng, config, watch)
        first = found.directions
    else:
        first, report = starts, StageReport("starts", message=f"{len(starts)} given directions")
    begin = time.perf_counter()
    gaussian = starts is None
    state, dropped = _refined_on_pilot(
        passes, first, threshold, units, rng, config, watch, gaussian=gaussian
    )
    if state is None or len(state.directions) == 0:
        reason = explain_nothing_found(passes, len(first), threshold)
        return UnitsFit.empty(passes.n, Status.ASSUMPTION_VIOLATED, reason, [report])
    slabs = passes.slabs(state.directions, state.thresholds, slab_widths(state, config))
    if not passes.pilot_is_all:
        state = refine_hyperplanes(
            slabs.x,
            slabs.on,
            state.directions,
            state.thresholds,
            widths=slab_widths(state, config),
            move_thresholds=threshold is None,
            blurred=not passes.base.exact,
            config=config,
        )
    refined = StageReport(
        "refine",
        seconds=time.perf_counter() - begin,
        message=f"{len(state.directions)} units, {dropped} candidates dropped",
        details={
            "largest step per round": list(state.history),
            "unexplained": slabs.unexplained_count,
            "least jump": float(state.jumps.min()),
        },
    )
    status, message = _judged(state, slabs, passes, threshold, rng, config)
    if status is Status.PARTIAL:
        twins = with_twins(state, slabs, passes, threshold, rng, config)
        if len(twins.directions) > len(state.directions):
            state = twins
            status, message = _judged(state, slabs, passes, threshold, rng, config)
    if status is Status.RECOVERED and units not in (None, len(state.directions)):
        status = Status.PARTIAL
        message = f"{len(state.directions)} units found, {units} expected. " + message
    reports = [report, refined]
    return UnitsFit(
        status, message, state.directions, state.thresholds, state.errors, first, reports
    )


def _judged(
    state: Refinement,
    slabs: Slabs,
    passes: Passes,
    threshold: float | None,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
) -> tuple[Status, str]:
    """Judge units by what they leave unexplained, then by the labels next to them."""
    status, message = _verdict(state, slabs, passes, cfg)
    if status is not Status.RECOVERED:
        return status, message
    return _check_labels(
        state, slabs, passes, cfg, message, move_thresholds=threshold is None, rng=rng
    )


def _refined_on_pilot(
    passes: Passes,
    first: FloatArray,
    threshold: float | None,
    units: int | None,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
    watch: Progress,
    *,
    gaussian: bool,
) -> tuple[Refinement | None, int]:
    """Refine the landscape's directions, and search for more among what they leave.

    Returns the units, and how many candidates were none.
    """
    x, on = passes.pilot_x, passes.base.is_on(passes.pilot_y)
    directions, thresholds = _with_thresholds(x, on, first, threshold, cfg)
    dropped = len(first) - len(directions)
    state: Refinement | None = None
    for search in range(cfg.tries + 1):
        watch.update("refine", search, None, f"{len(directions)} units")
        if len(directions):
            state = refine_hyperplanes(
                x,
                on,
                directions,
                thresholds,
                move_thresholds=threshold is None,
                blurred=not passes.base.exact,
                config=cfg,
            )
            keep = _distinct(state)
            dropped += len(directions) - int(keep.sum())
            state = _subset(state, keep)
            directions, thresholds = state.directions, state.thresholds
        if units is not None and len(directions) >= units:
            break
        more = _search_unexplained(x, on, state, threshold, rng, cfg, gaussian=gaussian)
        if more is None:
            break
        directions = np.vstack([directions, more[0]])
        thresholds = np.append(thresholds, more[1])
    return state, dropped


def _with_thresholds(
    x: FloatArray,
    on: BoolArray,
    directions: FloatArray,
    threshold: float | None,
    cfg: ThresholdConfig,
) -> tuple[FloatArray, FloatArray]:
    """Keep the directions along which the rate of on-labels passes one half."""
    estimated, _ = estimate_thresholds(x, on, directions, config=cfg)
    kept = np.isfinite(estimated)
    if threshold is not None:
        return directions, np.full(len(directions), threshold)
    return directions[kept], estimated[kept]


def _distinct(state: Refinement) -> BoolArray:
    """Mark units across which the rate rises, each one once."""
    keep = state.jumps > RISE
    for i in np.argsort(-state.jumps):
        if keep[i]:
            same = state.directions @ state.directions[i] > SAME_DIRECTION
            apart = np.abs(state.thresholds - state.thresholds[i])
            same &= apart < np.sqrt(2.0 * (1.0 - SAME_DIRECTION))
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
    *,
    gaussian: bool,
) -> tuple[FloatArray, FloatArray] | None:
    """Look for units among points that are on though no known unit is.

    Of inputs that are not Gaussian the first order is tried as well: it needs no law, as the
    points of one missing unit lie to its side.
    """
    free: BoolArray = np.ones(len(x), dtype=bool)
    if state is not None and len(state.directions):
        heights = x @ state.directions.T - state.thresholds
        free = np.asarray((heights < -cfg.reach * state.errors).all(axis=1))
    lost = on & free
    if np.count_nonzero(lost) < cfg.points_per_unknown * x.shape[1] // 2:
        return None
    halves = []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        sums = CompensatedSums()
        points = x[part][lost[part]]
        sums.add(raw_sums(points, np.ones(len(points)), 3), len(x[part]))
        halves.append(mean_moments(sums))
    rank, _ = count_units(halves[0], halves[1], cfg.signal)
    if rank == 0 and gaussian:
        return None
    whole = mean_of_halves((halves[0], halves[1]))
    found = find_directions(whole, rank, method="joint", rng=rng, config=cfg).directions
    side = whole.t1 / max(float(np.linalg.norm(whole.t1)), TINY)
    for candidates in (found,) if gaussian else (found, side[None]):
        directions, thresholds = _with_thresholds(x[free], on[free], candidates, threshold, cfg)
        if state is not None and len(state.directions) and len(directions):
            fresh = (directions @ state.directions.T).max(axis=1) < SAME_DIRECTION
            directions, thresholds = directions[fresh], thresholds[fresh]
        if len(directions):
            return directions, thresholds
    return None


def _verdict(
    state: Refinement, slabs: Slabs, passes: Passes, cfg: ThresholdConfig
) -> tuple[Status, str]:
    """Compare what the units leave unexplained with label noise."""
    k = len(state.directions)
    # Flipped labels show on both sides alike; a missing unit only below.
    noise = slabs.overexplained_count / max(slabs.above, 1)
    stray = slabs.unexplained_count / max(slabs.below, 1)
    doubt = cfg.reach * np.sqrt(max(noise, 1.0 / max(slabs.above, 1)) / max(slabs.above, 1))
    weak = float(state.jumps.min())
    condition = float(np.linalg.cond(state.directions))
    worst = float(state.errors.max())
    if stray > noise + doubt + cfg.doubt or (
        slabs.overexplained_count == 0 and slabs.unexplained_count > cfg.tries
    ):
        return Status.PARTIAL, _missing_unit(state, slabs, passes, cfg)
    if noise > stray + doubt + np.sqrt(cfg.doubt):
        return Status.ASSUMPTION_VIOLATED, (
            f"{slabs.overexplained_count} of {slabs.above} samples above some unit are off "
            f"({noise:.1%}), but only {stray:.1%} of those below are on: f is not monotone in "
            "its units, or a direction is spurious."
        )
    if weak < RISE:
        return Status.PARTIAL, (
            f"the rate of on-labels rises only by {weak:.2f} across one unit: its direction is "
            "not settled. Give more samples."
        )
    if passes.base.exact and weak < CLEAR * (1.0 - 2.0 * noise):
        return Status.PARTIAL, (
            f"{k} units, but next to one of them the rate of on-labels rises only by {weak:.2f}: "
            "two units are almost parallel there, or the boundary is not flat. Give more samples."
        )
    if contradicted := _held_out_contradict(state, passes, max(noise, stray), cfg):
        return Status.PARTIAL, contradicted
    if worst > cfg.settled:
        return Status.PARTIAL, (
            f"{k} units, but one direction only to a standard error of {worst:.2f} rad: too few "
            "samples near its threshold."
        )
    # Hyperplanes that labels separate may be nearly parallel, as long as their angle shows: two
    # at an angle have a condition number of twice its inverse.
    shows = passes.base.exact and condition * worst <= 2.0
    if not shows and condition > cfg.condition and k <= passes.n:
        return Status.ILL_CONDITIONED, (
            f"{k} units, but their condition number is {condition:.0f}: some are almost dependent."
        )
    flipped = f"; about {noise:.1%} of the labels are flipped" if noise > 1e-3 else ""
    if not passes.base.exact:
        flipped = (
            f"; the labels are noisy, and each threshold is where f exceeds its base by "
            f"{passes.base.tolerance:.2g}"
        )
    return Status.RECOVERED, (
        f"{k} units, each direction to a standard error of at most {worst:.1e} rad{flipped}."
    )


def _missing_unit(state: Refinement, slabs: Slabs, passes: Passes, cfg: ThresholdConfig) -> str:
    """Say that samples are on where no unit is."""
    overlap = overlap_share(state.thresholds, float(passes.base.is_on(passes.pilot_y).mean()))
    low = (
        f" (two or more of the found ones are on at {overlap:.0%} of the on-points)"
        if overlap > cfg.overlap
        else ""
    )
    return (
        f"{len(state.directions)} units found, but {slabs.unexplained_count} of {slabs.below} "
        f"samples far below each of them are on: a unit is missing{low}. Give more samples, or "
        "units=."
    )


def _held_out_contradict(
    state: Refinement, passes: Passes, noise: float, cfg: ThresholdConfig
) -> str:
    """Say so if held-out labels are wrong beyond noise and the wedges that errors allow."""
    if len(passes.held_y) == 0:
        return ""
    on = passes.base.is_on(passes.held_y)
    seen = predicted_on(passes.held_x, state.directions, state.thresholds)
    wrong = float(np.mean(seen != on))
    wedges = cfg.reach * float(normal_pdf(state.thresholds) @ state.errors)
    blur = 0.0 if passes.base.exact else np.sqrt(cfg.doubt)
    expected = noise + wedges + blur
    allowed = expected + RARE * np.sqrt((expected + cfg.doubt) / len(on))
    if wrong <= allowed:
        return ""
    return (
        f"{len(state.directions)} units, but {wrong:.2%} of the held-out labels contradict them, "
        f"more than the {expected:.2%} that their standard errors allow. Give more samples; are "
        "the inputs standard Gaussian?"
    )


def _check_labels(
    state: Refinement,
    slabs: Slabs,
    passes: Passes,
    cfg: ThresholdConfig,
    message: str,
    *,
    move_thresholds: bool,
    rng: np.random.Generator,
) -> tuple[Status, str]:
    """Hold the units against the labels next to them, and those far from them."""
    k = len(state.directions)
    widths = slab_widths(state, cfg)
    flips = slabs.overexplained_count + slabs.unexplained_count
    bent = bent_units(
        slabs.x,
        slabs.on,
        state.directions,
        state.thresholds,
        widths,
        state.errors,
        flipped=(flips, slabs.above + slabs.below) if passes.base.exact else None,
        move_thresholds=move_thresholds,
        doubt=cfg.doubt,
        rng=rng,
    )
    if bent:
        unit, wrong, count = max(bent, key=lambda row: row[1])
        return Status.PARTIAL, (
            f"{k} units, but next to unit {unit + 1} no hyperplane explains the labels: {wrong} "
            f"of the {count} samples within {widths[unit]:.1e} of it contradict the best one. "
            "Another unit almost coincides with it, or the boundary is not flat. Give more "
            "samples, or query access (learn_halfspaces with an oracle)."
        )
    x, on = passes.pilot_x, passes.base.is_on(passes.pilot_y)
    heights = x @ state.directions.T - state.thresholds
    below, above = (heights <= -widths).all(axis=1), (heights >= widths).any(axis=1)
    for region, wrong_label, where, cause in (
        (below, on, "far below every unit are on", "a unit is missing"),
        (above, ~on, "far above some unit are off", "f is not monotone in its units"),
    ):
        odd = region & wrong_label
        if lie_apart(x[odd], x[region], rng, cfg.doubt):
            return Status.PARTIAL, (
                f"{k} units, but the {np.count_nonzero(odd)} of {np.count_nonzero(region)} "
                f"samples that {where} lie in certain directions, not anywhere as flipped "
                f"labels would: {cause}. Give more samples, or units=."
            )
    return Status.RECOVERED, message


def judge_union(fit: UnitsFit, passes: Passes) -> Certificate | None:
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
