import numpy as np
import pytest

from unrelu.core.decompose import residual_signal
from unrelu.core.decompose_options import PolishOptions
from unrelu.core.moments import hermite_moments, raw_sums, series_coefficients
from unrelu.core.piecewise import Kinks
from unrelu.gaussian.improper import consolidated_network, truncated_regression
from unrelu.gaussian.inputs import check_gaussian, whitening_for
from unrelu.gaussian.moment_stage import _subspace, project_moments
from unrelu.gaussian.polish import (
    drop_needless_units,
    fit_kinks,
    kinks_from_units,
    linear_fit,
    merge_coincident,
    orient,
    unit_importance,
    without_undetermined,
)
from unrelu.gaussian.rare_units import find_rare_units
from unrelu.gaussian.stream import (
    HoldOut,
    InputWhitening,
    ReadingPlan,
    collect_outliers,
    estimate_moments,
    stream_normal_equations,
)
from unrelu.gaussian.survey import survey_samples
from unrelu.samples import as_source

OPTIONS = PolishOptions()


def units(seed, d, m):
    rng = np.random.default_rng([seed, 7])
    w = rng.standard_normal((m, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return w, rng.uniform(0.5, 1.5, m) * rng.choice([-1, 1], m), rng.uniform(-1, 1, m)


def labels(truth, x):
    w, a, b = truth
    return np.maximum(x @ w.T + b, 0) @ a


def survey(x, y, held=None, rows=500):
    return survey_samples(
        as_source(x, y), ReadingPlan(rows), rng=np.random.default_rng(0),
        held=held or HoldOut(20), stride=1, progress=lambda n: None,
    )  # fmt: skip


def test_survey_sees_what_numpy_sees_and_holds_rows_out():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4000, 3)) + 1.0, rng.standard_normal(4000)
    seen = survey(x, y)
    np.testing.assert_allclose(seen.input_mean, x.mean(axis=0), atol=1e-13)
    np.testing.assert_allclose(seen.input_covariance, np.cov(x.T, bias=True), atol=1e-12)
    assert seen.label_scale == pytest.approx(y.std(), rel=1e-12)
    held = np.arange(4000) % 20 == 10
    np.testing.assert_array_equal(seen.held_x, x[held])
    np.testing.assert_array_equal(seen.train_y, y[~held])
    np.testing.assert_allclose(seen.raw[1], y[~held] @ x[~held], atol=1e-10)


def test_control_variates_cut_the_noise_and_keep_the_mean():
    truth = units(0, 5, 4)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40_000, 5))
    y = labels(truth, x)
    seen = survey(x, y)
    low = hermite_moments(tuple(total / seen.train_count for total in seen.raw))
    nothing = low.scaled(0.0)
    kinds = {}
    for name, base in (("plain", nothing), ("reduced", low)):
        kinds[name] = estimate_moments(
            as_source(x, y), ReadingPlan(1000), basis=np.eye(5), offset=np.zeros(5),
            series=series_coefficients(base), low=base, held=HoldOut(20), order=4,
            progress=lambda n: None,
        )  # fmt: skip
    w, a, b = truth
    from unrelu.gaussian.awasthi import population_tensors

    exact = {k: part.dense() for k, part in population_tensors(w, a, b, (3, 4)).items()}
    plain, reduced = (
        sum(np.sum((kind.moments.dense(k) - exact[k]) ** 2) for k in (3, 4))
        for kind in kinds.values()
    )
    assert reduced < 0.3 * plain  # variance of y against that of its residual
    assert kinds["reduced"].residual_variance < 0.2 * y.var()
    # The noise estimate has the size of the actual error, within its own spread.
    error = np.linalg.norm(kinds["reduced"].moments.dense(4) - exact[4])
    assert 0.6 < np.linalg.norm(kinds["reduced"].noise.dense(4)) / error < 1.6


def test_whitening_maps_moments_and_points():
    rng = np.random.default_rng(2)
    factor = rng.standard_normal((3, 3)) + 2 * np.eye(3)
    z = rng.standard_normal((5000, 3))
    x, y = z @ factor.T + [1.0, 2.0, 3.0], z[:, 0] ** 2
    seen = survey(x, y)
    white = whitening_for(seen)
    assert not white.plain
    back = white.forward(x)
    np.testing.assert_allclose(np.cov(back.T, bias=True), np.eye(3), atol=1e-10)
    train = white.forward(seen.train_x)
    direct = raw_sums(train, seen.train_y, 2)
    mapped = white.raw(seen.raw, seen.train_count)
    for total, mean in zip(direct, mapped, strict=True):
        np.testing.assert_allclose(mean, np.asarray(total) / seen.train_count, atol=1e-10)
    assert whitening_for(survey(z, y)).plain


def test_gaussian_check():
    rng = np.random.default_rng(3)
    good = rng.standard_normal((20_000, 4))
    assert check_gaussian(survey(good, good[:, 0]), effect=0.2).passed
    # Gaussian marginals, but the radius is that of a mixture.
    scale = rng.choice([0.5, 1.5], (20_000, 1))
    test = check_gaussian(survey(good * scale, good[:, 0]), effect=0.2)
    assert not test.passed
    assert test.statistic > 6


def test_streamed_equations_and_outliers_match_memory():
    truth = units(4, 4, 3)
    x = np.random.default_rng(4).standard_normal((5000, 4))
    y = labels(truth, x)
    y[[17, 1234]] += 1.0
    model = kinks_from_units(*truth, None, "relu")
    held = HoldOut(20)
    train = ~held.mask(0, 5000)
    plain = InputWhitening.identity(4)
    streamed = stream_normal_equations(as_source(x, y), ReadingPlan(700), model, plain, held)
    from unrelu.core.piecewise import normal_equations

    whole = normal_equations(model, x[train], y[train])
    np.testing.assert_allclose(streamed.matrix, whole.matrix, rtol=1e-11, atol=1e-9)
    far_x, far_y, found, seen = collect_outliers(
        as_source(x, y), ReadingPlan(700), model, plain, held, threshold=1e-6, limit=10
    )
    assert (found, seen) == (2, int(train.sum()))
    np.testing.assert_array_equal(far_x, x[[17, 1234]])
    np.testing.assert_array_equal(far_y, y[[17, 1234]])


@pytest.mark.parametrize("seed", range(5))
def test_fit_reaches_rounding_from_a_cosine_of_09(seed):
    truth = units(seed, 6, 4)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5000, 6))
    y = labels(truth, x)
    w = truth[0] + 0.18 * rng.standard_normal(truth[0].shape)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    start = linear_fit(kinks_from_units(w, truth[1], truth[2] + 0.1, np.zeros(7)), x, y)
    fit = fit_kinks(start, x, y, OPTIONS)
    assert fit.rms < 1e-12 * y.std()


def test_needless_and_coincident_units_go():
    truth = units(5, 4, 3)
    x = np.random.default_rng(5).standard_normal((4000, 4))
    y = labels(truth, x)
    w = np.concatenate([truth[0], truth[0][:1], -truth[0][1:2], [[1.0, 0, 0, 0]]])
    a = np.concatenate([truth[1], [0.3], [0.2], [1e-13]])
    b = np.concatenate([truth[2], truth[2][:1], -truth[2][1:2], [0.1]])
    model = linear_fit(kinks_from_units(w, a, b, np.zeros(5)), x, y)
    assert len(merge_coincident(model).u) == 4
    fit = drop_needless_units(fit_kinks(model, x, y, OPTIONS), x, y, OPTIONS)
    assert len(fit.model.u) == 3
    assert fit.rms < 1e-12
    assert unit_importance(fit).min() > 1.0


def test_noise_has_no_signal_and_a_missing_unit_has():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((20_000, 5))
    noise = rng.standard_normal(20_000)
    assert residual_signal(x, noise)[1] == 0
    unit = np.maximum(x[:, 0] + 0.3, 0)
    assert residual_signal(x, 0.3 * noise + unit - unit.mean())[1] >= 1


def test_rare_units_are_read_off_their_samples():
    rng = np.random.default_rng(7)
    d = 5
    w = np.linalg.qr(rng.standard_normal((d, d)))[0][:3]
    a, b = np.array([1.2, -0.7, 0.9]), np.array([-3.0, -3.2, -2.9])
    x = rng.standard_normal((200_000, d))
    left = np.maximum(x @ w.T + b, 0) @ a
    far = left != 0
    rows, signs = find_rare_units(x[far], left[far], rng, tolerance=1e-9)
    assert len(rows) == 3
    expected = np.abs(a)[:, None] * np.column_stack([w, b])
    for row, sign in zip(rows, signs, strict=True):
        gaps = np.abs(expected - row).max(axis=1)
        assert gaps.min() < 1e-9
        assert sign == np.sign(a[gaps.argmin()])
    nothing, _ = find_rare_units(x[:3], left[:3] + 1, rng, tolerance=1e-9)
    assert len(nothing) == 0


@pytest.mark.parametrize(("d", "m"), [(5, 4), (4, 7)])
def test_orientation(d, m):
    w, a, b = units(8, d, m)
    truth = kinks_from_units(w, a, b, None)
    xi = np.where(np.arange(m) % 2, 1.0, -1.0)
    turned = kinks_from_units(xi[:, None] * w, a, xi * b, None)
    affine = truth.sign @ truth.u  # a relu(z) = a |z| / 2 + a z / 2
    found = orient(Kinks(turned.u, turned.sign, affine, "abs"))
    np.testing.assert_array_equal(found.patterns[0], xi)
    assert found.remainders[0] < 1e-12 < 1e-3 < found.remainders[1] if m > d else True


def test_truncated_regression_and_claim_b5():
    truth = units(9, 4, 3)
    x = np.random.default_rng(9).standard_normal((3000, 4))
    slope = np.array([1.0, -1.0, 0.5, 2.0])
    y = labels(truth, x) + x @ slope + 3.0
    w, _, b = truth
    alpha, alpha_prime, affine = truncated_regression(w, b, x, y)
    net = consolidated_network(w, b, alpha, alpha_prime, affine)
    assert net.hidden_widths == (5,)  # m + 2
    # The ridge of 1e-10 biases the solution by about as much.
    np.testing.assert_allclose(net(x)[:, 0], y, atol=1e-7)


def test_a_constant_remainder_needs_no_units():
    net = consolidated_network(
        np.eye(2), np.zeros(2), np.ones(2), np.zeros(2), np.array([0.0, 0.0, 1.5])
    )
    assert net.hidden_widths == (2,)
    assert net(np.zeros((1, 2)))[0, 0] == 1.5


def test_projection_of_low_moments():
    rng = np.random.default_rng(10)
    x, y = rng.standard_normal((100, 4)), rng.standard_normal(100)
    q = np.linalg.qr(rng.standard_normal((4, 2)))[0]
    whole = hermite_moments(tuple(np.asarray(s) / 100 for s in raw_sums(x, y, 2)))
    direct = hermite_moments(tuple(np.asarray(s) / 100 for s in raw_sums(x @ q, y, 2)))
    np.testing.assert_allclose(project_moments(whole, q).t2, direct.t2, atol=1e-13)


def test_labels_far_from_zero_leave_the_subspace_small():
    """Their mean makes T2 noisy, but by a known amount."""
    rng = np.random.default_rng(2)
    w = np.linalg.qr(rng.standard_normal((40, 6)))[0].T
    x = rng.standard_normal((20_000, 40))
    y = np.maximum(x @ w.T, 0.0).sum(axis=1) + 30.0
    low = hermite_moments(tuple(np.asarray(part) / len(x) for part in raw_sums(x, y, 2)))
    q = _subspace(low, x.T @ x / len(x), float(y.std()), len(x), None)
    assert q.shape[1] <= 16
    assert np.linalg.norm(q.T @ w.T, axis=0).min() >= 0.95


def test_units_that_few_samples_determine_become_affine():
    rng = np.random.default_rng(9)
    x = rng.standard_normal((400, 5))
    ordinary = np.append(rng.standard_normal(5), 0.2)
    far = np.append(np.eye(5)[0], -2.4)  # a few samples lie beyond it
    model = Kinks(np.stack([ordinary, far]), np.array([1.0, -1.0]), np.zeros(6), "abs")
    beyond = x @ far[:-1] + far[-1] > 0
    assert 0 < np.count_nonzero(beyond) < 8
    sure, kept = without_undetermined(model, x)
    assert len(sure.u) == 1
    np.testing.assert_array_equal(kept, ~beyond)
    np.testing.assert_allclose(sure(x)[kept], model(x)[kept], atol=1e-12)
    same, everyone = without_undetermined(sure, x)
    assert same is sure
    assert everyone.all()
