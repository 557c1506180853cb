import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrelu.span.subspace import (
    choose_rows,
    complement,
    largest_principal_angle,
    misfit_of_rows,
    orthonormal,
    solve_tilt,
    spectrum_of_rows,
)


def plane(rng, r, n):
    return orthonormal(rng.standard_normal((r, n)))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(0, 6), st.integers(0, 1000))
def test_complement_completes_the_basis(r, extra, seed):
    n = r + extra
    basis = plane(np.random.default_rng(seed), r, n)
    both = np.concatenate([basis, complement(basis)])
    # Householder QR is orthogonal to a few units in the last place times n.
    np.testing.assert_allclose(both @ both.T, np.eye(n), atol=1e-14 * n)


def test_complement_of_nothing_is_everything():
    np.testing.assert_array_equal(complement(np.empty((0, 3))), np.eye(3))


@pytest.mark.parametrize("angle", [1e-12, 1e-6, 0.1, 1.0])
def test_angle_of_a_turned_plane(angle):
    rng = np.random.default_rng(0)
    basis = plane(rng, 4, 9)
    turned = basis.copy()
    # Turn one direction by a known angle towards the complement.
    turned[2] = np.cos(angle) * basis[2] + np.sin(angle) * complement(basis)[1]
    mixed = rng.standard_normal((4, 4)) @ turned
    # A sine from the residual is good to a few 1e-16, whatever its size, times
    # the condition of the mixing matrix (below 30 for this seed).
    assert largest_principal_angle(basis, mixed) == pytest.approx(np.sin(angle), abs=1e-14)


def test_angle_between_planes_of_unequal_rank_is_one():
    assert largest_principal_angle(np.eye(5)[:2], np.eye(5)[:3]) == 1.0
    assert largest_principal_angle(np.empty((0, 5)), np.empty((0, 5))) == 0.0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("r", "count", "n"), [(1, 3, 20), (5, 8, 30), (10, 60, 40)])
def test_rank_and_angle_estimate_follow_the_noise(seed, r, count, n):
    rng = np.random.default_rng(seed)
    basis = plane(rng, r, n)
    noise = 10.0 ** rng.uniform(-8, -6, count)
    rows = rng.standard_normal((count, r)) @ basis + noise[:, None] * rng.standard_normal(
        (count, n)
    )
    found = spectrum_of_rows(rows, noise, margin=5.0)
    assert found.rank == r
    assert found.gap > 100
    true = largest_principal_angle(found.basis, basis)
    # First order, for the weakest direction: a factor of 3 covers n and count this small.
    assert true < 3 * found.angle
    assert found.angle < 30 * true


def test_pure_noise_has_rank_zero():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = spectrum_of_rows(1e-9 * rng.standard_normal((30, 50)), np.full(30, 1e-9), margin=2)
        assert found.rank == 0
        assert found.basis.shape == (0, 50)


def test_no_rows():
    found = spectrum_of_rows(np.empty((0, 4)), np.empty(0), margin=5.0)
    assert (found.rank, found.gap) == (0, 0.0)


def test_solve_tilt_is_exact_and_reports_misfit():
    rng = np.random.default_rng(1)
    tilt = rng.standard_normal((3, 5))
    inside = rng.standard_normal((7, 3))
    found, misfit = solve_tilt(inside, inside @ tilt)
    np.testing.assert_allclose(found, tilt, atol=1e-13)
    assert misfit < 1e-13
    noisy = inside @ tilt + rng.standard_normal((7, 5))
    _, misfit = solve_tilt(inside, noisy)
    # Chi-square with 20 degrees of freedom: within 0.4 to 1.7 at one in a thousand.
    assert 0.4 < misfit < 1.7
    assert solve_tilt(inside[:3], noisy[:3])[1] == 0.0


def test_misfit_of_rows_is_in_noise_units():
    rng = np.random.default_rng(2)
    basis = plane(rng, 3, 40)
    rows = rng.standard_normal((50, 3)) @ basis
    noisy = rows + 1e-3 * rng.standard_normal(rows.shape)
    assert misfit_of_rows(rows, np.full(50, 1e-3), basis) < 1e-12
    # 50 · 37 degrees of freedom: the root mean square is 1 within 5 %.
    assert misfit_of_rows(noisy, np.full(50, 1e-3), basis) == pytest.approx(1.0, rel=0.05)
    assert misfit_of_rows(rows, np.ones(50), np.eye(40)) == 0.0


def test_choose_rows_prefers_independent_ones():
    rows = np.array([[1.0, 0], [1.0, 1e-9], [0, 2.0], [1.0, 0]])
    chosen = choose_rows(rows, 2)
    assert 2 in chosen
    assert len(chosen) == 2
    assert sorted(choose_rows(rows, 9)) == [0, 1, 2, 3]
