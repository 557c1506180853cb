import numpy as np
import pytest
import scipy.special

import exact_sums
from unrelu.errors import InvalidInput, OracleError
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle, connect
from unrelu.oracles.wrappers import Cast, Labels, Noisy, Rounded
from unrelu.planted import HOSTILE, random_network
from unrelu.result import RecoveryResult, Status
from unrelu.span.algorithm import (
    SpanConfig,
    SpanPlan,
    SpanResult,
    recover_span,
    recover_span_from_replies,
)
from unrelu.span.subspace import largest_principal_angle

ACTIVATIONS = {
    "tanh": np.tanh,
    "softplus": lambda z: np.logaddexp(0, z),
    "sigmoid": scipy.special.expit,
}


class Counted:
    """A callable that counts its own rows."""

    def __init__(self, function):
        self.function, self.rows = function, 0

    def __call__(self, x):
        self.rows += len(x)
        return self.function(x)


def smooth(name, n, k, seed, dtype=np.float64):
    g = np.random.default_rng(seed)
    act = ACTIVATIONS[name]
    a = (1.5 * g.standard_normal((k, n)) / np.sqrt(n)).astype(dtype)
    b = (1.5 * g.standard_normal((k, k)) / np.sqrt(k)).astype(dtype)
    c = (g.standard_normal((1, k)) / np.sqrt(k)).astype(dtype)

    def network(x):
        return act(act(x.astype(dtype) @ a.T) @ b.T) @ c.T

    cut = float(np.median(network(g.standard_normal((2000, n)))))
    return network, cut, a.astype(np.float64)


def angle(result, truth):
    return largest_principal_angle(result.basis, truth)


# ------------------------------------------------------------------------- values


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "widths",
    [(30, 8, 1), (60, 12, 10, 8, 3), (100, 20, 15, 5), (12, 12, 1), (8, 20, 1), (5, 1, 1)],
)
def test_relu_networks_of_any_depth(widths, seed):
    net = random_network(*widths, rng=seed)
    counted = Counted(net)
    result = recover_span(connect(counted, input_dim=widths[0]), rng=seed)
    truth = np.linalg.svd(net.weights[0])[2][: min(widths[:2])]
    assert result.status is Status.RECOVERED, result.message
    assert result.rank == len(truth)
    # Asked for: 1e-8. The estimate must not flatter by more than an order of magnitude.
    assert angle(result, truth) < max(1e-8, 10 * result.angle)
    assert angle(result, truth) < 1e-7
    assert result.network is None
    # `connect` asks once to learn the number of outputs.
    assert result.queries.total == counted.rows == sum(result.queries.by_stage.values())


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_smooth_networks(name, seed):
    network, _, truth = smooth(name, 40, 6, seed)
    result = recover_span(connect(network, input_dim=40), rng=seed)
    assert result.success, result.message
    assert angle(result, truth) < 1e-8


def test_one_output_or_all_of_them():
    net = random_network(120, 24, 20, 12, rng=0)
    one = recover_span(net, outputs=0, rng=0)
    every = recover_span(net, rng=0)
    for result in (one, every):
        assert result.success
        assert angle(result, net.weights[0]) < 1e-8
    assert one.queries.by_stage["gradients"] > 3 * every.queries.by_stage["gradients"]
    # About r·n for one output; screening costs a few dozen queries a direction.
    assert one.queries.by_stage["gradients"] < 1.5 * 24 * 120


@pytest.mark.parametrize(
    ("wrap", "bound"),
    [
        (lambda o: Cast(o, "float32"), 1e-3),
        (lambda o: Rounded(o, 6), 1e-3),
        (lambda o: Noisy(o, 1e-7, seed=1), 1e-3),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_coarse_answers(wrap, bound, seed):
    net = random_network(60, 10, 8, 1, rng=seed)
    result = recover_span(wrap(as_oracle(net)), rng=seed)
    assert result.success, result.message
    assert angle(result, net.weights[0]) < bound


def test_biases_and_scales_of_inputs():
    net = random_network(40, 6, 1, rng=1)
    shrunk = ReLUNetwork([net.weights[0] * 100, net.weights[1]], net.biases)  # inputs of size 0.01
    result = recover_span(shrunk, scale=0.01, rng=0)
    assert result.success
    assert angle(result, net.weights[0]) < 1e-7


def test_rescaling_and_permuting_neurons_changes_nothing_seen():
    net = random_network(25, 5, 1, rng=3)
    order, size = np.array([3, 0, 4, 1, 2]), np.array([2.0, 0.5, 4.0, 1.0, 8.0])
    other = ReLUNetwork(
        [(net.weights[0] * size[:, None])[order], (net.weights[1] / size)[:, order]],
        [(net.biases[0] * size)[order], net.biases[1]],
    )
    first, second = recover_span(net, rng=0), recover_span(other, rng=0)
    assert first.success
    assert second.success
    assert largest_principal_angle(first.basis, second.basis) < 1e-8


def test_same_seed_same_bits():
    net = random_network(30, 6, 2, rng=0)
    first, second = recover_span(net, rng=5), recover_span(net, rng=5)
    np.testing.assert_array_equal(first.basis, second.basis)
    assert first.queries == second.queries
    assert recover_span(net, rng=6).basis.shape == first.basis.shape


def test_a_unit_that_is_usually_off_is_found_by_long_steps():
    # One unit fires on 2 % of Gaussian inputs only.
    g = np.random.default_rng(0)
    w = np.linalg.qr(g.standard_normal((30, 5)))[0].T
    net = ReLUNetwork([w, np.ones((1, 5))], [np.array([0, 0, 0, 0, -2.05]), np.zeros(1)])
    found = [recover_span(net, rng=seed) for seed in range(8)]
    assert sum(r.rank == 5 for r in found) >= 6
    for r in found:
        assert r.rank == 5 or not r.success


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_networks_are_never_given_a_false_direction(name):
    for seed in range(2):
        net = HOSTILE[name](seed)
        rows = net.weights[0] if net.skip is None else np.vstack([net.weights[0], net.skip])
        _, s, v = np.linalg.svd(rows)
        truth = v[: np.count_nonzero(s > 1e-12 * max(s[0], 1e-300))]
        result = recover_span(net, rng=seed)
        outside = result.basis - (result.basis @ truth.T) @ truth
        assert np.linalg.norm(outside) < 1e-6 or not result.success
        if result.success and result.rank < len(truth):
            # Fewer directions are fine where Gaussian inputs don't show more.
            assert result.certificate is not None
            assert result.certificate.exceeding == 0


# --------------------------------------------------------------- statuses and input


def test_constant_target():
    result = recover_span(connect(lambda x: np.ones(len(x)), input_dim=6), rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert result.basis.shape == (0, 6)
    assert result.null_space().shape == (6, 6)


def test_labels_taken_for_values():
    result = recover_span(Labels(as_oracle(random_network(10, 5, 3, rng=0))), rng=0)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "answers='labels'" in result.message


def test_random_answers():
    rng = np.random.default_rng(0)
    result = recover_span(connect(lambda x: rng.standard_normal(len(x)), input_dim=6), rng=0)
    assert not result.success
    result = recover_span(
        connect(lambda x: rng.integers(0, 2, len(x)), input_dim=6), answers="labels", rng=0
    )
    assert not result.success


def test_wrong_rank_given_is_partial():
    net = random_network(20, 4, 1, rng=0)
    result = recover_span(net, rank=6, rng=0)
    assert result.status is Status.PARTIAL
    assert result.rank == 4
    known = recover_span(net, rank=4, rng=0)
    assert known.success
    assert known.queries.total < recover_span(net, rng=0).queries.total


def test_heavy_noise_is_ill_conditioned_not_recovered():
    net = random_network(60, 20, 10, 1, rng=0)
    for sigma in (1e-3, 1e-2, 1e-1):
        result = recover_span(Noisy(as_oracle(net), sigma, seed=0), rng=0)
        assert not result.success or angle(result, net.weights[0]) < 0.1


@pytest.mark.parametrize("answers", ["values", "labels"])
@pytest.mark.parametrize("budget", [1, 10, 500, 1200, 3000, 20_000])
def test_budget_ends_with_what_was_found(answers, budget):
    net = random_network(40, 10, 3, rng=0)
    counted = Counted(net if answers == "values" else lambda x: net(x).argmax(1))
    oracle = connect(counted, input_dim=40, output_dim=3 if answers == "values" else 1,
                     budget=budget)  # fmt: skip
    result = recover_span(oracle, answers=answers, rng=0)
    assert counted.rows <= budget
    assert result.queries.total == counted.rows
    if result.status is Status.BUDGET_EXHAUSTED:
        assert result.basis.shape[1] == 40
        outside = result.basis - result.project(result.basis)
        assert np.linalg.norm(outside) < 1e-12 * 40
    else:
        assert result.success


def test_budget_zero():
    oracle = connect(random_network(5, 3, 1, rng=0), budget=0)
    for answers in ("values", "labels"):
        result = recover_span(oracle, answers=answers, rng=0)
        assert result.status is Status.BUDGET_EXHAUSTED
        assert result.queries.total == 0


def test_nan_answers_raise():
    oracle = connect(lambda x: np.full(len(x), np.nan), input_dim=3, output_dim=1)
    with pytest.raises(OracleError):
        recover_span(oracle, rng=0)


def test_a_failure_midway_raises():
    net = random_network(20, 5, 1, rng=0)
    state = {"left": 5}

    def flaky(x):
        state["left"] -= 1
        if state["left"] < 0:
            raise ConnectionError("gone")
        return net(x)

    with pytest.raises(OracleError, match="gone"):
        recover_span(connect(flaky, input_dim=20), rng=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 99}, "rank"),
        ({"answers": "both"}, "answers"),
        ({"answers": "labels"}, "one column"),
        ({"outputs": 3}, "outputs"),
        ({"outputs": "first"}, "outputs"),
        ({"outputs": True}, "outputs"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"scale": 0.0}, "scale"),
        ({"adaptive": False}, "gradients"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(InvalidInput, match=words):
        recover_span(random_network(6, 3, 2, rng=0), **options)


# ------------------------------------------------------------------ result and plan


def test_result_projects_and_survives_saving(tmp_path):
    net = random_network(20, 4, 2, rng=0)
    result = recover_span(net, rng=0)
    x = np.random.default_rng(1).standard_normal((5, 20))
    np.testing.assert_allclose(net(result.project(x)), net(x), atol=1e-7)
    np.testing.assert_allclose(result.project(x[0]), result.project(x)[0])
    both = np.concatenate([result.basis, result.null_space()])
    np.testing.assert_allclose(both @ both.T, np.eye(20), atol=1e-12)
    again = RecoveryResult.load(result.save(tmp_path / "span.safetensors"))
    assert isinstance(again, SpanResult)
    np.testing.assert_array_equal(again.basis, result.basis)
    np.testing.assert_array_equal(again.rank_history, result.rank_history)
    assert (again.gap, again.angle, again.rank) == (result.gap, result.angle, 4)
    assert result.singular_values[0] == 1.0
    assert result.singular_values[3] > result.noise_floor
    with pytest.raises(InvalidInput, match="20 inputs"):
        result.project(np.zeros(3))


def test_whole_space_has_no_null_space():
    result = recover_span(random_network(4, 20, 1, rng=0), rng=0)
    assert result.success
    assert "no null space" in result.message
    assert result.null_space().shape == (0, 4)


def test_certificate_is_a_stage_of_its_own():
    net = random_network(15, 3, 1, rng=0)
    result = recover_span(net, rng=0)
    assert result.certificate is not None
    assert result.certificate.samples == 300
    assert result.queries.by_stage["certificate"] == 600
    without = recover_span(net, rng=0, certify=False)
    assert without.certificate is None
    np.testing.assert_array_equal(without.basis, result.basis)


def test_plan_and_replies(tmp_path):
    net = random_network(40, 8, 6, 2, rng=0)
    plan = SpanPlan.draw(40, gradients=15, rng=0)
    path = plan.write(tmp_path / "queries.npy")
    np.save(tmp_path / "replies.npy", net(np.load(path)))
    result = recover_span_from_replies(path, tmp_path / "replies.npy")
    assert result.success, result.message
    assert angle(result, net.weights[0]) < 1e-8
    assert result.queries.total == len(plan)
    single = recover_span_from_replies(np.load(path), net(np.load(path)), outputs=1)
    assert single.rank == 8
    online = recover_span(net, adaptive=False, gradients=15, rng=0)
    assert online.success
    assert online.queries.without_certificate == len(plan)


def test_too_few_gradients_are_partial():
    net = random_network(40, 8, 1, rng=0)
    result = recover_span(net, adaptive=False, gradients=8, rng=0)
    assert result.status is Status.PARTIAL


def test_replies_that_do_not_fit(tmp_path):
    plan = SpanPlan.draw(5, gradients=2, rng=0)
    x = np.concatenate([plan.points(0), plan.points(1)])
    with pytest.raises(InvalidInput, match="belong together"):
        recover_span_from_replies(x, np.zeros(3))
    with pytest.raises(InvalidInput, match="blocks"):
        recover_span_from_replies(x[:-1], np.zeros(len(x) - 1))
    with pytest.raises(InvalidInput, match="NaN"):
        recover_span_from_replies(x, np.full(len(x), np.nan))
    with pytest.raises(InvalidInput, match="cannot read"):
        recover_span_from_replies(tmp_path / "none.npy", np.zeros(3))
    silent = recover_span_from_replies(x, np.zeros(len(x)))
    assert silent.status is Status.ASSUMPTION_VIOLATED
    for bad in ({"gradients": 0}, {"gradients": 1, "step": 0.0}, {"gradients": 1, "scale": -1}):
        with pytest.raises(InvalidInput):
            SpanPlan.draw(5, **bad)


# ------------------------------------------------------------------------- labels


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_labels_of_smooth_networks(name, seed):
    network, cut, truth = smooth(name, 50, 10, seed)
    counted = Counted(lambda x: (network(x) > cut).astype(float))
    result = recover_span(connect(counted, input_dim=50), answers="labels", rng=seed)
    assert result.success, result.message
    assert result.rank == 10
    assert angle(result, truth) < 1e-10
    assert result.queries.total == counted.rows
    assert result.queries.without_certificate < 100_000


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_labels_in_single_precision(name):
    network, cut, truth = smooth(name, 50, 10, 1, np.float32)
    oracle = Labels(connect(network, input_dim=50), threshold=cut)
    result = recover_span(oracle, answers="labels", rng=0)
    assert result.success, result.message
    assert angle(result, truth) < 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_argmax_of_a_relu_network(seed):
    net = random_network(60, 8, 8, 5, rng=seed)
    result = recover_span(Labels(as_oracle(net)), answers="labels", rng=seed)
    assert not result.success or result.rank == 8
    assert result.rank == 8, result.message
    assert angle(result, net.weights[0]) < 1e-8


def test_labels_that_occur_at_another_scale():
    w = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 3)))[0].T

    def label(x):
        return (np.sum((x @ w.T) ** 2, axis=1) > 30.0**2).astype(float)

    result = recover_span(connect(label, input_dim=20), answers="labels", rng=0)
    assert result.success, result.message
    assert angle(result, w) < 1e-10
    single = recover_span(connect(lambda x: np.ones(len(x)), input_dim=4), answers="labels", rng=0)
    assert single.status is Status.ASSUMPTION_VIOLATED


def test_known_rank_with_labels():
    network, cut, truth = smooth("tanh", 30, 4, 2)
    oracle = Labels(connect(network, input_dim=30), threshold=cut)
    result = recover_span(oracle, rank=4, answers="labels", rng=0)
    assert result.success
    assert angle(result, truth) < 1e-10
    oracle = Labels(connect(network, input_dim=30), threshold=cut)
    more = recover_span(oracle, rank=7, answers="labels", rng=0)
    assert more.status is Status.PARTIAL


def test_progress_and_configuration():
    seen = []

    class Watch:
        def update(self, stage, done, total=None, note=""):
            seen.append(stage)

    net = random_network(30, 5, 1, rng=0)
    config = SpanConfig(held_out=30)
    result = recover_span(net, rng=0, progress=Watch(), config=config)
    assert result.certificate is not None
    assert result.certificate.samples == 30
    assert "gradients" in seen
    assert "10 points in a row" in result.message
    assert [s.name for s in result.stages][:3] == ["plan", "noise", "gradients"]
    assert sum(s.queries for s in result.stages) == result.queries.total


@pytest.mark.parametrize("answers", ["values", "labels"])
def test_a_ledger_resumes_after_the_budget(answers, tmp_path):
    net = random_network(30, 5, 3, rng=0)

    def target(x):
        # A resumed run asks in other batches: only a target that answers row by row is the same.
        found = exact_sums.evaluate(net, x)
        return found if answers == "values" else found.argmax(1)

    counted = Counted(target)

    def run(budget):
        oracle = connect(
            counted, input_dim=30, budget=budget, ledger=tmp_path / "book", name="target"
        )
        return recover_span(oracle, answers=answers, rng=4)

    assert run(700).status is Status.BUDGET_EXHAUSTED
    resumed = run(None)
    assert resumed.success, resumed.message
    assert counted.rows == resumed.queries.total
    once = recover_span(connect(target, input_dim=30), answers=answers, rng=4)
    np.testing.assert_array_equal(resumed.basis, once.basis)
    before = counted.rows
    again = run(None)
    assert counted.rows == before + 3  # those that tell whether it is the same model
    assert again.queries.by_stage["identity"] == 2 * 3
    np.testing.assert_array_equal(again.basis, resumed.basis)


def _with_rare_unit(seed: int) -> ReLUNetwork:
    """Plant a third unit, on at one input in 200, whose large bias makes rounding grow."""
    rows = np.linalg.qr(np.random.default_rng(seed).standard_normal((6, 6)))[0][:3]
    biases = [np.array([0.2, -0.1, -2.6]), np.zeros(1)]
    return ReLUNetwork([rows, np.array([[1.0, -1.0, 3.0]])], biases)


@pytest.mark.parametrize("seed", range(8))
def test_rounding_that_grows_where_a_rare_unit_is_on_hides_no_direction(seed):
    network = _with_rare_unit(seed)
    result = recover_span(network, rng=seed)
    assert result.status is Status.RECOVERED, result.message
    assert result.rank == 3
    # the angle is an estimate to within 3; ten leaves room
    assert largest_principal_angle(result.basis, network.weights[0]) < 10 * result.angle


def test_a_certificate_that_fails_leads_the_search_on():
    """A thin bump that the search misses shows in the certificate, and is then followed."""
    rng = np.random.default_rng(0)
    base = random_network(4, 2, 1, rng=rng)
    v = np.linalg.qr(rng.standard_normal((4, 4)))[0][:1]
    width = 0.004
    bump = np.array([width, 0.0, -width]) - 0.3
    network = ReLUNetwork(
        [
            np.concatenate([base.weights[0], np.repeat(v, 3, axis=0)]),
            np.concatenate([base.weights[1], [[100.0, -200.0, 100.0]]], axis=1),
        ],
        [np.concatenate([base.biases[0], bump]), np.zeros(1)],
    )
    results = [recover_span(network, rng=seed) for seed in range(12)]
    led_on = [
        r
        for r in results
        if [s.name for s in r.stages].count("certificate") > 1 and r.status is Status.RECOVERED
    ]
    assert led_on
    for result in led_on:
        assert result.rank == 3
        assert result.certificate is not None
        assert result.certificate.exceeding == 0
        # the failed certificate's rows belong to the search
        assert result.queries.by_stage["certificate"] == 2 * result.certificate.samples
