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
===========================================  ====================================
3.5.1, candidate hyperplanes on a line       :meth:`FirstLayer.search_line`
3.5.2, Algorithm 7, layer of a hyperplane    :func:`unrelu.extraction.deep_layers.find_first_layer`
FIND_HP, Algorithm 3, for the first layer    :func:`unrelu.extraction.deep_rows.measure_rows`
3.5.3, signs by z orthogonal to other rows   :func:`unrelu.extraction.deep_signs.orient_rows`
3.5.4, top two layers by a right inverse     :class:`unrelu.extraction.deep_top.TopOracle`
Theorem 2, depth 2 on the orthant            :class:`unrelu.extraction.deep_orthant.OrthantSearch`
===========================================  ====================================

Deviations
----------
- Algorithm 7 goes beyond each other hyperplane in turn; here one goes far along
  the hyperplane to both sides, which crosses most of them at once. That needs
  one direction inside the hyperplane, so normals are measured for first-layer
  kinks only.
- Flat spots are inconclusive, and another place is tried.
- Rows are measured in a random subspace of a few more than d1 dimensions and
  lifted: every gradient is a combination of the rows.
- Hyperplanes parallel to a row are left to the second layer first; where that fails they
  are rows, W has no right inverse, and the way below for d1 > d is taken.
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
  system grows with the number of parameters. Small networks are fitted to all answers
  gathered instead, at no query (:mod:`unrelu.extraction.deep_polish`).
- A certificate that fails is data: units are searched towards its points, all is refined
  again, and a fresh certificate decides.
- Where W has no right inverse (d1 > d) the top layers cannot be asked on their own.
  Second-layer units are then put together from the places where lines cross
  their surfaces, which also tells the signs of the first layer
  (:mod:`unrelu.extraction.deep_surfaces`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.answers import values_where_refuted
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import explained
from unrelu.core.price import price_three_layer
from unrelu.core.record import remembered, with_plan
from unrelu.errors import BudgetExhausted
from unrelu.extraction.deep_answers import NotFinite, Saturated
from unrelu.extraction.three_layer_config import Failed, ThreeLayerConfig
from unrelu.extraction.three_layer_stages import Extraction
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, Status

__all__ = ["ThreeLayerConfig", "ThreeLayerResult", "extract_three_layer"]

SATURATED = (
    "probabilities underflow to 0 or 1 at points that the extraction needs, where log-odds "
    "cannot be read; ask the target for logits, or scale its inputs down"
)
PARALLEL = (
    ". Some hyperplanes are parallel to a row; taken for second-layer ones, and for rows, they "
    "do not explain the answers: W has no right inverse, and the surfaces above do not tell it"
)


@dataclasses.dataclass(frozen=True, repr=False)
class ThreeLayerResult(RecoveryResult):
    """A recovered depth-3 network and what is known about it.

    Attributes
    ----------
    first_width, second_width
        Units found in the two hidden layers, the carriers of the affine term
        not counted.
    first_weights, first_biases
        First-layer hyperplanes found, ``(k, d)`` and ``(k,)``, of unit length;
        given also where the rest failed.
    first_signed
        Whether their orientation is known.
    condition
        Of W.
    starts
        Lines on which the whole was begun.
    check_error
        Largest deviation at the checks over the spread of the answers.
    noise
        Standard deviation of an answer's error, at typical inputs.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    first_width: int = 0
    second_width: int = 0
    first_weights: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    first_biases: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    first_signed: bool = False
    condition: float = 0.0
    starts: int = 0
    check_error: float = 0.0
    noise: float = 0.0
    answers: str = "values"


@values_where_refuted
def extract_three_layer(
    oracle: Any,
    *,
    answers: Literal["auto", "values", "probabilities"] = "auto",
    rng: RandomState = None,
    progress: Progress | None = None,
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
    config
        Tolerances and sizes.

    Returns
    -------
    ThreeLayerResult
        RECOVERED promises that the network agreed with the target at every
        held-out point of the certificate within its tolerance. PARTIAL gives
        the first-layer hyperplanes that were found, and says what stopped it.
        For probabilities the network gives logits, of which one is always zero.
    """
    shown = as_oracle(oracle)
    odds = shown if isinstance(shown, LogOdds) and answers != "values" else None
    target = remembered(shown if odds is None else odds.inner)
    config = ThreeLayerConfig() if config is None else config
    run = Extraction(target, as_generator(rng), as_progress(progress), config)
    provenance = Provenance(
        algorithm="extract_three_layer",
        seed=rng if isinstance(rng, int) else None,
        options={"answers": answers},
        target=target.identity,
    )

    def expect(kinks: int, first: int, deeper: int) -> None:
        target.allowance.plan(
            price_three_layer(
                target.input_dim,
                target.output_dim,
                kinks,
                (first + 0.5) / (first + deeper + 1.0),
                log_odds=run.oracle.log_odds,
            )
        )

    run.expect = expect
    certificate: Certificate | None = None
    status, message = Status.NUMERICAL_FAILURE, ""
    structural = 0
    try:
        with as_breakdown():
            run.look(answers, None if odds is None else odds.reference)
        for _ in range(config.restarts + 1):
            try:
                with as_breakdown():
                    run.start()
                    status, message, certificate = run.conclude()
                break
            except Failed as failure:
                certificate = None
                if run.remember():
                    status, message = failure.status, failure.message
                    if run.parallel or run.all_rows:
                        message += PARALLEL
                if run.parallel and not (run.all_rows or failure.final):
                    run.all_rows = True  # they may be rows: once more, with all of them
                    continue
                structural += failure.structural
                # Lines that end where a probability does miss rows more often.
                enough = config.restarts if run.oracle.log_odds else 1
                if failure.final or structural > enough:
                    break
            except Saturated:
                status, message = Status.NUMERICAL_FAILURE, SATURATED
            except Breakdown as error:
                status, message = Status.NUMERICAL_FAILURE, str(error)
    except BudgetExhausted as error:
        status = Status.BUDGET_EXHAUSTED
        message = f"{error}; what was found until then is returned"
    except NotFinite:
        status = Status.ASSUMPTION_VIOLATED
        message = (
            "some answers are not finite: the extraction needs answers far from the origin; "
            "probabilities are read as log-odds if asked for themselves"
        )
    except Breakdown as error:
        status, message = Status.NUMERICAL_FAILURE, str(error)
    if run.network is None and run.doubtful is not None and status is not Status.RECOVERED:
        # What came after a certificate that failed did no better: better that than nothing.
        run.network, run.second_width, verdict = run.doubtful
        certificate = verdict.certificate
        message = f"{verdict.message}; then: {message}"
    result = _result(target, run, status, message, provenance, certificate)
    result = with_plan(explained(target, result, result.answers), target, oracle)
    if odds is not None and result.network is not None and odds.output_dim > 1:
        result = dataclasses.replace(result, network=_without(result.network, odds.reference))
    return result


def _result(
    target: Oracle,
    run: Extraction,
    status: Status,
    message: str,
    provenance: Provenance,
    certificate: Certificate | None,
) -> ThreeLayerResult:
    network = run.network
    run.remember()
    weights, biases, signed = run.best
    if network is not None:  # the polished ones
        weights, biases, signed = network.weights[0], network.biases[0], True
        network = _logits(_in_units(network, run.oracle.units), run, target.output_dim)
    noise = 0.0
    if run.noise is not None:
        level = run.noise.std(np.array([run.domain.scale])) * run.oracle.units
        noise = float(level.max())
    return ThreeLayerResult(
        status=status,
        message=message,
        queries=run.oracle.queries,
        provenance=provenance,
        network=network,
        certificate=certificate,
        stages=tuple(run.stages),
        first_width=len(weights),
        second_width=run.second_width if network is not None else 0,
        first_weights=weights,
        first_biases=biases,
        first_signed=signed,
        condition=run.condition,
        starts=run.starts,
        check_error=float(run.check_error) if np.isfinite(run.check_error) else 0.0,
        noise=noise,
        answers="log-odds" if run.oracle.log_odds else "values",
    )


def _in_units(network: ReLUNetwork, units: FloatArray) -> ReLUNetwork:
    """Return the network of the target's own answers."""
    return ReLUNetwork(
        [*network.weights[:-1], units[:, None] * network.weights[-1]],
        [*network.biases[:-1], units * network.biases[-1]],
    )


def _without(network: Network, output: int) -> ReLUNetwork:
    """Leave an output out: log-odds were asked for, which have none of the reference."""
    return ReLUNetwork(
        [*network.weights[:-1], np.delete(network.weights[-1], output, axis=0)],
        [*network.biases[:-1], np.delete(network.biases[-1], output)],
    )


def _logits(network: ReLUNetwork, run: Extraction, outputs: int) -> ReLUNetwork:
    """Give log-odds of several classes their reference back, as a zero logit."""
    if network.output_dim == outputs:
        return network
    at = run.reference
    return ReLUNetwork(
        [*network.weights[:-1], np.insert(network.weights[-1], at, 0.0, axis=0)],
        [*network.biases[:-1], np.insert(network.biases[-1], at, 0.0)],
    )
