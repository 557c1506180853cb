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

from unrelu._types import FloatArray, IntArray
from unrelu.core.noise import NoiseModel, Samples, estimate_noise
from unrelu.core.units import Units
from unrelu.lines.gates import (
    combine,
    design_rows,
    refit_outputs,
    select_pieces,
    solve_pieces,
)
from unrelu.lines.gradients import GradientConfig, measure_gradients, orthogonal_directions
from unrelu.lines.kinks import LineConfig, LineScan, Noise, find_kinks

__all__ = ["Survey", "SurveyConfig", "SurveyLine", "calibrate", "scan_line", "survey"]

AskPoints = Callable[[FloatArray], FloatArray]
_TINY = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True)
class SurveyConfig:
    """Choices of the survey."""

    reach: float = 1e7
    """Half-length of an unbounded line over its scale. Kinks have Cauchy tails: one of k
    lies beyond with probability about k / reach."""
    crossings: float = 0.4
    """Expected hyperplanes crossed by the steps of one chunk of directions, in a piece with
    a single chunk: larger steps are more precise, and cost repeats."""
    crossings_many: float = 1.5
    """The same where a piece has several chunks: a repeat then costs little beside them."""
    crossings_wide: float = 2.0
    wide: int = 1000
    """The same from so many units on: their errors add up, so that precision is worth more."""
    stretch: float = 3.0
    """Steps in tight pieces are up to this factor longer than that."""
    surplus: float = 1.35
    surplus_thin: float = 8.0
    """Equations per unknown, where several outputs let pieces be chosen: ``surplus`` and
    ``surplus_thin / d`` more."""
    max_choice: int = 400
    """More unknowns than this, and pieces are taken evenly instead of chosen."""
    coarse: float = 1e-11
    """Noise over the spread of answers above which wider clusters are asked as well."""
    slope_accuracy: float = 2e4
    widest: float = 0.05
    """Their half-width over the local scale: this many times the relative noise, so that
    slopes are known to a ten-thousandth of typical ones, but at most ``widest``."""
    first_limit: int = 1500
    """Queries after which a line search is looked at."""
    doubtful: float = 1e4
    """Kinks that bend their pieces by fewer deviations than this are noise, if many do."""
    doubtful_coarse: float = 60.0
    """The same for coarse answers, where real kinks rise less above the noise."""
    marginal: float = 30.0
    """A kink below this is noise even if it is the only one; the noise is then doubled."""
    escalation: float = 30.0
    """Factor on the noise when it was underestimated."""
    attempts: int = 7
    """Times that a search goes on with more noise or a higher limit."""
    fractions: tuple[float, ...] = (0.25, 0.35, 0.42, 0.5, 0.58, 0.65, 0.75)
    """Places within a piece that are compared for room."""


@dataclasses.dataclass(frozen=True)
class SurveyLine:
    """A line, or the part of it inside a box.

    Attributes
    ----------
    base, direction
        Points are ``base + t direction``; the direction has unit length, ``(d,)``.
    low, high
        Range of t.
    scale
        Below it gaps are halved, beyond it orders of magnitude; infinite on a
        bounded line.
    """

    base: FloatArray
    direction: FloatArray
    low: float
    high: float
    scale: float

    def points(self, t: FloatArray) -> FloatArray:
        """Return the points at t, ``(n, d)``."""
        return np.asarray(self.base + np.multiply.outer(t, self.direction))

    def norms(self, t: FloatArray) -> FloatArray:
        """Return the norms of the points at t."""
        along = float(self.base @ self.direction)
        rest = max(0.0, float(self.base @ self.base) - along**2)
        return np.asarray(np.sqrt((t + along) ** 2 + rest))

    def seeds(self) -> tuple[FloatArray, FloatArray]:
        """Places for the first clusters of points, and the local scale there."""
        if not math.isfinite(self.scale):
            length = self.high - self.low
            # Clusters reach a few spacings to both sides: stay inside the ends.
            fractions = np.array([0.0, 0.15, 0.35, 0.65, 0.85, 1.0]) * (1.0 - 1e-4) + 5e-5
            return self.low + length * fractions, np.full(6, 0.5 * length)
        low, high = math.asinh(self.low / self.scale), math.asinh(self.high / self.scale)
        places = (-1.5, -0.5, 0.5, 1.5) if low < 0 else (0.15, 0.5, 1.5)
        inner = [u for u in places if low + 0.1 < u < high - 0.1]
        outer = [u for u in (low, low / 2, high / 2, high) if abs(u) > 3.0 or u in (low, high)]
        u = np.unique(np.array(inner + outer))
        u[0] += 1e-4 if abs(low) < 1.0 else 0.0
        return self.scale * np.sinh(u), self.scale * np.cosh(u)


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
    """

    units: Units
    covariance: FloatArray
    scan: LineScan
    ok: bool


def calibrate(
    ask: AskPoints, line: SurveyLine, *, near: float, config: SurveyConfig | None = None
) -> tuple[NoiseModel, list[Samples]]:
    """Measure the noise along a line; returns it with the points asked.

    Where the noise is large (float32, rounded answers), the slopes of tight
    clusters say nothing; two points farther out are then asked beside each.
    """
    config = SurveyConfig() if config is None else config
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
    if relative < config.coarse:
        return noise, seeds
    wide = min(config.widest, config.slope_accuracy * relative)
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
    line_config: LineConfig | None = None,
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
            config=line_config,
        )
        typical = np.median(np.abs(scan.y - np.median(scan.y, axis=0)), axis=0)
        with np.errstate(over="ignore"):
            fine = float(np.max(noise.absolute / np.maximum(typical, _TINY))) < config.coarse
        strength = scan.significance(deviation)
        weak = strength < (config.doubtful if fine else config.doubtful_coarse)
        too_weak = np.count_nonzero(weak) > max(3, 0.3 * len(weak))
        marginal = bool((strength < config.marginal).any())
        if attempt + 1 == config.attempts or (scan.complete and not too_weak and not marginal):
            break
        seeds = scan.clusters()
        if too_weak:
            noise = noise.scaled(config.escalation)
        elif marginal:
            noise = noise.scaled(2.0)
        else:
            limit *= 8
    return _significant(scan, deviation, config.marginal), noise


def _significant(scan: LineScan, deviation: Noise, least: float) -> LineScan:
    """Drop pieces that are too short for the bends beside them to rise above the noise.

    A unit built on such a bend would be noise divided by the length of a tiny piece. They
    stay where nothing explains what was seen: at the end of a line through the corner of the
    domain, say, where the rounding of all biases shows.
    """
    while len(scan.kinks):
        strength = scan.significance(deviation)
        weakest = int(np.argmin(strength))
        if strength[weakest] >= least:
            break
        length = scan.ends - scan.starts
        scan = scan.without_piece(weakest + int(length[weakest + 1] < length[weakest]))
    return scan


def _centers(
    scan: LineScan, line: SurveyLine, noise: NoiseModel, config: SurveyConfig
) -> tuple[FloatArray, FloatArray]:
    """Choose a point in each piece, and the crowding ``sum_j 1 / |t - t_j|`` there.

    A step h across the line crosses hyperplane j with probability about
    ``h / (pi |t - t_j|)``, if the normal is as likely to point anywhere.
    """
    kinks = scan.kinks
    count = len(scan.pieces)
    if len(kinks) == 0:
        t = np.array([float(np.clip(0.0, line.low, line.high))])
        length = line.scale if math.isfinite(line.scale) else 0.25 * (line.high - line.low)
        return t, np.array([1.0 / length])
    unbounded = math.isfinite(line.scale)
    spread = max(float(kinks[-1] - kinks[0]), 1e-3 * line.scale if unbounded else 0.0)
    choices = np.empty((count, len(config.fractions)))
    fractions = np.array(config.fractions)
    if count > 2:
        choices[1:-1] = kinks[:-1, None] + np.diff(kinks)[:, None] * fractions
    if unbounded:
        # On the outer rays: from a quarter to 16 spreads beyond the last kink, in the range.
        out = spread * 2.0 ** np.linspace(-2.0, 4.0, len(fractions))
        choices[0] = kinks[0] - np.minimum(out, 0.5 * (kinks[0] - line.low))
        choices[-1] = kinks[-1] + np.minimum(out, 0.5 * (line.high - kinks[-1]))
    else:
        choices[0] = line.low + (kinks[0] - line.low) * fractions
        choices[-1] = kinks[-1] + (line.high - kinks[-1]) * fractions
    best = np.empty(count)
    crowd = np.empty(count)
    for start in range(0, count, 256):
        t = choices[start : start + 256]
        distance = np.abs(t[:, :, None] - kinks)
        crowding = (1.0 / np.maximum(distance, np.finfo(np.float64).tiny)).sum(axis=2)
        level = noise.std(line.norms(t.ravel())).max(axis=1).reshape(t.shape)
        pick = np.argmin(crowding * level, axis=1)
        rows = np.arange(len(t))
        best[start : start + 256] = t[rows, pick]
        crowd[start : start + 256] = crowding[rows, pick]
    return best, crowd


def survey(
    ask: AskPoints,
    line: SurveyLine,
    noise: NoiseModel,
    scan: LineScan,
    *,
    rng: np.random.Generator,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    slack: float | None = None,
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
    """
    config = SurveyConfig() if config is None else config
    gradient_config = GradientConfig() if gradient_config is None else gradient_config
    v = line.direction
    d = len(v)
    k = len(scan.kinks)
    m = scan.y.shape[1]
    t, crowd = _centers(scan, line, noise, config)
    directions = orthogonal_directions(v)
    many = len(directions) > gradient_config.chunk
    width = min(len(directions), gradient_config.chunk)
    expected = config.crossings_wide if k >= config.wide else config.crossings
    expected = config.crossings_many if many else expected
    steps = expected * np.pi / (max(1, width) * crowd)
    # Tight pieces are the least precise: there longer steps are worth more repeats.
    steps *= np.clip(np.median(steps) / steps, 1.0, config.stretch**2) ** 0.5
    points = line.points(t)
    values = np.array([p.predict(float(s)) for p, s in zip(scan.pieces, t, strict=True)])
    outputs, speed = _output_vectors(scan, noise, line)
    level = noise.at(points)
    reference = int(np.argmin(level.max(axis=1)))  # its value fixes the constant
    on = np.tri(k + 1, k, -1, dtype=bool)  # piece p: units 0 .. p - 1 are on
    if m == 1:
        chosen: IntArray = np.arange(k + 1)
    else:
        rough = level / steps[:, None]
        if m + k <= config.max_choice:
            # With few inputs gradients cost little beside the line search: take more of them.
            surplus = config.surplus + config.surplus_thin / d
            chosen = select_pieces(design_rows(on, outputs), rough, surplus)
        else:
            step = max(1, int(m / config.surplus / 2.0))
            chosen = np.unique(np.append(np.arange(0, k + 1, step), k))
    if slack is not None:
        values[chosen] = ask(points[chosen])
    found = measure_gradients(
        ask,
        points[chosen],
        values[chosen],
        steps[chosen],
        directions,
        noise,
        rng=rng,
        bounds=bounds,
        slack=0.0 if slack is None else slack,
        config=gradient_config,
    )
    std = np.median(found.std, axis=1) if d > 1 else level[chosen] / steps[chosen, None]
    if m == 1:
        theta, covariance = solve_pieces(found.derivatives[:, :, 0], std[:, 0], outputs)
    else:
        gradients = found.derivatives.transpose(0, 2, 1)
        jump_var = np.array(
            [a.slope_var + b.slope_var for a, b in zip(scan.pieces, scan.pieces[1:], strict=False)]
        ).reshape(k, m)
        for _ in range(2):
            theta, covariance = combine(design_rows(on[chosen], outputs), gradients, std)
            outputs = refit_outputs(
                on[chosen], gradients, std, theta[m:], scan.jumps, jump_var, speed
            )
        theta, covariance = combine(design_rows(on[chosen], outputs), gradients, std)
    weights = speed[:, None] * v + theta[m:] @ directions
    slope = scan.pieces[0].slope
    linear = np.multiply.outer(slope, v) + theta[:m] @ directions
    units = Units(
        weights=weights,
        anchors=line.points(scan.kinks),
        outputs=outputs,
        linear=linear,
        base=points[reference],
        value=values[reference],
        axes=np.tile(v, (k, 1)),
    )
    return Survey(units, covariance, scan, bool(found.ok.all()))


def _output_vectors(
    scan: LineScan, noise: NoiseModel, line: SurveyLine
) -> tuple[FloatArray, FloatArray]:
    """Return ``u_j`` of unit length, ``(m, k)``, and ``<w_j, v> > 0``, ``(k,)``."""
    if len(scan.kinks) == 0:
        return np.empty((scan.y.shape[1], 0)), np.empty(0)
    size = np.linalg.norm(scan.jumps, axis=1)
    size = np.maximum(size, np.finfo(np.float64).tiny)
    return np.asarray((scan.jumps / size[:, None]).T), size
