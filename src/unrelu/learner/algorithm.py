"""Learn any one-hidden-layer ReLU network to a chosen accuracy (Chen, Klivans & Meka).

Reference
---------
S. Chen, A. R. Klivans and R. Meka, *Efficiently Learning Any One Hidden Layer
ReLU Network From Queries*, 2021.

Setting
-------
Black-box access to ``F(x) = sum_i s_i relu(<w_i, x> - b_i)`` (any output
weights, an affine part and several outputs are fine), of any width, with
neurons that may coincide, nearly coincide, cancel, or form thin bumps. The
answers may carry rounding or noise.

Assumptions
-----------
``|w_i| <= R`` and ``|b_i| <= B`` for k neurons. Remark 1.3: a bump of width w, however
high, takes about 1/w queries to find, so some such bound cannot be done without.
What counts is V, what the norms of the neurons that may hide add up to:

- k and R given: V = k R, as neurons that coincide add up, and the norms found. No assumption.
- R given: V = k R with k as found.
- nothing given: V is what all norms found add up to, or, if that is more, what the rounding
  noise of the answers gives away.

The result says which values are in force. ``narrowest`` is about the search alone.

Guarantee
---------
RECOVERED: given V, with confidence ``1 - delta`` over fresh inputs,
``E[(F - F')^2] <= epsilon^2`` under N(0, I), summed over all outputs, for the epsilon
that the caller asked for. The certificate adds two parts.

- What 5000 Gaussian inputs show: the mean square and its sampling error, and ``c / n`` times
  the square of what would not have stood out.
- What none shows. ``F - F'`` is a sum of functions of one direction each. Of n
  inputs twice as large, ``x = 2 g``, one would have hit a slab on which such a function
  is not zero, but for odds of ``delta / 2``, if the slab held more than
  ``c / n`` of their mass, ``c = log(2 / delta)``. Slabs of less mass, wherever they lie,
  half-spaces included, lose at most ``phi(0) w^3 (V / 4)^2 / 12`` with
  ``w = 2 c / (n phi(0))``: a triangle of width w at the origin whose slopes ``V / 4`` take all
  neurons. So ``n = 18.5 / w`` for delta = 0.05, where w is the width at which such a
  triangle loses epsilon^2 / 3: n grows as ``(k R / epsilon)^(2/3)``. Gaussian inputs alone
  would need ``(k R / epsilon)^2``: where they seldom come, a bump is as wide as it likes.

Where that takes more than ``certificate_samples`` the status is PARTIAL, and says what
could hide. An input that stands out (by 2 epsilon, beside the noise) contradicts the
network: lines through it are searched, its certificate's rows are booked to the search,
and a fresh certificate ends that. What stays unexplained is APPROXIMATED
wherever V is an assumption, for it shows that there is more than was found.

Map to the paper
----------------
As printed; in practice; how the two deviate; the test that fails where the line is broken.
What the printed version had to decide, and why: the head of :mod:`unrelu.learner.boxes`.

==============================  =====================================================
Algorithm 1                     :func:`unrelu.learner.boxes.get_bias`; in practice
                                ``survey``; deviates: pieces are read from their kinks;
                                test_get_bias_is_the_intercept_of_the_piece
Algorithm 2, Lemma 4.9          :func:`unrelu.learner.boxes.get_gradient`; in practice
                                ``measure_gradients``; deviates: coordinate directions,
                                the longest step that stays in the piece;
                                test_get_gradient_is_exact_inside_a_piece
Algorithm 3, Theorem 4.8        :func:`unrelu.learner.boxes.get_neurons`; in practice
                                ``Learning.first_line`` and ``Learning.follow_residual``;
                                deviates: kinks are searched, neighbours alone subtracted;
                                test_get_neurons_lists_every_neuron_up_to_sign
Algorithm 4, Theorem 1.1        :func:`unrelu.learner.boxes.learn_from_queries_as_printed`
                                (``faithful=True``); in practice
                                :func:`neurons_from_queries`; deviates: coefficients are
                                read from jumps, a certificate vouches;
                                test_algorithms_1_to_4_learn_small_networks,
                                test_theorem_1_1_what_may_hide_is_k_times_r_and_what_was_found
Line 3 of GETNEURONS, Delta     ``separation``; in practice none; deviates: P = k R;
                                test_line_3_delta_is_the_power_9_2_of_epsilon_over_k_r
Lemma 4.4, equation (12), r     ``interval_length``; in practice none;
                                test_equation_12_the_length_of_an_interval,
                                test_lemma_4_4_neurons_that_are_not_close_have_kinks_apart
Lemma 4.3, equation (13), tau   ``search_range``; in practice the whole line; deviates: B
                                and 1 / delta as in the proof;
                                test_equation_13_the_range_as_the_proof_of_lemma_4_3_has_it,
                                test_lemma_4_3_kinks_lie_within_the_range_but_for_odds_of_delta
Lemma 4.10, alpha               ``gradient_step``; in practice the room beside the kinks;
                                test_lemma_4_10_the_step_of_a_gradient,
                                test_lemma_4_10_no_kink_lies_within_the_step_of_a_midpoint
Equations (14) and (21)         ``neuron_bounds``, ``coefficient_bound``; in practice none;
                                deviates: W counts S without doubles;
                                test_equations_14_and_21_bounds_on_neurons_and_coefficients
Equation (19)                   ``bounded_least_squares``; in practice ``Learning.regress``;
                                deviates: only where samples disagree;
                                test_bounded_least_squares_is_plain_inside_and_on_the_sphere_outside
Definition 3.7                  ``close_groups``; in practice the same;
                                test_close_groups_finds_clusters_up_to_sign_and_nothing_else
Lemma 3.21                      ``merge_clusters``; in practice the same;
                                test_clusters_become_the_few_neurons_of_lemma_3_21
Example 1.2, Remark 1.3         ``bump_square_loss``, ``samples_to_see``; in practice the same;
                                test_bump_loss_against_a_planted_bump,
                                test_samples_to_see_keeps_its_odds
==============================  =====================================================

Deviations
----------
- Intervals of one length r are replaced by an adaptive search for the kinks of the line:
  with the paper's powers two neurons in two inputs ask for 5e13 queries (epsilon = 0.1 of
  R = B = 1, delta = 0.1). ``faithful=True`` keeps them.
- Differences of neighbouring pieces instead of all pairs: across a cluster too
  tight to resolve, the difference is the v* of Lemma 3.21.
- Coefficients are the +-1 of Theorem 4.8, read from the jumps. Least squares runs at the end, if
  samples still disagree, and is kept if held-out ones agree better: earlier, every kink is back.
- Gaussian samples, for validation too, and the certificate look for bumps; a line through
  the worst sample finds the neurons behind it.
- A bump is a sum of large terms that cancel. Their rounding noise remains and betrays them:
  the search goes on until the noise is explained, or ``probes`` samples are spent.
- Constant noise: directions are measured far out, where it is relatively small, biases at
  points whose gates are certain (:mod:`unrelu.learner.far`).
- Coarse answers leave errors that samples average out: all neurons are fitted together
  (:mod:`unrelu.core.fit`). Weak neurons are grown from the residual's moments.
- Clusters are merged and flat neurons dropped at the end, within epsilon / 3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from unrelu._random import RandomState
from unrelu._types import FloatArray
from unrelu.core.explain import Contradictions
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.learner.certificate import Claim, SquareLoss, certify_square_loss
from unrelu.learner.config import DELTA, LearnerConfig
from unrelu.learner.explained import contradicting_answers, explained_copy
from unrelu.learner.printed import neurons_as_printed
from unrelu.learner.request import Request, checked_hints
from unrelu.learner.run import Learning
from unrelu.learner.search import gaussian_line
from unrelu.learner.verdict import LearnerResult, bounds_in_force, result_of, verdict
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress
from unrelu.result import Status

__all__ = ["LearnerConfig", "LearnerResult", "learn_from_queries", "learn_with_hints"]


def learn_from_queries(
    oracle: Any,
    *,
    epsilon: float,
    relative: bool = False,
    delta: float = DELTA,
    rng: RandomState = None,
    progress: Progress | None = None,
    faithful: bool = False,
    width: int | None = None,
    norm_bound: float | None = None,
    bias_bound: float | None = None,
    narrowest: float | None = None,
    certificate_samples: int | None = None,
    config: LearnerConfig | None = None,
) -> LearnerResult:
    """Learn a network with ``E[(F - F')^2] <= epsilon^2`` under N(0, I), from queries.

    Parameters
    ----------
    oracle
        Anything that :func:`~unrelu.oracles.as_oracle` takes.
    epsilon
        Root mean square error allowed, in answer units, all outputs taken together: an
        output that varies by less is not vouched for, and named.
    relative
        Take ``epsilon`` in units of the standard deviation of F under N(0, I).
    delta
        The certificate's bound may fail with this probability.
    rng, progress
        Seed or generator (the same seed gives the same result), and what receives updates.
    faithful
        Run Algorithms 1-4 as printed, with ``config.constants`` for what the
        paper leaves open. Needs ``width``, ``norm_bound`` and ``bias_bound``.
    width, norm_bound, bias_bound
        k, R and B of Theorem 1.1, where known. In practice k R matters: it says how thin a bump
        can be and still cost epsilon. With both given, RECOVERED rests on no assumption.
    narrowest
        Width of the narrowest bump to look for, in input units: it takes about
        ``28 / narrowest`` samples. By default R decides, or, where that is not
        given either, the R seen, within a part of the queries spent anyway.
    certificate_samples
        Fresh inputs of the certificate at most.
    config
        Tolerances and sizes.

    Returns
    -------
    LearnerResult
        RECOVERED promises the bound above, given k and R. ``assumed`` says what was
        given and what assumed; ``reached`` what accuracy the certificate vouches for.

    >>> import unrelu
    >>> target = unrelu.planted.random_network(4, 2, 1, rng=0)
    >>> unrelu.learn_from_queries(target, epsilon=0.01, relative=True, rng=0).success
    True
    """
    request = Request(
        epsilon=epsilon,
        delta=delta,
        relative=relative,
        faithful=faithful,
        width=width,
        norm_bound=norm_bound,
        bias_bound=bias_bound,
        narrowest=narrowest,
        certificate_samples=certificate_samples,
    )
    return _learn(oracle, request, None, rng=rng, progress=progress, config=config)


def learn_with_hints(
    oracle: Any,
    hints: tuple[FloatArray, FloatArray],
    *,
    request: Request,
    rng: RandomState = None,
    progress: Progress | None = None,
    config: LearnerConfig | None = None,
) -> LearnerResult:
    """Learn as :func:`learn_from_queries` does, and search lines through known points first.

    For an earlier method whose network was contradicted: what it saw is not dropped.

    Parameters
    ----------
    hints
        Inputs where another network was wrong, ``(n, d)``, and the answers that were
        seen there, ``(n, m)``. They are not asked again, and a network that one of them
        contradicts is not RECOVERED.
    request, rng, progress, config
        What :func:`learn_from_queries` takes.
    """
    return _learn(oracle, request, hints, rng=rng, progress=progress, config=config)


def _learn(
    oracle: Any,
    request: Request,
    hints: tuple[FloatArray, FloatArray] | None,
    *,
    rng: RandomState,
    progress: Progress | None,
    config: LearnerConfig | None,
) -> LearnerResult:
    config = LearnerConfig() if config is None else config
    if request.certificate_samples is not None:
        config = dataclasses.replace(config, most=request.certificate_samples)
    run = Run(
        oracle,
        algorithm="learn_from_queries",
        rng=rng,
        options=request.options(),
        progress=progress,
    )
    if request.faithful and run.target.output_dim != 1:
        raise InvalidInput("faithful=True is for a single output, as the paper is")
    learning = Learning(run, request, config)
    if hints is not None:
        learning.seen.add_doubts(*checked_hints(hints, run.target))

    def steps() -> LearnerResult:
        if request.faithful:
            network = neurons_as_printed(learning)
            checked = certify(learning, network, patient=True)
        else:
            neurons_from_queries(learning)
            network, checked = certified(learning)
        return result_of(learning, *verdict(learning, network, checked), network, checked)

    def stopped(status: Status, message: str) -> LearnerResult:
        found = learning.neurons
        return result_of(learning, status, message, None if found is None else found.network())

    return run.ended(steps, stopped, lambda result: explained_copy(learning, result))


# ------------------------------------------------------------ LEARNFROMQUERIES


def neurons_from_queries(learning: Learning) -> None:
    """LEARNFROMQUERIES in practice: lines, then samples that follow up what they missed."""
    seen, config = learning.seen, learning.config
    line, seeds = learning.look()
    for attempt in range(config.lines):
        if attempt:
            line = gaussian_line(learning.d, learning.rng)
            with learning.run.stage("calibration"):
                seeds = learning.clusters(line)
        neurons = learning.first_line(line, seeds)
        learning.keep(neurons)
        if seen.coarse:
            neurons = learning.polish(neurons)
            learning.keep(neurons)
        neurons = learning.validate(neurons)
        learning.candidates.append(neurons)
        if seen.coarse:
            neurons = learning.grow(neurons)
        learning.keep(neurons)
        hopeless = seen.square_error(neurons) > (config.foreign * seen.spread) ** 2
        if seen.good(neurons) or (hopeless and attempt + 1 >= config.futile):
            break
    if not seen.good(learning.best):
        learning.regress()
    learning.finish(learning.best)


# ---------------------------------------------------------------- certificates


def certified(learning: Learning) -> tuple[ReLUNetwork, SquareLoss]:
    """Return the network with its certificate; one that fails is data for another search."""
    for left in reversed(range(learning.config.lines)):
        network = learning.best.network()
        searchable = left > 0 and learning.seen.good(learning.found)
        checked = certify(learning, network, patient=not searchable)
        if not searchable:
            break
        missed = contradicting_answers(learning, network)
        contradicted = bool(missed) or _contradicts(learning, checked)
        if not contradicted or not _search_on(learning, checked, missed):
            break
    if checked.cut_short:  # nothing explains what it met: say how much that is
        checked = certify(learning, network, patient=True)
    return network, checked


def certify(learning: Learning, network: ReLUNetwork, *, patient: bool) -> SquareLoss:
    """Ask fresh inputs, few where the samples have shown already that epsilon is not reached."""
    seen, config = learning.seen, learning.config
    if learning.neurons is not None and seen.square_error(learning.neurons) > seen.epsilon**2:
        config = dataclasses.replace(config, most=min(config.most, config.held_out))
    facts = bounds_in_force(learning, network)
    claim = Claim(
        network=network,
        found=network if learning.learned is None else learning.learned,
        epsilon=seen.epsilon,
        delta=learning.request.delta,
        total=float(facts["norms that may hide, in all"]),
        allowed=seen.allowed,
        missed=seen.missed,
        noisy=seen.noisy,
        facts=facts,
    )
    held = len(seen.x)
    learning.run.progress.update("certificate", 0, None)
    with learning.run.stage("certificate"):
        return certify_square_loss(
            learning.target,
            claim,
            expect=lambda samples: learning.expect(len(network.weights[0]), held + samples),
            rng=learning.rng,
            config=config,
            patient=patient,
        )


def _contradicts(learning: Learning, checked: SquareLoss) -> bool:
    """Whether a certificate saw what contradicts a network that the samples had agreed with.

    Inputs that stand out count even where the bound allows them: they show that there is more
    than was found, and thus that what was assumed of it may be wrong.
    """
    missed = checked.certificate.details["square loss"] > learning.seen.epsilon**2
    return missed or len(checked.hit_inputs) > 0


def _search_on(learning: Learning, checked: SquareLoss, missed: Contradictions) -> bool:
    """Hand what a failed certificate and the run saw to the search; False if it found nothing.

    Its rows then belong to the search. Where nothing came of it, the certificate stands.
    """
    seen, run = learning.seen, learning.run
    place = len(run.stages) - 1
    seen.add_doubts(checked.hit_inputs, checked.hit_answers)
    if missed:  # the certificate's own rows are in the record as well
        known = {row.tobytes() for row in checked.hit_inputs}
        new = [i for i, row in enumerate(missed.points) if row.tobytes() not in known]
        seen.add_doubts(missed.points[new], missed.answers[new])
    seen.add(checked.inputs, checked.answers, gaussian=True)
    seen.add(checked.wide_inputs, checked.wide_answers, gaussian=False)
    before = neurons = learning.found
    if seen.coarse:
        neurons = learning.polish_far(neurons)
    neurons = learning.validate(neurons)
    if seen.coarse:
        neurons = learning.grow(neurons)
    learning.finish(neurons)
    changed = neurons is not before
    if changed or checked.cut_short:
        report = run.stages[place]
        learning.target.meter.rebook("certificate", "residual search", report.queries)
        run.stages[place] = dataclasses.replace(report, name="residual search")
    return changed
