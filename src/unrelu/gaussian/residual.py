"""Whether what a model leaves of the labels is noise, as far as the samples can tell.

The noise's size is not known, so a misfit is not seen in the size of the residual. What
tells the two apart is that noise does not depend on x. Each test here has a known law
under that hypothesis alone; together they call pure noise structured with a probability
of at most ``SampleOptions.doubt``, by Bonferroni's inequality.

- Along a line: the residual's mean in bins of ``w . x``, for the directions of the
  units, the axes and random directions among the units. A sum of squares of standardised
  means follows a chi-square law. A smooth ridge that kinks approximate oscillates here.
- Between neighbours: products of the residuals of near points have mean zero. Any shape
  that is wider than the distance of neighbours shows, whatever its direction.
- Far out: samples with an unusually large residual lie anywhere; those that a rare unit
  left behind lie on one side.

A misfit that varies along one of these lines with a variance of ``visible_misfit(n)``
times the noise's fails almost surely; a smaller one may pass.
"""

from __future__ import annotations

import numpy as np
import scipy.spatial
import scipy.stats

from unrelu._types import FloatArray
from unrelu.core.decompose import residual_signal
from unrelu.core.moments import hermite_moments, raw_sums
from unrelu.core.noise import RARE
from unrelu.core.piecewise import Kinks
from unrelu.gaussian.config import SampleOptions

TINY = np.finfo(np.float64).tiny

__all__ = [
    "few_carry_most",
    "find_jump",
    "find_structure",
    "rough_structure",
    "rows_between_kinks",
    "visible_misfit",
]


def _bin_counts(n: int) -> tuple[int, ...]:
    """Numbers of bins along a line, the finest first.

    2 n^(2/5) of them see most (Mann & Wald 1942), fewer what varies slowly.
    """
    finest = 2.0 * n**0.4
    return tuple(max(int(finest / part), 2) for part in (1, 4, 16))


def visible_misfit(n: int) -> float:
    """Share of the noise's standard deviation that a misfit along a line needs to be seen.

    A sum of B squares has the variance 2 B; a misfit of variance v adds ``n v / sigma^2``.
    Six standard deviations pass Bonferroni's bar for any number of lines met in practice.
    """
    return float(np.sqrt(RARE * np.sqrt(2.0 * _bin_counts(n)[1]) / max(n, 1)))


def find_structure(
    x: FloatArray,
    left: FloatArray,
    units: FloatArray,
    axes: FloatArray,
    rng: np.random.Generator,
    options: SampleOptions,
) -> str:
    """Say how a residual depends on x; empty where it looks like noise.

    Parameters
    ----------
    x
        Points in coordinates where they have mean zero and unit covariance, ``(n, d)``.
    left
        Residuals, ``(n,)``.
    units, axes
        Directions to look along, rows of any length, ``(m, d)`` and ``(q, d)``.
    """
    centred = left - np.median(left)
    spread = 1.4826 * float(np.median(np.abs(centred)))
    if spread == 0.0:  # noise of two values, or none
        centred = left - left.mean()
        spread = float(centred.std())
    if spread == 0.0:
        return ""
    clipped = np.clip(centred, -RARE * spread, RARE * spread)
    clipped -= clipped.mean()
    found: list[tuple[float, str]] = []
    for name, w in _directions(units, axes, rng):
        for bins in _bin_counts(len(x)):
            p = _bin_test(x @ w, clipped, bins)
            found.append((p, f"its mean varies along {name}"))
    if len(x) > options.neighbours + 1:
        p = _neighbour_test(x, clipped, options)
        found.append((p, "it is alike at neighbouring samples"))
    far = np.abs(centred) > RARE * spread
    if far.any():
        p = _one_side_test(x[far], np.sign(centred[far]), x.shape[1])
        found.append((p, f"the {np.count_nonzero(far)} samples that it is largest at lie apart"))
    if not found:
        return ""
    p, what = min(found)
    return f"{what}, p = {p:.0e}" if p * len(found) < options.doubt else ""


def _directions(
    units: FloatArray, axes: FloatArray, rng: np.random.Generator
) -> list[tuple[str, FloatArray]]:
    rows = [(f"unit {i + 1}", w) for i, w in enumerate(units)]
    rows += [(f"input {i + 1}", w) for i, w in enumerate(axes)]
    span, mixture = (units, "units") if len(units) > 1 else (axes, "inputs")
    if len(span) > 1:
        # Units of one length, so that none is drowned by the others.
        length = np.linalg.norm(span, axis=1, keepdims=True)
        span = span / np.where(length > 0.0, length, 1.0)
        mixed = rng.standard_normal((len(rows), len(span))) @ span
        rows += [(f"a mixture of {mixture}", w) for w in mixed]
    return [(name, w) for name, w in rows if np.linalg.norm(w) > 0.0]


def _bin_test(position: FloatArray, values: FloatArray, bins: int) -> float:
    """Probability of bin means as uneven as these if ``values`` ignore ``position``.

    The residual of a fit is orthogonal to the fit's own derivatives, which only makes
    the means more even: the test errs on the side of calling it noise.
    """
    edges = np.quantile(position, np.arange(1, bins) / bins)
    index = np.searchsorted(edges, position)
    count = np.bincount(index, minlength=bins)
    total = np.bincount(index, weights=values, minlength=bins)
    used = count > 0
    if np.count_nonzero(used) < 2:
        return 1.0
    statistic = float(np.sum(total[used] ** 2 / count[used])) / float(np.mean(values**2))
    return float(scipy.stats.chi2.sf(statistic, np.count_nonzero(used) - 1))


def _neighbour_test(x: FloatArray, values: FloatArray, options: SampleOptions) -> float:
    """Probability of neighbours as alike as these if ``values`` ignore x.

    Each pair counts once or, where both name each other, twice; given x, the sum has
    mean 0 and the variance ``sigma^4`` times the sum of the squared weights.
    """
    step = max(len(x) // options.held_rows, 1)
    x, values = x[::step], values[::step]
    count = min(options.neighbours, len(x) - 1)
    _, near = scipy.spatial.cKDTree(x).query(x, k=count + 1)
    rows = np.repeat(np.arange(len(x)), count)
    columns = np.asarray(near)[:, 1:].ravel()
    other = rows != columns  # points that coincide may name themselves
    rows, columns = rows[other], columns[other]
    if len(rows) == 0:
        return 1.0
    pairs = np.minimum(rows, columns) * len(x) + np.maximum(rows, columns)
    pairs, weight = np.unique(pairs, return_counts=True)
    products = values[pairs // len(x)] * values[pairs % len(x)]
    spread = float(np.mean(values**2)) * float(np.sqrt(np.sum(weight.astype(np.float64) ** 2)))
    return float(scipy.stats.norm.sf(float(weight @ products) / spread))


def _one_side_test(x: FloatArray, sign: FloatArray, d: int) -> float:
    """Probability of far samples as much on one side as these if they lie anywhere."""
    middle = sign @ x / np.sqrt(len(x))
    apart = x.sum(axis=0) / np.sqrt(len(x))
    statistic = max(float(middle @ middle), float(apart @ apart))
    return min(2.0 * float(scipy.stats.chi2.sf(statistic, d)), 1.0)


def rows_between_kinks(model: Kinks, x: FloatArray) -> int:
    """Fewest samples at which two units differ in more than their weights.

    Where two kinks have almost no sample between them only the sum of their weights is
    determined: they may grow against each other without bound, as they do to stand for
    a jump. Samples beyond both, on either side, tell the sum alone.
    """
    m = len(model.u)
    if m < 2:
        return len(x)
    on = (x @ model.u[:, :-1].T + model.u[:, -1] > 0.0).astype(np.float64)
    both = on.T @ on
    count = np.diag(both)
    differ = count[:, None] + count[None, :] - 2.0 * both
    # A unit turned over has its kink at the same place.
    differ = np.minimum(differ, len(x) - differ)
    return int(differ[np.triu_indices(m, 1)].min())


def rough_structure(x: FloatArray, left: FloatArray) -> str:
    """Say what the moments of a residual still show that noise would not."""
    _, rank, _, _ = residual_signal(x, left)
    if rank:
        return "its moments of order 2 to 4 are not zero"
    if few_carry_most(left):
        return "a few samples carry most of it"
    # Noise that does not depend on x has a square uncorrelated with x x^T.
    square = left**2
    square = square / max(float(square.mean()), TINY) - 1.0
    n = len(square)
    spread = float(square.std())
    moments = hermite_moments(tuple(np.asarray(s) / n for s in raw_sums(x, square, order=2)))
    worst = float(np.abs(np.linalg.eigvalsh(moments.t2)).max(initial=0.0))
    edge = spread * (2.0 * np.sqrt(x.shape[1]) + 8.0) / np.sqrt(n)
    return "its size depends on x" if worst > edge else ""


def few_carry_most(left: FloatArray) -> bool:
    """Whether a residual is small but for a few samples, as next to a rare kink.

    Gaussian noise has a median magnitude of 0.67 standard deviations, noise with three
    degrees of freedom 0.44.
    """
    return float(np.median(np.abs(left))) < 0.2 * float(left.std())


def find_jump(model: Kinks, x: FloatArray) -> str:
    """Say so if two kinks may stand for a jump: too few samples lie between them."""
    between = rows_between_kinks(model, x)
    if between >= x.shape[1] + 3:
        return ""
    return f"only {between} samples lie between two kinks, which may stand for a jump"
