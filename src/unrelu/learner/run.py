"""GETNEURONS in practice: the stages of a run and the state that they share."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import NORMAL_MEDIAN, NoiseModel, Samples, cluster_of
from unrelu.core.run import Run
from unrelu.learner.compress import compress_neurons
from unrelu.learner.config import LearnerConfig
from unrelu.learner.evidence import Evidence
from unrelu.learner.far import choose_stretch, measure_biases
from unrelu.learner.formulas import coefficient_bound, lattice_noise
from unrelu.learner.grow import propose_neuron
from unrelu.learner.neurons import Neurons, join_neurons
from unrelu.learner.polish import band_points, fit_neurons, parameters_of
from unrelu.learner.price import price_learner
from unrelu.learner.regression import fit_candidates
from unrelu.learner.request import Request
from unrelu.learner.search import gaussian_line, residual_noise, search_residual
from unrelu.lines.survey import SurveyConfig, SurveyLine, calibrate, scan_line, survey

__all__ = ["LearnerConfig", "Learning"]


class Learning:
    """One run of the learner.

    Attributes
    ----------
    seen
        All answers that neurons are held against.
    neurons
        The best so far: what is returned if the budget ends.
    learned
        Neurons as they were found, before merging.
    """

    def __init__(self, run: Run, request: Request, config: LearnerConfig) -> None:
        self.run, self.request, self.config = run, request, config
        self.target, self.rng = run.target, run.rng
        self.d, self.m = run.target.input_dim, run.target.output_dim
        self.seen = Evidence(self.d, self.m, request, config)
        self.neurons: Neurons | None = None
        self.learned: Neurons | None = None
        self.candidates: list[Neurons] = []

    # ---------------------------------------------------------------- helpers

    def sample(self, count: int) -> None:
        """Ask Gaussian samples until there are so many."""
        more = count - self.seen.samples
        if more > 0:
            with self.run.stage("samples"):
                points = self.rng.standard_normal((more, self.d))
                self.seen.add(points, self.target(points), gaussian=True)

    def expect(self, neurons: int, samples: int) -> None:
        """Plan the price of so many neurons and so many samples, held-out ones included."""
        price = price_learner(self.d, neurons, coarse=self.seen.coarse, samples=samples)
        self.target.allowance.plan(price)

    def keep(self, neurons: Neurons) -> None:
        """Remember the best neurons so far."""
        if self.neurons is None or self.seen.rank(neurons) < self.seen.rank(self.neurons):
            self.neurons = neurons

    @property
    def best(self) -> Neurons:
        """The best neurons so far; none but the mean before any were found."""
        return self.flat() if self.neurons is None else self.neurons

    @property
    def found(self) -> Neurons:
        """The best neurons as they were found."""
        return self.best if self.learned is None else self.learned

    def finish(self, neurons: Neurons) -> None:
        """Keep neurons as found, and with as few of them as epsilon allows."""
        self.learned = neurons
        self.neurons = compress_neurons(neurons, self.config.share * self.seen.epsilon, self.rng)

    # ------------------------------------------------------------- first lines

    def look(self) -> tuple[SurveyLine, list[Samples]]:
        """Measure the noise and the spread of F; returns the line that was used."""
        line = gaussian_line(self.d, self.rng)
        with self.run.stage("calibration") as details:
            # Inputs ten times as large as usual ones still tell the noise near the origin.
            noise, seeds = calibrate(self.target, line, near=10.0 * math.sqrt(self.d))
            details["noise"] = float(noise.absolute.max())
        self.sample(self.config.pilot)
        least = np.array([lattice_noise(column) for column in self.seen.y.T])
        self.seen.lattice = float(least.max())
        # Points where the answers happen to be exact, zeros, must not make the noise zero.
        steepest = np.max(
            [np.abs(y / line.norms(t)[:, None]).max(axis=0) for t, y in seeds], axis=0
        )
        rounding = 1e-2 * np.finfo(np.float64).eps * steepest
        least = np.maximum(least, math.sqrt(self.d) * rounding)
        self.seen.noise = NoiseModel(
            np.maximum(noise.absolute, least), np.maximum(noise.growth, rounding)
        )
        return line, seeds

    def clusters(self, line: SurveyLine) -> list[Samples]:
        """Ask the small clusters of points that a line search starts from."""
        grid = cluster_of(*line.seeds())
        answers = self.target(line.points(grid.ravel())).reshape(*grid.shape, -1)
        return [(t, y) for t, y in zip(grid, answers, strict=True)]

    def flat(self) -> Neurons:
        """Return the mean of the samples: no neurons."""
        none, linear = np.empty((0, self.d)), np.zeros((self.m, self.d))
        mean = self.seen.y[self.seen.gaussian].mean(axis=0)
        return Neurons(none, np.empty(0), np.empty((self.m, 0)), linear, mean)

    def first_line(self, line: SurveyLine, seeds: list[Samples]) -> Neurons:
        """GETNEURONS on a whole line: kinks, gradients of the pieces, their differences."""
        if self.seen.mute:
            return self.flat()
        stretch, line, noise, seeds = self.magnified(line, seeds)
        searching = SurveyConfig()
        if self.seen.buried:  # ever more noise would have to be assumed before it finds nothing
            searching = dataclasses.replace(searching, attempts=1)
        self.run.progress.update("line search", 0, None)
        with self.run.stage("line search") as details:
            scan, noise = scan_line(self.target, line, noise, seeds, config=searching)
            details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
        if self.seen.buried and not scan.complete:
            return self.flat()
        self.run.progress.update("gradients", 0, None, f"{len(scan.kinks)} kinks")
        with self.run.stage("gradients"):
            found = survey(self.target, line, noise, scan, rng=self.rng)
        neurons = Neurons.from_units(found.units)
        if stretch > 1.0:
            with self.run.stage("biases"):
                each = self.config.samples_per_parameter
                neurons = measure_biases(self.target, neurons, answers=each, rng=self.rng)
        self.run.progress.update("gradients", 1, 1, f"{neurons.count} neurons")
        return neurons

    def magnified(
        self, line: SurveyLine, seeds: list[Samples]
    ) -> tuple[float, SurveyLine, NoiseModel, list[Samples]]:
        """Return a line from which noisy answers look precise, and how far out it is."""
        noise, stretch = self.seen.noise, 1.0
        with self.run.stage("calibration") as details:
            if self.seen.noisy and not self.rounded():
                stretch, noise = choose_stretch(self.target, noise, self.d, rng=self.rng)
            details["magnification"] = stretch
            if stretch > 1.0:
                line = gaussian_line(self.d, self.rng, stretch=stretch)
                return stretch, line, noise, self.clusters(line)
        # Rounding inside a network grows with the input; far clusters may hide it,
        # since large terms of a bump cancel exactly there.
        least = noise.absolute / math.sqrt(self.d)
        return 1.0, line, NoiseModel(noise.absolute, np.maximum(noise.growth, least)), seeds

    def rounded(self) -> bool:
        """Whether the noise is that of float32 arithmetic, which grows with the input.

        A network that computes so gives the same answer to the same input, asked alone as the
        first time: in a batch the last bits may differ.
        """
        if not self.seen.single:
            return False
        first, second = (self.target(self.seen.x[:1], repeat=count) for count in (1, 2))
        return bool((first == second).all())

    # ------------------------------------------------------------ what disagrees

    def validate(self, neurons: Neurons) -> Neurons:
        """Sample until no bump that matters can hide; follow what disagrees.

        Points that are known to contradict an earlier result come first.
        """
        seen, config = self.seen, self.config
        followed = futile = 0
        while True:
            have = seen.samples
            want = seen.samples_wanted(neurons, self.target.queries.total)
            self.expect(neurons.count, want)
            self.run.progress.update("samples", min(have, want), want, f"{neurons.count} neurons")
            doubt = self.worst_doubt(neurons)
            if doubt is not None:
                better = self.follow_doubt(neurons, doubt)
            elif seen.mute or seen.good(neurons):
                if have >= want:
                    return neurons
                self.sample(min(2 * have, want))
                continue
            elif followed >= 2 * config.lines or futile >= config.futile:
                return neurons
            else:
                better = self.follow_residual(neurons)
                followed, futile = followed + 1, 0 if better is not None else futile + 1
            neurons = neurons if better is None else better

    def worst_doubt(self, neurons: Neurons) -> int | None:
        """Return the known point that most contradicts neurons, if lines are left for it."""
        seen, config = self.seen, self.config
        x, y = seen.doubts
        if seen.mute or len(x) == 0 or seen.tries.sum() >= 4 * config.lines:
            return None
        excess = seen.excess(neurons, x, y)
        excess[seen.tries >= config.futile] = 0.0
        worst = int(np.argmax(excess))
        return worst if excess[worst] > 1.0 else None

    def follow_doubt(self, neurons: Neurons, index: int) -> Neurons | None:
        """Search a line through a known point; None where that does not explain it."""
        seen = self.seen
        seen.tries[index] += 1
        x, y = (part[index : index + 1] for part in seen.doubts)
        new = self.search_through(neurons, x[0])
        if new is None:
            return None
        before, after = (seen.excess(some, x, y)[0] for some in (neurons, new))
        # Samples may not show at all what the point does; they must not get worse.
        unharmed = seen.good(new) or seen.square_error(new) <= seen.square_error(neurons)
        return new if after < 0.5 * before and unharmed else None

    def follow_residual(self, neurons: Neurons) -> Neurons | None:
        """Search a line through the worst sample; None where that did not help."""
        seen = self.seen
        residual = np.where(seen.gaussian[:, None], seen.y - neurons(seen.x), 0.0)
        worst = int(np.argmax(np.linalg.norm(residual, axis=1)))
        new = self.search_through(neurons, seen.x[worst])
        if new is None or seen.square_error(new) >= 0.9 * seen.square_error(neurons):
            return None
        return new

    def search_through(self, neurons: Neurons, point: FloatArray) -> Neurons | None:
        """Add the neurons that a line through a point shows; None where it shows none."""
        seen = self.seen
        residual = (seen.y - neurons(seen.x))[seen.gaussian]
        noise = residual_noise(seen.noise, residual, self.d, self.config.share * seen.epsilon)
        line = gaussian_line(self.d, self.rng, through=point)
        with self.run.stage("residual search") as details:
            found = search_residual(
                lambda points: np.asarray(self.target(points) - neurons(points)),
                line,
                noise,
                rng=self.rng,
            )
            details["kinks"] = 0 if found is None else found.units.count
        if found is None:
            return None
        more = Neurons.from_units(found.units)
        new = join_neurons(neurons, more)
        if seen.coarse and more.count:
            with self.run.stage("samples"):
                each = math.ceil(self.config.samples_per_parameter * (self.d + 1))
                points = band_points(more, line, each, self.rng)
                seen.add(points, self.target(points), gaussian=False)
            fitted = self.fitted(new)
            new = fitted if seen.square_error(fitted) < seen.square_error(new) else new
        return new

    # ------------------------------------------------------------ coarse answers

    def fitted(self, neurons: Neurons) -> Neurons:
        """Fit neurons to all points, twice.

        Points around a feature that was just found are all off by as much, at first: they
        are no outliers, which the samples' far smaller residuals would make them.
        """
        seen, others = self.seen, ~self.seen.gaussian
        with self.run.stage("polish"):
            for _ in range(2 if others.any() else 1):
                deviation = seen.noise.at(seen.x)
                off = np.abs(seen.y - neurons(seen.x))[others]
                if len(off):
                    usual = np.median(off, axis=0) / NORMAL_MEDIAN
                    deviation[others] = np.maximum(deviation[others], usual)
                neurons = fit_neurons(
                    neurons, seen.x, seen.y, deviation, most=self.config.parameters
                )
        return neurons

    def polish(self, neurons: Neurons) -> Neurons:
        """Average the noise of coarse answers out, over samples."""
        size = parameters_of(neurons)
        if neurons.count == 0 or size > self.config.parameters:
            return neurons
        self.sample(math.ceil(self.config.samples_per_parameter * size / self.m))
        new = self.fitted(neurons)
        error = self.seen.typical_error
        return new if error(new) <= error(neurons) else neurons

    def grow(self, neurons: Neurons) -> Neurons:
        """Add the weak neurons that a line missed, one by one, as the residual shows them.

        The noise of coarse answers hides weak neurons, and another line would miss as many.
        """
        seen, config = self.seen, self.config
        near = seen.square_error(neurons) <= (config.foreign * seen.spread) ** 2
        size = parameters_of(neurons)
        if seen.good(neurons) or not near or self.m > 1 or size > config.parameters:
            return neurons
        self.sample(math.ceil(2.0 * config.samples_per_parameter * size))
        neurons = self.fitted(neurons)
        for _ in range(config.lines):
            if seen.good(neurons):
                return self.validate(neurons)
            self.run.progress.update("growth", 0, None, f"{neurons.count} neurons")
            x, left = seen.x[seen.gaussian], (seen.y - neurons(seen.x))[seen.gaussian, 0]
            new = propose_neuron(x, left, self.rng)
            if new is None:
                return neurons
            # u |z| / 2 instead of u relu(z): the kink without its slopes.
            half = -0.5 * new.outputs
            kink = dataclasses.replace(new, linear=half @ new.weights, constant=half @ new.biases)
            grown = self.fitted(join_neurons(neurons, kink))
            if seen.square_error(grown) > 0.9 * seen.square_error(neurons):
                return neurons
            neurons = grown
        return neurons

    def polish_far(self, neurons: Neurons) -> Neurons:
        """Fit neurons to all points, those far out included, if the doubts get fewer.

        Few Gaussian samples tell of a neuron that is rarely on: its slope stays as noisy as
        one line left it.
        """
        seen, new = self.seen, self.fitted(neurons)
        good = seen.good(new) or seen.square_error(new) <= seen.square_error(neurons)
        return new if good and seen.unexplained(new) < seen.unexplained(neurons) else neurons

    def regress(self) -> None:
        """Equation (19): least squares over all candidate neurons, if it helps.

        Fits are compared on a third of the samples that they did not see; an
        affine function takes part, so that nothing worse is ever returned.
        """
        seen, each = self.seen, self.config.samples_per_parameter
        bound = coefficient_bound(self.d, 1, seen.spread, seen.spread) * seen.spread
        count = sum(some.count for some in self.candidates)
        most = min(count, self.d * self.config.lines)
        self.sample(math.ceil(2.0 * each * (most + self.d + 1)))
        with self.run.stage("regression"):
            x, y = seen.x[seen.gaussian], seen.y[seen.gaussian]
            third = len(x) // 3
            fits = [self.best, *fit_candidates(self.candidates, most, x[third:], y[third:], bound)]
            deviation = seen.noise.at(x[third:])
            fits += [
                fit_neurons(f, x[third:], y[third:], deviation, most=self.config.parameters)
                for f in fits
            ]
            errors = [float(np.sum((f(x[:third]) - y[:third]) ** 2)) for f in fits]
        self.neurons = fits[int(np.argmin(errors))]
