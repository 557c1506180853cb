"""Targets that a team describes once: ``unrelu.toml``, or ``[tool.unrelu]`` in pyproject.toml.

.. code-block:: toml

    [targets.fraud]
    target = "https://models.example.com/v1/models/fraud"
    token-env = "FRAUD_TOKEN"
    data = "rows.csv"
    rate = "50/s"
    budget = 20000

``unrelu extract fraud`` then asks that address so; what the command line or the
environment says goes first. Secrets stay in the environment: a file names variables.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from unrelu.errors import InvalidInput

__all__ = ["find_config", "named_targets"]

FILE, VARIABLE = "unrelu.toml", "UNRELU_CONFIG"
_PATHS = ("ledger", "out", "examples", "images")
"""Options that name files: relative to the file that describes the target, as rows are."""


def find_config(start: Path | None = None) -> Path | None:
    """Return the nearest file that describes targets, from here upwards; None if there is none."""
    if os.environ.get(VARIABLE):
        path = Path(os.environ[VARIABLE])
        if not path.is_file():
            raise InvalidInput(f"${VARIABLE} names {path}, which is no file")
        return path
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder / FILE
        project = folder / "pyproject.toml"
        if project.is_file() and "unrelu" in _read(project).get("tool", {}):
            return project
    return None


def named_targets(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return targets by name: option to value, as the file says."""
    path = find_config() if path is None else path
    if path is None:
        return {}
    facts = _read(path)
    if path.name == "pyproject.toml":
        facts = facts.get("tool", {}).get("unrelu", {})
    targets = facts.get("targets", {})
    others = sorted(set(facts) - {"targets"})
    if others or not isinstance(targets, dict):
        raise InvalidInput(
            f"{path}: expected tables [targets.NAME], found {', '.join(others) or 'no tables'}"
        )
    return {name: _checked(path, name, options) for name, options in targets.items()}


def _checked(path: Path, name: str, options: Any) -> dict[str, Any]:
    if not isinstance(options, dict) or not isinstance(options.get("target"), str):
        raise InvalidInput(f'{path}: [targets.{name}] needs target = "..."')
    found = {key.replace("-", "_"): value for key, value in options.items()}
    for key in _PATHS:
        if isinstance(found.get(key), str):
            found[key] = path.parent / found[key]
    if isinstance(found.get("data"), str):
        found["data"] = str(path.parent / found["data"])
    if _is_file(path.parent / found["target"]):
        found["target"] = str(path.parent / found["target"])
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # an address is no name of a file
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read {path}: {error}") from error
