"""Answers by name: records, score maps and lists of labels with scores, as columns.

A column is a class or an output, never a rank: a list that a server sorts by
score is read by its labels. What names only some of the classes (top-k) has
columns that come and go, and is refused with what to ask the server for.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidAnswer
from unrelu.oracles.wire.protocol import as_rows, telling

__all__ = ["Columns"]

_LABELS = ("label", "class", "name", "category", "class_name", "predicted_label")
_SCORES = ("score", "probability", "confidence", "prob", "value")


class Columns:
    """Reads predictions, one a row, and remembers the names of their columns.

    Parameters
    ----------
    output
        Name of the field to read where a prediction has several; None: the one whose name
        promises scores.
    """

    def __init__(self, output: str | None = None) -> None:
        self.output = output
        self.names: tuple[str, ...] | None = None

    def read(self, predictions: Any, rows: int) -> FloatArray:
        """Return predictions as ``(rows, m)``.

        A prediction is a number, a list of numbers, a record with scores, a map from names to
        scores, or a list of labels with scores. One list a column is read too.
        """
        if isinstance(predictions, dict):
            if rows == 1 and _is_score_map(predictions):
                return self._by_name([predictions])
            return self._columnwise(predictions, rows)
        if not isinstance(predictions, list) or not predictions:
            return as_rows(predictions, rows)
        if rows == 1 and _is_label_list(predictions):
            return self._by_name([_scores_by_label(predictions)])
        first = predictions[0]
        if isinstance(first, dict):
            return self._records(predictions, rows)
        if _is_label_list(first):
            return self._by_name([_scores_by_label(item) for item in predictions])
        return as_rows(predictions, rows)

    def _records(self, records: list[Any], rows: int) -> FloatArray:
        """Read one record a row: the field with the scores, or all numbers by name."""
        if not all(isinstance(record, dict) for record in records):
            raise InvalidAnswer("the server's predictions are not all of one kind")
        field = self._field(records[0])
        if field is None:
            return self._by_name(records)
        try:
            values = [record[field] for record in records]
        except KeyError as error:
            raise InvalidAnswer(f"a prediction has no {field!r}") from error
        if isinstance(values[0], dict):
            return self._by_name(values)
        return as_rows(values, rows)

    def _columnwise(self, columns: dict[str, Any], rows: int) -> FloatArray:
        """Read one list a column: the one with scores, or all of them."""
        if not columns:
            raise InvalidAnswer("the server's answer has no predictions")
        chosen = telling(list(columns))[-1:] or list(columns)
        if self.output is not None:
            chosen = [self._named(columns)]
        return np.concatenate([as_rows(columns[name], rows) for name in chosen], axis=1)

    def _named(self, record: dict[str, Any]) -> str:
        """Return the field that the caller named."""
        assert self.output is not None
        if self.output not in record:
            raise InvalidAnswer(
                f"a prediction has no {self.output!r}; it has: {', '.join(record)}"
            )
        return self.output

    def _field(self, record: dict[str, Any]) -> str | None:
        """Return the name of the field that holds the scores; None: the fields are the scores."""
        names = list(record)
        if self.output is not None:
            return self._named(record)
        if len(names) == 1 and not _is_score_map(record):
            return names[0]
        if _is_score_map(record) and not any(name in record for name in _LABELS):
            return None
        fields = telling([name for name in names if not isinstance(record[name], str)])
        if not fields:
            raise InvalidAnswer(
                "a prediction has several fields, none of which says that it holds scores: "
                f"{', '.join(names)}; name the one to read (--output-name NAME)"
            )
        return fields[-1]

    def _by_name(self, maps: list[dict[str, Any]]) -> FloatArray:
        """Read maps from names to scores; columns keep one order for good."""
        if self.names is None:
            self.names = _in_order(maps[0])
        for scores in maps:
            if set(scores) != set(self.names):
                raise InvalidAnswer(
                    f"the server names {len(scores)} classes in one answer and not the same ones "
                    "in another (the best few, it seems): ask it for all classes, such as by "
                    "top_k in --request, or for the label alone"
                )
        return as_rows([[scores[name] for name in self.names] for scores in maps], len(maps))


def _in_order(scores: dict[str, Any]) -> tuple[str, ...]:
    """Return names in an order that no answer decides: by number where all are, else by letter."""
    names = [str(name) for name in scores]
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def _is_score_map(item: Any) -> bool:
    """Whether this maps names to numbers."""
    return isinstance(item, dict) and bool(item) and all(map(_is_number, item.values()))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, numbers.Real) and not isinstance(value, bool))


def _is_label_list(item: Any) -> bool:
    """Whether this is a list of labels with their scores."""
    return (
        isinstance(item, list)
        and bool(item)
        and all(
            isinstance(entry, dict) and _key(entry, _LABELS) and _key(entry, _SCORES)
            for entry in item
        )
    )


def _scores_by_label(entries: list[dict[str, Any]]) -> dict[str, Any]:
    if not _is_label_list(entries):
        raise InvalidAnswer("the server's predictions are not all lists of labels with scores")
    scores = {
        str(entry[_key(entry, _LABELS)]): entry[_key(entry, _SCORES)]  # type: ignore[index]
        for entry in entries
    }
    if len(scores) != len(entries):
        raise InvalidAnswer("the server's answer names a label twice")
    return scores


def _key(entry: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in entry), None)
