import math

import numpy as np
import pytest

from unrelu import planted
from unrelu.core.noise import NORMAL_MEDIAN, RARE, NoiseModel
from unrelu.core.run import Run
from unrelu.learner.certificate import Claim, certify_square_loss
from unrelu.learner.config import LearnerConfig
from unrelu.learner.far import choose_stretch, measure_biases
from unrelu.learner.grow import propose_neuron
from unrelu.learner.neurons import Neurons
from unrelu.learner.polish import band_points, fit_neurons
from unrelu.learner.request import Request
from unrelu.learner.run import Learning
from unrelu.learner.search import gaussian_line, residual_noise, search_residual
from unrelu.lines.chain import MARGIN
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import Cast, Noisy

ROUNDING = NoiseModel(np.array([1e-15]), np.array([1e-16]))


def neurons_of(network):
    (w, u), (b, c) = network.weights, network.biases
    return Neurons(w, b, u, np.zeros((len(u), w.shape[1])), c)


# ------------------------------------------------------------------ residual line


@pytest.mark.parametrize("width", [0.1, 1e-3])
def test_a_line_through_a_bump_finds_its_three_neurons(width):
    network = planted.bump(8, width=width, rng=0)
    w, b = network.weights[0], network.biases[0]
    rng = np.random.default_rng(0)
    inside = rng.standard_normal(8)
    inside += (0.3 + 0.2 * width - inside @ w[0]) * w[0]
    line = gaussian_line(8, rng, through=inside)
    oracle = as_oracle(network)
    noise = NoiseModel(np.array([1e-9]), np.array([1e-9]))
    found = search_residual(oracle, line, noise, rng=rng)
    assert found is not None
    assert found.units.count == 3
    offsets = np.abs(found.units.biases) / np.linalg.norm(found.units.weights, axis=1)
    np.testing.assert_allclose(np.sort(offsets), np.sort(np.abs(b)), atol=1e-4 * width)
    assert oracle.queries.total < 300


def test_nothing_to_find_costs_little():
    network = planted.random_network(5, 4, 1, rng=0)
    oracle = as_oracle(network)
    rng = np.random.default_rng(0)
    line = gaussian_line(5, rng, through=np.zeros(5))
    found = search_residual(lambda x: oracle(x) - network(x), line, ROUNDING, rng=rng)
    assert found is None
    assert oracle.queries.total < 60


def test_noise_of_the_residual_is_at_least_what_is_forgiven():
    quiet = residual_noise(ROUNDING, np.zeros((9, 1)), 4, 0.3)
    assert quiet.absolute[0] == pytest.approx(0.3 / MARGIN, rel=1e-9)
    loud = residual_noise(ROUNDING, np.full((9, 1), 2.0), 4, 0.3)
    assert loud.absolute[0] == pytest.approx(2.0 * 2.0 / NORMAL_MEDIAN, rel=1e-9)
    assert loud.growth[0] == pytest.approx(loud.absolute[0] / 2.0)


# --------------------------------------------------------------------- far view


def test_constant_noise_is_seen_from_far_and_growing_noise_is_not():
    network = planted.random_network(6, 5, 1, rng=0)
    rng = np.random.default_rng(0)
    noise = NoiseModel(np.array([1e-3]), np.array([1e-9]))
    noisy = Noisy(as_oracle(network), 1e-3, seed=0)
    stretch, far = choose_stretch(noisy, noise, 6, rng=rng)
    assert stretch == 1e7  # half of the digits of float64
    assert far.growth[0] * stretch < 1e-3

    growing = np.random.default_rng(1)

    def relative(x):
        return network(x) * (1.0 + 1e-3 * growing.standard_normal((len(x), 1)))

    stretch, same = choose_stretch(relative, noise, 6, rng=rng)
    assert (stretch, same) == (1.0, noise)


@pytest.mark.parametrize("outputs", [1, 3])
def test_biases_come_back_from_far_points(outputs):
    network = planted.random_network(6, 9, outputs, rng=2)
    truth = neurons_of(network)
    oracle = Noisy(as_oracle(network), 1e-4, seed=1)
    blind = Neurons(truth.weights, np.zeros(9), truth.outputs, truth.linear, np.zeros(outputs))
    found = measure_biases(oracle, blind, answers=10.0, rng=np.random.default_rng(3))
    x = np.random.default_rng(4).standard_normal((500, 6))
    # Noise of 1e-4 in about 90 points for 10 unknowns, gates well mixed.
    assert np.sqrt(np.mean((found(x) - truth(x)) ** 2)) < 3e-4


# ----------------------------------------------------------------------- polish


def test_polish_averages_noise_and_ignores_outliers():
    truth = neurons_of(planted.random_network(5, 6, 1, rng=1))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1500, 5))
    y = truth(x) + 1e-3 * rng.standard_normal((1500, 1))
    y[:40] += 5.0  # an unknown bump
    start = Neurons(
        truth.weights + 1e-2 * rng.standard_normal((6, 5)),
        truth.biases + 1e-2 * rng.standard_normal(6),
        truth.outputs, truth.linear, truth.constant,
    )  # fmt: skip
    deviation = np.full_like(y, 1e-3)
    found = fit_neurons(start, x, y, deviation, most=100)
    fresh = rng.standard_normal((5000, 5))
    # 42 parameters, 1460 samples: 1e-3 sqrt(42 / 1460) = 1.7e-4 is the best there is.
    assert np.sqrt(np.mean((found(fresh) - truth(fresh)) ** 2)) < 3.5e-4
    few = fit_neurons(start, x[:20], y[:20], deviation[:20], most=100)
    assert few is start  # too few samples: untouched
    assert fit_neurons(start, x, y, deviation, most=10) is start  # too large a problem


def test_band_points_lie_in_the_bands():
    bump = neurons_of(planted.bump(6, width=0.01, rng=0))
    rng = np.random.default_rng(0)
    line = gaussian_line(6, rng)
    points = band_points(bump, line, 30, rng)
    assert points.shape == (90, 6)
    z = points @ bump.weights.T + bump.biases
    # Three hyperplanes half a width apart, and points within twice that of one of them.
    assert (np.abs(z) / bump.norms).max() <= 0.005 + 2 * 0.01


# ------------------------------------------------------------------ certificate


def certify(network, learned, *, noise=0.0, rng=0, most=1_000_000, **claimed):
    claim = {
        "network": learned, "found": learned, "epsilon": 0.1, "delta": 0.05, "total": 4.0,
        "noisy": noise > 0, "facts": {},
    } | claimed  # fmt: skip

    def missed(x):
        size = np.linalg.norm(x, axis=1) / math.sqrt(x.shape[1])
        return 2.0 * claim["epsilon"] * np.maximum(1.0, size)

    def allowed(x):
        return missed(x) + RARE * noise

    return certify_square_loss(
        network, Claim(**claim, missed=missed, allowed=allowed), expect=lambda samples: None,
        rng=np.random.default_rng(rng), config=LearnerConfig(most=most),
    )  # fmt: skip


def test_the_bound_covers_the_error_and_is_not_far_above():
    truth = planted.random_network(4, 5, 1, rng=0)

    def wrong(x):
        return truth(x) + 0.05 * x[:, :1]

    held = 0
    for seed in range(40):
        bound = certify(as_oracle(truth), wrong, rng=seed).bound
        held += bound >= 0.05**2
        assert bound < 1.2 * 0.05**2
    assert held >= 36  # 95 % are promised, 97.5 % expected


def test_noise_is_not_charged_to_the_network():
    truth = planted.random_network(4, 5, 1, rng=0)
    oracle = Noisy(as_oracle(truth), 0.2, seed=3)
    checked = certify(oracle, truth, epsilon=0.1, noise=0.2)
    # Products of two residuals: mean 0, deviation 0.04 / sqrt(5000), two of them; and a
    # deviation of 5 epsilon on a part of 3.7 / 5000 of all inputs, which may be unseen.
    assert checked.bound < 3 * 0.04 / math.sqrt(5000)
    assert checked.certificate.details["answers per point"] == 2
    assert len(checked.hit_inputs) == 0
    assert oracle.queries.total == 2 * 5000 + 2500


def test_unseen_bumps_count_with_the_bound_on_the_norms():
    truth = planted.random_network(4, 5, 1, rng=0)
    small = certify(as_oracle(truth), truth, total=4.0).bound
    checked = certify(as_oracle(truth), truth, total=4e4, most=500)
    assert small < 1e-2 < checked.bound
    assert checked.certificate.details["part of unseen bumps"] == pytest.approx(
        checked.bound, rel=1e-3
    )
    assert checked.certificate.samples + checked.certificate.details["wide inputs"] == 500


@pytest.mark.parametrize(("width", "center"), [(3e-3, 0.0), (3e-3, 2.0), (0.1, 3.5), (1.0, 4.5)])
def test_the_bound_covers_stacked_neurons_wherever_they_bend(width, center):
    """A hundred copies of a bump that the network lacks; what is known of them is k R."""
    t = np.linspace(center - width / 2, center + width / 2, 20_001)
    shape = 1.0 - np.abs(t - center) / (width / 2)
    square = np.trapezoid(shape**2 * np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi), t)
    height = 0.03 / math.sqrt(square)  # the bump alone loses three times epsilon
    slope = height / (width / 2) / 100
    u = np.tile([slope, -2 * slope, slope], 100)
    b = np.tile([width / 2, 0.0, -width / 2], 100) - center
    target = ReLUNetwork([np.eye(1, 3).repeat(300, axis=0), u[None]], [b, np.zeros(1)])
    for seed in range(5):
        checked = certify(
            as_oracle(target), lambda x: np.zeros((len(x), 1)), epsilon=0.01,
            total=300 * 2 * slope, rng=seed,
        )  # fmt: skip
        assert checked.bound >= 0.03**2 * 0.9 or len(checked.hit_inputs) > 0
        assert checked.bound > 0.01**2  # never vouched for


def test_what_stands_out_is_handed_over_and_the_rest_is_not_asked():
    truth = planted.random_network(4, 5, 1, rng=0)
    oracle = as_oracle(truth)

    def wrong(x):
        return truth(x) + 50.0 * np.maximum(0.0, 1.0 - np.abs(x[:, :1] - 3.0) / 0.1)

    checked = certify(oracle, wrong, epsilon=1e-3, total=4e4)
    assert (np.abs(checked.hit_inputs[:, 0] - 3.0) < 0.1).all()
    assert len(checked.hit_inputs) >= 5
    np.testing.assert_array_equal(checked.hit_answers, truth(checked.hit_inputs))
    assert oracle.queries.total == 5500  # more than a million would show no less


def test_a_missing_neuron_shows_in_the_residual():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((3000, 8))
    w = rng.standard_normal(8)
    w /= np.linalg.norm(w)
    left = 1e-3 * (np.maximum(x @ w - 0.4, 0.0) - 0.5 * x[:, 0]) + 1e-4 * rng.standard_normal(3000)
    found = propose_neuron(x, left, rng)
    assert found is not None
    assert abs(found.weights[0] @ w) / np.linalg.norm(found.weights[0]) >= 0.97
    assert found.outputs[0, 0] == pytest.approx(1e-3, rel=0.3)
    # Nothing but noise: whatever is proposed explains next to nothing of it.
    noise = rng.standard_normal(3000)
    more = propose_neuron(x, noise, rng)
    if more is not None:
        kink = 0.5 * more.outputs[0, 0] * np.abs(x @ more.weights[0] + more.biases[0])
        assert np.var(noise - kink) >= 0.97 * np.var(noise)


def test_growth_adds_what_a_line_missed():
    truth = planted.random_network(6, 8, 1, rng=3)
    weak = truth.weights[1].copy()
    weak[0, :2] *= 0.02
    truth = type(truth)([truth.weights[0], weak], truth.biases)
    target = Cast(as_oracle(truth), "float32")
    request = Request(1e-4, relative=True)
    learning = Learning(Run(target, algorithm="test", rng=4), request, LearnerConfig())
    learning.look()
    line = learning.polish(neurons_of(truth).kept(np.arange(8) > 1))
    assert not learning.seen.good(line)
    grown = learning.grow(line)
    assert learning.seen.good(grown)
    x = np.random.default_rng(5).standard_normal((2000, 6))
    assert np.abs(grown(x) - truth(x)).max() <= 1e-4 * truth(x).std()
