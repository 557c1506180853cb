"""Learn a depth-2 network with biases from Gaussian samples.

Reference
    Awasthi, Tang & Vijayaraghavan 2021, *Efficient Algorithms for Learning
    Depth-2 Neural Networks with General ReLU Activations*.
Setting
    Labelled samples only: x ~ N(0, I) (or any Gaussian, whitened first) and
    ``y = sum_i a_i relu(w_i.x + b_i)``, perhaps plus independent noise.
Assumptions
    The ``w_i`` are independent (order 1), or the ``w_i w_i^T`` are (order 2 and
    the default route, m up to about d(d-1)/2); no ``a_i`` is zero.
Guarantee
    RECOVERED promises: without noise, every training sample is met to rounding
    and no held-out sample deviates by more than the certificate's tolerance;
    with noise, the residual is uncorrelated with all polynomials of degree 4 in
    x, its square with those of degree 2, its mean is even along every unit and
    input, neighbours' residuals are unrelated, and the held-out error is the
    noise: tests that pure noise fails once in 10,000 times, and a misfit above
    the share of the noise that the message names almost surely. What they see
    is APPROXIMATED: a network with its measured error, no claim beyond it.
    Units are unique up to order and orientation (Theorem 3.4); orientations are
    as ``signs_determined`` says. Kinks that no sample reached are folded into
    an affine term (Lemma 5.9).

Each row: the function as printed; the one in practice, where it is another; the deviation, by
number; the test that fails if it breaks.

==============================  =======================================================
paper                           here
==============================  =======================================================
Lemma 3.5                       ``unrelu.core.hermite.relu_coefficient``; test
                                test_lemma_3_5_against_quadrature
Proposition 3.6                 ``unrelu.gaussian.identifiability.hermite_risk``; test
                                test_risk_is_the_mean_square_distance
Lemma 4.3                       a fact that the two tensors rest on; deviation 6; test
                                test_separation_of_roots
equation (14), Lemma 5.2        ``unrelu.gaussian.printed.empirical_tensors``; in practice
                                ``unrelu.gaussian.stream.estimate_moments``; deviation 1; tests
                                test_equation_14_is_unbiased_and_tells_its_error,
                                test_control_variates_cut_the_noise_and_keep_the_mean
Algorithm 1, Theorems 4.1, 4.2  :func:`learn_from_population`, any order; test
                                test_population_mode
Algorithm 2, Lemma 4.5          ``unrelu.gaussian.awasthi.recover_scalars``; in practice
                                ``unrelu.core.moment_fit.fit_scalars``; deviations 2, 7; test
                                test_recover_scalars_needs_the_shifted_index
Algorithm 3, FIXSIGNS           ``unrelu.gaussian.awasthi.fix_signs``; in practice
                                ``unrelu.gaussian.polish.orient``; deviation 4; test
                                test_fix_signs_turns_units_back
Algorithm 4, steps 1-4          ``unrelu.gaussian.awasthi.recover_directions``; in practice
                                ``unrelu.core.decompose.decompose``; deviations 2, 3, 8; test
                                test_a_unit_at_a_root_of_a_hermite_polynomial_is_not_lost
Algorithm 4, Theorem 5.1        ``unrelu.gaussian.awasthi.robust_algorithm``; in practice
                                :func:`learn_from_samples`; tests test_the_papers_route,
                                test_order_two_finds_more_units_than_inputs
Algorithm 5, Theorem 3.2        :func:`learn_as_printed`; in practice
                                ``unrelu.gaussian.improper.truncated_regression``; deviation 5;
                                test test_algorithm_5_learns_to_epsilon
Lemma 5.8, the eight features   ``unrelu.gaussian.printed.sign_features``; in practice two of
                                them (footnote 5); test test_eight_features_stand_for_a_unit
Algorithm 5, step 4             ``unrelu.gaussian.printed.projected_descent``; test
                                test_projected_descent_ends_within_its_bound_of_the_least_loss
Lemma 5.9                       ``unrelu.gaussian.polish.without_undetermined``; test
                                test_units_that_few_samples_determine_become_affine
Algorithm 6, Theorem 3.1        ``unrelu.gaussian.awasthi.full_rank_algorithm``; test
                                test_full_rank_algorithm_on_exact_tensors
Claim B.5                       ``unrelu.gaussian.improper.consolidated_network``; test
                                test_truncated_regression_and_claim_b5
Theorem 3.4, Claim 4.8          ``unrelu.gaussian.identifiability.identifiability``; test
                                test_claim_4_8_pair_is_found
Algorithm 4, step 4             ``recover_directions``; deviation 8; test
                                test_near_units_of_one_tensor_are_not_one_and_the_same_of_two_is
Corollary 3.3                   measured by the moments alone: benchmarks/letter_awasthi.py;
                                test test_corollary_3_3_needs_smoothing_and_no_more
several outputs (not printed)   ``unrelu.gaussian.outputs.Outputs``; deviation 9; test
                                test_joint_tensors_show_units_that_no_output_shows_alone
==============================  =======================================================

Deviations
    1. The moments are those of the labels minus their fit of degree 2 (an
       unbiased control variate; it cuts the variance tenfold and more).
    2. By default (``method="power"``) the stacked T2, T3, T4 are decomposed by
       the subspace power method and a least-squares fit of all orders; T2's
       coefficient ``a phi(b)`` never vanishes, and no T5, T6 are needed for
       m > d. ``order=l`` runs the paper's own route.
    3. The width is the count of singular values above the noise measured by
       split halves, and is corrected by the polish.
    4. A polish on the samples follows: Levenberg-Marquardt in ``|z|``.
    5. Algorithm 5's projected gradient descent is an exact ridge solve, on the rows
       that the moments were taken from too: no split into N/2, no tau. As printed it
       is :func:`learn_as_printed`, whose head says what the paper leaves open.
    6. Condition (5), second half, lacks a factor xi_i in print: ``a_i xi_i b_i
       Phi(xi_i b_i)`` is what f_0 of Lemma 3.5 gives. Lemma 4.3 holds for
       ``He_{k+1}, He_{k+2}`` with k >= 1, as in its proof.
    7. RECOVERSCALARS's index is read as the tensor's order: q - 2 and ``He_{q-2}``.
    8. Jennrich's algorithm keeps the best of 20 pairs of contractions; eta_1 is the
       spectral norm of the tensors' measured error. A tensor's distinct entries, in
       isometric coordinates, stand for the dense array: its flattenings have the same
       singular values. Step 4 looks for duplicates across the two tensors alone: terms of
       one tensor are different units, and smoothed ones may be nearer than eta_3.
    9. The paper's f is scalar. Outputs that share their units add their equations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import check_order
from unrelu.gaussian.conclude import Clock, conclude, constant_result, refused
from unrelu.gaussian.config import SampleOptions
from unrelu.gaussian.fit import SamplePolish
from unrelu.gaussian.identifiability import Identifiability, hermite_risk, identifiability
from unrelu.gaussian.inputs import check_gaussian as test_inputs
from unrelu.gaussian.inputs import whitening_for
from unrelu.gaussian.moment_stage import MomentEstimate, MomentInputs, moment_estimate
from unrelu.gaussian.outputs import Outputs
from unrelu.gaussian.population import learn_from_population
from unrelu.gaussian.printed import learn_as_printed
from unrelu.gaussian.reading import check_scale, for_precision, prepare
from unrelu.gaussian.result import SamplesResult
from unrelu.gaussian.stream import HoldOut, InputWhitening, ReadingPlan
from unrelu.gaussian.survey import SampleSurvey, survey_samples
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, QueryStats
from unrelu.samples import SampleSource, as_source

__all__ = [
    "Identifiability",
    "SampleOptions",
    "SamplesResult",
    "hermite_risk",
    "identifiability",
    "learn_as_printed",
    "learn_from_population",
    "learn_from_samples",
]

Method = Literal["power", "joint", "jennrich"]


def learn_from_samples(
    x: Any,
    y: Any = None,
    *,
    width: int | None = None,
    order: int | None = None,
    method: Method = "power",
    polish: bool = True,
    rng: RandomState = None,
    check_gaussian: bool = True,
    inputs: tuple[Any, Any] | None = None,
    max_width: int | None = None,
    jobs: int = 1,
    scheduler: Any = None,
    target: str = "y",
    progress: Progress | None = None,
    options: SampleOptions | None = None,
) -> SamplesResult:
    """Learn ``y = sum_i a_i relu(w_i.x + b_i)`` from samples with Gaussian x.

    Parameters
    ----------
    x, y
        Arrays ``(n, d)`` and ``(n,)``; or only x: a folder, a file or an iterable
        of batches (see :mod:`unrelu.samples`). Labels ``(n, q)`` of several outputs are
        learned together (arrays only, at most 64 inputs): their units are the same.
    width
        Number of units if known; discovered if None.
    order
        None for the stacked moments T2, T3, T4; a number l for the paper's route by
        Jennrich's algorithm on tensors of orders 2l + 1 and 2l + 2, with up to about d^l units.
    method
        Without ``order``: "power" (any width), or "joint" and "jennrich" (at
        most d units), which diagonalise many or two contractions.
    polish
        Whether to refine the moment estimate on the samples.
    rng
        Seed or generator.
    check_gaussian
        Whether to refuse inputs that are clearly not Gaussian.
    inputs
        Mean ``(d,)`` and covariance ``(d, d)`` of x, where known; otherwise estimated. x is
        whitened by them.
    max_width
        Never look for more units than this.
    jobs
        Threads that read and add up.
    scheduler
        A ``distributed.Client``; dask arrays use the current one.
    target
        Label column of Parquet files.
    progress
        Receives updates.
    options
        Sizes and tolerances.

    Returns
    -------
    SamplesResult

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> truth = unrelu.planted.random_network(5, 2, 1, rng=0)
    >>> x = np.random.default_rng(0).standard_normal((10_000, 5))
    >>> unrelu.learn_from_samples(x, truth(x)[:, 0], rng=0).width
    2
    """
    order = _checked_order(width, order, method, max_width, jobs)
    options = SampleOptions() if options is None else options
    generator, report, clock = as_generator(rng), as_progress(progress), Clock()
    outputs = Outputs.of(x, y, generator)
    source = as_source(x, y if outputs is None else outputs.mixed, target=target)
    asked = {"width": width, "order": order, "method": method, "polish": polish,
             "check_gaussian": check_gaussian, "max_width": max_width}  # fmt: skip
    seed = int(rng) if isinstance(rng, (int, np.integer)) else None
    provenance = Provenance("awasthi-tang-vijayaraghavan", seed, asked, source.description)
    first, everything, plan = prepare(source, options, jobs, scheduler)
    count = first.count or 0
    held = HoldOut.among(count, options.held_rows)
    survey = survey_samples(
        first, plan, rng=generator, held=held, stride=max(count // options.keep_rows, 1),
        progress=lambda n: report.update("survey", n, count),
    )  # fmt: skip
    test = test_inputs(survey, effect=options.effect)
    clock.close("survey", survey.summary, **test.details)
    stats = QueryStats(samples=survey.count)
    if check_gaussian and not test.passed:
        return refused(test, stats, provenance, clock)
    check_scale(survey)
    options, whitening = for_precision(options, survey), whitening_for(survey, inputs)
    if survey.label_scale == 0.0 or whitening.factor.shape[1] == 0:
        result = constant_result(survey, stats, provenance, clock, test)
        return result if outputs is None else outputs.constant(result)
    progressed = partial(report.update, "moments", total=everything.count)
    estimate, outer = _moments(
        outputs, everything, plan, survey, whitening, held, generator, options, asked, progressed
    )
    stats = QueryStats(samples=max(survey.count, estimate.samples))
    clock.close("moments", estimate.message, **estimate.details)
    learner = SamplePolish(
        source=first if everything.restartable else None, plan=plan, survey=survey,
        whitening=whitening, held=held, rng=generator, sizes=options, width=width,
        max_width=max_width, gaussian=test.passed,
        report=lambda note: report.update("polish", 0, None, note),
    )  # fmt: skip
    fit = learner.run(estimate, polish=polish)
    clock.close("polish" if polish else "affine fit", fit.message, **fit.details)
    result = conclude(fit, estimate, survey, whitening, test, stats, provenance, clock, options)
    return result if outputs is None else outputs.conclude(result, learner, outer, options)


def _moments(
    outputs: Outputs | None,
    everything: SampleSource,
    plan: ReadingPlan,
    survey: SampleSurvey,
    whitening: InputWhitening,
    held: HoldOut,
    rng: np.random.Generator,
    options: SampleOptions,
    asked: dict[str, Any],
    progress: Callable[[int], None],
) -> tuple[MomentEstimate, FloatArray]:
    """Estimate the units from moments, of one output or of several."""
    known: Any = {name: asked[name] for name in ("width", "order", "max_width")}
    if outputs is not None:
        return outputs.moment_estimate(
            plan, survey, whitening, held, rng, options.polish, progress=progress, **known
        )
    inputs = MomentInputs.of(survey, whitening, asked["width"])
    estimate = moment_estimate(
        everything, plan, inputs, held, rng, options.polish, method=asked["method"],
        progress=progress, **known,
    )  # fmt: skip
    return estimate, estimate.a


def _checked_order(
    width: int | None, order: int | None, method: str, max_width: int | None, jobs: int
) -> int | None:
    """Refuse arguments that make no sense; return the order."""
    if width is not None and width < 0:
        raise InvalidInput(f"width must not be negative, got {width}")
    if max_width is not None and max_width < 0:
        raise InvalidInput(f"max_width must not be negative, got {max_width}")
    if method not in ("power", "joint", "jennrich"):
        raise InvalidInput(f"method must be 'power', 'joint' or 'jennrich', got {method!r}")
    if jobs == 0:
        raise InvalidInput("jobs must not be 0")
    return None if order is None else check_order(order, 1)
