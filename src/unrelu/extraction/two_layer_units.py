"""Units with what is known of their errors: joined, tidied, judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import RARE, NoiseModel
from unrelu.core.units import (
    Units,
    join_units,
    merge_units,
    parallel_groups,
    resolve_signs,
)
from unrelu.extraction.refine import predicted_error
from unrelu.lines.survey import Survey

__all__ = ["Estimate"]

_NOISE = 0.5 * RARE
"""Units whose weights are below this many deviations are noise: a true one that is known no
better spoils the rest. Two whose hyperplanes agree within ``RARE`` are one."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Units and the covariance of their entries.

    Attributes
    ----------
    units
        Found so far.
    covariance
        Of an entry of ``(A, w_1, ..., w_k)``, ``(m + k, m + k)``.
    """

    units: Units
    covariance: FloatArray

    def deviations(self) -> FloatArray:
        """Return the standard deviation of an entry of each unit's weights, ``(k,)``."""
        m = len(self.units.outputs)
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance)[m:], 0.0)))

    def errors(self, points: FloatArray) -> FloatArray:
        """Return the predicted error of the units at points, ``(n,)``."""
        return predicted_error(self.units, self.covariance, points)

    def entanglement(self) -> float:
        """Return the largest error that any unit's direction makes.

        Two kinks that nearly coincide on a line leave their units' directions open, but not
        the sum: the error shows between their hyperplanes only, where few inputs lie.
        """
        size = np.linalg.norm(self.units.outputs, axis=0) * self.deviations()
        return float(size.max(initial=0.0)) * math.sqrt(self.units.linear.shape[1])

    def finite(self) -> bool:
        """Whether all numbers are."""
        units = self.units
        return all(
            np.isfinite(a).all()
            for a in (units.weights, units.anchors, units.outputs, units.linear, units.value)
        )

    def residual_noise(
        self, noise: NoiseModel, draw: Callable[[int], FloatArray], closest: float
    ) -> NoiseModel:
        """Noise of the residual: of the answers, and of the units found so far.

        ``draw`` draws typical inputs, ``closest`` is the least norm of those that will be asked.
        """
        if self.units.count == 0:
            return noise
        base, points = self.units.base, draw(64)
        distance = np.linalg.norm(points - base, axis=1)
        growth = float(np.max(self.errors(points) / distance))
        # It acts over the distance from the base: at the origin, where the errors of all biases
        # show, it is no less than at other inputs as long as the base.
        short = max(0.0, float(np.linalg.norm(base)) - closest)
        return noise.widened(growth * short, growth)

    def turned(self) -> Estimate | None:
        """Return the units turned so that the affine term vanishes; None if undetermined."""
        units, m = self.units, len(self.units.outputs)
        std = math.sqrt(max(float(np.max(np.diagonal(self.covariance)[:m], initial=0.0)), 0.0))
        rounding = float(np.finfo(np.float64).eps) * math.sqrt(units.linear.size)
        turn = resolve_signs(units, max(std, rounding * float(np.abs(units.linear).max())))
        return None if turn is None else Estimate(units.turned(turn), self.covariance)

    def kept(self, which: BoolArray) -> Estimate:
        """Return the chosen units."""
        m = len(self.units.outputs)
        index = np.concatenate([np.arange(m), m + np.flatnonzero(which)])
        return Estimate(self.units.kept(which), self.covariance[np.ix_(index, index)])

    def doubted(self, factor: float) -> Estimate:
        """Return the same units with errors a factor larger."""
        return Estimate(self.units, factor**2 * self.covariance)

    def joined(self, found: Survey) -> Estimate:
        """Add units found in the residual, and what the errors of those known did to them."""
        new, shared = found.units, found.shared
        m, old = len(new.outputs), self.units.count
        size = m + old + new.count
        index = np.concatenate([np.arange(m), np.arange(m + old, size)])
        carried = np.eye(size, m + old)
        if shared is not None:
            carried[index] += shared
        joint = carried @ self.covariance @ carried.T
        joint[np.ix_(index, index)] += found.covariance
        return Estimate(join_units(self.units, new), joint)

    def tidied(self) -> Estimate:
        """Join units that share a hyperplane, and drop those that are nothing but noise."""
        root = math.sqrt(self.units.linear.shape[1])
        found = self
        norms = np.linalg.norm(found.units.weights, axis=1)
        found = found.kept(norms > _NOISE * root * found.deviations())
        norms = np.linalg.norm(found.units.weights, axis=1)
        angle = np.minimum(RARE * root * found.deviations() / norms + 1e-12, 0.1)
        for group in parallel_groups(found.units, angle):
            # On one line answers tell kinks apart; two lines may meet one unit twice.
            axes = found.units.axes[group]
            if np.abs(axes @ axes[0]).min() < 1.0 - 1e-9:
                units, change = merge_units(found.units, group)
                found = Estimate(units, change @ found.covariance @ change.T)
        size = np.linalg.norm(found.units.outputs, axis=0)
        size *= np.linalg.norm(found.units.weights, axis=1)
        return found.kept(size > _NOISE * root * found.deviations())
