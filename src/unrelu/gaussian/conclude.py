"""From a fit to a result: the network, Algorithm 5 beside it, the verdict."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.piecewise import Kinks
from unrelu.gaussian.config import SampleOptions
from unrelu.gaussian.fit import SampleFit
from unrelu.gaussian.improper import consolidated_network, truncated_regression
from unrelu.gaussian.inputs import GaussianTest
from unrelu.gaussian.moment_stage import MomentEstimate
from unrelu.gaussian.result import SamplesResult
from unrelu.gaussian.stream import InputWhitening
from unrelu.gaussian.survey import SampleSurvey
from unrelu.networks import ReLUNetwork
from unrelu.result import Certificate, Provenance, QueryStats, StageReport, Status

__all__ = ["Clock", "conclude", "constant_result", "refused"]


class Clock:
    """Collects stage reports."""

    def __init__(self) -> None:
        self.stages: list[StageReport] = []
        self._start = time.perf_counter()

    def close(self, name: str, message: str, **details: Any) -> None:
        """Report the stage that ends now."""
        now = time.perf_counter()
        self.stages.append(StageReport(name, 0, now - self._start, message, details))
        self._start = now


def refused(
    test: GaussianTest, stats: QueryStats, provenance: Provenance, clock: Clock
) -> SamplesResult:
    """Refuse inputs that are not Gaussian."""
    return SamplesResult(
        Status.ASSUMPTION_VIOLATED,
        test.refusal,
        stats,
        provenance,
        stages=tuple(clock.stages),
        gaussian_statistic=test.statistic,
    )


def constant_result(
    survey: SampleSurvey,
    stats: QueryStats,
    provenance: Provenance,
    clock: Clock,
    test: GaussianTest,
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


def _network(
    model: Kinks, xi: FloatArray, whitening: InputWhitening, negligible: float
) -> ReLUNetwork:
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


def conclude(
    fit: SampleFit,
    estimate: MomentEstimate,
    survey: SampleSurvey,
    whitening: InputWhitening,
    test: GaussianTest,
    stats: QueryStats,
    provenance: Provenance,
    clock: Clock,
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
    tolerance = options.polish.met * scale if fit.exact else 4.0 * fit.noise
    certificate = Certificate.from_deviations(
        deviations, scale=scale, tolerance=tolerance,
        distribution="Gaussian", details={"noise": fit.noise, "width": len(fit.model.u)},
    )  # fmt: skip
    clock.close("certificate", f"{certificate.samples:,} held-out samples")
    status, message = _verdict(fit, certificate, options, scale)
    if fit.polished and estimate.samples > survey.count:
        message += _read_once(survey, estimate.samples, fit.exact)
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


def _read_once(survey: SampleSurvey, samples: int, exact: bool) -> str:
    """Say how a stream that was read once may differ from the same samples as arrays."""
    seen = f"; the stream was read once: the polish saw {survey.count:,} of {samples:,} samples"
    if exact:
        return f"{seen}, and kinks that only the others reach are not in the network"
    more = np.sqrt(samples / max(survey.train_count, 1))
    return f"{seen}, and its standard errors are {more:.2g} times those of all of them"


def _improper(
    estimate: MomentEstimate, survey: SampleSurvey, whitening: InputWhitening
) -> ReLUNetwork:
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
        if certificate.max_deviation <= options.polish.met * scale:
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
