"""Two hidden layers from coarse answers."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import planted
from unrelu._types import FloatArray
from unrelu.extraction.two_hidden import TwoHiddenConfig, extract_two_hidden
from unrelu.extraction.two_hidden_lines import Segments, find_traces, line_kinks
from unrelu.extraction.two_hidden_rows import Rows, missing_change, sharpen_rows, turn_rows
from unrelu.extraction.two_hidden_top import TopTarget, balanced_rows, stacked
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect
from unrelu.result import Status


def test_a_kink_between_straight_pieces_is_found_at_its_place() -> None:
    t = 0.1 * np.arange(40)
    y = np.stack([np.maximum(t - 1.234, 0.0), -2.0 * np.maximum(t - 2.77, 0.0)], axis=1)
    found = line_kinks(y, np.full(len(t), 1e-9), 0.1)
    # exact values: rounding of 1e-16 over a bend of 0.1 a step
    assert np.allclose(found[:, 0], [1.234, 2.77], atol=1e-12)


def test_two_kinks_in_one_cell_are_left_out() -> None:
    t = 0.1 * np.arange(40)
    y = (np.maximum(t - 1.22, 0.0) - 3.0 * np.maximum(t - 1.26, 0.0))[:, None]
    y = np.column_stack([y, np.maximum(t - 1.26, 0.0)])
    assert len(line_kinks(y, np.full(len(t), 1e-9), 0.1)) == 0


def test_straight_traces_are_told_from_scattered_kinks() -> None:
    rng = np.random.default_rng(0)
    angle = np.pi * np.arange(8) / 8.0 + 0.1
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    starts = -3.0 * directions + 0.3 * rng.standard_normal((8, 2))
    normal = np.array([0.6, 0.8])
    kinks = []
    for start, way in zip(starts, directions, strict=True):
        on_line = -(start @ normal - 0.5) / (way @ normal)
        places = np.sort(np.append(rng.uniform(0.0, 6.0, 5), on_line))
        places = places[(places > 0) & (places < 6)]
        kinks.append(np.column_stack([places, np.full(len(places), 1e-7)]))
    traces = find_traces(Segments(starts, directions, np.full(8, 6.0), kinks))
    assert len(traces) == 1
    off = traces[0].normal * np.sign(traces[0].normal @ normal) - normal
    assert np.abs(off).max() < 1e-6  # positions are exact, up to what was stated


def _read(net: ReLUNetwork):  # type: ignore[no-untyped-def]
    def read(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return x, net(x), np.full(len(x), 1e-12)

    return read


def _rows(net: ReLUNetwork) -> Rows:
    size = np.linalg.norm(net.weights[0], axis=1)
    return Rows(net.weights[0] / size[:, None], net.biases[0] / size)


def test_signs_and_missing_rows_show_on_off_sides() -> None:
    net = planted.random_network(8, 6, 5, 2, rng=0)
    rows = _rows(net)
    flipped = Rows(-rows.weights, -rows.biases)
    turned, error, left = turn_rows(_read(net), flipped, np.random.default_rng(0))
    assert np.allclose(turned.weights, rows.weights)
    assert error < 1e-12  # nothing changes on an off side but by rounding
    assert left < 1e-10
    assert missing_change(_read(net), rows, np.random.default_rng(1)) < 1e-10
    fewer = rows.kept(np.arange(6) != 2)
    assert missing_change(_read(net), fewer, np.random.default_rng(1)) > 1e-3
    assert turn_rows(_read(net), fewer, np.random.default_rng(1))[2] > 1e-3


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_row_is_sharpened_although_other_kinks_are_in_the_way(seed: int) -> None:
    net = planted.random_network(10, 8, 8, 1, rng=seed)
    rows, rng = _rows(net), np.random.default_rng(seed)
    turned = rows.weights[0] + 1e-3 * rng.standard_normal(10)
    turned /= np.linalg.norm(turned)
    # Nothing is known of the others: with one output no answer tells that a crossing is spoilt.
    rough = Rows(turned[None], rows.biases[:1])
    found, seen = sharpen_rows(_read(net), rough, rng, only=0, off=3e-3)
    assert seen > 0.6
    # answers without noise, but kinks within a step of each other move a crossing a little
    assert np.abs(found.weights[0] - rows.weights[0]).max() < 1e-8


def test_a_hyperplane_of_the_second_layer_is_no_row() -> None:
    net = planted.random_network(10, 8, 8, 1, rng=0)
    rng = np.random.default_rng(0)
    row = rng.standard_normal(10)
    rows = Rows((row / np.linalg.norm(row))[None], np.zeros(1))
    assert sharpen_rows(_read(net), rows, rng, only=0)[1] == 0.0


def test_inputs_of_the_fit_switch_units_that_few_inputs_do() -> None:
    net = planted.random_network(6, 4, 5, 1, rng=3)
    heights = lambda x: np.maximum(x @ net.weights[0].T + net.biases[0], 0.0)  # noqa: E731
    pool = np.random.default_rng(0).standard_normal((20_000, 6))
    level = heights(pool) @ net.weights[1][0]
    biases = [net.biases[0], net.biases[1].copy(), net.biases[2]]
    biases[1][0] = -np.quantile(level, 0.997)  # on at three of a thousand
    rare = ReLUNetwork(net.weights, biases)
    chosen = pool[balanced_rows(rare, pool, 400)]
    assert len(chosen) == 400
    assert np.count_nonzero(heights(chosen) @ rare.weights[1][0] + biases[1][0] > 0) >= 10


def test_the_layers_above_are_a_function_of_heights() -> None:
    net = planted.random_network(8, 6, 5, 2, rng=1)
    rows = _rows(net)
    size = np.linalg.norm(net.weights[0], axis=1)
    top = TopTarget(_read(net), rows, np.full(6, 2.0), 2)
    rng = np.random.default_rng(0)
    cube = rng.random((50, 6)) * (rng.random((50, 6)) < 0.5)
    points, values, _ = top.ask(cube)
    assert np.allclose(points, cube, atol=1e-12)
    above = ReLUNetwork([net.weights[1] * size, net.weights[2]], net.biases[1:])
    assert np.allclose(values, above(2.0 * cube), atol=1e-12)
    x = rng.standard_normal((50, 8))
    assert np.allclose(stacked(rows, above, x)(x), net(x), atol=1e-12)
    linear = ReLUNetwork(above.weights, above.biases, rng.standard_normal((2, 6)))
    heights = np.maximum(rows.heights(x), 0.0)
    assert np.allclose(stacked(rows, linear, x)(x), linear(heights), atol=1e-10)


def test_more_first_units_than_inputs_are_refused() -> None:
    net = planted.random_network(3, 8, 4, 1, rng=0)
    result = extract_two_hidden(
        connect(net, input_dim=3, output_dim=1), rng=0, config=TwoHiddenConfig(planes=2)
    )
    assert not result.success


def test_a_budget_ends_it() -> None:
    net = planted.random_network(6, 4, 4, 1, rng=0)
    result = extract_two_hidden(connect(net, input_dim=6, output_dim=1), rng=0, budget=900)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert result.queries.total <= 900


@pytest.mark.parametrize("seed", [601, 604, 617])
def test_single_precision_end_to_end(seed: int) -> None:
    truth = planted.random_network(10, 10, 10, 1, rng=seed)

    def single(x: FloatArray) -> FloatArray:
        h = x.astype(np.float32)
        for i, (w, b) in enumerate(zip(truth.weights, truth.biases, strict=True)):
            h = h @ w.T.astype(np.float32) + b.astype(np.float32)
            h = h if i == 2 else np.maximum(h, 0)
        return h

    result = extract_two_hidden(connect(single, input_dim=10, output_dim=1), rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert result.network is not None
    x = np.random.default_rng(0).standard_normal((2000, 10))
    error = np.abs(truth(x) - result.network(x)).max() / truth(x).std()
    # noise of 1.5e-7 of the spread, of which 30 deviations are allowed, and where a unit is
    # seldom on more
    assert error < 2e-5
