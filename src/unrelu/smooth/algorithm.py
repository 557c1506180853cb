r"""Networks with one hidden layer of a smooth activation, which is found, not told.

Setting
-------
Black-box access to :math:`f(x) = U\varphi(Wx + b) + c + Sx` with m >= 1 outputs on all of
R^d; the answers may be probabilities (softmax, logistic). The activation is one of
:data:`unrelu.core.activations.SMOOTH`, in disguise or not (logistic is tanh).

Assumptions
-----------
Rows of W that are linearly independent (k <= d), each of which bends somewhere among typical
inputs; or (k > d) an activation that is straight on both sides of its unit's hyperplane, and
hyperplanes apart enough, far out, for each to be met alone.

Guarantee
---------
RECOVERED: the network agreed with the target at every held-out point, and at every answer of
the run, within its tolerance; that is at most 1e-6 of the spread for float64 answers, 100
deviations of an answer for others; and no other known activation explains the answers.
APPROXIMATED: a copy with a measured error, units of unknown profile as splines.

Method
------
No paper is followed; the parts are known.

================================  =======================================================
rank and span of the rows         gradients' differences, :func:`.rows.span_of_rows`
the rows up to scale              second derivatives in the span, diagonalised jointly,
                                  :func:`.rows.find_rows` (Harshman 1970; Ziehe et al. 2004)
the activation, scale and bias    each unit alone along its dual direction, :mod:`.profiles`
more units than inputs            far out each unit is met alone on a line, :mod:`.far`
all parameters                    Levenberg-Marquardt, outputs eliminated, :mod:`.fit`
signs, affine term                :func:`.layers.settle`
================================  =======================================================

What is not one hidden layer (two, LayerNorm, attention, two activations in one layer) fits no
such network at the noise of the answers; the certificate would show it if it did by accident.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind, FloatArray
from unrelu.core.activations import SMOOTH, Activation, activation
from unrelu.core.answers import values_where_refuted
from unrelu.core.explain import explained
from unrelu.core.run import Run
from unrelu.lines.domains import as_domain
from unrelu.networks import Network
from unrelu.progress import Progress
from unrelu.result import Certificate, RecoveryResult, Status
from unrelu.smooth.certify import Verdict, certify_layer
from unrelu.smooth.config import SmoothConfig
from unrelu.smooth.copies import spline_copy
from unrelu.smooth.far import find_far_units
from unrelu.smooth.fit import Layer
from unrelu.smooth.layers import Found, Start, as_network, fitted_again, settle
from unrelu.smooth.norms import invariances
from unrelu.smooth.profiles import Profile, fit_profile, measure_profiles, rank_activations
from unrelu.smooth.rows import Rows, Span, find_rows, span_of_rows
from unrelu.smooth.run import SmoothRun

__all__ = ["SmoothConfig", "SmoothResult", "extract_smooth"]


@dataclasses.dataclass(frozen=True, repr=False)
class SmoothResult(RecoveryResult):
    """A recovered network of one smooth hidden layer and what is known about it.

    Attributes
    ----------
    width
        Number of hidden units found.
    activation
        Name of the activation, in its usual form: tanh stands for the logistic function too,
        softplus for all its betas.
    runner_up, margin
        The activation that explains the answers second best, and its residual over the best
        one's: how sure the activation is.
    rank
        Dimension of the span of the rows, as gradients show it.
    noise
        Measured standard deviation of an answer's error, of the largest output.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    width: int = 0
    activation: str = ""
    runner_up: str = ""
    margin: float = 0.0
    rank: int = 0
    noise: float = 0.0
    answers: str = "values"


@dataclasses.dataclass
class _Progress:
    """What a run has come to, for a result at any time."""

    rank: int = 0
    rows: Rows | None = None
    profiles: list[Profile] = dataclasses.field(default_factory=list)
    found: Found | None = None
    data: tuple[FloatArray, FloatArray] | None = None
    layer: Layer | None = None
    phi: Activation | None = None
    certificate: Certificate | None = None


@values_where_refuted
def extract_smooth(
    oracle: Any,
    *,
    answers: AnswerKind = "auto",
    rng: RandomState = None,
    budget: int | None = None,
    progress: Progress | None = None,
    config: SmoothConfig | None = None,
) -> SmoothResult:
    """Recover a network with one hidden layer of a smooth activation from queries.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    answers
        ``"probabilities"`` (of a softmax or logistic output) are worked on as log-odds;
        ``"auto"`` looks at a few answers.
    rng
        Seed or generator; the same seed gives the same result.
    budget
        Queries that may be sent, or None.
    progress
        Receives updates while it runs.
    config
        Tolerances and sizes.

    Returns
    -------
    SmoothResult
        RECOVERED promises that the network agreed with the target at every held-out point and
        at every answer of the run. For probabilities the network gives logits, one of them 0.
    """
    base = Run(
        oracle, algorithm="extract_smooth", rng=rng, budget=budget, progress=progress,
        options={"answers": answers},
    )  # fmt: skip
    target = base.target
    run = SmoothRun(base, as_domain("all", target.input_dim), config or SmoothConfig())
    state = _Progress()

    def steps() -> SmoothResult:
        run.look(answers)
        run.calibrate()
        return _result(run, state, *_recover(run, state))

    return base.ended(
        steps,
        lambda status, message: _result(run, state, status, message),
        lambda result: explained(target, result, result.answers),
    )


def _recover(run: SmoothRun, state: _Progress) -> tuple[Status, str]:
    """Find rows, activation and parameters, and certify them."""
    if not run.straight:
        span = _span(run)
        state.rank = span.rank
    if state.rank == 0:
        return (
            Status.ASSUMPTION_VIOLATED,
            "gradients are the same everywhere: the target is affine within its noise; try "
            "extract_two_layer",
        )
    if _found_in(run, state, span.basis[: state.rank]):
        return _concluded(run, state)
    assert state.rows is not None
    if state.rows.straight:
        return _copied(run, state)
    if state.rank < run.domain.dimension:  # a unit may be missing: one that gradients hardly show
        again = _span(run, span)
        basis = again.basis[: max(again.rank, state.rank + 1)]
        more = _Progress(rank=len(basis))
        if len(basis) > state.rank and _found_in(run, more, basis):
            vars(state).update(vars(more))
            return _concluded(run, state)
    with run.stage("far lines") as details:
        starts = find_far_units(run)
        details |= {start.phi.name: start.misfit for start in starts}
    if starts and _fitted(run, state, starts):
        return _concluded(run, state)
    return _copied(run, state)


def _span(run: SmoothRun, before: Span | None = None) -> Span:
    with run.stage("gradients") as details:
        span = span_of_rows(run, before)
        details |= {"rank": span.rank, "least": float(span.values[max(span.rank, 1) - 1])}
    return span


def _found_in(run: SmoothRun, state: _Progress, basis: FloatArray) -> bool:
    """Look for as many units as a span has dimensions; whether they explain all answers."""
    with run.stage("second derivatives") as details:
        state.rows = find_rows(run, basis)
        details |= {"mixed": state.rows.mixed}
    if state.rows.straight or not state.rows.shared:
        return False
    with run.stage("profiles") as details:
        state.profiles = measure_profiles(run, state.rows)
        starts = _starts(state.profiles)
        details |= {start.phi.name: start.misfit for start in starts}
    return _fitted(run, state, starts)


def _copied(run: SmoothRun, state: _Progress) -> tuple[Status, str]:
    """Say what was seen of a target that no known activation explains; copy it if possible."""
    rows = state.rows
    assert rows is not None
    seen = f"gradients span {state.rank} of {run.domain.dimension} dimensions"
    named = invariances(run)
    if named:
        return Status.ASSUMPTION_VIOLATED, f"{named}; {seen}"
    if rows.straight:
        return Status.ASSUMPTION_VIOLATED, (
            f"{seen}, but the target is straight around most points: piecewise linear, or of "
            "units much steeper than typical inputs are long; try extract_two_layer"
        )
    if not rows.shared:
        return Status.ASSUMPTION_VIOLATED, (
            f"{seen}, in which second derivatives share no basis ({rows.mixed:.0%} is off the "
            "diagonal): more than one hidden layer, attention or normalisation, or more units "
            "than inputs of an activation that is not straight far out; recover_span gives the "
            "span"
        )
    layer, phi = spline_copy(run, rows)
    verdict = certify_layer(run, layer, phi)
    kinds = _kinds(state.profiles)
    seen = f"{seen}, as one hidden layer does, but no known activation explains all of it: {kinds}"
    if verdict.error > run.config.useful:
        return Status.PARTIAL, (
            f"{seen}; with each unit's own profile the error is {verdict.error:.2g} of the "
            "spread: units that share a direction, or more than one hidden layer"
        )
    state.layer, state.phi, state.certificate = layer, phi, verdict.certificate
    return Status.APPROXIMATED, (
        f"{seen}; units are returned with their profiles as splines: {verdict.certificate}"
    )


def _kinds(profiles: list[Profile]) -> str:
    """Say which activation is nearest to each unit's profile, and how near."""
    best = [
        min((fit_profile(profile, activation(name)).misfit, name) for name in SMOOTH)
        for profile in profiles
    ]
    parts = []
    for name in dict.fromkeys(name for _, name in best):
        misfits = [misfit for misfit, other in best if other == name]
        parts.append(f"{len(misfits)} units are nearest to {name} ({max(misfits):.2g} deviations)")
    return ", ".join(parts)


def _fitted(run: SmoothRun, state: _Progress, starts: list[Start]) -> bool:
    """Fit all parameters from the starts; whether that explains all answers."""
    state.data = _data(run, state, len(starts[0].weights))
    with run.stage("fit") as details:
        state.found = settle(run, state.data, starts)
        if state.found is None:
            return False
        details |= {state.found.phi.name: state.found.fit.rms}
    return run.explains(state.found.fit.rms)


def _starts(profiles: list[Profile]) -> list[Start]:
    """Return a start for each activation, from the units' profiles, likeliest first."""
    starts = []
    for phi, units in rank_activations(profiles):
        pairs = list(zip(units, profiles, strict=True))
        weights = np.stack([unit.scale * profile.direction for unit, profile in pairs])
        biases = np.array([unit.shift + unit.scale * profile.offset for unit, profile in pairs])
        misfit = float(np.exp(np.mean(np.log([unit.misfit for unit in units]))))
        starts.append(Start(phi, weights, biases, misfit))
    return starts


def _data(run: SmoothRun, state: _Progress, width: int) -> tuple[FloatArray, FloatArray]:
    """Ask at typical inputs for the fit of all parameters; profiles are part of it."""
    d, m = run.domain.dimension, run.oracle.output_dim
    parameters = width * (d + 1 + m) + m * (d + 1)
    least = width + d + 1  # what is linear needs as many points, whatever the outputs
    with run.stage("typical inputs"):
        rows = run.config.rows
        points = run.draw(max(int(rows * parameters / m), int(rows * least)))
        answers = run.ask(points)
    good = np.isfinite(answers).all(axis=1)
    lines = state.profiles
    return (
        np.concatenate([points[good], *(profile.points for profile in lines)]),
        np.concatenate([answers[good], *(profile.answers for profile in lines)]),
    )


def _concluded(run: SmoothRun, state: _Progress) -> tuple[Status, str]:
    """Certify a layer that explains all answers it was fitted to.

    Held-out answers that it does not explain become data for another fit, and fresh ones are
    asked: parameters that typical inputs hardly show may be off.
    """
    found, data = state.found, state.data
    assert found is not None
    assert data is not None
    verdict = certify_layer(run, found.layer, found.phi)
    if not verdict.agrees and verdict.error <= run.config.useful:
        run.base.target.meter.rebook("certificate", "fit", run.base.stages[-1].queries)
        with run.stage("fit") as details:
            more = tuple(map(np.concatenate, zip(data, verdict.seen, strict=True)))
            again = fitted_again(run, (more[0], more[1]), found)
            details |= {found.phi.name: again.fit.rms}
        if run.explains(again.fit.rms):
            state.found = found = again
            verdict = certify_layer(run, found.layer, found.phi)
    state.layer, state.phi = found.layer, found.phi
    state.certificate = verdict.certificate
    return _judged(run, found, verdict)


def _judged(run: SmoothRun, found: Found, verdict: Verdict) -> tuple[Status, str]:
    units = f"{len(found.layer.weights)} hidden units of {found.phi}"
    sure = f"the next best activation, {found.runner_up}, leaves {found.margin:.2g} times as much"
    if not verdict.agrees:
        status = Status.APPROXIMATED if verdict.error <= run.config.useful else Status.PARTIAL
        return status, (
            f"{units} explain all answers they were fitted to, but not the held-out ones: "
            f"{verdict.certificate}; units that bend at few inputs are missing, or there is more "
            "than one hidden layer; try another seed"
        )
    if found.margin < run.config.margin:
        return Status.APPROXIMATED, (
            f"{units}; {sure}: answers are too coarse to tell; {verdict.certificate}"
        )
    if not verdict.exact:
        return Status.APPROXIMATED, (
            f"{units}; every held-out point agrees within its tolerance, but that is more than "
            f"the answers' own: {verdict.certificate}; ask for more digits, or repeat and average"
        )
    return Status.RECOVERED, f"{units}; {sure}; {verdict.certificate}"


def _result(run: SmoothRun, state: _Progress, status: Status, message: str) -> SmoothResult:
    network: Network | None = None
    if state.layer is not None and state.phi is not None:
        network = as_network(run, state.layer, state.phi)
    found = state.found
    return SmoothResult(
        status=status,
        message=message,
        queries=run.oracle.queries,
        provenance=run.base.provenance,
        network=network,
        certificate=state.certificate,
        stages=tuple(run.base.stages),
        width=0 if state.layer is None else len(state.layer.weights),
        activation="" if state.phi is None else state.phi.name,
        runner_up="" if found is None else found.runner_up,
        margin=0.0 if found is None else found.margin,
        rank=state.rank,
        noise=float(run.noise.max()),
        answers="log-odds" if run.log_odds else "values",
    )
