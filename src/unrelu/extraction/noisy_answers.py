r"""Answers of any precision: what they are, how far each may be off, how they are read.

A deployed model answers in float32, as probabilities, with a few decimals. Its answers y come
from logits or values z by a link (:mod:`unrelu.core.links`); the standard deviation of an
answer's error is modelled as

.. math:: \sigma_y^2 = q^2 / 12 + (g(y)\, \sigma_z(x))^2,\qquad \sigma_z(x) = a + b \|x\|

with q the step of the decimals that are given (zero where there are none), g the derivative of
the link (1 for values, p for a softmax, p (1 - p) for a single probability) and a, b measured
on a line: rounding inside a network grows with its terms, and they with the input.

Inputs are put on the float32 grid where the target computes in float32: it would round them
else, by as much as it rounds its sums.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.answers import complementary, look_for_probabilities
from unrelu.core.fit import FitConfig, Fitted, Layered, fit_network
from unrelu.core.links import Link, apply_link
from unrelu.core.noise import NoiseModel, answer_grid
from unrelu.core.record import Remembered
from unrelu.extraction.two_layer_config import TwoLayerConfig

__all__ = ["Answers", "Kind", "Seen"]

Kind = Literal["values", "softmax", "logistic"]

_ROOT12 = float(np.sqrt(12.0))  # deviation of a uniform error, over its range
_READABLE = 3.0
"""Steps of its decimals that a probability must have for its logarithm to be read."""

_NEAR_ONE = float(np.exp(-TwoLayerConfig.deepest_single))
"""What a single probability must leave to zero and one: the error of log(1 - p) grows as
1 / (1 - p)."""
_FLAT = 0.01
"""Deviation of a rough fit over the spread of the readings."""
_MOSTLY = 0.75
"""Part of the answers that must be readable where lines are searched."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """Points ``(n, d)`` as the target got them, and its answers ``(n, m)``."""

    x: FloatArray
    y: FloatArray

    def __len__(self) -> int:
        return len(self.x)

    def part(self, which: BoolArray | IntArray | slice) -> Seen:
        """Keep some rows."""
        return Seen(self.x[which], self.y[which])

    @staticmethod
    def joined(parts: list[Seen]) -> Seen:
        """Put batches together."""
        return Seen(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))


class Answers:
    """Asks the target and knows what its answers are worth.

    Parameters
    ----------
    oracle
        The target.
    kind
        What the answers are.
    first
        Answers at a few typical inputs, ``(n, m)``: they tell the precision.
    """

    def __init__(self, oracle: Remembered, kind: Kind, first: FloatArray) -> None:
        self.oracle, self.kind = oracle, kind
        self.inputs, self.outputs = oracle.input_dim, oracle.output_dim
        self.eps, self.step = answer_grid(first)
        self.single = self.eps > np.finfo(np.float64).eps or self.step > 0
        self.reference = int(np.argmax(first.mean(axis=0)))  # underflows last
        self.lopsided = kind == "logistic" or (kind == "softmax" and complementary(first))
        # Of rounded probabilities nothing else can be measured; else a line will tell.
        readings = self.outputs - (1 if kind == "softmax" else 0)
        known = self.step / _ROOT12 if self.rounded else 0.0
        self.noise = NoiseModel(np.full(readings, known), np.zeros(readings))
        self.reach = 1.0  # scale of inputs at which most answers can be read

    @classmethod
    def look(
        cls, oracle: Remembered, answers: str, rng: np.random.Generator, count: int = 16
    ) -> Answers:
        """Find out what a target's answers are, from a few of them."""
        d, m = oracle.input_dim, oracle.output_dim

        def draw(n: int) -> FloatArray:
            return np.asarray(rng.standard_normal((n, d)).astype(np.float32), dtype=np.float64)

        found = answers == "probabilities"
        if answers == "auto":
            found, _ = look_for_probabilities(oracle, draw)
        points = draw(count)
        first = oracle(points)
        kind: Kind = "values" if not found else ("softmax" if m > 1 else "logistic")
        looked = cls(oracle, kind, first)
        while looked.reach > np.finfo(np.float32).eps and not looked._mostly_readable(first):
            looked.reach *= 0.5
            first = looked.ask(looked.reach * points).y
        looked.reference = int(np.argmax(first.mean(axis=0)))
        return looked

    def _mostly_readable(self, y: FloatArray) -> bool:
        return bool(np.mean(np.isfinite(self.readings(y)).all(axis=1)) >= _MOSTLY)

    @property
    def rounded(self) -> bool:
        """Whether answers are probabilities with a few decimals."""
        return self.kind != "values" and self.step > 0

    def ask(self, points: FloatArray) -> Seen:
        """Ask at points, put on the target's grid first."""
        if self.single:
            points = points.astype(np.float32).astype(np.float64)
        return Seen(points, self.oracle(points))

    # ------------------------------------------------------------- readings

    def readings(self, y: FloatArray) -> FloatArray:
        """Return what is piecewise affine: values, or log-odds; NaN where they cannot be read.

        Of a softmax there are m - 1, over the reference class.
        """
        if self.kind == "values":
            return y
        least = self._least
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.where(y >= least, y, np.nan))
            if self.kind == "logistic":
                return np.asarray(logs - np.log(np.where(1.0 - y >= least, 1.0 - y, np.nan)))
        return np.asarray(np.delete(logs, self.reference, 1) - logs[:, [self.reference]])

    def well_inside(self, readings: FloatArray) -> BoolArray:
        """Whether readings ``(n, m)`` are far from where none can be had, ``(n,)``.

        Of a single probability: half way to the log-odds that it may have beside one.
        """
        if not self.lopsided:
            return np.ones(len(readings), dtype=bool)
        return np.asarray(np.abs(readings[:, 0]) < -0.5 * np.log(_NEAR_ONE))

    @property
    def reading_error(self) -> float:
        """Error of a reading that is well inside, because its answer is rounded."""
        return self.eps / float(np.sqrt(_NEAR_ONE)) if self.lopsided else 0.0

    def unread(self, net: Layered) -> Layered:
        """Give the reference class back its output, zero."""
        if self.kind != "softmax":
            return net
        at = self.reference
        skip = None if net.skip is None else np.insert(net.skip, at, 0.0, axis=0)
        return dataclasses.replace(
            net,
            weights=(*net.weights[:-1], np.insert(net.weights[-1], at, 0.0, axis=0)),
            biases=(*net.biases[:-1], np.insert(net.biases[-1], at, 0.0)),
            skip=skip,
        )

    @property
    def _least(self) -> float:
        """Least probability whose logarithm is read."""
        return max(_READABLE * self.step, _NEAR_ONE if self.lopsided else self._tiny)

    @property
    def _tiny(self) -> float:
        """Least number with all its digits."""
        return float(np.finfo(np.float32 if self.single else np.float64).tiny)

    # ------------------------------------------------------------ deviations

    def inner(self, x: FloatArray) -> FloatArray:
        """Return the deviation of an output, before the link, ``(n, m)``."""
        sigma = self.noise.at(x)
        if self.kind == "softmax":  # that of log-odds is of two logarithms
            sigma = np.sqrt(np.mean(sigma**2, axis=1, keepdims=True) / 2.0)
        return np.asarray(np.broadcast_to(sigma, (len(x), self.outputs)))

    def deviation(self, seen: Seen) -> FloatArray:
        """Return the standard deviation of each answer, ``(n, m)``."""
        y = seen.y
        slope = np.ones_like(y)
        if self.kind != "values":
            slope = y if self.kind == "softmax" else np.maximum(y * (1.0 - y), 0.0)
        size = np.ones_like(y) if self.lopsided else np.abs(y)
        floor = np.maximum(self.eps * size, self.step) / _ROOT12
        least = self._tiny if self.kind != "values" else float(np.finfo(np.float64).tiny)
        return np.asarray(np.sqrt((slope * self.inner(seen.x)) ** 2 + floor**2) + least)

    def residuals(self, net: Layered, seen: Seen) -> FloatArray:
        """Return answers minus predictions over deviations, ``(n, m)``.

        Of probabilities that fall below their precision nothing is asked.
        """
        predicted = apply_link(self.kind, net(seen.x)).prediction
        return np.asarray((seen.y - predicted) / self.deviation(seen))

    # ------------------------------------------------------------------ fit

    def rows(self, parameters: int, effort: float) -> int:
        """Return how many inputs give ``effort`` scalar answers a parameter, and a few more."""
        each = self.outputs - (1 if self.kind == "softmax" else 0)
        return int(np.ceil(effort * parameters / each)) + 16

    def reading_deviation(self, seen: Seen) -> FloatArray:
        """Return the deviation of values, logarithms or log-odds, infinite where unread."""
        y, slope, _ = self._unlinked(seen)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(np.isfinite(y), self.deviation(seen) / slope, np.inf))

    def fit_readings(self, net: Layered, seen: Seen) -> Fitted:
        """Fit to what can be read of the answers, from a random start.

        Coarsely first: by the right deviations the many answers that are nearly exact outvote
        all others.
        """
        y, _, link = self._unlinked(seen)
        sigma, flat = self.reading_deviation(seen), _FLAT * float(np.nanstd(y))
        y = np.nan_to_num(y)
        rough = fit_network(net, seen.x, y, deviation=np.hypot(sigma, flat), link=link)
        return fit_network(rough.network, seen.x, y, deviation=sigma, link=link)

    def fit(self, net: Layered, seen: Seen, config: FitConfig | None = None) -> Fitted:
        """Fit all parameters to answers, in the answers' own space in the end."""
        sigma = self.deviation(seen)
        if self.kind == "values":
            return fit_network(net, seen.x, seen.y, deviation=sigma, config=config)
        y, _, link = self._unlinked(seen)
        rough = self.reading_deviation(seen)
        found = fit_network(
            net, seen.x, np.nan_to_num(y), deviation=rough, link=link, config=config
        )
        if self.step == 0 and self.kind == "softmax" and not self.lopsided:
            return found  # relative errors: both spaces are one
        return fit_network(
            found.network, seen.x, seen.y, deviation=sigma, link=self.kind, config=config
        )

    def _unlinked(self, seen: Seen) -> tuple[FloatArray, FloatArray, Link]:
        """Return logarithms or log-odds of answers, NaN where unreadable, and dp / dz."""
        if self.kind == "logistic":
            return self.readings(seen.y), seen.y * (1.0 - seen.y), "values"
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.where(seen.y >= self._least, seen.y, np.nan))
        return logs, seen.y, "log_softmax"
