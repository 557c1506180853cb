"""What a run has seen, and how far neurons are from it."""

from __future__ import annotations

import math

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import AGREES, RARE, NoiseModel, decimal_step, is_single
from unrelu.learner.config import LearnerConfig
from unrelu.learner.formulas import bump_slope, bump_width, samples_to_see
from unrelu.learner.neurons import Neurons
from unrelu.learner.request import Request

__all__ = ["Evidence"]


class Evidence:
    """Points with their answers, their noise, and points that contradict an earlier result.

    Attributes
    ----------
    x, y
        Points ``(n, d)`` and answers ``(n, m)``.
    gaussian
        Which points are Gaussian samples, ``(n,)``: only those validate.
    noise
        Of an answer.
    lattice
        Step of the lattice of rounding on which the first samples lie; 0 where they do not.
    doubts
        Points at which an earlier result was contradicted, ``(p, d)``, and their answers.
    tries
        Lines that were searched through each of them, ``(p,)``.
    """

    def __init__(self, d: int, m: int, request: Request, config: LearnerConfig) -> None:
        self.request, self.config = request, config
        self.x, self.y = np.empty((0, d)), np.empty((0, m))
        self.gaussian: BoolArray = np.empty(0, dtype=bool)
        self.noise = NoiseModel(np.zeros(m), np.zeros(m))
        self.lattice = 0.0
        self.doubts = np.empty((0, d)), np.empty((0, m))
        self.tries: IntArray = np.empty(0, dtype=np.intp)

    # ------------------------------------------------------------------ what is seen

    def add(self, points: FloatArray, answers: FloatArray, *, gaussian: bool) -> None:
        """Keep points with their answers."""
        self.x = np.concatenate([self.x, points])
        self.y = np.concatenate([self.y, answers])
        self.gaussian = np.append(self.gaussian, np.full(len(points), gaussian))

    def add_doubts(self, points: FloatArray, answers: FloatArray) -> None:
        """Keep points that contradict a result; all of them are to be tried afresh."""
        x, y = self.doubts
        self.doubts = np.concatenate([x, points]), np.concatenate([y, answers])
        self.tries = np.zeros(len(self.doubts[0]), dtype=np.intp)

    @property
    def dimension(self) -> int:
        """Number of inputs, d."""
        return self.x.shape[1]

    @property
    def samples(self) -> int:
        """Number of Gaussian samples."""
        return int(self.gaussian.sum())

    @property
    def level(self) -> float:
        """Standard deviation of an answer's error near the origin."""
        return float(self.noise.absolute.max())

    @property
    def spread(self) -> float:
        """Standard deviation of F over all outputs, from the Gaussian samples."""
        return float(np.sqrt(self.y[self.gaussian].var(axis=0).sum()))

    @property
    def epsilon(self) -> float:
        """Accuracy asked for, in answer units; never below the rounding of the answers."""
        rounding = float(np.finfo(np.float64).eps) * float(np.abs(self.y).max(initial=0.0))
        asked = self.request.epsilon * (self.spread if self.request.relative else 1.0)
        return max(asked, RARE * rounding, float(np.finfo(np.float64).tiny))

    @property
    def single(self) -> bool:
        """Whether all answers are float32 numbers."""
        return is_single(self.y)

    @property
    def noisy(self) -> bool:
        """Whether noise takes more than half of float64's digits from the answers."""
        return 0.0 < math.sqrt(np.finfo(np.float64).eps) * self.spread < self.level

    @property
    def coarse(self) -> bool:
        """Whether the answers' noise is more than rounding in float64."""
        return self.single or self.noisy

    @property
    def mute(self) -> bool:
        """Whether the samples show nothing but rounding errors."""
        return 0.0 < self.spread <= RARE * self.lattice

    @property
    def buried(self) -> bool:
        """Whether answers vary so little that a search would find their noise."""
        # The spread of F and noise together; the noise is known within a factor of two.
        return self.spread <= 2.0 * self.level

    # -------------------------------------------------------------- neurons against it

    def square_error(self, neurons: Neurons) -> float:
        """Mean square residual over the Gaussian samples, less the answers' noise."""
        residual = (self.y - neurons(self.x))[self.gaussian]
        mean = float((residual**2).sum(axis=1).mean())
        noise = float((self.noise.absolute**2).sum()) if self.coarse else 0.0
        # The noise is known to some 20 %, and matters only beside a like error.
        return max(mean - noise, 0.2 * min(mean, noise))

    def typical_error(self, neurons: Neurons) -> float:
        """Median magnitude of the residual: what it is like where no bump hides."""
        return float(np.median(np.abs((self.y - neurons(self.x))[self.gaussian])))

    def good(self, neurons: Neurons) -> bool:
        """Whether the samples agree well within epsilon."""
        return self.square_error(neurons) <= (self.config.share * self.epsilon) ** 2

    def missed(self, x: FloatArray) -> FloatArray:
        """Return how far neurons that are good may be off, ``(n,)``.

        They miss samples by a part of epsilon, root mean square; farther out errors of their
        directions grow with the input.
        """
        size = np.maximum(1.0, np.linalg.norm(x, axis=1) / math.sqrt(self.dimension))
        return np.asarray(RARE * self.config.share * self.epsilon * size)

    def allowed(self, x: FloatArray) -> FloatArray:
        """Return how far an answer, with its noise, may lie from good neurons, ``(n,)``."""
        return np.asarray(self.missed(x) + RARE * np.linalg.norm(self.noise.at(x), axis=1))

    def excess(self, neurons: Neurons, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return how far answers lie from neurons, over what is allowed, ``(n,)``."""
        return np.asarray(np.linalg.norm(y - neurons(x), axis=1) / self.allowed(x))

    def unexplained(self, neurons: Neurons) -> int:
        """Count the doubts that still contradict neurons."""
        return int((self.excess(neurons, *self.doubts) > 1.0).sum())

    def rank(self, neurons: Neurons) -> tuple[bool, int, float]:
        """Less is better: samples that agree, then known points, then the error itself."""
        good = self.good(neurons)
        return not good, self.unexplained(neurons) if good else 0, self.square_error(neurons)

    # ------------------------------------------------------------------ what may hide

    def radius(self, neurons: Neurons) -> float:
        """R: given, or the largest norm seen."""
        if self.request.norm_bound is not None:
            return self.request.norm_bound
        return float(neurons.strengths.max(initial=0.0))

    def hidden_total(self, neurons: Neurons) -> float:
        """V: what the norms of neurons that may hide add up to.

        k R where both are given. A missing k is taken from what was found; where R is missing,
        no more is assumed to hide than was found, all norms added up, unless the rounding
        noise gives more away.
        """
        request = self.request
        if request.norm_bound is None:
            assumed = float(neurons.strengths.sum())
        else:
            count = max(neurons.count, 1) if request.width is None else request.width
            assumed = count * request.norm_bound
        return assumed if request.told else max(assumed, self.betrayed_total(neurons))

    def betrayed_total(self, neurons: Neurons) -> float:
        """V of terms that the answers' rounding noise gives away; 0 where it does not.

        A bump is a sum of large terms that cancel: zero nearly everywhere, but
        rounded in proportion to the terms. Printed decimals say nothing.
        """
        if decimal_step(self.y[self.gaussian]) > 0.0 or (self.coarse and not self.single):
            return 0.0
        eps = float(np.finfo(np.float32 if self.single else np.float64).eps)
        expected = eps * float(np.median(neurons.magnitudes(self.x[self.gaussian])))
        # Near 1 for networks that are known, 100 to 1e6 where large terms cancel. Terms of
        # size 4 s, as those of a bump of slopes s, leave a noise of about eps s.
        return 4.0 * self.level / eps if self.level > AGREES * expected else 0.0

    def samples_wanted(self, neurons: Neurons, asked: int) -> int:
        """Gaussian samples after which no bump that matters should be unseen.

        Parameters
        ----------
        asked
            Queries so far: where nothing is known about bumps, samples are a part of the others.
        """
        config, request = self.config, self.request
        if request.narrowest is not None:
            return max(config.pilot, samples_to_see(request.narrowest, config.miss))
        # Bumps as steep as one neuron: where copies add up, the certificate meets them, and
        # what it meets is searched.
        steepest = self.radius(neurons)
        need = min(self.samples_for(steepest), config.most)
        if request.norm_bound is None:
            need = min(need, int(config.share * (asked - self.samples)))
        betrayed = 0.0 if request.told else bump_slope(self.betrayed_total(neurons))
        if betrayed > steepest:
            need = max(need, min(config.probes, self.samples_for(betrayed)))
        return max(config.pilot, need)

    def samples_for(self, slope: float) -> int:
        """Return how many samples see every bump of a slope that matters at epsilon."""
        loss = self.config.share * self.epsilon**2
        return samples_to_see(bump_width(loss, slope), self.config.miss)
