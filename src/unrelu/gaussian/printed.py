"""Algorithm 5 of Awasthi, Tang & Vijayaraghavan as printed, step by step.

Reference, assumptions and the map are in :mod:`unrelu.gaussian.algorithm`; Algorithms 1 to 4
and 6 in :mod:`unrelu.gaussian.awasthi`. Nothing here improves on the box: the tensors are plain
means (14) over the first half of the samples, Jennrich's algorithm draws one pair of
contractions, eight features stand for each unit, and projected gradient descent on the second
half finds their weights.

What the paper leaves open is chosen so:

- eta_1 is the spectral norm of the tensors' own errors, half the difference of the even and
  the odd rows (the paper: some polynomial of Lemma 5.3); eta_2 is 0, since what rises above
  eta_1 is no noise; eta_3 is the chord of two directions that are one.
- Gradient descent ends where the gap ``<grad, beta> + R |grad|``, which bounds
  ``L(beta) - min L`` over the ball of radius R, is below eps^2 / 100.
- Triples of S that are not B-bounded estimate no unit of a B-bounded network and are left out.
- Rows are held out before anything is drawn or split: they measure the error that is reported.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from unrelu._numbers import real_number, whole_number
from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.hermite import hermite_products
from unrelu.core.memory import BLOCK
from unrelu.core.symmetric import SymmetricTensor
from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import RankOneUnits, check_order, robust_algorithm
from unrelu.gaussian.conclude import Clock, refused
from unrelu.gaussian.config import SampleOptions
from unrelu.gaussian.improper import consolidated_network
from unrelu.gaussian.inputs import check_gaussian, whitening_for
from unrelu.gaussian.moment_stage import EstimatedTensors
from unrelu.gaussian.result import SamplesResult
from unrelu.gaussian.stream import HoldOut, ReadingPlan
from unrelu.gaussian.survey import SampleSurvey, survey_samples
from unrelu.networks import ReLUNetwork
from unrelu.result import Certificate, Provenance, QueryStats, Status
from unrelu.samples import BATCH_ROWS, SampleSource, as_source

__all__ = [
    "TruncatedLoss",
    "empirical_tensors",
    "learn_as_printed",
    "projected_descent",
    "sign_features",
]

SIGNS = tuple(itertools.product((1.0, -1.0), repeat=3))
"""Lemma 5.8's (xi_1, xi_2, xi_3): of w, of b and of a."""


def empirical_tensors(x: FloatArray, y: FloatArray, orders: range) -> EstimatedTensors:
    """Equation (14): ``T_k`` as the mean of ``y He_k(x)``, and a sample of its error."""
    d, top = x.shape[1], max(orders)
    rows = max(BLOCK // math.comb(d + top, top), 2)
    halves = [[np.zeros(math.comb(d + k - 1, k)) for k in orders] for _ in range(2)]
    counts = [len(x[half::2]) for half in range(2)]
    for half, sums in enumerate(halves):
        points, labels = x[half::2], y[half::2]
        for start in range(0, len(points), rows):
            piece = slice(start, start + rows)
            levels = hermite_products(points[piece], top)
            for i, k in enumerate(orders):
                sums[i] += labels[piece] @ levels[k]
    shares = [count / len(x) for count in counts]
    means = [[s / n for s in sums] for sums, n in zip(halves, counts, strict=True)]
    spread = math.sqrt(shares[0] * shares[1])
    tensors, errors = {}, {}
    for i, k in enumerate(orders):
        even, odd = means[0][i], means[1][i]
        tensors[k] = SymmetricTensor((shares[0] * even + shares[1] * odd)[None], d, k)
        errors[k] = SymmetricTensor(spread * (even - odd)[None], d, k)
    return EstimatedTensors(tensors, errors)


def sign_features(units: RankOneUnits, x: FloatArray) -> FloatArray:
    """``phi(x) = (Z(x), Z'(x))`` of Lemma 5.8, ``(n, 8 |S| + d + 1)``.

    Z has ``xi_3 a relu(xi_1 w.x + xi_2 b)`` for the eight sign patterns of every unit, Z' is
    (x, 1).
    """
    along = x @ units.w.T
    columns = [
        xi3 * units.a * np.maximum(xi1 * along + xi2 * units.b, 0.0) for xi1, xi2, xi3 in SIGNS
    ]
    return np.concatenate([*columns, x, np.ones((len(x), 1))], axis=1)


@dataclasses.dataclass(frozen=True)
class TruncatedLoss:
    """``L(beta)``: the mean of ``(y - beta.phi)^2`` over rows with ``|phi| < tau``, others 0.

    Attributes
    ----------
    gram, moment, square
        Means of ``phi phi'``, ``y phi`` and ``y^2`` over those rows, divided by all rows.
    kept
        Share of the rows that were short enough.
    """

    gram: FloatArray
    moment: FloatArray
    square: float
    kept: float

    @classmethod
    def of(cls, units: RankOneUnits, x: FloatArray, y: FloatArray, tau: float) -> TruncatedLoss:
        """Read the rows once."""
        size = len(SIGNS) * len(units.w) + x.shape[1] + 1
        gram, moment, square, kept = np.zeros((size, size)), np.zeros(size), 0.0, 0
        for start in range(0, len(x), BATCH_ROWS):
            phi = sign_features(units, x[start : start + BATCH_ROWS])
            short = np.linalg.norm(phi, axis=1) < tau
            phi, labels = phi[short], y[start : start + BATCH_ROWS][short]
            gram += phi.T @ phi
            moment += phi.T @ labels
            square += float(labels @ labels)
            kept += int(np.count_nonzero(short))
        n = len(x)
        return cls(gram / n, moment / n, square / n, kept / n)

    def value(self, beta: FloatArray) -> float:
        """Return ``L(beta)``."""
        return float(self.square - 2.0 * self.moment @ beta + beta @ self.gram @ beta)


def projected_descent(
    loss: TruncatedLoss, radius: float, tolerance: float
) -> tuple[FloatArray, float]:
    """Minimise the loss over the ball ``|beta| <= radius`` by projected gradient descent.

    Steps of 1 / L with L the gradient's Lipschitz constant, at most as many as a few seconds
    allow; the gap that is left is returned.

    Returns
    -------
    ``beta``, and a bound on how far its loss is above the least in the ball.
    """
    # In the Gram matrix's own axes a step costs one product for each feature.
    values, axes = np.linalg.eigh(loss.gram)
    moment = axes.T @ loss.moment
    beta, gap, step = np.zeros(len(moment)), np.inf, 0.5 / float(values[-1])
    for _ in range(BLOCK // len(moment)):
        slope = 2.0 * (values * beta - moment)
        # By convexity L(beta) - L(other) <= <slope, beta - other> for any other in the ball.
        gap = float(slope @ beta) + radius * math.sqrt(slope @ slope)
        if gap <= tolerance:
            break
        beta = beta - step * slope
        length = math.sqrt(beta @ beta)
        if length > radius:
            beta = beta * (radius / length)
    return axes @ beta, gap


def _network(units: RankOneUnits, beta: FloatArray, d: int) -> ReLUNetwork:
    """``g = beta.phi`` in few units: equal ones added up, then Claim B.5."""
    m = len(units.w)
    weights = beta[: len(SIGNS) * m].reshape(len(SIGNS), m)
    # (w, b) and (w, -b) are kinks of their own; (-w, -b) and (-w, b) their opposites.
    alpha, opposite = np.zeros((2, m)), np.zeros((2, m))
    for (xi1, xi2, xi3), row in zip(SIGNS, weights, strict=True):
        kink = 0 if xi1 == xi2 else 1
        (alpha if xi1 > 0 else opposite)[kink] += xi3 * units.a * row
    return consolidated_network(
        np.concatenate([units.w, units.w]),
        np.concatenate([units.b, -units.b]),
        alpha.ravel(),
        opposite.ravel(),
        beta[-(d + 1) :],
    )


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The paper's epsilon, B, m and l."""

    epsilon: float
    bound: float
    width: int
    order: int


def learn_as_printed(
    x: FloatArray,
    y: FloatArray,
    *,
    epsilon: float,
    bound: float,
    width: int,
    order: int = 1,
    rng: RandomState = None,
    options: SampleOptions | None = None,
) -> SamplesResult:
    """Run Algorithm 5 on arrays: a network with error epsilon in mean square.

    Parameters
    ----------
    x, y
        ``(n, d)`` from N(0, I), and ``(n,)``.
    epsilon
        The error asked for, in units of y.
    bound
        The paper's B, which bounds weights, biases and outer weights.
    width
        m, the number of units, or a bound on it.
    order
        l: ``m <= d`` at 1, up to about d^l at l.
    rng
        Draws Jennrich's contractions.

    Returns
    -------
    SamplesResult
        APPROXIMATED where held-out rows show an error of at most epsilon, else PARTIAL.
        ``moment_*`` hold the output of Algorithm 4.
    """
    sizes = SampleOptions() if options is None else options
    asked = _Asked(
        real_number(epsilon, "epsilon", above=0.0),
        real_number(bound, "bound", least=1.0),
        whole_number(width, "width", least=1),
        check_order(order, np.shape(x)[-1]),
    )
    generator, clock = as_generator(rng), Clock()
    survey = _surveyed(as_source(x, y), generator, sizes)
    test = check_gaussian(survey, effect=sizes.effect)
    provenance = Provenance(
        "awasthi-tang-vijayaraghavan/algorithm 5",
        int(rng) if isinstance(rng, (int, np.integer)) else None,
        dataclasses.asdict(asked),
    )
    stats = QueryStats(samples=survey.count)
    if not test.passed:
        return refused(test, stats, provenance, clock)
    if not whitening_for(survey).plain:
        raise InvalidInput("Algorithm 5 as printed takes inputs from N(0, I): whiten them first")
    half = len(survey.train_x) // 2
    units = _steps_1_and_2(survey.train_x[:half], survey.train_y[:half], asked, generator, sizes)
    clock.close("algorithm 4", f"{len(units.w)} units from {half:,} samples", order=order)
    network, details = _steps_3_and_4(survey.train_x[half:], survey.train_y[half:], units, asked)
    told = f"within {details['gap']:.1e} of the least loss"
    clock.close("projected gradient descent", told, **details)
    certificate = Certificate.from_deviations(
        survey.held_y - network(survey.held_x)[:, 0],
        scale=survey.label_scale, tolerance=asked.epsilon, distribution="Gaussian",
    )  # fmt: skip
    clock.close("certificate", f"{certificate.samples:,} held-out samples")
    error, good = certificate.rms_deviation, certificate.rms_deviation <= asked.epsilon
    message = (
        f"{len(units.w)} units up to sign, root mean square error {error:.2g} on held-out "
        f"samples, {asked.epsilon:.2g} asked"
    )
    tiny = float(np.finfo(np.float64).tiny)
    return SamplesResult(
        Status.APPROXIMATED if good else Status.PARTIAL,
        message if good else f"{message}; try more samples, or learn_from_samples",
        stats, provenance, network, certificate, tuple(clock.stages), width=len(units.w),
        moment_weights=units.w, moment_outer=units.a, moment_biases=units.b,
        improper_error=error / max(survey.label_scale, tiny), gaussian_statistic=test.statistic,
    )  # fmt: skip


def _surveyed(
    source: SampleSource, rng: np.random.Generator, sizes: SampleOptions
) -> SampleSurvey:
    """Read all rows, some of them held out."""
    count = source.count or 0
    if count < len(SIGNS):
        raise InvalidInput(f"{count} samples are too few to split")
    return survey_samples(
        source, ReadingPlan(BATCH_ROWS), rng=rng, held=HoldOut.among(count, sizes.held_rows),
        stride=1, progress=lambda rows: None,
    )  # fmt: skip


def _steps_1_and_2(
    x: FloatArray,
    y: FloatArray,
    asked: _Asked,
    rng: np.random.Generator,
    sizes: SampleOptions,
) -> RankOneUnits:
    """Algorithm 4 on the tensors of the first half."""
    order = asked.order
    tensors = empirical_tensors(x, y, range(2 * order + 3))  # step 1
    thresholds = tensors.thresholds(order, sizes.polish)
    # Step 2.
    units = robust_algorithm(order, tensors.tensors, thresholds, rng, width=asked.width)
    sound = (np.abs(units.a) <= asked.bound) & (np.abs(units.b) <= asked.bound)
    return RankOneUnits(units.w[sound], units.a[sound], units.b[sound])


def _steps_3_and_4(
    x: FloatArray, y: FloatArray, units: RankOneUnits, asked: _Asked
) -> tuple[ReLUNetwork, dict[str, float]]:
    """Solve the truncated regression on the second half; return its network, and numbers."""
    m, s, d = asked.width, len(units.w), x.shape[1]
    ratio = m * d * asked.bound * max(s, 1) / asked.epsilon
    log = math.sqrt(math.log(max(ratio, math.e)))
    tau = 20.0 * m * (len(SIGNS) * s + d) * asked.bound * log
    loss = TruncatedLoss.of(units, x, y, tau)  # step 3
    radius = math.sqrt(len(SIGNS) * s) + m * (1.0 + asked.bound)
    tolerance = asked.epsilon**2 / 100.0
    beta, gap = projected_descent(loss, radius, tolerance)  # step 4
    details = {
        "tau": tau, "radius": radius, "kept": loss.kept, "features": float(len(beta)),
        "gap": gap, "asked": tolerance, "loss": loss.value(beta),
    }  # fmt: skip
    return _network(units, beta, d), details
