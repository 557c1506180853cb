"""The learner called directly: every answer of the run counts, those before it too."""

import numpy as np
import pytest

import unrelu
from unrelu import Status, planted
from unrelu.core.record import remembered
from unrelu.learner.config import LearnerConfig
from unrelu.learner.run import Learning


class Counted:
    """A target that answers as another one from a number of rows on."""

    def __init__(self, before, after, rows):
        self.before, self.after, self.rows, self.seen = before, after, rows, 0

    def __call__(self, x):
        number = np.arange(self.seen, self.seen + len(x))
        self.seen += len(x)
        return np.where((number < self.rows)[:, None], self.before(x), self.after(x))


@pytest.mark.parametrize("rows", [50, 150, 500, 1000, 2500])
def test_a_service_that_falls_back_is_never_recovered(rows):
    network = planted.random_network(8, 6, 1, rng=rows)
    service = Counted(network, lambda x: np.full((len(x), 1), 0.25), rows)
    result = unrelu.learn_from_queries(
        unrelu.connect(service, input_dim=8), epsilon=1e-3, rng=rows
    )
    assert not result.success


@pytest.mark.parametrize("bounds", [{}, {"width": 4, "norm_bound": 10.0}])
def test_answers_before_the_run_that_contradict_it_are_told(bounds):
    shown = [planted.random_network(6, 4, 1, rng=20)]
    oracle = remembered(unrelu.connect(lambda x: shown[0](x), input_dim=6))
    oracle(np.random.default_rng(0).standard_normal((40, 6)))
    shown[0] = planted.random_network(6, 4, 1, rng=21)
    result = unrelu.learn_from_queries(oracle, epsilon=1e-3, rng=1, **bounds)
    assert result.status is Status.ASSUMPTION_VIOLATED
    assert "answers of the run disagree with the network" in result.message
    assert "answered differently" in result.message
    details = next(s.details for s in result.stages if s.name == "explanation")
    assert details["contradicting"] >= 30  # two networks agree within 5 epsilon by chance only
    assert result.queries.by_stage["explanation"] == 8


@pytest.mark.parametrize("seed", [1, 2])
def test_what_the_run_has_seen_is_where_the_search_goes_on(seed, monkeypatch):
    # A bump of width 1e-4 beside a network is far below what samples would meet by chance.
    # Whether a line through it shows it hangs on last bits; that lines go through it does not.
    beside = planted.random_network(5, 3, 1, rng=seed)
    bump = planted.bump(5, width=1e-4, rng=seed)
    row, bias = bump.weights[0][1], bump.biases[0][1]

    def truth(x):
        return beside(x) + 1e-3 * bump(x)

    inside = np.random.default_rng(seed).standard_normal((4, 5))
    inside -= np.outer((inside @ row + bias) / (row @ row), row)
    assert (np.abs(truth(inside) - beside(inside)) > 0.1).all()
    through = []
    search = Learning.search_through

    def noted(run, neurons, point):
        through.append(point.tobytes())
        return search(run, neurons, point)

    monkeypatch.setattr(Learning, "search_through", noted)
    oracle = remembered(unrelu.connect(truth, input_dim=5))
    oracle(inside)
    config = LearnerConfig(probes=10)  # or rounding gives it away, and a sample meets it
    result = unrelu.learn_from_queries(oracle, epsilon=1e-3, rng=seed, config=config)
    assert {point.tobytes() for point in inside} & set(through)
    assert result.network is not None
    if np.abs(result.network(inside) - truth(inside)).max() > 0.05:
        assert not result.success


def test_nothing_is_asked_where_every_answer_agrees():
    oracle = unrelu.connect(planted.random_network(6, 4, 1, rng=12), input_dim=6)
    result = unrelu.learn_from_queries(oracle, epsilon=1e-3, rng=2)
    assert result.success
    assert "explanation" not in result.queries.by_stage
