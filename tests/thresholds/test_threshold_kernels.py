"""Kernels of the threshold algorithms against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from unrelu.core.symmetric import SymmetricTensor
from unrelu.thresholds.graph import cliques, normalised_correlations, otsu_cut
from unrelu.thresholds.landscape import (
    apply_tensor,
    contract,
    joint_objective,
    landscape_objective,
    minimise_joint,
    minimise_landscape,
    minimise_simultaneous,
    simultaneous_objective,
    whiten,
    whiten_tensor,
)
from unrelu.thresholds.slab import (
    estimate_tan_alpha,
    fit_tan_alpha,
    slab_step,
    slab_weights,
    tangent_basis,
)


def power_sum(w: np.ndarray, c: np.ndarray, k: int) -> np.ndarray:
    """``sum_i c_i w_i^(x)k``, dense."""
    return SymmetricTensor.of_units(w, c, k).dense()


def rotation(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


# ------------------------------------------------------------------- landscape


@pytest.mark.parametrize("order", [3, 4])
def test_contractions_agree_with_powers(order: int) -> None:
    rng = np.random.default_rng(0)
    w, c, v = rng.standard_normal((3, 4)), rng.standard_normal(3), rng.standard_normal(4)
    tensor = power_sum(w, c, order)
    # A few dozen products of numbers of order one: errors of a few ulp.
    assert apply_tensor(tensor, v) == pytest.approx(c @ (w @ v) ** order, rel=1e-12, abs=1e-12)
    assert contract(tensor, v, order - 1) == pytest.approx(
        (c * (w @ v) ** (order - 1)) @ w, rel=1e-12, abs=1e-12
    )


def test_whitening_makes_the_units_orthonormal() -> None:
    rng = np.random.default_rng(1)
    w = rng.standard_normal((4, 6))
    c = rng.uniform(0.5, 2.0, 4)
    white = whiten((w.T * c) @ w, 4)
    units = np.sqrt(c)[:, None] * (w @ white.to_white)
    assert units @ units.T == pytest.approx(np.eye(4), abs=1e-10)
    # and from_white brings each back, up to its length sqrt(c).
    assert units @ white.from_white.T == pytest.approx(np.sqrt(c)[:, None] * w, abs=1e-10)
    tensor = whiten_tensor(power_sum(w, c, 3), white.to_white)
    expected = power_sum(w @ white.to_white, c, 3)
    assert tensor == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_every_minimum_of_the_landscape_is_a_unit(order: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    units, c = rotation(6, seed), rng.uniform(0.5, 2.0, 6)
    tensor = power_sum(units, c, order)
    for _ in range(5):
        start = rng.standard_normal(6)
        found = minimise_landscape(tensor, start / np.linalg.norm(start), penalty=4.0)
        if order == 3 and apply_tensor(tensor, found) < 0:
            assert (units @ found < 0).all()  # the one other minimum of odd orders
            continue
        # The optimiser's gradient tolerance is 1e-10 relative; curvature is of order one.
        assert np.abs(units @ found).max() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("order", [3, 4])
def test_gradient_and_hessian_of_the_landscape(order: int) -> None:
    rng = np.random.default_rng(order)
    tensor = power_sum(rng.standard_normal((5, 4)), rng.standard_normal(5), order)
    u, h = rng.standard_normal(4), 1e-6
    value, gradient, hessian = landscape_objective(tensor, u, penalty=1.7)
    excess = float(u @ u - 1.0)
    assert value == pytest.approx(-apply_tensor(tensor, u) + 1.7 * excess**2)
    moved = [
        [landscape_objective(tensor, u + s * h * e, penalty=1.7) for s in (1.0, -1.0)]
        for e in np.eye(4)
    ]
    # Central differences at 1e-6: third derivatives of about 100 times 1e-12, rounding 1e-9.
    slopes = [(ahead[0] - behind[0]) / (2 * h) for ahead, behind in moved]
    assert gradient == pytest.approx(np.array(slopes), rel=1e-6, abs=1e-6)
    bends = np.array([(ahead[1] - behind[1]) / (2 * h) for ahead, behind in moved])
    assert hessian == pytest.approx(bends, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("which", ["simultaneous", "printed", "joint3", "joint4"])
def test_gradients_of_the_joint_objectives(which: str) -> None:
    rng = np.random.default_rng(2)
    k = 3
    order = 3 if which == "joint3" else 4
    tensor = power_sum(rng.standard_normal((5, k)), rng.standard_normal(5), order)
    rows = rng.standard_normal((k, k))

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        v = flat.reshape(k, k)
        if which in ("simultaneous", "printed"):
            return simultaneous_objective(
                tensor, v, gamma=0.3, penalty=1.7, printed=which == "printed"
            )
        return joint_objective(tensor, v, penalty=1.7)

    _, gradient = both(rows.ravel())
    numeric = scipy.optimize.approx_fprime(rows.ravel(), lambda f: both(f)[0], 1e-6)
    # Forward differences at 1e-6: error of 1e-6 times second derivatives of about 100.
    assert gradient.ravel() == pytest.approx(numeric, rel=1e-3, abs=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_joint_minimisers_recover_all_units_at_once(seed: int) -> None:
    units = rotation(5, seed)
    start = rotation(5, seed + 100)
    fourth = power_sum(units, np.ones(5), 4)
    for rows in (
        minimise_simultaneous(fourth, start, gamma=0.01, penalty=10.0),
        minimise_simultaneous(fourth, start, gamma=0.01, penalty=10.0, printed=True),
        minimise_joint(fourth, start, penalty=10.0),
    ):
        match = np.abs(rows @ units.T)
        # L-BFGS stops at relative decreases of 2e-9: angles of about 1e-4.
        assert np.sort(match.max(axis=1)) == pytest.approx(np.ones(5), abs=1e-5)
        assert sorted(match.argmax(axis=1)) == list(range(5))


def test_the_printed_penalty_holds_lengths_alone() -> None:
    """G(W) of B.4 is blind to the angles of its rows but through the tensor; ours is not."""
    rows = np.array([[1.0, 0.0], [0.6, 0.8]])
    nothing = np.zeros((2, 2, 2, 2))
    printed = simultaneous_objective(nothing, rows, gamma=0.01, penalty=1.0, printed=True)
    ours = simultaneous_objective(nothing, rows, gamma=0.01, penalty=1.0)
    assert printed[0] == pytest.approx(0.0, abs=1e-15)
    assert ours[0] == pytest.approx(2 * 0.6**2)
    longer = simultaneous_objective(nothing, 2.0 * rows, gamma=0.01, penalty=1.0, printed=True)
    assert longer[0] == pytest.approx(2 * (4.0 - 1.0) ** 2)
    # sum_{j != l} T(v_j, v_j, v_l, v_l) - gamma sum_j T(v_j, ...), on T = e_1^4 + e_2^4.
    tensor = power_sum(np.eye(2), np.ones(2), 4)
    cross = 2 * 0.6**2
    peaks = 1.0 + 0.6**4 + 0.8**4
    value = simultaneous_objective(tensor, rows, gamma=0.01, penalty=1.0, printed=True)[0]
    assert value == pytest.approx(cross - 0.01 * peaks)


# ------------------------------------------------------------------------ slab


@pytest.mark.parametrize("n", [2, 3, 17])
def test_tangent_basis(n: int) -> None:
    rng = np.random.default_rng(n)
    for direction in [np.eye(n)[0], -np.eye(n)[n - 1], rng.standard_normal(n)]:
        z = direction / np.linalg.norm(direction)
        full = np.column_stack([z, tangent_basis(z)])
        assert full.T @ full == pytest.approx(np.eye(n), abs=1e-14)


def test_slab_weights_flatten_the_gaussian() -> None:
    s = np.linspace(-0.5, 0.5, 11)
    density = np.exp(-0.5 * (2.0 + s) ** 2)
    assert slab_weights(s, 2.0) * density == pytest.approx(np.exp(-2.0), rel=1e-13)


def uniform_slab(
    z: np.ndarray, t: float, width: float, count: int, rng: np.random.Generator
) -> np.ndarray:
    along = rng.standard_normal((count, len(z) - 1)) @ tangent_basis(z).T
    return along + np.outer(t + rng.uniform(-width, width, count), z)


@pytest.mark.parametrize("alpha", [0.1, 0.01, 1e-3])
def test_one_slab_step_removes_most_of_the_error(alpha: float) -> None:
    n, t = 6, 2.0
    rng = np.random.default_rng(3)
    truth = rotation(n, 4)[0]
    tilt = tangent_basis(truth)[:, 0]
    z = np.cos(alpha) * truth + np.sin(alpha) * tilt
    width = 5.0 * alpha
    x = uniform_slab(z, t + alpha, width, 40_000, rng)
    step = slab_step(x, x @ truth > t, z, t + alpha, width, weights=np.ones(len(x)))
    assert step is not None
    before = np.linalg.norm(z - truth)
    after = np.linalg.norm(step.direction - truth)
    # A share alpha / (2 width) * E|a.v + delta| of the points, about 0.13, carries the noise:
    # sqrt(n * 0.13 / 40,000) * 2 width / alpha = 0.045 of the error, plus terms of order alpha.
    assert after < (0.15 + alpha) * before
    assert abs(step.threshold - t) < (0.15 + alpha) * alpha
    assert 0.2 * before < step.angle < 2.0 * before
    assert after < 5.0 * step.error + alpha * before


def test_slab_step_is_exact_on_exact_hyperplanes_and_refuses_thin_data() -> None:
    rng = np.random.default_rng(5)
    z = rotation(4, 1)[0]
    x = uniform_slab(z, 2.0, 0.1, 1000, rng)
    step = slab_step(x, x @ z > 2.0, z, 2.0, 0.1, weights=np.ones(len(x)))
    assert step is not None
    assert step.angle == 0.0
    assert step.shift == 0.0
    assert step.jump == 1.0
    fixed = slab_step(x, x @ z > 2.0, z, 2.0, 0.1, move_threshold=False)
    assert fixed is not None
    assert fixed.threshold == 2.0
    assert slab_step(x[:5], (x @ z > 2.0)[:5], z, 2.0, 0.1) is None


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5])
def test_tan_alpha_matches_its_closed_form(alpha: float) -> None:
    # P(on | z.x = s) = Phi((s cos a - t) / sin a): draw labels from it directly.
    rng = np.random.default_rng(6)
    s = rng.uniform(1.0, 3.5, 400_000)
    rate = scipy.special.ndtr((s * np.cos(alpha) - 2.0) / np.sin(alpha))
    found = estimate_tan_alpha(s, rng.random(len(s)) < rate, width=0.02)
    assert found is not None
    # Each crossing is read off bins of 3,200 labels, a standard error of 0.009 in the rate:
    # over the interval's 0.2 that is 6 % per crossing; linear interpolation adds a bin's width.
    assert found[0] == pytest.approx(np.tan(alpha), rel=0.3, abs=0.03)
    assert found[1] == pytest.approx(2.0 / np.cos(alpha), abs=0.03)


def test_tan_alpha_says_when_there_is_no_unit() -> None:
    rng = np.random.default_rng(7)
    s = rng.standard_normal(10_000)
    assert estimate_tan_alpha(s, rng.random(len(s)) < 0.1, width=0.05) is None
    assert estimate_tan_alpha(s, np.ones(len(s), dtype=bool), width=0.05) is None
    assert estimate_tan_alpha(s[:0], np.zeros(0, dtype=bool), width=0.05) is None


# ----------------------------------------------------------------------- graph


def test_otsu_cuts_in_the_gap() -> None:
    cut, gap = otsu_cut(np.array([0.0, 0.1, 0.2, 1.0, 1.1]))
    assert cut == pytest.approx(0.6)
    assert gap == pytest.approx(0.8)
    with pytest.raises(ValueError, match="two numbers"):
        otsu_cut(np.array([1.0]))


def test_normalised_correlations_are_one_within_a_unit_whatever_its_weight() -> None:
    owner = np.array([0, 0, 1, 1, 1])
    weight = np.array([3.0, 0.2])
    alpha = np.where(owner[:, None] == owner, weight[owner], 0.05)
    normal = normalised_correlations(alpha, np.ones(5, dtype=bool))
    assert normal[owner[:, None] == owner] == pytest.approx(1.0)
    assert normal[0, 2] == pytest.approx(0.05 / np.sqrt(0.6))


def test_cliques_count_missing_edges() -> None:
    edges = np.zeros((6, 6), dtype=bool)
    for i, j in [(0, 1), (1, 2), (3, 4)]:
        edges[i, j] = edges[j, i] = True
    groups, missing = cliques(edges)
    assert sorted(len(g) for g in groups) == [1, 2, 3]
    assert missing == 1


@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.5])
def test_fitted_tan_alpha_is_scale_free(alpha: float) -> None:
    rng = np.random.default_rng(8)
    tangent = np.tan(alpha)
    s = 2.0 + 4.0 * tangent * rng.uniform(-1.0, 1.0, 20_000)
    labels = rng.random(len(s)) < scipy.special.ndtr((s - 2.0) / tangent)
    found = fit_tan_alpha(s, labels, start=2.0 * tangent)
    assert found is not None
    # Half of the points are informative: a standard error of about 1.5 %, times four.
    assert found[0] == pytest.approx(tangent, rel=0.06)
    assert found[1] == pytest.approx(2.0, abs=0.06 * tangent)
    assert fit_tan_alpha(s, np.ones(len(s), dtype=bool), start=1.0) is None
    assert fit_tan_alpha(s, s < 2.0, start=tangent) is None
