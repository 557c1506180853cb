"""Attacks on the target itself: one that fails proves nothing, and only its own rows count."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from test_audit import QUICK

from unrelu import Ledger, connect, extract, planted
from unrelu.errors import BudgetExhausted
from unrelu.progress import NullProgress
from unrelu.report import audit
from unrelu.report.attempts import run_attacks
from unrelu.result import Provenance, QueryStats, RecoveryResult, Status

NETWORK = planted.random_network(6, 3, 2, rng=0)
FAILED = RecoveryResult(Status.PARTIAL, "unlucky", QueryStats(), Provenance("extract"))


class Unlucky:
    """Fails so many times before it attacks."""

    def __init__(self, fails: int, status: Status = Status.PARTIAL) -> None:
        self.fails, self.status = fails, status
        self.seeds: list[int] = []

    def __call__(self, oracle, plan, rng, progress):
        self.seeds.append(rng)
        if len(self.seeds) <= self.fails:
            oracle(np.random.default_rng(rng).standard_normal((500, 6)))
            return dataclasses.replace(FAILED, status=self.status, queries=oracle.queries)
        return extract(oracle, plan=plan, rng=rng)


def attacked(attack, target=NETWORK, attempts=3):
    return run_attacks(
        connect(target), "all", attack, None, None, rng=7, attempts=attempts,
        progress=NullProgress(),
    )  # fmt: skip


def test_a_target_is_hard_to_copy_only_where_several_attacks_failed():
    lucky = Unlucky(2)
    found = attacked(lucky)
    assert found.result.success
    assert lucky.seeds == [7, 8, 9]
    assert (found.attacks, found.cut_short) == (3, False)
    hopeless = attacked(Unlucky(9))
    assert (hopeless.attacks, hopeless.result.copied) == (3, False)
    facts = audit(connect(NETWORK), rng=0, config=QUICK, attack=Unlucky(9))
    assert facts.headline == "Not cloned by these attacks"
    assert "3 attacks, each with random choices" in facts.verdict


def test_the_attackers_cost_is_that_of_the_attack_that_got_through(tmp_path):
    alone = attacked(None)
    after_two = attacked(Unlucky(2))
    assert after_two.needed < alone.needed + 500  # seeds differ by less than a failed attack asks
    assert after_two.result.queries.total > 1000 + after_two.needed
    # Nor do rows of other runs count that the ledger holds, and rows that it answers do.
    with Ledger(tmp_path / "answers.db") as book:
        for seed in (1, 2, 1):
            facts = audit(connect(NETWORK, ledger=book), rng=seed, config=QUICK)
    assert facts.needed == audit(connect(NETWORK), rng=1, config=QUICK).needed


def test_what_was_cut_short_is_no_all_clear():
    ended = attacked(Unlucky(9, Status.BUDGET_EXHAUSTED))
    assert (ended.attacks, ended.cut_short) == (1, True)

    def poor(oracle, rng):
        raise BudgetExhausted("no more")

    found = run_attacks(
        connect(NETWORK), "all", Unlucky(9), poor, attacked(None).plan, rng=0, attempts=3,
        progress=NullProgress(),
    )  # fmt: skip
    assert (found.attacks, found.cut_short) == (1, True)

    def tree(x):
        return (x[:, :1] > 0.2) + 0.5 * (x[:, 1:2] > 0)

    facts = audit(connect(tree, input_dim=6, budget=500), rng=0, config=QUICK)
    assert facts.risk.level in {"medium", "high", "not shown"}  # never low


@pytest.mark.parametrize("attempts", [1, 2])
def test_no_more_attacks_than_asked_for(attempts):
    attack = Unlucky(9)
    assert attacked(attack, attempts=attempts).attacks == len(attack.seeds) == attempts
