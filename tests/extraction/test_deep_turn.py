import numpy as np
import pytest

from unrelu import planted
from unrelu.extraction.deep_turn import turn_units
from unrelu.networks import ReLUNetwork


def turned_with_carriers(truth, rng, extra=None):
    """Turn half of the second layer round; two units per output carry what that leaves."""
    (w, v, u), (b, c, a) = truth.weights, truth.biases
    m = len(u)
    turn = rng.uniform(size=len(v)) < 0.5
    linear, constant = u[:, turn] @ v[turn], a + u[:, turn] @ c[turn]
    if extra is not None:
        linear = linear + extra
    sign = np.where(turn, -1.0, 1.0)
    lift = 3.0 * np.abs(linear).max()
    upper = np.concatenate([sign[:, None] * v, np.maximum(linear, 0.0), np.maximum(-linear, 0.0)])
    biases = np.concatenate([sign * c, np.full(2 * m, lift)])
    outer = np.concatenate([u, np.eye(m), -np.eye(m)], axis=1)
    return ReLUNetwork([w, upper, outer], [b, biases, constant])


@pytest.mark.parametrize("shape", [(6, 5, 5, 1), (6, 4, 9, 1), (8, 5, 14, 3), (4, 3, 1, 1)])
def test_orientations_explain_the_affine_term(shape):
    rng = np.random.default_rng(1)
    truth = planted.random_network(*shape, rng=2)
    carried = turned_with_carriers(truth, rng)
    x = rng.standard_normal((500, shape[0]))
    np.testing.assert_allclose(carried(x), truth(x), atol=1e-12)
    found = turn_units(carried, shape[2])
    assert found is not None
    assert found.hidden_widths == truth.hidden_widths
    np.testing.assert_allclose(found(x), truth(x), atol=1e-12)


def test_units_that_never_switch_keep_their_carriers():
    rng = np.random.default_rng(3)
    truth = planted.random_network(6, 5, 5, 1, rng=4)
    extra = rng.standard_normal((1, 5))
    assert turn_units(turned_with_carriers(truth, rng, extra), 5) is None


def test_too_many_orientations_are_left_alone():
    rng = np.random.default_rng(5)
    truth = planted.random_network(4, 3, 60, 1, rng=6)
    assert turn_units(turned_with_carriers(truth, rng), 60) is None


@pytest.mark.parametrize("outputs", [1, 3])
def test_no_unit_that_switches_leaves_the_carriers(outputs):
    rng = np.random.default_rng(7)
    none = planted.random_network(4, 3, 2, outputs, rng=8)
    (w, _, u), (b, _, a) = none.weights, none.biases
    bare = ReLUNetwork([w, np.empty((0, 3)), u[:, :0]], [b, np.empty(0), a])
    carried = turned_with_carriers(bare, rng, rng.standard_normal((outputs, 3)))
    assert turn_units(carried, 0) is None
