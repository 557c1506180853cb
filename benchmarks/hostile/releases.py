"""Functions by name, wherever a release keeps them: ``--base`` runs one that is cut otherwise."""

from __future__ import annotations

import importlib
from typing import Any

import unrelu

__all__ = ["function"]


def function(module: str, name: str) -> Any:
    """Return ``unrelu.module.name``, or ``unrelu.name`` where a release has no such module."""
    try:
        return getattr(importlib.import_module(f"unrelu.{module}"), name)
    except ModuleNotFoundError:
        return getattr(unrelu, name)
