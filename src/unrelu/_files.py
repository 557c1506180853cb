"""Safetensors files, with our errors and atomic replacement."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrelu.errors import InvalidInput

__all__ = ["read_tensors", "replace_file", "write_tensors"]


def replace_file(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write ``content`` to ``path`` so that a crash leaves old or new, never half."""
    target = Path(path)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InvalidInput(f"cannot write {target}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def write_tensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[np.generic]],
    metadata: Mapping[str, str],
) -> Path:
    """Write named arrays and string metadata to one safetensors file."""
    from safetensors.numpy import save

    content = save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, dict(metadata))
    return replace_file(path, content)


def read_tensors(
    path: str | os.PathLike[str],
) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Read what :func:`write_tensors` wrote; nothing in the file is executed."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise InvalidInput(f"there is no file {path}")
    try:
        with safe_open(os.fspath(path), framework="numpy") as stream:
            metadata = stream.metadata() or {}
            arrays = {key: stream.get_tensor(key) for key in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{path} is not a readable safetensors file: {error}") from error
    return arrays, dict(metadata)
