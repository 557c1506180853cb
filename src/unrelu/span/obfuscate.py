"""Noise in the null space of a recovered span: images that only people can't read.

Jayaram, Woodruff & Zhang, section 5: the network's answer depends on x through
its projection onto the span alone, so noise orthogonal to it changes the image
and not the answer.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput
from unrelu.result import RecoveryResult
from unrelu.span.hidden_noise import correlations, project_to_box, remove_span
from unrelu.span.subspace import orthonormal

__all__ = ["Obfuscation", "obfuscate"]


ITERATIONS = 1000
"""Projections with Dykstra's correction, which look for the nearest admissible point, and plain
ones at most, which close the gap. Convergence is slow, and the last percent of noise is not
worth having."""
ROOT = math.sqrt(float(np.finfo(np.float64).eps))
"""Rows are orthonormal, and a point lies in the box, up to the root of float64's resolution."""


@dataclasses.dataclass(frozen=True)
class Obfuscation:
    """Obfuscated inputs and what was done to them, one entry per row.

    Attributes
    ----------
    images
        ``(N, n)``.
    noise_norm
        Norm of what was added, over the norm of the input.
    correlation
        Pearson's correlation between input and obfuscated input.
    affine_residual
        Norm of what was added inside the span, over the norm of the input:
        what the network can see.
    box_residual
        Largest distance of an entry outside the box; 0 without a box.
    iterations
        Projections used to fit the box.
    """

    images: FloatArray
    noise_norm: FloatArray
    correlation: FloatArray
    affine_residual: FloatArray
    box_residual: FloatArray
    iterations: int = 0


def _basis_of(span: RecoveryResult | ArrayLike) -> FloatArray:
    rows = getattr(span, "basis", span)
    try:
        basis = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"span must be a result of recover_span or an array of rows: {error}"
        ) from error
    if basis.ndim != 2 or not np.isfinite(basis).all():
        raise InvalidInput(f"a span's basis must be finite rows (r, n), got shape {basis.shape}")
    if np.abs(basis @ basis.T - np.eye(len(basis))).max(initial=0.0) > ROOT:
        basis = orthonormal(basis)
    return basis


def obfuscate(
    x: ArrayLike,
    span: RecoveryResult | ArrayLike,
    *,
    noise: float,
    relative: bool = True,
    box: tuple[float, float] | None = None,
    rng: RandomState = None,
) -> Obfuscation:
    """Add noise to inputs that a network with the given span does not see.

    Parameters
    ----------
    x
        Inputs, ``(N, n)`` or one input ``(n,)``.
    span
        A result of :func:`recover_span`, or rows that span what the network sees.
    noise
        Norm of the noise, as a multiple of each input's norm.
    relative
        False: ``noise`` is the norm itself.
    box
        Range that every entry must keep. The noise is then what remains of the
        asked-for noise nearest to it, so that a large ``noise`` gives about as
        much as the box admits in its direction. Inputs must lie in the box.
    rng
        Seed or generator.

    Returns
    -------
    Obfuscation
        ``images`` and, per input, noise norm, correlation and residuals.

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> target = unrelu.planted.random_network(20, 3, 1, rng=0)
    >>> x = np.random.default_rng(0).standard_normal((2, 20))
    >>> hidden = unrelu.obfuscate(x, target.weights[0], noise=10.0, rng=0)
    >>> bool(np.allclose(target(hidden.images), target(x)))
    True
    """
    basis = _basis_of(span)
    points = np.atleast_2d(np.asarray(x, dtype=np.float64))
    n = basis.shape[1]
    if points.ndim != 2 or points.shape[1] != n:
        raise InvalidInput(f"x must have shape (N, {n}), got {points.shape}")
    if not np.isfinite(points).all():
        raise InvalidInput("x contains NaN or infinite entries")
    if not (np.isfinite(noise) and noise >= 0):
        raise InvalidInput(f"noise must be a finite number, zero or more, got {noise}")
    if len(basis) >= n:
        raise InvalidInput("the span is the whole space: there is no null space for noise")
    norm = np.linalg.norm(points, axis=1)
    raw = remove_span(as_generator(rng).standard_normal(points.shape), basis)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    target = points + (noise * (norm if relative else np.ones_like(norm)))[:, None] * raw
    iterations = 0
    outside = np.zeros(len(points))
    if box is not None:
        try:
            low, high = (float(end) for end in box)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"box must be (low, high), got {box!r}") from error
        if not low < high:
            raise InvalidInput(f"box must be (low, high) with low < high, got {box}")
        if points.min(initial=low) < low or points.max(initial=high) > high:
            raise InvalidInput(f"x has entries outside the box [{low:g}, {high:g}]")
        target, iterations = project_to_box(
            points,
            target,
            basis,
            low,
            high,
            iterations=ITERATIONS,
            tolerance=ROOT * (high - low),
        )
        outside = np.maximum(low - target, target - high).clip(min=0.0).max(axis=1, initial=0.0)
    added = target - points
    unit = np.where(norm > 0, norm, 1.0)
    return Obfuscation(
        target,
        np.linalg.norm(added, axis=1) / unit,
        correlations(points, target),
        np.linalg.norm(added @ basis.T, axis=1) / unit,
        outside,
        iterations,
    )
