"""The search for the units of one hidden layer: what is known so far, and its stages."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.explain import EXACT, EXACT_NOISE
from unrelu.core.noise import HALF_DIGITS, NoiseModel
from unrelu.extraction.certify import FailedPoints
from unrelu.extraction.refine import predicted_errors
from unrelu.extraction.two_layer_refine import TYPICAL, UnitRefinement
from unrelu.extraction.two_layer_target import Calibrated, TwoLayerTarget
from unrelu.extraction.two_layer_units import Estimate
from unrelu.lines.survey import SurveyLine, scan_line, survey

__all__ = ["UnitSearch", "first_line"]


class UnitSearch:
    """Units found so far; every stage works on them.

    Attributes
    ----------
    noise, measured
        What the search goes by, and what the answers' own scatter showed.
    found
        The units, and how well they are known.
    spread
        Of the answers at typical inputs.
    """

    def __init__(
        self,
        target: TwoLayerTarget,
        noise: NoiseModel,
        measured: NoiseModel,
        found: Estimate,
        spread: float,
    ) -> None:
        self.target, self.noise, self.measured = target, noise, measured
        self.found, self.spread = found, spread
        self.run, self.domain, self.config = target.run, target.domain, target.config
        self.rng = target.rng
        self.checked = (
            np.empty((0, target.oracle.input_dim)),
            np.empty((0, target.oracle.output_dim)),
        )

    def residual(self, points: FloatArray) -> FloatArray:
        """Ask what the units known so far leave of the answers, ``(n, m)``."""
        return np.asarray(self.target.ask(points) - self.found.units(points))

    def failures(self, points: FloatArray) -> FloatArray:
        """Ask at points; deviations in units of their predicted deviation, ``(n,)``.

        The answers are kept: they settle biases later.
        """
        answers = self.target.oracle(points)
        deep = ~self.target.legible(answers)
        self.checked = points[~deep], answers[~deep]
        miss = np.zeros(len(points))  # underflowed probabilities say nothing
        miss[~deep] = self.misses(*self.checked)
        return miss

    def misses(self, points: FloatArray, answers: FloatArray) -> FloatArray:
        """Deviation of the units from answers, in units of its predicted deviation, ``(n,)``.

        Each output is judged by its own noise and predicted error; the largest counts.
        """
        units, limits = self.found.units, self.config.certify
        predicted = predicted_errors(units, self.found.covariance, points)
        spread = np.sqrt(self.noise.at(points) ** 2 + predicted**2)
        spread = spread + self.target.legible.rounding(answers)
        spread = spread + HALF_DIGITS * self.spread / limits.accept
        spread = np.maximum(spread, np.finfo(np.float64).tiny)  # an exact constant has none
        return np.asarray(np.abs((answers - units(points)) / spread).max(axis=1))

    def check(self) -> tuple[FloatArray, FloatArray] | None:
        """Return a typical input at which the units are wrong, and one where they are right.

        None where they are right at all inputs drawn.
        """
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
        line = self.target.shorten(self.domain.through(bad, right, self.target.reach))
        return self.search_residual(line, np.stack([bad, right]))

    def search_residual(self, line: SurveyLine, points: FloatArray | None = None) -> int:
        """Look for units on a line that the residual still shows; returns how many.

        ``points`` of the line are looked at first, ``(n, d)``.
        """
        config = self.config
        if not line.low < line.high:  # probabilities underflow all around its base
            return 0
        with self.run.stage("residual search") as details:
            positions, scales = line.seeds()
            positions = np.concatenate([positions, positions + 1e-4 * scales])
            positions = positions[(positions >= line.low) & (positions <= line.high)]
            known = np.zeros(1) if points is None else (points - line.base) @ line.direction
            known = np.clip(known, line.low, line.high)
            positions = np.unique(np.concatenate([positions, known]))
            answers = self.target.ask(line.points(positions))
            if self.domain.bounds is not None:  # the first line may have seen a constant only
                self.noise, self.measured = self.target.at_least(
                    (self.noise, self.measured), answers, line.norms(positions)
                )
            noise = self.found.residual_noise(
                self.noise, self.target.draw, float(line.norms(positions).min())
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
                rounding=self.target.legible.rounding,
                config=config.survey,
                gradient_config=config.gradients,
            )
            details |= {"kinks": len(scan.kinks)}
        self.found = self.found.joined(found)
        return len(scan.kinks)

    def attempt(self) -> bool:
        """Do everything once; whether random checks pass in the end."""
        if not self.repair():
            return False
        self.cover()
        self.refine()
        return self.check() is None and not self.ill_conditioned()

    def refine(self) -> None:
        """Sharpen the units where the predicted error is above the goal."""
        sharpen = UnitRefinement(
            self.target.ask,
            self.noise,
            self.domain,
            self.spread,
            self.target.log_odds,
            self.target.legible,
            self.rng,
            self.config,
        )
        with self.run.stage("refinement") as details:
            self.found, details["points"] = sharpen(self.found, [self.checked, *self.target.heard])

    def ill_conditioned(self) -> bool:
        """Whether the predicted error leaves little of the function."""
        error = float(np.sqrt(np.mean(self.found.errors(self.target.draw(TYPICAL)) ** 2)))
        return error > self.config.useful * self.spread > 0 or self.entangled()

    def entangled(self) -> bool:
        """Whether a unit's direction stays inexact; see :meth:`Estimate.entanglement`."""
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
        for line in self.domain.axes(self.target.reach):
            self.search_residual(self.target.shorten(line))

    def finish_signs(self) -> bool:
        """Turn units over so that the affine term vanishes, where that is determined."""
        turned = self.found.turned()
        self.found = turned or self.found
        return turned is not None


def first_line(target: TwoLayerTarget, calibrated: Calibrated) -> UnitSearch:
    """Algorithm 6, lines 1-6, on a random line."""
    config, run, line = target.config, target.run, calibrated.line
    with run.stage("line search") as details:
        scan, noise = scan_line(
            target.ask, line, calibrated.noise, calibrated.seeds, config=config.survey
        )
        details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
    run.target.allowance.plan(target.price(len(scan.kinks)))
    run.progress.update("line search", 1, 1, f"{len(scan.kinks)} kinks")
    with run.stage("gradients") as details:
        found = survey(
            target.ask,
            line,
            noise,
            scan,
            rng=target.rng,
            bounds=target.domain.bounds,
            rounding=target.legible.rounding,
            config=config.survey,
            gradient_config=config.gradients,
        )
        details |= {"pieces": len(scan.kinks) + 1}
    points = target.draw(TYPICAL)
    values = found.units(points)
    # A function that is constant within the noise is judged by its size instead.
    spread, size = values.std(axis=0), np.abs(values).max(axis=0)
    constant = spread <= EXACT_NOISE * noise.at(points).max(axis=0)
    width = float(np.where(constant, np.maximum(spread, size), spread).max())
    run.progress.update("gradients", 1, 1, f"{found.units.count} units")
    estimate = Estimate(found.units, found.covariance)
    return UnitSearch(target, noise, calibrated.measured, estimate, width)
