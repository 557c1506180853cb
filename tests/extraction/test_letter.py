"""Daniely & Granot as printed: the theorems run in exact arithmetic, and where they end."""

from __future__ import annotations

import math
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.letter_daniely import depth_three, depth_two
from unrelu.errors import InvalidInput
from unrelu.extraction import letter_boxes
from unrelu.extraction.general_position import general_position
from unrelu.extraction.letter_boxes import Function, Irregular
from unrelu.extraction.letter_three import (
    candidate_hyperplanes,
    find_directions,
    is_first_layer,
    spread_of,
    top_layers,
)
from unrelu.extraction.letter_two import (
    most_queries_depth_two,
    recover_depth_two,
)
from unrelu.extraction.three_layer import extract_three_layer
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.networks import ReLUNetwork
from unrelu.oracles import ExactOracle, Meter, connect
from unrelu.planted import random_network, random_rational_network
from unrelu.rational import RationalNetwork, rationals
from unrelu.rational_compare import normal_form, same_function, same_network
from unrelu.result import RecoveryResult, Status

F = Fraction


class Watched(ExactOracle):
    """An exact oracle that remembers what it was asked."""

    def __init__(self, network, **options):
        super().__init__(network, **options)
        self.asked = []

    def exact(self, points):
        self.asked += points.tolist()
        return super().exact(points)

    @property
    def function(self):
        def answer(points):
            return self.exact(points)[:, 0], np.zeros(len(points), dtype=object)

        return Function(self.input_dim, answer, Fraction)


def exact(result):
    return RationalNetwork.from_text(result.exact)


BOXES = {
    1: (1, 2, 3, 5), 2: (1,), 3: (1, 2, 3), 4: (1, 2, 4), 5: (1,), 6: (1, 2, 3, 4, 6, 7),
    7: (1, 2, 3, 4, 5, 6, 8),
}  # fmt: skip


def test_every_line_of_a_box_is_marked():
    """All but those that only end a loop or a case."""
    folder = Path(letter_boxes.__file__).parent
    text = "".join(path.read_text() for path in sorted(folder.glob("letter_*.py")))
    marked = {(int(a), int(b)) for a, b in re.findall(r"# Algorithm (\d), line (\d)", text)}
    assert marked == {(box, line) for box, lines in BOXES.items() for line in lines}


# ------------------------------------------------------------------ Theorems 1, 2


@pytest.mark.parametrize("seed", range(8))
def test_theorem_one_gives_the_network_back_bit_for_bit(seed):
    truth, position = depth_two(seed)
    result = extract_two_layer(truth, faithful=True, delta=position.delta, rng=seed)
    assert result.status is Status.RECOVERED
    assert same_network(exact(result), truth)
    assert result.width == truth.hidden_widths[0]
    assert result.signs_determined
    assert result.certificate.max_deviation == result.certificate.tolerance == 0.0
    assert result.queries.by_stage["as printed"] <= result.most_queries
    # O(d1 log(1/delta) + d1 d): with the boxes' constants 8 a halving, twice for one unit
    d, k = truth.input_dim, truth.hidden_widths[0]
    log = -math.log2(position.delta)
    assert result.queries.by_stage["as printed"] <= 2 * 8 * k * (log + 2) + 4 * k * (d + 2)


@pytest.mark.parametrize("seed", range(4))
def test_theorem_two_stays_in_the_orthant(seed):
    truth, position = depth_two(100 + seed)
    oracle = Watched(truth)
    result = extract_two_layer(
        oracle, faithful=True, delta=position.delta, domain="nonnegative", rng=seed
    )
    assert result.status is Status.RECOVERED
    assert same_function(exact(result), truth, orthant=True)
    assert min(min(point) for point in oracle.asked) >= 0
    assert result.queries.by_stage["as printed"] <= result.most_queries
    assert len(oracle.asked) == result.queries.total


def test_a_unit_met_on_several_half_axes_is_one_unit():
    # 2 - x - y crosses both half-axes, 3 + x - y the second only
    truth = RationalNetwork([[[-1, -1], [1, -1]], [[1, 2]]], [[2, 3], [0]])
    f = Watched(truth).function
    found = recover_depth_two(f, F(1, 67), draw=lambda: rationals([1, 2]), orthant=True)
    assert len(found.signs) == 2
    searched = most_queries_depth_two(2, 3, F(1, 67), orthant=True)
    one_axis = most_queries_depth_two(2, 2, F(1, 67))
    assert searched > one_axis


def test_what_the_boxes_ask_is_counted():
    # Every map on the axis of a network with one unit is asked: nothing lies left of a.
    truth = RationalNetwork([[[1, 2]], [[1]]], [[F(-1, 3)], [0]])
    oracle = Watched(truth)
    delta = F(1, 65)
    result = extract_two_layer(oracle, faithful=True, delta=delta, rng=0)
    most = most_queries_depth_two(2, 1, delta)
    skipped = 4 * sum(middle <= F(1, 3) for middle in middles(delta, F(1, 3)))
    assert result.queries.by_stage["as printed"] == most - skipped


def middles(delta, a):
    """Return where FIND_CP halves after the last critical point."""
    left, right, found = -1 / delta, 1 / delta, []
    for _ in range(math.ceil(math.log2(2 / delta**2)) + 1):
        found.append((left + right) / 2)
        left = found[-1]
    return found


def test_in_float64_as_far_as_it_carries():
    truth, position = depth_two(7)
    network = truth.rounded()
    result = extract_two_layer(network, faithful=True, delta=position.delta, rng=0)
    assert result.status is Status.RECOVERED
    assert result.exact == ""
    x = np.random.default_rng(0).standard_normal((1000, truth.input_dim))
    # The certificate vouches for 1e-6 of the spread.
    assert np.abs(result.network(x) - network(x)).max() <= 1e-6 * network(x).std()
    fine = extract_two_layer(network, faithful=True, delta=1e-7, rng=0)  # steps of 1e-14
    assert fine.status is not Status.RECOVERED


# ---------------------------------------------------------------------- Theorem 3


@pytest.mark.parametrize("seed", range(4))
def test_theorem_three_gives_the_network_back_bit_for_bit(seed):
    truth, position = depth_three(seed, all_switch=True)
    d1, d2 = truth.hidden_widths
    result = extract_three_layer(
        truth, faithful=True, delta=position.delta, units=d1 + d2, rng=seed
    )
    assert result.status is Status.RECOVERED
    assert same_network(exact(result), truth)
    assert (result.first_width, result.second_width) == (d1, d2)
    assert result.queries.without_certificate <= result.most_queries
    rows = {tuple(row) for row in normal_form(truth).rounded().weights[0]}
    assert {tuple(row) for row in result.first_weights} == rows


def test_units_that_never_switch_end_in_the_affine_term():
    truth, position = depth_three(1, all_switch=False)
    result = extract_three_layer(truth, faithful=True, delta=position.delta, units=9, rng=0)
    assert result.status is Status.RECOVERED
    assert same_function(exact(result), truth)
    assert result.second_width < truth.hidden_widths[1]


@pytest.fixture(scope="module")
def peeled():
    """Return a depth-3 network, its function, the list L, and which of it are rows."""
    truth, position = depth_three(11, all_switch=True)
    oracle = Watched(truth)
    found = candidate_hyperplanes(oracle.function, position.delta)
    w, b = truth.weights[0], truth.biases[0]
    crossings = set((-b / w[:, 0]).tolist())
    rows = [pair.x[0] in crossings for pair in found]
    return truth, position.delta, oracle, found, rows


def test_the_list_holds_every_row(peeled):
    truth, _, _, found, rows = peeled
    assert sum(rows) == truth.hidden_widths[0]
    assert len(found) > sum(rows)  # and others, or there is nothing to tell apart
    assert all(pair.hyperplane(pair.x) == 0 for pair in found)


def test_algorithm_seven_tells_the_layers_apart(peeled):
    truth, delta, oracle, found, rows = peeled
    spread = spread_of(oracle.function, delta, sum(truth.hidden_widths), len(found))
    rng = np.random.default_rng(0)
    for which, is_row in enumerate(rows):
        before = len(oracle.asked)
        assert is_first_layer(oracle.function, which, found, spread, rng) == is_row
        if is_row:  # a row is tested beyond every other hyperplane that is not parallel to it
            asked = oracle.asked[before:]
            normal = found[which].hyperplane
            middle = asked[1::3]  # x + step, x, x - step
            assert all(normal(rationals(x)) == 0 for x in middle)
            others = [
                pair.hyperplane
                for k, pair in enumerate(found)
                if k != which and pair.hyperplane.weights[0] * normal.weights[1]
                != pair.hyperplane.weights[1] * normal.weights[0]
            ]  # fmt: skip
            assert len(middle) == len(others)


def test_algorithm_seven_goes_beyond_each_hyperplane(peeled):
    truth, delta, oracle, found, rows = peeled
    spread = spread_of(oracle.function, delta, sum(truth.hidden_widths), len(found))
    which = rows.index(True)

    class Nowhere:
        def standard_normal(self, n):
            return np.zeros(n)

    before = len(oracle.asked)
    assert is_first_layer(oracle.function, which, found, spread, Nowhere())
    middle = iter(oracle.asked[before:][1::3])
    x = found[which].x
    for k, pair in enumerate(found):
        other, normal = pair.hyperplane, found[which].hyperplane.weights
        if k == which or not (other.weights * normal[0] != normal * other.weights[0]).any():
            continue
        z = rationals(next(middle))
        assert other(z) * other(x) < 0  # line 4: separated
        assert other(z) ** 2 > spread.far**2 * (other.weights @ other.weights)  # and far


@pytest.mark.parametrize(("d", "units", "m"), [(2, 4, 3), (4, 10, 30), (10, 40, 500)])
def test_lines_one_and_two_of_algorithm_seven(d, units, m):
    f, delta = Function(d, lambda x: (x, x), Fraction), F(1, 999)
    spread = spread_of(f, delta, units, m)
    chance = 2.0 ** (-d - 1) / m**2
    line_one = 2.0 ** (2 * units) * float(spread.step) * math.sqrt(2) / (
        float(delta) * math.sqrt(math.pi)
    )  # fmt: skip
    line_two = math.exp(-((float(spread.far) - float(spread.step)) ** 2) / 2)
    # As printed they are bounds; sqrt(pi/2) is rounded down by 0.3 %, R up in its last bit.
    assert 0.99 * chance <= line_one <= chance
    assert (1 - 1e-9) * chance <= line_two <= chance * (1 + 1e-12)


def test_directions_and_the_top_layers(peeled):
    truth, delta, oracle, found, rows = peeled
    first = [pair for pair, is_row in zip(found, rows, strict=True) if is_row]
    weights, biases = find_directions(oracle.function, first, delta)
    normal = normal_form(truth)
    got = {(*row, b) for row, b in zip(weights, biases, strict=True)}
    want = {(*row, b) for row, b in zip(normal.weights[0], normal.biases[0], strict=True)}
    assert got == want
    top = top_layers(oracle.function, weights, biases)
    h = rationals(np.random.default_rng(0).integers(0, 9, (5, len(first))))
    order = [
        next(i for i, row in enumerate(normal.weights[0]) if (row == w).all()) for w in weights
    ]
    inside = RationalNetwork([normal.weights[1][:, order], normal.weights[2]], normal.biases[1:])
    assert (top.answer(h)[0] == inside(h)[:, 0]).all()


def test_no_direction_shows_where_the_top_is_flat(peeled):
    _, delta, oracle, found, rows = peeled
    first = [pair for pair, is_row in zip(found, rows, strict=True) if is_row]
    flat = Function(oracle.input_dim, lambda x: (0 * x[:, 0], 0 * x[:, 0]), Fraction)
    with pytest.raises(Irregular, match="or on none"):
        find_directions(flat, first, delta)


def test_without_a_right_inverse_there_are_no_directions(peeled):
    _, delta, oracle, found, rows = peeled
    first = [pair for pair, is_row in zip(found, rows, strict=True) if is_row]
    with pytest.raises(Irregular, match="right inverse"):
        find_directions(oracle.function, [*first, first[0]], delta)


# ----------------------------------------------------------------------- statuses


def test_a_flat_top_layer_is_told():
    # Both second-layer units are off where h is small: no direction shows there.
    truth = RationalNetwork(
        [[[1, F(1, 3)], [F(-1, 5), 1]], [[1, 1], [1, 2]], [[1, 3]]],
        [[F(1, 2), F(1, 7)], [-9, -8], [0]],
    )
    assert general_position(truth).flat is not None
    result = extract_three_layer(truth, faithful=True, delta=F(1, 999), units=4, rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "delta" in result.message


@pytest.mark.parametrize("delta", [F(1, 3), F(1, 7), F(2, 9)])
def test_a_delta_that_is_too_large_gives_no_false_recovery(delta):
    for seed in range(4):
        truth = random_rational_network(3, 6, 1, rng=seed)
        result = extract_two_layer(truth, faithful=True, delta=delta, rng=0)
        if result.success:
            assert same_function(exact(result), truth)
        else:
            assert result.status is Status.ASSUMPTION_VIOLATED
            assert "not regular" in result.message


def test_three_layers_need_more_digits_than_float64_has():
    truth, position = depth_three(0, all_switch=True)
    units = sum(truth.hidden_widths)
    result = extract_three_layer(
        truth.rounded(), faithful=True, delta=position.delta, units=units, rng=0
    )
    assert result.status is not Status.RECOVERED
    assert result.status is Status.NUMERICAL_FAILURE
    assert "ExactOracle" in result.message


def test_a_budget_ends_it():
    truth, position = depth_two(0)
    oracle = ExactOracle(truth, meter=Meter(budget=50))
    result = extract_two_layer(oracle, faithful=True, delta=position.delta, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= 50
    oracle = ExactOracle(depth_three(0, all_switch=True)[0], meter=Meter(budget=50))
    result = extract_three_layer(oracle, faithful=True, delta=F(1, 999), units=8, rng=0)
    assert result.status is Status.BUDGET_EXHAUSTED


def test_mistakes_are_named():
    truth = random_rational_network(2, 2, 1, rng=0)
    with pytest.raises(InvalidInput, match="delta"):
        extract_two_layer(truth, faithful=True)
    for wrong in (0, -1, 0.75, "x", float("nan")):
        with pytest.raises(InvalidInput, match="delta"):
            extract_two_layer(truth, faithful=True, delta=wrong)
    with pytest.raises(InvalidInput, match="orthant"):
        extract_two_layer(truth, faithful=True, delta=0.1, domain=(0.0, 1.0))
    with pytest.raises(InvalidInput, match="units"):
        extract_three_layer(truth, faithful=True, delta=0.1)
    with pytest.raises(InvalidInput, match="single output"):
        extract_two_layer(random_network(2, 3, 2, rng=0), faithful=True, delta=0.1)
    network = random_network(2, 3, 1, rng=0)
    with pytest.raises(InvalidInput, match="faithful"):
        extract_two_layer(network, delta=0.1)
    with pytest.raises(InvalidInput, match="faithful"):
        extract_three_layer(network, units=4)
    with pytest.raises(InvalidInput, match="logits"):
        extract_two_layer(network, faithful=True, delta=0.1, answers="probabilities")
    with pytest.raises(InvalidInput, match="logits"):
        extract_three_layer(network, faithful=True, delta=0.1, units=4, answers="probabilities")


@pytest.mark.parametrize("shape", [np.tanh, np.square, np.sin, np.sign, lambda x: 0.0 * x])
def test_what_is_no_network_is_not_recovered(shape):
    """Only the constant is a network: without units."""
    oracle = connect(lambda x: shape(x @ np.array([1.0, -0.3])), input_dim=2)
    result = extract_two_layer(oracle, faithful=True, delta=F(1, 33), rng=0)
    constant = np.ptp(shape(np.linspace(-3.0, 3.0, 7))) == 0
    assert (result.status is Status.RECOVERED) == constant
    result = extract_three_layer(oracle, faithful=True, delta=F(1, 33), units=4, rng=0)
    assert result.status is not Status.RECOVERED


def test_results_are_saved_with_their_rationals(tmp_path):
    truth, position = depth_two(3)
    result = extract_two_layer(truth, faithful=True, delta=position.delta, rng=0)
    again = RecoveryResult.load(result.save(tmp_path / "found.safetensors"))
    assert exact(again) == exact(result)
    assert again.delta == str(position.delta)
    assert isinstance(again.network, ReLUNetwork) or again.network == result.network
