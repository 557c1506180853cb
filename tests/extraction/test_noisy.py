"""One hidden layer from answers of any precision: planted networks, parameters asserted."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from unrelu.core.answers import between_zero_and_one
from unrelu.core.fit import Layered
from unrelu.core.record import remembered
from unrelu.extraction.certify import CertifyConfig
from unrelu.extraction.noisy import NoisyConfig, extract_from_noisy
from unrelu.extraction.noisy_answers import Answers, Seen
from unrelu.extraction.noisy_search import LineUnits, recurring
from unrelu.extraction.noisy_units import without_skip
from unrelu.oracles import connect
from unrelu.result import Status

EPS = float(np.finfo(np.float32).eps)


class Deployed:
    """A network that computes in float32 throughout."""

    def __init__(self, widths, seed, *, kind="values", decimals=None):
        rng = np.random.default_rng(seed)
        d, k, m = widths
        self.w = (rng.standard_normal((k, d)) / np.sqrt(d)).astype(np.float32)
        self.b = (0.5 * rng.standard_normal(k)).astype(np.float32)
        self.u = (rng.standard_normal((m, k)) / np.sqrt(k)).astype(np.float32)
        self.c = rng.standard_normal(m).astype(np.float32)
        self.kind, self.decimals, self.asked = kind, decimals, 0

    def logits(self, x, dtype=np.float64):
        h = np.maximum(x.astype(dtype) @ self.w.astype(dtype).T + self.b.astype(dtype), dtype(0))
        return h @ self.u.astype(dtype).T + self.c.astype(dtype)

    def __call__(self, x):
        self.asked += len(x)
        z = self.logits(x, np.float32)
        if self.kind == "softmax":
            z = scipy.special.softmax(z, axis=1)
        elif self.kind == "logistic":
            z = scipy.special.expit(z)
        z = z.astype(np.float64)
        return z if self.decimals is None else np.round(z, self.decimals)

    def extract(self, seed, **options):
        oracle = connect(self, input_dim=self.w.shape[1], output_dim=len(self.u))
        return extract_from_noisy(oracle, rng=seed, **options)

    def rows(self):
        """Unit normals with offsets, sorted."""
        norm = np.linalg.norm(self.w.astype(float), axis=1, keepdims=True)
        return np.column_stack([self.w, self.b]) / norm


def unmatched(found, true):
    """Largest distance of a true row from the nearest found one, orientation included."""
    apart = np.linalg.norm(true[:, None] - found[None], axis=2)
    return float(apart.min(axis=1).max())


def centred(z):
    return z - z.mean(axis=1, keepdims=True)


def test_units_recur_where_two_lines_show_them():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    biases = rng.standard_normal(5)

    def line(which, error, flip):
        w, b = flip * rows[which], flip * biases[which]
        net = Layered((w, np.ones((1, len(w)))), (b, np.zeros(1)), np.zeros((1, 8)))
        return LineUnits(net, np.full(len(w), error), len(w))

    lines = [line([0, 1, 2], 0.01, 1.0), line([1, 2, 3], 1e-3, -1.0), line([4], 0.1, 1.0)]
    net, errors = recurring(lines, 2)
    np.testing.assert_allclose(net.weights[0], -rows[[1, 2]])  # as the more precise line has it
    np.testing.assert_allclose(errors, 1e-3)
    # one line is enough where most of its units recur, and none is too imprecise alone
    assert len(recurring(lines, 1)[1]) == 4
    assert len(recurring(lines[2:], 2)[1]) == 0


@pytest.mark.parametrize("seed", range(4))
def test_float32_values_one_output(seed):
    target = Deployed((12, 6, 1), seed)
    result = target.extract(seed + 50)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 6
    assert result.signs_determined
    assert result.queries.total == target.asked
    net = result.network.canonical()
    found = np.column_stack([net.weights[0], net.biases[0]])
    # noise of a few EPS over outputs of 1 / sqrt(6), two answers a parameter: some ten EPS in a
    # typical entry; the worst of 78 and of a weak unit ten times that
    assert unmatched(found, target.rows()) < 1e3 * EPS
    x = np.random.default_rng(seed).standard_normal((4000, 12))
    error = result.network(x) - target.logits(x)
    assert np.sqrt(np.mean(error**2)) < 4 * EPS  # noise times sqrt(p / (n - p)), noise 2 EPS


@pytest.mark.parametrize("kind", ["values", "softmax"])
def test_a_subspace_and_a_lift(kind):
    target = Deployed((30, 12, 5), 3, kind=kind)
    result = target.extract(7)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 12
    assert result.signs_determined
    assert {"line search", "trial fit", "gradients", "fit", "certificate"} <= {
        stage.name for stage in result.stages
    }
    net = result.network.canonical()
    found = np.column_stack([net.weights[0], net.biases[0]])
    assert unmatched(found, target.rows()) < 1e3 * EPS  # as above
    x = np.random.default_rng(5).standard_normal((4000, 30))
    error = centred(result.network(x)) - centred(target.logits(x))
    assert np.abs(error).max() < 30 * EPS


def test_a_single_probability():
    target = Deployed((10, 5, 1), 1, kind="logistic")
    result = target.extract(2)
    assert result.status is Status.RECOVERED, result.message
    assert (result.answers, result.width) == ("log-odds", 5)
    x = np.random.default_rng(5).standard_normal((4000, 10))
    assert np.sqrt(np.mean((result.network(x) - target.logits(x)) ** 2)) < 10 * EPS


def test_a_nearly_dead_unit_is_found():
    target = Deployed((30, 10, 5), 11)
    target.u[:, 4] *= np.float32(2e-3)
    result = target.extract(12)
    assert result.status is Status.RECOVERED, result.message
    assert result.width == 10
    net = result.network.canonical()
    found = np.column_stack([net.weights[0], net.biases[0]])
    # noise of 2 EPS over outputs of 1e-3
    assert unmatched(found, target.rows()[[4]]) < 1e4 * EPS


@pytest.mark.parametrize(
    ("kind", "outputs", "seed"), [("values", 5, 1), ("values", 1, 2), ("softmax", 5, 2)]
)
def test_a_unit_that_only_far_inputs_switch_is_found(kind, outputs, seed):
    # Typical inputs reach 4 or 5 along a row: no answer of a fit or a certificate shows the unit,
    # those on far parts of the lines do.
    target = Deployed((30, 12, outputs), seed, kind=kind)
    target.b[4] = -8.0 * np.linalg.norm(target.w[4])
    result = target.extract(seed + 5)
    assert result.status is Status.RECOVERED, result.message
    # Two units far out that cancel each other are seldom noticed to be none.
    assert 12 <= result.width <= 14
    assert result.queries.total == target.asked
    # the certificate that missed it was booked to the search
    assert result.queries.by_stage["certificate"] == CertifyConfig.samples
    assert result.queries.by_stage["residual search"] > CertifyConfig.samples
    net = result.network.canonical()
    found = np.column_stack([net.weights[0], net.biases[0]])
    # As above, the offset being a sum of 30 entries times a distance of eight.
    assert unmatched(found, target.rows()[[4]]) < 1e4 * EPS


def test_rounded_probabilities_are_approximated():
    target = Deployed((8, 4, 3), 21, kind="softmax", decimals=4)
    result = target.extract(22, config=NoisyConfig(student=8))
    assert result.status is Status.APPROXIMATED, result.message
    x = np.random.default_rng(5).standard_normal((4000, 8))
    error = scipy.special.softmax(result.network(x), axis=1)
    error = error - scipy.special.softmax(target.logits(x), axis=1)
    # The fit averages rounding of 3e-5, but which minimum it ends in hangs on the last bits: ten
    # times that is still well below what a copy of the wrong width reaches (0.02 and more).
    assert np.sqrt(np.mean(error**2)) < 1e-3


@pytest.mark.parametrize("function", ["tanh", "two hidden layers"])
def test_what_is_no_such_network_is_never_recovered(function):
    target = Deployed((5, 4, 2), 31)
    inner = Deployed((2, 4, 1), 32)

    def answer(x):
        hidden = x.astype(np.float32) @ target.w.T + target.b
        if function == "tanh":
            return np.tanh(hidden) @ target.u.T
        return inner(target.logits(x, np.float32))

    m = 2 if function == "tanh" else 1
    oracle = connect(answer, input_dim=5, output_dim=m, budget=2_000)
    result = extract_from_noisy(oracle, rng=1)
    assert result.status is not Status.RECOVERED
    assert result.message


def test_a_budget_ends_a_run_with_a_status():
    target = Deployed((30, 12, 5), 3)
    oracle = connect(target, input_dim=30, output_dim=5, budget=300)
    result = extract_from_noisy(oracle, rng=1)
    assert result.status is Status.BUDGET_EXHAUSTED
    assert target.asked <= 300


def test_the_same_seed_gives_the_same_network():
    first, second = (Deployed((12, 6, 1), 0).extract(4) for _ in range(2))
    assert first.network == second.network


@pytest.mark.parametrize(
    ("kind", "decimals", "expected"),
    [("values", None, "values"), ("softmax", None, "softmax"), ("softmax", 4, "softmax")],
)
def test_answers_are_what_they_look_like(kind, decimals, expected):
    target = Deployed((8, 4, 3), 2, kind=kind, decimals=decimals)
    oracle = remembered(connect(target, input_dim=8, output_dim=3))
    answers = Answers.look(oracle, "auto", np.random.default_rng(0))
    assert answers.kind == expected
    assert answers.single
    assert answers.step == (0.0 if decimals is None else 10.0**-decimals)
    x = np.random.default_rng(1).standard_normal((2000, 8))
    seen = answers.ask(x)
    np.testing.assert_array_equal(seen.x, x.astype(np.float32))
    exact = target.logits(seen.x)
    if kind == "softmax":
        exact = scipy.special.softmax(exact, axis=1)
    if decimals is not None:  # rounding is uniform: its deviation is known
        ratio = (seen.y - exact) / answers.deviation(seen)
        assert np.sqrt(np.mean(ratio**2)) == pytest.approx(1.0, abs=0.3)


def test_rounded_rows_need_not_sum_to_one():
    assert between_zero_and_one(np.array([[0.3333, 0.3333, 0.3333]]))
    assert not between_zero_and_one(np.array([[0.33333, 0.33333, 0.3]]))
    assert not between_zero_and_one(np.array([[1.0, 1.0, 0.0]]))


def test_turning_units_over_removes_the_skip_term():
    rng = np.random.default_rng(0)
    w, u, b = rng.standard_normal((6, 5)), rng.standard_normal((2, 6)), rng.standard_normal(6)
    plain = Layered((w, u), (b, np.zeros(2)))
    turn = np.array([1, 0, 0, 1, 1, 0], dtype=bool)
    sign = np.where(turn, -1.0, 1.0)
    # relu(z) = z + relu(-z)
    turned = Layered(
        (w * sign[:, None], u), (b * sign, u[:, turn] @ b[turn]), u[:, turn] @ w[turn]
    )
    x = rng.standard_normal((50, 5))
    np.testing.assert_allclose(turned(x), plain(x), atol=1e-12)
    found = without_skip(turned)
    assert found is not None
    net, rest = found
    assert net.skip is None
    assert rest < 1e-12
    np.testing.assert_allclose(net(x), plain(x), atol=1e-12)
    assert without_skip(Layered((rng.standard_normal((30, 5)), np.ones((1, 30))),
                                (np.zeros(30), np.zeros(1)), np.ones((1, 5)))) is None  # fmt: skip


def test_seen_is_joined_and_parted():
    one = Seen(np.zeros((2, 3)), np.ones((2, 1)))
    both = Seen.joined([one, one])
    assert len(both) == 4
    assert len(both.part(np.array([True, False, False, True]))) == 2
