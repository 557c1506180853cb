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
tolerance is at most 1e-6 of the spread, or 100 deviations of an answer where
that is more. APPROXIMATED: it agreed, and the tolerance is larger. Units
that share one hyperplane are returned as one; units without a kink in the
domain are part of the affine term.

Map to the paper
----------------
As printed, and line by line with tests: :mod:`unrelu.extraction.letter`. Here:

==========================================  =====================================
FIND_CP, Algorithm 1                        :func:`unrelu.lines.kinks.find_kinks`
AFFINE, Algorithm 2                         :func:`unrelu.lines.gradients.measure_gradients`
FIND_HP, Algorithm 3                        :func:`unrelu.lines.gates.solve_pieces`; for several
                                            outputs :func:`unrelu.lines.gates.combine`
IS_CONVEX, Algorithm 4                      the sign of ``unrelu.lines.survey._output_vectors``
IS_GENERAL, Algorithm 5                     the checks of ``measure_gradients``
Algorithm 6, line 1                         ``scan_line``
Algorithm 6, lines 2-5 and 6-7              ``survey`` and :class:`unrelu.core.units.Units`
Theorem 2: all half-axes                    ``UnitSearch.cover``, ``Domain.vertices``
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
  answers are not exact. Which ones, and how well the units are known, their covariance
  tells: its factors (``update``, and ``combine`` for several outputs) are a term k^3 in time
  that Theorem 1's d^2 k has not.
- Coarse answers (float32, rounded) need other means than differences: on all of space
  :mod:`unrelu.extraction.noisy` takes over, in a bounded domain the search of a box
  (:mod:`unrelu.extraction.box`), for the orthant as far out along each axis as typical
  inputs are long, and checked beyond.
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
import functools
from contextlib import suppress
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind, ArrayLike
from unrelu.core.answers import values_where_refuted
from unrelu.core.explain import EXACT, EXACT_NOISE, contradictions_of, explained
from unrelu.core.levels import unlevelled
from unrelu.core.run import Run
from unrelu.core.units import Units
from unrelu.errors import InvalidInput
from unrelu.extraction.certify import FailedPoints, UnitsVerdict, certify_units
from unrelu.extraction.letter import extract_two_layer_as_printed
from unrelu.extraction.noisy import recover_from_noisy
from unrelu.extraction.refine import predicted_errors
from unrelu.extraction.two_layer_bounded import recover_in_bounds
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.two_layer_refine import TYPICAL
from unrelu.extraction.two_layer_result import TwoLayerResult
from unrelu.extraction.two_layer_search import UnitSearch, first_line
from unrelu.extraction.two_layer_target import (
    Calibrated,
    Meaningless,
    Saturated,
    TwoLayerTarget,
)
from unrelu.lines.domains import as_domain
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress
from unrelu.result import Certificate, Status

__all__ = ["TwoLayerConfig", "TwoLayerResult", "extract_two_layer"]


@values_where_refuted
def extract_two_layer(
    oracle: Any,
    *,
    domain: str | tuple[ArrayLike, ArrayLike] = "all",
    answers: AnswerKind = "auto",
    rng: RandomState = None,
    progress: Progress | None = None,
    faithful: bool = False,
    delta: Any = None,
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
    faithful
        Run the algorithms as printed (:mod:`unrelu.extraction.letter`), exactly where the
        oracle answers exactly. Needs ``delta``.
    delta
        The paper's delta, for which the target is regular.
    config
        Tolerances and sizes.

    Returns
    -------
    TwoLayerResult
        RECOVERED promises that the network agreed with the target at every
        held-out point of the certificate within its tolerance. For
        probabilities the network gives logits, of which one is always zero.

    Examples
    --------
    >>> import unrelu
    >>> target = unrelu.planted.random_network(6, 4, 1, rng=0)
    >>> result = unrelu.extract_two_layer(target, rng=0)
    >>> result.status.name, result.width
    ('RECOVERED', 4)
    """
    if faithful:
        return extract_two_layer_as_printed(
            oracle, delta=delta, domain=domain, answers=answers, rng=rng, progress=progress
        )
    if delta is not None:
        raise InvalidInput("delta is for faithful=True; in practice steps come from the noise")
    run = Run(
        oracle,
        algorithm="extract_two_layer",
        rng=rng,
        options={"domain": domain if isinstance(domain, str) else "box", "answers": answers},
        progress=progress,
    )
    area = as_domain(domain, run.target.input_dim)
    target = TwoLayerTarget(run, area, TwoLayerConfig() if config is None else config)
    steps = _TwoLayer(target)
    return run.ended(
        functools.partial(steps.recovered, answers),
        steps.stopped,
        lambda result: explained(run.target, result, result.answers),
    )


class _TwoLayer:
    """A run: its target, and the search that is under way, if one is."""

    def __init__(self, target: TwoLayerTarget) -> None:
        self.target = target
        self.search: UnitSearch | None = None

    def recovered(self, answers: str) -> TwoLayerResult:
        """Look, and go the way that the domain and the answers' precision allow."""
        target = self.target
        target.look(answers)
        begun = target.begin()
        if begun is None:
            return self.nothing()
        if begun.coarse:
            kind = "probabilities" if target.log_odds else "values"
            if target.domain.kind == "all":
                return recover_from_noisy(target.run, kind)
            return recover_in_bounds(target.run, target.domain, kind)
        return self.searched(self.attempts(begun))

    def attempts(self, calibrated: Calibrated) -> bool:
        """Begin on a line, and on new ones until random checks pass; whether they did."""
        for attempt in range(self.target.config.restarts + 1):
            self.search = None
            with suppress(Saturated, Meaningless):
                if attempt > 0:
                    calibrated = self.target.calibrate()
                self.search = first_line(self.target, calibrated)
                if self.search.attempt():
                    return True
            self.forget_nonsense()
        return False

    def searched(self, passed: bool) -> TwoLayerResult:
        """Conclude, and search on where an answer contradicts what was concluded."""
        run, contradicted = self.target.run, None
        turns = self.target.config.restarts + 1
        for turn in range(turns + 1):
            search = self.search
            if search is None:
                return contradicted or self.nothing()
            signs = search.finish_signs()
            status, message, verdict = _conclude(search, passed)
            if verdict is None and contradicted is not None:
                return dataclasses.replace(contradicted, stages=tuple(run.stages))
            certificate = None if verdict is None else verdict.certificate
            result = _result(self.target, search, status, message, certificate, signs)
            rows = run.stages[-1].queries
            failed = _contradicting(self.target, result, verdict)
            if failed is None or turn == turns:
                break
            run.target.meter.rebook("certificate", "residual search", rows)
            contradicted, passed = result, False
            with suppress(Saturated, Meaningless):
                passed = search.follow(failed)
            self.forget_nonsense()
        return result

    def forget_nonsense(self) -> None:
        """Drop units that are not finite."""
        if self.search is not None and not self.search.found.finite():
            self.search = None

    def nothing(self) -> TwoLayerResult:
        """Return that nothing was found."""
        message = _nothing_found(self.target)
        return _result(self.target, None, Status.NUMERICAL_FAILURE, message, None)

    def stopped(self, status: Status, message: str) -> TwoLayerResult:
        """Return what was found until something ended the run."""
        self.forget_nonsense()
        return _result(self.target, self.search, status, message, None)


def _contradicting(
    target: TwoLayerTarget, result: TwoLayerResult, verdict: UnitsVerdict | None
) -> FailedPoints | None:
    """Return points at which the units are wrong: of the certificate, or of the whole run."""
    if verdict is None or not result.success:
        return None if verdict is None else verdict.failed
    found = contradictions_of(target.run.target, result, result.answers)
    if not found:
        return None
    with target.run.stage("residual search"):
        answers = target.oracle(found.points)
    readable = np.isfinite(answers).all(axis=1)
    if not readable.any():
        return None
    return FailedPoints(found.points[readable], answers[readable], target.draw(len(answers)))


def _nothing_found(target: TwoLayerTarget) -> str:
    if target.log_odds:
        return (
            "the probabilities underflow to 0 or 1 at typical inputs, where log-odds cannot "
            "be read; give a domain of smaller inputs, or ask the target for logits"
        )
    return (
        "the answers are too coarse: their noise was taken for hyperplanes until "
        "numbers overflowed; ask for more digits, or try learn_from_queries"
    )


def _conclude(search: UnitSearch, passed: bool) -> tuple[Status, str, UnitsVerdict | None]:
    target = search.target
    if not passed and not search.ill_conditioned():
        return (
            Status.PARTIAL,
            f"random checks still fail after {search.config.restarts} restarts with "
            f"{search.config.repairs} more lines each; the target may have more than one hidden "
            "layer, or answers that are not piecewise affine",
            None,
        )
    if search.entangled():
        return (
            Status.ILL_CONDITIONED,
            f"{search.found.units.count} hyperplanes were found, but some of them nearly "
            f"coincide on all of {search.config.restarts + 1} lines, so that their directions are "
            "not exact; try another seed, or learn_from_queries",
            None,
        )
    if search.ill_conditioned():
        error, scale = float(np.median(search.found.errors(target.draw(TYPICAL)))), search.spread
        return (
            Status.ILL_CONDITIONED,
            f"the answers' noise leaves a predicted error of {error / scale:.1g} of their "
            "spread; ask for more digits, or repeat and average",
            None,
        )
    with search.run.stage("certificate"):
        verdict = certify_units(
            target.oracle, search.found.units, search.found.covariance, search.noise,
            target.domain, measured=search.measured, levels=target.levels, rng=target.rng,
            legible=target.legible, config=search.config.certify,
        )  # fmt: skip
    if verdict.objection:
        return Status.ASSUMPTION_VIOLATED, verdict.objection, verdict
    certificate, units = verdict.certificate, f"{search.found.units.count} hidden units"
    if _exact(verdict, search.config.float64):
        return Status.RECOVERED, f"{units}; {certificate}", verdict
    if (verdict.tolerances <= search.config.useful * verdict.scales).all():
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


def _exact(verdict: UnitsVerdict, float64: float) -> bool:
    """Whether each output's tolerance is as small as exactness within the noise asks for."""
    fine = verdict.noise <= float64 * verdict.sizes
    least = np.where(fine, EXACT * verdict.scales, EXACT_NOISE * verdict.noise)
    return bool((verdict.tolerances <= least).all())


def _result(
    target: TwoLayerTarget,
    search: UnitSearch | None,
    status: Status,
    message: str,
    certificate: Certificate | None,
    signs: bool = False,
) -> TwoLayerResult:
    run, units = target.run, None
    noise = error = 0.0
    if search is not None:
        found, levels = search.found, target.levels
        points = target.draw(TYPICAL)
        noise = float((search.measured.at(points) * levels).max(axis=1).mean())
        square = np.mean(predicted_errors(found.units, found.covariance, points) ** 2, axis=0)
        error = float((np.sqrt(square) * levels).max())
        units = unlevelled(found.units, levels)
    return TwoLayerResult(
        status=status,
        message=message,
        queries=run.target.queries,
        provenance=run.provenance,
        network=None if units is None else _network(target, units, signs),
        certificate=certificate,
        stages=tuple(run.stages),
        width=0 if units is None else units.count,
        signs_determined=signs,
        noise=noise,
        predicted_error=error,
        answers="log-odds" if target.log_odds else "values",
    )


def _network(target: TwoLayerTarget, units: Units, signs: bool) -> ReLUNetwork:
    """Return the units as a network; log-odds get their reference back, as a zero logit."""
    network = units.network(skip=not signs)
    if not target.log_odds or target.run.target.output_dim == 1:
        return network
    at = target.reference
    return ReLUNetwork(
        [network.weights[0], np.insert(network.weights[1], at, 0.0, axis=0)],
        [network.biases[0], np.insert(network.biases[1], at, 0.0)],
        None if network.skip is None else np.insert(network.skip, at, 0.0, axis=0),
    )
