"""Extraction of ReLU networks of any depth: peeling, layer by layer.

Reference
---------
The loop generalises A. Daniely and E. Granot, *An Exact Poly-Time Membership-Queries
Algorithm for Extracting a Three-Layer ReLU Network*, 2021: their Theorem 1 is its first
turn, Theorem 3 its second. That a unit's surface tells its row over the layers known, and
bends where a unit below it switches, is in N. Carlini, M. Jagielski and I. Mironov,
*Cryptanalytic Extraction of Neural Network Models*, 2020.

Setting
-------
Black-box access to ``f(x) = W_L relu(... relu(W_1 x + b_1) ...) + b_L`` in float64, on all of
R^d, with one or more outputs; or to its softmax or logistic probabilities. The number of
layers and their widths are discovered.

Assumptions
-----------
General position. Lines cross the surface of every unit that matters, at places where the
rows of the Jacobian of the layers known are independent: of the units that are on there, no
layer has more than a layer below it (half of all places, or more, if widths do not
grow). No unit below the last hidden layer is on for all inputs.

Guarantee
---------
RECOVERED: the network agreed with the target at every held-out point of the certificate:
10,000 typical inputs, points on lines, typical inputs where its units are in rare states; and
with every answer of the run. PARTIAL gives the layers that were found; each of their rows was
met at places, far from where it was read, where it predicts a kink.

The loop
--------
==========================================  =================================================
the view through known layers               :class:`unrelu.extraction.prefix.Prefix`
lines, kinks, jumps of the gradient         :mod:`unrelu.extraction.peel_lines`
rows: read, grouped, tested elsewhere       :mod:`unrelu.extraction.peel_rows`
weights that no crossing has shown          :mod:`unrelu.extraction.peel_weights`
signs: the sparsest combination of rows     :mod:`unrelu.extraction.peel_signs`
the last hidden layer, by a regression      :mod:`unrelu.extraction.peel_top`
==========================================  =================================================

Units that are hard
-------------------
- Rarely on or rarely off, in any layer: where gradients or answers do not fit what is known,
  the way from there to an input that fits is traced; it crosses the missing surface.
- A weight between two units that are never on together at the surface: in the last hidden
  layer a regression tells which side the row is on there, and the weight; below it is zero.
- Always on in the last hidden layer: part of the linear term, held by two units per output.
- Always on below it: nothing shows its row. The gradients that remain unexplained tell, and
  the result is PARTIAL.
- Never on: no part of the function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.answers import values_where_refuted
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import explained
from unrelu.core.price import price_any_depth
from unrelu.core.record import Remembered, remembered, with_plan
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import NotFinite, as_log_odds
from unrelu.extraction.deep_certify import Verdict, certify_network
from unrelu.extraction.peel_run import Layer, Peeling
from unrelu.extraction.peel_top import Closed
from unrelu.extraction.prefix import Prefix
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, Status

__all__ = ["AnyDepthResult", "extract_any_depth"]

EXPLAINED = 0.97
"""Part of the gradients that a layer's rows must explain before the next is looked for."""
LAST, MOSTLY, OPEN = 0.98, 0.5, 0.03
"""Part of the answers that a regression on a layer must explain for it to be the last; where
nearly all kinks are explained, no more than ``OPEN`` left, most of the answers are enough."""
MOST_LAYERS = 12
"""Hidden layers looked for at most."""
LINES_FIRST, LINES_EACH = 1, 3
"""Lines traced before the first layer is looked for, and so many more before each of the next
two: rows that several crossings complete need no more queries."""
PATIENCE = 8
"""Every so many rounds a network that some answers contradict is certified all the same, and
so many in a row may add neither a unit, nor a weight or a sign of one."""
ROUNDS = 40
"""Rounds at most; the price ends a run before, as a rule."""
EXACT = 1e-10
"""Noise over the spread of answers up to which rows can be read through several layers."""


@dataclasses.dataclass(frozen=True, repr=False)
class AnyDepthResult(RecoveryResult):
    """A network of any depth, or the layers of it that were found.

    Attributes
    ----------
    widths
        Of the hidden layers found, joined by dashes.
    hidden_layers
        How many were found; those of which signs are missing count.
    numbers
        Their rows, one layer after the other, each row with its bias last.
    signed
        Whether a layer's signs are known, one number per layer.
    confirmed, places
        Per layer: at how many places far from where they were read its rows showed a kink just
        where they predict it, and how many places were asked.
    explains
        Per layer: the part of the gradients that its rows explain.
    lines
        Lines and parts of lines that were traced.
    noise
        Standard deviation of an answer's error, at typical inputs.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    widths: str = ""
    hidden_layers: int = 0
    numbers: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    signed: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    confirmed: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    places: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    explains: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    lines: int = 0
    noise: float = 0.0
    answers: str = "values"

    def layers(self, input_dim: int) -> list[tuple[FloatArray, FloatArray]]:
        """Return the layers found as ``(W, b)``, rows of unit length, the first one first."""
        found, start, below = [], 0, input_dim
        for width in [int(w) for w in self.widths.split("-") if w]:
            stop = start + width * (below + 1)
            rows = self.numbers[start:stop].reshape(width, below + 1)
            found.append((rows[:, :-1], rows[:, -1]))
            start, below = stop, width
        return found


@dataclasses.dataclass(frozen=True)
class Pass:
    """How far one pass of the loop came.

    Attributes
    ----------
    closed
        The network, if the last hidden layer was reached.
    message
        What stopped it otherwise.
    bad, good
        Inputs that do and do not fit what is known, ``(n, d)``.
    """

    closed: Closed | None
    message: str
    bad: FloatArray
    good: FloatArray


def peel(run: Peeling, depth: int | None) -> Pass:
    """Go through the layers once, with all that was asked so far."""
    prefix = Prefix(run.domain.dimension)
    nothing = np.empty((0, run.domain.dimension))
    for i in range(MOST_LAYERS):
        layer = run.layer(i)
        run.prefix = prefix
        run.trace_until(LINES_FIRST + LINES_EACH * min(i, 2), layer)
        run.find_rows(layer, prefix)
        if not layer.rows:
            return Pass(None, f"no unit of hidden layer {i + 1} was found", nothing, nothing)
        run.complete(layer, prefix)
        closed = run.close(layer, prefix) if depth in {None, i + 2} else None
        opened = run.open_kinks(i, layer, closed)
        if closed is not None and closed.share >= (LAST if opened > OPEN else MOSTLY):
            return Pass(closed, "", nothing, nothing)
        found = run.orient(layer, prefix)
        if not layer.oriented or found.share < EXPLAINED:
            points = run.pieces().points
            bad, good = points[found.unexplained], points[found.fitting]
            if closed is not None and closed.share > MOSTLY:
                points = points[: len(closed.fits)]  # signs may have asked for more since
                bad, good = points[closed.told & ~closed.fits], points[closed.fits]
            return Pass(
                None,
                f"of hidden layer {i + 1} {len(layer.rows)} units were found, "
                f"{int((found.signs == 0.0).sum())} of them without a sign; they explain "
                f"{found.explained} of {found.asked} gradients",
                bad,
                good,
            )
        prefix = prefix.with_layer(*layer.arrays())
    return Pass(None, f"more than {MOST_LAYERS} hidden layers", nothing, nothing)


@values_where_refuted
def extract_any_depth(
    oracle: Any,
    *,
    depth: int | None = None,
    answers: Literal["auto", "values", "probabilities"] = "auto",
    rng: RandomState = None,
    budget: int | None = None,
    progress: Progress | None = None,
) -> AnyDepthResult:
    """Recover a network with any number of hidden layers from queries.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    depth
        Number of layers, the output layer included, where it is known; else it is found.
    answers
        ``"probabilities"`` (of a softmax or logistic output) are worked on as
        log-odds; ``"auto"`` looks at a few answers.
    rng
        Seed or generator; the same seed gives the same result.
    budget
        Queries allowed; else four times the plan.
    progress
        Receives updates while it runs.

    Returns
    -------
    AnyDepthResult
        RECOVERED promises that the network agreed with the target at every held-out point of
        the certificate, and with every answer of the run. PARTIAL gives the layers that were
        found. For probabilities the network gives logits, of which one is always zero.
    """
    shown = as_oracle(oracle)
    odds = shown if isinstance(shown, LogOdds) and answers != "values" else None
    target = remembered(shown if odds is None else odds.inner)
    if budget is not None:
        target.meter.budget = budget
    run = Peeling(target, as_generator(rng), as_progress(progress))
    provenance = Provenance(
        algorithm="extract_any_depth",
        seed=rng if isinstance(rng, int) else None,
        options={"answers": answers, "depth": depth},
        target=target.identity,
    )
    end = _Ended(Status.NUMERICAL_FAILURE, "")
    try:
        with as_breakdown():
            view = odds
            if view is None:
                with run.stage("calibration"):
                    view = as_log_odds(target, answers, run.rng, run.answers)
            run.look(view)
            end = _begin(run, target) or _rounds(run, depth)
    except BudgetExhausted as error:
        message = f"{error}; what was found until then is returned"
        end = _Ended(Status.BUDGET_EXHAUSTED, message, run.network, run.certificate)
    except NotFinite:
        end = _Ended(Status.ASSUMPTION_VIOLATED, "some answers are not finite numbers")
    except Breakdown as error:
        end = _Ended(Status.NUMERICAL_FAILURE, str(error))
    result = _result(run, end, provenance, target.output_dim)
    result = with_plan(explained(target, result, result.answers), target, oracle)
    if odds is not None and result.network is not None and odds.output_dim > 1:
        result = dataclasses.replace(result, network=_without(result.network, odds.reference))
    return result


@dataclasses.dataclass(frozen=True)
class _Ended:
    """How a run ended."""

    status: Status
    message: str
    network: ReLUNetwork | None = None
    certificate: Certificate | None = None


def _begin(run: Peeling, target: Remembered) -> _Ended | None:
    """Trace a line, plan the price, and see whether the answers are what the loop needs."""
    traced = run.trace_line()
    if traced is None:
        return _Ended(
            Status.ASSUMPTION_VIOLATED,
            "a line shows too many kinks, or its probabilities underflow: the answers are not "
            "piecewise affine with few pieces (smooth activations, noise), or not readable",
        )
    kinks = len(traced.scan.kinks)
    target.allowance.plan(price_any_depth(target.input_dim, target.output_dim, kinks))
    spread = run.pieces().values.std(axis=0)
    assert run.noise is not None
    rough = float((run.noise.absolute / np.where(spread > 0.0, spread, 1.0)).max())
    if rough > EXACT:
        return _Ended(
            Status.ASSUMPTION_VIOLATED,
            f"the answers' noise is {rough:.2g} of their spread: rows can be read through "
            "several layers from float64 answers only",
        )
    return None


def _rounds(run: Peeling, depth: int | None) -> _Ended:
    """Pass after pass, with more lines where something is missing, until a certificate holds."""
    reached = Pass(None, "nothing was found", np.empty((0, 0)), np.empty((0, 0)))
    verdict: Verdict | None = None
    most, since = 0, 0
    for turn in range(ROUNDS):
        reached = peel(run, depth)
        run.settle()
        bad, good = reached.bad, reached.good
        known = _numbers_known(run.layers)
        most, since = (known, turn) if known > most else (most, since)
        if turn - since > PATIENCE:
            break
        if reached.closed is not None:
            run.sharpen(reached.closed)
            bad, good = run.contradicted()
            if len(bad) == 0 or turn + 1 == ROUNDS or turn % PATIENCE == PATIENCE - 1:
                verdict = _certified(run)
                if not verdict.message and len(bad) == 0:
                    message = f"all layers were found and agree; {verdict.certificate}"
                    return _Ended(Status.RECOVERED, message, run.network, verdict.certificate)
                if verdict.message:
                    over = verdict.over
                    bad, good = verdict.points[over > 1.0], verdict.points[over <= 1.0]
        if turn % 3 < 2 and len(bad) and len(good):
            run.between(bad, good)
        else:
            run.trace_line()
    message = reached.message if verdict is None else verdict.message
    return _Ended(Status.PARTIAL, message, run.network, run.certificate)


def _numbers_known(layers: Sequence[Layer]) -> int:
    """Count weights, biases and signs."""
    weights = sum(int(row.known.sum()) for layer in layers for row in layer.rows)
    return weights + sum(int(np.count_nonzero(layer.signs)) for layer in layers)


def _certified(run: Peeling) -> Verdict:
    assert run.network is not None
    assert run.noise is not None
    with run.stage("certificate"):
        verdict = certify_network(
            run.oracle, run.network, run.noise, rng=run.rng, units=run.oracle.units
        )
    run.certificate = verdict.certificate
    return verdict


def _result(run: Peeling, end: _Ended, provenance: Provenance, outputs: int) -> AnyDepthResult:
    layers = [layer for layer in run.layers[: run.prefix.depth + 1] if layer.rows]
    network = end.network
    if network is not None:
        network = _in_units(network, run.oracle.units)
        if network.output_dim != outputs:
            network = _with_reference(network, run.reference)
    found = [np.column_stack(layer.arrays()) for layer in layers]
    message = end.message
    if end.status is not Status.RECOVERED and layers:
        message += f"; {_told(layers)}"
    noise = 0.0
    if run.noise is not None:
        level = run.noise.std(np.array([run.domain.scale])) * run.oracle.units
        noise = float(level.max())
    return AnyDepthResult(
        status=end.status,
        message=message,
        queries=run.oracle.queries,
        provenance=provenance,
        network=network,
        certificate=end.certificate,
        stages=tuple(run.stages),
        widths="-".join(str(len(rows)) for rows in found),
        hidden_layers=len(found),
        numbers=np.concatenate([np.empty(0), *(rows.ravel() for rows in found)]),
        signed=np.array([float(layer.oriented) for layer in layers]),
        confirmed=np.array([float(layer.confirmed) for layer in layers]),
        places=np.array([float(layer.places) for layer in layers]),
        explains=np.array([layer.explains for layer in layers]),
        lines=len(run.traced),
        noise=noise,
        answers="log-odds" if run.oracle.log_odds else "values",
    )


def _told(layers: list[Layer]) -> str:
    """Say in words which layers were found."""
    parts = [
        f"layer {i + 1} with {len(layer.rows)} units "
        f"({layer.confirmed} of {layer.places} places confirmed, "
        f"{'signs known' if layer.oriented else 'signs open'})"
        for i, layer in enumerate(layers)
    ]
    return "found: " + ", ".join(parts)


def _in_units(network: ReLUNetwork, units: FloatArray) -> ReLUNetwork:
    """Return the network of the target's own answers."""
    skip = None if network.skip is None else units[:, None] * network.skip
    return ReLUNetwork(
        [*network.weights[:-1], units[:, None] * network.weights[-1]],
        [*network.biases[:-1], units * network.biases[-1]],
        skip,
    )


def _with_reference(network: ReLUNetwork, at: int) -> ReLUNetwork:
    """Give log-odds of several classes their reference back, as a zero logit."""
    skip = None if network.skip is None else np.insert(network.skip, at, 0.0, axis=0)
    return ReLUNetwork(
        [*network.weights[:-1], np.insert(network.weights[-1], at, 0.0, axis=0)],
        [*network.biases[:-1], np.insert(network.biases[-1], at, 0.0)],
        skip,
    )


def _without(network: Network, output: int) -> ReLUNetwork:
    """Leave an output out: log-odds were asked for, which have none of the reference."""
    skip = None if network.skip is None else np.delete(network.skip, output, axis=0)
    return ReLUNetwork(
        [*network.weights[:-1], np.delete(network.weights[-1], output, axis=0)],
        [*network.biases[:-1], np.delete(network.biases[-1], output)],
        skip,
    )
