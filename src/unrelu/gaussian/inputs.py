"""Whether the inputs are Gaussian, and standard."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.core.noise import RARE
from unrelu.errors import InvalidInput
from unrelu.gaussian.stream import InputWhitening
from unrelu.gaussian.survey import SampleSurvey

__all__ = ["GaussianTest", "check_gaussian", "whitening_for"]


@dataclasses.dataclass(frozen=True)
class GaussianTest:
    """Outcome of the test.

    Attributes
    ----------
    statistic
        Largest standardised deviation of a third or fourth cumulant, along the
        axes, along random directions, or of the radius (Mardia).
    effect
        The largest such cumulant itself.
    worst
        Which one it was, in words.
    passed
        False only if the deviation is both significant and large.
    """

    statistic: float
    effect: float
    worst: str
    passed: bool

    @property
    def details(self) -> dict[str, Any]:
        """For the report."""
        return {"gaussian_statistic": self.statistic, "gaussian_worst": self.worst}

    @property
    def refusal(self) -> str:
        """Why inputs that failed are refused."""
        return (
            f"the inputs are not Gaussian: the {self.worst} is {self.effect:.2g}, "
            f"{self.statistic:.0f} standard deviations off; pass check_gaussian=False to go on "
            "regardless"
        )


def check_gaussian(survey: SampleSurvey, *, effect: float) -> GaussianTest:
    """Test third and fourth cumulants against a Gaussian's.

    Under a Gaussian, skewness has variance 6/N and excess kurtosis 24/N. Only
    what is significant AND large fails: a million samples make any generator's
    or rounding's flaw significant, and small ones do no harm.

    Parameters
    ----------
    survey
        Of the inputs.
    effect
        In cumulants; a uniform variable has kurtosis -1.2.
    """
    n, d = survey.count, len(survey.input_mean)
    q = len(survey.skewness)
    names = [f"coordinate {i}" if i < q - 16 else "a random direction" for i in range(q)]
    rows = [
        (abs(value) / np.sqrt(6.0 / n), abs(value), f"skewness of {name}")
        for value, name in zip(survey.skewness, names, strict=True)
    ]
    rows += [
        (abs(value) / np.sqrt(24.0 / n), abs(value), f"kurtosis of {name}")
        for value, name in zip(survey.kurtosis, names, strict=True)
    ]
    kept = max(len(survey.train_x), 1)
    radial = abs(survey.radius) * np.sqrt(8.0 / (d * (d + 2) * kept))
    rows.append((abs(survey.radius), radial, "distribution of the radius"))
    failing = [row for row in rows if row[0] > RARE and row[1] > effect]
    statistic, size, worst = max(failing or rows)
    return GaussianTest(float(statistic), float(size), worst, not failing)


def whitening_for(
    survey: SampleSurvey, known: tuple[ArrayLike, ArrayLike] | None = None
) -> InputWhitening:
    """Leave standard inputs alone; otherwise whiten by mean and covariance.

    Directions without variance are dropped: there the network is constant.

    Parameters
    ----------
    survey
        Of the inputs.
    known
        Mean and covariance, where they need not be estimated. Samples that contradict them by
        more than chance are refused.
    """
    n, d = survey.count, len(survey.input_mean)
    if known is None:
        mean, covariance = survey.input_mean, survey.input_covariance
        if _deviation(survey, np.zeros(d), np.eye(d)) <= RARE:
            return InputWhitening.identity(d)
    else:
        mean, covariance = (np.asarray(part, dtype=np.float64) for part in known)
        if mean.shape != (d,) or covariance.shape != (d, d):
            raise InvalidInput(
                f"inputs must be a mean ({d},) and a covariance ({d}, {d}), got {mean.shape} and "
                f"{covariance.shape}"
            )
        off = _deviation(survey, mean, covariance)
        if not off <= RARE:
            raise InvalidInput(
                f"the {n:,} samples' mean or covariance is {off:.0f} standard deviations off the "
                "one that was given: leave inputs out to estimate it"
            )
        if not mean.any() and (covariance == np.eye(d)).all():
            return InputWhitening.identity(d)
    values, vectors = np.linalg.eigh(covariance)
    kept = values > len(values) * np.finfo(np.float64).eps * float(values[-1])
    if not kept.any():
        return InputWhitening(mean, np.zeros((d, 0)), False)
    return InputWhitening(mean, vectors[:, kept] * np.sqrt(values[kept]), False)


def _deviation(survey: SampleSurvey, mean: FloatArray, covariance: FloatArray) -> float:
    """Return the largest deviation from a Gaussian of this mean and covariance, standardised.

    The covariance of i and j has the variance ``(S_ii S_jj + S_ij^2) / N``.
    """
    variance = np.diag(covariance)
    tiny = float(np.finfo(np.float64).tiny)
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / survey.count)
    off = np.abs(survey.input_covariance - covariance) / np.maximum(spread, tiny)
    mean_off = np.abs(survey.input_mean - mean) * np.sqrt(
        survey.count / np.maximum(variance, tiny)
    )
    return max(float(off.max()), float(mean_off.max()))
