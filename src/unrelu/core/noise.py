r"""The error of an answer, and how it grows with the input.

An oracle's answers differ from the function's values: by the rounding of a
float64 or float32 computation, by printed decimals, by noise. Everything that
compares answers needs the standard deviation of that error. It is modelled as

.. math:: \sigma(x) = a + b \|x\|

per output: ``a`` holds rounded or noisy answers, ``b`` the rounding inside a
network, whose terms grow with the input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import scipy.special

from unrelu._types import FloatArray
from unrelu.core.pieces import fit_piece

__all__ = [
    "AGREES",
    "HALF_DIGITS",
    "NORMAL_MEDIAN",
    "PER_UNKNOWN",
    "RARE",
    "SPACING",
    "NoiseModel",
    "Samples",
    "answer_grid",
    "cluster_of",
    "decimal_step",
    "estimate_noise",
    "is_single",
    "scatter_of",
]

RARE = 6.0
"""Deviations that one Gaussian error in 1e9 exceeds."""
AGREES = 2.0 * RARE
"""Deviations within which an answer agrees with a prediction: a deviation that a few answers
tell is good within a factor of two, and a true miss is usually millions."""
PER_UNKNOWN = math.ceil(RARE**2)
"""Noisy values for each unknown of an estimate: what chance makes of it is then a sixth of what
it makes of one value, and ``RARE`` deviations of it are one of theirs."""
HALF_DIGITS = math.sqrt(np.finfo(np.float64).eps)
"""Half of the digits of float64, 1.5e-8: what differences of exact answers are good for."""
NORMAL_MEDIAN = float(scipy.special.ndtri(0.75))
"""Median magnitude of a Gaussian error, in deviations: 0.6745."""
TELLING = math.ceil(-math.log10(2.0 * float(scipy.special.ndtr(-RARE))))
"""Answers that tell a decimal grid: others are all on it as seldom as an error is beyond
``RARE``, each with odds of a tenth; nine."""
SPACING = 1e-5
"""Distance of a cluster's points, relative to the local scale of the line. Small, so that a
kink inside is rare; large, so that all bits of the inputs change, those of a target that casts
to float32 included."""

Samples = tuple[FloatArray, FloatArray]
"""Points ``(n,)`` on a line and the answers there, ``(n, m)``."""


@dataclasses.dataclass(frozen=True)
class NoiseModel:
    """Standard deviation of an answer's error, ``absolute + growth |x|``.

    Attributes
    ----------
    absolute
        Shape ``(m,)``, in answer units.
    growth
        Shape ``(m,)``, in answer units per input unit.
    """

    absolute: FloatArray
    growth: FloatArray

    def std(self, norms: FloatArray) -> FloatArray:
        """Return standard deviations ``(n, m)`` for inputs of the given norms ``(n,)``."""
        return np.asarray(self.absolute + np.multiply.outer(norms, self.growth))

    def at(self, points: FloatArray) -> FloatArray:
        """Return standard deviations ``(n, m)`` at points ``(n, d)``."""
        return self.std(np.linalg.norm(points, axis=1))

    def scaled(self, factor: float) -> NoiseModel:
        """Return the model with all deviations multiplied."""
        return NoiseModel(self.absolute * factor, self.growth * factor)

    def at_least(
        self,
        answers: FloatArray,
        levels: FloatArray | float = 1.0,
        *,
        norms: FloatArray | None = None,
        near: float = np.inf,
    ) -> NoiseModel:
        """Return the model with no less than the rounding of answers of this size.

        Where a first line saw nothing but a constant, its noise says little
        about answers elsewhere.

        Parameters
        ----------
        levels
            What the answers were divided by after they had been rounded.
        norms, near
            Norms of the inputs ``(n,)``, and up to which of them answers tell ``absolute``;
            those beyond tell ``growth``.
        """
        answers = answers * levels
        eps, quantum = answer_grid(answers)
        size = 0.5 * eps * np.abs(answers) / levels
        far = np.zeros(len(size), dtype=bool) if norms is None else norms > near
        absolute, growth = self.absolute, self.growth
        if not far.all():
            absolute = np.maximum(absolute, size[~far].max(axis=0))
        if norms is not None and far.any():
            growth = np.maximum(growth, (size[far] / norms[far, None]).max(axis=0))
        return NoiseModel(np.maximum(absolute, quantum / np.sqrt(12.0) / levels), growth)

    def typical(self, clusters: list[Samples]) -> NoiseModel:
        """Return the model with the usual deviation near the origin instead of the largest.

        Log-odds of rounded probabilities are as precise as these are far from 0 and 1.
        """
        scatter = [scatter_of(t, y) for t, y in clusters if len(t) > 2]
        if not scatter:
            return self
        usual = np.median(np.array(scatter), axis=0)
        return NoiseModel(np.minimum(self.absolute, usual), self.growth)

    def widened(self, absolute: float | FloatArray, growth: float | FloatArray) -> NoiseModel:
        """Return the model with deviations added: of a network that is subtracted, say."""
        return NoiseModel(self.absolute + absolute, self.growth + growth)


def estimate_noise(
    ask: Callable[[FloatArray], FloatArray],
    norm: Callable[[FloatArray], FloatArray],
    positions: FloatArray,
    scales: FloatArray,
    *,
    near: float,
) -> tuple[NoiseModel, list[Samples]]:
    """Ask small clusters of points on a line, and fit the model to their scatter.

    Each cluster is fitted by a line; what remains is noise, or, where a kink
    hit the cluster, millions of times more, and is left out.

    Parameters
    ----------
    ask
        Function on the line, ``(n,) -> (n, m)``.
    norm
        Norm of the input at each ``t``.
    positions, scales
        Places of the clusters and the local length scale there, ``(c,)``.
    near
        Inputs up to this norm tell ``absolute``, those beyond it ``growth``.

    Returns
    -------
    model, clusters
        The clusters' points and answers, for a line search to start from.
    """
    grid = cluster_of(positions, scales)
    answers = ask(grid.ravel())
    answers = answers.reshape(*grid.shape, -1)
    clusters: list[Samples] = [(t, y) for t, y in zip(grid, answers, strict=True)]
    norms = norm(positions)
    scatter = np.array([scatter_of(t, y) for t, y in clusters])
    level = np.abs(answers).max(axis=1)
    eps, quantum = answer_grid(answers)
    is_near = norms <= near
    if not is_near.any():
        is_near = norms <= norms.min()
    far = ~is_near
    absolute = _upper(scatter[is_near], level[is_near])
    absolute = np.maximum(absolute, 0.5 * eps * np.median(level[is_near], axis=0))
    growth = np.zeros_like(absolute)
    if far.any():
        reach = norms[far][:, None]
        growth = _upper(scatter[far] / reach, level[far] / reach)
        growth = np.maximum(growth, 0.5 * eps * np.median(level[far] / reach, axis=0))
        # Where units saturate far out nothing changes, and no rounding shows; before, it grows.
        still = (answers[far] == answers[far][:, :1]).all(axis=(0, 1))
        growth = np.maximum(growth, still * absolute / near)
    # An output that is zero everywhere still needs a scale to be compared with.
    least = float(np.finfo(np.float64).eps) ** 2 * (float(level[is_near].max()) or 1.0)
    absolute = np.maximum(absolute, max(quantum / np.sqrt(12.0), least))
    return NoiseModel(absolute, growth), clusters


def cluster_of(positions: FloatArray, scales: FloatArray) -> FloatArray:
    """Return clusters of four points of a line, two more than a line needs, ``(c, 4)``.

    Parameters
    ----------
    positions, scales
        Middles of the clusters and the local length scale there, ``(c,)``.
    """
    return np.asarray(positions[:, None] + scales[:, None] * SPACING * (np.arange(4) - 1.5))


def is_single(answers: FloatArray) -> bool:
    """Whether all answers are float32 numbers."""
    with np.errstate(over="ignore"):
        return bool((answers.astype(np.float32) == answers).all())


def decimal_step(answers: FloatArray) -> float:
    """Return the step of the decimal grid on which all answers lie; 0 where there is none.

    Of the numbers of their own precision at least ten must lie between two of the grid: n
    others are all on it with odds of ``10^-n``. Answers too large for that tell nothing.
    """
    eps = float(np.finfo(np.float32 if is_single(answers) else np.float64).eps)
    answers = answers[answers != 0.0]  # zero is on every grid
    finest = 10.0 * eps * np.maximum(1.0, np.abs(answers))
    for decimals in range(np.finfo(np.float64).precision):
        telling = answers[finest <= 10.0**-decimals]  # far answers are too large for the grid
        if telling.size < min(answers.size, TELLING):
            break
        if bool((np.round(telling, decimals) == telling).all()):
            return float(10.0**-decimals)
    return 0.0


def answer_grid(answers: FloatArray) -> tuple[float, float]:
    """Return the answers' relative precision and the step of their decimal grid, or 0.

    Rounded answers may repeat exactly within a cluster, where the scatter says
    nothing about their error; the grid they lie on does.
    """
    double = float(np.finfo(np.float64).eps)
    if answers.max() == answers.min():
        return double, 0.0
    step = decimal_step(answers)
    if step > 0.0:
        return double, step
    return float(np.finfo(np.float32).eps) if is_single(answers) else double, 0.0


def scatter_of(t: FloatArray, y: FloatArray) -> FloatArray:
    """Root mean square residual of a line through the points, per output."""
    piece = fit_piece(t, y, np.ones_like(y))
    residual = y - piece.value - np.outer(t - piece.center, piece.slope)
    return np.asarray(np.sqrt((residual**2).sum(axis=0) / max(1, len(t) - 2)))


def _upper(values: FloatArray, level: FloatArray) -> FloatArray:
    """Largest scatter per output, that left out which only a kink in the cluster explains.

    A kink bends answers by their size times the width of a cluster, noise by the usual
    scatter: what is above the geometric mean of the two is a kink. Noise itself may be larger
    on one side of a hyperplane, where large terms cancel.
    """
    middle = np.median(values, axis=0)
    kinked = np.sqrt(SPACING * np.median(level, axis=0) * middle)
    usual = (values <= np.maximum(AGREES * middle, kinked)) | (middle == 0)
    return np.asarray(np.where(usual, values, 0.0).max(axis=0))
