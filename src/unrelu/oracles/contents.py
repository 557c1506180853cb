"""What an object holds, read without running anything of its own: for fingerprints."""

from __future__ import annotations

import array
import struct
import types
from typing import Any

import numpy as np

__all__ = [
    "attribute_of",
    "attributes_of",
    "cell_content",
    "code_content",
    "number_content",
    "plain_content",
]


def attribute_of(value: Any, name: str) -> Any:
    """Return an attribute or None, also of an object that raises when looked at."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def plain_content(value: Any) -> str | bytes | None:
    """Return a scalar's content, type included; None for everything else."""
    kind = type(value)
    if kind is float:
        return b"float" + struct.pack("<d", value)
    if kind in {int, bool, str, complex, types.NoneType, types.EllipsisType}:
        return f"{kind.__name__} {value!r}"
    if kind is bytes:
        return b"bytes" + bytes(value)
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"{value.dtype.descr}".encode() + value.tobytes()
    return None


def number_content(values: list[Any] | tuple[Any, ...]) -> bytes | None:
    """Return many floats or integers as bytes, which is a hundred times faster than each."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return b"floats" + array.array("d", values).tobytes()
    if kinds == {int}:
        try:
            return b"integers" + array.array("q", values).tobytes()
        except OverflowError:
            return None
    return None


def cell_content(cell: Any) -> Any:
    """Return what a closure holds."""
    try:
        return cell.cell_contents
    except ValueError:  # still empty
        return "an empty cell"


def code_content(code: types.CodeType) -> tuple[bytes, list[Any]]:
    """Return a function's instructions, names and constants; not where it was written."""
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    sizes = (code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    # The first constant may be the docstring, which changes no answer; it counts all the same.
    return code.co_code, [names, sizes, code.co_consts]


def attributes_of(value: Any) -> list[Any]:
    """Return the names and values of all attributes, those in slots included."""
    found = dict(attribute_of(value, "__dict__") or {})
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"  # as Python mangles it
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                found[name] = getattr(value, name)
    # Whether a torch module trains does not matter: it is asked in evaluation mode.
    if "_parameters" in found and "_modules" in found:
        found.pop("training", None)
    names = sorted(found, key=str)
    return [names, *(found[name] for name in names)] if names else []
