"""Sharpen units by gradients at roomy points, far from every hyperplane.

The gradients of a line's pieces are as precise as its narrowest gaps allow.
Once the hyperplanes are known roughly, points can be chosen anywhere in space
where all of them are far away, and steps can be as long as they are far. The
covariance of the units tells which few of such points help most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.legible import Legible
from unrelu.core.noise import RARE, NoiseModel
from unrelu.core.units import Units
from unrelu.lines.gates import choose_points, design_rows, update
from unrelu.lines.gradients import GradientConfig, measure_gradients

__all__ = ["RefineConfig", "Refiner", "candidate_points", "predicted_error", "predicted_errors"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class RefineConfig:
    """Choices of the refinement."""

    candidates: int = 300
    """Points that are compared, and typical inputs over which the predicted error is
    averaged."""
    draws: int = 12
    """Each is the roomiest of so many."""
    safety: float = 0.35
    """Part of the way to the nearest known hyperplane that a step may take."""
    closest: float = 0.01
    """Points beside an anchor lie this part of the way to a typical input from it, at least."""
    solves: int = 4
    """Times the least squares is solved with the gates and weights of the last."""
    outward: float = 12.0
    """Points are drawn at up to this multiple of typical inputs (the closest ones: beside the
    anchors): farther out there is more room for long steps, until the noise grows as fast."""


def predicted_errors(units: Units, covariance: FloatArray, points: FloatArray) -> FloatArray:
    """Return the standard deviation of the units' values at ``(n, d)``, shape ``(n, m)``.

    An error of direction acts over the distance from the anchors; their mean
    square stands for all of them.
    """
    rows = design_rows(units.gates(points), units.outputs)
    variance = np.einsum("nms,st,nmt->nm", rows, covariance, rows, optimize=True)
    distance = np.linalg.norm(points - units.base, axis=1)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)) * distance[:, None])


def predicted_error(units: Units, covariance: FloatArray, points: FloatArray) -> FloatArray:
    """Return the largest of :func:`predicted_errors` over the outputs, ``(n,)``."""
    return np.asarray(predicted_errors(units, covariance, points).max(axis=1))


def _clearance(units: Units, covariance: FloatArray, points: FloatArray) -> FloatArray:
    """Preactivations' sizes less three times their uncertainty, ``(n, k)``."""
    m = len(units.outputs)
    std = np.sqrt(np.maximum(np.diagonal(covariance)[m:], 0.0))
    # |x - anchor| across the line where the unit was found, by squares: no (n, k, d) array.
    square = (points**2).sum(axis=1)[:, None] + (units.anchors**2).sum(axis=1)
    square -= 2.0 * points @ units.anchors.T
    along = points @ units.axes.T - np.einsum("kd,kd->k", units.anchors, units.axes)
    distance = np.sqrt(np.maximum(square - along**2, 0.0))
    return np.asarray(np.abs(units.preactivations(points)) - 3.0 * std * distance)


def _rooms(units: Units, clearance: FloatArray) -> FloatArray:
    """Distance to the nearest hyperplane, ``(n,)``; negative where its side is unsure."""
    norms = np.linalg.norm(units.weights, axis=1)
    norms = np.maximum(norms, np.finfo(np.float64).eps * norms.max(initial=0.0))
    return np.asarray((clearance / norms).min(axis=1, initial=np.inf))


def _pool(
    units: Units,
    draw: Callable[[int], FloatArray],
    groups: int,
    rng: np.random.Generator,
    config: RefineConfig,
    bounds: tuple[FloatArray, FloatArray] | None,
) -> FloatArray:
    """Draw groups of points of which the roomiest of each group is a candidate.

    Half of the groups are typical inputs and points farther out; each of the
    others lies about one stretch between neighbouring anchors, where even
    poorly known units are sure and neighbours can be told apart.
    """
    pool = draw(groups * config.draws)
    half = groups // 2 * config.draws if units.count else 0
    if bounds is not None and half == 0:
        return pool
    if bounds is not None:
        pool[:half] = _beside_anchors(units, pool[:half], bounds, rng, config)
        return pool
    factor = np.exp(rng.uniform(0.0, np.log(config.outward), size=len(pool)))
    factor[:half] = np.exp(rng.uniform(np.log(config.closest), 0.0, size=half))
    pool *= factor[:, None]
    if half == 0:
        return pool
    order = np.argsort(units.anchors @ units.axes[0])
    left = rng.integers(units.count, size=groups // 2).repeat(config.draws)
    right = np.minimum(left + 1, units.count - 1)
    mix = rng.uniform(size=(half, 1))
    pool[:half] += mix * units.anchors[order[left]] + (1.0 - mix) * units.anchors[order[right]]
    return pool


def _beside_anchors(
    units: Units,
    typical: FloatArray,
    bounds: tuple[FloatArray, FloatArray],
    rng: np.random.Generator,
    config: RefineConfig,
) -> FloatArray:
    """Return points from anchors towards typical inputs, or away from them, in a box.

    A unit that is on (or off) at nearly all typical inputs shows its other side
    only beyond its anchor.
    """
    n = len(typical)
    anchors = units.anchors[rng.integers(units.count, size=n)]
    part = np.exp(rng.uniform(np.log(config.closest), 0.0, size=(n, 1)))
    part *= rng.choice([-1.0, 1.0], size=(n, 1))
    return np.clip(anchors + part * (typical - anchors), *bounds)


def candidate_points(
    units: Units,
    covariance: FloatArray,
    draw: Callable[[int], FloatArray],
    groups: int,
    level: Callable[[FloatArray], FloatArray],
    *,
    rng: np.random.Generator,
    config: RefineConfig,
    bounds: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return roomy points, the best of each group, and their clearances ``(n, k)``.

    ``level`` tells the noise at points ``(n, d)``, ``(n, m)``.
    """
    pool = _pool(units, draw, groups, rng, config, bounds)
    clearance = _clearance(units, covariance, pool)
    room = _rooms(units, clearance)
    quality = (room / level(pool).max(axis=1)).reshape(groups, config.draws)
    best = np.argmax(quality, axis=1) + np.arange(groups) * config.draws
    best = best[room[best] > 0]
    return pool[best], clearance[best]


class Refiner:
    """Units, what is known about them, and every gradient measured at roomy points.

    All gradients are kept and the least squares solved anew after each pass,
    with the gates as the current units see them: what was measured while a
    hyperplane was poorly known is not held against it.
    """

    def __init__(
        self,
        ask: AskPoints,
        units: Units,
        covariance: FloatArray,
        noise: NoiseModel,
        draw: Callable[[int], FloatArray],
        *,
        rng: np.random.Generator,
        bounds: tuple[FloatArray, FloatArray] | None = None,
        legible: Legible | None = None,
        config: RefineConfig | None = None,
        gradient_config: GradientConfig | None = None,
    ) -> None:
        self.ask, self.noise, self.draw = ask, noise, draw
        self.legible = Legible() if legible is None else legible
        self.units, self.covariance = units, covariance
        self._first, self._prior = units, covariance
        self.rng, self.bounds = rng, bounds
        self.config = RefineConfig() if config is None else config
        self.gradient_config = gradient_config
        d = units.weights.shape[1]
        m = len(units.outputs)
        self._points = np.empty((0, d))
        self._gradients = np.empty((0, m, d))
        self._variances = np.empty((0, m))

    def level(self, points: FloatArray) -> FloatArray:
        """Return the noise of answers at points ``(n, d)``: the digits lost there add to it."""
        values = np.clip(self.units(points), self.legible.low, self.legible.high)
        return np.asarray(self.noise.at(points) + self.legible.rounding(values))

    @property
    def measured(self) -> int:
        """Number of gradients measured."""
        return len(self._points)

    def measure(self, limit: int, goal: float, tests: FloatArray | None = None) -> int:
        """Measure up to ``limit`` gradients where they help most, and solve again.

        ``goal`` is the root mean square error of the values over typical
        inputs (or over ``tests``), in answer units, at which no more is
        measured. Returns how many gradients were measured.
        """
        if self.units.count == 0 or limit < 1:
            return 0
        draw = self.draw
        if tests is None:
            tests = self._draw_fairly(self.config.candidates)
        else:
            draw = self._near(tests)
        points = self._choose(limit, goal, tests, draw)
        if len(points) == 0:
            return 0
        reach = np.maximum(_clearance(self.units, self.covariance, points), 0.0)
        steps = np.empty(points.shape)
        for i, z in enumerate(reach):
            with np.errstate(divide="ignore", invalid="ignore"):
                steps[i] = np.nanmin(z[:, None] / np.abs(self.units.weights), axis=0)
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        # The corner of a box may be the origin: there typical inputs tell what is long.
        typical = float(np.median(np.linalg.norm(tests, axis=1)))
        steps = np.minimum(self.config.safety * steps, np.maximum(norms, 0.1 * typical))
        found = measure_gradients(
            self.ask,
            points,
            self.ask(points),
            steps,
            np.eye(points.shape[1]),
            self.noise,
            rng=self.rng,
            bounds=self.bounds,
            config=self.gradient_config,
        )
        good = found.ok
        std = found.std * (self.level(points) / self.noise.at(points))[:, None, :]
        self._points = np.concatenate([self._points, points[good]])
        self._gradients = np.concatenate(
            [self._gradients, found.derivatives.transpose(0, 2, 1)[good]]
        )
        self._variances = np.concatenate([self._variances, np.mean(std**2, axis=1)[good]])
        self._solve()
        return len(points)

    def _draw_fairly(self, count: int) -> FloatArray:
        """Draw typical inputs; in a box, half of them beside the anchors.

        Units that typical inputs hardly see count as well.
        """
        points = self.draw(count)
        if self.bounds is not None:
            half = count // 2
            points[:half] = _beside_anchors(
                self.units, points[:half], self.bounds, self.rng, self.config
            )
        return points

    def _near(self, tests: FloatArray) -> Callable[[int], FloatArray]:
        """Return what draws points between given ones and typical inputs."""

        def draw(count: int) -> FloatArray:
            typical = self.draw(count)
            part = np.exp(self.rng.uniform(np.log(self.config.closest), 0.0, size=(count, 1)))
            start = tests[self.rng.integers(len(tests), size=count)]
            return np.asarray(start + part * (typical - start))

        return draw

    def _choose(
        self, limit: int, goal: float, tests: FloatArray, draw: Callable[[int], FloatArray]
    ) -> FloatArray:
        """Return the points whose gradients lower the predicted error at ``tests`` most."""
        units, config = self.units, self.config
        m = len(units.outputs)
        groups = max(config.candidates // m, min(2 * config.candidates, 4 * limit))
        pool, clearance = candidate_points(
            units, self.covariance, draw, groups, self.level,
            rng=self.rng, config=config, bounds=self.bounds,
        )  # fmt: skip
        readable = self.legible(units(pool))
        pool, clearance = pool[readable], clearance[readable]
        if len(pool) == 0:
            return pool
        room = _rooms(units, clearance)
        # A direction of the basis has about 1 / sqrt(d) of its length along a given normal.
        rough = config.safety * room * np.sqrt(pool.shape[1]) / 3.0
        std = np.sqrt(2.0) * self.level(pool) / rough[:, None]
        distance = float(np.sqrt(np.mean(np.sum((tests - units.base) ** 2, axis=1))))
        test_rows = design_rows(units.gates(tests), units.outputs)
        index = np.arange(len(tests))
        chosen, _ = choose_points(
            design_rows(units.gates(pool), units.outputs),
            std**2,
            test_rows[index, index % m],
            self.covariance,
            limit,
            (goal / distance) ** 2,
        )
        return np.asarray(pool[np.unique(chosen)])

    def _solve(self) -> None:
        """Least squares over the survey and all gradients, until the gates settle."""
        m = len(self._first.outputs)
        d = self._points.shape[1]
        theta = np.concatenate([self._first.linear, self._first.weights])
        doubt = np.ones(len(self._points))
        for _ in range(self.config.solves):
            rows = design_rows(self.units.gates(self._points), self._first.outputs)
            size = rows.shape[2]
            change, covariance = update(
                self._prior,
                rows.reshape(-1, size),
                (self._gradients - rows @ theta).reshape(-1, d),
                (self._variances * doubt[:, None]).reshape(-1),
            )
            self.units = dataclasses.replace(
                self._first,
                weights=self._first.weights + change[m:],
                linear=self._first.linear + change[:m],
            )
            self.covariance = covariance
            # A gradient that disagrees with the rest far beyond its noise was taken across
            # a hyperplane, or its gates are not yet right: it counts for less.
            rest = self._gradients - rows @ (theta + change)
            rms = np.sqrt(np.mean(rest**2, axis=2) / self._variances).max(axis=1)
            doubt = np.maximum(1.0, (rms / RARE) ** 2)

    def _settling_points(self, count: int) -> FloatArray:
        """Draw inputs; in a box, such that both sides of every unit are seen."""
        if self.bounds is None or count < 1:
            return self._draw_fairly(count)
        units = self.units
        points = self._draw_fairly(max(count, min(4 * count, 4 * self.config.candidates)))
        points = points[_rooms(units, _clearance(units, self.covariance, points)) > 0]
        if len(points) <= count:
            return points
        # One output with all units in it stands for all outputs: only the gates matter.
        rows = np.insert(units.gates(points).astype(np.float64), 0, 1.0, axis=1)
        prior = np.eye(rows.shape[1])
        alike = np.ones((len(points), 1))
        chosen, _ = choose_points(rows[:, None, :], alike, rows, prior, count, 0.0)
        return np.asarray(points[np.unique(chosen)])

    def settle(self, count: int, known: tuple[FloatArray, FloatArray]) -> None:
        """Correct the biases by values at ``count`` inputs, and by those ``known``.

        The rows that map weights to gradients map biases to values. A kink is
        found on its line up to some deviations of an answer; where its anchor
        is far away, the error of its direction adds to that.
        """
        units = self.units
        if units.count == 0:
            return
        points = self._settling_points(count)
        answers = np.concatenate([self.ask(points), known[1]]) if len(points) else known[1]
        points = np.concatenate([points, known[0]])
        sure = _rooms(units, _clearance(units, self.covariance, points)) > 0
        points, answers = points[sure], answers[sure]
        if len(points) == 0:
            return
        m = len(units.outputs)
        std = np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))
        far = np.linalg.norm(units.anchors - points.mean(axis=0), axis=1)
        loose = RARE * self.noise.at(units.anchors).max(axis=1)
        level = float(self.noise.at(units.base[None, :]).max())
        base = np.hypot(level, std[:m] * float(np.linalg.norm(units.base)))
        prior = np.diag(np.concatenate([base**2, loose**2 + (std[m:] * far) ** 2]))
        rows = design_rows(units.gates(points), units.outputs)
        variances = self.level(points) ** 2
        variances += predicted_errors(units, self.covariance, points) ** 2
        deviations = answers - units(points)
        # Where values are farther off than predicted, the biases are to blame.
        prior[np.diag_indices(len(prior))] += float(np.mean(deviations**2))
        change, _ = update(
            prior,
            rows.reshape(-1, rows.shape[2]),
            deviations.reshape(-1, 1),
            variances.reshape(-1),
        )
        shift = change[m:, 0]
        square = np.maximum((units.weights**2).sum(axis=1), np.finfo(np.float64).tiny)
        on = units.gates(units.base[None, :])[0]
        self.units = dataclasses.replace(
            units,
            anchors=units.anchors - (shift / square)[:, None] * units.weights,
            value=units.value + change[:m, 0] + units.outputs @ (on * shift),
        )
