"""The correction of both layers from few gradients."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_sharpen import SharpenConfig, TwoLayers, sharpen
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.planted import random_network


def planted(d, k, n, m, seed):
    network = random_network(d, k, n, m, rng=seed)
    (w, v, u), (b, c, a) = network.weights, network.biases
    length, size = np.linalg.norm(w, axis=1), np.linalg.norm(u, axis=0)
    none = np.zeros(n)
    top = OrthantUnits(
        np.zeros((m, k)), a, v * length * size[:, None], c * size, u / size, none, none
    )
    return TwoLayers(w / length[:, None], b / length, top)


def error(found, truth, d):
    x = np.random.default_rng(99).standard_normal((4000, d))
    return float(np.abs(found(x) - truth(x)).max() / truth(x).std(axis=0).max())


def corrected(truth, start, m, d, **options):
    asked = []

    def ask(x):
        asked.append(len(x))
        return truth(x)

    g = np.random.default_rng(7)
    x = g.standard_normal((200, d))
    found = sharpen(
        ask, start, NoiseModel(np.full(m, 2e-16), np.full(m, 2e-16)), (x, truth(x)),
        affine_error=1e-15, rng=g, config=SharpenConfig(**options),
    )  # fmt: skip
    return found, sum(asked)


@pytest.mark.parametrize(("d", "k", "n", "m"), [(40, 16, 8, 1), (12, 12, 14, 4)])
def test_rows_are_corrected_and_the_layers_above_follow(d, k, n, m):
    truth = planted(d, k, n, m, 1)
    g = np.random.default_rng(2)
    off = 1e-8 * g.standard_normal((k, d))
    # The function stays where all units are on, as a search above wrong rows finds it.
    start = truth.moved(off @ np.linalg.pinv(truth.weights), off)
    start = dataclasses.replace(start, biases=start.biases + 1e-8 * g.standard_normal(k))
    shift = start.biases - truth.biases
    start.top.biases = start.top.biases - start.top.weights @ shift
    start.top.constant = start.top.constant - start.top.linear @ shift
    before = error(start, truth, d)
    found, asked = corrected(truth, start, m, d)
    # Errors of second order (1e-16), and rounding of 1e-15 over steps of 0.1, which the
    # condition of the equations (some hundreds) magnifies.
    assert before > 1e-9
    assert error(found, truth, d) < 1e-12 + 1e-4 * before
    # About k / m gradients, or 3 log2(k), and a check for each sixteen or more directions.
    assert asked < 1.15 * (max(1.2 * k / m, 3.0 * np.log2(k + 1)) + 4) * (d + 3)


def test_what_is_claimed_to_be_off_is_corrected_above_too():
    d, k, n, m = 20, 10, 5, 2
    truth = planted(d, k, n, m, 3)
    g = np.random.default_rng(4)
    top = dataclasses.replace(
        truth.top,
        weights=truth.top.weights + 1e-8 * g.standard_normal((n, k)),
        errors=np.full(n, 1e-7),
        shifts=np.full(n, 1e-7),
    )
    start = TwoLayers(truth.weights, truth.biases, top)
    found, _ = corrected(truth, start, m, d)
    # In the states that inputs show often; what they show rarely stays as it was.
    x = np.random.default_rng(99).standard_normal((4000, d))
    off = [np.abs(f(x) - truth(x)).max(axis=1) for f in (start, found)]
    assert np.median(off[1]) < 1e-2 * np.median(off[0])
    # Claimed to be right, they are left as they are.
    top = dataclasses.replace(top, errors=np.zeros(n), shifts=np.zeros(n))
    found, _ = corrected(truth, TwoLayers(truth.weights, truth.biases, top), m, d)
    assert (
        np.abs(found.top.weights - top.weights).max()
        < 1e-3 * np.abs(top.weights - truth.top.weights).max() + 1e-6
    )
