"""The house in numbers: ``python -m benchmarks.house knobs|files|functions|names``.

All is read from the sources' syntax; nothing of the package is imported. ``knobs`` lists every
number that someone chose, ``files`` and ``functions`` what is longer than the house allows,
``names`` the classes that exist twice.

What counts as a knob: a number that steers a recovery, which another person might have set
otherwise and then had another verdict, other queries or another network. Not counted are
numbers that cannot do so: those of parts that no method may import (``APART``: what holds the
truth, what is shown to a person), and single ones that are facts (``FACTS``: a format's version,
a definition, a printed formula's own power) or that only say how answers travel and are kept
(time-outs, pages, bytes: the same answers come, later or in other portions). Each of the latter
stands there by name with its reason; a test holds that all of them exist. A number that judges
an answer is a knob wherever it stands.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "unrelu"
NO_METHODS = ("cli", "report", "lines", "core", "oracles")
METHODS = tuple(
    path.name
    for path in sorted(SOURCE.iterdir())
    if (path / "__init__.py").exists() and path.name not in NO_METHODS
)
KNOBS_ASKED = 150  # the aim; 200 with the capabilities that were added since
FILE_LINES, FUNCTION_LINES = 400, 60  # what a newcomer reads in one sitting
#: No knobs of what recovers, which may not import them: they hold the truth, draw pictures and
#: pages, serve a model, or are a person's options.
APART = ("planted", "metrics", "datasets", "cli", "report", "views", "serving")
_HTTP = "how long and how often a server is asked for the same answers"
_KEPT = "how a ledger's file is kept"
_PORTION = "rows handed over at a time"
#: Numbers that steer nothing, by file and name (a class stands for its fields), and why.
FACTS = {
    "_export._ONNX_OPSET": "version of a format",
    "_ledger_file.SCHEMA_VERSION": "version of a format",
    "_ledger_file.PAGE_BYTES": _KEPT,
    "_ledger_file._BUSY_SECONDS": _KEPT,
    "_ledger_section.DIGEST_BYTES": _KEPT,
    "_ledger_section._LOOKUP_CHUNK": "SQLite's limit on bound variables",
    "ledger.DEFAULT_MAX_BYTES": _KEPT,
    "activations._SIX": "ReLU6's definition",
    "core.explain.Within": "half the distance of two labels",
    "core.memory.BLOCK_ON_DEVICE": _PORTION,
    "core.moments.MAX_ORDER": "the moments that are written out",
    "learner.config.FaithfulConstants": "the powers that the paper prints, and neutral factors",
    "oracles.base.DEFAULT_BATCH": _PORTION,
    "oracles.fingerprint.MAX_VALUES": "numbers of a model that its name is made of, at most",
    "oracles.http.NAN_RETRIES": _HTTP,
    "oracles.http._MAX_REDIRECTS": _HTTP,
    "oracles.http_options.HTTPOptions": _HTTP,
    "oracles.http_transport.MAX_RESPONSE_BYTES": _PORTION,
    "oracles.http_transport._SHOWN": "letters of a server's page in a message",
    "result.to_json(indent=)": "how a file looks",
    "samples.BATCH_ROWS": _PORTION,
    "thresholds.refine.LEMMA_7": "a constant that the paper prints",
}
NOTHING_CHOSEN = (0, 1)  # keyword defaults that mean "none" or "as it is"


class Knob(NamedTuple):
    """A number that someone chose: where it is, its name and its kind."""

    file: str
    line: int
    name: str
    kind: str


class Function(NamedTuple):
    """A function and its lines of code, the docstring not counted."""

    file: str
    name: str
    lines: int


# ------------------------------------------------------------------------- files


@lru_cache(maxsize=1)
def trees() -> Mapping[str, ast.Module]:
    """Return every file's syntax by its dotted name within the package."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text())
    return found


def path_of(name: str) -> Path:
    """Return the file of a dotted name."""
    path = SOURCE.joinpath(*name.split(".")) if name else SOURCE
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def lines_of(name: str) -> int:
    """Count the lines of a file."""
    return len(path_of(name).read_text().splitlines())


def part_of(name: str) -> str:
    """Return the folder, or the file, that a module belongs to at the top of the package."""
    return name.partition(".")[0]


# ----------------------------------------------------------------------- imports


def _not_at_run_time(tree: ast.Module) -> set[int]:
    """Return the nodes under ``if TYPE_CHECKING``."""
    guarded = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    return {id(inner) for node in guarded for inner in ast.walk(node)}


@lru_cache(maxsize=1)
def imports() -> Mapping[str, frozenset[str]]:
    """Return which files of the package each file imports, also within functions."""
    every = trees()
    found = {}
    for name, tree in every.items():
        skipped, seen = _not_at_run_time(tree), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
                package, _, module = (node.module or "").partition(".")
                if package == "unrelu":
                    within = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
                    seen |= {full if full in every else module for full in within}
            elif isinstance(node, ast.Import) and id(node) not in skipped:
                seen |= {
                    alias.name.removeprefix("unrelu").lstrip(".")
                    for alias in node.names
                    if alias.name.partition(".")[0] == "unrelu"
                }
        found[name] = frozenset(seen & every.keys()) - {name}
    return found


def recovers(name: str) -> bool:
    """Whether a file belongs to a method or to what methods stand on; no oracles, no results."""
    return part_of(name) in (*METHODS, "lines", "core")


def reached(start: str, within: Callable[[str], bool] = recovers) -> tuple[set[str], int]:
    """Return the files that a file reaches by imports, itself included, and the edges there."""
    graph, seen, todo = imports(), set(), [start]
    while todo:
        name = todo.pop()
        if name not in seen and within(name):
            seen.add(name)
            todo += graph[name]
    return seen, sum(len(graph[name] & seen) for name in seen)


# ------------------------------------------------------------------------- knobs


def _is_number(node: ast.expr | None) -> bool:
    """Whether an expression is a number, a sum of numbers, or several."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, (ast.Tuple, ast.List)) and bool(node.elts) and all(
        _is_number(element) for element in node.elts
    )  # fmt: skip


def _is_config(node: ast.ClassDef) -> bool:
    """Whether a class holds settings: frozen, every field has a default, and it is no result.

    States are not frozen or begin with what they are given; results end in their name.
    """
    frozen = any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    told = all(item.value is not None for item in fields)
    bases = [ast.unparse(base) for base in node.bases]
    results = any(name.endswith("Result") for name in (node.name, *bases))
    return frozen and told and not results and node.name not in NO_SETTINGS


#: Frozen records of what happened, all of whose fields may be left out.
NO_SETTINGS = ("QueryStats", "StageReport", "Provenance", "Findings")


def _constants(file: str, tree: ast.Module) -> Iterator[Knob]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_number(node.value):
            for target in targets:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    yield Knob(file, node.lineno, ast.unparse(name), "constant")


def _fields(file: str, tree: ast.Module) -> Iterator[Knob]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _is_config(node):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and _is_number(item.value):
                    name = f"{node.name}.{ast.unparse(item.target)}"
                    yield Knob(file, item.lineno, name, "field")


def _defaults(file: str, tree: ast.Module) -> Iterator[Knob]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = [*node.args.posonlyargs, *node.args.args]
            pairs = [
                *zip(given[len(given) - len(node.args.defaults) :], node.args.defaults,
                     strict=True),
                *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
            ]  # fmt: skip
            for argument, value in pairs:
                if value is not None and _is_number(value) and not _says_nothing(value):
                    yield Knob(file, node.lineno, f"{node.name}({argument.arg}=)", "default")


def _says_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in NOTHING_CHOSEN


def fact_of(knob: Knob) -> str:
    """Return under which name of ``FACTS`` a number stands, if it is one."""
    return f"{knob.file}.{knob.name.partition('.')[0]}"


def knobs(*, apart: bool = False) -> list[Knob]:
    """Return every number that someone chose; ``apart``: those that are not counted."""
    return [
        knob
        for file, tree in trees().items()
        for find in (_fields, _constants, _defaults)
        for knob in find(file, tree)
        if (part_of(file) in APART or fact_of(knob) in FACTS) is apart
    ]


# ------------------------------------------------------------------------ length


def _functions(file: str, node: ast.AST, prefix: str = "") -> Iterator[Function]:
    for item in ast.iter_child_nodes(node):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = item.body[0]
            docstring = ast.get_docstring(item) is not None
            said = (first.end_lineno or 0) - first.lineno + 1 if docstring else 0
            lines = (item.end_lineno or 0) - item.lineno + 1 - said
            yield Function(file, f"{prefix}{item.name}", lines)
            yield from _functions(file, item, f"{prefix}{item.name}.")
        elif isinstance(item, ast.ClassDef):
            yield from _functions(file, item, f"{prefix}{item.name}.")


def functions() -> list[Function]:
    """Return all functions, the longest first."""
    found = [f for file, tree in trees().items() for f in _functions(file, tree)]
    return sorted(found, key=lambda f: (-f.lines, f.file, f.name))


def files() -> list[tuple[str, int]]:
    """Return all files with their lines, the longest first."""
    return sorted(((name, lines_of(name)) for name in trees()), key=lambda item: (-item[1], item))


def long_functions() -> list[Function]:
    """Return the functions that are longer than the house allows."""
    return [f for f in functions() if f.lines > FUNCTION_LINES]


def long_files() -> list[tuple[str, int]]:
    """Return the files that are longer than the house allows."""
    return [(name, lines) for name, lines in files() if lines > FILE_LINES]


def names_twice() -> list[tuple[str, list[str]]]:
    """Return the names of classes that several files define, but for private ones."""
    places: dict[str, list[str]] = {}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(file)
    return sorted((name, files) for name, files in places.items() if len(files) > 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__)
    parser.add_argument("what", choices=("knobs", "files", "functions", "names"))
    what = parser.parse_args().what
    if what == "knobs":
        for knob in knobs():
            print(f"{path_of(knob.file).relative_to(SOURCE)}:{knob.line} {knob.kind} {knob.name}")
        print(f"{len(knobs())} knobs, {KNOBS_ASKED} asked")
    elif what == "names":
        print("\n".join(f"{name}: {', '.join(found)}" for name, found in names_twice()))
    elif what == "files":
        print("\n".join(f"{lines:5} {name}" for name, lines in long_files()))
    else:
        print("\n".join(f"{f.lines:5} {f.file}: {f.name}" for f in long_functions()))


if __name__ == "__main__":
    main()
