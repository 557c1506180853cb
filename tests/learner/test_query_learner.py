import math

import numpy as np
import pytest

import unrelu
from unrelu import planted
from unrelu.errors import InvalidAnswer, InvalidInput
from unrelu.learner.algorithm import (
    LearnerResult,
    learn_from_queries,
    learn_with_hints,
)
from unrelu.learner.config import LearnerConfig
from unrelu.learner.request import Request
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import Cast, Noisy, Rounded
from unrelu.result import RecoveryResult, Status


def error(result, truth, samples=40_000):
    """Root mean square error over std(F), on fresh Gaussian inputs."""
    x = np.random.default_rng(123).standard_normal((samples, truth.input_dim))
    y = truth(x)
    return float(np.sqrt(np.mean((result.network(x) - y) ** 2)) / max(y.std(), 1e-300))


def learn(target, epsilon, seed=0, **options):
    return learn_from_queries(target, epsilon=epsilon, relative=True, rng=seed, **options)


# ------------------------------------------------------------------ exact answers


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 10, 50])
def test_random_networks_cost_three_queries_per_parameter(k, seed):
    truth = planted.random_network(20, k, 1, rng=seed)
    result = learn(truth, 1e-4, seed)
    assert result.status is Status.RECOVERED
    assert error(result, truth) <= 1e-4
    assert result.width == k
    if k >= 10:
        assert result.queries.without_certificate <= 3 * truth.parameters


@pytest.mark.parametrize("name", [n for n in planted.HOSTILE if "width 1e-3" not in n])
def test_every_hostile_network(name):
    truth = planted.HOSTILE[name](1)
    result = learn(truth, 1e-3, 1)
    assert result.status is Status.RECOVERED, result.message
    if name != "constant":
        assert error(result, truth) <= 1e-3


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("width", [0.1, 0.01, 1e-3])
def test_a_bump_is_found_without_being_told(width, seed):
    truth = planted.bump(20, width=width, extra=5, rng=seed)
    result = learn(truth, 1e-2, seed)
    assert error(result, truth, 400_000) <= 1e-2
    assert result.status is Status.RECOVERED
    assert result.width <= 8
    assert result.queries.without_certificate <= 31_000


@pytest.mark.parametrize("seed", range(2))
def test_clusters_and_cancelling_pairs_give_few_neurons(seed):
    truth = planted.clusters(20, 40, groups=5, angle=1e-6, rng=seed)
    result = learn(truth, 1e-4, seed)
    assert result.status is Status.RECOVERED
    assert error(result, truth) <= 1e-4
    assert result.width <= 5
    truth = planted.cancelling(20, rng=seed)
    result = learn(truth, 1e-4, seed)
    assert error(result, truth) <= 1e-4
    assert result.width <= 5


def test_more_neurons_than_inputs_and_several_outputs():
    for truth in (
        planted.random_network(3, 60, 1, rng=0),
        planted.random_network(8, 12, 3, rng=0),
    ):
        result = learn(truth, 1e-4)
        assert result.status is Status.RECOVERED
        assert error(result, truth) <= 1e-4


@pytest.mark.slow
def test_a_trained_regressor():
    truth, _ = planted.diabetes_regressor(100, rng=0)
    result = learn(truth, 1e-4)
    assert result.status is Status.RECOVERED
    assert error(result, truth) <= 1e-4
    assert result.queries.without_certificate <= 10 * truth.parameters


# ------------------------------------------------------------------ coarse answers


@pytest.mark.parametrize("seed", range(2))
def test_noisy_answers(seed):
    truth = planted.random_network(10, 12, 1, rng=seed)
    result = learn(Noisy(as_oracle(truth), 1e-3, seed=seed), 1e-2, seed)
    assert result.status is Status.RECOVERED
    assert error(result, truth) <= 1e-2
    assert 4e-4 < result.noise < 2.5e-3  # an upper estimate from a few clusters


@pytest.mark.parametrize("seed", range(2))
def test_a_bump_in_noisy_answers(seed):
    truth = planted.bump(20, width=0.1, extra=5, rng=seed)
    result = learn(Noisy(as_oracle(truth), 1.4e-3, seed=seed), 1e-2, seed)
    assert error(result, truth) <= 1e-2
    assert result.queries.without_certificate <= 25_000


@pytest.mark.parametrize("wrap", [lambda o: Rounded(o, 4), lambda o: Cast(o, "float32")])
def test_rounded_and_float32_answers(wrap):
    truth = planted.random_network(10, 12, 1, rng=5)
    result = learn(wrap(as_oracle(truth)), 1e-2, 5)
    assert result.status is Status.RECOVERED
    assert error(result, truth) <= 1e-2


def test_accuracy_degrades_with_the_noise_and_the_certificate_says_what_was_reached():
    truth = planted.random_network(6, 6, 1, rng=0)
    reached = []
    for sigma in (1e-4, 1e-2, 0.3):
        result = learn(Noisy(as_oracle(truth), sigma, seed=1), 1e-3, 1)
        x = np.random.default_rng(5).standard_normal((20_000, 6))
        true = float(np.sqrt(np.mean((result.network(x) - truth(x)) ** 2)))
        assert true <= 1.05 * result.reached
        if result.status is Status.RECOVERED:
            assert error(result, truth) <= 1e-3
        reached.append(result.reached)
    assert reached[0] < reached[2]
    assert result.status is not Status.RECOVERED  # noise of 0.3 hides 1e-3
    assert "asked" in result.message


# ------------------------------------------------------------------------ statuses


@pytest.mark.parametrize(
    "target",
    [
        lambda x: np.tanh(x[:, :1]) + x[:, 1:2] ** 2,
        lambda x: (x[:, :1] > 0.3).astype(float),
    ],
)
def test_what_is_no_such_network_is_no_recovery_and_no_worse_than_affine(target):
    config = LearnerConfig(lines=1)
    oracle = unrelu.connect(target, input_dim=3, output_dim=1, budget=100_000)
    result = learn(oracle, 1e-3, config=config)
    assert result.status in (Status.ASSUMPTION_VIOLATED, Status.PARTIAL)
    x = np.random.default_rng(3).standard_normal((5000, 3))
    y = target(x)
    design = np.column_stack([x, np.ones(len(x))])
    affine = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    # Fitted to a few hundred samples: up to a quarter worse than the best affine function.
    assert np.mean((result.network(x) - y) ** 2) <= 1.25 * np.mean(affine**2)


def test_a_deeper_network_is_told_apart():
    truth = planted.random_network(6, 12, 12, 1, rng=0, gain=2.0)
    config = LearnerConfig(lines=2)
    result = learn(truth, 1e-3, config=config)
    assert result.status in (Status.ASSUMPTION_VIOLATED, Status.PARTIAL)
    assert result.network is not None


@pytest.mark.parametrize("budget", [0, 1, 30, 120, 300])
def test_a_budget_that_ends(budget):
    truth = planted.random_network(10, 10, 1, rng=0)
    oracle = unrelu.connect(truth, budget=budget)
    result = learn(oracle, 1e-4)
    assert result.status in (Status.BUDGET_EXHAUSTED, Status.PARTIAL)
    assert not result.success
    assert oracle.queries.total <= budget
    if budget >= 300:
        assert result.network is not None


def test_a_certificate_cut_short_is_no_recovery():
    truth = planted.random_network(10, 5, 1, rng=0)
    result = learn(truth, 1e-6, certificate_samples=50)
    assert result.status is Status.PARTIAL
    assert "could hide" in result.message
    assert error(result, truth) <= 1e-6


def test_a_bump_beyond_reach_is_never_a_wrong_recovery():
    # Forbid the search for what rounding gives away: the certificate must still notice.
    truth = planted.bump(10, width=1e-3, extra=5, rng=3)
    config = LearnerConfig(probes=10)
    result = learn(truth, 1e-2, 3, config=config)
    assert result.status is not Status.RECOVERED or error(result, truth, 400_000) <= 1e-2


def test_nan_answers_are_an_error():
    def broken(x):
        return np.full((len(x), 1), np.nan)

    with pytest.raises(InvalidAnswer):
        learn_from_queries(unrelu.connect(broken, input_dim=3, output_dim=1), epsilon=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0}, {"epsilon": math.nan}, {"epsilon": 0.1, "delta": 1.0},
        {"epsilon": 0.1, "norm_bound": -1.0}, {"epsilon": 0.1, "narrowest": 0.0},
        {"epsilon": 0.1, "bias_bound": -1.0}, {"epsilon": 0.1, "width": 0},
        {"epsilon": 0.1, "certificate_samples": 0}, {"epsilon": 0.1, "faithful": True},
    ],
)  # fmt: skip
def test_bad_input_raises(options):
    with pytest.raises(InvalidInput):
        learn_from_queries(planted.random_network(3, 2, 1, rng=0), **options)


# ---------------------------------------------------------------- what is promised


def test_queries_equal_an_independent_count_and_the_seed_decides_everything():
    truth = planted.bump(10, width=0.05, extra=5, rng=2)
    count = 0

    def counted(x):
        nonlocal count
        count += len(x)
        return truth(x)

    first = learn(unrelu.connect(counted, input_dim=10, output_dim=1), 1e-3, 7)
    assert first.queries.total == count
    assert sum(s.queries for s in first.stages) == count
    assert set(first.queries.by_stage) >= {"line search", "gradients", "samples", "certificate"}
    again = learn(truth, 1e-3, 7)
    assert again.network == first.network
    assert again.queries.total == first.queries.total


def test_what_is_given_is_in_force_and_what_is_not_is_said():
    truth = planted.random_network(10, 6, 1, rng=0)
    result = learn(truth, 1e-2, norm_bound=2.0, bias_bound=3.0, width=6)
    assert (result.norm_bound, result.bias_bound) == (2.0, 3.0)
    assert "R = 2 given" in result.assumed
    result = learn(truth, 1e-2)
    assert "assumed" in result.assumed
    largest = np.linalg.norm(truth.weights[0], axis=1) * np.abs(truth.weights[1][0])
    assert result.norm_bound == pytest.approx(largest.max(), rel=1e-3)
    finer = learn(truth, 1e-2, narrowest=0.02)
    assert finer.narrowest <= 0.02
    assert finer.queries.by_stage["samples"] > result.queries.by_stage["samples"]


def test_absolute_and_relative_epsilon_and_a_scaled_target():
    truth = planted.random_network(8, 6, 1, rng=0)
    (w, u), biases = truth.weights, truth.biases
    louder = unrelu.ReLUNetwork([w, 1e3 * u], biases)
    absolute = learn_from_queries(louder, epsilon=0.1, rng=0)
    assert absolute.epsilon == 0.1
    relative = learn(louder, 1e-4)
    assert relative.epsilon == pytest.approx(1e3 * learn(truth, 1e-4).epsilon, rel=1e-9)
    for result in (absolute, relative):
        assert result.status is Status.RECOVERED
        assert error(result, louder) <= 1e-4


def test_results_are_saved_and_reloaded(tmp_path):
    result = learn(planted.random_network(5, 3, 1, rng=0), 1e-3)
    again = RecoveryResult.load(result.save(tmp_path / "result.safetensors"))
    assert isinstance(again, LearnerResult)
    assert again.network == result.network
    assert (again.reached, again.assumed) == (result.reached, result.assumed)


# ------------------------------------------------- what is seen is followed up


def stacked_bump(copies, width, square, d=5, seed=0):
    """Plant three ordinary neurons beside copies of a bump of a given mean square."""
    g = np.random.default_rng(seed)
    ordinary = planted.random_network(d, 3, 1, rng=g)
    direction = g.standard_normal(d)
    direction /= np.linalg.norm(direction)
    height = math.sqrt(square * 3.0 / (0.381 * width))  # density at 0.3, where it stands
    slope = height / (width / 2) / copies
    w = np.concatenate([np.tile(direction, (3 * copies, 1)), ordinary.weights[0]])
    b = np.tile([width / 2, 0.0, -width / 2], copies) - 0.3
    u = np.append(np.tile([slope, -2 * slope, slope], copies), ordinary.weights[1][0])
    b = np.append(b, ordinary.biases[0])
    return unrelu.ReLUNetwork([w, u[None]], [b, np.zeros(1)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("told", [True, False])
def test_copies_of_a_thin_bump_are_found_or_not_vouched_for(told, seed):
    truth = stacked_bump(30, 3e-3, 0.03**2, seed=seed)
    strength = np.linalg.norm(truth.weights[0], axis=1) * np.abs(truth.weights[1][0])
    given = {"width": 93, "norm_bound": float(strength.max())} if told else {}
    result = learn_from_queries(truth, epsilon=1e-2, rng=seed, **given)
    x = np.random.default_rng(seed).standard_normal((100_000, 5))
    true = float(np.sqrt(np.mean((result.network(x) - truth(x)) ** 2)))
    assert result.status is not Status.RECOVERED or true <= 1e-2
    assert true <= 1e-2  # it is found, too
    if told:
        total = result.certificate.details["norms that may hide, in all"]
        assert total >= 93 * given["norm_bound"]  # copies of one neuron add up


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("width", "center"), [(0.01, 0.3), (0.01, 2.0), (0.5, 3.8)])
def test_a_certificate_that_fails_hands_its_points_to_the_search(width, center, seed):
    bump = planted.bump(8, width=width, center=center, rng=seed)
    other = planted.random_network(8, 1, 1, rng=seed)

    def target(x):  # computed apart, so that no rounding gives the bump away
        return other(x) + 0.1 * bump(x) * (np.abs(bump(x)) > 1e-6)

    oracle = unrelu.connect(target, input_dim=8, output_dim=1)
    result = learn_from_queries(oracle, epsilon=3e-3, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    x = np.random.default_rng(seed).standard_normal((200_000, 8))
    assert np.sqrt(np.mean((result.network(x) - target(x)) ** 2)) <= 3e-3
    # Rows of a failed certificate belong to the search, in the totals and in the stages.
    certificates = [s for s in result.stages if s.name == "certificate"]
    assert len(certificates) == 1
    assert result.queries.by_stage["certificate"] == certificates[0].queries
    booked = sum(s.queries for s in result.stages if s.name == "residual search")
    assert result.queries.by_stage.get("residual search", 0) == booked
    assert sum(s.queries for s in result.stages) == result.queries.total


def test_a_point_that_no_neuron_explains_is_no_recovery():
    truth = planted.random_network(4, 3, 1, rng=0)
    x = np.random.default_rng(0).standard_normal((1, 4))
    result = learn_with_hints(truth, (x, truth(x) + 1.0), request=Request(1e-3), rng=0)
    assert result.status is Status.APPROXIMATED
    assert "1 stand out" in result.message
    assert error(result, truth) <= 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_lines_through_points_where_another_network_failed_come_first(seed):
    truth = stacked_bump(1, 1e-4, 0.1**2, seed=seed)
    g = np.random.default_rng(seed)
    inside = g.standard_normal((3, 5))
    direction = truth.weights[0][0]
    inside += np.outer(0.3 + 2e-5 - inside @ direction, direction)
    config = LearnerConfig(probes=10)  # rounding would give it away at 30,000 samples
    oracle = as_oracle(truth)
    result = learn_with_hints(
        oracle, (inside, truth(inside)), request=Request(1e-2), rng=seed, config=config
    )
    assert result.status is Status.RECOVERED
    assert result.queries.without_certificate <= 1000
    across = inside[:1] + np.multiply.outer(np.linspace(-1e-4, 1e-4, 101), direction)
    height = np.abs(truth(across)).max()
    assert np.abs(result.network(across) - truth(across)).max() <= 1e-3 * height
    with pytest.raises(InvalidInput, match="hints"):
        learn_with_hints(truth, (inside, truth(inside)[:1]), request=Request(1e-2))


def test_an_output_too_quiet_for_epsilon_is_named():
    truth = planted.random_network(6, 6, 2, rng=0)
    w, u = truth.weights
    uneven = unrelu.ReLUNetwork([w, u * np.array([[1.0], [1e-9]])], truth.biases)
    result = learn(uneven, 1e-3)
    assert result.status is Status.RECOVERED
    assert "output 1 varies by less" in result.message
    assert "varies by less" not in learn(truth, 1e-3).message
