"""What an extraction of any depth has asked, and what it knows."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.extraction.deep_answers import Saturated, usable_line
from unrelu.extraction.deep_layers import floored
from unrelu.extraction.deep_numbers import FAINT
from unrelu.extraction.deep_session import Session
from unrelu.extraction.peel_few import along_an_axis, where_few_are_on
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_lines import (
    Crossings,
    Pieces,
    Traced,
    joined,
    known_kinks,
    measure_pieces,
)
from unrelu.extraction.peel_rows import Row
from unrelu.extraction.peel_top import Closed
from unrelu.extraction.prefix import Prefix
from unrelu.lines.survey import SurveyLine, calibrate, scan_line
from unrelu.networks import ReLUNetwork
from unrelu.result import Certificate

__all__ = ["Peeling"]

REACH = 100.0
"""Half-length of a line over the length of typical inputs: of the surfaces that a line crosses
one in about so many lies beyond, and the farther a crossing the less precise a bias."""
STARTS = (0.5, 1.0, 2.0, 4.0)
EACH = 25
"""Inputs of so many times the typical length, and how many of each, from which places on
surfaces are looked for; nothing is asked at them."""
HUNTS, NEAREST = 2, 8
"""Ways traced in a round from inputs that fit to inputs that do not, and among how many of the
nearest ones each of them starts."""
MOST_LINES = 40
"""Lines that are traced without an input that does not fit, at most, and rounds; the price ends
a run before, as a rule."""
STEP = 0.35
"""How far a line beside another is from it: neighbours share most states of units."""


class Peeling:
    """All that was asked, and the layers as far as they are known.

    Attributes
    ----------
    traced, gradients
        Lines, and gradients asked elsewhere.
    layers
        From the first; the last may be incomplete.
    prefix
        The layers below the one that is being looked for.
    deepest
        Everything known, for kinks that need no gradients.
    read
        Rows that came otherwise than by crossings, by the number of layers below: of the first
        layer from an earlier attempt, of the second with the signs of the first.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.traced: list[Traced] = []
        self.gradients: list[Pieces] = []
        self.layers: list[Layer] = []
        self.prefix = self.deepest = Prefix(session.domain.dimension)
        self.read: dict[int, list[Row]] = {}
        self.network: ReLUNetwork | None = None
        self.certificate: Certificate | None = None

    def suppose(self, weights: FloatArray, biases: FloatArray) -> None:
        """Take rows for the first layer's until they are tested: gradients cost less then."""
        theta = np.column_stack([weights, biases])
        theta /= np.linalg.norm(weights, axis=1, keepdims=True)
        known = np.ones(theta.shape[1], dtype=bool)
        feet = -theta[:, -1:] * theta[:, :-1]  # the points nearest to the origin
        error = np.full(theta.shape[1], FAINT)
        self.read[0] = [Row(t, known, error, 1, x[None]) for t, x in zip(theta, feet, strict=True)]
        layer = self.layer(0)
        layer.rows = list(self.read[0])
        layer.orient(np.ones(len(theta)))
        self.prefix = self.deepest = layer.over(self.prefix)
        layer.rows, layer.signs = [], np.empty(0)

    def trace_line(self) -> Traced | None:
        """Trace a line through typical inputs, or, twice as often, one where few units are on."""
        if self.prefix.depth and len(self.traced) % 3:
            typical = self.session.domain.draw(4 * EACH, self.session.rng)
            ends = where_few_are_on(self.prefix, typical, self.session.rng)[:2]
            if len(ends) == 2:
                return self.trace_between(*ends)
        return self.trace(self.session.domain.line(self.session.rng, REACH))

    def trace_axes(self) -> None:
        """Trace lines on which one unit of the last known layer counts after the other.

        They cross units above it that hardly any other line does.
        """
        for unit in range(self.prefix.width if self.prefix.depth else 0):
            typical = self.session.domain.draw(4 * EACH, self.session.rng)
            ends = along_an_axis(self.prefix, typical, unit, REACH)
            if len(ends) == 2:
                self.trace_between(*ends)

    def trace_between(self, start: FloatArray, end: FloatArray) -> Traced | None:
        """Trace the way from one input to another, and a little beyond both."""
        length = float(np.linalg.norm(end - start))
        if not length > 0.0:
            return None
        return self.trace(
            SurveyLine(start, (end - start) / length, -0.1 * length, 1.1 * length, np.inf)
        )

    def trace_until(self, count: int, layer: Layer) -> None:
        """Trace lines until there are enough to look for a layer of which nothing is known."""
        if layer.rows or len(self.traced) >= count:
            return
        self.deepest = self.prefix
        for _ in range(count - len(self.traced)):
            self.trace_line()

    def trace(self, line: SurveyLine) -> Traced | None:
        """Find the kinks of a line, and the jumps at those that no known unit explains."""
        try:
            with self.session.stage("calibration"):
                line = usable_line(self.session.oracle, line, self.session.answers)
                noise, seeds = calibrate(
                    self.session.ask_line, line, near=10.0 * self.session.domain.scale
                )
                noise = floored(
                    self.session.oracle, noise, self.session.domain.dimension, self.session.rng
                )
            with self.session.stage("lines") as details:
                scan, noise = scan_line(self.session.ask_line, line, noise, seeds)
                details["kinks"] = len(scan.kinks)
            self.session.has_noise(noise)
            if not scan.complete:
                return None
            known = known_kinks(line.points(scan.kinks), scan.kink_std, self.deepest)
            with self.session.stage("gradients") as details:
                traced = measure_pieces(
                    self.session.ask_line,
                    line,
                    scan,
                    noise,
                    self.prefix,
                    wanted=~known,
                    rng=self.session.rng,
                )
                details |= {"kinks": len(known), "new": int(np.count_nonzero(~known))}
        except Saturated:
            return None
        self.traced.append(traced)
        return traced

    def between(self, bad: FloatArray, good: FloatArray) -> None:
        """Trace the way from an input that fits to one that does not: it crosses what is missing.

        Parameters
        ----------
        bad, good
            ``(n, d)`` each; the bad ones are taken in turn, each with a near good one.
        """
        for x in bad[self.session.rng.permutation(len(bad))[:HUNTS]]:
            near = np.argsort(np.linalg.norm(good - x, axis=1))[:NEAREST]
            self.trace_between(good[self.session.rng.choice(near)], x)

    def crossing_near(
        self, point: FloatArray, direction: FloatArray, reach: float
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return the unknown kink next to an input on a short line through it, and its normal."""
        traced = self.trace(SurveyLine(point, direction, -reach, reach, np.inf))
        if traced is None:
            return None
        found = traced.crossings.kept(np.isfinite(traced.crossings.errors))
        if len(found) == 0:
            return None
        best = int(np.linalg.norm(found.points - point, axis=1).argmin())
        return found.points[best], found.normals[best]

    def crossings(self) -> Crossings:
        """Return all kinks whose jump was measured."""
        every = Crossings(*joined([t.crossings for t in self.traced]))
        return every.kept(np.isfinite(every.errors))

    def pieces(self) -> Pieces:
        """Return all pieces that lines or gradients were asked in."""
        return Pieces(*joined([t.pieces for t in self.traced] + self.gradients))

    def unexplained(self, prefix: Prefix) -> tuple[int, int]:
        """Return how many kinks of all lines no known unit explains, and how many there are."""
        count = total = 0
        for t in self.traced:
            known = known_kinks(t.crossings.points, t.scan.kink_std, prefix)
            count, total = count + int(np.count_nonzero(~known)), total + len(known)
        return count, total

    def starts(self, row: Row | None = None) -> FloatArray:
        """Return inputs from which places on surfaces are looked for, some near a row's own."""
        d, scale = self.session.domain.dimension, self.session.domain.scale
        wide = [self.session.domain.draw(EACH, self.session.rng) * s for s in STARTS]
        if row is not None:
            for s in STARTS:
                around = row.places[self.session.rng.integers(len(row.places), size=EACH)]
                near = 0.25 * s * (np.linalg.norm(around, axis=1) + scale)
                near *= self.session.rng.random(EACH)  # some where all units keep their state
                aside = self.session.rng.standard_normal((EACH, d)) / np.sqrt(d)
                wide.append(around + near[:, None] * aside)
        return np.concatenate(wide)

    def beside(self) -> SurveyLine:
        """Return a line a little away from the last: neighbours share most states of units."""
        last = self.traced[-1].line
        d = self.session.domain.dimension
        base = last.base + STEP * self.session.rng.standard_normal(d)
        most = STARTS[2] * self.session.domain.scale
        base *= min(1.0, most / float(np.linalg.norm(base)))
        direction = last.direction + STEP * self.session.rng.standard_normal(d) / np.sqrt(d)
        direction /= np.linalg.norm(direction)
        reach = STARTS[-1] * self.session.domain.scale
        return SurveyLine(base, direction, -reach, reach, self.session.domain.scale)

    def layer(self, number: int) -> Layer:
        """Return a layer as far as it is known, over the units of the one below it."""
        if len(self.layers) == number:
            self.layers.append(Layer())
        layer = self.layers[number]
        if number:
            if not layer.fits(self.layers[number - 1]):
                layer = self.layers[number] = Layer()
            layer.stands_on(self.layers[number - 1])
        return layer

    def settle(self) -> None:
        """Take what a pass has found as known, its last layer included."""
        last = self.layers[self.prefix.depth]
        self.deepest = last.over(self.prefix) if last.rows else self.prefix

    def open_kinks(self, number: int, layer: Layer, closed: Closed | None) -> float:
        """Return the part of all kinks that no unit up to this layer explains, and tell."""
        left, total = self.unexplained(layer.over(self.prefix))
        share = 0.0 if closed is None else closed.share
        self.session.progress.update(
            f"hidden layer {number + 1}",
            total - left,
            total,
            f"{len(layer.rows)} units, {layer.missing} weights missing, {left} of {total} kinks "
            f"open, regression explains {share:.3f}",
        )
        return left / max(1, total)
