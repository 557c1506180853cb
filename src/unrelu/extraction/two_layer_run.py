"""One run of the depth-2 extraction: its stages, in order."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.answers import LookConfig, look_for_probabilities
from unrelu.core.explain import EXACT
from unrelu.core.legible import Legible, legible_log_odds
from unrelu.core.levels import Levelled, output_levels
from unrelu.core.noise import AGREES, NoiseModel, Samples
from unrelu.core.price import Price
from unrelu.core.run import Run
from unrelu.extraction.certify import FailedPoints
from unrelu.extraction.price import price_two_layer
from unrelu.extraction.refine import predicted_errors
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.two_layer_refine import TYPICAL, Refinement
from unrelu.extraction.two_layer_units import Estimate
from unrelu.lines.domains import Domain
from unrelu.lines.readable import line_where_readable, readable_part
from unrelu.lines.survey import SurveyLine, calibrate, scan_line, survey, variation
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds

__all__ = ["Extraction", "Meaningless", "Saturated"]


class Saturated(Exception):
    """A probability underflowed where a log-odds was needed."""


class Meaningless(Exception):
    """Noise was taken for structure, until numbers overflowed."""


class Extraction:
    """One run: every stage works on the units known so far."""

    def __init__(self, run: Run, domain: Domain, config: TwoLayerConfig) -> None:
        self.run, self.domain, self.config, self.rng = run, domain, config, run.rng
        self.oracle: Oracle = run.target
        self.reach = config.survey.reach
        self.log_odds = False
        self.reference = 0
        self.legible = Legible()
        self.levels = np.ones(self.oracle.output_dim)  # what the outputs are divided by
        self.noise: NoiseModel | None = None  # what the search goes by
        self.measured: NoiseModel | None = None  # what the answers' scatter showed
        self.found: Estimate | None = None
        self.checked = self.no_answers()
        self.heard: list[tuple[FloatArray, FloatArray]] = []  # log-odds, but for checks
        self.coarse = False
        self.spread = 0.0

    def no_answers(self) -> tuple[FloatArray, FloatArray]:
        """Return no points and no answers."""
        return np.empty((0, self.oracle.input_dim)), np.empty((0, self.oracle.output_dim))

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs, ``(n, d)``."""
        return self.domain.draw(n, self.rng)

    def ask(self, points: FloatArray) -> FloatArray:
        """Ask the oracle, never outside the domain by a rounding error."""
        if not np.isfinite(points).all():
            raise Meaningless
        if self.domain.bounds is not None:
            points = np.clip(points, self.domain.low, self.domain.high)
        answers = self.oracle(points)
        if self.log_odds:
            if np.isnan(answers).any():
                raise Saturated
            self.heard.append((points, answers))
        return answers

    def residual(self, points: FloatArray) -> FloatArray:
        """Ask what the units known so far leave of the answers, ``(n, m)``."""
        answers = self.ask(points)
        return answers if self.found is None else answers - self.found.units(points)

    def look(self, answers: str) -> None:
        """Find out what the answers are: probabilities, outputs of very different size."""
        ways = {"all": (1.0, -1.0), "nonnegative": (1.0,), "box": ()}[self.domain.kind]
        found, seen = False, np.empty((0, self.oracle.output_dim))
        with self.run.stage("calibration"):
            if answers != "values":
                found, seen = look_for_probabilities(self.oracle, self.draw, ways_out=ways)
            elif self.oracle.output_dim > 1:
                seen = self.oracle(self.draw(LookConfig.looks))
        if found or answers == "probabilities":
            # The likeliest class is the reference: its probability underflows last.
            reference = int(np.argmax(seen.mean(axis=0)))
            self.oracle, self.log_odds = LogOdds(self.oracle, reference=reference), True
            self.checked, self.reference = self.no_answers(), reference
            record, limit = self.run.target.record, self.config.deepest_single
            self.legible = legible_log_odds(record, reference, limit)
            self.levels = np.ones(self.oracle.output_dim)
            return
        self.levels = output_levels(seen)
        if (self.levels != 1.0).any():
            self.oracle = Levelled(self.oracle, self.levels)

    def readable(self, points: FloatArray) -> BoolArray:
        """Return at which points ``(n, d)`` the answers can be read."""
        return self.legible(self.oracle(points))

    def shorten(self, line: SurveyLine) -> SurveyLine:
        """Limit a line to where no probability underflows."""
        if not self.log_odds:
            return line
        unit = line.scale if math.isfinite(line.scale) else 0.5 * (line.high - line.low)
        with self.run.stage("calibration"):
            short = readable_part(line, unit, self.readable)
        if short is None:
            raise Saturated
        return short

    def calibrate(self) -> tuple[SurveyLine, list[Samples]]:
        """Draw a line, and measure the noise of the answers on it."""
        self.found, self.checked = None, self.no_answers()
        line = self.domain.line(self.rng, self.reach)
        if self.log_odds and self.domain.kind == "all":
            with self.run.stage("calibration"):
                line = line_where_readable(line, self.draw(LookConfig.looks), self.readable)
        line = self.shorten(line)
        if not line.low < line.high:  # probabilities underflow all around its base
            raise Saturated
        with self.run.stage("calibration"):
            self.noise, seeds = calibrate(self.ask, line, near=self.near())
        self.measured = self.noise.typical(seeds) if self.log_odds else self.noise
        if (self.levels != 1.0).any():  # decimals do not show any more
            t, y = (np.concatenate(part) for part in zip(*seeds, strict=True))
            self.notice_size(y, line.norms(t))
        middle = min(seeds, key=lambda seed: float(np.abs(seed[0]).min()))
        noise = float(self.noise.at(line.points(middle[0])).max())
        typical = 2.0 * self.domain.scale * float(np.sqrt(self.run.target.input_dim))
        varied = variation(line, seeds, typical)
        # A constant, as far as the line tells, has no digits to be coarse by.
        self.coarse = varied > AGREES * noise > AGREES * self.config.coarse * varied
        return line, seeds

    def first_line(self, line: SurveyLine, seeds: list[Samples]) -> None:
        """Algorithm 6, lines 1-6, on a random line."""
        config = self.config
        assert self.noise is not None
        with self.run.stage("line search") as details:
            scan, self.noise = scan_line(self.ask, line, self.noise, seeds, config=config.survey)
            details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
        self.run.target.allowance.plan(self.price(len(scan.kinks)))
        self.run.progress.update("line search", 1, 1, f"{len(scan.kinks)} kinks")
        with self.run.stage("gradients") as details:
            found = survey(
                self.ask, line, self.noise, scan,
                rng=self.rng, bounds=self.domain.bounds, rounding=self.legible.rounding,
                config=config.survey, gradient_config=config.gradients,
            )  # fmt: skip
            details |= {"pieces": len(scan.kinks) + 1}
        self.found = Estimate(found.units, found.covariance)
        points = self.draw(TYPICAL)
        values = found.units(points)
        # A function that is constant within the noise is judged by its size instead.
        spread, size = values.std(axis=0), np.abs(values).max(axis=0)
        constant = spread <= config.certify.constant * self.noise.at(points).max(axis=0)
        self.spread = float(np.where(constant, np.maximum(spread, size), spread).max())
        self.run.progress.update("gradients", 1, 1, f"{found.units.count} units")

    def price(self, kinks: int) -> Price:
        """Return what a network of so many units costs."""
        target, orthant = self.run.target, self.domain.kind != "all"
        return price_two_layer(target.input_dim, target.output_dim, kinks, orthant=orthant)

    def failures(self, points: FloatArray) -> FloatArray:
        """Ask at points; deviations in units of their predicted deviation, ``(n,)``.

        The answers are kept: they settle biases later.
        """
        answers = self.oracle(points)
        deep = ~self.legible(answers)
        self.checked = points[~deep], answers[~deep]
        miss = np.zeros(len(points))  # underflowed probabilities say nothing
        miss[~deep] = self.misses(*self.checked)
        return miss

    def misses(self, points: FloatArray, answers: FloatArray) -> FloatArray:
        """Deviation of the units from answers, in units of its predicted deviation, ``(n,)``.

        Each output is judged by its own noise and predicted error; the largest counts.
        """
        assert self.noise is not None
        assert self.found is not None
        units, limits = self.found.units, self.config.certify
        predicted = predicted_errors(units, self.found.covariance, points)
        spread = np.sqrt(self.noise.at(points) ** 2 + predicted**2)
        spread = spread + self.legible.rounding(answers)
        spread = spread + limits.floor * self.spread / limits.accept
        spread = np.maximum(spread, np.finfo(np.float64).tiny)  # an exact constant has none
        return np.asarray(np.abs((answers - units(points)) / spread).max(axis=1))

    def check(self) -> tuple[FloatArray, FloatArray] | None:
        """Return a typical input at which the units are wrong, and one where they are right.

        None where they are right at all inputs drawn.
        """
        assert self.found is not None
        units, accept = self.found.units, self.config.certify.accept
        counts = [self.config.checks + min(52, units.count // 8)]
        if self.domain.bounds is not None:
            counts.append(self.config.checks_bounded)
        points = miss = np.empty(0)
        with self.run.stage("check") as details:
            for count in counts:  # the many only when the few agree
                points = self.domain.draw_wide(count, self.rng)
                vertices = self.domain.vertices()[: count // 2]
                points[len(points) - len(vertices) :] = vertices
                miss = self.failures(points)
                if miss.max() > accept:
                    break
        details["worst"] = float(miss.max())
        worst, best = int(np.argmax(miss)), int(np.argmin(miss))
        if miss[worst] <= accept:
            return None
        right = points[best] if miss[best] <= accept else units.base
        return points[worst], right

    def search_between(self, bad: FloatArray, right: FloatArray) -> int:
        """Look for units on the line through a point where the units are wrong."""
        line = self.shorten(self.domain.through(bad, right, self.reach))
        return self.search_residual(line, np.stack([bad, right]))

    def search_residual(self, line: SurveyLine, points: FloatArray | None = None) -> int:
        """Look for units on a line that the residual still shows; returns how many.

        ``points`` of the line are looked at first, ``(n, d)``.
        """
        config = self.config
        assert self.noise is not None
        assert self.found is not None
        if not line.low < line.high:  # probabilities underflow all around its base
            return 0
        with self.run.stage("residual search") as details:
            positions, scales = line.seeds()
            positions = np.concatenate([positions, positions + 1e-4 * scales])
            positions = positions[(positions >= line.low) & (positions <= line.high)]
            known = np.zeros(1) if points is None else (points - line.base) @ line.direction
            known = np.clip(known, line.low, line.high)
            positions = np.unique(np.concatenate([positions, known]))
            answers = self.ask(line.points(positions))
            if self.domain.bounds is not None:  # the first line may have seen a constant only
                self.notice_size(answers, line.norms(positions))
            noise = self.found.residual_noise(
                self.noise, self.draw, float(line.norms(positions).min())
            )
            answers = answers - self.found.units(line.points(positions))
            level = noise.std(line.norms(positions))
            if (np.abs(answers) <= config.certify.accept * level).all():
                return 0
            seeds = [(positions[i : i + 1], answers[i : i + 1]) for i in range(len(positions))]
            scan, noise = scan_line(self.residual, line, noise, seeds, config=config.survey)
            found = survey(
                self.residual,
                line,
                self.noise,
                scan,
                rng=self.rng,
                bounds=self.domain.bounds,
                slack=float(np.sqrt(np.max(np.diagonal(self.found.covariance), initial=0.0))),
                known=self.found.units,
                rounding=self.legible.rounding,
                config=config.survey,
                gradient_config=config.gradients,
            )
            details |= {"kinks": len(scan.kinks)}
        self.found = self.found.joined(found)
        return len(scan.kinks)

    def notice_size(self, answers: FloatArray, norms: FloatArray) -> None:
        """Let the noise be no less than the rounding of answers at inputs of given norms."""
        assert self.noise is not None
        assert self.measured is not None
        self.noise, self.measured = (
            model.at_least(answers, self.levels, norms=norms, near=self.near())
            for model in (self.noise, self.measured)
        )

    def near(self) -> float:
        """Norm of inputs up to which noise is absolute; beyond, it grows with them."""
        return 10.0 * self.domain.scale if self.domain.kind != "box" else math.inf

    def begin(self) -> tuple[SurveyLine, list[Samples]] | None:
        """Calibrate on a line; None where none can be read."""
        for _ in range(self.config.restarts + 1):
            with suppress(Saturated, Meaningless):
                return self.calibrate()
        return None

    def attempts(self, line: SurveyLine, seeds: list[Samples]) -> bool:
        """Begin on a line, and on new ones until random checks pass; whether they did."""
        for attempt in range(self.config.restarts + 1):
            with suppress(Saturated, Meaningless):
                if attempt > 0:
                    line, seeds = self.calibrate()
                if self.attempt(line, seeds):
                    return True
            self.forget_nonsense()
        return False

    def attempt(self, line: SurveyLine, seeds: list[Samples]) -> bool:
        """Do everything once; whether random checks pass in the end."""
        self.first_line(line, seeds)
        if not self.repair():
            return False
        self.cover()
        self.refine()
        return self.check() is None and not self.ill_conditioned()

    def forget_nonsense(self) -> None:
        """Drop units that are not finite."""
        if self.found is not None and not self.found.finite():
            self.found = None

    def refine(self) -> None:
        """Sharpen the units where the predicted error is above the goal."""
        assert self.found is not None
        assert self.noise is not None
        sharpen = Refinement(
            self.ask, self.noise, self.domain, self.spread, self.log_odds, self.legible,
            self.rng, self.config,
        )  # fmt: skip
        with self.run.stage("refinement") as details:
            self.found, details["points"] = sharpen(self.found, [self.checked, *self.heard])

    def ill_conditioned(self) -> bool:
        """Whether the predicted error leaves little of the function."""
        assert self.found is not None
        error = float(np.sqrt(np.mean(self.found.errors(self.draw(TYPICAL)) ** 2)))
        return error > self.config.useful * self.spread > 0 or self.entangled()

    def entangled(self) -> bool:
        """Whether a unit's direction stays inexact; see :meth:`Estimate.entanglement`."""
        assert self.found is not None
        return self.found.entanglement() > EXACT * self.spread > 0

    def repair(self) -> bool:
        """Check, and search the residual where a check fails, until one passes."""
        for attempt in range(self.config.repairs + 1):
            bad = self.check()
            if bad is None:
                return True
            if attempt < self.config.repairs:
                # Between a wrong and a right point lies a kink that is still unknown.
                self.search_between(*bad)
        return False

    def follow(self, failed: FailedPoints) -> bool:
        """Search on where a certificate failed; whether random checks pass in the end.

        Between a point that disagrees and the nearest one that agrees lies what no line has
        met yet; where nothing does, the units known are less exact than they claim.
        """
        points, answers = failed.points, failed.answers
        found, doubt = 0, float(self.misses(points, answers).max())
        for _ in range(self.config.repairs):
            miss = self.misses(points, answers)
            worst = int(np.argmax(miss))
            if miss[worst] <= self.config.certify.accept:
                break
            near = int(np.argmin(np.linalg.norm(failed.agreeing - points[worst], axis=1)))
            found += self.search_between(points[worst], failed.agreeing[near])
            points, answers = np.delete(points, worst, 0), np.delete(answers, worst, 0)
            if len(points) == 0:
                break
        if found == 0:
            assert self.found is not None
            self.found = self.found.doubted(doubt)
            if self.ill_conditioned():
                return False  # what was not found would fail the next certificate as well
            self.checked = failed.points, failed.answers
        elif not self.repair():
            return False
        self.refine()
        return self.check() is None and not self.ill_conditioned()

    def cover(self) -> None:
        """Theorem 2: search the residual on lines that meet every hyperplane."""
        for line in self.domain.axes(self.reach):
            self.search_residual(self.shorten(line))

    def finish_signs(self) -> bool:
        """Turn units over so that the affine term vanishes, where that is determined."""
        assert self.found is not None
        turned = self.found.turned()
        self.found = turned or self.found
        return turned is not None
