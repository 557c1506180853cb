"""A span against every answer of its run: inputs of the same projection are answered alike."""

import numpy as np
import pytest

import unrelu
from unrelu import Status, planted
from unrelu.core.record import Record, remembered
from unrelu.oracles.wrappers import Labels
from unrelu.span.algorithm import SpanPlan, recover_span_from_replies
from unrelu.span.explained import same_projection


def test_pairs_of_the_same_projection_are_found_whatever_their_order():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((9, 3)))[0].T
    record, truth = Record(), set()
    points = rng.standard_normal((500, 9))
    for i in range(0, 200, 2):  # a partner differs from its point by a null-space step
        step = rng.standard_normal(9)
        points[-1 - i] = points[i] + step - (step @ basis.T) @ basis
        truth.add((i, 499 - i))
    for part in np.array_split(points, 7):
        record.add(part, part[:, :1], "s")
    found = list(same_projection(record, basis, 1e-12, rng))
    pairs = {
        (int(a), int(b)) for some in found for a, b in zip(some.first_rows, some.rows, strict=True)
    }
    assert pairs == truth
    for some in found:
        np.testing.assert_array_equal(some.first, points[some.first_rows])
        np.testing.assert_array_equal(some.second_answers, points[some.rows, :1])


def _before(oracle, rng, n):
    """Ask pairs that differ in the last input alone."""
    x = rng.standard_normal((30, n))
    moved = x.copy()
    moved[:, -1] += 1.0
    oracle(np.concatenate([x, moved]))


@pytest.mark.parametrize("answers", ["values", "labels"])
def test_answers_before_the_run_that_contradict_it_are_told(answers):
    n = 12
    small = planted.random_network(n, 4, 3, rng=5)
    rows = small.weights[0].copy()
    rows[:, -1] = 0.0  # the target does not see its last input ...
    blind = unrelu.ReLUNetwork([rows, small.weights[1]], small.biases)
    shown = [small]  # ... but did so before
    target = unrelu.connect(lambda x: shown[0](x), input_dim=n)
    oracle = remembered(Labels(target) if answers == "labels" else target)
    _before(oracle, np.random.default_rng(1), n)
    shown[0] = blind
    result = unrelu.recover_span(oracle, answers=answers, rng=3)
    assert result.rank == 4
    assert not result.success
    assert "those at inputs of the same projection" in result.message
    details = next(s.details for s in result.stages if s.name == "explanation")
    assert details["contradicting"] >= 1
    if answers == "values":  # eight labels may well be the same
        assert result.status is Status.ASSUMPTION_VIOLATED
        assert details["contradicting"] >= 25
        assert "answered differently" in result.message


@pytest.mark.parametrize("answers", ["values", "labels"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_asked_where_every_answer_agrees(answers, seed):
    target = unrelu.connect(planted.random_network(12, 4, 3, rng=seed))
    oracle = remembered(Labels(target) if answers == "labels" else target)
    result = unrelu.recover_span(oracle, answers=answers, rng=seed)
    assert result.success, result.message
    assert "explanation" not in result.queries.by_stage
    # Not for want of pairs: the certificate alone asks some hundred.
    found = same_projection(oracle.record, result.basis, 1e-9, np.random.default_rng(0))
    assert sum(len(some.rows) for some in found) >= 20


def test_replies_that_contradict_each_other_are_told():
    network = planted.random_network(20, 3, 2, rng=1)
    plan = SpanPlan.draw(20, gradients=16, rng=1)
    points = [plan.points(i) for i in range(16)]
    x = np.concatenate([*points, points[0]])
    y = network(x)
    honest = recover_span_from_replies(x, y)
    assert honest.success
    y[-plan.block :] += 1.0  # the same gradient, at the same points, with other answers
    result = recover_span_from_replies(x, y)
    assert result.status is Status.PARTIAL
    assert "could not be asked again" in result.message
    assert result.rank == honest.rank
