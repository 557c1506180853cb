"""The ledger: durable, exact, shared, bounded, and honest about damage."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from unrelu import BudgetExhausted, InvalidInput, Ledger, LedgerError, LedgerFull, OracleError
from unrelu.ledger import redact
from unrelu.oracles import Noisy, connect


class Target:
    """Counts the rows it is asked."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.rows += len(x)
        return np.column_stack([np.maximum(x.sum(axis=1), 0.0), x[:, 0]])


X = np.random.default_rng(0).standard_normal((100, 3))


def test_cached_rows_are_not_asked_again(tmp_path):
    first, second = Target(), Target()
    oracle = connect(first, input_dim=3, ledger=tmp_path / "l.db", batch_size=16)
    with oracle.stage("a"):
        y = oracle(X)
    with oracle.stage("b"):
        np.testing.assert_array_equal(oracle(X[::-1]), y[::-1])
    assert oracle.queries.total == first.rows == 101
    assert dict(oracle.queries.by_stage) == {"a": 100, "connect": 1}
    resumed = connect(second, input_dim=3, ledger=tmp_path / "l.db")
    before = oracle.queries
    np.testing.assert_array_equal(resumed(X), y)
    np.testing.assert_array_equal(resumed(X), y)
    assert second.rows == 3  # those that tell whether it is the same model, and no other
    assert resumed.queries.total == 101 + 3  # totals go over all runs
    assert dict(resumed.queries.by_stage) == {**before.by_stage, "identity": 3}


def test_keys_are_exact_bits_and_repeats(tmp_path):
    target = Target()
    oracle = connect(target, input_dim=3, ledger=tmp_path / "l.db")
    base = target.rows
    oracle(np.array([[1.0, 2.0, 3.0]]))
    oracle(np.array([[1.0, 2.0, np.nextafter(3.0, 4.0)]]))
    oracle(np.array([[0.0, 0.0, 1.0]]))
    oracle(np.array([[-0.0, 0.0, 1.0]]))
    assert target.rows == base + 4
    oracle(np.array([[1.0, 2.0, 3.0]]), repeat=1)
    oracle(np.array([[1.0, 2.0, 3.0]]), repeat=1)
    assert target.rows == base + 5


def test_repeats_of_a_noisy_target_are_replayed(tmp_path):
    def average() -> np.ndarray:
        oracle = connect(
            Noisy(connect(Target(), input_dim=3), 0.1, seed=3), ledger=tmp_path / "l.db"
        )
        return sum(oracle(X[:5], repeat=i) for i in range(4))

    np.testing.assert_array_equal(average(), average())


def test_doubled_rows_in_one_batch_are_asked_once(tmp_path):
    target = Target()
    oracle = connect(target, input_dim=3, ledger=tmp_path / "l.db")
    y = oracle(np.concatenate([X[:3], X[:3]]))
    np.testing.assert_array_equal(y[:3], y[3:])
    assert target.rows == 1 + 3


def test_budget_counts_earlier_runs(tmp_path):
    path = tmp_path / "l.db"
    connect(Target(), input_dim=3, ledger=path)(X[:50])
    target = Target()
    oracle = connect(target, input_dim=3, ledger=path, budget=60, batch_size=8)
    with pytest.raises(BudgetExhausted):
        oracle(X)
    assert oracle.queries.total <= 60
    assert target.rows == oracle.queries.total - 51
    assert oracle.queries.by_stage["identity"] == 3
    oracle(X[:50])  # cached rows stay free
    assert target.rows == oracle.queries.total - 51


def test_answers_before_a_failure_are_kept(tmp_path):
    def failing(x: np.ndarray) -> np.ndarray:
        y = x[:, :1].copy()
        if (x[:, 0] == X[57, 0]).any():
            y[x[:, 0] == X[57, 0]] = np.nan
        return y

    oracle = connect(failing, input_dim=3, ledger=tmp_path / "l.db", name="t", batch_size=10)
    with pytest.raises(OracleError, match="row 7 of batch"):
        oracle(X)
    with Ledger(tmp_path / "l.db", read_only=True) as book:
        assert book.entries()[0].answers == 1 + 57


def test_two_oracles_share_a_file_without_mixing(tmp_path):
    one = connect(lambda x: x[:, 0], input_dim=3, ledger=tmp_path / "l.db", name="one")
    two = connect(lambda x: x[:, 1], input_dim=3, ledger=tmp_path / "l.db", name="two")
    assert not np.array_equal(one(X), two(X))
    with pytest.raises(LedgerError, match="with 3 inputs, not 4"):
        connect(lambda x: x[:, 1], input_dim=4, ledger=tmp_path / "l.db", name="two")


def test_credentials_never_reach_the_file(tmp_path):
    name = "http://user:s3cr3t@host:8080/v2/models/m/infer?token=t0k3n#frag|round:3"
    assert redact(name) == "http://host:8080/v2/models/m/infer|round:3"
    connect(lambda x: x, input_dim=2, ledger=tmp_path / "l.db", name=name)
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"s3cr3t" not in content
    assert b"t0k3n" not in content


def test_points_are_stored_only_when_asked_for(tmp_path):
    plain, full = Ledger(tmp_path / "a.db"), Ledger(tmp_path / "b.db", store_points=True)
    for book in (plain, full):
        connect(Target(), input_dim=3, ledger=book)(X)
    assert list(plain.export()) == []
    ((_, x, y),) = full.export()
    rows = {tuple(row): tuple(answer) for row, answer in zip(x, y, strict=True)}
    assert len(rows) == 101
    for point, answer in zip(X, Target()(X), strict=True):
        assert rows[tuple(point)] == tuple(answer)
    assert full.prune(points_only=True) >= 0
    assert list(full.export()) == []
    assert full.entries()[0].answers == 101


def test_prune_gives_space_back(tmp_path):
    book = Ledger(tmp_path / "l.db")
    connect(lambda x: x, input_dim=50, ledger=book, name="big")(
        np.random.default_rng(0).random((3000, 50))
    )
    connect(lambda x: x, input_dim=2, ledger=book, name="small")(X[:5, :2])
    assert book.prune("big") > 500_000
    assert [entry.identity for entry in book.entries()] == ["small"]
    with pytest.raises(InvalidInput, match="holds nothing"):
        book.prune("big")


def test_size_is_bounded(tmp_path):
    book = Ledger(tmp_path / "l.db", max_bytes=1 << 20)
    oracle = connect(lambda x: x, input_dim=50, ledger=book, name="t", batch_size=100)
    with pytest.raises(LedgerFull, match="prune"):
        oracle(np.random.default_rng(0).random((10_000, 50)))
    held = book.entries()[0].answers
    assert held > 1000
    assert (tmp_path / "l.db").stat().st_size <= 1 << 20
    assert book.verify() == []
    with pytest.raises(InvalidInput):
        Ledger(tmp_path / "m.db", max_bytes=10)


def test_foreign_files_are_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_bytes(b"my diary, of more than one hundred bytes " * 10)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    for path, match in ((text, "not an unrelu ledger"), (other, "another program")):
        before = path.read_bytes()
        with pytest.raises(LedgerError, match=match):
            Ledger(path)
        assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "other.db"]
    with pytest.raises(LedgerError, match="folder"):
        Ledger(tmp_path)
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger(tmp_path / "nowhere" / "l.db")
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "missing.db", read_only=True)


def test_newer_formats_are_refused(tmp_path):
    Ledger(tmp_path / "l.db").close()
    with sqlite3.connect(tmp_path / "l.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(LedgerError, match="another version"):
        Ledger(tmp_path / "l.db")


def filled(path: Path) -> Path:
    with Ledger(path) as book:
        connect(Target(), input_dim=3, ledger=book)(np.random.default_rng(1).random((5000, 3)))
    return path


def test_corruption_is_found_and_told(tmp_path):
    path = filled(tmp_path / "l.db")
    content = bytearray(path.read_bytes())
    random.seed(0)
    for _ in range(2000):
        content[random.randrange(8192 * 4, len(content))] ^= 0xFF
    path.write_bytes(content)
    problems = []
    try:
        with Ledger(path, read_only=True) as book:
            problems = book.verify()
            connect(Target(), input_dim=3, ledger=path)(np.random.default_rng(1).random((5000, 3)))
    except LedgerError as error:
        problems.append(str(error))
    assert problems
    assert path.read_bytes()[: 8192 * 4] == bytes(content[: 8192 * 4])


def test_a_flipped_answer_fails_its_checksum(tmp_path):
    path = filled(tmp_path / "l.db")
    with sqlite3.connect(path) as db:
        key = db.execute("SELECT key FROM answers LIMIT 1").fetchone()[0]
        db.execute("UPDATE answers SET answer = zeroblob(16) WHERE key = ?", (key,))
    db.close()
    with Ledger(path, read_only=True) as book:
        assert book.verify() == ["1 answers do not match their checksum"]


def test_truncation_gives_a_clear_error(tmp_path):
    path = filled(tmp_path / "l.db")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(LedgerError, match=r"damaged|not an unrelu"):
        Ledger(path)


def test_a_closed_ledger_says_so(tmp_path):
    book = Ledger(tmp_path / "l.db")
    oracle = connect(Target(), input_dim=3, ledger=book)
    book.close()
    with pytest.raises(LedgerError, match="closed"):
        oracle(X)


WORKER = Path(__file__).with_name("ledger_worker.py")
PATIENCE = 900.0  # seconds after which another process has hung, however busy the machine


def spawn(folder: Path, *words: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def asked(folder: Path) -> list[str]:
    """Batches as the target itself logged them, each a stage and a digest of its rows."""
    log = folder / "asked.log"
    return log.read_text().splitlines() if log.exists() else []


def searched(folder: Path) -> list[str]:
    """The same without those that only tell whether it is the same model."""
    return [line for line in asked(folder) if not line.startswith("identity")]


@pytest.mark.parametrize("what", ["run", "extract"])
def test_killed_at_twenty_moments_it_asks_nothing_twice_but_three_rows_and_ends_with_the_same_bits(
    tmp_path, what
):
    calm = tmp_path / "calm"
    calm.mkdir()
    process = spawn(calm, what)
    expected, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors

    stormy = tmp_path / "stormy"
    stormy.mkdir()
    rng = random.Random(1)
    kills = 0
    while kills < 20:
        # Ten batches at most in each life: however late the killer is, it never finishes.
        process = spawn(stormy, what, "10")
        # Wait until it asks something new, then kill within a few milliseconds.
        known, deadline = len(searched(stormy)), time.monotonic() + PATIENCE
        while len(searched(stormy)) == known:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(rng.random() * 0.008)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    process = spawn(stormy, what)
    found, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert found == expected
    batches = searched(stormy)
    repeated = len(batches) - len(set(batches))
    assert repeated <= kills  # one batch can be in flight at each kill
    assert set(batches) == set(searched(calm)) == set(asked(calm))
    checks = [line for line in asked(stormy) if line not in batches]
    assert 0 < len(checks) <= kills  # one each time that it is started again
    assert all(line.startswith("identity 3 ") for line in checks[1:])  # at first it may hold less
    batches += checks
    with Ledger(stormy / "l.db") as book:
        # Charged before it is sent: the count may exceed the target's by what was in flight.
        assert 0 <= book.entries()[0].round_trips - len(batches) <= kills
        assert book.verify() == []


def test_two_processes_share_a_ledger(tmp_path):
    first, second = spawn(tmp_path, "run"), spawn(tmp_path, "run")
    outputs = [process.communicate(timeout=PATIENCE) for process in (first, second)]
    assert first.returncode == 0, outputs[0][1]
    assert second.returncode == 0, outputs[1][1]
    assert outputs[0][0] == outputs[1][0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs resource limits")
def test_a_full_disk_is_told_and_damages_nothing(tmp_path):
    import resource

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    process = spawn(tmp_path, "fill", preexec_fn=limit)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, errors
    assert out.startswith(("LedgerFull", "LedgerError"))
    with Ledger(tmp_path / "l.db") as book:
        assert book.verify() == []
        assert book.entries()[0].answers > 100


def test_digest_collisions_are_out_of_reach():
    from unrelu.ledger import LedgerBinding

    keys = LedgerBinding.keys(X, 0)
    assert len(set(keys)) == len(X)
    expected = hashlib.blake2b(X[0].tobytes() + b"\0" * 8, digest_size=20).digest()
    assert keys[0] == expected
