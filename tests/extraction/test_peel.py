"""Peeling: its steps on planted layers, and the loop on planted networks."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from unrelu import planted
from unrelu._types import FloatArray
from unrelu.extraction import peel_end
from unrelu.extraction.peel import extract_any_depth
from unrelu.extraction.peel_end import _without_idle
from unrelu.extraction.peel_few import where_few_are_on
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_lines import Crossings, Pieces
from unrelu.extraction.peel_refit import refit_row
from unrelu.extraction.peel_rows import Row, group_rows, onto_surface, read_rows
from unrelu.extraction.peel_signs import orient_rows
from unrelu.extraction.peel_top import Closed, close_layers
from unrelu.extraction.peel_walk import combined_row, taken_in, undetermined
from unrelu.extraction.prefix import Prefix
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.oracles.wrappers import Cast, Softmax
from unrelu.result import Status


def known(network: ReLUNetwork, depth: int) -> Prefix:
    return Prefix(network.input_dim, network.weights[:depth], network.biases[:depth])


def true_rows(network: ReLUNetwork, layer: int, flips: FloatArray | None = None) -> list[Row]:
    theta = np.column_stack([network.weights[layer], network.biases[layer]])
    theta /= np.linalg.norm(theta[:, :-1], axis=1, keepdims=True)
    if flips is not None:
        theta *= flips[:, None]
    anchor = np.zeros((1, network.input_dim))
    return [Row(t, np.ones(len(t), dtype=bool), np.zeros(len(t)), 1, anchor) for t in theta]


def gradients(network: ReLUNetwork, x: FloatArray) -> FloatArray:
    view = known(network, network.depth - 1).view(x)
    return np.asarray(network.weights[-1] @ view.jacobian)


def pieces_at(network: ReLUNetwork, x: FloatArray) -> Pieces:
    g = gradients(network, x)
    tiny = np.full(len(x), 1e-14)
    return Pieces(x, network(x), g, tiny, tiny)


# --------------------------------------------------------------------- prefix


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_row_is_pulled_through_the_layers_as_their_jacobian_says(depth: int) -> None:
    network = planted.random_network(7, 6, 5, 4, 1, rng=0)
    prefix = known(network, depth)
    g = np.random.default_rng(1)
    x, row = g.standard_normal((20, 7)), g.standard_normal(prefix.width)
    z, on = prefix.states(x)
    view = prefix.view(x)
    np.testing.assert_allclose(np.where(on[-1], z, 0.0), view.heights, atol=1e-14)
    # Sums of some tens of products of numbers of about one, in another order.
    mine = prefix.pulled(on, on[-1] * row)
    np.testing.assert_allclose(mine, np.einsum("nwd,w->nd", view.jacobian, row), atol=1e-13)


def test_the_view_through_known_layers_is_their_value_and_slope() -> None:
    network = planted.random_network(7, 6, 5, 4, 1, rng=0)
    prefix = known(network, 3)
    x = np.random.default_rng(1).standard_normal((20, 7))
    view = prefix.view(x)
    step = 1e-7 * np.random.default_rng(2).standard_normal((20, 7))
    change = prefix.heights(x + step) - prefix.heights(x)
    # Affine pieces: what is left is the rounding of a difference of numbers of about one.
    np.testing.assert_allclose(change, np.einsum("nwd,nd->nw", view.jacobian, step), atol=1e-14)
    np.testing.assert_array_equal(view.heights, prefix.heights(x))
    np.testing.assert_array_equal(view.on, view.heights > 0)


def test_an_empty_prefix_is_the_identity() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    view = Prefix(4).view(x)
    np.testing.assert_array_equal(view.heights, x)
    np.testing.assert_array_equal(view.jacobian, np.broadcast_to(np.eye(4), (3, 4, 4)))
    assert np.isinf(Prefix(4).switches(x, x)).all()


def test_where_a_weight_that_is_not_known_counts_nothing_is_sure() -> None:
    network = planted.random_network(7, 6, 5, 1, rng=0)
    unknown = np.zeros((5, 6), dtype=bool)
    unknown[2, 3] = True
    prefix = known(network, 1).with_layer(network.weights[1], network.biases[1], unknown)
    x = np.random.default_rng(1).standard_normal((200, 7))
    off = known(network, 1).heights(x)[:, 3] == 0.0
    assert 0 < off.sum() < 200
    np.testing.assert_array_equal(prefix.sure(x), off)
    np.testing.assert_array_equal(prefix.view(x).sure, off)
    assert known(network, 2).sure(x).all()
    row = true_rows(network, 1)[0]
    above = Row(np.append(np.ones(5), -0.5), np.ones(6, dtype=bool), np.zeros(6), 1, row.places)
    points, _ = onto_surface(above, prefix, x)
    assert (known(network, 1).heights(points)[:, 3] == 0.0).all()


def test_units_that_no_typical_input_switches_do_where_few_units_are_on() -> None:
    constant, switched = 0, 0
    for seed in range(8):
        network = planted.random_network(20, 10, 10, 1, rng=seed)
        prefix = known(network, 1)
        x = np.random.default_rng(seed).standard_normal((400, 20))
        moved = where_few_are_on(prefix, x, np.random.default_rng(seed))
        on, later = (
            (prefix.heights(p) @ network.weights[1].T + network.biases[1] > 0.0).mean(axis=0)
            for p in (x, moved)
        )
        never = (on == 0.0) | (on == 1.0)
        constant += int(never.sum())
        switched += int((never & (later > 0.0) & (later < 1.0)).sum())
        assert prefix.view(moved).on.mean() < 0.3  # one to four of ten
    assert constant > 0
    assert switched == constant


# ----------------------------------------------------------------------- rows


def crossings_of(network: ReLUNetwork, layer: int, unit: int, count: int, seed: int) -> Crossings:
    """Points on a unit's surface, with the normals that a jump of the gradient would have."""
    row = true_rows(network, layer)[unit]
    starts = 2.0 * np.random.default_rng(seed).standard_normal((20 * count, network.input_dim))
    x, n = onto_surface(row, known(network, layer), starts)
    x, n = x[:count], n[:count]
    return Crossings(x, n, np.ones((len(x), 1)), np.full(len(x), 1e-13))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_rows_are_read_from_crossings_and_grouped_by_unit(layer: int) -> None:
    network = planted.random_network(12, 10, 8, 6, 1, rng=3)
    prefix = known(network, layer)
    readings: list[Row] = []
    for unit in range(3):
        readings += read_rows(crossings_of(network, layer, unit, 30, unit), prefix)
    rows = [r for r in group_rows(readings, []) if r.members > 3]
    found = set()
    for row in rows:
        row = refit_row(row, prefix)
        for unit, true in enumerate(true_rows(network, layer)):
            size, own = (np.linalg.norm(t.theta[:-1][row.known[:-1]]) for t in (true, row))
            gap = min(
                np.abs(row.theta / own - s * true.theta / size)[row.known].max()
                for s in (1.0, -1.0)
            )
            # Normals are exact to rounding here, amplified by the Jacobian's condition (1e4).
            if gap < 1e-9 * (1.0 + abs(true.theta[-1]) / size):
                found.add(unit)
    assert found == {0, 1, 2}


def test_crossings_of_different_units_are_not_joined() -> None:
    network = planted.random_network(12, 10, 8, 1, rng=3)
    prefix = known(network, 1)
    first = read_rows(crossings_of(network, 1, 0, 10, 0), prefix)
    second = read_rows(crossings_of(network, 1, 1, 10, 1), prefix)
    joined = group_rows([*first, *second], [])
    assert sum(r.members for r in joined) == len(first) + len(second)
    for row in joined:
        sizes = [np.abs(t.value(prefix.heights(row.places))).max() for t in true_rows(network, 1)]
        assert min(sizes[:2]) < 1e-9  # all places of a group are on one unit's surface


def test_a_place_of_another_unit_does_not_spoil_a_row() -> None:
    network = planted.random_network(10, 8, 6, 1, rng=5)
    prefix = known(network, 1)
    true = true_rows(network, 1)[0]
    x, n = onto_surface(true, prefix, 2.0 * np.random.default_rng(0).standard_normal((60, 10)))
    off = x.copy()
    off[7] += 1e-6 * n[7]
    start = Row(true.theta + 1e-9, true.known, np.full(len(true.theta), 1e-9), 1, off)
    fitted = refit_row(start, prefix)
    size = np.linalg.norm(fitted.theta)
    error = np.abs(fitted.theta / size - true.theta / np.linalg.norm(true.theta)).max()
    assert error < 1e-11  # places are on the surface to 1e-12, and there are enough of them


def row_gap(row: Row, true: Row) -> float:
    """How far a row is from a true one, up to a factor, where it is known."""
    mine, other = row.theta[row.known], true.theta[row.known]
    factor = (mine[:-1] @ other[:-1]) / (other[:-1] @ other[:-1])
    return float(np.abs(mine - factor * other).max())


def test_crossings_that_tell_too_little_alone_tell_a_row_together() -> None:
    # Behind a layer of which four units are on, eight gradients have four directions.
    network = planted.random_network(12, 6, 12, 5, 1, rng=3)
    prefix = known(network, 2)
    some = crossings_of(network, 2, 1, 40, 0)
    short = some.kept(undetermined(some, prefix))
    assert len(short) > 10
    assert read_rows(short, prefix) == []
    row = combined_row(short.points, short.normals, prefix)
    assert row is not None
    # Exact normals times a condition of 1e4 at most.
    assert row_gap(row, true_rows(network, 2)[1]) < 1e-9
    mixed = crossings_of(network, 2, 3, 40, 1)
    assert len(mixed) > 10
    points, normals = (np.concatenate(pair) for pair in (
        (short.points, mixed.points), (short.normals, mixed.normals)
    ))  # fmt: skip
    assert combined_row(points, normals, prefix) is None  # two units are no row


def test_a_crossing_tells_the_missing_weight_of_its_own_row_alone() -> None:
    network = planted.random_network(12, 10, 12, 5, 1, rng=4)
    prefix = known(network, 2)
    true = true_rows(network, 2)[0]
    known_ones = true.known.copy()
    known_ones[3] = False
    theta = np.where(known_ones, true.theta, 0.0)
    gap = Row(theta, known_ones, np.full(len(theta), 1e-12), 1, true.places)
    own, other = crossings_of(network, 2, 0, 60, 0), crossings_of(network, 2, 1, 60, 1)
    assert not taken_in(gap, other, prefix).known[3]
    filled = taken_in(gap, own, prefix)
    assert filled.known.all()
    assert row_gap(filled, true) < 1e-9


def test_a_row_that_is_missed_later_does_not_stand() -> None:
    layer, row = Layer(), true_rows(planted.random_network(4, 3, 1, rng=0), 0)[0]
    layer.rows.append(row)
    assert layer.stands(row, 5, 6, 0.6)
    assert layer.confirmed == (5, 6)
    assert not layer.stands(row, 0, 5, 0.6)


# ---------------------------------------------------------------------- signs


@pytest.mark.parametrize("seed", range(3))
def test_signs_are_told_where_no_gradient_shows_all_rows_at_once(seed: int) -> None:
    # The Jacobian of ten units, half of them on, has rank five: ten coefficients, five equations.
    network = planted.random_network(14, 10, 10, 3, rng=seed)
    rng = np.random.default_rng(seed)
    x = 2.0 * rng.standard_normal((300, 14))
    flips = rng.choice([-1.0, 1.0], 10)
    rows = true_rows(network, 1, flips)
    found = orient_rows(pieces_at(network, x), known(network, 1), rows, rng=rng)
    told = found.signs != 0.0
    np.testing.assert_array_equal(found.signs[told], flips[told])
    assert told.sum() >= 9
    assert found.against.sum() == 0


def test_a_missing_row_leaves_gradients_unexplained() -> None:
    network = planted.random_network(16, 12, 5, 1, rng=1)
    rng = np.random.default_rng(0)
    pieces = pieces_at(network, 2.0 * rng.standard_normal((200, 16)))
    rows = true_rows(network, 1)
    share_on = (known(network, 1).heights(pieces.points) @ network.weights[1].T > 0).mean(axis=0)
    often = int(np.abs(share_on - 0.5).argmin())
    whole = orient_rows(pieces, known(network, 1), rows, rng=rng)
    del rows[often]
    partly = orient_rows(pieces, known(network, 1), rows, rng=rng)
    assert whole.share == 1.0
    assert partly.share < 0.9


# ----------------------------------------------------------------- last layer


def test_the_last_layer_closes_whichever_way_rows_point() -> None:
    network = planted.random_network(9, 7, 6, 2, rng=2)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 9))
    flips = rng.choice([-1.0, 1.0], 6)
    closed = close_layers(known(network, 1), true_rows(network, 1, flips), x, network(x))
    assert closed is not None
    assert closed.share == 1.0
    assert closed.carriers == 0
    fresh = rng.standard_normal((500, 9))
    # A regression of some tens of unknowns in float64, its condition some hundreds.
    np.testing.assert_allclose(closed.network(fresh), network(fresh), atol=1e-11)


def test_units_that_never_switch_are_carried_by_the_linear_term() -> None:
    base = planted.random_network(9, 7, 6, 1, rng=2)
    second = base.weights[1].copy()
    second[0] = np.abs(second[0])  # over outputs that are not negative: always on
    bias = base.biases[1].copy()
    bias[0] = 1.0
    network = ReLUNetwork(
        [base.weights[0], second, base.weights[2]], [base.biases[0], bias, [0.0]]
    )
    x = 3.0 * np.random.default_rng(0).standard_normal((300, 9))
    closed = close_layers(known(network, 1), true_rows(network, 1)[1:], x, network(x))
    assert closed is not None
    # With one output any signs leave a linear term; what is left has one or two signs itself.
    assert closed.carriers in {1, 2}
    fresh = np.random.default_rng(1).standard_normal((500, 9))
    np.testing.assert_allclose(closed.network(fresh), network(fresh), atol=1e-11)


def test_weights_of_several_rows_to_one_unit_that_stay_open_are_filled_in() -> None:
    # Two rows are on wherever unit 0 is, and so is a third unit everywhere: the linear term
    # cannot be split between them, and need not be.
    base = planted.random_network(9, 7, 6, 1, rng=2)
    second = base.weights[1].copy()
    second[:2, 0] = 40.0
    second[2] = np.abs(second[2])
    bias = base.biases[1].copy()
    bias[2] = 1.0
    network = ReLUNetwork([base.weights[0], second, base.weights[2]], [base.biases[0], bias, [0]])
    x = np.random.default_rng(0).standard_normal((600, 9))
    h = known(network, 1).heights(x)
    x = x[(h[:, 0] == 0.0) | (h[:, 0] > 0.2)]  # so far beyond that the rows are on
    rows = true_rows(network, 1)
    for j in range(2):
        seen = np.append(np.arange(7) != 0, True)
        rows[j] = Row(
            np.where(seen, rows[j].theta, 0.0), seen, np.zeros(len(seen)), 1, rows[j].places
        )
    del rows[2]
    closed = close_layers(known(network, 1), rows, x, network(x))
    assert closed is not None
    assert closed.share == 1.0
    # A regression of some tens of unknowns, with weights of 40.
    np.testing.assert_allclose(closed.network(x), network(x), atol=1e-9)


def test_a_layer_that_is_not_the_last_does_not_close() -> None:
    network = planted.random_network(9, 7, 6, 5, 1, rng=2)
    x = 2.0 * np.random.default_rng(0).standard_normal((300, 9))
    closed = close_layers(known(network, 1), true_rows(network, 1), x, network(x))
    assert closed is not None
    assert closed.share < 0.9


# ------------------------------------------------------------------- the loop


def assert_same(found: ReLUNetwork, truth: ReLUNetwork) -> None:
    """The same layers up to order, and the same function."""
    assert found.hidden_widths == truth.hidden_widths
    x = np.random.default_rng(7).standard_normal((10_000, truth.input_dim))
    y = truth(x)
    assert np.abs(found(x) - y).max() <= 1e-9 * y.std()
    first, other = (n.canonical() for n in (found, truth))
    near = np.abs(first.weights[0][:, None] - other.weights[0][None]).max(axis=2)
    # The polish brings rows to the noise of answers (1e-15) times the problem's condition.
    assert near.min(axis=0).max() < 1e-7


def test_units_that_count_for_nothing_are_left_out() -> None:
    truth = planted.random_network(6, 5, 4, 2, rng=0)
    g = np.random.default_rng(1)
    # A unit more in both layers, which nothing above weighs.
    w, v, u = truth.weights
    b, c, a = truth.biases
    more = np.insert(w, 2, g.standard_normal(6), axis=0), np.insert(b, 2, 0.3)
    top = np.insert(np.insert(v, 2, 0.0, axis=1), 1, g.standard_normal(6), axis=0)
    wide = ReLUNetwork(
        [more[0], top, np.insert(u, 1, 1e-12, axis=1)], [more[1], np.insert(c, 1, 0.1), a]
    )
    layers = [Layer(), Layer()]
    for i, layer in enumerate(layers):
        layer.rows = true_rows(wide, i)
        layer.signs = np.ones(len(layer.rows))
    layers[1].stands_on(layers[0])
    closed = Closed(wide, 1.0, [], 0, np.ones(1, dtype=bool), np.ones(1, dtype=bool))
    run = SimpleNamespace(layers=layers, prefix=known(wide, 1))
    left = _without_idle(run, closed)  # type: ignore[arg-type]
    assert left.network.hidden_widths == truth.hidden_widths == (5, 4)
    assert [len(layer.rows) for layer in layers] == [5, 4]
    assert all(len(row.theta) == 6 for row in layers[1].rows)
    assert layers[1].fits(layers[0])
    x = g.standard_normal((500, 6))
    np.testing.assert_allclose(left.network(x), truth(x), atol=1e-10)  # 1e-12 of a unit went
    assert [f.shape for f in left.free] == [(5, 7), (4, 6), (2, 5)]
    # Of a weight that is not known nobody says that it is zero.
    unknown = dataclasses.replace(layers[1].rows[0], known=np.arange(6) > 0)
    layers[1].rows[0] = unknown
    zero = [left.network.weights[0], left.network.weights[1] * (np.arange(5) > 0)]
    bare = dataclasses.replace(
        left, network=ReLUNetwork([*zero, left.network.weights[2]], left.network.biases)
    )
    assert _without_idle(run, bare).network.hidden_widths == (5, 4)  # type: ignore[arg-type]


def test_a_unit_that_only_the_fit_finds_to_count_for_nothing_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = planted.random_network(5, 4, 1, rng=0)
    weights, biases = [w.copy() for w in truth.weights], truth.biases
    weights[1][:, 2] = 1e-6
    before = ReLUNetwork(weights, biases)
    fitted = ReLUNetwork([weights[0], weights[1] * (np.arange(4) != 2)], biases)
    fits = np.ones(1, dtype=bool)
    run = SimpleNamespace(layers=[Layer(rows=true_rows(truth, 0))], prefix=Prefix(5))
    none = np.empty((0, 5))
    monkeypatch.setattr(peel_end, "sharpen", lambda *_: fitted)
    monkeypatch.setattr(peel_end, "contradicted", lambda *_: (none, none))
    closed = Closed(before, 1.0, [], 0, fits, fits)
    network, _, _ = peel_end.explaining(run, closed, fit=False)  # type: ignore[arg-type]
    assert network.hidden_widths == (3,)
    assert len(run.layers[0].rows) == 3


def test_parallel_rows_are_counted() -> None:
    network = planted.random_network(6, 4, 1, rng=0)
    layer = Layer(rows=true_rows(network, 0))
    assert layer.parallel == 0
    other = layer.rows[1].theta * np.append(-np.ones(6), 0.3)
    layer.rows.append(dataclasses.replace(layer.rows[1], theta=other))
    assert layer.parallel == 1


def test_rows_of_integer_weights_are_counted() -> None:
    network = planted.random_network(6, 4, 1, rng=0)
    layer = Layer(rows=true_rows(network, 0))
    assert layer.integer == 0
    theta = np.array([2.0, -1.0, 0.0, 1.0, 1.0, -2.0, 0.7]) / 3.3
    layer.rows.append(dataclasses.replace(layer.rows[1], theta=theta))
    assert layer.integer == 1


def test_rows_of_an_earlier_attempt_are_tested() -> None:
    truth = planted.random_network(8, 6, 5, 1, rng=2)
    g = np.random.default_rng(3)
    # One of them is none, one has the wrong sign, one is missing.
    rows = np.concatenate([truth.weights[0][:-1], g.standard_normal((1, 8))])
    biases = np.append(truth.biases[0][:-1], 0.2)
    rows[0], biases[0] = -rows[0], -biases[0]
    result = extract_any_depth(connect(truth), first=(rows, biases), rng=0)
    assert result.status is Status.RECOVERED, result.message
    assert result.network is not None
    assert_same(result.network, truth)


@pytest.mark.parametrize("shape", [(10, 6, 1), (10, 8, 6, 1), (12, 8, 6, 5, 2)])
def test_depth_is_discovered(shape: tuple[int, ...]) -> None:
    truth = planted.random_network(*shape, rng=11)
    result = extract_any_depth(connect(truth), rng=3)
    assert result.status is Status.RECOVERED, result.message
    assert result.network is not None
    assert_same(result.network, truth)
    assert result.widths == shape[1:-1]
    assert result.certificate is not None
    assert result.certificate.samples >= 10_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_three_hidden_layers(seed: int) -> None:
    truth = planted.random_network(24, 12, 8, 6, 1, rng=seed)
    result = extract_any_depth(connect(truth), rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert result.network is not None
    x = np.random.default_rng(7).standard_normal((10_000, 24))
    y = truth(x)
    assert np.abs(result.network(x) - y).max() <= 1e-8 * y.std()


@pytest.mark.slow
def test_probabilities_are_read_as_log_odds() -> None:
    truth = planted.random_network(10, 8, 6, 3, rng=4)
    result = extract_any_depth(Softmax(connect(truth)), rng=0)
    assert result.status is Status.RECOVERED, result.message
    assert result.network is not None
    x = np.random.default_rng(7).standard_normal((2000, 10))
    y, mine = truth(x), result.network(x)
    off = (y - y[:, :1]) - (mine - mine[:, :1])
    assert np.abs(off).max() <= 1e-7 * y.std()
    assert result.answers == "log-odds"


def test_a_budget_ends_the_run_with_what_was_found() -> None:
    truth = planted.random_network(12, 8, 6, 5, 1, rng=0)
    result = extract_any_depth(connect(truth), rng=0, budget=2500)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= 2500
    assert result.hidden_layers >= 1
    (w, b), *_ = result.layers(12)
    truth_rows = np.column_stack([truth.weights[0], truth.biases[0]])
    truth_rows /= np.linalg.norm(truth_rows[:, :-1], axis=1, keepdims=True)
    for row in np.column_stack([w, b]):
        gap = min(np.abs(truth_rows - s * row).max(axis=1).min() for s in (1.0, -1.0))
        assert gap < 1e-7
    assert "layer 1" in result.message


def test_coarse_answers_are_refused() -> None:
    truth = planted.random_network(8, 6, 5, 4, 1, rng=0)
    result = extract_any_depth(Cast(connect(truth), "float32"), rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "float64" in result.message


@pytest.mark.slow
def test_a_smooth_target_is_no_network() -> None:
    w = np.random.default_rng(0).standard_normal((5, 6))
    target = connect(lambda x: np.tanh(x @ w.T).sum(axis=1), input_dim=6)
    result = extract_any_depth(target, rng=0, budget=60_000)
    assert result.status is not Status.RECOVERED
    assert result.network is None


def test_the_same_seed_gives_the_same_result() -> None:
    truth = planted.random_network(8, 6, 4, 1, rng=5)
    one, two = (extract_any_depth(connect(truth), rng=9) for _ in range(2))
    assert one.network == two.network
    assert one.queries.total == two.queries.total
