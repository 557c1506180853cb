import numpy as np
import pytest

from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle, connect
from unrelu.oracles.wrappers import Cast, Noisy, Rounded
from unrelu.planted import random_network
from unrelu.span.config import SpanConfig
from unrelu.span.grow import SpanSearch, confirm_span
from unrelu.span.plan import SpanPlan, gradients_from_replies, noise_from_replies
from unrelu.span.values import (
    GradientRows,
    estimate_noise,
    find_neighbourhood,
    find_step,
    locate_change,
    measure_gradient,
    random_directions,
    screen_points,
)

CONFIG = SpanConfig()


def gradient_of(net: ReLUNetwork, x: np.ndarray) -> np.ndarray:
    slope = np.eye(net.input_dim)
    value = x
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        value = w @ value + b
        slope = (value > 0)[:, None] * (w @ slope)
        value = np.maximum(value, 0)
    return net.weights[-1] @ slope


@pytest.mark.parametrize("sigma", [1e-3, 1e-6])
def test_noise_of_a_noisy_oracle(sigma):
    oracle = Noisy(as_oracle(random_network(20, 10, 2, rng=0)), sigma, seed=1)
    found = estimate_noise(oracle, np.random.default_rng(0), scale=1.0, config=CONFIG)
    # The upper quartile of 9 half-normal values lies within a factor of 2.5 of sigma.
    assert np.all((found > sigma / 2.5) & (found < 2.5 * sigma))


def test_noise_of_printed_decimals_and_casts():
    inner = as_oracle(random_network(20, 10, 1, rng=0))
    rounded = estimate_noise(Rounded(inner, 4), np.random.default_rng(0), scale=1.0, config=CONFIG)
    # Uniform error of a mesh of 1e-4, up to the factor that third differences leave.
    assert 1e-4 / np.sqrt(12) <= rounded[0] < 2e-4
    single = estimate_noise(
        Cast(inner, "float32"), np.random.default_rng(0), scale=1.0, config=CONFIG
    )
    assert 1e-9 < single[0] < 1e-6
    exact = estimate_noise(inner, np.random.default_rng(0), scale=1.0, config=CONFIG)
    assert 1e-17 < exact[0] < 1e-14


def test_an_output_that_never_moves_has_no_noise():
    net = random_network(8, 4, 1, rng=0)
    oracle = connect(lambda x: np.hstack([net(x), np.ones((len(x), 1))]), input_dim=8)
    noise = estimate_noise(oracle, np.random.default_rng(0), scale=1.0, config=CONFIG)
    assert noise[0] > 0
    assert noise[1] == 0


def test_step_is_a_linear_piece_or_the_root_of_the_noise():
    rng = np.random.default_rng(0)
    relu = as_oracle(random_network(50, 20, 1, rng=0))
    smooth = connect(lambda x: np.tanh(x @ np.ones((50, 3)) / 7).sum(1), input_dim=50)
    settings = {"scale": 1.0, "config": CONFIG}
    noise = estimate_noise(relu, rng, scale=1.0, config=CONFIG)
    assert find_step(relu, rng, noise, **settings) >= 2.0**-6
    noise = estimate_noise(smooth, rng, scale=1.0, config=CONFIG)
    assert 1e-8 < find_step(smooth, rng, noise, **settings) < 1e-5
    jumpy = connect(lambda x: np.sign(np.sin(1e12 * x[:, 0])), input_dim=50)
    assert find_step(jumpy, rng, np.array([1e-16]), **settings) == 0.0


@pytest.mark.parametrize("seed", range(8))
def test_gradient_equals_the_exact_one_and_counts_its_queries(seed):
    net = random_network(30, 12, 8, 3, rng=seed)
    oracle = as_oracle(net)
    rng = np.random.default_rng(seed)
    noise = estimate_noise(oracle, rng, scale=1.0, config=CONFIG)
    x = rng.standard_normal(30)
    around = find_neighbourhood(
        oracle, x, oracle(x[None])[0], noise, rng, step=0.05, config=CONFIG
    )
    assert around is not None
    before = oracle.queries.total
    found = measure_gradient(oracle, around, config=CONFIG)
    assert oracle.queries.total - before == 30
    assert found is not None
    exact = gradient_of(net, x)[found.outputs]
    # Each entry carries the reported noise; 6 sigma over 90 entries.
    assert np.all(np.abs(found.rows - exact) < 6 * found.noise[:, None])


def test_a_kink_across_the_steps_is_noticed():
    # f = relu(x0): from -1e-3 a forward step crosses, the tests at 8 steps see it bend.
    oracle = connect(lambda x: np.maximum(x[:, :1], 0), input_dim=5)
    rng = np.random.default_rng(0)
    x = np.array([-1e-3, 0.3, 0.1, 0.2, 0.4])
    noise = np.array([1e-16])
    around = find_neighbourhood(oracle, x, np.zeros(1), noise, rng, step=0.5, config=CONFIG)
    assert around is None or around.reach < 0.5


def test_screening_sees_what_leaves_and_only_that():
    net = random_network(40, 6, 1, rng=3)
    oracle = as_oracle(net)
    rng = np.random.default_rng(1)
    noise = np.array([1e-15])
    q = np.linalg.qr(net.weights[0].T)[0].T
    x = rng.standard_normal((10, 40))
    _, change, _ = screen_points(oracle, x, q, noise, rng, step=3.0, probes=2)
    assert change.max() < 30  # rounding only
    _, change, _ = screen_points(oracle, x, q[:-1], noise, rng, step=3.0, probes=2)
    assert np.median(change) > 1e6


def test_a_change_is_traced_to_its_place():
    oracle = connect(lambda x: np.maximum(0, 1e3 * (1 - 50 * np.abs(x[:, :1] - 2))), input_dim=2)
    y = locate_change(
        oracle, np.array([0.0, 0.0]), np.array([2.0, 0.0]), np.array([1e-12]), step=1e-3
    )
    assert 1.98 <= y[0] <= 2.0


def test_unit_directions_avoid_a_basis():
    basis = np.eye(6)[:2]
    u = random_directions(np.random.default_rng(0), (4, 3, 6), basis)
    np.testing.assert_allclose(np.linalg.norm(u, axis=-1), 1)
    assert np.all(u[..., :2] == 0)


def test_a_false_direction_is_not_confirmed():
    net = random_network(20, 4, 1, rng=0)
    oracle = as_oracle(net)
    rng = np.random.default_rng(0)
    search = SpanSearch.start(20)
    points = rng.standard_normal((9, 20))
    rows = np.stack([gradient_of(net, x)[0] for x in points])
    rows[4, 7] += 1e-3  # an artefact
    sigma = np.full(9, 1e-9)
    more = GradientRows(rows, sigma, points, np.zeros(9, dtype=int), np.full(9, 1e-4), sigma)
    search.add(more, 5.0)
    assert search.spectrum.rank == np.linalg.matrix_rank(net.weights[0]) + 1
    assert not confirm_span(oracle, search, config=CONFIG)
    assert confirm_span(oracle, search, config=CONFIG)
    assert search.spectrum.rank <= np.linalg.matrix_rank(net.weights[0])
    assert len(search.gradients.rows) == 8


def test_plan_is_fixed_in_advance_and_reads_back(tmp_path):
    net = random_network(12, 5, 2, rng=0)
    plan = SpanPlan.draw(12, gradients=4, rng=3)
    assert plan == SpanPlan.draw(12, gradients=4, rng=3)
    written = np.load(plan.write(tmp_path / "q.npy"))
    np.testing.assert_array_equal(written, np.concatenate([plan.points(i) for i in range(4)]))
    assert len(written) == len(plan) == 4 * plan.block
    replies = net(written).reshape(4, plan.block, 2)
    noise = noise_from_replies(replies, 12)
    read = [gradients_from_replies(plan.points(i), replies[i], noise) for i in range(4)]
    kept = [(i, g) for i, g in enumerate(read) if g is not None]
    assert kept
    for i, g in kept:
        exact = gradient_of(net, plan.points(i)[0])[g.outputs]
        assert np.all(np.abs(g.rows - exact) < 8 * g.noise[:, None])


def test_places_where_all_units_are_off_say_nothing_of_the_noise():
    """Zero at nine inputs in ten: steps that meet a kink there are no noise."""
    rng = np.random.default_rng(1)
    row = rng.standard_normal((1, 5))
    row /= np.linalg.norm(row)
    network = ReLUNetwork([row, np.ones((1, 1))], [np.array([-1.3]), np.zeros(1)])
    for seed in range(20):
        found = estimate_noise(
            as_oracle(network), np.random.default_rng(seed), scale=1.0, config=CONFIG
        )
        # rounding of numbers near one, or none seen at all
        assert found[0] < 1e-14
