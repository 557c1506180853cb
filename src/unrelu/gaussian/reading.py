"""What is read, and how: streams, sizes, the precision of the labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.moments import to_numpy
from unrelu.core.noise import answer_grid
from unrelu.errors import InvalidInput
from unrelu.gaussian.config import SampleOptions
from unrelu.gaussian.stream import ReadingPlan
from unrelu.gaussian.survey import SampleSurvey
from unrelu.samples import BATCH_ROWS, SampleSource, as_source

SMALLEST = float(np.finfo(np.float64).tiny) ** 0.2
"""Fourth moments, and their squares, of numbers below this underflow."""

__all__ = ["check_scale", "for_precision", "prepare"]


class _Chained(SampleSource):
    """The rows read ahead, then the rest of a stream; read once."""

    restartable = False
    count = None

    def __init__(self, x: FloatArray, y: FloatArray, rest: Iterator[Any]) -> None:
        self._x, self._y, self._rest = x, y, rest
        self.input_dim = x.shape[1]

    def _pieces(self, rows: int) -> Iterator[Any]:
        yield self._x, self._y
        yield from self._rest


class _Counted(SampleSource):
    """A stream that can be opened again, and how many rows it has."""

    def __init__(self, stream: SampleSource) -> None:
        self._stream = stream
        self.input_dim, self.description = stream.input_dim, stream.description
        self.count = sum(len(x) for x, _ in stream.batches())

    def _pieces(self, rows: int) -> Iterator[Any]:
        """Cut the stream where arrays would be cut: two halves are then the same two."""
        xs, ys, have = [], [], 0
        for x, y in self._stream.batches(rows):
            xs.append(to_numpy(x))
            ys.append(to_numpy(y))
            have += len(x)
            if have >= rows:
                whole = np.concatenate(xs), np.concatenate(ys)
                yield whole[0][:rows], whole[1][:rows]
                xs, ys, have = [whole[0][rows:]], [whole[1][rows:]], have - rows
        if have:
            yield np.concatenate(xs), np.concatenate(ys)


def check_scale(survey: SampleSurvey) -> None:
    """Refuse labels and inputs whose squares or products leave float64's range."""
    inputs = float(np.sqrt(np.abs(np.diag(survey.input_covariance)).max(initial=0.0)))
    for name, size in (("labels", survey.label_scale), ("inputs", inputs)):
        if not (size == 0.0 or SMALLEST < size < 1.0 / SMALLEST):
            raise InvalidInput(
                f"the {name} have a spread of {size:.1g}: their squares leave the range of "
                "float64; scale them to the order of 1"
            )


def prepare(
    source: SampleSource, options: SampleOptions, jobs: int, scheduler: Any
) -> tuple[SampleSource, SampleSource, ReadingPlan]:
    """Return what the survey reads, what the moments read, and how.

    A stream that can be opened again is counted first. One that can be read only once is read
    ahead as far as rows may be kept: if it ends before, it is arrays from then on, and gives the
    same network to rounding; of a longer one the survey and the polish use the rows that were
    kept, the moments all, and the result says so.
    """
    if scheduler is None and hasattr(source, "chunks"):
        scheduler = _current_client()
    if source.restartable and source.count is None:
        source = _Counted(source)
    everything = source
    if not source.restartable:
        batches = source.batches(BATCH_ROWS // 2)
        xs, ys, kept = [], [], 0
        for x, y in batches:
            xs.append(np.asarray(x, dtype=np.float64))
            ys.append(np.asarray(y, dtype=np.float64))
            kept += len(x)
            if kept >= options.keep_rows:
                break
        else:  # the stream ended: these are all samples, and they can be read again
            source = as_source(np.concatenate(xs), np.concatenate(ys))
            return _planned(source, source, jobs, scheduler)
        head = np.concatenate(xs), np.concatenate(ys)
        source = as_source(*head)
        everything = _Chained(*head, batches)
    return _planned(source, everything, jobs, scheduler)


def _planned(
    source: SampleSource, everything: SampleSource, jobs: int, scheduler: Any
) -> tuple[SampleSource, SampleSource, ReadingPlan]:
    assert source.count is not None
    if source.count < 4:
        raise InvalidInput(f"{source.count} samples are too few to learn anything from")
    rows = int(min(BATCH_ROWS // 2, max(source.count // 16, 1)))
    return source, everything, ReadingPlan(rows, jobs, scheduler)


def _current_client() -> Any:
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def for_precision(options: SampleOptions, survey: SampleSurvey) -> SampleOptions:
    """Loosen the tolerances if the labels are rounded: float32, or few decimals.

    Their rounding is no noise that averages out: it follows the labels, and is
    nothing where the label is an exact zero.
    """
    y, scale = survey.train_y, survey.label_scale
    if np.all(y == np.rint(y)) or scale == 0.0:
        return options  # counts and classes: rounded too much to undo
    eps, quantum = answer_grid(y)
    exact, tails = options.polish.exact, options.polish.tails
    if quantum > 0.0 and quantum < np.sqrt(options.doubt) * scale:
        # Root mean square 0.29, largest 0.5 of a step, and the fit's error.
        exact, tails = max(exact, 0.5 * quantum / scale), 3.0
    elif eps > np.finfo(np.float64).eps:
        exact = 8.0 * eps  # a float32 network computes with errors of a few 1e-7 of its sums
    polish = dataclasses.replace(options.polish, exact=exact, tails=tails)
    return dataclasses.replace(options, polish=polish)
