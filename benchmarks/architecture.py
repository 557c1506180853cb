"""Write ``docs/architecture.md`` and its picture: ``python -m benchmarks.architecture``.

The picture is the import graph, folder by folder; the ways of a query are traced while each
method runs on a small target; files, edges, knobs and lines are counted in the sources.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import house
from benchmarks.report_common import markdown, stamp, stamped
from benchmarks.ways import ways

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "figures" / "architecture.svg"

#: The picture's rows, from the top down: imports go down.
LEVELS = (
    ("cli",),
    ("report",),
    ("choose", "modular"),
    house.METHODS,
    ("lines",),
    ("core",),
    ("oracles",),
)
#: Files and edges that are asked of a reading that begins here.
ASKED = {"extraction.two_layer": (14, 35), "extraction.three_layer": (14, 35)}
SHOWN = 12  # of the longest files and functions


def entries() -> list[str]:
    """Return where the reading of each method begins: its ``algorithm.py``, or its theorems'."""
    heads = [f"{method}.algorithm" for method in house.METHODS]
    return [*ASKED, *(name for name in heads if name in house.trees())]


def edges() -> Counter[tuple[str, str]]:
    """Count the imports from one part of the package to another."""
    found: Counter[tuple[str, str]] = Counter()
    for name, seen in house.imports().items():
        for other in seen:
            found[house.part_of(name), house.part_of(other)] += 1
    return found


# ----------------------------------------------------------------------- picture


def drawn() -> Any:
    """Return what the picture shows, to tell whether it is current."""
    counted = [[*pair, count] for pair, count in sorted(edges().items())]
    return [list(map(list, LEVELS)), counted, sorted(_sizes().items())]


def _sizes() -> Counter[str]:
    return Counter(house.part_of(name) for name in house.trees())


def draw(path: Path = PICTURE) -> None:
    """Draw the folders in their rows, and an arrow for each pair that imports."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    places = {
        name: ((i + 0.5) / len(row), 1 - (level + 0.5) / len(LEVELS))
        for level, row in enumerate(LEVELS)
        for i, name in enumerate(row)
    }
    figure, axis = plt.subplots(figsize=(10, 7.5), layout="constrained")
    axis.set_axis_off()
    axis.set(xlim=(0, 1), ylim=(0, 1))
    for (source, target), count in sorted(edges().items()):
        if source != target and source in places and target in places:
            (x, y), (u, v) = places[source], places[target]
            straight = abs(y - v) * len(LEVELS) < 1.5
            axis.annotate(
                "", xy=(u, v + 0.03), xytext=(x, y - 0.03), zorder=1,
                arrowprops={"arrowstyle": "-|>", "color": "#0b62c4", "alpha": 0.45,
                            "lw": 0.5 + 0.12 * min(count, 30),
                            "connectionstyle": f"arc3,rad={0.0 if straight else 0.12}"},
            )  # fmt: skip
    sizes = _sizes()
    for name, (x, y) in places.items():
        axis.text(x, y, f"{name}\n{sizes[name]} file{'s' * (sizes[name] > 1)}", ha="center",
                  va="center", zorder=2, fontsize=10,
                  bbox={"boxstyle": "round,pad=0.4", "fc": "white", "ec": "#5b6570"})  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    stamp(path, drawn())


# -------------------------------------------------------------------------- page


def _counts() -> list[str]:
    lines = []
    for start in entries():
        seen, joined = house.reached(start)
        asked = ASKED.get(start)
        wanted = f"{asked[0]} and {asked[1]}" if asked else "–"
        longest = max(seen, key=house.lines_of)
        lines.append(
            f"| `{start}` | {len(seen)} | {joined} | {wanted} "
            f"| {sum(map(house.lines_of, seen)):,} | `{longest}`, {house.lines_of(longest)} |"
        )
    return [
        "| begins at | files | edges | goal | lines | longest file |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        *lines,
    ]


def _knob_table() -> str:
    parts: dict[str, Counter[str]] = {}
    for knob in house.knobs():
        parts.setdefault(house.part_of(knob.file), Counter())[knob.kind] += 1
    kinds = ("field", "constant", "default")
    ranked = sorted(parts.items(), key=lambda item: (-item[1].total(), item[0]))
    table = [
        [f"`{name}`", *(str(count[kind]) for kind in kinds), str(count.total())]
        for name, count in ranked
    ]
    every = sum((count for _, count in ranked), Counter[str]())
    table.append(["all", *(str(every[kind]) for kind in kinds), str(every.total())])
    header = ["part", "config fields", "module constants", "keyword defaults", "all"]
    return markdown(header, table)


def _way(steps: tuple[tuple[str, str], ...]) -> list[str]:
    """Write a way as one line for each file, with the functions passed there."""
    lines: list[tuple[str, list[str]]] = []
    for module, name in steps:
        if lines and lines[-1][0] == module:
            lines[-1][1].append(name)
        else:
            lines.append((module, [name]))
    return [
        f"{i}. `{module}`: " + " → ".join(f"`{name}`" for name in names)
        for i, (module, names) in enumerate(lines, start=1)
    ]


HEAD = """\
# The house

Generated by `python -m benchmarks.architecture`: the numbers, the picture and the ways are read
from the sources and from runs.

Cut by method: a reader of one paper stays in one folder, and what two methods share stands below
them, once. Imports go one way, from the command line down to the oracles, and methods never import
each other; `lint-imports` checks it. What knows the truth (`planted`, `metrics`) is never imported
by what recovers.

![Folders and their imports](figures/architecture.svg)

Arrows go from what imports to what is imported, the thicker the more files do. Beside these
folders stand the types that all parts share: `result`, `findings`, `networks`, `ledger`,
`samples`, `progress` and `errors`.

## Where to start reading

| you want | read |
| --- | --- |
| the public surface | `src/unrelu/__init__.py` |
| one paper's algorithm | its folder, `algorithm.py` first; [paper line to function](papers.md) |
| depth 2, depth 3 | `extraction/two_layer.py`, `extraction/three_layer.py` |
| how a method is chosen | `choose.py`, which asks `diagnostics.py` and `lines/first_look.py` |
| how a target is asked | `oracles/base.py`, then `oracles/connect.py` |
| what is shown of a result | `findings.py`, `report/`, `cli/` |
"""


def page() -> str:
    """Return the page."""
    lines = [HEAD, "## What a reader of one method meets", ""]
    lines += [
        "Files reached by imports from a method's beginning, and the edges between them, within",
        "the methods' folders, `lines` and `core`: what every method shares with all others",
        "(oracles, results, errors) is left out.", "", *_counts(), "",
        "## A query's way through the house", "",
        "Traced while each method ran on a small target: the way through the most files, from the",
        "call to the target's own function.", "",
    ]  # fmt: skip
    for name, steps in ways():
        lines += [f"**{name}**", "", *_way(steps), ""]
    lines += [
        "`learn_from_samples` asks nothing: `samples` hands it the rows, batch by batch.", "",
        "## Knobs", "",
        "A knob is a number that someone chose: a config field, a module constant or a keyword's",
        "default (0 and 1 say nothing and are not counted). It steers a recovery: what holds the",
        "truth, what is shown to a person, and single numbers that are facts or only say how",
        f"answers travel and are kept are left out, {len(house.knobs(apart=True))} more "
        "(`benchmarks/house.py` names them with the reasons). "
        f"The goal is {house.KNOBS_ASKED}; there are {len(house.knobs())}.",
        "`python -m benchmarks.house knobs` lists them; a test makes sure that they become fewer.",
        "", _knob_table(), "",
        "## Length", "",
        f"{len(house.trees())} files, {sum(lines for _, lines in house.files()):,} lines. "
        f"{len(house.long_files())} files have more than {house.FILE_LINES} lines,",
        f"{len(house.long_functions())} of {len(house.functions())} functions more than "
        f"{house.FUNCTION_LINES} (docstrings not counted). The longest:", "",
        markdown(
            ["file", "lines", "function", "lines"],
            [
                [f"`{file}`", str(count), f"`{f.file}.{f.name}`", str(f.lines)]
                for (file, count), f in zip(
                    house.files()[:SHOWN], house.functions()[:SHOWN], strict=True
                )
            ],
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(page())
    if not stamped(PICTURE, drawn()):
        draw()
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
