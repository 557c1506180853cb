"""Images that a report shows, as the command line gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput

__all__ = ["read_images"]


def read_images(
    size: str | None, examples: Path | None
) -> tuple[tuple[int, int] | None, FloatArray | None]:
    """Return height and width, and examples ``(n, d)``; None for what was not given."""
    return _shape(size), None if examples is None else _rows(examples)


def _rows(path: Path) -> FloatArray:
    try:
        images = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"cannot read images from {path}: {error}") from error
    rows = images.reshape(len(images), -1) if images.ndim and len(images) else images
    if rows.ndim != 2 or len(rows) == 0:
        raise InvalidInput(f"{path} must hold rows of inputs, got shape {images.shape}")
    return np.asarray(rows, dtype=np.float64)


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InvalidInput(f"--image takes HEIGHT,WIDTH such as 28,28, got {text!r}")
    return int(parts[0]), int(parts[1])
