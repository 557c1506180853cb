"""The detectors C2 and C3 of Section 3, and a refinement on lines across a hyperplane."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.thresholds.config import EPS, TINY
from unrelu.thresholds.slab import tangent_basis

__all__ = ["Detection", "LineStep", "detect", "move_by_lines"]

Values = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class Detection:
    """The detector's answer in one direction: its mean and standard error."""

    strength: float
    error: float


@dataclasses.dataclass(frozen=True)
class LineStep:
    """A hyperplane moved to where lines across it show the break.

    ``angle`` and ``shift`` say how far; ``lines`` how many showed one.
    """

    direction: FloatArray
    threshold: float
    angle: float
    shift: float
    lines: int


def detect(
    values: Values,
    directions: FloatArray,
    threshold: float,
    epsilon: float,
    count: int,
    *,
    kink: bool,
    rng: np.random.Generator,
) -> list[Detection]:
    """Measure C2 (a jump) or C3 (a kink) at many directions in one batch.

    C2 / phi(t) is the mean of ``f(v + (t + eps) z) - f(v + (t - eps) z)`` over Gaussian v
    orthogonal to z, the same v on both planes; C3 / (eps phi(t)) that of
    ``(f(t + eps) - 2 f(t) + f(t - eps)) / eps``. At a unit either stays E[dP/dX_i] as eps
    falls; elsewhere it falls with eps.

    Parameters
    ----------
    directions
        Unit rows ``(m, n)``.
    count
        Lines per direction; two queries each, or three.
    """
    m, n = directions.shape
    along = rng.standard_normal((m, count, n))
    along -= np.einsum("mcn,mn->mc", along, directions)[:, :, None] * directions[:, None, :]
    offsets = np.array([epsilon, 0.0, -epsilon] if kink else [epsilon, -epsilon])
    heights = (threshold + offsets)[None, None, :, None]
    points = along[:, :, None, :] + heights * directions[:, None, None, :]
    f = values(points.reshape(-1, n)).reshape(m, count, len(offsets))
    breaks = (f[..., 0] - 2.0 * f[..., 1] + f[..., 2]) / epsilon if kink else f[..., 0] - f[..., 1]
    mean = breaks.mean(axis=1)
    error = breaks.std(axis=1) / np.sqrt(count)
    return [Detection(float(a), float(b)) for a, b in zip(mean, error, strict=True)]


def move_by_lines(
    values: Values,
    direction: FloatArray,
    threshold: float,
    epsilon: float,
    count: int,
    *,
    kink: bool,
    rng: np.random.Generator,
) -> LineStep | None:
    """Move a hyperplane by the breaks seen on lines that cross it.

    On the line ``v + s z`` the break of size Q lies at height ``delta + a . v``. A jump
    shows Q between the line's ends and the height in the answer at a random s; a kink
    shows both in four answers: with the slopes g-, g+ outside [-eps, eps], Q = g+ - g- and
    ``Q s* = (g- + g+) eps - (f(eps) - f(-eps))``. One regression weighted by |Q| gives
    (delta, a). None where too few lines show a break.
    """
    n = len(direction)
    basis = tangent_basis(direction)
    along = rng.standard_normal((count, n - 1))
    foot = along @ basis.T + threshold * direction
    if kink:
        heights = np.tile(epsilon * np.array([-2.0, -1.0, 1.0, 2.0]), (count, 1))
    else:
        ends = np.full((count, 1), epsilon)
        heights = np.hstack([-ends, rng.uniform(-epsilon, epsilon, (count, 1)), ends])
    points = foot[:, None, :] + heights[:, :, None] * direction
    f = values(points.reshape(-1, n)).reshape(heights.shape)
    if kink:
        left, right = (f[:, 1] - f[:, 0]) / epsilon, (f[:, 3] - f[:, 2]) / epsilon
        size = right - left
        moment = (left + right) * epsilon - (f[:, 2] - f[:, 1])
    else:
        size = f[:, 2] - f[:, 0]
        expected = np.where(heights[:, 1] > 0, f[:, 2], f[:, 0])
        # E over s of (f(s) - expected) is -Q s* / (2 eps).
        moment = -2.0 * epsilon * (f[:, 1] - expected)
    scale = float(np.abs(f - f.mean()).max()) + TINY
    seen = np.abs(size) > np.sqrt(EPS) * scale
    if np.count_nonzero(seen) < 3 * (n + 1):
        return None
    regressors = np.column_stack([np.ones(count), along])[seen]
    weight = np.abs(size[seen])
    target = np.sign(size[seen]) * moment[seen]
    # A break outside [-eps, eps] would be read at a height beyond it: leave it out.
    if kink:
        close = np.abs(target) <= epsilon * weight
        if np.count_nonzero(close) < 3 * (n + 1):
            return None
        regressors, weight, target = regressors[close], weight[close], target[close]
    gram = (regressors * weight[:, None]).T @ regressors
    move = np.linalg.lstsq(gram, regressors.T @ target, rcond=None)[0]
    normal = direction - basis @ move[1:]
    length = float(np.linalg.norm(normal))
    return LineStep(
        direction=np.asarray(normal / length),
        threshold=float((threshold + move[0]) / length),
        angle=float(np.arctan(np.linalg.norm(move[1:]))),
        shift=float(move[0]),
        lines=len(target),
    )
