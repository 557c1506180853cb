"""Halve and double every number that someone chose: ``python -m benchmarks.sensitivity PART...``.

Each knob of :mod:`benchmarks.house` is halved and doubled in the sources as they are read, one
at a time, in a process of its own; then those frozen runs of :mod:`benchmarks.freeze` are done
that pass through its file. A knob that loses a success is named: it stands on an edge. ``PART``
is the beginning of a file's dotted name (``lines``, ``extraction.two_layer``); all without one.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from benchmarks import house
from benchmarks.records import append, read

FACTORS = (0.5, 2.0)
RESULTS = Path(__file__).parent / "results" / "sensitivity.jsonl"
FIRST_SEED = 700


class Edit(NamedTuple):
    """A number in the sources, and what it is multiplied by."""

    knob: house.Knob
    factor: float


def _scaled(value: ast.expr, factor: float) -> ast.expr:
    """Return an expression with its value, or each of several, multiplied; whole ones stay so."""
    if isinstance(value, (ast.Tuple, ast.List)):
        elements = [_scaled(element, factor) for element in value.elts]
        return type(value)(elts=elements, ctx=ast.Load())
    number = eval(compile(ast.Expression(value), "<knob>", "eval"))
    changed = max(1, round(number * factor)) if isinstance(number, int) else number * factor
    return ast.Constant(changed)


def _edited(tree: ast.Module, edit: Edit) -> bool:
    """Multiply the knob in a file's syntax; whether it was found."""
    knob, found = edit.knob, False
    last = knob.name.rpartition(".")[2]
    for node in ast.walk(tree):
        if knob.kind == "default" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.lineno == knob.line:
                found |= _edited_default(node, knob.name, edit.factor)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno == knob.line:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if node.value is None:
                    continue
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for i, name in enumerate(target.elts):
                        if ast.unparse(name) == last:
                            node.value.elts[i] = _scaled(node.value.elts[i], edit.factor)
                            found = True
                elif ast.unparse(target) == last:
                    node.value, found = _scaled(node.value, edit.factor), True
    ast.fix_missing_locations(tree)
    return found


def _edited_default(
    node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, factor: float
) -> bool:
    given, wanted = [*node.args.posonlyargs, *node.args.args], name[name.index("(") + 1 : -2]
    values = node.args.defaults
    for i, argument in enumerate(given[len(given) - len(values) :]):
        if argument.arg == wanted:
            values[i] = _scaled(values[i], factor)
            return True
    for i, argument in enumerate(node.args.kwonlyargs):
        value = node.args.kw_defaults[i]
        if argument.arg == wanted and value is not None:
            node.args.kw_defaults[i] = _scaled(value, factor)
            return True
    return False


class _EditingLoader(importlib.machinery.SourceFileLoader):
    """Reads one file with one number changed."""

    edit: Edit

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text())
        if not _edited(tree, self.edit):
            raise ImportError(f"no {self.edit.knob} in {self.path}")
        return compile(tree, self.path, "exec")


class _EditingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, edit: Edit) -> None:
        self.edit = edit

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != f"unrelu.{self.edit.knob.file}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            loader = _EditingLoader(name, spec.origin)
            loader.edit = self.edit
            spec.loader = loader
        return spec


# ------------------------------------------------------------------------------- runs


def _statuses(names: list[str] | None) -> dict[str, str]:
    """Run the frozen seeds of some runs, of all if None; statuses, or the error's name."""
    from benchmarks import freeze  # after the finder is in place

    found = {}
    for name, run, seeds in freeze.runs():
        if names is None or name in names:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                try:
                    found[f"{name}/{seed}"] = run(seed).status.name
                except Exception as error:  # whatever a changed number does
                    found[f"{name}/{seed}"] = type(error).__name__
    return found


def _with(edit: Edit, names: list[str]) -> dict[str, str]:
    sys.meta_path.insert(0, _EditingFinder(edit))
    return _statuses(names)


def _files_passed() -> dict[str, set[str]]:
    """Return the files whose functions each frozen run calls, at its first seed."""
    from benchmarks import freeze

    prefix, passed = str(house.SOURCE), {}
    for name, run, _ in freeze.runs():
        seen: set[str] = set()

        def note(frame: Any, event: str, _: Any, seen: set[str] = seen) -> None:
            if event == "call":
                seen.add(frame.f_code.co_filename)

        sys.setprofile(note)
        try:
            run(FIRST_SEED)
        finally:
            sys.setprofile(None)
        passed[name] = {
            ".".join(Path(file).relative_to(prefix).with_suffix("").parts)
            for file in seen
            if file.startswith(prefix)
        }
    return passed


def _apart(function: Any, *arguments: Any) -> Any:
    """Call in a process of its own, which has imported nothing of the package yet."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def outcomes(parts: list[str], done: set[str]) -> Iterator[dict[str, Any]]:
    """Yield what halving and doubling did to each knob of some parts that is not done yet."""
    passed, before = _apart(_files_passed), _apart(_statuses, None)
    for knob in house.knobs():
        name = f"{knob.file}:{knob.name}"
        if name in done or (parts and not any(map(knob.file.startswith, parts))):
            continue
        # Settings serve the files that read them.
        users = {knob.file, *(f for f, seen in house.imports().items() if knob.file in seen)}
        names = [run for run, files in passed.items() if files & users]
        line: dict[str, Any] = {"id": name, "runs": names}
        for factor in FACTORS if names else ():
            now = _apart(_with, Edit(knob, factor), names)
            line[f"lost at {factor:g}"] = [
                f"{key}: {now[key]}"
                for key in now
                if before[key] == "RECOVERED" and now[key] != "RECOVERED"
            ]
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sensitivity", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    done = {line["id"] for line in read(options.results)}
    for line in outcomes(options.parts, done):
        append(options.results, line)
        lost = [f"x{f:g}: {', '.join(line[f'lost at {f:g}'])}" for f in FACTORS
                if line.get(f"lost at {f:g}")]  # fmt: skip
        print(f"{line['id']:60} {'; '.join(lost) or ('holds' if line['runs'] else 'no run')}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
