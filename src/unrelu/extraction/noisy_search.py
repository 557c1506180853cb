"""Where the units are: lines in a random subspace, and how their units are taken to all inputs.

On a subspace of few dimensions the target is a network of the same units with few inputs, so
that everything can be measured often. A line shows kinks, gradients beside them give
hyperplanes (:mod:`unrelu.lines.survey`); these need be right to a few percent only, since a fit
of all parameters to all answers sharpens them. Lines are read on the answers themselves: a fit
that lacks a unit smears it over the others, so that its residual has kinks everywhere.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.fit import Layered
from unrelu.core.units import Units
from unrelu.extraction.lift import Subspace, lift_units
from unrelu.extraction.noisy_answers import Answers, Seen
from unrelu.extraction.refine import RefineConfig
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.lines.domains import as_domain
from unrelu.lines.readable import readable_part
from unrelu.lines.survey import SurveyConfig, SurveyLine, calibrate, scan_line, survey

__all__ = [
    "SAME",
    "LineUnits",
    "Space",
    "Unreadable",
    "apart",
    "layered_from_units",
    "lifted",
    "recurring",
    "survey_line",
    "units_from_layered",
    "with_outputs",
]

SAME = 0.05
"""Two hyperplanes nearer than this, as unit normals with their offset over typical inputs, are
one: the survey's errors are a tenth of it, different units in eight dimensions lie far apart."""

_ROUGH = 3.0 * SAME
"""Error of a hyperplane up to which a line's word counts where another line shows it as well."""


_TINY = float(np.finfo(np.float64).tiny)


class Unreadable(Exception):
    """No line through typical inputs on which probabilities can be read."""


class Space(Subspace):
    """A subspace in coordinates of the same spread, or all of space."""

    def __init__(self, dimension: int, inputs: int, rng: np.random.Generator) -> None:
        self.whole = dimension >= inputs
        if self.whole:
            self.rows, self.across = np.eye(inputs), np.empty((0, inputs))
            self.scale = 1.0
        else:
            super().__init__(dimension, inputs, rng)

    def coordinates(self, seen: Seen) -> Seen:
        """Return answers with the coordinates of their inputs."""
        return Seen(np.asarray(seen.x @ self.rows.T / self.scale), seen.y)


def _read_line(answers: Answers, space: Space, line: SurveyLine, seen: list[Seen]) -> SurveyLine:
    """Limit a line to where every probability can be read."""
    if answers.kind == "values":
        return line

    def readable(points: FloatArray) -> BoolArray:
        got = answers.ask(space.points(points))
        seen.append(got)
        return np.asarray(np.isfinite(answers.readings(got.y)).all(axis=1))

    short = readable_part(line, answers.reach * line.scale, readable)
    if short is None or short.low == short.high:
        raise Unreadable
    return short


@dataclasses.dataclass(frozen=True)
class LineUnits:
    """Units of one line, without those whose normal the noise hides.

    Attributes
    ----------
    net
        Rows of unit length, in coordinates of the subspace; one output a reading.
    errors
        Predicted deviation of each unit normal, ``(k,)``.
    kinks
        What the line shows, units whose normal the noise hides included.
    """

    net: Layered
    errors: FloatArray
    kinks: int

    def within(self, most: float) -> LineUnits:
        """Keep units of errors below ``most``."""
        sure, (w, u), (b, c) = self.errors < most, self.net.weights, self.net.biases
        net = Layered((w[sure], u[:, sure]), (b[sure], c), self.net.skip)
        return LineUnits(net, self.errors[sure], self.kinks)


def survey_line(
    answers: Answers, space: Space, rng: np.random.Generator, seen: list[Seen]
) -> LineUnits:
    """Find the units that a random line shows.

    ``seen`` receives all that is asked.

    Raises
    ------
    Unreadable
        Where a probability cannot be read beside the line.
    """
    config = SurveyConfig()
    domain = as_domain("all", len(space.rows))
    line = domain.line(rng, config.reach)
    line = dataclasses.replace(line, base=answers.reach * line.base)
    line = _read_line(answers, space, line, seen)

    def ask(points: FloatArray) -> FloatArray:
        got = answers.ask(space.points(points))
        seen.append(got)
        readings = answers.readings(got.y)
        if not np.isfinite(readings).all():
            raise Unreadable
        return readings

    noise, seeds = calibrate(ask, line, near=10.0 * domain.scale)
    usual = noise.typical(seeds)
    if not answers.noise.absolute.any() or (usual.absolute < answers.noise.absolute).all():
        answers.noise = dataclasses.replace(usual, growth=usual.growth / space.scale)
    scan, noise = scan_line(ask, line, noise, seeds, config=config)
    found = survey(ask, line, noise, scan, rng=rng, config=config)
    m = len(found.units.outputs)
    norms = np.linalg.norm(found.units.weights, axis=1)
    variance = np.maximum(np.diagonal(found.covariance)[m:], 0.0)
    errors = np.sqrt(variance * (len(space.rows) - 1)) / np.maximum(norms, _TINY)
    sure = errors < _ROUGH
    return LineUnits(layered_from_units(found.units.kept(sure)), errors[sure], len(errors))


def layered_from_units(units: Units) -> Layered:
    """Return units as a network to fit, the affine part as skip term."""
    return Layered(
        (units.weights, units.outputs), (units.biases, units.constant), units.linear
    ).normalised()


def recurring(lines: list[LineUnits], least: int) -> tuple[Layered, FloatArray]:
    """Return units that ``least`` lines show, each as its most precise line does, and errors.

    A line on which two kinks were taken for one is wrong in all its units, and shows none that
    other lines show. So where one line is enough, it must be one most of whose units recur.
    """
    if least == 1:
        lines = [line.within(SAME) for line in lines]
    trusted = [line for line in lines if least > 1 or len(lines) == 1 or _agrees(line, lines)]
    first = (trusted or lines)[0].net
    d, m = len(first.weights[0].T), len(first.biases[1])
    most = sum(len(line.errors) for line in trusted)
    w, b, u = np.empty((most, d)), np.empty(most), np.empty((most, m))
    errors, counts, known = np.empty(most), np.zeros(most, dtype=int), 0
    for line in trusted:
        for i, error in enumerate(line.errors):
            row, bias = line.net.weights[0][i], line.net.biases[0][i]
            near = apart(row, bias, w[:known], b[:known])
            limit = np.maximum(SAME, 2.0 * np.hypot(errors[:known], error))
            same = np.flatnonzero(near < limit)
            at = same[0] if len(same) else known
            known += int(at == known)
            if counts[at] == 0 or error < errors[at]:
                w[at], b[at], u[at], errors[at] = row, bias, line.net.weights[1][:, i], error
            counts[at] += 1
    kept = counts >= least
    net = Layered((w[kept], u[kept].T), (b[kept], first.biases[1]), first.skip)
    return net, errors[kept]


def _agrees(line: LineUnits, lines: list[LineUnits]) -> bool:
    """Whether most units of a line are on one other line at least."""
    others = [other.net for other in lines if other is not line]
    w = np.concatenate([net.weights[0] for net in others])
    b = np.concatenate([net.biases[0] for net in others])
    rows = zip(line.net.weights[0], line.net.biases[0], strict=True)
    known = [bool((apart(row, bias, w, b) < SAME).any()) for row, bias in rows]
    return 2 * sum(known) > len(known)


def apart(w: FloatArray, b: float, v: FloatArray, c: FloatArray) -> FloatArray:
    """Distance of a hyperplane to others ``(n, d)``, either way round, ``(n,)``.

    Offsets count over their own size.
    """
    sign = np.where(v @ w > 0, 1.0, -1.0)
    size = np.maximum(max(1.0, abs(b)), np.abs(c))
    away = np.linalg.norm(w - sign[:, None] * v, axis=1)
    return np.asarray(np.hypot(away, (b - sign * c) / size))


def with_outputs(
    net: Layered, x: FloatArray, z: FloatArray, rounds: int = 4
) -> tuple[Layered, float]:
    """Solve for outputs and affine part by least squares, hyperplanes given.

    Returns the network and its typical error, over the spread of the readings.

    ``z`` are readings ``(n, m)``; rows with NaN are left out, and those that stand out count
    less in each further round (beside hyperplanes that are a little off).
    """
    readable: BoolArray = np.asarray(np.isfinite(z).all(axis=1))
    x, z = x[readable], z[readable]
    k, d = net.weights[0].shape
    hidden = np.maximum(x @ net.weights[0].T + net.biases[0], 0.0)
    features = np.concatenate([hidden, x, np.ones((len(x), 1))], axis=1)
    weight = np.ones((len(x), 1))
    for _ in range(rounds):
        solution, *_ = np.linalg.lstsq(features * weight, z * weight, rcond=None)
        miss = np.linalg.norm(z - features @ solution, axis=1, keepdims=True)
        usual = max(float(np.median(miss)), float(np.finfo(np.float64).tiny))
        weight = 1.0 / np.sqrt(1.0 + (miss / (4.0 * usual)) ** 2)
    solved = Layered(
        (net.weights[0], solution[:k].T),
        (net.biases[0], solution[-1]),
        solution[k : k + d].T,
    )
    spread = float(np.linalg.norm(z.std(axis=0)))
    return solved, usual / max(spread, _TINY)


def units_from_layered(net: Layered) -> Units:
    """Return a network of one hidden layer with skip term as units."""
    net = net.normalised()
    assert net.skip is not None
    w, b = net.weights[0], net.biases[0]
    base = np.zeros(w.shape[1])
    return Units(
        weights=w,
        anchors=-b[:, None] * w,  # rows have length one
        outputs=net.weights[1],
        linear=net.skip,
        base=base,
        value=net(base[None, :])[0],
        axes=w,
    )


def lifted(
    answers: Answers, net: Layered, space: Space, rng: np.random.Generator, seen: list[Seen]
) -> tuple[Layered, BoolArray] | None:
    """Return the network on all inputs, from derivatives across the subspace at roomy points.

    ``net`` has one output a reading. Beside it: which units' normals these determine, ``(k,)``.
    A unit that none of the points switches cannot be told from the affine part. None where there
    is no room for derivatives.
    """

    def ask(points: FloatArray) -> FloatArray:
        got = answers.ask(points)
        seen.append(got)
        return answers.readings(got.y)

    units = units_from_layered(net)
    size = len(units.outputs) + units.count
    refine = RefineConfig()
    if answers.kind != "values":  # farther out probabilities underflow
        refine = dataclasses.replace(refine, outward=TwoLayerConfig.log_odds_outward)
    found = lift_units(
        ask,
        units,
        np.zeros((size, size)),
        answers.noise.widened(answers.reading_error, 0.0),
        space,
        lambda n: np.asarray(rng.standard_normal((n, len(space.rows)))),
        rng=rng,
        refine=refine,
        readable=answers.well_inside,
    )
    if found is None:
        return None
    above, covariance = found
    variance = np.diagonal(covariance)[len(above.outputs) :] * len(space.across)
    sure = np.sqrt(np.maximum(variance, 0.0)) < SAME * np.linalg.norm(above.weights, axis=1)
    return layered_from_units(above), np.asarray(sure)
