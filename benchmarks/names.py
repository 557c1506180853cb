"""Where a name that documentation mentions lives in the package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache
from typing import Any

SHARED = ("unrelu.lines", "unrelu.core")  # where a method's names are looked for after its own


@lru_cache(maxsize=1)
def modules() -> tuple[str, ...]:
    """Return the names of all modules of the package."""
    import unrelu

    found = pkgutil.walk_packages(unrelu.__path__, "unrelu.")
    return tuple(info.name for info in found if not info.name.endswith("__main__"))


def thing(dotted: str) -> Any:
    """Return the module, class, function, method or field of this full name; None without one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields.get(part, getattr(found, part, None))  # a default may be None
            if found is None:
                return None
        return found
    return None


def _defined(name: str, module: str) -> bool:
    """Whether a module itself defines a name, not only imports it."""
    found = thing(f"{module}.{name.partition('.')[0]}")
    return (
        found is not None
        and not inspect.ismodule(found)
        and getattr(found, "__module__", module) == module
        and thing(f"{module}.{name}") is not None
    )


def resolve(name: str, module: str, near: tuple[str, ...] = ()) -> str | None:
    """Return the full name of what a module's head calls ``name``; None where there is none.

    Looked for as it stands, among the attributes of ``near`` (what the same text named just
    before), in the module, in its folder, then in ``lines`` and ``core``.
    """
    if name.startswith("unrelu."):
        return name if thing(name) is not None else None
    for owner in near:
        if thing(f"{owner}.{name}") is not None:
            return f"{owner}.{name}"
    folders = (module.rpartition(".")[0], *SHARED)
    within = [m for folder in folders for m in modules() if m.startswith(f"{folder}.")]
    for place in (module, *within):
        if _defined(name, place):
            return f"{place}.{name}"
    return f"{module}.{name}" if thing(f"{module}.{name}") is not None else None
