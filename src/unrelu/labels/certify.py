"""What vouches for a network from labels: fresh inputs, and points beside its boundary."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.labels.boundary import Crossings
from unrelu.labels.config import DISTANCES
from unrelu.labels.design import predicted_crossings
from unrelu.labels.model import Model
from unrelu.labels.record import margins, resolvable
from unrelu.labels.run import LabelsRun
from unrelu.lines.domains import Domain
from unrelu.result import Certificate

__all__ = ["Verdict", "certify", "summary"]

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


def summary(wrong: BoolArray, domain: Domain, beside: str = "") -> Certificate:
    """Return how many labels are wrong, with a bound: a deviation is 0 or 1."""
    return Certificate.from_deviations(
        wrong.astype(np.float64), scale=1.0, tolerance=0.0,
        distribution=f"{domain.distribution}{beside}",
    )  # fmt: skip


def certify(run: LabelsRun, model: Model) -> Verdict:
    """Ask fresh inputs and points beside the model's boundary; compare the labels."""
    target, rng, near = run.target, run.rng, 2 * run.config.checks
    details: dict[str, float] = {}
    failed = Crossings.none(run.whole.dimension)
    held = resolvable(run.noise)
    with run.stage("certificate"):
        x = target.domain.draw(run.config.held_out, rng)
        wrong = target.ask(x) != model.labels(x)
        exceeding = [wrong & (margins(model, x) > held)]
        if len(own := _own_inputs(run)):
            off = target.ask(own) != model.labels(own)
            details["agreement on data"] = 1.0 - float(off.mean())
            details["bound on data"] = summary(off, target.domain).fraction_bound
            exceeding.append(off & (margins(model, own) > held))
        for distance in DISTANCES:
            pool = predicted_crossings(model, run.whole, 8 * near, rng, room=distance, wide=False)
            at = pool.take(np.arange(min(near, len(pool))))
            side = rng.choice([-1.0, 1.0], size=len(at))
            label = target.ask(at.points + (distance * side)[:, None] * at.directions)
            off = label != np.where(side > 0, at.outside, at.inside)
            if len(off):
                details[f"agreement at {distance:g}"] = 1.0 - float(off.mean())
                details[f"bound at {distance:g}"] = summary(off, target.domain).fraction_bound
            if distance >= held:
                failed = failed.joined(at.take(off))
                exceeding.append(off)
    details["agreement"] = 1.0 - float(wrong.mean())
    details["disagreement bound"] = summary(wrong, target.domain).fraction_bound
    rows = ", the rows given" if "bound on data" in details else ""
    beside = f" inputs{rows} and points beside the boundary as"
    certificate = dataclasses.replace(
        summary(np.concatenate(exceeding), target.domain, beside),
        details=details | {"held to its labels from": held},
    )
    return Verdict(certificate, failed, details["agreement"], held <= BLUNT)


def _own_inputs(run: LabelsRun) -> FloatArray:
    """Return rows that the caller gave, at most as many as are held out, without repeats."""
    target, data = run.target, run.target.oracle.data
    if data is None:
        return np.empty((0, run.whole.dimension))
    rows = np.unique(np.asarray(data, dtype=np.float64), axis=0)
    rows = rows[run.rng.permutation(len(rows))[: run.config.held_out]]
    return np.asarray(rows[target.may_ask(rows)])
