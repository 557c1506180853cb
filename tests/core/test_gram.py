"""The Gauss-Newton matrix against the Jacobian's own rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import unrelu.core.gram
from unrelu.core.gram import gauss_newton_matrix
from unrelu.core.layered import Layered


@pytest.mark.parametrize("block", [2**22, 500])  # all points at once, or a few at a time
@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("widths", [(5, 4, 1), (5, 4, 3), (4, 5, 3, 2)])
def test_it_is_the_jacobian_squared(widths, skip, coupled, block, monkeypatch):
    monkeypatch.setattr(unrelu.core.gram, "BLOCK", block)
    rng = np.random.default_rng(0)
    d, m, n = widths[0], widths[-1], 60
    weights = [rng.standard_normal((k, j)) for j, k in itertools.pairwise(widths)]
    biases = [rng.standard_normal(len(w)) for w in weights]
    net = Layered(weights, biases, rng.standard_normal((m, d)) if skip else None)
    x, gain = rng.standard_normal((n, d)), rng.uniform(0.5, 1.0, (n, m))
    coupling = rng.uniform(0.0, 0.3, (n, m)) if coupled else None
    expected = 0.0
    for output in range(m):
        outer = np.eye(m)[output] - (0.0 if coupling is None else coupling)
        rows = net.jacobian(net.trace(x)[1], gain[:, [output]] * outer)
        expected = expected + rows.T @ rows
    # sums of sixty products each, in another order
    np.testing.assert_allclose(
        gauss_newton_matrix(net, x, gain, coupling), expected, atol=1e-12 * np.abs(expected).max()
    )
