"""Ranges that nobody told of, through the public verb."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unrelu
from unrelu._types import FloatArray
from unrelu.extraction.box_clip import notice_clipping
from unrelu.networks import ReLUNetwork

LOW, HIGH = np.linspace(-0.5, 0.0, 6), np.linspace(1.0, 3.0, 6)


def planted(seed: int) -> ReLUNetwork:
    """Return 6-5-3 with hyperplanes through the middle of the range."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((5, 6))
    middle = rng.uniform(0.2 * LOW + 0.1, 0.8 * HIGH, (5, 6))
    biases = -(rows * middle).sum(axis=1)
    return ReLUNetwork([rows, rng.standard_normal((3, 5))], [biases, rng.standard_normal(3)])


@pytest.mark.parametrize("seed", [3, 4])
def test_clipped_inputs_are_noticed_and_the_rest_is_recovered(seed: int) -> None:
    truth = planted(seed)
    oracle = unrelu.connect(lambda x: truth(np.clip(x, LOW, HIGH)), input_dim=6, output_dim=3)
    result = unrelu.extract(oracle, rng=seed)
    assert result.success, result.message
    assert "clips inputs to about" in result.message
    x = np.random.default_rng(seed).uniform(LOW, HIGH, (2000, 6))
    assert result.network is not None
    # double precision: values of order ten
    assert np.abs(result.network(x) - truth(x)).max() < 1e-10


def test_a_range_that_an_error_enforces_is_found_by_asking() -> None:
    truth = planted(5)

    def refusing(x: FloatArray) -> FloatArray:
        if (x < 0.0).any() or (x > 1.0).any():
            raise ValueError("invalid input")
        return np.asarray(truth(x))

    result = unrelu.extract(unrelu.connect(refusing, input_dim=6, output_dim=3), rng=0)
    assert result.success, result.message
    assert "refuses other inputs than about 0 to 1" in result.message
    x = np.random.default_rng(1).random((2000, 6))
    assert result.network is not None
    assert np.abs(result.network(x) - truth(x)).max() < 1e-10


def test_a_target_that_answers_nowhere_is_told_what_to_pass() -> None:
    def never(x: FloatArray) -> FloatArray:
        if (x < 7.0).any() or (x > 9.0).any():
            raise ValueError("invalid input")
        return x[:, :1]

    with pytest.raises(unrelu.OracleError, match=r"invalid input.*input_range=\(low, high\)"):
        unrelu.extract(unrelu.connect(never, input_dim=3, output_dim=1), rng=0)
    rows = np.random.default_rng(0).uniform(7.0, 9.0, (50, 3))
    result = unrelu.extract(unrelu.connect(never, input_dim=3, output_dim=1, data=rows), rng=0)
    assert "refuses other inputs than about 7" in result.message


def test_a_target_that_is_limited_on_one_side_is_told_what_to_pass() -> None:
    def positive(x: FloatArray) -> FloatArray:
        if (x < 0.0).any():
            raise ValueError("invalid input")
        return np.abs(x[:, :1] - 1.0)

    with pytest.raises(unrelu.OracleError, match="input_range"):
        unrelu.extract(unrelu.connect(positive, input_dim=3, output_dim=1), rng=0)


@pytest.mark.parametrize(
    "activation", [np.tanh, lambda z: np.clip(z, -1.0, 1.0), lambda z: np.clip(z, 0.0, 6.0)]
)
def test_units_that_saturate_are_not_called_clipping(
    activation: Callable[[FloatArray], FloatArray],
) -> None:
    rng = np.random.default_rng(0)
    rows, top = rng.standard_normal((10, 8)), rng.standard_normal((2, 10))
    oracle = unrelu.connect(lambda x: activation(x @ rows.T) @ top.T, input_dim=8, output_dim=2)
    assert not notice_clipping(oracle, rng=0).noticed
    # Two answers far out, and three pairs of which half of the features are far out.
    assert oracle.queries.total == 8
