"""The papers page, from the modules' own maps, and the reproductions of each paper's claims."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import mutations
from benchmarks.harness import load, summary
from benchmarks.names import resolve, thing
from benchmarks.report_claims import CLAIMS
from benchmarks.report_common import figure, markdown

SOURCE = Path(__file__).parent.parent / "src" / "unrelu"


class Paper(NamedTuple):
    """A paper, where it is implemented, and the page that reproduces its claims."""

    title: str
    modules: tuple[str, ...]  # whose heads hold the table
    page: str
    guide: str
    heads: tuple[str, ...] = ()  # with maps of their own, for readers there


PAPERS = [
    Paper(
        "Daniely & Granot 2021, *An Exact Poly-Time Membership-Queries Algorithm for Extracting a "
        "Three-Layer ReLU Network*",
        ("extraction/letter.py",),
        "reproduce_daniely",
        "two_layer.md",
        ("extraction/two_layer.py", "extraction/three_layer.py"),
    ),
    Paper(
        "Chen, Klivans & Meka 2021, *Efficiently Learning Any One Hidden Layer ReLU Network From "
        "Queries*",
        ("learner/algorithm.py",),
        "reproduce_chen",
        "query_learner.md",
    ),
    Paper(
        "Jayaram, Woodruff & Zhang 2020, *Span Recovery for Deep Neural Networks with "
        "Applications to Input Obfuscation*",
        ("span/algorithm.py",),
        "reproduce_jayaram",
        "span.md",
    ),
    Paper(
        "Awasthi, Tang & Vijayaraghavan 2021, *Efficient Algorithms for Learning Depth-2 Neural "
        "Networks with General ReLU Activations*",
        ("gaussian/algorithm.py",),
        "reproduce_awasthi",
        "samples.md",
    ),
    Paper(
        "Goel & Panigrahy 2018, *Recovering the Lowest Layer of Deep Networks with High Threshold "
        "Activations*",
        (
            "thresholds/algorithm.py", "thresholds/halfspaces.py",
            "thresholds/detector.py", "thresholds/structured_layers.py", "modular.py",
        ),
        "reproduce_goel",
        "thresholds.md",
    ),
]  # fmt: skip


def paper_map(docstring: str) -> list[tuple[str, str]]:
    """Return the rows of the two-column tables in a module's docstring."""
    rows: list[tuple[str, str]] = []
    lines = docstring.splitlines()
    rules = [i for i, line in enumerate(lines) if re.fullmatch(r"=+  +=+", line.strip())]
    for first, last in itertools.pairwise(rules):
        split = lines[first].index("  ", lines[first].index("="))
        column = next(i for i in range(split, len(lines[first])) if lines[first][i] == "=")
        for line in lines[first + 1 : last]:
            left, right = line[:column].strip(), line[column:].strip()
            if left and right:
                rows.append((left, right))
            elif rows and (left or right):
                rows[-1] = (f"{rows[-1][0]} {left}".strip(), f"{rows[-1][1]} {right}".strip())
    return [(a, b) for a, b in rows if (a, b) != ("paper", "here")]


def _code(text: str) -> str:
    """Turn reStructuredText's markup of a name into Markdown's."""
    text = re.sub(r":(?:func|class|meth|mod):`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|")


def full_names(text: str, module: str, last: str = "") -> tuple[str, list[str], str]:
    """Write every name of a cell in full.

    Returns the cell, the names that are nowhere, and the last class that was named (a later
    row may speak of "the same class"). What follows a name in brackets is kept, and an
    option such as ``biased=True`` is one of the module's own functions.
    """
    names = re.findall(r"`([^`]+)`", text)
    plain = [name.partition("(")[0] for name in names]
    classes = [n for n in plain if inspect.isclass(thing(resolve(n, module) or n))]
    near = (*(resolve(n, module) or n for n in classes), *([last] if last else []))
    missing = []
    for name, bare in zip(names, plain, strict=True):
        if "=" in bare:
            if not _takes(module, bare.partition("=")[0]):
                missing.append(name)
            continue
        full = resolve(bare, module, near)
        if full is None:
            missing.append(name)
        else:
            text = text.replace(f"`{name}`", f"`{full}{name.removeprefix(bare)}`", 1)
    return text, missing, near[-1] if near else last


def _takes(module: str, option: str) -> bool:
    """Whether a public function of a module has an option."""
    functions = [thing(f"{module}.{name}") for name in getattr(thing(module), "__all__", ())]
    return any(
        option in inspect.signature(function).parameters
        for function in functions
        if inspect.isfunction(function)
    )


def paper_rows(paper: Paper) -> tuple[list[list[str]], list[str]]:
    """Return a paper's rows with every name in full, and the names that are nowhere."""
    rows, missing = [], []
    for file in paper.modules:
        docstring = ast.get_docstring(ast.parse((SOURCE / file).read_text())) or ""
        module = "unrelu." + file.removesuffix(".py").replace("/", ".")
        last = ""
        for line, here in paper_map(docstring):
            cell, absent, last = full_names(_code(here), module, last)
            missing += [f"{module}: {name}" for name in absent]
            rows.append([_code(line), cell, f"`{module}`"])
    return rows, missing


PRACTICE, DEVIATES = "in practice ", "deviates: "
TEST = re.compile(r"\btest_\w+")


def parts(cell: str) -> list[str]:
    """Split a cell of a map: as printed, in practice, how the two deviate, and the tests.

    Written ``printed; in practice this; deviates: thus; test_one, test_two``; what is not
    there is empty.
    """
    printed, practice, deviation, tests = [], [], [], TEST.findall(cell)
    where = printed
    for part in re.split(r";\s+", TEST.sub("", cell)):
        text = part.strip(" ,;")
        if text.startswith(PRACTICE):
            where, text = practice, text.removeprefix(PRACTICE)
        elif text.startswith(DEVIATES):
            where, text = deviation, text.removeprefix(DEVIATES)
        if text:
            where.append(text)
    columns = ["; ".join(column) for column in (printed, practice, deviation)]
    return [*columns, ", ".join(f"`{test}`" for test in tests)]


def tests_of(paper: Paper) -> list[str]:
    """Return the tests that a paper's table names."""
    return [test for row in paper_rows(paper)[0] for test in TEST.findall(row[1])]


def page() -> str:
    """Return the papers page: paper line to function, as printed and in practice."""
    lines = [
        "# The papers, line by line",
        "",
        "Generated by `python -m benchmarks.report` from the modules' heads, which also list",
        "every deviation with its reason. A test holds that every name is there; the test named",
        "last fails if the line is broken (`python -m benchmarks.mutations` breaks them).",
    ]
    for paper in PAPERS:
        lines += ["", f"## {paper.title}", ""]
        lines += [f"[Guide]({paper.guide}); [its claims, reproduced]({paper.page}.md).", ""]
        header = ["paper", "as printed", "in practice", "deviation", "test", "module"]
        rows = [[line, *parts(cell), module] for line, cell, module in paper_rows(paper)[0]]
        kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
        lines.append(markdown([header[i] for i in kept], [[row[i] for i in kept] for row in rows]))
    lines += ["", "## Tests that can fail", ""]
    lines.append(
        "Constants, signs and bounds of the tables above, each changed once in a copy of the\n"
        "sources: the test that names the line must fail (`python -m benchmarks.mutations`).\n"
    )
    lines.append(mutations.table())
    return "\n".join(lines) + "\n"


def _cell(runs: list[dict[str, Any]], facts: dict[str, Any], key: str) -> str:
    """Return the median and maximum of a key, or the mean where the key asks for it."""
    if key.startswith("mean:"):
        values = [float(run[key[5:]]) for run in runs if run.get(key[5:]) is not None]
        return figure(sum(values) / len(values)) if values else "–"
    if key.startswith("range:"):
        values = sorted(float(run[key[6:]]) for run in runs)
        return f"{figure(median(values))} ({figure(values[0])} to {figure(values[-1])})"
    if not isinstance(facts.get(key), dict):
        return "–"
    return f"{figure(facts[key]['median'])} ({figure(facts[key]['max'])})"


def _column(key: str) -> str:
    if key.startswith("range:"):
        return f"{key[6:]}, median (least to most)"
    return f"{key[5:]}, mean" if key.startswith("mean:") else f"{key}, median (max)"


def reproduction(paper: str) -> str:
    """Return a paper's claims, each with the rows that test it."""
    lines: list[str] = []
    for number, claim in enumerate(CLAIMS[paper], start=1):
        lines += [f"**{number}. {claim.says}.**", ""]
        rows = []
        for name, entry in load(claim.suite)["rows"].items():
            if not entry["runs"] or not name.startswith(claim.rows):
                continue
            facts = summary(entry)
            cells = [_cell(entry["runs"], facts, key) for key in claim.keys]
            rows.append([name, f"{facts['successes']}/{facts['runs']}", *cells])
        if rows:
            header = ["row", "success", *map(_column, claim.keys)]
            lines.append(markdown(header, rows))
        else:
            lines.append("Not measured yet.")
        first = claim.rows[0]
        lines += ["", f'`python -m benchmarks.{claim.suite} --rows "{first}"`', ""]
    return "\n".join(lines).rstrip()


BLOCKS: dict[str, Callable[[], str]] = {
    f"reproduce-{paper}": partial(reproduction, paper) for paper in CLAIMS
}
