"""One network, to be recovered through every kind of target to the same certificate."""

from __future__ import annotations

import functools

import numpy as np

from unrelu import RecoveryResult, connect, extract, planted
from unrelu.result import Status

NETWORK = planted.random_network(10, 6, 2, rng=0)
POINTS = np.random.default_rng(5).standard_normal((1000, 10))


@functools.cache
def reference() -> RecoveryResult:
    return extract(connect(NETWORK), rng=1)


def check_same(oracle, *, error: float = 1e-9, rng: int = 1) -> RecoveryResult:
    """Recover the network through ``oracle``; it and its certificate must be the reference's.

    ``error`` is the library's promise, over the answers' spread: 1e-9 for float64 answers; for
    float32 ones 1e-4, their rounding of 6e-8 amplified a few hundredfold.
    """
    result, expected = extract(oracle, rng=rng), reference()
    assert result.status is expected.status is Status.RECOVERED, result.message
    assert type(result) is type(expected)
    assert result.network.architecture == expected.network.architecture
    truth = NETWORK(POINTS)
    assert np.abs(result.network(POINTS) - truth).max() < error * truth.std()
    mine, other = result.certificate, expected.certificate
    assert mine.samples == other.samples
    assert mine.exceeding == other.exceeding == 0
    assert (mine.confidence, mine.fraction_bound) == (other.confidence, other.fraction_bound)
    assert mine.distribution == other.distribution
    assert mine.relative_deviation < error
    return result
