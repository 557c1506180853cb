"""Command line of the hostile cases."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import RESULTS

if TYPE_CHECKING:  # the package itself is imported once --base has chosen which
    from benchmarks.hostile.case import Kind

NAME = "hostile.jsonl"
QUICK_SECONDS, QUICK_LIMIT = 1.0, 2.0
"""The quick suite leaves out kinds that took longer than the one, and stops at the other."""


def _with_source(tree: Path) -> None:
    """Start again with another checkout's package; the cases stay these."""
    source = tree / "src" if (tree / "src").is_dir() else tree
    rest = [a for i, a in enumerate(sys.argv[1:]) if not _names_base(sys.argv[1:], i)]
    os.environ["PYTHONPATH"] = str(source)
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.hostile", *rest])


def _names_base(arguments: list[str], i: int) -> bool:
    return arguments[i].startswith("--base") or (i > 0 and arguments[i - 1] == "--base")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    p.add_argument("--kinds", action="append", default=[], help="only kinds that contain this")
    p.add_argument("--seeds", help="at most this many seeds a kind, or FIRST-LAST, or one as 7-7")
    p.add_argument("--suite", choices=("quick", "full"), default="full")
    p.add_argument("--quick", action="store_true", help="the same as --suite quick")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--limit", type=float, help="at most this many seconds a case")
    p.add_argument("--fresh", action="store_true", help="forget this core type's outcomes")
    p.add_argument("--results", type=Path, default=RESULTS, help=f"folder of {NAME}, or a file")
    p.add_argument("--base", type=Path, help="run another checkout's package on these cases")
    p.add_argument("--compare", type=Path, help="a file of another release: what was right there")
    p.add_argument("--check", action="store_true", help="exit 1 if a case is false or raw")
    p.add_argument("--show", action="store_true", help="print the table, run nothing")
    p.add_argument("--list", action="store_true", help="name the kinds, run nothing")
    return p


def _seeds(text: str | None, most: int) -> range:
    if text is None:
        return range(most)
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(min(int(first), most))


def quick(kinds: list[Kind], published: list[dict[str, Any]]) -> list[Kind]:
    """Return one kind for each sort of target, and one for each function, the fast ones."""
    slow = {line["kind"] for line in published if line["seconds"] > QUICK_SECONDS}
    chosen: dict[str, Kind] = {}
    for k in kinds:
        function, _, what = k.name.partition(": ")
        if k.name not in slow and not (function in chosen and what in chosen):
            chosen.setdefault(what, k)
            chosen.setdefault(function, k)
    return [k for k in kinds if k.name in {c.name for c in chosen.values()}]


def main() -> None:
    options = parser().parse_args()
    if options.base is not None:
        _with_source(options.base)
    from benchmarks.hostile import table
    from benchmarks.hostile.kinds import KINDS
    from benchmarks.hostile.lines import latest, read
    from benchmarks.hostile.runner import run, stamp

    chosen = [k for k in KINDS if all(text in k.name for text in options.kinds)]
    if not chosen:
        parser().error(f"no kind contains all of {options.kinds}")
    if options.list:
        for k in chosen:
            print(f"{k.name} ({k.seeds} seeds)")
        return
    path = options.results if options.results.suffix == ".jsonl" else options.results / NAME
    short = options.quick or options.suite == "quick"
    if short:
        todo = [(k, 0) for k in quick(chosen, read(RESULTS / NAME))]
    else:  # the first seed of all kinds first: a run that is stopped has seen them all
        todo = [(k, seed) for k in chosen for seed in _seeds(options.seeds, k.seeds)]
        todo.sort(key=lambda case: case[1])
    if not options.show:
        limit = options.limit or (QUICK_LIMIT if short else None)
        run(todo, path, jobs=options.jobs, fresh=options.fresh, limit=limit)
    wanted = {f"{k.name}/{seed}" for k, seed in todo}
    outcomes = latest(read(path), stamp()["core"])
    mine = [outcomes[name] for name in (f"{k.name}/{s}" for k, s in todo) if name in outcomes]
    print(table.text(table.by_kind(mine)))
    print("\n".join(["", *table.blemishes(mine)]))
    if options.compare is not None:
        gone = table.lost({i: o for i, o in outcomes.items() if i in wanted},
                          latest(read(options.compare)))  # fmt: skip
        print(f"\n{len(gone)} cases were right in {options.compare} and are not now")
        print("\n".join(gone))
    if options.check and any(line["outcome"] in ("false", "raw") for line in mine):
        sys.exit(1)


if __name__ == "__main__":
    main()
