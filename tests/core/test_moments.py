import math

import numpy as np
import pytest

from unrelu.core.contractions import contraction_slices, contraction_sums
from unrelu.core.hermite import hermite_tensor
from unrelu.core.moments import (
    CompensatedSums,
    evaluate_series,
    mean_moments,
    pair_products,
    raw_sums,
    series_coefficients,
    unpack_pairs,
)


@pytest.fixture
def sample():
    rng = np.random.default_rng(3)
    return rng.standard_normal((40, 4)), rng.standard_normal(40)


def _moments(x, y, batch=7, order=4):
    sums = CompensatedSums()
    for i in range(0, len(x), batch):
        piece = x[i : i + batch], y[i : i + batch]
        sums.add(raw_sums(*piece, order), len(piece[0]))
    return mean_moments(sums)


@pytest.mark.parametrize("k", range(5))
def test_moments_are_means_of_hermite_tensors(sample, k):
    x, y = sample
    expected = sum(b * hermite_tensor(k, a) for a, b in zip(x, y, strict=True)) / len(x)
    # Forty terms of size 10 at rounding 1e-16.
    np.testing.assert_allclose(_moments(x, y).dense(k), expected, atol=1e-13)


def test_pairs_unpack_to_outer_products(sample):
    x, _ = sample
    np.testing.assert_array_equal(unpack_pairs(pair_products(x), 4), x[:, :, None] * x[:, None, :])


def test_slices_are_contractions(sample):
    x, y = sample
    v = np.random.default_rng(4).standard_normal((3, 4))
    moments = _moments(x, y)
    third, fourth = (total / len(x) for total in contraction_sums(x, y, v))
    t3, t4 = contraction_slices(third, fourth, v, moments)
    np.testing.assert_allclose(t3, np.einsum("ijk,qi->qjk", moments.dense(3), v), atol=1e-12)
    expected = np.einsum("ijkl,qi,qj->qkl", moments.dense(4), v, v)
    np.testing.assert_allclose(t4, expected, atol=1e-11)


def test_series_is_the_sum_over_orders(sample):
    x, y = sample
    moments = _moments(x, y)
    expected = [
        sum(
            np.sum(moments.dense(k) * hermite_tensor(k, point)) / math.factorial(k)
            for k in range(5)
        )
        for point in x
    ]
    value = evaluate_series(x, series_coefficients(moments))
    np.testing.assert_allclose(value, expected, atol=1e-12)


def test_flattening_keeps_norms(sample):
    moments = _moments(*sample)
    expected = sum(np.sum(moments.dense(k) ** 2) / math.factorial(k) for k in (2, 3, 4))
    assert np.sum(moments.flattening() ** 2) == pytest.approx(expected, rel=1e-12)


def test_arithmetic_and_truncation(sample):
    x, y = sample
    whole, half = _moments(x, y), _moments(x, 0.5 * y)
    np.testing.assert_allclose((half + half).t4, whole.t4, atol=1e-13)
    np.testing.assert_allclose((whole - half).t3, half.t3, atol=1e-13)
    np.testing.assert_allclose(whole.scaled(0.5).t2, half.t2, atol=1e-15)
    assert whole.truncated(3).order == 3
    with pytest.raises(ValueError, match="order 4"):
        whole.truncated(3).dense(4)


def test_batches_and_merging_do_not_matter(sample):
    # Compensated: any split agrees with any other to one rounding.
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((4000, 3)), rng.standard_normal(4000) * 1e8
    y[::2] *= -1
    one, many, left, right = (CompensatedSums() for _ in range(4))
    one.add((y.sum(), y @ x), len(x))
    for i in range(0, 4000, 10):
        terms = (y[i : i + 10].sum(), y[i : i + 10] @ x[i : i + 10])
        many.add(terms, 10)
        (left if i < 2000 else right).add(terms, 10)
    left.merge(right)
    exact = math.fsum(y)
    assert many.values()[0] == pytest.approx(exact, abs=1e-4)  # 400 batch roundings of 1e-8
    assert left.values()[0] == many.values()[0]
    assert left.count == many.count == 4000
    np.testing.assert_allclose(left.values()[1], many.values()[1], rtol=1e-15)


def test_compensation_recovers_what_plain_sums_lose():
    sums = CompensatedSums()
    for value in (1.0, 1e100, 1.0, -1e100):
        sums.add((np.float64(value),), 1)
    assert float(sums.values()[0]) == 2.0


def test_single_precision_batches_are_summed_in_double():
    sums = CompensatedSums()
    tenth = np.float32(0.1)
    for _ in range(10_000):
        sums.add((np.asarray(tenth),), 1)
    assert float(sums.values()[0]) == pytest.approx(10_000 * float(tenth), rel=1e-12)


def test_an_empty_accumulator_merges_as_nothing():
    sums = CompensatedSums()
    sums.add((np.ones(2),), 1)
    sums.merge(CompensatedSums())
    np.testing.assert_array_equal(sums.values()[0], np.ones(2))
