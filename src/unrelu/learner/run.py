"""LEARNFROMQUERIES in practice: the stages of a run and the state that they share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel, Samples
from unrelu.core.run import reported_stage
from unrelu.learner.compress import compress_neurons
from unrelu.learner.config import LearnerConfig
from unrelu.learner.far import choose_stretch, measure_biases
from unrelu.learner.formulas import (
    bump_slope,
    bump_width,
    coefficient_bound,
    lattice_noise,
    samples_to_see,
)
from unrelu.learner.grow import propose_neuron
from unrelu.learner.neurons import Neurons, join_neurons
from unrelu.learner.polish import band_points, in_band, polish_neurons
from unrelu.learner.regression import bounded_least_squares, relu_features
from unrelu.learner.search import gaussian_line, residual_noise, search_residual
from unrelu.lines.survey import SurveyLine, calibrate, scan_line, survey
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.result import StageReport

__all__ = ["Doubts", "LearnerConfig", "Learning"]


@dataclasses.dataclass
class Doubts:
    """Points at which an earlier result was contradicted, and how often lines went through.

    Attributes
    ----------
    x, y
        ``(n, d)`` and their answers, ``(n, m)``.
    tries
        Lines searched through each, ``(n,)``.
    lines
        Lines in all.
    """

    x: FloatArray
    y: FloatArray
    tries: IntArray = dataclasses.field(init=False)
    lines: int = 0

    def __post_init__(self) -> None:
        self.tries = np.zeros(len(self.x), dtype=np.intp)

    def joined(self, x: FloatArray, y: FloatArray) -> Doubts:
        """Return these and more, all of them to be tried afresh."""
        return Doubts(np.concatenate([self.x, x]), np.concatenate([self.y, y]))


class Learning:
    """One run: the state that the stages share."""

    def __init__(
        self,
        oracle: Oracle,
        rng: np.random.Generator,
        progress: Progress,
        config: LearnerConfig,
        epsilon: float,
        relative: bool,
        norm_bound: float | None,
        narrowest: float | None,
        width: int | None = None,
    ) -> None:
        self.oracle, self.rng, self.progress, self.config = oracle, rng, progress, config
        self.asked, self.relative = epsilon, relative
        self.norm_bound, self.narrowest, self.width = norm_bound, narrowest, width
        d, m = oracle.input_dim, oracle.output_dim
        self.d = d
        self.x, self.y = np.empty((0, d)), np.empty((0, m))
        self.gaussian: BoolArray = np.empty(0, dtype=bool)
        self.noise = NoiseModel(np.zeros(m), np.zeros(m))
        self.lattice = 0.0
        self.doubts = Doubts(np.empty((0, d)), np.empty((0, m)))
        self.neurons: Neurons | None = None
        self.learned: Neurons | None = None
        self.candidates: list[Neurons] = []
        self.stages: list[StageReport] = []
        self.expect: Callable[[int, int], None] = lambda neurons, samples: None

    # ---------------------------------------------------------------- helpers

    def stage(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        return reported_stage(self.oracle, self.stages, name)

    @property
    def spread(self) -> float:
        """Standard deviation of F over all outputs, from the Gaussian samples."""
        return float(np.sqrt(self.y[self.gaussian].var(axis=0).sum()))

    @property
    def epsilon(self) -> float:
        """Accuracy asked for, in answer units; never below the rounding of the answers."""
        tiny = 1e-14 * float(np.abs(self.y).max(initial=1e-300))
        return max(self.asked * (self.spread if self.relative else 1.0), tiny)

    @property
    def coarse(self) -> bool:
        """Whether the answers' noise is more than rounding in float64."""
        noise = float(self.noise.absolute.max())
        return self.single or noise > self.config.far.coarse * self.spread

    @property
    def mute(self) -> bool:
        """Whether the samples show nothing but rounding errors."""
        return 0.0 < self.spread <= self.config.mute * self.lattice

    @property
    def single(self) -> bool:
        """Whether all answers are float32 numbers."""
        with np.errstate(over="ignore"):
            return bool((self.y.astype(np.float32) == self.y).all())

    def sample(self, points: FloatArray, *, gaussian: bool = True) -> None:
        """Ask points and keep them with their answers; only Gaussian ones validate."""
        self.add(points, self.oracle(points), gaussian=gaussian)

    def add(self, points: FloatArray, answers: FloatArray, *, gaussian: bool) -> None:
        """Keep points with their answers."""
        self.x = np.concatenate([self.x, points])
        self.y = np.concatenate([self.y, answers])
        self.gaussian = np.append(self.gaussian, np.full(len(points), gaussian))

    def square_error(self, neurons: Neurons) -> float:
        """Mean square residual over the Gaussian samples, less the answers' noise."""
        residual = (self.y - neurons(self.x))[self.gaussian]
        mean = float((residual**2).sum(axis=1).mean())
        noise = float((self.noise.absolute**2).sum()) if self.coarse else 0.0
        # The noise is known to some 20 %, and matters only beside a like error.
        return max(mean - noise, 0.2 * min(mean, noise))

    def good(self, neurons: Neurons) -> bool:
        """Whether the samples agree well within epsilon."""
        return self.square_error(neurons) <= (self.config.goal * self.epsilon) ** 2

    def residual(self, neurons: Neurons, points: FloatArray) -> FloatArray:
        """Ask ``F - F'`` at points."""
        return np.asarray(self.oracle(points) - neurons(points))

    def radius(self, neurons: Neurons) -> float:
        """R: given, or the largest norm seen."""
        if self.norm_bound is not None:
            return self.norm_bound
        return float(neurons.strengths.max(initial=0.0))

    @property
    def told(self) -> bool:
        """Whether k and R are given: what may hide is then no assumption."""
        return self.norm_bound is not None and self.width is not None

    def hidden_total(self, neurons: Neurons) -> float:
        """V: what the norms of neurons that may hide add up to.

        k R where both are given. A missing k is taken from what was found; where R is missing,
        no more is assumed to hide than was found, all norms added up, unless the rounding
        noise gives more away.
        """
        if self.norm_bound is None:
            assumed = float(neurons.strengths.sum())
        else:
            count = max(neurons.count, 1) if self.width is None else self.width
            assumed = count * self.norm_bound
        return assumed if self.told else max(assumed, self.betrayed_total(neurons))

    def betrayed_total(self, neurons: Neurons) -> float:
        """V of terms that the answers' rounding noise gives away; 0 where it does not.

        A bump is a sum of large terms that cancel: zero nearly everywhere, but
        rounded in proportion to the terms. Printed decimals say nothing.
        """
        y = self.y[self.gaussian]
        if bool((np.round(y, self.config.decimals) == y).all()):
            return 0.0
        if self.coarse and not self.single:
            return 0.0
        eps = float(np.finfo(np.float32 if self.single else np.float64).eps)
        expected = eps * float(np.median(neurons.magnitudes(self.x[self.gaussian])))
        seen = float(self.noise.absolute.max())
        # Terms of size 4 s, as those of a bump of slopes s, leave a noise of about eps s.
        return 4.0 * seen / eps if seen > self.config.unexplained * expected else 0.0

    def samples_wanted(self, neurons: Neurons) -> int:
        """Gaussian samples after which no bump that matters should be unseen."""
        config = self.config
        if self.narrowest is not None:
            return max(config.pilot, samples_to_see(self.narrowest, config.miss))
        # Bumps as steep as one neuron: where copies add up, the certificate meets them, and
        # what it meets is searched.
        steepest = self.radius(neurons)
        need = min(self.samples_for(steepest), config.certificate.most)
        if self.norm_bound is None:
            need = min(need, max(config.floor, int(config.effort * self.oracle.queries.total)))
        betrayed = 0.0 if self.told else bump_slope(self.betrayed_total(neurons))
        if betrayed > steepest:
            need = max(need, min(config.probes, self.samples_for(betrayed)))
        return max(config.pilot, need)

    def samples_for(self, slope: float) -> int:
        """Return how many samples see every bump of a slope that matters at epsilon."""
        return samples_to_see(bump_width(0.5 * self.epsilon**2, slope), self.config.miss)

    # ----------------------------------------------------------------- stages

    def look(self) -> tuple[SurveyLine, list[Samples]]:
        """Measure the noise and the spread of F; returns the line that was used."""
        config = self.config.search
        line = gaussian_line(self.d, self.rng, reach=config.survey.reach)
        with self.stage("calibration") as details:
            self.noise, seeds = calibrate(self.oracle, line, near=10.0 * math.sqrt(self.d))
            details["noise"] = float(self.noise.absolute.max())
        with self.stage("samples"):
            self.sample(self.rng.standard_normal((self.config.pilot, self.d)))
        least = np.array([lattice_noise(column) for column in self.y.T])
        self.lattice = float(least.max())
        # Points where the answers happen to be exact, zeros, must not make the noise zero.
        steepest = np.max(
            [np.abs(y / line.norms(t)[:, None]).max(axis=0) for t, y in seeds], axis=0
        )
        rounding = 1e-2 * np.finfo(np.float64).eps * steepest
        growth = np.maximum(self.noise.growth, rounding)
        least = np.maximum(least, math.sqrt(self.d) * rounding)
        self.noise = NoiseModel(np.maximum(self.noise.absolute, least), growth)
        return line, seeds

    def first_line(self, line: SurveyLine, seeds: list[Samples]) -> Neurons:
        """GETNEURONS on a whole line: kinks, gradients of the pieces, their differences."""
        config = self.config
        with self.stage("calibration") as details:
            stretch, noise = choose_stretch(
                self.oracle, self.noise, self.spread, self.d, rng=self.rng, config=config.far
            )
            details["magnification"] = stretch
            if stretch == 1.0:
                # Rounding inside a network grows with the input; far clusters may hide it,
                # since large terms of a bump cancel exactly there.
                least = noise.absolute / math.sqrt(self.d)
                noise = NoiseModel(noise.absolute, np.maximum(noise.growth, least))
            else:
                reach = config.far.reach
                line = gaussian_line(self.d, self.rng, reach=reach, stretch=stretch)
                seeds = self.clusters(line)
        searching = config.search.survey
        buried = self.spread <= config.buried * float(self.noise.absolute.max())
        if buried:  # ever more noise would have to be assumed before it finds nothing
            searching = dataclasses.replace(searching, attempts=1)
        self.progress.update("line search", 0, None)
        with self.stage("line search") as details:
            scan, noise = scan_line(
                self.oracle,
                line,
                noise,
                seeds,
                config=searching,
                line_config=config.search.line,
            )
            details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
        if buried and not scan.complete:
            return self.flat()
        self.progress.update("gradients", 0, None, f"{len(scan.kinks)} kinks")
        with self.stage("gradients"):
            found = survey(
                self.oracle,
                line,
                noise,
                scan,
                rng=self.rng,
                config=config.search.survey,
                gradient_config=config.search.gradients,
            )
        neurons = Neurons.from_units(found.units)
        if stretch > 1.0:
            with self.stage("biases"):
                neurons = measure_biases(self.oracle, neurons, rng=self.rng, config=config.far)
        self.progress.update("gradients", 1, 1, f"{neurons.count} neurons")
        return neurons

    def flat(self) -> Neurons:
        """Return the mean of the samples: no neurons."""
        m = self.oracle.output_dim
        none, linear = np.empty((0, self.d)), np.zeros((m, self.d))
        mean = self.y[self.gaussian].mean(axis=0)
        return Neurons(none, np.empty(0), np.empty((m, 0)), linear, mean)

    def clusters(self, line: SurveyLine) -> list[Samples]:
        """Ask the small clusters of points that a line search starts from."""
        positions, scales = line.seeds()
        grid = positions[:, None] + 1e-5 * scales[:, None] * np.arange(4)
        answers = self.oracle(line.points(grid.ravel())).reshape(*grid.shape, -1)
        return [(t, y) for t, y in zip(grid, answers, strict=True)]

    def polish(self, neurons: Neurons) -> Neurons:
        """Average the noise of coarse answers out, over samples."""
        size = (neurons.count + 1) * (self.d + 1)
        want = int(self.config.samples_per_parameter * size) - int(self.gaussian.sum())
        if size > self.config.polish.parameters or len(neurons.outputs) > 1:
            return neurons
        if want > 0:
            with self.stage("samples"):
                self.sample(self.rng.standard_normal((want, self.d)))
        with self.stage("polish"):
            new = polish_neurons(neurons, self.x, self.y, config=self.config.polish)
        return new if self.trimmed_error(new) <= self.trimmed_error(neurons) else neurons

    def trimmed_error(self, neurons: Neurons) -> float:
        """Median magnitude of the residual: what it is like where no bump hides."""
        return float(np.median(np.abs((self.y - neurons(self.x))[self.gaussian])))

    def validate(self, neurons: Neurons) -> Neurons:
        """Sample until no bump that matters can hide; follow what disagrees.

        Points that are known to contradict an earlier result come first.
        """
        config = self.config
        followed = futile = 0
        while True:
            have, want = int(self.gaussian.sum()), self.samples_wanted(neurons)
            self.expect(neurons.count, want)
            self.progress.update("samples", min(have, want), want, f"{neurons.count} neurons")
            doubt = None if self.mute else self.worst_doubt(neurons)
            if doubt is None and (self.mute or self.good(neurons)):
                if have >= want:
                    return neurons
                with self.stage("samples"):
                    count = min(max(have, config.pilot), want - have)
                    self.sample(self.rng.standard_normal((count, self.d)))
                continue
            if doubt is None and (followed >= config.residual_lines or futile >= config.futile):
                return neurons
            if doubt is None:
                followed += 1
                better = self.follow_residual(neurons)
                futile = 0 if better is not None else futile + 1
            else:
                better = self.follow_doubt(neurons, doubt)
            neurons = neurons if better is None else better

    def contradicts(self, neurons: Neurons, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return how far answers lie from neurons, over what epsilon and noise allow, ``(n,)``."""
        return np.asarray(np.linalg.norm(y - neurons(x), axis=1) / self.allowed(x))

    def allowed(self, x: FloatArray) -> FloatArray:
        """Return how far an answer may lie from neurons that are right, ``(n,)``."""
        # Far out, errors of the neurons' directions grow with the input.
        size = np.maximum(1.0, np.linalg.norm(x, axis=1) / math.sqrt(self.d))
        noise = self.config.certificate.noise * np.linalg.norm(self.noise.at(x), axis=1)
        return np.asarray(self.config.doubtful * self.epsilon * size + noise)

    def worst_doubt(self, neurons: Neurons) -> int | None:
        """Return the known point that most contradicts neurons, if lines are left for it."""
        doubts = self.doubts
        if len(doubts.x) == 0 or doubts.lines >= self.config.doubt_lines:
            return None
        excess = self.contradicts(neurons, doubts.x, doubts.y)
        excess[doubts.tries >= self.config.futile] = 0.0
        worst = int(np.argmax(excess))
        return worst if excess[worst] > 1.0 else None

    def unexplained(self, neurons: Neurons) -> int:
        """Count the known points that still contradict neurons."""
        return int((self.contradicts(neurons, self.doubts.x, self.doubts.y) > 1.0).sum())

    def follow_doubt(self, neurons: Neurons, index: int) -> Neurons | None:
        """Search a line through a known point; None where that does not explain it."""
        doubts = self.doubts
        doubts.tries[index] += 1
        doubts.lines += 1
        x, y = doubts.x[index : index + 1], doubts.y[index : index + 1]
        new = self.search_through(neurons, x[0])
        if new is None:
            return None
        before, after = (self.contradicts(some, x, y)[0] for some in (neurons, new))
        # Samples may not show at all what the point does; they must not get worse.
        allowed = max(1.1 * self.square_error(neurons), (self.config.goal * self.epsilon) ** 2)
        return new if after < 0.5 * before and self.square_error(new) <= allowed else None

    def follow_residual(self, neurons: Neurons) -> Neurons | None:
        """Search a line through the worst sample; None where that did not help."""
        residual = np.where(self.gaussian[:, None], self.y - neurons(self.x), 0.0)
        worst = int(np.argmax(np.linalg.norm(residual, axis=1)))
        new = self.search_through(neurons, self.x[worst])
        if new is None or self.square_error(new) >= 0.9 * self.square_error(neurons):
            return None
        return new

    def search_through(self, neurons: Neurons, point: FloatArray) -> Neurons | None:
        """Add the neurons that a line through a point shows; None where it shows none."""
        config = self.config
        residual = (self.y - neurons(self.x))[self.gaussian]
        noise = residual_noise(self.noise, residual, self.d, self.epsilon, config.search)
        reach = config.search.survey.reach
        line = gaussian_line(self.d, self.rng, reach=reach, through=point)
        with self.stage("residual search") as details:
            found = search_residual(
                lambda points: self.residual(neurons, points),
                line,
                noise,
                neurons.count,
                rng=self.rng,
                config=config.search,
            )
            details["kinks"] = 0 if found is None else found.units.count
        if found is None:
            return None
        more = Neurons.from_units(found.units)
        new = join_neurons(neurons, more)
        if self.coarse and len(new.outputs) == 1:
            with self.stage("samples"):
                each = config.band * (self.d + 1)
                points = band_points(more, line, each, self.rng)
                self.sample(points, gaussian=False)
            keep = ~self.gaussian | in_band(more, line, self.x)
            with self.stage("polish"):
                polished = polish_neurons(new, self.x, self.y, keep=keep, config=config.polish)
            if self.square_error(polished) < self.square_error(new):
                new = polished
        return new

    def unite(self, neurons: Neurons) -> Neurons:
        """Add to the better of two fits what only the other line showed, and polish.

        The noise of coarse answers hides weak neurons, other ones on every line.
        """
        assert self.neurons is not None
        pair = [self.neurons, neurons]
        first, second = sorted(pair, key=self.square_error)
        if len(first.outputs) > 1:
            return first
        cosine = (first.weights / first.norms[:, None]) @ (
            second.weights / second.norms[:, None]
        ).T
        new = np.abs(cosine).max(axis=0, initial=0.0) < self.config.distinct
        if not 0 < np.count_nonzero(new) <= max(8, first.count // 4):
            return first  # nothing, or a line that misled
        united = self.polish(bent_only(first, second.kept(new)))
        return self.validate(min(first, united, key=self.square_error))

    def grow(self, neurons: Neurons) -> Neurons:
        """Add the weak neurons that are missing, one by one, as the residual shows them."""
        config = self.config.grow
        near = self.square_error(neurons) <= (config.error * self.spread) ** 2
        size = (neurons.count + 1) * (self.d + 1)
        if self.good(neurons) or not near or len(neurons.outputs) > 1:
            return neurons
        if size > self.config.polish.parameters:
            return neurons
        want = max(int(config.samples * size), config.per_input * self.d)
        more = max(want - int(self.gaussian.sum()), 0)
        with self.stage("samples"):
            self.sample(self.rng.standard_normal((more, self.d)))
        with self.stage("polish"):
            neurons = polish_neurons(neurons, self.x, self.y, config=self.config.polish)
        for _ in range(config.rounds):
            if self.good(neurons):
                return self.validate(neurons)
            self.progress.update("growth", 0, None, f"{neurons.count} neurons")
            with self.stage("polish"):
                x, left = self.x[self.gaussian], (self.y - neurons(self.x))[self.gaussian, 0]
                new = propose_neuron(x, left, self.rng, config)
                if new is None:
                    return neurons
                grown = polish_neurons(
                    bent_only(neurons, new), self.x, self.y, config=self.config.polish
                )
            if self.square_error(grown) > config.gain * self.square_error(neurons):
                return neurons
            neurons = grown
        return neurons

    def regress(self) -> None:
        """Equation (19): least squares over all candidate neurons, if it helps.

        Fits are compared on a third of the samples that they did not see; an
        affine function takes part, so that nothing worse is ever returned.
        """
        assert self.neurons is not None
        config = self.config
        everyone = near_neurons(join_candidates(self.candidates), config.features)
        # Features of unit norm, so that the coefficients are the neurons' norms: R as seen
        # on a line that misled is too large a bound; the spread of F is a better one.
        norms = everyone.norms
        everyone = dataclasses.replace(
            everyone, weights=everyone.weights / norms[:, None], biases=everyone.biases / norms
        )
        bound = coefficient_bound(everyone.count, 1, self.spread, self.spread) * self.spread
        size = everyone.count + self.d + 1
        want = int(config.regression * size) + config.floor - int(self.gaussian.sum())
        if want > 0:
            with self.stage("samples"):
                self.sample(self.rng.standard_normal((want, self.d)))
        x, y = self.x[self.gaussian], self.y[self.gaussian]
        third = len(x) // 3
        fits = [self.neurons]
        with self.stage("regression"):
            for some in (everyone, everyone.kept(np.zeros(everyone.count, dtype=bool))):
                z = relu_features(some.weights, some.biases, x[third:])
                v = bounded_least_squares(z, y[third:], bound)
                k = some.count
                fits.append(
                    dataclasses.replace(
                        some, outputs=v[:k].T, linear=v[k:-1].T, constant=v[-1]
                    ).tidy()
                )
            small = [f for f in fits if (f.count + 1) * (self.d + 1) <= config.small]
            fits += [polish_neurons(f, x[third:], y[third:], config=config.polish) for f in small]
            errors = [float(np.sum((f(x[:third]) - y[:third]) ** 2)) for f in fits]
        self.neurons = fits[int(np.argmin(errors))]

    def learn(self) -> None:
        """LEARNFROMQUERIES in practice; fills in :attr:`neurons`."""
        line, seeds = self.look()
        for attempt in range(self.config.lines):
            if attempt:
                reach = self.config.search.survey.reach
                line = gaussian_line(self.d, self.rng, reach=reach)
                with self.stage("calibration"):
                    seeds = self.clusters(line)
            neurons = self.flat() if self.mute else self.first_line(line, seeds)
            self.keep(neurons)
            if self.coarse and neurons.count:
                neurons = self.polish(neurons)
                self.keep(neurons)
            neurons = self.validate(neurons)
            self.candidates.append(neurons)
            if self.coarse and not self.good(neurons):
                neurons = self.unite(neurons) if attempt else neurons
                neurons = self.grow(neurons)
            self.keep(neurons)
            if self.good(neurons) or (attempt >= 2 and self.hopeless()):
                break
        assert self.neurons is not None
        if not self.good(self.neurons):
            self.regress()
        self.finish(self.neurons)

    def learn_on(self) -> bool:
        """Go on from a certificate that failed, whose samples and doubts are data by now.

        Returns whether that changed the network.
        """
        assert self.learned is not None
        before = neurons = self.learned
        if self.coarse:
            neurons = self.polish_far(neurons)
        neurons = self.validate(neurons)
        if self.coarse and not self.good(neurons):
            neurons = self.grow(neurons)
        self.finish(neurons)
        return self.learned is not before

    def polish_far(self, neurons: Neurons) -> Neurons:
        """Fit neurons to all points, those far out included, if the doubts get fewer.

        Few Gaussian samples tell of a neuron that is rarely on: its slope stays as noisy as
        one line left it.
        """
        with self.stage("polish"):
            new = polish_neurons(
                neurons, self.x, self.y, keep=~self.gaussian, config=self.config.polish
            )
        good = self.good(new) or self.square_error(new) <= self.square_error(neurons)
        return new if good and self.unexplained(new) < self.unexplained(neurons) else neurons

    def finish(self, neurons: Neurons) -> None:
        """Keep neurons as found, and with as few of them as epsilon allows."""
        self.learned = neurons
        self.neurons = compress_neurons(
            neurons, self.config.compression * self.epsilon, config=self.config.compress
        )

    def hopeless(self) -> bool:
        """Whether even the best neurons so far explain little of F."""
        assert self.neurons is not None
        limit = self.config.hopeless * self.spread
        return self.square_error(self.neurons) > limit**2

    def keep(self, neurons: Neurons) -> None:
        """Remember the best neurons so far: what is returned if the budget ends."""
        if self.neurons is None or self.rank(neurons) < self.rank(self.neurons):
            self.neurons = neurons

    def rank(self, neurons: Neurons) -> tuple[bool, int, float]:
        """Less is better: samples that agree, then known points, then the error itself."""
        good = self.good(neurons)
        return not good, self.unexplained(neurons) if good else 0, self.square_error(neurons)


def bent_only(neurons: Neurons, more: Neurons) -> Neurons:
    """Add ``u |z| / 2`` instead of ``u relu(z)``: the kinks of ``more`` without its slopes."""
    half = -0.5 * more.outputs
    linear, constant = half @ more.weights, half @ more.biases
    return join_neurons(neurons, dataclasses.replace(more, linear=linear, constant=constant))


def join_candidates(candidates: list[Neurons]) -> Neurons:
    """Return all neurons of several tries side by side; their coefficients are still open."""
    joined = candidates[0]
    for other in candidates[1:]:
        joined = join_neurons(joined, other)
    return joined


def near_neurons(neurons: Neurons, count: int, reach: float = 6.0) -> Neurons:
    """Keep the strongest neurons among those that bend within ``reach`` deviations."""
    near = np.abs(neurons.biases) <= reach * neurons.norms
    order = np.argsort(-np.where(near, neurons.strengths, -1.0), kind="stable")[:count]
    chosen = np.zeros(neurons.count, dtype=bool)
    chosen[order] = True
    return neurons.kept(chosen & near)
