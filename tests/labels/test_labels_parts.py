"""Parts of the extraction from labels, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.core.record import remembered
from unrelu.core.run import Run
from unrelu.labels.boundary import (
    Crossings,
    between,
    find_crossings,
    locate,
    measure_noise,
    measure_normals,
)
from unrelu.labels.charts import Chart, Target
from unrelu.labels.config import LabelsConfig
from unrelu.labels.first_layer import FirstLayer
from unrelu.labels.fit import Fit, fit_model, free_scales, misfits, prune, solve_outputs
from unrelu.labels.hyperplanes import Duals, Hyperplanes, pair_up
from unrelu.labels.model import Model
from unrelu.labels.run import LabelsRun
from unrelu.labels.walks import Explorer, Precision
from unrelu.lines.domains import as_domain
from unrelu.oracles import connect

BLURS = [1e-6, 1e-11]  # far above and far below the root of float64's resolution


def half_space(normal, offset=0.0, single=False):
    normal = np.asarray(normal, float)

    def target(x):
        x = x.astype(np.float32) if single else x
        return (x @ normal.astype(x.dtype) > offset).astype(float)

    oracle = connect(target, input_dim=len(normal), output_dim=1)
    return Target(remembered(oracle), as_domain("all", len(normal)))


def starts(chart, rng, finest=1e-9):
    y = rng.standard_normal((32, chart.dimension))
    return find_crossings(chart, y, chart.ask(y), 8, rng, finest)


def test_crossings_and_normals_of_a_half_space():
    rng, normal = np.random.default_rng(0), np.array([1.0, -2.0, 0.5, 0.3])
    chart = Chart.whole(half_space(normal, 0.2))
    at = starts(chart, rng)
    assert np.abs(at.points @ normal - 0.2).max() < 1e-8  # finest times the normal's length
    found, good = measure_normals(
        chart, at, rng, step=np.full(len(at), 1e-3), finest=np.full(len(at), 1e-8)
    )
    assert good.sum() >= len(at) - 2  # tangential directions may fail
    sign = np.where(at.outside == chart.target.code(np.array([1.0]))[0], 1.0, -1.0)
    unit = normal / np.linalg.norm(normal)
    # finest over step, along three directions, times a tangential direction's factor of ten.
    assert np.linalg.norm(found[good] - sign[good, None] * unit, axis=1).max() < 3e-4


@pytest.mark.parametrize(("single", "least", "most"), [(False, 1e-17, 1e-13), (True, 1e-9, 1e-5)])
def test_the_noise_is_that_of_the_arithmetic(single, least, most):
    rng = np.random.default_rng(1)
    chart = Chart.whole(half_space(rng.standard_normal(6), 0.1, single))
    assert least < measure_noise(chart, starts(chart, rng, 1e-3), rng, step=1e-3) < most


def test_a_bracket_moves_on_to_the_boundary():
    chart = Chart.whole(half_space([1.0, 0.0]))
    base = np.array([[-5.0, 0.0], [0.5, 0.0], [-5.0, 0.0]])
    ahead = np.tile([[1.0, 0.0]], (3, 1))
    chart.ask(np.array([[-1.0, 0.0], [1.0, 0.0]]))
    offset, error = locate(
        chart, base, ahead, np.zeros(3, np.intp), np.ones(3, np.intp), guess=np.zeros(3),
        half=np.full(3, 0.01), finest=1e-6, reach=np.array([100.0, 100.0, 1.0]),
    )  # fmt: skip
    assert offset[:2] == pytest.approx([5.0, -0.5], abs=1e-6)
    assert np.isnan(offset[2])  # out of reach
    assert error[0] <= 1e-6


@pytest.mark.parametrize("blur", BLURS)
def test_two_dual_points_give_the_row(blur):
    rng, s = np.random.default_rng(3), 6
    row = rng.standard_normal(s)
    row /= np.linalg.norm(row)
    duals = Duals.none(s)
    for _ in range(2):
        before = rng.standard_normal(s)
        after = before + rng.uniform(0.5, 1.0) * row
        point = rng.standard_normal(s)
        point -= (row @ point + 0.3) * row  # on the hyperplane
        before, after = before / np.linalg.norm(before), after / np.linalg.norm(after)
        duals = duals.with_one(point, before, after, blur)
    found = pair_up(duals, 6.0)
    assert len(found) == 1
    sign = np.sign(found.rows[0] @ row)
    assert found.rows[0] == pytest.approx(sign * row, abs=1e-9)  # the data are exact
    assert found.offsets[0] == pytest.approx(sign * 0.3, abs=1e-9)


@pytest.mark.parametrize("blur", BLURS)
def test_dual_points_that_share_a_facet_give_nothing(blur):
    """Their spans meet in the facet's own normal, which is no unit's row."""
    rng, s = np.random.default_rng(4), 6
    shared, duals = rng.standard_normal(s), Duals.none(s)
    shared /= np.linalg.norm(shared)
    for _ in range(2):
        other = rng.standard_normal(s)
        duals = duals.with_one(np.zeros(s), shared, other / np.linalg.norm(other), blur)
    assert len(pair_up(duals, 6.0)) == 0


def test_one_hyperplane_is_not_taken_twice():
    rows = np.array([[1.0, 0.0]])
    one = Hyperplanes(rows, np.array([0.5]), np.array([2]))
    turned = Hyperplanes(-rows, np.array([-0.5]), np.array([2]))
    assert len(one.joined(turned)) == 1
    assert len(one.joined(Hyperplanes(rows, np.array([0.9]), np.array([2])))) == 2


@pytest.mark.parametrize(
    ("edges", "scales"),
    [([(0, 1)], 1), ([(0, 1), (1, 2), (2, 0)], 1), ([(0, 1), (1, 2)], 2),
     ([(0, 1), (1, 2), (2, 0), (2, 3)], 2), ([(0, 1), (1, 2), (2, 3), (3, 0)], 1)],
)  # fmt: skip
def test_scales_that_no_cycle_ties(edges, scales):
    inside, outside = np.array(edges).T
    assert free_scales(inside, outside) == scales


def model_and_crossings(rng, k=3, s=4, m=3, n=200):
    model = Model(
        rng.standard_normal((k, s)), 0.3 * rng.standard_normal(k),
        np.concatenate([np.zeros((1, k)), rng.standard_normal((m - 1, k))]),
        np.concatenate([np.zeros((1, s)), rng.standard_normal((m - 1, s))]),
        np.concatenate([[0.0], 0.3 * rng.standard_normal(m - 1)]),
    ).normalised()  # fmt: skip
    return model, *crossings_of(model, rng, n)


def crossings_of(model, rng, n=200):
    m, s = model.skip.shape
    oracle = connect(lambda x: model.labels(x).astype(float), input_dim=s, output_dim=1)
    target = Target(remembered(oracle), as_domain("all", s))
    target.names, target.examples = [float(c) for c in range(m)], np.zeros((m, s))
    chart = Chart.whole(target)
    y = rng.standard_normal((2 * n, s))
    labels = chart.ask(y)
    unequal = np.flatnonzero(labels[:n] != labels[n:])
    at = between(chart, y[unequal], y[n + unequal], labels[unequal], labels[n + unequal], 1e-14)
    return at, (y, labels)


def test_outputs_are_the_null_vector_of_the_boundary():
    model, at, labelled = model_and_crossings(np.random.default_rng(5))
    solved = solve_outputs(model.rows, model.offsets, at, 3, labelled, 1e-4)
    assert solved is not None
    # Exact crossings: the null vector is exact up to the condition of the equations.
    assert solved.out == pytest.approx(model.out, abs=1e-8)
    assert solved.skip == pytest.approx(model.skip, abs=1e-8)


def test_a_fit_returns_to_the_truth_and_does_not_collapse():
    rng = np.random.default_rng(5)
    model, at, _ = model_and_crossings(rng)
    disturbed = model.moved(1e-3 * rng.standard_normal(model.unknowns))
    fit = fit_model(disturbed, at, noise=1e-15, within=6.0)
    assert np.abs(fit.model.distances(at)).max() < 1e-12
    assert np.linalg.norm(fit.model.out) > 0.1  # outputs of zero would fit as well
    assert fit.model.rows == pytest.approx(model.rows, abs=1e-8)


def test_the_jacobian_is_the_derivative():
    rng = np.random.default_rng(6)
    model, at, _ = model_and_crossings(rng)
    at = at.take(np.arange(20))
    step = rng.standard_normal(model.unknowns)
    matrix = model.jacobian(at.points, at.inside, at.outside)

    def value(t: float):
        theta = model.vector() + t * step
        k, s = model.rows.shape
        head = np.concatenate([np.zeros((1, k + s + 1)), theta[k * (s + 1) :].reshape(2, -1)])
        moved = Model(
            theta[: k * s].reshape(k, s), theta[k * s : k * (s + 1)], head[:, :k],
            head[:, k : k + s], head[:, -1],
        )  # fmt: skip
        return moved.differences(at.points, at.inside, at.outside)[0]

    # A central difference of a quadratic (products of two parameters) is exact up to rounding.
    difference = (value(1e-6) - value(-1e-6)) / 2e-6
    assert difference == pytest.approx(matrix @ step, abs=1e-7)


def test_a_unit_that_never_switches_is_folded():
    rng = np.random.default_rng(7)
    model, at, _ = model_and_crossings(rng)
    far = Model(
        model.rows, np.array([100.0, -100.0, model.offsets[2]]), model.out, model.skip, model.shift
    )
    folded = far.folded(at.points)
    assert folded.width == 1
    assert folded(at.points) == pytest.approx(far(at.points), abs=1e-10)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_unit_is_left_of_two_on_one_hyperplane(sign):
    """Two outputs as large as one likes cancel; the model stays the same function."""
    model, at, _ = model_and_crossings(np.random.default_rng(3))
    twice = model.with_units(sign * model.rows[1:2], sign * model.offsets[1:2])
    lent = np.array([0.0, 2.0, -1.0])
    out = twice.out.copy()
    out[:, 1] -= lent
    out[:, -1] += lent
    skip, shift = twice.skip, twice.shift
    if sign < 0:  # lent relu(-z) = lent relu(z) - lent z
        skip, shift = skip + np.outer(lent, model.rows[1]), shift + lent * model.offsets[1]
    twice = Model(twice.rows, twice.offsets, out, skip, shift)
    y = np.random.default_rng(0).standard_normal((50, 4))
    assert twice(y) == pytest.approx(model(y), abs=1e-13)  # sums of numbers of size one
    noise = 1e-12  # crossings were found to 1e-14, and lie on bends here and there
    fit = prune(Fit(twice, misfits(twice, at, noise)), at, noise=noise, within=6.0)
    assert fit.model.width == model.width
    assert (fit.misfit <= 6.0).all()


def test_two_units_that_are_near_but_two_are_kept():
    rng = np.random.default_rng(4)
    model, _, _ = model_and_crossings(rng)
    rows = model.rows.copy()
    rows[2] = rows[1] + 1e-3 * rng.standard_normal(4)
    model = Model(rows, model.offsets[[0, 1, 1]], model.out, model.skip, model.shift).normalised()
    at, _ = crossings_of(model, rng)
    fit = prune(Fit(model, misfits(model, at, 1e-12)), at, noise=1e-12, within=6.0)
    assert fit.model.width == 3


def test_a_walk_goes_around_where_the_boundary_folds_back():
    """The gradient turns by more than a right angle: no step along the old normal meets it."""
    row = np.array([-1.0, 1.0, 0.2, 0.0])

    def target(x):
        return (0.3 * x[:, 0] + np.maximum(x @ row, 0.0) > 0.1).astype(float)

    oracle = connect(target, input_dim=4, output_dim=1)
    chart = Chart.whole(Target(remembered(oracle), as_domain("all", 4)))
    rng = np.random.default_rng(1)
    y = rng.standard_normal((64, 4))
    precision = Precision(1e-3, 1e-3 * 2.0**-14, 1e-15)
    explorer = Explorer(chart, rng, precision, margin=6.0, candidates=32, tangents=5)
    explorer.add(find_crossings(chart, y, chart.ask(y), 8, rng, precision.finest))
    for _ in range(4):
        explorer.sweep(Hyperplanes.none(4), 8)
    duals = explorer.duals
    assert len(duals) > 0
    assert ((duals.before * duals.after).sum(axis=1) < 0.0).all()  # folded
    # Planes are known to 2^-14 a unit of length, and meet a few of those away.
    assert np.abs(duals.points @ row).max() < 6.0 * 2.0**-14 * 6.0 * np.linalg.norm(row)


def test_inputs_of_a_bisection_say_what_its_crossing_says():
    base = Run(connect(half_space_label, input_dim=3, output_dim=1), algorithm="labels", rng=0)
    run = LabelsRun(base, as_domain("all", 3), LabelsConfig())
    run.asked = Crossings(
        np.zeros((1, 3)), np.array([[0.6, 0.8, 0.0]]), np.zeros(1, np.intp), np.ones(1, np.intp),
        np.zeros(1),
    )  # fmt: skip
    on, off = np.array([[0.6, 0.8, 0.0]]) * 2.0, np.array([[1.0, 1.0, 1.0]])
    assert run._elsewhere(np.concatenate([on, off, -on])).tolist() == off.tolist()


def half_space_label(x):
    return (x[:, 0] > 0.0).astype(float)


def test_a_hyperplane_that_is_known_badly_is_no_sign_of_a_later_layer():
    """A few steps off at some places it is met by a wider look, one that ends is not."""
    row, other = np.array([0.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0])

    def label(bend):
        return lambda x: (x[:, 0] + bend(x) > 0.1).astype(float)

    def later(target, plane, seed=0):
        base = Run(connect(target, input_dim=4, output_dim=1), algorithm="labels", rng=seed)
        run = LabelsRun(base, as_domain("all", 4), LabelsConfig())
        run.noise = 1e-15
        run.whole.ask(np.random.default_rng(0).standard_normal((64, 4)))
        first = FirstLayer(run)
        first.test(run.whole, Hyperplanes(plane[None], np.zeros(1), np.zeros(1, np.intp)))
        return first.later

    everywhere = label(lambda x: np.maximum(x @ row, 0.0))
    in_part = label(lambda x: np.maximum(np.maximum(x @ row, 0.0) + x @ other, 0.0))
    tilted = row + 2e-3 * other
    assert later(everywhere, row) == 0
    for seed in range(4):
        assert later(everywhere, tilted / np.linalg.norm(tilted), seed) == 0
    # Where x @ other is negative the unit is off on both sides of the hyperplane.
    assert later(in_part, row) == 1


def test_no_crossing_is_an_empty_set():
    assert len(Crossings.none(3)) == 0
    assert free_scales(np.empty(0, np.intp), np.empty(0, np.intp)) == 0
