"""Torch modules and TorchScript files; skipped where torch is not installed.

Torch has an environment of its own: ``make environments``, then ``make torch``.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from one_network import NETWORK, check_same

from unrelu import InvalidInput, connect

torch = pytest.importorskip("torch", reason="run: make environments torch")

X = np.random.default_rng(0).standard_normal((40, 10))


def test_a_module_is_recovered_like_a_callable():
    module = NETWORK.to_torch()
    oracle = connect(module)
    assert oracle.input_dim == 10
    # Two orders of summation differ by a few roundings of the largest term.
    assert np.abs(oracle(X) - NETWORK(X)).max() < 1e-13
    check_same(oracle)


def test_a_float32_module_is_recovered_at_its_precision():
    check_same(connect(NETWORK.to_torch().float()), error=1e-4)


def test_a_torchscript_file_answers_alike_and_checkpoints_stay_closed(tmp_path):
    module = NETWORK.to_torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates TorchScript; files are in use
        torch.jit.trace(module, torch.zeros(1, 10, dtype=torch.float64)).save(tmp_path / "m.pt")
    assert np.array_equal(connect(str(tmp_path / "m.pt"))(X), connect(module)(X))
    torch.save(module.state_dict(), tmp_path / "checkpoint.pt")
    with pytest.raises(InvalidInput, match="not opened"):
        connect(str(tmp_path / "checkpoint.pt"))
    with pytest.raises(InvalidInput, match="no file"):
        connect(str(tmp_path / "none.pt"))


def test_modes_types_and_shapes_are_respected():
    dropout = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(12, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5),
        torch.nn.Linear(4, 2),
    )  # fmt: skip
    dropout.train()
    oracle = connect(dropout, shape=(3, 2, 2))
    x = np.random.default_rng(0).standard_normal((7, 12))
    assert np.array_equal(oracle(x), oracle(x))
    assert dropout.training
    single = oracle(x).astype(np.float32).astype(np.float64)
    assert np.array_equal(single, oracle(x))  # a float32 model answers in float32
    with pytest.raises(InvalidInput, match="--shape"):
        connect(torch.nn.Conv2d(3, 2, 2))


def test_identities_tell_weights_apart():
    torch.manual_seed(0)
    one, two = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    assert connect(one).identity != connect(two).identity
    two.load_state_dict(one.state_dict())
    assert connect(one).identity == connect(two).identity
