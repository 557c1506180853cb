"""Learning a network in two halves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.modular import ModularResult, learn_modular
from unrelu.result import RecoveryResult, Status


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
