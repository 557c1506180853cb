"""Exact extraction of depth-3 ReLU networks (Daniely & Granot, Theorem 3).

Reference
---------
A. Daniely and E. Granot, *An Exact Poly-Time Membership-Queries Algorithm for
Extracting a Three-Layer ReLU Network*, 2021; section 3.5 and Algorithm 7.

Setting
-------
Black-box access to ``M(x) = U relu(V relu(W x + b) + c)`` with one or more
outputs, on all of R^d; or to its softmax or logistic probabilities.

Assumptions
-----------
``d1 <= d`` with W of full row rank; general position; and the top layer has
non-zero partial derivatives. The last is needed only at some point of every
first-layer hyperplane, not everywhere. Where ``d1 > d``, beyond the paper, lines
must cross the surface of every second-layer unit often enough.

Guarantee
---------
RECOVERED: the returned network agreed with the target at every held-out point
of the certificate, within the stated tolerance: at 10,000 typical inputs, on lines, and
at typical inputs where its units are in states that are rare. Every output is judged by
its own spread. Second-layer units that never
switch on the reachable orthant are part of the affine term of the paper's
``<v_0, relu(W x + b)> + c_0``; where there is one that no orientation of the
units explains, the network holds it as two units per output that are always on,
beside the ``second_width`` units found.

Map to the paper
----------------
As printed, and line by line with tests: :mod:`unrelu.extraction.letter`. Here:

===========================================  ====================================
3.5.1, candidate hyperplanes on a line       :func:`unrelu.extraction.deep_first.search_line`
3.5.2, Algorithm 7, layer of a hyperplane    :func:`unrelu.extraction.deep_layers.find_first_layer`
IS_GENERAL, Algorithm 5                      ``_second_differences`` there
FIND_HP, Algorithm 3, for the first layer    :func:`unrelu.extraction.deep_rows.measure_rows`
3.5.3, signs by z orthogonal to other rows   :func:`unrelu.extraction.deep_signs.orient_rows`
3.5.4, top two layers by a right inverse     :class:`unrelu.extraction.deep_top.TopOracle`
Theorem 2, depth 2 on the orthant            :class:`unrelu.extraction.deep_orthant.OrthantSearch`
===========================================  ====================================

Deviations
----------
- Algorithm 7 goes beyond each of the k other hyperplanes in turn; here one goes far along
  the hyperplane to two sides, which crosses most of them at once. That needs
  one direction inside the hyperplane, so normals are measured for first-layer
  kinks only. Its bound of 1 - 2^-d does not cover two sides: a surface that no row bends
  on both of them passes for a row. Rows are confirmed elsewhere (``confirm_rows``), and the
  certificate decides.
- Flat spots are inconclusive, and another place is tried.
- Rows are measured in a random subspace of a few more than d1 dimensions and
  lifted: every gradient is a combination of the rows.
- Hyperplanes parallel to a row are left to the second layer first; where that fails the
  layers are peeled as below for d1 > d.
- A gradient outside the span of the rows found shows that one is missing; more
  lines are searched, orthogonal to the rows known.
- The orthant is entered by a hair, so that errors of W stay affine.
- Probabilities are read as log-odds, which end where one underflows: all is
  searched as far as they go, and what that leaves is searched towards inputs
  that the units found do not explain.
- Precision comes from room: rows that a line met in a narrow piece, and units that an axis
  did, are measured again where their hyperplanes are far from all others
  (:mod:`unrelu.extraction.deep_rows_again`, :mod:`unrelu.extraction.deep_room`), and few
  gradients correct both layers at the end (:mod:`unrelu.extraction.deep_sharpen`): no
  system grows with the number of parameters. Smaller networks are fitted to all answers
  gathered instead, and to some at typical inputs (:mod:`unrelu.extraction.deep_polish`).
- A certificate that fails is data: units are searched towards its points, all is refined
  again, and a fresh certificate decides.
- Where W has no right inverse (d1 > d) the top layers cannot be asked on their own. They
  are peeled then, as in a network of any depth, from the places where lines cross their
  surfaces (:mod:`unrelu.extraction.peel`), which also tell the signs of the first layer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind
from unrelu.core.answers import values_where_refuted
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import explained
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.extraction.deep_answers import NotFinite, Saturated
from unrelu.extraction.deep_candidate import Candidate, recover_top
from unrelu.extraction.deep_certify import Verdict
from unrelu.extraction.deep_first import FirstLayer, find_rows, orient
from unrelu.extraction.deep_session import Session
from unrelu.extraction.deep_signs import confirm_rows
from unrelu.extraction.letter import extract_three_layer_as_printed
from unrelu.extraction.peel import Ended, peel_over
from unrelu.extraction.price import price_three_layer
from unrelu.extraction.three_layer_config import Failed, ThreeLayerConfig
from unrelu.extraction.three_layer_result import ThreeLayerResult
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress
from unrelu.result import Status

__all__ = ["ThreeLayerConfig", "ThreeLayerResult", "extract_three_layer"]

SATURATED = (
    "probabilities underflow to 0 or 1 at points that the extraction needs, where log-odds "
    "cannot be read; ask the target for logits, or scale its inputs down"
)
PARALLEL = (
    ". Some hyperplanes are parallel to a row; taken for second-layer ones, and for rows, they "
    "do not explain the answers: W has no right inverse, and the surfaces above do not tell it"
)
NOT_FINITE = (
    "some answers are not finite: the extraction needs answers far from the origin; "
    "probabilities are read as log-odds if asked for themselves"
)


@values_where_refuted
def extract_three_layer(
    oracle: Any,
    *,
    answers: AnswerKind = "auto",
    rng: RandomState = None,
    progress: Progress | None = None,
    faithful: bool = False,
    delta: Any = None,
    units: int | None = None,
    config: ThreeLayerConfig | None = None,
) -> ThreeLayerResult:
    """Recover a network with two hidden layers from queries.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    answers
        ``"probabilities"`` (of a softmax or logistic output) are worked on as
        log-odds; ``"auto"`` looks at a few answers.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    faithful
        Run the algorithms as printed (:mod:`unrelu.extraction.letter`), exactly where the
        oracle answers exactly. Needs ``delta`` and ``units``.
    delta, units
        The paper's delta, and a bound on ``d1 + d2``.
    config
        Tolerances and sizes.

    Returns
    -------
    ThreeLayerResult
        RECOVERED promises that the network agreed with the target at every
        held-out point of the certificate within its tolerance. PARTIAL gives
        the first-layer hyperplanes that were found, and says what stopped it.
        For probabilities the network gives logits, of which one is always zero.

    Examples
    --------
    >>> import unrelu
    >>> target = unrelu.planted.random_network(6, 4, 3, 1, rng=0)
    >>> result = unrelu.extract_three_layer(target, rng=0)
    >>> result.status.name, result.network.architecture
    ('RECOVERED', '6-4-3-1')
    """
    if faithful:
        return extract_three_layer_as_printed(
            oracle, delta=delta, units=units, answers=answers, rng=rng, progress=progress
        )
    if delta is not None or units is not None:
        raise InvalidInput("delta and units are for faithful=True")
    shown = as_oracle(oracle)
    odds = shown if isinstance(shown, LogOdds) and answers != "values" else None
    run = Run(
        oracle if odds is None else odds.inner,
        algorithm="extract_three_layer",
        rng=rng,
        options={"answers": answers},
        progress=progress,
    )
    search = _Search(Session(run), ThreeLayerConfig() if config is None else config)

    def steps() -> ThreeLayerResult:
        try:
            search.session.look(answers, odds)
            return search.result(search.recovered())
        except NotFinite:
            return search.stopped(Status.ASSUMPTION_VIOLATED, NOT_FINITE)

    result = run.ended(
        steps, search.stopped, lambda result: explained(run.target, result, result.answers)
    )
    return search.session.as_asked(result, odds)


def _rows_of(first: FirstLayer | None) -> int:
    return 0 if first is None else first.rows.count


class _Search:
    """Starts of the algorithm, and the best that they have found.

    Attributes
    ----------
    first
        The first layer with most rows so far.
    doubtful
        The last network that its certificate did not confirm, and why.
    """

    def __init__(self, session: Session, config: ThreeLayerConfig) -> None:
        self.session, self.config = session, config
        self.first: FirstLayer | None = None
        self.doubtful: tuple[Ended, Candidate] | None = None
        self.starts, self.error = 0, np.inf

    def recovered(self) -> Ended:
        """Theorem 3, from fresh lines again where a start fails."""
        ended = Ended(Status.NUMERICAL_FAILURE, "")
        structural = 0
        # Lines that end where a probability does miss rows more often.
        enough = self.config.rounds if self.session.oracle.log_odds else 1
        for _ in range(self.config.rounds + 1):
            self.starts += 1
            before, self.first = self.first, None
            try:
                with as_breakdown():
                    return self.started()
            except Failed as failure:
                found = self.first if failure.rows is None else FirstLayer(failure.rows)
                self.first = found
                if _rows_of(found) >= _rows_of(before):
                    ended = Ended(failure.status, failure.message)
                if found is not None and found.parallel and not failure.final:
                    peeled = peel_over(self.session, depth=3)  # they may be rows
                    named = dataclasses.replace(ended, message=ended.message + PARALLEL)
                    return peeled if peeled.status is Status.RECOVERED else named
                structural += failure.structural
                # Rows that depend on each other do so from every start.
                same = failure.deeper or failure.status is Status.ILL_CONDITIONED
                same &= not self.session.oracle.log_odds
                if failure.final or same or structural > enough:
                    break
            except Saturated:
                ended = Ended(Status.NUMERICAL_FAILURE, SATURATED)
            except Breakdown as error:
                ended = Ended(Status.NUMERICAL_FAILURE, str(error))
            finally:
                if _rows_of(self.first) < _rows_of(before):
                    self.first = before
        self.confirm()
        return ended

    def confirm(self) -> None:
        """Keep those rows of a layer that was not completed which show elsewhere, too."""
        if self.first is None or self.first.rows.count == 0:
            return
        session = self.session
        with session.stage("first-layer rows") as details:
            rows = confirm_rows(
                session.oracle, self.first.rows, session.noise,
                scale=session.domain.scale, rng=session.rng, config=self.config.rows,
            )  # fmt: skip
            details |= {"rows": rows.count}
        self.first = dataclasses.replace(self.first, rows=rows)

    def started(self) -> Ended:
        """One start: the sections of the paper in turn."""
        session, config = self.session, self.config
        self.first = find_rows(session, config, self.expect)  # 3.5.1, 3.5.2
        if self.first.rows.count > session.domain.dimension:
            return self.peeled(self.first)  # without a right inverse
        self.first = orient(session, self.first, config)  # 3.5.3
        candidate = recover_top(session, self.first, config)  # 3.5.4
        candidate.check(*candidate.look_at_typical())
        return self.certified(candidate)

    def peeled(self, first: FirstLayer) -> Ended:
        """Peel the layers, beginning with hyperplanes that have no right inverse."""
        ended = peel_over(self.session, first.rows, depth=3)
        if ended.status is not Status.RECOVERED:  # some of them may be no rows
            message = f"{first.rows.count} first-layer hyperplanes were found; {ended.message}"
            raise Failed(ended.status, message, structural=True)
        return ended

    def expect(self, kinks: int, first: int, deeper: int) -> None:
        """Plan the price, by what a line has shown."""
        target = self.session.run.target
        part = (first + 0.5) / (first + deeper + 1.0)
        log_odds = self.session.oracle.log_odds
        target.allowance.plan(
            price_three_layer(target.input_dim, target.output_dim, kinks, part, log_odds=log_odds)
        )

    def certified(self, candidate: Candidate) -> Ended:
        """Certify; what fails becomes data for another round, and a fresh certificate."""
        verdict: Verdict | None = None
        for left in range(self.config.rounds - 1, -1, -1):
            network = candidate.turned()
            verdict = candidate.certify(network)
            self.first, self.error = candidate.first, candidate.error
            widths = f"hidden widths {len(candidate.first.weights)} and {candidate.second_width}"
            status = Status.PARTIAL if verdict.message else Status.RECOVERED
            message = verdict.message or f"{widths}; {verdict.certificate}"
            ended = Ended(status, message, network, verdict.certificate, (candidate.second_width,))
            if not verdict.message:
                return ended
            self.doubtful = ended, candidate
            if left == 0 or not verdict.teaches:
                break
            # The certificate's rows are the search's now.
            spent = self.session.run.stages[-1].queries
            self.session.oracle.meter.rebook("certificate", "repair", spent)
            candidate.check(verdict.points, verdict.answers)
        return ended

    def stopped(self, status: Status, message: str) -> ThreeLayerResult:
        """Return what is known where the run ends early."""
        return self.result(Ended(status, message))

    def result(self, ended: Ended) -> ThreeLayerResult:
        """Put the result together."""
        session = self.session
        if ended.network is None and self.doubtful is not None:
            # What came after a certificate that failed did no better: better that than nothing.
            doubtful, _ = self.doubtful
            message = f"{doubtful.message}; then: {ended.message}"
            ended = dataclasses.replace(doubtful, status=ended.status, message=message)
        network, signed = ended.network, False
        weights, biases = np.empty((0, session.domain.dimension)), np.empty(0)
        if self.first is not None:
            weights, biases, signed = self.first.weights, self.first.biases, self.first.signed
        if network is not None:  # the polished ones
            weights, biases, signed = network.weights[0], network.biases[0], True
        return ThreeLayerResult(
            status=ended.status,
            message=ended.message,
            queries=session.oracle.queries,
            provenance=session.run.provenance,
            network=None if network is None else session.network_of_target(network),
            certificate=ended.certificate,
            stages=tuple(session.run.stages),
            first_width=len(weights),
            second_width=ended.widths[-1] if network is not None else 0,
            first_weights=weights,
            first_biases=biases,
            first_signed=signed,
            condition=float(np.linalg.cond(weights)) if len(weights) else 0.0,
            starts=self.starts,
            check_error=float(self.error) if np.isfinite(self.error) else 0.0,
            noise=session.noise_of_target(),
            answers="log-odds" if session.oracle.log_odds else "values",
        )
