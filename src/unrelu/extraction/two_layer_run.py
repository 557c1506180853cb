"""One run of the depth-2 extraction: its stages, in order."""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.answers import LookConfig, look_for_probabilities
from unrelu.core.levels import Levelled, output_levels
from unrelu.core.noise import NoiseModel, Samples
from unrelu.core.units import Units, join_units, resolve_signs
from unrelu.extraction.certify import FailedPoints
from unrelu.extraction.known_units import KnownUnits, Meaningless, Saturated
from unrelu.extraction.lift import Restricted, Subspace, lift_units
from unrelu.extraction.refine import predicted_errors
from unrelu.lines.domains import as_domain
from unrelu.lines.survey import SurveyLine, calibrate, scan_line, survey
from unrelu.oracles.wrappers import LogOdds

__all__ = ["Extraction"]


class Extraction(KnownUnits):
    """One run: every stage works on the units known so far."""

    def look(self, answers: str) -> None:
        """Find out what the answers are: probabilities, outputs of very different size."""
        ways = {"all": (1.0, -1.0), "nonnegative": (1.0,), "box": ()}[self.domain.kind]
        found, seen = False, np.empty((0, self.oracle.output_dim))
        with self.stage("calibration"):
            if answers != "values":
                found, seen = look_for_probabilities(self.oracle, self.draw, ways_out=ways)
            elif self.oracle.output_dim > 1:
                seen = self.oracle(self.draw(LookConfig.looks))
        if found or answers == "probabilities":
            # The likeliest class is the reference: its probability underflows last.
            reference = int(np.argmax(seen.mean(axis=0)))
            self.oracle, self.log_odds = LogOdds(self.oracle, reference=reference), True
            self.checked = self.checked[0], np.empty((0, self.oracle.output_dim))
            self.reference = reference
            if self.oracle.output_dim == 1 == self.inner_outputs:
                self.deepest = self.config.deepest_single
            self.levels = np.ones(self.oracle.output_dim)
            return
        self.levels = output_levels(seen)
        if (self.levels != 1.0).any():
            self.oracle = Levelled(self.oracle, self.levels)

    def shorten(self, line: SurveyLine) -> SurveyLine:
        """Limit a line to where no probability underflows."""
        if not self.log_odds:
            return line
        with self.stage("calibration"):
            ends = line.scale if math.isfinite(line.scale) else 0.5 * (line.high - line.low)
            grid = ends * 2.0 ** np.arange(-4.0, 9.0)
            t = np.concatenate([-grid[::-1], [0.0], grid])
            t = t[(t >= line.low) & (t <= line.high)]
            seen = self.oracle(line.points(t))
            fine = np.abs(seen).max(axis=1) < self.deepest  # False for NaN as well
        middle = int(np.argmin(np.abs(t)))
        if not fine[middle]:
            raise Saturated
        first = last = middle
        while first > 0 and fine[first - 1]:
            first -= 1
        while last + 1 < len(t) and fine[last + 1]:
            last += 1
        return dataclasses.replace(line, low=float(t[first]), high=float(t[last]))

    def calibrate(self) -> tuple[SurveyLine, list[Samples]]:
        """Draw a line, and measure the noise of the answers on it."""
        self.units, self.lifted, self.fitted, self.misfit = None, False, False, False
        self.checked = self.checked[0][:0], self.checked[1][:0]
        line = self.shorten(self.domain.line(self.rng, self.reach))
        if not line.low < line.high:  # probabilities underflow all around its base
            raise Saturated
        with self.stage("calibration"):
            self.noise, seeds = calibrate(self.ask, line, near=self.near())
        self.measured = self.noise.typical(seeds) if self.log_odds else self.noise
        if (self.levels != 1.0).any():  # decimals do not show any more
            self.notice_size(
                np.concatenate([y for _, y in seeds]),
                line.norms(np.concatenate([t for t, _ in seeds])),
            )
        middle = min(seeds, key=lambda seed: float(np.abs(seed[0]).min()))
        size = float(np.abs(middle[1]).max())
        noise = float(self.noise.at(line.points(middle[0])).max())
        self.coarse = noise > self.config.coarse * size
        return line, seeds

    def first_line(self, line: SurveyLine, seeds: list[Samples]) -> None:
        """Algorithm 6, lines 1-6, on a random line."""
        config = self.config
        assert self.noise is not None
        self.progress.update("line search", 0, None)
        with self.stage("line search") as details:
            scan, self.noise = scan_line(
                self.ask,
                line,
                self.noise,
                seeds,
                config=config.survey,
            )
            details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
        self.expect(len(scan.kinks), self.coarse)
        self.progress.update("line search", 1, 1, f"{len(scan.kinks)} kinks")
        with self.stage("gradients") as details:
            found = survey(
                self.ask,
                line,
                self.noise,
                scan,
                rng=self.rng,
                bounds=self.domain.bounds,
                config=config.survey,
                gradient_config=config.gradients,
            )
            details |= {"pieces": len(scan.kinks) + 1}
        self.units, self.covariance = found.units, found.covariance
        points = self.draw(256)
        values = self.units(points)
        # A function that is constant within the noise is judged by its size instead.
        spread, size = values.std(axis=0), np.abs(values).max(axis=0)
        constant = spread <= config.constant * self.level(points).max(axis=0)
        self.spread = float(np.where(constant, np.maximum(spread, size), spread).max())
        self.coarse = float(self.level(points).max()) > config.coarse * self.spread
        if self.coarse:
            self.covariance = self.covariance * config.coarse_doubt**2
        self.progress.update("gradients", 1, 1, f"{self.units.count} units")

    def failures(self, points: FloatArray) -> FloatArray:
        """Ask at points; deviations in units of their predicted deviation, ``(n,)``.

        The answers are kept: they settle biases later.
        """
        answers = self.oracle(points)
        self.remember(points, answers)
        deepest = self.deepest if self.log_odds else math.inf
        deep = ~(np.abs(answers) < deepest).all(axis=1)  # True for NaN
        self.checked = points[~deep], answers[~deep]
        miss = np.zeros(len(points))  # underflowed probabilities say nothing
        miss[~deep] = self.misses(*self.checked)
        return miss

    def misses(self, points: FloatArray, answers: FloatArray) -> FloatArray:
        """Deviation of the units from answers, in units of its predicted deviation, ``(n,)``.

        Each output is judged by its own noise and predicted error; the largest counts.
        """
        assert self.noise is not None
        assert self.units is not None
        spread = np.sqrt(
            self.noise.at(points) ** 2 + predicted_errors(self.units, self.covariance, points) ** 2
        )
        spread = spread + self.config.negligible * self.spread / self.config.check_accept
        spread = np.maximum(spread, np.finfo(np.float64).tiny)  # an exact constant has none
        return np.asarray(np.abs((answers - self.units(points)) / spread).max(axis=1))

    def check(self) -> tuple[FloatArray, FloatArray] | None:
        """Return a typical input at which the units are wrong, and one where they are right.

        None where they are right at all inputs drawn.
        """
        assert self.units is not None
        counts = [self.config.checks + min(52, self.units.count // 8)]
        if self.domain.bounds is not None:
            counts.append(self.config.checks_bounded)
        points = miss = np.empty(0)
        with self.stage("check") as details:
            for count in counts:  # the many only when the few agree
                points = self.domain.draw_wide(count, self.rng)
                vertices = self.domain.vertices()[: count // 2]
                points[len(points) - len(vertices) :] = vertices
                miss = self.failures(points)
                if miss.max() > self.config.check_accept:
                    break
        details["worst"] = float(miss.max())
        worst, best = int(np.argmax(miss)), int(np.argmin(miss))
        if miss[worst] <= self.config.check_accept:
            return None
        right = points[best] if miss[best] <= self.config.check_accept else self.units.base
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
        if not line.low < line.high:  # probabilities underflow all around its base
            return 0
        with self.stage("residual search") as details:
            positions, scales = line.seeds()
            positions = np.concatenate([positions, positions + 1e-4 * scales])
            positions = positions[(positions >= line.low) & (positions <= line.high)]
            known = np.zeros(1) if points is None else (points - line.base) @ line.direction
            known = np.clip(known, line.low, line.high)
            positions = np.unique(np.concatenate([positions, known]))
            answers = self.ask(line.points(positions))
            if self.domain.bounds is not None:  # the first line may have seen a constant only
                self.notice_size(answers, line.norms(positions))
            noise = self.residual_noise(float(line.norms(positions).min()))
            if self.units is not None:
                answers = answers - self.units(line.points(positions))
            level = noise.std(line.norms(positions))
            if (np.abs(answers) <= config.check_accept * level).all():
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
                slack=float(np.sqrt(np.max(np.diagonal(self.covariance), initial=0.0))),
                config=config.survey,
                gradient_config=config.gradients,
            )
            details |= {"kinks": len(scan.kinks)}
        self.join(found.units, found.covariance)
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

    def join(self, new: Units, covariance: FloatArray) -> None:
        """Add units found in the residual."""
        assert self.units is not None
        m, old = len(new.outputs), self.units.count
        size = m + old + new.count
        joint = np.zeros((size, size))
        joint[: m + old, : m + old] = self.covariance
        index = np.concatenate([np.arange(m), np.arange(m + old, size)])
        joint[np.ix_(index, index)] += covariance
        self.units, self.covariance = join_units(self.units, new), joint

    def attempts(self) -> bool:
        """Begin on new lines until random checks pass; whether they did."""
        for attempt in range(self.config.restarts + 1):
            self.final = attempt == self.config.restarts
            with suppress(Saturated, Meaningless):
                if self.attempt():
                    return True
            self.forget_nonsense()
        return False

    def attempt(self) -> bool:
        """Do everything once; whether random checks pass in the end."""
        line, seeds = self.calibrate()
        if not (self.coarse and not self.nested and self.through_subspace()):
            self.first_line(line, seeds)
        if not self.repair():
            return False
        self.cover()
        self.refine()
        if self.misfit:
            return False  # another line costs less than to look for what this one missed
        for _ in range(self.config.late_repairs if self.coarse else 0):
            # Coarse answers hide a unit in the predicted errors until the others are sharp.
            if self.nested and self.ill_conditioned():
                return False  # on a subspace another line costs less than a repair
            bad = self.check()
            if bad is None:
                return not self.ill_conditioned()
            if self.search_between(*bad):
                self.refine()
        return self.check() is None and not self.ill_conditioned()

    def through_subspace(self) -> bool:
        """Recover the units on a random subspace, and lift them; False if that fails.

        Coarse answers make a long line's small kinks and gaps unreadable. On a
        subspace everything can be measured several times at little cost, and
        the derivatives across it are then taken at roomy points only.
        """
        config, d = self.config, self.domain.dimension
        size = config.lift.dimension
        while self.domain.kind == "all" and size <= config.lift.part * d:
            subspace = Subspace(size, d, self.rng)
            inner = Extraction(
                Restricted(self.oracle, subspace),
                as_domain("all", size),
                self.rng,
                self.progress,
                config,
            )
            inner.nested, inner.log_odds, inner.deepest = True, self.log_odds, self.deepest
            inner.levels, inner.expect = self.levels, self.expect
            try:
                passed = any(inner.attempt() for _ in range(config.lift.attempts))
            finally:
                self.stages += inner.stages
            found = inner.units
            if passed and found is not None and found.count <= config.lift.crowd * size:
                return self.lift(inner, subspace)
            size *= 2
        return False

    def lift(self, inner: Extraction, subspace: Subspace) -> bool:
        """Take over what a subspace showed; False if it has no roomy points."""
        assert inner.units is not None
        assert inner.noise is not None
        scale = subspace.scale
        self.noise = NoiseModel(inner.noise.absolute, inner.noise.growth / scale)
        with self.stage("gradients") as details:
            lifted = lift_units(
                self.ask,
                inner.units,
                inner.covariance,
                self.noise,
                subspace,
                inner.draw,
                rng=self.rng,
                config=self.config.lift,
                refine=self.config.refine,
                gradient_config=self.config.gradients,
            )
            details |= {"subspace": len(subspace.rows), "units": inner.units.count}
        if lifted is None:
            return False
        self.units, self.covariance = lifted
        self.spread, self.lifted = inner.spread, True
        return True

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
        met yet.
        """
        points, answers = failed.points, failed.answers
        found = 0
        for _ in range(self.config.repairs):
            miss = self.misses(points, answers)
            worst = int(np.argmax(miss))
            if miss[worst] <= self.config.check_accept:
                break
            near = int(np.argmin(np.linalg.norm(failed.agreeing - points[worst], axis=1)))
            found += self.search_between(points[worst], failed.agreeing[near])
            points, answers = np.delete(points, worst, 0), np.delete(answers, worst, 0)
            if len(points) == 0:
                break
        if found == 0 or not self.repair():
            return False  # what was not found would fail the next certificate as well
        self.refine()
        return not self.misfit and self.check() is None and not self.ill_conditioned()

    def cover(self) -> None:
        """Theorem 2: search the residual on lines that meet every hyperplane."""
        for line in self.domain.axes(self.reach):
            self.search_residual(self.shorten(line))

    def finish_signs(self) -> bool:
        """Turn units over so that the affine term vanishes, where that is determined."""
        assert self.units is not None
        m = len(self.units.outputs)
        std = math.sqrt(max(float(np.max(np.diagonal(self.covariance)[:m], initial=0.0)), 0.0))
        turn = resolve_signs(self.units, max(std, 1e-14 * float(np.abs(self.units.linear).max())))
        if turn is not None:
            self.units = self.units.turned(turn)
        if self.fitted and self.fits():
            self.fit(skip=turn is None)
        return turn is not None
