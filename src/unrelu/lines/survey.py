"""From one line to units: kinks, gradients of the pieces, hyperplanes.

Every hyperplane that a line crosses shows as a kink. The gradient on the piece
after kink i is also the gradient before kink i + 1, so the gradients of all
pieces give all hyperplanes: k + 1 gradients for k units with one output. With
m outputs each gradient says m times as much, and about k / m pieces suffice;
the roomiest are taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.memory import BLOCK
from unrelu.core.noise import AGREES, NoiseModel, Samples, cluster_of, estimate_noise
from unrelu.core.run import AGAIN
from unrelu.core.units import Units
from unrelu.lines.chain import INFORMATIVE
from unrelu.lines.gates import (
    DENSE,
    combine,
    design_rows,
    refit_outputs,
    select_pieces,
    solve_pieces,
    split_gaps,
)
from unrelu.lines.gradients import GradientConfig, measure_gradients, orthogonal_directions
from unrelu.lines.kinks import COMPANION, LineScan, Noise, find_kinks
from unrelu.lines.line import SurveyLine

__all__ = [
    "Survey",
    "SurveyConfig",
    "SurveyLine",
    "calibrate",
    "scan_line",
    "survey",
    "variation",
]

AskPoints = Callable[[FloatArray], FloatArray]
_TINY = float(np.finfo(np.float64).tiny)
MARGINAL = 2.0 * AGREES
"""Deviations below which a bend is noise even if it is the only one: within what two lines that
agree may differ by."""


@dataclasses.dataclass(frozen=True)
class SurveyConfig:
    """Choices of the survey."""

    reach: float = 1e7
    """Half-length of an unbounded line over its scale. Kinks have Cauchy tails: one of k
    lies beyond with probability about k / reach."""
    surplus: float = 1.35
    """Equations per unknown, where several outputs let pieces be chosen."""
    first_limit: int = 1500
    """Queries after which a line search is looked at."""
    attempts: int = AGAIN
    """Times that a search goes on with more noise or a higher limit."""


@dataclasses.dataclass(frozen=True)
class Survey:
    """What one line gave.

    Attributes
    ----------
    units
        One per kink, oriented so that they are off at the reference piece.
    covariance
        Of ``(A q, <w_1, q>, ...)`` for any direction q across the line.
    scan
        The line search.
    ok
        Whether every gradient passed its checks.
    shared
        Of a residual: what errors of the units subtracted add, ``(m + k, m + known)``.
    """

    units: Units
    covariance: FloatArray
    scan: LineScan
    ok: bool
    shared: FloatArray | None = None


def calibrate(
    ask: AskPoints, line: SurveyLine, *, near: float
) -> tuple[NoiseModel, list[Samples]]:
    """Measure the noise along a line; returns it with the points asked.

    Where the noise is large (float32, rounded answers), the slopes of tight
    clusters say nothing; two points farther out are then asked beside each.
    """
    positions, scales = line.seeds()

    def ask_line(t: FloatArray) -> FloatArray:
        return ask(line.points(t))

    noise, seeds = estimate_noise(ask_line, line.norms, positions, scales, near=near)
    inner = line.norms(positions) <= max(near, float(line.norms(positions).min()))
    level = noise.std(line.norms(positions[inner])).max(axis=0)
    spread = np.array([y.std(axis=0) for (_, y), i in zip(seeds, inner, strict=True) if i])
    typical = np.array([y.mean(axis=0) for (_, y), i in zip(seeds, inner, strict=True) if i])
    height = np.maximum(typical.std(axis=0), spread.max(axis=0))
    with np.errstate(over="ignore"):  # infinite where the answers never change
        relative = float(np.max(level / np.maximum(height, np.finfo(np.float64).tiny)))
    # As wide as slopes need that may judge an answer, where clusters are not.
    wide = min(COMPANION, relative / INFORMATIVE)
    if wide <= float(np.ptp(cluster_of(np.zeros(1), np.ones(1)))):
        return noise, seeds
    beside = np.concatenate([positions - wide * scales, positions + wide * scales])
    beside = beside[(beside >= line.low) & (beside <= line.high)]
    extra = ask_line(beside)
    return noise, seeds + [(beside[[i]], extra[[i]]) for i in range(len(beside))]


def scan_line(
    ask: AskPoints,
    line: SurveyLine,
    noise: NoiseModel,
    seeds: list[Samples],
    *,
    config: SurveyConfig | None = None,
) -> tuple[LineScan, NoiseModel]:
    """Find the kinks of a function on a line.

    Where the noise was underestimated, it shows as ever more kinks that are
    hardly above it. So the search runs under a limit of queries; at the limit
    it goes on with more noise, or, if the kinks are real, with a higher limit.

    Returns
    -------
    scan, noise
        The noise is the one that the search ended with.
    """
    config = SurveyConfig() if config is None else config
    limit = config.first_limit
    for attempt in range(config.attempts):
        model = noise

        def deviation(t: FloatArray, model: NoiseModel = model) -> FloatArray:
            return model.std(line.norms(t))

        scan = find_kinks(
            lambda t: ask(line.points(t)),
            deviation,
            seeds,
            scale=line.scale,
            max_queries=limit,
        )
        strength = scan.significance(deviation)
        too_weak = _mostly_noise(strength, scan, noise)
        marginal = bool((strength < MARGINAL).any())
        if attempt + 1 == config.attempts or (scan.complete and not too_weak and not marginal):
            break
        seeds = scan.clusters()
        if too_weak:
            noise = noise.scaled(MARGINAL)
        elif marginal:
            noise = noise.scaled(2.0)
        else:
            limit *= 8
    return _significant(scan, deviation), noise


def _mostly_noise(strength: FloatArray, scan: LineScan, noise: NoiseModel) -> bool:
    """Whether many kinks bend their pieces by fewer deviations than real ones do.

    These keep a quarter, at least, of the digits that the answers have.
    """
    typical = np.median(np.abs(scan.y - np.median(scan.y, axis=0)), axis=0)
    with np.errstate(over="ignore"):
        digits = float(np.max(noise.absolute / np.maximum(typical, _TINY)))
    weak = strength < max(MARGINAL, digits**-0.25)
    return bool(np.count_nonzero(weak) > max(3, 0.3 * len(weak)))


def _significant(scan: LineScan, deviation: Noise) -> LineScan:
    """Drop pieces that are too short for the bends beside them to rise above the noise.

    A unit built on such a bend would be noise divided by the length of a tiny piece. They
    stay where nothing explains what was seen: at the end of a line through the corner of the
    domain, say, where the rounding of all biases shows.
    """
    while len(scan.kinks):
        strength = scan.significance(deviation)
        weakest = int(np.argmin(strength))
        if strength[weakest] >= MARGINAL:
            break
        length = scan.ends - scan.starts
        scan = scan.without_piece(weakest + int(length[weakest + 1] < length[weakest]))
    return scan


def _centers(scan: LineScan, line: SurveyLine, noise: NoiseModel) -> tuple[FloatArray, FloatArray]:
    """Choose a point in each piece, and the crowding ``sum_j 1 / |t - t_j|`` there.

    A step h across the line crosses hyperplane j with probability about
    ``h / (pi |t - t_j|)``, if the normal is as likely to point anywhere.
    """
    kinks = scan.kinks
    if len(kinks) == 0:
        t = np.array([float(np.clip(0.0, line.low, line.high))])
        length = line.scale if math.isfinite(line.scale) else 0.25 * (line.high - line.low)
        return t, np.array([1.0 / length])
    choices = _places(kinks, line)
    best, crowd = np.empty(len(choices)), np.empty(len(choices))
    rows = max(1, BLOCK // (choices.shape[1] * len(kinks)))
    for start in range(0, len(choices), rows):
        t = choices[start : start + rows]
        distance = np.abs(t[:, :, None] - kinks)
        crowding = (1.0 / np.maximum(distance, _TINY)).sum(axis=2)
        level = noise.std(line.norms(t.ravel())).max(axis=1).reshape(t.shape)
        pick = np.argmin(crowding * level, axis=1)
        each = np.arange(len(t))
        best[start : start + rows] = t[each, pick]
        crowd[start : start + rows] = crowding[each, pick]
    return best, crowd


def _places(kinks: FloatArray, line: SurveyLine) -> FloatArray:
    """Return places in each piece that are compared for room, ``(k + 1, places)``.

    They lie in the middle half of a piece; on outer rays, from a quarter to 16 times as far
    beyond the last kink as kinks lie apart, or from the base, within the range.
    """
    fractions = np.linspace(0.25, 0.75, 7)
    ends = np.concatenate([[line.low], kinks, [line.high]])
    choices = ends[:-1, None] + np.diff(ends)[:, None] * fractions
    if math.isfinite(line.scale):
        spread = max(float(kinks[-1] - kinks[0]), float(np.abs(kinks).max()), line.scale)
        out = spread * 2.0 ** np.linspace(-2.0, 4.0, len(fractions))
        choices[0] = kinks[0] - np.minimum(out, 0.5 * (kinks[0] - line.low))
        choices[-1] = kinks[-1] + np.minimum(out, 0.5 * (line.high - kinks[-1]))
    return choices


def survey(
    ask: AskPoints,
    line: SurveyLine,
    noise: NoiseModel,
    scan: LineScan,
    *,
    rng: np.random.Generator,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    slack: float | None = None,
    known: Units | None = None,
    rounding: Callable[[FloatArray], FloatArray] | None = None,
    config: SurveyConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> Survey:
    """Measure the gradients beside the kinks of a scanned line, and build the units.

    Parameters
    ----------
    ask
        The function, ``(n, d) -> (n, m)``.
    line, noise, scan
        Where the kinks are; see :func:`scan_line`.
    bounds
        A box that must not be left.
    slack
        Given for a residual: bends of slope of this size are the errors of what
        was subtracted. Values are then asked again, as the scan's may be off.
    known
        The units that were subtracted: those that switch between two measured pieces leave
        their errors to the units found there.
    rounding
        What answers ``(n, m)`` lack of digits beside the noise, ``(n, m)``.
    """
    config = SurveyConfig() if config is None else config
    gradient_config = GradientConfig() if gradient_config is None else gradient_config
    v, m = line.direction, scan.y.shape[1]
    t, crowd = _centers(scan, line, noise)
    points = line.points(t)
    values = np.array([p.predict(float(s)) for p, s in zip(scan.pieces, t, strict=True)])
    level = noise.at(points)
    if rounding is not None:
        level = level + rounding(values if known is None else values + known(points))
    directions = orthogonal_directions(v)
    # Every other chunk crosses a hyperplane, on average: larger steps are more precise, and
    # cost repeats. Beside several chunks these cost little: two are crossed.
    width = max(1, min(len(directions), gradient_config.chunk))
    steps = (2.0 if len(directions) > width else 0.5) * np.pi / (width * crowd)
    outputs, speed = _output_vectors(scan)
    chosen = _chosen_pieces(outputs, level / steps[:, None], config.surplus)
    if slack is not None:
        values[chosen] = ask(points[chosen])
    found = measure_gradients(
        ask, points[chosen], values[chosen], steps[chosen], directions, noise,
        rng=rng, bounds=bounds, slack=0.0 if slack is None else slack, config=gradient_config,
    )  # fmt: skip
    std = level[chosen] / steps[chosen, None]
    if len(directions):
        std = np.median(found.std, axis=1) * level[chosen] / noise.at(points[chosen])
    theta, covariance, outputs = _solved(scan, found.derivatives, std, outputs, speed, chosen)
    reference = int(np.argmin(level.max(axis=1)))  # its value fixes the constant
    units = Units(
        weights=speed[:, None] * v + theta[m:] @ directions,
        anchors=line.points(scan.kinks),
        outputs=outputs,
        linear=np.multiply.outer(scan.pieces[0].slope, v) + theta[:m] @ directions,
        base=points[reference],
        value=values[reference],
        axes=np.tile(v, (len(scan.kinks), 1)),
    )
    shared = None
    if known is not None:
        left = design_rows(known.gates(points[chosen]), known.outputs)
        shared = -_least_squares(left, std, outputs, chosen)[0]
    return Survey(units, covariance, scan, bool(found.ok.all()), shared)


def _chosen_pieces(outputs: FloatArray, rough: FloatArray, surplus: float) -> IntArray:
    """Choose the pieces whose gradients are measured: with one output, all.

    ``rough`` is the deviation that a gradient would have, ``(k + 1, m)``.
    """
    m, k = outputs.shape
    if m == 1:
        return np.arange(k + 1)
    if m + k <= DENSE:
        chosen = select_pieces(design_rows(_gates(k), outputs), rough, surplus)
        return split_gaps(chosen, outputs, rough)
    step = max(1, int(m / surplus / 2.0))
    return np.unique(np.append(np.arange(0, k + 1, step), k))


def _gates(k: int) -> BoolArray:
    """Return which units are on in each piece, ``(k + 1, k)``: in piece p, 0 to p - 1."""
    return np.tri(k + 1, k, -1, dtype=bool)


def _solved(
    scan: LineScan,
    derivatives: FloatArray,
    std: FloatArray,
    outputs: FloatArray,
    speed: FloatArray,
    chosen: IntArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return ``(A q, <w_1, q>, ...)`` for all directions q, their covariance, and outputs."""
    m, k = outputs.shape
    on, gradients = _gates(k)[chosen], derivatives.transpose(0, 2, 1)
    if m == 1:
        return *_least_squares(gradients, std, outputs, chosen), outputs
    jump_var = np.array(
        [a.slope_var + b.slope_var for a, b in zip(scan.pieces, scan.pieces[1:], strict=False)]
    ).reshape(k, m)
    for _ in range(2):
        theta, _ = combine(design_rows(on, outputs), gradients, std)
        outputs = refit_outputs(on, gradients, std, theta[m:], scan.jumps, jump_var, speed)
    return *_least_squares(gradients, std, outputs, chosen), outputs


def _least_squares(
    gradients: FloatArray, std: FloatArray, outputs: FloatArray, chosen: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return ``(A, w_1, ...)`` from gradients ``(p, m, n)`` on chosen pieces, and covariance."""
    m, k = outputs.shape
    if m == 1:
        return solve_pieces(gradients[:, 0], std[:, 0], outputs)
    return combine(design_rows(_gates(k)[chosen], outputs), gradients, std)


def _output_vectors(scan: LineScan) -> tuple[FloatArray, FloatArray]:
    """Return ``u_j`` of unit length, ``(m, k)``, and ``<w_j, v> > 0``, ``(k,)``."""
    if len(scan.kinks) == 0:
        return np.empty((scan.y.shape[1], 0)), np.empty(0)
    size = np.linalg.norm(scan.jumps, axis=1)
    size = np.maximum(size, np.finfo(np.float64).tiny)
    return np.asarray((scan.jumps / size[:, None]).T), size


def variation(line: SurveyLine, seeds: list[Samples], typical: float) -> float:
    """Return how much answers differ at a line's inputs that are no longer than ``typical``.

    Their size where it has no two places there. What all have in common says nothing.
    """
    places = sorted(seeds, key=lambda seed: float(np.abs(seed[0]).min()))
    near = [y for t, y in places if float(line.norms(t).min()) <= typical]
    if len(near) < 2:
        return float(np.abs(places[0][1]).max())
    return float(np.ptp([y.mean(axis=0) for y in near], axis=0).max())
