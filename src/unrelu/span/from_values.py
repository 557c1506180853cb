"""Spans from values: chosen points, or points written down in advance."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.result import Certificate, Status
from unrelu.span.grow import SpanSearch, add_gradient, confirm_span, grow_span
from unrelu.span.hidden_noise import remove_span
from unrelu.span.plan import SpanPlan, gradients_from_replies, noise_from_replies
from unrelu.span.run import SpanResult, SpanRun, unseen_share
from unrelu.span.sharpen import sharpen_span, strengthen_span
from unrelu.span.values import estimate_noise, find_step, random_directions

__all__ = ["conclude_plan", "read_blocks", "span_from_plan", "span_from_values"]


def span_from_values(
    run: SpanRun, rank: int | None, tolerance: float, certify: bool
) -> SpanResult:
    """Algorithm 1 with chosen points: noise, step, grow, strengthen, sharpen, certify."""
    oracle, rng, config, scale = run.oracle, run.rng, run.config, run.scale
    run.search = search = SpanSearch.start(oracle.input_dim)
    with run.stage("noise") as details:
        noise = estimate_noise(oracle, rng, scale=scale, config=config)
        details["noise"] = run.noise = float(noise.max())
        if not noise.any():
            return _nothing_moves(run, scale)
        step = find_step(oracle, rng, noise, scale=scale, config=config)
        details["step"] = step
    if step == 0.0:
        return run.result(
            Status.NUMERICAL_FAILURE,
            "at no step down to 1e-8 do answers look linear within their noise of "
            f"{noise.max():.1e}: the target may be discontinuous or answer at random; "
            "for labels pass answers='labels'",
        )
    _grow(run, search, noise, step, rank)
    if search.spectrum.rank == 0:
        return run.result(
            Status.ASSUMPTION_VIOLATED if search.finished else Status.NUMERICAL_FAILURE,
            f"no gradient stands out of the noise of {noise.max():.1e} at "
            f"{search.quiet + search.undecided + search.rejected} Gaussian points: the target "
            "is constant there, or its answers are too coarse; try a larger scale",
        )
    for _ in range(config.rounds):
        _sharpen(run, search, noise, step, rank, tolerance)
        if not certify:
            break
        contradicting = _certify_values(run, search, noise, scale)
        if not _led_on(run, search, contradicting, noise, step, rank):
            break
    complete = search.finished or search.spectrum.rank in (rank, oracle.input_dim)
    unseen = unseen_share(search.quiet, "gradient") if rank is None else ""
    return run.conclude(search, rank, complete, unseen or f"the rank of {rank} was given")


def _grow(
    run: SpanRun, search: SpanSearch, noise: FloatArray, step: float, rank: int | None
) -> None:
    """Grow the span until every direction of it returns when asked for again."""
    for _ in range(run.config.rounds):
        search.quiet = 0
        with run.stage("gradients") as details:
            grow_span(
                run.oracle, search, run.rng, noise, step=step, scale=run.scale,
                limit=run.oracle.input_dim if rank is None else rank,
                config=run.config, progress=run.progress,
            )  # fmt: skip
            details |= {"gradients": len(search.ranks), "rejected": search.rejected}
        with run.stage("confirm"):
            if confirm_span(run.oracle, search, config=run.config):
                return
    search.finished = False


def _sharpen(
    run: SpanRun,
    search: SpanSearch,
    noise: FloatArray,
    step: float,
    rank: int | None,
    tolerance: float,
) -> None:
    """Strengthen weak directions, and sharpen the basis where its angle is above a tolerance."""
    oracle, config, scale = run.oracle, run.config, run.scale
    with run.stage("strengthen"):
        strengthen_span(
            oracle, search, run.rng, noise, step=step, scale=scale, target=tolerance, config=config
        )
    if search.angle > tolerance:
        with run.stage("sharpen") as details:
            sharpen_span(
                oracle, search, noise, scale=scale, target=tolerance, config=config,
                progress=run.progress,
            )  # fmt: skip
            details |= {"passes": search.passes, "misfit": search.inconsistent}
        _grow(run, search, noise, step, rank)


def _led_on(
    run: SpanRun,
    search: SpanSearch,
    contradicting: FloatArray,
    noise: FloatArray,
    step: float,
    rank: int | None,
) -> bool:
    """Grow the span where a certificate failed; tell whether it grew.

    Between two inputs ``(p, 2, n)`` of one projection that are answered differently some
    gradient leaves the span.
    """
    limit = run.oracle.input_dim if rank is None else rank
    if len(contradicting) == 0 or search.spectrum.rank >= limit:
        return False
    shorter = [step * run.config.shrink**-power for power in (0, 2, 4)]  # thin regions
    with run.stage("gradients"):
        grew = any(
            add_gradient(
                run.oracle, search, None, (x, other), noise, run.rng, step=size, config=run.config
            )
            for size in shorter
            for x, other in contradicting[: run.config.probes]
        )
    if grew:  # what was held out has been searched with
        run.run.target.meter.rebook("certificate", "gradients", 2 * run.config.held_out)
        _grow(run, search, noise, step, rank)
    return grew


def _nothing_moves(run: SpanRun, scale: float) -> SpanResult:
    x = scale * run.rng.standard_normal((run.config.places, run.oracle.input_dim))
    # One batch: alone, the same row may differ in its last bits.
    if np.ptp(run.oracle(x), axis=0).any():
        message = (
            "answers differ between distant inputs but never move over short ones: they look "
            "like labels; pass answers='labels'"
        )
    else:
        message = "the target answers the same everywhere; try a larger scale"
    return run.result(Status.ASSUMPTION_VIOLATED, message)


def _certify_values(
    run: SpanRun, search: SpanSearch, noise: FloatArray, scale: float
) -> FloatArray:
    """Replace what lies outside the span by noise on held-out inputs.

    Returns the pairs of inputs that contradict the span, ``(p, 2, n)``, the worst first.
    """
    n, count = run.oracle.input_dim, run.config.held_out
    with run.stage("certificate"):
        x = scale * run.rng.standard_normal((count, n))
        other = x
        if len(search.basis) < n:
            u = random_directions(run.rng, (count, n), search.basis)
            other = x - remove_span(x, search.basis)
            other = other + np.linalg.norm(x, axis=1, keepdims=True) * u
        answers = run.oracle(x)
        deviations = answers - run.oracle(other)
    g = search.gradients
    length = float(np.linalg.norm(g.rows, axis=1).max())
    # Input and noise both move off the span by about the norm of an input.
    leak = 2.0 * scale * np.sqrt(n) * length * search.angle / np.sqrt(max(1, n - len(g.rows)))
    tolerance = run.config.trust * (float(noise.max()) + float(leak))
    run.certificate = Certificate.from_deviations(
        deviations,
        scale=float(answers.std()),
        tolerance=tolerance,
        details={"angle": search.angle, "gap": search.spectrum.gap},
    )
    largest = np.abs(deviations).max(axis=1)
    order = np.argsort(-largest)[: np.count_nonzero(largest > tolerance)]
    return np.stack([x[order], other[order]], axis=1)


# ------------------------------------------------------------- written in advance


def span_from_plan(
    run: SpanRun, rank: int | None, gradients: int | None, certify: bool
) -> SpanResult:
    """Algorithm 1 as written: every query is fixed before the first is asked."""
    oracle = run.oracle
    if gradients is None:
        if rank is None:
            raise InvalidInput("adaptive=False needs rank or gradients: it can't wait and see")
        gradients = run.config.rows_for(math.ceil(rank / oracle.output_dim))
    plan = SpanPlan.draw(oracle.input_dim, gradients=gradients, scale=run.scale, rng=run.rng)
    replies = np.empty((gradients, plan.block, oracle.output_dim))
    with run.stage("gradients"):
        for i in range(gradients):
            replies[i] = oracle(plan.points(i))
            run.progress.update("gradients", i + 1, gradients)
    search, noise, quiet = read_blocks(run, plan.points, replies)
    if certify and search.spectrum.rank:
        _certify_values(run, search, noise, run.scale)
    return conclude_plan(run, search, rank, quiet)


def read_blocks(
    run: SpanRun, points: Callable[[int], FloatArray], replies: FloatArray
) -> tuple[SpanSearch, FloatArray, int]:
    """Turn replies into a search; also return how many last gradients added nothing."""
    n = run.oracle.input_dim
    run.search = search = SpanSearch.start(n)
    noise = noise_from_replies(replies, n)
    run.noise = float(noise.max())
    margin, quiet = run.config.margin, 0
    for i in range(len(replies)):
        found = gradients_from_replies(points(i), replies[i], noise)
        if found is None:
            search.rejected += 1
        elif len(found.rows) and search.add(found, margin):
            quiet = 0
        else:
            quiet += 1
    return search, noise, quiet


def conclude_plan(run: SpanRun, search: SpanSearch, rank: int | None, quiet: int) -> SpanResult:
    """Return what the gradients of a plan say, of which the last ``quiet`` added nothing."""
    if search.spectrum.rank == 0:
        return run.result(
            Status.NUMERICAL_FAILURE if search.rejected else Status.ASSUMPTION_VIOLATED,
            f"no gradient stands out of the noise ({search.rejected} blocks were not linear "
            "over the planned steps); try another step or scale",
        )
    complete = quiet >= run.config.probes or search.spectrum.rank in (
        rank,
        run.oracle.input_dim,
    )
    unseen = unseen_share(quiet, "gradient") if rank is None else ""
    return run.conclude(search, rank, complete, unseen or f"the rank of {rank} was given")
