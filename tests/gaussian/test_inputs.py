"""What the inputs may be: any Gaussian, by a given law or an estimated one; nothing else."""

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.gaussian.algorithm import learn_from_samples
from unrelu.gaussian.config import SampleOptions
from unrelu.result import Status


def planted(seed, d, m):
    rng = np.random.default_rng([seed, 31])
    w = rng.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return w, rng.uniform(0.5, 1.5, m) * rng.choice([-1, 1], m), rng.uniform(-1, 1, m)


def labels(truth, x):
    w, a, b = truth
    return np.maximum(x @ w.T + b, 0.0) @ a


def correlated(seed, n):
    rng = np.random.default_rng(seed)
    factor = np.eye(3) + 0.5 * rng.standard_normal((3, 3))
    mean = np.array([1.0, -2.0, 0.5])
    return rng.standard_normal((n, 3)) @ factor.T + mean, (mean, factor @ factor.T)


@pytest.mark.parametrize("known", [True, False])
def test_any_gaussian_is_whitened_by_a_given_law_or_an_estimated_one(known):
    truth = planted(0, 3, 3)
    x, law = correlated(0, 30_000)
    y = labels(truth, x)
    result = learn_from_samples(x, y, rng=0, inputs=law if known else None)
    assert result.success, result.message
    fresh, _ = correlated(1, 100)
    np.testing.assert_allclose(result.network(fresh)[:, 0], labels(truth, fresh), atol=1e-9)


def test_a_law_that_the_samples_contradict_is_refused():
    x, (mean, covariance) = correlated(2, 20_000)
    for law in ((mean + 0.5, covariance), (mean, 2.0 * covariance)):
        with pytest.raises(InvalidInput, match="standard deviations off"):
            learn_from_samples(x, x[:, 0], inputs=law)
    with pytest.raises(InvalidInput, match="must be a mean"):
        learn_from_samples(x, x[:, 0], inputs=(mean[:2], covariance))


def drawn(kind, n, d, rng):
    if kind == "t":
        return rng.standard_t(5, (n, d))
    if kind == "laplace":
        return rng.laplace(size=(n, d))
    if kind == "uniform":
        return rng.uniform(-1.7, 1.7, (n, d))
    x = rng.standard_normal((n, d))
    return np.sqrt(d) * x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["t", "laplace", "sphere", "uniform"])
def test_other_laws_are_named_and_never_lead_to_a_wrong_network(kind):
    truth = planted(3, 4, 3)
    rng = np.random.default_rng(3)
    x = drawn(kind, 20_000, 4, rng)
    y = labels(truth, x)
    result = learn_from_samples(x, y, rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "not Gaussian" in result.message
    # Who goes on regardless has the polish: what it calls recovered is the network.
    forced = learn_from_samples(x, y, rng=0, check_gaussian=False)
    if forced.success:
        fresh = drawn(kind, 2000, 4, rng)
        np.testing.assert_allclose(forced.network(fresh)[:, 0], labels(truth, fresh), atol=1e-8)


def test_a_one_pass_stream_agrees_with_arrays_or_says_by_how_much_it_may_not():
    truth = planted(4, 4, 3)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((40_000, 4))
    y = labels(truth, x) + 0.1 * rng.standard_normal(40_000)

    def batches():
        for i in range(0, 40_000, 3000):
            yield x[i : i + 3000], y[i : i + 3000]

    whole = learn_from_samples(x, y, rng=0)
    for stream in (batches(), batches):
        assert learn_from_samples(stream, rng=0).network == whole.network
    options = SampleOptions(keep_rows=12_000)
    longer = learn_from_samples(batches(), rng=0, options=options)
    assert longer.success, longer.message
    assert "read once" in longer.message
    assert "1.8 times" in longer.message  # sqrt of 38,000 training rows over 11,400
    again = learn_from_samples(batches, rng=0, options=options)
    assert "read once" not in again.message
    fresh = rng.standard_normal((5000, 4))
    gap = [
        np.sqrt(np.mean((r.network(fresh)[:, 0] - labels(truth, fresh)) ** 2))
        for r in (longer, whole)
    ]
    # 0.1 sqrt(15 / n) of 11,400 and of 38,000 rows, within twice.
    assert gap[0] < 2 * 0.1 * np.sqrt(15 / 11_400)
    assert gap[1] < 2 * 0.1 * np.sqrt(15 / 38_000)
