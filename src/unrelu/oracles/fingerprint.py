"""What tells one callable, estimator or module from another, in any process.

A ledger may answer for a target only if it is the target that was asked. So
everything that a function's answers can rest on goes into one digest: its code,
defaults and closure, the globals that its code reads, the objects it is bound to
with their attributes at any depth, and the code and attributes of their classes.

What belongs to a library (the standard library and what is installed beside it)
counts by its name; the objects that a library made count by their content. The
state of random generators, locks and loggers does not count: it moves while a
target answers and is no part of the model. What has content that cannot be read
(an open file, a compiled object that does not pickle) is named in
:attr:`Fingerprint.unread`.
"""

from __future__ import annotations

import array
import copyreg
import dataclasses
import dis
import functools
import hashlib
import logging
import os
import random
import struct
import sys
import sysconfig
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from unrelu.networks import Network
from unrelu.oracles.base import Oracle
from unrelu.oracles.contents import (
    attribute_of,
    attributes_of,
    cell_content,
    code_content,
    number_content,
    plain_content,
)

__all__ = ["Fingerprint", "callable_identity", "fingerprint"]

MAX_VALUES = 1_000_000
"""Values that are read at most, a few seconds' work; a list of numbers and an array are one
value each."""

_STATEFUL = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
    logging.Logger,
    threading.Event,
    threading.Condition,
    type(threading.Lock()),
    type(threading.RLock()),
)
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
_NOT_CONTENT = {  # entries of a class that say nothing about what it computes
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__",
    "__abstractmethods__", "_abc_impl", "__firstlineno__", "__static_attributes__",
    "__annotations_cache__", "__annotate_func__", "__orig_bases__", "__parameters__",
}  # fmt: skip
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_STANDARD = os.path.join(os.path.realpath(sysconfig.get_path("stdlib")), "")
_Parts = tuple[str | bytes, list[Any]]


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """A digest of a target's content, and the kinds of content that it leaves out.

    Attributes
    ----------
    digest
        Sixteen hexadecimal digits; the same content gives the same ones in any process.
    unread
        What could not be read, sorted; two targets that differ only there look the same.
    """

    digest: str
    unread: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.digest + (f"~unread:{','.join(self.unread)}" if self.unread else "")


def fingerprint(target: Any, *, own: frozenset[str] = frozenset()) -> Fingerprint:
    """Read everything that a target's answers can rest on.

    ``own`` names library modules whose code counts by its content all the same.
    """
    walk = _Walk(own, frozenset())
    digest = walk.read(target)
    return Fingerprint(digest.hex(), tuple(sorted(walk.unread)))


def callable_identity(function: Callable[..., Any]) -> str:
    """Return a name for a callable that survives a restart of the process.

    It holds the qualified name and a digest of all that its answers can rest
    on, so that two different models behind one function name do not share a
    section of a ledger; what could not be read is named behind the digest. State
    that moves while the target answers, such as a counter, counts as it is now:
    a target that is connected again after it was asked may get another name.
    """
    named = function if isinstance(attribute_of(function, "__qualname__"), str) else type(function)
    module = attribute_of(named, "__module__") or type(function).__module__
    found = fingerprint(function, own=frozenset(_modules_of(function)))
    return f"callable:{module}.{named.__qualname__}#{found}"


def _modules_of(function: Any) -> Iterator[str]:
    """Yield the modules that the function itself was written in, wrappers looked through."""
    for _ in range(100):  # a chain of wrappers that is longer, or a circle, is left alone
        yield str(attribute_of(function, "__module__") or type(function).__module__)
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            yield type(function.__self__).__module__
            function = function.__func__
        elif (wrapped := attribute_of(function, "__wrapped__")) is not None:
            function = wrapped
        else:
            return


class _Walk:
    """Feeds values to a digest, each once, without recursion: structures may be deep."""

    def __init__(self, own: frozenset[str], enclosing: frozenset[int]) -> None:
        self._own = own
        self._enclosing = enclosing  # objects around a set's element: not read again inside
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that no other object gets their address
        self.unread: set[str] = set()

    def read(self, root: Any) -> bytes:
        digest = hashlib.blake2b(digest_size=8)
        waiting = [root]
        for _ in range(MAX_VALUES):
            if not waiting:
                break
            header, children = self._parts(waiting.pop())
            data = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
            # Lengths first: no two different structures give the same bytes.
            digest.update(struct.pack("<qq", len(data), len(children)) + data)
            waiting.extend(reversed(children))
        if waiting:
            self.unread.add(f"what lies beyond {MAX_VALUES} values")
        return digest.digest()

    def _parts(self, value: Any) -> _Parts:
        """Return a value's own content, and the values that it consists of."""
        plain = plain_content(value)
        if plain is not None:
            return plain, []
        # Whether equal constants are one object depends on where the code was loaded from, so
        # they are read each time; no circle is made of them alone.
        if type(value) not in {tuple, frozenset, types.CodeType}:
            if id(value) in self._enclosing:
                return "outer", []
            if id(value) in self._seen:
                return f"again {self._seen[id(value)]}", []
            self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        try:
            return self._content(value)
        except Exception:  # whatever a stranger's object raises when looked at
            return self._skip(value)

    def _skip(self, value: Any) -> _Parts:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        self.unread.add(name.removeprefix("builtins."))
        return f"unread {name}", []

    def _content(self, value: Any) -> _Parts:
        if isinstance(value, Network):
            return f"network {value.fingerprint()}", []
        if isinstance(value, Oracle):
            return f"oracle {value.identity}", []
        if isinstance(value, _STATEFUL):
            return f"stateful {type(value).__qualname__}", []
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.CodeType):
            return code_content(value)
        if isinstance(value, types.MethodType):
            return "method", [value.__func__, value.__self__]
        if isinstance(value, _BUILT_IN):
            bound = getattr(value, "__self__", None)
            held = [] if bound is None or isinstance(bound, types.ModuleType) else [bound]
            return f"built in {value.__qualname__}", held
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, (property, staticmethod, classmethod)):
            names = ("fget", "fset", "__func__")
            return type(value).__name__, [getattr(value, name, None) for name in names]
        if isinstance(value, weakref.ref):
            return "reference", [value()]
        if isinstance(value, np.ufunc):
            # Made from a Python function that cannot be seen from outside.
            return self._skip(value) if "vectorized" in value.__name__ else (value.__name__, [])
        return self._object(value)

    def _module(self, module: types.ModuleType) -> _Parts:
        """Take a library by its name, a module of the user's with all that it defines."""
        if self._is_library(module.__name__):
            return f"module {module.__name__}", []
        names = sorted(
            name
            for name, value in vars(module).items()
            if not name.startswith("__") and not isinstance(value, types.ModuleType)
        )
        return f"module {module.__name__}", [names, *(vars(module)[name] for name in names)]

    def _function(self, function: types.FunctionType) -> _Parts:
        cells = [cell_content(cell) for cell in function.__closure__ or ()]
        extras: list[Any] = [cells, vars(function)]
        if self._is_library(function.__module__):
            return f"function {function.__module__}.{function.__qualname__}", extras
        names, values = [], []
        for name, value in self._globals_read(function.__code__, function.__globals__):
            names.append(name)
            values.append(value)
        defaults = [function.__defaults__, function.__kwdefaults__]
        return "function", [function.__code__, *extras, *defaults, names, *values]

    def _globals_read(
        self, code: types.CodeType, space: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Yield names and values of globals that the code reads, ``module.name`` included."""
        chain: list[Any] = []

        def finished() -> Iterator[tuple[str, Any]]:
            if chain:
                yield chain[0], chain[1]
                chain.clear()

        for step in dis.get_instructions(code):
            name = step.argval
            if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
                yield from finished()
                if name in space:
                    chain[:] = [name, space[name]]
            elif step.opname in {"LOAD_ATTR", "LOAD_METHOD"} and chain:
                holder = chain[1]
                if isinstance(holder, types.ModuleType) and name in vars(holder):
                    chain[:] = [f"{chain[0]}.{name}", vars(holder)[name]]
                else:
                    yield from finished()
            elif step.opname == "IMPORT_NAME":
                yield from finished()
                if name in sys.modules:
                    yield name, sys.modules[name]
                elif not self._is_library(name):
                    self.unread.add(f"import of {name}")
            elif step.opname not in {"CACHE", "PUSH_NULL"}:
                yield from finished()
        yield from finished()
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from self._globals_read(constant, space)

    def _class(self, kind: type) -> _Parts:
        name = f"class {kind.__module__}.{kind.__qualname__}"
        if self._is_library(kind.__module__):
            return name, []
        members = {
            key: value
            for key, value in sorted(vars(kind).items())
            if key not in _NOT_CONTENT
            and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
        }
        return name, [list(members), *members.values(), *kind.__bases__]

    def _object(self, value: Any) -> _Parts:
        kind = type(value)
        head = kind.__qualname__
        parts: list[Any] = [] if kind.__module__ in {"builtins", "numpy"} else [kind]
        if hasattr(kind, "detach") and hasattr(kind, "numpy"):  # a tensor of torch
            plain = np.asarray(value.detach().cpu().double().numpy())
            return f"tensor {value.dtype}", [*parts, plain]
        if hasattr(kind, "__array__") and not isinstance(value, np.ndarray):  # JAX, pandas
            return "array", [*parts, np.asarray(value)]
        parts += attributes_of(value)
        if isinstance(value, np.ndarray):
            bare = np.asarray(value)
            if bare.dtype.hasobject:
                return f"objects {bare.shape}", [*parts, bare.tolist()]
            return f"{bare.dtype.descr}{bare.shape}".encode() + bare.tobytes(), parts
        if isinstance(value, (dict, types.MappingProxyType)):
            return head, [*parts, list(value), *value.values()]
        if isinstance(value, (list, tuple)):
            numbers = number_content(value)
            if numbers is not None:
                return head.encode() + numbers, parts
            return head, [*parts, *value]
        if isinstance(value, (set, frozenset)):
            # In the order of digests: a set's own order changes from process to process.
            return head.encode() + b"".join(sorted(map(self._element, value))), parts
        if isinstance(value, (bytearray, memoryview, array.array)):
            return f"{head} {getattr(value, 'typecode', '')}".encode() + bytes(value), parts
        wrapped = attribute_of(value, "__wrapped__")
        if wrapped is not None:  # a compiled or cached function
            return head, [*parts, wrapped]
        return head, [*parts, *self._pickled(value)]

    def _element(self, value: Any) -> bytes:
        inner = _Walk(self._own, self._enclosing | self._seen.keys())
        digest = inner.read(value)
        self.unread |= inner.unread
        return digest

    def _pickled(self, value: Any) -> list[Any]:
        """Return what pickling would keep; that is all there is to see of a compiled object."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                special = copyreg.dispatch_table.get(type(value))
                reduced = value.__reduce_ex__(4) if special is None else special(value)
        except Exception:
            self._skip(value)
            return []
        if isinstance(reduced, str):
            return [reduced]
        return [list(part) if isinstance(part, Iterator) else part for part in reduced]

    def _is_library(self, name: str | None) -> bool:
        """Whether a module is installed rather than the user's own."""
        if name is None or name in self._own:
            return False
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "unrelu":
            return True
        modules = (sys.modules.get(name), sys.modules.get(top))
        file = next(filter(None, (getattr(m, "__file__", None) for m in modules)), None)
        if file is None:
            return False
        place = os.path.realpath(file)
        return place.startswith(_STANDARD) or any(part in place for part in _INSTALLED)
