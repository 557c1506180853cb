"""From whatever a user has to an oracle with a meter, a ledger and a budget."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from unrelu.errors import InvalidInput, UnreluError
from unrelu.ledger import Ledger
from unrelu.networks import ReLUNetwork
from unrelu.oracles.adapters import CallableOracle, NetworkOracle, callable_identity
from unrelu.oracles.base import Adapter, Meter, Oracle, Wrapper
from unrelu.oracles.recorded import Recorded
from unrelu.oracles.wrappers import Batched

__all__ = ["as_oracle", "connect"]

DEFAULT_BATCH = 4096  # rows; bounds memory, and what a crash can lose


def connect(
    target: Any,
    *,
    input_dim: int | None = None,
    output_dim: int | None = None,
    name: str | None = None,
    budget: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    batch_size: int = DEFAULT_BATCH,
) -> Oracle:
    """Connect to a target and return the oracle that algorithms use.

    Parameters
    ----------
    target
        A Python callable from ``(n, d)`` to ``(n, m)`` or ``(n,)``, a
        :class:`ReLUNetwork`, an :class:`Oracle` (which gets the wrappers asked
        for here), the path of a saved network, or ``"module:function"``.
    input_dim
        d; needed for a bare callable, whose answers do not tell.
    output_dim
        m; found out with one query when not given.
    name
        The target's identity in the ledger; by default derived from the target.
    budget
        Rows that may be sent, over all runs of the ledger where there is one.
    ledger
        A :class:`Ledger` or its path: answers become durable, and a later run
        with the same seed asks nothing again.
    batch_size
        Rows per call to the target, at most.
    """
    if batch_size < 1:
        raise InvalidInput(f"batch_size must be at least 1, got {batch_size}")
    if budget is not None and (isinstance(budget, bool) or int(budget) != budget or budget < 0):
        raise InvalidInput(f"budget must be a whole number of queries, zero or more, got {budget}")
    book = Ledger(ledger) if isinstance(ledger, (str, os.PathLike)) else ledger
    if isinstance(target, (str, os.PathLike)):
        target = _resolve(os.fspath(target))

    if isinstance(target, Oracle):
        oracle, binding = target, None
        if name is not None:
            _adapter_of(oracle).identity = name
        if book is not None:
            binding = book.bind(oracle.identity, oracle.input_dim)
            oracle.meter.attach(binding)
        if budget is not None:
            oracle.meter.budget = budget
    elif isinstance(target, ReLUNetwork):
        oracle = NetworkOracle(target)
        if name is not None:
            oracle.identity = name
        binding = None if book is None else book.bind(oracle.identity, oracle.input_dim)
        oracle.meter = Meter(budget, binding)
    elif callable(target):
        if input_dim is None:
            raise InvalidInput(
                "a bare callable does not tell how many inputs it takes: "
                "pass connect(..., input_dim=d)"
            )
        identity = callable_identity(target) if name is None else name
        binding = None if book is None else book.bind(identity, input_dim)
        known = output_dim if binding is None else (output_dim or binding.output_dim)
        oracle = CallableOracle(
            target,
            input_dim=input_dim,
            output_dim=known,
            identity=identity,
            meter=Meter(budget, binding),
        )
        if known is None and binding is not None:
            origin = np.zeros((1, input_dim))
            binding.record(binding.keys(origin, 0), origin, oracle.origin_answer, 0)
    else:
        raise InvalidInput(
            f"cannot connect to a {type(target).__name__}: expected a callable, a ReLUNetwork, "
            "an Oracle, a saved network's path or 'module:function'"
        )
    if input_dim is not None and oracle.input_dim != input_dim:
        raise InvalidInput(f"the target takes {oracle.input_dim} inputs, not {input_dim}")
    if binding is not None:
        oracle = Recorded(oracle, binding)
    return Batched(oracle, batch_size)


def as_oracle(target: Any) -> Oracle:
    """Return an oracle for anything :func:`connect` accepts; an oracle as it is."""
    return target if isinstance(target, Oracle) else connect(target)


def _adapter_of(oracle: Oracle) -> Adapter:
    while isinstance(oracle, Wrapper):
        oracle = oracle.inner
    if not isinstance(oracle, Adapter):
        raise InvalidInput("this oracle has no adapter to name")
    return oracle


def _resolve(text: str) -> Any:
    """Turn a path or ``module:function`` into a target."""
    if Path(text).suffix == ".safetensors":
        return ReLUNetwork.load(text)
    module_name, colon, attribute = text.partition(":")
    if colon and module_name.replace(".", "").isidentifier() and attribute.isidentifier():
        if "" not in sys.path:
            sys.path.insert(0, "")  # modules beside the user, as `python -m` would find them
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise InvalidInput(f"cannot import {module_name!r}: {error}") from error
        except UnreluError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"importing {module_name!r} failed: {type(error).__name__}: {error}"
            ) from error
        try:
            return getattr(module, attribute)
        except AttributeError as error:
            raise InvalidInput(f"{module_name!r} has no {attribute!r}") from error
    raise InvalidInput(
        f"don't know how to connect to {text!r}: expected a saved network (.safetensors) "
        "or 'module:function'"
    )
