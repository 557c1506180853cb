"""Chen, Klivans & Meka to the letter: their boxes, formulas and lemmas, each with a test."""

import math
from unittest import mock

import numpy as np
import pytest

from unrelu import planted
from unrelu.errors import InvalidInput
from unrelu.learner.algorithm import learn_from_queries
from unrelu.learner.boxes import (
    FaithfulBounds,
    get_bias,
    get_gradient,
    get_neurons,
    plan_faithful,
)
from unrelu.learner.certificate import certify_square_loss
from unrelu.learner.config import AFFORDABLE, FaithfulConstants, LearnerConfig
from unrelu.learner.formulas import (
    coefficient_bound,
    gradient_step,
    interval_length,
    neuron_bounds,
    search_range,
    separation,
)
from unrelu.oracles import as_oracle
from unrelu.result import Status

ONE = FaithfulConstants()


def paper_form(network):
    """Return ``s_i (w_i, -b_i)`` of the paper in rows, R and B."""
    u = network.weights[1][0]
    rows = np.column_stack([u[:, None] * network.weights[0], u * network.biases[0]])
    norms = np.linalg.norm(rows[:, :-1], axis=1)
    return rows, float(norms.max()), float(np.abs(rows[:, -1]).max())


# ------------------------------------------------------------------------ formulas


def test_line_3_delta_is_the_power_9_2_of_epsilon_over_k_r():
    assert separation(0.01, 1, 1.0, ONE) == pytest.approx(0.01**4.5)
    # An angle: the same whatever unit answers come in.
    assert separation(0.3, 2, 5.0, ONE) == separation(0.03, 2, 0.5, ONE)


def test_equation_12_the_length_of_an_interval():
    log = math.sqrt(math.log(4 / 0.1))
    assert interval_length(0.5, 0.1, 4, 9, ONE) == pytest.approx(0.5 * 0.01 / (256 * (3 + log)))


def test_equation_13_the_range_as_the_proof_of_lemma_4_3_has_it():
    k, delta, smallest, bias = 4, 0.1, 0.2, 3.0
    spread, log = 3 + math.sqrt(math.log(1 / delta)), math.sqrt(math.log(k / delta))
    tau = search_range(0.01, delta, k, 9, smallest, bias, ONE)
    assert tau == pytest.approx(
        k * 0.01 + k * spread / (delta * smallest) * (bias + smallest * log)
    )


def test_lemma_4_10_the_step_of_a_gradient():
    log = math.sqrt(math.log(4 / 0.1))
    assert gradient_step(0.01, 0.1, 4, 9) == pytest.approx(0.1 * 0.01 / (4 * 4 * 3 + 4 * log))


def test_equations_14_and_21_bounds_on_neurons_and_coefficients():
    norm, bias = neuron_bounds(0.5, 0.1, 4, 2.0, 3.0)
    assert norm == 8.0
    assert bias == pytest.approx(0.5 * 16 * 2.0 * math.sqrt(math.log(4 / 0.1)) + 12.0)
    assert coefficient_bound(25, 4, 2.0, 3.0) == 25.0


# -------------------------------------------------------------------------- lemmas


def kinks_on_lines(rng, rows, lines):
    """Return the critical points of Proposition 4.2 on Gaussian lines, ``(lines, k)``."""
    d = rows.shape[1] - 1
    x0, v = rng.standard_normal((2, lines, d))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return -(x0 @ rows[:, :-1].T + rows[:, -1]) / (v @ rows[:, :-1].T)


@pytest.mark.parametrize("bias", [0.0, 1.0, 30.0])
def test_lemma_4_3_kinks_lie_within_the_range_but_for_odds_of_delta(bias):
    rng, d, k, delta = np.random.default_rng(0), 3, 4, 0.1
    rows = rng.standard_normal((k, d + 1))
    rows[:, :-1] /= np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    rows[:, -1] = bias
    t = kinks_on_lines(rng, rows, 4000)
    beyond = (np.abs(t) > search_range(0.0, delta, k, d, 1.0, bias, ONE)).any(axis=1).mean()
    # Odds of delta, and four deviations of 4000 draws. A sixteenth of it is too short, and
    # so is the printed one, which has neither B nor 1 / delta.
    assert beyond <= delta + 4 * math.sqrt(delta / 4000)
    part = FaithfulConstants(range=1 / 16)
    short = np.abs(t) > search_range(0.0, delta, k, d, 1.0, bias, part)
    assert short.any(axis=1).mean() > delta


def test_lemma_4_4_neurons_that_are_not_close_have_kinks_apart():
    rng, d, k, delta, gap = np.random.default_rng(1), 3, 3, 0.1, 0.05
    first = np.array([1.0, 0.0, 0.0])
    turned = np.array([math.sqrt(1 - gap**2), gap, 0.0])
    rows = np.column_stack([[first, turned, -first], [0.0, 0.0, 3 * gap]])  # none is close
    t = np.sort(kinks_on_lines(rng, rows, 4000), axis=1)
    least = np.diff(t, axis=1).min(axis=1)
    near = least < interval_length(gap, delta, k, d, ONE)
    assert near.mean() <= delta
    # Without delta^2 / k^4 the length would not do: the lemma's factors are needed.
    bare = interval_length(gap, 1.0, k, d, FaithfulConstants(interval_power=0.0))
    assert (least < bare).mean() > delta


def test_lemma_4_10_no_kink_lies_within_the_step_of_a_midpoint():
    rng, d, k, delta, r = np.random.default_rng(2), 5, 4, 0.1, 0.02
    missed = 0
    for _ in range(500):
        rows = rng.standard_normal((k, d + 1))
        x0, v = rng.standard_normal((2, d))
        v /= np.linalg.norm(v)
        t = -(rows[:, :-1] @ x0 + rows[:, -1]) / (rows[:, :-1] @ v)
        middle = np.arange(-5, 5, r) + r / 2
        middle = middle[(np.abs(middle[:, None] - t) > r / 2).all(axis=1)]
        x = x0 + np.outer(middle, v)
        apart = np.abs(x @ rows[:, :-1].T + rows[:, -1]) / np.linalg.norm(rows[:, :-1], axis=1)
        missed += bool((apart < gradient_step(r, delta, k, d)).any())
    assert missed <= 500 * delta


# --------------------------------------------------------------------------- boxes


def test_get_bias_is_the_intercept_of_the_piece():
    network = planted.random_network(3, 4, 2, rng=0)
    oracle = as_oracle(network)
    base, v = np.array([0.3, -0.2, 0.5]), np.array([0.0, 0.6, 0.8])
    low = np.array([1e4, -1e4])  # beyond every kink the pieces are affine
    intercept = get_bias(oracle, base, v, low, low + 1.0)
    for i, t in enumerate(low):
        y = network(base + np.outer([t, t + 1.0], v))
        # Values of 1e4 are subtracted: 1e4 times rounding remains, times t over the length.
        np.testing.assert_allclose(intercept[i], y[0] - (y[1] - y[0]) * t, atol=1e-7)
    assert oracle.queries.total == 6


def test_get_gradient_is_exact_inside_a_piece():
    network = planted.random_network(6, 5, 2, rng=1)
    oracle = as_oracle(network)
    x = np.random.default_rng(0).standard_normal((7, 6))
    found = get_gradient(oracle, x, 1e-6, np.random.default_rng(1))
    on = (x @ network.weights[0].T + network.biases[0]) > 0
    truth = np.einsum("mk,nk,kd->nmd", network.weights[1], on, network.weights[0])
    # Rounding of 1e-16 over a step of 1e-6, times the condition of random directions.
    np.testing.assert_allclose(found, truth, atol=1e-7)
    assert oracle.queries.total == 7 * 7


def test_get_neurons_lists_every_neuron_up_to_sign():
    network = planted.random_network(2, 3, 1, rng=1)
    rows, norm, bias = paper_form(network)
    weights, biases, plan = get_neurons(
        as_oracle(network), 0.05, 0.1, bounds=FaithfulBounds(3, norm, bias, 0.3 * norm),
        constants=AFFORDABLE, rng=np.random.default_rng(1), most=1_000_000,
    )  # fmt: skip
    listed = np.column_stack([weights, biases])
    for row in rows:
        apart = min(np.abs(listed - row).max(axis=1).min(), np.abs(listed + row).max(axis=1).min())
        assert apart < 1e-5  # distinct differences are listed to half of a step's digits
    assert (np.linalg.norm(weights, axis=1) <= 3 * norm * (1 + 1e-6)).all()  # line 13
    assert plan.queries == plan.intervals * 6


def test_the_paper_s_own_constants_are_refused_with_the_count():
    bounds = FaithfulBounds(2, 1.0, 1.0, 0.05)
    with pytest.raises(InvalidInput, match="intervals"):
        plan_faithful(1e-3, 0.05, 2, bounds, ONE)
    # What the pages say: two neurons, two inputs, epsilon 0.1 of R = B = 1.
    assert plan_faithful(0.1, 0.1, 2, bounds, ONE).queries == pytest.approx(5.5e13, rel=0.01)
    with pytest.raises(InvalidInput, match="over the limit of 10"):
        get_neurons(
            as_oracle(planted.random_network(2, 2, 1, rng=0)), 0.5, 0.1, bounds=bounds,
            constants=FaithfulConstants(exponent=1.0), rng=np.random.default_rng(0),
            most=10,
        )  # fmt: skip


# ------------------------------------------------------------------------- the whole


def learn_as_printed(truth, seed, constants=AFFORDABLE, delta=0.1, **options):
    """Run Algorithms 1-4 with what Theorem 1.1 is given."""
    _, norm, bias = paper_form(truth)
    result = learn_from_queries(
        truth, delta=delta, rng=seed, faithful=True, width=len(truth.weights[0]),
        norm_bound=norm, bias_bound=bias, config=LearnerConfig(constants=constants, most=10**7),
        **options,
    )  # fmt: skip
    x = np.random.default_rng([seed, 1]).standard_normal((20_000, truth.input_dim))
    found = np.zeros((len(x), 1)) if result.network is None else result.network(x)
    return result, float(np.sqrt(np.mean((found - truth(x)) ** 2)))


def test_algorithms_1_to_4_learn_small_networks():
    recovered = 0
    for seed in range(40, 44):
        truth = planted.random_network(2, 2, 1, rng=seed)
        epsilon = 0.03 * paper_form(truth)[1]
        result, error = learn_as_printed(truth, seed, epsilon=epsilon)
        assert result.status is not Status.RECOVERED or error <= result.epsilon
        recovered += result.success
    assert recovered >= 3  # 19 of 20 are (benchmarks.letter_chen)


def test_the_paper_s_own_powers_learn_one_neuron():
    truth = planted.random_network(1, 1, 1, rng=3)
    norm = paper_form(truth)[1]
    result, error = learn_as_printed(truth, 3, ONE, delta=0.3, epsilon=0.4 * norm)
    assert result.status is Status.RECOVERED
    assert error <= 0.4 * norm
    printed = next(stage for stage in result.stages if stage.name == "as printed")
    assert printed.details["separation"] == pytest.approx(0.4**4.5)


def test_intervals_that_are_too_long_are_no_recovery():
    truth = planted.random_network(2, 2, 1, rng=0)
    coarse = FaithfulConstants(exponent=1.0, interval=1e6, interval_power=1.0, range=1e-3)
    result, _ = learn_as_printed(truth, 0, coarse, epsilon=0.05, relative=True)
    assert result.status is Status.PARTIAL
    assert "constants closer to the paper's" in result.message
    with pytest.raises(InvalidInput, match="intervals"):
        learn_as_printed(truth, 0, ONE, epsilon=1e-3)
    with pytest.raises(InvalidInput, match="single output"):
        learn_as_printed(planted.random_network(2, 2, 2, rng=0), 0, epsilon=0.1)


def test_theorem_1_1_what_may_hide_is_k_times_r_and_what_was_found():
    truth = planted.random_network(3, 4, 1, rng=5)
    rows, norm, _ = paper_form(truth)
    result = learn_from_queries(truth, epsilon=0.01, rng=0, width=4, norm_bound=norm)
    found = float(np.linalg.norm(rows[:, :-1], axis=1).sum())
    total = result.certificate.details["norms that may hide, in all"]
    assert total == pytest.approx(4 * norm + found, rel=1e-6)
    # The bound itself: a triangle of slopes V / 4 at the width that wide inputs leave.
    details = result.certificate.details
    width = 2 * -math.log(0.025) * math.sqrt(2 * math.pi) / details["wide inputs"]
    assert details["narrowest bump that could be seen"] == pytest.approx(width)
    unseen = width**3 * (total / 4) ** 2 / 12 / math.sqrt(2 * math.pi)
    assert details["part of unseen bumps"] == pytest.approx(unseen)


def test_bumps_count_from_a_third_of_epsilon_squared_and_inputs_from_twice_epsilon():
    truth = planted.random_network(3, 4, 1, rng=5)
    _, norm, _ = paper_form(truth)
    asked, epsilon = {}, 0.01

    def certify(oracle, claim, **options):
        asked["claim"] = claim
        return certify_square_loss(oracle, claim, **options)

    with mock.patch("unrelu.learner.algorithm.certify_square_loss", certify):
        learn_from_queries(truth, epsilon=epsilon, rng=0, width=4, norm_bound=norm)
    x = np.random.default_rng(0).standard_normal((50, 3))
    x *= 0.5 * math.sqrt(3) / np.linalg.norm(x, axis=1, keepdims=True)
    claim = asked["claim"]
    # Beside the noise of float64, which is nothing here.
    np.testing.assert_allclose(claim.allowed(x), 2.0 * epsilon, rtol=1e-6)
    assert not claim.stands_out(x, claim.found(x) + 1.99 * epsilon).any()
    assert claim.stands_out(x, claim.found(x) + 2.01 * epsilon).all()
    result = learn_from_queries(truth, epsilon=1e-5 * norm, rng=0, width=4, norm_bound=norm)
    details = result.certificate.details
    assert details["wide inputs"] > 2500  # k R asks for more than the least
    assert details["part of unseen bumps"] == pytest.approx(result.epsilon**2 / 3, rel=1e-2)
