"""From whatever a user has to an oracle with a meter, a ledger and a budget."""

from __future__ import annotations

import importlib
import logging
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from unrelu._numbers import real_number, whole_number
from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput, UnreluError
from unrelu.ledger import Ledger, LedgerBinding
from unrelu.networks import Network
from unrelu.oracles.adapters import CallableOracle, NetworkOracle
from unrelu.oracles.base import DEFAULT_BATCH, Adapter, Oracle, Wrapper
from unrelu.oracles.estimators import EstimatorOracle, is_estimator, load_skops
from unrelu.oracles.http import HTTPOptions, HTTPOracle
from unrelu.oracles.input_map import Mapped, checked_range
from unrelu.oracles.onnx_file import OnnxOracle
from unrelu.oracles.recorded import Recorded
from unrelu.oracles.rows import as_rows
from unrelu.oracles.torch_module import TorchOracle, is_torch_module, load_torchscript
from unrelu.oracles.wrappers import Batched

__all__ = ["as_oracle", "connect"]


_log = logging.getLogger("unrelu")
_TORCHSCRIPT = {".pt", ".pth", ".ts", ".torchscript"}
_PICKLES = {".pkl", ".pickle", ".joblib"}


def connect(
    target: Any,
    *,
    input_dim: int | None = None,
    output_dim: int | None = None,
    output: str | None = None,
    shape: tuple[int, ...] | None = None,
    scale: ArrayLike = 1.0,
    input_range: tuple[ArrayLike, ArrayLike] | None = None,
    data: Any = None,
    name: str | None = None,
    budget: int | None = None,
    price: float | None = None,
    max_cost: float | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    batch_size: int = DEFAULT_BATCH,
    http: HTTPOptions | None = None,
) -> Oracle:
    """Connect to a target and return the oracle that algorithms use.

    Parameters
    ----------
    target
        A Python callable from ``(n, d)`` to ``(n, m)`` or ``(n,)`` (a JAX
        function is one), a torch module, a scikit-learn estimator, a
        :class:`Network`, an :class:`Oracle` (which gets the wrappers asked
        for here); or a string: the path of a saved network (.safetensors), of
        an ONNX (.onnx), skops (.skops) or TorchScript (.pt) file,
        ``"module:function"``, which may name any of the above, or the address
        of a prediction API, ``"http://HOST/v2/models/NAME"``.
    input_dim
        d; needed for a bare callable, whose answers do not tell.
    output_dim
        m; found out with one query when not given.
    output
        Which output to read, where there are several: an ONNX output's name,
        or an estimator's method such as ``"predict_proba"``.
    shape
        Shape of one input as the target sees it, such as ``(1, 28, 28)``;
        algorithms see its coordinates as one flat row.
    scale, input_range
        The target is asked at ``scale * x``, and only inside ``input_range``
        (in its own units); numbers, or one a feature. See
        :class:`~unrelu.oracles.Mapped`.
    data
        Rows like those that the target is meant for, in its own units: an array
        ``(n, d)``, or the path of a .npy, .csv or .parquet file. They tell
        where inputs lie and in which units, lines run through them, and the
        certificate is given on them too.
    name
        The target's identity in the ledger; by default derived from the target.
    budget
        Rows that may be sent, over all runs of the ledger where there is one.
    price, max_cost
        What one row costs, and the most that may be spent: a second budget.
    ledger
        A :class:`Ledger` or its path: answers become durable, and a later run
        with the same seed asks nothing again but three of its first points, which
        tell whether the same model still answers (stage ``identity``); where it does
        not, the first question raises :class:`~unrelu.LedgerMismatch`.
    batch_size
        Rows per call to the target, or per request, at most.
    http
        How a prediction API is asked: protocol, credentials (by the names of
        environment variables), concurrency, rate, retries.

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> oracle = unrelu.connect(lambda x: np.maximum(x, 0).sum(axis=1), input_dim=2, budget=100)
    >>> oracle([[1.0, -1.0]])
    array([[1.]])
    >>> oracle.queries.total  # one more told how many outputs there are
    2
    """
    batch_size = whole_number(batch_size, "batch_size", least=1)
    budget = None if budget is None else whole_number(budget, "budget")
    input_dim = None if input_dim is None else whole_number(input_dim, "input_dim", least=1)
    output_dim = None if output_dim is None else whole_number(output_dim, "output_dim", least=1)
    budget = _with_money(budget, price, max_cost)
    if np.ndim(scale) == 0:
        scale = real_number(scale, "scale", above=0.0)
    if shape is not None:
        shape = _checked_shape(shape, input_dim)
        input_dim = math.prod(shape)
    if ledger is not None and not isinstance(ledger, (Ledger, str, os.PathLike)):
        raise InvalidInput(f"ledger must be a Ledger or a path, got {type(ledger).__name__}")
    book = Ledger(ledger) if isinstance(ledger, (str, os.PathLike)) else ledger
    base = _opened(
        target, input_dim=input_dim, shape=shape, output=output, http=http, rows=batch_size
    )
    side_by_side = base.options.concurrency if isinstance(base, HTTPOracle) else 1
    if name is not None:
        _adapter_of(base).identity = name
    if input_range is not None:
        input_range = checked_range(input_range, base.input_dim)
    if data is not None:
        base.data = as_rows(data, base.input_dim)

    binding = None if book is None else book.bind(base.identity, base.input_dim)
    if book is not None and binding is not None:
        _tell_about_name(book, binding)
        base.meter.attach(binding)
    if budget is not None:
        base.meter.budget = budget
    base.meter.price = None if price is None else float(price)
    if isinstance(base, Adapter) and not base.knows_output_dim:
        _tell_output_dim(base, binding, output_dim, input_range)
    oracle: Oracle = base if binding is None else Recorded(base, binding)
    if np.ndim(scale) > 0 or scale != 1.0 or input_range is not None:
        oracle = Mapped(oracle, scale=scale, input_range=input_range)
    return Batched(oracle, batch_size * side_by_side)


def _opened(
    target: Any,
    *,
    input_dim: int | None,
    shape: tuple[int, ...] | None,
    output: str | None,
    http: HTTPOptions | None,
    rows: int,
) -> Oracle:
    """Return the adapter of a target, or the oracle that it is."""
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        target = HTTPOracle(
            target,
            options=http,
            input_dim=input_dim,
            row_shape=shape,
            output=output,
            rows_per_request=rows,
        )
    elif isinstance(target, (str, os.PathLike)):
        target = _resolve(os.fspath(target), input_dim=input_dim, shape=shape, output=output)
    base = _as_adapter(target, input_dim=input_dim, shape=shape, output=output)
    if input_dim is not None and base.input_dim != input_dim:
        raise InvalidInput(f"the target takes {base.input_dim} inputs, not {input_dim}")
    return base


def _tell_output_dim(
    base: Adapter,
    binding: LedgerBinding | None,
    output_dim: int | None,
    input_range: tuple[FloatArray, FloatArray] | None,
) -> None:
    """Tell an adapter how many outputs there are; where nobody knows, ask one point."""
    known = output_dim or (None if binding is None else binding.output_dim)
    if known is not None:
        base.output_dim = known
        return
    point = _first_point(base.input_dim, input_range)
    answer = base.discover_output_dim(point)
    if binding is not None:
        binding.record(binding.keys(point, 0), point, answer, 0)


def as_oracle(target: Any) -> Oracle:
    """Return an oracle for anything :func:`connect` accepts; an oracle as it is."""
    return target if isinstance(target, Oracle) else connect(target)


def _tell_about_name(book: Ledger, binding: LedgerBinding) -> None:
    """Say where a derived name tells two targets apart too little, or perhaps too much."""
    function, _, digest = binding.identity.partition("#")
    _, found, unread = digest.partition("~unread:")
    if found:
        _log.warning(
            "part of the target %s cannot be read (%s), so its name in %s does not change when "
            "only that part does; give it a name of your own with name=, --name",
            function, unread, book.path,
        )  # fmt: skip
    elif digest and not binding.reopened:
        others = [name for name in book.identities() if name.startswith(f"{function}#")]
        if len(others) > 1:
            _log.warning(
                "%s holds answers of %s with other content or state (%d sections), which are not "
                "used; if it is the same model, give it one name in all runs with name=, --name",
                book.path, function, len(others) - 1,
            )  # fmt: skip


def _with_money(budget: int | None, price: float | None, max_cost: float | None) -> int | None:
    """Return the budget in rows that the given money also allows."""
    if price is not None:
        price = real_number(price, "price (of one query)", least=0.0)
    if max_cost is None:
        return budget
    max_cost = real_number(max_cost, "max_cost", least=0.0)
    if price is None:
        raise InvalidInput("max_cost needs the price of one query")
    if price == 0:
        return budget
    # A hair of slack: 1.0 at 0.1 a query buys ten, though 1.0 / 0.1 may round below.
    affordable = max_cost / price * (1 + 1e-12)
    if not math.isfinite(affordable):
        return budget
    return math.floor(affordable) if budget is None else min(budget, math.floor(affordable))


def _checked_shape(shape: tuple[int, ...], input_dim: int | None) -> tuple[int, ...]:
    try:
        sizes = tuple(whole_number(size, "a size", least=1) for size in shape)
    except (TypeError, InvalidInput):
        sizes = ()
    if not sizes:
        raise InvalidInput(f"shape must be one or more positive sizes, got {shape}")
    if input_dim is not None and math.prod(sizes) != input_dim:
        raise InvalidInput(
            f"rows of shape {sizes} have {math.prod(sizes)} inputs, not {input_dim}"
        )
    return sizes


def _first_point(d: int, input_range: tuple[FloatArray, FloatArray] | None) -> FloatArray:
    """Return where the number of outputs is found out: the origin, if it is allowed."""
    if input_range is None:
        return np.zeros((1, d))
    low, high = input_range
    return np.asarray(np.where((low <= 0.0) & (high >= 0.0), 0.0, (low + high) / 2)[None])


def _as_adapter(
    target: Any, *, input_dim: int | None, shape: tuple[int, ...] | None, output: str | None
) -> Oracle:
    """Return an oracle for an object; nothing is asked yet."""
    if isinstance(target, Oracle):
        return target
    if isinstance(target, Network):
        return NetworkOracle(target)
    if is_torch_module(target):
        return TorchOracle(target, input_dim=input_dim, row_shape=shape)
    if is_estimator(target):
        return EstimatorOracle(target, method=output, input_dim=input_dim)
    if callable(target):
        if input_dim is None:
            raise InvalidInput(
                "a bare callable does not tell how many inputs it takes: "
                "pass input_dim (--input-dim)"
            )
        return CallableOracle(target, input_dim=input_dim, row_shape=shape)
    raise InvalidInput(
        f"cannot connect to a {type(target).__name__}: expected a callable, a torch module, a "
        "scikit-learn estimator, a Network, an Oracle, a model file, 'module:function' or "
        "an address"
    )


def _adapter_of(oracle: Oracle) -> Adapter:
    while isinstance(oracle, Wrapper):
        oracle = oracle.inner
    if not isinstance(oracle, Adapter):
        raise InvalidInput("this oracle has no adapter to name")
    return oracle


def _resolve(
    text: str, *, input_dim: int | None, shape: tuple[int, ...] | None, output: str | None
) -> Any:
    """Turn a path or ``module:function`` into a target."""
    suffix = Path(text).suffix.lower()
    if suffix == ".safetensors":
        return Network.load(text)
    if suffix == ".onnx":
        return OnnxOracle(text, output=output, input_dim=input_dim, row_shape=shape)
    if suffix == ".skops":
        return load_skops(text, method=output)
    if suffix in _TORCHSCRIPT:
        return load_torchscript(text, input_dim=input_dim, row_shape=shape)
    if suffix in _PICKLES:
        raise InvalidInput(
            f"{text} is a pickle, and opening one runs whatever its author wrote: it was left "
            "closed. Save the estimator with skops.io.dump(estimator, 'model.skops') instead"
        )
    module_name, colon, attribute = text.partition(":")
    if colon and module_name.replace(".", "").isidentifier() and attribute.isidentifier():
        return _import(module_name, attribute)
    raise InvalidInput(
        f"don't know how to connect to {text!r}: expected a model file (.safetensors, .onnx, "
        ".skops, .pt), 'module:function' or an address that starts with http:// or https://"
    )


def _import(module_name: str, attribute: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules beside the user, as `python -m` would find them
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidInput(f"cannot import {module_name!r}: {error}") from error
    except UnreluError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"importing {module_name!r} failed: {type(error).__name__}: {error}"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise InvalidInput(f"{module_name!r} has no {attribute!r}") from error
