"""The first look: layers told apart, in three batches, never a flat network called deep."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import connect, diagnose, planted
from unrelu.lines.first_look import price_of_look, take_first_look
from unrelu.oracles import Cast


def look(oracle, seed):
    facts = diagnose(oracle, rng=seed)
    before = oracle.queries
    found = take_first_look(
        oracle, oracle.input_dim, noise=facts.noise, grows=True, hyperplanes=facts.hyperplanes,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    after = oracle.queries
    return found, after.total - before.total, after.round_trips - before.round_trips


@pytest.mark.parametrize(
    ("shape", "cast"),
    [
        ((20, 10, 1), None),
        ((20, 10, 1), "float32"),
        ((64, 32, 10), None),
        ((64, 32, 10), "float32"),
        ((10, 40, 1), None),
        ((5, 300, 2), None),
    ],
)
def test_no_hyperplane_of_one_hidden_layer_bends(shape, cast):
    for seed in range(10):
        oracle = connect(planted.random_network(*shape, rng=seed))
        found, queries, trips = look(oracle if cast is None else Cast(oracle, cast), seed)
        assert found.deeper == 0
        assert found.first >= 1
        assert shape[1] / 4 <= found.hyperplanes <= 4 * shape[1]
        assert queries < 1000
        assert trips <= 8


@pytest.mark.parametrize("seed", [31001, 31003])
def test_two_kinks_between_neighbouring_points_are_not_followed_as_one(seed):
    network = planted.random_network(784, 32, 1, rng=seed)
    w, b = (a.astype(np.float32) for a in (network.weights[0], network.biases[0]))
    u, c = (a.astype(np.float32) for a in (network.weights[1], network.biases[1]))

    def single(x):
        return np.maximum(x.astype(np.float32) @ w.T + b, np.float32(0)) @ u.T + c

    # lines that hold two such kinks on these networks, within a stencil of float32's noise
    found = [look(connect(single, input_dim=784, output_dim=1), seed + i)[0] for i in range(1, 4)]
    assert sum(f.deeper for f in found) == 0
    assert all(f.first >= 4 for f in found)


@pytest.mark.parametrize("shape", [(10, 10, 10, 1), (12, 6, 8, 3), (64, 16, 32, 10)])
def test_hyperplanes_of_a_second_layer_bend(shape):
    seen = [look(connect(planted.random_network(*shape, rng=seed)), seed)[0] for seed in range(10)]
    # A short line may miss the second layer now and then; the algorithms' checks find out.
    assert sum(found.deeper > 0 for found in seen) >= 8
    assert sum(found.first > 0 for found in seen) >= 8


def test_one_input_no_kink_and_answers_that_are_not_finite():
    found, _, _ = look(connect(planted.HOSTILE["one input"](0)), 0)
    assert found.deeper == 0
    assert look(connect(planted.affine(6, rng=0)), 0)[0].kinks == 0

    def broken(x):
        y = planted.random_network(6, 4, 2, rng=0)(x)
        y[np.linalg.norm(x, axis=1) > 8] = np.nan
        return y

    with np.errstate(invalid="ignore"):
        found = take_first_look(
            broken, 6, noise=1e-15, grows=True, hyperplanes=4.0, rng=np.random.default_rng(0)
        )
    assert found.deeper == 0
    assert "follow" in str(found)


@pytest.mark.parametrize("d", [20, 64])
def test_the_price_of_a_look_is_what_it_takes(d):
    asked = []
    truth = planted.random_network(d, d, 1, rng=0)

    def ask(x):
        asked.append(len(x))
        return truth(x)

    take_first_look(
        ask, d, noise=1e-15, grows=True, hyperplanes=float(d), rng=np.random.default_rng(0)
    )
    # Places that were flat or crowded are asked again elsewhere; not every kink can be followed.
    assert 0.7 < sum(asked) / price_of_look(d) < 1.5
