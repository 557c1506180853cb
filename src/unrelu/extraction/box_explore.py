"""Predict and follow: explore a cube until a network predicts every probe.

Probes are asked once and kept. Each time the model grows they are predicted again at no query;
where one fails, the chord to it from the nearest probe that is explained leads to an unknown
unit (:mod:`unrelu.extraction.box_follow`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.special

from unrelu._types import FloatArray, IntArray
from unrelu.core.fit import FitConfig, gain_by_chance
from unrelu.extraction.box_fit import fit_all, fit_outputs
from unrelu.extraction.box_follow import Residual, Star, find_first_kink, measure_star
from unrelu.extraction.box_points import BoxInputs
from unrelu.extraction.box_target import CubeTarget, RowNoise
from unrelu.extraction.box_units import (
    affine,
    audible,
    bend,
    folded,
    joined,
    merged,
    normalised,
    term_size,
    with_unit,
    without_unit,
)
from unrelu.extraction.noisy_search import SAME
from unrelu.networks import ReLUNetwork

__all__ = ["Answers", "Exploration"]

_PROBES = 50
"""Probes asked at a time."""
_CHORDS = 8
"""Failing probes of which the one nearest to an explained probe is followed."""
_STEPS = 3
"""Steps of a fit while units are still missing: its job is to keep the model's errors small."""
_SETTLING = 12
"""Most steps of a fit of all units found so far."""
_FAINT = 0.05
"""Units that bend values by less than this part of what the strongest does may be needless."""
_NEARLY = 30.0
"""A fit takes answers within so many times what counted as explained at first."""
_FITS = _STEPS
"""Fits without a new unit, after which a probe that leads nowhere is left to the next round."""
_ASIDE = 12
"""Probes that lead nowhere, after which it stops: the model, or what it stands on, is wrong."""
_MISFIT = ("no kink", "no star", "drift", "known unit")
"""Outcomes that say that the model's slopes are wrong rather than that a unit is missing."""


@dataclasses.dataclass
class Answers:
    """All that was asked: points ``(n, d)``, values ``(n, m)``, deviations ``(n,)``."""

    points: FloatArray
    values: FloatArray
    deviation: FloatArray

    def joined(self, other: Answers) -> Answers:
        """Return these and others."""
        return Answers(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.values, other.values]),
            np.concatenate([self.deviation, other.deviation]),
        )


class Exploration:
    """A model that grows until it explains the target in the cube."""

    def __init__(
        self,
        target: CubeTarget,
        inputs: BoxInputs,
        noise: RowNoise,
        rng: np.random.Generator,
    ) -> None:
        self.target, self.inputs, self.noise, self.rng = target, inputs, noise, rng
        d, m = target.dimension, target.outputs
        self.network = affine(np.zeros((m, d)), np.zeros(m))
        self._blocks: list[Answers] = []
        self.probes = Answers(np.empty((0, d)), np.empty((0, m)), np.empty(0))
        self.spread = self.slack = self.coarse = 0.0
        self.origin = np.empty((0, d))
        self.log: Callable[[str], None] = lambda text: None
        self.counts: dict[str, int] = {}

    # ------------------------------------------------------------------ asking

    def ask(self, cube: FloatArray, *, keep: bool = True) -> Answers:
        """Ask, and keep the answers for the fit."""
        points, values, coarseness = self.target.ask(cube)
        answers = Answers(points, values, self.noise.at(values, coarseness))
        if keep:
            self._blocks.append(answers)
        return answers

    def take(self, answers: Answers) -> None:
        """Take answers of a certificate that failed as probes."""
        self._blocks.append(answers)
        self.probes = self.probes.joined(answers)

    def residual(self, cube: FloatArray) -> Residual:
        """Ask, and subtract the model."""
        seen = self.ask(cube)
        return Residual(seen.points, seen.values - self.network(seen.points), seen.deviation)

    def seen(self) -> Answers:
        """Return all answers that could be read."""
        rows = self._blocks[0]
        if len(self._blocks) > 1:
            rows = Answers(
                np.concatenate([b.points for b in self._blocks]),
                np.concatenate([b.values for b in self._blocks]),
                np.concatenate([b.deviation for b in self._blocks]),
            )
            self._blocks = [rows]
        fine = np.isfinite(rows.deviation)
        return Answers(rows.points[fine], rows.values[fine], rows.deviation[fine])

    def misses(self, rows: Answers) -> FloatArray:
        """Return the largest deviation of each row from the model over its noise, ``(n,)``.

        Where large terms cancel, a small value has the noise of the terms: to what was measured
        comes the rounding of the model's own terms, in the precision of the answers.
        """
        terms = self.noise.precision * term_size(self.network, rows.points)
        noise = np.hypot(rows.deviation, terms)
        deviation = np.abs(rows.values - self.network(rows.points)).max(axis=1) / noise
        return np.asarray(np.where(np.isfinite(rows.deviation), deviation, 0.0))

    # ------------------------------------------------------------------- start

    def begin(self, network: ReLUNetwork | None = None) -> None:
        """Measure a first affine function, ask first probes, and say what counts as explained.

        A third of the digits between noise and spread are left for the model's own error. A
        ``network`` that is known already takes the place of the affine function.
        """
        if network is None:
            self.start()
        else:
            self.network = network
        self.probes = self.ask(self.inputs.mixed(_PROBES, self.rng))
        read = np.isfinite(self.probes.deviation)
        self.spread = float(np.std(self.probes.values[read], axis=0).max()) if read.any() else 0.0
        self.slack = self.coarse = max(self.spread / self.noise.level, 1.0) ** (1.0 / 3.0)

    def start(self) -> None:
        """Measure the affine function around a first point, with steps as long as it allows."""
        d = self.target.dimension
        center = self.inputs.likely(64, self.rng).mean(axis=0)
        step = 0.25 * np.minimum(center, 1.0 - center).min() + 0.02
        for attempt in range(12):
            x = np.clip(center, step, 1.0 - step)
            axes = step * np.eye(d)
            seen = self.ask(np.concatenate([x[None], x + axes, x - axes]))
            y, at = seen.values, seen.points
            ahead, back = y[1 : d + 1] - y[0], y[0] - y[d + 1 :]
            bend = float(np.abs(ahead - back).max())
            if bend <= 12.0 * float(seen.deviation.max()):
                break
            step /= 2.0
            if attempt % 2:
                center = self.inputs.mixed(8, self.rng).mean(axis=0)
        width = np.diagonal(at[1 : d + 1] - at[d + 1 :])
        linear = ((y[1 : d + 1] - y[d + 1 :]) / width[:, None]).T
        self.network = affine(linear, y[0] - linear @ at[0])
        self.origin = at[:1]
        self.log(f"start step {step:.3g} bend {bend / seen.deviation[0]:.1f}")

    # ----------------------------------------------------------------- explore

    def explore(self, wanted: int) -> bool:
        """Grow the model until it explains ``wanted`` probes; False if it stalls before.

        As many units may be added: more would not be seen by one probe each.
        """
        limit = self.units + wanted
        aside = np.zeros(0, dtype=bool)  # probes that led nowhere, until the model changes
        fits = 0  # since the last unit
        while self.units < limit:
            miss = self.misses(self.probes)
            aside = np.append(aside, np.zeros(len(miss) - len(aside), dtype=bool))
            bad = np.flatnonzero((miss > self.slack) & ~aside)
            if np.count_nonzero(aside) > _ASIDE:
                return False
            if len(bad) == 0:
                if len(self.probes.points) >= wanted:
                    return not aside.any()
                self.probes = self.probes.joined(self.ask(self.inputs.mixed(_PROBES, self.rng)))
                continue
            chosen, outcome = self.step(miss, bad)
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            if outcome in ("unit", "mended unit"):
                aside[:], fits = False, 0
            elif outcome in _MISFIT and fits < _FITS:
                fits += 1
                aside[:] &= not self.mend()
                aside[chosen] = bool(self.misses(self.probes)[chosen] > self.slack)
            else:
                aside[chosen] = True
            self.log(f"k={self.units} failing {len(bad)}/{len(miss)} {self.counts}")
        return False

    @property
    def units(self) -> int:
        """Number of units found so far."""
        return len(self.network.biases[0])

    def step(self, miss: FloatArray, bad: IntArray) -> tuple[int, str]:
        """Follow one failing probe from the nearest explained one; returns it and what came."""
        explained = (miss <= self.slack) & np.isfinite(self.probes.deviation)
        start = self.probes.points[explained] if explained.any() else self.origin
        some = self.rng.permutation(bad)[:_CHORDS]
        distance = np.abs(self.probes.points[some][:, None] - start[None]).sum(axis=2)
        i, j = np.unravel_index(int(np.argmin(distance)), distance.shape)
        return int(some[i]), self.follow(start[j], self.probes.points[some[i]])

    def follow(self, good: FloatArray, bad: FloatArray) -> str:
        """Search the chord for a unit, and add it."""
        kink, reason = find_first_kink(self.residual, good, bad, self.slack)
        if kink is None:
            return reason
        star = measure_star(self.residual, good, bad, kink, self.slack)
        if star is None:
            return "no star"
        near = self.known(star)
        before, old = self.explained(), self.network
        network = with_unit(normalised(old), *star.unit())
        if near is not None:  # its outputs are wrong by what the star shows
            network = joined(network, self.units, near)
        self.network = network  # what it explains is fitted
        rows = self.nearly_explained(3.0)
        fitted = fit_outputs(network, rows.points, rows.values, rows.deviation)
        counts = []
        for self.network in (network, fitted):
            counts.append(self.explained())
        self.network = fitted if counts[1] >= counts[0] else network
        if near is None:
            return "unit"
        if max(counts) > before:
            return "mended unit"
        self.network = old
        return "known unit"

    def known(self, star: Star) -> int | None:
        """Return the known unit that a star shows again, or None."""
        row, bias, _ = star.unit()
        known = normalised(self.network)
        mine = np.column_stack([known.weights[0], known.biases[0]])
        apart = [np.linalg.norm(mine - s * np.append(row, bias), axis=1) for s in (1.0, -1.0)]
        nearest = np.min(apart, axis=0)
        return int(np.argmin(nearest)) if np.min(nearest, initial=np.inf) <= SAME else None

    # --------------------------------------------------------------------- fit

    def mend(self) -> bool:
        """Fit while units may be missing; kept where it explains more than before.

        Right slopes explain probes all over the cube. A fit that bends known units towards what
        a missing one does beside its hyperplane explains no probe, or loses other answers.
        """
        before, network = self.explained(), self.network
        self.fit(steps=_STEPS)
        after = self.explained()
        if after[0] > before[0] and after[1] >= before[1]:
            return True
        self.network = network
        return False

    def explained(self) -> tuple[int, int]:
        """Return how many of the probes, and of all answers, the model explains."""
        probes, answers = self.misses(self.probes), self.misses(self.seen())
        return int((probes <= self.slack).sum()), int((answers <= self.slack).sum())

    def nearly_explained(self, wide: float) -> Answers:
        """Return answers within ``wide`` times what counted as explained at first."""
        rows = self.seen()
        near = self.misses(rows) <= wide * self.coarse
        return Answers(rows.points[near], rows.values[near], rows.deviation[near])

    def fit(self, steps: int | None = None) -> None:
        """Fit all parameters to what the model nearly explains, coarsely first.

        A robust fit to the noise would leave answers aside that are far off because a unit is
        on at few others.
        """
        rows = self.nearly_explained(_NEARLY)
        far = max(1.0, float(self.misses(rows).max(initial=0.0)) / FitConfig.outlier)
        self.network = fit_all(
            self.network, rows.points, rows.values, far * rows.deviation, steps=_STEPS
        )
        self.network = fit_all(self.network, rows.points, rows.values, rows.deviation, steps=steps)

    def balance(self) -> None:
        """Ask for more answers where a unit has too few on one of its sides for the fit."""
        sides = 2 * (self.target.dimension + 1)  # twice as many as a row has parameters
        rows = self.seen()
        more = self.inputs.balanced(self.network, rows.points, sides, self.rng)
        if len(more):
            self.ask(more)

    def sharpen(self, accept: float) -> None:
        """Fit everything, drop what says nothing, and judge by what the fit reached."""
        self.fit(steps=_SETTLING)
        tidy = self.tidied()
        if len(tidy.biases[0]) < self.units:
            self.network = tidy
            self.fit(steps=_SETTLING)
        self.drop_needless()
        rows = self.nearly_explained(1.0)
        # What nine of ten rows stay below, over what the largest of m normal residuals does.
        largest = -float(scipy.special.ndtri((1.0 - 0.9 ** (1.0 / self.target.outputs)) / 2.0))
        usual = float(np.quantile(self.misses(rows), 0.9)) / largest
        self.slack = min(accept * max(1.0, usual), max(accept, self.coarse))
        self.log(f"k={self.units} sharpened to {self.slack:.3g} deviations")

    def drop_needless(self) -> None:
        """Leave out faint units one by one, while a fit without them is as good.

        A unit fitted to noise lowers the sum of squares by one deviation squared a parameter, up
        to some times that where it was searched for.
        """
        while self.units > 1:
            bends = bend(self.network)
            weakest = int(np.argmin(bends))
            if bends[weakest] > _FAINT * float(bends.max()):
                return
            kept, rows = self.network, self.nearly_explained(_NEARLY)
            before = self.robust_loss(rows)
            self.network = without_unit(kept, weakest)
            self.fit(steps=_SETTLING)
            own = self.target.dimension + self.target.outputs + 1
            scale = max(1.0, before / (rows.values.size))
            if self.robust_loss(rows) > before + scale * gain_by_chance(own):
                self.network = kept
                return

    def robust_loss(self, rows: Answers) -> float:
        """Return the sum of squared residuals over deviations, those far off counting less."""
        left = (rows.values - self.network(rows.points)) / rows.deviation[:, None]
        cap = FitConfig.outlier
        return float(np.sum(np.log1p((left / cap) ** 2))) * cap**2

    def relative_error(self) -> float:
        """Return the model's error over the spread, as far as exploring tells."""
        return self.slack * self.noise.level / self.spread if self.spread > 0 else 0.0

    def tidied(self) -> ReLUNetwork:
        """Join units on one hyperplane; fold those that do not switch; drop silent ones."""
        network = merged(self.network, self.relative_error() * np.sqrt(self.target.dimension))
        network = folded(network, self.relative_error())
        return audible(network, self.noise.level)
