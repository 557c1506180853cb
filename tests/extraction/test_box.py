"""Networks that may only be asked in a box."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.special

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.extraction.box import BoxConfig, BoxResult, extract_in_box
from unrelu.extraction.box_clip import notice_clipping
from unrelu.extraction.box_explore import Exploration
from unrelu.extraction.box_points import BoxInputs
from unrelu.extraction.box_target import BoxTarget, RowNoise, read_probabilities
from unrelu.extraction.box_units import affine, folded, merged, network_in, with_unit
from unrelu.lines.domains import as_domain
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import Status

SMALL = BoxConfig(probes=300, held_out=300)


def planted(seed: int, d: int = 8, k: int = 6, m: int = 3) -> ReLUNetwork:
    """Return a network whose units all switch in the unit cube."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((k, d))
    inside = rng.uniform(0.3, 0.7, (k, d))  # a point of each hyperplane
    return ReLUNetwork(
        [rows, rng.standard_normal((m, k))],
        [-(rows * inside).sum(axis=1), rng.standard_normal(m)],
    )


def single(network: ReLUNetwork, x: FloatArray) -> FloatArray:
    """Evaluate in single precision."""
    w, b = network.weights, network.biases
    h = np.maximum(x.astype(np.float32) @ w[0].T.astype(np.float32) + b[0].astype(np.float32), 0)
    return np.asarray(h @ w[1].T.astype(np.float32) + b[1].astype(np.float32))


def boxed(
    function: Callable[[FloatArray], FloatArray], low: FloatArray | float, high: FloatArray | float
) -> Callable[[FloatArray], FloatArray]:
    """Refuse inputs outside the box."""

    def ask(x: FloatArray) -> FloatArray:
        if (x < low).any() or (x > high).any():
            raise ValueError("outside the box")
        return function(x)

    return ask


def worst(result: BoxResult, truth: ReLUNetwork, *, centred: bool = False) -> float:
    """Return the largest deviation over the spread, at uniform points and corners."""
    assert result.network is not None
    assert result.low is not None
    assert result.high is not None
    rng, inputs = np.random.default_rng(99), BoxInputs(truth.input_dim)
    cube = np.concatenate([inputs.uniform(2000, rng), inputs.corners(2000, rng)])
    x = result.low + cube * (result.high - result.low)
    f, g = truth(x), result.network(x)
    if centred:
        f, g = (v - v.mean(axis=1, keepdims=True) for v in (f, g))
    return float(np.abs(f - g).max() / f.std())


def same_hyperplanes(found: ReLUNetwork, truth: ReLUNetwork) -> float:
    """Return the largest distance of a true hyperplane from the nearest one found."""

    def rows(net: ReLUNetwork) -> FloatArray:
        both = np.column_stack([net.weights[0], net.biases[0]])
        return np.asarray(both / np.linalg.norm(net.weights[0], axis=1, keepdims=True))

    a, b = rows(truth), rows(found)
    apart = np.minimum(
        np.linalg.norm(a[:, None] - b, axis=2), np.linalg.norm(a[:, None] + b, axis=2)
    )
    return float(apart.min(axis=1).max())


@pytest.mark.parametrize("seed", range(3))
def test_double_precision_is_exact(seed: int) -> None:
    truth = planted(seed)
    oracle = connect(boxed(truth, 0.0, 1.0), input_dim=8, output_dim=3)
    result = extract_in_box(oracle, domain=(0.0, 1.0), rng=seed, config=SMALL)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 6
    assert result.network is not None
    # Rounding of 1e-16 over some hundred answers a parameter, times the condition of a fit.
    assert worst(result, truth) < 1e-11
    assert same_hyperplanes(result.network, truth) < 1e-10
    assert result.queries.total == oracle.queries.total


@pytest.mark.parametrize("seed", [3, 4, 8, 79])  # 8, 79: a fit too early bends known units
def test_single_precision_softmax(seed: int) -> None:
    truth = planted(seed)

    def probabilities(x: FloatArray) -> FloatArray:
        return scipy.special.softmax(single(truth, x), axis=1)

    oracle = connect(boxed(probabilities, 0.0, 1.0), input_dim=8, output_dim=3)
    result = extract_in_box(oracle, domain=(0.0, 1.0), rng=seed, config=SMALL)
    assert result.status is Status.RECOVERED, result.message
    assert result.answers == "log-odds"
    assert result.width == 6
    # Noise of 1e-7 of the spread, 30 of which are allowed.
    assert worst(result, truth, centred=True) < 2e-5


def test_one_output_and_a_range_of_its_own_per_feature() -> None:
    low, high = np.linspace(-3.0, 1.0, 5), np.linspace(1.0, 40.0, 5)
    truth = network_in_box(planted(5, d=5, k=4, m=1), low, high)
    oracle = connect(boxed(truth, low, high), input_dim=5, output_dim=1)
    result = extract_in_box(oracle, domain=(low, high), rng=5, config=SMALL)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 4
    assert worst(result, truth) < 1e-10


def network_in_box(net: ReLUNetwork, low: FloatArray, high: FloatArray) -> ReLUNetwork:
    """Stretch a network over the cube to a box."""
    with_skip = ReLUNetwork(net.weights, net.biases, np.zeros((net.output_dim, net.input_dim)))
    return network_in(with_skip, low, high)


def test_units_that_never_switch_are_affine() -> None:
    truth = planted(6)
    truth = ReLUNetwork(truth.weights, [truth.biases[0] + np.array([50.0, 0, 0, 0, 0, -50.0]),
                                        truth.biases[1]])  # fmt: skip
    result = extract_in_box(
        connect(truth, input_dim=8, output_dim=3), domain=(0.0, 1.0), rng=6, config=SMALL
    )
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 4
    assert worst(result, truth) < 1e-11


def test_a_budget_ends_it() -> None:
    truth = planted(7)
    result = extract_in_box(
        connect(truth, input_dim=8, output_dim=3), domain=(0.0, 1.0), rng=7, budget=400
    )
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= 400


def test_a_smooth_function_is_not_recovered() -> None:
    def smooth(x: FloatArray) -> FloatArray:
        return np.sin(3.0 * x.sum(axis=1, keepdims=True)) + (x**2).sum(axis=1, keepdims=True)

    small = BoxConfig(probes=100, held_out=100, rounds=2)
    result = extract_in_box(
        connect(smooth, input_dim=4, output_dim=1), domain=(0.0, 1.0), rng=0, config=small
    )
    assert not result.success


def test_rounded_answers_are_not_called_recovered() -> None:
    truth = planted(8)

    def rounded(x: FloatArray) -> FloatArray:
        return np.round(truth(x), 2)

    small = BoxConfig(probes=100, held_out=100, rounds=2)
    result = extract_in_box(
        connect(rounded, input_dim=8, output_dim=3), domain=(0.0, 1.0), rng=0, config=small
    )
    assert not result.success


def test_a_box_is_needed() -> None:
    with pytest.raises(InvalidInput, match="give the box"):
        extract_in_box(connect(planted(0), input_dim=8, output_dim=3))


def test_reading_probabilities() -> None:
    logits = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
    values, coarseness = read_probabilities(scipy.special.softmax(logits, axis=1))
    # exp and log round by one unit each
    assert np.allclose(values, logits - logits.mean(axis=1, keepdims=True), atol=1e-14)
    assert (coarseness == np.finfo(np.float64).eps).all()
    values, coarseness = read_probabilities(np.array([[0.5], [1.0 - 2.0**-20], [1.0]]))
    assert values[0, 0] == 0.0
    # near one the rest has lost digits: eps of float32 over 2^-20
    assert coarseness[1] == pytest.approx(2.0**-23 * 2.0**20)
    assert np.isnan(values[2, 0])


def test_folding_and_merging_keep_the_function() -> None:
    rng = np.random.default_rng(0)
    net = affine(rng.standard_normal((2, 4)), rng.standard_normal(2))
    row = rng.standard_normal(4)
    for bias, sign in ((-row.sum() / 2, 1.0), (row.sum() / 2, -1.0)):  # two faces of one plane
        net = with_unit(net, sign * row, float(bias), rng.standard_normal(2))
    net = with_unit(net, row, 20.0, rng.standard_normal(2))  # always on
    tidy = folded(merged(net, 1e-9), 1e-9)
    assert len(tidy.biases[0]) == 1
    x = rng.random((100, 4))
    assert np.allclose(tidy(x), net(x), atol=1e-12)  # sums of numbers up to 40


def test_a_known_unit_with_wrong_outputs_is_mended() -> None:
    truth, rng = planted(2, m=1), np.random.default_rng(0)
    oracle = connect(truth, input_dim=8, output_dim=1)
    box = BoxTarget(oracle, as_domain((0.0, 1.0), 8), probabilities=False, single=False)
    search = Exploration(box, BoxInputs(8), RowNoise(1e-15, 1.0), rng)
    search.begin()
    # All units are known, and one has other outputs: all probes on its far side disagree, too
    # many and by too much for a fit to take them in.
    known = ReLUNetwork(truth.weights, truth.biases, np.zeros((1, 8)))
    outputs = truth.weights[1] * np.where(np.arange(6) == 3, 1.5, 1.0)
    search.network = ReLUNetwork([truth.weights[0], outputs], truth.biases, known.skip)
    assert search.explore(200)
    assert search.units == 6
    x = rng.random((200, 8))
    # 1e-15 times what counts as explained, a third of the digits
    assert np.abs(search.network(x) - known(x)).max() < 1e-9


@pytest.mark.parametrize("precise", [True, False])
def test_clipping_is_noticed_and_measured(precise: bool) -> None:
    truth = planted(9)
    low, high = np.linspace(-0.5, 0.0, 8), np.linspace(1.0, 3.0, 8)

    def clipped(x: FloatArray) -> FloatArray:
        inside = np.clip(x, low, high)
        return truth(inside) if precise else single(truth, inside)

    found = notice_clipping(
        connect(clipped, input_dim=8, output_dim=3), center=np.full(8, 0.4), rng=0
    )
    assert found.noticed
    assert found.found.sum() >= 6  # a feature may be flat at the center
    # proved from both sides to 1e-5 of the distance from the center
    assert np.abs(found.low - low)[found.found].max() < 1e-4
    assert np.abs(found.high - high)[found.found].max() < 1e-4


def test_a_target_that_goes_on_is_not_called_clipped() -> None:
    oracle = connect(planted(10), input_dim=8, output_dim=3)
    assert not notice_clipping(oracle, rng=0).noticed
    assert oracle.queries.total <= 3
