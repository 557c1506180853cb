"""Targets whose batches differ in their last bits, as those of most machines do."""

from __future__ import annotations

import numpy as np
import pytest

import exact_sums
from unrelu import (
    Status,
    connect,
    diagnose,
    extract,
    extract_three_layer,
    extract_two_layer,
    learn_from_queries,
    learn_halfspaces,
    planted,
    recover_span,
)
from unrelu.oracles import Cast, Labels
from unrelu.span.subspace import largest_principal_angle


def relative_error(network, truth):
    x = np.random.default_rng(99).standard_normal((2000, truth.input_dim))
    return np.abs(network(x) - truth(x)).max() / truth(x).std()


def shaken(network, **options):
    target = exact_sums.other_bits_in_every_batch(network)
    return connect(target, input_dim=network.input_dim, **options)


def test_such_a_target_differs_from_itself_in_the_last_bits_only():
    network = planted.random_network(10, 6, 1, rng=0)
    x = np.random.default_rng(0).standard_normal((50, 10))
    target = exact_sums.other_bits_in_every_batch(network)
    rows = np.concatenate([target(row[None]) for row in x])
    assert np.any(rows != target(x))
    np.testing.assert_allclose(rows, target(x), atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("single", [False, True])
def test_one_hidden_layer(seed, single):
    truth = planted.random_network(8, 6, 2, rng=seed)
    oracle = Cast(shaken(truth), "float32") if single else shaken(truth)
    result = extract_two_layer(oracle, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 6
    # The library's promise for float64 and for float32 answers.
    assert relative_error(result.network, truth) < (1e-4 if single else 1e-9)


@pytest.mark.parametrize(
    ("shape", "seed"), [((8, 6, 5, 1), 0), ((8, 6, 5, 1), 1), ((5, 9, 12, 1), 0)]
)
def test_two_hidden_layers(shape, seed):
    truth = planted.random_network(*shape, rng=seed)
    result = extract_three_layer(shaken(truth), rng=seed)
    assert result.status is Status.RECOVERED, result.message
    # As for answers that are the same in every batch: rounding times the networks' condition.
    assert relative_error(result.network, truth) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_the_learner(seed):
    truth = planted.random_network(6, 8, 1, rng=seed)
    result = learn_from_queries(shaken(truth), epsilon=1e-6, relative=True, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert relative_error(result.network, truth) < 1e-6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("answers", ["values", "labels"])
def test_the_span(seed, answers):
    truth = planted.random_network(20, 5, 3, rng=seed)
    oracle = shaken(truth) if answers == "values" else Labels(shaken(truth))
    result = recover_span(oracle, answers=answers, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    basis = np.linalg.svd(truth.weights[0], full_matrices=False)[2]
    # Gradients of float64 answers; labels are bisected until the last bits decide.
    assert largest_principal_angle(result.basis, basis) < 1e-6


def test_halfspaces():
    rng = np.random.default_rng(0)
    normals = rng.standard_normal((3, 6))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)

    def target(x):
        order = np.random.default_rng(len(x))
        return (exact_sums.product(x, normals.T, order) <= 1.0).all(axis=1).astype(float)

    result = learn_halfspaces(connect(target, input_dim=6), kind="intersection", rng=0)
    assert result.status is Status.RECOVERED, result.message
    cosines = np.abs(result.directions @ normals.T)
    np.testing.assert_allclose(cosines.max(axis=1), 1.0, atol=1e-9)
    assert len(result.directions) == 3


@pytest.mark.parametrize("seed", range(3))
def test_extract_chooses_the_same_and_says_that_batches_differ(seed):
    truth = planted.random_network(8, 6, 1, rng=seed)
    facts = diagnose(shaken(truth), rng=seed)
    assert facts.deterministic
    assert facts.precision == "float64"
    assert facts.piecewise_linear
    result = extract(shaken(truth), rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert relative_error(result.network, truth) < 1e-9


def test_a_constant_that_is_another_one_in_a_batch_is_a_constant():
    def target(x):
        return np.full(len(x), 0.1 if len(x) == 1 else np.nextafter(0.1, 1.0))

    result = recover_span(connect(target, input_dim=4), rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "the same everywhere" in result.message
