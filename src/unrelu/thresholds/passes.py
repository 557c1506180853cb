"""Passes over labelled samples: a pilot in memory, moments, thin slabs.

The first rows are held out for the certificate, the next ones are the pilot that
stays in memory; moments and slabs come from all but the held-out rows. A source
that can be read only once gives its moments while the pilot is read, and no slabs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.moments import (
    CompensatedSums,
    HermiteMoments,
    mean_moments,
    raw_sums,
    to_numpy,
)
from unrelu.core.noise import RARE
from unrelu.errors import InvalidInput
from unrelu.samples import BATCH_ROWS, SampleSource
from unrelu.thresholds.config import EPS, ThresholdConfig

__all__ = ["Base", "Passes", "Slabs", "find_base", "rows_held_out"]


@dataclasses.dataclass(frozen=True)
class Base:
    """The label where every unit is off, and what counts as different from it.

    ``share`` is the part of the labels equal to ``level``; ``exact`` says
    whether there is such an atom at all.
    """

    level: float
    tolerance: float
    share: float
    exact: bool

    def is_on(self, y: FloatArray) -> BoolArray:
        """Whether any unit is on: sgn(f - c_0) of the paper's Lemma 5, as booleans."""
        if self.exact:
            return np.asarray(np.abs(y - self.level) > self.tolerance)
        return np.asarray(y - self.level > self.tolerance)


def find_base(y: FloatArray, config: ThresholdConfig) -> Base:
    """Find c_0 as the labels' atom, or as their median where noise blurs it."""
    values, counts = np.unique(y, return_counts=True)
    top = int(np.argmax(counts))
    # Low thresholds: units are on more often than not, and a monotone f is least
    # where all are off.
    if counts[top] < 0.5 * counts.sum() and counts[0] >= config.atom * counts.sum():
        top = 0
    share = float(counts[top] / counts.sum())
    spread = float(values[-1] - values[0])
    if share >= config.atom:
        # Rounding of f itself: a few units in the last place of its range.
        scale = max(spread, abs(float(values[top])))
        return Base(float(values[top]), (1.0 / EPS) ** 0.125 * EPS * scale, share, True)
    level = float(np.median(y))
    deviation = 1.4826 * float(np.median(np.abs(y - level)))
    return Base(level, RARE * deviation, 0.0, False)


@dataclasses.dataclass(frozen=True)
class Slabs:
    """Points near hyperplanes, and points that no hyperplane explains.

    Attributes
    ----------
    x, on
        Points within the widths of any hyperplane, ``(m, n)`` and ``(m,)``.
    unexplained_count, overexplained_count
        Points that are on though below every slab, and those above a slab that are off.
    below, above
        Points below every slab, and above any.
    """

    x: FloatArray
    on: BoolArray
    unexplained_count: int
    overexplained_count: int
    below: int
    above: int


def rows_held_out(source: SampleSource, config: ThresholdConfig) -> int:
    """Return how many first rows are kept for the certificate."""
    if source.count is None:
        return config.held_out
    return min(config.held_out, source.count // 20)


class Passes:
    """Reads a sample source as the threshold algorithms need it.

    Parameters
    ----------
    source
        The samples.
    prepare
        Checks and transforms a batch of labels, for example ``1 - y``.
    base
        c_0, where known.
    """

    def __init__(
        self,
        source: SampleSource,
        prepare: Callable[[FloatArray], FloatArray],
        config: ThresholdConfig,
        *,
        base: Base | None = None,
    ) -> None:
        self.source = source
        self.config = config
        self._prepare = prepare
        self.n = source.input_dim
        self.held_out_rows = rows_held_out(source, config)
        self._stream: Iterator[tuple[FloatArray, FloatArray]] | None = self._read()
        held: list[tuple[FloatArray, FloatArray]] = []
        pilot: list[tuple[FloatArray, FloatArray]] = []
        self._hold(self._stream, held, pilot, config.pilot_rows)
        if not pilot:
            raise InvalidInput("there are no samples beyond the held-out ones")
        self.held_x, self.held_y = _join(held, self.n)
        self.pilot_x, self.pilot_y = _join(pilot, self.n)
        self.base = find_base(self.pilot_y, config) if base is None else base
        self.samples = len(self.held_y) + len(self.pilot_y)
        self.pilot_is_all = source.count is not None and self.samples >= source.count

    def _read(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        for x, y in self.source.batches(BATCH_ROWS):
            yield to_numpy(x), self._prepare(to_numpy(y))

    def _hold(
        self,
        stream: Iterator[tuple[FloatArray, FloatArray]],
        held: list[tuple[FloatArray, FloatArray]],
        pilot: list[tuple[FloatArray, FloatArray]],
        rows: int,
    ) -> None:
        missing = self.held_out_rows
        taken = 0
        for x, y in stream:
            cut = min(missing, len(x))
            if cut:
                held.append((x[:cut], y[:cut]))
                missing -= cut
            if cut < len(x):
                pilot.append((x[cut:], y[cut:]))
                taken += len(x) - cut
            if taken >= rows:
                return

    def training(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield all batches but the held-out rows; the pilot first."""
        for start in range(0, len(self.pilot_x), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            yield self.pilot_x[part], self.pilot_y[part]
        yield from self._beyond_pilot()

    def _beyond_pilot(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        if self.pilot_is_all:
            return
        skip = 0
        stream, self._stream = self._stream, None
        if stream is None:
            if not self.source.restartable:
                return
            stream = self._read()
            skip = len(self.held_y) + len(self.pilot_y)
        seen = len(self.held_y) + len(self.pilot_y) - skip
        for x, y in stream:
            seen += len(x)
            if skip:
                cut = min(skip, len(x))
                skip -= cut
                x, y = x[cut:], y[cut:]
            if len(x):
                yield x, y
        self.samples = seen
        self.pilot_is_all = seen == len(self.held_y) + len(self.pilot_y)

    def moments(
        self,
        order: int,
        *,
        value: Callable[[FloatArray, FloatArray], FloatArray] | None = None,
        step: Callable[[int], None] | None = None,
    ) -> tuple[HermiteMoments, HermiteMoments]:
        """Hermite moments of the labels minus c_0, from two halves, the even and the odd rows.

        ``value(x, y)`` replaces the labels. Rows with value 0 are counted but
        not multiplied: far from the thresholds that is most of them.
        """
        halves = (CompensatedSums(), CompensatedSums())
        for x, y in self.training():
            label = y - self.base.level if value is None else value(x, y)
            for half, part in zip(halves, (slice(0, None, 2), slice(1, None, 2)), strict=True):
                kept = np.flatnonzero(label[part])
                half.add(raw_sums(x[part][kept], label[part][kept], order), len(label[part]))
            if step is not None:
                step(len(x))
        if halves[1].count == 0:
            raise InvalidInput("too few samples: at least two are needed")
        return mean_moments(halves[0]), mean_moments(halves[1])

    def slabs(self, directions: FloatArray, thresholds: FloatArray, widths: FloatArray) -> Slabs:
        """Collect the points of thin slabs from all samples."""
        parts: list[tuple[FloatArray, FloatArray]] = []
        stray_count = over_count = below_count = above_count = 0
        for x, y in self.training():
            on = self.base.is_on(y)
            heights = x @ directions.T - thresholds
            near = (np.abs(heights) < widths).any(axis=1)
            below = (heights <= -widths).all(axis=1)
            above = (heights >= widths).any(axis=1)
            parts.append((x[near], on[near].astype(np.float64)))
            lost = on & below
            stray_count += int(np.count_nonzero(lost))
            over_count += int(np.count_nonzero(~on & above))
            below_count += int(np.count_nonzero(below))
            above_count += int(np.count_nonzero(above))
        x_near, on_near = _join(parts, self.n)
        return Slabs(
            x=x_near,
            on=on_near > 0.5,
            unexplained_count=stray_count,
            overexplained_count=over_count,
            below=below_count,
            above=above_count,
        )


def _join(parts: list[tuple[FloatArray, FloatArray]], n: int) -> tuple[FloatArray, FloatArray]:
    if not parts:
        return np.empty((0, n)), np.empty(0)
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
