r"""Extraction of depth-2 ReLU networks from answers of any precision.

Reference
---------
A. Daniely and E. Granot, *An Exact Poly-Time Membership-Queries Algorithm for Extracting a
Three-Layer ReLU Network*, 2021, Theorem 1; what follows the search is least squares.

Setting
-------
Black-box access to ``f(x) = sum_j u_j relu(<w_j, x> + b_j) + c`` on all of R^d, m >= 1 outputs,
answered as a deployed model answers: in float32, as a softmax or a single probability, with a
few decimals. Float64 is a small noise, not another algorithm.

Assumptions
-----------
One hidden layer of ReLU units, and answers whose errors are independent of each other, small
against the outputs' spread.

Guarantee
---------
RECOVERED: the noise explains what the network leaves of all answers it was fitted to, and of
every held-out answer of the certificate; its parameters are the least-squares estimate, with
error noise times ``sqrt(p / (n - p))`` for p parameters and n scalar answers; it is small against
the outputs' spread. Units whose kink
moves no typical answer by its noise are part of the affine term. APPROXIMATED: a copy whose
error the certificate states; rounded probabilities are always that, since where they round to
zero or one nothing can be known.

Map
---
==============================================  ==================================================
what are the answers, what is each worth        :class:`unrelu.extraction.noisy_answers.Answers`
units on lines of a random subspace             :func:`unrelu.extraction.noisy_search.survey_line`
units that several lines agree on               :func:`unrelu.extraction.noisy_search.recurring`
trial fit on the subspace                       ``NoisyRun.trial``
normals on all inputs, by differences           :func:`unrelu.extraction.noisy_search.lifted`
the one fit, all parameters to all answers      :func:`unrelu.core.fit.fit_network`
units that the residual still shows             ``noisy_units.add_missing_unit``
units that only far answers show                :class:`unrelu.extraction.noisy_follow.Chords`
rounded probabilities: from a random start      :class:`unrelu.extraction.noisy_student.Student`
signs, units that no answer needs               ``noisy_units.without_skip``, ``without_needless``
certificate against the noise                   :func:`certify`
==============================================  ==================================================

Deviations
----------
- Kinks and gradients (Algorithms 1 to 3 of the paper) need be right to a few percent only; a fit
  of all parameters to all answers does the rest, and averages the noise out.
- The search runs on a random subspace, where everything can be measured often.
- Nearly dead units show no kink. They are fitted to the residual of the others: at the optimum
  it is orthogonal to all that these can explain.
- A unit that only far inputs switch moves no typical answer. Recorded answers that contradict
  the network lead to it, and another certificate follows.
- Rounded probabilities show no kinks on lines: on the subspace a wide network is fitted from a
  random start, and its units are taken to all inputs by a fit.
- Points are drawn on either side of every hyperplane until its normal is determined there:
  Gaussian inputs may have a unit on in one of a hundred.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind, FloatArray
from unrelu.core.explain import (
    BEYOND_HELD_OUT,
    EXACT,
    Tolerance,
    explained,
    find_contradictions,
    predicted_answers,
)
from unrelu.core.run import Run
from unrelu.errors import BudgetExhausted
from unrelu.extraction.certify import CertifyConfig
from unrelu.extraction.noisy_answers import Seen
from unrelu.extraction.noisy_follow import Against
from unrelu.extraction.noisy_run import NoisyConfig, NoisyRun
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.two_layer_result import TwoLayerResult
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress
from unrelu.result import Certificate, Status

__all__ = ["NoisyConfig", "certify", "extract_from_noisy", "recover_from_noisy"]


def extract_from_noisy(
    oracle: Any,
    *,
    answers: AnswerKind = "auto",
    rng: RandomState = None,
    progress: Progress | None = None,
    config: NoisyConfig | None = None,
) -> TwoLayerResult:
    """Recover a network with one hidden layer from answers of any precision.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes; all inputs are allowed.
    answers
        What the target answers with; ``"auto"`` looks at a few answers.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    config
        Sizes.

    Returns
    -------
    TwoLayerResult
        Of probabilities the network gives logits, up to a function common to all of them.
    """
    run = Run(
        oracle,
        algorithm="extract_from_noisy",
        rng=rng,
        options={"answers": answers},
        progress=progress,
    )
    search = NoisyRun(run, NoisyConfig() if config is None else config)
    return run.ended(
        functools.partial(_recovered, search, answers),
        functools.partial(_result, search),
        lambda result: explained(run.target, result, result.answers),
    )


def recover_from_noisy(run: Run, answers: str) -> TwoLayerResult:
    """Go on with a run whose answers turned out to be coarse."""
    search = NoisyRun(run, NoisyConfig())
    try:
        return _recovered(search, answers)
    except BudgetExhausted as error:
        message = f"{error}; what was found until then is returned"
        return _result(search, Status.BUDGET_EXHAUSTED, message)


def _recovered(run: NoisyRun, answers: str) -> TwoLayerResult:
    """Search, lift, fit, certify; a certificate that fails becomes data for another round."""
    run.look(answers)
    if run.answers.rounded:
        run.student()
    else:
        stopped = _units_everywhere(run)
        if stopped is not None:
            return stopped
    for turn in range(TwoLayerConfig.restarts + 1):
        run.tidy()
        held_out, residual = certify(run)
        verdict = _judge(run, residual)
        certificate = _certificate(run, held_out, residual)
        result = _result(run, *_status(run, verdict, certificate), certificate)
        against = _against(run, result, verdict, held_out)
        if against is None or turn == TwoLayerConfig.restarts:
            break
        if certificate.rms_deviation > run.config.useful * certificate.scale:
            break  # so much is not what a few more answers explain
        if not run.follow(held_out.part(slice(0 if verdict else None)), against):
            break
        run.oracle.meter.rebook("certificate", "residual search", len(held_out))
    return dataclasses.replace(result, queries=run.oracle.queries, stages=tuple(run.run.stages))


def _against(
    run: NoisyRun, result: TwoLayerResult, agreed: bool, held_out: Seen
) -> Against | None:
    """Return the answers of the run that contradict a result; None where it may end with it."""
    assert result.network is not None
    assert result.certificate is not None
    if run.answers.rounded:
        return None
    tolerance = BEYOND_HELD_OUT * (
        result.certificate.tolerance if agreed else _allowed(run, held_out.x)
    )
    record, kind = run.oracle.record, result.answers
    predict = predicted_answers(result.network, kind, run.oracle.output_dim)
    found = find_contradictions(record, predict, Tolerance(tolerance, record, kind))
    if agreed and not found:
        return None
    return Against(Seen(*found.nearest) if found else held_out.part(slice(0)), tolerance)


def _units_everywhere(run: NoisyRun) -> TwoLayerResult | None:
    """Find units on a subspace and lift them; where that fails, search all of space.

    Returns what to say where neither works.
    """
    d = run.oracle.input_dim
    spaces = [d] if d <= run.config.direct else [run.config.dimension, d]
    status, message = Status.NUMERICAL_FAILURE, ""
    for dimension in spaces:
        found = run.search(dimension)
        if found is None:
            status, message = _not_found(run)
            continue
        if run.lift(*found):
            return None
        status = Status.ILL_CONDITIONED
        message = (
            f"{len(found[1].biases[0])} units were found on a subspace, but they leave no "
            "room to measure their normals across it; try another seed, or ask for more digits"
        )
    return _result(run, status, message)


def _not_found(run: NoisyRun) -> tuple[Status, str]:
    """Say why a search found no units."""
    if run.left > 0.0:
        return Status.PARTIAL, (
            f"the hyperplanes that lines show leave {run.left:.1g} of the answers' spread "
            "unexplained: the target may have more than one hidden layer, or another activation"
        )
    return Status.NUMERICAL_FAILURE, (
        "no line through typical inputs could be read: the probabilities underflow there; "
        "ask the target for logits"
    )


def certify(run: NoisyRun) -> tuple[Seen, FloatArray]:
    """Ask held-out inputs; returns them with residuals over deviations, ``(n, m)``."""
    assert run.network is not None
    with run.run.stage("certificate"):
        draw = run.rng.standard_normal((CertifyConfig.samples, run.oracle.input_dim))
        held_out = run.answers.ask(draw)
    return held_out, run.answers.residuals(run.network, held_out)


def _judge(run: NoisyRun, residual: FloatArray) -> bool:
    """Whether noise explains every held-out answer."""
    assert run.fitted is not None
    rms = float(np.sqrt(np.mean(residual**2)))
    usual = max(run.fitted.scale, rms)
    return bool(
        run.explains(run.fitted)
        and rms <= run.config.fits
        and np.abs(residual).max() <= CertifyConfig.accept * usual
    )


def _certificate(run: NoisyRun, held_out: Seen, residual: FloatArray) -> Certificate:
    """State the deviation met, of values or of log-odds."""
    assert run.network is not None
    seen = run.answers.readings(held_out.y)
    if run.answers.kind == "logistic":  # of the rest, log(1 - p) has lost its digits
        near = np.asarray((np.abs(seen) < TwoLayerConfig.deepest_single).all(axis=1))
        if near.any():
            held_out, residual, seen = held_out.part(near), residual[near], seen[near]
    predicted = run.read(run.network)(held_out.x)
    readable = np.isfinite(seen)
    apart = np.where(readable, np.abs(np.where(readable, seen, 0.0) - predicted), 0.0)
    tolerance = max(_allowed(run, held_out.x), float(apart.max()))
    scale = float(np.where(readable, predicted, 0.0).std(axis=0).max())
    return Certificate.from_deviations(
        apart,
        scale=scale,
        tolerance=tolerance,
        details={
            "root mean square residual in deviations": float(np.sqrt(np.mean(residual**2))),
            "largest residual in deviations": float(np.abs(residual).max()),
            "fitted answers": int(sum(part.y.size for part in run.seen)),
        },
    )


def _allowed(run: NoisyRun, x: FloatArray) -> float:
    """Return by how much the noise allows a reading at inputs ``(n, d)`` to deviate."""
    assert run.fitted is not None
    each = float(np.sqrt(2.0)) if run.answers.kind == "softmax" else 1.0  # of two logarithms
    return each * CertifyConfig.accept * run.fitted.scale * float(run.answers.inner(x).max())


def _exact_enough(run: NoisyRun, certificate: Certificate) -> bool:
    """Whether what is stated may be called exact: of answers in double precision it is small.

    Their rounding hides a function that varies by little beside a large constant.
    """
    seen = run.oracle.record.of_stage("certificate")
    rounding = 0.0 if seen is None else run.answers.eps * float(np.abs(seen[1]).max())
    double = not run.answers.single and certificate.tolerance <= rounding / EXACT
    return not double or certificate.tolerance <= EXACT * certificate.scale


def _status(run: NoisyRun, agreed: bool, certificate: Certificate) -> tuple[Status, str]:
    assert run.network is not None
    units = f"{len(run.network.biases[0])} hidden units"
    rounded = run.answers.rounded
    small = _errors(run)[1] <= TwoLayerConfig.useful * certificate.scale
    if agreed and not rounded and small and _exact_enough(run, certificate):
        return Status.RECOVERED, f"{units}; {certificate}"
    if rounded and certificate.relative_deviation < 1.0:
        return (
            Status.APPROXIMATED,
            f"{units}; probabilities rounded to {run.answers.step:.0e} do not determine a network "
            f"where they round to zero or one: {certificate}",
        )
    if agreed and not rounded:
        return (
            Status.APPROXIMATED,
            f"{units}; the noise explains all that is left, but it is large: {certificate}; ask "
            "for more digits, or repeat and average",
        )
    if certificate.relative_deviation <= run.config.useful:
        return (
            Status.APPROXIMATED,
            f"{units}; a copy, but the noise does not explain all that it leaves: {certificate}; "
            "the target may have more than one hidden layer, or another activation",
        )
    return (
        Status.PARTIAL,
        f"{units} explain the answers up to {certificate.relative_deviation:.1g} of their spread; "
        "the target may have more than one hidden layer, or another activation",
    )


def _errors(run: NoisyRun) -> tuple[float, float]:
    """Return the noise of an answer, and the root mean square error that it leaves."""
    net = run.network
    if net is None or run.fitted is None:
        return 0.0, 0.0
    data = Seen.joined(run.seen)
    noise = float(np.median(run.answers.inner(data.x))) * run.fitted.scale
    free = max(1, data.y.size - net.parameters)
    return noise, noise * float(np.sqrt(net.parameters / free))


def _result(
    run: NoisyRun,
    status: Status,
    message: str,
    certificate: Certificate | None = None,
) -> TwoLayerResult:
    net, (noise, error) = run.network, _errors(run)
    return TwoLayerResult(
        status=status,
        message=message,
        queries=run.oracle.queries,
        provenance=run.run.provenance,
        network=None if net is None else ReLUNetwork(net.weights, net.biases, net.skip),
        certificate=certificate,
        stages=tuple(run.run.stages),
        width=0 if net is None else len(net.biases[0]),
        signs_determined=run.signs,
        noise=noise,
        predicted_error=error,
        answers="values" if run.kind == "values" else "log-odds",
    )
