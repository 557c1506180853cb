"""The boundary: counting, stages, budget, validation, wrappers, connect."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrelu import (
    BudgetExhausted,
    InvalidAnswer,
    InvalidInput,
    OracleError,
    connect,
    planted,
)
from unrelu.oracles import (
    Batched,
    CallableOracle,
    Cast,
    Labels,
    LogOdds,
    NetworkOracle,
    Noisy,
    Rounded,
    Softmax,
    as_oracle,
)


class Counter:
    """A target that counts for itself."""

    def __init__(self, d: int = 3, m: int = 1) -> None:
        self.rows = self.calls = 0
        self.weights = np.random.default_rng(0).standard_normal((m, d))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.rows += len(x)
        self.calls += 1
        return np.maximum(x @ self.weights.T, 0.0)


@given(sizes=st.lists(st.integers(0, 40), max_size=6), batch=st.integers(1, 17))
def test_the_count_is_the_targets_own(sizes, batch):
    target = Counter()
    oracle = connect(target, input_dim=3, batch_size=batch)
    rng = np.random.default_rng(0)
    for i, size in enumerate(sizes):
        with oracle.stage(f"stage {i % 2}"):
            x = rng.standard_normal((size, 3))
            assert np.array_equal(oracle(x), np.maximum(x @ target.weights.T, 0.0)) or batch < size
    stats = oracle.queries
    assert stats.total == target.rows == 1 + sum(sizes)
    assert stats.round_trips == target.calls
    assert sum(stats.by_stage.values()) == stats.total
    assert stats.by_stage["connect"] == 1


def test_stages_nest_and_survive_exceptions():
    oracle = connect(Counter(), input_dim=3)
    x = np.zeros((2, 3))
    with oracle.stage("outer"):
        oracle(x)
        with contextlib.suppress(RuntimeError), oracle.stage("inner"):
            oracle(x)
            raise RuntimeError
        oracle(x)
    oracle(x)
    assert dict(oracle.queries.by_stage) == {"connect": 1, "outer": 4, "inner": 2, "other": 2}


def test_budget_is_never_exceeded():
    target = Counter()
    oracle = connect(target, input_dim=3, budget=10, batch_size=4)
    oracle(np.zeros((5, 3)))
    with pytest.raises(BudgetExhausted, match="budget of 10") as caught:
        oracle(np.zeros((9, 3)))
    assert len(caught.value.answers) == 4  # the first batch of the call fitted
    assert target.rows == oracle.queries.total == 10
    assert isinstance(caught.value, OracleError)


def test_budget_zero_refuses_the_first_row():
    target = Counter()
    with pytest.raises(BudgetExhausted):
        connect(target, input_dim=3, budget=0)
    assert target.rows == 0
    oracle = connect(planted.random_network(3, 2, 1, rng=0), budget=0)
    with pytest.raises(BudgetExhausted):
        oracle(np.zeros((1, 3)))


@pytest.mark.parametrize("budget", [-1, 2.5, True])
def test_bad_budgets_are_refused(budget):
    with pytest.raises(InvalidInput, match="budget"):
        connect(planted.random_network(3, 2, 1, rng=0), budget=budget)


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((2, 4)), "shape"),
        (np.full((1, 3), np.nan), "NaN"),
        (np.full((1, 3), np.inf), "NaN or infinite"),
        ([["a", "b", "c"]], "numbers"),
    ],
)
def test_bad_points_are_refused_and_not_sent(x, match):
    target = Counter()
    oracle = connect(target, input_dim=3)
    with pytest.raises(InvalidInput, match=match):
        oracle(x)
    assert target.rows == 1


def test_huge_but_finite_points_pass():
    oracle = connect(lambda x: np.zeros(len(x)), input_dim=2)
    assert oracle(np.full((3, 2), 1.7e308)).shape == (3, 1)


def misbehaving(kind: str):
    state = {"calls": 0}

    def target(x: np.ndarray):
        state["calls"] += 1
        good = np.ones((len(x), 2))
        if state["calls"] == 1:
            return good
        if kind == "nan":
            good[-1, 0] = np.nan
            return good
        if kind == "inf":
            good[0, 1] = -np.inf
            return good
        if kind == "width":
            return np.ones((len(x), 3))
        if kind == "rows":
            return good[:-1]
        if kind == "text":
            return [["a", "b"]] * len(x)
        if kind == "scalar":
            return 3.0
        raise ZeroDivisionError("boom")

    return target


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("nan", "row 4 of batch 2"),
        ("inf", "row 0 of batch 2"),
        ("width", r"shape \(5, 3\), expected \(5, 2\)"),
        ("rows", r"shape \(4, 2\)"),
        ("text", "not an array of numbers"),
        ("scalar", r"shape \(\)"),
        ("raise", "batch 2 .*ZeroDivisionError: boom"),
    ],
)
def test_nonsense_answers_name_the_batch(kind, match):
    oracle = connect(misbehaving(kind), input_dim=1)
    with pytest.raises(OracleError, match=match) as caught:
        oracle(np.zeros((5, 1)))
    if kind == "nan":
        assert isinstance(caught.value, InvalidAnswer)
        assert caught.value.answers.shape == (4, 2)


def test_answers_before_a_failure_are_kept():
    calls = []

    def target(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        if len(calls) == 4:
            raise ConnectionError("gone")
        return x[:, :1]

    oracle = connect(target, input_dim=1, batch_size=10)
    x = np.arange(35.0)[:, None]
    with pytest.raises(OracleError, match="gone") as caught:
        oracle(x)
    np.testing.assert_array_equal(caught.value.answers, x[:20])


def test_a_target_that_changes_its_input_harms_nothing(tmp_path):
    kept = []

    def scaling(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        x /= 255.0
        x[:, 0], x[:, 1] = x[:, 1].copy(), x[:, 0].copy()
        return x.sum(axis=1)

    points = np.random.default_rng(0).standard_normal((5, 2))
    before = points.copy()
    for ledger in (None, tmp_path / "l.db"):
        oracle = connect(scaling, input_dim=2, output_dim=1, ledger=ledger, name="t")
        answers = oracle(points)
        kept[-1][:] = np.nan  # nor does it later
        np.testing.assert_array_equal(points, before)
        np.testing.assert_allclose(answers[:, 0], before.sum(axis=1) / 255.0, rtol=1e-14)


def test_answers_do_not_share_a_buffer_that_the_target_reuses():
    buffer = np.empty((1, 1))
    oracle = connect(
        lambda x: np.multiply(x, 2.0, out=buffer), input_dim=1, output_dim=1, name="t"
    )
    first = oracle([[1.0]])
    second = oracle([[5.0]])
    assert (first[0, 0], second[0, 0]) == (2.0, 10.0)
    network = planted.random_network(3, 2, 1, rng=0)
    for target in (network, lambda x: x):
        answers = connect(target, input_dim=3)(np.ones((2, 3)))
        answers[:] = 0.0  # ours to change


@pytest.mark.parametrize(
    "answer",
    [
        np.array(["nan"]), b"text", np.array([1 + 2j]), [10**400], [None], [{}],
        np.datetime64("2020"), object(), ["x", 1], [[1], [1, 2]], float("nan"),
        np.ma.masked_array([1.0], [True]),
        type("Angry", (), {"__array__": lambda *_, **__: 1 / 0})(),
    ],
    ids=lambda answer: type(answer).__name__,
)  # fmt: skip
def test_answers_of_other_types_are_refused(answer):
    with pytest.raises(InvalidAnswer):
        connect(lambda x: answer, input_dim=2, output_dim=1)(np.ones((1, 2)))


def test_text_that_reads_as_numbers_is_taken_as_such():
    oracle = connect(lambda x: np.array([["1.5", "-2e3"]]), input_dim=2, output_dim=2)
    np.testing.assert_array_equal(oracle(np.ones((1, 2))), [[1.5, -2000.0]])


def test_a_target_that_ends_the_program_is_an_error_like_any_other():
    with pytest.raises(OracleError, match="SystemExit"):
        connect(lambda x: sys.exit(3), input_dim=2, output_dim=1)(np.ones((1, 2)))


def test_a_target_without_output_is_refused():
    with pytest.raises(InvalidAnswer, match="no output"):
        connect(lambda x: np.empty((len(x), 0)), input_dim=2)


def test_connect_refuses_what_it_cannot_use(tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match="pass input_dim"):
        connect(lambda x: x)
    with pytest.raises(InvalidInput, match="cannot connect to a int"):
        connect(3)
    with pytest.raises(InvalidInput, match="don't know how"):
        connect("no-such-thing")
    with pytest.raises(InvalidInput, match="takes 3 inputs, not 4"):
        connect(planted.random_network(3, 2, 1, rng=0), input_dim=4)
    with pytest.raises(InvalidInput, match="batch_size"):
        connect(planted.random_network(3, 2, 1, rng=0), batch_size=0)
    with pytest.raises(InvalidInput, match="cannot import"):
        connect("no_such_module_here:f")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_module.py").write_text("1 / 0")
    with pytest.raises(InvalidInput, match="ZeroDivisionError"):
        connect("broken_module:f")
    (tmp_path / "fine_module.py").write_text("def f(x):\n    return x.sum(axis=1)\n")
    with pytest.raises(InvalidInput, match="has no 'g'"):
        connect("fine_module:g")
    oracle = connect("fine_module:f", input_dim=2)
    assert oracle(np.ones((1, 2)))[0, 0] == 2.0


def test_connect_reads_a_saved_network(tmp_path):
    net = planted.random_network(3, 2, 1, rng=0)
    oracle = connect(str(net.save(tmp_path / "n.safetensors")))
    x = np.random.default_rng(0).standard_normal((4, 3))
    np.testing.assert_array_equal(oracle(x), net(x))


def test_connect_wraps_an_oracle_and_as_oracle_leaves_it():
    inner = Rounded(connect(planted.random_network(3, 2, 1, rng=0)), 2)
    outer = connect(inner, budget=5)
    outer(np.zeros((5, 3)))
    with pytest.raises(BudgetExhausted):
        outer(np.zeros((1, 3)))
    assert inner.queries.total == 5
    assert as_oracle(inner) is inner


def test_identities_tell_models_apart_but_not_runs():
    def make(value: float):
        weights, counter = np.full(3, value), [0]

        def target(x: np.ndarray) -> np.ndarray:
            counter[0] += 1
            return x @ weights

        return target

    one = CallableOracle(make(1.0), input_dim=3)
    one(np.zeros((1, 3)))  # the counter moves, the identity does not
    assert CallableOracle(make(1.0), input_dim=3).identity == one.identity
    assert CallableOracle(make(2.0), input_dim=3).identity != one.identity
    net = planted.random_network(3, 2, 1, rng=0)
    names = {
        connect(net).identity,
        NetworkOracle(net, dtype="float32").identity,
        Rounded(connect(net), 3).identity,
        Rounded(connect(net), 4).identity,
        Noisy(connect(net), 0.1, seed=1).identity,
        Noisy(connect(net), 0.1, seed=2).identity,
        Labels(connect(net), threshold=0.5).identity,
        Cast(connect(net), "float32").identity,
    }
    assert len(names) == 8


# ------------------------------------------------------------------- wrappers

NET = planted.random_network(5, 6, 4, rng=0)
X = np.random.default_rng(1).standard_normal((50, 5))


def test_rounding_and_casts():
    np.testing.assert_array_equal(Rounded(connect(NET), 3)(X), np.round(NET(X), 3))
    single = Cast(connect(NET), "float32")(X)
    np.testing.assert_array_equal(single, NET(X).astype(np.float32))
    half = Cast(connect(NET), "bfloat16")(X)
    # bfloat16 keeps 8 significant bits: rounding to nearest errs by at most 2^-8.
    assert np.abs(half / NET(X) - 1).max() <= 2.0**-8 * (1 + 1e-6)
    assert (half.astype(np.float32).view(np.uint32) & 0xFFFF == 0).all()
    with pytest.raises(InvalidInput):
        Cast(connect(NET), "float16")


def test_float32_networks_compute_in_float32():
    out = NetworkOracle(NET, dtype="float32")(X)
    np.testing.assert_array_equal(out, out.astype(np.float32))
    error = np.abs(out - NET(X)).max()
    assert 0 < error < 1e-5  # a dozen roundings at 6e-8


def test_noise_is_gaussian_reproducible_and_fresh_for_repeats():
    big = np.random.default_rng(2).standard_normal((4000, 5))
    noisy = Noisy(connect(NET), 0.5, seed=7)
    noise = noisy(big) - NET(big)
    np.testing.assert_array_equal(noisy(big), noisy(big))
    np.testing.assert_allclose(noisy(big[100:200]), noisy(big)[100:200], rtol=0, atol=1e-13)
    other = noisy(big, repeat=1) - NET(big)
    # 16,000 draws: mean within 5/sqrt(n), standard deviation within 5/sqrt(2n).
    assert abs(noise.mean()) < 0.5 * 5 / np.sqrt(noise.size)
    assert noise.std() == pytest.approx(0.5, rel=5 / np.sqrt(2 * noise.size))
    assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(noise.size)
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 5 / np.sqrt(len(noise))
    from scipy.stats import kstest

    assert kstest(noise.ravel() / 0.5, "norm").pvalue > 1e-4
    with pytest.raises(InvalidInput):
        Noisy(connect(NET), -1.0)


def test_labels():
    argmax = Labels(connect(NET))
    assert argmax.output_dim == 1
    np.testing.assert_array_equal(argmax(X)[:, 0], NET(X).argmax(axis=1))
    above = Labels(connect(NET), threshold=0.1, output=2)
    np.testing.assert_array_equal(above(X)[:, 0], NET(X)[:, 2] > 0.1)
    with pytest.raises(InvalidInput, match="two outputs"):
        Labels(connect(planted.random_network(3, 2, 1, rng=0)))
    with pytest.raises(InvalidInput, match="output must be"):
        Labels(connect(NET), threshold=0.0, output=4)


def test_log_odds_undo_softmax():
    odds = LogOdds(Softmax(connect(NET)), reference=1)
    logits = NET(X)
    expected = np.delete(logits - logits[:, [1]], 1, axis=1)
    # log(softmax) carries a few roundings of logits of size one.
    np.testing.assert_allclose(odds(X), expected, rtol=0, atol=1e-14)
    scalar = planted.random_network(5, 6, 1, rng=0)
    one = LogOdds(Softmax(connect(scalar)))
    np.testing.assert_allclose(one(X), scalar(X), rtol=0, atol=1e-13)


def test_saturated_probabilities_are_marked():
    odds = LogOdds(
        connect(lambda x: np.array([[1.0, 0.0], [0.5, 0.5]]), input_dim=1, output_dim=2)
    )
    values = odds(np.zeros((2, 1)))
    assert LogOdds.saturated(values).tolist() == [True, False]
    with pytest.raises(OracleError, match="not probabilities"):
        LogOdds(connect(lambda x: 2 * np.ones((len(x), 2)), input_dim=1))(np.zeros((2, 1)))
    with pytest.raises(InvalidInput):
        LogOdds(connect(NET), reference=4)


def test_batches_are_limited():
    target = Counter()
    oracle = Batched(CallableOracle(target, input_dim=3), 7)
    oracle(np.zeros((20, 3)))
    assert target.calls == 1 + 3
    with pytest.raises(InvalidInput):
        Batched(oracle, 0)


def test_empty_batches_cost_nothing():
    target = Counter(m=2)
    oracle = connect(target, input_dim=3)
    assert oracle(np.empty((0, 3))).shape == (0, 2)
    assert target.calls == 1
    with pytest.raises(InvalidInput, match="repeat"):
        oracle(np.zeros((1, 3)), repeat=-1)


def test_probabilities_that_lost_digits_are_no_log_odds():
    rows = np.array([[0.5, 0.5], [1.0, 1e-310], [1.0, float(np.float32(1e-40))], [1.0, 1e-40]])
    oracle = LogOdds(connect(lambda x: rows[x[:, 0].astype(int)], input_dim=1, output_dim=2))
    seen = oracle(np.arange(4.0)[:, None])
    np.testing.assert_array_equal(np.isnan(seen[:, 0]), [False, True, True, False])
