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

=================================  ====================================================
paper                              here
=================================  ====================================================
Lemma 3.5                          ``unrelu.core.hermite.relu_coefficient``
equation (14), Lemma 5.2           ``unrelu.gaussian.stream.estimate_moments``
Algorithm 1 (exact tensors)        :func:`learn_from_population`
Algorithm 2, RECOVERSCALARS        ``unrelu.gaussian.awasthi.recover_scalars``
Algorithm 3, FIXSIGNS              ``unrelu.gaussian.awasthi.fix_signs``
Algorithm 4, steps 1-4             ``unrelu.gaussian.awasthi.recover_directions``
Algorithm 4                        ``unrelu.gaussian.awasthi.robust_algorithm``
Algorithm 5, Lemma 5.8             ``unrelu.gaussian.improper.truncated_regression``
Algorithm 6                        ``unrelu.gaussian.awasthi.full_rank_algorithm``
Claim B.5                          ``unrelu.gaussian.improper.consolidated_network``
Theorem 3.4, Claim 4.8             ``unrelu.gaussian.identifiability.identifiability``
=================================  ====================================================

Deviations
    1. The moments are those of the labels minus their fit of degree 2 (an
       unbiased control variate; it cuts the variance tenfold and more).
    2. By default (``method="power"``) the stacked T2, T3, T4 are decomposed by
       the subspace power method and a least-squares fit of all orders; T2's
       coefficient ``a phi(b)`` never vanishes, and no T5, T6 are needed for
       m > d. ``order=1`` or ``2`` runs the paper's own route.
    3. The width is the count of singular values above the noise measured by
       split halves, and is corrected by the polish.
    4. A polish on the samples follows: Levenberg-Marquardt in ``|z|``.
    5. Algorithm 5's projected gradient descent is an exact ridge solve.
    6. Condition (5), second half, lacks a factor xi_i in print: ``a_i xi_i b_i
       Phi(xi_i b_i)`` is what f_0 of Lemma 3.5 gives. Lemma 4.3 holds for
       ``He_{k+1}, He_{k+2}`` with k >= 1, as in its proof.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.piecewise import Kinks
from unrelu.errors import InvalidInput
from unrelu.gaussian.fit import SampleFit, SamplePolish
from unrelu.gaussian.identifiability import Identifiability, hermite_risk, identifiability
from unrelu.gaussian.improper import consolidated_network, truncated_regression
from unrelu.gaussian.inputs import GaussianTest, check_gaussian, whitening_for
from unrelu.gaussian.moment_stage import MomentEstimate, moment_estimate
from unrelu.gaussian.population import learn_from_population
from unrelu.gaussian.result import SampleOptions, SamplesResult
from unrelu.gaussian.stream import HoldOut, Plan, Whitening
from unrelu.gaussian.survey import Survey, survey_samples
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress, as_progress
from unrelu.result import (
    Certificate,
    Provenance,
    QueryStats,
    StageReport,
    Status,
)
from unrelu.samples import SampleSource, as_source

__all__ = [
    "Identifiability",
    "SampleOptions",
    "SamplesResult",
    "hermite_risk",
    "identifiability",
    "learn_from_population",
    "learn_from_samples",
]

Method = Literal["power", "joint", "jennrich"]


class _Chained(SampleSource):
    """The rows read ahead, then the rest of a stream; read once."""

    restartable = False
    count = None

    def __init__(self, x: FloatArray, y: FloatArray, rest: Iterator[Any]) -> None:
        self._x, self._y, self._rest = x, y, rest
        self.input_dim = x.shape[1]

    def _pieces(self, rows: int) -> Iterator[Any]:
        yield self._x, self._y
        yield from self._rest


class _Clock:
    """Collects stage reports."""

    def __init__(self) -> None:
        self.stages: list[StageReport] = []
        self._start = time.perf_counter()

    def close(self, name: str, message: str, **details: Any) -> None:
        now = time.perf_counter()
        self.stages.append(StageReport(name, 0, now - self._start, message, details))
        self._start = now


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
        of batches (see :mod:`unrelu.samples`).
    width
        Number of units if known; discovered if None.
    order
        None for the stacked moments T2, T3, T4; 1 or 2 for the paper's route by
        Jennrich's algorithm on T3, T4 or T5, T6.
    method
        Without ``order``: "power" (any width), or "joint" and "jennrich" (at
        most d units), which diagonalise many or two contractions.
    polish
        Whether to refine the moment estimate on the samples.
    rng
        Seed or generator.
    check_gaussian
        Whether to refuse inputs that are clearly not Gaussian.
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
    """
    _check_arguments(width, order, method, max_width, jobs)
    options = SampleOptions() if options is None else options
    generator = as_generator(rng)
    report = as_progress(progress)
    clock = _Clock()
    source = as_source(x, y, target=target)
    provenance = Provenance(
        algorithm="awasthi-tang-vijayaraghavan",
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        options={
            "width": width, "order": order, "method": method, "polish": polish,
            "check_gaussian": check_gaussian, "max_width": max_width,
        },
        target=source.description,
    )  # fmt: skip
    first, everything, plan = _prepare(source, options, jobs, scheduler)
    count = first.count
    assert count is not None
    # One row in twenty, or fewer of many samples, or more of a handful.
    held = HoldOut(max(count // options.held_rows, min(20, max(count // 2, 2))))
    room = min(options.keep_rows, options.keep_bytes // (8 * (first.input_dim + 1)))
    survey = survey_samples(
        first, plan, rng=generator, held=held, stride=max(count // room, 1),
        progress=lambda n: report.update("survey", n, count),
    )  # fmt: skip
    test = _gaussian(survey, options)
    clock.close(
        "survey", f"{survey.count:,} samples of {first.input_dim} inputs",
        gaussian_statistic=test.statistic, gaussian_worst=test.worst,
    )  # fmt: skip
    stats = QueryStats(samples=survey.count)
    if check_gaussian and not test.passed:
        return SamplesResult(
            status=Status.ASSUMPTION_VIOLATED,
            message=(
                f"the inputs are not Gaussian: the {test.worst} is {test.effect:.2g}, "
                f"{test.statistic:.0f} standard deviations off; pass check_gaussian=False "
                "to go on regardless"
            ),
            queries=stats, provenance=provenance, stages=tuple(clock.stages),
            gaussian_statistic=test.statistic,
        )  # fmt: skip
    _check_scale(survey)
    options = _for_precision(options, survey)
    whitening = whitening_for(survey, significance=options.whitening_significance)
    if survey.label_scale == 0.0 or whitening.factor.shape[1] == 0:
        return _constant(survey, stats, provenance, clock, test)

    estimate = moment_estimate(
        everything, plan, survey, whitening, held, generator, options.polish,
        width=width, order=order, method=method, max_width=max_width,
        progress=lambda n: report.update("moments", n, everything.count),
    )  # fmt: skip
    stats = QueryStats(samples=max(survey.count, estimate.samples))
    clock.close("moments", estimate.message, **estimate.details)
    learner = SamplePolish(
        source=first if everything.restartable else None, plan=plan, survey=survey,
        whitening=whitening, held=held, rng=generator, options=options.polish,
        rows_per_parameter=options.rows_per_parameter, width=width, max_width=max_width,
        restarts=options.restarts, gaussian=test.passed,
        report=lambda note: report.update("polish", 0, None, note),
    )  # fmt: skip
    fit = learner.run(estimate, polish=polish)
    clock.close("polish" if polish else "affine fit", fit.message, **fit.details)
    return _conclude(fit, estimate, survey, whitening, test, stats, provenance, clock, options)


def _check_arguments(
    width: int | None, order: int | None, method: str, max_width: int | None, jobs: int
) -> None:
    if width is not None and width < 0:
        raise InvalidInput(f"width must not be negative, got {width}")
    if max_width is not None and max_width < 0:
        raise InvalidInput(f"max_width must not be negative, got {max_width}")
    if order not in (None, 1, 2):
        raise InvalidInput(f"order must be None, 1 or 2, got {order}")
    if method not in ("power", "joint", "jennrich"):
        raise InvalidInput(f"method must be 'power', 'joint' or 'jennrich', got {method!r}")
    if jobs == 0:
        raise InvalidInput("jobs must not be 0")


def _check_scale(survey: Survey) -> None:
    """Refuse labels and inputs whose squares or products leave float64's range."""
    inputs = float(np.sqrt(np.abs(np.diag(survey.input_covariance)).max(initial=0.0)))
    for name, size in (("labels", survey.label_scale), ("inputs", inputs)):
        if not (size == 0.0 or 1e-60 < size < 1e60):
            raise InvalidInput(
                f"the {name} have a spread of {size:.1g}: their squares leave the range of "
                "float64; scale them to the order of 1"
            )


def _prepare(
    source: SampleSource, options: SampleOptions, jobs: int, scheduler: Any
) -> tuple[SampleSource, SampleSource, Plan]:
    """Return what the survey reads, what the moments read, and how.

    A stream that can be read only once is read ahead as far as rows may be kept:
    the survey and the polish use these rows, the moments all.
    """
    if scheduler is None and hasattr(source, "chunks"):
        scheduler = _current_client()
    everything = source
    if not source.restartable or source.count is None:
        room = min(options.keep_rows, options.keep_bytes // (8 * (source.input_dim + 1)))
        batches = source.batches(options.batch_rows)
        xs, ys, kept = [], [], 0
        for x, y in batches:
            xs.append(np.asarray(x, dtype=np.float64))
            ys.append(np.asarray(y, dtype=np.float64))
            kept += len(x)
            if kept >= room:
                break
        head = np.concatenate(xs), np.concatenate(ys)
        source = as_source(*head)
        everything = _Chained(*head, batches)
    assert source.count is not None
    if source.count < 4:
        raise InvalidInput(f"{source.count} samples are too few to learn anything from")
    rows = int(min(options.batch_rows, max(source.count // 16, 1)))
    return source, everything, Plan(rows, jobs, scheduler)


def _current_client() -> Any:
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def _for_precision(options: SampleOptions, survey: Survey) -> SampleOptions:
    """Loosen the tolerances if the labels are rounded: float32, or few decimals.

    Their rounding is no noise that averages out: it follows the labels, and is
    nothing where the label is an exact zero.
    """
    y, scale = survey.train_y, survey.label_scale
    exact, met = options.polish.exact, options.polish.met
    with np.errstate(over="ignore"):
        single = bool(np.all(y.astype(np.float32) == y))
    if np.all(y == np.rint(y)) or scale == 0.0:
        return options  # counts and classes: rounded too much to undo
    if single:
        # A float32 network computes with errors of a few 1e-7 of its sums.
        exact, met = 1e-6, 1e-4
    else:
        for decimals in range(1, 9):
            steps = y * 10.0**decimals
            quantum = 10.0**-decimals / scale
            if quantum < 1e-2 and np.all(np.abs(steps - np.rint(steps)) < 1e-6):
                # Root mean square 0.29, largest 0.5 of a step, and the fit's error.
                exact, met = 0.5 * quantum, 1.5 * quantum
                break
    if exact == options.polish.exact:
        return options
    polish = dataclasses.replace(options.polish, exact=exact, met=met)
    return dataclasses.replace(options, polish=polish, tolerance=max(met, options.tolerance))


def _gaussian(survey: Survey, options: SampleOptions) -> GaussianTest:
    return check_gaussian(
        survey,
        significance=options.gaussian_significance,
        effect=options.gaussian_effect,
    )


def _constant(
    survey: Survey, stats: QueryStats, provenance: Provenance, clock: _Clock, test: GaussianTest
) -> SamplesResult:
    """All labels are equal, or all inputs are."""
    d = len(survey.input_mean)
    exact = survey.label_scale == 0.0
    affine = np.append(np.zeros(d), survey.label_mean)
    network = consolidated_network(np.zeros((0, d)), np.zeros(0), np.zeros(0), np.zeros(0), affine)
    deviations = survey.held_y - survey.label_mean if len(survey.held_y) else np.zeros(1)
    return SamplesResult(
        status=Status.RECOVERED if exact else Status.PARTIAL,
        message="all labels are equal: the network is a constant"
        if exact
        else "the inputs do not vary; returned the mean label",
        queries=stats,
        provenance=provenance,
        network=network,
        certificate=Certificate.from_deviations(deviations, scale=0.0, tolerance=1e-12),
        stages=tuple(clock.stages),
        signs_determined=exact,
        orientations=1,
        gaussian_statistic=test.statistic,
    )


def _network(model: Kinks, xi: FloatArray, whitening: Whitening, negligible: float) -> ReLUNetwork:
    """Write oriented kinks as a network of the original inputs."""
    u = model.u * xi[:, None]
    length = np.linalg.norm(u[:, :-1], axis=1)
    length = np.where(length > 0.0, length, 1.0)
    w, b = u[:, :-1] / length[:, None], u[:, -1] / length
    if model.kind == "abs":
        alpha = alpha_prime = model.sign * length
    else:
        alpha, alpha_prime = model.sign * length, np.zeros(len(u))
    affine = np.zeros(u.shape[1]) if model.affine is None else model.affine
    if not whitening.plain:
        # z = inverse (x - mean): units of z become units of x.
        b = b - w @ whitening.inverse @ whitening.mean
        w = w @ whitening.inverse
        slope = affine[:-1] @ whitening.inverse
        affine = np.append(slope, affine[-1] - slope @ whitening.mean)
    return consolidated_network(w, b, alpha, alpha_prime, affine, negligible=negligible)


def _conclude(
    fit: SampleFit,
    estimate: MomentEstimate,
    survey: Survey,
    whitening: Whitening,
    test: GaussianTest,
    stats: QueryStats,
    provenance: Provenance,
    clock: _Clock,
    options: SampleOptions,
) -> SamplesResult:
    """Build the network, hold it against the held-out rows, and say how it went."""
    scale = survey.label_scale
    network = _network(fit.model, fit.xi, whitening, 1e-9 * scale if fit.oriented else 0.0)
    improper = _improper(estimate, survey, whitening)
    held_x = survey.held_x
    rough = float(np.sqrt(np.mean((survey.held_y - improper(held_x)[:, 0]) ** 2))) / scale
    clock.close(
        "improper regression",
        f"Algorithm 5 leaves {rough:.2g} of the labels' spread on held-out samples",
        held_out_error=rough,
    )
    if not fit.exact and fit.polished:
        # Chosen on training rows: the held-out ones only report.
        train = survey.train_x, survey.train_y
        left = np.mean((train[1] - improper(train[0])[:, 0]) ** 2)
        if left < np.mean((train[1] - network(train[0])[:, 0]) ** 2):
            network = improper
    deviations = survey.held_y - network(held_x)[:, 0]
    tolerance = options.tolerance * scale if fit.exact else 4.0 * fit.noise
    certificate = Certificate.from_deviations(
        deviations, scale=scale, tolerance=tolerance,
        distribution="Gaussian", details={"noise": fit.noise, "width": len(fit.model.u)},
    )  # fmt: skip
    clock.close("certificate", f"{certificate.samples:,} held-out samples")
    status, message = _verdict(fit, certificate, options, scale)
    return SamplesResult(
        status=status,
        message=message,
        queries=stats,
        provenance=provenance,
        network=network,
        certificate=certificate,
        stages=tuple(clock.stages),
        width=len(fit.model.u),
        noise=fit.noise,
        signs_determined=len(fit.model.u) == 0 or (fit.oriented and fit.orientations == 1),
        orientations=fit.orientations,
        moment_weights=estimate.w,
        moment_outer=estimate.a,
        moment_biases=estimate.b,
        improper_error=rough,
        gaussian_statistic=test.statistic,
    )


def _improper(estimate: MomentEstimate, survey: Survey, whitening: Whitening) -> ReLUNetwork:
    """Algorithm 5 with the moment estimate's directions."""
    w, b = estimate.w, np.clip(estimate.b, -6.0, 6.0)
    z = whitening.forward(survey.train_x)
    alpha, alpha_prime, affine = truncated_regression(w, b, z, survey.train_y)
    if not whitening.plain:
        b = b - w @ whitening.inverse @ whitening.mean
        w = w @ whitening.inverse
        slope = affine[:-1] @ whitening.inverse
        affine = np.append(slope, affine[-1] - slope @ whitening.mean)
    return consolidated_network(w, b, alpha, alpha_prime, affine)


def _verdict(
    fit: SampleFit, certificate: Certificate, options: SampleOptions, scale: float
) -> tuple[Status, str]:
    """Decide the status from what the samples show."""
    units = f"{len(fit.model.u)} units"
    if fit.exact and fit.structure:
        return Status.PARTIAL, f"{units} meet every sample to rounding, but {fit.structure}"
    if fit.exact and fit.unexplained == 0:
        if certificate.max_deviation <= options.tolerance * scale:
            signs = (
                "" if len(fit.model.u) == 0 or (fit.oriented and fit.orientations == 1)
                else "; the samples do not determine every unit's orientation"
            )  # fmt: skip
            return Status.RECOVERED, f"{units} meet every sample to rounding{signs}"
        return Status.PARTIAL, (
            f"{units} meet every training sample, but held-out ones deviate by up to "
            f"{certificate.max_deviation:.2g}: a kink that few samples reach is missing; "
            "try more samples"
        )
    if fit.exact:
        return Status.PARTIAL, (
            f"{units} meet all but {fit.unexplained:,} samples: units whose kink few samples "
            "reach are missing; try more samples"
        )
    if not fit.polished:
        return Status.PARTIAL, (
            f"moment estimate of {units}, relative error {certificate.rms_deviation / scale:.2g} "
            "on held-out samples; polish=True refines it"
        )
    if fit.structure:
        left = (
            f"{units} leave {certificate.rms_deviation / scale:.2g} of the labels' spread on "
            f"held-out samples, which may not be noise ({fit.structure})"
        )
        if fit.missing:
            return Status.PARTIAL, f"{left}; try more samples, another seed, or a width"
        return Status.APPROXIMATED, (
            f"{left}: the labels are not those of a depth-2 ReLU network plus independent "
            "noise, or units were not found; try more samples or another seed"
        )
    # Two standard errors of a standard deviation from k held-out samples.
    slack = 1.0 + 4.0 / np.sqrt(2.0 * certificate.samples)
    if certificate.rms_deviation > slack * fit.noise:
        return Status.PARTIAL, (
            f"{units} fit the training samples to {fit.noise:.2g} but held-out ones only to "
            f"{certificate.rms_deviation:.2g}; try more samples"
        )
    return Status.RECOVERED, (
        f"{units} and label noise of standard deviation {fit.noise:.3g} explain the samples; "
        f"a misfit below {fit.visible:.0%} of that noise would not show in so many"
    )
