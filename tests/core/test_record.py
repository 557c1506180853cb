import numpy as np
import pytest

import unrelu
from unrelu.core.price import FIRST_AGAIN, OVERRUN, Allowance
from unrelu.core.record import Record, remembered
from unrelu.errors import BudgetExhausted, InvalidAnswer


def _filled(spill_bytes, rng):
    record = Record(spill_bytes)
    batches = [(rng.standard_normal((n, 3)), rng.standard_normal((n, 2))) for n in (5, 1, 7, 4)]
    for i, (x, y) in enumerate(batches):
        record.add(x, y, f"stage {i}")
    return record, batches


@pytest.mark.parametrize("spill_bytes", [0, 300, 1 << 30])
def test_what_is_kept_comes_back_in_order_from_memory_and_disk(spill_bytes):
    record, batches = _filled(spill_bytes, np.random.default_rng(0))
    first = 0
    for batch, (i, (x, y)) in zip(record.batches(), enumerate(batches), strict=True):
        np.testing.assert_array_equal(batch.points, x)
        np.testing.assert_array_equal(batch.answers, y)
        assert (batch.stage, batch.first) == (f"stage {i}", first)
        first += len(x)
    assert len(record) == first == 17
    points, answers = record.first_rows(8)
    np.testing.assert_array_equal(points, np.concatenate([x for x, _ in batches])[:8])
    np.testing.assert_array_equal(answers, np.concatenate([y for _, y in batches])[:8])
    found = record.of_stage("stage 2")
    assert found is not None
    np.testing.assert_array_equal(found[0], batches[2][0])
    assert record.of_stage("nothing") is None


def test_a_record_does_not_share_memory_with_what_it_was_given():
    record = Record()
    x, y = np.ones((2, 3)), np.ones((2, 1))
    record.add(x, y, "s")
    x[:], y[:] = 7.0, 7.0
    batch = next(record.batches())
    assert (batch.points == 1.0).all()
    assert (batch.answers == 1.0).all()


def test_an_oracle_that_remembers_asks_once_and_keeps_all():
    oracle = remembered(unrelu.connect(lambda x: x[:, :1] * 2.0, input_dim=3))
    assert remembered(oracle) is oracle
    with oracle.stage("look"):
        oracle(np.ones((4, 3)))
    oracle(np.zeros((2, 3)), repeat=1)
    assert [b.stage for b in oracle.record.batches()] == ["look", "other"]
    assert oracle.record.rows == 6
    assert oracle.queries.total - oracle.queries.by_stage.get("connect", 0) == 6


def test_answers_before_a_failure_are_remembered():
    def target(x):
        y = x[:, :1].copy()
        y[3:] = np.nan
        return y

    oracle = remembered(unrelu.connect(target, input_dim=2, output_dim=1))
    with pytest.raises(InvalidAnswer):
        oracle(np.arange(12.0).reshape(6, 2))
    assert oracle.record.rows == 3


def test_a_run_ends_at_four_times_its_plan_unless_a_budget_is_set():
    inner = unrelu.connect(lambda x: x[:, :1], input_dim=2, output_dim=1)
    oracle = remembered(inner)
    oracle(np.zeros((100, 2)))  # no plan yet
    oracle.allowance.plan((10, 50 - FIRST_AGAIN))
    oracle(np.zeros((OVERRUN * 50 - 101, 2)))
    with pytest.raises(BudgetExhausted, match=r"planned at 50 queries.*budget=, --budget"):
        oracle(np.zeros((1, 2)))
    oracle.allowance.plan((10, 51 - FIRST_AGAIN))  # it learned more
    oracle(np.zeros((OVERRUN, 2)))
    inner.meter.budget = 10_000
    oracle(np.zeros((500, 2)))


def test_a_settled_plan_is_not_raised_by_a_method():
    allowance = Allowance(unrelu.connect(lambda x: x[:, :1], input_dim=2, output_dim=1).meter)
    allowance.plan((1, 10), settled=True)
    allowance.plan((1, 1000))
    assert allowance.planned == (1, 10 + FIRST_AGAIN)
