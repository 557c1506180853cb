"""Least squares for gated units, against planted gradients."""

from __future__ import annotations

import numpy as np

from unrelu.lines.gates import (
    choose_points,
    combine,
    design_rows,
    refit_outputs,
    select_pieces,
    solve_pieces,
    split_gaps,
    update,
)


def planted(k, d, m, rng):
    return (
        rng.standard_normal((k, d)),
        rng.standard_normal((m, k)),
        rng.standard_normal((m, d)),
    )


def test_design_rows_reproduce_gradients():
    rng = np.random.default_rng(0)
    w, u, a = planted(6, 4, 3, rng)
    on = rng.random((5, 6)) < 0.5
    direct = np.array([a + (u * g) @ w for g in on])
    np.testing.assert_allclose(design_rows(on, u) @ np.concatenate([a, w]), direct, atol=1e-12)


def test_differences_of_pieces_and_their_covariance():
    rng = np.random.default_rng(1)
    k = 5
    w, _, a = planted(k, 3, 1, rng)
    signs = rng.choice([-1.0, 1.0], size=(1, k))
    on = np.tri(k + 1, k, -1, dtype=bool)
    truth = (design_rows(on, signs) @ np.concatenate([a, w]))[:, 0]
    std = rng.uniform(0.1, 1.0, size=k + 1)
    theta, covariance = solve_pieces(truth, std, signs)
    np.testing.assert_allclose(theta, np.concatenate([a, w]), atol=1e-12)
    rows = design_rows(on, signs)[:, 0]
    inverse = np.linalg.inv(rows)
    np.testing.assert_allclose(covariance, inverse @ np.diag(std**2) @ inverse.T, atol=1e-12)


def test_few_chosen_pieces_determine_everything_with_many_outputs():
    rng = np.random.default_rng(2)
    k, m = 30, 6
    w, u, a = planted(k, 8, m, rng)
    on = np.tri(k + 1, k, -1, dtype=bool)
    rows = design_rows(on, u)
    std = np.full((k + 1, m), 1e-6)
    chosen = select_pieces(rows, std, 1.35)
    assert len(chosen) <= 1.35 * (k + m) / m + 2
    gradients = rows @ np.concatenate([a, w])
    theta, covariance = combine(rows[chosen], gradients[chosen], std[chosen])
    # Exact gradients: what is left is rounding times the condition of the chosen rows.
    condition = np.linalg.cond(rows[chosen].reshape(-1, m + k))
    np.testing.assert_allclose(theta, np.concatenate([a, w]), atol=1e-14 * condition)
    np.testing.assert_allclose(covariance, covariance.T)


def test_combined_covariance_is_that_of_least_squares():
    rng = np.random.default_rng(3)
    on = rng.random((12, 4)) < 0.5
    u = rng.standard_normal((1, 4))
    rows = design_rows(on, u)
    std = rng.uniform(0.5, 2.0, size=(12, 1))
    _, covariance = combine(rows, np.zeros((12, 1, 2)), std)
    r = rows[:, 0] / std
    np.testing.assert_allclose(covariance, np.linalg.inv(r.T @ r), rtol=1e-9)


def test_update_agrees_with_solving_all_at_once_in_both_forms(monkeypatch):
    rng = np.random.default_rng(4)
    s = 7
    root = rng.standard_normal((s, s))
    prior = root @ root.T
    rows = rng.standard_normal((4, s))
    variances = rng.uniform(0.1, 1.0, 4)
    deviations = rng.standard_normal((4, 3))
    precision = np.linalg.inv(prior) + rows.T @ np.diag(1 / variances) @ rows
    expected = np.linalg.solve(precision, rows.T @ (deviations / variances[:, None]))
    for size in (700, 0):
        monkeypatch.setattr("unrelu.lines.gates.DENSE", size)
        change, covariance = update(prior, rows, deviations, variances)
        np.testing.assert_allclose(change, expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-6, atol=1e-9)


def test_chosen_points_lower_the_error_as_predicted():
    rng = np.random.default_rng(5)
    k = 8
    u = np.ones((1, k))
    prior = np.diag(np.append(1e-6, 10.0 ** rng.uniform(-6, 0, k)))
    candidates = design_rows(rng.random((40, k)) < 0.5, u)
    tests = design_rows(rng.random((60, k)) < 0.5, u)[:, 0]
    variances = np.full((40, 1), 1e-6)
    chosen, course = choose_points(candidates, variances, tests, prior, 6, 0.0)
    assert (np.diff(course) <= 1e-15).all()
    _, after = update(prior, candidates[chosen, 0], np.zeros((6, 1)), variances[chosen, 0])
    mean = np.mean(np.einsum("ns,st,nt->n", tests, after, tests))
    np.testing.assert_allclose(course[-1], mean, rtol=1e-4)


def test_outputs_are_refitted_from_gradients():
    rng = np.random.default_rng(6)
    k, n, m = 6, 9, 2
    w, u, a = planted(k, n, m, rng)
    on = np.tri(k + 1, k, -1, dtype=bool)
    gradients = design_rows(on, u) @ np.concatenate([a, w])
    std = np.full((k + 1, m), 1e-9)
    speed = np.ones(k)
    jumps = u.T + 1e-3 * rng.standard_normal((k, m))  # poorly known on the line
    found = refit_outputs(on, gradients, std, w, jumps, np.full((k, m), 1e-6), speed)
    # The jumps' 1e-3 enters with weight (1e-9 / 1e-3)^2: nothing; rounding remains.
    np.testing.assert_allclose(found, u, atol=1e-9)


def test_gaps_are_split_where_outputs_depend_on_each_other():
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(3, 9))
    outputs[:, 5] = -outputs[:, 4]  # the two kinks of a clipped unit
    outputs /= np.linalg.norm(outputs, axis=0)
    std = np.ones((10, 3))
    chosen = split_gaps(np.array([0, 3, 6, 9]), outputs, std)
    assert set(chosen) >= {0, 3, 5, 6, 9}  # between the two kinks
    assert list(split_gaps(np.array([0, 3]), outputs, std)) == [0, 3]
    # Four units between two gradients of three outputs: the most precise piece between.
    std[2] = 0.1
    assert list(split_gaps(np.array([0, 4]), outputs, std)) == [0, 2, 4]
