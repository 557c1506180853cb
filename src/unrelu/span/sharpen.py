"""Sharpen a complete span: contrasts for a few weak directions, long steps for all.

Both use that answers hardly change along the null space of a nearly correct
span, so that steps there may be as long as the inputs, and what still changes
is the error of the basis.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.span.config import SpanConfig
from unrelu.span.grow import SpanSearch, complete_gradient
from unrelu.span.subspace import (
    complement,
    misfit_of_rows,
    orthonormal,
    solve_tilt,
    spectrum_of_rows,
)
from unrelu.span.values import GradientRows, measure_null_slopes

__all__ = ["calibrate_gradients", "measure_contrasts", "sharpen_span", "strengthen_span"]


def strengthen_span(
    oracle: Oracle,
    search: SpanSearch,
    rng: np.random.Generator,
    noise: FloatArray,
    *,
    step: float,
    scale: float,
    target: float,
    config: SpanConfig,
) -> None:
    """Measure the few directions again that are known worse than ``target``.

    Calibrates the noise of the gradients first, at the price of one. Does nothing
    where the weak directions are many: sharpening all of them is cheaper then.
    """
    n, rank = oracle.input_dim, search.spectrum.rank
    left = config.rows_for(rank) - rank
    if 0 < rank < n and search.angle > target / config.slack:
        left -= 1
        g = search.gradients
        level = calibrate_gradients(oracle, g, rng, config=config)
        g = dataclasses.replace(g, noise=np.hypot(level * g.noise, g.check))
        search.gradients = search.measured = g
        search.decide(config.margin)
        if search.angle > target / config.slack and oracle.output_dim > 1:
            # Several outputs: one more point adds more rows than a contrast does.
            left -= 1
            x = scale * rng.standard_normal((1, n))
            more = complete_gradient(
                oracle, (x[0], oracle(x)[0]), noise, rng, step=step, config=config
            )
            if more is None:
                search.rejected += 1
            else:
                noisy = np.hypot(level * more.noise, more.check)
                search.add(dataclasses.replace(more, noise=noisy), config.margin)
    while 0 < (rank := search.spectrum.rank) < n and left >= 2:
        if search.angle <= target / config.slack:
            return
        values = search.spectrum.singular_values[:rank]
        angles = search.angle * values[-1] / values
        if np.count_nonzero(angles > target) >= left:
            return
        count = min(int(np.count_nonzero(angles > target / config.slack)), left - 1)
        left -= count + 1
        contrasts = measure_contrasts(
            oracle, search, rng, noise, count=count, step=step, scale=scale,
            config=config,
        )  # fmt: skip
        if contrasts is None:
            search.rejected += count + 1
            continue
        search.contrasts = search.contrasts.with_more(contrasts)
        search.decide(config.margin)
        search.ranks += (count + 1) * [search.spectrum.rank]


def calibrate_gradients(
    oracle: Oracle, gradients: GradientRows, rng: np.random.Generator, *, config: SpanConfig
) -> float:
    """Measure the noise of gradients, as a multiple of the noise assumed.

    Noise is assumed from moves in which every input is rounded; a gradient moves
    one input at a time, by a known step, and is often several times better. Some
    entries of every gradient, as many as one gradient has in all, are asked for
    again by a step backwards: forward minus backward is a second difference over
    the step, whose deviation is √3 times that of an entry. The upper quartile of
    its size stands for the deviation, so that a few kinks do not matter.
    """
    count, n = gradients.rows.shape
    each = max(1, n // count)
    step = gradients.reach / config.shrink
    entries = rng.integers(n, size=(count, each))
    rows = np.repeat(np.arange(count), each)
    moved = gradients.points[rows]
    line, column = np.arange(count * each), entries.ravel()
    before = moved[line, column]
    moved[line, column] -= step[rows]
    taken = before - moved[line, column]
    answers = oracle(np.concatenate([gradients.points, moved]))
    outputs = gradients.outputs[rows]
    slope = (answers[:count][rows, outputs] - answers[count:][line, outputs]) / taken
    difference = np.abs(gradients.rows[rows, column] - slope)
    return float(np.quantile(difference / gradients.noise[rows], 0.75) / (1.15 * np.sqrt(3.0)))


def measure_contrasts(
    oracle: Oracle,
    search: SpanSearch,
    rng: np.random.Generator,
    noise: FloatArray,
    *,
    count: int,
    step: float,
    scale: float,
    config: SpanConfig,
) -> GradientRows | None:
    """Measure differences of gradients that hold the ``count`` weakest directions alone.

    A direction is weak when the unit behind it has a small output weight: every
    gradient then holds much of the others, and their errors hide it. From a
    point to another far away along the weak direction itself hardly another unit
    switches, so the difference of the two gradients is that unit alone. Its part
    outside the basis is measured over long steps, its part inside over short
    ones, whose error turns the basis to second order only. One point serves as
    the start for all directions, so that they take ``count + 1`` gradients.

    Returns None where the answers bend along the null space.
    """
    n, m = oracle.input_dim, oracle.output_dim
    basis, rank = search.basis, len(search.basis)
    reach = float(np.median(search.gradients.reach))
    long = min(scale * np.sqrt(n), float(_allowed(reach, search.angle, rank, n)))
    # The error of short steps counts by the angle: they need not be longer than this.
    short = min(step / config.shrink, 10.0 * search.angle * long)
    sigma = 2.0 * noise / long  # of the difference of two slopes
    places, promise = _promising_places(
        oracle, search, rng, sigma, count=count, short=short, scale=scale, config=config
    )
    null = complement(basis)
    for place in np.argsort(-promise)[: config.probes]:
        points = places[place]
        u = rng.standard_normal(len(null)) @ null
        ticks = long * np.array([0.0, 0.5, 1.0])[:, None] * u / np.linalg.norm(u)
        line = oracle((points[:, None] + ticks).reshape(-1, n)).reshape(-1, 3, m)
        bend = line[:, 0] - 2.0 * line[:, 1] + line[:, 2]
        if (np.abs(bend) > config.linear * noise).any():
            continue
        outside = measure_null_slopes(oracle, points, null, np.full(count + 1, long))
        inside = measure_null_slopes(oracle, points, basis, np.full(count + 1, short))
        whole = np.swapaxes(outside, 1, 2) @ null + np.swapaxes(inside, 1, 2) @ basis
        rows = (whole[1:] - whole[0]).reshape(-1, n)  # (count * m, n)
        outputs = np.tile(np.arange(m), count)
        alive = np.flatnonzero((noise[outputs] > 0) & (rows != 0).any(axis=1))
        return GradientRows(
            rows[alive],
            sigma[outputs[alive]],
            np.tile(points[0], (len(alive), 1)),
            outputs[alive],
            np.full(len(alive), long),
            np.zeros(len(alive)),
        )
    return None


def _promising_places(
    oracle: Oracle,
    search: SpanSearch,
    rng: np.random.Generator,
    sigma: FloatArray,
    *,
    count: int,
    short: float,
    scale: float,
    config: SpanConfig,
) -> tuple[FloatArray, FloatArray]:
    """Draw starts and ends for contrasts, with what each place promises.

    An end lies ``apart`` from its start along a weak direction, on the side where
    the slope changes. A contrast changes the slopes along the weak directions by
    α, and those along the others by β, whose errors are about one over their
    median singular value: α over its error, for all ends together as the
    smallest singular value, is what a place promises.

    Returns points ``(places, 1 + count, n)``, starts first, and promises.
    """
    n, m = oracle.input_dim, oracle.output_dim
    basis, rank, places = search.basis, len(search.basis), config.places
    weak, others = basis[rank - count :], basis[: rank - count]
    starts = scale * rng.standard_normal((places, 1, n))
    sides = config.margin * scale * np.concatenate([weak, -weak])
    points = np.concatenate([starts, starts + sides], axis=1)  # (places, 1 + 2 count, n)
    asked = [np.zeros((places, 1, n)), np.broadcast_to(weak, (places, count, n))]
    if len(others):
        u = rng.standard_normal((places, config.probes, len(others)))
        asked.append(u / np.linalg.norm(u, axis=-1, keepdims=True) @ others)
    directions = np.concatenate(asked, axis=1)
    answers = oracle((points[:, :, None] + short * directions[:, None]).reshape(-1, n))
    answers = answers.reshape(places, 1 + 2 * count, directions.shape[1], m)
    slopes = (answers[:, :, 1:] - answers[:, :, :1]) / short
    change = slopes[:, 1:] - slopes[:, :1]  # (places, 2 count, count + probes, m)
    alpha, beta = change[:, :, :count], np.zeros((places, 2 * count, 1, m))
    if len(others):
        beta = np.sqrt((change[:, :, count:] ** 2).mean(axis=2, keepdims=True) * len(others))
    error = np.hypot(beta / np.median(search.spectrum.singular_values[:rank]), sigma)
    gain = np.divide(alpha, error, out=np.zeros_like(alpha), where=error > 0)
    own = np.abs(gain[:, np.arange(2 * count), np.tile(np.arange(count), 2)]).max(axis=-1)
    ahead = own[:, :count] >= own[:, count:]
    side = np.arange(count) + np.where(ahead, 0, count)
    each = np.arange(places)[:, None]
    chosen = np.swapaxes(gain[each, side], 2, 3).reshape(places, count * m, count)
    promise = np.linalg.svd(chosen, compute_uv=False)[:, -1]
    return np.concatenate([starts, points[:, 1:][each, side]], axis=1), promise


def _allowed(reach: FloatArray | float, angle: float, rank: int, n: int) -> FloatArray:
    """How far a step along the null space may go where a generic one may go ``reach``.

    A generic step moves the seen coordinates by reach·√(r/n), one along the null
    space by its length times the angle; stay at a quarter of that.
    """
    return np.asarray(0.25 * reach * np.sqrt(rank / n) / max(angle, 1e-300))


def sharpen_span(
    oracle: Oracle,
    search: SpanSearch,
    noise: FloatArray,
    *,
    scale: float,
    target: float,
    config: SpanConfig,
    progress: Progress,
) -> None:
    """Sharpen a complete basis by long steps along its null space.

    Over such a step the function changes only through the basis' own error, so
    the step may be longer than a linear piece by one over that error; the
    slopes seen are solved for the tilt of the basis. Stops at the ``target``
    angle, or when a pass no longer helps.
    """
    n = oracle.input_dim
    rank = len(search.basis)
    longest = scale * np.sqrt(n)
    if search.contrasts.noise.size:  # they belong to the basis as it was
        search.contrasts = GradientRows.none(n)
        search.decide(config.margin)
    plane = search.angle
    while 0 < rank < n and search.passes < config.rounds and search.angle > target:
        g = search.gradients
        null = complement(search.basis)
        allowed = _allowed(g.reach, search.angle, rank, n)
        points, back = np.unique(g.points, axis=0, return_inverse=True)
        steps = np.full(len(points), longest)
        np.minimum.at(steps, back, allowed)
        slopes = measure_null_slopes(oracle, points, null, steps)
        outside = slopes[back, :, g.outputs]
        sigma = np.sqrt(2.0) * noise[g.outputs] / steps[back]
        inside = g.rows @ search.basis.T
        tilt, misfit = solve_tilt(inside / sigma[:, None], outside / sigma[:, None])
        search.passes += 1
        if misfit > config.trust:
            search.inconsistent = misfit
            return
        turned = search.basis + tilt @ null
        first = search.measured
        misfit = misfit_of_rows(first.rows, first.noise, orthonormal(turned))
        if misfit > config.trust:  # long steps contradict the short ones
            search.inconsistent = misfit
            return
        # From here on the rows lie in the new basis, up to the noise of the long steps.
        search.gradients = dataclasses.replace(g, rows=inside @ turned, noise=sigma)
        search.spectrum = spectrum_of_rows(
            search.gradients.rows, search.gradients.noise, margin=config.margin
        )
        # The coordinates inside keep the error of the short steps; it turns the tilt.
        second_order = plane * float(np.linalg.norm(tilt, ord=2))
        before = search.angle
        search.angle = max(search.spectrum.angle, second_order)
        search.basis = search.spectrum.basis
        progress.update("sharpen", search.passes, config.rounds, f"angle {search.angle:.1e}")
        spent = bool((steps >= longest).all()) and search.angle <= search.spectrum.angle
        if spent or search.spectrum.rank < rank or search.angle > 0.5 * before:
            return
