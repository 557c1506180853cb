"""What is shown while a command runs: queries, budget, money, time left, certificate."""

from __future__ import annotations

import numpy as np

from unrelu import connect, planted
from unrelu.cli._progress import _Bars, _Live, duration


def test_the_account_says_queries_budget_money_time_and_certificate():
    oracle = connect(planted.random_network(5, 3, 1, rng=0), budget=9000, price=0.01)
    oracle(np.zeros((10, 5)))
    live = _Live(oracle, expected=1000, rate=100.0)
    assert live.account() == "10 queries of 9,000 | 0.1 spent | certificate: not yet"
    oracle(np.ones((500, 5)))
    text = live.account()
    assert text.startswith("510 queries of 9,000 | 5.1 spent | about ")
    # 500 are left, at no more than 100 a second.
    assert "left" in text
    with oracle.stage("certificate"):
        assert live.account().endswith("certificate: held-out inputs")
    assert max(map(len, (text, live.account()))) <= 80


def test_the_stage_that_runs_is_marked_and_the_plan_ends_with_the_certificate():
    oracle = connect(planted.random_network(5, 3, 1, rng=0))
    live = _Live(oracle, expected=1000, rate=None)
    bars = _Bars(live)

    def marked() -> list[str]:
        return [task.description for task in live.tasks if task.fields["mark"] == ">"]

    bars.update("lines", 3)
    assert marked() == ["lines"]
    bars.update("certificate", 0, 10)
    assert marked() == ["certificate"]
    assert live.tasks[0].finished  # its length was not known: it is full once another runs
    oracle(np.zeros((10, 5)))
    assert "certificate: not yet" in live.account()
    bars.update("defences", 0, 4)
    assert live.account() == "10 queries"
    bars.update("lines", 4)
    assert marked() == ["lines"]


def test_resumed_queries_count_in_the_total(tmp_path):
    network = planted.random_network(5, 3, 1, rng=0)
    connect(network, ledger=tmp_path / "l.db")(np.zeros((10, 5)))
    oracle = connect(network, ledger=tmp_path / "l.db")
    live = _Live(oracle, expected=None, rate=None)
    oracle(np.ones((7, 5)))
    assert live.account().startswith(f"{oracle.queries.total} queries |")


def test_durations():
    assert [duration(s) for s in (0.5, 30, 300, 7300, 2e6)] == [
        "0.5 s", "30 s", "5.0 minutes", "2.0 hours", "23.1 days",
    ]  # fmt: skip
