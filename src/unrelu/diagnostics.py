"""What is this oracle? A few queries that tell noise, precision and kind.

Algorithms derive their tolerances from what is measured here; nothing in it
uses more than answers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import to_bfloat16

__all__ = ["Diagnosis", "DiagnosisConfig", "diagnose"]


@dataclasses.dataclass(frozen=True)
class DiagnosisConfig:
    """Sizes and thresholds of the diagnosis, in the units given."""

    points: int = 16
    """Gaussian points looked at; medians over them are steady to about 30 %."""
    steps: tuple[float, ...] = (1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    """Steps of the second differences, in input units (times ``scale``): large ones
    cross kinks, small ones vanish in input rounding; the quietest that still moves
    the answer gives the noise."""
    bend_factor: float = 30.0
    """A second difference this many noise floors high is a bend."""
    far: float = 100.0
    """Factor by which points are moved out to see whether answers stay bounded."""
    max_decimals: int = 10
    """More printed decimals than this are taken for full floats."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What a few queries say about an oracle.

    Attributes
    ----------
    kind
        ``"values"``, ``"probabilities"``, ``"labels"`` or ``"constant"``.
    precision
        ``"float64"``, ``"float32"``, ``"bfloat16"`` or ``"N decimals"``: the
        coarsest grid that holds every answer seen.
    noise
        Standard deviation of an answer's error, in answer units.
    relative_noise
        The same over the typical size of the answers.
    deterministic
        The same point twice gave the same bits.
    batch_consistent
        A point alone and inside a batch gave the same bits.
    scale
        Standard deviation of the answers over Gaussian inputs.
    bend_step
        The smallest step, in input units, at which half of the points bend;
        None if there is none.
    piecewise_linear
        False when it bends at every step in proportion to its square, as
        smooth activations do; None when noise hides it.
    queries
        Rows asked for the diagnosis.
    """

    kind: str
    precision: str
    noise: float
    relative_noise: float
    deterministic: bool
    batch_consistent: bool
    scale: float
    bend_step: float | None
    piecewise_linear: bool | None
    input_dim: int
    output_dim: int
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return dataclasses.asdict(self)

    def sentences(self) -> list[str]:
        """Say the facts to a person."""
        lines = [
            f"inputs: {self.input_dim}, outputs: {self.output_dim} ({self.kind})",
            f"precision {self.precision}, noise floor {self.noise:.2g} "
            f"({self.relative_noise:.2g} of the answers' size)",
        ]
        if not self.deterministic:
            lines.append("the same point gives different answers: averaging will be needed")
        elif not self.batch_consistent:
            lines.append("a point answered alone and in a batch differs in the last bits")
        else:
            lines.append("deterministic, alone and in batches")
        if self.kind == "labels":
            lines.append("only labels come back: the span is what can be recovered")
        elif self.kind == "constant":
            lines.append("the answers never changed: nothing to recover but a constant")
        elif self.piecewise_linear is False:
            lines.append("it bends smoothly everywhere: not a ReLU network")
        elif self.bend_step is None:
            lines.append("no bend was seen: affine as far as this look went")
        else:
            lines.append(f"piecewise linear; steps of {self.bend_step:g} usually meet a kink")
        return lines


def diagnose(
    oracle: Any,
    *,
    rng: RandomState = 0,
    scale: float = 1.0,
    center: FloatArray | None = None,
    config: DiagnosisConfig | None = None,
) -> Diagnosis:
    """Measure an oracle's noise, precision, determinism and kind.

    Parameters
    ----------
    oracle
        An oracle, or anything :func:`unrelu.connect` takes.
    scale, center
        Points are ``center + scale * N(0, I)``: give them where inputs live on
        another scale, such as pixels in 0..255. An oracle with a box is looked
        at inside it instead.
    """
    if not scale > 0:
        raise InvalidInput(f"scale must be positive, got {scale}")
    oracle = as_oracle(oracle)
    options = DiagnosisConfig() if config is None else config
    g = as_generator(rng)
    before = oracle.queries.total
    d = oracle.input_dim
    offset = np.zeros(d) if center is None else np.asarray(center, dtype=np.float64)
    box = oracle.box
    if box is None:
        x = offset + scale * g.standard_normal((options.points, d))
    else:  # the middle half, and steps that stay inside: the largest is 10 scales
        offset = (box[0] + box[1]) / 2
        x = offset + (box[1] - box[0]) * g.uniform(-0.25, 0.25, (options.points, d))
        scale = float((box[1] - box[0]).min()) / 4 / max(options.steps)
    with oracle.stage("diagnosis"):
        answers = oracle(x)
        again = oracle(x[:1], repeat=1)
        batch = oracle(x[:4], repeat=2)
        alone = oracle(x[:1], repeat=3)
        deterministic = bool(np.array_equal(again, alone))
        consistent = bool(np.array_equal(batch[:1], again))
        away = offset + options.far * (x[:8] - offset)
        far = oracle(away if box is None else np.clip(away, *box))
        kind = _kind(answers, far)
        ends = _line_ends(oracle, x, scale, options, g)
    spread = float(answers.std())
    size = float(np.sqrt(np.mean(answers**2)))
    precision, quantum = _precision(np.concatenate([answers, far]), size, options)
    repeats = np.concatenate([answers[:1], again, batch[:1], alone])
    jitter = 0.0 if deterministic else float(repeats.std(axis=0, ddof=1).max())
    noise = max(_quietest(answers, ends), quantum / np.sqrt(12.0), jitter)
    if kind in {"labels", "constant"}:
        bend_step, piecewise = None, None
    elif kind == "probabilities":
        # A softmax bends everywhere; log-odds bend only where the network does.
        bend_step, piecewise = _bends(*_as_log_odds(answers, ends, noise), scale, options)
    else:
        floor = np.full(len(x), noise)
        bend_step, piecewise = _bends(_second_differences(answers, ends), floor, scale, options)
    return Diagnosis(
        kind=kind,
        precision=precision,
        noise=noise,
        relative_noise=noise / size if size > 0 else noise,
        deterministic=deterministic,
        batch_consistent=consistent,
        scale=spread,
        bend_step=bend_step,
        piecewise_linear=piecewise,
        input_dim=d,
        output_dim=oracle.output_dim,
        queries=oracle.queries.total - before,
    )


def _kind(near: FloatArray, far: FloatArray) -> str:
    """Decide the kind of output from answers near the origin and far out."""
    seen = np.concatenate([near, far])
    if (seen == seen[0]).all():
        return "constant"
    whole = bool((seen == np.round(seen)).all())
    if whole and len(np.unique(seen)) <= max(2, len(seen) // 2):
        return "labels"
    inside = bool(((seen >= 0) & (seen <= 1)).all())
    if inside:
        sums = seen.sum(axis=1)
        # Printed probabilities may sum to 1 only to their last decimal.
        if seen.shape[1] == 1 or np.abs(sums - 1).max() < 1e-2:
            return "probabilities"
    return "values"


def _precision(seen: FloatArray, size: float, options: DiagnosisConfig) -> tuple[str, float]:
    """Return the coarsest grid that holds every answer, and its spacing."""
    if size == 0:
        return "float64", 0.0
    for decimals in range(options.max_decimals + 1):
        if (np.round(seen, decimals) == seen).all():
            return f"{decimals} decimals", 10.0**-decimals
    if (to_bfloat16(seen) == seen).all():
        return "bfloat16", 2.0**-7 * size
    if (seen.astype(np.float32).astype(np.float64) == seen).all():
        return "float32", 2.0**-23 * size
    return "float64", 2.0**-52 * size


def _line_ends(
    oracle: Oracle, x: FloatArray, scale: float, options: DiagnosisConfig, g: np.random.Generator
) -> FloatArray:
    """Return ``f(x - h v)`` and ``f(x + h v)``, shape ``(steps, 2, points, m)``."""
    n, d = x.shape
    direction = g.standard_normal((n, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    steps = scale * np.asarray(options.steps)
    ends = [x + sign * h * direction for h in steps for sign in (-1.0, 1.0)]
    return oracle(np.concatenate(ends)).reshape(len(steps), 2, n, -1)


def _second_differences(middle: FloatArray, ends: FloatArray) -> FloatArray:
    """Return ``|f(x-hv) - 2 f(x) + f(x+hv)|``, the largest output, ``(steps, points)``."""
    return np.asarray(np.abs(ends[:, 0] - 2.0 * middle + ends[:, 1]).max(axis=2))


def _quietest(middle: FloatArray, ends: FloatArray) -> float:
    """Estimate an answer's error from the quietest step that moves the answer."""
    moved = (ends != middle).any(axis=(1, 3)).mean(axis=1) > 0.5
    if not moved.any():
        return 0.0
    # Second differences of independent errors have variance 6 sigma^2; the median
    # of |N(0, 1)| is 0.6745.
    medians = np.median(_second_differences(middle, ends), axis=1) / (np.sqrt(6.0) * 0.6745)
    return float(medians[moved].min())


def _as_log_odds(
    middle: FloatArray, ends: FloatArray, noise: float
) -> tuple[FloatArray, FloatArray]:
    """Return second differences of log-odds, and their noise, where unsaturated."""
    p = np.concatenate([middle[None], ends.reshape(-1, *middle.shape)])
    if p.shape[2] == 1:
        p = np.concatenate([p, 1.0 - p], axis=2)
    smallest = p.min(axis=(0, 2))
    usable = smallest > np.sqrt(noise)  # log(p) keeps half of the digits there
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(p > 0, p, 1.0))[:, usable]
    odds = logs[:, :, 1:] - logs[:, :, :1]
    shape = (*ends.shape[:2], *odds.shape[1:])
    return _second_differences(odds[0], odds[1:].reshape(shape)), 2 * noise / smallest[usable]


def _bends(
    seconds: FloatArray, noise: FloatArray, scale: float, options: DiagnosisConfig
) -> tuple[float | None, bool | None]:
    """Return the step at which half of the points bend, and whether pieces are linear."""
    if seconds.shape[1] < 3:
        return None, None
    bent = seconds > options.bend_factor * noise
    often = np.flatnonzero(bent.mean(axis=1) >= 0.5)
    if len(often) == 0:
        return None, True
    bend = scale * options.steps[int(often.max())]
    # A smooth function's second differences fall by 100 with each ten times smaller
    # step, at nearly every point; a piecewise linear one's drop to zero, or by 10.
    medians = np.median(seconds, axis=1)
    small = [i for i in often if options.steps[i] < 0.5]
    if len(small) < 2:
        return bend, True
    rates = np.log10(medians[small[:-1]] / medians[small[1:]])
    return bend, not bool(np.median(rates) > 1.7)
