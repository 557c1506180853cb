"""The fit on torch's arrays ends where it ends on numpy's; `make torch` runs this."""

import dataclasses
import itertools

import numpy as np
import pytest

from unrelu.core.fit import FitConfig, Layered, fit_network

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

NOISE = 1e-4


def _on_torch(net):
    weights, biases = (
        tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in part)
        for part in (net.weights, net.biases)
    )
    return dataclasses.replace(net, weights=weights, biases=biases)


@pytest.mark.parametrize("link", ["values", "log_softmax"])
def test_a_fit_on_torch_is_the_fit_on_numpy(link):
    """125-20-10-5 is large enough for conjugate gradients and the Kronecker metric in both."""
    rng = np.random.default_rng(3)
    widths = (125, 20, 10, 5)
    weights = tuple(
        rng.standard_normal((b, a)) / np.sqrt(a) for a, b in itertools.pairwise(widths)
    )
    truth = Layered(weights, tuple(rng.standard_normal(len(w)) for w in weights))
    x = rng.standard_normal((truth.parameters, widths[0]))
    y = truth(x)
    if link == "log_softmax":
        y = y - np.log(np.exp(y).sum(axis=1, keepdims=True))
    y = y + NOISE * rng.standard_normal(y.shape)
    start = truth.moved([1e-4 * rng.standard_normal(b.shape) for b in truth.blocks()])
    # so far beyond the statistical error that both end at the minimum itself
    config = FitConfig(settled=1e-6)
    here = fit_network(start, x, y, deviation=NOISE, link=link, config=config)
    there = fit_network(
        _on_torch(start),
        torch.from_numpy(x),
        torch.from_numpy(y),
        deviation=NOISE,
        link=link,
        config=config,
    )
    assert here.converged
    assert there.converged
    assert there.rms == pytest.approx(here.rms, rel=1e-6)
    fresh = rng.standard_normal((1000, widths[0]))
    one, other = here.network(fresh), there.network(torch.from_numpy(fresh)).numpy()
    if link == "log_softmax":  # what is added to all outputs is free
        one, other = (v - v.mean(axis=1, keepdims=True) for v in (one, other))
    # A fit ends with less than settled squared deviations per parameter to gain: over points like
    # its own, P of them for each of the five outputs, that is sqrt(settled / 5) noises from the
    # minimum, and the two may end on different sides of it.
    limit = 2.0 * NOISE * np.sqrt(config.settled / widths[-1])
    assert np.sqrt(np.mean((one - other) ** 2)) < limit
