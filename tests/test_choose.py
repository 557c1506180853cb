"""Which algorithm is chosen, that the plan and the message say why, and what it costs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from unrelu import RecoveryResult, compare, connect, extract, plan_extraction, planted
from unrelu.choose import DeepSpanResult
from unrelu.errors import BudgetExhausted, InvalidInput
from unrelu.labels.algorithm import LabelsResult
from unrelu.learner.algorithm import LearnerResult
from unrelu.oracles import Cast, Noisy, Rounded, Softmax
from unrelu.planted import affine, random_network
from unrelu.result import Status

W = np.random.default_rng(0).standard_normal((16, 8)) / 4
U = np.random.default_rng(1).standard_normal((8, 2))


def error(result, truth):
    x = np.random.default_rng(0).standard_normal((5000, truth.input_dim))
    f = truth(x)
    return np.abs(result.network(x) - f).max() / f.std()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((10, 8, 1), "two"),
        ((6, 20, 1), "two"),
        ((10, 5, 12, 1), "three"),
        ((12, 6, 8, 3), "three"),
    ],
)
def test_the_right_algorithm_is_chosen(shape, chosen, seed):
    truth = random_network(*shape, rng=seed)
    result = extract(truth, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert result.provenance.options["chosen"] == f"extract_{chosen}_layer"
    assert ("bend" if chosen == "three" else "one hidden layer is tried") in result.message
    assert result.stages[0].name == "plan"
    assert result.network.depth == {"two": 2, "three": 3}[chosen]
    assert error(result, truth) < 1e-8


@pytest.mark.parametrize("soft", [False, True])
def test_a_64_32_10_network_takes_few_queries_and_round_trips(soft):
    truth = random_network(64, 32, 10, rng=4)
    oracle = connect(truth)
    result = extract(Softmax(oracle) if soft else oracle, rng=1)
    assert result.status is Status.RECOVERED
    queries = result.queries
    assert queries.without_certificate <= 2 * truth.parameters
    assert queries.round_trips <= 60 + queries.total // 4096


def test_a_plan_made_before_gives_the_same_result_and_is_not_asked_again():
    truth = random_network(10, 8, 1, rng=0)
    alone = extract(truth, rng=3)
    oracle = connect(truth)
    plan = plan_extraction(oracle, rng=3)
    assert plan.spent == oracle.queries.total
    result = extract(oracle, plan=plan, rng=3)
    assert result.network.fingerprint() == alone.network.fingerprint()
    # Alone it leaves the depth to the attempt; a plan that is asked for tells it.
    looked = result.queries.by_stage.pop("depth")
    assert result.queries.by_stage == alone.queries.by_stage
    assert result.queries.total - looked == alone.queries.total
    low, high = plan.queries
    assert low <= result.queries.total - plan.spent <= high
    assert "extract_two_layer" in plan.sentence()


@pytest.mark.parametrize(
    ("shape", "wrap"),
    [
        ((64, 32, 10), lambda o: o),
        ((64, 32, 10), Softmax),
        ((100, 40, 1), lambda o: o),
        ((20, 10, 1), lambda o: Cast(o, "float32")),
        ((10, 10, 10, 1), lambda o: o),
        ((20, 10, 1), lambda o: Noisy(o, 1e-3)),
        ((10, 10, 10, 3), Softmax),
    ],
)
def test_the_price_is_right_within_a_factor_of_two(shape, wrap):
    for seed in range(2):
        oracle = wrap(connect(random_network(*shape, rng=seed)))
        plan = plan_extraction(oracle, rng=seed)
        total = extract(oracle, plan=plan, rng=seed).queries.total - plan.spent
        assert plan.queries[0] / 2 <= total <= 2 * plan.queries[1], plan.sentence()


@pytest.mark.slow
def test_three_hidden_layers_are_peeled():
    truth = random_network(20, 10, 10, 10, 1, rng=900_000)
    result = extract(truth, rng=900_000)
    assert result.status is Status.RECOVERED, result.message
    assert result.findings().widths == (10, 10, 10)
    x = np.random.default_rng(1).standard_normal((2000, 20))
    # Rounding of float64 answers, times the condition of three layers.
    assert np.abs(result.network(x) - truth(x)).max() <= 1e-9 * truth(x).std()


def test_coarse_deeper_targets_give_their_span_and_first_layer(tmp_path):
    truth = random_network(10, 5, 5, 5, 1, rng=0)
    result = extract(Rounded(connect(truth), 9), rng=0)
    assert result.status is Status.PARTIAL
    assert isinstance(result, DeepSpanResult)
    assert "more than one hidden layer" in result.message
    assert result.network is None
    assert result.first_width == result.rank == 5
    rows = truth.weights[0]
    left = rows - (rows @ result.basis.T) @ result.basis
    # nine decimals over steps of a thousandth and longer
    assert result.angle < 1e-6
    assert np.abs(left).max() < 10 * result.angle * np.linalg.norm(rows, axis=1).max()
    loaded = RecoveryResult.load(result.save(tmp_path / "r.safetensors"))
    assert isinstance(loaded, DeepSpanResult)
    assert np.array_equal(loaded.first_weights, result.first_weights)
    assert np.array_equal(loaded.basis, result.basis)


def test_two_hidden_layers_behind_a_softmax():
    truth = random_network(10, 4, 10, 3, rng=4)
    result = extract(Softmax(connect(truth)), rng=0)
    assert result.status is Status.RECOVERED, result.message
    assert result.network.hidden_widths == (4, 10)
    x = np.random.default_rng(0).standard_normal((5000, 10))
    logits, found = truth(x), result.network(x)
    apart = (found - found[:, :1]) - (logits - logits[:, :1])
    # Log-odds of float64 probabilities are rounded to 1e-16 of a probability of 1e-4 and more.
    assert np.abs(apart).max() < 1e-7 * logits.std()


def test_a_second_layer_that_a_longer_look_meets_is_recovered():
    truth = random_network(10, 8, 6, 4, rng=513)
    result = extract(Softmax(connect(truth)), rng=513)
    # The first look meets none of it, and on a line its hyperplanes nearly coincide.
    assert result.stages[0].details["deeper"] == 0
    assert result.status is Status.RECOVERED, result.message


def test_labels_give_a_network_or_the_span():
    truth = random_network(10, 5, 1, rng=0)
    middle = float(np.median(truth(np.random.default_rng(0).standard_normal((1000, 10)))))
    result = extract(connect(lambda x: (truth(x) > middle).astype(float), input_dim=10), rng=0)
    assert isinstance(result, LabelsResult)
    assert result.provenance.options["chosen"] == "extract_from_labels"
    assert "only labels come back" in result.message
    x = np.random.default_rng(1).standard_normal((20_000, 10))
    agreement = np.mean(result.predict(x) == (truth(x)[:, 0] > middle))
    # RECOVERED vouches for all but 0.1 percent of typical inputs, with 95 percent confidence.
    assert result.status is not Status.RECOVERED or agreement > 0.999
    assert agreement > 0.99


@pytest.mark.parametrize("wrap", [lambda o: Noisy(o, 1e-3), lambda o: Rounded(o, 2)])
def test_noisy_and_coarse_answers_go_to_the_learner(wrap):
    truth = random_network(20, 10, 1, rng=4)
    results = [extract(wrap(connect(truth)), rng=seed) for seed in range(4)]
    assert all(isinstance(result, LearnerResult) for result in results)
    for result in results:
        assert result.status is Status.APPROXIMATED, result.message
        # The largest of 5000 deviations; 0.01 to 0.04 asked (rms).
        assert error(result, truth) < 0.1
        assert result.provenance.options["chosen"] == "learn_from_queries"


@pytest.mark.parametrize("seed", range(3))
def test_a_hidden_bump_is_found_or_goes_to_the_learner(seed):
    truth = planted.HOSTILE["bump of width 1e-2"](seed)
    # A budget of the caller's own: the plan's price is that of the method that fails.
    result = extract(connect(truth, budget=200_000), rng=seed)
    if not isinstance(
        result, LearnerResult
    ):  # a line met it: which seeds, the CPU's rounding says
        assert result.status in {Status.RECOVERED, Status.APPROXIMATED}
        assert compare(result.network, truth, rng=0).relative_error < 1e-6
        return
    assert "hide or cancel" in result.message
    assert {"plan", "line search"} <= {stage.name for stage in result.stages}
    assert result.copied
    assert compare(result.network, truth, rng=0).rms_function_error <= result.epsilon


def test_nearly_coincident_hyperplanes_are_not_taken_for_bent_ones():
    truth = planted.clusters(rng=0)
    result = extract(truth, rng=0)
    assert result.copied  # exactly, or joined within the learner's epsilon
    assert result.network.depth == 2
    assert compare(result.network, truth, rng=0).relative_error < 1e-3


@pytest.mark.parametrize(
    ("target", "activation"),
    [
        (lambda x: np.tanh(x @ W) @ U, "tanh"),
        (lambda x: (lambda z: z / (1 + np.exp(-1.7 * z)))(x @ W) @ U, "silu"),
    ],
    ids=["tanh", "silu"],
)
def test_smooth_layers_are_recovered_with_their_activation(target, activation):
    with np.errstate(over="ignore"):
        result = extract(connect(target, input_dim=16), rng=0)
    assert result.status is Status.RECOVERED, result.message
    assert result.provenance.options["chosen"] == "extract_smooth"
    assert result.network.activations[0].name == activation
    x = np.random.default_rng(0).standard_normal((5000, 16))
    assert np.abs(result.network(x) - target(x)).max() < 1e-8 * target(x).std()


def test_products_of_inputs_are_never_called_recovered():
    with np.errstate(over="ignore"):
        result = extract(connect(lambda x: (x @ W) ** 2 @ U, input_dim=16), rng=0)
    assert result.status in {Status.ASSUMPTION_VIOLATED, Status.APPROXIMATED, Status.PARTIAL}
    assert "smoothly" in result.message


def forest():
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    x, y = load_digits(return_X_y=True)
    return RandomForestClassifier(20, random_state=0).fit(x / 16, y)


def stumps(x):
    return np.floor(3 * x[:, :1]) * (x[:, 1:2] > 0.2) + 0.37 * (x[:, 2:3] > 0)


@pytest.mark.parametrize("target", [lambda: connect(stumps, input_dim=16), forest])
def test_trees_are_named_and_cost_no_more(target):
    result = extract(target(), rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "trees" in result.message
    assert result.network is None
    assert result.queries.total < 400


def test_an_affine_target():
    result = extract(affine(5, rng=0), rng=0)
    assert result.status is Status.RECOVERED
    assert "no kink" in result.message


def test_a_box_is_never_left():
    truth = random_network(6, 5, 1, rng=0)

    def inside(x):
        assert np.abs(x).max() <= 2.0
        return truth(x)

    result = extract(connect(inside, input_dim=6), domain=(-2.0, 2.0), rng=0)
    assert result.status is Status.RECOVERED
    above = extract(connect(lambda x: truth(x - (x < 0).any()), input_dim=6),
                    domain="nonnegative", rng=0)  # fmt: skip
    assert above.queries.by_stage.get("diagnosis", 0) == 0


def test_no_budget_at_all():
    oracle = connect(random_network(5, 4, 4, 1, rng=0), output_dim=1, budget=0)
    result = extract(oracle, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total == 0
    with pytest.raises(BudgetExhausted):
        plan_extraction(oracle, rng=0)


@pytest.mark.parametrize("budget", [330, 700, 1500])
def test_a_budget_that_ends_on_the_way(budget):
    for shape in ((10, 8, 1), (10, 5, 12, 1), (10, 5, 5, 5, 1)):
        result = extract(connect(random_network(*shape, rng=0), budget=budget), rng=0)
        assert result.status is Status.BUDGET_EXHAUSTED
        assert result.queries.total <= budget


def test_the_depth_is_found_with_few_queries():
    result = extract(random_network(20, 10, 20, 1, rng=1), rng=1)
    assert result.success
    assert result.stages[0].queries < 0.5 * result.queries.without_certificate


def test_every_result_says_its_queries_by_stage():
    oracle = connect(random_network(10, 5, 12, 1, rng=0))
    result = extract(oracle, rng=0)
    assert result.queries == oracle.queries
    assert {"diagnosis", "depth", "line search", "certificate"} <= set(result.queries.by_stage)
    assert dataclasses.asdict(result.queries)["total"] == oracle.queries.total


def test_a_callback_is_told_and_may_end_the_run():
    network, seen = planted.random_network(6, 4, 1, rng=0), []
    result = extract(connect(network), rng=0, callback=lambda *told: seen.append(told))
    assert result.success
    assert {"plan", "extract_two_layer"} <= {stage for stage, *_ in seen}

    def ends(*told):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(connect(network), rng=0, callback=ends)


def test_answers_are_read_as_told():
    """Two outputs that stay within [0, 1] and add up to one, but are values."""

    def shares(x):
        p = np.clip(0.5 + 1e-3 * np.maximum(x @ np.ones((3, 1)), 0.0), 0.0, 1.0)
        return np.concatenate([p, 1.0 - p], axis=1)

    result = extract(connect(shares, input_dim=3), answers="values", rng=0)
    assert result.success, result.message
    assert not result.findings().log_odds
    x = np.random.default_rng(0).standard_normal((100, 3))
    assert np.abs(result.network(x) - shares(x)).max() < 1e-12


def test_a_reading_that_is_none_is_refused():
    with pytest.raises(InvalidInput, match="answers is auto"):
        extract(connect(planted.random_network(3, 2, 1, rng=0)), answers="odds")
