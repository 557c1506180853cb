import numpy as np
import pytest

import unrelu
from unrelu import Status, planted


class Counted:
    """A target that changes its behaviour with the number of rows it has answered."""

    def __init__(self, before, after, rows):
        self.before, self.after, self.rows, self.seen = before, after, rows, 0

    def __call__(self, x):
        number = np.arange(self.seen, self.seen + len(x))
        self.seen += len(x)
        return np.where((number < self.rows)[:, None], self.before(x), self.after(x))


def _constant(x):
    return np.full((len(x), 1), 0.25)


@pytest.mark.parametrize("part", [0.01, 0.04, 0.13, 0.3, 0.6, 0.98])
def test_a_service_that_falls_back_to_a_constant_is_never_recovered(part):
    network = planted.random_network(8, 6, 1, rng=round(100 * part))
    asked = unrelu.extract(unrelu.connect(network, input_dim=8), rng=1).queries.total
    target = unrelu.connect(Counted(network, _constant, round(part * asked)), input_dim=8)
    result = unrelu.extract(target, rng=1)
    assert result.status is not Status.RECOVERED
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "answered differently" in result.message


@pytest.mark.parametrize("extractor", ["extract_two_layer", "extract_three_layer"])
def test_a_target_replaced_between_search_and_certificate_is_noticed(extractor):
    widths = (8, 5, 1) if extractor == "extract_two_layer" else (8, 4, 6, 1)
    first = planted.random_network(*widths, rng=3)
    run = getattr(unrelu, extractor)
    honest = run(unrelu.connect(first, input_dim=8), rng=5)
    assert honest.success, honest.message
    wrong = unrelu.connect(Counted(lambda x: first(x) + 0.01, first, 120), input_dim=8)
    result = run(wrong, rng=5)
    assert not result.success


def test_the_plans_answers_count_too():
    first = planted.random_network(6, 4, 1, rng=10)
    second = planted.random_network(6, 4, 1, rng=11)
    shown = [first]
    oracle = unrelu.connect(lambda x: shown[0](x), input_dim=6)
    plan = unrelu.plan_extraction(oracle, rng=2)
    shown[0] = second
    result = unrelu.extract(oracle, plan=plan, rng=2)
    assert not result.success
    assert "answers of the run disagree" in result.message
    details = next(s.details for s in result.stages if s.name == "explanation")
    assert details["changed"] is True
    assert details["contradicting"] >= plan.spent // 2


def test_nothing_is_asked_where_every_answer_agrees():
    oracle = unrelu.connect(planted.random_network(6, 4, 1, rng=12), input_dim=6)
    result = unrelu.extract(oracle, rng=2)
    assert result.success
    assert "explanation" not in result.queries.by_stage


def test_a_learned_copy_is_approximated():
    noisy = unrelu.oracles.wrappers.Noisy(
        unrelu.connect(planted.random_network(6, 4, 1, rng=1), input_dim=6), 0.02
    )
    copied = unrelu.extract(noisy, rng=3)
    assert copied.status is Status.APPROXIMATED
    assert "not the target itself" in copied.message
    assert copied.network is not None


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_that_underflow_far_out_contradict_nothing(seed):
    truth = planted.random_network(10, 5, 8, 3, rng=9000 + seed)
    softmax = unrelu.oracles.wrappers.Softmax(unrelu.connect(truth, input_dim=10))
    result = unrelu.extract_three_layer(softmax, rng=9000 + seed)
    assert "explanation" not in result.queries.by_stage
