"""Rows fitted to the places of their surface: what they may be off by, and what mends it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np

from unrelu import planted
from unrelu._types import FloatArray
from unrelu.core.run import Run
from unrelu.extraction.deep_session import Session
from unrelu.extraction.peel_find import find_rows
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_lines import Crossings
from unrelu.extraction.peel_refit import refit_row, telling, unsure
from unrelu.extraction.peel_rows import Row, onto_surface
from unrelu.extraction.prefix import Prefix
from unrelu.networks import ReLUNetwork
from unrelu.oracles import connect

NETWORK = planted.random_network(10, 8, 6, 1, rng=5)


def below(network: ReLUNetwork, depth: int) -> Prefix:
    return Prefix(network.input_dim, network.weights[:depth], network.biases[:depth])


def row_of(network: ReLUNetwork, layer: int, unit: int, places: FloatArray, error: float) -> Row:
    theta = np.append(network.weights[layer][unit], network.biases[layer][unit])
    theta /= np.linalg.norm(theta[:-1])
    every = np.ones(len(theta), dtype=bool)
    return Row(theta, every, np.full(len(theta), error), 1, places)


def surface(network: ReLUNetwork, layer: int, unit: int, count: int) -> FloatArray:
    row = row_of(network, layer, unit, np.zeros((1, network.input_dim)), 0.0)
    starts = 2.0 * np.random.default_rng(0).standard_normal((30 * count, network.input_dim))
    return onto_surface(row, below(network, layer), starts)[0][:count]


def off_by(row: Row, true: Row) -> float:
    mine, theirs = (r.theta / np.linalg.norm(r.theta[:-1]) for r in (row, true))
    return float(np.abs(mine - theirs).max())


def test_places_that_agree_outvote_a_reading_that_claims_too_much() -> None:
    places = surface(NETWORK, 1, 0, 30)
    true = row_of(NETWORK, 1, 0, places, 1e-12)
    wrong = true.theta.copy()
    wrong[2] += 3e-6
    error = true.error.copy()
    error[0] = 1e-11  # not read in one go
    fitted = refit_row(dataclasses.replace(true, theta=wrong, error=error), below(NETWORK, 1))
    # Places are exact to 1e-12 of their norm, and thirty tell nine numbers.
    assert off_by(fitted, true) < 1e-10


def test_a_few_places_tell_how_good_a_row_that_was_read_in_one_go_is() -> None:
    places, prefix = surface(NETWORK, 0, 0, 6), below(NETWORK, 0)
    good = row_of(NETWORK, 0, 0, places, 1e-6)
    assert refit_row(good, prefix).error.max() < 1e-9
    noise = np.random.default_rng(1).standard_normal(len(good.theta))
    bad = dataclasses.replace(good, theta=good.theta + 1e-7 * noise)
    claimed = refit_row(bad, prefix).error.max()
    assert 2e-8 < claimed < 1e-5  # six places leave most of 1e-7 open


def test_a_layer_that_is_off_makes_the_rows_above_unsure() -> None:
    network = planted.random_network(7, 6, 5, 1, rng=0)
    rng = np.random.default_rng(1)
    errors = [1e-6 * rng.random((len(b), w.shape[1] + 1)) for w, b in zip(
        network.weights[:2], network.biases[:2], strict=True
    )]  # fmt: skip
    prefix = Prefix(7)
    for w, b, e in zip(network.weights, network.biases, errors, strict=False):
        prefix = prefix.with_layer(w, b, errors=e)
    x = rng.standard_normal((50, 7))
    moved = []
    for _ in range(400):
        near = Prefix(7)
        for w, b, e in zip(network.weights, network.biases, errors, strict=False):
            shift = e * rng.standard_normal(e.shape)
            near = near.with_layer(w + shift[:, :-1], b + shift[:, -1])
        moved.append(near.heights(x) - prefix.heights(x))
    seen, claimed = np.std(moved, axis=0), prefix.unsure(x)
    on = prefix.heights(x) > 1e-4  # none of these switches
    # Errors of one layer reach several units of the next: they are taken as independent.
    ratio = claimed[on] / seen[on]
    assert ratio.min() > 0.5
    assert ratio.max() < 2.0
    assert not below(network, 2).unsure(x).any()


def test_the_place_that_tells_most_is_where_the_loose_weight_counts() -> None:
    prefix, every = below(NETWORK, 1), surface(NETWORK, 1, 0, 60)
    on = prefix.heights(every)[:, 3] > 0.0
    assert on.any()
    assert not on.all()
    error = np.full(9, 1e-12)
    error[3] = 1e-5
    row = dataclasses.replace(row_of(NETWORK, 1, 0, every[~on], 0.0), error=error)
    chosen = telling(row, every, prefix, 1)
    assert on[chosen].all()
    place = every[chosen]
    assert unsure(row, place, prefix)[0] > 1e-7
    sharp = refit_row(row.seen_at(place), prefix)
    assert sharp.error[3] < 1e-8
    assert len(telling(row_of(NETWORK, 1, 0, every, 1e-12), every, prefix, 3)) == 0


def test_two_rows_that_turn_out_to_be_one_unit_become_one() -> None:
    prefix, every = below(NETWORK, 0), surface(NETWORK, 0, 0, 8)
    one, two = (row_of(NETWORK, 0, 0, every[part], 1e-12) for part in (slice(4), slice(4, 8)))
    layer = Layer(rows=[one, two])
    none = Crossings(np.empty((0, 10)), np.empty((0, 10)), np.empty((0, 1)), np.empty(0))
    run = SimpleNamespace(crossings=lambda: none, deepest=prefix, read={})
    assert find_rows(run, layer, prefix) == 0  # type: ignore[arg-type]
    assert len(layer.rows) == 1
    assert len(layer.rows[0].places) == 8


def test_answers_from_before_a_session_are_held_against_its_network() -> None:
    run = Run(connect(NETWORK), algorithm="test", rng=0)
    x = np.random.default_rng(0).standard_normal((5, 10))
    y = run.target(x)
    session = Session(run)
    session.recall()
    session.oracle(x[:1])
    points, answers = session.oracle.stored()
    np.testing.assert_array_equal(points, np.append(x, x[:1], axis=0))
    np.testing.assert_array_equal(answers[:5], y)
