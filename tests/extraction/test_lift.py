"""Units of a subspace, taken to all inputs."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.noise import NoiseModel
from unrelu.core.units import Units
from unrelu.extraction.lift import Subspace, lift_units
from unrelu.extraction.refine import RefineConfig

NOISE = 1e-7


def planted(seed, d, k, m):
    rng = np.random.default_rng(seed)
    space = Subspace(8, d, rng)
    w, b = rng.standard_normal((k, d)) / np.sqrt(d), 0.5 * rng.standard_normal(k)
    u = rng.standard_normal((m, k))

    def target(x):
        return np.maximum(x @ w.T + b, 0.0) @ u.T + NOISE * rng.standard_normal((len(x), m))

    rows = space.scale * w @ space.rows.T
    square = (rows**2).sum(axis=1, keepdims=True)
    zero = np.zeros(8)
    units = Units(
        rows,
        -b[:, None] * rows / square,
        u,
        np.zeros((m, 8)),
        zero,
        np.maximum(b, 0.0) @ u.T,
        rows / np.sqrt(square),
    )
    return rng, space, w, target, units


@pytest.mark.parametrize(("k", "m"), [(31, 10), (24, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_every_normal_is_determined(seed, k, m):
    rng, space, w, target, units = planted(seed, 60, k, m)
    asked = []

    def ask(x):
        asked.append(len(x))
        return target(x)

    found = lift_units(
        ask,
        units,
        np.zeros((m + k, m + k)),
        NoiseModel(np.full(m, NOISE), np.zeros(m)),
        space,
        lambda n: rng.standard_normal((n, 8)),
        rng=rng,
        refine=RefineConfig(),
    )
    assert found is not None
    lifted, covariance = found
    # Two equations an unknown, and a step is a tenth of an input at least: a slope is right to
    # some hundred times the noise, also where one output must tell all units apart.
    assert np.abs(lifted.weights - w).max() < 1e3 * NOISE
    assert np.sqrt(np.diagonal(covariance)).max() < 1e3 * NOISE
    gradients = 2 * (m + k) / m + 1
    assert sum(asked) < 1.5 * (gradients + 1) * (60 - 8 + 2)
