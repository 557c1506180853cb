"""Units from Hermite moments: of the labels, or of what a model leaves of them."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.moment_fit import fit_moments, units_from_scalars
from unrelu.core.moments import DENSE_LIMIT, HermiteMoments, hermite_moments, raw_sums
from unrelu.core.noise import RARE
from unrelu.core.power_method import distinct_directions, subspace_power_method

__all__ = ["decompose", "propose_units", "residual_signal", "signal_rank"]


def signal_rank(flat: FloatArray, error: FloatArray) -> tuple[int, FloatArray, FloatArray, float]:
    """Count the singular values of the flattened moments above their noise.

    The noise is a sample of the estimate's error (half the difference of two
    halves); its part inside the leading subspace is taken out, since there the
    singular values are those of the signal.

    Parameters
    ----------
    flat, error
        Flattened moments and noise, ``(D, c)``.

    Returns
    -------
    Rank, left singular vectors, singular values, threshold.
    """
    u, s, _ = np.linalg.svd(flat, full_matrices=False)
    threshold = 0.0
    for k in range(len(s)):
        threshold = _spectral_norm(error, u[:, :k])
        if s[k] < threshold:
            return k, u, s, threshold
    return len(s), u, s, threshold


def _spectral_norm(matrix: FloatArray, without: FloatArray | None = None) -> float:
    """Largest singular value, off the column space of ``without``.

    Power iteration; 30 products give it to a few per cent, which is enough.
    """
    vector = 1.0 + 1e-3 * np.cos(np.arange(matrix.shape[1]))
    vector /= np.linalg.norm(vector)
    value = 0.0
    for _ in range(30):
        image = matrix @ vector
        if without is not None:
            image -= without @ (without.T @ image)
        back = matrix.T @ image
        value = float(np.linalg.norm(back))
        if value == 0.0:
            return 0.0
        vector = back / value
    return float(np.sqrt(value))


def decompose(
    moments: HermiteMoments,
    vectors: FloatArray,
    count: int,
    rng: np.random.Generator,
    options: PolishOptions,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Directions, outer weights and biases of ``count`` units from moments.

    The subspace power method on the leading singular vectors, then all orders
    fitted at once, first with free scalars, then with those of ReLU units.
    """
    d = moments.input_dim
    count = min(count, vectors.shape[1])
    starts = rng.standard_normal((max(options.starts * count, 50), d))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    found, score = subspace_power_method(vectors[:, :count], starts, steps=options.steps)
    w = found[distinct_directions(found, score, count=count, cosine=options.same)]
    free = fit_moments(moments, w, tied=False)
    tied = fit_moments(moments, free.w, tied=True)
    a, b = units_from_scalars(tied.alpha)
    return tied.w, a, b


def propose_units(
    x: FloatArray,
    left: FloatArray,
    rng: np.random.Generator,
    options: PolishOptions,
    *,
    at_least: int,
    at_most: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Propose units that explain a residual, from its own moments.

    Returns directions, outer weights and biases, possibly none.
    """
    d = x.shape[1]
    moments, rank, vectors, _ = residual_signal(x, left)
    count = min(max(rank, at_least), at_most)
    if count == 0:
        return np.empty((0, d)), np.empty(0), np.empty(0)
    w, a, b = decompose(moments, vectors, count, rng, options)
    return w, np.clip(a, -1e3, 1e3), np.clip(b, -2.0, 2.0)


def residual_signal(
    x: FloatArray, left: FloatArray
) -> tuple[HermiteMoments, int, FloatArray, float]:
    """Moments of a residual, how many of their singular values rise above noise.

    Returns
    -------
    Moments, rank, left singular vectors, threshold.
    """
    order = 4 if x.shape[1] <= DENSE_LIMIT else 3
    blocks = [_batch_moments(x[i::8], left[i::8], order) for i in range(min(8, len(x)))]
    moments = blocks[0]
    for block in blocks[1:]:
        moments = moments + block
    moments = moments.scaled(1.0 / len(blocks))
    u, s, _ = np.linalg.svd(moments.flattening(), full_matrices=False)
    # Signed sums of the blocks, half plus and half minus: the signal cancels,
    # the noise does not. Each row of a Hadamard matrix but the first is one.
    pieces = np.stack([block.flattening() for block in blocks])
    tops = []
    for row in scipy.linalg.hadamard(8)[1:, : len(blocks)]:
        error = np.tensordot(row, pieces, axes=1) / len(blocks)
        tops.append(_spectral_norm(error))
    threshold = float(np.mean(tops) + RARE * np.std(tops))
    threshold = max(threshold, float(np.max(tops)))
    return moments, int(np.count_nonzero(s > threshold)), u, threshold


def _batch_moments(x: FloatArray, y: FloatArray, order: int) -> HermiteMoments:
    sums: list[FloatArray] | None = None
    for start in range(0, len(x), 8192):
        part = raw_sums(x[start : start + 8192], y[start : start + 8192], order)
        sums = list(part) if sums is None else [s + p for s, p in zip(sums, part, strict=True)]
    assert sums is not None
    return hermite_moments(tuple(np.asarray(total) / len(x) for total in sums))
