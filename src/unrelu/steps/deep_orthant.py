"""A depth-2 network on the non-negative orthant, by a path along the axes (Theorem 2).

Every hyperplane that meets the orthant away from its corner meets one of the
half-axes. All units are written so that they are off at the corner; then the
function less its affine part there, less the units already known, is zero from
the corner to the first kink of an unknown unit. An axis on which this residual
is zero far out holds nothing new, which a few answers tell.

Near kinks are known best, so all axes are searched up to a small distance
first, and farther out only afterwards: a unit that meets one axis far away
usually meets another one near.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.kernels.deep_polish import PolishConfig, polish
from unrelu.networks import ReLUNetwork
from unrelu.steps.gradients import GradientConfig, measure_gradients
from unrelu.steps.lines import LineScan, find_kinks
from unrelu.steps.noise import NoiseModel

__all__ = ["OrthantConfig", "OrthantUnits", "recover_on_orthant"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class OrthantConfig:
    """Choices of the path along the axes."""

    reaches: tuple[float, ...] = (6.0, 100.0, 1e4, 1e7)
    """Distances up to which all axes are searched, in turn. A typical first-layer output is
    about one; a kink beyond 1e7 changes nothing at typical inputs."""
    probes: tuple[float, ...] = (0.13, 0.37, 0.71, 1.0)
    """Where the residual is looked at before an axis is searched, over the reach."""
    corner: float = 0.05
    """First step of the gradient at the corner."""
    accept: float = 20.0
    """Standard deviations within which the residual is zero."""
    crossings: float = 0.5
    """Expected hyperplanes crossed by one chunk of gradient steps."""
    spread: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    """Places within a piece that are compared for room."""
    passes: int = 3
    """Searches of one axis to one distance, while its residual does not vanish."""
    same: float = 1e-4
    """Angle between hyperplanes below which they are taken for one."""
    spurious: float = 1e-7
    """Units smaller than this part of the largest one are traces of errors of others."""
    polish: PolishConfig = dataclasses.field(
        default_factory=lambda: PolishConfig(steps=3, inner=30, factorisations=1)
    )
    """Short: what it leaves, the next one or the final polish finds."""
    tight: float = 1e-11
    """Error of the units, over their size, above which they are polished before the next axis:
    it is the tolerance of what follows."""
    explained: float = 1e3
    """Answers within so many deviations are what the known units should explain."""
    polish_far: float = 1e3
    """Answers farther out than this are not used by it."""
    fits: float = 10.0
    """Root mean square residual, in deviations, above which a polish is not believed."""
    trace: float = 30.0
    """Kinks whose unit is smaller than this many errors of what is subtracted are traces."""


class _Inward(np.random.Generator):
    """Draws absolute normals: checks of a gradient at a wall must step away from it."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng.bit_generator)

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        """Draw, and drop the signs."""
        return np.abs(super().standard_normal(*args, **kwargs))


@dataclasses.dataclass
class OrthantUnits:
    """``F(s) = A s + a + sum_j u_j relu(<v_j, s> + c_j)`` with all c_j <= 0.

    Attributes
    ----------
    linear, constant
        ``(m, k)`` and ``(m,)``.
    weights, biases, outputs
        ``(n, k)``, ``(n,)``, ``(m, n)``.
    errors, shifts
        Standard deviations of each unit's slope and offset, in answer units, ``(n,)``.
    open_axes
        Axes on which something remains unexplained.
    """

    linear: FloatArray
    constant: FloatArray
    weights: FloatArray
    biases: FloatArray
    outputs: FloatArray
    errors: FloatArray
    shifts: FloatArray
    open_axes: int = 0

    def __call__(self, s: FloatArray) -> FloatArray:
        """Evaluate at ``(n, k)``; returns ``(n, m)``."""
        active = np.maximum(s @ self.weights.T + self.biases, 0.0)
        return np.asarray(s @ self.linear.T + self.constant + active @ self.outputs.T)

    def add(
        self,
        weights: FloatArray,
        biases: FloatArray,
        outputs: FloatArray,
        errors: FloatArray,
        shifts: FloatArray,
    ) -> None:
        """Take units in."""
        self.weights = np.concatenate([self.weights, weights])
        self.biases = np.concatenate([self.biases, biases])
        self.outputs = np.concatenate([self.outputs, outputs], axis=1)
        self.errors = np.concatenate([self.errors, errors])
        self.shifts = np.concatenate([self.shifts, shifts])

    def kept(self, which: BoolArray) -> None:
        """Drop all other units."""
        self.weights, self.biases = self.weights[which], self.biases[which]
        self.outputs, self.errors = self.outputs[:, which], self.errors[which]
        self.shifts = self.shifts[which]

    def merge(self, tolerance: float) -> None:
        """Join units that share a hyperplane; two that cancel are dropped.

        An error of a unit shows on another axis as two kinks very close together.
        """
        full = np.concatenate([self.weights, self.biases[:, None]], axis=1)
        length = np.linalg.norm(full, axis=1)
        normal = full / length[:, None]
        alike = normal @ normal.T > 1.0 - 0.5 * tolerance**2
        keep = np.ones(len(full), dtype=bool)
        for i in range(len(full)):
            if not keep[i]:
                continue
            group = np.flatnonzero(alike[i] & keep)
            if len(group) < 2:
                continue
            total = self.outputs[:, group] @ length[group]
            size = float(np.linalg.norm(total))
            keep[group] = False
            if size > 1e-3 * length[group].max():
                best = group[int(np.argmax(length[group]))]
                keep[best] = True
                scale = size / length[best]
                self.weights[best] *= scale
                self.biases[best] *= scale
                self.outputs[:, best] = total / size
        self.kept(keep)

    def network(self) -> tuple[ReLUNetwork, list[BoolArray]]:
        """Return the same function on the orthant without a skip term.

        ``A s`` with s >= 0 becomes two more units per output that are always
        on, the positive and the negative part of A, after the ordinary units.

        Returns
        -------
        network, free
            And which entries of each layer's ``[W | b]`` a polish may move:
            scales and what is redundant in the affine term are held.
        """
        m, k = self.linear.shape
        n = len(self.weights)
        plus, minus = np.maximum(self.linear, 0.0), np.maximum(-self.linear, 0.0)
        v = np.concatenate([self.weights, plus, minus])
        # A lift by one keeps the pair on while a polish moves it.
        c = np.concatenate([self.biases, np.ones(2 * m)])
        u = np.concatenate([self.outputs, np.eye(m), -np.eye(m)], axis=1)
        first = np.zeros((n + 2 * m, k + 1), dtype=bool)
        first[:n] = True
        first[np.arange(n), np.abs(self.weights).argmax(axis=1)] = False
        first[n : n + m, :-1] = True
        last = np.ones((m, n + 2 * m + 1), dtype=bool)
        last[:, n:-1] = False
        return ReLUNetwork([v, u], [c, self.constant]), [first, last]

    def take(self, network: ReLUNetwork) -> None:
        """Take the parameters of a network made by :meth:`network`."""
        n, m = len(self.weights), len(self.linear)
        v, u = network.weights
        self.weights, self.biases = v[:n].copy(), network.biases[0][:n].copy()
        self.outputs, self.constant = u[:, :n].copy(), network.biases[1].copy()
        self.linear = v[n : n + m] - v[n + m :]
        # Both carriers are lifted by their bias, which cancels in the sum.
        self.constant += network.biases[0][n : n + m] - network.biases[0][n + m :]


class _Path:
    def __init__(
        self,
        ask: AskPoints,
        noise: NoiseModel,
        rng: np.random.Generator,
        config: OrthantConfig,
        gradient_config: GradientConfig,
        units: OrthantUnits,
        affine_error: float,
    ) -> None:
        self.affine_error = affine_error
        self.ask, self.noise, self.rng = ask, noise, rng
        self.config, self.gradient_config, self.units = config, gradient_config, units
        self.k = units.linear.shape[1]
        self.points: list[FloatArray] = []
        self.answers: list[FloatArray] = []

    def polish(self) -> None:
        """Drop traces, and fit all units to the answers so far."""
        units, config = self.units, self.config
        if len(units.weights) == 0:
            return
        size = np.linalg.norm(units.weights, axis=1) * np.linalg.norm(units.outputs, axis=0)
        units.kept(size > config.spurious * size.max())
        units.merge(config.same)
        s, y = np.concatenate(self.points), np.concatenate(self.answers)
        # Answers beyond units that are not known yet are left out.
        level = self.level().at(s)
        near = np.linalg.norm(s, axis=1) <= config.polish_far
        near &= (np.abs(y - units(s)) <= config.explained * level).all(axis=1)
        network, free = units.network()
        done = polish(
            network,
            s[near],
            y[near],
            self.noise.at(s[near]),
            free=free,
            deviations=True,
            config=config.polish,
        )
        if not done.after <= config.fits:
            return  # an unknown unit is in the data: what was measured directly stands
        units.take(done.network)
        n, m = len(units.weights), len(units.linear)
        std = done.std[0]
        size = np.linalg.norm(units.outputs, axis=0)
        units.errors = np.minimum(units.errors, size * np.sqrt((std[:n, :-1] ** 2).sum(axis=1)))
        units.shifts = np.minimum(units.shifts, size * std[:n, -1])
        affine = float(np.sqrt((std[n : n + m, :-1] ** 2).sum(axis=1)).max())
        self.affine_error = min(self.affine_error, affine)

    def residual(self, s: FloatArray) -> FloatArray:
        answers = self.ask(s)
        self.points.append(s.copy())
        self.answers.append(answers)
        return np.asarray(answers - self.units(s))

    def level(self) -> NoiseModel:
        """Noise of the residual: of the answers, and of the units subtracted."""
        shift = 3.0 * math.sqrt(float((self.units.shifts**2).sum()))
        return self.noise.widened(shift, self.slack())

    def slack(self) -> float:
        """Error of the slope of what is subtracted."""
        return 3.0 * math.sqrt(self.affine_error**2 + float((self.units.errors**2).sum()))

    def on_axis(self, axis: int, t: FloatArray) -> FloatArray:
        s = np.zeros((len(t), self.k))
        s[:, axis] = t
        return s

    def search(self, axis: int, reach: float) -> bool:
        """Find the units that an axis still shows up to a distance; False if none."""
        config, noise = self.config, self.level()
        t = reach * np.array(config.probes)
        values = self.residual(self.on_axis(axis, t))
        if (np.abs(values) <= config.accept * noise.std(t)).all():
            return False
        zero = np.zeros((1, values.shape[1]))
        near = 1e-3 * reach
        start = self.residual(self.on_axis(axis, np.array([near])))
        seeds = [(np.array([0.0]), zero), (np.array([near]), start)]
        seeds += [(t[i : i + 1], values[i : i + 1]) for i in range(len(t))]
        scan = find_kinks(
            lambda at: self.residual(self.on_axis(axis, at)),
            noise.std,
            seeds,
            scale=1.0 if reach > 10.0 else math.inf,
        )
        # The first piece says how the affine part is off along this axis.
        first = scan.pieces[0]
        if scan.ends[0] > 0 and len(scan.kinks):
            self.units.linear[:, axis] += first.slope
            slope = first.slope
        else:
            slope = np.zeros_like(first.slope)
        if len(scan.kinks) == 0:
            self.units.linear[:, axis] += first.slope
            return False
        return self.resolve(axis, scan, slope, reach)

    def centers(self, scan: LineScan, reach: float) -> tuple[FloatArray, FloatArray]:
        """Places in the pieces after each kink, and the crowding there."""
        kinks = scan.kinks
        ends = np.append(kinks[1:], reach)  # nothing is known beyond
        choice = kinks[:, None] + (ends - kinks)[:, None] * np.array(self.config.spread)
        crowd = (1.0 / np.abs(choice[:, :, None] - kinks)).sum(axis=2) + 1.0 / choice
        best = crowd.argmin(axis=1)
        rows = np.arange(len(kinks))
        return choice[rows, best], crowd[rows, best]

    def resolve(self, axis: int, scan: LineScan, slope: FloatArray, reach: float) -> bool:
        """Measure the gradients after the kinks of an axis; their differences are the units."""
        k, config = self.k, self.config
        t, crowd = self.centers(scan, reach)
        points = self.on_axis(axis, t)
        values = np.array([p.predict(float(s)) for p, s in zip(scan.pieces[1:], t, strict=True)])
        values -= np.multiply.outer(t, slope)  # the affine part has been corrected
        others = np.delete(np.eye(k), axis, axis=0)
        width = max(1, min(len(others), self.gradient_config.chunk))
        steps = config.crossings * np.pi / (width * crowd)
        # Errors of the units subtracted are affine but at their own kinks, where a step sees
        # their slope over its length: they are no noise that a division by it would magnify.
        slip = self.slack() * float(np.median(steps))
        found = measure_gradients(
            self.residual,
            points,
            values,
            steps,
            others,
            self.noise.widened(slip, 0.0),
            rng=_Inward(self.rng),
            bounds=(np.zeros(k), np.full(k, np.inf)),
            config=self.gradient_config,
        )
        m = values.shape[1]
        gradients = np.zeros((len(t) + 1, m, k))
        gradients[1:][:, :, np.arange(k) != axis] = found.derivatives.transpose(0, 2, 1)
        gradients[:, :, axis] = np.array([p.slope for p in scan.pieces]) - slope
        jumps = np.diff(gradients, axis=0)
        size = np.linalg.norm(scan.jumps, axis=1)
        output = scan.jumps / size[:, None]
        weights = np.einsum("jmk,jm->jk", jumps, output)
        std = np.zeros(len(t) + 1)
        if k > 1:
            used = np.median(np.abs(found.steps), axis=1)
            std[1:] = math.sqrt(2.0) * self.noise.at(points).max(axis=1) / used
        errors = np.hypot(std[1:], std[:-1])
        real = np.linalg.norm(weights, axis=1) > self.config.trace * self.slack()
        biases = -weights[:, axis] * scan.kinks
        shifts = size * np.array(scan.kink_std)
        self.units.add(weights[real], biases[real], output[real].T, errors[real], shifts[real])
        return bool(real.any())


def recover_on_orthant(
    ask: AskPoints,
    k: int,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    max_units: int = 100_000,
    config: OrthantConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> OrthantUnits:
    """Recover a depth-2 network from answers at points ``s >= 0``.

    Parameters
    ----------
    ask
        ``(n, k) -> (n, m)``.
    noise
        Of the answers, as a function of the norm of s.
    max_units
        The search is given up beyond so many: the function has more layers.
    """
    config = OrthantConfig() if config is None else config
    gradient_config = GradientConfig() if gradient_config is None else gradient_config
    corner = np.zeros((1, k))
    value = ask(corner)
    m = value.shape[1]
    found = measure_gradients(
        ask,
        corner,
        value,
        np.array([config.corner]),
        np.eye(k),
        noise,
        rng=_Inward(rng),
        bounds=(np.zeros(k), np.full(k, np.inf)),
        config=gradient_config,
    )
    units = OrthantUnits(
        found.derivatives[0].T.copy(),
        value[0],
        np.empty((0, k)),
        np.empty(0),
        np.empty((m, 0)),
        np.empty(0),
        np.empty(0),
    )
    base = float(np.median(found.std))
    path = _Path(ask, noise, rng, config, gradient_config, units, base)
    for reach in config.reaches:
        open_axes, new = 0, False
        for axis in rng.permutation(k):
            for _ in range(config.passes):
                if not path.search(int(axis), reach):
                    break
                new = True
                size = np.linalg.norm(units.weights, axis=1).max()
                if path.slack() > config.tight * size:
                    path.polish()
                    new = False
                if len(units.weights) > max_units:
                    units.open_axes = k
                    return units
            else:
                open_axes += 1
        units.open_axes = open_axes
        if new:
            path.polish()
    return units
