"""Jayaram, Woodruff & Zhang to the letter: Algorithm 2, lemmas and assumptions, tested."""

import itertools
import math

import numpy as np
import pytest

import unrelu
from unrelu.errors import InvalidInput
from unrelu.networks import ReLUNetwork
from unrelu.oracles.wrappers import Labels
from unrelu.result import Status
from unrelu.span.algorithm import recover_span
from unrelu.span.assumptions import (
    gradients_needed,
    least_product,
    lemma_width,
    orthant_gamma_log2,
    silent_share,
    threshold_assumptions,
)
from unrelu.span.printed import Float64, PrintedNumbers, adaptive_gradients

# ------------------------------------------------------------- Section 3: assumptions


def gamma_log2(rows):
    """Simulate with as many points as tell it to a few per cent."""
    return orthant_gamma_log2(rows, draws=2000)


def test_assumption_1_orthogonal_rows_have_gamma_1_and_correlated_ones_less():
    # Orthogonal rows: every orthant has probability 2^-k, gamma = 1.
    assert gamma_log2(np.eye(6, 9)) == pytest.approx(0.0, abs=1e-9)
    # Two rows with correlation r: the worst orthant has 1/4 - arcsin(|r|)/(2 pi).
    r = 0.6
    rows = np.array([[1.0, 0.0], [r, np.sqrt(1 - r**2)]])
    exact = np.log2(4 * (0.25 - np.arcsin(r) / (2 * np.pi)))
    # 2000 draws of a bounded variable: about 2 %, 0.03 in log2; 4 sigma.
    assert gamma_log2(rows) == pytest.approx(exact, abs=0.12)
    assert gamma_log2(np.ones((2, 5))) == -math.inf  # orthants that are empty


def test_assumption_2_the_share_of_silence():
    # Two units of opposite signs are never off together; one alone is off for half of the inputs.
    w = np.eye(1, 5)
    pair = ReLUNetwork([np.vstack([w, -w]), np.ones((1, 2))], [np.zeros(2), np.zeros(1)])
    assert silent_share(pair, draws=20_000) == 0
    half = ReLUNetwork([w, np.ones((1, 1))], [np.zeros(1), np.zeros(1)])
    # 20,000 fair coins: 0.0035 standard deviation, five of them.
    assert silent_share(half, draws=20_000) == pytest.approx(0.5, abs=0.018)


def test_assumption_2_products_that_hide_a_row():
    generic = gaussian_network(0, 9, 6, [4, 3])
    assert 0 < least_product(generic, patterns=1000) < 1
    # One unit of the second layer that does not see the first row: with it alone on, that row
    # is hidden. 105 choices of units, of which every third or so has the layer's other units.
    w = [m.copy() for m in generic.weights]
    w[1][2, 0] = 0.0
    blind = ReLUNetwork(w, generic.biases)
    assert least_product(blind, patterns=1000) == 0
    assert least_product(blind, patterns=50, rng=1) == 0  # random choices find it as well


def test_lemma_3_1_wide_random_matrices_meet_assumption_1():
    # n > C k^3: the proof wants a condition number below 1 + 1/(100 k), that is n of 40,000 k^3.
    k = 2
    g = np.random.default_rng(0)
    assert 2.0 ** gamma_log2(g.standard_normal((k, 40_000 * k**3))) >= 0.5
    assert 2.0 ** gamma_log2(g.uniform(-1, 1, (k, 40_000 * k**3))) >= 0.5
    # Square ones do not: the lemma's condition on n matters.
    square = [gamma_log2(g.standard_normal((6, 6))) for _ in range(20)]
    assert np.median(square) < -1


def gaussian_network(seed, n, k, widths):
    """Draw a ReLU network without biases, orthonormal first rows, Gaussian above."""
    g = np.random.default_rng(seed)
    dims = [k, *widths, 1]
    first = np.linalg.qr(g.standard_normal((n, k)))[0].T
    upper = [g.standard_normal((b, a)) for a, b in itertools.pairwise(dims)]
    return ReLUNetwork([first, *upper], [np.zeros(b) for b in dims])


@pytest.mark.parametrize("depth", [1, 3])
def test_lemma_3_1_random_layers_of_its_width_meet_assumption_2(depth):
    delta, k, networks = 0.2, 8, 60
    width = lemma_width(depth, delta, 1.0)
    assert width == math.ceil(math.log2(80 * depth))

    def violated(width):
        nets = (gaussian_network(s, 12, k, [width] * depth) for s in range(networks))
        return np.mean([silent_share(net, draws=2000) > 1 / 8 for net in nets])

    # Odds of delta; and layers half as wide break it more often than that.
    assert violated(width) <= delta
    assert violated(width // 3) > delta


def gradients(network, count, seed):
    """Gradients at Gaussian inputs, by the chain rule, ``(count, n)``."""
    x = np.random.default_rng([seed, 1]).standard_normal((count, network.input_dim))
    jacobian, h = np.tile(np.eye(network.input_dim), (count, 1, 1)), x
    for layer, weights in enumerate(network.weights):
        h, jacobian = h @ weights.T, weights @ jacobian
        if layer + 1 < len(network.weights):
            on = h > 0
            h, jacobian = h * on, jacobian * on[:, :, None]
    return jacobian[:, 0]


def test_theorem_3_4_half_of_the_span_where_the_assumptions_hold():
    k, delta, below, met = 12, 0.1, 0, 0
    count = gradients_needed(k, delta, 1.0)
    assert count == math.ceil(48 * math.log(120))
    for seed in range(20):
        net = gaussian_network(seed, 20, k, [lemma_width(2, delta, 1.0)] * 2)
        if silent_share(net, draws=2000) > 1 / 8 or least_product(net, patterns=50) == 0:
            continue
        met += 1
        below += 2 * np.linalg.matrix_rank(gradients(net, count, seed)) < k
    assert met >= 18
    assert below == 0


def test_theorem_3_4_needs_assumption_2():
    # Above the first layer nobody looks at 8 of 12 rows: rank 4 is all that any gradient shows,
    # and the check of the assumption says so.
    net = gaussian_network(0, 20, 12, [8, 8])
    w = [m.copy() for m in net.weights]
    w[1][:, 4:] = 0.0
    blind = ReLUNetwork(w, net.biases)
    count = gradients_needed(12, 0.1, 1.0)
    assert np.linalg.matrix_rank(gradients(blind, count, 0)) == 4
    assert least_product(blind, patterns=20) == 0


def supports(basis, tolerance=1e-9):
    """Return all supports of vectors in the span of rows, by linear algebra."""
    k, found = basis.shape[1], set()
    for size in range(k + 1):
        for zero in itertools.combinations(range(k), size):
            kernel = np.eye(len(basis))
            if size:
                _, s, vt = np.linalg.svd(basis[:, zero].T)
                kernel = vt[np.count_nonzero(s > tolerance) :]
            rest = kernel @ basis  # vectors that vanish there
            found.add(frozenset(np.flatnonzero(np.abs(rest).max(axis=0, initial=0) > tolerance)))
    return found


@pytest.mark.parametrize("k", [4, 6, 8])
def test_lemma_3_3_a_subspace_of_half_the_dimension_has_few_sparse_supports(k):
    g = np.random.default_rng(k)
    coordinates = np.eye(k)[: k // 2]
    sums = np.kron(np.eye(k // 2), np.ones(2))
    for basis in (
        coordinates,
        sums,
        g.standard_normal((k // 2, k)),
        g.integers(-1, 2, (k // 2, k)),
    ):
        sparse = [s for s in supports(np.asarray(basis, dtype=float)) if len(s) <= k / 2]
        assert len(sparse) <= 2**k / math.sqrt(k)
    # The bound is about half of the dimension: the whole space has more.
    assert len([s for s in supports(np.eye(k)) if len(s) <= k / 2]) > 2**k / math.sqrt(k)


# -------------------------------------------------------- Section 4: Algorithm 2 as printed


def tanh_layers(seed, n, k):
    """Draw a smooth network without biases."""
    g = np.random.default_rng(seed)
    return [
        1.5 * g.standard_normal((k, n)) / (2 * math.sqrt(k)),
        1.5 * g.standard_normal((8, k)) / math.sqrt(k),
        g.standard_normal((1, 8)) / math.sqrt(8),
    ]


def smooth(layers):
    """Return the network as a function ``(p, n) -> (p, 1)``."""

    def function(x):
        for w in layers[:-1]:
            x = np.tanh(x @ w.T)
        return x @ layers[-1].T

    return function


def threshold_of(layers, part=0.1):
    """Return a threshold at a part of the network's spread."""
    x = np.random.default_rng(0).standard_normal((2000, layers[0].shape[1]))
    return part * float(smooth(layers)(x).std())


def distance(basis, weights):
    """Sine of the largest angle of a basis to the span of weights, at most."""
    q = np.linalg.qr(weights.T)[0].T
    return float(np.linalg.norm(basis - (basis @ q.T) @ q))


def test_line_1_the_numbers_that_an_arithmetic_carries():
    four = PrintedNumbers.carried(53)
    assert (four.size, four.epsilon_log2, four.beta_log2) == (4, -16, -48)
    assert four.eta_log2 == -4
    assert four.farthest_log2 == -16  # 2^-4 2^-16 / 2^-4
    assert PrintedNumbers.carried(200).size == 8
    assert PrintedNumbers.carried(53, eta=0.3).eta_log2 == -2


def test_lines_5_to_9_give_a_gradient():
    # A linear network: its one boundary is flat, so line 9 gives the weights themselves.
    w = np.random.default_rng(0).standard_normal((1, 5))
    found = adaptive_gradients(
        lambda x: (x @ w.T)[:, 0] >= 1.0, 5, 1, numbers=PrintedNumbers.carried(53),
        arithmetic=Float64(), rng=np.random.default_rng(1), draws=300, checks=3,
    )  # fmt: skip
    # Rounding of 1e-16 in c of 2^-20, told apart by 2^-4 of it, times a 5 by 5 condition.
    assert distance(found.basis, w) < 1e-7
    assert found.noise[0] < 1e-7
    assert found.rows[0] @ w[0] < 0  # 1 / c is positive along u, which points inwards


@pytest.mark.parametrize(("n", "k"), [(6, 3), (20, 5)])
def test_algorithm_2_as_printed_in_float64(n, k):
    whole = 0
    for seed in range(6):
        layers = tanh_layers(seed, n, k)
        target = Labels(
            unrelu.connect(smooth(layers), input_dim=n), threshold=threshold_of(layers)
        )
        result = recover_span(target, answers="labels", rank=k, faithful=True, rng=seed)
        assert distance(result.basis, layers[0]) < 2e-3  # epsilon_0 times the condition
        if result.success:
            assert result.rank == k
            whole += 1
        else:
            assert result.status is Status.PARTIAL
            assert "Assumption 3" in result.message
            assert result.rank >= k - 1
    assert whole >= 3  # the rank is k or k - 1
    printed = next(stage for stage in result.stages if stage.name == "as printed")
    assert printed.details["N"] == 4


def test_what_stops_algorithm_2_is_assumption_3():
    # Fires only where both directions do: outside of the first vector nothing is left.
    def both(x):
        return np.maximum(np.tanh(x[:, :1]), 0) ** 3 * np.maximum(np.tanh(x[:, 1:2]), 0) ** 3

    target = Labels(unrelu.connect(both, input_dim=4), threshold=0.2)
    result = recover_span(target, answers="labels", rank=2, faithful=True, rng=0)
    assert result.status is Status.PARTIAL
    assert result.rank == 1
    assert "Assumption 3" in result.message
    measured = threshold_assumptions(lambda x: both(x)[:, 0] / 0.2, np.eye(2, 4))
    assert measured.gamma[0] > 0
    assert not measured.hold
    # The practical version does not deflate, and finds both.
    assert recover_span(target, answers="labels", rng=0).rank == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_rank_that_is_too_small_is_not_vouched_for(seed):
    layers = tanh_layers(seed, 6, 3)
    target = Labels(unrelu.connect(smooth(layers), input_dim=6), threshold=threshold_of(layers))
    result = recover_span(target, answers="labels", rank=2, faithful=True, rng=seed)
    assert result.status is Status.PARTIAL


def test_faithful_needs_labels_and_a_rank():
    network = gaussian_network(0, 5, 2, [3])
    with pytest.raises(InvalidInput, match="answers='labels' and the rank"):
        recover_span(network, faithful=True, rank=2)
    with pytest.raises(InvalidInput, match="answers='labels' and the rank"):
        recover_span(network, faithful=True, answers="labels")


def test_algorithm_2_in_multiple_precision():
    pytest.importorskip("flint")
    from unrelu.span.precision import ManyBits, precise_labels, recover_span_precisely

    layers = tanh_layers(0, 4, 2)
    arithmetic = ManyBits(112)  # N = 6: epsilon_0 = 2^-36, beta = 2^-108
    labels = precise_labels(layers, "tanh", threshold_of(layers), arithmetic)
    found = recover_span_precisely(labels, 4, 2, arithmetic=arithmetic, rng=0)
    assert len(found.basis) == 2
    first = arithmetic.vectors(layers[0])
    for vector in found.basis:
        # What is left after projecting on both rows, in the same digits.
        gram = first @ first.T
        inside = arithmetic.solve(gram, first @ vector) @ first
        apart = float(((vector - inside) @ (vector - inside)).mid()) ** 0.5
        assert apart < 2.0**-36 * 1e4  # epsilon_0 times the condition: float64 gives 1e-6
    with pytest.raises(InvalidInput, match="bits"):
        ManyBits(40)


# ------------------------------------------------------------- Section 4: assumptions


def test_assumptions_3_and_4_of_a_linear_threshold():
    # sigma(x) = 2 x_0: reached from x_0 = 1/2 on, with a slope of 2 cos(angle) along the input.
    measured = threshold_assumptions(lambda x: 2.0 * x[:, 0], np.eye(1, 1))
    # P(z > 1/2) = 0.309, the least of 8 shares of 300: within four deviations of 0.027.
    assert measured.gamma[0] == pytest.approx(0.309, abs=0.11)
    assert measured.eta[0] == pytest.approx(2.0, rel=1e-5)
    assert measured.hold
    # Beyond reach: never 1.
    assert not threshold_assumptions(lambda x: np.tanh(x[:, 0]), np.eye(1, 1)).hold
