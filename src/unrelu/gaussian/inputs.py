"""Whether the inputs are Gaussian, and standard."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu.core.decompose_options import EVIDENCE
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
    failing = [row for row in rows if row[0] > EVIDENCE and row[1] > effect]
    statistic, size, worst = max(failing or rows)
    return GaussianTest(float(statistic), float(size), worst, not failing)


def whitening_for(survey: SampleSurvey) -> InputWhitening:
    """Leave standard inputs alone; otherwise whiten by mean and covariance.

    Directions without variance are dropped: there the network is constant.
    """
    n, d = survey.count, len(survey.input_mean)
    spread = np.where(np.eye(d, dtype=bool), np.sqrt(2.0 / n), np.sqrt(1.0 / n))
    off = np.abs(survey.input_covariance - np.eye(d)) / spread
    mean_off = np.abs(survey.input_mean) * np.sqrt(n)
    if max(float(off.max()), float(mean_off.max())) <= EVIDENCE:
        return InputWhitening.identity(d)
    values, vectors = np.linalg.eigh(survey.input_covariance)
    kept = values > len(values) * np.finfo(np.float64).eps * float(values[-1])
    if not kept.any():
        return InputWhitening(survey.input_mean, np.zeros((d, 0)), False)
    return InputWhitening(survey.input_mean, vectors[:, kept] * np.sqrt(values[kept]), False)
