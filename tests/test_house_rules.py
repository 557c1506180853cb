"""The house's own rules: imports, public surface, no print outside the command line."""

from __future__ import annotations

import ast
import subprocess
import sys
from inspect import ismodule
from pathlib import Path

import pytest

import unrelu
from unrelu import errors

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "unrelu"


VERBS = {
    "extract", "extract_from_labels", "extract_two_layer", "extract_three_layer",
    "plan_extraction",
    "learn_from_queries", "recover_span", "obfuscate", "learn_from_samples",
    "recover_lowest_layer", "learn_halfspaces", "identifiability", "diagnose", "compare",
    "connect",
}  # fmt: skip
TYPES = {
    "HermiteNetRegressor", "Oracle", "Ledger", "Network", "ReLUNetwork", "Status",
    "RecoveryResult", "Certificate",
}  # fmt: skip


def test_the_public_surface_is_small():
    """The verbs, a few types and the errors: what is added here is added for everyone."""
    every = {name for name, thing in vars(errors).items() if isinstance(thing, type)}
    public = {name for name in every if issubclass(getattr(errors, name), errors.UnreluError)}
    assert set(unrelu.__all__) == VERBS | TYPES | public | {"planted", "__version__"}
    shown = {n for n, t in vars(unrelu).items() if not n.startswith("_") and not ismodule(t)}
    assert shown - {"TYPE_CHECKING", "Any"} <= set(unrelu.__all__)


def test_everything_public_is_listed_and_documented():
    for name in unrelu.__all__:
        thing = getattr(unrelu, name)
        assert isinstance(thing, str) or thing.__doc__, name


def test_no_print_outside_the_command_line():
    for path in SOURCE.rglob("*.py"):
        if "cli" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path}:{node.lineno}"


@pytest.mark.parametrize("forbidden", ["metrics", "planted"])
def test_an_algorithm_that_reaches_for_the_truth_fails_the_check(tmp_path, forbidden):
    """Plant a violation in a copy of the package and run the linter on it."""
    import shutil

    package = tmp_path / "unrelu"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    clean = subprocess.run(command, **options, env=environment)
    assert clean.returncode == 0, clean.stdout
    (package / "extraction" / "cheat.py").write_text(f"from unrelu import {forbidden}\n")
    caught = subprocess.run(command, **options, env=environment)
    assert caught.returncode != 0
    assert "unrelu.extraction.cheat" in caught.stdout
