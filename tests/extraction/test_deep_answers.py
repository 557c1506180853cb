"""Probabilities as log-odds, and where they end."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.levels import output_levels
from unrelu.extraction.deep_answers import (
    AnswerConfig,
    NotFinite,
    Recorder,
    Saturated,
    as_log_odds,
    usable_line,
)
from unrelu.lines.survey import SurveyLine
from unrelu.oracles import connect
from unrelu.oracles.wrappers import LogOdds, Softmax
from unrelu.planted import random_network

CONFIG = AnswerConfig()


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("outputs", [1, 3])
def test_probabilities_are_told_from_values(outputs):
    truth = random_network(5, 4, 4, outputs, rng=1)
    assert as_log_odds(connect(truth), "auto", rng(), CONFIG) is None
    assert as_log_odds(Softmax(connect(truth)), "values", rng(), CONFIG) is None
    view = as_log_odds(Softmax(connect(truth)), "auto", rng(), CONFIG)
    assert isinstance(view, LogOdds)
    x = rng().standard_normal((50, 5))
    f = truth(x)
    if outputs > 1:
        f = np.delete(f, view.reference, axis=1) - f[:, [view.reference]]
    # log(p) of probabilities with 2e-16 relative error each.
    np.testing.assert_allclose(view(x), f, rtol=0, atol=1e-13)


def test_a_constant_is_no_probability():
    flat = connect(lambda x: np.full(len(x), 0.5), input_dim=2, output_dim=1)
    assert as_log_odds(flat, "auto", rng(), CONFIG) is None


def test_a_bounded_function_is_no_probability():
    # A step of slope one between 0 and 0.8, flat far out on both sides.
    oracle = connect(lambda x: np.clip(x @ [0.6, 0.8], -0.3, 0.5) + 0.3, input_dim=2, output_dim=1)
    assert as_log_odds(oracle, "auto", rng(), CONFIG) is None
    assert as_log_odds(oracle, "probabilities", rng(), CONFIG) is not None


def test_rows_out_of_range_are_neither_returned_nor_kept():
    oracle = connect(lambda x: x, input_dim=2, output_dim=2)
    recorder = Recorder(oracle, low=-5.0, high=2.0)
    x = np.array([[0.0, 1.0], [0.0, 3.0], [-4.0, 0.0], [-6.0, 0.0]])
    answers = recorder(x)
    np.testing.assert_array_equal(np.isnan(answers).any(axis=1), [False, True, False, True])
    assert np.isnan(answers[1]).all()
    points, kept = recorder.stored()
    np.testing.assert_array_equal(points, x[[0, 2]])
    np.testing.assert_array_equal(kept, x[[0, 2]])


def test_values_must_be_finite():
    truth = random_network(4, 3, 3, 2, rng=0)
    recorder = Recorder(LogOdds(Softmax(connect(truth))))
    with pytest.raises(NotFinite):
        recorder(1e6 * rng().standard_normal((8, 4)))


def test_a_line_ends_where_a_probability_does():
    oracle = connect(lambda x: x[:, :1], input_dim=2, output_dim=1)
    recorder = Recorder(oracle, low=-600.0, high=6.0)
    line = SurveyLine(np.zeros(2), np.array([1.0, 0.0]), -1e7, 1e7, 1.0)
    short = usable_line(recorder, line, CONFIG)
    # Powers of two below 0.9 times 600 (256 is the last one looked at) and 6.
    assert (short.low, short.high) == (-256.0, 4.0)
    assert usable_line(Recorder(oracle), line, CONFIG) == line
    far = SurveyLine(np.array([50.0, 0.0]), np.array([1.0, 0.0]), -1e7, 1e7, 1.0)
    with pytest.raises(Saturated):
        usable_line(recorder, far, CONFIG)


def test_outputs_of_very_different_scale_get_units_of_their_own():
    base = random_network(5, 4, 4, 3, rng=1)
    even = connect(base)
    look = rng().standard_normal((CONFIG.balance, 5))
    np.testing.assert_array_equal(output_levels(even(look)), np.ones(3))
    scales = np.array([1.0, 1e9, 1e-7])
    uneven = connect(lambda x: base(x) * scales, input_dim=5, output_dim=3)
    units = output_levels(uneven(look))
    x = rng().standard_normal((100, 5))
    seen = Recorder(uneven, units=units)(x)
    spread = seen.std(axis=0)
    assert spread.max() < 4.0 * spread.min()
    np.testing.assert_array_equal(seen * units, uneven(x))  # powers of two change no bit
