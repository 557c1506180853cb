"""Symmetric tensors by their distinct entries, against dense arrays."""

import math

import numpy as np
import pytest

from unrelu.core.hermite import hermite_products, hermite_tensor
from unrelu.core.symmetric import (
    SymmetricTensor,
    exponents,
    multiplicities,
    sum_positions,
)


@pytest.mark.parametrize(("d", "k"), [(1, 3), (3, 0), (3, 4), (8, 2), (4, 5)])
def test_exponents_are_all_of_them_once(d, k):
    alpha = exponents(d, k)
    assert alpha.shape == (math.comb(d + k - 1, k), d)
    assert len({tuple(row) for row in alpha.tolist()}) == len(alpha)
    assert (alpha.sum(axis=1) == k).all()
    assert multiplicities(d, k).sum() == pytest.approx(d**k, rel=1e-14)


@pytest.mark.parametrize(("j", "k"), [(0, 3), (1, 3), (2, 2), (3, 1)])
def test_sums_of_exponents_are_found(j, k):
    both = exponents(3, j)[:, None] + exponents(3, k)[None]
    np.testing.assert_array_equal(exponents(3, j + k)[sum_positions(3, j, k)], both)


@pytest.mark.parametrize("k", range(7))
def test_distinct_products_fill_the_dense_tensor(k):
    x = np.random.default_rng(k).standard_normal((3, 3))
    levels = hermite_products(x, k)
    tensor = SymmetricTensor(levels[k][1:2], 3, k)
    np.testing.assert_allclose(tensor.dense(), hermite_tensor(k, x[1]), atol=1e-12)
    again = SymmetricTensor.of_dense(tensor.dense(), 3)
    np.testing.assert_array_equal(again.entries, tensor.entries)


def test_power_sum_is_an_einsum():
    rng = np.random.default_rng(0)
    w, c = rng.standard_normal((4, 3)), rng.standard_normal(4)
    expected = np.einsum("m,mi,mj,mk->ijk", c, w, w, w)
    tensor = SymmetricTensor.of_units(w, c, 3)
    np.testing.assert_allclose(tensor.dense(), expected, atol=1e-14)
    v = rng.standard_normal((5, 3))
    value = np.einsum("ijk,mi,mj,mk->m", expected, v, v, v)
    np.testing.assert_allclose(tensor.contract(v)[0], value, atol=1e-12)


def test_a_flattening_has_the_singular_values_of_the_dense_one():
    rng = np.random.default_rng(1)
    w, c = rng.standard_normal((4, 3)), rng.standard_normal((2, 4))
    joint = SymmetricTensor.of_units(w, c, 5)
    one = SymmetricTensor(joint.entries[:1], 3, 5)
    dense = one.dense()
    for tensor, flat in (
        (one, dense.reshape(9, 27)),
        (joint, np.concatenate(
            [SymmetricTensor(row[None], 3, 5).dense().reshape(9, 27) for row in joint.entries],
            axis=1,
        )),
    ):  # fmt: skip
        ours = np.linalg.svd(tensor.matrix(2, 3), compute_uv=False)
        full = np.linalg.svd(flat, compute_uv=False)
        np.testing.assert_allclose(ours, full[: len(ours)], atol=1e-12)
    cube = one.flatten(2, 2, 1)
    assert np.linalg.norm(cube) == pytest.approx(np.linalg.norm(dense), rel=1e-13)
    assert cube.shape == (6, 6, 3)
