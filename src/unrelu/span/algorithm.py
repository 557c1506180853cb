r"""The span of a network's first weights, from values or from labels.

Reference
---------
R. Jayaram, D. P. Woodruff, Q. Zhang, *Span Recovery for Deep Neural Networks
with Applications to Input Obfuscation*, ICLR 2020. Algorithms 1 and 2.

Setting
-------
A network M(x) = σ(A x) (a bias is allowed: A x + b) of any depth, seen through
its values or through labels: a threshold on an output or the argmax of several.
Sought is the row span of A, of rank r at most k. Gradients of M, and normals of
its decision boundary, lie in it.

Assumptions
-----------
Values: M is differentiable almost everywhere, and its gradients at Gaussian
points span what is to be found; the paper proves k/2 of it for ReLU networks
under its Assumptions 1 (orthant probabilities of A g at least γ/2^k) and 2 (no
cancelling products of weights). Labels: two labels occur among Gaussian points,
and boundaries are smooth on the scale of the first step.

Guarantee
---------
RECOVERED says: the rank stands clear of the noise floor; ``patience`` fresh
points in a row showed no gradient (normal) outside the span; and on held-out
inputs, replacing everything outside the span by noise of the input's own norm
left the answers where they were, up to the tolerance in the certificate, which
also bounds the share of inputs for which that may fail. What no Gaussian input
shows (a unit that never fires there) is not in the span. ``angle`` estimates
the sine of the largest angle between ``basis`` and the exact span to first
order; on the benchmark it was within a factor of 3.

From the paper to the code
--------------------------
As printed; in practice; how the two deviate; the test that fails where the line is broken.

=============================  =================================================
Section 3, Assumption 1        ``orthant_gamma_log2``; in practice the same;
                               test_assumption_1_orthogonal_rows_have_gamma_1_and_correlated_ones_less
Section 3, Assumption 2        ``least_product``, ``silent_share``; in practice the same;
                               deviates: random choices of units where there are many;
                               test_assumption_2_products_that_hide_a_row,
                               test_assumption_2_the_share_of_silence
Lemma 3.1                      ``lemma_width``; in practice none; deviates: the logarithm's
                               base is 2, as in the proof;
                               test_lemma_3_1_random_layers_of_its_width_meet_assumption_2,
                               test_lemma_3_1_wide_random_matrices_meet_assumption_1
Algorithm 1, Lemma 3.2         ``SpanPlan`` (``adaptive=False``); in practice
                               ``measure_gradient``; deviates: coordinate steps as long as
                               the function looks linear, points chosen by probing;
                               test_plan_and_replies,
                               test_gradient_equals_the_exact_one_and_counts_its_queries
Algorithm 1, line 6            ``spectrum_of_rows``; in practice the same; deviates: the rank
                               cut follows from the noise;
                               test_rank_and_angle_estimate_follow_the_noise
Lemma 3.3                      none; in practice none;
                               test_lemma_3_3_a_subspace_of_half_the_dimension_has_few_sparse_supports
Theorem 3.4                    ``gradients_needed``; in practice as many as add something;
                               test_theorem_3_4_half_of_the_span_where_the_assumptions_hold,
                               test_theorem_3_4_needs_assumption_2
Section 4, Assumptions 3, 4    ``threshold_assumptions``; in practice the same; deviates:
                               random subspaces for all of them;
                               test_assumptions_3_and_4_of_a_linear_threshold,
                               test_what_stops_algorithm_2_is_assumption_3
Algorithm 2, line 1            ``PrintedNumbers.carried``; in practice
                               ``measure_resolution``; deviates: N from the digits, or the
                               step from curvature and resolution;
                               test_line_1_the_numbers_that_an_arithmetic_carries
Algorithm 2, lines 2 to 11     ``adaptive_gradients`` (``faithful=True``), and in any
                               precision ``recover_span_precisely``; in practice
                               ``find_boundary``, ``find_offsets``, ``measure_normals``,
                               ``screen_boundary``; deviates: coordinate directions, a
                               spectrum for the deflation;
                               test_lines_5_to_9_give_a_gradient,
                               test_algorithm_2_as_printed_in_float64,
                               test_algorithm_2_in_multiple_precision
Proposition 4.1, line 4        ``adaptive_gradients``; in practice ``find_boundary``; deviates:
                               both end at the resolution of the labels;
                               test_algorithm_2_as_printed_in_float64
Lemma 4.2, lines 5 to 9        ``adaptive_gradients``; in practice ``measure_normals``;
                               test_lines_5_to_9_give_a_gradient
Theorem 4.3                    ``recover_span_precisely``; in practice ``recover_span``; deviates:
                               Assumption 3 may end it early, and is told;
                               test_algorithm_2_in_multiple_precision,
                               test_what_stops_algorithm_2_is_assumption_3
Figures 1 and 2                benchmarks/letter_jayaram.py, by the chain rule; in practice
                               benchmarks/span.py, by queries; deviates: both readings of the
                               head; test_figures_count_live_samples_in_both_readings
Section 5, Figure 3            ``obfuscate``; in practice the same;
                               test_noise_of_the_asked_norm_leaves_the_answers
=============================  =================================================

Deviations
----------
* Steps of 2^-poly(N) do not exist in floating point. Values: the step is the
  longest over which the function looks linear within its noise. Labels: the
  step balances the measured curvature and resolution of the boundary.
* Lines 5 and 8 of Algorithm 2 solve a system in directions 2^-N g_i - x/|x|, which are equal
  but for their last digits; coordinate directions from the boundary point itself measure
  the same normal, and need no solve. As printed they run with N = 4 in float64, and give 5
  digits for 14: ``faithful=True``.
* Deflation asks M at (I - P_V) x. Where the threshold is out of reach of the directions that
  are left (Assumption 3 fails) it ends one or more short of the rank, in any precision. More
  normals than the rank and a singular value decomposition replace it.
* Adaptive gradients (values): a few random probes tell how far a point's
  gradient leaves the known span; only the furthest is completed. That meets
  r·n queries up to a few per cent.
* Contrasts, not in the paper: a unit with a small output weight is hidden in every
  gradient by the errors of the others. The difference of two gradients at points
  far apart along that weak direction is this unit alone.
* Sharpening, not in the paper: once the rank is complete, steps along the null
  space may be longer than a linear piece by one over the error of the basis,
  and squash that error; each pass about squares it, down to the precision of
  the answers.
* The rank cut is derived from the noise, not 1e-5 of the largest.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from unrelu._numbers import real_number
from unrelu._random import RandomState
from unrelu._types import ArrayLike, FloatArray
from unrelu.core.run import Run
from unrelu.errors import InvalidInput, OracleError
from unrelu.oracles.base import Meter, Oracle, Wrapper
from unrelu.progress import Progress
from unrelu.span.config import SpanConfig
from unrelu.span.explained import explained_span
from unrelu.span.from_labels import span_as_printed, span_from_labels
from unrelu.span.from_values import (
    conclude_plan,
    read_blocks,
    span_from_plan,
    span_from_values,
)
from unrelu.span.obfuscate import Obfuscation, obfuscate
from unrelu.span.plan import SpanPlan, block_size
from unrelu.span.price import price_span, price_span_from_labels
from unrelu.span.run import SpanResult, SpanRun

__all__ = [
    "Obfuscation",
    "SpanConfig",
    "SpanPlan",
    "SpanResult",
    "obfuscate",
    "recover_span",
    "recover_span_from_replies",
]


class _OneOutput(Wrapper):
    """Shows one output of an oracle."""

    def __init__(self, inner: Oracle, output: int) -> None:
        super().__init__(inner)
        self.output = output
        self.output_dim = 1

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return self.inner._answer(points, repeat)[:, [self.output]]


def recover_span(
    target: Any,
    *,
    rank: int | None = None,
    answers: Literal["values", "labels"] = "values",
    outputs: Literal["all"] | int = "all",
    adaptive: bool = True,
    gradients: int | None = None,
    tolerance: float | None = None,
    scale: float = 1.0,
    certify: bool = True,
    faithful: bool = False,
    rng: RandomState = None,
    budget: int | None = None,
    progress: Progress | None = None,
    config: SpanConfig | None = None,
) -> SpanResult:
    """Recover the subspace of inputs that a target depends on.

    Parameters
    ----------
    target
        An oracle, or anything that :func:`unrelu.connect` accepts.
    rank
        The span's dimension, if known; growing stops there. Discovered
        otherwise.
    answers
        "values": the answers are real numbers. "labels": one column of labels,
        such as a threshold or an argmax; only equality is used.
    outputs
        Values only: "all" outputs, at about r·n/m queries, or the index of one
        (the paper's experiments use output 0).
    adaptive
        Values only: choose points by probing. False asks only what
        :class:`SpanPlan` writes down in advance.
    gradients
        Number of gradients for ``adaptive=False``; by default 1.2 per rank
        and a few, which must then be given.
    tolerance
        Estimated sine of the largest angle at which the basis is sharp enough;
        by default 1e-8 from values and 1e-10 from labels. Below what a first
        round reaches, long null-space steps are added.
    scale
        Standard deviation of the Gaussian inputs.
    certify
        Whether to check held-out inputs.
    faithful
        Labels only: run Algorithm 2 as printed (:mod:`unrelu.span.printed`), lines 5 to 9
        and deflation included, with the numbers that float64 carries. Needs ``rank``. What
        stops it is Assumption 3, not floating point: where no input outside of the
        directions found has another label than the origin, the status is PARTIAL.
    rng
        Seed or generator.
    budget
        Queries that may be asked.
    progress
        Receives updates.
    config
        Numbers to change, for experts.

    Returns
    -------
    SpanResult
        With ``basis``, ``null_space()``, ``project(x)``, singular values,
        queries and a status.

    Raises
    ------
    InvalidInput
        An argument makes no sense for this target.
    OracleError
        The target failed; a budget that ran out is a status instead.

    Examples
    --------
    >>> import unrelu
    >>> target = unrelu.planted.random_network(20, 3, 5, 1, rng=0)
    >>> unrelu.recover_span(target, rng=0).rank
    3
    """
    config = SpanConfig() if config is None else config
    if tolerance is None:
        tolerance = config.label_tolerance if answers == "labels" else config.tolerance
    run = Run(
        target,
        algorithm="span",
        rng=rng,
        options={
            "rank": rank, "answers": answers, "outputs": outputs, "adaptive": adaptive,
            "gradients": gradients, "tolerance": tolerance, "scale": scale,
            "faithful": faithful,
        },
        budget=budget,
        progress=progress,
    )  # fmt: skip
    oracle: Oracle = run.target
    _check_arguments(oracle, rank, answers, outputs, tolerance, scale)
    columns = slice(None)
    if answers == "values" and outputs != "all":
        oracle, columns = _OneOutput(oracle, int(outputs)), slice(int(outputs), int(outputs) + 1)
    search = SpanRun(run, oracle, config, scale)
    ranks = (1.0, float(rank or oracle.input_dim))
    price = price_span(oracle.input_dim, oracle.output_dim, ranks)
    if answers == "labels":
        price = price_span_from_labels(oracle.input_dim, ranks)
    run.target.allowance.plan(price)

    if faithful and (answers != "labels" or rank is None):
        raise InvalidInput("faithful=True is Algorithm 2: it needs answers='labels' and the rank")

    def steps() -> SpanResult:
        if faithful and rank is not None:
            return span_as_printed(search, rank, certify)
        if answers == "labels":
            return span_from_labels(search, rank, tolerance, certify)
        if not adaptive:
            return span_from_plan(search, rank, gradients, certify)
        return span_from_values(search, rank, tolerance, certify)

    return run.ended(steps, search.stopped, lambda result: explained_span(search, result, columns))


def _check_arguments(
    oracle: Oracle,
    rank: int | None,
    answers: str,
    outputs: Literal["all"] | int,
    tolerance: float,
    scale: float,
) -> None:
    n = oracle.input_dim
    if answers not in ("values", "labels"):
        raise InvalidInput(f"answers must be 'values' or 'labels', got {answers!r}")
    if rank is not None and not 1 <= rank <= n:
        raise InvalidInput(f"rank must be between 1 and {n}, got {rank}")
    real_number(tolerance, "tolerance", least=0.0)
    real_number(scale, "scale", above=0.0)
    if answers == "labels" and oracle.output_dim != 1:
        raise InvalidInput(
            f"labels come in one column, the target answers {oracle.output_dim}: "
            "wrap it in unrelu.oracles.wrappers.Labels, or ask for values"
        )
    whole = isinstance(outputs, (int, np.integer)) and not isinstance(outputs, bool)
    if outputs != "all" and not (whole and 0 <= int(outputs) < oracle.output_dim):
        raise InvalidInput(f"outputs must be 'all' or 0..{oracle.output_dim - 1}, got {outputs!r}")


class _Replies(Oracle):
    """Stands for a target that has already answered; asks nothing."""

    def __init__(self, n: int, m: int, rows: int) -> None:
        self.input_dim, self.output_dim, self.identity = n, m, "replies"
        self.meter = Meter()
        with self.meter.stage("gradients"):
            self.meter.charge(rows)

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        raise OracleError("replies were recorded; nothing more can be asked")


def recover_span_from_replies(
    queries: ArrayLike | str | os.PathLike[str],
    replies: ArrayLike | str | os.PathLike[str],
    *,
    rank: int | None = None,
    outputs: Literal["all"] | int = "all",
    config: SpanConfig | None = None,
) -> SpanResult:
    """Recover a span from the replies to a :class:`SpanPlan`'s queries.

    ``queries`` and ``replies`` are arrays ``(N, n)`` and ``(N, m)`` or paths of
    ``.npy`` files. Nothing is asked, so the result has no certificate.
    """

    def load(source: Any, name: str) -> FloatArray:
        if isinstance(source, (str, os.PathLike)):
            try:
                source = np.load(source, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise InvalidInput(f"cannot read {name} from {source}: {error}") from error
        array = np.asarray(source)
        return array[:, None] if array.ndim == 1 else array

    x, y = load(queries, "queries"), load(replies, "replies")
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise InvalidInput(f"{x.shape} queries and {y.shape} replies do not belong together")
    n = x.shape[1]
    block = block_size(n)
    if len(x) == 0 or len(x) % block:
        raise InvalidInput(f"a plan in {n} inputs has blocks of {block} queries, got {len(x)}")
    if not np.isfinite(y).all():
        raise InvalidInput("replies contain NaN or infinite entries")
    oracle = _Replies(n, y.shape[1], len(x))
    _check_arguments(oracle, rank, "values", outputs, 0.0, 1.0)
    if outputs != "all":
        y = y[:, [int(outputs)]]
    run = Run(oracle, algorithm="span", rng=0, options={
        "rank": rank, "outputs": outputs, "replies": len(x)
    })  # fmt: skip
    search = SpanRun(run, oracle, SpanConfig() if config is None else config)
    blocks = np.asarray(y, dtype=np.float64).reshape(-1, block, y.shape[1])
    found, _, quiet = read_blocks(search, lambda i: x[i * block : (i + 1) * block], blocks)
    run.target.record.add(np.asarray(x, dtype=np.float64), blocks.reshape(len(x), -1), "gradients")
    return explained_span(search, conclude_plan(search, found, rank, quiet))
