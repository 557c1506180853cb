"""Run the audit and keep its facts.

The target itself is asked for a first look, the attack with its certificate,
one line for a figure, and a few images where inputs are images. Everything
else (what leaks first, what a defence does) is simulated on the recovered
clone: once its certificate holds, it answers like the target, and a rerun on
it costs no query.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu._version import __version__
from unrelu.choose import ExtractionPlan
from unrelu.diagnostics import Diagnosis
from unrelu.findings import Findings
from unrelu.labels.approximate import predicted
from unrelu.ledger import redact
from unrelu.lines.facts import Area
from unrelu.oracles import Oracle, as_oracle
from unrelu.progress import Progress, as_progress
from unrelu.report.attempts import Attack, Attacked, Look, run_attacks
from unrelu.report.config import AuditConfig
from unrelu.report.copies import CopyPoint, copy_curve, draw_inputs
from unrelu.report.line import answers_on_a_line
from unrelu.report.risk import RULE, Risk, actions, risk_of
from unrelu.report.simulation import Defence, LeakPoint, Simulation, entry_of
from unrelu.report.structure import (
    Obfuscated,
    check_images,
    example_images,
    first_rows,
    name_layer,
    seen_span,
    show_blind,
)
from unrelu.report.verdict import best_change, recommend, verdict
from unrelu.result import RecoveryResult

__all__ = ["Audit", "AuditConfig", "Defence", "LeakPoint", "audit"]

SCHEMA = "unrelu-audit/1"
"""Version of the facts as JSON; ``audit.schema.json`` beside this file describes them."""


@dataclasses.dataclass(frozen=True)
class Audit:
    """Everything the report tells, as plain values and arrays."""

    target: str
    seed: int | None
    created: str
    version: str
    plan: ExtractionPlan
    result: RecoveryResult
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
    kinks: tuple[float, ...] = ()
    """Positions on that line where it crosses a recovered first-layer hyperplane."""
    blind: Obfuscated | None = None
    """Images before and after noise that the model does not see."""
    copies: tuple[CopyPoint, ...] = ()
    """Ordinary copies after more and more answers."""
    needed: int | None = None
    """Fewest queries after which the copy was exact: without first look and certificate."""
    risk: Risk = dataclasses.field(default_factory=lambda: Risk("not shown", ""))
    actions: tuple[str, ...] = ()
    """What to do, most urgent first."""
    command: str = ""
    """The command that repeats the audit."""
    with_data: bool = False
    """Whether rows like those the model is meant for were given."""
    attacks: int = 1
    """Attacks on the target that were run: another one where the last made no copy."""

    @property
    def diagnosis(self) -> Diagnosis:
        """What the first look said about the answers."""
        return self.plan.diagnosis

    @property
    def rank(self) -> int | None:
        """Dimension of what the model sees; None where it is not known."""
        basis = seen_span(self.result)
        return len(basis) or None

    @property
    def layer(self) -> str:
        """What the first layer's weights look like, or nothing."""
        return name_layer(first_rows(self.result), self.image_shape)

    @property
    def findings(self) -> Findings:
        """What the result tells of the target, whichever method gave it."""
        return self.result.findings()

    @property
    def method(self) -> str:
        """The function that gave the result, and what its module says of itself."""
        entry = entry_of(self.result)
        title = (inspect.getdoc(inspect.getmodule(entry)) or "").partition("\n")[0]
        return f"{entry.__name__}: {title[:1].lower()}{title[1:].rstrip('.')}"

    @property
    def recovered(self) -> bool:
        """Whether a certified clone was made."""
        return self.result.copied

    @property
    def leaking(self) -> bool:
        """Whether something of the weights was recovered, if not all."""
        return self.recovered or self.rank is not None

    @property
    def attack_queries(self) -> int:
        """Queries that an attacker needs: those of the copy, or all that were asked."""
        return self.result.queries.total if self.needed is None else self.needed

    @property
    def cost(self) -> float | None:
        """Money the attack's queries cost, or None without a price."""
        return None if self.price is None else self.price * self.attack_queries

    @property
    def duration_at_rate(self) -> float | None:
        """Seconds the attack takes at the given rate limit."""
        return None if self.rate is None else self.attack_queries / self.rate

    def singular_values(self) -> FloatArray:
        """Return those of the first layer, or of the gradients seen: the span that leaked."""
        if self.findings.rank:
            return self.findings.singular_values
        network = self.result.network
        if network is None or network.depth < 2:
            return np.zeros(0)
        return np.asarray(np.linalg.svd(network.canonical().weights[0], compute_uv=False))

    def to_json(self) -> str:
        """Return the facts of the report for machines."""
        facts: dict[str, Any] = {
            "schema": SCHEMA,
            "target": self.target,
            "risk": dataclasses.asdict(self.risk) | {"rule": RULE},
            "actions": list(self.actions),
            "attack_queries": self.attack_queries,
            "attacks": self.attacks,
            "copies": [dataclasses.asdict(point) for point in self.copies],
            "command": self.command,
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
            "plan": {k: v for k, v in self.plan.to_dict().items() if k != "diagnosis"},
            "diagnosis": self.diagnosis.to_dict(),
            "result": json.loads(self.result.to_json()),
            "rank": self.rank,
            "layer": self.layer or None,
            "leaks": [dataclasses.asdict(leak) for leak in self.leaks],
            "defences": [dataclasses.asdict(defence) for defence in self.defences],
            "recommendation": self.recommendation,
            "singular_values": self.singular_values().tolist(),
            "obfuscation": None
            if self.blind is None
            else {
                "answer_change": self.blind.change,
                "image_correlation": self.blind.correlation,
                "noise": self.blind.noise,
            },
        }
        return json.dumps(facts, indent=2)


def audit(
    oracle: Any,
    *,
    rng: RandomState = 0,
    domain: Area | None = None,
    attack: Attack | None = None,
    look: Look | None = None,
    plan: ExtractionPlan | None = None,
    rate: float | None = None,
    image_shape: tuple[int, int] | None = None,
    examples: FloatArray | None = None,
    progress: Progress | None = None,
    config: AuditConfig | None = None,
    command: str = "",
    name: str = "",
) -> Audit:
    """Attack a target as an outsider would, and weigh the defences.

    Parameters
    ----------
    oracle
        An oracle, or anything :func:`unrelu.connect` takes. Its price, budget
        and box are used.
    domain, attack
        Where it may be asked (its box otherwise), and what recovers
        (:func:`unrelu.extract` otherwise).
    look, plan
        What plans an attack (:func:`unrelu.plan_extraction` otherwise), and what it said for
        the same oracle and seed.
    rate
        Queries a second that the service allows; only for the estimate of time.
    image_shape
        ``(height, width)`` of inputs that are grey images.
    examples
        Inputs ``(n, d)`` to show before and after obfuscation; handwritten
        digits otherwise, where inputs are images.
    command
        What repeats the audit, for the report.
    name
        The target as the user calls it; else what the oracle calls it.

    Raises
    ------
    BudgetExhausted
        The budget does not even allow a first look.
    """
    target = as_oracle(oracle)
    options = AuditConfig() if config is None else config
    check_images(image_shape, examples, target.input_dim)
    meter = as_progress(progress)
    start = time.perf_counter()
    seed = rng if isinstance(rng, int) else None
    generator = as_generator(rng)
    domain = domain or target.box or "all"
    source: RandomState = seed if seed is not None else generator
    attacked = run_attacks(
        target, domain, attack, look, plan, rng=source, attempts=options.attempts, progress=meter
    )
    plan, result = attacked.plan, attacked.result
    streams = generator.spawn(7)[2:]  # the first two are those of the plan and the extraction
    shape = image_shape or _as_image(target)
    blind = _blind(target, result, plan, shape, examples, options, streams[0])
    clone = _tried_on_clone(target, attacked, domain, options, streams, meter)
    copies = _copies(target, clone.ask or target, plan, options, streams[4], meter)
    headline, paragraph = verdict(attacked, shape)
    return Audit(
        target=redact(name or target.identity),
        seed=seed,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        plan=plan,
        result=result,
        verdict=paragraph,
        headline=headline,
        seconds=time.perf_counter() - start,
        price=target.meter.price,
        rate=rate,
        leaks=clone.leaks,
        defences=clone.defences,
        line=clone.line,
        kinks=clone.kinks,
        image_shape=shape,
        blind=blind,
        copies=copies,
        command=command,
        with_data=target.data is not None,
        attacks=attacked.attacks,
        **_weighed(attacked, clone, copies, options),
    )


def _weighed(
    attacked: Attacked, clone: _OnClone, copies: tuple[CopyPoint, ...], options: AuditConfig
) -> dict[str, Any]:
    """Return what the facts mean: the risk, what to do, and what an attacker needs."""
    result = attacked.result
    leaking = bool(len(seen_span(result)))
    risk = risk_of(result, copies, leaking=leaking, cut_short=attacked.cut_short)
    needed = None if clone.ask is None else attacked.needed
    best = best_change(clone.defences, options)
    return {
        "needed": needed,
        "risk": risk,
        "actions": actions(risk, needed, copies, best, clone.defences),
        "recommendation": recommend(clone.defences, options, result),
    }


@dataclasses.dataclass(frozen=True)
class _OnClone:
    """What was tried on the clone; nothing without one."""

    leaks: tuple[LeakPoint, ...] = ()
    defences: tuple[Defence, ...] = ()
    line: FloatArray = dataclasses.field(default_factory=lambda: np.zeros((0, 3)))
    kinks: tuple[float, ...] = ()
    ask: Callable[[FloatArray], FloatArray] | None = None


def _tried_on_clone(
    target: Oracle,
    attacked: Attacked,
    domain: Any,
    options: AuditConfig,
    streams: list[np.random.Generator],
    progress: Progress,
) -> _OnClone:
    """Measure what leaks first and what defences do, where there is a clone to try them on."""
    result = attacked.result
    network, labels = result.network, result.findings().labels
    if not result.copied or network is None:
        return _OnClone()
    if labels:  # no answer is coarser, and the clone has no other
        return _OnClone(ask=lambda x: predicted(network, labels, x)[:, np.newaxis])
    simulation = Simulation(target, attacked, network, domain, options, streams[1])
    line, kinks = answers_on_a_line(target, simulation, options, streams[2])
    return _OnClone(
        simulation.leaks(progress),
        simulation.defences(progress),
        line,
        kinks,
        simulation.served(),
    )


def _copies(
    target: Oracle,
    ask: Callable[[FloatArray], FloatArray],
    plan: ExtractionPlan,
    options: AuditConfig,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[CopyPoint, ...]:
    """Train ordinary copies, on the clone's answers where there is one."""
    kind = plan.diagnosis.kind
    with target.stage("ordinary copy"):
        return copy_curve(
            ask,
            draw_inputs(target, max(options.copies), rng),
            draw_inputs(target, min(options.points, max(options.copies) // 4), rng),
            options.copies,
            probabilities=kind == "probabilities",
            labels=kind == "labels",
            width=options.copy_width,
            epochs=options.epochs,
            seed=int(rng.integers(2**31)),
            progress=progress,
        )


def _blind(
    target: Oracle,
    result: RecoveryResult,
    plan: ExtractionPlan,
    shape: tuple[int, int] | None,
    examples: FloatArray | None,
    options: AuditConfig,
    rng: np.random.Generator,
) -> Obfuscated | None:
    """Show images before and after noise that the model does not see, where there are any."""
    if shape is None or np.prod(shape) != target.input_dim:
        return None
    if examples is None:
        low, high = 0.0, 1.0
        if target.box is not None:
            low, high = float(target.box[0].max()), float(target.box[1].min())
        examples = example_images(shape, options.examples, low, high)
    images = np.asarray(examples, dtype=np.float64)[: options.examples]
    return show_blind(
        target, seen_span(result), images, options.obfuscation, plan.diagnosis.scale, rng
    )


def _as_image(target: Oracle) -> tuple[int, int] | None:
    shape = [size for size in target.row_shape or () if size > 1]
    return (shape[0], shape[1]) if len(shape) == 2 else None
