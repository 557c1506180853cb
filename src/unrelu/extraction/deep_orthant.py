"""A depth-2 network on the non-negative orthant, by a path along the axes (Theorem 2).

Every hyperplane that meets the orthant away from its corner meets one of the
half-axes. All units are written so that they are off at the corner; then the
function less its affine part there, less the units already known, is zero from
the corner to the first kink of an unknown unit. An axis on which this residual
is zero far out holds nothing new, which a few answers tell.

What an axis shows of a unit is confirmed elsewhere on its hyperplane, and measured again
there in the end (:mod:`unrelu.extraction.deep_room`). A kink where a known unit has its own,
and far smaller, is the trace of an error and no unit.

Near kinks are known best, so all axes are searched up to a small distance
first, and farther out only afterwards: a unit that meets one axis far away
usually meets another one near.

Where answers end (log-odds underflow), so do the axes, and a unit may be left
that meets none of them so near. Rays from the corner to points that the units
found do not explain then show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_answers import Saturated
from unrelu.extraction.deep_numbers import SURE
from unrelu.extraction.deep_orthant_config import OrthantConfig
from unrelu.extraction.deep_room import confirm, measure_again, safe_steps
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.lines.gradients import GradientConfig, Gradients, measure_gradients
from unrelu.lines.kinks import LineScan, find_kinks

__all__ = ["OrthantConfig", "OrthantSearch"]

AskPoints = Callable[[FloatArray], FloatArray]


class OrthantSearch:
    """The units found so far, and searches for more.

    Parameters
    ----------
    ask
        ``(n, k) -> (n, m)``; NaN where a point has no answer.
    k, noise
        Dimension of the orthant, and noise of the answers as a function of the norm of s.
    max_units
        The search is given up beyond so many: the function has more layers.
    settle
        Whether all units are measured again where they have room: nothing else makes them
        precise later.
    """

    def __init__(
        self,
        ask: AskPoints,
        k: int,
        noise: NoiseModel,
        *,
        rng: np.random.Generator,
        max_units: float = math.inf,
        settle: bool = True,
        config: OrthantConfig | None = None,
        gradient_config: GradientConfig | None = None,
    ) -> None:
        self.ask, self.k, self.noise, self.rng = ask, k, noise, rng
        self.max_units, self.settle_all = max_units, settle
        self.config = OrthantConfig() if config is None else config
        self.gradient_config = GradientConfig() if gradient_config is None else gradient_config
        self.ends = np.full(k, np.inf)
        self.refused = 0  # beyond those confirmed
        self.units, self.affine_error = self._corner()

    def _corner(self) -> tuple[OrthantUnits, float]:
        """Measure the affine part, which holds up to the first kinks."""
        k, corner = self.k, np.zeros((1, self.k))
        value = self.ask(corner)
        if np.isnan(value).any():
            raise Saturated
        found = self._gradients(self.ask, corner, value, np.array([self.config.corner]), np.eye(k))
        units = OrthantUnits.affine(found.derivatives[0].T.copy(), value[0])
        return units, float(np.median(found.std))

    def _gradients(
        self,
        ask: AskPoints,
        points: FloatArray,
        values: FloatArray,
        steps: FloatArray,
        directions: FloatArray,
        slip: float = 0.0,
    ) -> Gradients:
        """Measure gradients inside the orthant; ``slip`` is what answers may be off besides."""
        return measure_gradients(
            ask, points, values, steps, directions, self.noise.widened(slip, 0.0), rng=self.rng,
            bounds=(np.zeros(self.k), np.full(self.k, np.inf)), config=self.gradient_config,
        )  # fmt: skip

    def settle(self, new: IntArray) -> IntArray:
        """Measure new units again where they have room; those that are none are dropped.

        Returns
        -------
        The units that stay.
        """
        units, config = self.units, self.config
        wrong = todo = new
        for part in config.room.parts:
            if len(todo) == 0:
                break
            measured, agreed = measure_again(
                self.residual, units, todo, self.noise, part, rng=self.rng,
                config=config.room, gradient_config=self.gradient_config,
            )  # fmt: skip
            wrong = todo = measured[~agreed]
        keep = np.ones(len(units.weights), dtype=bool)
        keep[wrong] = False
        units.kept(keep)
        return np.flatnonzero(np.isin(np.flatnonzero(keep), new))

    def residual(self, s: FloatArray) -> FloatArray:
        """Ask, and subtract what is known; ``(n, k)`` to ``(n, m)``."""
        return np.asarray(self.ask(s) - self.units(s))

    def level(self) -> NoiseModel:
        """Noise of the residual: of the answers, and of the units subtracted."""
        shift = SURE * math.sqrt(float((self.units.shifts**2).sum()))
        return self.noise.widened(shift, self.slack())

    def size(self) -> float:
        """Slope of the largest unit."""
        return float(np.linalg.norm(self.units.weights, axis=1).max(initial=0.0))

    def slack(self) -> float:
        """Error of the slope of what is subtracted."""
        return SURE * math.sqrt(self.affine_error**2 + float((self.units.errors**2).sum()))

    def usable(self, direction: FloatArray, reach: float) -> float:
        """Return up to where a ray has answers, given that it has not everywhere."""

        def answered(t: FloatArray) -> FloatArray:
            lost = np.isnan(self.residual(np.multiply.outer(t, direction))).any(axis=1)
            return t[: int(np.argmax(lost)) if lost.any() else len(t)]

        fine = answered(reach * 0.5 ** np.arange(self.config.halvings, 0, -1.0))
        if len(fine) == 0:
            raise Saturated
        more = answered(fine[-1] * np.array(self.config.between))
        return float(np.append(fine, more)[-1])

    def search(self, direction: FloatArray, reach: float) -> tuple[bool, float]:
        """Find the units that a ray from the corner still shows up to a distance.

        Parameters
        ----------
        direction
            Of unit length, no entry negative, ``(k,)``.

        Returns
        -------
        new, reach
            Whether there were any, and how far answers went.
        """
        config, noise = self.config, self.level()

        def along(t: FloatArray) -> FloatArray:
            return self.residual(np.multiply.outer(t, direction))

        def sure(t: FloatArray) -> FloatArray:
            values = along(t)
            if np.isnan(values).any():
                raise Saturated
            return values

        t = reach * np.array(config.probes)
        values = along(t)
        if np.isnan(values).any():
            reach = self.usable(direction, reach)
            t = reach * np.array(config.probes)
            values = sure(t)
        if (np.abs(values) <= config.accept * noise.std(t)).all():
            return False, reach
        zero = np.zeros((1, values.shape[1]))
        near = 1e-3 * reach
        start = sure(np.array([near]))
        seeds = [(np.array([0.0]), zero), (np.array([near]), start)]
        seeds += [(t[i : i + 1], values[i : i + 1]) for i in range(len(t))]
        scan = find_kinks(sure, noise.std, seeds, scale=1.0 if reach > 10.0 else math.inf)
        # A first piece that is not flat says that the affine part was measured across a kink.
        slope = scan.pieces[0].slope
        # One without an end is the error of all slopes together, along this ray.
        across = scan.ends[0] > 0 and np.abs(slope).max() > config.trace * self.slack()
        if across or len(scan.kinks) == 0:
            self.units.linear += np.multiply.outer(slope, direction)
        else:
            slope = np.zeros_like(slope)
        news = np.flatnonzero(~self.traces(direction, scan))
        if len(news) == 0:
            # Errors of known units are larger than they claim: no axis need be searched for them,
            # as long as no unit that counts can hide in them.
            seen = float(np.abs(values[-1]).max() / t[-1])
            most = config.spurious * self.size()
            self.affine_error = max(self.affine_error, min(seen, most) / SURE)
            return False, reach
        return self.resolve(direction, scan, slope, reach, news), reach

    def traces(self, direction: FloatArray, scan: LineScan) -> BoolArray:
        """Tell which kinks of a ray's residual are errors of units known, ``(kinks,)``.

        They lie where the unit's own kink is, and are far smaller.
        """
        slopes = self.units.weights @ direction
        with np.errstate(divide="ignore", invalid="ignore"):
            own = -self.units.biases / slopes
        near = np.abs(scan.kinks[:, None] - own) <= self.config.echo * scan.kinks[:, None]
        size = np.linalg.norm(scan.jumps, axis=1)
        small = size[:, None] <= self.config.same * np.abs(slopes)
        return np.asarray((near & small).any(axis=1))

    def centers(self, scan: LineScan, reach: float) -> tuple[FloatArray, FloatArray]:
        """Places in the pieces after each kink, and the crowding there."""
        kinks = scan.kinks
        ends = np.append(kinks[1:], reach)  # nothing is known beyond
        choice = kinks[:, None] + (ends - kinks)[:, None] * np.array(self.config.spread)
        crowd = (1.0 / np.abs(choice[:, :, None] - kinks)).sum(axis=2) + 1.0 / choice
        best = crowd.argmin(axis=1)
        rows = np.arange(len(kinks))
        return choice[rows, best], crowd[rows, best]

    def resolve(
        self,
        direction: FloatArray,
        scan: LineScan,
        slope: FloatArray,
        reach: float,
        news: IntArray,
    ) -> bool:
        """Measure the gradients beside some kinks of a ray; their differences are the units."""
        k, before = self.k, len(self.units.weights)
        t, crowd = self.centers(scan, reach)
        points = np.multiply.outer(t, direction)
        axis = int(np.argmax(direction))
        values = np.array([p.predict(float(s)) for p, s in zip(scan.pieces[1:], t, strict=True)])
        values -= np.multiply.outer(t, slope)  # the affine part has been corrected
        others = np.delete(np.eye(k), axis, axis=0)
        if k == 2:  # the check of a single step would be that step
            others = np.concatenate([others, np.eye(k)[[axis]]])
        width = max(1, min(len(others), self.gradient_config.chunk))
        steps = self.config.crossings * np.pi / (width * crowd)
        # Errors of the units subtracted are affine but at their own kinks, where a step sees
        # their slope over its length: they are no noise that a division by it would magnify.
        slip = self.slack() * float(np.median(steps))
        # Before the first kink the residual is zero; piece i + 1 lies behind kink i.
        beside = np.union1d(news, news[news > 0] - 1)
        found = self._gradients(
            self.residual, points[beside], values[beside], steps[beside], others, slip
        )
        self.add_units(direction, scan, slope, found, beside, news, points)
        return self.accepted(before) > 0

    def add_units(
        self,
        direction: FloatArray,
        scan: LineScan,
        slope: FloatArray,
        found: Gradients,
        beside: IntArray,
        news: IntArray,
        points: FloatArray,
    ) -> None:
        """Take in the units that gradients at ``points`` behind the kinks show.

        Gradients were measured behind the kinks ``beside``.
        """
        k, m = self.k, scan.jumps.shape[1]
        axis = int(np.argmax(direction))
        gradients = np.zeros((len(points) + 1, m, k))
        across = found.derivatives[:, : k - 1].transpose(0, 2, 1)
        gradients[np.ix_(1 + beside, np.arange(m), np.delete(np.arange(k), axis))] = across
        # The slope along the ray gives what is left.
        rest = np.array([p.slope for p in scan.pieces]) - slope - gradients @ direction
        gradients[:, :, axis] = rest / direction[axis]
        jumps = np.diff(gradients, axis=0)
        size = np.linalg.norm(scan.jumps, axis=1)
        # A step of the answers is no kink: the slope may be the same on both sides of it.
        output = scan.jumps / np.where(size > 0.0, size, 1.0)[:, None]
        weights = np.einsum("jmk,jm->jk", jumps, output)
        std = np.zeros(len(points) + 1)
        if k > 1:
            used = np.median(np.abs(found.steps), axis=1)
            std[1 + beside] = math.sqrt(2.0) * self.noise.at(points[beside]).max(axis=1) / used
        errors = np.hypot(std[1:], std[:-1])
        # A gradient that never had an answer is not greater than anything.
        real = np.linalg.norm(weights, axis=1) > self.config.trace * self.slack()
        real &= np.isin(np.arange(len(points)), news)
        weights = weights[real]
        biases = -(weights @ direction) * scan.kinks[real]
        shifts = size[real] * np.array(scan.kink_std)[real]
        self.units.add(weights, biases, output[real].T, errors[real], shifts)

    def accepted(self, before: int) -> int:
        """Keep those of the units from ``before`` on that are some; returns how many."""
        config = self.config
        new = np.arange(before, len(self.units.weights))
        sure = confirm(
            self.residual, self.units, new, self.noise, rng=self.rng, config=config.room
        )
        self.refused += int(np.where(sure, -1, 1).sum())
        self.units.kept(np.append(np.ones(before, dtype=bool), sure))
        new = np.arange(before, len(self.units.weights))
        if self.settle_all and self.slack() > config.tight * self.size():
            new = self.settle(new)
        return len(new)

    @property
    def bends(self) -> bool:
        """Whether most hyperplanes seen bend: there is more than one hidden layer."""
        return self.refused > self.config.bent and bool(np.isinf(self.ends).all())

    def clean(self) -> None:
        """Drop traces, and join what shares a hyperplane."""
        units, config = self.units, self.config
        if len(units.weights) == 0:
            return
        size = np.linalg.norm(units.weights, axis=1) * np.linalg.norm(units.outputs, axis=0)
        units.kept(size > config.spurious * size.max())
        units.merge(config.same)

    def quiet(self, direction: FloatArray, reach: float) -> bool:
        """Whether nothing is left at the far end of a ray.

        Every kink on the way changes the slope there.
        """
        t = reach * np.array(self.config.probes)
        values = self.residual(np.multiply.outer(t, direction))
        return bool((np.abs(values) <= self.config.accept * self.level().std(t)).all())

    def axes(self) -> None:
        """Search all axes, near the corner first."""
        units, config = self.units, self.config
        searched = np.zeros(self.k)
        for i, reach in enumerate(config.reaches):
            open_axes = 0
            for axis in self.rng.permutation(self.k):
                if searched[axis] >= min(self.ends[axis], reach):
                    continue
                direction = np.eye(self.k)[axis]
                if i > 0 and self.quiet(direction, config.reaches[-1]):
                    searched[axis] = config.reaches[-1]
                    continue
                for _ in range(config.passes):
                    found, searched[axis] = self.search(direction, min(reach, self.ends[axis]))
                    if searched[axis] < reach:
                        self.ends[axis] = searched[axis]
                    if not found and not self.bends:
                        break
                    if len(units.weights) > self.max_units or self.bends:
                        units.open_axes = self.k
                        return
                else:
                    open_axes += 1
            units.open_axes = open_axes
            self.clean()
            # Units that an axis met in a narrow piece hold up the search farther out.
            rough = np.maximum(units.errors, units.shifts) > config.spurious * self.size()
            self.settle(np.flatnonzero(~units.settled & (rough | self.settle_all)))
        if self.settle_all and len(units.weights):
            self.corner_again()

    def corner_again(self) -> None:
        """Measure the affine part with steps as long as the units known allow."""
        k, units = self.k, self.units
        corner = np.zeros((1, k))
        steps = safe_steps(
            units.biases[None], units.weights, self.config.room.parts[0], np.ones(1)
        )
        found = self._gradients(self.residual, corner, self.residual(corner), steps, np.eye(k))
        if found.ok.all() and float(np.median(found.std)) < self.affine_error:
            units.linear += found.derivatives[0].T
            self.affine_error = float(np.median(found.std))

    def toward(self, s: FloatArray) -> bool:
        """Search the ray from the corner to a point ``(k,)``; whether it showed new units."""
        length = float(np.linalg.norm(s))
        if not length > 0:
            return False
        new = False
        for _ in range(self.config.passes):
            found, _ = self.search(s / length, length)
            if not found:
                break
            new = True
        return new
