"""Adapter for torch modules, in memory or as TorchScript files.

torch is imported only here. A TorchScript file is a program in torch's own
restricted language: open only files whose author you trust. Pickled modules
and checkpoints (``torch.save``) are never opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.oracles.base import Adapter, Meter
from unrelu.oracles.fingerprint import fingerprint

__all__ = ["TorchOracle", "is_torch_module", "load_torchscript"]


def is_torch_module(target: Any) -> bool:
    """Whether ``target`` is an ``nn.Module``, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(target, torch.nn.Module)


def load_torchscript(
    path: str, *, input_dim: int | None = None, row_shape: tuple[int, ...] | None = None
) -> TorchOracle:
    """Open a TorchScript file on the CPU."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "torch", "asking a TorchScript model") from error
    if not Path(path).is_file():
        raise InvalidInput(f"there is no file {path}")
    content = Path(path).read_bytes()
    try:
        with _quiet():
            module = torch.jit.load(path, map_location="cpu")
    except Exception as error:
        raise InvalidInput(
            f"{path} is not a TorchScript file ({type(error).__name__}); checkpoints written by "
            "torch.save are pickles and are not opened: load the module yourself and pass it to "
            "unrelu.connect, or save it with torch.jit.trace(module, example).save(path)"
        ) from error
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    return TorchOracle(
        module, input_dim=input_dim, row_shape=row_shape, identity=f"torchscript:{digest}"
    )


class TorchOracle(Adapter):
    """A torch module, asked in evaluation mode and without gradients.

    Rows go in the module's own floating type and to its own device.

    Parameters
    ----------
    row_shape
        Shape of one input row, such as ``(1, 28, 28)``; by default flat.
    input_dim
        Read from the module's first linear layer when not given.
    """

    def __init__(
        self,
        module: Any,
        *,
        input_dim: int | None = None,
        row_shape: tuple[int, ...] | None = None,
        identity: str | None = None,
        meter: Meter | None = None,
    ) -> None:
        if row_shape is not None:
            input_dim = math.prod(row_shape)
        elif input_dim is None:
            input_dim = _first_width(module)
        parameters = [*module.parameters(), *module.buffers()]
        floating = [p for p in parameters if p.is_floating_point()]
        self._dtype = floating[0].dtype if floating else None
        self._device = floating[0].device if floating else None
        super().__init__(
            input_dim=input_dim,
            identity=_identity(module) if identity is None else identity,
            meter=meter,
        )
        self.row_shape = row_shape
        self._module = module

    def _ask(self, points: FloatArray) -> ArrayLike:
        import torch

        rows = points.reshape(-1, *self.row_shape) if self.row_shape else points
        tensor = torch.from_numpy(rows).to(self._device, self._dtype or torch.float64)
        training = bool(self._module.training)
        self._module.eval()
        try:
            with torch.no_grad():
                answer = self._module(tensor)
        finally:
            self._module.train(training)
        if isinstance(answer, (tuple, list)):
            answer = answer[0]
        return np.asarray(answer.double().cpu().numpy()).reshape(len(points), -1)


def _first_width(module: Any) -> int:
    """Return the width of the first matrix among the parameters."""
    for name, parameter in module.named_parameters():
        if parameter.ndim == 2 and name.endswith("weight"):
            return int(parameter.shape[1])
        if parameter.ndim > 2:
            break
    raise InvalidInput(
        f"{type(module).__name__} does not tell how many inputs it takes: pass input_dim, or "
        "row_shape (--shape) for inputs that are not flat"
    )


def _identity(module: Any) -> str:
    digest = hashlib.blake2b(repr(module).encode(), digest_size=12)
    for name, value in sorted(module.state_dict().items()):
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().double().numpy().tobytes())
    # The state holds what was trained; plain attributes, constants and code count as well.
    return f"torch:{type(module).__name__}#{digest.hexdigest()}:{fingerprint(module)}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Newer torch deprecates TorchScript; the files are still in use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
