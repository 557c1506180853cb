"""Recover a network whose depth is not known.

First-layer hyperplanes never bend; those of later layers do, where they meet
the first layer's (Daniely & Granot, section 3.5.2). So a short piece of one
line is searched, and the hyperplanes it meets are followed to both sides.

=============================  ===========================================
What is seen                   What is done
=============================  ===========================================
a hyperplane bends             :func:`extract_three_layer`
no hyperplane at all           a long line is searched for :func:`extract_three_layer`;
                               :func:`extract_two_layer` if that shows none either
none bends                     :func:`extract_two_layer`; if its checks fail
                               (the line met no later layer),
                               :func:`extract_three_layer` after all
both fail                      the better of the two results, never RECOVERED
=============================  ===========================================

Guarantee
---------
RECOVERED promises what the algorithm that gave the result promises; the
message begins with what was seen and which algorithm was chosen.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu.algorithms.three_layer import (
    ThreeLayerConfig,
    ThreeLayerResult,
    extract_three_layer,
)
from unrelu.algorithms.two_layer import TwoLayerConfig, extract_two_layer
from unrelu.errors import BudgetExhausted
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, RecoveryResult, StageReport, Status
from unrelu.steps.deep_layers import DEEPER, FIRST, find_first_layer, floored, measure_across
from unrelu.steps.survey import SurveyLine, calibrate, scan_line

__all__ = ["DepthConfig", "extract"]


@dataclasses.dataclass(frozen=True)
class DepthConfig:
    """Choices of the first look."""

    pieces: tuple[float, ...] = (0.05, 0.3, 2.0, 20.0)
    """Half-lengths of the line searched, over sqrt(d), until enough kinks are on it."""
    enough: int = 8
    """Kinks that are followed."""
    two_layer: TwoLayerConfig = dataclasses.field(default_factory=TwoLayerConfig)
    three_layer: ThreeLayerConfig = dataclasses.field(default_factory=ThreeLayerConfig)


@dataclasses.dataclass(frozen=True)
class _Look:
    kinks: int
    first: int
    deeper: int

    def __str__(self) -> str:
        if self.kinks == 0:
            return "no kink on the line searched"
        return (
            f"of {self.kinks} hyperplanes on a short line, {self.deeper} bend and "
            f"{self.first} go on unbent"
        )


def _look(oracle: Oracle, rng: np.random.Generator, config: DepthConfig) -> _Look:
    """Follow the hyperplanes that a short line meets."""
    d = oracle.input_dim
    scale = math.sqrt(d)
    base = rng.standard_normal(d)
    direction, across = rng.standard_normal((2, d))
    direction /= np.linalg.norm(direction)
    across -= (across @ direction) * direction
    length = float(np.linalg.norm(across))
    for half in config.pieces:
        reach = half * scale
        line = SurveyLine(base, direction, -reach, reach, math.inf)
        noise, seeds = calibrate(oracle, line, near=math.inf)
        noise = floored(oracle, noise, d, rng)
        scan, noise = scan_line(oracle, line, noise, seeds, config=config.three_layer.survey)
        if len(scan.kinks) >= config.enough:
            break
    if len(scan.kinks) == 0 or d == 1 or not length > 0 or not scan.complete:
        return _Look(len(scan.kinks), len(scan.kinks), 0)
    line = dataclasses.replace(line, scale=scale)
    across /= length
    layers = config.three_layer.layers
    side = measure_across(oracle, line, scan, noise, across, config=layers)
    verdict = find_first_layer(oracle, line, scan, noise, side, across, config=layers)
    return _Look(
        len(scan.kinks),
        int(np.count_nonzero(verdict == FIRST)),
        int(np.count_nonzero(verdict == DEEPER)),
    )


def extract(
    oracle: Any,
    *,
    rng: RandomState = None,
    progress: Progress | None = None,
    config: DepthConfig | None = None,
) -> RecoveryResult:
    """Recover a network with one or two hidden layers, whichever it has.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    config
        Tolerances and sizes.

    Returns
    -------
    RecoveryResult
        A :class:`TwoLayerResult` or a :class:`ThreeLayerResult`. A deeper
        target gives PARTIAL, with its first layer's hyperplanes.
    """
    target = as_oracle(oracle)
    config = DepthConfig() if config is None else config
    generator = as_generator(rng)
    meter = as_progress(progress)
    provenance = Provenance(
        algorithm="extract", seed=rng if isinstance(rng, int) else None, target=target.identity
    )
    before = target.queries.total
    try:
        with target.stage("depth"):
            bounded = _probabilities(target, generator)
            look = None if bounded else _look(target, generator, config)
    except BudgetExhausted as error:
        return RecoveryResult(
            Status.BUDGET_EXHAUSTED, f"{error}; not even the depth was found",
            target.queries, provenance,
        )  # fmt: skip
    if look is None:
        flat = extract_two_layer(target, rng=generator, progress=meter, config=config.two_layer)
        stage = StageReport("depth", target.queries.total - before, message="probabilities")
        reason = "the answers are probabilities: one hidden layer was tried, on their log-odds"
        return _named(flat, reason, provenance, stage)
    meter.update("depth", 1, 1, str(look))
    stage = StageReport(
        "depth", target.queries.total - before, message=str(look), details=dataclasses.asdict(look)
    )
    if look.kinks == 0:
        # Affine, or flat where it was looked at: only a long line tells.
        deep = extract_three_layer(
            target, rng=generator, progress=meter, config=config.three_layer
        )
        if deep.first_width > 0 or deep.status is Status.BUDGET_EXHAUSTED:
            return _named(deep, f"{look}, but there are some far out", provenance, stage)
    if look.deeper == 0:
        flat = extract_two_layer(target, rng=generator, progress=meter, config=config.two_layer)
        if flat.success or flat.status is Status.BUDGET_EXHAUSTED:
            return _named(flat, f"{look}: taken for one hidden layer", provenance, stage)
    deep = extract_three_layer(target, rng=generator, progress=meter, config=config.three_layer)
    if look.deeper:
        reason = f"{look}: more than one hidden layer"
    else:
        reason = f"{look}, but one hidden layer does not explain the answers"
        if not deep.success and deep.first_width == 0:
            return _named(flat, reason, provenance, stage)
    return _named(deep, reason, provenance, stage)


def _probabilities(target: Oracle, generator: np.random.Generator) -> bool:
    """Whether answers sum to one, or stay within [0, 1] far out: no kinks to follow there."""
    x = generator.standard_normal((3, target.input_dim))
    if target.output_dim == 1:
        x[1:] = 1e3 * x[0], -1e3 * x[0]
    seen = target(x)
    if not ((seen >= 0) & (seen <= 1)).all() or np.ptp(seen) == 0:
        return False
    return target.output_dim == 1 or bool((np.abs(seen.sum(axis=1) - 1.0) <= 1e-5).all())


def _named(
    result: RecoveryResult, reason: str, provenance: Provenance, stage: StageReport
) -> RecoveryResult:
    """Put the reason for the choice in front of a result's message."""
    algorithm = "three" if isinstance(result, ThreeLayerResult) else "two"
    options = {"chosen": f"extract_{algorithm}_layer"}
    return dataclasses.replace(
        result,
        message=f"{reason}. {result.message}",
        provenance=dataclasses.replace(provenance, options=options),
        stages=(stage, *result.stages),
    )
