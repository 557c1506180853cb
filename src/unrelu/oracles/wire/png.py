"""Images as PNG files, for services that take pictures (W3C PNG, 8 bits, grey or colour)."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput

__all__ = ["encode_png"]

_WHITE = np.iinfo(np.uint8).max
_TYPES = {1: 0, 3: 2}  # the standard's number for pictures of so many channels


def encode_png(image: FloatArray) -> bytes:
    """Return a picture of ``(height, width)``, or with 1 or 3 channels first or last.

    Pixels are whole numbers from 0 to 255: what lies between is rounded, as a file can hold
    nothing else.
    """
    pixels = _channels_last(np.asarray(image))
    height, width, channels = pixels.shape
    if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= _WHITE):
        raise InvalidInput(
            f"a picture's pixels lie in 0..{_WHITE}: give --range 0,{_WHITE} (and --scale "
            f"{_WHITE} to work in 0..1)"
        )
    rows = np.rint(pixels).astype(np.uint8).reshape(height, width * channels)
    unfiltered = np.column_stack([np.zeros(height, np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, _TYPES[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(unfiltered)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + body))
    return struct.pack(">I", len(body)) + name + body + check


def _channels_last(image: FloatArray) -> FloatArray:
    """Return ``(height, width, channels)``."""
    if image.ndim == 2:
        return np.asarray(image[:, :, None])
    if image.ndim == 3 and image.shape[2] in {1, 3}:
        return image
    if image.ndim == 3 and image.shape[0] in {1, 3}:
        return np.asarray(np.moveaxis(image, 0, 2))
    raise InvalidInput(
        f"a picture has a height and a width, and 1 or 3 channels: --shape 28,28 or 32,32,3, got "
        f"{image.shape}"
    )
