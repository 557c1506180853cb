"""Exact extraction of depth-2 ReLU networks (Daniely & Granot, Theorems 1 and 2).

Reference
---------
A. Daniely and E. Granot, *An Exact Poly-Time Membership-Queries Algorithm for
Extracting a Three-Layer ReLU Network*, 2021.

Setting
-------
Black-box access to ``f(x) = sum_j u_j relu(<w_j, x> + b_j) + c`` with any
number of hidden units and m >= 1 outputs, on all of R^d, on the non-negative
orthant or in a box; the answers may be probabilities (softmax, logistic).

Assumptions
-----------
The paper assumes general position. Here: no feature of f hides between the
points asked (see the certificate), and hyperplanes are far enough apart to be
told apart at the noise of the answers. Hyperplanes parallel to an axis, dead
units, units sharing a hyperplane and affine functions are fine.

Guarantee
---------
RECOVERED: the returned network agreed with the target at every held-out point
of the certificate, each output within its predicted error, and the stated
tolerance is at most 1e-6 of the spread (float64 answers) or 100 deviations of
an answer (others). APPROXIMATED: it agreed, and the tolerance is larger. Units
that share one hyperplane are returned as one; units without a kink in the
domain are part of the affine term.

Map to the paper
----------------
==========================================  =====================================
FIND_CP, Algorithm 1                        :func:`unrelu.lines.kinks.find_kinks`
AFFINE, Algorithm 2                         :func:`unrelu.lines.gradients.measure_gradients`
FIND_HP, Algorithm 3                        :func:`unrelu.lines.survey.survey`
IS_CONVEX, Algorithm 4                      the sign of the jump of slope, in ``survey``
IS_GENERAL, Algorithm 5                     the checks of ``measure_gradients``
Algorithm 6, lines 1-5 and 6-7              ``survey`` and :class:`unrelu.core.units.Units`
Theorem 2: all half-axes                    ``Extraction.cover``, ``Domain.vertices``
==========================================  =====================================

Deviations
----------
- A random line instead of the first axis: rows may have exact zeros.
- Kinks are found by intersecting neighbouring pieces and testing both sides,
  not by halving down to delta^2: about 5 answers each instead of log(1/delta).
- The gradient after one kink is the gradient before the next, and the slope
  along the line is known: d - 1 answers per piece instead of 2d per kink.
- With several outputs about k / m pieces are measured instead of k + 1.
- A few gradients at roomy points sharpen the result at the end, as float64
  answers are not exact.
- Coarse answers (float32, rounded) are searched on a random subspace of the
  inputs first, where everything can be measured often, and the units are then
  lifted by derivatives at roomy points (:mod:`unrelu.extraction.lift`).
- Networks of up to 2,500 parameters are then fitted to all coarse answers at
  once (:mod:`unrelu.extraction.unit_fit`): differences of a few answers keep their
  noise, least squares over all of them averages it out.
- The residual is searched until random checks pass, since one line may miss a
  unit; the paper's general position excludes that.
- Theorem 2's half-axes meet a hyperplane through the corner of the orthant nowhere
  else (all of them, without biases): points beside every half-axis are checked too.
- Where a certificate fails the search goes on at its points, a few times, and ends
  with a certificate at fresh ones.
- Signs of the units are resolved where they are determined, so that there is
  no affine term where the target has none.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike
from unrelu.core.answers import values_where_refuted
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import contradictions_of, explained
from unrelu.core.levels import unlevelled
from unrelu.core.price import price_two_layer
from unrelu.core.record import Remembered, remembered, with_plan
from unrelu.core.units import Units
from unrelu.errors import BudgetExhausted
from unrelu.extraction.certify import FailedPoints, Verdict, certify_units
from unrelu.extraction.known_units import Meaningless, Saturated
from unrelu.extraction.refine import predicted_errors
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.two_layer_run import Extraction
from unrelu.lines.domains import as_domain
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, Status

__all__ = ["TwoLayerConfig", "TwoLayerResult", "extract_two_layer"]


@dataclasses.dataclass(frozen=True, repr=False)
class TwoLayerResult(RecoveryResult):
    """A recovered depth-2 network and what is known about it.

    Attributes
    ----------
    width
        Number of hidden units found.
    signs_determined
        True: the network has no skip term and its units point the right way.
        False: it is the affine-skip form of equation (2).
    noise
        Measured standard deviation of an answer's error, at typical inputs.
    predicted_error
        Root mean square error of the network at typical inputs, as predicted
        from the noise, in answer units.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    width: int = 0
    signs_determined: bool = False
    noise: float = 0.0
    predicted_error: float = 0.0
    answers: str = "values"


@values_where_refuted
def extract_two_layer(
    oracle: Any,
    *,
    domain: str | tuple[ArrayLike, ArrayLike] = "all",
    answers: Literal["auto", "values", "probabilities"] = "auto",
    rng: RandomState = None,
    progress: Progress | None = None,
    config: TwoLayerConfig | None = None,
) -> TwoLayerResult:
    """Recover a network with one hidden layer from queries.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    domain
        Where the target may be asked: ``"all"``, ``"nonnegative"``, or a box
        ``(low, high)`` of numbers or arrays of length d.
    answers
        ``"probabilities"`` (of a softmax or logistic output) are worked on as
        log-odds; ``"auto"`` looks at a few answers
        (:func:`unrelu.core.answers.look_for_probabilities`).
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    config
        Tolerances and sizes.

    Returns
    -------
    TwoLayerResult
        RECOVERED promises that the network agreed with the target at every
        held-out point of the certificate within its tolerance. For
        probabilities the network gives logits, of which one is always zero.
    """
    target = remembered(oracle)
    config = TwoLayerConfig() if config is None else config
    area = as_domain(domain, target.input_dim)
    generator = as_generator(rng)
    provenance = Provenance(
        algorithm="extract_two_layer",
        seed=rng if isinstance(rng, int) else None,
        options={"domain": area.kind, "answers": answers},
        target=target.identity,
    )
    run = Extraction(target, area, generator, as_progress(progress), config)
    run.expect = lambda kinks, coarse: target.allowance.plan(
        price_two_layer(
            target.input_dim, target.output_dim, kinks, coarse=coarse,
            orthant=area.kind != "all",
        )
    )  # fmt: skip
    try:
        with as_breakdown():
            run.look(answers)
            result = _searched(target, run, provenance)
    except BudgetExhausted as error:
        message = f"{error}; what was found until then is returned"
        result = _result(run, Status.BUDGET_EXHAUSTED, message, provenance, None)
    except Breakdown as error:
        run.forget_nonsense()
        result = _result(run, Status.NUMERICAL_FAILURE, str(error), provenance, None)
    return with_plan(explained(target, result, result.answers), target, oracle)


def _searched(target: Remembered, run: Extraction, provenance: Provenance) -> TwoLayerResult:
    """Attempt, conclude, and search on where an answer contradicts what was concluded."""
    passed = run.attempts()
    contradicted: TwoLayerResult | None = None
    for turn in range(run.config.rounds + 1):
        if run.units is None:
            return contradicted or _result(
                run, Status.NUMERICAL_FAILURE, _nothing_found(run), provenance, None
            )
        signs = run.finish_signs()
        status, message, verdict = _conclude(run, passed)
        if verdict is None and contradicted is not None:
            return dataclasses.replace(contradicted, stages=tuple(run.stages))
        certificate = None if verdict is None else verdict.certificate
        result = _result(run, status, message, provenance, certificate, signs)
        rows = run.stages[-1].queries
        failed = _contradicting(target, run, result, verdict)
        if failed is None or turn == run.config.rounds:
            break
        target.meter.rebook("certificate", "residual search", rows)
        contradicted, passed = result, False
        with suppress(Saturated, Meaningless):
            passed = run.follow(failed)
        run.forget_nonsense()
    return result


def _contradicting(
    target: Remembered, run: Extraction, result: TwoLayerResult, verdict: Verdict | None
) -> FailedPoints | None:
    """Return points at which the units are wrong: of the certificate, or of the whole run."""
    if verdict is None or not result.success:
        return None if verdict is None else verdict.failed
    found = contradictions_of(target, result, result.answers)
    if not found:
        return None
    with run.stage("residual search"):
        answers = run.oracle(found.points)
    readable = np.isfinite(answers).all(axis=1)
    if not readable.any():
        return None
    return FailedPoints(found.points[readable], answers[readable], run.draw(len(answers)))


def _nothing_found(run: Extraction) -> str:
    if run.log_odds:
        return (
            "the probabilities underflow to 0 or 1 at typical inputs, where log-odds cannot "
            "be read; give a domain of smaller inputs, or ask the target for logits"
        )
    return (
        "the answers are too coarse: their noise was taken for hyperplanes until "
        "numbers overflowed; ask for more digits, or try learn_from_queries"
    )


def _conclude(run: Extraction, passed: bool) -> tuple[Status, str, Verdict | None]:
    assert run.units is not None
    assert run.noise is not None
    assert run.measured is not None
    if not passed and not run.ill_conditioned():
        return (
            Status.PARTIAL,
            f"random checks still fail after {run.config.restarts} restarts with "
            f"{run.config.repairs} more lines each; the target may have more than one hidden "
            "layer, or answers that are not piecewise affine",
            None,
        )
    if run.entangled():
        return (
            Status.ILL_CONDITIONED,
            f"{run.units.count} hyperplanes were found, but some of them nearly coincide on all "
            f"of {run.config.restarts + 1} lines, so that their directions are not exact; try "
            "another seed, or learn_from_queries",
            None,
        )
    if run.ill_conditioned():
        error, scale = float(np.median(run.errors(run.draw(256)))), run.spread
        return (
            Status.ILL_CONDITIONED,
            f"the answers' noise leaves a predicted error of {error / scale:.1g} of their "
            "spread; ask for more digits, or repeat and average",
            None,
        )
    config = run.config.certify
    if run.coarse:
        config = dataclasses.replace(config, accept=config.accept_coarse)
    with run.stage("certificate"):
        verdict = certify_units(
            run.oracle,
            run.units,
            run.covariance,
            run.noise,
            run.domain,
            measured=run.measured,
            levels=run.levels,
            coarse=run.coarse,
            rng=run.rng,
            deepest=run.deepest if run.log_odds else math.inf,
            config=config,
        )
    if verdict.objection:
        return Status.ASSUMPTION_VIOLATED, verdict.objection, verdict
    certificate, units = verdict.certificate, f"{run.units.count} hidden units"
    if _exact(run, verdict):
        return Status.RECOVERED, f"{units}; {certificate}", verdict
    if (verdict.tolerances <= run.config.useful * verdict.scales).all():
        return (
            Status.APPROXIMATED,
            f"{units}; every held-out point agrees within its predicted error, but that is more "
            f"than the answers' own: {certificate}; ask for more digits, or repeat and average",
            verdict,
        )
    return (
        Status.ILL_CONDITIONED,
        "every held-out point agrees within its predicted error, but that error is large: "
        f"{certificate}; ask for more digits, or repeat and average",
        verdict,
    )


def _exact(run: Extraction, verdict: Verdict) -> bool:
    """Whether each output's tolerance is as small as exactness within the noise asks for."""
    config = run.config
    rounding = verdict.noise <= config.float64 * verdict.sizes
    least = np.where(
        rounding, config.useful_exact * verdict.scales, config.exact_noise * verdict.noise
    )
    return bool((verdict.tolerances <= least).all())


def _result(
    run: Extraction,
    status: Status,
    message: str,
    provenance: Provenance,
    certificate: Certificate | None,
    signs: bool = False,
) -> TwoLayerResult:
    units = run.units
    noise = error = 0.0
    if units is not None and run.measured is not None:
        points = run.domain.draw(64, np.random.default_rng(0))
        noise = float((run.measured.at(points) * run.levels).max(axis=1).mean())
        square = np.mean(predicted_errors(units, run.covariance, points) ** 2, axis=0)
        error = float((np.sqrt(square) * run.levels).max())
        units = unlevelled(units, run.levels)
    return TwoLayerResult(
        status=status,
        message=message,
        queries=run.oracle.queries,
        provenance=provenance,
        network=None if units is None else _network(run, units, signs),
        certificate=certificate,
        stages=tuple(run.stages),
        width=0 if units is None else units.count,
        signs_determined=signs,
        noise=noise,
        predicted_error=error,
        answers="log-odds" if run.log_odds else "values",
    )


def _network(run: Extraction, units: Units, signs: bool) -> ReLUNetwork:
    """Return the units as a network; log-odds get their reference back, as a zero logit."""
    network = units.network(skip=not signs)
    if not run.log_odds or run.oracle.output_dim == run.inner_outputs:
        return network
    at = run.reference
    return ReLUNetwork(
        [network.weights[0], np.insert(network.weights[1], at, 0.0, axis=0)],
        [network.biases[0], np.insert(network.biases[1], at, 0.0)],
        None if network.skip is None else np.insert(network.skip, at, 0.0, axis=0),
    )
