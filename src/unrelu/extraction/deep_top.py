"""The layers above the first as a black box of their own (section 3.5.4).

With ``W`` of full row rank, ``x = W^+ (y - b)`` makes the first layer output
any ``y >= 0``. The recovered ``W`` is off by a little, so on the boundary of
the orthant a unit might be off that should be on. Hence the cone asked about
is a hair narrower: ``y = T s + margin`` with ``T = I + tilt 1^T`` and s >= 0,
where a row that is known less well has a wider margin and tilt of its own.
Inside it an error of W is an affine change of coordinates, and the answers stay
exactly those of a depth-2 network.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_numbers import FAINT
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Meter, Oracle

__all__ = ["Cone", "TopConfig", "TopOracle", "attach"]


@dataclasses.dataclass(frozen=True)
class TopConfig:
    """Shape of the cone, and what the stage may cost."""

    margin: float = FAINT
    """Least distance of the corner from the origin, over the size of a unit row's output."""
    tilt: float = FAINT
    """Least slope of the cone's edges away from the axes. A unit whose kink lies only in the
    sliver between is missed, with a probability of about tilt times d1 d2."""
    off: float = 10.0
    """Both are at least so many times what a row's error may change its output by."""
    per_unit: float = 8.0
    """Queries allowed, times (d1 + 1) (kinks that one line shows + 10). A wrong first layer
    makes the top look endless; an honest one takes about a fifth of this."""


@dataclasses.dataclass(frozen=True)
class Cone:
    """The cone ``y = s + tilt sum(s) + margin`` of first-layer outputs, s >= 0.

    Attributes
    ----------
    margin, tilt
        One for each unit, ``(k,)``.
    """

    margin: FloatArray
    tilt: FloatArray

    def heights(self, s: FloatArray) -> FloatArray:
        """Return y for cone coordinates s, both ``(n, k)``."""
        return np.asarray(s + np.multiply.outer(s.sum(axis=1), self.tilt) + self.margin)

    def coordinates(self, y: FloatArray) -> FloatArray:
        """Return the cone coordinates nearest to outputs y, ``(n, k)``."""
        y = y - self.margin
        total = y.sum(axis=1) / (1.0 + self.tilt.sum())
        return np.asarray(np.maximum(y - np.multiply.outer(total, self.tilt), 0.0))

    def on_outputs(self, top: OrthantUnits) -> OrthantUnits:
        """Write units found on the cone for the first layer's outputs themselves."""
        back = np.eye(len(self.tilt))
        back -= np.multiply.outer(self.tilt, np.ones(len(back))) / (1.0 + self.tilt.sum())
        v, linear = top.weights @ back, top.linear @ back
        return dataclasses.replace(
            top,
            weights=v,
            biases=top.biases - v @ self.margin,
            linear=linear,
            constant=top.constant - linear @ self.margin,
        )

    def from_outputs(self, units: OrthantUnits) -> OrthantUnits:
        """Write units of the first layer's outputs for the cone: undoes :meth:`on_outputs`."""
        tilted = np.eye(len(self.tilt)) + np.multiply.outer(self.tilt, np.ones(len(self.tilt)))
        return dataclasses.replace(
            units,
            weights=units.weights @ tilted,
            biases=units.biases + units.weights @ self.margin,
            linear=units.linear @ tilted,
            constant=units.constant + units.linear @ self.margin,
        )


class TopOracle(Oracle):
    """The function of the first layer's outputs, on a cone inside the orthant.

    Parameters
    ----------
    inner
        The target.
    weights, biases
        The first layer, ``(k, d)`` of full row rank and ``(k,)``.
    std
        Error of each row, a coordinate's standard deviation, ``(k,)``.
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
        std: FloatArray | float = 0.0,
        config: TopConfig | None = None,
    ) -> None:
        config = TopConfig() if config is None else config
        self.inner = inner
        self.input_dim, self.output_dim = len(weights), inner.output_dim
        self.place(weights, biases)
        off = config.off * np.broadcast_to(std, (len(weights),))
        far = float(np.linalg.norm(self.inverse @ biases))
        self.cone = Cone(
            np.maximum(config.margin, off * far),
            np.maximum(config.tilt, off * float(np.linalg.norm(self.inverse, 2))),
        )
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
        offset = float(np.linalg.norm(self.inverse @ (self.cone.margin - self.biases)))
        stretch = float(np.linalg.norm(self.inverse, 2))
        return NoiseModel(target.absolute + offset * target.growth, stretch * target.growth)

    def coordinates(self, x: FloatArray) -> FloatArray:
        """Return the cone coordinates nearest to what the first layer makes of inputs x."""
        return self.cone.coordinates(np.maximum(x @ self.weights.T + self.biases, 0.0))

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        self.spent += len(points)
        if self.exhausted:
            raise BudgetExhausted(
                f"the top layers took more than {self.limit:,} queries, far beyond what a "
                "single hidden layer of this size needs"
            )
        x = (self.cone.heights(points) - self.biases) @ self.inverse.T
        return self.inner._answer(np.ascontiguousarray(x), repeat)


def attach(
    weights: FloatArray, biases: FloatArray, top: OrthantUnits
) -> tuple[ReLUNetwork, list[BoolArray]]:
    """Put the first layer under units of its outputs.

    Returns
    -------
    network, free
        The network of depth 3, whose second layer ends with the always-on
        units that carry the affine term, and which entries of each layer's
        ``[W | b]`` a polish may move.
    """
    k = len(weights)
    upper, free = top.network()
    first = np.ones((k, weights.shape[1] + 1), dtype=bool)
    first[np.arange(k), np.abs(weights).argmax(axis=1)] = False
    network = ReLUNetwork([weights, *upper.weights], [biases, *upper.biases])
    return network, [first, *free]
