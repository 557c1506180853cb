"""Which log-odds can be read, and how well."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from unrelu._types import FloatArray
from unrelu.core.legible import DEEPEST, legible_log_odds
from unrelu.core.record import Record, remembered
from unrelu.oracles import connect

Z = np.linspace(-8.0, 8.0, 60) + 0.01


def record_of(columns: FloatArray) -> Record:
    """Return a record of answers ``(n, m)``."""
    target = remembered(
        connect(lambda x: columns[x[:, 0].astype(int)], input_dim=1, output_dim=columns.shape[1])
    )
    target(np.arange(len(columns), dtype=float)[:, None])
    return target.record


@pytest.mark.parametrize("reference", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_digits_are_lost_where_the_probability_that_was_computed_nears_one(
    reference: int, turned: bool
) -> None:
    p = scipy.special.expit(Z)
    columns = np.stack([1.0 - p, p], axis=1)[:, :: -1 if turned else 1]
    found = legible_log_odds(record_of(columns), reference, 6.0)
    computed = 0 if turned else 1
    # log-odds are those of the other column against the reference
    assert found.lost == ((1,) if computed != reference else (-1,))
    limits = (-DEEPEST, 6.0) if computed != reference else (-6.0, DEEPEST)
    assert (found.low, found.high) == limits
    y = np.log(columns[:, 1 - reference]) - np.log(columns[:, reference])
    truth = Z if 1 - reference == computed else -Z
    # beside what reading loses, a few units in the last place of numbers up to 8
    rounding = found.rounding(y[:, None])[:, 0] + 8 * 8.0 * np.finfo(float).eps
    assert (np.abs(y - truth) <= rounding).all()


def test_a_single_column_and_a_softmax() -> None:
    p = scipy.special.expit(Z)[:, None]
    assert legible_log_odds(record_of(p), 0, 6.0).lost == (1,)
    assert legible_log_odds(record_of(1.0 - p), 0, 6.0).lost == (-1, 1)  # no digits to tell by
    three = scipy.special.softmax(np.stack([Z, -Z, 0.3 * Z], axis=1), axis=1)
    found = legible_log_odds(record_of(three), 0, 6.0)
    assert found.lost == ()
    assert found.high == DEEPEST
    assert not found.rounding(np.array([[3.0, 4.0]])).any()
    assert not found(np.array([[np.nan, 0.0]])).any()
