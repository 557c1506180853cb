"""Several outputs that share their units: joint moments, one polish, a verdict on each output.

``y_j = sum_i A_ji relu(w_i.x + b_i)``: the tensors of all outputs have the same ``w_i^(x)k``, so
side by side they are one tensor with the outputs as a further mode (Algorithm 4 takes them so,
:mod:`unrelu.gaussian.awasthi`). A unit that is weak in one output is found by another. The
polish needs one label for each sample: a random mixture of the outputs, each over its spread,
in which almost surely no unit cancels. The outer weights are then a linear regression of every
output on the polished units, and each output has to pass the tests that a single one would.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.decompose import signal_rank
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.fit import fit_network
from unrelu.core.layered import Layered
from unrelu.core.moments import DENSE_LIMIT, hermite_moments, series_coefficients
from unrelu.core.piecewise import Kinks
from unrelu.core.power_method import distinct_directions, subspace_power_method
from unrelu.core.symmetric import SymmetricTensor
from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import RankOneUnits, recover_scalars
from unrelu.gaussian.config import PAIRS, SampleOptions
from unrelu.gaussian.fit import SamplePolish
from unrelu.gaussian.moment_stage import EstimatedTensors, MomentEstimate, MomentInputs
from unrelu.gaussian.result import SamplesResult
from unrelu.gaussian.stream import (
    HoldOut,
    InputWhitening,
    MomentPass,
    ReadingPlan,
    estimate_moments,
)
from unrelu.gaussian.survey import SampleSurvey, survey_samples
from unrelu.networks import ReLUNetwork
from unrelu.result import Certificate, Status
from unrelu.samples import SampleSource, as_source

__all__ = ["Outputs"]

UNSETTLED = "the number of units is not settled by a mixture of the outputs"
EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Labels of several outputs, and how they are mixed.

    Attributes
    ----------
    x, y
        ``(n, d)`` and ``(n, q)``.
    share
        What each output enters the mixture with, ``(q,)``; 0 where it is constant.
    """

    x: FloatArray
    y: FloatArray
    share: FloatArray

    @classmethod
    def of(cls, x: Any, y: Any, rng: np.random.Generator) -> Outputs | None:
        """Return None unless ``y`` is an array with several columns."""
        if y is None or np.ndim(y) != 2 or np.shape(y)[1] < 2:
            return None
        labels = np.ascontiguousarray(y, dtype=np.float64)
        if np.ndim(x) != 2 or len(labels) != len(x):
            raise InvalidInput(f"x of shape {np.shape(x)} does not fit labels {labels.shape}")
        for column in labels.T:
            as_source(x, column)  # refuses what no single output may be
        spread = labels.std(axis=0)
        direction = rng.standard_normal(labels.shape[1])
        with np.errstate(divide="ignore"):
            share = np.where(spread > 0.0, direction / spread, 0.0)
        return cls(np.asarray(x, dtype=np.float64), labels, share)

    @property
    def mixed(self) -> FloatArray:
        """One label for each sample, ``(n,)``."""
        return np.asarray(self.y @ self.share)

    def sources(self) -> list[SampleSource]:
        """Return the samples of each output."""
        return [as_source(self.x, column) for column in self.y.T]

    # -------------------------------------------------------------- moments

    def moment_estimate(
        self,
        plan: ReadingPlan,
        survey: SampleSurvey,
        whitening: InputWhitening,
        held: HoldOut,
        rng: np.random.Generator,
        options: PolishOptions,
        *,
        width: int | None,
        order: int | None,
        max_width: int | None,
        progress: Callable[[int], None],
    ) -> tuple[MomentEstimate, FloatArray]:
        """Decompose the joint moments; the mixture's units, and all outer weights ``(m, q)``."""
        d = whitening.factor.shape[1]
        if d > DENSE_LIMIT:
            raise InvalidInput(
                f"{d} inputs are too many for joint moments ({DENSE_LIMIT} are the most): learn "
                "one output at a time"
            )
        taken = self._taken(plan, whitening, held, rng, progress)
        scales = self.y.std(axis=0)[self.share != 0.0]
        flats, noises = (
            np.concatenate(
                [getattr(p, name) / s for (p, _), s in zip(taken, scales, strict=True)], axis=1
            )
            for name in ("flat", "flat_noise")
        )
        rank, vectors, _, threshold = signal_rank(flats, noises)
        most = min(vectors.shape[1] - 1, survey.train_count // (4 * (d + 1)))
        count = min(rank if width is None else width, max(most, 0), max_width or most)
        if order is None:
            units = _by_power_method(taken, vectors[:, :count], rng, options)
        else:
            tensors = EstimatedTensors.joined([
                EstimatedTensors.of(source, plan, passed, inputs, held, order)
                for source, (passed, inputs) in zip(self._varying(), taken, strict=True)
            ])  # fmt: skip
            units = tensors.units(order, rng, options, width=width, pairs=PAIRS)
        outer = np.zeros((len(units.w), self.y.shape[1]))
        outer[:, self.share != 0.0] = units.a.reshape(len(units.w), -1)
        keep = np.isfinite(outer).all(axis=1) & np.isfinite(units.b)
        w, outer, b = units.w[keep], outer[keep], units.b[keep]
        message = (
            f"{rank} singular values of the joint moments of {len(taken)} outputs above the "
            f"noise; {len(w)} units"
        )
        details = {"rank": rank, "threshold": threshold, "dimension": d, "outputs": len(taken)}
        samples = taken[0][0].count
        return MomentEstimate(w, outer @ self.share, b, samples, message, details), outer

    def _taken(
        self,
        plan: ReadingPlan,
        whitening: InputWhitening,
        held: HoldOut,
        rng: np.random.Generator,
        progress: Callable[[int], None],
    ) -> list[tuple[MomentPass, MomentInputs]]:
        """Take the moments of every output that varies."""
        basis = whitening.inverse.T
        taken: list[tuple[MomentPass, MomentInputs]] = []
        for source in self._varying():
            seen = _surveyed(source, plan, held, rng)
            low = hermite_moments(whitening.raw(seen.raw, seen.train_count))
            inputs = MomentInputs(
                np.eye(len(basis.T)), basis, whitening.mean @ basis, low, series_coefficients(low)
            )
            passed = estimate_moments(
                source, plan, basis=basis, offset=inputs.offset, series=inputs.series, low=low,
                held=held, order=4, progress=progress,
            )  # fmt: skip
            taken.append((passed, inputs))
        return taken

    def _varying(self) -> list[SampleSource]:
        return [s for s, share in zip(self.sources(), self.share, strict=True) if share != 0.0]

    # -------------------------------------------------------------- verdict

    def conclude(
        self,
        mixture: SamplesResult,
        learner: SamplePolish,
        outer: FloatArray,
        options: SampleOptions,
    ) -> SamplesResult:
        """Give every output its weights on the mixture's units, and judge each."""
        assert mixture.network is not None
        # Two more units than ``width`` may be the mixture's affine part.
        hidden, bias = (
            part[: mixture.width]
            for part in (mixture.network.weights[0], mixture.network.biases[0])
        )
        held = learner.held.mask(0, len(self.y))
        rows = np.flatnonzero(~held)[: options.keep_rows]
        exact = mixture.noise == 0.0 and mixture.success
        polished = mixture.noise == 0.0 or mixture.status is not Status.PARTIAL
        network, left = _regressed(hidden, bias, self.x[rows], self.y[rows]), ""
        if not exact:
            network, left = self._jointly(network, mixture, learner, rows, outer)
        noise = np.sqrt(np.mean((network(self.x[rows]) - self.y[rows]) ** 2, axis=0))
        scales = self.y.std(axis=0)
        scales = np.where(scales > 0.0, scales, np.abs(self.y).max(axis=0))
        bars = options.polish.met * scales if exact else 4.0 * noise
        deviations = network(self.x[held]) - self.y[held]
        certificate = Certificate.from_deviations(
            deviations, scale=float(scales.max()), tolerance=float(bars.max()),
            distribution="Gaussian", exceeding=(np.abs(deviations) > bars).any(axis=1),
        )  # fmt: skip
        worse = np.sqrt(np.mean(deviations**2, axis=0)) > noise * (
            1.0 + 4.0 / np.sqrt(2.0 * certificate.samples)
        )
        if not exact and not left and worse.any():
            left = "held-out samples deviate by more than those that it was fitted to"
        status, message = _verdict(
            mixture, len(network.weights[0]), self.y.shape[1], exact, certificate, left, polished
        )
        return dataclasses.replace(
            mixture, status=status, message=message, network=network, certificate=certificate,
            noise=0.0 if exact else float(noise.max()), moment_outer=outer,
            width=len(network.weights[0]),
        )  # fmt: skip

    def _jointly(
        self,
        first: ReLUNetwork,
        mixture: SamplesResult,
        learner: SamplePolish,
        rows: Any,
        outer: FloatArray,
    ) -> tuple[ReLUNetwork, str]:
        """Fit all outputs together, from the mixture's units and from the joint moments'.

        Returns
        -------
        The first if it leaves noise of every output, else the one that leaves less; and what
        an output shows that noise would not. The joint moments may have units too many, which
        noise hides: only the mixture's polish settles how many there are.
        """
        x, y = self.x[rows], self.y[rows]
        inverse, mean = learner.whitening.inverse, learner.whitening.mean
        w = mixture.moment_weights
        plain = learner.whitening.plain
        seen = (w, mixture.moment_biases) if plain else (
            w @ inverse, mixture.moment_biases - w @ inverse @ mean
        )  # fmt: skip
        network = _fitted(first, x, y)
        left = self._structure(network, learner)
        if not left:
            return network, "" if mixture.success else UNSETTLED
        other = _fitted(_regressed(*seen, x, y), x, y)
        scales = y.var(axis=0).clip(min=TINY)
        squares = [float(np.sum((net(x) - y) ** 2 / scales)) for net in (network, other)]
        if squares[0] <= squares[1]:
            return network, left
        return other, self._structure(other, learner) or UNSETTLED

    def _structure(self, network: ReLUNetwork, learner: SamplePolish) -> str:
        """Say what an output's residual shows that noise would not; empty where none does."""
        for j, source in enumerate(self.sources()):
            if self.share[j] == 0.0:
                continue
            seen = _surveyed(source, learner.plan, learner.held, learner.rng)
            model = _as_kinks(network, j, learner.whitening)
            left, _ = dataclasses.replace(learner, survey=seen).what_is_left(model)
            if left:
                return f"of output {j + 1}, {left}"
        return ""

    def constant(self, result: SamplesResult) -> SamplesResult:
        """Say the same of every output where none varies."""
        d = np.shape(self.x)[1]
        network = ReLUNetwork(
            [np.zeros((1, d)), np.zeros((self.y.shape[1], 1))], [np.zeros(1), self.y.mean(axis=0)]
        )
        return dataclasses.replace(result, network=network)


def _surveyed(
    source: SampleSource, plan: ReadingPlan, held: HoldOut, rng: np.random.Generator
) -> SampleSurvey:
    return survey_samples(source, plan, rng=rng, held=held, stride=1, progress=lambda rows: None)


def _by_power_method(
    taken: list[tuple[MomentPass, MomentInputs]],
    basis: FloatArray,
    rng: np.random.Generator,
    options: PolishOptions,
) -> RankOneUnits:
    """Directions in the joint subspace, then RECOVERSCALARS on the joint T2 and T3."""
    d, count = taken[0][0].moments.input_dim, basis.shape[1]
    if count == 0:
        return RankOneUnits(np.empty((0, d)), np.empty((0, len(taken))), np.empty(0))
    starts = rng.standard_normal((options.starts * count, d))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    found, score = subspace_power_method(basis, starts, steps=options.steps)
    w = found[distinct_directions(found, score, count=count, cosine=options.same)]
    joint = {
        k: SymmetricTensor.joined(
            [SymmetricTensor.of_dense(passed.moments.dense(k), d) for passed, _ in taken]
        )
        for k in (2, 3)
    }
    return RankOneUnits(w, *recover_scalars(1, w, joint))


def _verdict(
    mixture: SamplesResult,
    units: int,
    q: int,
    exact: bool,
    certificate: Certificate,
    left: str,
    polished: bool,
) -> tuple[Status, str]:
    """Judge the outputs together, by the rules for a single one."""
    if exact and certificate.exceeding:
        return Status.PARTIAL, (
            f"{units} units meet a mixture of the {q} outputs, but held-out samples of an output "
            f"deviate by up to {certificate.max_deviation:.2g}: it has units of its own that the "
            "mixture does not show; learn it alone, or give more samples"
        )
    if exact:
        return Status.RECOVERED, f"{units} units meet {q} outputs to rounding"
    if not polished and left:
        return mixture.status, f"of a mixture of {q} outputs: {mixture.message}"
    if left:
        return Status.APPROXIMATED, (
            f"{units} units for {q} outputs leave what may not be noise, or too little ({left}); "
            "try more samples"
        )
    return Status.RECOVERED, f"{units} units and label noise explain the samples of {q} outputs"


def _regressed(hidden: FloatArray, bias: FloatArray, x: FloatArray, y: FloatArray) -> ReLUNetwork:
    """Give all outputs their weights on given units, and an affine part where they need one.

    A unit that is turned over adds ``a (w.x + b)``: where the affine parts of all outputs are
    such sums (FIXSIGNS with the equations of every output), the units are turned back.
    """
    d, m = x.shape[1], len(hidden)

    def solved() -> tuple[FloatArray, FloatArray]:
        units = np.maximum(x @ hidden.T + bias, 0.0)
        features = np.concatenate([units, x, np.ones((len(x), 1))], axis=1)
        beta = np.linalg.lstsq(features, y, rcond=None)[0].T
        return beta[:, :m], beta[:, m:]

    outer, affine = solved()
    if m:
        system = (outer[:, :, None] * hidden).swapaxes(1, 2).reshape(-1, m)
        z = np.linalg.lstsq(system, affine[:, :d].ravel(), rcond=None)[0]
        xi = np.where(z > 0.5, -1.0, 1.0)
        hidden, bias = xi[:, None] * hidden, xi * bias
        outer, affine = solved()
    # What rounding leaves of an affine part that is not there.
    size = float(np.abs(outer).max(initial=0.0)) + float(np.abs(y).max(initial=0.0))
    affine = np.where(np.abs(affine) <= math.sqrt(EPS) * size, 0.0, affine)
    skip = affine[:, :d] if affine[:, :d].any() else None
    if m == 0:
        hidden, bias, outer = np.zeros((1, d)), np.zeros(1), np.zeros((y.shape[1], 1))
    return ReLUNetwork([hidden, outer], [bias, affine[:, d]], skip)


def _fitted(start: ReLUNetwork, x: FloatArray, y: FloatArray) -> ReLUNetwork:
    """Least squares over all parameters; without an affine part where none is missed."""
    deviation = np.maximum(np.sqrt(np.mean((start(x) - y) ** 2, axis=0)), TINY)[None]
    n, d = x.shape

    def fitted(skip: FloatArray | None) -> tuple[ReLUNetwork, float]:
        net = Layered(start.weights, start.biases, skip)
        found = fit_network(net, x, y, deviation=np.broadcast_to(deviation, y.shape))
        made = ReLUNetwork(found.network.weights, found.network.biases, found.network.skip)
        return made, float(np.sum(((made(x) - y) / deviation) ** 2))

    bare, bare_square = fitted(None)
    free, free_square = fitted(np.zeros((y.shape[1], d)) if start.skip is None else start.skip)
    # Schwarz: what each of the affine part's numbers has to be worth.
    worth = y.shape[1] * d * math.log(n) * free_square / (n * y.shape[1])
    return bare if bare_square - free_square <= worth else free


def _as_kinks(network: ReLUNetwork, output: int, whitening: InputWhitening) -> Kinks:
    """One output as kinks of the whitened inputs."""
    weight = network.weights[1][output]
    hidden, bias = network.weights[0], network.biases[0]
    slope = np.zeros(network.input_dim) if network.skip is None else network.skip[output]
    offset = float(network.biases[1][output])
    if not whitening.plain:
        bias = bias + hidden @ whitening.mean
        hidden = hidden @ whitening.factor
        offset += float(slope @ whitening.mean)
        slope = slope @ whitening.factor
    u = np.abs(weight)[:, None] * np.column_stack([hidden, bias])
    sign = np.where(weight < 0.0, -1.0, 1.0)
    return Kinks(u, sign, np.append(slope, offset), "relu")
