"""Numbers that a caller gives: NaN, infinity, fractions, texts and bools are refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrelu import InvalidInput, Ledger, connect, planted
from unrelu._numbers import real_number, whole_number
from unrelu.oracles import Batched, CallableOracle, HTTPOracle, Labels, LogOdds, Noisy, Rounded
from unrelu.oracles.base import Meter
from unrelu.oracles.input_map import Mapped

NETWORK = planted.random_network(3, 2, 2, rng=0)
NOT_WHOLE = [math.nan, math.inf, -math.inf, -1, -1.0, 10.5, "10", "", True, False, [5], 1j, b"1"]
NOT_REAL = [math.nan, math.inf, -math.inf, "1.5", "", True, [1.0, 2.0], 1j, b"1", object()]

WHOLE = {
    "budget": lambda v: connect(NETWORK, budget=v),
    "budget of a meter": lambda v: Meter(budget=v),
    "budget set later": lambda v: setattr(connect(NETWORK).meter, "budget", v),
    "batch_size": lambda v: connect(NETWORK, batch_size=v),
    "batch size": lambda v: Batched(connect(NETWORK), v),
    "input_dim": lambda v: connect(lambda x: x, input_dim=v),
    "output_dim": lambda v: connect(lambda x: x, input_dim=3, output_dim=v),
    "output_dim of an oracle": lambda v: CallableOracle(lambda x: x, input_dim=3, output_dim=v),
    "shape": lambda v: connect(lambda x: x, shape=(2, v)),
    "repeat": lambda v: connect(NETWORK)(np.ones((1, 3)), repeat=v),
    "decimals": lambda v: Rounded(connect(NETWORK), v),
    "seed": lambda v: Noisy(connect(NETWORK), 0.1, seed=v),
    "output": lambda v: Labels(connect(NETWORK), threshold=0.5, output=v),
    "reference": lambda v: LogOdds(connect(NETWORK), reference=v),
    "rows_per_request": lambda v: HTTPOracle(
        "http://127.0.0.1:9/invocations", input_dim=3, rows_per_request=v
    ),
}
REAL = {
    "price": lambda v: connect(NETWORK, price=v),
    "max_cost": lambda v: connect(NETWORK, price=1.0, max_cost=v),
    "scale": lambda v: connect(NETWORK, scale=v),
    "scale of a map": lambda v: Mapped(connect(NETWORK), scale=v),
    "range": lambda v: connect(NETWORK, input_range=(0.0, v)),
    "sigma": lambda v: Noisy(connect(NETWORK), v),
    "threshold": lambda v: Labels(connect(NETWORK), threshold=v),
}


@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
@pytest.mark.parametrize("take", WHOLE.values(), ids=WHOLE)
def test_whole_numbers_are_checked_wherever_they_are_taken(take, value, request):
    if "decimals" in request.node.callspec.id and value == -1:
        return  # tens
    with pytest.raises(InvalidInput):
        take(value)


@pytest.mark.parametrize("value", NOT_REAL, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("take", REAL.values(), ids=REAL)
def test_real_numbers_are_checked_wherever_they_are_taken(take, value):
    with pytest.raises(InvalidInput):
        take(value)


def test_a_ledgers_size_and_place_are_checked(tmp_path):
    for size in (*NOT_WHOLE, 10):
        with pytest.raises(InvalidInput):
            Ledger(tmp_path / "l.db", max_bytes=size)
    for place in (5, 1.5, object(), ["l.db"]):
        with pytest.raises(InvalidInput):
            connect(NETWORK, ledger=place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "x", [[[10**400, 0, 0]], [[1j, 0, 0]], [["a", 0, 0]], None, [[1], [2, 3]]]
)
def test_points_that_are_no_numbers_are_refused(x):
    with pytest.raises(InvalidInput):
        connect(NETWORK)(x)


def test_numbers_of_other_types_are_numbers():
    for value in (10, 10.0, np.int32(10), np.float64(10.0), np.array(10)):
        oracle = connect(NETWORK, budget=value, batch_size=value)
        assert oracle.meter.budget == 10
        assert type(oracle.meter.budget) is int
    assert connect(NETWORK, price=np.float32(0.5), max_cost=3).meter.budget == 6
    assert connect(NETWORK, price=1e-300, max_cost=1e300).meter.budget is None
    assert connect(NETWORK, budget=5, price=1e-300, max_cost=1e300).meter.budget == 5


@given(st.one_of(st.floats(), st.integers(), st.text(), st.booleans(), st.none()))
def test_what_passes_is_what_was_given(value):
    for check, kind in ((whole_number, int), (real_number, float)):
        try:
            found = check(value, "number")
        except InvalidInput as error:
            assert "number" in str(error)  # noqa: PT017
        else:
            assert type(found) is kind
            assert found == value or not isinstance(value, float)
            assert kind is int or math.isfinite(found)
