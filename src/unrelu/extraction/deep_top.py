"""The layers above the first as a black box of their own (section 3.5.4).

With ``W`` of full row rank, ``x = W^+ (y - b)`` makes the first layer output
any ``y >= 0``. The recovered ``W`` is off by a little, so on the boundary of
the orthant a unit might be off that should be on. Hence the cone asked about
is a hair narrower: ``y = T s + margin`` with ``T = I + tilt 11^T`` and s >= 0.
Inside it an error of W is an affine change of coordinates, and the answers stay
exactly those of a depth-2 network.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Meter, Oracle

__all__ = ["TopConfig", "TopOracle", "assemble", "attach", "move_first_layer"]


@dataclasses.dataclass(frozen=True)
class TopConfig:
    """Shape of the cone, and what the stage may cost."""

    margin: float = 1e-6
    """Distance of the corner from the origin, over the size of a unit row's output."""
    tilt: float = 1e-6
    """Slope of the cone's edges away from the axes. A unit whose kink lies only in the sliver
    between is missed, with a probability of about tilt times d1 d2."""
    per_unit: float = 8.0
    """Queries allowed, times (d1 + 1) (kinks that one line shows + 10). A wrong first layer
    makes the top look endless; an honest one takes about a fifth of this."""


class TopOracle(Oracle):
    """The function of the first layer's outputs, on a cone inside the orthant.

    Parameters
    ----------
    inner
        The target.
    weights, biases
        The first layer, ``(k, d)`` of full row rank and ``(k,)``.
    limit
        Queries after which :class:`BudgetExhausted` is raised.
    """

    def __init__(
        self,
        inner: Oracle,
        weights: FloatArray,
        biases: FloatArray,
        *,
        limit: int,
        config: TopConfig | None = None,
    ) -> None:
        self.config = TopConfig() if config is None else config
        self.inner = inner
        self.input_dim, self.output_dim = len(weights), inner.output_dim
        self.place(weights, biases)
        self.limit, self.spent = limit, 0

    def place(self, weights: FloatArray, biases: FloatArray) -> None:
        """Stand on this first layer."""
        self.weights, self.biases = weights, biases
        self.inverse = np.linalg.pinv(weights)

    @property
    def meter(self) -> Meter:  # type: ignore[override]
        """The meter of the whole stack."""
        return self.inner.meter

    @property
    def identity(self) -> str:  # type: ignore[override]
        """The target's, and that it is the top of it."""
        return self.inner.identity + "/top"

    @property
    def exhausted(self) -> bool:
        """Whether the stage's own limit was reached."""
        return self.spent > self.limit

    def noise(self, target: NoiseModel) -> NoiseModel:
        """Noise of the answers as a function of the norm of s, from that of the target."""
        offset = float(np.linalg.norm(self.inverse @ (self.config.margin - self.biases)))
        stretch = float(np.linalg.norm(self.inverse, 2))
        return NoiseModel(target.absolute + offset * target.growth, stretch * target.growth)

    def heights(self, s: FloatArray) -> FloatArray:
        """Return y for cone coordinates s, both ``(n, k)``."""
        tilt = self.config.tilt * s.sum(axis=1, keepdims=True)
        return np.asarray(s + tilt + self.config.margin)

    def cone(self, x: FloatArray) -> FloatArray:
        """Return the cone coordinates nearest to what the first layer makes of inputs x."""
        y = np.maximum(x @ self.weights.T + self.biases, 0.0) - self.config.margin
        k, tilt = self.input_dim, self.config.tilt
        s = y - tilt / (1.0 + k * tilt) * y.sum(axis=1, keepdims=True)
        return np.asarray(np.maximum(s, 0.0))

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        self.spent += len(points)
        if self.exhausted:
            raise BudgetExhausted(
                f"the top layers took more than {self.limit:,} queries, far beyond what a "
                "single hidden layer of this size needs"
            )
        x = (self.heights(points) - self.biases) @ self.inverse.T
        return self.inner._answer(np.ascontiguousarray(x), repeat)


def assemble(
    weights: FloatArray, biases: FloatArray, top: OrthantUnits, config: TopConfig
) -> tuple[ReLUNetwork, list[BoolArray]]:
    """Put the first layer under a top found on the cone.

    Returns
    -------
    network, free
        The network of depth 3, whose second layer ends with the always-on
        units that carry the affine term, and which entries of each layer's
        ``[W | b]`` a polish may move.
    """
    k = len(weights)
    inverse = np.linalg.inv(np.eye(k) + config.tilt * np.ones((k, k)))
    v = top.weights @ inverse
    linear = top.linear @ inverse
    moved = dataclasses.replace(
        top,
        weights=v,
        biases=top.biases - config.margin * v.sum(axis=1),
        linear=linear,
        constant=top.constant - config.margin * linear.sum(axis=1),
    )
    return attach(weights, biases, moved)


def move_first_layer(
    top: OrthantUnits,
    old: tuple[FloatArray, FloatArray],
    new: tuple[FloatArray, FloatArray],
    config: TopConfig,
) -> None:
    """Write units found on the cone of one first layer for that of a better one.

    The function of the inputs on the cone stays: ``y' = M^-1 (y - s)`` there, with
    ``M = W W'^+`` and ``s = b - M b'``.

    Parameters
    ----------
    old, new
        Weights and biases of both.
    """
    k = len(old[0])
    back = old[0] @ np.linalg.pinv(new[0])  # M^-1
    tilted = np.eye(k) + config.tilt * np.ones((k, k))
    # Heights that the old layer gives where the new one gives T s + margin.
    matrix = np.linalg.solve(tilted, back @ tilted)
    offset = back @ (config.margin - new[1]) + old[1] - config.margin
    offset = np.linalg.solve(tilted, offset)
    top.biases = top.biases + top.weights @ offset
    top.constant = top.constant + top.linear @ offset
    top.weights, top.linear = top.weights @ matrix, top.linear @ matrix


def attach(
    weights: FloatArray, biases: FloatArray, top: OrthantUnits
) -> tuple[ReLUNetwork, list[BoolArray]]:
    """Put the first layer under units of its outputs; returns as :func:`assemble`."""
    k = len(weights)
    upper, free = top.network()
    first = np.ones((k, weights.shape[1] + 1), dtype=bool)
    first[np.arange(k), np.abs(weights).argmax(axis=1)] = False
    network = ReLUNetwork([weights, *upper.weights], [biases, *upper.biases])
    return network, [first, *free]
