"""The certificate: held-out points at which a recovered layer must be right."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.activations import Activation
from unrelu.core.explain import EXACT, NOISE_MULTIPLE
from unrelu.result import Certificate
from unrelu.smooth.fit import Layer
from unrelu.smooth.run import SmoothRun

__all__ = ["Verdict", "certify_layer"]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a certificate says.

    ``agrees`` where every held-out point is within its tolerance, ``exact`` where the stated
    tolerance is what exactness within the noise asks for; ``error`` is the largest deviation at
    typical inputs over the spread; ``seen`` are the points and answers it saw.
    """

    certificate: Certificate
    agrees: bool
    exact: bool
    error: float
    seen: tuple[FloatArray, FloatArray]


def _others(run: SmoothRun, count: int) -> FloatArray:
    """Draw points farther out than typical ones, and points on lines through typical ones."""
    far = run.draw(count // 2)
    far *= np.exp(run.rng.uniform(0.0, 2.0 * np.log(run.config.wide), size=(len(far), 1)))
    lines = run.config.hessians
    ends = run.draw(2 * lines).reshape(2, lines, 1, -1)
    t = run.rng.uniform(-1.0, 2.0, size=(lines, (count - count // 2) // lines, 1))
    between = ends[0] + t * (ends[1] - ends[0])
    return np.concatenate([far, between.reshape(-1, far.shape[1])])


def certify_layer(run: SmoothRun, layer: Layer, phi: Activation) -> Verdict:
    """Compare layer and target at fresh points.

    A deviation is accepted up to ``accept`` deviations of an answer, which grow with the input
    as the errors of weights do. What is stated is what was met at typical inputs, with room.
    """
    config = run.config
    with run.stage("certificate") as details:
        points = np.concatenate([run.draw(config.samples), _others(run, config.samples)])
        answers = run.ask(points)
    usable = np.asarray(np.isfinite(answers).all(axis=1))
    samples = int(np.count_nonzero(usable[: config.samples]))
    if samples == 0:
        raise ValueError("no held-out answer could be read")
    points, answers = points[usable], answers[usable]
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = np.nan_to_num(np.abs(answers - layer(points, phi)), nan=np.inf)
    typical = answers[:samples]
    spread = np.maximum(typical.std(axis=0), run.noise)
    growth = np.maximum(1.0, np.linalg.norm(points, axis=1) / run.domain.scale)
    level = run.deviations(answers)[:, None] * growth[:, None] * run.noise
    # Deviations far below what counts as exact are always accepted.
    floor = EXACT / config.margin**2 * spread
    limit = np.maximum(NOISE_MULTIPLE * level, growth[:, None] * floor)
    over = (deviation > limit).any(axis=1)
    largest = deviation[:samples].max(axis=0)
    tolerances = np.maximum(run.config.fits * np.maximum(largest, run.noise), floor)
    tolerances = np.minimum(tolerances, np.maximum(largest, limit[:samples].max(axis=0)))
    least = EXACT * spread if run.exact else config.margin**2 * run.noise
    certificate = Certificate.from_deviations(
        deviation[:samples],
        scale=float(spread.max()),
        tolerance=float(tolerances.max()),
        distribution=run.domain.distribution,
        details={
            "other points": len(points) - samples,
            "points exceeding": int(over.sum()),
            "largest deviation over its prediction": float((deviation / level).max()),
            "tolerance per output": [float(t) for t in tolerances],
        },
    )
    details |= {"points exceeding": int(over.sum())}
    return Verdict(
        certificate,
        agrees=not over.any(),
        exact=bool((tolerances <= least).all()),
        error=float((largest / spread).max()),
        seen=(points, answers),
    )
