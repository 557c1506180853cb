"""A span against every answer of its run.

A span explains answers if inputs with the same projection are answered alike. All pairs of
the run's inputs whose projections agree up to what the noise hides are compared: those of
the certificate, and those of searches, retries and earlier methods as well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.explain import (
    CHUNK,
    Allowed,
    AnswerComparison,
    Contradictions,
    Tolerance,
    Within,
    withdrawn,
)
from unrelu.core.record import Record
from unrelu.span.grow import SpanSearch
from unrelu.span.label_search import LabelSearch
from unrelu.span.run import SpanResult, SpanRun

__all__ = ["explained_span", "same_projection"]


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """Inputs whose projections agree.

    Attributes
    ----------
    first_rows, rows
        Numbers of the first and the second ones in the run, ``(p,)`` each.
    first, second
        The inputs, ``(p, n)`` each.
    first_answers, second_answers
        ``(p, m)`` each.
    """

    first_rows: IntArray
    rows: IntArray
    first: FloatArray
    second: FloatArray
    first_answers: FloatArray
    second_answers: FloatArray


def same_projection(
    record: Record,
    basis: FloatArray,
    reach: float,
    rng: np.random.Generator,
    *,
    angle: float = 0.0,
) -> Iterator[_Pairs]:
    """Yield pairs of inputs whose projections to a span lie within ``reach``.

    A span known to an ``angle`` moves projections by that part of the inputs' distance more.

    In the order along one random direction of the span such inputs are neighbours, but for
    what lies as close by chance; a second direction tells most of that.
    """
    directions = rng.standard_normal((2, len(basis))) @ basis
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    keys = np.concatenate([batch.points @ directions.T for batch in record.batches()])
    order = np.argsort(keys[:, 0], kind="stable")
    longest = max(float(np.linalg.norm(batch.points, axis=1).max()) for batch in record.batches())
    apart = np.abs(np.diff(keys[order], axis=0))
    near = np.flatnonzero((apart <= reach + 2.0 * angle * longest).all(axis=1))
    for start in range(0, len(near), CHUNK):
        some = near[start : start + CHUNK]
        rows = np.sort(np.stack([order[some], order[some + 1]]), axis=0)  # the earlier one first
        (x, seen), (z, shown) = (_fetch(record, numbers) for numbers in rows)
        allowed = reach + angle * np.linalg.norm(z - x, axis=1)
        alike = np.linalg.norm((z - x) @ basis.T, axis=1) <= allowed
        yield _Pairs(rows[0][alike], rows[1][alike], x[alike], z[alike], seen[alike], shown[alike])


def _fetch(record: Record, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return points and answers of rows of a record, in the order asked."""
    found: list[tuple[IntArray, FloatArray, FloatArray]] = []
    for batch in record.batches():
        mine = np.flatnonzero((rows >= batch.first) & (rows < batch.first + len(batch.points)))
        inside = rows[mine] - batch.first
        found.append((mine, batch.points[inside], batch.answers[inside]))
    back = np.argsort(np.concatenate([mine for mine, _, _ in found]))
    return (
        np.concatenate([x for _, x, _ in found])[back],
        np.concatenate([y for _, _, y in found])[back],
    )


def explained_span(run: SpanRun, result: SpanResult, outputs: slice = slice(None)) -> SpanResult:
    """Return a result that claims to be recovered only if no pair of answers contradicts it.

    ``outputs`` are the columns that the span is about.
    """
    target = run.run.target
    if not result.success or run.search is None or target.record.rows == 0:
        return result
    again: Allowed
    if isinstance(run.search, SpanSearch):
        found = unlike_values(run, run.search, target.record, outputs)
        again = Tolerance(run.config.trust * run.noise, target.record, "values")
    else:
        found = _unlike_labels(run, run.search, target.record)
        again = Within()
    if not found:
        return result
    what = "those at inputs of the same projection"
    return withdrawn(target, result, found, again, what=what)


def unlike_values(
    run: SpanRun, search: SpanSearch, record: Record, outputs: slice
) -> Contradictions:
    """Return the answers that differ by more than noise and the span's own error explain."""
    margin = run.config.trust
    steepest = float(np.linalg.norm(search.gradients.rows, axis=1).max())
    typical = run.scale * math.sqrt(run.oracle.input_dim)
    comparison = AnswerComparison()
    reach = run.noise / steepest
    for pairs in same_projection(record, search.basis, reach, run.rng, angle=search.angle):
        norms = [np.linalg.norm(x, axis=1) for x in (pairs.first, pairs.second)]
        # Rounding inside a target grows with its input.
        noise = run.noise * np.maximum(1.0, np.maximum(*norms) / typical)
        leak = steepest * search.angle * np.linalg.norm(pairs.second - pairs.first, axis=1)
        away = np.abs(pairs.second_answers - pairs.first_answers)[:, outputs].max(axis=1)
        over = away / (margin * (noise + leak))
        comparison.add(pairs.second, pairs.second_answers, over, pairs.rows)
    return comparison.contradictions()


def _unlike_labels(run: SpanRun, search: LabelSearch, record: Record) -> Contradictions:
    """Return the labels that differ away from the boundary.

    Beside it they may: within what its position is known to, and what the span's error moves.
    """
    blur = search.resolution.noise
    moved = search.angle * run.scale * math.sqrt(run.oracle.input_dim)
    within = run.config.trust * (blur + moved)
    beside = _beside_another_label(record, within, run.rng)
    comparison = AnswerComparison()
    for pairs in same_projection(record, search.basis, blur, run.rng):
        unlike = (pairs.second_answers != pairs.first_answers).any(axis=1)
        told = ~(unlike & (beside[pairs.rows] | beside[pairs.first_rows]))
        comparison.add(
            pairs.second[told], pairs.second_answers[told], 2.0 * unlike[told], pairs.rows[told]
        )
    return comparison.contradictions()


def _beside_another_label(record: Record, within: float, rng: np.random.Generator) -> BoolArray:
    """Mark the rows of a record near which another label may have been seen, ``(N,)``.

    Along a random direction points are no farther apart than they are; what lies as close
    by chance is marked as well.
    """
    points, _ = record.first_rows(1)
    direction: FloatArray = rng.standard_normal(points.shape[1:])
    direction /= np.linalg.norm(direction)
    keys = np.concatenate([batch.points @ direction for batch in record.batches()])
    labels = np.concatenate([batch.answers[:, 0] for batch in record.batches()])
    order = np.argsort(keys, kind="stable")
    keys, labels = keys[order], labels[order]
    places = np.arange(len(keys))
    starts = np.concatenate([[True], labels[1:] != labels[:-1]])
    ends = np.concatenate([starts[1:], [True]])
    before = np.maximum.accumulate(np.where(starts, places, 0)) - 1
    after = np.minimum.accumulate(np.where(ends, places, len(keys) - 1)[::-1])[::-1] + 1
    padded = np.concatenate([[-np.inf], keys, [np.inf]])
    marked = np.empty(len(keys), dtype=bool)
    marked[order] = (keys - padded[before + 1] <= within) | (padded[after + 1] - keys <= within)
    return marked
