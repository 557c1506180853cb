import numpy as np
import pytest

from unrelu.core.jennrich import jennrich, joint_diagonalise, leading_subspace
from unrelu.core.moment_fit import fit_moments, fit_scalars, units_from_scalars
from unrelu.core.moments import HermiteMoments, pair_index
from unrelu.core.power_method import (
    distinct_directions,
    isometric_squares,
    subspace_power_method,
)
from unrelu.core.signs import sign_patterns
from unrelu.core.symmetric import SymmetricTensor
from unrelu.gaussian.awasthi import (
    RankOneUnits,
    Thresholds,
    _without_duplicates,
    fix_signs,
    full_rank_algorithm,
    population_tensors,
    recover_scalars,
    robust_algorithm,
)


def planted(seed, d, m):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return w, rng.uniform(0.5, 1.5, m) * rng.choice([-1, 1], m), rng.uniform(-1, 1, m)


def packed(w, a, b):
    t = {k: part.dense() for k, part in population_tensors(w, a, b, (0, 1, 2, 3, 4)).items()}
    rows, cols = pair_index(w.shape[1])
    t4 = t[4][rows, cols][:, rows, cols]
    return HermiteMoments(float(t[0]), t[1], t[2], t[3][rows, cols], t4)


def error(truth, found, *, signed):
    w, a, b = truth
    if len(found.w) != len(w):
        return np.inf
    index = np.abs(w @ found.w.T).argmax(axis=1)
    xi = np.ones(len(w)) if signed else np.sign(np.sum(w * found.w[index], axis=1))
    gap = np.linalg.norm(w - xi[:, None] * found.w[index], axis=1)
    return float(np.max(gap + np.abs(a - found.a[index]) + np.abs(b - xi * found.b[index])))


@pytest.mark.parametrize("seed", range(8))
def test_full_rank_algorithm_on_exact_tensors(seed):
    truth = planted(seed, 7, 6)
    tensors = population_tensors(*truth, (1, 2, 3, 4))
    found = full_rank_algorithm(
        tensors, Thresholds.exact(1.0), np.random.default_rng(seed), pairs=5
    )
    # Rounding 1e-16 times condition numbers up to 1e5.
    assert error(truth, found, signed=True) < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_order_two_finds_more_units_than_inputs(seed):
    truth = planted(seed, 4, 7)
    tensors = population_tensors(*truth, (2, 3, 4, 5, 6))
    found = robust_algorithm(
        2, tensors, Thresholds.exact(1.0), np.random.default_rng(seed), pairs=5
    )
    assert error(truth, found, signed=False) < 1e-8


@pytest.mark.parametrize("bias", [0.0, 1.0, -1.0])
def test_a_unit_at_a_root_of_a_hermite_polynomial_is_not_lost(bias):
    # b = 0 vanishes from T3, b = +-1 from T4: each is found in the other.
    w, a, b = planted(1, 5, 4)
    b[:] = [bias, 0.4, -0.6, bias]
    tensors = population_tensors(w, a, b, (1, 2, 3, 4))
    found = full_rank_algorithm(tensors, Thresholds.exact(1.0), np.random.default_rng(0), pairs=5)
    assert error((w, a, b), found, signed=True) < 1e-9


def test_recover_scalars_needs_the_shifted_index():
    w, a, b = planted(2, 4, 6)
    tensors = population_tensors(w, a, b, (2, 3, 4, 5))
    found_a, found_b = recover_scalars(2, w, tensors)
    np.testing.assert_allclose(found_a, a, atol=1e-9)
    np.testing.assert_allclose(found_b, b, atol=1e-9)


def test_fix_signs_turns_units_back():
    w, a, b = planted(3, 6, 5)
    first = population_tensors(w, a, b, (1,))[1]
    xi = np.array([1, -1, -1, 1, -1.0])
    found = fix_signs(first, RankOneUnits(xi[:, None] * w, a, xi * b))
    np.testing.assert_allclose(found.w, w)
    np.testing.assert_allclose(found.b, b)


def test_jennrich_and_joint_diagonalisation_under_noise():
    # The claim of the docs: many contractions hold up where two do not.
    rng = np.random.default_rng(0)
    w, a, _ = planted(5, 8, 8)
    matrices = np.einsum("ki,i,ip,iq->kpq", rng.standard_normal((40, 8)), a, w, w)
    noise = rng.standard_normal(matrices.shape) * 0.005
    noisy = matrices + noise + np.swapaxes(noise, 1, 2)
    frame, _ = leading_subspace(np.concatenate(list(noisy), axis=1), 0.0)
    two = jennrich(np.moveaxis(noisy, 0, -1), frame, rng)
    best = jennrich(np.moveaxis(noisy, 0, -1), frame, rng, pairs=50)
    many = joint_diagonalise(noisy, best)
    worst = [np.abs(w @ found.T).max(axis=1).min() for found in (two, many)]
    assert worst[1] > 0.99
    assert worst[1] > worst[0]
    clean = joint_diagonalise(matrices, best)
    # Converged to the tolerance of 1e-12, squared by the cosine.
    assert np.abs(w @ clean.T).max(axis=1).min() > 1 - 1e-10


def test_power_method_finds_every_direction_of_its_subspace():
    w, _, _ = planted(6, 6, 11)
    basis = np.linalg.qr(isometric_squares(w).T)[0]
    rng = np.random.default_rng(0)
    starts = rng.standard_normal((300, 6))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    found, value = subspace_power_method(basis, starts, steps=1000)
    index = distinct_directions(found, value, count=11, cosine=0.99)
    # Convergence is linear; a thousand steps leave 1e-4 of angle at worst.
    assert np.abs(w @ found[index].T).max(axis=1).min() > 1 - 1e-7
    np.testing.assert_allclose(value[index], 1.0, atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_moment_fit_converges_to_the_truth(tied):
    w, a, b = planted(7, 6, 8)
    moments = packed(w, a, b)
    rng = np.random.default_rng(1)
    start = w + 0.05 * rng.standard_normal(w.shape)
    fit = fit_moments(moments, start, tied=tied)
    index = np.abs(w @ fit.w.T).argmax(axis=1)
    xi = np.sign(np.sum(w * fit.w[index], axis=1))
    # Quadratic convergence ends at rounding times a condition number of 1e3.
    np.testing.assert_allclose(xi[:, None] * fit.w[index], w, atol=1e-11)
    found_a, found_b = units_from_scalars(fit.alpha[:, index])
    np.testing.assert_allclose(found_a, a, atol=1e-10)
    np.testing.assert_allclose(xi * found_b, b, atol=1e-10)


def test_scalars_are_the_coefficients():
    w, a, b = planted(8, 5, 4)
    alpha = fit_scalars(packed(w, a, b), w)
    found_a, found_b = units_from_scalars(alpha)
    np.testing.assert_allclose(found_a, a, atol=1e-11)
    np.testing.assert_allclose(found_b, b, atol=1e-11)


def test_signs_without_equations_are_free():
    found = sign_patterns(np.empty((0, 3)), np.empty(0), keep=1)
    np.testing.assert_array_equal(found.patterns, np.ones((1, 3)))
    assert found.complete


def test_sign_patterns_finds_all_exact_solutions():
    # c_3 = c_1 + c_2, c_4 = -c_1: several signed sums coincide.
    c1, c2 = np.array([1.0, 0.0, 2.0]), np.array([0.0, 1.0, -1.0])
    columns = np.stack([c1, c2, c1 + c2, -c1], axis=1)
    target = columns.sum(axis=1)
    found = sign_patterns(columns, target, keep=64)
    exact = {tuple(p) for p in found.patterns[found.remainders < 1e-12]}
    brute = set()
    for code in range(16):
        xi = 1.0 - 2.0 * ((code >> np.arange(4)) & 1)
        if np.allclose(columns @ xi, target):
            brute.add(tuple(xi))
    assert exact == brute
    assert found.complete


def test_sign_patterns_gives_up_politely():
    rng = np.random.default_rng(0)
    found = sign_patterns(rng.standard_normal((3, 40)), np.zeros(3), keep=64)
    assert not found.complete
    assert found.patterns.shape == (1, 40)
    assert sign_patterns(np.empty((3, 0)), np.ones(3), keep=64).patterns.shape == (1, 0)


def test_near_units_of_one_tensor_are_not_one_and_the_same_of_two_is() -> None:
    """Two units 0.1 rad apart, one of them in the second tensor too, up to sign."""
    near = np.array([[1.0, 0.0, 0.0], [np.cos(0.1), np.sin(0.1), 0.0]])
    again = -near[1:] + [[0.0, 0.0, 0.01]]
    again /= np.linalg.norm(again)
    first, second = (np.array([3.0, 1.0]), near), (np.array([2.0]), again)
    joined = _without_duplicates(first, second, 0.25)
    np.testing.assert_array_equal(joined, [near[0], again[0]])
    # Beyond eta3 they are two.
    assert len(_without_duplicates(first, second, 0.001)) == 3


def test_a_direction_without_finite_scalars_is_no_unit() -> None:
    """zeta_2 = 0 gives no bias: it is left out, and FIXSIGNS has finite equations."""
    d = 3
    w, a, b = np.eye(d)[:2], np.array([1.0, -1.0]), np.array([0.3, -0.2])
    tensors = population_tensors(w, a, b, tuple(range(5)))
    # A term of order 3 alone, along the third axis.
    extra = SymmetricTensor.of_units(np.eye(d)[2:], np.ones((1, 1)), 3)
    tensors[3] = SymmetricTensor(tensors[3].entries + extra.entries, d, 3)
    thresholds = Thresholds((1e-9, 1e-9), 0.0, 1e-3)
    units = full_rank_algorithm(tensors, thresholds, np.random.default_rng(0))
    assert np.isfinite(units.a).all()
    assert len(units.w) == 2
    np.testing.assert_allclose(np.abs(units.w @ w.T).max(axis=1), 1.0, atol=1e-9)


def test_tensors_of_noise_alone_have_no_units() -> None:
    tensors = population_tensors(np.eye(3)[:1], np.ones(1), np.zeros(1), tuple(range(5)))
    nothing = Thresholds((1e3, 1e3), 0.0, 0.25)
    units = full_rank_algorithm(tensors, nothing, np.random.default_rng(0), width=2)
    assert units.w.shape == (0, 3)
    assert len(units.a) == len(units.b) == 0
