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

- k and R given: V = k R, as neurons that coincide add up. No further assumption.
- R given: V = k R with k as found.
- nothing given: V is what the norms of all neurons found add up to, or what the
  rounding noise of the answers gives away, if that is more.

The result says which values are in force. ``narrowest`` is about the search alone.

Guarantee
---------
RECOVERED: given V, with confidence ``1 - delta`` over fresh inputs,
``E[(F - F')^2] <= epsilon^2`` under N(0, I), summed over all outputs, for the epsilon
that the caller asked for. The certificate adds two parts.

- What 5000 Gaussian inputs show: the mean square and its sampling error, and
  ``c / n`` times the square of what would not have stood out.
- What none shows. ``F - F'`` is a sum of functions of one direction each. Of n
  inputs twice as large, ``x = 2 g``, one would have hit a slab on which such a function
  is not zero, but for odds of ``delta / 2``, if the slab held more than
  ``c / n`` of their mass, ``c = log(2 / delta)``. Slabs of less mass, wherever they lie,
  half-spaces included, lose at most ``phi(0) w^3 (V / 4)^2 / 12`` with
  ``w = 2 c / (n phi(0))``: a triangle of width w at the origin whose slopes ``V / 4`` take all
  neurons. So ``n = 18.5 / w`` for delta = 0.05, where w is the width at which such a
  triangle loses epsilon^2 / 4: n grows as ``(k R / epsilon)^(2/3)``. Gaussian inputs
  alone would need ``(k R / epsilon)^2``: out where they seldom come, a bump is as wide as
  it likes.

Where that takes more than ``certificate_samples`` the status is PARTIAL, and says what
could hide. An input that stands out (by 5 epsilon, beside the noise) contradicts the
network: lines through it are searched, its certificate's rows are booked to the search,
and a fresh certificate ends that, at most five in all. What stays unexplained is APPROXIMATED
wherever V is an assumption, for it shows that there is more than was found.

Map to the paper
----------------
==============================  ==================================================
GETBIAS, Algorithm 1            :func:`unrelu.learner.boxes.get_bias`
GETGRADIENT, Algorithm 2        :func:`unrelu.learner.boxes.get_gradient`;
                                in practice :func:`unrelu.lines.gradients.measure_gradients`
GETNEURONS, Algorithm 3         :func:`unrelu.learner.boxes.get_neurons`;
                                in practice ``first_line`` and ``follow_residual``
                                of :class:`unrelu.learner.run.Learning`
LEARNFROMQUERIES, Algorithm 4   :func:`unrelu.learner.boxes.learn_from_queries_as_printed`;
                                in practice ``learn`` of the same class
equations (12)-(14), (21)       :mod:`unrelu.learner.formulas`
equation (19)                   :func:`unrelu.learner.regression.bounded_least_squares`
Lemma 3.21                      :func:`unrelu.learner.compress.merge_clusters`
==============================  ==================================================

Deviations
----------
- Intervals of one length r are replaced by an adaptive search for the kinks of
  the line; m would be far beyond any budget. ``faithful=True`` keeps them.
- Differences of neighbouring pieces instead of all pairs: across a cluster too
  tight to resolve, the difference is the v* of Lemma 3.21.
- Coefficients are the +-1 of Theorem 4.8, read from the jumps. Least squares
  runs at the end, only where the samples still disagree, and is kept only if
  held-out samples agree better: refitting earlier brings every kink back.
- Bumps are looked for by Gaussian samples, which serve as validation too, and by the
  certificate; a line through the worst sample finds the neurons behind it.
- A bump is a sum of large terms that cancel. In floating point their rounding
  noise remains, and betrays that something large is hidden: the search then
  goes on until the noise is explained, or ``probes`` samples are spent.
- Constant noise: directions are measured far out, where it is relatively small,
  biases at points whose gates are certain (:mod:`unrelu.learner.far`).
- Coarse answers hide weak neurons, other ones on every line: the neurons of two
  lines are united, and what is still missing is grown from the moments of the
  residual (:mod:`unrelu.learner.grow`); all are fitted to samples together.
- Clusters are merged and flat neurons dropped at the end, within epsilon / 4.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import Contradictions
from unrelu.core.price import price_learner
from unrelu.core.record import Remembered, remembered, with_plan
from unrelu.errors import BudgetExhausted, InvalidInput
from unrelu.learner.boxes import FaithfulBounds, learn_from_queries_as_printed
from unrelu.learner.certificate import SquareLoss, certify_square_loss
from unrelu.learner.explained import contradicting_answers, explained_copy
from unrelu.learner.formulas import width_seen
from unrelu.learner.neurons import Neurons
from unrelu.learner.run import Doubts, LearnerConfig, Learning
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, RecoveryResult, StageReport, Status

__all__ = ["LearnerConfig", "LearnerResult", "learn_from_queries", "learn_with_hints"]


@dataclasses.dataclass(frozen=True, repr=False)
class LearnerResult(RecoveryResult):
    """A learned network and what was assumed about the target.

    Attributes
    ----------
    epsilon
        Root mean square error asked for, in answer units.
    reached
        Upper confidence bound on the root mean square error that was reached.
    width
        Hidden neurons of the learned network.
    norm_bound, bias_bound
        R and B in force: given, or the largest seen.
    narrowest
        Width of the narrowest bump that was looked for, in input units.
    assumed
        The same in words, with what was given and what was assumed.
    noise
        Standard deviation of an answer's error near the origin.
    """

    epsilon: float = 0.0
    reached: float = math.inf
    width: int = 0
    norm_bound: float = 0.0
    bias_bound: float = 0.0
    narrowest: float = math.inf
    assumed: str = ""
    noise: float = 0.0


def learn_from_queries(
    oracle: Any,
    *,
    epsilon: float,
    relative: bool = False,
    delta: float = 0.05,
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
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    epsilon
        Root mean square error allowed, in answer units, all outputs taken together: an
        output that varies by less is not vouched for, and named.
    relative
        Take ``epsilon`` in units of the standard deviation of F under N(0, I).
    delta
        The certificate's bound may fail with this probability.
    rng
        Seed or generator; the same seed gives the same result.
    progress
        Receives updates while it runs.
    faithful
        Run Algorithms 1-4 as printed, with ``config.constants`` for what the
        paper leaves open. Needs ``width``, ``norm_bound`` and ``bias_bound``.
    width, norm_bound, bias_bound
        k, R and B of Theorem 1.1, where known. In practice k R matters: it says how
        thin a bump can be and still cost epsilon. With both given, RECOVERED rests on no
        assumption.
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
    """
    return _learn(
        oracle,
        hints=None,
        epsilon=epsilon,
        relative=relative,
        delta=delta,
        rng=rng,
        progress=progress,
        faithful=faithful,
        width=width,
        norm_bound=norm_bound,
        bias_bound=bias_bound,
        narrowest=narrowest,
        certificate_samples=certificate_samples,
        config=config,
    )


def learn_with_hints(
    oracle: Any, hints: tuple[FloatArray, FloatArray], *, epsilon: float, **options: Any
) -> LearnerResult:
    """Learn as :func:`learn_from_queries` does, and search lines through known points first.

    For an earlier method whose network was contradicted: what it saw is not dropped.

    Parameters
    ----------
    hints
        Inputs where another network was wrong, ``(n, d)``, and the answers that were
        seen there, ``(n, m)``. They are not asked again, and a network that one of them
        contradicts is not RECOVERED.
    options
        Those of :func:`learn_from_queries`.
    """
    defaults: dict[str, Any] = {
        "relative": False, "delta": 0.05, "rng": None, "progress": None, "faithful": False,
        "width": None, "norm_bound": None, "bias_bound": None, "narrowest": None,
        "certificate_samples": None, "config": None,
    }  # fmt: skip
    return _learn(oracle, hints=hints, epsilon=epsilon, **(defaults | options))


def _learn(
    oracle: Any,
    *,
    hints: tuple[FloatArray, FloatArray] | None,
    epsilon: float,
    relative: bool,
    delta: float,
    rng: RandomState,
    progress: Progress | None,
    faithful: bool,
    width: int | None,
    norm_bound: float | None,
    bias_bound: float | None,
    narrowest: float | None,
    certificate_samples: int | None,
    config: LearnerConfig | None,
) -> LearnerResult:
    config = LearnerConfig() if config is None else config
    _check(epsilon, delta, width, norm_bound, bias_bound, narrowest, certificate_samples)
    if faithful and (width is None or norm_bound is None or bias_bound is None):
        raise InvalidInput("faithful=True needs width (k), norm_bound (R) and bias_bound (B)")
    target = remembered(oracle)
    if faithful and target.output_dim != 1:
        raise InvalidInput("faithful=True is for a single output, as the paper is")
    provenance = Provenance(
        algorithm="learn_from_queries",
        seed=rng if isinstance(rng, int) else None,
        options={
            "epsilon": epsilon,
            "relative": relative,
            "delta": delta,
            "faithful": faithful,
            "width": width,
            "norm_bound": norm_bound,
            "bias_bound": bias_bound,
            "narrowest": narrowest,
        },
        target=target.identity,
    )
    run = Learning(
        target,
        as_generator(rng),
        as_progress(progress),
        config,
        epsilon,
        relative,
        norm_bound,
        narrowest,
        width,
    )
    if hints is not None:
        run.doubts = Doubts(*_checked_hints(hints, target))
    if certificate_samples is not None:
        config = dataclasses.replace(
            config, certificate=dataclasses.replace(config.certificate, most=certificate_samples)
        )
        run.config = config
    network: ReLUNetwork | None = None
    checked: SquareLoss | None = None
    facts: dict[str, float | str] = {}
    run.expect = _expectation(target, run)
    status, message = Status.NUMERICAL_FAILURE, ""
    try:
        with as_breakdown():
            if faithful:
                network = _faithful(run, width, bias_bound, delta)
            else:
                run.learn()
            network, facts, checked = _certified(run, target, network, bias_bound, delta)
            status, message = _verdict(run, network, checked, delta)
    except (BudgetExhausted, Breakdown) as error:
        message = str(error)
        if isinstance(error, BudgetExhausted):
            status = Status.BUDGET_EXHAUSTED
            message = f"{error}; what was found until then is returned"
        if run.neurons is not None:
            network = run.neurons.network()
        if network is not None:
            facts = _assumed(run, network, bias_bound)
    result = LearnerResult(
        status=status,
        message=message,
        queries=target.queries,
        provenance=provenance,
        network=network,
        certificate=None if checked is None else checked.certificate,
        stages=tuple(run.stages),
        epsilon=run.epsilon if len(run.x) else epsilon,
        reached=math.inf if checked is None else math.sqrt(checked.bound),
        width=0 if network is None else network.hidden_widths[0],
        norm_bound=float(facts.get("norm bound R", 0.0)),
        bias_bound=float(facts.get("bias bound B", 0.0)),
        narrowest=float(facts.get("narrowest bump looked for", math.inf)),
        assumed=str(facts.get("assumed", "")),
        noise=float(run.noise.absolute.max()),
    )
    return with_plan(explained_copy(run, target, result), target, oracle)


def _expectation(target: Remembered, run: Learning) -> Callable[[int, int], None]:
    """Return what tells the price of so many neurons and so many samples."""

    def expect(neurons: int, samples: int) -> None:
        # The certificate comes on top of the samples, and another one after each that fails.
        price = price_learner(
            run.d, neurons, coarse=run.coarse, samples=(samples + 8_000, samples + 28_000)
        )
        target.allowance.plan(price)

    return expect


def _certified(
    run: Learning,
    target: Remembered,
    printed: ReLUNetwork | None,
    bias_bound: float | None,
    delta: float,
) -> tuple[ReLUNetwork, dict[str, float | str], SquareLoss]:
    """Return the network with its certificate; one that fails is data for another search."""
    for left in reversed(range(run.config.rounds + 1)):
        network = _as_learned(run) if printed is None else printed
        facts = _assumed(run, network, bias_bound)
        searchable = left > 0 and run.learned is not None and run.good(run.learned)
        checked = _certify(run, network, delta, facts, patient=not searchable)
        if not searchable:
            break
        missed = contradicting_answers(run, target, network)
        if not (_contradicted(run, checked) or missed) or not _search_on(run, checked, missed):
            break
    if checked.cut_short:  # nothing explains what it met: say how much that is
        checked = _certify(run, network, delta, facts, patient=True)
    return network, facts, checked


def _as_learned(run: Learning) -> ReLUNetwork:
    assert run.neurons is not None
    return run.neurons.network()


def _certify(
    run: Learning,
    network: ReLUNetwork,
    delta: float,
    facts: dict[str, float | str],
    *,
    patient: bool,
) -> SquareLoss:
    """Ask fresh inputs, few where the samples have shown already that epsilon is not reached."""
    limits = run.config.certificate
    if run.neurons is not None and run.square_error(run.neurons) > run.epsilon**2:
        limits = dataclasses.replace(limits, most=min(limits.most, limits.least))
    run.progress.update("certificate", 0, None)
    held = len(run.x)
    with run.stage("certificate"):
        return certify_square_loss(
            run.oracle,
            network,
            found=network if run.learned is None else run.learned,
            epsilon=run.epsilon,
            delta=delta,
            total=float(facts["norms that may hide, in all"]),
            noise=run.noise,
            facts=facts,
            expect=lambda samples: run.expect(len(network.weights[0]), held + samples),
            rng=run.rng,
            config=limits,
            patient=patient,
        )


def _contradicted(run: Learning, checked: SquareLoss) -> bool:
    """Whether a certificate saw what contradicts a network that the samples had agreed with.

    Inputs that stand out count even where the bound allows them: they show that there is more
    than was found, and thus that what was assumed of it may be wrong.
    """
    missed = checked.certificate.details["square loss"] > run.epsilon**2
    return missed or len(checked.hit_inputs) > 0


def _search_on(run: Learning, checked: SquareLoss, missed: Contradictions) -> bool:
    """Hand what a failed certificate and the run saw to the search; False if it found nothing.

    Its rows then belong to the search. Where nothing came of it, the certificate stands.
    """
    place = len(run.stages) - 1
    run.doubts = run.doubts.joined(checked.hit_inputs, checked.hit_answers)
    if missed:  # the certificate's own rows are in the record as well
        known = {row.tobytes() for row in checked.hit_inputs}
        new = [i for i, row in enumerate(missed.points) if row.tobytes() not in known]
        run.doubts = run.doubts.joined(missed.points[new], missed.answers[new])
    run.add(checked.inputs, checked.answers, gaussian=True)
    run.add(checked.wide_inputs, checked.wide_answers, gaussian=False)
    changed = run.learn_on()
    if changed or checked.cut_short:
        _book_to_search(run, place)
    return changed


def _book_to_search(run: Learning, place: int) -> None:
    """Count the rows of a certificate, the stage at ``place``, as those of the search."""
    report = run.stages[place]
    run.oracle.meter.rebook("certificate", "residual search", report.queries)
    run.stages[place] = dataclasses.replace(report, name="residual search")


def _checked_hints(
    hints: tuple[FloatArray, FloatArray], target: Oracle
) -> tuple[FloatArray, FloatArray]:
    x, y = (np.asarray(part, dtype=np.float64) for part in hints)
    if x.shape != (len(x), target.input_dim) or y.shape != (len(x), target.output_dim):
        raise InvalidInput(
            f"hints must be inputs (n, {target.input_dim}) and answers (n, {target.output_dim}), "
            f"got {x.shape} and {y.shape}"
        )
    return x, y


def _check(
    epsilon: float,
    delta: float,
    width: int | None,
    norm_bound: float | None,
    bias_bound: float | None,
    narrowest: float | None,
    certificate_samples: int | None,
) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise InvalidInput(f"epsilon must be a positive number, got {epsilon}")
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie between 0 and 1, got {delta}")
    for name, value in (("norm_bound", norm_bound), ("narrowest", narrowest)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise InvalidInput(f"{name} must be a positive number, got {value}")
    if bias_bound is not None and not (bias_bound >= 0 and math.isfinite(bias_bound)):
        raise InvalidInput(f"bias_bound must be zero or more, got {bias_bound}")
    for name, count in (("width", width), ("certificate_samples", certificate_samples)):
        if count is not None and (isinstance(count, bool) or count < 1 or int(count) != count):
            raise InvalidInput(f"{name} must be a whole number of at least 1, got {count}")


def _faithful(
    run: Learning, width: int | None, bias_bound: float | None, delta: float
) -> ReLUNetwork:
    """Algorithms 1-4 as printed."""
    assert width is not None
    assert bias_bound is not None
    assert run.norm_bound is not None
    with run.stage("samples"):
        run.sample(run.rng.standard_normal((run.config.pilot, run.d)))
    # Neurons of norm below epsilon / k may be replaced by constants (proof of Theorem 4.8).
    smallest = max(run.epsilon / width, run.config.constants.smallest)
    bounds = FaithfulBounds(width, run.norm_bound, bias_bound, smallest)
    before, start = run.oracle.queries.total, time.perf_counter()
    network, plan = learn_from_queries_as_printed(
        run.oracle,
        run.epsilon,
        delta,
        bounds=bounds,
        constants=run.config.constants,
        rng=run.rng,
        max_intervals=run.config.max_intervals,
    )
    run.stages.append(
        StageReport(
            "as printed",
            run.oracle.queries.total - before,
            time.perf_counter() - start,
            "",
            dataclasses.asdict(plan),
        )
    )
    return network


def _assumed(
    run: Learning, network: ReLUNetwork, bias_bound: float | None
) -> dict[str, float | str]:
    """Return the bounds in force, given or seen, in numbers and in words."""
    rows, outputs = network.weights[0], network.weights[1]
    skip = np.zeros((len(outputs), run.d)) if network.skip is None else network.skip
    strength = np.linalg.norm(outputs, axis=0)
    seen_bias = float((np.abs(network.biases[0]) * strength).max(initial=0.0))
    compressed = Neurons(rows, network.biases[0], outputs, skip, network.biases[1])
    learned = compressed if run.learned is None else run.learned
    norm, total = run.radius(learned), run.hidden_total(learned)
    if run.told:
        # Neurons of F that are found may be so wrongly: the difference has those of both.
        total += float(learned.strengths.sum())
    bias = bias_bound if bias_bound is not None else seen_bias
    looked = width_seen(int(run.gaussian.sum()), run.config.miss)
    words = [
        f"k = {run.width} given" if run.width is not None else f"k assumed {len(rows)}, as found",
        f"R = {norm:.3g} " + ("given" if run.norm_bound is not None else "assumed, as seen"),
        f"B = {bias:.3g} " + ("given" if bias_bound is not None else "assumed, as seen"),
        f"norms of neurons that may hide add up to {total:.3g}",
        f"bumps looked for down to a width of {looked:.2g}",
    ]
    return {
        "norm bound R": norm,
        "bias bound B": bias,
        "norms that may hide, in all": total,
        "narrowest bump looked for": looked,
        "assumed": "; ".join(words),
    }


def _verdict(
    run: Learning, network: ReLUNetwork, checked: SquareLoss, delta: float
) -> tuple[Status, str]:
    certificate, reached = checked.certificate, math.sqrt(checked.bound)
    spread = certificate.scale
    width = network.hidden_widths[0]
    seen = certificate.details["square loss"]
    base = (
        f"{width} hidden neurons; root mean square error {math.sqrt(seen):.2g} on held-out "
        f"inputs, at most {reached:.2g} with {1 - delta:.0%} confidence, {run.epsilon:.2g} asked"
    )
    # Inputs that stand out refute what was assumed, and the bound with it; what was given
    # holds, and the bound counts them.
    against = 0 if run.told else len(checked.hit_inputs)
    if run.learned is not None:
        against += run.unexplained(run.learned)
    if reached <= run.epsilon and not against:
        return Status.RECOVERED, base + _too_quiet(run)
    if math.sqrt(seen) <= run.epsilon and against:
        where = np.concatenate([checked.hit_inputs, run.doubts.x])
        return (
            Status.APPROXIMATED,
            f"{base}: most inputs agree, but {against} stand out, one at "
            f"{np.array2string(where[0][:6], precision=3)}, and lines through them found no "
            "neurons that explain it; try another seed, or narrowest=... for thin bumps",
        )
    if math.sqrt(seen) <= run.epsilon:
        narrow = certificate.details["narrowest bump that could be seen"]
        asked = certificate.samples + int(certificate.details["wide inputs"])
        return (
            Status.PARTIAL,
            f"{base}: the {asked:,} held-out inputs agree, but a bump narrower "
            f"than {narrow:.2g} could hide between them; raise "
            "certificate_samples or the budget, or give a smaller norm_bound",
        )
    if run.neurons is None:
        return (
            Status.PARTIAL,
            f"{base}: the intervals of the line are too long or do not reach far enough; use "
            "constants closer to the paper's, or leave faithful off",
        )
    noise = float(run.noise.absolute.max())
    if math.sqrt(seen) > run.config.foreign * spread and noise < 0.1 * math.sqrt(seen):
        return (
            Status.ASSUMPTION_VIOLATED,
            f"{base}: much is left unexplained, so the target may have more than one hidden "
            "layer, a smooth activation, or bumps thinner than were looked for (narrowest=...)",
        )
    return (
        Status.PARTIAL,
        f"{base}; noise of the answers {noise:.2g}. Try another seed, a larger epsilon, or "
        "narrowest=... where thin bumps are expected",
    )


def _too_quiet(run: Learning) -> str:
    """Name the outputs that epsilon, which counts all together, says nothing about."""
    quiet = np.flatnonzero(run.y[run.gaussian].std(axis=0) <= run.epsilon)
    if len(quiet) == 0 or run.oracle.output_dim == 1:
        return ""
    names = ", ".join(str(i) for i in quiet[:8]) + (", ..." if len(quiet) > 8 else "")
    return (
        f". The error is that of all outputs together; output {names} varies by less than that, "
        "and nothing is said about it: learn it alone, or scale the outputs alike"
    )
