"""Run the audit and keep its facts.

The target itself is asked for the diagnosis, the attack with its certificate,
and one line for a figure. Everything else (what leaks first, what a defence
does) is simulated on the recovered clone: once its certificate holds, it
answers like the target, and a rerun on it costs no query.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu._version import __version__
from unrelu.algorithms.two_layer import TwoLayerResult, extract_two_layer
from unrelu.diagnostics import Diagnosis, diagnose
from unrelu.errors import UnreluError
from unrelu.ledger import redact
from unrelu.oracles import Oracle, as_oracle
from unrelu.progress import Progress, as_progress
from unrelu.report.simulation import AuditConfig, Defence, LeakPoint, Simulation
from unrelu.result import RecoveryResult, Status

__all__ = ["Audit", "AuditConfig", "Defence", "LeakPoint", "audit"]


@dataclasses.dataclass(frozen=True)
class Audit:
    """Everything the report tells, as plain values and arrays."""

    target: str
    seed: int | None
    created: str
    version: str
    diagnosis: Diagnosis
    result: RecoveryResult | None
    verdict: str
    headline: str
    seconds: float
    price: float | None
    rate: float | None
    leaks: tuple[LeakPoint, ...]
    defences: tuple[Defence, ...]
    recommendation: str
    line: FloatArray
    """Position, answer and clone along one line, ``(n, 3)``; empty without a clone. Probabilities
    are shown as log-odds."""
    image_shape: tuple[int, int] | None

    @property
    def recovered(self) -> bool:
        """Whether a certified clone was made."""
        return self.result is not None and self.result.success

    @property
    def cost(self) -> float | None:
        """Money the attack's queries cost, or None without a price."""
        if self.price is None or self.result is None:
            return None
        return self.price * self.result.queries.total

    @property
    def duration_at_rate(self) -> float | None:
        """Seconds the attack takes at the given rate limit."""
        if self.rate is None or self.result is None:
            return None
        return self.result.queries.total / self.rate

    def singular_values(self) -> FloatArray:
        """Return those of the clone's first layer: the span that leaked."""
        network = None if self.result is None else self.result.network
        if network is None or network.depth < 2:
            return np.zeros(0)
        return np.asarray(np.linalg.svd(network.canonical().weights[0], compute_uv=False))

    def to_json(self) -> str:
        """Return the facts of the report for machines."""
        facts: dict[str, Any] = {
            "target": self.target,
            "verdict": self.verdict,
            "headline": self.headline,
            "recovered": self.recovered,
            "seed": self.seed,
            "created": self.created,
            "version": self.version,
            "seconds": self.seconds,
            "price": self.price,
            "cost": self.cost,
            "rate": self.rate,
            "seconds_at_rate": self.duration_at_rate,
            "diagnosis": self.diagnosis.to_dict(),
            "result": None if self.result is None else json.loads(self.result.to_json()),
            "leaks": [dataclasses.asdict(leak) for leak in self.leaks],
            "defences": [dataclasses.asdict(defence) for defence in self.defences],
            "recommendation": self.recommendation,
            "singular_values": self.singular_values().tolist(),
        }
        return json.dumps(facts, indent=2)


def audit(
    oracle: Any,
    *,
    rng: RandomState = 0,
    rate: float | None = None,
    image_shape: tuple[int, int] | None = None,
    progress: Progress | None = None,
    config: AuditConfig | None = None,
) -> Audit:
    """Attack a target as an outsider would, and weigh the defences.

    Parameters
    ----------
    oracle
        An oracle, or anything :func:`unrelu.connect` takes. Its price, budget
        and box are used.
    rate
        Queries a second that the service allows; only for the estimate of time.
    image_shape
        ``(height, width)`` of inputs that are grey images.
    """
    target = as_oracle(oracle)
    options = AuditConfig() if config is None else config
    meter = as_progress(progress)
    start = time.perf_counter()
    seed = rng if isinstance(rng, int) else None
    generator = as_generator(rng)
    streams = generator.spawn(4)
    domain: Any = "all" if target.box is None else target.box
    diagnosis = diagnose(target, rng=streams[0])
    refusal = _refusal(diagnosis)
    result: TwoLayerResult | None = None
    if not refusal:
        result = extract_two_layer(target, domain=domain, rng=streams[1], progress=meter)
    leaks: tuple[LeakPoint, ...] = ()
    defences: tuple[Defence, ...] = ()
    line = np.zeros((0, 3))
    if result is not None and result.success and result.network is not None:
        simulation = Simulation(target, result, result.network, domain, options, streams[2])
        line = _line(target, simulation, options, streams[3])
        leaks = simulation.leaks(meter)
        defences = simulation.defences(meter)
    headline, verdict = _verdict(diagnosis, result, refusal)
    return Audit(
        target=redact(target.identity),
        seed=seed,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        diagnosis=diagnosis,
        result=result,
        verdict=verdict,
        headline=headline,
        seconds=time.perf_counter() - start,
        price=target.meter.price,
        rate=rate,
        leaks=leaks,
        defences=defences,
        recommendation=_recommend(defences, options),
        line=line,
        image_shape=image_shape or _as_image(target),
    )


def _as_image(target: Oracle) -> tuple[int, int] | None:
    shape = [size for size in target.row_shape or () if size > 1]
    return (shape[0], shape[1]) if len(shape) == 2 else None


def _refusal(diagnosis: Diagnosis) -> str:
    """Say why the exact attack is not tried, or nothing."""
    if diagnosis.kind == "labels":
        return (
            "Only labels come back. Weights cannot be recovered exactly from labels; the span of "
            "the first layer can (unrelu span)"
        )
    if diagnosis.kind == "constant":
        return "The answers never changed: there is nothing to recover but a constant"
    if diagnosis.piecewise_linear is False:
        return (
            "The answers bend smoothly everywhere: this is no ReLU network of plain layers (a "
            "smooth activation such as GELU or tanh, attention, or a smooth output is likely)"
        )
    return ""


def _verdict(diagnosis: Diagnosis, result: TwoLayerResult | None, refusal: str) -> tuple[str, str]:
    """Return a headline and a paragraph in plain words."""
    if result is None:
        return (
            "Outside what can be cloned exactly",
            f"{refusal}. What was still learned: {diagnosis.input_dim} inputs, "
            f"{diagnosis.output_dim} outputs, {diagnosis.precision} answers. This does not rule "
            "out an approximate copy trained on answers.",
        )
    if result.success and result.network is not None and result.certificate is not None:
        relative = result.certificate.max_deviation / max(result.certificate.scale, 1e-300)
        return (
            "This model can be cloned",
            f"Anyone who may ask {result.queries.total:,} questions gets a copy: "
            f"{result.network.parameters:,} parameters, {result.width} hidden units, with a "
            f"largest deviation of {relative:.1e} of the answers' spread at inputs that were held "
            "out. It took nothing but answers.",
        )
    learned = "" if not result.width else f" {result.width} hidden units were seen."
    return (
        "Not cloned by this attack",
        f"{result.message[:1].upper()}{result.message[1:]}.{learned} This does not rule out other "
        "attacks, nor an approximate copy trained on answers.",
    )


def _line(
    target: Oracle, simulation: Simulation, options: AuditConfig, rng: np.random.Generator
) -> FloatArray:
    """Ask the target along one line, beside the clone's values."""
    d = target.input_dim
    if target.box is None:
        direction = rng.standard_normal(d)
        ends = -2.0 * direction, 2.0 * direction
    else:
        low, high = target.box
        ends = low + (high - low) * rng.random(d), low + (high - low) * rng.random(d)
    t = np.linspace(0.0, 1.0, options.line_points)
    points = (1 - t)[:, None] * ends[0] + t[:, None] * ends[1]
    try:
        with target.stage("figure"):
            answers = target(points)
    except UnreluError:  # the budget may be spent: the figure shows the clone alone
        answers = np.full((len(points), target.output_dim), np.nan)
    clone = simulation.served()(points)
    if simulation.probabilities:  # log-odds are straight between kinks; probabilities are not
        answers, clone = _log_odds(answers), _log_odds(clone)
    column = int(np.argmax(clone.std(axis=0)))
    return np.column_stack([t, answers[:, column], clone[:, column]])


def _log_odds(p: FloatArray) -> FloatArray:
    """Return log-odds against the first column (or of the only one), cut at 1e-300."""
    if p.shape[1] == 1:
        p = np.column_stack([1.0 - p, p])
    logs = np.log(np.maximum(p, 1e-300))
    return np.asarray(logs[:, 1:] - logs[:, :1])


def _recommend(defences: tuple[Defence, ...], options: AuditConfig) -> str:
    if not defences:
        return (
            "No exact clone was made, so no defence was weighed. Keep logging and limiting "
            "queries: approximate copies remain possible."
        )
    stopped = [
        d
        for d in defences
        if not d.name.startswith(("none", "query budget"))
        and d.status not in {Status.RECOVERED.name, Status.BUDGET_EXHAUSTED.name}
        and d.attack_error is not None
        and d.attack_error >= options.useful
    ]
    if not stopped:
        return (
            "No change of the answers that was tried keeps this attack from a useful clone. What "
            "remains is to limit who may ask how much, and to watch for queries far from real "
            "inputs."
        )
    best = min(stopped, key=lambda d: (d.label_change, d.answer_change))
    return (
        f"Of the changes of answers that stop this attack, '{best.name}' costs an honest user "
        "least: "
        f"answers change by {best.answer_change:.1e} of their spread, and the top class for "
        f"{100 * best.label_change:.2g} % of inputs. It stops exact extraction, not an ordinary "
        f"copy: one trained on {options.training:,} such answers misses {100 * best.copy_miss:.2g}"
        f" % (without the defence {100 * defences[0].copy_miss:.2g} %). Limit and watch queries "
        "as well."
    )
