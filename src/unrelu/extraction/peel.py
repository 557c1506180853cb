"""Extraction of ReLU networks of any depth, layer by layer."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import explained
from unrelu.core.price import price_any_depth
from unrelu.core.record import Remembered, remembered, with_plan
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import NotFinite, as_log_odds
from unrelu.extraction.deep_certify import Verdict, certify_network
from unrelu.extraction.deep_polish import polish
from unrelu.extraction.peel_run import Layer, Peeling, REACH
from unrelu.extraction.peel_top import Closed
from unrelu.extraction.prefix import Prefix
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, Status

__all__ = ["AnyDepthResult", "extract_any_depth"]

EXPLAINED = 0.97
"""Part of the gradients that a layer's rows must explain before the next is looked for."""
LAST = 0.98
"""Part of the answers that a regression on a layer must explain for it to be the last."""
MOST_LAYERS = 12
"""Hidden layers looked for at most."""
LINES_FIRST, LINES_EACH = 1, 3
"""Lines traced before the first layer is looked for, and so many more before each of the next
two: rows that several crossings complete need no more queries."""
ROUNDS = 14
"""Rounds of lines; the price ends a run before, as a rule."""
TRUSTED = 30.0
"""Answers farther out than this many typical inputs are not used by the polish."""


@dataclasses.dataclass(frozen=True, repr=False)
class AnyDepthResult(RecoveryResult):
    """A network of any depth, or the layers of it that were found."""

    widths: tuple[int, ...] = ()
    layers_seen: int = 0
    noise: float = 0.0
    answers: str = "values"


class _Outcome:
    def __init__(self, closed: Closed | None, message: str, suspects=None) -> None:
        self.closed, self.message, self.suspects = closed, message, suspects


def peel(run: Peeling, *, depth: int | None) -> _Outcome:
    """One pass of the loop over all that was asked: from the first layer as far as it goes."""
    outcome = _peel(run, depth=depth)
    run.deepest = run.prefix
    if run.layers[run.prefix.depth].rows:
        run.deepest = run.prefix.with_layer(*run.layers[run.prefix.depth].arrays())
    return outcome


def _peel(run: Peeling, *, depth: int | None) -> _Outcome:
    """One pass of the loop over all that was asked: from the first layer as far as it goes."""
    prefix = Prefix(run.domain.dimension)
    for i in range(MOST_LAYERS):
        if len(run.layers) == i:
            run.layers.append(Layer())
        layer = run.layers[i]
        if i:
            if not layer.fits(run.layers[i - 1]):
                layer = run.layers[i] = Layer()
            layer.stands_on(run.layers[i - 1])
        run.prefix = prefix
        while len(run.traced) < LINES_FIRST + LINES_EACH * min(i, 2) and not layer.rows:
            run.trace(run.domain.line(run.rng, REACH))
            run.deepest = prefix
        new = run.find_rows(layer, prefix)
        if not layer.rows:
            return _Outcome(None, f"no unit of hidden layer {i + 1} was found")
        run.complete(layer, prefix)
        deepest = prefix.with_layer(*layer.arrays())
        left, total = run.unexplained(deepest)
        closed = run.close(layer, prefix)
        share = 0.0 if closed is None else closed.share
        miss = sum(int((~r.known).sum()) for r in layer.rows)
        run.say(f"layer {i+1}: rows {len(layer.rows)} (+{new}) missing {miss} left {left}/{total} share {share:.3f} q {run.oracle.queries.total}")
        if closed is not None and share >= LAST and (depth is None or depth == i + 2):
            return _Outcome(closed, "")
        count = len(run.pieces().points)
        found = run.orient(layer, prefix)
        run.say(f"   signs open {int((found.signs==0).sum())} explained {found.explained}/{found.asked} against {found.against.sum()}")
        if not layer.oriented or found.share < EXPLAINED:
            points = run.pieces().points
            suspects = points[found.unexplained], points[found.fitting]
            if share > 0.5:
                points = points[:count]
                suspects = points[closed.told & ~closed.fits], points[closed.fits]
            return _Outcome(None, f"hidden layer {i + 1}: {len(layer.rows)} rows found, "
                f"{int((found.signs == 0.0).sum())} without a sign, which explain "
                f"{found.explained} of {found.asked} gradients", suspects)
        prefix = prefix.with_layer(*layer.arrays())
    return _Outcome(None, "too deep")


def extract_any_depth(
    oracle: Any,
    *,
    depth: int | None = None,
    answers: Literal["auto", "values", "probabilities"] = "auto",
    rng: RandomState = None,
    budget: int | None = None,
    progress: Progress | None = None,
) -> AnyDepthResult:
    shown = as_oracle(oracle)
    odds = shown if isinstance(shown, LogOdds) and answers != "values" else None
    target = remembered(shown if odds is None else odds.inner)
    run = Peeling(target, as_generator(rng), as_progress(progress))
    view = odds
    if odds is None:
        with run.stage("calibration"):
            view = as_log_odds(target, answers, run.rng, run.answers)
    run.look(view)
    run.trace(run.domain.line(run.rng, REACH))
    kinks = len(run.traced[0].scan.kinks)
    target.allowance.plan(price_any_depth(target.input_dim, target.output_dim, kinks))
    network=None
    verdict=None
    outcome=None
    try:
        for r in range(ROUNDS):
            outcome = peel(run, depth=depth)
            run.say(f"round {r}: {outcome.message} q {run.oracle.queries.total}")
            if outcome.closed is not None:
                network, err = sharpen(run, outcome.closed)
                with run.stage("certificate"):
                    verdict = certify_network(run.oracle, network, run.noise, rng=run.rng, units=run.oracle.units)
                run.say(f"  polish {err} certificate {verdict.message or 'ok'} q {run.oracle.queries.total} {verdict.certificate}")
                if not verdict.message:
                    break
                bad = np.flatnonzero(verdict.over > 1.0)
                good = np.flatnonzero(verdict.over <= 1.0)
                if len(good):
                    a = verdict.points[run.rng.choice(bad)]; b = verdict.points[run.rng.choice(good)]
                    run.trace(run.domain.through(b, a, REACH))
                    continue
            bad, good = outcome.suspects or (np.empty((0, 0)), np.empty((0, 0)))
            if r % 3 < 2 and len(bad) and len(good):
                run.between(bad, good)
            else:
                run.trace(run.domain.line(run.rng, REACH))
    except BudgetExhausted as e:
        run.say(str(e))
    run.network, run.verdict = network, verdict
    return run


def sharpen(run, closed):
    net = closed.network
    x, y = run.oracle.stored()
    near = np.linalg.norm(x, axis=1) <= TRUSTED * run.domain.scale
    x, y = x[near], y[near]
    if net.skip is not None:
        return net, None
    std = run.noise.at(x)
    if len(x) < 1.2 * net.parameters:
        return net, None
    p = polish(net, x, y, std, free=closed.free)
    return p.network, (p.before, p.after, p.steps)
