"""Find units without linear terms or monotonicity, by searching over directions.

Reference
---------
Goel & Panigrahy 2018, Section 3 (Theorem 7, Lemma 8, Corollary 1) and Appendix C.1.

Setting
-------
f(x) = P(u(w_1 . x - t), ..., u(w_k . x - t)), u the sign function or ReLU, any polynomial
P, low thresholds allowed; query access, t known. Samples would do in principle: they are
polynomial in number, but a slab of theirs around each direction tried is thin.

Guarantee
---------
RECOVERED: each direction is one where the detector does not fall as its epsilon falls,
and a polynomial of the recovered units, fitted on Gaussian inputs, predicts fresh ones.
The search costs a number of queries exponential in n, ``lines * (c / spacing)^(n - 1)``;
it is computed first, and nothing is asked where it exceeds ``bound``. While a unit is
seen to be missing it is repeated with more lines, within the bound.

Paper to code
-------------
=====================  ==============================================================
C2, C3                 ``unrelu.thresholds.detect.detect``
Theorem 7's search     :func:`detect_directions`
=====================  ==============================================================

Deviations
----------
- The correlations with delta(z . x - s +- eps) are taken at the same points along the two
  planes: their difference then has the variance of the break alone.
- The detector only has to come near a unit: from there a regression on the breaks seen
  along lines converges to it.
- The threshold is refined with the direction.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.errors import BudgetExhausted, InvalidInput
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status
from unrelu.thresholds.detect import detect, move_by_lines

__all__ = ["DetectedLayerResult", "DetectorConfig", "detect_directions"]


@dataclasses.dataclass(frozen=True)
class DetectorConfig:
    """Constants of the search; angles in radians, heights in units of the inputs.

    Attributes
    ----------
    spacing
        Distance between the directions tried.
    covering
        Directions tried per ball of that radius: random ones need several.
    epsilon
        The detector's epsilon in the search: above ``spacing * 1.6`` most lines at the
        nearest direction tried still cross the unit.
    lines, more
        Lines per direction in the first search, and the factor for the next one where
        a check shows that a unit is missing; likewise for ``move_lines``.
    chunk
        Directions per batch of queries.
    significance
        A direction is a candidate above this many standard errors.
    neighbourhood
        Candidates are the strongest within this angle.
    candidates
        Refined at most.
    move_lines, moves
        Lines per move, and moves at most.
    shrink
        Epsilon over the last move, while it falls; at most by ``fastest`` per move.
    fastest
        See ``shrink``.
    finest
        Epsilon at which a unit is settled.
    lost
        A candidate that moved this far from its start belongs to another one.
    drift
        The same for its threshold: a hyperplane elsewhere is another unit's, or this
        one's seen from behind.
    confirm_epsilon, confirm_lines
        Of the last detection, at epsilon and twice epsilon.
    steady
        Least ratio of the detector at epsilon to that at twice epsilon: 1 at a unit,
        one half elsewhere.
    same
        Cosine above which two units are one.
    degree
        Of the polynomial fitted to check completeness.
    check
        Gaussian inputs for that fit, and as many again to test it.
    residual
        Largest deviation, over the answers' spread, that counts as explained.
    missed
        Largest share of inputs that may exceed it: those next to a threshold.
    """

    spacing: float = 0.25
    covering: float = 4.0
    epsilon: float = 0.4
    lines: int = 300
    more: int = 4
    chunk: int = 32
    significance: float = 5.0
    neighbourhood: float = 0.5
    candidates: int = 40
    move_lines: int = 1500
    moves: int = 25
    shrink: float = 3.0
    fastest: float = 6.0
    finest: float = 1e-4
    lost: float = 0.8
    drift: float = 0.3
    confirm_epsilon: float = 0.01
    confirm_lines: int = 2000
    steady: float = 0.75
    same: float = 0.995
    degree: int = 3
    check: int = 4000
    residual: float = 1e-2
    missed: float = 1e-3


@dataclasses.dataclass(frozen=True, repr=False)
class DetectedLayerResult(RecoveryResult):
    """Units found by the detector.

    Attributes
    ----------
    directions, thresholds
        ``(k, n)`` and ``(k,)``.
    strengths
        The detector over phi(t), an estimate of E[dP/dX_i] at the unit, ``(k,)``.
    """

    directions: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    thresholds: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    strengths: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))


def search_cost(n: int, config: DetectorConfig, *, kink: bool) -> tuple[int, int]:
    """Return how many directions a search tries, and the queries per line and direction."""
    directions = int(np.ceil(config.covering * (2.0 / config.spacing) ** (n - 1)))
    return directions, directions * (3 if kink else 2)


class _Search:
    """Units found so far; survives the end of the budget."""

    def __init__(
        self,
        oracle: Oracle,
        threshold: float,
        kink: bool,
        rng: np.random.Generator,
        cfg: DetectorConfig,
        watch: Progress,
    ) -> None:
        self.oracle, self.threshold, self.kink = oracle, threshold, kink
        self.rng, self.cfg, self.watch = rng, cfg, watch
        self.directions: list[FloatArray] = []
        self.thresholds: list[float] = []
        self.strengths: list[float] = []

    def values(self, x: FloatArray) -> FloatArray:
        return self.oracle(x)[:, 0]

    def candidates(self, count: int, lines: int) -> FloatArray:
        """Try ``count`` random directions; return the locally strongest, best first."""
        cfg, n = self.cfg, self.oracle.input_dim
        tried = self.rng.standard_normal((count, n))
        tried /= np.linalg.norm(tried, axis=1, keepdims=True)
        strength = np.zeros(count)
        for start in range(0, count, cfg.chunk):
            part = tried[start : start + cfg.chunk]
            found = detect(
                self.values,
                part,
                self.threshold,
                cfg.epsilon,
                lines,
                kink=self.kink,
                rng=self.rng,
            )
            for i, one in enumerate(found):
                if abs(one.strength) > cfg.significance * one.error:
                    strength[start + i] = abs(one.strength)
            self.watch.update("search", start + len(part), count)
        chosen: list[int] = []
        for i in np.argsort(-strength):
            if strength[i] == 0.0 or len(chosen) >= cfg.candidates:
                break
            near = [float(tried[i] @ tried[j]) > np.cos(cfg.neighbourhood) for j in chosen]
            if not any(near):
                chosen.append(int(i))
        return tried[chosen]

    def refine(self, start: FloatArray, lines: int) -> None:
        """Follow one candidate to a unit, and keep it if it is one."""
        cfg = self.cfg
        direction, threshold, epsilon = start, self.threshold, cfg.epsilon
        for _ in range(cfg.moves):
            step = move_by_lines(
                self.values,
                direction,
                threshold,
                epsilon,
                lines,
                kink=self.kink,
                rng=self.rng,
            )
            if step is None:
                return
            direction, threshold = step.direction, step.threshold
            if float(direction @ start) < np.cos(cfg.lost):
                return
            if self.is_known(direction, threshold):
                return
            if abs(threshold - self.threshold) > cfg.drift:
                return
            if epsilon <= cfg.finest:
                break
            size = step.angle + abs(step.shift)
            epsilon = min(epsilon, max(cfg.shrink * size, epsilon / cfg.fastest))
        if epsilon > cfg.confirm_epsilon:
            return
        pair = [
            detect(
                self.values,
                direction[None],
                threshold,
                e,
                cfg.confirm_lines,
                kink=self.kink,
                rng=self.rng,
            )[0]
            for e in (cfg.confirm_epsilon, 2.0 * cfg.confirm_epsilon)
        ]
        near, far = abs(pair[0].strength), abs(pair[1].strength)
        if near < cfg.significance * pair[0].error or near < cfg.steady * far:
            return
        self.directions.append(direction)
        self.thresholds.append(threshold)
        self.strengths.append(pair[0].strength)

    def is_known(self, direction: FloatArray, threshold: float) -> bool:
        """Whether a unit with this hyperplane was found.

        Seen from behind, a sign unit at the threshold 0 is 1 minus itself: the same unit.
        """
        for known, cut in zip(self.directions, self.thresholds, strict=True):
            cosine = float(direction @ known)
            behind = not self.kink and abs(threshold + cut) < self.cfg.confirm_epsilon
            if cosine > self.cfg.same or (behind and cosine < -self.cfg.same):
                return True
        return False


def detect_directions(
    source: Any,
    *,
    activation: Literal["sign", "relu"],
    threshold: float,
    bound: int = 20_000_000,
    rng: RandomState = None,
    config: DetectorConfig | None = None,
    progress: Progress | None = None,
) -> DetectedLayerResult:
    """Find the units of a network by a search over all directions.

    Parameters
    ----------
    source
        An oracle, or anything :func:`unrelu.connect` makes one of; one output.
    threshold
        t.
    bound
        Queries that the searches over directions may cost together. One grows as
        ``(2 / spacing)^(n - 1)``: from 0.15 million at n = 3, 1.2 at n = 4. The
        refinement of candidates comes on top, about as much again.
    """
    if activation not in ("sign", "relu"):
        raise InvalidInput(f"activation must be 'sign' or 'relu', got {activation!r}")
    if not np.isfinite(threshold):
        raise InvalidInput(f"threshold must be a finite number, got {threshold}")
    oracle = as_oracle(source)
    if oracle.output_dim != 1:
        raise InvalidInput(f"the target has {oracle.output_dim} outputs; wrap it to answer one")
    n = oracle.input_dim
    if n < 2:
        raise InvalidInput("with one input there is no direction to search for")
    cfg = DetectorConfig() if config is None else config
    kink = activation == "relu"
    provenance = Provenance(
        "goel-panigrahy/detector",
        rng if isinstance(rng, int) else None,
        {"activation": activation, "threshold": threshold, "bound": bound},
    )
    count, per_line = search_cost(n, cfg, kink=kink)
    if per_line * cfg.lines > bound:
        return DetectedLayerResult(
            status=Status.PARTIAL,
            message=(
                f"nothing was asked: {count:,} directions in {n} dimensions cost "
                f"{per_line * cfg.lines:,} queries, above the bound of {bound:,}. The search is "
                "exponential in n: raise bound, or reduce n first with recover_span."
            ),
            queries=oracle.queries,
            provenance=provenance,
            directions=np.empty((0, n)),
        )
    search = _Search(oracle, threshold, kink, as_generator(rng), cfg, as_progress(progress))
    certificate: Certificate | None = None
    begin = time.perf_counter()
    lines, moves, spent, tried, missed = cfg.lines, cfg.move_lines, 0, 0, 1.0
    try:
        while missed > cfg.missed and spent + per_line * lines <= bound:
            spent += per_line * lines
            with oracle.stage("search"):
                starts = search.candidates(count, lines)
            tried += len(starts)
            with oracle.stage("refine"):
                for i, start in enumerate(starts):
                    note = f"{len(search.directions)} units"
                    search.watch.update("refine", i, len(starts), note)
                    search.refine(start, moves)
            lines, moves = lines * cfg.more, moves * cfg.more
            if search.directions:
                with oracle.stage("check"):
                    missed = _misses(search).exceeding / cfg.check
        if search.directions:
            with oracle.stage("certificate"):
                certificate = _misses(search)
            missed = certificate.exceeding / cfg.check
        status, message = _verdict(len(search.directions), missed, cfg)
    except BudgetExhausted as error:
        status = Status.BUDGET_EXHAUSTED
        message = f"{error}. The {len(search.directions)} units found until then are kept."
    found = search.directions
    return DetectedLayerResult(
        status=status,
        message=message,
        queries=oracle.queries,
        provenance=provenance,
        certificate=certificate,
        stages=(
            StageReport(
                "search",
                oracle.queries.by_stage.get("search", 0),
                time.perf_counter() - begin,
                details={"directions per search": count, "candidates": tried},
            ),
        ),
        directions=np.array(found) if found else np.empty((0, n)),
        thresholds=np.array(search.thresholds),
        strengths=np.array(search.strengths),
    )


def _misses(search: _Search) -> Certificate:
    """Fit a polynomial of the units to Gaussian inputs; test it on as many others."""
    cfg, oracle = search.cfg, search.oracle
    rows, cuts = np.array(search.directions), np.array(search.thresholds)
    k = len(rows)

    def features(x: FloatArray) -> FloatArray:
        heights = x @ rows.T - cuts
        units = np.maximum(heights, 0.0) if search.kink else (heights > 0).astype(np.float64)
        pick = itertools.combinations_with_replacement if search.kink else itertools.combinations
        columns = [np.ones(len(x))]
        for degree in range(1, cfg.degree + 1):
            columns += [units[:, list(c)].prod(axis=1) for c in pick(range(k), degree)]
        return np.column_stack(columns)

    x = search.rng.standard_normal((2 * cfg.check, oracle.input_dim))
    y = search.values(x)
    fit, test = slice(0, cfg.check), slice(cfg.check, None)
    weights = np.linalg.lstsq(features(x[fit]), y[fit], rcond=None)[0]
    scale = float(y.std())
    return Certificate.from_deviations(
        features(x[test]) @ weights - y[test], scale=scale, tolerance=cfg.residual * scale
    )


def _verdict(k: int, missed: float, cfg: DetectorConfig) -> tuple[Status, str]:
    if k == 0:
        return (
            Status.ASSUMPTION_VIOLATED,
            "no direction breaks f at this threshold within the bound: check the threshold and "
            "the activation, or raise bound.",
        )
    if missed > cfg.missed:
        return (
            Status.PARTIAL,
            f"{k} units found, but a polynomial of degree {cfg.degree} in them misses "
            f"{missed:.1%} of fresh inputs: a unit is missing (raise bound, or a smaller "
            "spacing), or P has a higher degree.",
        )
    return Status.RECOVERED, f"{k} units; a polynomial in them predicts fresh inputs."
