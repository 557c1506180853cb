"""Whether what a model leaves of the labels is noise, as far as the samples can tell.

The noise's size is not known, so a misfit is not seen in the size of the residual. What
tells the two apart is that noise does not depend on x. Each test here has a known law
under that hypothesis alone; together they call pure noise structured with a probability
of at most ``doubt``, by Bonferroni's inequality.

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

import dataclasses

import numpy as np
import scipy.spatial
import scipy.stats

from unrelu._types import FloatArray
from unrelu.core.piecewise import Kinks

__all__ = ["ResidualTests", "find_structure", "rows_between_kinks", "visible_misfit"]


@dataclasses.dataclass(frozen=True)
class ResidualTests:
    """Sizes of the tests.

    Attributes
    ----------
    doubt
        Probability that pure noise fails any of them.
    clip
        Residuals are clipped at this many robust standard deviations, so that sums of a
        few hundred follow the normal law whatever the noise's tails.
    far
        Residuals beyond this many are "unusually large": one of 500 million Gaussian ones.
    bins
        Numbers of bins along a line: few for what varies slowly, four for each of eight
        kinks of a ridge, and what resolves a period of a tenth of the inputs' spread.
    bin_rows
        Samples per bin at least, for the same law.
    random_directions
        Among the span of the units.
    neighbours, neighbour_rows
        Near points per point, and points looked at; a fifth of them beyond 8 inputs, where
        their search compares nearly all pairs.
    """

    doubt: float = 1e-4
    clip: float = 5.0
    far: float = 6.0
    bins: tuple[int, ...] = (12, 32, 128)
    bin_rows: int = 40
    random_directions: int = 24
    neighbours: int = 3
    neighbour_rows: int = 20_000


def visible_misfit(n: int, tests: ResidualTests | None = None) -> float:
    """Share of the noise's standard deviation that a misfit along a line needs to be seen.

    A sum of B squares has the variance 2 B; a misfit of variance v adds ``n v / sigma^2``.
    Six standard deviations pass Bonferroni's bar for any number of lines met in practice.
    """
    options = ResidualTests() if tests is None else tests
    usable = [bins for bins in options.bins if n >= bins * options.bin_rows]
    return float(
        np.sqrt(6.0 * np.sqrt(2.0 * max(usable[:2], default=options.bins[0])) / max(n, 1))
    )


def find_structure(
    x: FloatArray,
    left: FloatArray,
    units: FloatArray,
    axes: FloatArray,
    rng: np.random.Generator,
    tests: ResidualTests | None = None,
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
    options = ResidualTests() if tests is None else tests
    centred = left - np.median(left)
    spread = 1.4826 * float(np.median(np.abs(centred)))
    if spread == 0.0:  # noise of two values, or none
        centred = left - left.mean()
        spread = float(centred.std())
    if spread == 0.0:
        return ""
    clipped = np.clip(centred, -options.clip * spread, options.clip * spread)
    clipped -= clipped.mean()
    found: list[tuple[float, str]] = []
    lines = _directions(units, axes, rng, options)
    for name, w in lines:
        for bins in options.bins:
            if len(x) >= bins * options.bin_rows:
                p = _bin_test(x @ w, clipped, bins)
                found.append((p, f"its mean varies along {name}"))
    if len(x) > options.neighbours + 1:
        p = _neighbour_test(x, clipped, options)
        found.append((p, "it is alike at neighbouring samples"))
    far = np.abs(centred) > options.far * spread
    if far.any():
        p = _one_side_test(x[far], np.sign(centred[far]), x.shape[1])
        found.append((p, f"the {np.count_nonzero(far)} samples that it is largest at lie apart"))
    if not found:
        return ""
    p, what = min(found)
    return f"{what}, p = {p:.0e}" if p * len(found) < options.doubt else ""


def _directions(
    units: FloatArray, axes: FloatArray, rng: np.random.Generator, options: ResidualTests
) -> list[tuple[str, FloatArray]]:
    rows = [(f"unit {i + 1}", w) for i, w in enumerate(units)]
    rows += [(f"input {i + 1}", w) for i, w in enumerate(axes)]
    span, mixture = (units, "units") if len(units) > 1 else (axes, "inputs")
    if len(span) > 1:
        # Units of one length, so that none is drowned by the others.
        length = np.linalg.norm(span, axis=1, keepdims=True)
        span = span / np.where(length > 0.0, length, 1.0)
        mixed = rng.standard_normal((options.random_directions, len(span))) @ span
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


def _neighbour_test(x: FloatArray, values: FloatArray, options: ResidualTests) -> float:
    """Probability of neighbours as alike as these if ``values`` ignore x.

    Each pair counts once or, where both name each other, twice; given x, the sum has
    mean 0 and the variance ``sigma^4`` times the sum of the squared weights.
    """
    rows_wanted = options.neighbour_rows // (1 if x.shape[1] <= 8 else 5)
    step = max(len(x) // rows_wanted, 1)
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
