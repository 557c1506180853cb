"""A reopened section asks three points again: the same model goes on, another is refused."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrelu import (
    BudgetExhausted,
    InvalidAnswer,
    Ledger,
    LedgerError,
    LedgerMismatch,
    OracleError,
    Status,
    UnreluError,
    connect,
    extract_two_layer,
    planted,
)
from unrelu.ledger import FIRST_POINTS, FirstPoint
from unrelu.oracles import Cast, Labels, Noisy, Rounded, Softmax
from unrelu.oracles.identity_check import ASKED_AGAIN, farthest_apart, rounding_of

X = np.random.default_rng(0).standard_normal((40, 6))
NETWORK = planted.random_network(6, 4, 2, rng=0)
RETRAINED = planted.random_network(6, 4, 2, rng=1)


class Counted:
    def __init__(self, function):
        self.function = function
        self.rows = 0

    def __call__(self, x):
        self.rows += len(x)
        return self.function(x)


def opened(function, path, **options):
    return connect(function, input_dim=6, ledger=path, name="model", **options)


def filled(path, function=NETWORK, **options):
    opened(function, path, **options)(X)
    return path


def stages(path):
    with Ledger(path, read_only=True) as book:
        return book.entries()[0].by_stage


# ---------------------------------------------------------------- another model


@pytest.mark.parametrize(
    "view",
    [
        lambda f: f,
        lambda f: lambda x: f(x).astype(np.float32),
        lambda f: lambda x: f(x.astype(np.float32)).astype(np.float16),
        lambda f: lambda x: np.round(f(x), 4),
        lambda f: lambda x: np.round(f(x), 2),
        lambda f: lambda x: f(x)[:, :1],
        lambda f: lambda x: f(x)[:, :1] + 0 * np.random.default_rng().standard_normal((len(x), 1)),
    ],
    ids=["float64", "float32", "float16", "4 decimals", "2 decimals", "one output", "rng"],
)
def test_another_model_behind_the_same_name_is_refused(view, tmp_path):
    path = filled(tmp_path / "l.db", view(NETWORK))
    before = stages(path)
    same = Counted(view(NETWORK))
    assert np.array_equal(opened(same, path)(X), np.asarray(view(NETWORK)(X), dtype=float))
    assert same.rows == ASKED_AGAIN
    other = Counted(view(RETRAINED))
    oracle = opened(other, path)
    for points in (X, X[:1], X + 1.0):  # held or not: the ledger answers nothing, nothing joins it
        with pytest.raises(LedgerMismatch) as caught:
            oracle(points)
    text = str(caught.value)
    assert "another ledger file" in text
    assert "unrelu ledger prune" in text
    assert "--name" in text
    assert isinstance(caught.value, (LedgerError, UnreluError, OSError))
    found = stages(path)
    assert {k: v for k, v in found.items() if k != "identity"} == before
    assert found["identity"] == same.rows + other.rows


def test_the_ways_out_that_the_error_names_work(tmp_path):
    path = filled(tmp_path / "l.db")
    with pytest.raises(LedgerMismatch):
        opened(RETRAINED, path)(X)
    expected = RETRAINED(X)
    np.testing.assert_array_equal(opened(RETRAINED, tmp_path / "other.db")(X), expected)
    named = connect(RETRAINED, ledger=path, name="second")
    np.testing.assert_array_equal(named(X), expected)
    with Ledger(path) as book:
        book.prune("model")
    np.testing.assert_array_equal(opened(RETRAINED, path)(X), expected)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-9, 1e-6, 1e-3, 1.0]))
def test_a_change_of_any_size_above_the_rounding_is_seen(tmp_path_factory, seed, size):
    rng = np.random.default_rng(seed)
    change = size * rng.standard_normal(2)
    path = filled(tmp_path_factory.mktemp("l") / "l.db")
    with pytest.raises(LedgerMismatch):
        opened(lambda x: NETWORK(x) * (1.0 + change), path)(X)


def test_another_number_of_outputs_is_another_model(tmp_path):
    path = filled(tmp_path / "l.db")
    with pytest.raises(LedgerMismatch, match="shape"):
        opened(planted.random_network(6, 4, 3, rng=0).__call__, path)(X)


def test_other_labels_are_another_model(tmp_path):
    path = filled(tmp_path / "l.db", lambda x: NETWORK(x).argmax(axis=1))
    with pytest.raises(LedgerMismatch):
        opened(lambda x: 1 - NETWORK(x).argmax(axis=1), path)(X)


def test_an_extraction_is_never_answered_for_another_model(tmp_path):
    one, two = (planted.random_network(8, 4, 1, rng=seed) for seed in (0, 1))

    def run(network):
        return extract_two_layer(connect(network, name="m", ledger=tmp_path / "l.db"), rng=0)

    first = run(one)
    assert first.status is Status.RECOVERED
    again = run(one)
    assert again.network == first.network
    assert again.queries.total == first.queries.total + ASKED_AGAIN
    assert again.queries.by_stage["identity"] == ASKED_AGAIN
    with pytest.raises(LedgerMismatch):
        run(two)


# ---------------------------------------------------------- the same model, with noise


@pytest.mark.parametrize("noise", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_noisy_target_is_still_the_same(noise, seed, tmp_path):
    def target(rng):
        return lambda x: NETWORK(x) + noise * rng.standard_normal((len(x), 2))

    rng = np.random.default_rng(seed)
    path = filled(tmp_path / "l.db", target(rng))
    opened(target(rng), path)(X)
    asked = stages(path)["identity"]
    assert asked >= ASKED_AGAIN
    if noise < 1.0:
        with pytest.raises(LedgerMismatch):
            opened(lambda x: target(rng)(x) + 100 * noise, path)(X)


def test_repetitions_in_the_ledger_tell_the_noise_without_asking_more(tmp_path):
    rng = np.random.default_rng(0)

    def target(x):
        return NETWORK(x) + 0.01 * rng.standard_normal((len(x), 2))

    oracle = opened(target, tmp_path / "l.db")
    for repeat in range(6):
        oracle(X, repeat=repeat)
    opened(target, tmp_path / "l.db")(X)
    assert stages(tmp_path / "l.db")["identity"] == ASKED_AGAIN


def test_a_batch_that_rounds_otherwise_is_no_other_model(tmp_path):
    """Single precision inside, float64 outside: the rounding depends on the size of a batch."""
    wide = planted.random_network(200, 100, 3, rng=0)
    weights = [w.astype(np.float32) for w in wide.weights]
    x = np.random.default_rng(0).standard_normal((500, 200))

    def target(points):
        hidden = np.maximum(points.astype(np.float32) @ weights[0].T, 0)
        order = np.random.default_rng(len(points)).permutation(100)
        logits = np.float64(hidden[:, order] @ weights[1][:, order].T)
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    for _ in range(2):
        connect(target, input_dim=200, ledger=tmp_path / "l.db", name="m")(x)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda o: Rounded(o, 6), lambda o: Cast(o, "float32"), lambda o: Cast(o, "bfloat16"),
        lambda o: Noisy(o, 0.1, seed=3), Labels, Softmax,
    ],
)  # fmt: skip
def test_three_rows_are_enough_behind_wrappers(wrap, tmp_path):
    for _ in range(2):
        connect(wrap(connect(NETWORK)), ledger=tmp_path / "l.db")(X)
    assert stages(tmp_path / "l.db")["identity"] == ASKED_AGAIN


# -------------------------------------------------------------------- when and which


def test_nothing_is_asked_by_connecting_and_only_once_by_using(tmp_path):
    path = filled(tmp_path / "l.db")
    target = Counted(NETWORK)
    oracle = opened(target, path)
    assert target.rows == 0
    oracle(X[:1])
    oracle(X)
    assert target.rows == ASKED_AGAIN
    oracle(X + 1.0)
    assert target.rows == ASKED_AGAIN + len(X)


def test_a_section_keeps_its_first_eight_points_once_each(tmp_path):
    oracle = opened(NETWORK.__call__, tmp_path / "l.db", output_dim=2)
    for _ in range(2):
        oracle(X[:1])
        oracle(X[:1], repeat=1)
    oracle(X[:3])
    binding = oracle.inner.binding
    assert [tuple(one.point) for one in binding.first_points(2)] == [tuple(x) for x in X[:3]]
    assert [len(one.answers) for one in binding.first_points(2)] == [2, 1, 1]
    oracle(X)
    kept = binding.first_points(2)
    assert [tuple(one.point) for one in kept] == [tuple(x) for x in X[:FIRST_POINTS]]
    for one in kept:
        assert np.abs(one.answers - NETWORK(one.point[None])).max() < 1e-12
    with Ledger(tmp_path / "l.db") as book:
        assert list(book.export()) == []
        book.prune(points_only=True)
    assert len(binding.first_points(2)) == FIRST_POINTS


def test_fewer_points_than_three_are_asked_as_they_are(tmp_path):
    opened(NETWORK, tmp_path / "l.db")(X[:2])
    target = Counted(NETWORK)
    opened(target, tmp_path / "l.db", output_dim=2)(X[:2])
    assert target.rows == 2


def test_points_far_apart_are_chosen():
    points = [np.zeros(2), np.array([1e-3, 0.0]), np.array([5.0, 0.0]), np.array([0.0, 4.0]),
              np.array([-3.0, -3.0])]  # fmt: skip
    first = [FirstPoint(point, 0, np.zeros((1, 1))) for point in points]
    assert sorted(farthest_apart(first, 3)) == [2, 3, 4]
    assert farthest_apart(first[:1], 3) == [0]


def test_the_rounding_follows_the_precision_of_the_answers():
    y = np.random.default_rng(0).standard_normal((8, 3))
    largest = np.abs(y).max()
    assert rounding_of(y, 4) == pytest.approx(16 * 2.0**-53 * largest)
    single = y.astype(np.float32).astype(float)
    assert rounding_of(single, 4) == pytest.approx(16 * 2.0**-24 * np.abs(single).max())
    assert rounding_of(np.round(y, 6), 4) == pytest.approx(1.5e-6)
    assert rounding_of(np.round(y), 4) == 0.0  # labels
    assert rounding_of(np.round(4 * y) / 4, 4) < 1e-13  # neat numbers


# ------------------------------------------------------------------------- skipped


def test_a_target_that_is_gone_does_not_stop_what_is_held(tmp_path, caplog):
    path = filled(tmp_path / "l.db")

    def gone(x):
        raise OSError("down")

    oracle = opened(gone, path, output_dim=2)
    with caplog.at_level(logging.WARNING, logger="unrelu"):
        for _ in range(3):
            np.testing.assert_array_equal(oracle(X), NETWORK(X))
    assert len(caplog.records) == 1
    assert "down" in caplog.text
    with pytest.raises(OracleError, match="down") as caught:
        oracle(X + 1.0)
    assert caught.value.answers is None


def test_a_target_that_comes_back_is_checked_before_anything_new_joins(tmp_path, caplog):
    path = filled(tmp_path / "l.db")
    working = []

    def target(x):
        if not working:
            raise OSError("down")
        return RETRAINED(x)

    oracle = opened(target, path, output_dim=2)
    oracle(X)
    assert "was not checked" in caplog.text
    working.append(True)
    with pytest.raises(LedgerMismatch):
        oracle(X + 1.0)


def test_without_budget_it_is_skipped_and_said(tmp_path, caplog):
    path = filled(tmp_path / "l.db")
    target = Counted(NETWORK)
    oracle = opened(target, path, budget=len(X) + 2)
    np.testing.assert_array_equal(oracle(X), NETWORK(X))
    assert "budget" in caplog.text
    assert target.rows == 0
    with pytest.raises(BudgetExhausted):
        oracle(X + 1.0)


def make_older(path):
    """Turn a ledger into one of the first release."""
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE first_points")
    db.close()


def test_an_older_ledger_works_and_its_check_is_skipped_and_said(tmp_path, caplog):
    path = filled(tmp_path / "l.db")
    make_older(path)
    with Ledger(path, read_only=True) as book:
        assert book.entries()[0].answers == len(X)
        assert book.verify() == []
    target = Counted(NETWORK)
    oracle = opened(target, path)
    np.testing.assert_array_equal(oracle(X), NETWORK(X))
    assert target.rows == 0
    assert "older version" in caplog.text
    oracle(X + 1.0)  # from now on there is something to check
    with pytest.raises(LedgerMismatch):
        opened(RETRAINED, path)(X)


def test_a_failing_check_leaves_no_answers_in_the_error(tmp_path):
    """Batches are joined from what an error carries: the check's answers are not theirs."""
    path = filled(tmp_path / "l.db")

    def half(x):
        answers = NETWORK(x)
        answers[1:] = np.nan
        return answers

    with pytest.raises(LedgerMismatch, match="NaN"):
        opened(half, path, batch_size=4)(X)


# ------------------------------------------------------------- damage and odd files


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE answers SET answer = 'text'",
        "UPDATE answers SET answer = x'00'",
        "UPDATE answers SET answer = substr(answer, 1, 8)",
        "UPDATE answers SET answer = zeroblob(16)",
        "UPDATE answers SET answer = 5",
        "UPDATE answers SET crc = crc + 1",
        "UPDATE answers SET crc = 'text'",
        "UPDATE first_points SET point = 'text'",
        "UPDATE first_points SET point = x'0102'",
        "UPDATE first_points SET point = zeroblob(48)",
        "UPDATE first_points SET repeat = 'text'",
        "UPDATE oracles SET output_dim = 'text'",
        "UPDATE oracles SET output_dim = -1",
        "UPDATE oracles SET output_dim = 7",
        "UPDATE oracles SET input_dim = 'text'",
        "UPDATE spend SET rows = 'text'",
        "DROP TABLE answers",
        "DROP TABLE spend",
        "DELETE FROM answers",
    ],
)
def test_damage_is_told_and_never_raw(change, tmp_path):
    path = filled(tmp_path / "l.db")
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    told = 0
    for use in (
        lambda: opened(lambda x: NETWORK(x), path, budget=10_000)(X),
        lambda: opened(lambda x: NETWORK(x), path).queries,
        lambda: Ledger(path, read_only=True).entries(),
        lambda: list(Ledger(path, read_only=True).export()),
    ):
        try:
            use()
        except LedgerError:
            told += 1
    assert told or change == "DELETE FROM answers"  # a section that lost its answers begins anew


def test_stored_points_are_checked_when_they_are_exported(tmp_path):
    with Ledger(tmp_path / "l.db", store_points=True) as book:
        connect(NETWORK, ledger=book)(X)
    for change in ("UPDATE points SET point = zeroblob(48)", "UPDATE points SET point = 'a'"):
        with sqlite3.connect(tmp_path / "l.db") as db:
            db.execute(change)
        db.close()
        with Ledger(tmp_path / "l.db", read_only=True) as book, pytest.raises(LedgerError):
            list(book.export())


def test_what_is_no_regular_file_is_refused_and_left_alone(tmp_path):
    pipe, link, away = (tmp_path / name for name in ("pipe", "link", "away"))
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    away.symlink_to(tmp_path / "nowhere")
    server = socket.socket(socket.AF_UNIX)
    place = os.getcwd()
    os.chdir(tmp_path)  # the name of a socket must be short
    try:
        server.bind("socket")
    finally:
        os.chdir(place)
    with server:
        for path in (pipe, link, away, tmp_path / "socket", "/dev/null", tmp_path):
            for read_only in (False, True):
                with pytest.raises(LedgerError):
                    Ledger(path, read_only=read_only)
    assert pipe.is_fifo()
    assert os.path.exists("/dev/null")
    assert not os.path.isfile("/dev/null")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["away", "link", "pipe", "socket"]
    for path in ("a" * 5000, "bad\0name", tmp_path / "l.db" / "inside"):
        with pytest.raises(LedgerError):
            Ledger(path)


@pytest.mark.parametrize("name", ["", "\udcff", 5, b"bytes"])
def test_names_that_cannot_be_written_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="name"):
        connect(NETWORK, ledger=tmp_path / "l.db", name=name)


def test_invalid_answers_still_are_errors_of_their_own_kind(tmp_path):
    with pytest.raises(InvalidAnswer):
        opened(lambda x: x[:, :2] * np.nan, tmp_path / "l.db")
