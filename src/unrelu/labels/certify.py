"""What vouches for a network from labels: fresh inputs, and points beside its boundary."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.record import Record
from unrelu.labels.boundary import Crossings
from unrelu.labels.design import predicted_crossings
from unrelu.labels.model import Model
from unrelu.labels.run import LabelsRun
from unrelu.result import Certificate

__all__ = ["DISTANCES", "Verdict", "certify", "contradictions", "resolvable"]

DISTANCES = (1e-3, 1e-6, 1e-9)
"""From the boundary, in units of a typical input's coordinate, at which labels are compared."""
LEVER = 1e4
"""Errors of a boundary over those of the crossings it was fitted to: units that few of them
switch, inputs farther out. Points nearer than that to the boundary are reported, not judged."""


BLUNT = 1e-2
"""Distance from the boundary, in units of a typical input's coordinate, that labels must resolve
for a network to be called recovered."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A certificate, the boundary points that failed it, and whether labels are sharp enough."""

    certificate: Certificate
    failed: Crossings
    agreement: float
    sharp: bool

    def passed(self, against: int) -> bool:
        """Whether nothing speaks against the network, nor do ``against`` answers of the run."""
        return self.sharp and self.certificate.exceeding == 0 and against == 0


def resolvable(noise: float) -> float:
    """Return the distance from a boundary at which a network is held to its labels."""
    return LEVER * noise


def _bound(wrong: int, count: int, confidence: float) -> float:
    """Return the upper Clopper-Pearson limit of a share."""
    return (
        1.0
        if wrong >= count
        else float(scipy.special.betaincinv(wrong + 1, count - wrong, confidence))
    )


def certify(run: LabelsRun, model: Model) -> Verdict:
    """Ask fresh inputs and points beside the model's boundary; compare the labels."""
    config, target, rng = run.config, run.target, run.rng
    count = config.held_out
    details: dict[str, float] = {}
    failed = Crossings.none(run.whole.dimension)
    held = resolvable(run.noise)
    with run.stage("certificate"):
        x = target.domain.draw(count, rng)
        wrong = target.ask(x) != model.labels(x)
        exceeding = [wrong & (margins(model, x) > held)]
        for distance in DISTANCES:
            pool = predicted_crossings(model, run.whole, 2 * count, rng, room=distance, wide=False)
            at = pool.take(np.arange(min(count // 4, len(pool))))
            side = rng.choice([-1.0, 1.0], size=len(at))
            label = target.ask(at.points + (distance * side)[:, None] * at.directions)
            off = label != np.where(side > 0, at.outside, at.inside)
            details[f"agreement at {distance:g}"] = 1.0 - float(off.mean()) if len(off) else 1.0
            details[f"bound at {distance:g}"] = _bound(int(off.sum()), len(off), config.confidence)
            if distance >= held:
                failed = failed.joined(at.take(off))
                exceeding.append(off)
    details["agreement"] = 1.0 - float(wrong.mean())
    details["disagreement bound"] = _bound(int(wrong.sum()), count, config.confidence)
    every = np.concatenate(exceeding)
    certificate = Certificate.from_deviations(
        every.astype(np.float64), scale=1.0, tolerance=0.5, confidence=config.confidence,
        distribution=f"{target.domain.distribution} inputs and points beside the boundary as",
        details=details | {"held to its labels from": held},
    )  # fmt: skip
    return Verdict(certificate, failed, details["agreement"], held <= BLUNT)


def margins(model: Model, x: FloatArray) -> FloatArray:
    """Return how far inputs are from the model's boundary, to first order, ``(n,)``."""
    order = np.argsort(model(x), axis=1)
    value, gradient = model.differences(x, order[:, -2], order[:, -1])
    length = np.linalg.norm(gradient, axis=1)
    # Where outputs are parallel their difference alone tells.
    return np.asarray(value / np.maximum(length, 0.01 * float(np.median(length))))


def contradictions(
    record: Record, model: Model, code: dict[float, int], held: float
) -> tuple[int, FloatArray]:
    """Count answers of a run that a model contradicts, farther than ``held`` from its boundary.

    Returns the count and the first few inputs.
    """
    count, found = 0, []
    for batch in record.batches():
        labels: IntArray = np.array([code.get(float(v), -1) for v in batch.answers[:, 0]])
        wrong: BoolArray = model.labels(batch.points) != labels
        if wrong.any():
            x = batch.points[wrong]
            x = x[margins(model, batch.points)[wrong] > held * (1.0 + np.abs(x).max(axis=1))]
            count += len(x)
            found.append(x[:8])
    return count, np.concatenate(found)[:64] if found else np.empty((0, model.rows.shape[1]))
