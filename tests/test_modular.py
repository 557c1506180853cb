"""Learning a network in two halves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.modular import ModularResult, learn_modular
from unrelu.result import RecoveryResult, Status
from unrelu.thresholds.flat import plane_freedom, roomiest_plane


@pytest.mark.parametrize("activation", ["sign", "relu"])
def test_both_parts_are_learned(activation: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    c = np.triu(rng.uniform(0, 1, (5, 5)), 1)

    def f(x: np.ndarray) -> np.ndarray:
        heights = x @ q.T - 1.9
        units = (heights > 0).astype(float) if activation == "sign" else np.maximum(heights, 0.0)
        return 0.5 + units.sum(axis=1) + ((units @ c) * units).sum(axis=1)

    x = rng.standard_normal((200_000, 5))
    result = learn_modular(x, f(x), activation=activation, rng=0)  # type: ignore[arg-type]
    assert result.status is Status.RECOVERED
    chords = np.linalg.norm(result.directions[:, None] - q[None], axis=2).min(axis=1)
    # n / (count phi(1.9)) = 4e-4 rad, times six.
    assert chords.max() < 2.5e-3
    fresh = rng.standard_normal((20_000, 5))
    error = np.sqrt(np.mean((result.predict(fresh) - f(fresh)) ** 2)) / f(fresh).std()
    # A sign unit jumps: a wedge of mass 5 phi(1.9) 5e-4 = 1.6e-4 is wrong by about 2 spreads.
    assert error < 0.06
    assert result.certificate is not None
    loaded = RecoveryResult.load(result.save(tmp_path / "m.safetensors"))
    assert isinstance(loaded, ModularResult)
    assert (loaded.predict(fresh) == result.predict(fresh)).all()


def test_nothing_to_learn_and_bad_input() -> None:
    x = np.random.default_rng(1).standard_normal((5000, 3))
    assert learn_modular(x, np.zeros(5000), rng=0).status is not Status.RECOVERED
    with pytest.raises(InvalidInput, match="activation"):
        learn_modular(x, x[:, 0], activation="tanh")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="degree"):
        learn_modular(x, x[:, 0], degree=0)
    with pytest.raises(InvalidInput, match="read twice"):
        learn_modular(iter([(x, x[:, 0])]))


def middle_cut(seed: int, n: int = 6, p: int = 5, k: int = 3) -> tuple:
    """A ReLU layer, sign units on top of it that are on at 2 %, and products above those."""
    rng = np.random.default_rng([seed, 41])
    w, b = rng.standard_normal((p, n)) / np.sqrt(n), rng.uniform(0.0, 0.5, p)
    v = rng.standard_normal((k, p))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    c, single = np.triu(rng.uniform(0, 1, (k, k)), 1), rng.uniform(0.5, 1.5, k)

    def lower(x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ w.T + b, 0.0)

    t = np.quantile(lower(rng.standard_normal((100_000, n))) @ v.T, 0.98, axis=0)

    def f(x: np.ndarray) -> np.ndarray:
        units = (lower(x) @ v.T > t).astype(float)
        return 0.5 + units @ single + ((units @ c) * units).sum(axis=1)

    return lower, f, (w, b, v, t)


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_in_the_middle(seed: int, tmp_path: Path) -> None:
    lower, f, (_, _, v, t) = middle_cut(seed)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((150_000, 6))
    # Seen from x the units are no halfspaces.
    assert learn_modular(x, f(x), rng=0).status is not Status.RECOVERED
    result = learn_modular(x, f(x), lower=lower, rng=0)
    assert result.status is Status.RECOVERED, result.message
    gaps = np.linalg.norm(result.directions[:, None] - v[None], axis=2)
    order = gaps.argmin(axis=1)
    assert sorted(order) == [0, 1, 2]
    # n / (count phi) of a unit that is on at 2 %: 5 / (150,000 * 0.05) = 7e-4, times the
    # condition of the ReLUs' covariance (3) and six standard errors.
    assert gaps.min(axis=1).max() < 0.02
    np.testing.assert_allclose(result.thresholds, t[order], atol=0.05)
    fresh = rng.standard_normal((20_000, 6))
    wrong = np.mean(np.abs(result.predict(fresh) - f(fresh)) > 0.1)
    assert wrong < 1e-3
    assert 0.0 < result.overlap < 0.5
    again = RecoveryResult.load(result.save(tmp_path / "cut.safetensors"))
    assert isinstance(again, ModularResult)
    assert again.lower is None
    assert (again.predict(lower(fresh)) == result.predict(fresh)).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_behind_two_layers(seed: int) -> None:
    """Behind two layers of ReLUs inputs of the cut are often 0, and some weights stay open."""
    rng = np.random.default_rng([seed, 43])
    n, p, k = 6, 5, 3
    w, b = rng.standard_normal((p, n)) / np.sqrt(n), rng.uniform(0.0, 0.5, p)
    u, v = rng.standard_normal((p, p)) / np.sqrt(p), rng.standard_normal((k, p))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    single = rng.uniform(0.5, 1.5, k)

    def lower(x: np.ndarray) -> np.ndarray:
        return np.maximum(np.maximum(x @ w.T + b, 0.0) @ u.T + 0.5, 0.0)

    t = np.quantile(lower(rng.standard_normal((100_000, n))) @ v.T, 0.98, axis=0)

    def f(x: np.ndarray) -> np.ndarray:
        units = (lower(x) @ v.T > t).astype(float)
        return units @ single + units.prod(axis=1)

    x, fresh = rng.standard_normal((100_000, n)), rng.standard_normal((20_000, n))
    result = learn_modular(x, f(x), lower=lower, rng=0)
    explained = result.message.partition(" explain ")[2].split(" of ")
    assert explained[0] == explained[1].split()[0], result.message
    # A unit's plane moves by about n / (count phi) = 5 / 5000, where 2 % of the mass lie beyond
    # 0.4 inputs' height: 1e-3 of the labels.
    assert np.mean(np.abs(result.predict(fresh) - f(fresh)) > 0.1) < 2e-3
    if result.success:
        gaps = np.linalg.norm(result.directions[:, None] - v[None], axis=2).min(axis=1)
        assert gaps.max() < 0.05  # what the status promises
    else:
        assert result.status is Status.PARTIAL
        assert "turn by" in result.message or "stays open" in result.message


def test_the_freedom_of_a_plane() -> None:
    """Points beside x_1 = 0 at heights h and -g, abscissae +-s: it can turn by (h + g) / 2s."""
    h, g, s = 0.1, 0.3, 2.0
    x = np.array([[h, s], [h, -s], [-g, s], [-g, -s]])
    free = plane_freedom(np.array([1.0, 0.0]), x[:, 0], x, np.eye(2))
    assert free == pytest.approx((h + g) / (2.0 * s))
    # In inputs of which the second is ten times smaller the same turn is ten times larger.
    wide = plane_freedom(np.array([1.0, 0.0]), x[:, 0], x, np.diag([1.0, 10.0]))
    assert wide == pytest.approx(10.0 * free)
    flat = x * [1.0, 0.0]
    assert plane_freedom(np.array([1.0, 0.0]), flat[:, 0], flat, np.eye(2)) == np.inf


def test_a_plane_that_touches_does_not_separate() -> None:
    x = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 3.0]])
    assert roomiest_plane(x, np.array([True, False, False, False]))[2] == 0.0
    normal, cut, room = roomiest_plane(x, np.array([False, False, False, True]))
    assert room > 0.0
    assert ((x @ normal - cut) * [-1, -1, -1, 1] >= room * (1.0 - 1e-9)).all()


def test_a_trunk_learned_by_another_method() -> None:
    from unrelu import learn_from_samples

    lower, f, _ = middle_cut(3)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((150_000, 6))
    # Another output of the same trunk: a depth-2 network, which the moments' method learns.
    trunk = learn_from_samples(x[:40_000], lower(x[:40_000]) @ rng.uniform(0.5, 1.5, 5), rng=0)
    assert trunk.success
    result = learn_modular(x, f(x), lower=trunk, rng=0)
    assert result.status is Status.RECOVERED, result.message
    fresh = rng.standard_normal((20_000, 6))
    assert np.mean(np.abs(result.predict(fresh) - f(fresh)) > 0.1) < 1e-3
    # A trunk that is not known exactly cannot give an exact network.
    half = learn_from_samples(x[:40_000], lower(x[:40_000]).sum(axis=1), rng=0, polish=False)
    assert learn_modular(x, f(x), lower=half, rng=0).status is not Status.RECOVERED


@pytest.mark.parametrize("seed", range(2))
def test_units_of_one_level_are_not_passed_over(seed: int) -> None:
    """Two units with one coefficient share a level that no hyperplane separates."""
    lower, _, (_, _, v, t) = middle_cut(seed)

    def f(x: np.ndarray) -> np.ndarray:
        return (lower(x) @ v.T > t).astype(float) @ np.array([1.0, 1.0, 1.7])

    x = np.random.default_rng(seed).standard_normal((100_000, 6))
    result = learn_modular(x, f(x), lower=lower, rng=0)
    assert result.status is Status.RECOVERED, result.message
    assert len(result.directions) == 3
    gaps = np.linalg.norm(result.directions[:, None] - v[None], axis=2).min(axis=0)
    assert gaps.max() < 0.05  # what the status promises


def test_a_wrong_or_silent_lower_part_is_told() -> None:
    _, f, _ = middle_cut(4)
    x = np.random.default_rng(4).standard_normal((60_000, 6))
    other = middle_cut(5)[0]
    assert learn_modular(x, f(x), lower=other, rng=0).status is not Status.RECOVERED
    with pytest.raises(InvalidInput, match="same output"):
        learn_modular(x, f(x), lower=lambda z: np.zeros((len(z), 2)))
    with pytest.raises(InvalidInput, match="must map"):
        learn_modular(x, f(x), lower=lambda z: z[:, 0])
