"""Normals of a decision boundary from labels alone."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.explain import CHUNK
from unrelu.lines.boundary import Boundary, find_offsets
from unrelu.oracles.base import Oracle
from unrelu.span.config import FINEST, SpanConfig
from unrelu.span.values import random_directions

__all__ = ["Resolution", "measure_normals", "measure_null_offsets", "measure_resolution"]

LADDER = tuple(2.0**-e for e in range(2, 45, 6))
"""Perturbations at which resolution and curvature are told apart, in units of the inputs'
scale: a factor of 64 between rungs, so that curvature falls by 4096 from one to the next and
resolution does not."""


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What limits a boundary's position.

    Attributes
    ----------
    noise
        Error of a boundary's offset along a search direction, in units of the
        inputs.
    curvature
        Bend of the boundary over a perturbation h: the offset deviates from
        linear by ``curvature · h²``.
    """

    noise: float
    curvature: float


def measure_resolution(
    oracle: Oracle, rng: np.random.Generator, boundary: Boundary, *, scale: float,
    config: SpanConfig,
) -> Resolution:  # fmt: skip
    """Tell the noise of boundary offsets and the boundary's curvature apart.

    Offsets c(h) are taken along a ladder of perturbations h. The deviation of
    c(h_i) from (h_i / h_{i-1}) c(h_{i-1}) is curvature · h_i · h_{i-1} on the
    upper rungs and noise on the lower ones.
    """
    n, count = oracle.input_dim, len(boundary)
    ladder = scale * np.asarray(LADDER)
    u = random_directions(rng, (count, n))
    start = boundary.points[None] + ladder[:, None, None] * u[None]
    rungs = len(ladder)
    offsets = find_offsets(
        oracle,
        start.reshape(-1, n),
        np.tile(boundary.directions, (rungs, 1)),
        np.tile(boundary.labels, rungs),
        expected=np.repeat(ladder, count),
        finest=scale * FINEST,
    ).reshape(rungs, count)
    ratio = ladder[1:] / ladder[:-1]
    deviation = np.abs(offsets[1:] - ratio[:, None] * offsets[:-1])
    product = ladder[1:] * ladder[:-1]
    usable = np.isfinite(deviation).all(axis=0)
    if not usable.any():
        return Resolution(scale * FINEST, config.flattest / scale)
    typical = np.median(deviation[:, usable], axis=1)
    curvature = float(typical[0] / product[0])
    # A rung shows noise where curvature would give less than a tenth of it.
    noisy = typical[curvature * product < 0.1 * typical]
    noise = max(float(noisy.max()) if len(noisy) else 0.0, scale * FINEST)
    if typical[0] <= 10.0 * noise:  # nothing but noise on the top rung either
        curvature = 0.0
    return Resolution(noise, max(curvature, config.flattest / scale))


def _offsets_around(
    oracle: Oracle,
    boundary: Boundary,
    moves: FloatArray,
    steps: FloatArray,
    *,
    expected: FloatArray,
    finest: float,
) -> FloatArray:
    """Return offsets after moving each point by its step along each row of ``moves``.

    Result ``(P, q)``. Batches hold several points while they fit in memory.
    """
    count, (q, n) = len(boundary), moves.shape
    together = max(1, CHUNK // q)
    parts = []
    for first in range(0, count, together):
        some = slice(first, min(first + together, count))
        size = some.stop - some.start
        start = boundary.points[some][:, None] + steps[some][:, None, None] * moves
        parts.append(
            find_offsets(
                oracle,
                start.reshape(-1, n),
                np.repeat(boundary.directions[some], q, axis=0),
                np.repeat(boundary.labels[some], q),
                expected=np.repeat(expected[some], q),
                finest=finest,
            ).reshape(size, q)
        )
    return np.concatenate(parts)


def measure_normals(
    oracle: Oracle,
    boundary: Boundary,
    rng: np.random.Generator,
    *,
    step: float,
    finest: float,
    config: SpanConfig,
) -> tuple[FloatArray, FloatArray]:
    """Return the boundary's normals, ``(P, n)``, outward, and their errors, ``(P,)``.

    Moving by h along e_i shifts the boundary along the search direction d by
    c_i = -h g_i / (g · d): one bisection per coordinate. A normal comes scaled
    to g · d = 1, so its length tells how tangential d was. Moves in a few
    random directions are compared with what the normal predicts; their root
    mean square deviation is the error of an entry. Rows with an offset that was
    not found are NaN.
    """
    n = oracle.input_dim
    checks = random_directions(rng, (config.probes, n))
    steps = np.full(len(boundary), step)
    offsets = _offsets_around(
        oracle,
        boundary,
        np.concatenate([np.eye(n), checks]),
        steps,
        expected=steps,
        finest=finest,
    )
    normals, seen = -offsets[:, :n] / step, -offsets[:, n:] / step
    # Both the prediction and what was seen err: hence the factor of 2.
    error = np.sqrt(np.mean((normals @ checks.T - seen) ** 2, axis=1) / 2.0)
    return normals, error


def measure_null_offsets(
    oracle: Oracle,
    boundary: Boundary,
    null: FloatArray,
    *,
    steps: FloatArray,
    expected: FloatArray,
    finest: float,
) -> FloatArray:
    """Return slopes of the boundary along the rows of ``null``, ``(P, q)``.

    The slope is (g · q) / (g · d) for the normal g and the search direction d,
    from steps along the null space that may be long. The offset of the
    unmoved point is measured as well and taken off.
    """
    moves = np.concatenate([np.zeros((1, null.shape[1])), null])
    offsets = _offsets_around(oracle, boundary, moves, steps, expected=expected, finest=finest)
    return -(offsets[:, 1:] - offsets[:, :1]) / steps[:, None]
