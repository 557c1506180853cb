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
rows: read, grouped, tested elsewhere       :mod:`unrelu.extraction.peel_find`, ``peel_rows``
rows fitted to their places, and how sure   :mod:`unrelu.extraction.peel_refit`
rows that no crossing tells alone           :mod:`unrelu.extraction.peel_walk`
weights that no crossing has shown          :mod:`unrelu.extraction.peel_weights`
signs: the sparsest combination of rows     :mod:`unrelu.extraction.peel_orient`, ``peel_signs``
signs of a layer wider than the input       :mod:`unrelu.extraction.peel_surfaces`
the last hidden layer, by a regression      :mod:`unrelu.extraction.peel_top`
all fitted, contradictions, certificate     :mod:`unrelu.extraction.peel_end`
==========================================  =================================================

Units that are hard
-------------------
- Rarely on or rarely off, in any layer: where gradients or answers do not fit what is known,
  the way from there to an input that fits is traced; it crosses the missing surface. Every
  other line goes where few units of the last known layer are on: of units whose weights are
  mostly of one sign it crosses the surfaces that no typical input comes near
  (:mod:`unrelu.extraction.peel_few`). Where nothing new is found, lines go along the axes of
  that layer's outputs, one after the other: they cross whatever can be off.
- A weight between two units that are never on together at the surface: in the last hidden
  layer a regression tells which side the row is on there, and the weight; below it nothing is
  read, tested or fitted at inputs where that weight counts.
- Always on in the last hidden layer: part of the linear term, held by two units per output.
- Always on below it: nothing shows its row. The gradients that remain unexplained tell, and
  the result is PARTIAL.
- Never on: no part of the function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind, FloatArray
from unrelu.core.answers import values_where_refuted
from unrelu.core.explain import explained
from unrelu.core.run import Run
from unrelu.extraction.deep_answers import NotFinite
from unrelu.extraction.deep_certify import DeepCertifyConfig, Verdict
from unrelu.extraction.deep_numbers import TRIES
from unrelu.extraction.deep_rows import Rows
from unrelu.extraction.deep_session import Session
from unrelu.extraction.peel_end import LAST, MOSTLY, certified, close, explaining
from unrelu.extraction.peel_find import complete, find_rows
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_orient import EXPLAINED, orient
from unrelu.extraction.peel_result import AnyDepthResult
from unrelu.extraction.peel_rows import KNOWN_TO, Row
from unrelu.extraction.peel_run import MOST_LINES, Peeling
from unrelu.extraction.peel_top import Closed
from unrelu.extraction.prefix import Prefix
from unrelu.extraction.price import price_any_depth
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress
from unrelu.result import Certificate, Status

__all__ = ["AnyDepthResult", "Ended", "extract_any_depth", "peel_over"]

MOST_LAYERS = 12
"""Hidden layers looked for at most."""
LINES_EACH = TRIES
"""One line is traced before the first layer is looked for, and so many more before each of the
next two: rows that several crossings complete need no more queries."""
PATIENCE = 8
"""Every so many rounds a network that some answers contradict is certified all the same, and
so many in a row may add neither a unit, nor a weight or a sign of one."""
EXACT = DeepCertifyConfig().exact
"""Noise over the spread of answers up to which rows can be read through several layers."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a search ended.

    Attributes
    ----------
    status, message
        As in the result.
    network
        In the units that were worked with.
    certificate
        Of the network.
    widths
        Of the hidden layers found, as far as they switch; the last is that of the last.
    """

    status: Status
    message: str
    network: ReLUNetwork | None = None
    certificate: Certificate | None = None
    widths: tuple[int, ...] = ()


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
    prefix = Prefix(run.session.domain.dimension)
    nothing = np.empty((0, run.session.domain.dimension))
    for i in range(MOST_LAYERS):
        layer = run.layer(i)
        run.prefix = prefix
        run.trace_until(1 + LINES_EACH * min(i, 2), layer)
        find_rows(run, layer, prefix)
        if not layer.rows:
            return Pass(None, f"no unit of hidden layer {i + 1} was found", nothing, nothing)
        complete(run, layer, prefix)
        closed = close(run, layer, prefix) if depth in {None, i + 2} else None
        opened = run.open_kinks(i, layer, closed)
        if closed is not None and closed.share >= (LAST if opened > 1.0 - EXPLAINED else MOSTLY):
            return Pass(closed, "", nothing, nothing)
        found = orient(run, layer, prefix)
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
        prefix = layer.over(prefix)
    return Pass(None, f"more than {MOST_LAYERS} hidden layers", nothing, nothing)


@values_where_refuted
def extract_any_depth(
    oracle: Any,
    *,
    depth: int | None = None,
    answers: AnswerKind = "auto",
    first: tuple[FloatArray, FloatArray] | None = None,
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
    first
        Weights ``(k, d)`` and biases ``(k,)`` that an earlier attempt took for the first layer's;
        they are tested like any others.
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
    run = Run(
        oracle if odds is None else odds.inner,
        algorithm="extract_any_depth",
        rng=rng,
        options={"answers": answers, "depth": depth},
        budget=budget,
        progress=progress,
    )
    session = Session(run)
    peeling = Peeling(session)

    def stopped(status: Status, message: str) -> AnyDepthResult:
        return _result(peeling, Ended(status, message, peeling.network, peeling.certificate))

    def steps() -> AnyDepthResult:
        try:
            session.look(answers, odds)
            session.recall()
            if first is not None:
                peeling.suppose(*first)
            return _result(peeling, _begin(peeling) or _rounds(peeling, depth))
        except NotFinite:
            return stopped(Status.ASSUMPTION_VIOLATED, "some answers are not finite numbers")

    result = run.ended(
        steps, stopped, lambda result: explained(run.target, result, result.answers)
    )
    return session.as_asked(result, odds)


def peel_over(session: Session, rows: Rows | None = None, *, depth: int | None = None) -> Ended:
    """Peel a target of which first-layer hyperplanes may be known, up to their signs."""
    run = Peeling(session)
    if rows is None:
        return _begin(run) or _rounds(run, depth)
    layer = Layer()
    theta = np.column_stack([rows.weights @ rows.basis, rows.biases])
    known = np.ones(theta.shape[1], dtype=bool)
    for row, std, anchor in zip(theta, rows.std, rows.anchors, strict=True):
        layer.rows.append(Row(row, known, np.full(len(row), max(KNOWN_TO, std)), 1, anchor[None]))
    run.layers.append(layer)
    run.deepest = layer.over(run.prefix)
    return _begin(run) or _rounds(run, depth)


def _begin(run: Peeling) -> Ended | None:
    """Trace a line, plan the price, and see whether the answers are what the loop needs."""
    traced = run.trace_line()
    if traced is None:
        return Ended(
            Status.ASSUMPTION_VIOLATED,
            "a line shows too many kinks, or its probabilities underflow: the answers are not "
            "piecewise affine with few pieces (smooth activations, noise), or not readable",
        )
    target = run.session.run.target
    kinks = len(traced.scan.kinks)
    target.allowance.plan(price_any_depth(target.input_dim, target.output_dim, kinks))
    spread = run.pieces().values.std(axis=0)
    rough = float((run.session.noise.absolute / np.where(spread > 0.0, spread, 1.0)).max())
    if rough > EXACT:
        return Ended(
            Status.ASSUMPTION_VIOLATED,
            f"the answers' noise is {rough:.2g} of their spread: rows can be read through "
            "several layers from float64 answers only",
        )
    return None


def _rounds(run: Peeling, depth: int | None) -> Ended:
    """Pass after pass, with more lines where something is missing, until a certificate holds."""
    reached = Pass(None, "nothing was found", np.empty((0, 0)), np.empty((0, 0)))
    verdict: Verdict | None = None
    most, since = 0, 0
    for turn in range(MOST_LINES):
        reached = peel(run, depth)
        run.settle()
        bad, good = reached.bad, reached.good
        known = _numbers_known(run.layers)
        most, since = (known, turn) if known > most else (most, since)
        if turn - since > PATIENCE:
            break
        if reached.closed is not None:
            network, bad, good = explaining(run, reached.closed, fit=turn % 3 == 2)
            run.network = network
            if len(bad) == 0 or turn + 1 == MOST_LINES or turn % PATIENCE == PATIENCE - 1:
                verdict = certified(run, network)
                run.certificate = verdict.certificate
                if not verdict.message and len(bad) == 0:
                    message = f"all layers were found and agree; {verdict.certificate}"
                    widths = tuple(len(layer.rows) for layer in _found(run))
                    return Ended(Status.RECOVERED, message, network, run.certificate, widths)
                if verdict.message:
                    over = verdict.over
                    bad, good = verdict.points[over > 1.0], verdict.points[over <= 1.0]
        if turn % 3 < 2 and len(bad) and len(good):
            run.between(bad, good)
        elif turn - since == TRIES:
            run.trace_axes()
        else:
            run.trace_line()
    message = ("" if verdict is None else verdict.message) or reached.message or _DISAGREE
    widths = tuple(len(layer.rows) for layer in _found(run))
    return Ended(Status.PARTIAL, message, run.network, run.certificate, widths)


_DISAGREE = "fresh inputs agree with the network, but answers of the run do not"


def _numbers_known(layers: Sequence[Layer]) -> int:
    """Count weights, biases and signs."""
    weights = sum(int(row.known.sum()) for layer in layers for row in layer.rows)
    return weights + sum(int(np.count_nonzero(layer.signs)) for layer in layers)


def _found(run: Peeling) -> list[Layer]:
    """Return the layers of which rows were found."""
    return [layer for layer in run.layers[: run.prefix.depth + 1] if layer.rows]


def _result(run: Peeling, end: Ended) -> AnyDepthResult:
    layers, session = _found(run), run.session
    found = [np.column_stack(layer.arrays()) for layer in layers]
    message = end.message
    if end.status is not Status.RECOVERED and layers:
        message += f"; {_told(layers)}"
    return AnyDepthResult(
        status=end.status,
        message=message,
        queries=session.oracle.queries,
        provenance=session.run.provenance,
        network=None if end.network is None else session.network_of_target(end.network),
        certificate=end.certificate,
        stages=tuple(session.run.stages),
        widths=tuple(len(rows) for rows in found),
        hidden_layers=len(found),
        numbers=np.concatenate([np.empty(0), *(rows.ravel() for rows in found)]),
        signed=np.array([float(layer.oriented) for layer in layers]),
        confirmed=np.array([float(layer.confirmed[0]) for layer in layers]),
        places=np.array([float(layer.confirmed[1]) for layer in layers]),
        explains=np.array([layer.explains for layer in layers]),
        lines=len(run.traced),
        noise=session.noise_of_target(),
        answers="log-odds" if session.oracle.log_odds else "values",
    )


def _told(layers: list[Layer]) -> str:
    """Say in words which layers were found."""
    parts = [
        f"layer {i + 1} with {len(layer.rows)} units "
        f"({layer.confirmed[0]} of {layer.confirmed[1]} places confirmed, "
        f"{'signs known' if layer.oriented else 'signs open'})"
        for i, layer in enumerate(layers)
    ]
    told = "found: " + ", ".join(parts)
    pairs = layers[0].parallel
    if pairs:
        told += (
            f"; {pairs} pairs of rows of layer 1 are parallel: one of each may be a unit of the "
            "next layer that sees only the other, which queries cannot tell"
        )
    if layers[0].integer:
        told += (
            f"; the weights of {layers[0].integer} rows of layer 1 are integer multiples of one "
            "number: units may switch at the same hyperplane, or cancel, and count as fewer"
        )
    return told
